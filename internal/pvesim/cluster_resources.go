package pvesim

import (
	"encoding/json"
	"strconv"
	"time"
)

// lagged is what pvestatd told of a guest before it was changed, and until when it is still told.
type lagged struct {
	row   map[string]any
	until time.Time
}

// observe remembers a guest's figures before a call that may change it: /cluster/resources goes on to show them until pvestatd comes
// round (facts.md I). A change within that time does not make it longer.
func (w *World) observe(vmid int) {
	g := w.Guests[vmid]
	if g == nil || w.opts.StatLag <= 0 {
		return
	}
	if old, ok := w.lag[vmid]; ok && time.Now().Before(old.until) {
		return
	}
	if w.lag == nil {
		w.lag = map[int]lagged{}
	}
	w.lag[vmid] = lagged{w.currentRow(g), time.Now().Add(w.opts.StatLag)}
}

// auditor says which guests a caller may see. What he may do on a guest follows from the ACL entries at the guest itself, those above
// it and those of its pool, so that guests without an entry of their own need one look per pool.
func (w *World) auditor(who Identity, pools map[int]string) func(vmid int) bool {
	if who.RootTicket() {
		return func(int) bool { return true }
	}
	own := map[string]bool{}
	for _, e := range w.Access.ACL {
		own[e.Path] = true
	}
	byPool := map[string]bool{}
	return func(vmid int) bool {
		path := "/vms/" + decimal(vmid)
		if own[path] {
			return w.can(who, path, "VM.Audit")
		}
		pool := pools[vmid]
		sees, known := byPool[pool]
		if !known {
			sees = w.can(who, path, "VM.Audit")
			byPool[pool] = sees
		}
		return sees
	}
}

// poolsByGuest is the pool of every guest that is in one.
func (w *World) poolsByGuest() map[int]string {
	out := map[int]string{}
	for _, id := range sortedKeys(w.Pools) {
		for vmid := range w.Pools[id].VMs {
			if _, in := out[vmid]; !in && w.Pools[id].VMs[vmid] {
				out[vmid] = id
			}
		}
	}
	return out
}

func (w *World) clusterResources(r *Request) (any, error) {
	want := r.P.Str("type")
	out := make([]map[string]any, 0, len(w.Guests)+16)
	seen := map[string]bool{"": true} // the pools that the caller sees
	for _, id := range sortedKeys(w.Pools) {
		if seen[id] = w.can(r.Who, "/pool/"+id, "Pool.Audit"); seen[id] && want == "" {
			out = append(out, map[string]any{"id": "/pool/" + id, "type": "pool", "pool": id})
		}
	}
	if want == "" || want == "vm" {
		pools, online := w.poolsByGuest(), map[string]bool{}
		for _, n := range w.Nodes {
			online[n.Name] = n.Online()
		}
		sees := w.auditor(r.Who, pools)
		for _, g := range w.guestsOf("", "") {
			if !sees(g.VMID) {
				continue
			}
			pool := pools[g.VMID]
			if !seen[pool] { // au-307
				pool = ""
			}
			out = append(out, w.placeRow(g, online[g.Node], pool))
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
	return rawRows(out)
}

func (w *World) nodeRow(who Identity, n *Node) map[string]any {
	row := map[string]any{"id": "node/" + n.Name, "type": "node", "node": n.Name, "status": "offline"}
	if n.Online() {
		row["status"], row["level"], row["cgroup-mode"] = "online", "", 2-bit(n.lacks(LacksCgroup2))
		if w.can(who, "/nodes/"+n.Name, "Sys.Audit") {
			row["cpu"], row["maxcpu"], row["mem"], row["maxmem"] = 0.02, n.CPUs, n.Memory/8, n.Memory
			row["disk"], row["maxdisk"], row["uptime"] = n.RootUsed, n.RootTotal, int64(time.Since(w.Booted).Seconds())
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
			"id": "storage/" + n.Name + "/" + s.ID, "type": "storage", "storage": s.ID, "node": n.Name, "plugintype": s.Type, "content": joined(s.Content),
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
	return w.placeRow(g, online, w.poolOf(g.VMID))
}

// placeRow is guestRow for a guest whose pool is known. Pool and HA state are never old; all else is what pvestatd told last, and of a
// new guest it has told nothing yet.
func (w *World) placeRow(g *Guest, online bool, pool string) map[string]any {
	var row map[string]any
	old, lags := w.lag[g.VMID]
	now := time.Now()
	switch {
	case !online || w.opts.StatLag > 0 && now.Sub(g.Created) < w.opts.StatLag:
		row = map[string]any{"id": g.Kind + "/" + decimal(g.VMID), "type": g.Kind, "vmid": g.VMID, "node": g.Node, "status": "unknown"}
	case lags && now.Before(old.until):
		row = make(map[string]any, len(old.row)+2)
		for k, v := range old.row {
			row[k] = v
		}
		row["node"] = g.Node
	default:
		if lags {
			delete(w.lag, g.VMID)
		}
		row = w.currentRow(g)
	}
	if pool != "" {
		row["pool"] = pool
	}
	if len(w.HA) > 0 {
		if h := w.HA[g.sid()]; h != nil {
			row["hastate"] = h.State
		}
	}
	return row
}

// currentRow is a guest's row as of now.
func (w *World) currentRow(g *Guest) map[string]any {
	row := w.guestFigures(g)
	row["id"], row["type"], row["node"] = g.Kind+"/"+decimal(g.VMID), g.Kind, g.Node
	row["maxcpu"], row["template"], row["diskread"], row["diskwrite"], row["memhost"] = row["cpus"], bit(g.Template()), 0, 0, row["mem"]
	for _, k := range []string{"cpus", "pid", "swap", "maxswap", "qmpstatus", "serial"} {
		delete(row, k)
	}
	return row
}

// rawRows encodes rows of plain values. It is the standard encoder without its sorting of keys and its reflection, which would take
// most of the time of a large cluster's list; PVE's keys are in no order either (facts.md B).
func rawRows(rows []map[string]any) (json.RawMessage, error) {
	b := make([]byte, 0, 2+450*len(rows))
	b = append(b, '[')
	for i, row := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		first := true
		for k, v := range row {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(append(append(b, '"'), k...), '"', ':') // keys are plain words
			var err error
			if b, err = appendValue(b, v); err != nil {
				return nil, err
			}
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

func appendValue(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case int:
		return strconv.AppendInt(b, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case string:
		plain := true
		for i := 0; i < len(v) && plain; i++ {
			plain = v[i] >= ' ' && v[i] < 0x7f && v[i] != '"' && v[i] != '\\'
		}
		if plain {
			return append(append(append(b, '"'), v...), '"'), nil
		}
	}
	text, err := json.Marshal(v)
	return append(b, text...), err
}
