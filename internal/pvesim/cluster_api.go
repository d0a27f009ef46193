package pvesim

func clusterRoutes() []route {
	return []route{
		{"GET", "/cluster/status", (*World).clusterStatus},
		{"GET", "/cluster/resources", (*World).clusterResources},
		{"GET", "/cluster/nextid", (*World).nextID},
	}
}

func (w *World) clusterStatus(*Request) (any, error) {
	out := []map[string]any{}
	if w.clustered() {
		out = append(out, map[string]any{"id": "cluster", "type": "cluster", "name": w.ClusterName, "nodes": len(w.Nodes), "version": len(w.Nodes), "quorate": 1})
	}
	for i, n := range w.Nodes {
		out = append(out, map[string]any{
			"id": "node/" + n.Name, "type": "node", "name": n.Name, "nodeid": n.ID, "ip": n.IP, "level": "", "local": bit(i == 0), "online": bit(n.Online()),
		})
	}
	return out, nil
}

func (w *World) nextID(r *Request) (any, error) {
	if id, ok := r.P.Get("vmid"); ok {
		if w.Guests[r.P.Int("vmid", 0)] != nil {
			return nil, paramErr("vmid", "VM %s already exists", id)
		}
		return id, nil
	}
	n := 100
	for w.Guests[n] != nil {
		n++
	}
	return decimal(n), nil
}

func (w *World) clusterResources(r *Request) (any, error) {
	want := r.P.Str("type")
	out := []map[string]any{}
	if want == "" || want == "vm" {
		for _, g := range w.guestsOf("", "") {
			if w.can(r.Who, "/vms/"+decimal(g.VMID), "VM.Audit") {
				out = append(out, w.guestRow(g, w.node(g.Node).Online()))
			}
		}
	}
	if want == "" || want == "node" {
		for _, n := range w.Nodes {
			out = append(out, w.nodeRow(r.Who, n))
		}
	}
	for _, n := range w.Nodes {
		if want == "" || want == "storage" {
			out = append(out, w.storageRows(r.Who, n)...)
		}
	}
	for _, n := range w.Nodes {
		if (want == "" || want == "sdn") && w.can(r.Who, "/sdn/zones/localnetwork", "SDN.Audit") {
			out = append(out, map[string]any{
				"id": "network/" + n.Name + "/zone/localnetwork", "type": "network", "network-type": "zone", "network": "localnetwork", "node": n.Name, "status": "ok",
			})
		}
	}
	return out, nil
}

func (w *World) nodeRow(who Identity, n *Node) map[string]any {
	row := map[string]any{"id": "node/" + n.Name, "type": "node", "node": n.Name, "status": "offline"}
	if n.Online() {
		row["status"], row["level"], row["cgroup-mode"] = "online", "", 2
		if w.can(who, "/nodes/"+n.Name, "Sys.Audit") {
			row["cpu"], row["maxcpu"], row["mem"], row["maxmem"] = 0.02, n.CPUs, n.Memory/8, n.Memory
			row["disk"], row["maxdisk"], row["uptime"] = n.RootUsed, n.RootTotal, int64(100)
		}
	}
	return row
}

func (w *World) storageRows(who Identity, n *Node) []map[string]any {
	var out []map[string]any
	for _, s := range w.Storages {
		if s.Disabled || !s.On(n.Name) || !w.canAny(who, "/storage/"+s.ID, "Datastore.Audit") {
			continue
		}
		row := map[string]any{
			"id": "storage/" + n.Name + "/" + s.ID, "type": "storage", "storage": s.ID, "node": n.Name, "plugintype": s.Type, "content": joined(s.Content, ","),
			"shared": bit(s.Shared), "status": "unknown",
		}
		if n.Online() {
			row["status"], row["disk"], row["maxdisk"] = "available", w.used(s, n.Name), s.Total
		}
		out = append(out, row)
	}
	return out
}

// guestRow is a guest in /cluster/resources; of one whose node does not answer only the place is known.
func (w *World) guestRow(g *Guest, online bool) map[string]any {
	row := map[string]any{"id": g.Kind + "/" + decimal(g.VMID), "type": g.Kind, "vmid": g.VMID, "node": g.Node, "status": "unknown"}
	if pool := w.poolOf(g.VMID); pool != "" {
		row["pool"] = pool
	}
	if !online {
		return row
	}
	for k, v := range w.guestFigures(g) {
		switch k {
		case "cpus":
			row["maxcpu"] = v
		case "name", "status", "template", "tags", "mem", "maxmem", "memhost", "disk", "maxdisk", "cpu", "uptime", "netin", "netout", "lock":
			row[k] = v
		}
	}
	row["template"], row["diskread"], row["diskwrite"] = bit(g.Template()), 0, 0
	return row
}
