package pvesim

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// newSize is the size that a resize asks for, given the present one: absolute, or by how much more.
func newSize(text string, now int64) (size int64, ok bool) {
	grow, relative := strings.CutPrefix(text, "+")
	size, ok = schema.ParseSize(grow)
	if relative {
		size = min(size, math.MaxInt64-now) + now
	}
	return size, ok
}

// copyWork is the time that copying n bytes takes: about 500 MB a second.
func (a *Actor) copyWork(n int64) error {
	return a.Work(time.Duration(n) * 2 * time.Nanosecond)
}

// qemuResize checks nothing but the parameters at once: an absent disk, a stale digest, a lock and a missing right are faults of the
// task (facts.md D, M).
func (w *World) qemuResize(r *Request) (any, error) {
	if err := r.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	vmid, p := r.VMID, r.P
	return r.spawn("resize", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error { return a.qemuResizeDisk(vmid, p) })
	}), nil
}

func (a *Actor) qemuResizeDisk(vmid int, p Params) error {
	g, err := a.w.guest(kindQemu, a.Node, vmid)
	if err != nil {
		return err
	}
	k, digest := p.Str("disk"), p.Str("digest")
	if digest != "" && digest != "0" && digest != g.Digest() {
		return die("checksum mismatch (file change by other user?)")
	}
	if !p.Bool("skiplock") {
		if err := g.checkLock(); err != nil {
			return err
		}
	}
	if g.Config[k] == "" {
		return die("disk '%s' does not exist", k)
	}
	d, ok := parseDrive(k, g.Config[k])
	if !ok {
		return die("unable to parse drive options for '%s'", k)
	}
	_, name, err := a.w.parseVolid(d.file())
	switch {
	case err != nil:
		return err
	case len(g.Snapshots) > 0 && name.format == "qcow2":
		return die("can't resize volume: %s if snapshot exists", k)
	case d.cdrom(false):
		return die("you can't resize a cdrom")
	}
	id, _, _ := splitVolid(d.file())
	if err := a.w.check(a.Who, "/storage/"+id, "Datastore.AllocateSpace"); err != nil {
		return err
	}
	s, err := a.w.storageOn(id, a.Node)
	if err != nil {
		return err
	}
	v := a.w.volume(a.Node, d.file())
	if v == nil {
		return a.w.volumeMissing(d.file())
	}
	size, ok := newSize(p.Str("size"), v.Size)
	switch {
	case !ok:
		return die("unable to parse size '%s'", p.Str("size"))
	case size < v.Size:
		return die("shrinking disks is not supported")
	case size == v.Size:
		return nil
	case s.fileBased() && isBase(v.ID):
		return die("command '/usr/bin/qemu-img resize '--preallocation=off' -f %s %s %d' failed: exit code 1", v.Format, s.Path(v.ID), size)
	}
	a.resizeVolume(v, s.roundUp(size))
	a.Logf("Image resized.")
	d.setSize(size)
	g.Config[k] = d.text()
	qemuSaved(g)
	return nil
}

// qemuUnlink is a change of the config that removes drives, in another guise.
func (w *World) qemuUnlink(r *Request) (any, error) {
	u := &update{vmid: r.VMID, set: map[string]any{}, remove: r.P.List("idlist"), force: r.P.Bool("force"), empty: !r.P.Bool("idlist")}
	if err := r.qemuUpdatePrepare(u); err != nil {
		return nil, err
	}
	return nil, r.qemuUpdateSync(u)
}

func (w *World) qemuMoveDisk(r *Request) (any, error) {
	p := r.P
	if p.Str("target-vmid") != "" {
		return w.qemuReassign(r)
	}
	storage := p.Str("storage")
	if storage == "" {
		return nil, noTarget()
	}
	if err := w.check(r.Who, "/storage/"+storage, "Datastore.AllocateSpace"); err != nil {
		return nil, err
	}
	if _, _, err := r.qemuMoveCheck(r.VMID, p); err != nil {
		return nil, err
	}
	vmid := r.VMID
	return r.spawn("qmmove", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			g, d, err := a.qemuMoveCheck(vmid, p)
			if err != nil {
				return err
			}
			return a.qemuMove(g, d, p)
		})
	}), nil
}

func (a *Actor) qemuMoveCheck(vmid int, p Params) (*Guest, *drive, error) {
	g, err := a.w.guest(kindQemu, a.Node, vmid)
	if err != nil {
		return nil, nil, err
	}
	if err := g.checkLock(); err != nil {
		return nil, nil, err
	}
	k, digest, format := p.Str("disk"), p.Str("digest"), p.Str("format")
	if digest != "" && digest != g.Digest() {
		return nil, nil, die("VM config checksum mismatch (file change by other user?)")
	}
	if g.Config[k] == "" {
		return nil, nil, die("disk '%s' does not exist", k)
	}
	d, ok := parseDrive(k, g.Config[k])
	if !ok || d.cdrom(true) {
		return nil, nil, die("you can't move a cdrom")
	}
	if _, err := a.w.storageOn(p.Str("storage"), a.Node); err != nil {
		return nil, nil, err
	}
	id, _, _ := splitVolid(d.file())
	if id == p.Str("storage") && (format == "" || format == a.w.volumeFormat(d.file())) {
		return nil, nil, die("you can't move to the same storage with same format")
	}
	if p.Bool("delete") && g.volumeInUse(k, d.file()) {
		return nil, nil, die("you can't move a disk with snapshots and delete the source")
	}
	return g, d, nil
}

