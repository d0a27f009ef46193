package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
)

// guest plans one VM, container or template. The vmid is the identity: PVE
// has one id space for the whole cluster, so the guest is looked for wherever
// it lives, and every question that could make it somebody else's is asked
// before anything is compared.
func (m *maker) guest(r *kind.Resource, spec kind.GuestSpec) {
	node, id := spec.Place()
	o := m.object(r, node, id, strconv.Itoa(id))
	g := m.s.Guests[id]
	if g == nil {
		m.absent(o, spec)
		return
	}
	o.row.Node = g.Node
	if state, why := m.unusable(o, g); state != "" {
		o.block("", why)
		o.done(state, why)
		return
	}
	claim, mine := m.claim(o, spec, g)
	if !mine {
		o.block("", "the guest with its vmid is not ours")
		o.done(Anomalous, "")
		return
	}
	if why := m.mistaken(o, spec, g); why != "" {
		o.block("", why)
		o.done(Anomalous, "")
		return
	}
	if g.Node != node && !m.misplaced(o, spec, g) {
		return
	}
	m.existing(o, spec, g, claim)
}

// unusable gives the state of an object whose guest cannot be planned now.
func (m *maker) unusable(o *object, g *live.Guest) (ObjectState, string) {
	n, known := m.s.Nodes[g.Node]
	switch {
	case known && !n.Allowed:
		why := fmt.Sprintf("vmid %d is the %s %q on node %s, which is not on the cluster's allow-list: hands off", g.VMID, word(g.Type, g.Template), g.Name, g.Node)
		o.anomaly("node", why, "if it is somebody else's, give the manifest a free vmid; if it is the one that is meant, move it to an allowed node, or add the node to `nodes` in the cluster's config.yaml")
		return Anomalous, why
	case g.Unknown != "":
		return Unknown, g.Unknown
	case !known || !n.Online || !g.Read:
		return Unknown, fmt.Sprintf("node %s does not answer", g.Node)
	case g.Busy != "":
		m.alarm(o, g)
		return Skipped, m.busyText(g)
	}
	return "", ""
}

// busyText says what holds the guest, since when and for how many hours.
func (m *maker) busyText(g *live.Guest) string {
	if g.BusySince.IsZero() {
		return g.Busy
	}
	text := g.Busy + ", since " + since(g)
	if h := int(g.BusyFor(m.pol.Now).Hours()); h > 0 && !m.pol.Now.IsZero() {
		text += fmt.Sprintf(", %d h", h)
	}
	return text
}

// since is in UTC, since a plan does not depend on who reads it where.
func since(g *live.Guest) string { return g.BusySince.UTC().Format("2006-01-02 15:04 UTC") }

// alarm makes an anomaly of a guest of ours that has been held for longer than
// any work on it should take: it is left alone meanwhile, and nobody may have
// noticed. The text holds no hours, so that it stays one and the same anomaly.
func (m *maker) alarm(o *object, g *live.Guest) {
	if g.Stale {
		o.anomaly("", g.Busy+": PVE never takes such a lock off by itself, and nothing is written to the guest meanwhile", staleTodo(g))
		return
	}
	if m.pol.Now.IsZero() || m.pol.BusyAlarm <= 0 || g.BusyFor(m.pol.Now) < m.pol.BusyAlarm {
		return
	}
	todo := "look at the task in PVE; the guest is reconciled when it has ended"
	if g.Lock != "" {
		todo = fmt.Sprintf("look at the task in PVE; `%s unlock %d` only when nothing works on the guest any more", Tool(g.Type), g.VMID)
	}
	o.anomaly("", fmt.Sprintf("%s, since %s: that is longer than reconcile.busy-alarm (%s), and nothing is written to the guest meanwhile",
		g.Busy, since(g), short(m.pol.BusyAlarm)), todo)
}

// staleTodo says how a lock is cleared that no task holds any more. Nothing
// here does it: what the dead task left may be of use. A guest without the
// ownership tag never was more than half made; one with it may be whole, since
// a clone inherits the tag and a restore takes over a guest that was there.
func staleTodo(g *live.Guest) string {
	look := fmt.Sprintf("look at guest %d and the last tasks on %s", g.VMID, g.Node)
	unlock := fmt.Sprintf("`%s unlock %d`", Tool(g.Type), g.VMID)
	destroy := fmt.Sprintf("`%s destroy %d`", Tool(g.Type), g.VMID)
	switch g.Lock {
	case "create", "clone":
		if !g.Tagged(kind.OwnerTag) {
			return look + "; it is half made: clear it there with " + unlock + " and then " + destroy + ", and it is made anew"
		}
		return look + ": " + unlock + " if its disks are whole, otherwise " + unlock + " and then " + destroy
	case "migrate":
		return look + ", and on which node its disks are; then " + unlock + " on " + g.Node
	case "snapshot", "snapshot-delete", "rollback":
		return look + ", and for a half-made snapshot; then " + unlock + " on " + g.Node
	}
	return look + "; then " + unlock + " there"
}

