package main

import (
	"bufio"
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestSchemaFileIsCurrent(t *testing.T) {
	const dir = "../../../../../shared/pve"
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no API description here")
	}
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	if err := generate(dir, w); err != nil {
		t.Fatal(err)
	}
	w.Flush()
	want, err := os.ReadFile("../pve.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Error("pve.txt differs from what the generator writes; run it again")
	}
}

func TestPermissions(t *testing.T) {
	for in, want := range map[string]string{
		`null`:                "root",
		`{"description":"x"}`: "root",
		`{"user":"all","check":["perm","/",["A"]]}`:                                                         "all",
		`{"check":["perm","/vms/{vmid}",["VM.Audit","VM.Clone"],"any",1]}`:                                  "(perm /vms/{vmid} VM.Audit VM.Clone :any)",
		`{"check":["or",["userid-param","self"],["userid-group",["User.Modify"],"groups_param","update"]]}`: "(or (userid-param self) (userid-group User.Modify :groups update))",
		`{"check":["perm","/pool/{pool}",["VM.Allocate"],"require_param","pool"]}`:                          "(perm /pool/{pool} VM.Allocate :if pool)",
		`{"check":["perm-modify","{path}"]}`:                                                                "(perm-modify {path})",
	} {
		if got, err := permission([]byte(in)); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{`{"check":["magic"]}`, `{"check":["perm","/",["A"],"later",1]}`, `{"check":["and","x"]}`, `[`} {
		if got, err := permission([]byte(in)); err == nil {
			t.Errorf("%s is written as %q", in, got)
		}
	}
}

func TestPatterns(t *testing.T) {
	if got := goPattern(`(?^:a{,8})(?^i:b)(?^u:c\0)`); got != `(?:a{0,8})(?i:b)(?:c\x00)` {
		t.Error(got)
	}
	if strings.Contains(goPattern(`{1,4}`), "{0") {
		t.Error("a full range is changed")
	}
}
