package main

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
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/sops"
)

// running is a daemon over a repository that a test changes under it.
type running struct {
	t         *testing.T
	dir       string
	recipient string
	world     *pvesim.World
	out       *watched
	url       string
	bearer    string
}

// secrets writes a SOPS file anew.
func (r *running) secrets(file, plain string) {
	r.t.Helper()
	full := filepath.Join(r.dir, file)
	fresh := full + ".new"
	if err := sops.Create(fresh, []string{r.recipient}, secret.New(plain)); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(fresh, full); err != nil {
		r.t.Fatal(err)
	}
}

func (r *running) write(file, text string) {
	r.t.Helper()
	writeFiles(r.t, r.dir, map[string]string{file: text})
}

// certificate writes a new one for the HTTP server and gives its number.
func (r *running) certificate(serial int64) {
	r.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "agent"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write("tls/key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	r.write("tls/cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// get asks the daemon over a new connection.
func (r *running) get(path string) (code int, body []byte, serial int64) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	req, err := http.NewRequest(http.MethodGet, r.url+path, nil)
	if err != nil {
		return 0, nil, 0
	}
	req.Header.Set("Authorization", "Bearer "+r.bearer)
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, 0
	}
	defer res.Body.Close()
	body, _ = io.ReadAll(res.Body)
	return res.StatusCode, body, res.TLS.PeerCertificates[0].SerialNumber.Int64()
}

// cycle is the last cycle as /status has it.
type cycleState struct {
	Started  time.Time `json:"started_at"`
	Aborted  bool      `json:"aborted"`
	Reason   string    `json:"abort_reason"`
	ReadOnly bool      `json:"read_only"`
}

func (r *running) cycle() (c cycleState) {
	_, body, _ := r.get("/status")
	var s struct {
		Last *cycleState `json:"last_cycle"`
	}
	if json.Unmarshal(body, &s) == nil && s.Last != nil {
		c = *s.Last
	}
	return c
}

// until waits for what a cycle that starts from now on shows.
func (r *running) until(what string, f func(cycleState) bool) {
	r.t.Helper()
	begin := time.Now()
	r.eventually(what, func() bool { c := r.cycle(); return c.Started.After(begin) && f(c) })
}

func (r *running) eventually(what string, f func() bool) {
	r.t.Helper()
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if f() {
			return
		}
	}
	r.t.Fatalf("%s: never seen; the last cycle is %+v; the log:\n%s", what, r.cycle(), r.out)
}

// description is the guest's; PVE takes a change of it at once.
func (r *running) description() (text string) {
	r.world.View(func(s *pvesim.State) {
		if g := s.Guests[100]; g != nil {
			text = g.Config["description"]
		}
	})
	return text
}

// told is a service and a forge in one: it keeps what it is sent.
type told struct {
	*httptest.Server
	mu  sync.Mutex
	all []string
}

func newTold(t *testing.T) *told {
	s := &told{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, q.RequestURI+" "+q.Header.Get("Authorization")+" "+string(body))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *told) has(parts ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		ok := true
		for _, p := range parts {
			ok = ok && strings.Contains(one, p)
		}
		if ok {
			return true
		}
	}
	return false
}

const processYAML = `secrets-file: process.sops.yaml
listen-auth: bearer
listen-tls: {cert-file: tls/cert.pem, key-file: tls/key.pem}
`

func startDaemon(t *testing.T) (*running, *pvesim.Server) {
	t.Helper()
	w, srv, _ := labFor(t, 1)
	w.View(func(s *pvesim.State) { s.Access.Users["root@pam"].Tokens["lab"].Secret = canaryToken })
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{t: t, dir: t.TempDir(), recipient: id.Recipient().String(), world: w, bearer: "first-bearer", out: &watched{line: make(chan struct{}, 1)}}
	r.write("clusters/prod/config.yaml", clusterYAML(srv.URL, srv.Fingerprint))
	r.write("clusters/prod/resources.yaml", "resources: [vm/prod/a.yaml]\n")
	r.write("vm/prod/a.yaml", badVM(""))
	r.write("proxops.yaml", processYAML)
	r.certificate(1)
	r.secrets("clusters/prod/secrets.sops.yaml", "secrets:\n    t: root@pam!lab="+canaryToken+"\n")
	r.secrets("process.sops.yaml", "secrets:\n    bearer: first-bearer\n")
	r.commit("start")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	env := []string{"SOPS_AGE_KEY=" + id.String(), "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	go func() {
		ended <- run(ctx, system{out: r.out, err: r.out, environ: env}, []string{"--git-path", r.dir, "--git-poll-sec", "1", "--log-level", "debug", "run", "--listen", "127.0.0.1:0"})
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("the daemon ended with %d:\n%s", code, r.out)
		}
	})
	at := regexp.MustCompile(`listen=(https://\S+)`)
	r.eventually("the daemon's address", func() bool {
		if m := at.FindStringSubmatch(r.out.String()); m != nil {
			r.url = m[1]
		}
		return r.url != ""
	})
	r.until("a good cycle", func(c cycleState) bool { return !c.Aborted })
	return r, srv
}

