package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/wire"
)

// steps turns a delta into the guest's actions. Their order is the order in
// which PVE keeps every value:
//
//   - a disk grows before its text is written again: text that PVE holds
//     pending would bring the old size back at the next start (facts D);
//   - a template is marked when its config is right;
//   - power comes last, as actions of its own. Only a guest that is to be
//     stopped anyway is stopped first: what waits for that is written then.
func (m *maker) steps(o *object, spec kind.GuestSpec, g *live.Guest, d field.Delta, why string) {
	edits := keepBoot(spec, g, m.protected(o, g, m.reverts(g, d.Edits)))
	taken := m.taken(edits)
	stopFirst := g.Running && !spec.Started() && needsRestart(taken)
	restart := g.Running && spec.Started() && m.restartsFor(o, taken)
	at := g // as the writes find it
	if stopFirst {
		m.stop(o, g, "state: stopped")
		for i := range edits {
			edits[i].Impact = field.None
		}
		down := *g
		down.Running = false // PVE drops what is pending on a running guest alone (facts D)
		at = &down
	}
	m.resize(o, at, d.Grows)
	m.update(o, at, edits, why)
	m.powerAndMark(o, spec, g, stopFirst, restart)
}

func (m *maker) powerAndMark(o *object, spec kind.GuestSpec, g *live.Guest, stopped, restart bool) {
	running := g.Running && !stopped
	if o.r.Kind.Template {
		if !g.Template {
			o.act(Action{Verb: MarkTemplate, Node: g.Node, Why: "not a template yet; there is no way back", Do: MarkStep{Guest: g.Type}})
		}
		return
	}
	switch {
	case running && !spec.Started():
		m.stop(o, g, "state: stopped")
	case !running && spec.Started():
		o.act(Action{Verb: Start, Node: g.Node, Why: "state: started", Do: PowerStep{Guest: g.Type, Start: true, HA: g.HA != ""}})
	case restart:
		o.act(Action{Verb: Restart, Node: g.Node, Why: "restart policy " + m.pol.restart(o.r.Annotations) + ": " + restartWhy(o), Power: field.Stop, Disrupts: true,
			Do: PowerStep{Guest: g.Type, Start: true, Stop: true, Force: o.r.Annotations.ForceStop, HA: g.HA != ""}})
	}
}

// stop plans a clean shutdown.
func (m *maker) stop(o *object, g *live.Guest, why string) {
	o.act(Action{Verb: Stop, Node: g.Node, Why: why, Power: field.Stop, Do: PowerStep{Guest: g.Type, Stop: true, Force: o.r.Annotations.ForceStop, HA: g.HA != ""}})
}

func restartWhy(o *object) string {
	var names []string
	for _, c := range o.row.Waiting {
		names = append(names, c.Path)
	}
	for _, a := range o.actions {
		for _, c := range a.Changes {
			if c.Impact == field.Pending && !a.RootOnly {
				names = append(names, c.Path)
			}
		}
	}
	return strings.Join(names, ", ")
}

func needsRestart(edits []field.Edit) bool {
	return slices.ContainsFunc(edits, func(e field.Edit) bool { return e.Impact == field.Pending })
}

// restartsFor reports whether the guest is restarted in this plan for keys of
// ours that wait for it.
func (m *maker) restartsFor(o *object, edits []field.Edit) bool {
	if !needsRestart(edits) && len(o.row.Waiting) == 0 {
		return false
	}
	ok, _ := m.pol.mayRestart(o.r.Annotations)
	return ok
}

// reverts leaves the edits as they are but marks those that only undo what
// somebody else left pending: PVE drops such a change at once.
func (m *maker) reverts(g *live.Guest, edits []field.Edit) []field.Edit {
	out := slices.Clone(edits)
	for i, e := range out {
		if g.Running && isRevert(&g.Guest, e) {
			out[i].Impact = field.Live
			if g.LXC { // PVE asks no right of its own for dropping what is pending on a container
				out[i].RootOnly, out[i].RootPaths = "", nil
			}
		}
	}
	return out
}

// isRevert reports whether the edit asks for what already runs.
func isRevert(g *field.Guest, e field.Edit) bool {
	now, ok := g.Config[e.Key]
	if !ok || now.Pending == nil && !now.Delete || e.Create {
		return false
	}
	if e.Delete {
		return now.Value == nil
	}
	return now.Value != nil && !e.Value.IsSecret() && *now.Value == e.Value.String()
}

func (m *maker) resize(o *object, g *live.Guest, grows []field.Grow) {
	for _, gr := range grows {
		c := gr.Change
		text, _ := g.Get(gr.Key)
		storage, _, _ := strings.Cut(text, ":")
		o.act(Action{Verb: Resize, Node: g.Node, Why: "grow: true", Power: impact(g, field.Live), Changes: []field.Change{c},
			Do: ResizeStep{Guest: g.Type, Key: gr.Key, Storage: storage, To: gr.To, Digest: g.Digest}})
	}
}

