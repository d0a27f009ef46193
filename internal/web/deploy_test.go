package web

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rules are the expressions of the alert rules, one a line in the file.
func rules(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +expr: (.+)$`).FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	return out
}

// board is what matters here of a Grafana dashboard.
type board struct {
	Panels []struct {
		ID      int    `json:"id"`
		Title   string `json:"title"`
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ RefID, Expr string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

func dashboard(t *testing.T) (b board) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/proxops.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	selector  = regexp.MustCompile(`\b([a-z]+_[a-z_]+|up)\b(\{[^}]*\})?(\[[^\]]*\])?`)
	matcher   = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	grouping  = regexp.MustCompile(`\b(?:by|without|on|ignoring)\s*\(([^)]*)\)`)
	functions = []string{"histogram_quantile", "label_values", "sum_over_time", "max_over_time", "group_left", "group_right"}
)

// faultsOf says what an expression asks for that /metrics does not serve:
// metrics, their labels, values of those labels, and ranges of what is no
// counter.
func faultsOf(expr string) (faults []string) {
	known := map[string]row{"up": {kind: "gauge"}}
	for _, r := range rows() {
		known[r.name] = r
		if r.kind == "histogram" {
			for suffix, labels := range map[string][]string{"_bucket": {"le"}, "_sum": nil, "_count": nil} {
				known[r.name+suffix] = row{kind: "counter", labels: slices.Concat(r.labels, labels)}
			}
		}
	}
	values := map[string][]string{"outcome": {"done", "warnings", "failed", "deferred", "unknown"}, "type": {"read", "write"}, "result": {"ok", "errors", "aborted"}}
	for _, s := range states {
		values["state"] = append(values["state"], string(s))
	}
	scraped := []string{"job", "instance"}
	have := slices.Clone(scraped)
	found := 0
	for _, m := range selector.FindAllStringSubmatch(grouping.ReplaceAllString(expr, ""), -1) {
		if slices.Contains(functions, m[1]) {
			continue
		}
		r, ok := known[m[1]]
		if !ok {
			faults = append(faults, "there is no metric "+m[1])
			continue
		}
		found++
		have = append(have, r.labels...)
		if m[3] != "" && r.kind != "counter" {
			faults = append(faults, fmt.Sprintf("%s is a %s, and a range of it is asked for", m[1], r.kind))
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(slices.Concat(r.labels, scraped), l[1]) {
				faults = append(faults, fmt.Sprintf("%s has no label %s", m[1], l[1]))
			}
			for _, v := range strings.Split(l[2], "|") {
				if list := values[l[1]]; list != nil && !slices.Contains(list, v) {
					faults = append(faults, fmt.Sprintf("%s: %s is never %s", m[1], l[1], v))
				}
			}
		}
	}
	if found == 0 {
		faults = append(faults, "names no metric")
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.Split(m[1], ",") {
			if l = strings.TrimSpace(l); !slices.Contains(have, l) {
				faults = append(faults, "nothing in it has the label "+l)
			}
		}
	}
	return faults
}

// Alert rules and dashboard ask for what /metrics serves.
func TestDeployAsksForWhatIsServed(t *testing.T) {
	all := rules(t)
	if len(all) < 10 {
		t.Errorf("%d alert rules", len(all))
	}
	b := dashboard(t)
	for _, p := range b.Panels {
		if len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, q := range p.Targets {
			all = append(all, q.Expr)
		}
	}
	for _, v := range b.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			all = append(all, fmt.Sprint(q["query"]))
		}
	}
	for _, expr := range all {
		for _, f := range faultsOf(expr) {
			t.Errorf("%s: %s", expr, f)
		}
	}
	for _, bad := range []string{`proxops_nonsense > 0`, `sum by (guest) (proxops_objects)`, `proxops_objects{state="broken"}`, `proxops_anomalies{node="a"}`, `rate(proxops_anomalies[5m])`, `vector(1)`} {
		if len(faultsOf(bad)) == 0 {
			t.Errorf("%s passes", bad)
		}
	}
}

// No two panels are one, or lie on each other.
func TestDashboardLayout(t *testing.T) {
	panels := dashboard(t).Panels
	for i, p := range panels {
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%q is wider than the dashboard", p.Title)
		}
		for _, o := range panels[:i] {
			a, b := p.GridPos, o.GridPos
			if p.ID == o.ID || a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%q and %q collide", p.Title, o.Title)
			}
		}
	}
}
