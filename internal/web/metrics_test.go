package web

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
)

var update = flag.Bool("update", false, "write the generated documents")

func TestMetrics(t *testing.T) {
	store := twoClusters()
	m := NewMetrics(store)
	for _, st := range store.Snapshot().Clusters {
		m.Cycle(st.Report)
	}
	m.Delay(100 * time.Millisecond)
	if problems, err := testutil.GatherAndLint(m.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	got := func() map[string]bool {
		t.Helper()
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, f := range families {
			out[f.GetName()] = true
		}
		return out
	}()
	for _, r := range rows() {
		if !got[r.name] {
			t.Errorf("%s is documented and not served", r.name)
		}
		delete(got, r.name)
	}
	for name := range got {
		if strings.HasPrefix(name, "proxops_") {
			t.Errorf("%s is served and not documented", name)
		}
	}
	want := `
# HELP proxops_actions_total Actions carried out or tried; outcome is done, warnings, failed, deferred or unknown.
# TYPE proxops_actions_total counter
proxops_actions_total{action="Update",cluster="a",outcome="done"} 1
proxops_actions_total{action="Update",cluster="b",outcome="done"} 1
# HELP proxops_cycles_total Cycles that ended; result is ok, errors (actions failed) or aborted.
# TYPE proxops_cycles_total counter
proxops_cycles_total{cluster="a",result="aborted"} 1
proxops_cycles_total{cluster="b",result="ok"} 1
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), "proxops_actions_total", "proxops_cycles_total"); err != nil {
		t.Error(err)
	}
}

// A cluster that is gone leaves no series behind, and guests never make any.
func TestSeriesAreBounded(t *testing.T) {
	store := twoClusters()
	m := NewMetrics(store)
	count := func() int {
		n, err := testutil.GatherAndCount(m.registry)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	for i := range 20 {
		rep := cycleOfOne("temp", nil)
		for n := range 100 {
			o := rep.Objects[0]
			o.Name = fmt.Sprintf("vm-%d-%d", i, n)
			rep.Objects = append(rep.Objects, o)
		}
		store.Put(reconcile.Standing{Cluster: "temp", Mine: true, Report: rep})
		m.Cycle(rep)
	}
	if grew := count() - before; grew > 40 {
		t.Errorf("one cluster makes %d series", grew)
	}
	store.Remove("temp")
	m.Forget("temp")
	if now := count(); now != before {
		t.Errorf("%d series, %d before", now, before)
	}
}

func TestMetricsAreServed(t *testing.T) {
	s := serve(t, Config{}, twoClusters())
	code, body := get(t, http.DefaultClient, s.URL()+"/metrics")
	if code != http.StatusOK || !strings.Contains(body, `proxops_objects{cluster="b",state="converged"} 1`) || !strings.Contains(body, "go_goroutines") {
		t.Errorf("%d %.300s", code, body)
	}
}

func TestGeneratedMetricsTable(t *testing.T) {
	const file = "../../docs/operations-metrics.md"
	want := MetricsTable()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the code says (%v): go test ./internal/web -run Generated -update", file, err)
	}
}

// An agent that gave a cluster away, or lost it, says nothing more about it: the
// figures of its last cycle would hide those of the new owner.
func TestFiguresComeFromTheOwner(t *testing.T) {
	store := NewStore(Process{Agent: "a"})
	st := reconcile.Standing{Cluster: "c", Mine: true, Report: cycleOfOne("c", nil)}
	count := func() (n int) {
		families, err := NewMetrics(store).registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "cluster" && strings.HasPrefix(f.GetName(), "proxops_") {
						n++
					}
				}
			}
		}
		return n
	}
	store.Put(st)
	if n := count(); n < 15 {
		t.Errorf("%d series of an owned cluster", n)
	}
	st.Mine = false
	store.Put(st)
	if n := count(); n != 3 { // owned, running and failures
		t.Errorf("%d series of a cluster of another agent", n)
	}
}

// An action that is held back was not tried, and is not counted as failed.
func TestHeldActionsAreNotCounted(t *testing.T) {
	m := NewMetrics(NewStore(Process{}))
	rep := cycleOfOne("c", nil)
	rep.Result = &apply.Result{Actions: []apply.ActionResult{
		{Action: plan.Action{Verb: plan.Create}, Outcome: apply.Failed, Err: errors.New("no space")},
		{Action: plan.Action{Verb: plan.Create}, Outcome: apply.Failed, Err: fmt.Errorf("no space (%w)", reconcile.ErrHeld)},
	}}
	m.Cycle(rep)
	if n := testutil.ToFloat64(m.actions.WithLabelValues("c", "Create", "failed")); n != 1 {
		t.Errorf("%v tries", n)
	}
}
