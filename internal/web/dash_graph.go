package web

import (
	"fmt"
	"html"
	"html/template"
	"strings"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
)

// Sizes of the graph in SVG units.
const (
	boxW, boxH   = 190, 34
	gapX, gapY   = 70, 12
	graphAll     = 60  // boxes that are drawn whatever they are
	graphMost    = 400 // boxes; a larger graph is no picture any more
	labelLetters = 20
)

type box struct {
	x, y  int
	state string
}

// shownRefs are the objects to draw: all of a small cluster; of a large one
// those that are not converged, with what they need and what needs them.
func shownRefs(r *reconcile.Report, state map[kind.Ref]string) map[kind.Ref]bool {
	shown := map[kind.Ref]bool{}
	n := 0
	for _, refs := range r.Plan.Levels {
		n += len(refs)
	}
	open := func(ref kind.Ref) bool { return n <= graphAll || state[ref] != string(plan.Converged) }
	for _, refs := range r.Plan.Levels {
		for _, ref := range refs {
			shown[ref] = shown[ref] || open(ref)
		}
	}
	for _, o := range r.Plan.Objects {
		for _, need := range o.Needs {
			if open(o.Ref) || open(need) {
				shown[o.Ref], shown[need] = true, true
			}
		}
	}
	return shown
}

// graph draws the objects by level, with a line from each to what it needs, and
// counts those that it leaves out. Every text in it is escaped here.
func graph(r *reconcile.Report) (picture template.HTML, left int) {
	state := map[kind.Ref]string{}
	for _, o := range r.Objects {
		ref := kind.Ref{Kind: o.Kind, Name: o.Name}
		if s, seen := state[ref]; !seen || s == string(plan.Converged) {
			state[ref] = string(o.State)
		}
	}
	shown := shownRefs(r, state)
	boxes := map[kind.Ref]box{}
	height, column := 0, 0
	for _, refs := range r.Plan.Levels {
		row := 0
		for _, ref := range refs {
			if !shown[ref] {
				left++
				continue
			}
			b := box{x: 10 + column*(boxW+gapX), y: 10 + row*(boxH+gapY), state: state[ref]}
			boxes[ref] = b
			height = max(height, b.y+boxH+10)
			row++
		}
		if row > 0 {
			column++
		}
	}
	if len(boxes) == 0 || len(boxes) > graphMost {
		return "", left
	}
	width := 20 + column*(boxW+gapX) - gapX
	var s strings.Builder
	fmt.Fprintf(&s, `<svg class="graph" role="img" aria-label="Objects by level, with what each needs" viewBox="0 0 %d %d" width="%d" height="%d" xmlns="http://www.w3.org/2000/svg">`, width, height, width, height)
	drawn := map[[2]kind.Ref]bool{}
	for _, o := range r.Plan.Objects {
		to, ok := boxes[o.Ref]
		for _, need := range o.Needs {
			from, ok2 := boxes[need]
			edge := [2]kind.Ref{need, o.Ref}
			if !ok || !ok2 || drawn[edge] {
				continue
			}
			drawn[edge] = true
			x1, y1, x2, y2 := from.x+boxW, from.y+boxH/2, to.x, to.y+boxH/2
			fmt.Fprintf(&s, `<path class="edge" d="M%d %d C%d %d %d %d %d %d"/>`, x1, y1, x1+gapX/2, y1, x2-gapX/2, y2, x2, y2)
		}
	}
	for _, refs := range r.Plan.Levels {
		for _, ref := range refs {
			b, ok := boxes[ref]
			if !ok {
				continue
			}
			label := ref.Name
			if rs := []rune(label); len(rs) > labelLetters {
				label = string(rs[:labelLetters-1]) + "…"
			}
			fmt.Fprintf(&s, `<a href="%s"><title>%s: %s</title><rect class="box %s" x="%d" y="%d" width="%d" height="%d" rx="6"/><text x="%d" y="%d"><tspan class="kind">%s</tspan> %s</text></a>`,
				html.EscapeString(href("clusters", r.Cluster, ref.Kind, ref.Name)), html.EscapeString(ref.String()), html.EscapeString(b.state),
				tone(b.state), b.x, b.y, boxW, boxH, b.x+10, b.y+boxH/2+5, html.EscapeString(ref.Kind), html.EscapeString(label))
		}
	}
	s.WriteString(`</svg>`)
	return template.HTML(s.String()), left
}