func (a *Actor) qemuMove(g *Guest, d *drive, p Params) error {
	source := d.file()
	a.Logf("copying volume '%s' to target storage '%s'", source, p.Str("storage"))
	v, err := a.cloneDisk(d, a.Node, g.VMID, p.Str("storage"), p.Str("format"), true)
	if err != nil {
		return die("storage migration failed: %s", err.Error())
	}
	d.props["file"] = v.ID
	d.setSize(v.Size)
	if g.Config[d.key] = d.text(); family(d.key) == "unused" {
		g.Config[d.key] = v.ID
	}
	if !p.Bool("delete") {
		if err := g.addUnused(source); err != nil {
			return err
		}
	} else if err := a.free(source); err != nil {
		a.Logf("%s", err.Error())
	}
	qemuSaved(g)
	return nil
}

// cloneDisk copies a drive's volume, or clones it from its base, into a new one of a guest on a storage ("" is the source's); the
// format follows the source's where the storage can hold it.
func (a *Actor) cloneDisk(d *drive, node string, vmid int, storage, format string, full bool) (*Volume, error) {
	src := a.w.volume(node, d.file())
	if src == nil {
		return nil, a.w.volumeMissing(d.file())
	}
	id, _, _ := splitVolid(d.file())
	s, err := a.w.storageOn(orElse(storage, id), a.Node)
	if err != nil {
		return nil, err
	}
	if !full && !d.cloudinit() {
		a.Logf("create linked clone of drive %s (%s)", d.key, src.ID)
		return a.linkedClone(s, src, vmid)
	}
	a.Logf("create full clone of drive %s (%s)", d.key, src.ID)
	name, size := "", src.Size
	switch {
	case !s.fileBased():
		format = ""
	case format == "":
		format = src.Format
	}
	switch {
	case d.cloudinit():
		size, name = cloudinitKiB<<10, "vm-"+decimal(vmid)+"-cloudinit"
		if s.fileBased() {
			format = "qcow2"
			name += ".qcow2"
		}
	case d.key == "tpmstate0" && s.fileBased():
		format = "raw"
	}
	used := src.Used
	v, err := a.allocate(s, vmid, contentImages, format, name, (size+1023)>>10)
	if err != nil {
		return nil, err
	}
	v.Used = used
	if err := a.copyWork(size); err != nil {
		return nil, err
	}
	return v, nil
}

// linkedClone makes an overlay of a base image. On a directory its name holds the base's, which cannot go then; an LVM-thin clone is a
// volume like any other (facts.md E).
func (a *Actor) linkedClone(s *Storage, src *Volume, vmid int) (*Volume, error) {
	size, used, base := src.Size, src.Used, src.ID
	var v *Volume
	err := a.LockStorage(s, func() error {
		var err error
		if s.Type == storageLVMThin {
			name := a.w.freeDiskName(s, a.Node, vmid, "")
			v, err = a.createVolume(s, Volume{ID: s.ID + ":" + name, Owner: vmid, Content: contentImages, Format: "raw", Size: size, Used: used})
			return err
		}
		name := a.w.freeDiskName(s, a.Node, vmid, "qcow2")
		id := base + "/" + decimal(vmid) + "/" + name
		format := "qcow2"
		if !s.fileBased() {
			id, format = base+"/"+strings.TrimSuffix(name, ".qcow2"), "raw"
		}
		v, err = a.createVolume(s, Volume{ID: id, Owner: vmid, Content: contentImages, Format: format, Size: size, Used: used, Base: base})
		return err
	})
	return v, err
}

// noTarget and eitherTarget refuse a volume to be moved that has no place to go to, or two.
func noTarget() error {
	const text = "both 'storage' and 'target-vmid' missing, either needs to be set"
	return paramErrs(map[string]string{"target-vmid": text, "storage": text})
}

func eitherTarget() error {
	const text = "either set 'storage' or 'target-vmid', but not both"
	return paramErrs(map[string]string{"target-vmid": text, "storage": text})
}

// sameNode finds the two guests of a reassignment in the cluster's list: both must be there, on one node.
func (w *World) sameNode(what string, vmid, target int) error {
	from, to := w.Guests[vmid], w.Guests[target]
	switch {
	case from == nil:
		return die("could not find %s %d", what, vmid)
	case to == nil:
		return die("could not find %s %d", what, target)
	case from.Node != to.Node:
		return die("%s %d and %d need to be on the same node (%s != %s)", what, vmid, target, from.Node, to.Node)
	}
	return nil
}

