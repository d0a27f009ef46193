package pvesim

import (
	"slices"
	"strings"
	"time"
)

// localVolumes are the volumes of a guest that a migration has to carry: those on storages that are not shared. Files, such as ISO
// images, are not carried.
func (w *World) localVolumes(g *Guest) (volids []string, cdroms []string) {
	for _, k := range sortedKeys(g.Config.volids()) {
		volid := g.Config.volids()[k]
		id, _, _ := splitVolid(volid)
		s, err := w.storage(id)
		if err != nil || s.Shared || slices.Contains(volids, volid) {
			continue
		}
		if w.ownerOf(volid) == 0 {
			cdroms = append(cdroms, volid)
			continue
		}
		volids = append(volids, volid)
	}
	return volids, cdroms
}

// localResources are devices that tie a guest to its node.
func localResources(g *Guest) (local, mapped []string) {
	local, mapped = []string{}, []string{}
	for _, k := range g.Config.Keys() {
		v := g.Config[k]
		switch f := family(k); {
		case (f == "hostpci" || f == "usb") && f != k:
			if strings.Contains(v, "mapping=") {
				mapped = append(mapped, k)
			} else if !strings.Contains(v, "spice") {
				local = append(local, k)
			}
		case (f == "serial" || f == "parallel") && f != k && v != "socket":
			local = append(local, k)
		}
	}
	return local, mapped
}

func (w *World) qemuMigrateCheck(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	volids, cdroms := w.localVolumes(g)
	disks := []map[string]any{}
	for _, volid := range append(volids, cdroms...) {
		row := map[string]any{"volid": volid, "cdrom": bit(slices.Contains(cdroms, volid))}
		if v := w.volume(g.Node, volid); v != nil {
			row["size"] = v.Size
		}
		disks = append(disks, row)
	}
	local, mapped := localResources(g)
	out := map[string]any{"running": bit(g.Running), "local_disks": disks, "local_resources": local, "mapped-resources": mapped}
	if !g.Running {
		allowed, refused := []string{}, map[string]any{}
		for _, n := range w.Nodes {
			if n.Name == r.Node || !n.Online() {
				continue
			}
			if missing := w.storagesMissing(g, n.Name); len(missing) > 0 {
				refused[n.Name] = map[string]any{"unavailable_storages": missing}
			} else {
				allowed = append(allowed, n.Name)
			}
		}
		out["allowed_nodes"], out["not_allowed_nodes"] = allowed, refused
	}
	return out, nil
}

// storagesMissing are the storages of a guest's volumes that a node does not have.
func (w *World) storagesMissing(g *Guest, node string) []string {
	var out []string
	for _, k := range sortedKeys(g.Config.volids()) {
		id, _, _ := splitVolid(g.Config.volids()[k])
		if _, err := w.storageOn(id, node); err != nil && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

func (w *World) qemuMigrate(r *Request) (any, error) {
	p, vmid := r.P, r.VMID
	target := p.Str("target")
	if target == r.Node {
		return nil, paramErr("target", "target is local node.")
	}
	if w.node(target) == nil {
		return nil, die("no such cluster node '%s'", target)
	}
	if err := r.rootOnly("force", "migration_type", "migration_network"); err != nil {
		return nil, err
	}
	g, err := w.guest(kindQemu, r.Node, vmid)
	if err != nil {
		return nil, err
	}
	if err := g.checkLock(); err != nil {
		return nil, err
	}
	if g.Running && !p.Bool("online") {
		return nil, die("can't migrate running VM without --online")
	}
	if p.Str("targetstorage") == "" {
		for _, k := range sortedKeys(g.Config.volids()) {
			id, _, _ := splitVolid(g.Config.volids()[k])
			if _, err := w.storageOn(id, target); err != nil {
				return nil, err
			}
		}
	}
	task := "qmigrate"
	if w.HA["vm:"+decimal(vmid)] != nil {
		task = "hamigrate"
	}
	return r.spawn(task, decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error { return a.qemuMigrateTo(vmid, target, p) })
	}), nil
}

