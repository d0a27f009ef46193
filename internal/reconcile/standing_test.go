package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
)

// A loop is stuck when it owes a sign of life, not when its cluster is out of
// reach or another agent's.
func TestStuck(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	task := 10 * time.Minute
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		s    Standing
		want string
	}{
		"running":             {Standing{Mine: true, Running: true, LastSign: ago(task + StuckAfter)}, ""},
		"running, silent":     {Standing{Mine: true, Running: true, LastSign: ago(task + StuckAfter + 1)}, "no sign of life"},
		"between two":         {Standing{Mine: true, LastSign: ago(time.Hour), Next: ago(StuckAfter)}, ""},
		"between two, late":   {Standing{Mine: true, Next: ago(StuckAfter + 1)}, "was due"},
		"before the first":    {Standing{Mine: true}, ""},
		"another agent's":     {Standing{Running: true, LastSign: ago(24 * time.Hour), Next: ago(24 * time.Hour)}, ""},
		"running, due before": {Standing{Mine: true, Running: true, LastSign: now, Next: ago(time.Hour)}, ""},
	} {
		if got := c.s.Stuck(now, task); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What is under way is followed by its events; what was handed out before is
// not changed by them, and a long log keeps its end.
func TestFollow(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	web, db := act("web", plan.Start), act("db", plan.Create)
	var s Standing
	step := func(e apply.Event) Standing {
		now = now.Add(time.Second)
		s.follow(e, now)
		return s
	}
	step(apply.Event{Kind: apply.Started, Index: 3, Action: web})
	begun := step(apply.Event{Kind: apply.Started, Index: 1, Action: db})
	step(apply.Event{Kind: apply.Started, Index: 1, Action: db})
	step(apply.Event{Kind: apply.Ended, Index: 9})
	step(apply.Event{Kind: apply.Progress, Index: 9, UPID: "UPID:x"})
	var lines []string
	for i := range 2 * tailLines {
		lines = append(lines, fmt.Sprint("line ", i))
	}
	step(apply.Event{Kind: apply.Progress, Index: 1, UPID: "UPID:db", Lines: lines})
	last := step(apply.Event{Kind: apply.Progress, Index: 1, Note: "waits"})
	if !last.LastSign.Equal(now) || len(last.Active) != 2 || last.Active[0].Index != 1 || last.Active[1].Index != 3 {
		t.Fatalf("%+v", last)
	}
	a := last.Active[0]
	if a.UPID != "UPID:db" || len(a.Tail) != tailLines || a.Tail[tailLines-1] != "waits" || a.Tail[tailLines-2] != "line 39" {
		t.Errorf("%+v", a)
	}
	if begun.Active[0].UPID != "" || len(begun.Active[0].Tail) != 0 {
		t.Errorf("what was handed out changed: %+v", begun.Active[0])
	}
	if end := step(apply.Event{Kind: apply.Ended, Index: 1}); len(end.Active) != 1 || end.Active[0].Index != 3 || len(last.Active) != 2 {
		t.Errorf("%+v", end.Active)
	}
}

// Only the object that an action is of is in progress, and a cluster of
// another agent, or one that was not read, says so.
func TestStandingObjects(t *testing.T) {
	rep := &Report{Plan: plan.Plan{Cluster: "lab"}, Objects: []Object{{Kind: "VM", Name: "web", ID: "1", State: plan.Drift}, {Kind: "VM", Name: "web", ID: "2", State: plan.Drift},
		{Kind: "VM", Name: "db", ID: "1", State: plan.Drift}}}
	s := Standing{Mine: true, Report: rep, Active: []Active{{Action: plan.Action{Verb: plan.Start, Ref: kind.Ref{Kind: "VM", Name: "web"}, ID: "1"}}}}
	var got []plan.ObjectState
	for _, o := range s.Objects() {
		got = append(got, o.State)
	}
	if d := cmp.Diff([]plan.ObjectState{plan.InProgress, plan.Drift, plan.Drift}, got); d != "" {
		t.Error(d)
	}
	if rep.Objects[0].State != plan.Drift {
		t.Error("the report itself changed")
	}
	if (Standing{}).Objects() != nil {
		t.Error("objects of nothing")
	}
	for want, s := range map[string]Standing{"elsewhere": {Report: rep}, "not read yet": {Mine: true}, "in progress": {Mine: true, Active: s.Active},
		"failing": {Mine: true, Report: &Report{Abort: errors.New("x")}, Active: s.Active}} {
		if got := s.State(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// What a report says of an object is of that object alone, at its place, and
// what was known of it before stays where nothing new is.
func TestReportTellsObjectsApart(t *testing.T) {
	iso := kind.Ref{Kind: "ISO", Name: "a"}
	vm := kind.Ref{Kind: "VM", Name: "a"}
	before := time.Unix(100, 0)
	rep := &Report{Cluster: "lab", Finished: time.Unix(1000, 0)}
	rep.Plan = plan.Plan{Cluster: "lab",
		Objects: []plan.Object{{Ref: iso, Node: "pve01", ID: "x", State: plan.Drift}, {Ref: iso, Node: "pve02", ID: "x", State: plan.Converged},
			{Ref: vm, Node: "pve01", ID: "100", State: plan.Unknown, Why: "its node is offline"}},
		Actions:   []plan.Action{{Verb: plan.Download, Ref: iso, Node: "pve01", ID: "x", Why: "is declared"}, {Verb: plan.Download, Ref: iso, Node: "pve02", ID: "x", Why: "of the other node"}},
		Anomalies: []plan.Anomaly{{Ref: vm, ID: "x"}},
		Errors:    []plan.ObjectError{{Ref: vm, File: "vm/a.yaml", Path: "memory", Text: "too much"}},
	}
	last := &Report{Objects: []Object{{Kind: "ISO", Name: "a", Node: "pve02", ID: "x", State: plan.Converged, LastAction: plan.Download, Updated: before},
		{Kind: "ISO", Name: "a", Node: "pve01", ID: "x", State: plan.Converged, Updated: before}}}
	rep.objects(last)
	o := rep.Objects
	if o[0].Why != "is declared" || o[0].LastError != "" || !o[0].Updated.Equal(rep.Finished) {
		t.Errorf("%+v", o[0])
	}
	if o[1].LastAction != plan.Download || !o[1].Updated.Equal(before) || !o[1].Converged.Equal(rep.Finished) {
		t.Errorf("%+v", o[1])
	}
	if o[2].LastError != "vm/a.yaml: memory: too much" || o[2].Why != "its node is offline" || !o[2].Converged.IsZero() {
		t.Errorf("%+v", o[2])
	}
	if rep.Unread() != 1 || rep.Converged() || rep.Pending() {
		t.Errorf("unread %d, converged %v, pending %v", rep.Unread(), rep.Converged(), rep.Pending())
	}
	rep.ReadOnly = true
	if !rep.Pending() {
		t.Error("a read-only cycle's plan is not pending")
	}
	rep.Result = &apply.Result{Actions: []apply.ActionResult{{Action: plan.Action{Verb: plan.Download, Ref: iso, Node: "pve02", ID: "x"}, Outcome: apply.Failed, Err: errors.New("no space")}}}
	rep.Objects = nil
	rep.objects(last)
	if rep.Objects[0].State != plan.Drift || rep.Objects[1].State != plan.Failed || rep.Objects[1].Why != "no space" || rep.Pending() {
		t.Errorf("the failure of one node is another's: %+v", rep.Objects[:2])
	}
	for abort, want := range map[error]bool{nil: true, errors.New("x"): false} {
		done := &Report{Abort: abort, Objects: []Object{{State: plan.Converged}, {State: plan.Pruned}}}
		if done.Converged() != want {
			t.Errorf("%v: converged %v", abort, !want)
		}
	}
}
