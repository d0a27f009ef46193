package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/pve"
)

// Survey adds what is needed before something is written: the storages and
// bridges of the nodes, the PCI mappings and the pools. A converged cluster
// never pays for it.
func Survey(ctx context.Context, r *pve.Reader, s *Snapshot, nodes []string) error {
	x := &reading{ctx: ctx, r: r, snap: s, want: Want{Parallel: 8}}
	before := r.Stats().Reads
	s.Inventory = map[string]*Inventory{}
	jobs := []func(){x.mappings, x.visiblePools}
	for _, node := range nodes {
		if n := s.Nodes[node]; !n.Allowed || !n.Online {
			continue
		}
		jobs = append(jobs, func() { x.inventory(node) })
	}
	x.parallel(jobs)
	s.Calls += r.Stats().Reads - before
	return ctx.Err()
}

func (x *reading) inventory(node string) {
	inv := &Inventory{Storages: map[string]Storage{}}
	list, err := x.r.Storages(x.ctx, node)
	if err != nil {
		inv.Storages, inv.Err = nil, err.Error()
	}
	for _, st := range list {
		inv.Storages[st.Storage] = Storage{Type: st.Type, Content: set(st.Content), Active: st.Active && st.Enabled, Shared: st.Shared}
	}
	bridges, err := x.r.Bridges(x.ctx, node)
	if err != nil {
		inv.Err = err.Error()
	} else {
		inv.Bridges = map[string]bool{}
		for _, b := range bridges {
			inv.Bridges[b.Iface] = true
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snap.Inventory[node] = inv
}

func (x *reading) mappings() {
	list, err := x.r.PCIMappings(x.ctx)
	if err != nil {
		return // a check that is not made, no fault of the cluster's
	}
	pci := map[string][]string{}
	for _, m := range list {
		pci[m.ID] = m.Nodes
	}
	x.snap.PCI = pci
}

func (x *reading) visiblePools() {
	list, err := x.r.Pools(x.ctx)
	if err != nil {
		return
	}
	pools := map[string]bool{}
	for _, p := range list {
		pools[p.PoolID] = true
	}
	x.snap.Pools = pools
}

// pools finds the members of wanted pools that the listing hides: it names a
// guest's pool only to who may audit the pool, while the pool itself shows its
// members to everybody (facts M). Without it a converged guest would be moved
// into its own pool for ever.
func (x *reading) pools() {
	hidden := map[string][]*Guest{}
	for id, w := range x.want.Guests {
		g := x.snap.Guests[id]
		if g == nil || !g.Read || w.Pool == "" || g.Pool != "" || x.snap.Holds("/pool/"+w.Pool, "Pool.Audit") {
			continue
		}
		hidden[w.Pool] = append(hidden[w.Pool], g)
	}
	var jobs []func()
	for _, name := range slices.Sorted(maps.Keys(hidden)) {
		jobs = append(jobs, func() {
			p, err := x.r.Pool(x.ctx, name)
			if err != nil {
				return // plan then says that the pool is not visible
			}
			for _, g := range hidden[name] {
				if slices.Contains(p.Guests, g.VMID) {
					g.Pool = name
					g.Config["pool"] = field.Entry{Value: &g.Pool}
				}
			}
		})
	}
	x.parallel(jobs)
}

// linkedClones looks for the linked clones of templates that may be pruned:
// tagged, not declared. Where volumes are files, a clone's volume is named
// after its template's; PVE's own refusal comes only inside the delete task.
func (x *reading) linkedClones() {
	byStore := map[Store][]*Guest{}
	for id, g := range x.snap.Guests {
		if _, declared := x.want.Guests[id]; declared || !g.Read || !g.Template || x.want.Tag == "" || !g.Tagged(x.want.Tag) {
			continue
		}
		for _, vol := range Volumes(&g.Guest) {
			storage, _, _ := strings.Cut(vol, ":")
			st := Store{g.Node, storage}
			if s, ok := x.snap.Storages[st]; !ok || !s.FileBased() {
				if !slices.Contains(g.LinkedUnknown, storage) {
					g.LinkedUnknown = append(g.LinkedUnknown, storage)
				}
			} else if !slices.Contains(byStore[st], g) {
				byStore[st] = append(byStore[st], g)
			}
		}
	}
	var jobs []func()
	for st, templates := range byStore {
		jobs = append(jobs, func() { x.clonesOn(st, templates) })
	}
	x.parallel(jobs)
	for _, g := range x.snap.Guests {
		slices.Sort(g.Linked)
		g.Linked = slices.Compact(g.Linked)
		slices.Sort(g.LinkedUnknown)
	}
}

func (x *reading) clonesOn(st Store, templates []*Guest) {
	list, err := x.r.StorageContent(x.ctx, st.Node, st.Storage, "")
	if err != nil {
		x.problem("storage %s on %s: %v", st.Storage, st.Node, err)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, g := range templates {
		base := fmt.Sprintf(":%d/base-%d-disk-", g.VMID, g.VMID)
		for _, v := range list {
			based := strings.Contains(v.VolID, base) || strings.Contains(":"+v.Parent, base)
			if based && v.VMID != g.VMID && v.VMID != 0 {
				g.Linked = append(g.Linked, v.VMID)
			}
		}
	}
}
