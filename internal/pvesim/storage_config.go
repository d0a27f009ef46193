package pvesim

import (
	"crypto/sha1" //nolint:gosec // PVE's digest is SHA-1
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// storageKind is what a storage plugin says of itself: the content types it takes, those it has when none are given, and the
// options that must be set.
type storageKind struct {
	content, defaults []string
	required          []string
	shared            bool
}

func storageKinds() map[string]storageKind {
	files := []string{contentImages, contentRootdir, contentVztmpl, contentISO, contentBackup, contentSnippets, contentImport, "none"}
	disks := []string{contentImages, contentRootdir, "none"}
	both := []string{contentImages, contentRootdir}
	images := []string{contentImages}
	return map[string]storageKind{
		storageDir:     {content: files, defaults: both, required: []string{"path"}},
		storageLVMThin: {content: disks, defaults: both, required: []string{"thinpool", "vgname"}},
		"lvm":          {content: disks, defaults: both, required: []string{"vgname"}},
		"zfspool":      {content: disks, defaults: both, required: []string{"pool"}},
		"zfs":          {content: images, defaults: images, required: []string{"blocksize", "iscsiprovider", "pool", "portal", "target"}, shared: true},
		"btrfs":        {content: files, defaults: both, required: []string{"path"}},
		"nfs":          {content: files, defaults: images, required: []string{"export", "server"}, shared: true},
		"cifs":         {content: files, defaults: images, required: []string{"server", "share"}, shared: true},
		"cephfs":       {content: []string{contentVztmpl, contentISO, contentBackup, contentSnippets, contentImport, "none"}, defaults: []string{contentBackup}, shared: true},
		"rbd":          {content: disks, defaults: images, shared: true},
		"iscsi":        {content: []string{contentImages, "none"}, defaults: images, required: []string{"portal", "target"}, shared: true},
		"iscsidirect":  {content: []string{contentImages, "none"}, defaults: images, required: []string{"portal", "target"}, shared: true},
		"pbs":          {content: []string{contentBackup, "none"}, defaults: []string{contentBackup}, required: []string{"datastore", "server"}, shared: true},
		"esxi":         {content: []string{contentImport}, defaults: []string{contentImport}, required: []string{"password", "server", "username"}, shared: true},
	}
}

// storageOptions are the options that only some types have.
func storageOptions() map[string][]string {
	iscsi := []string{"iscsi", "iscsidirect", "zfs"}
	return map[string][]string{
		"vgname": {"lvm", storageLVMThin}, "thinpool": {storageLVMThin}, "export": {"nfs"}, "share": {"cifs"}, "datastore": {"pbs"}, "iscsiprovider": {"zfs"},
		"blocksize": {"zfs", "zfspool"}, "pool": {"rbd", "zfs", "zfspool"}, "portal": iscsi, "target": iscsi, "path": {storageDir, "btrfs", "nfs", "cifs", "cephfs"},
		"server": {"cifs", "esxi", "nfs", "pbs"}, "monhost": {"cephfs", "rbd"}, "krbd": {"rbd"}, "sparse": {"zfs", "zfspool"}, "is_mountpoint": {storageDir, "btrfs"},
	}
}

// storageOption says whether a type has an option.
func storageOption(kind, option string) bool {
	if slices.Contains([]string{"storage", "type", "digest", "delete"}, option) {
		return false
	}
	if types := storageOptions()[option]; types != nil {
		return slices.Contains(types, kind)
	}
	_, known := schema.Lookup("POST", "/storage").Key(option)
	return known
}

// storageDigest is of the whole of storage.cfg.
func (w *World) storageDigest() string {
	h := sha1.New() //nolint:gosec // as above
	for _, s := range w.Storages {
		fmt.Fprintf(h, "%s: %s %v %v %t %t\n", s.Type, s.ID, s.Content, s.Nodes, s.Shared, s.Disabled)
		for _, k := range sortedKeys(s.Props) {
			fmt.Fprintf(h, "%s %s\n", k, s.Props[k])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (w *World) storageRow(s *Storage) map[string]any {
	row := map[string]any{"storage": s.ID, "type": s.Type, "digest": w.storageDigest(), "content": joined(s.Content)}
	if len(s.Nodes) > 0 {
		row["nodes"] = joined(s.Nodes)
	}
	if s.Shared {
		row["shared"] = 1
	}
	if s.Disabled {
		row["disable"] = 1
	}
	for k, v := range s.Props {
		row[k] = v
		if n, err := strconv.Atoi(v); err == nil {
			row[k] = n
		}
	}
	return row
}

func (w *World) storageList(r *Request) (any, error) {
	out := []map[string]any{}
	for _, s := range w.Storages {
		if w.canAny(r.Who, "/storage/"+s.ID, "Datastore.Audit", "Datastore.AllocateSpace") && (!r.P.Has("type") || s.Type == r.P.Str("type")) {
			out = append(out, w.storageRow(s))
		}
	}
	return out, nil
}

func (w *World) storageRead(r *Request) (any, error) {
	s, err := w.storage(r.P.Str("storage"))
	if err != nil {
		return nil, err
	}
	return w.storageRow(s), nil
}

func (w *World) storageCreate(r *Request) (any, error) {
	id, kind := r.P.Str("storage"), r.P.Str("type")
	plugin := storageKinds()[kind]
	for _, k := range r.P.Keys() {
		if types := storageOptions()[k]; types != nil && !slices.Contains(types, kind) {
			return nil, die("unexpected property '%s'", k)
		}
	}
	for _, k := range plugin.required {
		if !r.P.Has(k) {
			return nil, die("missing value for required option '%s'", k)
		}
	}
	if _, err := w.storage(id); err == nil {
		return nil, die("create storage failed: storage ID '%s' already defined", id)
	}
	s := &Storage{ID: id, Type: kind, Content: plugin.defaults, Shared: plugin.shared, Props: map[string]string{}, Total: w.local().RootTotal}
	if err := s.set(plugin, r.P); err != nil {
		return nil, wrap("create storage failed: ", err)
	}
	w.Storages = append(w.Storages, s)
	return map[string]any{"storage": id, "type": kind}, nil
}

// set changes a storage's options; the plugin says which content types it takes.
func (s *Storage) set(plugin storageKind, p Params) error {
	for _, k := range p.Keys() {
		v := p.Str(k)
		switch k {
		case "storage", "type", "digest", "delete", "create-base-path", "create-subdirs", "mkdir", "password", "encryption-key":
		case "content":
			list := splitList(v)
			for _, c := range list {
				if !slices.Contains(plugin.content, c) {
					return die("storage does not support content type '%s'", c)
				}
			}
			s.Content = slices.Compact(slices.Sorted(slices.Values(list)))
		case "nodes":
			s.Nodes = splitList(v)
		case "shared":
			s.Shared = p.Bool(k) || plugin.shared
		case "disable":
			s.Disabled = p.Bool(k)
		default:
			s.Props[k] = v
		}
	}
	return nil
}

func (w *World) storageUpdate(r *Request) (any, error) {
	s, err := w.storage(r.P.Str("storage"))
	if err != nil {
		return nil, wrap("update storage failed: ", err)
	}
	if d := r.P.Str("digest"); d != "" && d != w.storageDigest() {
		return nil, die("update storage failed: detected modified configuration - file changed by other user? Try again.")
	}
	plugin := storageKinds()[s.Type]
	next := *s
	next.Props = map[string]string{}
	for k, v := range s.Props {
		next.Props[k] = v
	}
	for _, k := range r.P.List("delete") {
		switch {
		case !storageOption(s.Type, k):
			return nil, die("update storage failed: no such option '%s'", k)
		case slices.Contains(plugin.required, k):
			return nil, die("update storage failed: unable to delete required option '%s'", k)
		case r.P.Has(k):
			return nil, die("update storage failed: unable to set and delete property '%s' at the same time!", k)
		case k == "content":
			next.Content = plugin.defaults
		case k == "nodes":
			next.Nodes = nil
		case k == "shared":
			next.Shared = plugin.shared
		case k == "disable":
			next.Disabled = false
		default:
			delete(next.Props, k)
		}
	}
	if err := next.set(plugin, r.P); err != nil {
		return nil, wrap("update storage failed: ", err)
	}
	*s = next
	return map[string]any{"storage": s.ID, "type": s.Type}, nil
}

func (w *World) storageDelete(r *Request) (any, error) {
	id := r.P.Str("storage")
	if _, err := w.storage(id); err != nil {
		return nil, wrap("delete storage failed: ", err)
	}
	for _, s := range w.Storages {
		if base, _, _ := strings.Cut(s.Props["base"], ":"); base == id {
			return nil, die("delete storage failed: can't remove storage - storage is used as base of another storage")
		}
	}
	w.Storages = slices.DeleteFunc(w.Storages, func(s *Storage) bool { return s.ID == id })
	for _, p := range w.Pools { // what lies on it stays there, out of reach
		delete(p.Storages, id)
	}
	w.Access.removeACLPath("/storage/" + id)
	return nil, nil
}
