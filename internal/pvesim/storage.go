package pvesim

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// The storage types that the simulator knows.
const (
	storageDir     = "dir"
	storageLVMThin = "lvmthin"
)

// Content types of volumes.
const (
	contentImages  = "images"
	contentRootdir = "rootdir"
	contentISO     = "iso"
	contentVztmpl  = "vztmpl"
	contentImport  = "import"
	contentBackup  = "backup"

	contentSnippets = "snippets"
)

// Storage is an entry of storage.cfg.
type Storage struct {
	ID   string
	Type string
	// Content is the enabled types; Nodes limits where it is defined ("" entries do not occur, none is everywhere).
	Content []string
	Nodes   []string
	Shared  bool
	// Disabled is the `disable` option.
	Disabled bool
	// Props are all other options of storage.cfg as set: path, vgname, thinpool, prune-backups…
	Props map[string]string
	// Total is the size in bytes that the storage shows.
	Total int64
}

// Has says whether a content type is enabled.
func (s *Storage) Has(content string) bool { return slices.Contains(s.Content, content) }

// On says whether the storage is defined on a node.
func (s *Storage) On(node string) bool { return len(s.Nodes) == 0 || slices.Contains(s.Nodes, node) }

// Volume is something that a storage holds.
type Volume struct {
	// ID is the volid: storage:name.
	ID string
	// Node is "" on shared storages.
	Node string
	// Owner is the guest whose id the name carries, 0 for files.
	Owner int
	// Content is what the volume counts as; guests' volumes are images or rootdir.
	Content string
	// Format is raw, qcow2, vmdk, subvol; for files iso, tgz…
	Format string
	// Size is the virtual size in bytes, Used what it takes.
	Size int64
	Used int64
	// Base is the volid of the base image of a linked clone.
	Base string
	// Snapshots are the names of snapshots the volume itself holds.
	Snapshots []string
	// Sums are the file's checksums by algorithm, as far as they are known (files only).
	Sums    map[string]string
	Created time.Time
	// Notes and Protected are of backups and such.
	Notes     string
	Protected bool
}

// LedgerEntry is one thing that happened to a volume.
type LedgerEntry struct {
	Time time.Time
	// Op is create, destroy, rename, resize.
	Op    string
	Node  string
	Volid string
	// New is the new volid of a rename.
	New   string
	Owner int
	Size  int64
	// Cause is "METHOD /path" of the request or the UPID of the task.
	Cause string
	Who   string
}

func volumeKey(node, volid string) string { return node + " " + volid }

// storage finds a storage by id.
func (w *World) storage(id string) (*Storage, error) {
	for _, s := range w.Storages {
		if s.ID == id {
			return s, nil
		}
	}
	return nil, die("storage '%s' does not exist", id)
}

// storageOn finds a storage that is enabled on a node, as storage_check_enabled does.
func (w *World) storageOn(id, node string) (*Storage, error) {
	s, err := w.storage(id)
	switch {
	case err != nil:
		return nil, err
	case s.Disabled:
		return nil, die("storage '%s' is disabled", id)
	case !s.On(node):
		return nil, die("storage '%s' is not available on node '%s'", id, node)
	}
	return s, nil
}

// volNode is the node part of a volume's key.
func (s *Storage) volNode(node string) string {
	if s.Shared {
		return ""
	}
	return node
}

// splitVolid takes a volid apart.
func splitVolid(volid string) (storage, name string, ok bool) {
	storage, name, ok = strings.Cut(volid, ":")
	return storage, name, ok && storage != "" && name != ""
}

// volume finds a volume as seen from a node; nil when there is none.
func (w *World) volume(node, volid string) *Volume {
	id, _, ok := splitVolid(volid)
	if !ok {
		return nil
	}
	s, err := w.storage(id)
	if err != nil {
		return nil
	}
	return w.Volumes[volumeKey(s.volNode(node), volid)]
}

