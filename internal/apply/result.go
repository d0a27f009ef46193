// Package apply runs a Plan level by level against PVE.
package apply

import (
	"context"
	"errors"
	"time"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
)

// Outcome is how one action ended.
type Outcome string

// The outcomes.
const (
	Done     Outcome = "done"
	Warned   Outcome = "warnings" // done; PVE's warnings are shown
	Failed   Outcome = "failed"
	Deferred Outcome = "deferred" // busy, prerequisite failed, interrupted: next cycle decides
	Unknown  Outcome = "unknown"  // the write's outcome is not known: next cycle decides
)

// ActionResult is what became of one action.
type ActionResult struct {
	Action   plan.Action
	Outcome  Outcome
	Err      error
	UPID     string
	Warnings []string
	Tail     []string // the task log's last lines
	Todo     string   // what somebody can do about an outcome that is no success; "" = nothing known
	Waiting  []string // keys that PVE holds until a restart, and that no later step of the run restarted for
	Started  time.Time
	Took     time.Duration
}

// Result is what became of a plan, in the plan's order.
type Result struct {
	Actions []ActionResult
	// Interrupted is true when an interrupt left something: an action that was
	// not started, or a task that was not followed to its end. A run that was
	// told to stop and had nothing left to do was not interrupted.
	Interrupted bool
	Writes      int64 // non-GET requests
}

// Left counts what an interrupted run left: actions that were not started, and
// those that were started and not followed to their end.
func (r Result) Left() (notStarted, cut int) {
	for _, a := range r.Actions {
		switch {
		case errors.Is(a.Err, errInterrupted):
			notStarted++
		case a.Outcome == Unknown, pve.Is(a.Err, pve.KindCanceled), errors.Is(a.Err, context.Canceled):
			cut++
		}
	}
	return notStarted, cut
}
