package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/wire"
)

// A guest that cannot be made is tried less and less often, for ever; the
// cluster's other guests are corrected at the usual pace meanwhile.
func TestFailingActionDelaysNone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "lab")
		defer e.stop()
		e.vms("lab", vmText("web", 100, "512MiB"), vmText("db", 101, "512MiB"))
		e.world("lab").SetFaults(pvesim.Fault{Kind: pvesim.FaultError, Method: "POST", Path: "/nodes/*/qemu", P: 1}, pvesim.Fault{Kind: pvesim.FaultTaskFail, Path: "/nodes/*/tasks/qmcreate", P: 1})
		e.run(e.options(), func(d *Daemon) {
			time.Sleep(time.Hour)
			rep := e.last("lab")
			if !rep.Failed() || rep.Abort != nil {
				t.Fatalf("nothing failed: %v", rep.Abort)
			}
			posts := 0
			for _, r := range e.world("lab").Requests() {
				if r.Method == "POST" && strings.HasSuffix(r.Path, "/qemu") {
					posts++
				}
			}
			if posts < 10 || posts > 40 { // two guests; unheld it were more than 200
				t.Errorf("%d tries in an hour", posts)
			}
			if n := e.count("lab"); n < 115 {
				t.Errorf("only %d cycles in an hour", n)
			}
			var held error
			for _, a := range rep.Result.Actions {
				held = errors.Join(held, a.Err)
			}
			if held == nil || !strings.Contains(held.Error(), "next try is after") {
				t.Errorf("it is not said when: %v", held)
			}
			e.world("lab").SetFaults()
			d.Kick("test")
			time.Sleep(10 * time.Second)
			if rep := e.last("lab"); !rep.Converged() {
				t.Errorf("a kick does not try again: %+v", rep.Objects)
			}
		})
	})
}

func act(name string, verb plan.Verb, needs ...string) plan.Action {
	a := plan.Action{Verb: verb, Ref: kind.Ref{Kind: "VM", Name: name}, ID: name}
	for _, n := range needs {
		a.Needs = append(a.Needs, kind.Ref{Kind: "VM", Name: n})
	}
	return a
}

// What needs a held action waits for it, the rest runs, and the result is in
// the plan's order.
func TestHeldBack(t *testing.T) {
	p := plan.Plan{Actions: []plan.Action{act("a", plan.Create), act("b", plan.Create), act("b", plan.Start), act("c", plan.Clone, "b"), act("d", plan.Clone, "a"), act("e", plan.Clone, "c")}}
	hold := func(a plan.Action) error {
		if a.Verb == plan.Create && a.ID == "b" {
			return ErrHeld
		}
		return nil
	}
	var events []int
	opt := apply.Options{Events: func(e apply.Event) { events = append(events, e.Index) }}
	res := applyWith(p, hold, opt, func(kept plan.Plan, o apply.Options) (r apply.Result) {
		for i, a := range kept.Actions {
			o.Events(apply.Event{Index: i})
			r.Actions = append(r.Actions, apply.ActionResult{Action: a, Outcome: apply.Done})
		}
		return r
	})
	var got []string
	for i, r := range res.Actions {
		if r.Action.ID != p.Actions[i].ID || r.Action.Verb != p.Actions[i].Verb {
			t.Errorf("result %d is of another action", i)
		}
		got = append(got, fmt.Sprintf("%s %s %s", r.Action.Verb, r.Action.ID, r.Outcome))
	}
	want := []string{"Create a done", "Create b failed", "Start b deferred", "Clone c deferred", "Clone d done", "Clone e deferred"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int{0, 4}, events); d != "" {
		t.Error(d)
	}
}

// An action that is another one than the one that failed is tried at once.
func TestChangedActionIsTried(t *testing.T) {
	var h holds
	value := func(s string) *wire.Value { v := wire.Plain(s); return &v }
	a := act("a", plan.Update)
	a.Changes = []field.Change{{Key: "memory", New: value("1")}}
	failed := &Report{Finished: time.Now(), Result: &apply.Result{Actions: []apply.ActionResult{{Action: a, Outcome: apply.Failed, Err: errors.New("no")}}}}
	h.learn(failed, time.Minute)
	if err := h.hold(a); err != nil {
		t.Errorf("the second try waits: %v", err)
	}
	h.learn(failed, time.Minute)
	if err := h.hold(a); !errors.Is(err, ErrHeld) {
		t.Errorf("the third does not: %v", err)
	}
	b := a
	b.Changes = []field.Change{{Key: "memory", New: value("2")}}
	if err := h.hold(b); err != nil {
		t.Error(err)
	}
	h.learn(&Report{Result: &apply.Result{Actions: []apply.ActionResult{{Action: a, Outcome: apply.Done}}}}, time.Minute)
	if err := h.hold(a); err != nil {
		t.Errorf("a success is not forgotten: %v", err)
	}
}
