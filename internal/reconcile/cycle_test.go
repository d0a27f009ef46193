package reconcile

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/repo"
)

// A broken cluster gives a report, never a crash of the process that looks
// after the others.
func TestCycleSurvives(t *testing.T) {
	for name, load := range map[string]func(context.Context) (*repo.Cluster, error){
		"bad files": func(context.Context) (*repo.Cluster, error) { return nil, errors.New("vm/web.yaml:3:1: no such field") },
		"a panic":   func(context.Context) (*repo.Cluster, error) { panic("index out of range") },
	} {
		before := &Report{Objects: []Object{{Kind: "VM", Name: "web", State: plan.Converged}}}
		rep := Cycle(t.Context(), Options{Cluster: "lab", Load: load, Write: true, Previous: before})
		if rep.Abort == nil || !rep.Failed() || rep.Converged() || rep.Finished.IsZero() {
			t.Errorf("%s: %+v", name, rep)
		}
		if len(rep.Objects) != 1 || rep.Objects[0].Name != "web" {
			t.Errorf("%s: what was known of the objects is lost: %+v", name, rep.Objects)
		}
	}
}

// An object's state after a cycle is what the plan said, moved on by what
// became of its actions.
func TestObjectsAfterApply(t *testing.T) {
	vm := func(name string) kind.Ref { return kind.Ref{Kind: "VM", Name: name} }
	act := func(name, id string, verb plan.Verb) plan.Action {
		return plan.Action{Verb: verb, Ref: vm(name), Node: "pve01", VMID: 100, ID: id, Why: "not declared any more"}
	}
	rep := &Report{Cluster: "lab", Finished: time.Unix(1000, 0)}
	rep.Plan = plan.Plan{Cluster: "lab",
		Objects: []plan.Object{
			{Ref: vm("same"), Node: "pve01", ID: "1", State: plan.Converged},
			{Ref: vm("made"), Node: "pve01", ID: "2", State: plan.Desired},
			{Ref: vm("late"), Node: "pve01", ID: "3", State: plan.Drift},
			{Ref: vm("bad"), Node: "pve01", ID: "4", State: plan.Drift},
			{Ref: vm("held"), Node: "pve01", ID: "5", State: plan.Drift},
			{Ref: vm("odd"), Node: "pve01", ID: "6", State: plan.Drift},
		},
		Actions:   []plan.Action{act("gone", "7", plan.Delete)},
		Anomalies: []plan.Anomaly{{Ref: vm("odd")}},
	}
	rep.Result = &apply.Result{Actions: []apply.ActionResult{
		{Action: act("made", "2", plan.Create), Outcome: apply.Done},
		{Action: act("late", "3", plan.Update), Outcome: apply.Deferred, Err: errors.New("locked (backup)")},
		{Action: act("bad", "4", plan.Update), Outcome: apply.Done},
		{Action: act("bad", "4", plan.Start), Outcome: apply.Failed, Err: errors.New("no memory")},
		{Action: act("held", "5", plan.Update), Outcome: apply.Done, Waiting: []string{"cores"}},
		{Action: act("odd", "6", plan.Update), Outcome: apply.Warned},
		{Action: act("gone", "7", plan.Delete), Outcome: apply.Done},
	}}
	old := time.Unix(500, 0)
	rep.objects(&Report{Objects: []Object{{Kind: "VM", Name: "bad", Node: "pve01", ID: "4", State: plan.Converged, Converged: old}}})
	want := []plan.ObjectState{plan.Converged, plan.Converged, plan.Skipped, plan.Failed, plan.WaitingRestart, plan.Anomalous, plan.Pruned}
	for i, o := range rep.Objects {
		if o.State != want[i] {
			t.Errorf("%s is %s (%s), want %s", o.Name, o.State, o.Why, want[i])
		}
	}
	if bad := rep.Objects[3]; !strings.Contains(bad.LastError, "no memory") || bad.LastAction != plan.Start || !bad.Converged.Equal(old) {
		t.Errorf("%+v", bad)
	}
	c := rep.Counts()
	if c.ActionsOK != 5 || c.ActionsError != 1 || c.Pruned != 1 || c.Skipped != 1 || c.Objects != 6 {
		t.Errorf("%+v", c)
	}
}

// What is interrupted before there is a plan says so, not what the interrupt
// looked like to a request; it is no fault of the files.
func TestInterruptedWhileReading(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	rep := Cycle(ctx, Options{Cluster: "lab", Write: true, Load: func(ctx context.Context) (*repo.Cluster, error) {
		cancel()
		return nil, ctx.Err()
	}})
	if rep.Abort == nil || rep.Abort.Error() != "lab: interrupted while reading; nothing was written" || rep.BadFiles {
		t.Errorf("%v, bad files: %v", rep.Abort, rep.BadFiles)
	}
}
