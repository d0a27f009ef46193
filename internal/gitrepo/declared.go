package gitrepo

import (
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/proxops/proxops/internal/yamldoc"
)

// maxScan is the largest blob that a history query looks into; manifests are
// at most 1 MiB.
const maxScan = 1 << 20

// declarations answers which of the wanted vmids a commit declares for one
// cluster. Old commits may hold what today's schema refuses, so files are
// scanned for `vmid: N` and compositions for their list items. A file that
// today's YAML reader takes declares its spec.vmid alone: the same words in a
// description are none.
type declarations struct {
	store   *store
	prefix  string
	cluster string
	vmids   []int

	byTree map[plumbing.Hash][]int   // top tree → declared
	byDir  map[dirKey][]int          // folder → declared by the files listed in it
	lists  map[plumbing.Hash][]group // composition blob → files by folder
	blobs  map[plumbing.Hash][]int   // manifest blob → declared
	names  map[int][]string          // vmid → what the manifests read so far call its guest
}

// group is the files of one folder that a composition lists.
type group struct {
	dir   string
	names []string
}

type dirKey struct {
	list plumbing.Hash // the composition
	dir  string
	tree plumbing.Hash // the folder as it was
}

func newDeclarations(s *store, prefix, cluster string, vmids []int) *declarations {
	return &declarations{
		store: s, prefix: prefix, cluster: cluster, vmids: vmids,
		byTree: map[plumbing.Hash][]int{}, byDir: map[dirKey][]int{},
		lists: map[plumbing.Hash][]group{}, blobs: map[plumbing.Hash][]int{}, names: map[int][]string{},
	}
}

func (d *declarations) has(c *object.Commit, vmid int) (bool, error) {
	ids, ok := d.byTree[c.TreeHash]
	if !ok {
		var err error
		if ids, err = d.read(c.TreeHash); err != nil {
			return false, err
		}
		d.byTree[c.TreeHash] = ids
	}
	return slices.Contains(ids, vmid), nil
}

// read finds the composition of one tree and the vmids behind it. Most commits
// leave most folders as they were.
func (d *declarations) read(top plumbing.Hash) ([]int, error) {
	at := &commitFS{store: d.store, top: top, prefix: d.prefix}
	list, err := at.find(path.Join("clusters", d.cluster, "resources.yaml"))
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	groups, err := d.composition(list.Hash)
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, g := range groups {
		dir, err := at.find(g.dir)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		key := dirKey{list.Hash, g.dir, dir.Hash}
		found, ok := d.byDir[key]
		if !ok {
			var linked bool
			if found, linked, err = d.folder(at, g, dir); err != nil {
				return nil, err
			}
			if !linked { // a link's target is not decided by this folder's hash
				d.byDir[key] = found
			}
		}
		ids = append(ids, found...)
	}
	return ids, nil
}

func (d *declarations) folder(at *commitFS, g group, dir object.TreeEntry) (ids []int, linked bool, err error) {
	if dir.Mode != filemode.Dir {
		return nil, false, nil
	}
	entries, err := d.store.tree(dir.Hash)
	if err != nil {
		return nil, false, err
	}
	for _, name := range g.names {
		e, ok := entries[name]
		if !ok {
			continue
		}
		if e.Mode == filemode.Symlink {
			linked = true
			if e, err = at.find(path.Join(g.dir, name)); gone(err) {
				continue
			}
			if err != nil {
				return nil, false, err
			}
		}
		found, err := d.manifest(e)
		if err != nil {
			return nil, false, err
		}
		ids = append(ids, found...)
	}
	return ids, linked, nil
}

// gone: for the history, a path that cannot be followed declares nothing.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) ||
		errors.Is(err, ErrSubmodule) || errors.Is(err, ErrOutside)
}

var listItem = regexp.MustCompile(`(?m)(?:^[ \t]*-|[\[,])[ \t]*["']?([^\s"',\[\]#]+\.ya?ml)\b`)

func (d *declarations) composition(h plumbing.Hash) ([]group, error) {
	if groups, ok := d.lists[h]; ok {
		return groups, nil
	}
	text, err := d.text(h)
	if err != nil {
		return nil, err
	}
	byDir := map[string][]string{}
	for _, m := range listItem.FindAllSubmatch(text, -1) {
		p := string(m[1])
		if strings.HasPrefix(p, ".") {
			p = path.Join("clusters", d.cluster, p)
		}
		dir, name := path.Split(path.Clean(p))
		byDir[path.Clean(dir)] = append(byDir[path.Clean(dir)], name)
	}
	var out []group
	for _, dir := range sortedKeys(byDir) {
		out = append(out, group{dir, byDir[dir]})
	}
	d.lists[h] = out
	return out, nil
}

var vmidLine = regexp.MustCompile(`(?m)^(?:[^#\n"']*[{,][ \t]*|[ \t]*)["']?vmid["']?[ \t]*:[ \t]*["']?0*([1-9][0-9]{2,8})\b`)

func (d *declarations) manifest(e object.TreeEntry) ([]int, error) {
	if e.Mode == filemode.Dir || e.Mode == filemode.Submodule {
		return nil, nil
	}
	if ids, ok := d.blobs[e.Hash]; ok {
		return ids, nil
	}
	text, err := d.text(e.Hash)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, m := range vmidLine.FindAllSubmatch(text, -1) {
		if id, err := strconv.Atoi(string(m[1])); err == nil && slices.Contains(d.vmids, id) {
			out = append(out, id)
		}
	}
	if len(out) > 0 {
		out = d.spec(text, out)
	}
	d.blobs[e.Hash] = out
	return out, nil
}

// spec is the vmid of a manifest that was found to speak of the given ones,
// and takes down its guest's names. What is no manifest declares all of them.
func (d *declarations) spec(text []byte, found []int) []int {
	docs, problems := yamldoc.Parse("", text)
	if len(problems) > 0 || len(docs) != 1 || docs[0].Get("spec").Get("vmid") == nil {
		for _, id := range found {
			d.names[id] = append(d.names[id], "")
		}
		return found
	}
	m := docs[0]
	id, err := strconv.Atoi(m.Get("spec").Get("vmid").Value)
	if err != nil || !slices.Contains(found, id) {
		return nil
	}
	for _, n := range []*yamldoc.Node{m.Get("metadata").Get("name"), m.Get("spec").Get("pve-name"), m.Get("spec").Get("dns").Get("hostname")} {
		if n != nil && n.Kind == yamldoc.Scalar {
			d.names[id] = append(d.names[id], n.Value)
		}
	}
	return []int{id}
}

// called lists what the manifests read so far call the guest; none when one
// of them does not say.
func (d *declarations) called(vmid int) []string {
	names := slices.Clone(d.names[vmid])
	slices.Sort(names)
	if slices.Contains(names, "") {
		return nil
	}
	return slices.Compact(names)
}

// text reads a blob; one too large to be a manifest counts as empty.
func (d *declarations) text(h plumbing.Hash) ([]byte, error) {
	size, err := d.store.size(h)
	if err != nil || size > maxScan {
		return nil, err
	}
	return d.store.blob(h)
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
