package plan

import (
	"fmt"
	"time"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/repo"
)

// Policy is what the operator decided about planning one cluster, and what the
// world outside the two inputs says at this moment: git's word, and whether
// the restart window is open.
type Policy struct {
	PruneBudget int    // deletes per cycle; 0 = unlimited
	Prune       string // "" (git decides about inherited tags) or "tagged"
	// PruneVanished are kinds whose objects may be pruned although the
	// composition names none of that kind any more.
	PruneVanished []string
	// Words is git's word on each undeclared, tagged guest, by vmid; see
	// Candidates. A missing one counts as "git could not be asked".
	Words map[int]Word
	// Elsewhere are the vmids that another cluster of the repository declares,
	// where that may be the same PVE.
	Elsewhere map[int]Elsewhere

	Restart    string // never, immediate or window; "" = never
	WindowOpen bool   // for window: the window is open now
	Window     string // for messages

	// Now is when the cluster was read, to say for how long a guest has been
	// held by somebody's task; after BusyAlarm that is an anomaly. A zero Now or
	// BusyAlarm says nothing of it.
	Now       time.Time
	BusyAlarm time.Duration
}

// Elsewhere is a manifest of another cluster, which is this same PVE or may be.
type Elsewhere struct {
	Cluster string
	File    string
	Doubt   string // why it is not known whether it is the same PVE; "" = it is
}

// PolicyOf takes a cluster's settings over. Git's word and the window are the
// caller's to fill in.
func PolicyOf(r repo.Reconcile) Policy {
	return Policy{PruneBudget: r.PruneBudget, Prune: r.Prune, Restart: r.RestartPolicy, Window: r.RestartWindow, BusyAlarm: r.BusyAlarm}
}

// Word is git's word on one vmid that is not declared. The zero Word is that
// git could not be asked: the tag decides.
type Word struct {
	// Never is true when the whole history is there and never declared the
	// vmid in this cluster.
	Never  bool
	Commit string // the commit that removed the declaration, when one did
	// Broken is true when the repository cannot be read, which is not the same
	// as having no history.
	Broken bool
	// Names is what the removed declaration called its guest, empty when that
	// is not known.
	Names []string
	// Kinds are the kinds that it declared the guest as.
	Kinds []string
	Hold  *Hold  // keeps the guest although all else speaks for the delete; nil = nothing does
	Todo  string // when Broken: what to do about it; "" = nothing special is known
	Text  string // for the plan, such as "removed by commit 1a2b3c4 (2026-11-29, Ada)"
}

// Hold is a doubt about a removal that is seen in the files or in git.
type Hold struct {
	Rule string // as Suppressed.Rule
	Text string // what is doubted
	Todo string
	// Files is true for a doubt about the files themselves, which a policy that
	// asks the tag alone (Policy.Prune) has as well.
	Files bool
}

// String is the word for the plan.
func (w Word) String() string {
	if w.Text == "" {
		return "git could not be asked, the tag decides"
	}
	return w.Text
}

// restart is the policy in force for one object: its annotation goes before
// the cluster's setting.
func (p Policy) restart(a kind.Annotations) string {
	switch {
	case a.Restart != "":
		return a.Restart
	case p.Restart != "":
		return p.Restart
	}
	return "never"
}

// mayRestart reports whether a running guest may be taken down now for a
// change of ours, and says when it will be if not.
func (p Policy) mayRestart(a kind.Annotations) (bool, string) {
	switch p.restart(a) {
	case "immediate":
		return true, ""
	case "window":
		if p.WindowOpen {
			return true, ""
		}
		if p.Window == "" {
			return false, "set reconcile.restart-window: the annotation proxops/restart: window needs one"
		}
		return false, fmt.Sprintf("it is restarted in the window (%s)", p.Window)
	}
	return false, "restart it, or set the annotation proxops/restart"
}
