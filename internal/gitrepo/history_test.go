package gitrepo

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

func ask(t testing.TB, tree *Tree, vmid int) Word {
	t.Helper()
	words, err := tree.Removals(t.Context(), "prod", []int{vmid})
	must(t, err)
	return words[vmid]
}

func wantRemoved(t *testing.T, tree *Tree, vmid int, by plumbing.Hash) {
	t.Helper()
	if w := ask(t, tree, vmid); w.Verdict != Removed || w.Commit.Hash != by.String() {
		t.Errorf("vmid %d: %v, want removed by %s", vmid, w, by.String()[:10])
	}
}

// start is a history with the vmids 101 and 102 declared.
func start(t *testing.T) (*origin, plumbing.Hash) {
	o := newOrigin(t)
	o.vm("a", 101)
	o.vm("b", 102)
	o.compose("../../vm/prod/a.yaml", "vm/prod/b.yaml")
	return o, o.commit("start")
}

// Words in a text declare nothing, and a removed manifest says who its guest was.
func TestDeclarationIsTheSpec(t *testing.T) {
	o, _ := start(t)
	o.write("vm/prod/a.yaml", "metadata: {name: a}\nspec:\n  vmid: 101\n  pve-name: web\n  pve-description: |\n    vmid: 300\n")
	o.commit("describe a")
	if w := ask(t, o.open(), 300); w.Verdict != Never {
		t.Errorf("300 stands in a description alone: %v", w)
	}
	o.compose("vm/prod/b.yaml")
	h := o.commit("drop a")
	wantRemoved(t, o.open(), 101, h)
	if got := ask(t, o.open(), 101).Names; !slices.Equal(got, []string{"a", "web"}) {
		t.Errorf("101 was called %q, want a and web", got)
	}
	if w := ask(t, o.open(), 300); w.Verdict != Never {
		t.Errorf("300 stood in a description alone: %v", w)
	}
}

// However YAML lets a declaration be written, its removal is found; what only
// looks like one is none.
func TestDeclarationInAnyForm(t *testing.T) {
	for name, c := range map[string]struct {
		list, text string
		never      bool
	}{
		"flow list over lines": {list: "resources: [\n  vm/prod/x.yaml,\n  vm/prod/y.yaml,\n]\n"},
		"after a comment":      {list: "resources: [\n  vm/prod/y.yaml, # the other\n  vm/prod/x.yaml\n]\n"},
		"JSON":                 {list: "{\n \"resources\": [\n  \"vm/prod/x.yaml\"\n ]\n}\n", text: `{"metadata": {"name": "x"}, "spec": {"node": "pve01", "vmid": 7101}}`},
		"quoted before":        {text: "spec: {node: \"pve01\", vmid: 7101}\n"},
		"value on its line":    {text: "spec:\n  vmid:\n    7101\n"},
		"anchor":               {text: "spec:\n  vmid: &id 7101\n"},
		"refused by today":     {list: "resources: [\n  vm/prod/x.yaml\n]\nresources: []\n", text: "spec:\n  vmid: 7101\n  vmid: 7101\n"},
		"comment":              {list: "resources:\n  - vm/prod/y.yaml # no more, vm/prod/x.yaml\n  # - vm/prod/x.yaml\n", never: true},
		"comment in flow":      {list: "resources: [\n  vm/prod/y.yaml, # [vm/prod/x.yaml]\n]\n", never: true},
		"another list":         {list: "others: [vm/prod/x.yaml]\nresources: [vm/prod/y.yaml]\n", never: true},
		"another block list":   {list: "others:\n  - vm/prod/x.yaml\nresources:\n  - vm/prod/y.yaml\n", never: true},
		"a block list behind":  {list: "resources:\n  - vm/prod/y.yaml\nothers:\n  - vm/prod/x.yaml\n", never: true},
		"refused, in comment":  {list: "resources: [\n  vm/prod/y.yaml, # [vm/prod/x.yaml\n", never: true},
		"quoted text":          {text: "spec: {node: pve01, vmid: 7102, pve-description: \"x, vmid: 7101\"}\n", never: true},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := start(t)
			if c.list == "" {
				c.list = "resources:\n  - vm/prod/x.yaml\n"
			}
			if c.text == "" {
				c.text = "spec:\n  vmid: 7101\n"
			}
			o.write("clusters/prod/resources.yaml", c.list)
			o.write("vm/prod/x.yaml", c.text)
			o.commit("declare")
			o.compose()
			h := o.commit("drop")
			if !c.never {
				wantRemoved(t, o.open(), 7101, h)
			} else if w := ask(t, o.open(), 7101); w.Verdict != Never {
				t.Errorf("nothing declared 7101, git's word is %v", w)
			}
		})
	}
}

