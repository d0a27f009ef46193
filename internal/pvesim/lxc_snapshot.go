package pvesim

import (
	"slices"
	"strings"
	"time"
)

func (w *World) lxcSnapshots(r *Request) (any, error) {
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	return g.snapshotRows(), nil
}

func (w *World) lxcSnapshotConfig(r *Request) (any, error) {
	g, s, err := r.snapshot(kindLXC)
	if err != nil {
		return nil, err
	}
	out := g.lxcAnswer(s.section(), s.Raw)
	delete(out, "digest")
	delete(out, "lxc") // PVE leaves raw lines out here
	return out, nil
}

func (w *World) lxcSnapshotUpdate(r *Request) (any, error) {
	return nil, r.LockGuest(kindLXC, r.VMID, func() error {
		g, s, err := r.snapshot(kindLXC)
		if err != nil {
			return err
		}
		if err := g.checkLock(); err != nil {
			return err
		}
		if d, ok := r.P.Get("description"); ok {
			s.Description = strings.TrimRight(d, "\n")
		}
		return nil
	})
}

func (w *World) lxcSnapshotCreate(r *Request) (any, error) {
	vmid, name, text := r.VMID, r.P.Str("snapname"), strings.TrimRight(r.P.Str("description"), "\n")
	if name == "current" || name == "pending" {
		return nil, die("unable to use snapshot name '%s' (reserved name)", name)
	}
	return r.spawn("vzsnapshot", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindLXC, vmid, func() error { return a.ctTakeSnapshot(vmid, name, text) })
	}), nil
}

func (a *Actor) ctTakeSnapshot(vmid int, name, text string) error {
	g, err := a.w.guest(kindLXC, a.Node, vmid)
	if err != nil {
		return err
	}
	if g.Template() {
		return die("you can't take a snapshot if it's a template")
	}
	if err := g.checkLock(); err != nil {
		return err
	}
	if g.snapshot(name) != nil {
		return die("snapshot name '%s' already used", name)
	}
	vols, err := a.snapshotVolumes(g.Config)
	if err != nil {
		return err
	}
	g.Config["lock"] = "snapshot"
	a.Logf("create snapshot '%s'", name)
	err = a.Work(allocTime)
	delete(g.Config, "lock")
	if err != nil {
		return err
	}
	for _, v := range vols {
		v.Snapshots = append(v.Snapshots, name)
	}
	s := &Snapshot{Name: name, Config: snapshotConfig(g.Config), Raw: slices.Clone(g.Raw), Parent: g.Config["parent"], Description: text, Time: time.Now()}
	g.Snapshots = append(g.Snapshots, s)
	g.Config["parent"] = name
	a.touch(g)
	return nil
}

// snapshotVolumes are the volumes that a snapshot takes along; all of their storages must have snapshots.
func (a *Actor) snapshotVolumes(s Section) ([]*Volume, error) {
	var out []*Volume
	for _, m := range mounts(s, false) {
		v := a.w.volume(a.Node, m.volume())
		if m.kind() != "volume" || v == nil || !a.w.volumeFeature("snapshot", m.volume(), "") {
			return nil, die("snapshot feature is not available")
		}
		out = append(out, v)
	}
	return out, nil
}

func (w *World) lxcSnapshotDelete(r *Request) (any, error) {
	vmid, name := r.VMID, r.P.Str("snapname")
	return r.spawn("vzdelsnapshot", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindLXC, vmid, func() error {
			g, err := w.guest(kindLXC, a.Node, vmid)
			if err != nil {
				return err
			}
			if err := g.checkLock(); err != nil {
				return err
			}
			s := g.snapshot(name)
			if s == nil {
				return die("snapshot '%s' does not exist", name)
			}
			var volids []string
			for _, m := range mounts(s.Config, false) {
				volids = append(volids, m.volume())
			}
			a.forgetSnapshot(g, s, volids)
			a.touch(g)
			return a.Work(allocTime)
		})
	}), nil
}

func (w *World) lxcRollback(r *Request) (any, error) {
	vmid, name, start := r.VMID, r.P.Str("snapname"), r.P.Bool("start")
	return r.spawn("vzrollback", decimal(vmid), func(a *Actor) error {
		err := a.LockGuest(kindLXC, vmid, func() error { return a.ctRollback(vmid, name) })
		if err != nil || !start {
			return err
		}
		return a.ctStart(vmid)
	}), nil
}

// ctRollback puts a snapshot's config back. Volumes that came later stay as unused, and the description is that of now (facts.md L).
func (a *Actor) ctRollback(vmid int, name string) error {
	g, err := a.w.guest(kindLXC, a.Node, vmid)
	if err != nil {
		return err
	}
	if g.Template() {
		return die("you can't rollback if CT is a template")
	}
	if err := g.checkLock(); err != nil {
		return err
	}
	s := g.snapshot(name)
	if s == nil {
		return die("snapshot '%s' does not exist", name)
	}
	for _, m := range mounts(s.Config, false) {
		v := a.w.volume(a.Node, m.volume())
		if v == nil {
			return die("volume '%s' does not exist", m.volume())
		}
		if z, _, err := a.w.parseVolid(v.ID); err == nil && z.Type == "zfspool" && len(v.Snapshots) > 0 && v.Snapshots[len(v.Snapshots)-1] != name {
			return die("can't rollback, '%s' is not most recent snapshot on '%s'", name, v.ID)
		}
	}
	if g.Running {
		if err := a.ctStop(vmid, false); err != nil {
			return err
		}
	}
	if err := a.Work(allocTime); err != nil {
		return err
	}
	old := g.Config
	g.Config = s.Config.Clone()
	g.Config["parent"] = name
	if d := old["description"]; d != "" {
		g.Config["description"] = d
	}
	for k, v := range old {
		if indexed(k, "unused") {
			g.Config[k] = v
		}
	}
	g.Raw, g.Pending, g.Delete = slices.Clone(s.Raw), Section{}, map[string]bool{}
	for _, m := range mounts(old, false) {
		if m.kind() == "volume" && !g.ctInUse(m.volume(), "") {
			if err := g.addUnused(m.volume()); err != nil {
				return err
			}
		}
	}
	a.touch(g)
	return nil
}
