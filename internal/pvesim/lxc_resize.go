package pvesim

import (
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// lxcResize checks at once and grows in a task. What counts is the size of the volume, not what the config says.
func (w *World) lxcResize(r *Request) (any, error) {
	key, text := r.P.Str("disk"), r.P.Str("size")
	grow, relative := strings.CutPrefix(text, "+")
	want, ok := schema.ParseSize(grow)
	if !ok {
		return nil, die("invalid size string '%s'", text)
	}
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	c := ctChange{vmid: g.VMID, old: g.Config, set: Params{"disk": key}, unprivileged: g.Config["unprivileged"] == "1"}
	if err := r.ctPermissions(c); err != nil { // the parameter "disk" counts as an option (facts.md M)
		return nil, err
	}
	var upid string
	err = r.LockGuest(kindLXC, r.VMID, func() error {
		g, m, v, err := r.ctMount(key)
		if err != nil {
			return err
		}
		id, _, _ := splitVolid(v.ID)
		if err := w.check(r.Who, "/storage/"+id, "Datastore.AllocateSpace"); err != nil {
			return err
		}
		if relative {
			want += v.Size
		}
		switch {
		case want < v.Size:
			return die("unable to shrink disk size")
		case want == v.Size:
			return die("disk is already at specified size")
		}
		upid = r.spawn("resize", decimal(g.VMID), func(a *Actor) error { return a.ctGrow(g.VMID, m, want) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return upid, nil
}

// ctMount finds the volume behind a mount point of a container that may be changed.
func (r *Request) ctMount(key string) (*Guest, mount, *Volume, error) {
	w := r.w
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	if err != nil {
		return nil, mount{}, nil, err
	}
	if err := g.checkLock(); err != nil {
		return nil, mount{}, nil, err
	}
	if d := r.P.Str("digest"); d != "" && d != g.Digest() {
		return nil, mount{}, nil, die("detected modified configuration - file changed by other user? Try again.")
	}
	m, err := parseMount(key, g.Config[key])
	if err != nil {
		return nil, mount{}, nil, err
	}
	_, name, err := w.parseVolid(m.volume())
	if err != nil {
		return nil, mount{}, nil, err
	}
	if name.owner != g.VMID {
		return nil, mount{}, nil, die("can't resize mount point owned by another container (%d)", name.owner)
	}
	v := w.volume(r.Node, m.volume())
	if v == nil {
		return nil, mount{}, nil, die("Could not determine current size of volume '%s'", m.volume())
	}
	return g, m, v, nil
}

func (a *Actor) ctGrow(vmid int, m mount, size int64) error {
	return a.LockGuest(kindLXC, vmid, func() error {
		g, err := a.w.guest(kindLXC, a.Node, vmid)
		if err != nil {
			return err
		}
		v := a.w.volume(a.Node, m.volume())
		if v == nil {
			return die("volume '%s' does not exist", m.volume())
		}
		if err := a.Work(allocTime); err != nil {
			return err
		}
		s, _, err := a.w.parseVolid(v.ID)
		if err != nil {
			return err
		}
		real := size
		if s.Type == storageLVMThin || s.Type == "lvm" {
			real = (size + lvmExtent - 1) / lvmExtent * lvmExtent
		}
		a.resizeVolume(v, real)
		m.setSize(size)
		g.Config[m.key] = m.print()
		a.touch(g)
		return nil
	})
}

// lxcMoveVolume copies a mount point to another storage, or gives it to another container.
func (w *World) lxcMoveVolume(r *Request) (any, error) {
	key, to, target := r.P.Str("volume"), r.P.Str("storage"), r.P.Int("target-vmid", 0)
	switch {
	case to != "" && target != 0:
		return nil, paramErr("target-vmid", "either set storage or target-vmid, but not both")
	case to == "" && target == 0:
		return nil, paramErr("target-vmid", "missing target-vmid or storage")
	case target != 0:
		return w.lxcReassign(r, key, target)
	}
	if err := w.check(r.Who, "/storage/"+to, "Datastore.AllocateSpace"); err != nil {
		return nil, err
	}
	vmid, remove := r.VMID, r.P.Bool("delete")
	err := r.LockGuest(kindLXC, vmid, func() error {
		g, err := w.guest(kindLXC, r.Node, vmid)
		if err != nil {
			return err
		}
		if err := g.checkLock(); err != nil {
			return err
		}
		if d := r.P.Str("digest"); d != "" && d != g.Digest() {
			return die("detected modified configuration - file changed by other user? Try again.")
		}
		if g.Running {
			return die("cannot move volumes of a running container")
		}
		if indexed(key, "unused") {
			return die("cannot move volume '%s', only configured volumes can be moved to another storage", key)
		}
		m, err := parseMount(key, g.Config[key])
		if err != nil {
			return err
		}
		if remove && g.ctInUse(m.volume(), key) {
			return die("you can't move a volume with snapshots and delete the source")
		}
		g.Config["lock"] = "disk"
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r.spawn("move_volume", decimal(vmid), func(a *Actor) error {
		g, err := w.guest(kindLXC, a.Node, vmid)
		if err != nil {
			return err
		}
		err = a.ctMove(g, key, to, remove)
		delete(g.Config, "lock")
		return err
	}), nil
}

func (a *Actor) ctMove(g *Guest, key, to string, remove bool) error {
	m, err := parseMount(key, g.Config[key])
	if err != nil {
		return err
	}
	from := m.volume()
	v, err := a.copyMount(m, g.VMID, to)
	if err != nil {
		return err
	}
	m.props["volume"] = v.ID
	g.Config[key] = m.print()
	a.touch(g)
	if remove {
		return a.freeMount(g.VMID, from)
	}
	g.ctAddUnused(from)
	return nil
}

// copyMount is copy_volume: a full copy of a mount point's volume on a storage, for the container vmid.
func (a *Actor) copyMount(m mount, vmid int, to string) (*Volume, error) {
	old := a.w.volume(a.Node, m.volume())
	if old == nil {
		return nil, die("volume '%s' does not exist", m.volume())
	}
	if to == "" {
		to, _, _ = splitVolid(old.ID)
	}
	s, err := a.w.storageOn(to, a.Node)
	if err != nil {
		return nil, err
	}
	if !s.Has(contentRootdir) {
		return nil, die("storage '%s' does not allow content type 'rootdir' (Container)", to)
	}
	size, used := old.Size, old.Used
	v, err := a.allocateMount(s, vmid, (size+1023)/1024)
	if err != nil {
		return nil, err
	}
	v.Used = used
	return v, a.Work(unpackTime)
}

// lxcReassign renames a volume to carry another container's id.
func (w *World) lxcReassign(r *Request, key string, target int) (any, error) {
	toKey := orElse(r.P.Str("target-volume"), key)
	if err := w.check(r.Who, "/vms/"+decimal(target), "VM.Config.Disk"); err != nil {
		return nil, err
	}
	if target == r.VMID {
		return nil, die("must be different than source VMID to move disk to another container")
	}
	vmid := r.VMID
	return r.spawn("move_volume", decimal(vmid)+"-"+decimal(target), func(a *Actor) error {
		return a.LockGuest(kindLXC, vmid, func() error {
			from, err := w.guest(kindLXC, a.Node, vmid)
			if err != nil {
				return err
			}
			to, err := w.guest(kindLXC, a.Node, target)
			if err != nil {
				return err
			}
			return a.ctGive(from, to, key, toKey)
		})
	}), nil
}

func (a *Actor) ctGive(from, to *Guest, key, toKey string) error {
	m, err := parseMount(key, from.Config[key])
	if err != nil {
		return err
	}
	_, taken := to.Config[toKey]
	v := a.w.volume(a.Node, m.volume())
	switch {
	case taken:
		return die("Target volume key '%s' is already in use for container '%d'", toKey, to.VMID)
	case key == "rootfs":
		return die("Cannot move root file system to another container")
	case from.Running && key != "unused":
		return die("cannot move volumes of a running container")
	case v == nil:
		return die("volume '%s' does not exist", m.volume())
	}
	s, name, err := a.w.parseVolid(v.ID)
	if err != nil {
		return err
	}
	next := a.w.freeDiskName(s, a.Node, to.VMID, suffixOf(s, name))
	if s.fileBased() {
		next = decimal(to.VMID) + "/" + next
	}
	if err := a.renameVolume(v, s.ID+":"+next); err != nil {
		return err
	}
	v.Owner = to.VMID
	m.key, m.props["volume"] = toKey, v.ID
	delete(from.Config, key)
	to.Config[toKey] = m.print()
	a.touch(from)
	a.touch(to)
	return nil
}

// suffixOf is the file name's suffix that a storage's volumes carry.
func suffixOf(s *Storage, v volName) string {
	if s.fileBased() {
		return v.format
	}
	return ""
}
