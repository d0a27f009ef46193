package sops

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/secret"
)

func helperCmd(t *testing.T, what string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "SOPS_TEST_HELPER="+what)
	return cmd
}

// A writer that is killed at any moment leaves the old file or the new one.
func TestKilledWriter(t *testing.T) {
	path, env, _ := newFile(t)
	for round := range 40 {
		cmd := helperCmd(t, "count", path, env.KeyFile)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		last := 0
		kill := time.AfterFunc(time.Hour, func() { _ = cmd.Process.Kill() })
		for lines.Scan() {
			if last == 0 {
				kill.Reset(time.Duration(rand.IntN(40_000)) * time.Microsecond)
			}
			last, _ = strconv.Atoi(lines.Text())
		}
		_ = cmd.Wait()
		if last == 0 {
			t.Fatal("the writer never wrote")
		}
		d, err := Open(path, env)
		if err != nil {
			t.Fatalf("round %d: after %d: %v", round, last, err)
		}
		v, err := d.Lookup("secrets.n")
		if got := v.Reveal(); err != nil || got != fmt.Sprint(last) && got != fmt.Sprint(last+1) {
			t.Fatalf("round %d: got %q after %d was acknowledged, %v", round, got, last, err)
		}
		if v, err := d.Lookup("secrets.token"); err != nil || v.Reveal() != "canary-token" {
			t.Fatal("another value was lost")
		}
	}
	// A killed writer's lock and temporary file do not outlive the next one.
	if err := Set(t.Context(), path, env, "secrets.n", secret.New("done")); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// Several processes that set values at once lose none.
func TestConcurrentWriters(t *testing.T) {
	path, env, _ := newFile(t)
	var cmds []*exec.Cmd
	for i := range 3 {
		cmd := helperCmd(t, "fill", path, env.KeyFile, fmt.Sprintf("p%d", i))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	d := open(t, path, env)
	for i := range 3 {
		for n := range 12 {
			if _, err := d.Lookup(fmt.Sprintf("secrets.p%d-%d", i, n)); err != nil {
				t.Error(err)
			}
		}
	}
}

func editorScript(t *testing.T, body string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+body), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEdit(t *testing.T) {
	path, env, _ := newFile(t)
	note := filepath.Join(t.TempDir(), "note")
	editor := editorScript(t, `echo "$2" > `+note+`; stat -c '%a %n' "$2" "$(dirname "$2")" >> `+note+`
cp "$2" "$2~"; sed -i s/canary-token/edited/ "$2"`)
	var out bytes.Buffer
	if err := Edit(t.Context(), path, env, []string{editor, "--wait"}, Terminal{Out: &out, Err: &out}); err != nil {
		t.Fatal(err)
	}
	if v, err := open(t, path, env).Lookup("secrets.token"); err != nil || v.Reveal() != "edited" {
		t.Errorf("%q %v", v.Reveal(), err)
	}
	lines := strings.Split(content(t, note), "\n")
	if !strings.HasPrefix(lines[1], "600 ") || !strings.HasPrefix(lines[2], "700 ") {
		t.Errorf("modes: %q", lines)
	}
	if _, err := os.Stat(filepath.Dir(lines[0])); err == nil {
		t.Error("the plaintext directory is still there")
	}

	before, _ := os.Stat(path)
	if err := Edit(t.Context(), path, env, []string{"true"}, Terminal{Out: &out, Err: &out}); err != nil {
		t.Error(err)
	}
	if err := Edit(t.Context(), path, env, []string{"false"}, Terminal{Out: &out, Err: &out}); err == nil {
		t.Error("a failed editor is no error")
	}
	if after, _ := os.Stat(path); !os.SameFile(before, after) {
		t.Error("an edit without a change wrote")
	}

	// A fault is shown and the same text edited again.
	count := filepath.Join(t.TempDir(), "count")
	editor = editorScript(t, `if [ -e `+count+` ]; then sed -i 's/: \*canary/: right/' "$1"; else touch `+count+`; sed -i 's/edited/*canary/' "$1"; fi`)
	out.Reset()
	enter := filepath.Join(t.TempDir(), "enter")
	put(t, enter, "\n")
	in, err := os.Open(enter)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := Edit(t.Context(), path, env, []string{editor}, Terminal{In: in, Out: &out, Err: &out}); err != nil {
		t.Fatal(err, out.String())
	}
	if v, err := open(t, path, env).Lookup("secrets.token"); err != nil || v.Reveal() != "right" {
		t.Errorf("%q %v", v.Reveal(), err)
	}
	if !strings.Contains(out.String(), "not YAML") || strings.Contains(out.String(), "canary") {
		t.Errorf("said %q", out.String())
	}
}

// The plaintext is gone, and the file untouched, when a signal ends the edit.
func TestEditSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			path, env, _ := newFile(t)
			before := content(t, path)
			editor := editorScript(t, `echo "$1"; sed -i s/canary-token/edited/ "$1"; exec sleep 60`)
			cmd := helperCmd(t, "edit", path, env.KeyFile, editor)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a terminal's foreground group
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			to := cmd.Process.Pid
			if sig == syscall.SIGINT {
				to = -to // Ctrl-C reaches the whole group
			}
			if err := syscall.Kill(to, sig); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("an interrupted edit is no error")
			}
			if _, err := os.Stat(filepath.Dir(strings.TrimSpace(line))); err == nil {
				t.Error("the plaintext is still there")
			}
			if content(t, path) != before {
				t.Error("an interrupted edit was stored")
			}
		})
	}
}
