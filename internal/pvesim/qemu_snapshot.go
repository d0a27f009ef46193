package pvesim

import (
	"slices"
	"strings"
	"time"
)

// snapshotDrives are the volumes that a snapshot of a config includes.
func snapshotDrives(conf Section) []*drive {
	var out []*drive
	for _, k := range driveKeys(conf) {
		if d, ok := parseDrive(k, conf[k]); ok && !d.cdrom(false) {
			out = append(out, d)
		}
	}
	return out
}

// canSnapshot says whether the storages of all drives can: qcow2 on directories, everything on LVM-thin.
func (w *World) canSnapshot(g *Guest, conf Section) bool {
	for _, d := range snapshotDrives(conf) {
		if !w.hasFeature("snapshot", g, d) {
			return false
		}
	}
	return true
}

// hasFeature is volume_has_feature for a drive's volume.
func (w *World) hasFeature(feature string, g *Guest, d *drive) bool {
	id, _, _ := splitVolid(d.file())
	s, err := w.storage(id)
	if err != nil {
		return false
	}
	base := isBase(d.file())
	switch feature {
	case "copy":
		return true
	case "clone":
		return base && s.Type != "lvm"
	case "template":
		return !base && w.volumeFormat(d.file()) != "" && w.volume(g.Node, d.file()) != nil
	case "snapshot":
		v := w.volume(g.Node, d.file())
		return !base && s.Type != "lvm" && (!s.fileBased() || s.Type == "btrfs" || v != nil && v.Format == "qcow2")
	}
	return false
}

func (w *World) qemuFeature(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	conf := g.Config
	if name := r.P.Str("snapname"); name != "" {
		s := g.snapshot(name)
		if s == nil {
			return nil, die("snapshot '%s' does not exist", name)
		}
		conf = s.Config
	}
	has, nodes := true, []string{}
	for _, d := range snapshotDrives(conf) {
		has = has && w.hasFeature(r.P.Str("feature"), g, d)
	}
	for _, n := range w.Nodes {
		if n.Name == r.Node || w.sharedOn(conf, n.Name) {
			nodes = append(nodes, n.Name)
		}
	}
	return map[string]any{"hasFeature": bit(has), "nodes": nodes}, nil
}

// sharedOn says whether all volumes of a config are on shared storages that a node has too.
func (w *World) sharedOn(conf Section, node string) bool {
	for _, volid := range conf.volids() {
		id, _, _ := splitVolid(volid)
		s, err := w.storage(id)
		if err != nil || !s.Shared || !s.On(node) {
			return false
		}
	}
	return true
}

func (w *World) qemuSnapshots(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	return g.snapshotRows(), nil
}

func (w *World) qemuSnapshotCreate(r *Request) (any, error) {
	vmid, name, description, state := r.VMID, r.P.Str("snapname"), r.P.Str("description"), r.P.Bool("vmstate")
	if l := strings.ToLower(name); l == "current" || l == "pending" {
		return nil, die("unable to use snapshot name '%s' (reserved name)", name)
	}
	if _, err := w.guest(kindQemu, r.Node, vmid); err != nil {
		return nil, err
	}
	return r.spawn("qmsnapshot", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			g, err := w.guest(kindQemu, a.Node, vmid)
			if err != nil {
				return err
			}
			return a.qemuSnapshot(g, name, description, state)
		})
	}), nil
}

func (a *Actor) qemuSnapshot(g *Guest, name, description string, state bool) error {
	switch {
	case g.Template():
		return die("you can't take a snapshot if it's a template")
	case g.checkLock() != nil:
		return g.checkLock()
	case g.snapshot(name) != nil:
		return die("snapshot name '%s' already used", name)
	case !a.w.canSnapshot(g, g.Config):
		return die("snapshot feature is not available")
	}
	s := &Snapshot{Name: name, Config: snapshotConfig(g.Config), Parent: g.Config["parent"], Description: description, Time: time.Now()}
	if state && g.Running {
		if err := a.qemuSaveState(g, s.Config, name, ""); err != nil {
			return err
		}
		s.VMState = s.Config["vmstate"]
		delete(s.Config, "vmstate")
	}
	for _, d := range snapshotDrives(g.Config) {
		a.Logf("snapshotting 'drive-%s' (%s)", d.key, d.file())
		if v := a.w.volume(a.Node, d.file()); v != nil {
			v.Snapshots = append(v.Snapshots, name)
		}
	}
	if err := a.Work(allocTime); err != nil {
		return err
	}
	g.Snapshots = append(g.Snapshots, s)
	g.Config["parent"] = name
	qemuSaved(g)
	return nil
}

