package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/wire"
)

// CloneMarker is the description of a clone whose configuration has not been
// written yet. A guest found with it gets the whole write again, so that a
// crash between the two leaves nothing of its template's identity behind.
const CloneMarker = "proxops: configuring clone"

// absent plans a guest that the cluster's list does not have. The list hides
// what the token may not audit, so a create needs nextid's word that the id is
// free in the whole cluster.
func (m *maker) absent(o *object, spec kind.GuestSpec) {
	node, id := spec.Place()
	n, known := m.s.Nodes[node]
	free, asked := m.s.Free[id]
	wait := func(state ObjectState, why string) {
		o.block("", why)
		o.done(state, why)
	}
	switch {
	case !known:
		o.fault("node", "the cluster has no node %s", node)
		wait("", "the cluster has no node "+node)
		return
	case !n.Online:
		wait(Unknown, fmt.Sprintf("node %s does not answer", node))
		return
	case !asked:
		wait(Unknown, fmt.Sprintf("whether vmid %d is free could not be asked", id))
		return
	case !free:
		why := fmt.Sprintf("vmid %d is taken by a guest that this token cannot see", id)
		o.anomaly("vmid", why+": it is not visible, not absent", fmt.Sprintf("give the token VM.Audit on /vms/%d, or the manifest a free vmid", id))
		wait(Unknown, why)
		return
	}
	if why := m.waitsFor(o.r, node); why != "" {
		wait(Skipped, why)
		return
	}
	if err := spec.CreateFault(); err != nil {
		o.faultOf(err)
	} else if tpl, ok := spec.CloneOf(); ok {
		m.clone(o, spec, tpl)
	} else {
		m.create(o, spec)
	}
	if o.failed {
		o.block("", "it cannot be made: see the errors")
	} else {
		m.making[o.row.Ref] = true
	}
	o.done(Desired, "")
}

func (m *maker) create(o *object, spec kind.GuestSpec) {
	node, _ := spec.Place()
	nothing := field.Guest{LXC: o.r.Kind.Guest == "lxc", Env: field.Env{TagsCaseSensitive: m.s.Options.TagsCaseSensitive, Creating: true}}
	d := Configure(o.r, &nothing, m.s.Options, false, "")
	for _, a := range d.Anomalies {
		o.fault(a.Path, "%s: %s", a.Text, a.Todo)
	}
	m.preflight(o, spec, node, d.Edits, &nothing)
	p, storages := params(d.Edits)
	why := "not there"
	if _, said := p.Get("unprivileged"); nothing.LXC && !said {
		why += "; PVE makes it unprivileged, as options.unprivileged says nothing"
	}
	a := Action{Verb: Create, Why: why, Changes: append(changes(d.Edits), started(o.r, spec)...),
		Do: CreateStep{Guest: o.r.Kind.Guest, Params: p, Storages: storages, Mark: o.r.Kind.Template, Start: spec.Started() && !o.r.Kind.Template}}
	m.rootOnly(&a, d.Edits)
	o.act(a)
}

// started is the line that says that a new guest is started once it is made.
// No key of PVE's stands behind it.
func started(r *kind.Resource, spec kind.GuestSpec) []field.Change {
	if r.Kind.Template || !spec.Started() {
		return nil
	}
	on := wire.Plain("started")
	return []field.Change{{Path: "state", New: &on}}
}

// rootOnly marks an action that holds a field which PVE takes from root@pam
// with a password only.
func (m *maker) rootOnly(a *Action, edits []field.Edit) {
	if !m.s.RootTicket && slices.ContainsFunc(edits, func(e field.Edit) bool { return e.RootOnly != "" }) {
		a.RootOnly, a.Refused = true, rootText(edits)
	}
}

// clone plans a full clone and the write that follows it. That write is
// computed by apply from the clone as PVE made it; here it is shown as it
// follows from the template.
func (m *maker) clone(o *object, spec kind.GuestSpec, tpl *kind.Resource) {
	node, _ := spec.Place()
	src, ok := tpl.Spec.(kind.GuestSpec)
	if !ok {
		o.fault("clone", "%s is no template", tpl.Ref())
		return
	}
	_, source := src.Place()
	g := m.s.Guests[source]
	switch {
	case g == nil && !m.making[tpl.Ref()]:
		o.fault("clone", "%s is not there", tpl.Ref())
		return
	case g != nil && g.Node != node:
		o.fault("clone", "%s lives on %s: PVE clones on the template's node, and this manifest says %s", tpl.Ref(), g.Node, node)
		return
	}
	base := field.Guest{Exists: true, Config: map[string]field.Entry{}, Env: field.Env{TagsCaseSensitive: m.s.Options.TagsCaseSensitive}}
	var storages []string
	if g != nil && g.Read {
		base.Config = asClone(g)
		for _, v := range live.Volumes(&g.Guest) {
			st, _, _ := strings.Cut(v, ":")
			storages = append(storages, st)
		}
	}
	text := m.templateText(spec)
	d := Configure(o.r, &base, m.s.Options, true, text)
	m.preflight(o, spec, node, d.Edits, &base)
	for _, e := range d.Edits {
		if e.Create && e.Storage != "" {
			storages = append(storages, e.Storage)
		}
	}
	slices.Sort(storages)
	step := CloneStep{Source: source, Storages: slices.Compact(storages), Resource: o.r, Description: text, Options: m.s.Options, Start: spec.Started(),
		nets: m.sourceNets(g, tpl), write: UpdateOf(&base, d.Edits)}
	step.write.Pool = nil // PVE is told at the clone
	step.Params.Set("name", wire.Plain(spec.WantName()))
	step.Params.Set("full", wire.Plain("1"))
	step.Params.Set("description", wire.Plain(CloneMarker))
	if pool, ok := spec.Pool().Get(); ok {
		step.Params.Set("pool", wire.Plain(pool))
	}
	a := Action{Verb: Clone, Why: fmt.Sprintf("not there; a full clone of %s (%d)", tpl.Ref(), source), Changes: append(changes(d.Edits), started(o.r, spec)...), Do: step}
	m.rootOnly(&a, d.Edits)
	o.act(a)
}

