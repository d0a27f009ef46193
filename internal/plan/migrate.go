package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/wire"
)

// migrate plans the way back of a guest that lives elsewhere. It is the only
// action of the guest in that cycle: volumes on local storage get new names on
// the way, so drift is compared again where it arrives.
func (m *maker) migrate(o *object, spec kind.GuestSpec, g *live.Guest, where string) {
	to, _ := spec.Place()
	blockers, local := m.blockers(g, to)
	if len(blockers) > 0 {
		o.anomaly("node", where+"; it cannot be moved: "+strings.Join(blockers, "; "), "remove the blockers, or move it by hand")
		return
	}
	step := MigrateStep{Guest: g.Type, From: g.Node, To: to}
	power := field.None
	switch {
	case g.Running && g.LXC:
		if ok, when := m.pol.mayRestart(o.r.Annotations); !ok {
			o.anomaly("node", where+"; a running container is moved by a restart", when)
			return
		}
		step.Params.Set("restart", wire.Plain("1"))
		power = field.Stop
	case g.Running:
		step.Params.Set("online", wire.Plain("1"))
		power = field.Live
		if local {
			step.Params.Set("with-local-disks", wire.Plain("1"))
		}
	}
	o.act(Action{Verb: Migrate, Node: g.Node, Why: where, Power: power, Disrupts: power == field.Stop, Do: step})
}

// blockers lists what PVE would refuse to move, and whether volumes must be
// copied along. Each is one that PVE's task would find only after it has begun.
func (m *maker) blockers(g *live.Guest, to string) (out []string, local bool) {
	if n := m.s.Nodes[to]; !n.Online || !n.Allowed {
		out = append(out, fmt.Sprintf("node %s does not answer", to))
	}
	if g.HA != "" {
		out = append(out, "the HA manager places it ("+g.HA+"): use a node affinity rule")
	}
	if g.Template {
		out = append(out, "it is a template: clone it there instead")
	}
	for _, key := range sortedKeys(g.Config) {
		text, _ := g.Get(key)
		if why := m.tied(g, key, text, to); why != "" {
			out = append(out, why)
		}
	}
	snapshots := g.Snapshots > 0
	if _, ok := g.Get("parent"); ok {
		snapshots = true
	}
	for _, vol := range live.Volumes(&g.Guest) {
		id, name, _ := strings.Cut(vol, ":")
		st := m.s.Storages[live.Store{Node: g.Node, Storage: id}]
		if m.lacksStorage(st, id, to) {
			out = append(out, fmt.Sprintf("node %s has no storage %s, which holds %s", to, id, vol))
		}
		if st.Shared {
			continue
		}
		local = true
		if snapshots && (g.Running && !g.LXC || !snapshotsMove(st.Type, name)) {
			out = append(out, vol+" has snapshots, which do not move with it from the local storage "+id)
		}
		if base, ok := baseOf(name); ok {
			out = append(out, vol+" is a linked clone of "+base)
		}
	}
	return out, local
}

// tied says why a key's device, path or medium is there on one node alone.
func (m *maker) tied(g *live.Guest, key, text, to string) string {
	here := key + " (" + firstToken(text) + ") is a device or path of node " + g.Node
	class := wire.KeyClass(key)
	p := wire.ParseProps(text, wire.FormatOf(g.LXC, key))
	mapping, mapped := p.Get("mapping")
	switch {
	case (class == "hostpci" || class == "usb") && class != key && mapped:
		if nodes, read := m.s.PCI[mapping]; class == "hostpci" && read && !slices.Contains(nodes, to) {
			return fmt.Sprintf("%s: the mapping %s has no device on %s", key, mapping, to)
		}
	case class == "hostpci" && class != key, class == "usb" && class != key && !strings.Contains(text, "spice"),
		(class == "serial" || class == "parallel") && class != key && text != "socket",
		g.LXC && class == "mp" && strings.HasPrefix(text, "/") && !strings.Contains(text, "shared=1"):
		return here
	case !g.LXC && wire.IsVolumeKey(false, key):
		media, _ := p.Get("media")
		file, _ := p.Get("file")
		storage, _, ok := wire.SplitVolID(file)
		if ok && media == "cdrom" && !wire.IsCloudInit(file) && !m.s.Storages[live.Store{Node: g.Node, Storage: storage}].Shared {
			return fmt.Sprintf("%s holds %s, a medium on local storage: eject it", key, file)
		}
	}
	return ""
}

// lacksStorage reports whether a storage is known here and not there. What the
// token may not see on either side is not known to be lacking.
func (m *maker) lacksStorage(here live.Storage, id, to string) bool {
	if here.Type == "" {
		return false
	}
	there, known := m.s.Storages[live.Store{Node: to, Storage: id}]
	return !known || !there.Active && m.s.Nodes[to].Online
}

// snapshotsMove reports whether PVE carries a local volume's snapshots to
// another node.
func snapshotsMove(storageType, name string) bool {
	return storageType == "zfspool" || storageType == "btrfs" || strings.HasSuffix(name, ".qcow2")
}

// baseOf is the template's volume that a linked clone's name holds, where
// volumes are files or ZFS: 900/base-900-disk-0.raw/100/vm-100-disk-0.qcow2.
func baseOf(name string) (string, bool) {
	for _, part := range strings.Split(name, "/") {
		if strings.HasPrefix(part, "base-") || strings.HasPrefix(part, "basevol-") {
			return part, true
		}
	}
	return "", false
}
