// Package graph orders references into levels and names the cycle.
package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/kind"
)

// Node is one object and what must exist before it.
type Node struct {
	Ref   kind.Ref
	Needs []kind.Ref
}

// Unknown is a need that no node of the graph fulfils.
type Unknown struct{ From, To kind.Ref }

// Error implements error.
func (u *Unknown) Error() string { return fmt.Sprintf("%s needs %s, which is not there", u.From, u.To) }

// Cycle is a chain of needs that comes back to its start; the first ref is
// not repeated at the end.
type Cycle struct{ Refs []kind.Ref }

// Error names the whole chain: VM:a → VM:b → VM:a.
func (c *Cycle) Error() string {
	var b strings.Builder
	for _, r := range c.Refs {
		b.WriteString(r.String() + " → ")
	}
	return b.String() + c.Refs[0].String()
}

// Levels puts every node on the level of its longest chain of needs: 0 for
// those that need nothing. Levels are sorted by kind and name, so the result
// does not depend on the order of nodes. The error is an *Unknown or a *Cycle;
// of several, the first in that order.
func Levels(nodes []Node) ([][]kind.Ref, error) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int { return compare(a.Ref, b.Ref) })
	l := &leveller{needs: map[kind.Ref][]kind.Ref{}, level: map[kind.Ref]int{}, open: map[kind.Ref]int{}}
	for _, n := range nodes {
		needs := slices.Clone(n.Needs)
		slices.SortFunc(needs, compare)
		l.needs[n.Ref] = slices.Compact(needs)
	}
	var out [][]kind.Ref
	for _, n := range nodes {
		at, err := l.visit(n.Ref)
		if err != nil {
			return nil, err
		}
		for len(out) <= at {
			out = append(out, nil)
		}
		out[at] = append(out[at], n.Ref)
	}
	return out, nil
}

func compare(a, b kind.Ref) int { return strings.Compare(a.String(), b.String()) }

type leveller struct {
	needs map[kind.Ref][]kind.Ref
	level map[kind.Ref]int
	open  map[kind.Ref]int // place in chain
	chain []kind.Ref       // from the start to the node being visited
}

func (l *leveller) visit(r kind.Ref) (int, error) {
	if at, ok := l.level[r]; ok {
		return at, nil
	}
	if at, ok := l.open[r]; ok {
		return 0, &Cycle{Refs: turn(l.chain[at:])}
	}
	l.open[r] = len(l.chain)
	l.chain = append(l.chain, r)
	at := 0
	for _, need := range l.needs[r] {
		if _, ok := l.needs[need]; !ok {
			return 0, &Unknown{From: r, To: need}
		}
		below, err := l.visit(need)
		if err != nil {
			return 0, err
		}
		at = max(at, below+1)
	}
	l.chain = l.chain[:len(l.chain)-1]
	delete(l.open, r)
	l.level[r] = at
	return at, nil
}

// turn starts a cycle at its smallest ref.
func turn(cycle []kind.Ref) []kind.Ref {
	first := 0
	for i := range cycle {
		if compare(cycle[i], cycle[first]) < 0 {
			first = i
		}
	}
	return append(slices.Clone(cycle[first:]), cycle[:first]...)
}
