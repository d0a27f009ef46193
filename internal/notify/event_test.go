package notify

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/wire"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ref(name string) kind.Ref { return kind.Ref{Kind: "VM", Name: name} }

func action(name, id string) plan.Action {
	old, now := wire.Plain("512"), wire.Plain("1024")
	return plan.Action{Verb: plan.Update, Ref: ref(name), Node: "pve01", VMID: 100, ID: id, Changes: []field.Change{{Path: "memory", Key: "memory", Old: &old, New: &now}}}
}

// report is what a cycle of the cluster gives; change adds to it.
func report(cluster, commit string, at time.Time, change ...func(*reconcile.Report)) *reconcile.Report {
	rep := &reconcile.Report{Cluster: cluster, Commit: commit, Started: at, Finished: at, Plan: plan.Plan{Cluster: cluster}}
	for _, f := range change {
		f(rep)
	}
	return rep
}

func has(name, id string, s plan.ObjectState) func(*reconcile.Report) {
	return func(r *reconcile.Report) {
		r.Objects = append(r.Objects, reconcile.Object{Cluster: r.Cluster, Kind: "VM", Name: name, Node: "pve01", ID: id, State: s})
	}
}

func ofKind(kind, name, id string, s plan.ObjectState) func(*reconcile.Report) {
	return func(r *reconcile.Report) {
		has(name, id, s)(r)
		r.Objects[len(r.Objects)-1].Kind = kind
	}
}

func did(name, id string, o apply.Outcome, err error) func(*reconcile.Report) {
	return func(r *reconcile.Report) {
		a := action(name, id)
		r.Plan.Actions = append(r.Plan.Actions, a)
		if r.ReadOnly {
			return
		}
		if r.Result == nil {
			r.Result = &apply.Result{}
		}
		r.Result.Actions = append(r.Result.Actions, apply.ActionResult{Action: a, Outcome: o, Err: err, Started: r.Started})
	}
}

func odd(name, id, path, text string) func(*reconcile.Report) {
	return func(r *reconcile.Report) {
		r.Plan.Anomalies = append(r.Plan.Anomalies, plan.Anomaly{Ref: ref(name), Node: "pve01", ID: id, Anomaly: field.Anomaly{Path: path, Text: text, Todo: "look"}})
	}
}

func aborts(err error) func(*reconcile.Report) {
	return func(r *reconcile.Report) { r.Abort, r.Plan = err, plan.Plan{} }
}

func readOnly(r *reconcile.Report) { r.ReadOnly = true }

func held(err error) error {
	return fmt.Errorf("failed 3 times, the last time with: %w (%w; the next try is after 2026-03-01T12:09:00Z)", err, reconcile.ErrHeld)
}

// failing is a report with a failed action and an anomaly.
func failing(cluster, text string) *reconcile.Report {
	return report(cluster, "c1", noon, did("web", "100", apply.Failed, errors.New(text)), has("web", "100", plan.Failed), odd("db", "101", "cpu.cores", "odd"))
}

