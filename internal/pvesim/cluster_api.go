package pvesim

func clusterRoutes() []route {
	return []route{
		{"GET", "/cluster/status", (*World).clusterStatus},
		{"GET", "/cluster/resources", (*World).clusterResources},
		{"GET", "/cluster/nextid", (*World).nextID},
		{"GET", "/cluster/tasks", (*World).clusterTasks},
		{"GET", "/cluster/ha", (*World).haIndex},
		{"GET", "/cluster/ha/resources", (*World).haList},
		{"POST", "/cluster/ha/resources", (*World).haCreate},
		{"GET", "/cluster/ha/resources/{sid}", (*World).haRead},
		{"PUT", "/cluster/ha/resources/{sid}", (*World).haUpdate},
		{"DELETE", "/cluster/ha/resources/{sid}", (*World).haDelete},
		{"GET", "/cluster/ha/status/current", (*World).haStatus},
		{"GET", "/cluster/options", (*World).clusterOptions},
		{"PUT", "/cluster/options", (*World).clusterSetOptions},
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
	bounds := w.dcProps("next-id", ".next-id")
	low, high := Params{"n": bounds["lower"]}.Int("n", 100), Params{"n": bounds["upper"]}.Int("n", 1000000)
	for n := low; n < high; n++ {
		if w.Guests[n] == nil {
			return decimal(n), nil
		}
	}
	return nil, die("unable to get any free VMID in range [%d, %d]", low, high)
}

// clusterTasks are the last tasks of all nodes, running ones included; without Sys.Audit on the node only one's own.
func (w *World) clusterTasks(r *Request) (any, error) {
	out := []map[string]any{}
	for i := len(w.Tasks) - 1; i >= 0 && len(out) < 25; i-- {
		t := w.Tasks[i]
		if !w.ownTask(r.Who, t) && !w.can(r.Who, "/nodes/"+t.Node, "Sys.Audit") {
			continue
		}
		row := t.row()
		if !t.Running() {
			row["status"], row["endtime"], row["saved"] = t.Exit, t.End.Unix(), "1"
		}
		out = append(out, row)
	}
	return out, nil
}
