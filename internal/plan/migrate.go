package plan

import (
	"fmt"
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
// copied along.
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
		passed := strings.HasPrefix(key, "hostpci") || strings.HasPrefix(key, "usb") && strings.Contains(text, "host=")
		bind := g.LXC && strings.HasPrefix(key, "mp") && strings.HasPrefix(text, "/") && !strings.Contains(text, "shared=1")
		if passed && !strings.Contains(text, "mapping=") || bind {
			out = append(out, key+" is a device or path of node "+g.Node)
		}
	}
	for _, vol := range live.Volumes(&g.Guest) {
		st, _, _ := strings.Cut(vol, ":")
		if !m.s.Storages[live.Store{Node: g.Node, Storage: st}].Shared {
			local = true
		}
	}
	return out, local
}
