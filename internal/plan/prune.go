package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/repo"
)

// # What may be deleted, and why so little is
//
// A delete is the one thing that a wrong plan cannot take back. So the guests
// that may be deleted are split off first, before any matching or comparing,
// and every later rule can only take one away, never add one.
//
// The split: a guest is a candidate only if it carries our tag, lives on a
// node of the allow-list, and its vmid is not declared, by whatever kind and
// for whatever node. Everything else in the cluster is foreign and no rule
// below ever sees it. Storage artifacts have no tag, so none can be one.
//
// The tag alone proves little: PVE copies it into every clone, also into one
// that somebody made by hand. Git knows better. A candidate that the whole
// history of the repository never declared is not ours (rule inherited-tag).
// Nor is one whose removed declaration was of a guest with another name or of
// the other type: PVE gives freed ids out again (rule reused-vmid). Where git's
// word is in doubt, or the files are, the guest stays (Word.Hold).
//
// A guest whose name is still declared, under another vmid, was not removed:
// somebody changed a number, maybe by mistake, and its volumes are all that
// there is of it (still-declared). So is one that another cluster of the
// repository declares by vmid and name, when both are one PVE: its manifest was
// moved (declared-elsewhere).
//
// A composition that lost a whole kind looks like a bad push, not like a
// decision (vanished-kind). A listing with a hole in it proves no absence
// (incomplete-read). PVE's own refusals are taken before they happen:
// protection, the HA manager, replication, linked clones. A locked guest is somebody's work
// in progress (busy). What is left goes in order, guests before the templates
// they may come from, until the cycle's budget is used up (budget).
//
// A suppressed delete stays in the plan, with the rule and what to do. And a
// planned one is not yet done: apply reads tag and identity once more, since
// the vmid may belong to another guest by then.

// rule takes a candidate away when it answers with a text.
type rule struct {
	name string
	why  func(m *maker, g *live.Guest) (text, todo string)
}

// rules are asked in this order; the budget comes after them all.
var rules = []rule{
	{"incomplete-read", incompleteRead},
	{"unreadable-history", unreadableHistory},
	{"still-declared", stillDeclared},
	{"declared-elsewhere", declaredElsewhere},
	{"vanished-kind", vanishedKind},
	{"busy", busyGuest},
	{"protection", protected},
	{"ha", haManaged},
	{"replication", replicated},
	{"linked-clones", linkedClones},
}

// Candidates lists the vmids that prune considers: what git's word is needed
// for. See Policy.Words.
func Candidates(c *repo.Cluster, s *live.Snapshot) []int {
	m := newMaker(c, s, Policy{})
	var out []int
	for _, g := range m.candidates() {
		out = append(out, g.VMID)
	}
	slices.Sort(out)
	return out
}

// candidates splits the guests that are ours to delete from all the others.
func (m *maker) candidates() []*live.Guest {
	var out []*live.Guest
	for id, g := range m.s.Guests {
		if m.declared[id] == nil && g.Tagged(kind.OwnerTag) && m.s.Nodes[g.Node].Allowed {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *live.Guest) int {
		return cmp.Or(templatesLast(a, b), strings.Compare(a.Node, b.Node), cmp.Compare(a.VMID, b.VMID))
	})
	return out
}

func templatesLast(a, b *live.Guest) int {
	switch {
	case a.Template == b.Template:
		return 0
	case b.Template:
		return -1
	}
	return 1
}

// prune plans the deletes.
func (m *maker) prune() {
	left := m.pol.PruneBudget
	for _, g := range m.candidates() {
		word := m.pol.Words[g.VMID]
		if word.Never && m.pol.Prune != "tagged" {
			m.inherited(g)
			continue
		}
		if m.pol.Prune != "tagged" && word.another(g) {
			m.reused(g, word)
			continue
		}
		if m.suppressed(g) {
			continue
		}
		if m.pol.PruneBudget > 0 && left == 0 {
			m.suppress(g, "budget", fmt.Sprintf("the budget of %d deletes a cycle is used up", m.pol.PruneBudget),
				"it is deleted in a later cycle; --prune-budget or reconcile.prune-budget change the number")
			continue
		}
		left--
		m.delete(g, word)
	}
}

