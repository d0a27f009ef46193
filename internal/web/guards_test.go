package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
	"golang.org/x/time/rate"
)

// A webhook's secret that changed is in force at once, and the old one is not;
// what was off at the start is not switched on by an entry that appears.
func TestChangedSecrets(t *testing.T) {
	kicks := 0
	s := serve(t, Config{Webhook: secret.New("old"), Reconcile: func(string) { kicks++ }}, twoClusters())
	s.SetSecrets(secret.New("a token"), secret.New("new"))
	send := func(key, id string) int {
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, delivery("gitlab", key, id, push))
		return w.Code
	}
	if code := send("old", "1"); code != http.StatusUnauthorized || kicks != 0 {
		t.Errorf("with the old secret: %d, %d reconciles", code, kicks)
	}
	if code := send("new", "2"); code != http.StatusAccepted || kicks != 1 {
		t.Errorf("with the new secret: %d, %d reconciles", code, kicks)
	}
	if code, _ := get(t, http.DefaultClient, s.URL()+"/status"); code != http.StatusOK {
		t.Errorf("a token appeared where none was asked for: %d", code)
	}
}

// A forge that does not sign is known by its delivery's id: the same body may
// come twice for good, the same delivery may not.
func TestReplayOfAnUnsignedDelivery(t *testing.T) {
	send, kicks := hookServer(t, "")
	for i, c := range []struct {
		id   string
		n    int
		code int
	}{{"1", 1, 202}, {"2", 2, 202}, {"1", 2, 200}, {"", 3, 202}, {"", 3, 200}} {
		if code := send(delivery("gitlab", hookKey, c.id, push)); code != c.code || *kicks != c.n {
			t.Errorf("%d: %d and %d reconciles, want %d and %d", i, code, *kicks, c.code, c.n)
		}
	}
	// The key that GitLab says is made for this goes before the other.
	for i, want := range []int{202, 200} {
		r := delivery("gitlab", hookKey, fmt.Sprint("uuid", i), push)
		r.Header.Set("Idempotency-Key", "the same")
		if code := send(r); code != want {
			t.Errorf("idempotency key, %d: %d, want %d", i, code, want)
		}
	}
}

// The oldest delivery is the one that is forgotten, and an id of any length
// costs no more than a short one.
func TestReplayMemoryForgetsTheOldest(t *testing.T) {
	h := newHooks(Config{Webhook: secret.New(hookKey)})
	h.limit = rate.NewLimiter(rate.Inf, 0)
	f := forges["github"]
	for i := range hookMemory + hookMemory/2 {
		h.known(f, http.Header{}, fmt.Append(nil, i))
	}
	for i := hookMemory / 2; i < hookMemory+hookMemory/2; i++ {
		if !h.known(f, http.Header{}, fmt.Append(nil, i)) {
			t.Fatalf("%d of %d is forgotten", i, hookMemory+hookMemory/2)
		}
	}
	gitlab := forges["gitlab"]
	h.known(gitlab, http.Header{"X-Gitlab-Event-Uuid": {strings.Repeat("x", 100_000)}}, nil)
	for key := range h.seen {
		if len(key) > 300 {
			t.Errorf("a key of %d bytes is kept", len(key))
		}
	}
}

func TestOddDeliveries(t *testing.T) {
	send, kicks := hookServer(t, "v1")
	plain := delivery("github", hookKey, "1", push)
	plain.Header.Set("X-Hub-Signature-256", "sha1="+sign(hookKey, push))
	if code := send(plain); code != http.StatusUnauthorized {
		t.Errorf("another kind of signature: %d", code)
	}
	broken := delivery("github", hookKey, "2", push)
	broken.Body = errBody{}
	if code := send(broken); code != http.StatusBadRequest {
		t.Errorf("a body that breaks off: %d", code)
	}
	form := delivery("github", hookKey, "3", "payload=%zz")
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if code := send(form); code != http.StatusBadRequest || *kicks != 0 {
		t.Errorf("a form that cannot be read: %d, %d reconciles", code, *kicks)
	}
	for ref, want := range map[string]int{"refs/tags/v1": 202, "refs/heads/v1": 202, "v1": 200, "refs/heads/v1/x": 200, "refs/notes/v1": 200} {
		if code := send(delivery("github", hookKey, ref, `{"ref":"`+ref+`"}`)); code != want {
			t.Errorf("%s: %d, want %d", ref, code, want)
		}
	}
	if *kicks != 2 {
		t.Errorf("%d reconciles, want 2", *kicks)
	}
}

type errBody struct{}

func (errBody) Read([]byte) (int, error) { return 0, errors.New("reset") }
func (errBody) Close() error             { return nil }

