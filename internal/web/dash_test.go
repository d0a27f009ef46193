package web

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

const evil = `<script>alert(1)</script>"onload='x'`

func val(s string) *wire.Value { v := wire.Plain(s); return &v }

// estate is a report with one of everything that the pages show.
func estate(cluster string, finished time.Time) *reconcile.Report {
	vm, _ := kind.Lookup("VM")
	web, db, hostile := kind.Ref{Kind: "VM", Name: "web"}, kind.Ref{Kind: "VM", Name: "db"}, kind.Ref{Kind: "VM", Name: evil}
	iso := kind.Ref{Kind: "ISO", Name: "rescue"}
	hidden := wire.Hidden(secret.New("canary-dash"))
	update := plan.Action{Verb: plan.Update, Ref: web, Kind: vm, Node: "pve01", VMID: 101, ID: "101", Why: "drift: networks[0].vlan", Power: field.Live,
		Changes: []field.Change{{Path: "networks[0].vlan", Key: "net0.tag", Old: val("10"), New: val("20"), Impact: field.Live},
			{Path: "cloud-init-data.ci-password-ref", Key: "cipassword", New: &hidden}}, Do: plan.UpdateStep{}}
	start := plan.Action{Verb: plan.Start, Ref: db, Kind: vm, Node: "pve01", VMID: 102, ID: "102", Why: "state: started", Do: plan.PowerStep{}}
	p := plan.Plan{Cluster: cluster, Commit: "1234567890abcdef", Actions: []plan.Action{update, start},
		Anomalies:  []plan.Anomaly{{Ref: hostile, Node: "pve01", VMID: 103, ID: "103", Anomaly: field.Anomaly{Path: "disks[0].size", Text: "live " + evil, Todo: "grow it"}}},
		Suppressed: []plan.Suppressed{{Kind: vm, Name: evil, Node: "pve01", VMID: 104, Rule: "budget", Text: "over the budget", Todo: "raise it"}},
		Levels:     [][]kind.Ref{{iso}, {web, db, hostile}}, Notes: []string{"note " + evil}}
	p.Objects = []plan.Object{
		{Ref: iso, ID: "local:iso/rescue.iso", Node: "pve01", State: plan.Converged},
		{Ref: web, Kind: vm, Node: "pve01", VMID: 101, ID: "101", State: plan.Drift, Needs: []kind.Ref{iso}, Level: 1, File: "vm/base/web.yaml"},
		{Ref: db, Kind: vm, Node: "pve01", VMID: 102, ID: "102", State: plan.WaitingRestart, Why: "memory waits", Waiting: []field.Change{{Path: "memory", Key: "memory", Old: val("1"), New: val("2")}}},
		{Ref: hostile, Kind: vm, Node: "pve01", VMID: 103, ID: "103", State: plan.Anomalous, Why: evil},
	}
	rep := &reconcile.Report{Cluster: cluster, Commit: p.Commit, Started: finished.Add(-time.Second), Finished: finished, Plan: p,
		Result: &apply.Result{Actions: []apply.ActionResult{
			{Action: update, Outcome: apply.Done, Started: finished},
			{Action: start, Outcome: apply.Failed, Err: errors.New("start failed " + evil), Tail: []string{"kvm: " + evil}, UPID: "UPID:pve01:1:2:3:qmstart:102:root@pam:", Started: finished},
		}}}
	for _, o := range p.Objects {
		state := o.State
		if o.Ref == db {
			state = plan.Failed
		}
		rep.Objects = append(rep.Objects, reconcile.Object{Cluster: cluster, Kind: o.Ref.Kind, Name: o.Ref.Name, Node: o.Node, ID: o.ID, State: state, Why: o.Why, Updated: finished})
	}
	return rep
}

func filledPages() *Store {
	s := NewStore(Process{Version: "test", Agent: "agent-1", Start: time.Now().Add(-time.Hour)})
	s.Put(reconcile.Standing{Cluster: "home", Mine: true, Report: estate("home", time.Now()), Next: time.Now().Add(20 * time.Second)})
	s.Put(reconcile.Standing{Cluster: "lab", Mine: true, Running: true, Report: &reconcile.Report{Cluster: "lab", Finished: time.Now(), Abort: errors.New("lab: unreachable " + evil)},
		Active: []reconcile.Active{{Action: plan.Action{Verb: plan.Clone, Ref: kind.Ref{Kind: "VM", Name: "new"}}, Tail: []string{"50% " + evil}}}})
	s.Put(reconcile.Standing{Cluster: "elsewhere"})
	s.SetRepository(Repository{Source: "https://git.example/r", Commit: "1234567890abcdef"})
	return s
}

