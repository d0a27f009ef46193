package gitrepo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What another cluster declares now is found in files with faults too: from it
// hangs whether a guest is deleted.
func TestDeclarationsOfThePresent(t *testing.T) {
	const list = "clusters/d/resources.yaml"
	vm := func(name string, id int) string {
		return fmt.Sprintf("kind: VM\nmetadata: {name: %s}\nspec: {vmid: %d}\n", name, id)
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"listed":                {map[string]string{list: "resources: [vm/d/a.yaml]\n", "vm/d/a.yaml": vm("a", 101)}, []string{"101 vm/d/a.yaml [a]"}},
		"from its own folder":   {map[string]string{list: "resources:\n  - ../../vm/d/a.yaml\n", "vm/d/a.yaml": vm("a", 101)}, []string{"101 vm/d/a.yaml [a]"}},
		"of several documents":  {map[string]string{list: "resources: [vm/d/a.yaml]\n", "vm/d/a.yaml": vm("x", 7) + "---\n" + vm("a", 101) + "---\n" + vm("b", 102)}, []string{"101 vm/d/a.yaml [a]", "102 vm/d/a.yaml [b]"}},
		"by PVE's name":         {map[string]string{list: "resources: [vm/d/a.yaml]\n", "vm/d/a.yaml": "metadata: {name: a}\nspec: {vmid: 101, pve-name: web, dns: {hostname: ct}}\n"}, []string{"101 vm/d/a.yaml [a ct web]"}},
		"another vmid":          {map[string]string{list: "resources: [vm/d/a.yaml]\n", "vm/d/a.yaml": vm("a", 1010)}, nil},
		"not listed":            {map[string]string{list: "resources: []\n", "vm/d/a.yaml": vm("a", 101)}, nil},
		"no composition":        {map[string]string{"vm/d/a.yaml": vm("a", 101)}, nil},
		"manifest that is gone": {map[string]string{list: "resources: [vm/d/a.yaml]\n"}, nil},
		"manifest no YAML":      {map[string]string{list: "resources: [vm/d/a.yaml]\n", "vm/d/a.yaml": "spec:\n  vmid: 101\n\t}"}, []string{"101 vm/d/a.yaml []"}},
		"composition no YAML":   {map[string]string{list: "resources:\n- vm/d/a.yaml\n}", "vm/d/a.yaml": vm("a", 101)}, []string{"101 vm/d/a.yaml [a]"}},
		"manifest a directory":  {map[string]string{list: "resources: [vm/d/a.yaml]\n", "vm/d/a.yaml/b": ""}, []string{"101 vm/d/a.yaml []", "102 vm/d/a.yaml []"}},
		"composition likewise":  {map[string]string{list + "/b": ""}, []string{"101 " + list + " []", "102 " + list + " []"}},
		"out of the repository": {map[string]string{list: "resources: [../../../a.yaml]\n"}, []string{"101 ../a.yaml []", "102 ../a.yaml []"}},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			full := filepath.Join(dir, filepath.FromSlash(file))
			if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tree, err := OpenWork(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range tree.Declarations("d", []int{101, 102}) {
			got = append(got, fmt.Sprintf("%d %s %v", d.VMID, d.File, d.Names))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