func (m *maker) suppressed(g *live.Guest) bool {
	if h := m.pol.Words[g.VMID].Hold; h != nil && (h.Files || m.pol.Prune != "tagged") {
		m.suppress(g, h.Rule, h.Text, h.Todo)
		return true
	}
	for _, r := range rules {
		if text, todo := r.why(m, g); text != "" {
			m.suppress(g, r.name, text, todo)
			return true
		}
	}
	return false
}

func (m *maker) suppress(g *live.Guest, name, text, todo string) {
	m.out.Suppressed = append(m.out.Suppressed, Suppressed{Kind: kindOf(g.Type, g.Template), Name: g.Name, Node: g.Node, VMID: g.VMID,
		Rule: name, Text: text, Todo: todo})
}

// inherited reports a guest whose tag came from its template.
func (m *maker) inherited(g *live.Guest) {
	m.out.Anomalies = append(m.out.Anomalies, Anomaly{Ref: kind.Ref{Kind: kindOf(g.Type, g.Template).Name, Name: g.Name}, Node: g.Node, VMID: g.VMID,
		ID: strconv.Itoa(g.VMID), Anomaly: field.Anomaly{Path: "tags",
			Text: fmt.Sprintf("guest %d (%s) carries the tag %s, but its vmid was %s: the tag is inherited or was set by hand, it is not deleted", g.VMID, g.Name, kind.OwnerTag, m.pol.Words[g.VMID]),
			Todo: "declare the guest, or take the tag off it"}})
}

// reused reports a guest that lives under the vmid of a removed declaration
// and has another name or is of the other type: PVE offers freed ids first, so
// it is most likely a clone made by hand, which got the tag with everything else.
func (m *maker) reused(g *live.Guest, word Word) {
	m.out.Anomalies = append(m.out.Anomalies, Anomaly{Ref: kind.Ref{Kind: kindOf(g.Type, g.Template).Name, Name: g.Name}, Node: g.Node, VMID: g.VMID,
		ID: strconv.Itoa(g.VMID), Anomaly: field.Anomaly{Path: "tags",
			Text: fmt.Sprintf("guest %d (%s) carries the tag %s, but the declaration of %d that is gone (%s) was of %s: the vmid may have been used again, it is not deleted",
				g.VMID, g.Name, kind.OwnerTag, g.VMID, word, word.guest()),
			Todo: "take the tag off it, declare the guest, or give it its old name back if it is to go"}})
}

func (m *maker) delete(g *live.Guest, word Word) {
	k := kindOf(g.Type, g.Template)
	level := len(m.c.Levels)
	if g.Template {
		level++
	}
	step := DeleteStep{Guest: g.Type, Identity: g.Identity, Name: g.Name, Digest: g.Digest, Running: g.Running,
		Volumes: live.Volumes(&g.Guest), Commit: word.Commit, LinkedUnknown: g.LinkedUnknown}
	why := "not declared any more: " + word.String() + leftBehind(m.s, g)
	if len(g.LinkedUnknown) > 0 {
		why += fmt.Sprintf("; PVE does not tell whether it has linked clones on %s, they would live on", strings.Join(g.LinkedUnknown, ", "))
	}
	a := Action{Verb: Delete, Ref: kind.Ref{Kind: k.Name, Name: g.Name}, Kind: k, Node: g.Node, VMID: g.VMID, ID: strconv.Itoa(g.VMID),
		Level: level, Why: why, Do: step}
	if g.Running {
		a.Power = field.Stop
	}
	m.out.Actions = append(m.out.Actions, a)
}

// incompleteRead: what could not be read may be what would have kept it.
func incompleteRead(m *maker, g *live.Guest) (text, todo string) {
	switch {
	case !m.s.Complete:
		return "the cluster could not be read completely", "see the notes for what did not answer"
	case g.Unknown != "" || !g.Read:
		return "its config could not be read", "see the notes for what did not answer"
	}
	return "", ""
}

