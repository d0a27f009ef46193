package web

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// report is a cycle of a cluster with one object in each of some states.
func cycleOfOne(cluster string, abort error) *reconcile.Report {
	r := &reconcile.Report{Cluster: cluster, Commit: "1234567890abcdef", Started: epoch, Finished: epoch.Add(time.Second), Abort: abort, Reads: 10, Writes: 2}
	ref := kind.Ref{Kind: "VM", Name: "web"}
	r.Plan = plan.Plan{Cluster: cluster, Objects: []plan.Object{{Ref: ref, ID: "100"}}, Anomalies: []plan.Anomaly{{Ref: ref}},
		Suppressed: []plan.Suppressed{{Name: "old"}}, Actions: []plan.Action{{Verb: plan.Update, Ref: ref, ID: "100"}}}
	r.Result = &apply.Result{Actions: []apply.ActionResult{{Action: r.Plan.Actions[0], Outcome: apply.Done, Started: epoch}}}
	r.Objects = []reconcile.Object{{Cluster: cluster, Kind: "VM", Name: "web", Node: "pve1", ID: "100", State: plan.Converged, LastAction: plan.Update, Converged: epoch, Updated: epoch}}
	return r
}

func twoClusters() *Store {
	s := NewStore(Process{Version: "v1", Agent: "here", Start: epoch})
	s.SetRepository(Repository{Source: "/repo", Commit: "1234567890abcdef"})
	s.Put(reconcile.Standing{Cluster: "b", Mine: true, Cycles: 3, Report: cycleOfOne("b", nil), Next: time.Now().Add(time.Minute)})
	s.Put(reconcile.Standing{Cluster: "a", Mine: true, Cycles: 1, Failures: 1, Report: cycleOfOne("a", errors.New("a: no route")), Next: time.Now().Add(time.Minute)})
	return s
}

