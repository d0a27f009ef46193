package repo

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/graph"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/yamldoc"
)

// index finds collisions: names per kind, vmids in the cluster, files of
// storages, and nodes that the cluster does not own.
func (l *loader) index() {
	l.byRef = map[kind.Ref]*kind.Resource{}
	vmids := map[int]*kind.Resource{}
	volumes := map[string]*kind.Resource{}
	for _, r := range l.resources {
		if first, ok := l.byRef[r.Ref()]; ok {
			l.add(r.Problem("metadata.name", fmt.Sprintf("%s is already defined in %s: names are unique within a kind", r.Ref(), where(first, "metadata.name"))))
			continue
		}
		l.byRef[r.Ref()] = r
		switch s := r.Spec.(type) {
		case kind.GuestSpec:
			node, vmid := s.Place()
			l.allowed(r, "node", node)
			l.ranged(r, vmid)
			if first, ok := vmids[vmid]; ok {
				l.add(r.SpecProblem("vmid", fmt.Sprintf("%d is already taken by %s in %s: vmids are unique in the whole cluster", vmid, first.Ref(), where(first, "spec.vmid"))))
				continue
			}
			vmids[vmid] = r
		case kind.ArtifactSpec:
			for i, node := range s.Nodes() {
				at := "node"
				if r.Node.Get("spec").Get("nodes") != nil {
					at = fmt.Sprintf("nodes[%d]", i)
				}
				l.allowed(r, at, node)
				key := node + "\x00" + s.VolID()
				if first, ok := volumes[key]; ok && first != r {
					l.add(r.SpecProblem(at, fmt.Sprintf("%s on node %s is already defined by %s in %s", s.VolID(), node, first.Ref(), where(first, "metadata.name"))))
					continue
				}
				volumes[key] = r
			}
		}
	}
}

func (l *loader) add(p yamldoc.Problem) { l.problems = append(l.problems, p) }

func where(r *kind.Resource, path string) string {
	p := r.Problem(path, "")
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// allowed holds a node against the cluster's list.
func (l *loader) allowed(r *kind.Resource, at, node string) {
	e := l.config.entry
	if e == nil || len(e.Nodes) == 0 || slices.Contains(e.Nodes, node) {
		return
	}
	l.add(r.SpecProblem(at, fmt.Sprintf("node %s is not one of cluster %s's nodes (%s); correct it, or add it to nodes in %s",
		node, l.name, strings.Join(e.Nodes, ", "), e.File)))
}

// bind hands every reference its target and puts the objects into levels.
func (l *loader) bind() {
	for _, r := range l.resources {
		var needs []kind.Ref
		for _, ref := range r.Spec.Refs() {
			target, ok := l.byRef[ref.To]
			if !ok {
				l.unknown(r.SpecProblem(ref.Path, ""), ref.To)
				continue
			}
			if err := ref.Bind(target); err != nil {
				l.add(r.SpecProblem(ref.Path, err.Error()))
			}
			needs = append(needs, ref.To)
		}
		for _, to := range r.Annotations.DependsOn {
			if _, ok := l.byRef[to]; !ok {
				l.unknown(r.Problem("metadata.annotations.proxops/depends-on", ""), to)
				continue
			}
			needs = append(needs, to)
		}
		slices.SortFunc(needs, func(a, b kind.Ref) int { return strings.Compare(a.String(), b.String()) })
		r.Depends = slices.Compact(needs)
	}
	l.order()
}

// unknown reports a reference that leads nowhere, unless it leads to a
// manifest whose own faults are reported, or may: a file that could not be
// read at all may hold it.
func (l *loader) unknown(at yamldoc.Problem, to kind.Ref) {
	if l.broken[to] || l.unread[to.Kind] {
		return
	}
	var sameKind, sameName []string
	for ref := range l.byRef {
		if ref.Kind == to.Kind {
			sameKind = append(sameKind, ref.Name)
		}
		if ref.Name == to.Name {
			sameName = append(sameName, ref.Kind)
		}
	}
	at.Text = fmt.Sprintf("%s is not in the composition of cluster %s", to, l.name)
	h := hint(to.Name, sameKind)
	switch {
	case len(sameName) > 0:
		slices.Sort(sameName)
		at.Text += fmt.Sprintf("; %s has that name, and a %s is wanted here", strings.Join(sameName, " and "), to.Kind)
	case h != "":
		at.Text += h
	default:
		at.Text += "; list its file in " + compositionFile(l.name)
	}
	l.add(at)
}

func (l *loader) order() {
	var nodes []graph.Node
	for ref, r := range l.byRef {
		nodes = append(nodes, graph.Node{Ref: ref, Needs: r.Depends})
	}
	levels, err := graph.Levels(nodes)
	var cycle *graph.Cycle
	switch {
	case errors.As(err, &cycle):
		first, next := l.byRef[cycle.Refs[0]], cycle.Refs[1%len(cycle.Refs)]
		l.add(first.Problem(edgePath(first, next), fmt.Sprintf("dependency cycle %s: take one of these references out", cycle)))
	case err != nil:
		l.add(yamldoc.Problem{File: compositionFile(l.name), Text: err.Error()})
	}
	l.levels = levels
}

// edgePath is the field of r that refers to ref.
func edgePath(r *kind.Resource, to kind.Ref) string {
	for _, ref := range r.Spec.Refs() {
		if ref.To == to {
			return "spec." + ref.Path
		}
	}
	return "metadata.annotations.proxops/depends-on"
}