// qemuSaveState makes the volume for a running guest's memory and names it in conf.
func (a *Actor) qemuSaveState(g *Guest, conf Section, name, storage string) error {
	storage = orElse(storage, g.Config["vmstatestorage"])
	if storage == "" {
		for _, d := range snapshotDrives(g.Config) {
			id, _, _ := splitVolid(d.file())
			storage = orElse(storage, id)
		}
	}
	s, err := a.w.storageOn(orElse(storage, "local"), a.Node)
	if err != nil {
		return err
	}
	vol := "vm-" + decimal(g.VMID) + "-state-" + name
	if s.fileBased() {
		vol += ".raw"
	}
	v, err := a.allocate(s, g.VMID, contentImages, "raw", vol, (2*g.memory()+500<<20)>>10)
	if err != nil {
		return err
	}
	conf["vmstate"] = v.ID
	return nil
}

func (w *World) qemuSnapshotConfig(r *Request) (any, error) {
	_, s, err := r.snapshot(kindQemu)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"snaptime": s.Time.Unix()}
	for k, v := range s.Config {
		out[k] = apiValue(k, v, qemuConfigMethod())
	}
	for k, v := range map[string]string{"parent": s.Parent, "description": s.Description, "vmstate": s.VMState} {
		if v != "" {
			out[k] = v
		}
	}
	if s.Config["cipassword"] != "" {
		out["cipassword"] = passwordMask
	}
	return out, nil
}

func (w *World) qemuSnapshotSet(r *Request) (any, error) {
	if !r.P.Has("description") {
		return nil, nil
	}
	return nil, r.LockGuest(kindQemu, r.VMID, func() error {
		g, s, err := r.snapshot(kindQemu)
		if err != nil {
			return err
		}
		if err := g.checkLock(); err != nil {
			return err
		}
		s.Description = strings.TrimRight(r.P.Str("description"), " \n")
		return nil
	})
}

func (w *World) qemuRollback(r *Request) (any, error) {
	vmid, name, start := r.VMID, r.P.Str("snapname"), r.P.Bool("start")
	if start {
		if err := w.check(r.Who, "/vms/"+decimal(vmid), "VM.PowerMgmt"); err != nil {
			return nil, err
		}
	}
	return r.spawn("qmrollback", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			g, err := w.guest(kindQemu, a.Node, vmid)
			if err != nil {
				return err
			}
			s := g.snapshot(name)
			switch {
			case g.Template():
				return die("you can't rollback if vm is a template")
			case s == nil:
				return die("snapshot '%s' does not exist", name)
			case s.State != "":
				return die("unable to rollback to incomplete snapshot (snapstate = %s)", s.State)
			case g.checkLock() != nil:
				return g.checkLock()
			}
			return a.qemuRollbackTo(g, s, start)
		})
	}), nil
}

// qemuRollbackTo brings a guest back to a snapshot: volumes added since become unused, the description of now stays (facts.md L).
func (a *Actor) qemuRollbackTo(g *Guest, s *Snapshot, start bool) error {
	for _, d := range snapshotDrives(s.Config) {
		v := a.w.volume(a.Node, d.file())
		if v == nil || !slices.Contains(v.Snapshots, s.Name) {
			return die("unable to rollback: volume '%s' has no snapshot '%s'", d.file(), s.Name)
		}
	}
	if g.Running {
		if err := a.Work(stopTime); err != nil {
			return err
		}
		g.Running, g.Suspended, g.PID = false, false, 0
	}
	conf := snapshotConfig(s.Config)
	kept := map[string]bool{}
	for _, d := range snapshotDrives(s.Config) {
		kept[d.file()] = true
	}
	var added []string
	for _, d := range snapshotDrives(g.Config) {
		if !kept[d.file()] && a.w.ownerOf(d.file()) == g.VMID {
			added = append(added, d.file())
		}
	}
	for k, v := range g.Config {
		if k == "description" || family(k) == "unused" {
			conf[k] = v
		}
	}
	conf["parent"] = s.Name
	g.Config, g.Pending, g.Delete = conf, Section{}, map[string]bool{}
	for _, volid := range added {
		if err := g.addUnused(volid); err != nil {
			return err
		}
	}
	qemuSaved(g)
	if start || s.VMState != "" {
		return a.qemuBoot(g, startOptions{resume: s.VMState != ""})
	}
	return nil
}

func (w *World) qemuSnapshotDelete(r *Request) (any, error) {
	vmid, name, force := r.VMID, r.P.Str("snapname"), r.P.Bool("force")
	return r.spawn("qmdelsnapshot", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			g, err := w.guest(kindQemu, a.Node, vmid)
			if err != nil {
				return err
			}
			s := g.snapshot(name)
			if s == nil {
				return die("snapshot '%s' does not exist", name)
			}
			if err := g.checkLock(); err != nil && !force {
				return err
			}
			return a.qemuDropSnapshot(g, s)
		})
	}), nil
}

func (a *Actor) qemuDropSnapshot(g *Guest, s *Snapshot) error {
	if s.VMState != "" {
		if err := a.free(s.VMState); err != nil {
			return err
		}
	}
	var volids []string
	for _, d := range snapshotDrives(s.Config) {
		volids = append(volids, d.file())
	}
	a.forgetSnapshot(g, s, volids)
	qemuSaved(g)
	return a.Work(allocTime)
}