// short is a duration without the zeros behind it: 6h, not 6h0m0s.
func short(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if rest, ok := strings.CutSuffix(text, zero); ok && rest != "" && (rest[len(rest)-1] == 'm' || rest[len(rest)-1] == 'h') {
			text = rest
		}
	}
	return text
}

// claim decides whether the guest with the wanted vmid is ours. It is when it
// carries the ownership tag or is a clone of ours whose configuration broke
// off. Otherwise it may be claimed, by its first update, only if its type
// matches and it bears the wanted name or the manifest says so; anything else
// is somebody's guest, and nothing is written to it.
func (m *maker) claim(o *object, spec kind.GuestSpec, g *live.Guest) (claim, mine bool) {
	if g.Type != o.r.Kind.Guest {
		o.anomaly("vmid", fmt.Sprintf("vmid %d is a %s on %s, the manifest is a %s: nothing is written", g.VMID, word(g.Type, g.Template), g.Node, o.r.Kind.Name),
			"give the manifest a free vmid, or remove the guest by hand")
		return false, false
	}
	if g.Template && !o.r.Kind.Template {
		o.anomaly("vmid", fmt.Sprintf("vmid %d is a template on %s, the manifest is a %s: PVE has no way back from a template, nothing is written", g.VMID, g.Node, o.r.Kind.Name),
			"make the manifest a "+templateKind(g.Type)+", or give it a free vmid")
		return false, false
	}
	if g.Tagged(kind.OwnerTag) || m.unfinishedClone(spec, g) {
		return false, true
	}
	if o.r.Annotations.Claim {
		return true, true
	}
	if g.Name == spec.WantName() {
		if !o.r.Kind.Template || g.Template {
			return true, true
		}
		o.anomaly("vmid", fmt.Sprintf("guest %d (%s) is no template and does not carry the tag %s: claiming it would make it a template, which PVE cannot undo, so nothing is written", g.VMID, g.Name, kind.OwnerTag),
			"set the annotation proxops/claim: \"true\" if that is meant")
		return false, false
	}
	o.anomaly("vmid", fmt.Sprintf("vmid %d is the guest %q on %s, which does not carry the tag %s: it is somebody else's, nothing is written", g.VMID, g.Name, g.Node, kind.OwnerTag),
		"give the manifest a free vmid; if that guest is meant, set the annotation proxops/claim: \"true\" in the manifest")
	return false, false
}

// mistaken reports a guest of ours that the manifest can hardly mean, and says
// why: what would be done to it cannot be undone.
func (m *maker) mistaken(o *object, spec kind.GuestSpec, g *live.Guest) string {
	if o.r.Kind.Template && !g.Template && g.Running {
		why := fmt.Sprintf("guest %d (%s) runs: to make it a template would stop it, and PVE has no way back from a template", g.VMID, g.Name)
		o.anomaly("", why+": nothing is written", fmt.Sprintf("make the manifest a %s; if it is to be a template, shut it down first (`%s shutdown %d`)", kindOf(g.Type, false).Name, Tool(g.Type), g.VMID))
		return why
	}
	if strings.EqualFold(g.Name, spec.WantName()) {
		return ""
	}
	// With the vmids of two guests mixed up, each would get the other's name on
	// its own disks. Where names are handed on, the last goes first.
	for _, id := range slices.Sorted(maps.Keys(m.s.Guests)) {
		x := m.s.Guests[id]
		if x.VMID != g.VMID && x.Type == g.Type && x.Tagged(kind.OwnerTag) && strings.EqualFold(x.Name, spec.WantName()) {
			why := fmt.Sprintf("vmid %d is the guest %q, and %q lives under vmid %d", g.VMID, g.Name, x.Name, x.VMID)
			o.anomaly("vmid", why+": a guest keeps its vmid, so nothing is written", fmt.Sprintf("give the manifest vmid %d; if %d is to be renamed, give %d another name first", x.VMID, g.VMID, x.VMID))
			return why
		}
	}
	return ""
}

func word(guestType string, template bool) string {
	switch {
	case guestType == "lxc" && template:
		return "container template"
	case guestType == "lxc":
		return "container"
	case template:
		return "VM template"
	}
	return "VM"
}

func templateKind(guestType string) string { return kindOf(guestType, true).Name }

// kindOf is the kind of a live guest.
func kindOf(guestType string, template bool) *kind.Kind {
	i := slices.IndexFunc(kind.All, func(k *kind.Kind) bool { return k.Guest == guestType && k.Template == template })
	return kind.All[i]
}

// misplaced handles a guest of ours that lives on another node than its
// manifest says. It reports whether planning goes on where the guest lives.
func (m *maker) misplaced(o *object, spec kind.GuestSpec, g *live.Guest) bool {
	node, _ := spec.Place()
	where := fmt.Sprintf("it lives on %s, the manifest says %s", g.Node, node)
	switch o.r.Annotations.Placement {
	case "follow":
		return true
	case "migrate":
		m.migrate(o, spec, g, where)
	default:
		d := m.delta(o.r, spec, g, false)
		todo := "move it back, change `node`, or set the annotation proxops/placement to follow or migrate"
		if n := len(changes(d.Edits)) + len(d.Grows); n > 0 {
			where += fmt.Sprintf("; %d fields differ too: %s", n, paths(d))
		}
		o.anomaly("node", where+": nothing is written", todo)
	}
	o.block("", where)
	o.done("", where)
	return false
}

