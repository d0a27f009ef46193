package pvesim

import "time"

func (w *World) lxcMigrateCheck(r *Request) (any, error) {
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	nodes := []string{}
	for _, n := range w.Nodes {
		if n.Name != r.Node && n.Online() && w.ctMovable(g, n.Name) == nil {
			nodes = append(nodes, n.Name)
		}
	}
	return map[string]any{"running": bit(g.Running), "allowed-nodes": nodes, "not-allowed-nodes": map[string]any{}}, nil
}

// ctMovable says what keeps a container from another node: all its storages must be there.
func (w *World) ctMovable(g *Guest, node string) error {
	for _, m := range mounts(g.Config, true) {
		if m.kind() != "volume" {
			continue
		}
		s, _, err := w.parseVolid(m.volume())
		if err != nil {
			return err
		}
		if _, err := w.storageOn(s.ID, node); err != nil {
			return err
		}
	}
	return nil
}

// lxcMigrate takes a container to another node; a running one has to be restarted for it.
func (w *World) lxcMigrate(r *Request) (any, error) {
	target, restart := r.P.Str("target"), r.P.Bool("restart")
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	switch {
	case target == r.Node:
		return nil, paramErr("target", "target is local node.")
	case w.node(target) == nil:
		return nil, die("no such cluster node '%s'", target)
	case err != nil:
		return nil, err
	}
	if err := g.checkLock(); err != nil {
		return nil, err
	}
	if g.Running && !restart && !r.P.Bool("online") {
		return nil, die("can't migrate running container without --online or --restart")
	}
	vmid := r.VMID
	return r.spawn("vzmigrate", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindLXC, vmid, func() error { return a.ctMigrate(vmid, target, restart) })
	}), nil
}

func (a *Actor) ctMigrate(vmid int, target string, restart bool) error {
	w := a.w
	g, err := w.guest(kindLXC, a.Node, vmid)
	if err != nil {
		return err
	}
	n := w.node(target)
	if n == nil || !n.Online() {
		return die("migration aborted (duration 00:00:03): Can't connect to destination address using public key")
	}
	if err := w.ctMovable(g, target); err != nil {
		return wrap("migration aborted (duration 00:00:00): ", err)
	}
	was := g.Running
	if was && !restart {
		return die("migration aborted (duration 00:00:00): lxc live migration is currently not implemented")
	}
	if was {
		if err := a.ctStop(vmid, false); err != nil {
			return err
		}
	}
	if err := a.Work(10 * time.Second); err != nil {
		return err
	}
	if err := a.moveVolumes(g, target); err != nil {
		return wrap("migration aborted (duration 00:00:10): ", err)
	}
	g.Node = target
	a.touch(g)
	a.Logf("migration finished successfully (duration 00:00:10)")
	if was {
		b := *a
		b.Node = target
		return b.ctStartLocked(vmid, false)
	}
	return nil
}

// moveVolumes takes a guest's local volumes to another node: they are made there and freed here.
func (a *Actor) moveVolumes(g *Guest, target string) error {
	b := *a
	b.Node = target
	for _, m := range mounts(g.Config, true) {
		v := a.w.volume(a.Node, m.volume())
		if m.kind() != "volume" || v == nil || v.Node == "" {
			continue
		}
		s, _, err := a.w.parseVolid(v.ID)
		if err != nil {
			return err
		}
		c := *v
		if _, err := b.createVolume(s, c); err != nil {
			return err
		}
		a.destroyVolume(v)
	}
	return nil
}

// touch notes that a guest's config was written.
func (a *Actor) touch(g *Guest) { g.Changed = time.Now() }
