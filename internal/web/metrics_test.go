package web

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
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

// Alerts and dashboard may only name metrics that there are.
func TestDeployNamesOnlyRealMetrics(t *testing.T) {
	known := map[string]bool{}
	for _, r := range rows() {
		known[r.name] = true
		if r.kind == "histogram" {
			known[r.name+"_bucket"], known[r.name+"_sum"], known[r.name+"_count"] = true, true, true
		}
	}
	for _, file := range []string{"../../deploy/prometheus/alerts.yaml", "../../deploy/grafana/proxops.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\bproxops_[a-z_]+`).FindAllString(string(text), -1)
		if len(names) < 5 {
			t.Errorf("%s names %d metrics", file, len(names))
		}
		for _, n := range names {
			if !known[n] {
				t.Errorf("%s: there is no metric %s", file, n)
			}
		}
	}
}