// stillDeclared: a vmid is the identity of a guest and never changes. A
// manifest with another number asks for a second guest, not for the end of the
// first one, which may hold the only data.
func stillDeclared(m *maker, g *live.Guest) (text, todo string) {
	for _, r := range m.c.Resources {
		spec, ok := r.Spec.(kind.GuestSpec)
		if !ok || r.Kind != kindOf(g.Type, g.Template) || !strings.EqualFold(r.Name, g.Name) && !strings.EqualFold(spec.WantName(), g.Name) {
			continue
		}
		_, id := spec.Place()
		return fmt.Sprintf("%s/%s is still declared, with vmid %d: a guest keeps its vmid, so that one is another guest and this one's volumes would be lost", r.Kind.Name, r.Name, id),
			fmt.Sprintf("put vmid %d back; if the new guest is to take its place, destroy this one by hand when nothing of it is needed any more (`%s destroy %d`)", g.VMID, Tool(g.Type), g.VMID)
	}
	return "", ""
}

// declaredElsewhere: two clusters of the repository can lead to one PVE, by an
// address and a name or by two nodes. Then a manifest that moved from one to the
// other would end the guest here and begin it there, empty.
func declaredElsewhere(m *maker, g *live.Guest) (text, todo string) {
	e, ok := m.pol.Elsewhere[g.VMID]
	switch {
	case !ok:
		return "", ""
	case e.Doubt != "":
		return fmt.Sprintf("cluster %s declares it in %s, and it is not known whether that is this same PVE: %s", e.Cluster, e.File, e.Doubt),
			fmt.Sprintf("see that cluster %s can be asked (proxops doctor --cluster %s): if it is another PVE this one is deleted then", e.Cluster, e.Cluster)
	}
	return fmt.Sprintf("cluster %s declares it in %s, and %s is this same PVE: a delete here would take it from there", e.Cluster, e.File, e.Cluster),
		fmt.Sprintf("keep one PVE in one directory under clusters/: bring the manifests of %s and %s together, or give each its own nodes", m.c.Name, e.Cluster)
}

// unreadableHistory: a repository that is damaged or lacks objects could have
// said that the tag is inherited. One without history could not.
func unreadableHistory(m *maker, g *live.Guest) (text, todo string) {
	word := m.pol.Words[g.VMID]
	if !word.Broken || m.pol.Prune == "tagged" {
		return "", ""
	}
	return word.String(), cmp.Or(word.Todo, "repair the repository (git fsck) or clone it anew") + "; with reconcile.prune: tagged the tag alone decides"
}

// vanishedKind: none of this kind is declared any more while tagged objects of
// it live.
func vanishedKind(m *maker, g *live.Guest) (text, todo string) {
	k := kindOf(g.Type, g.Template)
	if slices.ContainsFunc(m.resources, func(r *kind.Resource) bool { return r.Kind.Name == k.Name }) {
		return "", ""
	}
	if slices.ContainsFunc(m.pol.PruneVanished, func(s string) bool { return strings.EqualFold(s, k.Name) }) {
		return "", ""
	}
	return fmt.Sprintf("the composition declares no %s at all any more", k.Name),
		"check that this is meant, then run apply --prune-vanished " + k.Name
}

func busyGuest(m *maker, g *live.Guest) (text, todo string) {
	if g.Busy == "" {
		return "", ""
	}
	if g.Stale {
		return m.busyText(g), staleTodo(g)
	}
	return m.busyText(g), "it is deleted when it is free"
}

func protected(_ *maker, g *live.Guest) (text, todo string) {
	if v, _ := g.Get("protection"); v != "1" {
		return "", ""
	}
	return "its protection is on", fmt.Sprintf("`%s set %d --protection 0` if it is to go", Tool(g.Type), g.VMID)
}

func haManaged(m *maker, g *live.Guest) (text, todo string) {
	state := m.haState(g)
	if state == "" {
		return "", ""
	}
	sid := "vm:" + strconv.Itoa(g.VMID)
	if g.LXC {
		sid = "ct:" + strconv.Itoa(g.VMID)
	}
	return "the HA manager looks after it (" + state + ")", "`ha-manager remove " + sid + "` if it is to go"
}

func linkedClones(_ *maker, g *live.Guest) (text, todo string) {
	if len(g.Linked) == 0 {
		return "", ""
	}
	var ids []string
	for _, id := range g.Linked {
		ids = append(ids, strconv.Itoa(id))
	}
	return "linked clones depend on it: " + strings.Join(ids, ", "), "remove or fully copy the clones first"
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
