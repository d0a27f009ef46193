package adopt_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/adopt"
)

// A file that says something else is shown and left; --force replaces it; one
// that is the same is not even touched.
func TestExistingFiles(t *testing.T) {
	e := oddEstate(t)
	res, _ := e.proof(adopt.Options{})
	const file = "vm/lab/web-example-org-102.yaml"
	edited := strings.Replace(e.read(file), "memory: 512MiB", "memory: 1GiB # ours", 1)
	e.file(file, edited)
	state := func(force bool) map[adopt.Status]int {
		_, res := e.adopt(adopt.Options{})
		files, err := adopt.Write(e.root, res.Manifests, force)
		if err != nil {
			t.Fatal(err)
		}
		count := map[adopt.Status]int{}
		for _, f := range files {
			count[f.Status]++
			if f.Manifest.File == file && (!strings.Contains(f.Diff, "-  memory: 1GiB # ours") || !strings.Contains(f.Diff, "+  memory: 512MiB")) {
				t.Errorf("diff:\n%s", f.Diff)
			}
		}
		return count
	}
	if got := state(false); got[adopt.Differs] != 1 || got[adopt.Same] != len(res.Manifests)-1 || e.read(file) != edited {
		t.Errorf("without --force: %v", got)
	}
	// A check leaves what somebody edited alone.
	s, res := e.adopt(adopt.Options{})
	files, err := adopt.Write(e.root, res.Manifests, false)
	if err != nil {
		t.Fatal(err)
	}
	var further []string
	for _, m := range res.Manifests {
		further = append(further, m.File)
	}
	if c := adopt.Check(e.load(further...), s, files); len(c.Bugs) > 0 || len(c.Skipped) != 1 || c.Objects != len(files)-1 {
		t.Errorf("check of an edited file: %+v", c)
	}
	if got := state(true); got[adopt.Replaced] != 1 || got[adopt.Written]+got[adopt.Differs] > 0 || e.read(file) == edited {
		t.Errorf("with --force: %v", got)
	}
	_ = filepath.WalkDir(e.root, func(p string, d fs.DirEntry, _ error) error {
		if strings.HasPrefix(d.Name(), ".") && d.Name() != ".git" {
			t.Errorf("left behind: %s", p)
		}
		return nil
	})
}

// A check that finds a difference says so: the rule that it must be able to
// fail.
func TestCheckFails(t *testing.T) {
	e := oddEstate(t)
	s, res := e.adopt(adopt.Options{})
	m := manifest(t, res, "102")
	m.Text = []byte(strings.Replace(string(m.Text), "cores: 1", "cores: 3", 1))
	files, err := adopt.Write(e.root, res.Manifests, false)
	if err != nil {
		t.Fatal(err)
	}
	var further []string
	for _, m := range res.Manifests {
		further = append(further, m.File)
	}
	c := adopt.Check(e.load(further...), s, files)
	if len(c.Bugs) != 1 || !strings.Contains(c.Bugs[0], "VM:web-example-org-102") || !strings.Contains(c.Bugs[0], "Update") {
		t.Errorf("a manifest with other cores: %+v", c)
	}
	if c := adopt.Check(e.load(), s, files); len(c.Bugs) != len(files) {
		t.Errorf("nothing composed: %d of %d are told", len(c.Bugs), len(files))
	}
}

