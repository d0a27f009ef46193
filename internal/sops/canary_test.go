package sops

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/proxops/proxops/internal/secret"
)

// No way of printing a document, and nothing that a process writes on its way
// to a panic, shows a value, a key or a comment.
func TestNothingShown(t *testing.T) {
	path, env, _ := newFile(t)
	d := open(t, path, env)
	var all bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
		fmt.Fprintf(&all, verb+"\n", d)
		fmt.Fprintf(&all, verb+"\n", struct{ doc *Document }{d})
		fmt.Fprintf(&all, verb+"\n", []any{d, env})
	}
	j, _ := json.Marshal(map[string]any{"d": d, "e": env})
	y, _ := yaml.Dump(map[string]any{"d": d})
	all.Write(j)
	all.Write(y)
	slog.New(slog.NewTextHandler(&all, nil)).Info("x", "d", d, "e", env)
	slog.New(slog.NewJSONHandler(&all, nil)).Info("x", "d", d, "e", env)

	// SOPS logs a comment that stands unencrypted in the file.
	put(t, path, strings.Replace(content(t, path), "secrets:\n", "secrets:\n    # canary-comment\n", 1))
	for _, what := range []string{"open", "panic"} {
		out, err := helperCmd(t, what, path, env.KeyFile).CombinedOutput()
		var exit *exec.ExitError
		if what == "panic" && (!errors.As(err, &exit) || !bytes.Contains(out, []byte("goroutine"))) {
			t.Errorf("no panic: %v %s", err, out)
		}
		if what == "open" && (err != nil || !bytes.Contains(out, []byte("(redacted)"))) {
			t.Errorf("%v %s", err, out)
		}
		all.Write(out)
	}
	for _, bad := range []string{"canary", "AGE-SECRET"} {
		if strings.Contains(all.String(), bad) {
			t.Errorf("%s is shown:\n%s", bad, all.String())
		}
	}
}

func FuzzOpen(f *testing.F) {
	path, env, _ := newFile(f)
	good := content(f, path)
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(good, "type:str", "type:bytes", 1)))
	f.Add([]byte(good + "---\nb: &b [*b]\n"))
	f.Add([]byte(pgpOnly))
	f.Add([]byte("sops:\n  age: [{recipient: x, enc: y}]\n  mac: z\n  lastmodified: 2020-01-01T00:00:00Z\n"))
	f.Add([]byte("? [a]\n: b\nsops: {}\n"))
	f.Add([]byte("<<: {a: b}\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := decode(raw, env)
		var e *Error
		if err != nil && (d != nil || !errors.As(err, &e) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%v", err)
		}
	})
}

// What Replace takes can be written, and read back with the same values.
func FuzzReplace(f *testing.F) {
	path, env, _ := newFile(f)
	d := open(f, path, env)
	for _, s := range []string{sample, "a: b", "secrets:\n  a: |\n    x\n    # y\n", "a: 18446744073709551615", "a: [1, [2]]", "# x\n", "a: \"\\0\"", "a: .nan", "a: 2024-01-01", "a:\n- # b\n  c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := d.Replace(secret.New(text)); err != nil {
			return
		}
		out, err := seal(d.plain, d.meta, d.key, newSealer(), 0)
		var e *Error
		if err != nil && !errors.As(err, &e) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		if back, err := decode(out, env); err != nil || !sameValues(back.plain, d.plain) {
			t.Errorf("%v", err)
		}
	})
}
