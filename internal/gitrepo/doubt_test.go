package gitrepo

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func manifestText(kind, name string, vmid, more string) string {
	return "kind: " + kind + "\nmetadata: {name: " + name + "}\nspec:\n  vmid: " + vmid + "\n" + more
}

// Each document of a file declares for itself, with its own name and kind; a
// number in a text of one of them declares nothing, now as before.
func TestManyDocuments(t *testing.T) {
	o, _ := start(t)
	o.write("vm/prod/many.yaml", manifestText("VM", "one", "501", "  pve-description: |\n    standby of\n    vmid: 777\n")+"---\n"+
		manifestText("LXC", "two", "502", "  dns: {hostname: deux}\n")+"---\nnothing: here\n")
	o.compose("vm/prod/many.yaml", "vm/prod/b.yaml")
	o.commit("many")
	if w := ask(t, o.open(), 777); w.Verdict != Never {
		t.Errorf("777 stands in a text of the head: %v", w)
	}
	o.compose("vm/prod/b.yaml")
	h := o.commit("drop many")
	for id, want := range map[int]string{501: "one VM", 502: "deux two LXC"} {
		wantRemoved(t, o.open(), id, h)
		w := ask(t, o.open(), id)
		if got := strings.Join(slices.Concat(w.Names, w.Kinds), " "); got != want {
			t.Errorf("%d was %q, want %q", id, got, want)
		}
	}
	if w := ask(t, o.open(), 777); w.Verdict != Never {
		t.Errorf("777 stood in a text: %v", w)
	}
}

// A vmid that was used twice was last what its last declaration says, whatever
// else the walk reads.
func TestNameOfTheLastDeclaration(t *testing.T) {
	o, _ := start(t)
	o.compose("vm/prod/b.yaml")
	o.commit("drop a")
	o.write("vm/prod/z.yaml", manifestText("LXC", "z", "101", ""))
	o.compose("vm/prod/b.yaml", "vm/prod/z.yaml")
	o.commit("101 again")
	o.compose("vm/prod/b.yaml")
	o.commit("drop z")
	words, err := o.open().Removals(t.Context(), "prod", []int{999, 101}) // 999 makes it read all
	must(t, err)
	if w := words[101]; !slices.Equal(w.Names, []string{"z"}) || !slices.Equal(w.Kinds, []string{"LXC"}) {
		t.Errorf("101 was %q of kind %q", w.Names, w.Kinds)
	}
}

// Where the removed text is no YAML, such as a merge that somebody committed
// half done, the last one before it that can be read says whose the vmid was;
// where there is none nobody knows.
func TestUnreadableDeclaration(t *testing.T) {
	torn := func(text string) string { return "<<<<<<< HEAD\n" + text + "=======\n" + text + ">>>>>>> x\n" }
	o, _ := start(t)
	text := manifestText("VM", "a", "101", "")
	o.write("vm/prod/a.yaml", text)
	o.commit("plain")
	o.write("vm/prod/a.yaml", torn(text))
	o.write("vm/prod/n.yaml", torn(manifestText("VM", "n", "103", "")))
	o.write("vm/prod/m.yaml", manifestText("VM", "m", "103", "")) // one of two that declare it
	o.compose("vm/prod/a.yaml", "vm/prod/b.yaml", "vm/prod/m.yaml", "vm/prod/n.yaml")
	o.commit("half a merge")
	o.compose("vm/prod/b.yaml")
	must(t, os.WriteFile(filepath.Join(o.dir, "clusters/prod/resources.yaml"), []byte("resources: []\n"), 0o644))
	if w := ask(t, o.open(), 101); w.Verdict != Uncommitted || !slices.Equal(w.Names, []string{"a"}) {
		t.Errorf("not committed: %+v", w)
	}
	h := o.commit("drop both")
	wantRemoved(t, o.open(), 101, h)
	wantRemoved(t, o.open(), 103, h)
	if w := ask(t, o.open(), 101); !slices.Equal(w.Names, []string{"a"}) || !slices.Equal(w.Kinds, []string{"VM"}) {
		t.Errorf("101 was %q of kind %q", w.Names, w.Kinds)
	}
	if w := ask(t, o.open(), 103); len(w.Names) > 0 {
		t.Errorf("one of 103's texts could never be read, and it was %q", w.Names)
	}
}

// What the head commit declares was removed in the work tree only if the work
// tree says something else; the tree of a commit cannot.
func TestHeadStillNamesIt(t *testing.T) {
	o, h := start(t)
	if w := ask(t, o.open(), 101); w.Verdict != Named {
		t.Errorf("the work tree is the commit: %v", w)
	}
	o.write("README", "x") // edits elsewhere say nothing of it
	if w := ask(t, o.open(), 101); w.Verdict != Named {
		t.Errorf("another file was edited: %v", w)
	}
	at, err := o.open().At(h.String())
	must(t, err)
	if w := ask(t, at, 101); w.Verdict != Named {
		t.Errorf("the tree of the commit: %v", w)
	}
	must(t, os.WriteFile(filepath.Join(o.dir, "vm/prod/a.yaml"), []byte(manifestText("VM", "a", "201", "")), 0o644))
	if w := ask(t, o.open(), 101); w.Verdict != Uncommitted {
		t.Errorf("its own file was edited: %v", w)
	}
	if w := ask(t, o.open(), 102); w.Verdict != Named {
		t.Errorf("the file of another was edited: %v", w)
	}
}

