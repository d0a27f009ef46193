package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/repo"
)

// Make computes the plan that takes the snapshot to the desired state. It is a
// function of its arguments alone, and equal arguments give equal bytes,
// whatever order resources and listings came in.
func Make(c *repo.Cluster, s *live.Snapshot, pol Policy) Plan {
	m := newMaker(c, s, pol)
	for _, r := range m.resources {
		switch spec := r.Spec.(type) {
		case kind.ArtifactSpec:
			m.artifact(r, spec)
		case kind.GuestSpec:
			m.guest(r, spec)
		}
	}
	m.prune()
	return m.finish()
}

// Writes reports whether the plan changes anything.
func (p Plan) Writes() bool { return len(p.Actions) > 0 }

// Deletes reports whether the plan deletes a guest.
func (p Plan) Deletes() bool {
	return slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Verb == Delete })
}

// WriteNodes lists the nodes that the plan works on, sorted.
func (p Plan) WriteNodes() []string {
	var out []string
	for _, a := range p.Actions {
		if !slices.Contains(out, a.Node) {
			out = append(out, a.Node)
		}
	}
	slices.Sort(out)
	return out
}

// maker is one Make under way.
type maker struct {
	c         *repo.Cluster
	s         *live.Snapshot
	pol       Policy
	resources []*kind.Resource // by level, then name
	level     map[kind.Ref]int
	declared  map[int]*kind.Resource
	blocked   map[place]string // why a prerequisite cannot be had in this cycle
	making    map[kind.Ref]bool
	out       Plan
}

// place is an object on a node: an artifact may be there on one node and not
// on another. Guests have one place, with the empty node.
type place struct {
	ref  kind.Ref
	node string
}

func newMaker(c *repo.Cluster, s *live.Snapshot, pol Policy) *maker {
	m := &maker{c: c, s: s, pol: pol, level: map[kind.Ref]int{}, declared: map[int]*kind.Resource{},
		blocked: map[place]string{}, making: map[kind.Ref]bool{}, out: Plan{Cluster: c.Name, Commit: c.Commit, Dirty: c.Dirty, Levels: c.Levels}}
	for i, refs := range c.Levels {
		for _, ref := range refs {
			m.level[ref] = i
		}
	}
	m.resources = slices.Clone(c.Resources)
	slices.SortFunc(m.resources, func(a, b *kind.Resource) int {
		return cmp.Or(cmp.Compare(m.level[a.Ref()], m.level[b.Ref()]), cmp.Compare(a.Kind.Name, b.Kind.Name), cmp.Compare(a.Name, b.Name))
	})
	for _, r := range m.resources {
		if g, ok := r.Spec.(kind.GuestSpec); ok {
			_, id := g.Place()
			m.declared[id] = r
		}
	}
	m.out.Notes = append(m.out.Notes, c.Warnings...)
	for _, p := range s.Problems {
		m.out.Notes = append(m.out.Notes, "not read: "+p)
	}
	return m
}

// object is the work on one declared object: what it will be in the plan.
type object struct {
	m         *maker
	r         *kind.Resource
	row       Object
	actions   []Action
	anomalies []field.Anomaly
	failed    bool
}

func (m *maker) object(r *kind.Resource, node string, vmid int, id string) *object {
	return &object{m: m, r: r, row: Object{Ref: r.Ref(), Kind: r.Kind, Node: node, VMID: vmid, ID: id,
		Needs: r.Depends, Level: m.level[r.Ref()], File: r.File}}
}

// act appends an action of the object; those of one object run in this order.
func (o *object) act(a Action) {
	a.Ref, a.Kind, a.VMID, a.ID, a.Level, a.Needs = o.row.Ref, o.row.Kind, o.row.VMID, o.row.ID, o.row.Level, o.row.Needs
	if a.Node == "" {
		a.Node = o.row.Node
	}
	a.Windowed = a.Disrupts && o.m.pol.restart(o.r.Annotations) == "window"
	o.actions = append(o.actions, a)
}

