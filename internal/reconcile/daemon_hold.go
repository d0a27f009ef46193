package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
)

// ErrHeld is in the error of an action that was not tried in this cycle since
// it failed before.
var ErrHeld = errors.New("not tried in this cycle")

// maxHold bounds the time between two tries of an action that keeps failing.
const maxHold = 10 * time.Minute

// holds remembers the actions of one cluster that keep failing, so that the
// rest goes on at its own pace while a guest that cannot be made is tried less
// and less often. Nothing is given up: when an action changes, or somebody
// asks for a cycle, or its time has come, it is tried again.
type holds struct {
	mu   sync.Mutex
	list map[string]held
}

type held struct {
	times int
	until time.Time
	err   error
}

// signature tells an action from others, and from what it was before the
// desired or the live side changed.
func signature(a plan.Action) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %s", a.Verb, a.Ref, a.Node, a.ID)
	for _, c := range a.Changes {
		fmt.Fprintf(&b, "\x00%s\x00%v\x00%v", c.Key, c.Old, c.New)
	}
	return b.String()
}

// hold says why an action is not to be tried now; nil = it is.
func (h *holds) hold(a plan.Action) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, ok := h.list[signature(a)]
	if !ok || !time.Now().Before(x.until) {
		return nil
	}
	return fmt.Errorf("failed %d times, the last time with: %w (%w; the next try is after %s)", x.times, x.err, ErrHeld, x.until.UTC().Format(time.RFC3339))
}

// learn takes over what became of a plan's actions.
func (h *holds) learn(rep *Report, every time.Duration) {
	if rep.Result == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	next := map[string]held{}
	for _, r := range rep.Result.Actions {
		key := signature(r.Action)
		x, known := h.list[key]
		switch {
		case errors.Is(r.Err, ErrHeld), r.Outcome == apply.Deferred:
			if known {
				next[key] = x
			}
		case r.Outcome == apply.Failed:
			x.times++
			x.err = r.Err
			x.until = rep.Finished
			if x.times > 1 { // the second try comes with the next cycle
				x.until = rep.Finished.Add(min(maxHold, every<<min(x.times-1, 10)))
			}
			next[key] = x
		}
	}
	h.list = next
}

// forget makes everything be tried again.
func (h *holds) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = nil
}

// applyWith runs a plan without the actions that are held back and those that
// need them; both are in the result, in the plan's order.
func applyWith(p plan.Plan, hold func(plan.Action) error, opt apply.Options, run func(plan.Plan, apply.Options) apply.Result) apply.Result {
	if hold == nil {
		return run(p, opt)
	}
	kept := p
	kept.Actions = nil
	var index []int // of the kept actions in p
	all := make([]apply.ActionResult, len(p.Actions))
	for i, a := range p.Actions {
		if err := heldBack(a, i, all, hold); err != nil {
			outcome := apply.Deferred
			if errors.Is(err, ErrHeld) {
				outcome = apply.Failed
			}
			all[i] = apply.ActionResult{Action: a, Outcome: outcome, Err: err}
			continue
		}
		kept.Actions = append(kept.Actions, a)
		index = append(index, i)
	}
	if events := opt.Events; events != nil {
		opt.Events = func(e apply.Event) {
			e.Index = index[e.Index]
			events(e)
		}
	}
	res := run(kept, opt)
	for i, r := range res.Actions {
		all[index[i]] = r
	}
	res.Actions = all
	return res
}

// heldBack says why the action at i is left out: it is held itself, or an
// earlier step of its object or something that it needs is.
func heldBack(a plan.Action, i int, before []apply.ActionResult, hold func(plan.Action) error) error {
	if err := hold(a); err != nil {
		return err
	}
	for _, r := range before[:i] {
		if r.Err == nil {
			continue
		}
		if r.Action.Ref == a.Ref && r.Action.ID == a.ID && r.Action.Node == a.Node {
			return fmt.Errorf("an earlier step of this object did not succeed: %s", r.Action.Verb)
		}
		for _, need := range a.Needs {
			if need == r.Action.Ref {
				return fmt.Errorf("waits for %s: %s %s", r.Action.Ref, r.Action.Verb, r.Outcome)
			}
		}
	}
	return nil
}
