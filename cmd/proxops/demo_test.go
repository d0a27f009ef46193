package main

import (
	"bytes"
	"compress/zlib"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/sops"
)

// watched is an output that a test waits on.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	line chan struct{} // told of every write
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.line <- struct{}{}:
	default:
	}
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestDemoKeep: the lines that demo --keep prints work as they stand, for as
// long as it runs.
func TestDemoKeep(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "a folder")
	out := &watched{line: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, system{out: out, err: out, environ: os.Environ()}, []string{"demo", "--keep", "--dir", dir})
	}()
	for !strings.Contains(out.String(), "until Ctrl-C") {
		select {
		case <-out.line:
		case code := <-ended:
			t.Fatalf("ended with %d:\n%s", code, out)
		}
	}
	cd := regexp.MustCompile(`(?m)^cd '(.*)'$`).FindStringSubmatch(out.String())
	export := regexp.MustCompile(`(?m)^export (SOPS_AGE_KEY_FILE)='(.*)'$`).FindStringSubmatch(out.String())
	if cd == nil || export == nil {
		t.Fatalf("no lines to copy in\n%s", out)
	}
	r := proxops(t, cd[1], []string{export[1] + "=" + export[2]}, "diff")
	if r.code != 0 || !strings.Contains(r.out, "0 actions for 7 objects") {
		t.Errorf("diff: exit status %d\n%s%s", r.code, r.out, r.err)
	}
	if r := proxops(t, cd[1], nil, "diff"); r.code != 1 || !strings.Contains(r.out+r.err, "age identity") {
		t.Errorf("diff without the key: exit status %d\n%s%s", r.code, r.out, r.err)
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("ended with %d:\n%s", code, out)
	}
	for _, f := range []string{"age-key.txt", "clusters/demo/secrets.sops.yaml"} {
		name := filepath.Join(dir, f)
		if strings.HasPrefix(f, "clusters") {
			name = filepath.Join(dir, "repository", f)
		}
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	holdsNoPlaintext(t, dir, out.String())
}

// holdsNoPlaintext looks through the folder that a demo left: its one plain
// secret is the age key, in a file of its own, which others cannot read, and no
// commit has it. What the secrets file holds stands nowhere else, nor was it said.
func holdsNoPlaintext(t *testing.T, dir, said string) {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(dir, "age-key.txt"))
	if err != nil {
		t.Fatal(err)
	}
	identity := regexp.MustCompile(`AGE-SECRET-KEY-1(\w+)`).FindSubmatch(key)
	doc, err := sops.Open(filepath.Join(dir, "repository", "clusters/demo/secrets.sops.yaml"), sops.Env{KeyFile: filepath.Join(dir, "age-key.txt")})
	if err != nil {
		t.Fatal(err)
	}
	token, err := doc.Lookup("secrets.proxops-token")
	_, value, ok := strings.Cut(token.Reveal(), "=")
	if err != nil || !ok || identity == nil {
		t.Fatalf("the test's own premise: %v, %v, %v", err, ok, identity)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("others may enter %s: %v, %v", dir, st.Mode(), err)
	}
	check := func(name, text string) {
		if strings.Contains(text, value) || name != "age-key.txt" && strings.Contains(text, string(identity[1])) {
			t.Errorf("%s holds a secret:\n%s", name, text)
		}
	}
	check("what was said", said)
	seen := 0
	err = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		seen++
		text, err := os.ReadFile(file)
		if z, e := zlib.NewReader(bytes.NewReader(text)); e == nil { // an object of git's
			text, _ = io.ReadAll(z)
		}
		check(strings.TrimPrefix(file, dir+"/"), string(text))
		return err
	})
	if err != nil || seen < 10 {
		t.Errorf("%d files, %v", seen, err)
	}
}
