// Package apply runs a Plan level by level against PVE.
package apply

import (
	"time"

	"github.com/proxops/proxops/internal/plan"
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
	Waiting  []string // keys that PVE holds until a restart after this write
	Started  time.Time
	Took     time.Duration
}

// Result is what became of a plan, in the plan's order.
type Result struct {
	Actions     []ActionResult
	Interrupted bool
	Writes      int64 // non-GET requests
}
