package reconcile

import (
	"cmp"
	"slices"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
)

// Standing is where one cluster's loop stands at a moment. It is a value: what
// it points to is never changed after it was handed out.
type Standing struct {
	Cluster string
	Report  *Report // of the last finished cycle; nil before the first

	Running  bool
	Started  time.Time // of the running cycle, or of the last one
	LastSign time.Time // when the loop was last seen to move: a start, an action's step, an end
	Next     time.Time // when the next cycle is due; zero while one runs
	Every    time.Duration
	Failures int // cycles in a row that broke off
	Cycles   int64
	Active   []Active // actions under way, by index

	Mine  bool   // this agent reconciles the cluster
	Owner string // the agent that does, when several share the work; "" = not known
}

// Active is one action under way.
type Active struct {
	Index   int // of the action in the plan
	Action  plan.Action
	UPID    string
	Started time.Time
	Tail    []string // the last lines of the task's log
}

// State is how the cluster stands now, in one word or two. What a person has to
// look at goes before what is under way.
func (s Standing) State() string {
	switch {
	case !s.Mine:
		return "elsewhere"
	case s.Report == nil && len(s.Active) == 0:
		return "not read yet"
	case s.Report == nil:
		return "in progress"
	}
	switch state := s.Report.State(); state {
	case "failing", "errors", "stale":
		return state
	default:
		if len(s.Active) > 0 {
			return "in progress"
		}
		return state
	}
}

// Objects are the objects after the last cycle; those with an action under way
// are in progress.
func (s Standing) Objects() []Object {
	if s.Report == nil {
		return nil
	}
	out := slices.Clone(s.Report.Objects)
	for i := range out {
		o := &out[i]
		for _, a := range s.Active {
			if a.Action.Ref == o.Ref() && cmp.Or(a.Action.ID, o.ID) == o.ID {
				o.State, o.LastAction, o.Why = plan.InProgress, a.Action.Verb, a.Action.Why
			}
		}
	}
	return out
}

// tailLines is how much of a task's log is kept of an action under way.
const tailLines = 20

// StuckAfter is how long a running cycle may show no sign of life, beyond the
// task timeout, before the loop counts as stuck.
const StuckAfter = 5 * time.Minute

// Stuck says why the loop no longer completes cycles, or "". A cluster that
// cannot be reached is not stuck: its cycles end, with an error.
func (s Standing) Stuck(now time.Time, taskTimeout time.Duration) string {
	switch {
	case !s.Mine:
		return ""
	case s.Running && now.Sub(s.LastSign) > taskTimeout+StuckAfter:
		return "its cycle shows no sign of life since " + s.LastSign.UTC().Format(time.RFC3339)
	case !s.Running && !s.Next.IsZero() && now.Sub(s.Next) > StuckAfter:
		return "its next cycle was due at " + s.Next.UTC().Format(time.RFC3339)
	}
	return ""
}

// follow moves the active actions on by an event.
func (s *Standing) follow(e apply.Event, now time.Time) {
	s.LastSign = now
	at := slices.IndexFunc(s.Active, func(a Active) bool { return a.Index == e.Index })
	active := slices.Clone(s.Active) // earlier copies of the standing keep theirs
	switch {
	case e.Kind == apply.Ended && at >= 0:
		active = slices.Delete(active, at, at+1)
	case e.Kind == apply.Started && at < 0:
		active = append(active, Active{Index: e.Index, Action: e.Action, Started: now})
		slices.SortFunc(active, func(a, b Active) int { return a.Index - b.Index })
	case e.Kind == apply.Progress && at >= 0:
		a := &active[at]
		a.UPID = cmp.Or(e.UPID, a.UPID)
		lines := slices.Concat(a.Tail, e.Lines)
		if e.Note != "" {
			lines = append(lines, e.Note)
		}
		a.Tail = lines[max(0, len(lines)-tailLines):]
	}
	s.Active = active
}