func serve(t *testing.T, cfg Config, store *Store) *Server {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	cfg.TaskTimeout = time.Minute
	s, err := Listen(cfg, store, NewMetrics(store))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

func get(t *testing.T, c *http.Client, url string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(req)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// Nothing beyond loopback is served without a check of who asks.
func TestRefusesOpenListeners(t *testing.T) {
	store := twoClusters()
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:9494", "proxops.example.org:9494", "169.254.1.1:0"} {
		s, err := Listen(Config{Listen: listen}, store, NewMetrics(store))
		if err == nil {
			_ = s.listener.Close()
			t.Errorf("%s: served without a token", listen)
			continue
		}
		if !strings.Contains(err.Error(), "listen-auth") {
			t.Errorf("%s: %v", listen, err)
		}
	}
	for _, listen := range []string{"127.0.0.1:0", "localhost:0", "[::1]:0", "127.3.2.1:0"} {
		s, err := Listen(Config{Listen: listen}, store, NewMetrics(store))
		if err != nil {
			t.Errorf("%s: %v", listen, err)
			continue
		}
		_ = s.listener.Close()
	}
	s, err := Listen(Config{Listen: "0.0.0.0:0", Token: secret.New("t")}, store, NewMetrics(store))
	if err != nil {
		t.Fatal(err)
	}
	_ = s.listener.Close()
	if _, err := Listen(Config{Listen: "127.0.0.1:0", CertFile: "x"}, store, NewMetrics(store)); err == nil {
		t.Error("a certificate without a key")
	}
}

func TestToken(t *testing.T) {
	s := serve(t, Config{Token: secret.New("open sesame")}, twoClusters())
	for _, path := range []string{"/status", "/metrics", "/", "/anything"} {
		for name, change := range map[string]func(*http.Request){
			"none": func(*http.Request) {}, "wrong": bearer("open sesam"), "longer": bearer("open sesame!"), "empty": bearer(""),
			"basic, wrong": func(r *http.Request) { r.SetBasicAuth("open sesame", "x") }, "basic, empty": func(r *http.Request) { r.SetBasicAuth("me", "") },
		} {
			if code, body := get(t, http.DefaultClient, s.URL()+path, change); code != http.StatusUnauthorized || strings.Contains(body, "sesame") {
				t.Errorf("%s with %s token: %d %s", path, name, code, body)
			}
		}
	}
	if code, _ := get(t, http.DefaultClient, s.URL()+"/status", bearer("open sesame")); code != http.StatusOK {
		t.Error(code)
	}
	if code, _ := get(t, http.DefaultClient, s.URL()+"/status", func(r *http.Request) { r.SetBasicAuth("me", "open sesame") }); code != http.StatusOK {
		t.Error(code)
	}
	if code, _ := get(t, http.DefaultClient, s.URL()+"/healthz"); code != http.StatusOK {
		t.Error("probes need no token")
	}
}

// A secrets file that lost an entry opens nothing: the old secrets stay.
func TestSecretsAreNotTakenAway(t *testing.T) {
	s := serve(t, Config{Token: secret.New("open sesame"), Webhook: secret.New("hook")}, twoClusters())
	s.SetSecrets(secret.Text{}, secret.New(""))
	if code, _ := get(t, http.DefaultClient, s.URL()+"/status"); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
	if now := s.secrets.Load(); now.webhook.Reveal() != "hook" {
		t.Error("the webhook's secret is gone")
	}
	s.SetSecrets(secret.New("new"), secret.Text{})
	for token, want := range map[string]int{"open sesame": 401, "new": 200} {
		if code, _ := get(t, http.DefaultClient, s.URL()+"/status", bearer(token)); code != want {
			t.Errorf("with %q: %d, want %d", token, code, want)
		}
	}
}

// A page of another site that resolves its own name to 127.0.0.1 must not
// read what the server knows; nor may anything be changed by a request.
func TestOtherSites(t *testing.T) {
	s := serve(t, Config{}, twoClusters())
	for host, want := range map[string]int{"evil.example": 421, "evil.example:9494": 421, "localhost:9494": 200, "[::1]:9494": 200, "127.0.0.1": 200, "localhost.evil.example": 421} {
		if code, _ := get(t, http.DefaultClient, s.URL()+"/status", func(r *http.Request) { r.Host = host }); code != want {
			t.Errorf("Host %s: %d, want %d", host, code, want)
		}
	}
	for _, path := range []string{"/status", "/anything"} {
		res, err := http.Post(s.URL()+path, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

// Pages may load what this server serves, and nothing else.
func TestContentPolicy(t *testing.T) {
	for _, directive := range strings.Split(contentPolicy, "; ") {
		if _, sources, _ := strings.Cut(directive, " "); sources != "'none'" && sources != "'self'" {
			t.Errorf("%s", directive)
		}
	}
	if !strings.HasPrefix(contentPolicy, "default-src 'none'; ") {
		t.Error(contentPolicy)
	}
}

func TestStatus(t *testing.T) {
	s := serve(t, Config{}, twoClusters())
	_, body := get(t, http.DefaultClient, s.URL()+"/status")
	var st Status
	if err := json.Unmarshal([]byte(body), &st); err != nil {
		t.Fatal(err)
	}
	want := &CycleStatus{Commit: "1234567890abcdef", StartedAt: epoch, FinishedAt: epoch.Add(time.Second), Objects: 2, ActionsOK: 2, PruneDeferred: 2, Anomalies: 2,
		Aborted: true, AbortReason: "a: no route"}
	if d := cmp.Diff(want, st.LastCycle); d != "" {
		t.Error(d)
	}
	if len(st.Clusters) != 2 || st.Clusters[0].Name != "a" || st.Clusters[0].State != "failing" || st.Clusters[1].LastCycle.Aborted || st.Clusters[1].Owner != "here" {
		t.Errorf("%+v", st.Clusters)
	}
	if len(st.Objects) != 2 || st.Objects[1].Cluster != "b" || st.Objects[1].State != "converged" || !st.Objects[1].LastConvergedAt.Equal(epoch) {
		t.Errorf("%+v", st.Objects)
	}
	var raw map[string]any
	_ = json.Unmarshal([]byte(body), &raw)
	for _, key := range []string{"process_start", "last_cycle", "objects", "clusters", "agents"} {
		if _, ok := raw[key]; !ok {
			t.Errorf("no %s", key)
		}
	}
}

func TestActionUnderWay(t *testing.T) {
	store := twoClusters()
	st, _ := store.Cluster("b")
	st.Active = []reconcile.Active{{Action: plan.Action{Verb: plan.Restart, Ref: kind.Ref{Kind: "VM", Name: "web"}, ID: "100", Why: "window"}}}
	store.Put(st)
	for _, o := range StatusOf(store.Snapshot()).Objects {
		if want := map[string]string{"a": "converged", "b": "in_progress"}[o.Cluster]; o.State != want {
			t.Errorf("%s: %s, want %s", o.Cluster, o.State, want)
		}
	}
}

func TestHealth(t *testing.T) {
	store := NewStore(Process{})
	s := serve(t, Config{}, store)
	check := func(path string, want int, has string) {
		t.Helper()
		if code, body := get(t, http.DefaultClient, s.URL()+path); code != want || !strings.Contains(body, has) {
			t.Errorf("%s: %d %s, want %d %s", path, code, body, want, has)
		}
	}
	check("/healthz", 200, "ok")
	check("/readyz", 503, "repository")
	store.SetRepository(Repository{Source: "/repo"})
	store.Put(reconcile.Standing{Cluster: "a", Mine: true})
	check("/readyz", 503, "a: the first cycle")
	store.Put(reconcile.Standing{Cluster: "a", Mine: true, Cycles: 1, Report: cycleOfOne("a", errors.New("no route")), Next: time.Now()})
	store.Put(reconcile.Standing{Cluster: "other", Mine: false})
	check("/readyz", 200, "ok")
	check("/healthz", 200, "ok") // a broken cluster is no matter of health
	store.Put(reconcile.Standing{Cluster: "a", Mine: true, Cycles: 1, Running: true, LastSign: time.Now().Add(-time.Hour)})
	check("/healthz", 503, "a: its cycle")
	store.Put(reconcile.Standing{Cluster: "a", Mine: true, Cycles: 1, Next: time.Now().Add(-time.Hour)})
	check("/healthz", 503, "a: its next cycle")
	store.Put(reconcile.Standing{Cluster: "a", Mine: true, Cycles: 2, Next: time.Now()})
	store.Stopping()
	check("/healthz", 200, "ok")
	check("/readyz", 503, "stopping")
}

// authority makes certificates for a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.issue("ca")
	return a
}

// issue writes name.pem and name.key; the first one issued is the authority.
func (a *authority) issue(name string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	parent, signer := a.cert, a.key
	if a.cert == nil {
		tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
		parent, signer = tmpl, key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		a.cert, _ = x509.ParseCertificate(der)
		a.key = key
	}
	k, _ := x509.MarshalPKCS8PrivateKey(key)
	for file, b := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: k}} {
		if err := os.WriteFile(filepath.Join(a.dir, name+file), pem.EncodeToMemory(b), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) client(certs ...tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs}, DisableKeepAlives: true}
	return &http.Client{Transport: tr}
}

func TestClientCertificates(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	a.issue("server")
	file := func(n string) string { return filepath.Join(a.dir, n) }
	s := serve(t, Config{CertFile: file("server.pem"), KeyFile: file("server.key"), ClientCAFile: file("ca.pem")}, twoClusters())
	if code, _ := get(t, a.client(a.issue("me")), s.URL()+"/status"); code != http.StatusOK {
		t.Errorf("with a certificate: %d", code)
	}
	if code, _ := get(t, a.client(), s.URL()+"/status"); code != http.StatusForbidden {
		t.Errorf("without: %d", code)
	}
	if code, _ := get(t, a.client(), s.URL()+"/readyz"); code != http.StatusOK {
		t.Errorf("a probe: %d", code)
	}
	if res, err := a.client(stranger.issue("you")).Get(s.URL() + "/status"); err == nil {
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			t.Error("a stranger's certificate was let in")
		}
	}
	// A renewed certificate is used at once; a broken renewal changes nothing.
	serial := func() string {
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), &tls.Config{RootCAs: a.client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	a.issue("server")
	second := serial()
	if first == second {
		t.Error("the renewed certificate is not used")
	}
	if err := os.WriteFile(file("server.pem"), []byte("half a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := serial(); got != second {
		t.Error("a broken file replaced the good certificate")
	}
}

func TestSubscriptionMergesChanges(t *testing.T) {
	s := twoClusters()
	sub := s.Subscribe()
	defer sub.Close()
	for range 100 {
		s.Put(reconcile.Standing{Cluster: "b"})
		s.Put(reconcile.Standing{Cluster: "a"})
	}
	c, err := sub.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a", "b"}, c.Clusters); d != "" {
		t.Error(d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if c, err := sub.Next(ctx); err == nil {
		t.Errorf("a change that did not happen: %+v", c)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := NewStore(Process{})
	for range 3 * historyLength {
		s.Put(reconcile.Standing{Cluster: "a", Report: cycleOfOne("a", nil)})
	}
	if n := len(s.History("a")); n != historyLength {
		t.Errorf("%d entries", n)
	}
	s.Remove("a")
	if n := len(s.History("a")); n != 0 {
		t.Errorf("%d entries of a cluster that is gone", n)
	}
}