// A listener with half of what TLS needs, or with files of no use, does not
// start; it never starts without TLS instead.
func TestTLSSettingsThatCannotWork(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	file := func(n string) string { return filepath.Join(a.dir, n) }
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no key":               {Config{CertFile: file("server.pem")}, "needs cert-file and key-file together"},
		"no certificate":       {Config{KeyFile: file("server.key")}, "needs cert-file and key-file together"},
		"an authority alone":   {Config{ClientCAFile: file("ca.pem")}, "needs cert-file and key-file together"},
		"a key of another":     {Config{CertFile: file("server.pem"), KeyFile: file("ca.key")}, "listen-tls: "},
		"no such certificate":  {Config{CertFile: file("none.pem"), KeyFile: file("server.key")}, "listen-tls: "},
		"no such authority":    {Config{CertFile: file("server.pem"), KeyFile: file("server.key"), ClientCAFile: file("none")}, "listen-tls.client-ca-file: "},
		"an authority in name": {Config{CertFile: file("server.pem"), KeyFile: file("server.key"), ClientCAFile: file("ca.key")}, "holds no certificate"},
		"not an address":       {Config{Listen: "9494"}, "is not host:port"},
	} {
		if c.cfg.Listen == "" {
			c.cfg.Listen = "127.0.0.1:0"
		}
		c.cfg.Token = secret.New("open sesame")
		store := twoClusters()
		s, err := Listen(c.cfg, store, NewMetrics(store))
		if err == nil {
			_ = s.listener.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// Client certificates protect a listener that other machines reach. A token
// that would go over such a listener in clear text is warned of.
func TestReachableListeners(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	file := func(n string) string { return filepath.Join(a.dir, n) }
	for name, c := range map[string]struct {
		cfg    Config
		warned bool
	}{
		"client certificates": {Config{Listen: "0.0.0.0:0", CertFile: file("server.pem"), KeyFile: file("server.key"), ClientCAFile: file("ca.pem")}, false},
		"a token over TLS":    {Config{Listen: "0.0.0.0:0", CertFile: file("server.pem"), KeyFile: file("server.key"), Token: secret.New("t")}, false},
		"a token":             {Config{Listen: "0.0.0.0:0", Token: secret.New("t")}, true},
		"on loopback":         {Config{Listen: "127.0.0.1:0", Token: secret.New("t")}, false},
	} {
		var logged bytes.Buffer
		c.cfg.Log = slog.New(slog.NewTextHandler(&logged, nil))
		store := twoClusters()
		s, err := Listen(c.cfg, store, NewMetrics(store))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = s.listener.Close()
		if got := strings.Contains(logged.String(), "clear text"); got != c.warned {
			t.Errorf("%s: warned: %v: %s", name, got, logged.String())
		}
	}
}

func TestLocalNames(t *testing.T) {
	for host, want := range map[string]bool{"[::1]": true, "::1": true, "127.0.0.1:1": true, "localhost": true, "192.0.2.1": false, "192.0.2.1:80": false,
		"example.org": false, "": false, "[fe80::1]:80": false} {
		if got := localName(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

// A status document is asked for over TLS with the authority that was named,
// and over clear text only where the token does not leave the machine.
func TestFetchOverTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server")
	file := func(n string) string { return filepath.Join(a.dir, n) }
	s := serve(t, Config{CertFile: file("server.pem"), KeyFile: file("server.key"), Token: secret.New("open sesame")}, twoClusters())
	token := secret.New("open sesame")
	if st, err := Fetch(t.Context(), s.URL()+"/", token, file("ca.pem")); err != nil || len(st.Clusters) != 2 {
		t.Errorf("with its authority: %v", err)
	}
	for ca, want := range map[string]string{"": "certificate", file("none"): "--ca-file: ", file("ca.key"): "holds no certificate"} {
		if _, err := Fetch(t.Context(), s.URL(), token, ca); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v, want %s", ca, err, want)
		}
	}
	json := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer json.Close()
	for url, want := range map[string]string{json.URL: "does not answer as", "http://%zz": "is not an http", "http:///status": "is not an http"} {
		if _, err := Fetch(t.Context(), url, secret.Text{}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
	json.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("an empty token is sent")
		}
	})
	_, _ = Fetch(t.Context(), json.URL, secret.Text{}, "")
}

// Every figure of /status is the sum over the clusters, and one cluster's
// fault, staleness or uncommitted edits say nothing of another.
func TestStatusAddsUp(t *testing.T) {
	store := NewStore(Process{Agent: "here", Start: epoch})
	bad := cycleOfOne("bad", errors.New("bad: no route"))
	bad.Started, bad.Finished, bad.Stale, bad.Commit = epoch.Add(-time.Minute), epoch.Add(-time.Second), true, "older"
	worse := cycleOfOne("worse", errors.New("no route either"))
	good := cycleOfOne("good", nil)
	del := plan.Action{Verb: plan.Delete, Ref: kind.Ref{Kind: "VM", Name: "old"}, ID: "7"}
	good.Finished = epoch.Add(time.Minute)
	good.ReadOnly = true
	good.Result.Actions = append(good.Result.Actions, apply.ActionResult{Action: del, Outcome: apply.Done}, apply.ActionResult{Action: del, Outcome: apply.Failed, Err: errors.New("x")})
	good.Objects = append(good.Objects, reconcile.Object{Cluster: "good", Kind: "VM", Name: "db", ID: "8", State: plan.Unknown})
	for _, r := range []*reconcile.Report{bad, worse, good} {
		store.Put(reconcile.Standing{Cluster: r.Cluster, Mine: true, Cycles: 1, Report: r})
	}
	store.SetRepository(Repository{Source: "/repo", Err: errors.New("cannot be fetched")})
	st := StatusOf(store.Snapshot())
	l := st.LastCycle
	if l.ActionsOK != 4 || l.ActionsError != 1 || l.Pruned != 1 || l.Skipped != 1 || l.Anomalies != 3 || l.PruneDeferred != 3 || l.Objects != 4 {
		t.Errorf("the sums: %+v", l)
	}
	if !l.StartedAt.Equal(bad.Started) || !l.FinishedAt.Equal(good.Finished) || l.Commit != good.Commit || !l.DesiredStale || !l.Aborted || l.ReadOnly {
		t.Errorf("the whole: %+v", l)
	}
	if l.AbortReason != "bad: no route; worse: no route either" {
		t.Errorf("reason %q", l.AbortReason)
	}
	if st.Repository.Error != "cannot be fetched" {
		t.Errorf("repository: %+v", st.Repository)
	}
	for _, c := range st.Clusters {
		isBad := c.Name != "good"
		if c.LastCycle.Aborted != isBad || (c.LastCycle.AbortReason != "") != isBad || c.LastCycle.DesiredStale != (c.Name == "bad") || c.LastCycle.ReadOnly != (c.Name == "good") {
			t.Errorf("%s: %+v", c.Name, c.LastCycle)
		}
	}
	// The document is JSON, whatever the texts hold.
	if _, err := json.Marshal(st); err != nil {
		t.Error(err)
	}
}

// An object's page tells of that object alone, and a cluster's of that cluster.
func TestPagesTellOfTheirOwn(t *testing.T) {
	store := filledPages()
	rep := estate("other", time.Now())
	rep.Plan.Errors = []plan.ObjectError{{Ref: kind.Ref{Kind: "VM", Name: "db"}, File: "vm/db.yaml", Path: "memory", Text: "fault of db"}}
	rep.Plan.Anomalies = append(rep.Plan.Anomalies, plan.Anomaly{Ref: kind.Ref{Kind: "VM", Name: "db"}, ID: "102", Anomaly: field.Anomaly{Path: "cores", Text: "anomaly of db"}},
		plan.Anomaly{Ref: kind.Ref{Kind: "LXC", Name: "web"}, ID: "9", Anomaly: field.Anomaly{Path: "cores", Text: "anomaly of the container web"}})
	rep.Abort = errors.New("only the other cluster's")
	store.Put(reconcile.Standing{Cluster: "other", Mine: true, Report: rep,
		Active: []reconcile.Active{{Action: plan.Action{Verb: plan.Start, Ref: kind.Ref{Kind: "VM", Name: "db"}}, Tail: []string{"progress of db"}}}})
	h := Pages(store, nil)
	of := []string{"fault of db", "anomaly of db", "progress of db", "start failed"}
	for path, c := range map[string]struct{ has, lacks []string }{
		"/clusters/other/VM/db":  {of, []string{"10 → 20", "anomaly of the container"}},
		"/clusters/other/VM/web": {[]string{"10 → 20"}, append([]string{"anomaly of the container"}, of...)},
		"/clusters/home/VM/db":   {[]string{"memory waits"}, of[:3]},
		"/clusters/home":         {nil, []string{"only the other", "fault of db", "anomaly of db"}},
		"/clusters/home/plan":    {nil, []string{"only the other", "fault of db", "anomaly of db"}},
	} {
		_, body := page(t, h, path)
		for _, want := range c.has {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
		for _, not := range c.lacks {
			if strings.Contains(body, not) {
				t.Errorf("%s tells %q of something else", path, not)
			}
		}
	}
}

// The same report put again is no news; a subscription that ended costs
// nothing any more.
func TestStoreKeepsNoMoreThanItMust(t *testing.T) {
	s := NewStore(Process{})
	rep := cycleOfOne("a", nil)
	for range 3 {
		s.Put(reconcile.Standing{Cluster: "a", Report: rep})
	}
	if n := len(s.History("a")); n != 1 {
		t.Errorf("%d entries of one report", n)
	}
	sub := s.Subscribe()
	before := s.Snapshot().Version
	for i, f := range []func(){func() { s.SetAgents(nil) }, func() { s.SetRepository(Repository{}) }, func() { s.Remove("a") }, s.Stopping} {
		f()
		if now := s.Snapshot().Version; now == before {
			t.Errorf("change %d: nobody hears of it", i)
		} else {
			before = now
		}
		if _, err := sub.Next(t.Context()); err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
	sub.Close()
	if len(s.subs) != 0 {
		t.Error("a subscription that was closed is kept")
	}
}
