package web

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
)

// row documents one metric. The rows are the only list: the registry, the
// documentation and its test come from it.
type row struct {
	name   string
	kind   string // gauge, counter, histogram
	labels []string
	doc    string
	// read gives a gauge's samples of one cluster; nil for what is counted.
	read func(reconcile.Standing, func(v float64, labels ...string))
	// whole gives a gauge's value for the process.
	whole func(Snapshot) float64
}

// states are the values of the label state, all of them: a series of a state
// that no object is in is 0 and does not go stale.
var states = []plan.ObjectState{plan.Desired, plan.Drift, plan.Converged, plan.InProgress, plan.Failed, plan.Skipped, plan.Pruned,
	plan.Anomalous, plan.WaitingRestart, plan.Unknown}

func rows() []row {
	// What is known of a cluster comes from the agent that reconciles it: one
	// that gave it away would go on serving what it saw last.
	of := func(f func(reconcile.Standing, *reconcile.Report) float64) func(reconcile.Standing, func(float64, ...string)) {
		return func(s reconcile.Standing, give func(float64, ...string)) {
			if s.Report != nil && s.Mine {
				give(f(s, s.Report))
			}
		}
	}
	count := func(f func(reconcile.Counts) int) func(reconcile.Standing, func(float64, ...string)) {
		return of(func(_ reconcile.Standing, r *reconcile.Report) float64 { return float64(f(r.Counts())) })
	}
	cluster := []string{"cluster"}
	return []row{
		{name: "proxops_build_info", kind: "gauge", labels: []string{"version", "go"}, doc: "Always 1; the labels say what runs."},
		{name: "proxops_process_ready", kind: "gauge", doc: "1 when every cluster of this agent has seen the end of a cycle.", whole: func(s Snapshot) float64 {
			for _, c := range s.Clusters {
				if c.Mine && c.Cycles == 0 {
					return 0
				}
			}
			return oneIf(!s.Stopping && !s.Repo.unread())
		}},
		{name: "proxops_agents", kind: "gauge", doc: "Agents that share the clusters, as this one sees them; 1 when it is alone.", whole: func(s Snapshot) float64 { return float64(len(s.Agents)) }},
		{name: "proxops_repository_stale", kind: "gauge", doc: "1 while the repository cannot be fetched and the last good commit is reconciled.", whole: func(s Snapshot) float64 { return oneIf(s.Repo.Stale) }},
		{name: "proxops_repository_failed", kind: "gauge", doc: "1 while a fault of the repository or of proxops.yaml stops all clusters.", whole: func(s Snapshot) float64 { return oneIf(s.Repo.Err != nil && !s.Repo.Stale) }},
		{name: "proxops_cluster_owned", kind: "gauge", labels: cluster, doc: "1 where this agent reconciles the cluster.",
			read: func(s reconcile.Standing, give func(float64, ...string)) { give(oneIf(s.Mine)) }},
		{name: "proxops_cluster_converged", kind: "gauge", labels: cluster, doc: "1 when every declared object was as declared at the end of the last cycle and every planned delete was carried out. Deletes that a guard holds back, and anomalies of guests that are not declared, leave it at 1: they wait for a person, and proxops_prune_suppressed and proxops_anomalies count them. Served, as are all figures of a cluster's last cycle, by the agent that reconciles it.",
			read: of(func(_ reconcile.Standing, r *reconcile.Report) float64 { return oneIf(r.Converged()) })},
		{name: "proxops_cluster_read_only", kind: "gauge", labels: cluster, doc: "1 where drift is reported and not corrected.",
			read: of(func(_ reconcile.Standing, r *reconcile.Report) float64 { return oneIf(r.ReadOnly) })},
		{name: "proxops_cycle_running", kind: "gauge", labels: cluster, doc: "1 while a cycle runs.",
			read: func(s reconcile.Standing, give func(float64, ...string)) { give(oneIf(s.Running)) }},
		{name: "proxops_cycle_aborted", kind: "gauge", labels: cluster, doc: "1 when the last cycle broke off: a fault of the cluster's files, or PVE could not be read.",
			read: of(func(_ reconcile.Standing, r *reconcile.Report) float64 { return oneIf(r.Abort != nil) })},
		{name: "proxops_cycle_failures", kind: "gauge", labels: cluster, doc: "Cycles in a row that broke off on the cluster; each doubles the wait, up to five minutes.",
			read: func(s reconcile.Standing, give func(float64, ...string)) { give(float64(s.Failures)) }},
		{name: "proxops_cycle_last_timestamp_seconds", kind: "gauge", labels: cluster, doc: "When the last cycle ended, in seconds since 1970.",
			read: of(func(_ reconcile.Standing, r *reconcile.Report) float64 { return seconds(r.Finished) })},
		{name: "proxops_objects", kind: "gauge", labels: []string{"cluster", "state"}, doc: "Declared objects by state at the end of the last cycle; one in several places counts once, in the worst state. State pruned counts guests that the cycle deleted.", read: objectStates},
		{name: "proxops_pending_actions", kind: "gauge", labels: cluster, doc: "Actions in the last plan that were not carried out.",
			read: of(func(_ reconcile.Standing, r *reconcile.Report) float64 { return float64(pending(r)) })},
		{name: "proxops_anomalies", kind: "gauge", labels: cluster, doc: "Things in the last plan that only a person can settle.", read: count(func(c reconcile.Counts) int { return c.Anomalies })},
		{name: "proxops_prune_suppressed", kind: "gauge", labels: cluster, doc: "Deletes that a guard held back in the last cycle.", read: count(func(c reconcile.Counts) int { return c.PruneDeferred })},
		{name: "proxops_object_errors", kind: "gauge", labels: cluster, doc: "Objects with a fault, and actions that failed, in the last cycle.", read: count(func(c reconcile.Counts) int { return c.ActionsError })},
		{name: "proxops_cycles_total", kind: "counter", labels: []string{"cluster", "result"}, doc: "Cycles that ended; result is ok, errors (actions failed) or aborted."},
		{name: "proxops_actions_total", kind: "counter", labels: []string{"cluster", "action", "outcome"}, doc: "Actions carried out or tried; outcome is done, warnings, failed, deferred or unknown."},
		{name: "proxops_pve_requests_total", kind: "counter", labels: []string{"cluster", "type"}, doc: "Requests to PVE; type is read or write."},
		{name: "proxops_cycle_duration_seconds", kind: "histogram", labels: cluster, doc: "How long cycles took."},
		{name: "proxops_cycle_start_delay_seconds", kind: "histogram", doc: "How much later than due cycles started."},
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func objectStates(s reconcile.Standing, give func(float64, ...string)) {
	if s.Report == nil || !s.Mine {
		return
	}
	n := s.Report.States()
	n[plan.Pruned] = s.Report.Counts().Pruned
	for _, st := range states {
		give(float64(n[st]), string(st))
	}
}

func pending(r *reconcile.Report) int {
	if r.Result == nil {
		return len(r.Plan.Actions)
	}
	n := 0
	for _, a := range r.Result.Actions {
		if a.Outcome != apply.Done && a.Outcome != apply.Warned {
			n++
		}
	}
	return n
}

// Metrics are the daemon's metrics in a registry of their own.
type Metrics struct {
	registry *prometheus.Registry
	store    *Store
	descs    map[string]*prometheus.Desc
	cycles   *prometheus.CounterVec
	actions  *prometheus.CounterVec
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	delay    prometheus.Histogram
}

// NewMetrics makes the metrics of a store. Gauges are read from it when they
// are asked for.
func NewMetrics(store *Store) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), store: store, descs: map[string]*prometheus.Desc{}}
	counter := func(r row) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: r.name, Help: r.doc}, r.labels)
		m.registry.MustRegister(v)
		return v
	}
	buckets := []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	for _, r := range rows() {
		switch r.name {
		case "proxops_cycles_total":
			m.cycles = counter(r)
		case "proxops_actions_total":
			m.actions = counter(r)
		case "proxops_pve_requests_total":
			m.requests = counter(r)
		case "proxops_cycle_duration_seconds":
			m.took = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: r.name, Help: r.doc, Buckets: buckets}, r.labels)
			m.registry.MustRegister(m.took)
		case "proxops_cycle_start_delay_seconds":
			m.delay = prometheus.NewHistogram(prometheus.HistogramOpts{Name: r.name, Help: r.doc, Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}})
			m.registry.MustRegister(m.delay)
		default:
			m.descs[r.name] = prometheus.NewDesc(r.name, r.doc, r.labels, nil)
		}
	}
	m.registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Cycle counts a cycle that ended.