// qemuReassign gives a disk to another VM of the node: the volume is renamed.
func (w *World) qemuReassign(r *Request) (any, error) {
	vmid, target, p := r.VMID, r.P.Int("target-vmid", 0), r.P
	disk := p.Str("disk")
	key := orElse(p.Str("target-disk"), disk)
	if p.Str("storage") != "" {
		return nil, eitherTarget()
	}
	if vmid == target {
		return nil, die("Moving a disk to the same VM is not possible. Did you mean to move the disk to a different storage?")
	}
	if err := r.vmPerm(target, "", "VM.Config.Disk"); err != nil {
		return nil, err
	}
	if _, _, _, err := r.qemuReassignCheck(vmid, target, disk, key, p); err != nil {
		return nil, err
	}
	return r.spawn("qmmove", decimal(vmid)+"-"+disk+">"+decimal(target)+"-"+key, func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			return a.LockGuest(kindQemu, target, func() error {
				g, to, d, err := a.qemuReassignCheck(vmid, target, disk, key, p)
				if err != nil {
					return err
				}
				a.Logf("reassign disk '%s' from VM '%d' as '%s' to VM '%d'", disk, vmid, key, target)
				return a.qemuReassignDisk(g, to, d, key)
			})
		})
	}), nil
}

func (a *Actor) qemuReassignCheck(vmid, target int, disk, key string, p Params) (from, to *Guest, d *drive, err error) {
	if err := a.w.sameNode("VM", vmid, target); err != nil {
		return nil, nil, nil, err
	}
	if from, err = a.w.guest(kindQemu, a.Node, vmid); err != nil {
		return nil, nil, nil, err
	}
	if to, err = a.w.guest(kindQemu, a.Node, target); err != nil {
		return nil, nil, nil, err
	}
	if err := from.checkLock(); err != nil {
		return nil, nil, nil, err
	}
	if err := to.checkLock(); err != nil {
		return nil, nil, nil, err
	}
	if from.Template() || to.Template() {
		return nil, nil, nil, die("Moving disks from or to template VMs is not allowed")
	}
	if digest := p.Str("digest"); digest != "" && digest != from.Digest() {
		return nil, nil, nil, die("VM %d: detected modified configuration - file changed by other user? Try again.", vmid)
	}
	if digest := p.Str("target-digest"); digest != "" && digest != to.Digest() {
		return nil, nil, nil, die("VM %d: detected modified configuration - file changed by other user? Try again.", target)
	}
	value := from.Config[disk]
	switch {
	case value == "":
		return nil, nil, nil, die("Disk '%s' for VM '%d' does not exist", disk, vmid)
	case to.Config[key] != "":
		return nil, nil, nil, die("Target disk key '%s' is already in use for VM '%d'", key, target)
	case from.Running && family(disk) != "unused":
		return nil, nil, nil, die("Cannot move disk to another VM while the source VM is running - detach first")
	}
	if d, _ = parseDrive(key, value); d == nil || family(disk) == "unused" {
		d = &drive{key: key, props: schema.Props{"file": strings.SplitN(value, ",", 2)[0]}}
	}
	switch {
	case d.cdrom(true) || d.cloudinit():
		return nil, nil, nil, die("CD drive contents can't be moved to another VM")
	case from.volumeInUse(disk, d.file()):
		return nil, nil, nil, die("Can't move disk used by a snapshot to another VM")
	case a.w.volume(a.Node, d.file()) == nil:
		return nil, nil, nil, a.w.volumeMissing(d.file())
	}
	return from, to, d, nil
}

func (a *Actor) qemuReassignDisk(from, to *Guest, d *drive, key string) error {
	v := a.w.volume(a.Node, d.file())
	disk := ""
	for k, volid := range from.Config.volids() {
		if volid == d.file() {
			disk = k
		}
	}
	id, _, _ := splitVolid(v.ID)
	s, err := a.w.storageOn(id, a.Node)
	if err != nil {
		return err
	}
	suffix, dir := v.Format, decimal(to.VMID)+"/"
	if !s.fileBased() {
		suffix, dir = "", ""
	} else if v.Base != "" {
		_, base, _ := splitVolid(v.Base)
		dir = base + "/" + dir
	}
	if err := a.renameVolume(v, id+":"+dir+a.w.freeDiskName(s, a.Node, to.VMID, suffix)); err != nil {
		return err
	}
	v.Owner = to.VMID
	delete(from.Config, disk)
	if order := bootOrder(from.Config["boot"]); slices.Contains(order, disk) {
		from.Config["boot"] = bootText(slices.DeleteFunc(order, func(k string) bool { return k == disk }))
		a.Logf("removing disk '%s' from boot order config", disk)
	}
	a.Logf("removing disk '%s' from VM '%d' config", disk, from.VMID)
	d.key, d.props["file"] = key, v.ID
	to.Config[key] = d.text()
	qemuSaved(from)
	qemuSaved(to)
	return nil
}