// volumesOf lists a storage's volumes as seen from a node, by volid.
func (w *World) volumesOf(s *Storage, node string) []*Volume {
	shelf := w.shelf(s, node)
	out := make([]*Volume, 0, len(shelf))
	for _, v := range shelf {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b *Volume) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// shelf is a storage's volumes as seen from a node, by volid. The index behind it is built anew after the state was shaped from outside.
func (w *World) shelf(s *Storage, node string) map[string]*Volume {
	if w.shelves == nil {
		w.shelves = map[string]map[string]*Volume{}
		for _, v := range w.Volumes {
			w.shelve(v)
		}
	}
	return w.shelves[volumeKey(s.volNode(node), s.ID)]
}

func (w *World) shelve(v *Volume) {
	if w.shelves == nil {
		return
	}
	id, _, _ := splitVolid(v.ID)
	key := volumeKey(v.Node, id)
	if w.shelves[key] == nil {
		w.shelves[key] = map[string]*Volume{}
	}
	w.shelves[key][v.ID] = v
}

func (w *World) unshelve(v *Volume) {
	id, _, _ := splitVolid(v.ID)
	delete(w.shelves[volumeKey(v.Node, id)], v.ID)
}

// used is the bytes that a storage's volumes take.
func (w *World) used(s *Storage, node string) int64 {
	var n int64
	for _, v := range w.shelf(s, node) {
		n += v.Used
	}
	return n
}

// createVolume enters a volume; one of that name must not exist.
func (a *Actor) createVolume(s *Storage, v Volume) (*Volume, error) {
	v.Node = s.volNode(a.Node)
	key := volumeKey(v.Node, v.ID)
	if a.w.Volumes[key] != nil {
		return nil, die("volume '%s' already exists", v.ID)
	}
	v.Created = time.Now()
	a.w.Volumes[key] = &v
	a.w.shelve(&v)
	a.record("create", &v, "")
	return &v, nil
}

// destroyVolume frees a volume.
func (a *Actor) destroyVolume(v *Volume) {
	delete(a.w.Volumes, volumeKey(v.Node, v.ID))
	a.w.unshelve(v)
	a.record("destroy", v, "")
}

// renameVolume gives a volume another volid on its storage, and keeps what is based on it.
func (a *Actor) renameVolume(v *Volume, to string) error {
	key := volumeKey(v.Node, to)
	if a.w.Volumes[key] != nil {
		return die("volume '%s' already exists", to)
	}
	a.record("rename", v, to)
	for _, c := range a.w.Volumes {
		if c.Base == v.ID && c.Node == v.Node {
			c.Base = to
		}
	}
	delete(a.w.Volumes, volumeKey(v.Node, v.ID))
	a.w.unshelve(v)
	v.ID = to
	a.w.Volumes[key] = v
	a.w.shelve(v)
	return nil
}

// resizeVolume sets a volume's virtual size.
func (a *Actor) resizeVolume(v *Volume, size int64) {
	v.Size = size
	a.record("resize", v, "")
}

// ledgerKeep is how many entries of the ledger are kept at the least: a world that runs for weeks must not grow by what it did.
const ledgerKeep = 20000

func (a *Actor) record(op string, v *Volume, to string) {
	if len(a.w.Ledger) >= 2*ledgerKeep {
		a.w.Ledger = slices.Clone(a.w.Ledger[len(a.w.Ledger)-ledgerKeep:])
	}
	a.w.Ledger = append(a.w.Ledger, LedgerEntry{
		Time: time.Now(), Op: op, Node: v.Node, Volid: v.ID, New: to, Owner: v.Owner, Size: v.Size, Cause: a.Cause, Who: a.Who.AuthID(),
	})
}

// clonesOf lists the volumes based on v.
func (w *World) clonesOf(v *Volume) []*Volume {
	var out []*Volume
	for _, c := range w.Volumes {
		if c.Base == v.ID && c.Node == v.Node {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *Volume) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Path is the file or device behind a volume.
func (s *Storage) Path(volid string) string {
	_, name, _ := splitVolid(volid)
	if s.Type == storageLVMThin {
		return fmt.Sprintf("/dev/%s/%s", s.Props["vgname"], name)
	}
	dir, rest, _ := strings.Cut(name, "/")
	root := s.Props["path"]
	switch dir {
	case contentISO:
		return path.Join(root, "template/iso", rest)
	case contentVztmpl:
		return path.Join(root, "template/cache", rest)
	case contentImport:
		return path.Join(root, "import", rest)
	case contentBackup:
		return path.Join(root, "dump", rest)
	}
	if i := strings.LastIndexByte(name, '/'); i > 0 { // of a linked clone, the part after its base
		own := name[:i]
		if j := strings.LastIndexByte(own, '/'); j >= 0 {
			own = own[j+1:]
		}
		return path.Join(root, "images", own, name[i+1:])
	}
	return path.Join(root, name)
}
