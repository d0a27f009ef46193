package gitrepo

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

func TestDiscoverFindsNearestAncestor(t *testing.T) {
	o := newOrigin(t)
	sub := filepath.Join(o.dir, "vm", "base")
	must(t, os.MkdirAll(sub, 0o755))
	got, err := Discover(sub)
	must(t, err)
	if got != o.dir {
		t.Errorf("root is %s, want %s", got, o.dir)
	}
	if _, err := Discover(t.TempDir()); err == nil || !strings.Contains(err.Error(), "--git-path") {
		t.Errorf("outside a repository the error should say what to do, got %v", err)
	}
}

func TestLinkedWorkTreeAndSubmoduleAreRoots(t *testing.T) {
	o := newOrigin(t)
	o.write("clusters/prod/resources.yaml", "resources: []\n")
	head := o.commit("start")
	linked := filepath.Join(t.TempDir(), "linked")
	runGit(t, o.dir, "worktree", "add", "-q", "--detach", linked)
	tree, err := OpenWork(linked)
	must(t, err)
	if tree.Head.Hash != head.String() {
		t.Errorf("head of the linked work tree is %q (%s), want %s", tree.Head.Hash, tree.reason, head)
	}
	if dirty, err := tree.Dirty([]string{"clusters/prod/resources.yaml"}); err != nil || len(dirty) != 0 {
		t.Errorf("fresh linked work tree: dirty %v, %v", dirty, err)
	}
	if root, err := Discover(filepath.Join(linked, "clusters")); err != nil || root != linked {
		t.Errorf("root is %s, %v", root, err)
	}

	outer := newOrigin(t)
	outer.commit("start")
	runGit(t, outer.dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", o.dir, "inner")
	if root, err := Discover(filepath.Join(outer.dir, "inner", "clusters")); err != nil || root != filepath.Join(outer.dir, "inner") {
		t.Errorf("root inside a submodule is %s, %v", root, err)
	}
	if _, err := outer.open().ReadFile("inner/clusters/prod/resources.yaml", 100); !errors.Is(err, ErrSubmodule) {
		t.Errorf("reading through a submodule on disk: %v", err)
	}
	runGit(t, outer.dir, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "inner")
	at, err := outer.open().At(outer.open().Head.Hash)
	must(t, err)
	if _, err := at.ReadFile("inner/clusters/prod/resources.yaml", 100); !errors.Is(err, ErrSubmodule) {
		t.Errorf("reading through a submodule of a commit: %v", err)
	}
}

func runGit(t testing.TB, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestWithoutCommitOrGit(t *testing.T) {
	for name, dir := range map[string]string{"no commit yet": newOrigin(t).dir, "not in a git repository": t.TempDir()} {
		tree, err := OpenWork(dir)
		must(t, err)
		words, err := tree.Removals(t.Context(), "prod", []int{100})
		must(t, err)
		if w := words[100]; w.Verdict != Unasked || !strings.Contains(w.Reason, name) {
			t.Errorf("%s: %v", name, w)
		}
	}
}

// links builds the same links on disk and in a commit.
func TestLinks(t *testing.T) {
	o := newOrigin(t)
	outside := filepath.Join(t.TempDir(), "secret.yaml")
	must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	o.write("vm/base/a.yaml", "a")
	o.write("deep/x/y/z.yaml", "z")
	link := func(name, target string) {
		must(t, os.Symlink(target, filepath.Join(o.dir, name)))
		_, err := o.wt.Add(name)
		must(t, err)
	}
	link("vm/base/inside.yaml", "../../vm/base/a.yaml")
	link("vm/base/twice.yaml", "inside.yaml")
	link("vm/base/out.yaml", "../../../../../../../../../"+outside)
	link("vm/base/abs.yaml", outside)
	link("vm/base/loop.yaml", "loop.yaml")
	link("vm/dir", "../deep/x")
	link("vm/away", "../..")
	o.commit("links")
	work := o.open()
	commit, err := work.At(work.Head.Hash)
	must(t, err)
	for _, tree := range []*Tree{work, commit} {
		for name, want := range map[string]string{
			"vm/base/a.yaml": "vm/base/a.yaml", "vm/base/inside.yaml": "vm/base/a.yaml",
			"vm/base/twice.yaml": "vm/base/a.yaml", "vm/dir/y/z.yaml": "deep/x/y/z.yaml",
		} {
			if got, err := tree.Resolve(name); err != nil || got != want {
				t.Errorf("local %v: %s leads to %q, %v; want %s", tree.Local, name, got, err, want)
			}
			if _, err := tree.ReadFile(name, 10); err != nil {
				t.Errorf("local %v: %s: %v", tree.Local, name, err)
			}
		}
		for _, name := range []string{"vm/base/out.yaml", "vm/base/abs.yaml", "vm/away/x", "vm/base/loop.yaml", "../x", "/etc/passwd", "vm/base/none.yaml"} {
			if data, err := tree.ReadFile(name, 100); err == nil {
				t.Errorf("local %v: %s was read: %q", tree.Local, name, data)
			}
		}
		for _, name := range []string{"vm/base/out.yaml", "vm/base/abs.yaml", "vm/away/none.yaml"} { // whether it is there or not
			if _, err := tree.ReadFile(name, 100); !errors.Is(err, ErrOutside) {
				t.Errorf("local %v: %s: %v", tree.Local, name, err)
			}
		}
	}
}

func TestReadFileRefusals(t *testing.T) {
	o := newOrigin(t)
	o.write("big", strings.Repeat("x", 101))
	o.write("lfs.yaml", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
	o.write("dir/file", "")
	o.commit("files")
	work := o.open()
	commit, err := work.At(work.Head.Hash)
	must(t, err)
	for name, want := range map[string]error{"big": ErrTooLarge, "lfs.yaml": ErrLFS, "dir": ErrDirectory, "none": fs.ErrNotExist, "dir/file/x": nil} {
		for _, tree := range []*Tree{work, commit} {
			if _, err := tree.ReadFile(name, 100); err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("local %v: %s: %v, want %v", tree.Local, name, err, want)
			}
		}
	}
	runFifo(t, filepath.Join(o.dir, "pipe"))
	if _, err := work.ReadFile("pipe", 100); !errors.Is(err, ErrIrregular) {
		t.Errorf("pipe: %v", err)
	}
}

func runFifo(t *testing.T, name string) {
	t.Helper()
	if out, err := exec.Command("mkfifo", name).CombinedOutput(); err != nil {
		t.Skipf("mkfifo: %v %s", err, out)
	}
}

func TestCommitTreeIsAFileSystem(t *testing.T) {
	o := newOrigin(t)
	o.write("vm/base/a.yaml", "hello")
	o.write("proxops.yaml", "")
	o.commit("files")
	tree, err := o.open().At(o.open().Head.Hash)
	must(t, err)
	must(t, fstest.TestFS(tree, "vm/base/a.yaml", "proxops.yaml"))
}

func TestDirty(t *testing.T) {
	o := newOrigin(t)
	for _, n := range []string{"same", "edited", "gone", "crlf", "mode"} {
		o.write(n, "one\ntwo\n")
	}
	o.commit("files")
	put := func(name, text string) { must(t, os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o644)) }
	put("edited", "one\n")
	put("crlf", "one\r\ntwo\r\n")
	put("new", "")
	must(t, os.Remove(filepath.Join(o.dir, "gone")))
	must(t, os.Chmod(filepath.Join(o.dir, "mode"), 0o755))
	got, err := o.open().Dirty([]string{"same", "edited", "gone", "crlf", "mode", "new"})
	must(t, err)
	if want := []string{"edited", "gone", "new"}; !slices.Equal(got, want) {
		t.Errorf("dirty %v, want %v", got, want)
	}
}

func TestRootBelowTheGitTop(t *testing.T) {
	o := newOrigin(t)
	o.write("infra/vm/base/a.yaml", "a")
	o.write("other.yaml", "not ours")
	must(t, os.Symlink("../../../other.yaml", filepath.Join(o.dir, "infra/vm/base/up.yaml")))
	_, err := o.wt.Add("infra/vm/base/up.yaml")
	must(t, err)
	o.commit("files")
	work, err := OpenWork(filepath.Join(o.dir, "infra"))
	must(t, err)
	commit, err := work.At(work.Head.Hash)
	must(t, err)
	for _, tree := range []*Tree{work, commit} {
		if data, err := tree.ReadFile("vm/base/a.yaml", 9); err != nil || string(data) != "a" {
			t.Errorf("local %v: %q, %v", tree.Local, data, err)
		}
		if _, err := tree.ReadFile("vm/base/up.yaml", 9); !errors.Is(err, ErrOutside) {
			t.Errorf("local %v: a link above the root: %v", tree.Local, err)
		}
	}
	if dirty, err := work.Dirty([]string{"vm/base/a.yaml"}); err != nil || dirty != nil {
		t.Errorf("dirty %v, %v", dirty, err)
	}
}

func TestHugeBlobIsNotRead(t *testing.T) {
	o := newOrigin(t)
	blob := &plumbing.MemoryObject{}
	blob.SetType(plumbing.BlobObject)
	_, err := blob.Write(make([]byte, 50<<20))
	must(t, err)
	h, err := o.repo.Storer.SetEncodedObject(blob)
	must(t, err)
	top := &object.Tree{Entries: []object.TreeEntry{{Name: "huge.yaml", Mode: filemode.Regular, Hash: h}}}
	enc := &plumbing.MemoryObject{}
	must(t, top.Encode(enc))
	th, err := o.repo.Storer.SetEncodedObject(enc)
	must(t, err)
	tree := &Tree{commit: &commitFS{store: newStore(o.repo.Storer), top: th}}
	if _, err := tree.ReadFile("huge.yaml", 1<<20); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}
