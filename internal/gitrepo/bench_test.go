package gitrepo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/proxops/proxops/internal/secret"
)

// benchChild makes TestMirrorChild do something: "update", a URL and a data
// directory, or "run" and a command line, with newlines between.
const benchChild = "PROXOPS_MIRROR_BENCH"

// TestMirrorChild is one Update, or one command of git, in a process of its
// own, which prints the most memory that it took. A process that a large one
// starts counts the large one's memory as its own, so that BenchmarkMirror
// cannot ask its children directly.
func TestMirrorChild(t *testing.T) {
	args := strings.Split(os.Getenv(benchChild), "\n")
	switch args[0] {
	case "update":
		m, err := NewMirror(Source{URL: args[1], Ref: "main", DataDir: args[2]})
		must(t, err)
		must(t, m.Update(t.Context(), Auth{Token: secret.New("canary")}).Err)
		status, err := os.ReadFile("/proc/self/status")
		must(t, err)
		_, rest, _ := strings.Cut(string(status), "VmHWM:")
		fmt.Println("peak", strings.Fields(rest)[0])
	case "run":
		cmd := exec.Command(args[1], args[2:]...)
		cmd.Stderr = os.Stderr
		must(t, cmd.Run())
		fmt.Println("peak", cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	default:
		t.Skip("is for BenchmarkMirror")
	}
}

// measure runs a child and reports the most memory that it took, in MiB.
func measure(b *testing.B, args ...string) {
	b.Helper()
	exe, err := os.Executable()
	must(b, err)
	cmd := exec.Command(exe, "-test.run", "^TestMirrorChild$")
	cmd.Env = append(gitEnv(), benchChild+"="+strings.Join(args, "\n"))
	out, err := cmd.Output()
	must(b, err)
	_, rest, _ := strings.Cut(string(out), "peak ")
	kib, err := strconv.Atoi(strings.Fields(rest + " ?")[0])
	must(b, err)
	b.ReportMetric(float64(kib)/1024, "MiB-peak")
}

func gitEnv() []string {
	return append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "http_proxy=", "no_proxy=127.0.0.1")
}

func size(tb testing.TB, dir string) (n int64) {
	tb.Helper()
	must(tb, filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}

// manifestEdit is a commit that changes one manifest of long's repository, for
// git fast-import.
func manifestEdit(n int) string {
	text := fmt.Sprintf("kind: VM\nspec:\n  vmid: 1001\n  memory: %dMiB\n", 4096+n)
	return fmt.Sprintf("commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata 4\nedit\nfrom refs/heads/main^0\nM 644 inline vm/prod/g0001.yaml\ndata %d\n%s\n",
		1800000000+60*n, len(text), text)
}

// BenchmarkMirror measures URL mode over HTTP on a repository of 5,000 files
// and 2,000 commits, and the git command line doing the same: the first clone,
// a poll without news, and a poll that brings one commit. The memory
// is that of one further run in a process of its own.
func BenchmarkMirror(b *testing.B) {
	root := long(b, 5000, 2000).Root
	url, _ := gitServer(b, filepath.Dir(root), "canary")
	url += "/" + filepath.Base(root) + "/.git"
	auth := Auth{Token: secret.New("canary")}
	ours := func(b *testing.B, dir string) {
		b.Helper()
		m, err := NewMirror(Source{URL: url, Ref: "main", DataDir: dir})
		must(b, err)
		must(b, m.Update(b.Context(), auth).Err)
	}
	git := func(b *testing.B, args ...string) {
		b.Helper()
		cmd := exec.Command("git", args...)
		cmd.Stderr, cmd.Env = os.Stderr, gitEnv()
		must(b, cmd.Run())
	}
	cliURL := strings.Replace(url, "http://", "http://git:canary@", 1)

	b.Run("clone/proxops", func(b *testing.B) {
		for b.Loop() {
			dir := b.TempDir()
			ours(b, dir)
			b.ReportMetric(float64(size(b, dir))/(1<<20), "MiB-disk")
		}
		measure(b, "update", url, b.TempDir())
	})
	b.Run("clone/git", func(b *testing.B) {
		for b.Loop() {
			dir := filepath.Join(b.TempDir(), "m")
			git(b, "clone", "-q", "--bare", "--single-branch", "--branch", "main", cliURL, dir)
			b.ReportMetric(float64(size(b, dir))/(1<<20), "MiB-disk")
		}
		measure(b, "run", "git", "clone", "-q", "--bare", "--single-branch", "--branch", "main", cliURL, filepath.Join(b.TempDir(), "m"))
	})
	dir, cli := b.TempDir(), filepath.Join(b.TempDir(), "m")
	ours(b, dir)
	git(b, "clone", "-q", "--bare", "--single-branch", "--branch", "main", cliURL, cli)
	fetch := []string{"-C", cli, "fetch", "-q", cliURL, "+refs/heads/main:refs/heads/main"}
	b.Run("poll/proxops", func(b *testing.B) {
		for b.Loop() {
			ours(b, dir)
		}
		measure(b, "update", url, dir)
	})
	b.Run("poll/git", func(b *testing.B) {
		for b.Loop() {
			git(b, fetch...)
		}
		measure(b, append([]string{"run", "git"}, fetch...)...)
	})
	edits, stream := 0, filepath.Join(b.TempDir(), "stream")
	news := func(b *testing.B) {
		b.Helper()
		b.StopTimer()
		edits++
		text := manifestEdit(edits)
		must(b, os.WriteFile(stream, []byte(text), 0o600))
		runGit(b, root, "-c", "alias.imp=!git fast-import --quiet <"+stream, "imp")
		b.StartTimer()
	}
	b.Run("commit/proxops", func(b *testing.B) {
		for b.Loop() {
			news(b)
			ours(b, dir)
		}
		news(b)
		measure(b, "update", url, dir)
	})
	b.Run("commit/git", func(b *testing.B) {
		for b.Loop() {
			news(b)
			git(b, fetch...)
		}
		news(b)
		measure(b, append([]string{"run", "git"}, fetch...)...)
	})
}
