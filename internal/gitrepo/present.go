package gitrepo

import (
	"errors"
	"io/fs"
	"path"
	"strings"
)

// Declaration is a manifest of the tree as it is that declares a vmid.
type Declaration struct {
	VMID  int
	File  string   // from the root; the composition itself where that cannot be read
	Names []string // what it calls the guest, sorted; none when that cannot be told
}

// Declarations lists what a cluster declares of the vmids in the tree as it
// is, in the composition's order. It reads files with faults as the history is
// read (Removals): a manifest that is no YAML declares what it has a line of,
// and a composition or a manifest that cannot be opened may declare all of
// the vmids.
func (t *Tree) Declarations(cluster string, vmids []int) []Declaration {
	list := path.Join("clusters", cluster, "resources.yaml")
	text, err := t.ReadFile(list, maxScan)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return anyOf(vmids, list)
	}
	var out []Declaration
	for _, file := range listed(text) {
		if strings.HasPrefix(file, ".") {
			file = path.Join("clusters", cluster, file)
		}
		file = path.Clean(file)
		manifest, err := t.ReadFile(file, maxScan)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			out = append(out, anyOf(vmids, file)...)
			continue
		}
		d := newDeclarations(nil, "", cluster, vmids)
		if len(d.wanted(vmidWord, manifest)) == 0 {
			continue
		}
		for _, x := range d.spec(manifest) {
			out = append(out, Declaration{VMID: x.vmid, File: file, Names: x.names})
		}
	}
	return out
}

func anyOf(vmids []int, file string) (out []Declaration) {
	for _, id := range vmids {
		out = append(out, Declaration{VMID: id, File: file})
	}
	return out
}