// Each step is a report; want is what is told of it.
func TestEvents(t *testing.T) {
	type step struct {
		after time.Duration
		rep   func(at time.Time) *reconcile.Report
		want  string
	}
	r := func(want string, commit string, change ...func(*reconcile.Report)) step {
		return step{30 * time.Second, func(at time.Time) *reconcile.Report { return report("prod", commit, at, change...) }, want}
	}
	later := func(d time.Duration, s step) step { s.after = d; return s }
	upid := func(n int) error {
		return fmt.Errorf("UPID:pve01:%08X:x:y:qmresize:100:root@pam: no space left after %d.%ds", n, n, n)
	}
	for name, steps := range map[string][]step{
		"a commit is rolled out: corrected, no drift": {
			r("", "c1", has("web", "100", plan.Converged)),
			r("corrected web Update: memory: 512 → 1024", "c2", did("web", "100", apply.Done, nil), has("web", "100", plan.Converged)),
			r("", "c2", has("web", "100", plan.Converged)),
		},
		"somebody changes a guest: drift, corrected; told once while they keep doing it": {
			r("", "c1", has("web", "100", plan.Converged)),
			r("drift web Update: memory: 512 → 1024; corrected web Update: memory: 512 → 1024", "c1", did("web", "100", apply.Done, nil), has("web", "100", plan.Converged)),
			r("", "c1", did("web", "100", apply.Done, nil), has("web", "100", plan.Converged)),
			r("", "c1", did("web", "100", apply.Done, nil), has("web", "100", plan.Converged)),
			later(time.Hour, r("drift web Update: memory: 512 → 1024 (and 2 times since 12:01 UTC); corrected web Update: memory: 512 → 1024 (and 2 times since 12:01 UTC)", "c1",
				did("web", "100", apply.Done, nil), has("web", "100", plan.Converged))),
		},
		"what lasts when the agent starts is one event of each kind; after that each has its own": {
			r("failed  2 as this agent takes up the cluster: VM web (100): Update: no space; VM db (101): Update: locked; anomaly web cpu.cores: odd", "c1",
				did("web", "100", apply.Failed, errors.New("no space")), has("web", "100", plan.Failed),
				did("db", "101", apply.Failed, errors.New("locked")), has("db", "101", plan.Failed), odd("web", "100", "cpu.cores", "odd")),
			r("anomaly db net0: more; recovered web as declared again", "c1", has("web", "100", plan.Converged),
				did("db", "101", apply.Failed, errors.New("locked")), has("db", "101", plan.Failed), odd("web", "100", "cpu.cores", "odd"), odd("db", "101", "net0", "more")),
		},
		"an action fails, is held, fails otherwise, and is mended": {
			r("failed web Update: no space", "c1", did("web", "100", apply.Failed, errors.New("no space")), has("web", "100", plan.Failed)),
			r("", "c1", did("web", "100", apply.Failed, errors.New("no space")), has("web", "100", plan.Failed)),
			r("", "c1", did("web", "100", apply.Failed, held(errors.New("no space"))), has("web", "100", plan.Failed)),
			r("failed web Update: locked", "c1", did("web", "100", apply.Failed, errors.New("locked")), has("web", "100", plan.Failed)),
			r("", "c1", did("web", "100", apply.Failed, errors.New("no space")), has("web", "100", plan.Failed)),
			r("", "c1", did("web", "100", apply.Deferred, errors.New("busy")), has("web", "100", plan.Skipped)),
			r("corrected web Update: memory: 512 → 1024; recovered web as declared again", "c1", did("web", "100", apply.Done, nil), has("web", "100", plan.Converged)),
			r("failed web Update: no space", "c2", did("web", "100", apply.Failed, errors.New("no space")), has("web", "100", plan.Failed)),
		},
		"task ids and times do not make an error new": {
			r("failed web Update: "+upid(1).Error(), "c1", did("web", "100", apply.Failed, upid(1)), has("web", "100", plan.Failed)),
			r("", "c1", did("web", "100", apply.Failed, upid(2)), has("web", "100", plan.Failed)),
		},
		"an anomaly is told when it comes and when it comes back": {
			r("anomaly web a: odd", "c1", odd("web", "100", "a", "odd"), has("web", "100", plan.Anomalous)),
			r("anomaly web b: odd", "c1", odd("web", "100", "a", "odd"), odd("web", "100", "b", "odd"), has("web", "100", plan.Anomalous)),
			r("failed  no route", "c1", aborts(errors.New("no route"))),
			r("", "c1", aborts(errors.New("no route"))),
			r("recovered  cycles complete again", "c1", odd("web", "100", "a", "odd"), odd("web", "100", "b", "odd"), has("web", "100", plan.Anomalous)),
			r("", "c1", has("web", "100", plan.Unknown)),
			r("", "c1", odd("web", "100", "a", "odd"), has("web", "100", plan.Anomalous)),
			r("anomaly web b: odd", "c1", odd("web", "100", "a", "odd"), odd("web", "100", "b", "odd"), has("web", "100", plan.Anomalous)),
		},
		"a read-only cluster's differences are drift, once": {
			r("drift web Update: memory: 512 → 1024", "c1", readOnly, did("web", "100", apply.Done, nil), has("web", "100", plan.Drift)),
			r("", "c1", readOnly, did("web", "100", apply.Done, nil), has("web", "100", plan.Drift)),
			r("", "c1", readOnly, has("web", "100", plan.Converged)),
			r("drift web Update: memory: 512 → 1024", "c1", readOnly, did("web", "100", apply.Done, nil), has("web", "100", plan.Drift)),
		},
		"a manifest at fault, found by its name": {
			r("failed web vm/web.yaml:3:1: memory: is missing", "c1", func(r *reconcile.Report) {
				r.Plan.Errors = []plan.ObjectError{{Ref: ref("web"), File: "vm/web.yaml:3:1", Path: "memory", Text: "is missing"}}
			}),
			r("recovered web as declared again", "c2", has("web", "100", plan.Converged)),
		},
		"a guest that failed and is no longer declared": {
			r("failed web Update: x", "c1", did("web", "100", apply.Failed, errors.New("x")), has("web", "100", plan.Failed)),
			r("", "c2"),
		},
		"the stop of an agent and a lost right are no failures": {
			r("", "c1", aborts(fmt.Errorf("%w: context canceled", reconcile.ErrStopping))),
			r("", "c1", aborts(fmt.Errorf("x: %w", apply.ErrFenced))),
			r("", "c1", has("web", "100", plan.Converged)),
		},
		"suppressed deletes": {
			r("prune-suppressed old more than 3 deletes", "c1", func(r *reconcile.Report) {
				r.Plan.Suppressed = []plan.Suppressed{{Name: "old", Node: "pve01", VMID: 7, Rule: "budget", Text: "more than 3 deletes"}}
			}),
			r("", "c1", func(r *reconcile.Report) {
				r.Plan.Suppressed = []plan.Suppressed{{Name: "old", Node: "pve01", VMID: 7, Rule: "budget", Text: "more than 3 deletes"}}
			}),
		},
		"a stop in the middle of a plan is no failure": {
			r("corrected web Update: memory: 512 → 1024", "c1", did("web", "100", apply.Done, nil), has("web", "100", plan.Converged), func(r *reconcile.Report) {
				r.Abort, r.Result.Interrupted = errors.New("prod: interrupted"), true
			}),
			r("", "c1", has("web", "100", plan.Converged)),
		},
		"an action that is held when the agent starts was told by nobody here": {
			r("failed web Update: "+held(errors.New("no space")).Error(), "c1", did("web", "100", apply.Failed, held(errors.New("no space"))), has("web", "100", plan.Failed)),
			r("", "c1", did("web", "100", apply.Failed, held(errors.New("no space"))), has("web", "100", plan.Failed)),
		},
		"a failure lasts until the object is as declared, not until it is tried no more": {
			r("failed web Update: no space", "c1", did("web", "100", apply.Failed, errors.New("no space")), has("web", "100", plan.Failed)),
			r("", "c1", has("web", "100", plan.Drift)),
			r("", "c1", did("web", "100", apply.Failed, errors.New("no space")), has("web", "100", plan.Failed)),
			r("recovered web as declared again", "c1", has("web", "100", plan.WaitingRestart)),
		},
		"a failure of a guest that went and came back is a new one": {
			r("failed web Update: x", "c1", did("web", "100", apply.Failed, errors.New("x")), has("web", "100", plan.Failed)),
			r("", "c2"),
			r("failed web Update: x", "c3", did("web", "100", apply.Failed, errors.New("x")), has("web", "100", plan.Failed)),
		},
		"an anomaly outlasts a cycle that could not look": {
			r("anomaly web a: odd", "c1", odd("web", "100", "a", "odd"), has("web", "100", plan.Anomalous)),
			r("", "c1", has("web", "100", plan.Skipped)),
			r("", "c1", has("web", "100", plan.InProgress)),
			r("", "c1", has("web", "100", plan.Unknown)),
			r("", "c1", odd("web", "100", "a", "odd"), has("web", "100", plan.Anomalous)),
			r("", "c1", has("web", "100", plan.Drift)), // it is over
			r("anomaly web a: odd", "c1", odd("web", "100", "a", "odd"), has("web", "100", plan.Anomalous)),
		},
		"one object's recovery is not another's of the same name or id": {
			r("failed web Update: x", "c1", has("db", "100", plan.Converged), has("web", "101", plan.Converged), did("web", "100", apply.Failed, errors.New("x")), has("web", "100", plan.Failed)),
			r("", "c1", has("db", "100", plan.Converged), has("web", "101", plan.Converged), has("web", "100", plan.Failed), did("web", "100", apply.Failed, errors.New("x"))),
			r("", "c1", ofKind("LXC", "web", "100", plan.Converged), has("web", "100", plan.Failed), did("web", "100", apply.Failed, errors.New("x"))),
		},
		"what waits or is odd is settled: its drift is drift": {
			r("", "c1", has("web", "100", plan.WaitingRestart), has("db", "101", plan.Anomalous), has("old", "102", plan.Pruned)),
			r("drift web Update: memory: 512 → 1024; drift db Update: memory: 512 → 1024; drift old Update: memory: 512 → 1024; "+
				"corrected web Update: memory: 512 → 1024; corrected db Update: memory: 512 → 1024; corrected old Update: memory: 512 → 1024", "c1",
				did("web", "100", apply.Done, nil), did("db", "101", apply.Done, nil), did("old", "102", apply.Done, nil)),
		},
		"what was never as declared does not drift": {
			r("", "c1", has("web", "100", plan.Skipped)),
			r("corrected web Update: memory: 512 → 1024", "c1", did("web", "100", apply.Done, nil), has("web", "100", plan.Converged)),
		},
		"a manifest at fault names the object it is of": {
			r("failed web vm/web.yaml:3:1: memory: is missing", "c1", has("db", "101", plan.Converged), ofKind("LXC", "web", "7", plan.Converged), has("web", "100", plan.Failed),
				func(r *reconcile.Report) {
					r.Plan.Errors = []plan.ObjectError{{Ref: ref("web"), File: "vm/web.yaml:3:1", Path: "memory", Text: "is missing"}}
				}),
		},
		"deletes that are held back are one each, by guest and rule": {
			r("prune-suppressed  3 as this agent takes up the cluster: VM old (7): a; VM old (8): a; old: a", "c1", func(r *reconcile.Report) {
				vm, _ := kind.Lookup("VM")
				r.Plan.Suppressed = []plan.Suppressed{{Kind: vm, Name: "old", Node: "pve01", VMID: 7, Rule: "budget", Text: "a"},
					{Kind: vm, Name: "old", Node: "pve01", VMID: 8, Rule: "budget", Text: "a"}, {Name: "old", Node: "pve01", Rule: "budget", Text: "a"}}
			}),
		},
		"what is done at length is told in short": {
			r("corrected web Update: a: (none) → 1, b: 1 → (none), c: (none) → 1, and 2 more; warnings: slow; full", "c1", func(r *reconcile.Report) {
				one := wire.Plain("1")
				a := plan.Action{Verb: plan.Update, Ref: ref("web"), Node: "pve01", ID: "100", Changes: []field.Change{{Path: "a", New: &one}, {Path: "b", Old: &one}, {Path: "c", New: &one}, {Path: "d"}, {Path: "e"}}}
				r.Result = &apply.Result{Actions: []apply.ActionResult{{Action: a, Outcome: apply.Warned, Warnings: []string{"slow", "full"}}}}
			}),
			r("corrected web Create: is declared; corrected db Clone: from base; corrected old Start", "c1", func(r *reconcile.Report) {
				one := wire.Plain("1")
				r.Result = &apply.Result{Actions: []apply.ActionResult{
					{Action: plan.Action{Verb: plan.Create, Ref: ref("web"), Why: "is declared", Changes: []field.Change{{Path: "a", New: &one}}}, Outcome: apply.Done},
					{Action: plan.Action{Verb: plan.Clone, Ref: ref("db"), Why: "from base", Changes: []field.Change{{Path: "a", New: &one}}}, Outcome: apply.Done},
					{Action: plan.Action{Verb: plan.Start, Ref: ref("old")}, Outcome: apply.Done}}}
			}),
			r("failed web Update: what became of it is not known", "c1", did("web", "100", apply.Unknown, nil), has("web", "100", plan.Unknown)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr, at := newTracker(), noon
			for i, s := range steps {
				at = at.Add(s.after)
				var got []string
				for _, e := range tr.events(s.rep(at)) {
					got = append(got, fmt.Sprintf("%s %s %s", e.Event, e.Name, e.Text))
				}
				if strings.Join(got, "; ") != s.want {
					t.Errorf("step %d: told\n %s\nwant\n %s", i+1, strings.Join(got, "; "), s.want)
				}
			}
		})
	}
}