// delta is what separates the guest from its manifest, with the rules that
// need more than one field: the ownership tag, the text of an unfinished
// clone.
func (m *maker) delta(r *kind.Resource, spec kind.GuestSpec, g *live.Guest, afterClone bool) field.Delta {
	description := ""
	if afterClone {
		description = m.templateText(spec)
	}
	return Configure(r, &g.Guest, m.s.Options, afterClone, description)
}

// existing plans a guest that is there and ours.
func (m *maker) existing(o *object, spec kind.GuestSpec, g *live.Guest, claim bool) {
	unfinished := m.unfinishedClone(spec, g)
	d := m.delta(o.r, spec, g, unfinished)
	o.anomalies = append(o.anomalies, d.Anomalies...)
	o.anomalies = append(o.anomalies, spec.Undeclared(&g.Guest)...)
	if g.Running { // what is stopped has nothing to wait for: its next start takes it all
		o.row.Waiting = d.Waiting
	}
	m.foreignPending(o, g, d)
	m.preflight(o, spec, g.Node, d.Edits, &g.Guest)
	m.steps(o, spec, g, d, reason(d, claim, unfinished))
	if o.r.Kind.Template && !g.Template {
		m.making[o.row.Ref] = true
	}
	if len(o.row.Waiting) > 0 && !slices.ContainsFunc(o.actions, func(a Action) bool { _, power := a.Do.(PowerStep); return power }) {
		o.row.Todo = m.endsWait(o, g)
	}
	o.done("", waitingText(o.row.Waiting))
}

// endsWait says how what waits for a restart of a running guest gets it.
func (m *maker) endsWait(o *object, g *live.Guest) string {
	if m.pol.restart(o.r.Annotations) == "window" {
		_, when := m.pol.mayRestart(o.r.Annotations)
		return when
	}
	return fmt.Sprintf("restart it with `%s reboot %d`, or set the annotation proxops/restart to immediate or window", Tool(g.Type), g.VMID)
}

// foreignPending shows what waits for a restart on keys that the manifest does
// not own: a restart of ours would bring it about, too, and a start, or on a
// stopped guest any write of its config.
func (m *maker) foreignPending(o *object, g *live.Guest, d field.Delta) {
	ours := map[string]bool{}
	for _, e := range d.Edits {
		ours[e.Key] = true
	}
	for _, c := range d.Waiting {
		key, _, _ := strings.Cut(c.Key, ".")
		ours[key] = true
	}
	for _, key := range sortedKeys(g.Config) {
		e := g.Config[key]
		same := e.Pending != nil && e.Value != nil && *e.Pending == *e.Value // a change to what there is
		if ours[key] || same || e.Pending == nil && !e.Delete {
			continue
		}
		if !g.Running {
			o.anomaly("", fmt.Sprintf("%s has a change that takes effect at the next start and that the manifest does not own", key),
				"start the guest, or set the value anew with `"+Tool(g.Type)+" set "+strconv.Itoa(g.VMID)+"`")
			continue
		}
		o.anomaly("", fmt.Sprintf("%s has a change that waits for a restart and that the manifest does not own", key),
			"restart the guest to let it take effect, or drop it with `"+Tool(g.Type)+" set "+strconv.Itoa(g.VMID)+" --revert "+key+"`")
	}
}

// Tool is the command on a node for guests of a type ("qemu" or "lxc").
func Tool(guestType string) string {
	if guestType == "lxc" {
		return "pct"
	}
	return "qm"
}

// reason words why an update is made.
func reason(d field.Delta, claim, unfinished bool) string {
	what := "drift: " + paths(d)
	switch {
	case unfinished:
		return "the configuration of this clone broke off: it is written again"
	case claim:
		claims := "claims the guest: adds the tag " + kind.OwnerTag
		if tagAlone := len(changedTags(changes(d.Edits))) == 1; tagAlone { // said already
			d = withoutTags(d)
		}
		if what := paths(d); what != "" {
			return claims + "; drift: " + what
		}
		return claims
	}
	return what
}

func withoutTags(d field.Delta) field.Delta {
	d.Edits = slices.DeleteFunc(slices.Clone(d.Edits), func(e field.Edit) bool { return e.Key == "tags" })
	return d
}

// paths names the first fields of a delta.
func paths(d field.Delta) string {
	var names []string
	for _, c := range changes(d.Edits) {
		names = append(names, c.Path)
	}
	for _, g := range d.Grows {
		names = append(names, g.Change.Path)
	}
	const most = 3
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

func changes(edits []field.Edit) []field.Change {
	var out []field.Change
	for _, e := range edits {
		out = append(out, e.Changes...)
	}
	return out
}

func waitingText(waiting []field.Change) string {
	if len(waiting) == 0 {
		return ""
	}
	var keys []string
	for _, c := range waiting {
		keys = append(keys, c.Path)
	}
	return "waits for a restart: " + strings.Join(keys, ", ")
}