// A declaration that was only ever on a branch, which was merged without it,
// was never one of the branch that is followed.
func TestDeclaredAside(t *testing.T) {
	o, first := start(t)
	o.branch("topic", first)
	o.vm("scratch", 300)
	o.compose("vm/prod/a.yaml", "vm/prod/b.yaml", "vm/prod/scratch.yaml")
	side := o.commit("scratch")
	o.checkout("main")
	o.write("README", "x")
	main := o.commit("unrelated")
	merge := o.commit("merge topic, ours", main, side)
	if w := ask(t, o.open(), 300); w.Verdict != Aside || w.Commit.Hash != merge.String() {
		t.Errorf("got %v", w)
	}
	wantNever := ask(t, o.open(), 999)
	if wantNever.Verdict != Never {
		t.Errorf("got %v", wantNever)
	}
}

// While git changes the files of a work tree, or waits for a person, or did so
// since the tree was opened, the files are those of no moment.
func TestUnderway(t *testing.T) {
	o, _ := start(t)
	dirs := map[string]string{"a clone": o.dir, "a linked work tree": filepath.Join(t.TempDir(), "linked")}
	runGit(t, o.dir, "worktree", "add", "-q", "--detach", dirs["a linked work tree"])
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			open := func() *Tree {
				tree, err := OpenWork(dir)
				must(t, err)
				return tree
			}
			still := func(when string) *Tree {
				t.Helper()
				tree := open()
				if text, todo := tree.Underway(); text != "" || todo != "" {
					t.Errorf("%s: %s", when, text)
				}
				return tree
			}
			gitDir := filepath.Join(o.dir, ".git")
			if dir != o.dir {
				gitDir = filepath.Join(gitDir, "worktrees", "linked")
			}
			tree := still("at first")
			for _, mark := range []string{"index.lock", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "sequencer", "BISECT_LOG"} {
				file := filepath.Join(gitDir, mark)
				must(t, os.WriteFile(file, nil, 0o600))
				if text, todo := tree.Underway(); !strings.Contains(text, mark) || todo == "" {
					t.Errorf("%s: %q, %q", mark, text, todo)
				}
				for other, dir := range dirs { // is not in the middle of it
					if other == name {
						continue
					}
					tree, err := OpenWork(dir)
					must(t, err)
					if text, _ := tree.Underway(); text != "" {
						t.Errorf("%s of %s is one of %s: %s", mark, name, other, text)
					}
				}
				must(t, os.Remove(file))
				still("without " + mark)
			}
			tree = open()
			runGit(t, dir, "checkout", "-q", "--detach", "HEAD")
			must(t, os.WriteFile(filepath.Join(dir, "zz"), nil, 0o600))
			runGit(t, dir, "add", "zz")
			if text, _ := tree.Underway(); text == "" {
				t.Error("the index was written since")
			}
			tree = still("after that")
			runGit(t, dir, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
			if text, _ := tree.Underway(); text == "" {
				t.Error("there is another commit since")
			}
			tree = still("after the commit")
			runGit(t, dir, "update-ref", "HEAD", "HEAD^")
			if text, _ := tree.Underway(); text == "" {
				t.Error("the head moved without the index")
			}
			at, err := tree.At(tree.Head.Hash)
			must(t, err)
			if text, _ := at.Underway(); text != "" {
				t.Errorf("the tree of a commit never moves: %s", text)
			}
		})
	}
	plain, err := OpenWork(t.TempDir())
	must(t, err)
	if text, _ := plain.Underway(); text != "" {
		t.Errorf("no git: %s", text)
	}
}

// A clone that git reads and the library does not says what to do about it.
func TestClonesThatAreNotRead(t *testing.T) {
	o, _ := start(t)
	o.compose("vm/prod/b.yaml")
	o.commit("drop a")
	for want, clone := range map[string]func(dir string){
		"git repack -a -d": func(dir string) { runGit(t, o.dir, "clone", "-q", "--shared", o.dir, dir) },
		"plain clone": func(dir string) {
			runGit(t, o.dir, "clone", "-q", o.dir, dir)
			runGit(t, dir, "config", "extensions.worktreeConfig", "true")
		},
		"--no-filter": func(dir string) {
			runGit(t, o.dir, "config", "uploadpack.allowFilter", "true")
			runGit(t, o.dir, "clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+o.dir, dir)
		},
	} {
		dir := filepath.Join(t.TempDir(), "clone")
		clone(dir)
		tree, err := OpenWork(dir)
		must(t, err)
		if w := ask(t, tree, 101); !w.Broken || !strings.Contains(w.Todo, want) {
			t.Errorf("want advice with %q: %+v", want, w)
		}
	}
}
