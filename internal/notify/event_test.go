package notify

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	bad := "a\r\nSubject: x\x1b[31m\u202egpj\x00" + strings.Repeat("y", 5000)
	for _, e := range tr.events(report("prod", "c1", noon, aborts(errors.New(bad)))) {
		if strings.ContainsAny(e.Text, "\r\n\x1b\x00\u202e") || len([]rune(e.Text)) > maxText {
			t.Errorf("%q", e.Text)
		}
	}
}
