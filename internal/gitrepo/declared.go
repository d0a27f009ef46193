package gitrepo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
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

// declared is one declaration of a vmid that is asked for.
type declared struct {
	vmid  int
	file  string   // from the root
	kind  string   // "" = it does not say
	names []string // what it calls its guest, sorted; none when its text is no YAML
}

// declarations answers which of the wanted vmids a commit declares for one
// cluster. Old commits may hold what today's schema refuses, so nothing is asked
// of a document but its spec.vmid, its kind and its names, and of a composition
// but its resources. Only what is no YAML to today's reader is scanned for
// `vmid: N` and for list items: then nobody knows whose the vmid was.
type declarations struct {
	store   *store
	prefix  string
	cluster string
	vmids   []int
	digits  [][]byte // the same as text

	byTree map[plumbing.Hash][]declared // by the top tree
	byDir  map[dirKey][]declared        // by the files listed in a folder
	lists  map[plumbing.Hash][]group    // composition blob → files by folder
	blobs  map[plumbing.Hash][]declared // by the manifest's blob, without its path
	empty  map[plumbing.Hash]bool       // manifest blobs that declare none
}

// group is the files of one folder that a composition lists.
type group struct {
	dir   string
	names map[string]bool
}

type dirKey struct {
	list plumbing.Hash // the composition
	dir  string
	tree plumbing.Hash // the folder as it was
}

func newDeclarations(s *store, prefix, cluster string, vmids []int) *declarations {
	d := &declarations{
		store: s, prefix: prefix, cluster: cluster, vmids: vmids,
		byTree: map[plumbing.Hash][]declared{}, byDir: map[dirKey][]declared{},
		lists: map[plumbing.Hash][]group{}, blobs: map[plumbing.Hash][]declared{}, empty: map[plumbing.Hash]bool{},
	}
	for _, id := range vmids {
		d.digits = append(d.digits, strconv.AppendInt(nil, int64(id), 10))
	}
	return d
}

// of are the commit's declarations of one vmid.
func (d *declarations) of(c *object.Commit, vmid int) (out []declared, err error) {
	all, ok := d.byTree[c.TreeHash]
	if !ok {
		if all, err = d.read(c.TreeHash); err != nil {
			return nil, err
		}
		d.byTree[c.TreeHash] = all
	}
	for _, x := range all {
		if x.vmid == vmid {
			out = append(out, x)
		}
	}
	return out, nil
}

// read finds the composition of one tree and the declarations behind it. Most commits
// leave most folders as they were.
func (d *declarations) read(top plumbing.Hash) ([]declared, error) {
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
	var out []declared
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
		out = append(out, found...)
	}
	return out, nil
}

// folder scans the bytes of a tree: where thousands of manifests stand in one
// folder, each commit brings a tree that long, with one entry changed.
func (d *declarations) folder(at *commitFS, g group, dir object.TreeEntry) (out []declared, linked bool, err error) {
	if dir.Mode != filemode.Dir {
		return nil, false, nil
	}
	raw, err := d.store.raw(plumbing.TreeObject, dir.Hash, math.MaxInt64)
	if err != nil {
		return nil, false, err
	}
	var hash plumbing.Hash
	for len(raw) > 0 {
		head, rest, ok := bytes.Cut(raw, []byte{0})
		mode, name, ok2 := bytes.Cut(head, []byte{' '})
		if !ok || !ok2 || len(rest) < len(hash) {
			return nil, false, fmt.Errorf("tree %s: is damaged", dir.Hash)
		}
		copy(hash[:], rest)
		raw = rest[len(hash):]
		link := string(mode) == "120000"
		if d.empty[hash] && !link || !g.names[string(name)] {
			continue
		}
		file := path.Join(g.dir, string(name))
		found, err := d.entry(at, file, string(mode), hash)
		if err != nil {
			return nil, false, err
		}
		linked = linked || link
		for _, x := range found {
			x.file = file
			out = append(out, x)
		}
	}
	return out, linked, nil
}