func impact(g *live.Guest, i field.Impact) field.Impact {
	if g.Running {
		return i
	}
	return field.None
}

// update plans the config writes, each with its own action.
func (m *maker) update(o *object, g *live.Guest, edits []field.Edit, why string) {
	parts := m.parts(edits)
	anew := slices.ContainsFunc(parts, func(part []field.Edit) bool { return UpdateOf(&g.Guest, part).RegenerateCloudInit })
	for i, part := range parts {
		if len(part) == 0 {
			continue
		}
		a := Action{Verb: Update, Node: g.Node, VMID: g.VMID, Why: why, Power: worst(part), Changes: changes(part)}
		if part[0].RootOnly != "" && !m.s.RootTicket {
			a.RootOnly, a.Refused = true, rootText(part)
		}
		step := UpdateOf(&g.Guest, part)
		step.Digest = g.Digest
		step.RegenerateCloudInit = anew && !a.RootOnly && !m.sent(parts[i+1:])
		if step.RegenerateCloudInit {
			a.Why += m.nextBoot(a, g, &step)
		}
		if made := newVolumes(&g.Guest, part); made != "" {
			a.Why += "; " + made
		}
		a.Do = step
		o.act(a)
	}
}

func rootText(edits []field.Edit) string {
	var parts []string
	for _, e := range edits {
		if e.RootOnly == "" {
			continue
		}
		parts = append(parts, cmp.Or(strings.Join(e.RootPaths, ", "), e.Key)+": "+e.RootOnly)
	}
	slices.Sort(parts)
	return strings.Join(slices.Compact(parts), "; ") + ": PVE refuses it to every token"
}

func worst(edits []field.Edit) field.Impact {
	var out field.Impact
	for _, e := range edits {
		out = max(out, e.Impact)
	}
	return out
}

// UpdateOf is the config write that makes the edits.
func UpdateOf(g *field.Guest, edits []field.Edit) UpdateStep {
	step := UpdateStep{Guest: guestType(g)}
	edits = slices.Clone(edits)
	slices.SortFunc(edits, func(a, b field.Edit) int { return cmp.Compare(a.Key, b.Key) })
	data := false // what ends up on the cloud-init drive changes
	for _, e := range edits {
		data = data || cloudInitData(e)
		switch {
		case e.Key == "pool":
			from, _ := g.Get("pool")
			step.Pool = &PoolMove{From: from}
			if !e.Delete {
				step.Pool.To = e.Value.String()
			}
		case g.Running && isRevert(g, e):
			step.Revert = append(step.Revert, e.Key)
		case e.Delete:
			step.Delete = append(step.Delete, e.Key)
		default:
			step.Params.Set(e.Key, e.Value)
		}
		if e.Create && e.Storage != "" && !slices.Contains(step.Storages, e.Storage) {
			step.Storages = append(step.Storages, e.Storage)
		}
	}
	step.RegenerateCloudInit = data && g.Running && !g.LXC && hasCloudInitDrive(g)
	return step
}

func guestType(g *field.Guest) string {
	if g.LXC {
		return "lxc"
	}
	return "qemu"
}

// cloudInitData reports whether a VM's edit ends up on its cloud-init drive:
// the data, the name as host name, and which cards there are. PVE writes the
// drive at each start; a running guest sees a change at its next reboot only
// if the drive is written anew now.
func cloudInitData(e field.Edit) bool {
	switch e.Key {
	case "ciuser", "cipassword", "citype", "cicustom", "ciupgrade", "sshkeys", "nameserver", "searchdomain", "name":
		return true
	}
	if class := wire.KeyClass(e.Key); class != e.Key && class == "net" {
		return e.Impact == field.Live && slices.ContainsFunc(e.Changes, func(c field.Change) bool {
			return c.Key == e.Key+".macaddr" || c.Key == e.Key+".model" || c.Key == e.Key+".bridge" && c.Old == nil
		})
	}
	return strings.HasPrefix(e.Key, "ipconfig")
}

func hasCloudInitDrive(g *field.Guest) bool {
	for key, e := range g.Config {
		if e.Value != nil && wire.IsVolumeKey(g.LXC, key) && wire.IsCloudInit(firstToken(*e.Value)) {
			return true
		}
	}
	return false
}

// params are the parameters of a create call.
func params(edits []field.Edit) (out wire.Params, storages []string) {
	edits = slices.Clone(edits)
	slices.SortFunc(edits, func(a, b field.Edit) int { return cmp.Compare(a.Key, b.Key) })
	for _, e := range edits {
		if e.Delete {
			continue
		}
		out.Set(e.Key, e.Value)
		if e.Storage != "" && !slices.Contains(storages, e.Storage) {
			storages = append(storages, e.Storage)
		}
	}
	slices.Sort(storages)
	return out, storages
}