// Errors whose words differ each time are told a few times, not for ever.
func TestEverChangingError(t *testing.T) {
	tr, n := newTracker(), 0
	for i := range 100 {
		n += len(tr.events(report("prod", "c1", noon, aborts(fmt.Errorf("odd answer %d", i)))))
	}
	if n != maxVariants {
		t.Errorf("told %d times", n)
	}
}

// What PVE and git say cannot add lines, colours or a second direction.
func TestTextIsPlain(t *testing.T) {
	tr := newTracker()
	odd := "\r\n\x1b\x00\x7f\u0085\u009b\u2028\u2029\u202a\u202e\u2066\u2069"
	bad := "a\r\nSubject: x\x1b[31m\u202egpj\x00" + odd + "\xff" + strings.Repeat("y", 5000)
	for _, e := range tr.events(report("prod", "c1", noon, aborts(errors.New(bad)))) {
		if strings.ContainsAny(e.Text, odd) || !utf8.ValidString(e.Text) || len([]rune(e.Text)) > maxText {
			t.Errorf("%q", e.Text)
		}
	}
}

// What was told of drift is remembered for as long as it matters, not for ever.
func TestRepeatsAreForgotten(t *testing.T) {
	tr, at := newTracker(), noon
	for i := range 200 {
		at = at.Add(repeatAfter)
		id := fmt.Sprint(i)
		tr.events(report("prod", "c1", at, did("g"+id, id, apply.Done, nil), has("g"+id, id, plan.Converged)))
	}
	if len(tr.recent) > 2 {
		t.Errorf("%d repeats are kept", len(tr.recent))
	}
	for i := range 100 { // one that was repeated is kept to tell how often, for a day
		at = at.Add(25 * repeatAfter)
		id := fmt.Sprint("again", i)
		for range 2 {
			tr.events(report("prod", "c1", at, did("g"+id, id, apply.Done, nil), has("g"+id, id, plan.Converged)))
		}
	}
	if len(tr.recent) > 2 {
		t.Errorf("%d repeats are kept after a day", len(tr.recent))
	}
}

