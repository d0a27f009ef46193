package cases_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// ids are the known pains, by section: perpetual diffs, destructive surprises,
// partial failures and races, permissions, clusters and versions, images and
// containers, and what was seen with a widely used tool.
var ids = strings.Fields(`
	A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 A17 A18 A19 A20 A22 A24 A25 A26 A27 A28
	B1 B2 B4 B5 B6 B7 B9 B10 B11 B13 B14 B15 B16 B17 B19 B20 B21
	C1 C2 C3 C5 C6 C7 C8 C10 C11 C12 C13 C14 C15
	D1 D2 D3 D4 D6 D7 D8
	E1 E2 E3 E4 E5
	F1 F2 F3 F4 F5 F6 F7 F8
	H1 H2 H3 H4`)

var declared = regexp.MustCompile(`(?m)^func Test([A-H][0-9]+)_`)
var gapLine = regexp.MustCompile("(?m)^[-*|] *`?([A-H][0-9]+)`?[: |]")

// Every case has a test that is named after it, or a line in docs/gaps.md that
// says why it has not.
func TestEveryCaseIsAnswered(t *testing.T) {
	have := map[string]string{}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	note := func(re *regexp.Regexp, file string) {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range re.FindAllStringSubmatch(string(raw), -1) {
			have[m[1]] += file + " "
		}
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "_test.go") {
			note(declared, e.Name())
		}
	}
	note(gapLine, "../../docs/gaps.md")
	for _, id := range ids {
		if have[id] == "" {
			t.Errorf("%s has neither a test nor a line in docs/gaps.md", id)
		}
		delete(have, id)
	}
	for id, where := range have {
		t.Errorf("%s (%s) is no known case", id, where)
	}
}
