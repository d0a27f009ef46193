package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/repo"
)

const exampleRepository = "../../examples/repository"

// TestExamplesAreValid: what people copy passes validate, without any key, and
// lists every file that is there.
func TestExamplesAreValid(t *testing.T) {
	for dir, want := range map[string]string{exampleRepository: "home: 12 objects are valid", "../../examples/demo": "demo: 7 objects are valid"} {
		abs, err := filepath.Abs(dir)
		if err != nil {
			t.Fatal(err)
		}
		if dir != exampleRepository { // its secrets file is made when it is written out
			abs = t.TempDir()
			if err := copyExample(abs, func(s string) string { return s }); err != nil {
				t.Fatal(err)
			}
			writeFiles(t, abs, map[string]string{"clusters/demo/secrets.sops.yaml": "sops: {}\n"})
		}
		if r := proxops(t, abs, nil, "validate"); r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("%s: exit status %d\n%s%s", dir, r.code, r.out, r.err)
		}
	}
	list, err := os.ReadFile(exampleRepository + "/clusters/home/resources.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kind.All {
		files, err := filepath.Glob(exampleRepository + "/" + k.Folder + "/*/*.yaml")
		if err != nil || len(files) == 0 {
			t.Errorf("no example of %s (%v)", k.Name, err)
		}
		for _, f := range files {
			if rel, _ := filepath.Rel(exampleRepository, f); !strings.Contains(string(list), rel) {
				t.Errorf("%s is not listed", rel)
			}
		}
	}
}

// TestExamplesShowMostFields: of every kind's fields, most stand in the
// examples.
func TestExamplesShowMostFields(t *testing.T) {
	abs, err := filepath.Abs(exampleRepository)
	if err != nil {
		t.Fatal(err)
	}
	r, err := repo.Open(repo.Options{Dir: abs, Overrides: repo.Overrides{GitPath: abs}, NoSecrets: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Load(t.Context(), "home")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, res := range c.Resources {
		paths(res.Spec.Shape(nil), "", true, func(p string) { shown[res.Kind.Guest+"."+p] = true })
	}
	for _, guest := range []string{"qemu", "lxc", ""} {
		k, _ := kind.Lookup(map[string]string{"qemu": "VM", "lxc": "LXC", "": "ISO"}[guest])
		var missing []string
		all := 0
		paths(specimen(k), "", false, func(p string) {
			if all++; !shown[guest+"."+p] {
				missing = append(missing, p)
			}
		})
		if len(missing)*5 > all {
			t.Errorf("%s: %d of %d fields are in no example: %s", k.Name, len(missing), all, strings.Join(missing, ", "))
		}
	}
}

// paths tells of every field of a spec, or of those that are set.
func paths(b *field.Block, at string, set bool, tell func(string)) {
	for _, n := range b.Nodes {
		switch n := n.(type) {
		case *field.Row:
			if n.Name != "" && (!set || n.State() != field.Absent) {
				tell(strings.TrimPrefix(at+"."+n.Name, "."))
			}
		case *field.Block:
			if !set || n.Present == nil || n.Present() {
				paths(n, at+"."+n.Name, set, tell)
			}
		case *field.List:
			for i := range n.Len() {
				paths(n.Elem(i), at+"."+n.Name, set, tell)
			}
		}
	}
}