// However much lasts when an agent starts, the summary names a few and counts
// the rest.
func TestSummaryIsBounded(t *testing.T) {
	var change []func(*reconcile.Report)
	for i := range 3 * maxNamed {
		name := fmt.Sprintf("guest%02d", i)
		change = append(change, odd(name, fmt.Sprint(100+i), "cpu.cores", "odd"), has(name, fmt.Sprint(100+i), plan.Anomalous))
	}
	got := newTracker().events(report("prod", "c1", noon, change...))
	if len(got) != 1 || !strings.Contains(got[0].Text, "24 as this agent") || !strings.HasSuffix(got[0].Text, "; and 16 more") ||
		strings.Count(got[0].Text, "guest") != maxNamed || got[0].Todo != "proxops status --cluster prod says more" {
		t.Errorf("%+v", got)
	}
}

// A manifest's fault is told with where the object is, so that it is found.
func TestFaultFindsItsObject(t *testing.T) {
	got := newTracker().events(report("prod", "c1", noon, has("db", "101", plan.Converged), ofKind("LXC", "web", "7", plan.Converged), has("web", "100", plan.Failed),
		func(r *reconcile.Report) { r.Plan.Errors = []plan.ObjectError{{Ref: ref("web"), Text: "is missing"}} }))
	if len(got) != 1 || got[0].ID != "100" || got[0].Kind != "VM" || got[0].Node != "pve01" {
		t.Errorf("%+v", got)
	}
}
