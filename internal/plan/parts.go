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

// taken are the edits that PVE will take. What it refuses to every token
// changes nothing, so that no guest is taken down for it: it would be again in
// every cycle.
func (m *maker) taken(edits []field.Edit) []field.Edit {
	if m.s.RootTicket {
		return edits
	}
	return slices.DeleteFunc(slices.Clone(edits), func(e field.Edit) bool { return e.RootOnly != "" })
}

// parts cuts a guest's edits into config writes, in their order: PVE works
// through the keys of one write in no order (facts L). First what depends on
// nothing; then what another key of the first had to make way for; last what
// root@pam alone may write, so that PVE's refusal does not stop the others.
func (m *maker) parts(edits []field.Edit) [][]field.Edit {
	var plain, late, root []field.Edit
	drops := slices.ContainsFunc(edits, dropsProtection)
	cd := slices.ContainsFunc(edits, writesCD)
	for _, e := range edits {
		switch {
		case e.RootOnly != "" && !m.s.RootTicket:
			root = append(root, e)
		case e.Key == "boot" && cd, isMount(e.Key) && drops:
			late = append(late, e)
		default:
			plain = append(plain, e)
		}
	}
	return [][]field.Edit{plain, late, root}
}

// sent reports whether any of the parts goes to PVE. The last that does has the
// cloud-init drive written anew, which changes the config's digest.
func (m *maker) sent(parts [][]field.Edit) bool {
	return slices.ContainsFunc(parts, func(part []field.Edit) bool { return len(m.taken(part)) > 0 })
}

// nextBoot says when the guest sees new cloud-init data. The call that writes
// the drive anew is left out where the token lacks its right: the data is
// written all the same, and the next start makes the drive.
func (m *maker) nextBoot(a Action, g *live.Guest, step *UpdateStep) string {
	const right = "VM.Config.Cloudinit"
	if slices.ContainsFunc(guestPaths(a, g), func(path string) bool { return m.s.Holds(path, right) }) {
		return "; the guest reads its cloud-init data at its next boot"
	}
	step.RegenerateCloudInit = false
	return "; the guest reads its cloud-init data after a stop and start, for the token lacks " + right + " to have the drive written anew"
}

// protected leaves out the edits of a protected container's mount points,
// which PVE refuses (a VM's drives it lets change), and tells of them.
func (m *maker) protected(o *object, g *live.Guest, edits []field.Edit) []field.Edit {
	now, _ := g.Get("protection")
	if on, _ := wire.ParseBool(now); !on || !g.LXC || slices.ContainsFunc(edits, dropsProtection) {
		return edits
	}
	return slices.DeleteFunc(slices.Clone(edits), func(e field.Edit) bool {
		if !isMount(e.Key) {
			return false
		}
		o.anomaly(editPath(e), fmt.Sprintf("PVE changes no mount point of a protected container, and the manifest wants another %s", e.Key),
			"set options.protection to false for the change, or change the manifest")
		return true
	})
}

func isMount(key string) bool {
	class := wire.KeyClass(key)
	return class == "mp" && class != key
}

func dropsProtection(e field.Edit) bool {
	on, _ := wire.ParseBool(e.Value.String())
	return e.Key == "protection" && (e.Delete || !on)
}

// writesCD reports whether an edit writes a CD drive: PVE then appends it by
// itself to a boot order that does not name it (facts L), whatever the same
// write says of that.
func writesCD(e field.Edit) bool {
	if e.Delete || e.Value.IsSecret() || !wire.IsVolumeKey(false, e.Key) {
		return false
	}
	p := wire.ParseProps(e.Value.String(), wire.FormatOf(false, e.Key))
	media, _ := p.Get("media")
	file, _ := p.Get("file")
	return media == "cdrom" && !wire.IsCloudInit(file)
}

// keepBoot adds the edit of a boot order that is right now and that PVE will
// append a CD drive to.
func keepBoot(spec kind.GuestSpec, g *live.Guest, edits []field.Edit) []field.Edit {
	now, has := g.Get("boot")
	if g.LXC || !has || slices.ContainsFunc(edits, func(e field.Edit) bool { return e.Key == "boot" }) {
		return edits
	}
	order, _ := strings.CutPrefix(now, "order=")
	grown := order
	for _, e := range edits {
		if writesCD(e) && !slices.Contains(strings.Split(order, ";"), e.Key) {
			grown += ";" + e.Key
		}
	}
	if grown == order || strings.TrimSpace(order) == "" {
		return edits
	}
	for _, r := range field.Rows(spec.Shape(&g.Guest)) {
		if r.Key != "boot" || r.State() == field.Absent {
			continue
		}
		old := wire.Plain("order=" + grown)
		c := field.Change{Path: r.Path, Key: r.Key, Old: &old}
		e := field.Edit{Key: r.Key, Delete: true}
		if text, set := r.Wanted(); set {
			e.Delete, e.Value = false, wire.Plain(text)
			c.New = &e.Value
		}
		e.Changes = []field.Change{c}
		return append(slices.Clone(edits), e)
	}
	return edits
}
