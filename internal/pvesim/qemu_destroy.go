package pvesim

import "strings"

// qemuDestroyable are the checks of a DELETE, made at once and again in the task.
func (w *World) qemuDestroyable(node string, vmid int, purge bool) (*Guest, error) {
	g, err := w.guest(kindQemu, node, vmid)
	if err != nil {
		return nil, err
	}
	if err := g.checkProtection("can't remove VM %d", vmid); err != nil {
		return nil, err
	}
	if w.HA["vm:"+decimal(vmid)] != nil && !purge {
		return nil, die("unable to remove VM %d - used in HA resources and purge parameter not set.", vmid)
	}
	if err := w.checkReplication(vmid); err != nil && !purge {
		return nil, err
	}
	if g.Running {
		return nil, die("VM %d is running - destroy failed", vmid)
	}
	return g, nil
}

func (w *World) qemuDestroy(r *Request) (any, error) {
	if err := r.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	vmid, purge, skip, all := r.VMID, r.P.Bool("purge"), r.P.Bool("skiplock"), r.P.Bool("destroy-unreferenced-disks")
	if _, err := w.qemuDestroyable(r.Node, vmid, purge); err != nil {
		return nil, err
	}
	return r.spawn("qmdestroy", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			g, err := w.qemuDestroyable(a.Node, vmid, purge)
			if err != nil {
				return err
			}
			if err := g.checkLock(); err != nil && !skip && g.Config["lock"] != "suspended" {
				return err
			}
			if err := a.qemuFreeVolumes(g, all); err != nil {
				return err
			}
			if purge {
				a.Logf("purging VM %d from related configurations..", vmid)
				w.purgeJobs(vmid)
				if w.HA["vm:"+decimal(vmid)] != nil {
					delete(w.HA, "vm:"+decimal(vmid))
					a.Logf("NOTE: removed VM %d from HA resource configuration.", vmid)
				}
			}
			a.removeGuest(g)
			return nil
		})
	}), nil
}

// qemuFreeVolumes frees the volumes that a guest owns and its config names, unused ones included; all adds those that no config names.
// A base image that linked clones still use keeps the whole guest. Volumes of other guests and files stay.
func (a *Actor) qemuFreeVolumes(g *Guest, all bool) error {
	var volids []string
	seen := map[string]bool{}
	add := func(volid string) {
		if volid != "" && !seen[volid] && a.w.ownerOf(volid) == g.VMID {
			seen[volid] = true
			volids = append(volids, volid)
		}
	}
	sections := []Section{g.Config, g.Pending}
	for _, s := range g.Snapshots {
		add(s.VMState)
	}
	for _, s := range sections {
		for _, k := range driveKeys(s) {
			if d, ok := parseDrive(k, s[k]); ok && !d.cdrom(true) {
				add(d.file())
			}
		}
		for _, k := range s.Keys() {
			if family(k) == "unused" || k == "vmstate" {
				volid, _, _ := strings.Cut(s[k], ",")
				add(volid)
			}
		}
	}
	if g.Template() {
		for _, volid := range volids {
			if a.baseInUse(volid) {
				return die("base volume '%s' is still in use by linked cloned", volid)
			}
		}
	}
	if all {
		for _, s := range a.w.Storages {
			if !s.On(a.Node) || s.Disabled || !s.Has(contentImages) {
				continue
			}
			for _, v := range a.w.volumesOf(s, a.Node) {
				if v.Owner == g.VMID {
					add(v.ID)
				}
			}
		}
	}
	for _, volid := range volids {
		if err := a.free(volid); err != nil {
			a.Logf("Could not remove disk '%s', check manually: %s", volid, err.Error())
		}
	}
	return nil
}

// baseInUse says whether linked clones keep a volume from being freed, which only directories know of.
func (a *Actor) baseInUse(volid string) bool {
	v := a.w.volume(a.Node, volid)
	id, _, _ := splitVolid(volid)
	s, err := a.w.storage(id)
	return err == nil && v != nil && s.Type != storageLVMThin && len(a.w.clonesOf(v)) > 0
}
