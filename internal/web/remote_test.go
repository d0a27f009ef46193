package web

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/show"
)

// What is printed from a daemon's status is what is printed from the cycles
// themselves, and every way to ask for a cluster's state gives the same answer:
// deletes that are held back are never "in sync".
func TestRemoteTable(t *testing.T) {
	store := twoClusters()
	s := serve(t, Config{Token: secret.New("open sesame")}, store)
	st, err := Fetch(t.Context(), s.URL()+"/", secret.New("open sesame"), "")
	if err != nil {
		t.Fatal(err)
	}
	var want, got bytes.Buffer
	local := StatusOf(store.Snapshot())
	local.Text(&want, show.Style{})
	st.Text(&got, show.Style{})
	if want.String() != got.String() {
		t.Errorf("got\n%s\nwant\n%s", &got, &want)
	}
	for i, c := range store.Snapshot().Clusters {
		state := c.State()
		if st.Clusters[i].State != state || cardOf(c).State != state || !strings.Contains(got.String(), c.Cluster+"  ") || !strings.Contains(got.String(), state) {
			t.Errorf("%s is %q; the document says %q, the dashboard %q, the table\n%s", c.Cluster, state, st.Clusters[i].State, cardOf(c).State, &got)
		}
	}
}

// A delete that is held back has a row with its reason and what to do, counts in
// its own column and makes the cluster's state "anomalies".
func TestTextTellsHeldDeletes(t *testing.T) {
	vm, _ := kind.Lookup("VM")
	r := reconcile.Report{Cluster: "lab", Commit: "0123456789abcdef", Dirty: true, Plan: plan.Plan{Cluster: "lab",
		Suppressed: []plan.Suppressed{{Kind: vm, Name: "old", Node: "pve01", VMID: 140, Rule: "prune-budget", Text: "24 deletes are more than the budget", Todo: "raise it"}}}}
	st := StatusOf(Snapshot{Clusters: []reconcile.Standing{{Cluster: "lab", Mine: true, Report: &r}}})
	var out bytes.Buffer
	st.Text(&out, show.Style{})
	rows := strings.Split(out.String(), "\n")
	if f := strings.Join(strings.Fields(rows[1]), " "); f != "lab anomalies 0 0 0 0 0 1 0 0 0123456789 with uncommitted edits" {
		t.Errorf("%q of\n%s", f, &out)
	}
	if f := strings.Join(strings.Fields(rows[4]), " "); f != "lab VM/old pve01 140 held back 24 deletes are more than the budget → raise it" {
		t.Errorf("%q of\n%s", f, &out)
	}
	if st.Bad() {
		t.Error("a delete that waits for a person is no error")
	}
}

// Every anomaly that the head counts has a row, whatever state its object is in.
func TestTextTellsEveryAnomaly(t *testing.T) {
	found := func(name, id, path string) plan.Anomaly {
		return plan.Anomaly{Ref: kind.Ref{Kind: "VM", Name: name}, Node: "pve01", ID: id, Anomaly: field.Anomaly{Path: path, Text: "is odd", Todo: "look at it"}}
	}
	r := cycleOfOne("lab", nil)
	r.Plan.Suppressed = nil
	r.Plan.Anomalies = []plan.Anomaly{found("waits", "100", "disks[1]"), found("drifts", "101", "cpu.type"), found("odd", "102", ""), {ID: "900", Anomaly: field.Anomaly{Text: "nobody's"}}}
	r.Objects = []reconcile.Object{
		{Kind: "VM", Name: "waits", Node: "pve01", ID: "100", State: plan.WaitingRestart, Why: "memory waits"},
		{Kind: "VM", Name: "drifts", Node: "pve01", ID: "101", State: plan.Drift, Why: "drift: memory; cpu.type: is odd"},
		{Kind: "VM", Name: "odd", Node: "pve01", ID: "102", State: plan.Anomalous, Why: "is odd"},
		{Kind: "VM", Name: "left", Node: "pve01", ID: "103", State: plan.Anomalous, Why: "of a cycle before"},
	}
	st := StatusOf(Snapshot{Clusters: []reconcile.Standing{{Cluster: "lab", Mine: true, Report: r}}})
	var out strings.Builder
	st.Text(&out, show.Style{})
	var got []string
	for _, l := range strings.Split(out.String(), "\n")[4:] {
		if f := strings.Join(strings.Fields(l), " "); f != "" {
			got = append(got, f)
		}
	}
	want := []string{
		"lab VM/waits pve01 100 waiting-restart memory waits",
		"lab VM/drifts pve01 101 drift drift: memory",
		"lab VM/left pve01 103 anomalous of a cycle before",
		"lab VM/waits pve01 100 anomaly disks[1]: is odd → look at it",
		"lab VM/drifts pve01 101 anomaly cpu.type: is odd → look at it",
		"lab VM/odd pve01 102 anomaly is odd → look at it",
		"lab guest/ 900 anomaly nobody's",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := len(st.Clusters[0].Anomalies); n != st.LastCycle.Anomalies {
		t.Errorf("%d listed, %d counted", n, st.LastCycle.Anomalies)
	}
}

func TestRemoteFaults(t *testing.T) {
	s := serve(t, Config{Token: secret.New("open sesame")}, twoClusters())
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer html.Close()
	for _, c := range []struct{ url, token, want string }{
		{s.URL(), "", "wants a token: set PROXOPS_LISTEN_AUTH"},
		{s.URL(), "wrong", "refuses the token in PROXOPS_LISTEN_AUTH"},
		{other.URL, "", "404"},
		{html.URL, "", "does not answer as"},
		{"ftp://x", "", "not an http"},
		{"localhost:9494", "", "not an http"},
		{"http://me:pw@localhost", "", "do not belong"},
		{"http://proxops.example.org", "open sesame", "clear text"},
	} {
		_, err := Fetch(t.Context(), c.url, secret.New(c.token), "")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s: %v, want %s", c.url, err, c.want)
		}
	}
}

// The token goes to the server that was named, and to none that it points at.
func TestRemoteFollowsNoRedirect(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer first.Close()
	if _, err := Fetch(t.Context(), first.URL, secret.New("open sesame"), ""); err == nil || asked {
		t.Errorf("%v, followed: %v", err, asked)
	}
}
