package pvesim

func lxcRoutes() []route {
	return []route{{"GET", "/nodes/{node}/lxc", (*World).lxcList}}
}

func (w *World) lxcList(r *Request) (any, error) {
	out := []map[string]any{}
	for _, g := range w.guestsOf(kindLXC, r.Node) {
		if w.can(r.Who, "/vms/"+decimal(g.VMID), "VM.Audit") {
			out = append(out, w.guestFigures(g))
		}
	}
	return out, nil
}
