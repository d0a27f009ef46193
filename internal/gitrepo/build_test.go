package gitrepo

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// origin is a repository under construction, one minute a commit.
type origin struct {
	t    testing.TB
	dir  string
	repo *git.Repository
	wt   *git.Worktree
	now  time.Time
	sign git.Signer
}

func newOrigin(t testing.TB) *origin {
	t.Helper()
	dir := t.TempDir()
	repo, err := git.PlainInitWithOptions(dir, &git.PlainInitOptions{
		InitOptions: git.InitOptions{DefaultBranch: "refs/heads/main"},
	})
	must(t, err)
	wt, err := repo.Worktree()
	must(t, err)
	return &origin{t: t, dir: dir, repo: repo, wt: wt, now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (o *origin) write(name, text string) {
	o.t.Helper()
	full := filepath.Join(o.dir, filepath.FromSlash(name))
	must(o.t, os.MkdirAll(filepath.Dir(full), 0o755))
	must(o.t, os.WriteFile(full, []byte(text), 0o644))
	_, err := o.wt.Add(name)
	must(o.t, err)
}

func (o *origin) remove(name string) {
	o.t.Helper()
	_, err := o.wt.Remove(name)
	must(o.t, err)
}

// commit commits the index; parents, when given, make a merge.
func (o *origin) commit(msg string, parents ...plumbing.Hash) plumbing.Hash {
	o.t.Helper()
	o.now = o.now.Add(time.Minute)
	who := &object.Signature{Name: "Ada", Email: "ada@example.org", When: o.now}
	h, err := o.wt.Commit(msg, &git.CommitOptions{
		Author: who, Committer: who, Parents: parents, AllowEmptyCommits: true, Signer: o.sign,
	})
	must(o.t, err)
	return h
}

// branch makes a branch at h and checks it out.
func (o *origin) branch(name string, h plumbing.Hash) {
	o.t.Helper()
	must(o.t, o.wt.Checkout(&git.CheckoutOptions{Hash: h, Branch: plumbing.NewBranchReferenceName(name), Create: true, Force: true}))
}

func (o *origin) checkout(name string) {
	o.t.Helper()
	must(o.t, o.wt.Checkout(&git.CheckoutOptions{Branch: plumbing.NewBranchReferenceName(name), Force: true}))
}

func (o *origin) open() *Tree {
	o.t.Helper()
	tree, err := OpenWork(o.dir)
	must(o.t, err)
	return tree
}

func (o *origin) vm(name string, vmid int) {
	o.t.Helper()
	o.write("vm/prod/"+name+".yaml", fmt.Sprintf("kind: VM\nmetadata:\n  name: %s\nspec:\n  vmid: %d\n", name, vmid))
}

func (o *origin) compose(paths ...string) {
	o.t.Helper()
	text := "resources:\n"
	for _, p := range paths {
		text += "  - " + p + "\n"
	}
	o.write("clusters/prod/resources.yaml", text)
}
