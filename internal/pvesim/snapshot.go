package pvesim

import "slices"

// What snapshots of VMs and containers have in common.

// section is a snapshot's section with the keys that the state keeps apart.
func (s *Snapshot) section() Section {
	c := s.Config.Clone()
	if s.Parent != "" {
		c["parent"] = s.Parent
	}
	if s.Description != "" {
		c["description"] = s.Description
	}
	if !s.Time.IsZero() {
		c["snaptime"] = decimal(int(s.Time.Unix()))
	}
	if s.State != "" {
		c["snapstate"] = s.State
	}
	if s.VMState != "" {
		c["vmstate"] = s.VMState
	}
	return c
}

// snapshotConfig is what a snapshot keeps of a config: all but what belongs to the moment and what is unused.
func snapshotConfig(s Section) Section {
	c := Section{}
	for k, v := range s {
		switch k {
		case "lock", "description", "parent", "snaptime", "snapstate", "vmstate":
		default:
			if !indexed(k, "unused") {
				c[k] = v
			}
		}
	}
	return c
}

// snapshotRows lists snapshots, and the present state as the last.
func (g *Guest) snapshotRows() []map[string]any {
	out := []map[string]any{}
	for _, s := range g.Snapshots {
		row := map[string]any{"name": s.Name, "snaptime": s.Time.Unix(), "description": s.Description}
		switch {
		case g.Kind == kindQemu:
			row["vmstate"] = bit(s.VMState != "")
		case s.Description != "": // a container's description has a line feed at its end, as everywhere
			row["description"] = s.Description + "\n"
		}
		if s.Parent != "" {
			row["parent"] = s.Parent
		}
		if s.State != "" {
			row["snapstate"] = s.State
		}
		out = append(out, row)
	}
	cur := map[string]any{"name": "current", "description": "You are here!", "digest": g.Digest(), "running": bit(g.Running)}
	if p := g.Config["parent"]; p != "" {
		cur["parent"] = p
	}
	return append(out, cur)
}

// snapshot finds the snapshot that a path names.
func (r *Request) snapshot(kind string) (*Guest, *Snapshot, error) {
	g, err := r.w.guest(kind, r.Node, r.VMID)
	if err != nil {
		return nil, nil, err
	}
	s := g.snapshot(r.P.Str("snapname"))
	if s == nil {
		return nil, nil, die("snapshot '%s' does not exist", r.P.Str("snapname"))
	}
	return g, s, nil
}

func (w *World) snapshotIndex(*Request) (any, error) {
	return []map[string]any{{"cmd": "rollback"}, {"cmd": "config"}}, nil
}

// forgetSnapshot takes a snapshot out of its volumes and out of the guest's tree: what came after it gets its parent.
func (a *Actor) forgetSnapshot(g *Guest, s *Snapshot, volids []string) {
	for _, volid := range volids {
		if v := a.w.volume(a.Node, volid); v != nil {
			v.Snapshots = slices.DeleteFunc(v.Snapshots, func(n string) bool { return n == s.Name })
		}
	}
	g.Snapshots = slices.DeleteFunc(g.Snapshots, func(o *Snapshot) bool { return o == s })
	for _, o := range g.Snapshots {
		if o.Parent == s.Name {
			o.Parent = s.Parent
		}
	}
	if g.Config["parent"] == s.Name {
		if g.Config["parent"] = s.Parent; s.Parent == "" {
			delete(g.Config, "parent")
		}
	}
}