// qemuMigrateTo moves a guest to another node. A stopped guest's local volumes are copied; a running guest's only with
// with-local-disks.
func (a *Actor) qemuMigrateTo(vmid int, target string, p Params) error {
	w := a.w
	g, err := w.guest(kindQemu, a.Node, vmid)
	if err != nil {
		return err
	}
	n := w.node(target)
	volids, cdroms := w.localVolumes(g)
	local, _ := localResources(g)
	switch {
	case n == nil || !n.Online():
		return die("migration aborted: ssh: connect to host %s port 22: No route to host", target)
	case len(cdroms) > 0:
		return die("migration aborted: can't migrate local cdrom drive: %s", cdroms[0])
	case g.Running && len(local) > 0:
		return die("can't migrate running VM which uses local devices: %s", strings.Join(local, ", "))
	case !g.Running && len(local) > 0 && !p.Bool("force"):
		return die("can't migrate VM which uses local devices: %s", strings.Join(local, ", "))
	case g.Running && len(volids) > 0 && !p.Bool("with-local-disks"):
		return die("can't live migrate attached local disks without with-local-disks option")
	case g.Running && len(g.Snapshots) > 0 && len(volids) > 0:
		return die("online storage migration not possible if non-replicated snapshot exists")
	}
	g.Config["lock"] = "migrate"
	unlock := func(err error) error {
		delete(g.Config, "lock")
		return err
	}
	a.Logf("starting migration of VM %d to node '%s' (%s)", vmid, target, n.IP)
	for _, volid := range volids {
		if err := a.carryVolume(g, volid, target, p.Str("targetstorage")); err != nil {
			return unlock(die("migration aborted: %s", err.Error()))
		}
	}
	if g.Running {
		if err := a.Work(time.Duration(g.memory()/(100<<20)) * time.Second); err != nil {
			return unlock(err)
		}
	}
	g.Node = target
	delete(g.Config, "lock")
	qemuSaved(g)
	a.Logf("migration finished successfully")
	return nil
}

// carryVolume copies a volume to another node, under another name when its own is taken there, and frees it here.
func (a *Actor) carryVolume(g *Guest, volid, target, storage string) error {
	w := a.w
	src := w.volume(a.Node, volid)
	if src == nil {
		return w.volumeMissing(volid)
	}
	id, name, _ := splitVolid(volid)
	s, err := w.storageOn(orElse(mappedStorage(storage, id), id), target)
	if err != nil {
		return err
	}
	if src.Base != "" && (g.Running || w.volume(target, src.Base) == nil) {
		return die("can't migrate '%s' as it's a clone of '%s'", volid, src.Base)
	}
	if len(w.clonesOf(src)) > 0 {
		return die("can't migrate '%s' as linked clones use it", volid)
	}
	a.Logf("copying local disk '%s'", volid)
	if err := a.copyWork(src.Size); err != nil {
		return err
	}
	if src = w.volume(a.Node, volid); src == nil {
		return w.volumeMissing(volid)
	}
	there := &Actor{w: w, Ctx: a.Ctx, Who: a.Who, Node: target, Cause: a.Cause, task: a.task}
	to := s.ID + ":" + name
	if w.volume(target, to) != nil {
		suffix, dir := src.Format, decimal(g.VMID)+"/"
		if !s.fileBased() {
			suffix, dir = "", ""
		}
		to = s.ID + ":" + dir + w.freeDiskName(s, target, g.VMID, suffix)
	}
	v := *src
	v.ID = to
	if _, err := there.createVolume(s, v); err != nil {
		return err
	}
	a.destroyVolume(src)
	for _, sec := range append([]Section{g.Config, g.Pending}, snapshotSections(g)...) {
		for k, val := range sec {
			if val == volid || strings.HasPrefix(val, volid+",") {
				sec[k] = to + strings.TrimPrefix(val, volid)
			}
		}
	}
	return nil
}

func snapshotSections(g *Guest) []Section {
	var out []Section
	for _, s := range g.Snapshots {
		out = append(out, s.Config)
	}
	return out
}

// mappedStorage applies a storage map such as "a:b,c:d", or one storage for all.
func mappedStorage(list, id string) string {
	for _, m := range splitList(list) {
		from, to, pair := strings.Cut(m, ":")
		switch {
		case !pair && m == "1":
			return id
		case !pair:
			return m
		case from == id:
			return to
		}
	}
	return id
}
