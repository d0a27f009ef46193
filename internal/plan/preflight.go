package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
)

// preflight compares what is about to be written with what the cluster has. A
// miss is a fault of the object, in the plan and with its place in the file,
// instead of a failure half way through an apply: PVE itself notices a missing
// bridge or boot device only when the guest starts, or never (facts C).
func (m *maker) preflight(o *object, spec kind.GuestSpec, node string, edits []field.Edit, g *field.Guest) {
	inv := m.s.Inventory[node]
	if inv == nil {
		return
	}
	m.coresFit(o, spec, node, edits, g)
	balloonFits(o, edits, g)
	for _, e := range edits {
		if e.Delete {
			continue
		}
		path := editPath(e)
		if e.Create && e.Storage != "" {
			m.storageFits(o, node, path, e.Storage, contentFor(e.Key))
		}
		text := e.Value.String()
		switch {
		case strings.HasPrefix(e.Key, "net"):
			m.bridgeThere(o, inv, node, e)
		case strings.HasPrefix(e.Key, "hostpci"):
			m.mappingThere(o, node, path, token(text, "mapping"))
		case e.Key == "boot":
			bootable(o, path, text, edits, g)
		case e.Key == "pool":
			m.poolThere(o, path, text)
		}
		for _, vol := range []string{firstToken(text), token(text, "import-from")} {
			m.fileThere(o, node, path, vol)
		}
	}
}

// coresFit checks that a VM which is to run does not have more CPUs than its
// node, since PVE then does not start it.
func (m *maker) coresFit(o *object, spec kind.GuestSpec, node string, edits []field.Edit, g *field.Guest) {
	most, total, path := m.s.Nodes[node].CPUs, 1, ""
	for _, key := range []string{"cores", "sockets"} {
		text, _ := g.Get(key)
		for _, e := range edits {
			if e.Key == key && !e.Delete {
				text = e.Value.String()
				path = cmp.Or(path, editPath(e))
			}
		}
		if n, err := strconv.Atoi(text); err == nil {
			total *= n
		}
	}
	if o.r.Kind.Guest == "qemu" && spec.Started() && path != "" && most > 0 && total > most {
		o.fault(path, "the VM gets %d CPUs and node %s has %d: PVE does not start a VM with more than its node has", total, node, most)
	}
}

// balloonFits checks a change of a VM's memory or of its balloon against the
// other one as it is in PVE, where the manifest declares one of them. PVE
// refuses the change with all that goes with it.
func balloonFits(o *object, edits []field.Edit, g *field.Guest) {
	if o.r.Kind.Guest != "qemu" {
		return
	}
	mib, path := map[string]int{}, ""
	for _, key := range []string{"balloon", "memory"} {
		text, _ := g.Get(key)
		for _, e := range edits {
			if e.Key == key && !e.Delete { // a balloon that goes in the same write still counts
				text, path = e.Value.String(), cmp.Or(path, editPath(e))
			}
		}
		mib[key], _ = strconv.Atoi(strings.TrimPrefix(text, "current="))
	}
	if least, all := mib["balloon"], cmp.Or(mib["memory"], 512); path != "" && least > all {
		o.fault(path, "balloon would be %d MiB and memory %d MiB: PVE refuses a balloon above the memory; declare balloon too, with memory or less", least, all)
	}
}

func editPath(e field.Edit) string {
	if len(e.Changes) > 0 {
		return e.Changes[0].Path
	}
	return ""
}

func contentFor(key string) string {
	if key == "rootfs" || strings.HasPrefix(key, "mp") {
		return "rootdir"
	}
	return "images"
}

// token is the value of one token of a property string.
func token(text, name string) string {
	for _, p := range strings.Split(text, ",") {
		if v, ok := strings.CutPrefix(p, name+"="); ok {
			return v
		}
	}
	return ""
}

func firstToken(text string) string {
	first, _, _ := strings.Cut(text, ",")
	return first
}

