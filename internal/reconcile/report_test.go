package reconcile

import (
	"errors"
	"testing"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
)

// A file in two places is one object, in the worst of their states; a guest that
// is to be deleted is none. The figures agree.
func TestCountsDeclaredObjects(t *testing.T) {
	iso, vm := kind.Ref{Kind: "ISO", Name: "i"}, kind.Ref{Kind: "VM", Name: "a"}
	rep := Report{Cluster: "lab", Plan: plan.Plan{
		Cluster: "lab",
		Objects: []plan.Object{
			{Ref: iso, Node: "n1", ID: "local:iso/i.iso", State: plan.Converged},
			{Ref: iso, Node: "n2", ID: "local:iso/i.iso", State: plan.Desired},
			{Ref: vm, Node: "n1", VMID: 101, ID: "101", State: plan.Converged},
		},
		Actions: []plan.Action{{Verb: plan.Delete, Ref: vm, Node: "n1", VMID: 100, ID: "100", Why: "not declared any more"}},
	}}
	rep.objects(nil)
	if n := rep.States(); rep.Declared() != 2 || rep.Counts().Objects != 2 || n[plan.Desired] != 1 || n[plan.Converged] != 1 || len(n) != 2 {
		t.Errorf("%d declared, %d counted, states %v", rep.Declared(), rep.Counts().Objects, n)
	}
	later := Report{Cluster: "lab", Abort: errors.New("no route")}
	later.objects(&rep)
	if later.Declared() != 2 || later.Counts().Objects != 2 {
		t.Errorf("after a cycle without a plan: %d", later.Declared())
	}
}

// How a cluster stands: the worst comes first, and what is under way hides
// nothing that a person has to look at.
func TestState(t *testing.T) {
	web := []Object{{Kind: "VM", Name: "web", State: plan.Converged}}
	waits := []Object{{Kind: "VM", Name: "web", State: plan.WaitingRestart}}
	held := plan.Plan{Suppressed: []plan.Suppressed{{Name: "old"}}}
	for want, r := range map[string]Report{
		"in sync":    {Objects: web},
		"anomalies":  {Objects: web, Plan: held},
		"waiting":    {Objects: waits, Plan: held},
		"incomplete": {Objects: []Object{{Kind: "VM", Name: "web", State: plan.Skipped}}},
		"drift":      {Objects: web, Plan: plan.Plan{Actions: make([]plan.Action, 1)}},
		"stale":      {Objects: waits, Stale: true},
		"errors":     {Objects: web, Plan: plan.Plan{Errors: make([]plan.ObjectError, 1)}},
		"failing":    {Objects: web, Abort: errors.New("no route")},
	} {
		s := Standing{Mine: true, Report: &r}
		if r.State() != want || s.State() != want {
			t.Errorf("%s and %s, want %s", r.State(), s.State(), want)
		}
		s.Active = make([]Active, 1)
		if bad := want == "failing" || want == "errors" || want == "stale"; bad && s.State() != want || !bad && s.State() != "in progress" {
			t.Errorf("%s with an action under way is %s", want, s.State())
		}
		s.Mine = false
		if s.State() != "elsewhere" {
			t.Errorf("another agent's cluster is %s", s.State())
		}
	}
	if s := (Standing{Mine: true}); s.State() != "not read yet" {
		t.Errorf("%s", s.State())
	}
}

// TestWhy: an object that is not converged says why, in a cycle that wrote
// nothing, too: its actions first, then what no action can mend.
func TestWhy(t *testing.T) {
	vm, iso := kind.Ref{Kind: "VM", Name: "a"}, kind.Ref{Kind: "ISO", Name: "i"}
	rep := Report{Cluster: "lab", Plan: plan.Plan{
		Cluster: "lab",
		Objects: []plan.Object{
			{Ref: vm, Node: "n1", VMID: 100, ID: "100", State: plan.Drift},
			{Ref: iso, Node: "n1", ID: "local:iso/i.iso", State: plan.Desired},
			{Ref: iso, Node: "n2", ID: "local:iso/i.iso", State: plan.Converged},
			{Ref: kind.Ref{Kind: "VM", Name: "b"}, Node: "n1", VMID: 101, ID: "101", State: plan.Skipped, Why: "locked (backup)"},
		},
		Actions: []plan.Action{
			{Verb: plan.Update, Ref: vm, Node: "n1", VMID: 100, ID: "100", Why: "drift: memory"},
			{Verb: plan.Download, Ref: iso, Node: "n1", ID: "local:iso/i.iso", Why: "not on the storage"},
		},
		Anomalies: []plan.Anomaly{{Ref: vm, VMID: 100, ID: "100", Anomaly: field.Anomaly{Path: "disks[0].size", Text: "too small"}}},
	}}
	rep.objects(nil)
	want := []string{"drift: memory; disks[0].size: too small", "not on the storage", "", "locked (backup)"}
	if len(rep.Objects) != len(want) {
		t.Fatalf("%d objects, want %d", len(rep.Objects), len(want))
	}
	for i, o := range rep.Objects {
		if o.Why != want[i] {
			t.Errorf("%s/%s on %s: why is %q, want %q", o.Kind, o.Name, o.Node, o.Why, want[i])
		}
	}
}

// TestStillWaiting: an action that settles something else leaves a guest
// waiting for its restart; one that restarts it does not.
func TestStillWaiting(t *testing.T) {
	ref := kind.Ref{Kind: "VM", Name: "a"}
	for verb, want := range map[plan.Verb]plan.ObjectState{plan.Update: plan.WaitingRestart, plan.Restart: plan.Converged} {
		todo := ""
		if verb == plan.Update {
			todo = "restart it"
		}
		a := plan.Action{Verb: verb, Ref: ref, Node: "n1", VMID: 100, ID: "100"}
		rep := Report{Cluster: "lab", Result: &apply.Result{Actions: []apply.ActionResult{{Action: a, Outcome: apply.Done}}}, Plan: plan.Plan{
			Cluster: "lab", Actions: []plan.Action{a},
			Objects: []plan.Object{{Ref: ref, Node: "n1", VMID: 100, ID: "100", State: plan.Drift, Todo: todo, Waiting: []field.Change{{Path: "memory"}}}},
		}}
		rep.objects(nil)
		if got := rep.Objects[0].State; got != want {
			t.Errorf("after %s: %s, want %s", verb, got, want)
		}
	}
}

// TestWhyOfDrift: a change that waits does not hide the one that is to be made.
func TestWhyOfDrift(t *testing.T) {
	ref := kind.Ref{Kind: "VM", Name: "a"}
	rep := Report{Cluster: "lab", Plan: plan.Plan{
		Cluster: "lab", Actions: []plan.Action{{Verb: plan.Update, Ref: ref, Node: "n1", VMID: 100, ID: "100", Why: "drift: tags"}},
		Objects: []plan.Object{{Ref: ref, Node: "n1", VMID: 100, ID: "100", State: plan.Drift, Why: "waits for a restart: memory"}},
	}}
	rep.objects(nil)
	if got := rep.Objects[0].Why; got != "drift: tags; waits for a restart: memory" {
		t.Error(got)
	}
}
