package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/proxops/proxops/internal/pvesim"
)

// noRoom is a program for which every write to a file fails, as on a full disk,
// whoever runs it. Files can still be made, and stay empty. It is a process of
// its own, since go test has the tests' process write files, too.
func noRoom() {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit)
	limit.Cur = 0
	if err = errors.Join(err, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)); err != nil {
		panic(err)
	}
	os.Exit(mainExit())
}

// tree is every file below a folder with its text.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		out[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFullDisk: a command that cannot write says where and fails; it leaves
// neither half a file nor an empty one, and what was there is as it was.
func TestFullDisk(t *testing.T) {
	p := plant(t)
	p.world.View(func(s *pvesim.State) {
		s.Guests[300] = &pvesim.Guest{VMID: 300, Kind: "qemu", Node: "pve01", Config: pvesim.Section{"name": "stray", "memory": "512"}}
	})
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	before := tree(t, p.dir)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"secrets", "set", "secrets.new"}, "secrets.sops.yaml"},
		{[]string{"secrets", "edit"}, "proxops-edit-"},
		{[]string{"secrets", "rekey", "--add", id.Recipient().String()}, "secrets.sops.yaml"},
		{[]string{"adopt", "--cluster", "prod"}, "vm/prod/stray.yaml: not written"},
		{[]string{"snapshot", "--out", filepath.Join(out, "estate.json")}, filepath.Join(out, "estate.json") + ": not written"},
		{[]string{"demo", "--keep", "--dir", filepath.Join(out, "demo")}, filepath.Join(out, "demo")},
		{[]string{"lab", "--state", filepath.Join(out, "lab")}, filepath.Join(out, "lab", "credentials.json") + ": not written"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cmd := exec.CommandContext(ctx, "proxops-no-room", append([]string{"--git-path", p.dir}, c.args...)...)
		cmd.Env, cmd.Stdin = p.env, strings.NewReader(canaryStdin+"\n")
		said, _ := cmd.CombinedOutput()
		cancel()
		code := cmd.ProcessState.ExitCode()
		text := string(said)
		if code != 1 || !strings.Contains(text, c.says) || !strings.Contains(text, syscall.EFBIG.Error()) || !strings.Contains(text, "make room") || strings.Contains(text, "panic") {
			t.Errorf("%s: exit status %d, want 1 and %q:\n%s", strings.Join(c.args, " "), code, c.says, text)
		}
		p.check(t, strings.Join(c.args, " "), text)
		after := tree(t, p.dir)
		for name, text := range after {
			if was, there := before[name]; !there || was != text {
				t.Errorf("%s: %s is new or changed: %q", strings.Join(c.args, " "), name, text)
			}
		}
		if len(after) != len(before) {
			t.Errorf("%s: %d files became %d", strings.Join(c.args, " "), len(before), len(after))
		}
		if left := tree(t, out); len(left) > 0 {
			t.Errorf("%s: left %v", strings.Join(c.args, " "), left)
		}
	}
}

// TestNoRoomForJournal: the daemon goes on where its journal cannot be, be the
// disk full or a file in the place of the folder, and says where.
func TestNoRoomForJournal(t *testing.T) {
	for _, what := range []string{"full", "no folder"} {
		w, srv, line := labFor(t, 1)
		dir := t.TempDir()
		files := goodFiles()
		r := strings.NewReplacer("SIM_URL", srv.URL, "SIM_FP", srv.Fingerprint)
		for name, text := range files {
			files[name] = r.Replace(text)
		}
		data := filepath.Join(t.TempDir(), "data")
		files["proxops.yaml"] = "data-dir: " + data + "\n"
		writeFiles(t, dir, files)
		if err := commitAll(dir, "begin"); err != nil {
			t.Fatal(err)
		}
		env := []string{"PROXOPS_PVE_TOKEN_VALUE=" + line.Token, "HOME=" + t.TempDir()}
		program, says := "proxops-no-room", "journal entries were lost"
		if what == "no folder" {
			program, says = "proxops", "no journal is kept"
			if err := os.WriteFile(data, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out := &watched{line: make(chan struct{}, 1)}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "--git-path", dir, "run", "--listen", "127.0.0.1:0")
		cmd.Env, cmd.Stdout, cmd.Stderr = env, out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(out.String(), "object=VM:a") && ctx.Err() == nil {
			select {
			case <-out.line:
			case <-ctx.Done():
			}
		}
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		w.View(func(s *pvesim.State) {
			if s.Guests[100] == nil {
				t.Errorf("%s: nothing was reconciled:\n%s", what, out)
			}
		})
		if what == "no folder" {
			if r := proxops(t, dir, env, "history"); r.code != 1 || !strings.Contains(r.err, data) || !strings.Contains(r.err, "not a directory") {
				t.Errorf("history: exit status %d, %s%s", r.code, r.out, r.err)
			}
		}
		if text := out.String(); !strings.Contains(text, says) || !strings.Contains(text, filepath.Join(data, "journal")) || strings.Contains(text, "panic") {
			t.Errorf("%s: %s", what, text)
		}
	}
}

// TestSnapshotKeepsDevices: --out makes a file, and never takes the place of
// what is none.
func TestSnapshotKeepsDevices(t *testing.T) {
	p := plant(t)
	dir := t.TempDir()
	link := filepath.Join(dir, "null")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{link, dir} {
		for _, more := range [][]string{nil, {"--force"}} {
			r := proxops(t, p.dir, p.env, append([]string{"snapshot", "--out", out}, more...)...)
			if r.code != 1 || !strings.Contains(r.err, "is no regular file") {
				t.Errorf("%s %v: exit status %d, %s", out, more, r.code, r.err)
			}
		}
	}
	if to, err := os.Readlink(link); err != nil || to != os.DevNull {
		t.Errorf("the link is %q, %v", to, err)
	}
}
