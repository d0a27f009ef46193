package pvesim

import "strings"

func poolRoutes() []route {
	return []route{
		{"GET", "/pools", (*World).poolIndex},
		{"POST", "/pools", (*World).poolCreate},
		{"PUT", "/pools", (*World).poolUpdate},
		{"DELETE", "/pools", (*World).poolDelete},
		{"GET", "/pools/{poolid}", (*World).poolGet},
		{"PUT", "/pools/{poolid}", (*World).poolUpdate},
		{"DELETE", "/pools/{poolid}", (*World).poolDelete},
	}
}

// poolIndex lists the pools that the caller may audit; asked for one by name it shows that to anybody, members and all (au-171).
func (w *World) poolIndex(r *Request) (any, error) {
	if r.P.Str("poolid") != "" {
		one, err := w.poolGet(r)
		if err != nil {
			return nil, err
		}
		return []any{one}, nil
	}
	out := []map[string]any{}
	for _, id := range sortedKeys(w.Pools) {
		if !w.can(r.Who, "/pool/"+id, "Pool.Audit") {
			continue
		}
		row := map[string]any{"poolid": id}
		if c := w.Pools[id].Comment; c != "" {
			row["comment"] = c
		}
		out = append(out, row)
	}
	return out, nil
}

func (w *World) poolGet(r *Request) (any, error) {
	id, kind := r.P.Str("poolid"), r.P.Str("type")
	p := w.Pools[id]
	if p == nil {
		return nil, die("pool '%s' does not exist", id)
	}
	members := []map[string]any{}
	for _, g := range w.guestsOf("", "") { // members that are no more do not show
		if !p.VMs[g.VMID] || kind != "" && kind != g.Kind {
			continue
		}
		row := w.guestRow(g, w.node(g.Node).Online())
		for _, key := range []string{"pool", "tags", "lock", "hastate"} { // only /cluster/resources has these
			delete(row, key)
		}
		members = append(members, row)
	}
	if kind == "" || kind == "storage" {
		for _, id := range sortedKeys(p.Storages) {
			s, err := w.storage(id)
			if err != nil {
				continue
			}
			for _, row := range w.storageRows(Identity{User: "root@pam"}, w.poolStorageNode(r.Node, s)) {
				if row["storage"] == id {
					members = append(members, row)
				}
			}
		}
	}
	out := map[string]any{"poolid": id, "members": members}
	if p.Comment != "" {
		out["comment"] = p.Comment
	}
	return out, nil
}

// poolStorageNode is the node that a pool's storage is shown on: the one that answers, if the storage is there.
func (w *World) poolStorageNode(local string, s *Storage) *Node {
	if s.On(local) {
		return w.node(local)
	}
	for _, n := range w.Nodes {
		if s.On(n.Name) {
			return n
		}
	}
	return w.node(local)
}

func (w *World) poolCreate(r *Request) (any, error) {
	id := r.P.Str("poolid")
	fail := func(format string, args ...any) (any, error) {
		return nil, wrap("create pool failed: ", die(format, args...))
	}
	if w.Pools[id] != nil {
		return fail("pool '%s' already exists", id)
	}
	if c := id[0] | 0x20; c < 'a' || c > 'z' {
		return fail("pool name must start with a letter")
	}
	if i := strings.LastIndexByte(id, '/'); i >= 0 && w.Pools[id[:i]] == nil {
		return fail("parent '%s' of pool '%s' does not exist", id[:i], id)
	}
	w.Pools[id] = &Pool{ID: id, Comment: r.P.Str("comment"), VMs: map[int]bool{}, Storages: map[string]bool{}}
	return nil, nil
}

// poolUpdate works on a copy: PVE writes user.cfg only when all went well.
func (w *World) poolUpdate(r *Request) (any, error) {
	id := r.P.Str("poolid")
	old := w.Pools[id]
	if old == nil {
		return nil, die("update pools failed: pool '%s' does not exist", id)
	}
	p := &Pool{ID: id, Comment: old.Comment, VMs: map[int]bool{}, Storages: map[string]bool{}}
	for vmid := range old.VMs {
		p.VMs[vmid] = true
	}
	for s := range old.Storages {
		p.Storages[s] = true
	}
	if r.P.Has("comment") {
		p.Comment = r.P.Str("comment")
	}
	moved := map[int]*Pool{}
	for _, vmid := range r.P.List("vms") {
		if err := w.poolVM(r, p, vmid, moved); err != nil {
			return nil, wrap("update pools failed: ", err)
		}
	}
	for _, storage := range r.P.List("storage") {
		if err := w.poolStorage(r, p, storage); err != nil {
			return nil, wrap("update pools failed: ", err)
		}
	}
	for vmid, from := range moved {
		delete(from.VMs, vmid)
	}
	w.Pools[id] = p
	return nil, nil
}

// poolVM takes a guest into a pool or out of it; one that comes from another pool is noted in moved.
func (w *World) poolVM(r *Request, p *Pool, text string, moved map[int]*Pool) error {
	vmid := Params{"vmid": text}.Int("vmid", 0)
	if err := w.checkPermModify(r.Who, "/vms/"+text); err != nil {
		return err
	}
	if r.P.Bool("delete") {
		if !p.VMs[vmid] {
			return die("VM %d is not a pool member", vmid)
		}
		delete(p.VMs, vmid)
		return nil
	}
	if p.VMs[vmid] {
		return die("VM %d is already a pool member", vmid)
	}
	if other := w.poolOf(vmid); other != "" && other != p.ID {
		if !r.P.Bool("allow-move") {
			return die("VM %d belongs already to pool '%s' and 'allow-move' is not set", vmid, other)
		}
		if err := w.check(r.Who, "/pool/"+other, "Pool.Allocate"); err != nil {
			return err
		}
		moved[vmid] = w.Pools[other]
	}
	p.VMs[vmid] = true
	return nil
}

func (w *World) poolStorage(r *Request, p *Pool, storage string) error {
	if err := w.checkPermModify(r.Who, "/storage/"+storage); err != nil {
		return err
	}
	switch member := p.Storages[storage]; {
	case r.P.Bool("delete") && !member:
		return die("Storage '%s' is not a pool member", storage)
	case r.P.Bool("delete"):
		delete(p.Storages, storage)
	case member:
		return die("Storage '%s' is already a pool member", storage)
	default:
		p.Storages[storage] = true
	}
	return nil
}

// poolDelete removes an empty pool; members that are no more do not count.
func (w *World) poolDelete(r *Request) (any, error) {
	id := r.P.Str("poolid")
	p := w.Pools[id]
	fail := func(format string, args ...any) (any, error) {
		return nil, wrap("delete pool failed: ", die(format, args...))
	}
	if p == nil {
		return fail("pool '%s' does not exist", id)
	}
	for _, sub := range sortedKeys(w.Pools) {
		if strings.HasPrefix(sub, id+"/") {
			return fail("pool '%s' is not empty (contains pool '%s')", id, sub)
		}
	}
	for _, g := range w.guestsOf("", "") {
		if p.VMs[g.VMID] {
			return fail("pool '%s' is not empty (contains VM %d)", id, g.VMID)
		}
	}
	for _, s := range sortedKeys(p.Storages) {
		if _, err := w.storage(s); err == nil {
			return fail("pool '%s' is not empty (contains storage '%s')", id, s)
		}
	}
	delete(w.Pools, id)
	w.Access.removeACLPath("/pool/" + id)
	return nil, nil
}
