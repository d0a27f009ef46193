package pvesim

import "slices"

// lxcResize checks at once and grows in a task. What counts is the size of the volume, not what the config says.
func (w *World) lxcResize(r *Request) (any, error) {
	key, text := r.P.Str("disk"), r.P.Str("size")
	if _, ok := newSize(text, 0); !ok {
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
		want, _ := newSize(text, v.Size)
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
		a.resizeVolume(v, s.roundUp(size))
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
		return nil, eitherTarget()
	case to == "" && target == 0:
		return nil, noTarget()
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
	return g.addUnused(from)
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

// reassignment is a mount point that goes from one container to another.
type reassignment struct {
	vmid, target  int
	key, to       string
	digest, other string
}

// lxcReassign renames a volume to carry another container's id.
func (w *World) lxcReassign(r *Request, key string, target int) (any, error) {
	m := reassignment{
		vmid: r.VMID, target: target, key: key, to: orElse(r.P.Str("target-volume"), key), digest: r.P.Str("digest"), other: r.P.Str("target-digest"),
	}
	if err := w.check(r.Who, "/vms/"+decimal(target), "VM.Config.Disk"); err != nil {
		return nil, err
	}
	if target == r.VMID {
		return nil, paramErr("target-vmid", "must be different than source VMID to move disk to another container")
	}
	_, _, _, v, err := r.ctReassignCheck(m)
	if err != nil {
		return nil, err
	}
	id, _, _ := splitVolid(v.ID)
	if err := w.check(r.Who, "/storage/"+id, "Datastore.AllocateSpace"); err != nil {
		return nil, err
	}
	return r.spawn("move_volume", decimal(m.vmid)+"-"+m.key+">"+decimal(target)+"-"+m.to, func(a *Actor) error {
		return a.LockGuest(kindLXC, m.vmid, func() error {
			return a.LockGuest(kindLXC, target, func() error {
				from, to, mp, v, err := a.ctReassignCheck(m)
				if err != nil {
					return err
				}
				return a.ctGive(from, to, mp, v, m)
			})
		})
	}), nil
}

// ctReassignCheck are the checks of a reassignment, made at once and again in the task.
func (a *Actor) ctReassignCheck(m reassignment) (from, to *Guest, mp mount, v *Volume, err error) {
	fail := func(err error) (*Guest, *Guest, mount, *Volume, error) { return nil, nil, mount{}, nil, err }
	if m.key == "rootfs" || m.to == "rootfs" {
		return fail(die("Cannot move to/from 'rootfs'"))
	}
	if indexed(m.key, "unused") && !indexed(m.to, "unused") {
		return fail(die("Moving an unused volume to a used one is not possible"))
	}
	if err := a.w.sameNode("CT", m.vmid, m.target); err != nil {
		return fail(err)
	}
	for _, g := range []struct {
		at     **Guest
		vmid   int
		digest string
	}{{&from, m.vmid, m.digest}, {&to, m.target, m.other}} {
		if *g.at, err = a.w.guest(kindLXC, a.Node, g.vmid); err != nil {
			return fail(err)
		}
		if err := (*g.at).checkLock(); err != nil {
			return fail(err)
		}
		switch {
		case (*g.at).Template():
			return fail(die("Can't move volumes from or to template CT"))
		case g.digest != "" && g.digest != (*g.at).Digest():
			return fail(die("Container %d: detected modified configuration - file changed by other user? Try again.", g.vmid))
		}
	}
	if _, there := from.Config[m.key]; !there {
		return fail(die("volume '%s' for container '%d' does not exist", m.key, m.vmid))
	}
	if _, taken := to.Config[m.to]; taken {
		return fail(die("Target volume key '%s' is already in use for container '%d'", m.to, m.target))
	}
	if mp, err = parseMount(m.key, from.Config[m.key]); err != nil {
		return fail(err)
	}
	v = a.w.volume(a.Node, mp.volume())
	switch {
	case slices.ContainsFunc(from.Snapshots, func(s *Snapshot) bool { return s.mounts(mp.volume()) }):
		return fail(die("Cannot move volume used by a snapshot to another container"))
	case mp.kind() != "volume":
		return fail(die("Cannot move a bindmount or device mount to another container"))
	case from.Running && !indexed(m.key, "unused"):
		return fail(die("Cannot move in-use volume while the source CT is running - detach or shutdown first"))
	case v == nil:
		return fail(a.w.volumeMissing(mp.volume()))
	}
	return from, to, mp, v, nil
}

// mounts says whether the config of a snapshot has a mount point of a volume.
func (s *Snapshot) mounts(volid string) bool {
	return slices.ContainsFunc(mounts(s.Config, false), func(m mount) bool { return m.volume() == volid })
}

func (a *Actor) ctGive(from, to *Guest, mp mount, v *Volume, m reassignment) error {
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
	mp.key, mp.props["volume"] = m.to, v.ID
	delete(from.Config, m.key)
	if to.Config[m.to] = mp.print(); indexed(m.to, "unused") {
		to.Config[m.to] = v.ID
	}
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