// pagesOf are all pages of the filled store.
var pagesOf = []string{"/", "/objects", "/objects?q=pve01&state=drift", "/clusters/home", "/clusters/home/plan", "/clusters/home/VM/web", "/clusters/home/VM/db",
	"/clusters/home/VM/%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22onload=%27x%27", "/clusters/lab", "/clusters/lab/plan", "/clusters/elsewhere", "/clusters/elsewhere/plan"}

func page(t *testing.T, h http.Handler, path string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	res := w.Result()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestPages(t *testing.T) {
	h := Pages(filledPages(), nil)
	for _, path := range pagesOf {
		res, body := page(t, h, path)
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", path, res.StatusCode)
		}
		if got := res.Header.Get("Content-Security-Policy"); got != contentPolicy {
			t.Errorf("%s: policy %q", path, got)
		}
		if strings.Contains(body, "<script>alert") || strings.Contains(body, `"onload='`) {
			t.Errorf("%s: text of a guest reached the page as markup", path)
		}
		if strings.Contains(body, "canary-dash") {
			t.Errorf("%s shows a secret", path)
		}
		if m := regexp.MustCompile(`(?i)<[^>]+\s(on\w+|style)=`).FindString(body); m != "" {
			t.Errorf("%s: inline script or style: %s", path, m)
		}
		if !strings.HasSuffix(strings.TrimSpace(body), "</html>") {
			t.Errorf("%s: cut off", path)
		}
	}
}

func TestPageContents(t *testing.T) {
	h := Pages(filledPages(), nil)
	for path, want := range map[string][]string{
		"/":                     {"home", "lab", "elsewhere", "errors", "failing", "lab: unreachable", "Deletes held back"},
		"/clusters/home":        {"VM/web", "drift", "4 of 4 objects" /* count */},
		"/clusters/home/plan":   {"networks[0].vlan", "net0.tag", "budget", "over the budget", "grow it", "<svg", "(redacted)"},
		"/clusters/home/VM/web": {"vm/base/web.yaml", "ISO:rescue", "10 → 20", "done"},
		"/clusters/home/VM/db":  {"start failed", "UPID:pve01", "memory waits"},
		"/objects?state=drift":  {"VM/web"},
	} {
		_, body := page(t, h, path)
		body = strings.NewReplacer(`<span id="count">4</span>`, "4").Replace(body)
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("%s lacks %q", path, w)
			}
		}
	}
	if _, body := page(t, h, "/objects?state=drift"); strings.Contains(body, "/VM/db") {
		t.Error("the filter lets through what it should not")
	}
}

func TestUnknownPages(t *testing.T) {
	h := Pages(filledPages(), nil)
	for _, path := range []string{"/nothing", "/clusters/none", "/clusters/home/VM/none", "/clusters/elsewhere/VM/x", "/assets/none"} {
		if res, _ := page(t, h, path); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d", path, res.StatusCode)
		}
	}
}

func TestEvents(t *testing.T) {
	store := filledPages()
	srv := httptest.NewServer(Pages(store, nil))
	defer srv.Close()
	res, err := http.Get(srv.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf, all := make([]byte, 4096), ""
	read := func(until string) {
		t.Helper()
		for !strings.Contains(all, until) {
			n, err := res.Body.Read(buf)
			if err != nil {
				t.Fatalf("the stream ended before %q: %v", until, err)
			}
			all += string(buf[:n])
		}
	}
	read("event: hello")
	store.Put(reconcile.Standing{Cluster: "home", Mine: true, Report: estate("home", time.Now())})
	read(`"clusters":["home"]`)
}

// A cycle that should have begun is due, whatever its time was.
func TestDue(t *testing.T) {
	if got := due(time.Now().Add(-3 * time.Second)); got != "due now" {
		t.Error(got)
	}
	if got := due(time.Now().Add(90 * time.Second)); got != "1 min from now" {
		t.Error(got)
	}
}
