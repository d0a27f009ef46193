package pvesim

func poolRoutes() []route {
	return []route{{"GET", "/pools/{poolid}", (*World).poolGet}}
}

func (w *World) poolGet(r *Request) (any, error) {
	p := w.Pools[r.P.Str("poolid")]
	if p == nil {
		return nil, die("pool '%s' does not exist", r.P.Str("poolid"))
	}
	members := []map[string]any{}
	for _, g := range w.guestsOf("", "") {
		if p.VMs[g.VMID] {
			members = append(members, w.guestRow(g, true))
		}
	}
	out := map[string]any{"members": members}
	if p.Comment != "" {
		out["comment"] = p.Comment
	}
	return out, nil
}