// storageFits reports whether a node has a storage for a content type; a miss
// is a fault. While the node's storages are not known, everything fits.
func (m *maker) storageFits(o *object, node, path, storage, content string) bool {
	inv := m.s.Inventory[node]
	if inv == nil || inv.Storages == nil {
		return true
	}
	st, ok := inv.Storages[storage]
	switch {
	case !ok && !m.s.Holds("/storage/"+storage, "Datastore.Audit", "Datastore.AllocateSpace"):
		return true // not visible is not absent; the missing right is told with the action
	case !ok:
		o.fault(path, "node %s has no storage %q that this token can see: it has %s", node, storage, names(inv.Storages))
		return false
	case !st.Active:
		o.fault(path, "storage %q is not active on node %s", storage, node)
		return false
	case !st.Content[content]:
		o.fault(path, "storage %q on node %s does not take %s: its content types are %s", storage, node, content, names(st.Content))
		return false
	}
	return true
}

func names[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(sortedKeys(m), ", ")
}

func (m *maker) bridgeThere(o *object, inv *live.Inventory, node string, e field.Edit) {
	for _, c := range e.Changes {
		if !strings.HasSuffix(c.Key, ".bridge") || c.New == nil || inv.Bridges == nil {
			continue
		}
		b := c.New.String()
		if !inv.Bridges[b] && m.s.Holds("/sdn/zones/localnetwork/"+b, "SDN.Use", "SDN.Audit") {
			o.fault(c.Path, "node %s has no bridge %q: it has %s", node, b, names(inv.Bridges))
		}
	}
}

func (m *maker) mappingThere(o *object, node, path, id string) {
	if id == "" || m.s.PCI == nil {
		return
	}
	nodes, ok := m.s.PCI[id]
	switch {
	case !ok && m.s.Holds("/mapping/pci", "Mapping.Audit", "Mapping.Use", "Mapping.Modify"):
		o.fault(path, "the cluster has no PCI mapping %q: it has %s", id, names(m.s.PCI))
	case ok && !slices.Contains(nodes, node):
		o.fault(path, "PCI mapping %q has no device on node %s", id, node)
	}
}

func (m *maker) poolThere(o *object, path, pool string) {
	if m.s.Pools != nil && pool != "" && !m.s.Pools[pool] && m.s.Holds("/pool/"+pool, "Pool.Audit") {
		o.fault(path, "the cluster has no pool %q: it has %s", pool, names(m.s.Pools))
	}
}

// bootable checks that the boot order names devices that will exist. PVE
// checks it in a config write and not at create (facts C).
func bootable(o *object, path, text string, edits []field.Edit, g *field.Guest) {
	order := token(text, "order")
	if order == "" {
		return
	}
	for _, dev := range strings.Split(order, ";") {
		_, there := g.Get(dev)
		for _, e := range edits {
			if e.Key == dev {
				there = !e.Delete
			}
		}
		if dev != "" && !there {
			o.fault(path, "boot order names %s, which the guest will not have", dev)
		}
	}
}

// fileThere checks an ISO, template or import volume that an artifact of this
// cluster provides: on the storage, or fetched by this plan before.
func (m *maker) fileThere(o *object, node, path, vol string) {
	storage, file, ok := strings.Cut(vol, ":")
	if !ok || !slices.ContainsFunc([]string{"iso/", "vztmpl/", "import/"}, func(p string) bool { return strings.HasPrefix(file, p) }) {
		return
	}
	content, read := m.s.Contents[live.Store{Node: node, Storage: storage}]
	if _, there := content.Files[vol]; there || !read || content.Err != "" {
		return
	}
	for _, r := range m.resources {
		if a, ok := r.Spec.(kind.ArtifactSpec); ok && m.making[r.Ref()] && a.VolID() == vol {
			return
		}
	}
	o.fault(path, "node %s has no %s on storage %q", node, file, storage)
}
