package adopt

import (
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/repo"
)

// Checked is what a check found.
type Checked struct {
	Objects int      // that were compared
	Claims  int      // guests that only get the ownership tag
	Listed  int      // anomalies that the manifests list as INCOMPLETE
	Skipped []string // not compared, and why
	Bugs    []string // anything else: an error in this program
}

// Check plans a cluster whose composition holds the adopted manifests, read
// back from their files, against the snapshot that they were made of. Only
// ownership claims and what the manifests list as INCOMPLETE may be left.
// Objects whose file says something else than adopt would write are not
// compared: their difference is somebody's intent.
func Check(c *repo.Cluster, s *live.Snapshot, files []File) Checked {
	var out Checked
	ours := map[kind.Ref]*Manifest{}
	for _, f := range files {
		switch f.Status {
		case Declared:
			out.Skipped = append(out.Skipped, fmt.Sprintf("%s: %s declares it already", f.Manifest.Ref(), f.Manifest.Declared))
		case Differs:
			out.Skipped = append(out.Skipped, fmt.Sprintf("%s: %s says something else", f.Manifest.Ref(), f.Manifest.File))
		default:
			ours[f.Manifest.Ref()] = f.Manifest
			out.Objects++
		}
	}
	p := plan.Make(c, s, plan.PolicyOf(c.Reconcile))
	seen, open := map[kind.Ref]bool{}, map[kind.Ref]bool{}
	for _, o := range p.Objects {
		seen[o.Ref] = true
		if ours[o.Ref] != nil && (o.State == plan.Skipped || o.State == plan.Unknown) {
			out.Skipped = append(out.Skipped, fmt.Sprintf("%s: %s", o.Ref, o.Why))
			open[o.Ref] = true
		}
	}
	out.Objects -= len(open)
	for ref, m := range ours {
		if !seen[ref] {
			out.bug("%s: %s is not in the composition", ref, m.File)
		}
	}
	for _, a := range p.Actions {
		if ours[a.Ref] == nil {
			continue
		}
		if isClaim(a) {
			out.Claims++
			continue
		}
		out.bug("%s: %s %s would be planned: %s", a.Ref, a.Verb, a.ID, a.Why)
	}
	for _, a := range p.Anomalies {
		m := ours[a.Ref]
		switch {
		case m == nil:
		case listed(m, a):
			out.Listed++
		default:
			out.bug("%s: %s: %s", a.Ref, a.Path, a.Text)
		}
	}
	for _, e := range p.Errors {
		if ours[e.Ref] != nil {
			out.bug("%s: %s: %s", e.File, e.Path, e.Text)
		}
	}
	slices.Sort(out.Bugs)
	slices.Sort(out.Skipped)
	return out
}

func (c *Checked) bug(format string, args ...any) {
	c.Bugs = append(c.Bugs, fmt.Sprintf(format, args...))
}

// isClaim reports whether an action does nothing but add the ownership tag.
func isClaim(a plan.Action) bool {
	if a.Verb != plan.Update || len(a.Changes) != 1 {
		return false
	}
	return a.Changes[0].Key == "tags"
}

// listed reports whether the manifest says an anomaly itself, as INCOMPLETE.
func listed(m *Manifest, a plan.Anomaly) bool {
	for _, i := range m.Incomplete {
		if i.Path == a.Path && (i.anyText || i.Text == a.Text || i.pending != "" && strings.HasPrefix(a.Text, i.pending+" ")) {
			return true
		}
	}
	return false
}
