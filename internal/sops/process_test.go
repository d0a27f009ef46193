package sops

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
		last := killed(t, 40*time.Millisecond, nil, "count", path, env.KeyFile)
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

// killed runs a helper that counts, kills it at some moment after its first
// line, and gives the last number that it printed.
func killed(t *testing.T, within time.Duration, environ []string, what string, args ...string) int {
	t.Helper()
	cmd := helperCmd(t, what, args...)
	cmd.Env = append(cmd.Env, environ...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(time.Hour, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	last := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if last == 0 {
			kill.Reset(time.Duration(rand.Int64N(int64(within))))
		}
		last, _ = strconv.Atoi(lines.Text())
	}
	_ = cmd.Wait()
	if last == 0 {
		t.Fatal("the helper did not begin")
	}
	return last
}

// The same for the other commands that write.
func TestKilledRekey(t *testing.T) {
	path, env, own := newFile(t)
	guest := newRecipient(t)
	for round := range 8 {
		if slices.Contains(open(t, path, env).Recipients(), guest) {
			if err := Rekey(t.Context(), path, env, nil, []string{guest}); err != nil {
				t.Fatal(err)
			}
		}
		last := killed(t, 30*time.Millisecond, nil, "rekey", path, env.KeyFile, guest)
		d, err := Open(path, env)
		if err != nil {
			t.Fatalf("round %d: after %d: %v", round, last, err)
		}
		if got := d.Recipients(); got[0] != own || len(got) > 2 || len(got) == 2 && got[1] != guest {
			t.Fatalf("round %d: %v", round, got)
		}
		if text, err := d.Plaintext(); err != nil || text.Reveal() != sample {
			t.Fatalf("round %d: %v\n%s", round, err, text.Reveal())
		}
	}
}

func TestKilledEdit(t *testing.T) {
	path, env, _ := newFile(t)
	if err := Set(t.Context(), path, env, "secrets.count", secret.New("n0")); err != nil {
		t.Fatal(err)
	}
	place, err := os.MkdirTemp("/dev/shm", "proxops-test-") // what a killed editor leaves is in memory
	if err != nil {
		place = t.TempDir()
	}
	defer os.RemoveAll(place)
	editor := editorScript(t, `sed -i "s/count: n[0-9]*/count: n$1/" "$2"`)
	for round := range 6 {
		if err := Set(t.Context(), path, env, "secrets.count", secret.New("n0")); err != nil {
			t.Fatal(err)
		}
		last := killed(t, 60*time.Millisecond, []string{"XDG_RUNTIME_DIR=" + place}, "edits", path, env.KeyFile, editor)
		v, err := open(t, path, env).Lookup("secrets.count")
		if got := v.Reveal(); err != nil || got != fmt.Sprintf("n%d", last) && got != fmt.Sprintf("n%d", last+1) {
			t.Fatalf("round %d: %q after %d was acknowledged, %v", round, got, last, err)
		}
	}
}

// A killed init can be repeated: neither half a key file nor half a secrets
// file is in its way.
func TestKilledInit(t *testing.T) {
	for round := range 12 {
		dir := t.TempDir()
		path, env := filepath.Join(dir, "secrets.sops.yaml"), Env{KeyFile: filepath.Join(dir, "keys.txt")}
		killed(t, 4*time.Millisecond, nil, "init", path, env.KeyFile)
		if _, err := os.Stat(path); err != nil {
			if _, err := Init(InitOptions{Path: path, Env: env}); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if err := Set(t.Context(), path, env, "secrets.token", secret.New("x")); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if info, err := os.Stat(env.KeyFile); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
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

// An edit that was killed leaves its plaintext; the next one removes it, says
// so, and touches nothing else that lies there.
func TestEditSweeps(t *testing.T) {
	path, env, _ := newFile(t)
	place, err := os.MkdirTemp("/dev/shm", "proxops-test-")
	if err != nil {
		place = t.TempDir()
	}
	defer os.RemoveAll(place)
	t.Setenv("XDG_RUNTIME_DIR", place)
	t.Setenv("TMPDIR", place)
	cmd := helperCmd(t, "edit", path, env.KeyFile, editorScript(t, `cp "$1" "$1~"; echo $$ "$1"; exec sleep 60`))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var editor int
	var file string
	if _, err := fmt.Fscan(out, &editor, &file); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(editor, syscall.SIGKILL) }()

	second, secondEnv, _ := newFile(t) // the first is held by the edit under way
	var said bytes.Buffer
	edit := func() string {
		t.Helper()
		said.Reset()
		if err := Edit(t.Context(), second, secondEnv, []string{"true"}, Terminal{Out: &said, Err: &said}); err != nil {
			t.Fatal(err)
		}
		return said.String()
	}
	if text := edit(); strings.Contains(text, "removed") || !strings.Contains(content(t, file), "canary-token") {
		t.Fatalf("an edit under way was swept: %s", text)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if filepath.Dir(filepath.Dir(file)) != place || !strings.Contains(content(t, file+"~"), "canary-token") {
		t.Fatalf("the test's own premise: %s lies in %s", file, place)
	}
	dead := strconv.Itoa(cmd.Process.Pid)
	stays := []string{"proxops-edit-notes", "proxops-edit-" + dead, "proxops-edit--1-x", "proxops-edit-0-x", "proxops-edit-1-x", "other-" + dead + "-x", fmt.Sprintf("proxops-edit-%d-x", os.Getpid())}
	for _, name := range stays {
		if err := os.Mkdir(filepath.Join(place, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	target := t.TempDir()
	if err := os.Symlink(target, filepath.Join(place, "proxops-edit-"+dead+"-link")); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(place, "proxops-edit-"+dead+"-file"), "x")
	text := edit()
	if _, err := os.Stat(filepath.Dir(file)); !os.IsNotExist(err) || !strings.Contains(text, "removed "+filepath.Dir(file)+": ") {
		t.Errorf("%v, said %q", err, text)
	}
	for _, name := range append(stays, "proxops-edit-"+dead+"-link", "proxops-edit-"+dead+"-file") {
		if _, err := os.Lstat(filepath.Join(place, name)); err != nil || strings.Contains(text, name+":") {
			t.Errorf("%s was taken for ours: %v, %s", name, err, text)
		}
	}
	if text := edit(); strings.Contains(text, "removed") {
		t.Errorf("said again: %s", text)
	}
}
