package field

import (
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/wire"
)

// unmade reports whether a slot holds nothing but a create form that PVE could
// not act upon, because of a storage's lock or want of space: no volume was
// made, and the same text sent again has PVE try again. Left alone, a stopped
// container would keep it until somebody starts it.
func (d *differ) unmade(key string) bool {
	e := d.g.Config[key]
	if e.Value != nil || e.Pending == nil || key == "rootfs" || !wire.IsVolumeKey(d.g.LXC, key) {
		return false
	}
	file, _ := wire.ParseProps(*e.Pending, wire.FormatOf(d.g.LXC, key)).Get(wire.FirstToken(d.g.LXC))
	return wire.IsCreateForm(file)
}

// create fills an empty slot. False means that it must not be filled now.
func (w *work) create() bool {
	v := w.vol
	if e, ok := w.d.g.Config[w.key]; ok && e.Delete && e.Value != nil {
		w.d.anomaly(v.Path, "restart the guest, or revert the pending removal of "+w.key,
			"the volume in %s waits to be removed at the next restart; the slot is not free", w.key)
		return false
	}
	if v.Kind == Rootfs && !w.d.g.Env.Creating {
		w.d.anomaly(v.Path, "look at the container's configuration in PVE", "the container has no rootfs")
		return false
	}
	if v.CreateText == nil {
		return false
	}
	text := v.CreateText()
	w.now.Set(v.FirstToken, text)
	for _, t := range v.CreateExtra {
		w.now.Set(t.Key, t.Value)
	}
	w.edit.Create = true
	w.edit.Storage, _, _ = wire.SplitVolID(text)
	for _, r := range w.guard {
		if r.state() != Set {
			continue
		}
		value := wire.Plain(r.Text())
		w.edit.Changes = append(w.edit.Changes, Change{Path: r.Path, Key: w.key, New: &value, Impact: w.d.volumeImpact(v)})
	}
	return true
}

// guardVolume compares a filled slot with what the manifest wants there.
// Pool and size of a live volume are never rewritten. False means that the
// slot holds something else, and nothing may be written to it.
func (w *work) guardVolume() bool {
	v := w.vol
	file, _ := w.old.Get(v.FirstToken)
	if found := w.foreign(file); found != "" {
		w.d.anomaly(v.Path, "free the slot in PVE, or declare another slot",
			"%s holds %s (%s), the manifest wants %s there", w.key, found, file, v.Kind)
		return false
	}
	if storage, _, ok := wire.SplitVolID(file); v.Storage != "" && storage != v.Storage {
		if !ok {
			storage = "no storage"
		}
		w.d.anomaly(w.guardPath(RoleStorage), "move the volume in PVE, or change the manifest to "+storage,
			"the live volume %s is on %s, the manifest wants %s", file, storage, v.Storage)
		return true // its size is not the wanted volume's
	}
	if v.Size > 0 && !v.SeedOnly && (v.Kind == Disk || v.Kind == Rootfs || v.Kind == MountPoint) {
		w.size()
	}
	return true
}

// foreign names what a slot holds when that is not of the wanted kind.
func (w *work) foreign(file string) string {
	media, _ := w.old.Get("media")
	cloudInit := wire.IsCloudInit(file)
	switch {
	case cloudInit && w.vol.Kind != CloudInit:
		return "a cloud-init drive"
	case w.vol.Kind == CloudInit && !cloudInit:
		if media == "cdrom" || wire.IsISO(file) {
			return "a CD drive"
		}
		return "a disk"
	case w.vol.Kind != CloudInit && (media == "cdrom" || file == "none" || file == "cdrom"):
		return "a CD drive"
	case w.d.g.LXC && strings.HasPrefix(file, "/"):
		return "a bind mount"
	}
	return ""
}

// size compares a live volume's size with the wanted one.
func (w *work) size() {
	v, path := w.vol, w.guardPath(RoleSize)
	text, ok := w.old.Get("size")
	live, err := wire.ReadSize(text)
	if !ok || err != nil {
		w.d.anomaly(path, "let PVE find the size with a rescan of the guest's volumes",
			"PVE tells no size of %s, the manifest wants %s", w.key, v.Size)
		return
	}
	switch {
	case v.Size.Covers(live):
	case live > v.Size:
		w.d.anomaly(path, "set the manifest's size to "+live.Manifest()+"; PVE cannot shrink a volume",
			"the live volume has %s, the manifest wants %s", live, v.Size)
	case !v.Grow:
		w.d.anomaly(path, "write grow: true beside the size, or set it to "+live.Manifest(),
			"the live volume has %s, the manifest wants %s", live, v.Size)
	case w.pending():
		w.d.anomaly(path, "restart the guest, or revert what is pending",
			"the live volume has %s, the manifest wants %s, but %s has a pending change that would undo a resize at the next restart", live, v.Size, w.key)
	default:
		from, to := wire.Plain(live.String()), wire.Plain(v.Size.String())
		impact := None
		if w.d.g.Running {
			impact = Live
		}
		w.d.out.Grows = append(w.d.out.Grows, Grow{
			Key: w.key, From: live, To: v.Size,
			Change: Change{Path: path, Key: w.key + ".size", Old: &from, New: &to, Impact: impact},
		})
		w.now.Set("size", v.Size.Wire())
	}
}