// entry is what one listed file declares.
func (d *declarations) entry(at *commitFS, name, mode string, hash plumbing.Hash) ([]declared, error) {
	m, err := filemode.New(mode)
	if err != nil {
		return nil, err
	}
	e := object.TreeEntry{Mode: m, Hash: hash}
	if m == filemode.Symlink {
		if e, err = at.find(name); gone(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return d.manifest(e)
}

// gone: for the history, a path that cannot be followed declares nothing.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) ||
		errors.Is(err, ErrSubmodule) || errors.Is(err, ErrOutside)
}

// listed are the paths that a composition names. Too much here would let a
// guest be deleted that was never declared, so only text that the YAML reader
// refuses is scanned, without its comments.
func listed(text []byte) []string {
	if items, ok := plainList(text); ok {
		return items
	}
	docs, problems := yamldoc.Parse("", text)
	var out []string
	if len(problems) == 0 && len(docs) == 1 {
		if list := docs[0].Get("resources"); list != nil {
			for _, n := range list.Items {
				out = append(out, n.Value)
			}
		}
		return out
	}
	for _, m := range anyItem.FindAllSubmatch(comment.ReplaceAll(text, nil), -1) {
		out = append(out, string(m[1]))
	}
	return out
}

var (
	comment = regexp.MustCompile(`(?m)(?:^|[ \t])#.*$`)
	anyItem = regexp.MustCompile(`(?m)(?:^[ \t]*-|[\[,])\s*["']?([^\s"',\[\]#]+\.ya?ml)\b`)
)

// plainList reads a composition that holds nothing but `resources:` and a block
// list of bare paths, as most commits do: a history has thousands, and the YAML
// reader takes too long for that. ok is false for any other text.
func plainList(text []byte) (items []string, ok bool) {
	for line := range strings.Lines(string(comment.ReplaceAll(text, nil))) {
		item, isItem := strings.CutPrefix(strings.TrimSpace(line), "- ")
		switch {
		case strings.TrimSpace(line) == "":
		case strings.TrimRight(line, " \r\n") == "resources:" && !ok:
			ok = true
		case ok && isItem && !strings.ContainsAny(item, " \t:,#[]{}\"'&*!?|>%@`"):
			items = append(items, item)
		default:
			return nil, false
		}
	}
	return items, ok
}

func (d *declarations) composition(h plumbing.Hash) ([]group, error) {
	if groups, ok := d.lists[h]; ok {
		return groups, nil
	}
	text, err := d.text(h)
	if err != nil {
		return nil, err
	}
	byDir := map[string]map[string]bool{}
	for _, p := range listed(text) {
		if strings.HasPrefix(p, ".") {
			p = path.Join("clusters", d.cluster, p)
		}
		dir, name := path.Split(path.Clean(p))
		dir = path.Clean(dir)
		if byDir[dir] == nil {
			byDir[dir] = map[string]bool{}
		}
		byDir[dir][name] = true
	}
	var out []group
	for _, dir := range sortedKeys(byDir) {
		out = append(out, group{dir, byDir[dir]})
	}
	d.lists[h] = out
	return out, nil
}

var (
	// vmidLine is for text that the YAML reader refuses: no comment, no quoted text.
	vmidLine = regexp.MustCompile(`(?m)^(?:[^#\n"']*[{,][ \t]*|[ \t]*)["']?vmid["']?[ \t]*:[ \t]*["']?0*([1-9][0-9]{2,8})\b`)
	// vmidWord lets nothing pass by that declares a vmid, on one line or many.
	vmidWord = regexp.MustCompile(`\bvmid["']?\s*:\s*(?:[!&]\S+\s+)*["']?0*([1-9][0-9]{2,8})\b`)
)

func (d *declarations) manifest(e object.TreeEntry) ([]declared, error) {
	if e.Mode == filemode.Dir || e.Mode == filemode.Submodule {
		return nil, nil
	}
	if out, ok := d.blobs[e.Hash]; ok {
		return out, nil
	}
	text, err := d.text(e.Hash)
	if err != nil {
		return nil, err
	}
	var out []declared
	if len(d.wanted(vmidWord, text)) > 0 {
		out = d.spec(text)
	}
	if len(out) == 0 {
		d.empty[e.Hash] = true
	}
	d.blobs[e.Hash] = out
	return out, nil
}

// wanted are the vmids asked for among those that a pattern finds in a text;
// none, without a closer look, where none of the numbers stands in it.
func (d *declarations) wanted(pattern *regexp.Regexp, text []byte) (out []int) {
	if !slices.ContainsFunc(d.digits, func(id []byte) bool { return bytes.Contains(text, id) }) {
		return nil
	}
	for _, m := range pattern.FindAllSubmatch(text, -1) {
		if id, err := strconv.Atoi(string(m[1])); err == nil && slices.Contains(d.vmids, id) {
			out = append(out, id)
		}
	}
	return out
}

// spec are the declarations of a file, of each of its documents by itself.
// What is no YAML declares every vmid that it has a line of, and names nobody.
func (d *declarations) spec(text []byte) (out []declared) {
	docs, problems := yamldoc.Parse("", text)
	if len(problems) > 0 {
		for _, id := range d.wanted(vmidLine, text) {
			out = append(out, declared{vmid: id})
		}
		return out
	}
	for _, m := range docs {
		vmid := m.Get("spec").Get("vmid")
		if vmid == nil {
			continue
		}
		id, err := strconv.Atoi(vmid.Value)
		if err != nil || !slices.Contains(d.vmids, id) {
			continue
		}
		x := declared{vmid: id}
		if k := m.Get("kind"); k != nil {
			x.kind = k.Value
		}
		for _, n := range []*yamldoc.Node{m.Get("metadata").Get("name"), m.Get("spec").Get("pve-name"), m.Get("spec").Get("dns").Get("hostname")} {
			if n != nil && n.Kind == yamldoc.Scalar && n.Value != "" {
				x.names = append(x.names, n.Value)
			}
		}
		slices.Sort(x.names)
		x.names = slices.Compact(x.names)
		out = append(out, x)
	}
	return out
}

// called is what the declarations of one vmid call its guest, and as what
// kinds they declare it, sorted; no names when one of them does not say.
func called(list []declared) (names, kinds []string) {
	known := true
	for _, x := range list {
		known = known && len(x.names) > 0
		names, kinds = append(names, x.names...), append(kinds, x.kind)
	}
	slices.Sort(kinds)
	if kinds = slices.Compact(kinds); !known {
		return nil, kinds
	}
	slices.Sort(names)
	return slices.Compact(names), kinds
}

// text reads a blob; one too large to be a manifest counts as empty.
func (d *declarations) text(h plumbing.Hash) ([]byte, error) {
	return d.store.raw(plumbing.BlobObject, h, maxScan)
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