func (m *Metrics) Cycle(rep *reconcile.Report) {
	result := "ok"
	switch {
	case rep.Abort != nil:
		result = "aborted"
	case rep.Failed():
		result = "errors"
	}
	m.cycles.WithLabelValues(rep.Cluster, result).Inc()
	m.requests.WithLabelValues(rep.Cluster, "read").Add(float64(rep.Reads))
	m.requests.WithLabelValues(rep.Cluster, "write").Add(float64(rep.Writes))
	m.took.WithLabelValues(rep.Cluster).Observe(rep.Finished.Sub(rep.Started).Seconds())
	if rep.Result == nil {
		return
	}
	for _, a := range rep.Result.Actions {
		if errors.Is(a.Err, reconcile.ErrHeld) { // it was not tried
			continue
		}
		m.actions.WithLabelValues(rep.Cluster, string(a.Action.Verb), string(a.Outcome)).Inc()
	}
}

// Delay counts how much later than due a cycle started.
func (m *Metrics) Delay(d time.Duration) { m.delay.Observe(max(0, d).Seconds()) }

// Forget drops the series of a cluster that is no longer declared.
func (m *Metrics) Forget(cluster string) {
	by := prometheus.Labels{"cluster": cluster}
	m.cycles.DeletePartialMatch(by)
	m.actions.DeletePartialMatch(by)
	m.requests.DeletePartialMatch(by)
	m.took.DeletePartialMatch(by)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	snap := m.store.Snapshot()
	for _, r := range rows() {
		d, ok := m.descs[r.name]
		switch {
		case !ok:
		case r.whole != nil:
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, r.whole(snap))
		case r.read != nil:
			for _, c := range snap.Clusters {
				r.read(c, func(v float64, labels ...string) {
					ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{c.Cluster}, labels...)...)
				})
			}
		default:
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, 1, snap.Process.Version, runtime.Version())
		}
	}
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// MetricsTable is docs/operations-metrics.md: every metric, from the rows.
func MetricsTable() string {
	var b strings.Builder
	b.WriteString(`# Metrics

This page is generated from the table that the metrics come from.

The daemon serves them at ` + "`/metrics`" + `. Labels are bounded: ` + "`cluster`" + ` has one value
for each declared cluster, ` + "`state`, `action`, `outcome`, `result` and `type`" + ` have the
few values of their kind; no metric has a label for a guest. Go's own and the
process's metrics come with them (` + "`go_*`, `process_*`" + `).

` + "`deploy/prometheus/alerts.yaml`" + ` holds alert rules over these metrics, and
` + "`deploy/grafana/proxops.json`" + ` a dashboard.

| metric | type | labels | what |
|---|---|---|---|
`)
	for _, r := range rows() {
		labels := ""
		for i, l := range r.labels {
			if i > 0 {
				labels += ", "
			}
			labels += "`" + l + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.name, r.kind, labels, r.doc)
	}
	return b.String()
}
