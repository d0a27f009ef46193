package repo

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/proxops/proxops/internal/gitrepo"
)

// commit puts everything in dir into a commit, of a new repository at first.
func commit(t testing.TB, dir string) string {
	t.Helper()
	repo, err := git.PlainInit(dir, false)
	if errors.Is(err, git.ErrRepositoryAlreadyExists) {
		repo, err = git.PlainOpen(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	wt, err := repo.Worktree()
	if err != nil {
		t.Fatal(err)
	}
	if err := wt.AddWithOptions(&git.AddOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	who := &object.Signature{Name: "Ada", Email: "ada@example.org", When: time.Now()}
	h, err := wt.Commit("change", &git.CommitOptions{Author: who, AllowEmptyCommits: true})
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCommitAndDirt(t *testing.T) {
	dir := base().write(t)
	head := commit(t, dir)
	load := func() *Cluster {
		c, err := open(t, dir).Load(t.Context(), "prod")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := load(); c.Commit != head || c.Dirty {
		t.Errorf("clean: commit %s, dirty %v", c.Commit, c.Dirty)
	}
	put(t, dir, "notes.txt", "x")
	put(t, dir, "vm/prod/unlisted.yaml", "x")
	if c := load(); c.Dirty {
		t.Error("files that no cluster is made of make it dirty")
	}
	put(t, dir, "iso/base/debian.yaml", isoYAML+"# a comment\n")
	if c := load(); !c.Dirty || c.Commit != head {
		t.Errorf("edited: commit %s, dirty %v", c.Commit, c.Dirty)
	}
}

func TestRemovalsOfACluster(t *testing.T) {
	f := base()
	dir := f.write(t)
	commit(t, dir)
	put(t, dir, "clusters/prod/resources.yaml", "resources: [iso/base/debian.yaml]\n")
	c, err := open(t, dir).Load(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	words, err := c.Removals(t.Context(), []int{100, 777})
	if err != nil || words[100].Verdict != gitrepo.Uncommitted || words[777].Verdict != gitrepo.Never {
		t.Errorf("got %v, %v", words, err)
	}
	head := commit(t, dir)
	if c, err = open(t, dir).Load(t.Context(), "prod"); err != nil {
		t.Fatal(err)
	}
	if words, err = c.Removals(t.Context(), []int{100}); err != nil || words[100].Commit.Hash != head {
		t.Errorf("got %v, %v", words, err)
	}
}

// urlMode opens what proxops.yaml in an empty directory names.
func urlMode(t *testing.T, remote, more string) *Repo {
	t.Helper()
	dir := files{"proxops.yaml": "git: {url: 'file://" + remote + "'}\ndata-dir: data\n" + more}.write(t)
	r, err := Open(Options{Dir: dir, Env: tokenEnv})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestURLMode(t *testing.T) {
	remote := base().with(files{"clusters/prod/ca.pem": "-----BEGIN CERTIFICATE-----\n", "clusters/prod/config.yaml": configYAML + "      ca-file: ca.pem\n", "proxops.yaml": "log: {level: nonsense}\n"}).write(t)
	first := commit(t, remote)
	r := urlMode(t, remote, "")
	if _, err := r.LoadAll(t.Context()); err == nil || !strings.Contains(err.Error(), "was never fetched") {
		t.Errorf("before the first fetch: %v", err)
	}
	if st := r.Sync(t.Context()); st.Err != nil {
		t.Fatal(st.Err)
	}
	c, err := r.Load(t.Context(), "prod")
	if err != nil || c.Commit != first || c.Dirty || len(c.Config.CA) == 0 {
		t.Fatalf("got %+v, %v", c, err)
	}
	// What is broken there is broken here, and what is fixed is fixed.
	put(t, remote, "vm/prod/a.yaml", "x")
	commit(t, remote)
	if st := r.Sync(t.Context()); st.Err != nil {
		t.Fatal(st.Err)
	}
	if _, err := r.Load(t.Context(), "prod"); err == nil || !strings.HasPrefix(err.Error(), "vm/prod/a.yaml:1:1: ") {
		t.Errorf("got %v", err)
	}
	// The remote goes away: the last tree stays, and a new process has it too.
	if err := os.RemoveAll(remote); err != nil {
		t.Fatal(err)
	}
	if st := r.Sync(t.Context()); !st.Stale || st.Tree == nil {
		t.Errorf("got %+v", st)
	}
}

func TestURLModeSurvivesARestart(t *testing.T) {
	remote := base().write(t)
	head := commit(t, remote)
	r := urlMode(t, remote, "")
	if st := r.Sync(t.Context()); st.Err != nil {
		t.Fatal(st.Err)
	}
	if err := os.RemoveAll(remote); err != nil {
		t.Fatal(err)
	}
	again, err := Open(r.opts)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := again.Load(t.Context(), "prod"); err != nil || c.Commit != head {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestURLModeClusterInProxopsYAML(t *testing.T) {
	remote := base().with(files{"clusters/prod/config.yaml": ""}).write(t)
	commit(t, remote)
	entry := "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2]}}}\n"
	r := urlMode(t, remote, entry)
	if st := r.Sync(t.Context()); st.Err != nil {
		t.Fatal(st.Err)
	}
	if c, err := r.Load(t.Context(), "prod"); err != nil || c.Config.BaseURL != "https://a:8006" {
		t.Errorf("got %+v, %v", c, err)
	}
	put(t, remote, "clusters/prod/config.yaml", configYAML)
	commit(t, remote)
	if st := r.Sync(t.Context()); st.Err != nil {
		t.Fatal(st.Err)
	}
	if _, err := r.Load(t.Context(), "prod"); err == nil || !strings.Contains(err.Error(), "clusters/prod/config.yaml: pve.clusters.prod stands in ") {
		t.Errorf("declared twice: %v", err)
	}
}

func TestURLModeSymlinksStayInside(t *testing.T) {
	remote := base().with(files{"vm/prod/a.yaml": "-> /etc/passwd"}).write(t)
	commit(t, remote)
	r := urlMode(t, remote, "")
	if st := r.Sync(t.Context()); st.Err != nil {
		t.Fatal(st.Err)
	}
	want := "clusters/prod/resources.yaml:2:5: resources[0]: ../../vm/prod/a.yaml: leads out of the repository through a symbolic link"
	if _, err := r.Load(t.Context(), "prod"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestGitPathWinsOverURL(t *testing.T) {
	dir := base().with(files{"proxops.yaml": "git: {url: 'https://git.example.org/x.git'}\n"}).write(t)
	if r := open(t, dir); r.URLMode() {
		t.Error("--git-path should pin the local tree")
	}
	_, err := Open(Options{Dir: dir, Overrides: Overrides{GitPath: dir, GitURL: "https://git.example.org/x.git"}})
	if err == nil || err.Error() != "--git-path and --git-url exclude each other: give one of them" {
		t.Errorf("got %v", err)
	}
}

func TestListedFileInASubmodule(t *testing.T) {
	inner := base().write(t)
	commit(t, inner)
	dir := base().with(files{"clusters/prod/resources.yaml": "resources: [vm/base/sub/vm/prod/a.yaml]\n"}).write(t)
	commit(t, dir)
	cmd := exec.Command("git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner, "vm/base/sub")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	want := "clusters/prod/resources.yaml:1:13: resources[0]: vm/base/sub/vm/prod/a.yaml: lies in a git submodule or nested repository; submodules are not read: move the files into this repository"
	if _, err := open(t, dir).Load(t.Context(), "prod"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSignersInAWorkTree(t *testing.T) {
	dir := base().with(files{"proxops.yaml": "git: {verify: {allowed-signers: signers}}\n"}).write(t)
	c, err := open(t, dir).Load(t.Context(), "prod")
	want := "proxops.yaml: git.verify.allowed-signers: signatures are checked in URL mode only; this is a work tree as it is on disk"
	if err != nil || len(c.Warnings) != 1 || c.Warnings[0] != want {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestURLModeRefusesUnsigned(t *testing.T) {
	remote := base().write(t)
	commit(t, remote)
	r := urlMode(t, remote, "")
	key := "ada ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ+gzOzRPeY3wx2cUHgMGSVZBXpoN5yhEbUO3lCBPVUR\n"
	put(t, r.opts.Dir, "signers", key)
	put(t, r.opts.Dir, "proxops.yaml", "git: {url: 'file://"+remote+"', verify: {allowed-signers: signers}}\ndata-dir: data\n")
	r, err := Open(r.opts)
	if err != nil {
		t.Fatal(err)
	}
	if st := r.Sync(t.Context()); st.Tree != nil || st.Err == nil || !strings.Contains(st.Err.Error(), "is not signed: sign it with a key listed in ") {
		t.Errorf("got %+v", st)
	}
	if _, err := r.Load(t.Context(), "prod"); err == nil || !strings.Contains(err.Error(), "is not signed") {
		t.Errorf("got %v", err)
	}
}

// Clusters are loaded side by side, and Sync may run beside them.
func TestParallelLoads(t *testing.T) {
	dir := two().write(t)
	commit(t, dir)
	r := open(t, dir)
	done := make(chan error)
	for i := range 8 {
		go func() {
			_, err := r.Load(t.Context(), []string{"lab", "prod"}[i%2])
			if i == 5 {
				r.Sync(t.Context())
			}
			done <- err
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