func (o *object) anomaly(path, text, todo string) {
	o.anomalies = append(o.anomalies, field.Anomaly{Path: path, Text: text, Todo: todo})
}

// fault is an error of this object alone.
func (o *object) fault(path, format string, args ...any) {
	o.failed = true
	o.m.out.Errors = append(o.m.out.Errors, ObjectError{Ref: o.row.Ref, File: position(o.r, path), Path: path, Text: fmt.Sprintf(format, args...)})
}

// faultOf takes a fault whose text begins with its path.
func (o *object) faultOf(err error) {
	path, text, ok := strings.Cut(err.Error(), ": ")
	if !ok || strings.ContainsRune(path, ' ') {
		path, text = "", err.Error()
	}
	o.fault(path, "%s", text)
}

// done settles the object's state and hands everything to the plan. An object
// with a fault keeps its anomalies and loses its actions.
func (o *object) done(state ObjectState, why string) {
	switch {
	case o.failed:
		state, o.actions = Failed, nil
		why = "see the errors"
	case state != "":
	case len(o.actions) > 0:
		state = Drift
	case len(o.row.Waiting) > 0:
		state = WaitingRestart
	case len(o.anomalies) > 0:
		state = Anomalous
	default:
		state = Converged
	}
	o.row.State, o.row.Why = state, why
	m := o.m
	m.out.Objects = append(m.out.Objects, o.row)
	m.out.Actions = append(m.out.Actions, o.actions...)
	for _, a := range o.anomalies {
		m.out.Anomalies = append(m.out.Anomalies, Anomaly{Ref: o.row.Ref, Node: o.row.Node, VMID: o.row.VMID, ID: o.row.ID, Anomaly: a})
	}
}

// block says that the object cannot be had in this cycle: creates that need it
// wait.
func (o *object) block(node, why string) { o.m.blocked[place{o.row.Ref, node}] = why }

// waitsFor names the first prerequisite that cannot be had, for a guest that
// is to be made on node.
func (m *maker) waitsFor(r *kind.Resource, node string) string {
	for _, ref := range r.Depends {
		for _, at := range []string{"", node} {
			if why, ok := m.blocked[place{ref, at}]; ok {
				return fmt.Sprintf("waits for %s: %s", ref, why)
			}
		}
	}
	return ""
}

// finish puts everything into its total order.
func (m *maker) finish() Plan {
	p := &m.out
	slices.SortStableFunc(p.Actions, func(a, b Action) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Node, b.Node), cmp.Compare(a.VMID, b.VMID),
			cmp.Compare(a.ID, b.ID), cmp.Compare(a.Ref.Kind, b.Ref.Kind), cmp.Compare(a.Ref.Name, b.Ref.Name))
	})
	slices.SortStableFunc(p.Objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Level, b.Level), cmp.Compare(a.Node, b.Node), cmp.Compare(a.VMID, b.VMID),
			cmp.Compare(a.ID, b.ID), cmp.Compare(a.Ref.Kind, b.Ref.Kind), cmp.Compare(a.Ref.Name, b.Ref.Name))
	})
	slices.SortStableFunc(p.Anomalies, func(a, b Anomaly) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.VMID, b.VMID), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Text, b.Text))
	})
	slices.SortStableFunc(p.Errors, func(a, b ObjectError) int {
		return cmp.Or(cmp.Compare(a.Ref.Kind, b.Ref.Kind), cmp.Compare(a.Ref.Name, b.Ref.Name), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Text, b.Text))
	})
	slices.Sort(p.Notes)
	p.Notes = slices.Compact(p.Notes)
	for i := range p.Actions {
		m.judge(&p.Actions[i])
	}
	return *p
}

// position is file:line:column of a path of the resource's spec, or of the
// nearest part of it that stands in the file.
func position(r *kind.Resource, path string) string {
	p := r.SpecProblem(path, "")
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}