func (w *work) pending() bool {
	e := w.d.g.Config[w.key]
	return e.Pending != nil || e.Delete
}

// guardPath is the path of the volume's row of a role, or of its block.
func (w *work) guardPath(role Role) string {
	for _, r := range w.guard {
		if r.Role == role {
			return r.Path
		}
	}
	return w.vol.Path
}

// applyWhole treats a whole text of a volume or NIC slot (from extra) as the
// tokens it names, under the same guard as a declared volume.
func (w *work) applyWhole(r *Row) bool {
	state := r.state()
	if state == Null || state == Absent && r.Identity {
		switch {
		case w.has && wire.KeyClass(w.key) == "unused":
			w.d.anomaly(r.Path, "remove the volume in PVE", "%s keeps %s, and clearing it would destroy the volume", w.key, w.live)
		case w.has:
			w.now = wire.ParseProps("", w.format)
			w.differs = append(w.differs, r)
		}
		return true
	}
	if state == Absent {
		return true
	}
	text := r.want("", w.d.g.Env)
	want := wire.ParseProps(text, w.format)
	first := wire.FirstToken(w.d.g.LXC)
	file, _ := want.Get(first)
	_, imports := want.Get("import-from")
	creates := wire.IsVolumeKey(w.d.g.LXC, w.key) && (wire.IsCreateForm(file) || imports)
	if !w.has {
		if e, ok := w.d.g.Config[w.key]; ok && e.Delete && e.Value != nil && creates {
			w.d.anomaly(r.Path, "restart the guest, or revert the pending removal of "+w.key,
				"the volume in %s waits to be removed at the next restart; the slot is not free", w.key)
			return false
		}
		w.now = want
		w.edit.Create = creates
		if creates {
			w.edit.Storage, _, _ = wire.SplitVolID(file)
		}
		w.differs = append(w.differs, r)
		return true
	}
	for _, t := range want.Tokens() {
		live, has := w.old.Get(t.Key)
		switch {
		case t.Key == first && wire.IsVolumeKey(w.d.g.LXC, w.key):
			if !w.guardWhole(r, live, file, creates) {
				return false
			}
		case t.Key == "size", t.Key == "import-from", t.Key == "format":
		case t.Key == "macaddr" || t.Key == "hwaddr":
			if !strings.EqualFold(live, t.Value) {
				w.now.Set(t.Key, t.Value)
			}
		case !has || live != t.Value:
			w.now.Set(t.Key, t.Value)
		}
	}
	if w.now.String() != w.live {
		w.differs = append(w.differs, r)
	}
	return true
}

// guardWhole compares the first token of a whole drive text with a live one.
func (w *work) guardWhole(r *Row, live, file string, creates bool) bool {
	media, _ := w.old.Get("media")
	switch {
	case live == file:
	case !creates && media == "cdrom" && !wire.IsCloudInit(live):
		w.now.Set(wire.FirstToken(w.d.g.LXC), file) // another medium in a CD drive
	case !creates:
		w.d.anomaly(r.Path, "detach the live volume in PVE first, or change the manifest",
			"%s holds %s, the manifest wants %s; a live volume is not replaced", w.key, live, file)
		return false
	default:
		return w.guardForm(r, live, file)
	}
	return true
}

// guardForm compares a create form with the live volume that once came of it.
func (w *work) guardForm(r *Row, live, file string) bool {
	storage, amount, _ := wire.SplitVolID(file)
	at, _, _ := wire.SplitVolID(live)
	media, _ := w.old.Get("media")
	if wire.IsCloudInit(file) != wire.IsCloudInit(live) || media == "cdrom" && !wire.IsCloudInit(live) {
		w.d.anomaly(r.Path, "free the slot in PVE, or name another slot", "%s holds %s, the manifest wants %s", w.key, live, file)
		return false
	}
	if at != storage {
		w.d.anomaly(r.Path, "move the volume in PVE, or change the manifest to the live volume",
			"the live volume %s is on %q, the manifest wants %s", live, at, storage)
		return false
	}
	gib, err := strconv.ParseFloat(amount, 64)
	text, ok := w.old.Get("size")
	size, sizeErr := wire.ReadSize(text)
	switch class := wire.KeyClass(w.key); {
	case err != nil, gib == 0, !ok, sizeErr != nil, class == "efidisk", class == "tpmstate":
	case !wire.Size(gib * float64(wire.GiB)).Covers(size):
		w.d.anomaly(r.Path, "resize the volume in PVE, or change the manifest",
			"the live volume %s has %s, the manifest wants %s", live, size, wire.Size(gib*float64(wire.GiB)))
	}
	return true
}

// String names a volume kind in messages.
func (k VolumeKind) String() string {
	return [...]string{"a disk", "an EFI disk", "a TPM state", "a cloud-init drive", "a root file system", "a mount point"}[k]
}