// A repository that lacks objects is broken; that is not a short history.
func TestBrokenHistory(t *testing.T) {
	o, first := start(t)
	o.compose("vm/prod/b.yaml")
	o.commit("drop a")
	name := first.String()
	must(t, os.Remove(filepath.Join(o.dir, ".git", "objects", name[:2], name[2:])))
	if w := ask(t, o.open(), 101); w.Verdict != Unasked || !w.Broken {
		t.Errorf("a parent is missing: %+v", w)
	}
}

func TestRemovalNamesTheCommit(t *testing.T) {
	t.Run("composition stops listing the file", func(t *testing.T) {
		o, _ := start(t)
		o.compose("vm/prod/b.yaml")
		h := o.commit("drop a")
		o.write("README", "x")
		o.commit("unrelated")
		wantRemoved(t, o.open(), 101, h)
	})
	t.Run("file deleted and unlisted", func(t *testing.T) {
		o, _ := start(t)
		o.remove("vm/prod/a.yaml")
		o.compose("vm/prod/b.yaml")
		h := o.commit("delete a")
		wantRemoved(t, o.open(), 101, h)
	})
	t.Run("file declares another vmid", func(t *testing.T) {
		o, _ := start(t)
		o.vm("a", 201)
		h := o.commit("renumber a")
		wantRemoved(t, o.open(), 101, h)
	})
	t.Run("moving the file is no removal", func(t *testing.T) {
		o, _ := start(t)
		o.remove("vm/prod/a.yaml")
		o.write("vm/base/a.yaml", "spec: {vmid: 101, node: pve}\n")
		o.compose("vm/base/a.yaml", "vm/prod/b.yaml")
		o.commit("move a")
		o.compose("vm/prod/b.yaml")
		h := o.commit("drop a")
		wantRemoved(t, o.open(), 101, h)
	})
	t.Run("the latest of two removals", func(t *testing.T) {
		o, _ := start(t)
		o.compose("vm/prod/b.yaml")
		o.commit("drop a")
		o.compose("vm/prod/a.yaml", "vm/prod/b.yaml")
		o.commit("a again")
		o.compose("vm/prod/b.yaml")
		h := o.commit("drop a again")
		wantRemoved(t, o.open(), 101, h)
	})
	t.Run("whole cluster removed", func(t *testing.T) {
		o, _ := start(t)
		o.remove("clusters/prod/resources.yaml")
		h := o.commit("no more prod")
		wantRemoved(t, o.open(), 101, h)
	})
	t.Run("text of the word", func(t *testing.T) {
		o, _ := start(t)
		o.compose("vm/prod/b.yaml")
		h := o.commit("drop a")
		want := fmt.Sprintf("removed by %s (2026-03-01, Ada <ada@example.org>)", h.String()[:10])
		if got := ask(t, o.open(), 101).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestUncommittedRemoval(t *testing.T) {
	o, _ := start(t)
	must(t, os.WriteFile(filepath.Join(o.dir, "clusters/prod/resources.yaml"), []byte("resources: []\n"), 0o644))
	if w := ask(t, o.open(), 101); w.Verdict != Uncommitted {
		t.Errorf("got %v", w)
	}
}

func TestNeverDeclared(t *testing.T) {
	o, _ := start(t)
	o.vm("unlisted", 300)
	o.write("clusters/lab/resources.yaml", "resources: [vm/prod/unlisted.yaml]\n")
	o.write("vm/prod/c.yaml", "# vmid: 301\nspec:\n  vmid: 3010\n  pve-description: 'was vmid: 302'\n")
	o.compose("vm/prod/a.yaml", "vm/prod/b.yaml", "vm/prod/c.yaml")
	o.commit("more")
	for _, id := range []int{300, 301, 302, 10} {
		if w := ask(t, o.open(), id); w.Verdict != Never {
			t.Errorf("vmid %d: %v", id, w)
		}
	}
}

func TestMerges(t *testing.T) {
	t.Run("removed on the merged branch", func(t *testing.T) {
		o, first := start(t)
		o.branch("topic", first)
		o.compose("vm/prod/b.yaml")
		h := o.commit("drop a")
		o.checkout("main")
		o.write("README", "x")
		main := o.commit("unrelated")
		o.compose("vm/prod/b.yaml")
		o.commit("merge topic", main, h)
		wantRemoved(t, o.open(), 101, h)
	})
	t.Run("branch from before the declaration", func(t *testing.T) {
		o := newOrigin(t)
		o.compose()
		first := o.commit("empty")
		o.vm("a", 101)
		o.compose("vm/prod/a.yaml")
		o.commit("add a")
		o.compose()
		h := o.commit("drop a")
		o.branch("old", first)
		o.write("README", "x")
		side := o.commit("side")
		o.checkout("main")
		o.write("README", "x")
		o.commit("merge old", h, side)
		wantRemoved(t, o.open(), 101, h)
	})
	t.Run("rebased", func(t *testing.T) {
		o, first := start(t)
		o.branch("topic", first)
		o.compose("vm/prod/b.yaml")
		before := o.commit("drop a")
		o.checkout("main")
		o.write("README", "x")
		o.commit("unrelated")
		o.checkout("topic")
		runGit(t, o.dir, "-c", "user.name=a", "-c", "user.email=a@b", "rebase", "-q", "main")
		tree := o.open()
		if tree.Head.Hash == before.String() {
			t.Fatal("the test's own premise: a rebase gives another hash")
		}
		wantRemoved(t, tree, 101, plumbing.NewHash(tree.Head.Hash))
	})
	t.Run("squashed", func(t *testing.T) {
		o, first := start(t)
		o.branch("topic", first)
		o.compose("vm/prod/b.yaml")
		o.commit("drop a")
		o.write("README", "x")
		o.commit("more")
		o.checkout("main")
		o.write("other", "y")
		o.commit("unrelated")
		runGit(t, o.dir, "-c", "user.name=a", "-c", "user.email=a@b", "merge", "-q", "--squash", "topic")
		h := o.commit("topic, squashed")
		wantRemoved(t, o.open(), 101, h)
	})
	t.Run("dropped by the merge itself", func(t *testing.T) {
		o := newOrigin(t)
		o.vm("a", 101)
		o.compose("vm/prod/a.yaml")
		o.commit("a")
		o.compose()
		dropped := o.commit("drop a")
		o.compose("vm/prod/a.yaml")
		again := o.commit("a again")
		o.branch("side", dropped)
		o.write("README", "x")
		side := o.commit("side")
		o.checkout("main")
		o.compose()
		merge := o.commit("resolve wrongly", again, side)
		wantRemoved(t, o.open(), 101, merge)
	})
}

func TestShallowHistory(t *testing.T) {
	o, _ := start(t)
	for i := range 5 {
		o.write("README", fmt.Sprint(i))
		o.commit("edit")
	}
	o.compose("vm/prod/a.yaml")
	h := o.commit("drop b")
	clone := filepath.Join(t.TempDir(), "clone")
	runGit(t, o.dir, "clone", "-q", "--depth=3", "file://"+o.dir, clone)
	tree, err := OpenWork(clone)
	must(t, err)
	wantRemoved(t, tree, 102, h)
	if w := ask(t, tree, 999); w.Verdict != Unasked || !strings.Contains(w.Reason, "shallow") {
		t.Errorf("got %v", w)
	}
}

// long is a history of n commits over that many manifests, written with objects
// packed as a clone would have them.
func long(t testing.TB, files, n int) *Tree {
	o := newOrigin(t)
	var b strings.Builder
	at := o.now.Unix()
	commit := func(subject string) {
		at += 60
		fmt.Fprintf(&b, "commit refs/heads/main\ncommitter Ada <ada@example.org> %d +0000\ndata %d\n%s\n", at, len(subject), subject)
	}
	file := func(name, text string) { fmt.Fprintf(&b, "M 644 inline %s\ndata %d\n%s\n", name, len(text), text) }
	guest := func(i, memory int) {
		file(fmt.Sprintf("vm/prod/g%04d.yaml", i), fmt.Sprintf("kind: VM\nspec:\n  vmid: %d\n  memory: %dMiB\n", 1000+i, memory))
	}
	list := "resources:\n"
	commit("start")
	for i := range files {
		guest(i, 512)
		list += fmt.Sprintf("  - ../../vm/prod/g%04d.yaml\n", i)
	}
	file("clusters/prod/resources.yaml", list)
	commit("drop the first")
	file("clusters/prod/resources.yaml", strings.Replace(list, "  - ../../vm/prod/g0000.yaml\n", "", 1))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n - 2 {
		commit("edit")
		guest(1+r.IntN(files-1), 1024+i)
	}
	stream := filepath.Join(t.TempDir(), "stream")
	must(t, os.WriteFile(stream, []byte(b.String()), 0o600))
	runGit(t, o.dir, "-c", "alias.imp=!git fast-import --quiet <"+stream, "imp")
	runGit(t, o.dir, "gc", "-q")
	return o.open()
}

// loosen takes a repository's packs apart, as objects lie before git gc.
func loosen(t testing.TB, tree *Tree) *Tree {
	t.Helper()
	packs, err := filepath.Glob(filepath.Join(tree.Root, ".git/objects/pack/*"))
	must(t, err)
	away := t.TempDir()
	for _, f := range packs {
		must(t, os.Rename(f, filepath.Join(away, filepath.Base(f))))
	}
	packs, err = filepath.Glob(filepath.Join(away, "*.pack"))
	must(t, err)
	for _, f := range packs {
		runGit(t, tree.Root, "-c", "alias.un=!git unpack-objects -q <"+f, "un")
	}
	tree, err = OpenWork(tree.Root)
	must(t, err)
	return tree
}

func TestLongHistory(t *testing.T) {
	for _, form := range []string{"packed", "loose"} {
		t.Run(form, func(t *testing.T) {
			tree := long(t, 200, 200)
			if form == "loose" {
				tree = loosen(t, tree)
			}
			words, err := tree.Removals(t.Context(), "prod", []int{1000, 1001, 99999})
			must(t, err)
			if words[1000].Verdict != Removed || words[1000].Commit.Subject != "drop the first" || words[1001].Verdict != Unasked && words[1001].Verdict != Uncommitted || words[99999].Verdict != Never {
				t.Errorf("got %v", words)
			}
		})
	}
}

// A history is read once for a head, whatever number of cycles asks.
func TestMemory(t *testing.T) {
	o, _ := start(t)
	o.compose("vm/prod/b.yaml")
	h := o.commit("drop a")
	var m Memory
	says := func(tree *Tree, cluster string, reads int, want map[int]Verdict) map[int]Word {
		t.Helper()
		var ids []int
		for id := range want {
			ids = append(ids, id)
		}
		got, err := m.Removals(t.Context(), tree, cluster, ids)
		must(t, err)
		for id, v := range want {
			if got[id].Verdict != v || len(got) != len(want) {
				t.Errorf("%d: %v, want %d", id, got, v)
			}
		}
		if m.Reads() != reads {
			t.Errorf("%d reads, want %d", m.Reads(), reads)
		}
		return got
	}
	says(o.open(), "prod", 0, nil)
	says(o.open(), "prod", 1, map[int]Verdict{101: Removed, 999: Never})
	if w := says(o.open(), "prod", 1, map[int]Verdict{101: Removed, 999: Never}); w[101].Commit.Hash != h.String() || w[101].Names[0] != "a" {
		t.Errorf("remembered as %+v", w)
	}
	says(o.open(), "lab", 2, map[int]Verdict{101: Never})
	says(o.open(), "prod", 3, map[int]Verdict{102: Named, 101: Removed})
	o.compose("vm/prod/a.yaml")
	says(o.open(), "prod", 4, map[int]Verdict{102: Uncommitted, 101: Removed}) // the files changed, the head did not
	o.commit("a for b")
	says(o.open(), "prod", 5, map[int]Verdict{102: Removed, 101: Named})

	clone := filepath.Join(t.TempDir(), "clone")
	runGit(t, o.dir, "clone", "-q", "--depth=1", "file://"+o.dir, clone)
	tree, err := OpenWork(clone)
	must(t, err)
	says(tree, "prod", 6, map[int]Verdict{102: Unasked})
	says(tree, "prod", 7, map[int]Verdict{102: Unasked}) // it may be deepened
	runGit(t, clone, "fetch", "-q", "--unshallow")
	tree, err = OpenWork(clone)
	must(t, err)
	says(tree, "prod", 8, map[int]Verdict{102: Removed})
}

func BenchmarkRemovals2000Commits(b *testing.B) {
	tree := long(b, 400, 2000)
	run := func(b *testing.B) {
		for b.Loop() {
			if w := ask(b, tree, 99999); w.Verdict != Never {
				b.Fatal(w)
			}
		}
	}
	b.Run("packed", run)
	tree = loosen(b, tree)
	b.Run("loose", run)
}
