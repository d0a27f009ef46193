package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
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
}
