package etcd

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/proxops/proxops/internal/coord"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
)

// authority makes certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.make("ca", &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// make writes NAME.pem and NAME.key, signed by the authority, and gives their
// paths. The first certificate is the authority's own.
func (a *authority) make(name string, tmpl *x509.Certificate) (cert, key string) {
	a.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	tmpl.SerialNumber, tmpl.NotBefore, tmpl.NotAfter = big.NewInt(a.n), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = tmpl, k
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &k.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
		a.key = k
	}
	write := func(file, kind string, data []byte) string {
		path := filepath.Join(a.dir, file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			a.t.Fatal(err)
		}
		return path
	}
	return write(name+".pem", "CERTIFICATE", der), write(name+".key", "EC PRIVATE KEY", raw)
}

const loginTTL = 2 // seconds that etcd takes a login for

// startSecure runs a server that asks for a client certificate, and for a login
// whose token soon runs out.
func startSecure(t *testing.T, a *authority) (endpoint string) {
	t.Helper()
	cert, key := a.make("server", &x509.Certificate{Subject: pkix.Name{CommonName: "etcd"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	return serveEtcd(t, "https", func(cfg *embed.Config) {
		cfg.AuthTokenTTL = loginTTL
		cfg.ClientTLSInfo = transport.TLSInfo{CertFile: cert, KeyFile: key, TrustedCAFile: filepath.Join(a.dir, "ca.pem"), ClientCertAuth: true}
	})
}

// enableLogin makes a user proxops that may use /proxops/ and nothing else.
func enableLogin(t *testing.T, cfg coord.Config) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: cfg.Endpoints, TLS: cfg.TLS, DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.RoleAdd(ctx, "root"))
	must(c.UserAdd(ctx, "root", "toor"))
	must(c.UserGrantRole(ctx, "root", "root"))
	must(c.RoleAdd(ctx, "agents"))
	must(c.RoleGrantPermission(ctx, "agents", "/proxops/", clientv3.GetPrefixRangeEnd("/proxops/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(c.UserAdd(ctx, "proxops", "sesame"))
	must(c.UserGrantRole(ctx, "proxops", "agents"))
	must(c.AuthEnable(ctx))
}

// texts is a log that is read while it is written.
type texts struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (x *texts) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.Write(p)
}

func (x *texts) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.String()
}

// claim runs an agent's coordination and asks for a cluster; within says for
// how long.
func claim(t *testing.T, cfg coord.Config, cluster string, within time.Duration) (reconcile.Ownership, *texts, error) {
	t.Helper()
	out := &texts{}
	cfg.Log = slog.New(slog.NewTextHandler(out, nil))
	c, err := coord.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	c.Declare([]string{"one", "two"})
	giveUp := make(chan struct{})
	timer := time.AfterFunc(within, func() { close(giveUp) })
	defer timer.Stop()
	own, err := c.Own(ctx, cluster, giveUp)
	return own, out, err
}

// Agents share clusters over TLS with client certificates and logins, also when
// the login's token ran out several times, and with rights on their prefix
// alone. Without certificate or with a wrong password they get nothing, say why,
// and do not say the password.
func TestTLSAndLogin(t *testing.T) {
	a := newAuthority(t)
	endpoint := startSecure(t, a)
	cert, key := a.make("agent", &x509.Certificate{Subject: pkix.Name{CommonName: "agent"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	config := func(cert, key string) coord.Config {
		tc, err := coord.TLS(filepath.Join(a.dir, "ca.pem"), cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return coord.Config{Endpoints: []string{endpoint}, TLS: tc, Prefix: "/proxops", Lease: 5 * time.Second, Name: "agent", Started: time.Now()}
	}
	good := config(cert, key)
	enableLogin(t, good)
	good.User, good.Password = "proxops", secret.New("sesame")

	var mu sync.Mutex
	members := 0
	first := good
	first.Changed = func(list []coord.Member) {
		mu.Lock()
		defer mu.Unlock()
		members = len(list)
	}
	own, log, err := claim(t, first, "one", 20*time.Second)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	t.Run("refused", func(t *testing.T) { refused(t, good, config("", "")) })
	if err := own.Context.Err(); err != nil { // logins ran out meanwhile
		t.Errorf("the cluster was lost when the login ran out: %v\n%s", err, log)
	}
	if _, log, err := claim(t, good, "two", 20*time.Second); err != nil {
		t.Errorf("a second agent gets nothing: %v\n%s", err, log)
	}
	eventually(t, 10*time.Second, "the first agent sees the second, through a watch older than its login", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return members >= 2
	})
}

// refused are the ways to be turned away.
func refused(t *testing.T, good, bare coord.Config) {
	for name, change := range map[string]func(*coord.Config){
		"no certificate":   func(c *coord.Config) { *c = bare; c.User, c.Password = good.User, good.Password },
		"a wrong password": func(c *coord.Config) { c.Password = secret.New("opensaysme") },
		"no login":         func(c *coord.Config) { c.User, c.Password = "", secret.Text{} },
		"another prefix":   func(c *coord.Config) { c.Prefix = "/elsewhere" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := good
			change(&bad)
			_, log, err := claim(t, bad, "two", 6*time.Second) // a dial takes up to five
			if err == nil {
				t.Error("it owns a cluster")
			}
			text := log.String()
			if !strings.Contains(text, "level=ERROR") {
				t.Errorf("the log does not say why: %s", text)
			}
			if strings.Contains(text, "opensaysme") || strings.Contains(text, "sesame") {
				t.Errorf("the log shows a password: %s", text)
			}
		})
	}
}