// What the composition declares already is not declared again.
func TestDeclaredElsewhere(t *testing.T) {
	e := oddEstate(t)
	res, _ := e.proof(adopt.Options{})
	for from, to := range map[string]string{"vm/lab/web-example-org-102.yaml": "vm/base/db.yaml", "iso/lab/debian.yaml": "iso/base/deb.yaml"} {
		text := e.read(from)
		if from == "vm/lab/web-example-org-102.yaml" {
			text = strings.Replace(text, "  name: web-example-org-102", "  name: db", 1)
		} else {
			text = strings.Replace(text, "  name: debian", "  name: deb", 1)
		}
		e.file(to, text)
		if err := os.Remove(filepath.Join(e.root, from)); err != nil {
			t.Fatal(err)
		}
	}
	e.file("clusters/lab/resources.yaml", "# ours\nresources:\n  - vm/base/db.yaml # the database\n  - ../../iso/base/deb.yaml\n# end\n")
	_, again := e.adopt(adopt.Options{})
	if m := manifest(t, again, "102"); m.Declared != "vm/base/db.yaml" || m.Name != "db" || m.Text != nil {
		t.Errorf("declared elsewhere: %+v", m)
	}
	wants(t, manifest(t, again, "100"), "iso: deb\n") // named as it is declared
	files, err := adopt.Write(e.root, again.Manifests, false)
	if err != nil {
		t.Fatal(err)
	}
	count := map[adopt.Status]int{}
	for _, f := range files {
		count[f.Status]++
	}
	if count[adopt.Declared] != 2 || count[adopt.Written] != 0 || count[adopt.Differs] != 1 {
		t.Errorf("%v", count)
	}
	p, err := adopt.Propose(e.root, "lab", adopt.Lines(again.Manifests))
	if err != nil {
		t.Fatal(err)
	}
	text := string(p.Text)
	if !strings.HasPrefix(text, "# ours\nresources:\n  - vm/base/db.yaml # the database\n  - ../../iso/base/deb.yaml\n  - ../../") || !strings.HasSuffix(text, "\n# end\n") {
		t.Errorf("proposal:\n%s", text)
	}
	if len(p.New) != len(res.Manifests)-2 {
		t.Errorf("%d new lines for %d manifests", len(p.New), len(res.Manifests))
	}
}

func TestPropose(t *testing.T) {
	for _, c := range []struct{ name, old, want string }{
		{"empty flow", "resources: []\n", "resources:\n  - ../../vm/lab/a.yaml\n  - ../../vm/lab/b.yaml\n"},
		{"flow", "resources: [vm/lab/a.yaml]\n", "resources:\n  - vm/lab/a.yaml\n  - vm/lab/b.yaml\n"},
		{"block", "resources:\n- vm/lab/b.yaml\n", "resources:\n- vm/lab/b.yaml\n- vm/lab/a.yaml\n"},
		{"no line end", "resources:\n    - vm/lab/b.yaml", "resources:\n    - vm/lab/b.yaml\n    - vm/lab/a.yaml\n"},
		{"all there", "resources:\n  - ../../vm/lab/b.yaml # x\n  - vm/lab/a.yaml\n", "resources:\n  - ../../vm/lab/b.yaml # x\n  - vm/lab/a.yaml\n"},
		{"absent", "", "resources:\n  - ../../vm/lab/a.yaml\n  - ../../vm/lab/b.yaml\n"},
	} {
		root := t.TempDir()
		file := filepath.Join(root, "clusters", "lab", "resources.yaml")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if c.old != "" {
			if err := os.WriteFile(file, []byte(c.old), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		p, err := adopt.Propose(root, "lab", []string{"../../vm/lab/a.yaml", "../../vm/lab/b.yaml"})
		if err != nil || string(p.Text) != c.want {
			t.Errorf("%s: %v\n%s", c.name, err, p.Text)
		}
		if err := p.Save(root); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(file); string(got) != c.old {
			t.Errorf("%s: the composition itself changed", c.name)
		}
	}
}

// No path leads out of the repository, whatever links there are.
func TestWriteStaysInside(t *testing.T) {
	e := oddEstate(t)
	_, res := e.adopt(adopt.Options{})
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(e.root, "vm")); err != nil {
		t.Fatal(err)
	}
	if _, err := adopt.Write(e.root, res.Manifests, true); err == nil || !strings.Contains(err.Error(), "vm/lab/") {
		t.Errorf("written through a link: %v", err)
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("outside: %v", left)
	}
}

func TestSharedFiles(t *testing.T) {
	e := oddEstate(t)
	res, _ := e.proof(adopt.Options{})
	e.file("clusters/other/config.yaml", "pve:\n  clusters:\n    other:\n      base-url: https://other.example.org\n      nodes: [pve01]\n")
	e.file("clusters/other/resources.yaml", "resources: []\n")
	e.file("iso/other/x.yaml", e.read("iso/lab/debian.yaml"))
	c := e.load()
	got := adopt.SharedFiles(c.Tree, []string{"lab", "other"}, []adopt.Result{res})
	if len(got) != 1 || !strings.Contains(got[0], "ISO local:iso/debian.iso on pve01: iso/lab/debian.yaml and iso/other/x.yaml") {
		t.Errorf("%q", got)
	}
}