// commit makes what was written the head commit: of edits that are not
// committed a forge is told nothing.
func (r *running) commit(message string) {
	r.t.Helper()
	if err := commitAll(r.dir, message); err != nil {
		r.t.Fatal(err)
	}
}

func clusterYAML(url, fingerprint string) string {
	return "pve:\n  clusters:\n    prod:\n      base-url: " + url + "\n      fingerprint: \"" + fingerprint + "\"\n      nodes: [pve01]\n" +
		"      secrets-file: secrets.sops.yaml\n      secrets: {pve: {token: t}}\n"
}

// Everything that may change under a daemon is picked up without a restart.
func TestHotReload(t *testing.T) {
	r, srv := startDaemon(t)
	t.Run("the cluster's secrets", func(t *testing.T) {
		r.t = t
		const next = "c0ffee09-1111-4111-8111-caca00000009"
		r.world.View(func(s *pvesim.State) { s.Access.Users["root@pam"].Tokens["lab"].Secret = next })
		r.until("the old token refused", func(c cycleState) bool { return c.Aborted })
		r.secrets("clusters/prod/secrets.sops.yaml", "secrets:\n    t: root@pam!lab="+next+"\n")
		r.until("the new token in use", func(c cycleState) bool { return !c.Aborted })
	})
	t.Run("address and fingerprint", func(t *testing.T) {
		r.t = t
		_ = srv.Close()
		other, err := r.world.Serve("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { srv = other })
		r.write("clusters/prod/config.yaml", clusterYAML(other.URL, srv.Fingerprint))
		r.until("a certificate that does not fit", func(c cycleState) bool { return c.Aborted && strings.Contains(c.Reason, "fingerprint") })
		r.write("clusters/prod/config.yaml", clusterYAML(other.URL, other.Fingerprint))
		r.until("the new fingerprint in use", func(c cycleState) bool { return !c.Aborted })
	})
	t.Run("reconcile settings", func(t *testing.T) {
		r.t = t
		r.write("proxops.yaml", processYAML+"reconcile: {read-only: true}\n")
		r.until("read-only", func(c cycleState) bool { return c.ReadOnly && !c.Aborted })
		r.write("vm/prod/a.yaml", badVM("  pve-description: one\n"))
		r.until("a further read-only cycle", func(c cycleState) bool { return c.ReadOnly })
		if d := r.description(); strings.Contains(d, "one") {
			t.Fatalf("the description is %q: written in spite of read-only", d)
		}
		r.write("proxops.yaml", processYAML)
		r.eventually("the write", func() bool { return strings.Contains(r.description(), "one") })
	})
	t.Run("the server's certificate and token", func(t *testing.T) {
		r.t = t
		if _, _, serial := r.get("/status"); serial != 1 {
			t.Fatalf("certificate %d", serial)
		}
		r.certificate(2)
		r.eventually("the new certificate", func() bool { _, _, serial := r.get("/status"); return serial == 2 })
		r.secrets("process.sops.yaml", "secrets:\n    bearer: second-bearer\n")
		r.eventually("the old token refused", func() bool { code, _, _ := r.get("/status"); return code == http.StatusUnauthorized })
		r.bearer = "second-bearer"
		if code, _, _ := r.get("/status"); code != http.StatusOK {
			t.Errorf("the new token: %d", code)
		}
	})
	t.Run("notifications and commit statuses", func(t *testing.T) {
		r.t = t
		s := newTold(t)
		r.secrets("process.sops.yaml", "secrets:\n    bearer: second-bearer\n    chat: "+s.URL+"/canary-one\n    forge: canary-forge\n")
		r.write("proxops.yaml", processYAML+"notifications: [{name: ops, url: chat}]\ngit: {status: {provider: gitea, api-url: "+s.URL+"/api/v1, repository: ops/infra, token: forge}}\n")
		r.commit("tell a forge")
		r.eventually("the status of the commit", func() bool { return s.has("/api/v1/repos/ops/infra/statuses/", "token canary-forge", `"success"`) })
		r.write("vm/prod/a.yaml", badVM("  pve-description: two\n"))
		r.eventually("the correction told", func() bool { return s.has("/canary-one", "corrected", "pve-description") })
		r.secrets("process.sops.yaml", "secrets:\n    bearer: second-bearer\n    chat: "+s.URL+"/canary-two\n    forge: canary-forge\n")
		r.write("vm/prod/a.yaml", badVM("  pve-description: three\n"))
		r.eventually("the correction told at the new address", func() bool { return s.has("/canary-two", "corrected", "pve-description") })
		r.write("vm/prod/a.yaml", "kind: Nonsense\n")
		r.commit("nonsense")
		r.eventually("the fault told to the forge", func() bool { return s.has("/api/v1/", `"failure"`) })
		r.eventually("the fault told to people", func() bool { return s.has("/canary-two", "failed", "Nonsense") })
	})
	for _, canary := range []string{"canary-", "first-bearer", "second-bearer", canaryToken} {
		if strings.Contains(r.out.String(), canary) {
			t.Errorf("the log shows %s:\n%s", canary, r.out)
		}
	}
}