// netsIn are the cards of a live guest.
func netsIn(g *live.Guest) map[string]string {
	out := devicesOf(g)
	maps.DeleteFunc(out, func(key, _ string) bool { return !strings.HasPrefix(key, "net") })
	return out
}

// sourceNets are the cards of a template, as it is live or else as the same run
// makes it.
func (m *maker) sourceNets(g *live.Guest, tpl *kind.Resource) map[string]string {
	if g != nil && g.Read {
		return netsIn(g)
	}
	out := map[string]string{}
	nothing := field.Guest{Env: field.Env{Creating: true}}
	for _, e := range Configure(tpl, &nothing, m.s.Options, false, "").Edits {
		if !e.Delete && strings.HasPrefix(e.Key, "net") {
			out[e.Key] = e.Value.String()
		}
	}
	return out
}

// asClone is the template's config as its clone will show it: not a template,
// and with the marker.
func asClone(g *live.Guest) map[string]field.Entry {
	out := map[string]field.Entry{}
	marker := CloneMarker
	for k, e := range g.Config {
		if k != "template" && k != "pool" && k != "name" {
			out[k] = e
		}
	}
	out["description"] = field.Entry{Value: &marker}
	return out
}

// unfinishedClone reports whether the guest is a clone of ours that was never
// configured.
func (m *maker) unfinishedClone(spec kind.GuestSpec, g *live.Guest) bool {
	_, clone := spec.CloneOf()
	text, _ := g.Get("description")
	return clone && strings.TrimSpace(text) == CloneMarker
}

// templateText is the description of the clone's template, as it is live or
// else as it is declared by the same run.
func (m *maker) templateText(spec kind.GuestSpec) string {
	tpl, ok := spec.CloneOf()
	if !ok {
		return ""
	}
	src, ok := tpl.Spec.(kind.GuestSpec)
	if !ok {
		return ""
	}
	_, id := src.Place()
	if g := m.s.Guests[id]; g != nil && g.Read {
		text, _ := g.Get("description")
		return text
	}
	nothing := field.Guest{Env: field.Env{Creating: true}}
	for _, e := range Configure(tpl, &nothing, m.s.Options, false, "").Edits {
		if e.Key == "description" && !e.Delete {
			return e.Value.String()
		}
	}
	return ""
}

// Configure is the config write that takes a guest to its manifest: the
// fields' own diff, the ownership tag, and the description that a clone gets
// back. Apply uses it for the write after a clone.
func Configure(r *kind.Resource, g *field.Guest, o live.Options, afterClone bool, description string) field.Delta {
	spec := r.Spec.(kind.GuestSpec)
	view := *g
	view.Env.AfterClone = afterClone
	view.Env.TagsCaseSensitive = o.TagsCaseSensitive
	d := field.Diff(spec.Shape(&view), &view)
	d.Edits = slices.DeleteFunc(slices.Clone(d.Edits), func(e field.Edit) bool { return e.Key == "tags" })
	if e, ok := tagEdit(spec.Tags(), &view, o); ok {
		d.Edits = append(d.Edits, e)
	}
	if e, ok := restoreText(d.Edits, &view, description); afterClone && ok {
		d.Edits = append(d.Edits, e)
	}
	slices.SortStableFunc(d.Edits, func(a, b field.Edit) int { return strings.Compare(a.Key, b.Key) })
	return d
}

// restoreText puts the template's description in the marker's place where the
// manifest declares none.
func restoreText(edits []field.Edit, g *field.Guest, description string) (field.Edit, bool) {
	owned := slices.ContainsFunc(edits, func(e field.Edit) bool { return e.Key == "description" })
	now, _ := g.Get("description")
	if owned || strings.TrimSpace(now) != CloneMarker {
		return field.Edit{}, false
	}
	old := wire.Plain(now)
	c := field.Change{Path: "pve-description", Key: "description", Old: &old}
	e := field.Edit{Key: "description", Delete: description == ""}
	if description != "" {
		e.Value = wire.Plain(description)
		c.New = &e.Value
	}
	e.Changes = []field.Change{c}
	return e, true
}
