package pve

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

func ok(w http.ResponseWriter, body string) { _, _ = io.WriteString(w, `{"data":`+body+`}`) }

func cut(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func TestReadsAreRepeated(t *testing.T) {
	for name, fault := range map[string]http.HandlerFunc{
		"reset":       func(w http.ResponseWriter, _ *http.Request) { cut(w) },
		"bad gateway": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
		"596":         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(596) },
		"truncated": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"data":`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			c, _ := tlsServer(t, func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) == 1 {
					fault(w, r)
					return
				}
				ok(w, `{"version":"9.2.11"}`)
			})
			v, err := c.Version(background(t))
			if err != nil || v.Version != "9.2.11" || calls.Load() != 2 {
				t.Fatalf("%v %v after %d calls", v, err, calls.Load())
			}
			if s := c.Stats(); s.Reads != 2 || s.Retries != 1 || s.Writes != 0 {
				t.Error(s)
			}
		})
	}
}

func TestPVEsOwnRefusalsAreNotRepeated(t *testing.T) {
	var calls atomic.Int64
	c, _ := tlsServer(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Connection", "close")
		w.WriteHeader(500)
		_, _ = io.WriteString(w, `{"data":null,"message":"storage 'x' does not exist\n"}`)
	})
	_, err := c.Storages(background(t), "pve01")
	wantKind(t, err, KindNotFound)
	if calls.Load() != 1 {
		t.Errorf("%d calls", calls.Load())
	}
}

// The rule that protects users' data: a write that may have arrived is sent
// once and never again.
func TestWritesOfUnknownOutcomeAreNotRepeated(t *testing.T) {
	for name, fault := range map[string]http.HandlerFunc{
		"reset after the request": func(w http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body); cut(w) },
		"596":                     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(596) },
		"bad gateway":             func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"data":"UPID:pve`)
		},
		"no worker": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, `{"data":null,"message":"got no worker upid - start worker failed\n"}`)
		},
		"slow": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(3 * time.Second):
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var writes atomic.Int64
			c, _ := tlsServer(t, func(w http.ResponseWriter, r *http.Request) {
				writes.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				fault(w, r)
			}, func(cfg *Config) { cfg.RequestTimeout = 500 * time.Millisecond })
			n := mustNode(t, c)
			_, err := n.UpdateConfig(background(t), QEMU, 100, wire.Params{{Key: "memory", Value: wire.Plain("512")}}, "")
			e := wantKind(t, err, KindUnknownOutcome)
			if writes.Load() != 1 || c.Writes() != 1 || NothingApplied(e) {
				t.Errorf("%d writes arrived, %d counted", writes.Load(), c.Writes())
			}
		})
	}
}

// Writes never travel on a connection that PVE may be closing.
func TestWritesUseFreshConnections(t *testing.T) {
	var mu sync.Mutex
	byConn := map[string][]string{}
	c, _ := tlsServer(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		byConn[r.RemoteAddr] = append(byConn[r.RemoteAddr], r.Method)
		mu.Unlock()
		ok(w, "null")
	})
	n := mustNode(t, c)
	for range 3 {
		if _, err := c.Version(background(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.UpdateConfig(background(t), QEMU, 100, nil, "d"); err != nil {
			t.Fatal(err)
		}
	}
	reused := false
	for _, m := range byConn {
		s := strings.Join(m, " ")
		if strings.Contains(s, "PUT") && s != "PUT" {
			t.Errorf("a write shared a connection: %s", s)
		}
		reused = reused || s == "GET GET GET"
	}
	if !reused {
		t.Errorf("reads did not reuse their connection: %v", byConn)
	}
}

// PVE closes the connection after every error; the next read must not suffer.
func TestReadsSurviveClosedConnections(t *testing.T) {
	var calls atomic.Int64
	c, srv := tlsServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1)%2 == 1 {
			w.Header().Set("Connection", "close")
			w.WriteHeader(500)
			_, _ = io.WriteString(w, `{"message":"x does not exist"}`)
			return
		}
		ok(w, `{"version":"9"}`)
	})
	for range 5 {
		_, err := c.Version(background(t))
		wantKind(t, err, KindNotFound)
		if _, err := c.Version(background(t)); err != nil {
			t.Fatal(err)
		}
		srv.CloseClientConnections() // as after five idle seconds
	}
}

// PVE can cut off a request whose body comes in a later TLS record (facts L).
func TestOneRecordPerRequest(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	pair := selfSigned(t)
	first := make(chan string, 1)
	go func() {
		raw, err := ln.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		conn := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{pair}})
		buf := make([]byte, 64<<10)
		n, _ := conn.Read(buf) // one Read gives at most one record
		first <- string(buf[:n])
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 13\r\n\r\n{\"data\":null}")
		_ = conn.Close()
	}()
	c, err := New(Config{Name: "prod", Endpoints: []string{"https://" + ln.Addr().String()}, Nodes: []string{"pve01"}, Auth: tokenAuth(), Fingerprint: fingerprint(pair.Leaf)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	long := strings.Repeat("ä;b=c", 500)
	_, err = mustNode(t, c).UpdateConfig(background(t), QEMU, 100, wire.Params{{Key: "description", Value: wire.Plain(long)}}, "")
	if err != nil {
		t.Fatal(err)
	}
	got := <-first
	head, body, _ := strings.Cut(got, "\r\n\r\n")
	v, err := url.ParseQuery(body)
	if err != nil || v.Get("description") != long {
		t.Errorf("the first record holds %d bytes, not the whole request", len(got))
	}
	if !strings.Contains(head, fmt.Sprintf("Content-Length: %d", len(body))) {
		t.Error(head)
	}
}

func TestUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	c, err := New(Config{Name: "prod", Endpoints: []string{"https://" + addr}, Nodes: []string{"pve01"}, Auth: tokenAuth()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = mustNode(t, c).Start(background(t), QEMU, 100)
	e := wantKind(t, err, KindUnreachable)
	if !NothingApplied(e) || !strings.Contains(e.Error(), "connection refused") || !strings.Contains(e.Error(), addr) {
		t.Error(e)
	}
	_, err = c.Version(background(t))
	wantKind(t, err, KindUnreachable)
}

func TestCertificates(t *testing.T) {
	var calls atomic.Int64
	answer := func(w http.ResponseWriter, _ *http.Request) { calls.Add(1); ok(w, `{"version":"9"}`) }
	wrong := strings.Repeat("AB:", 31) + "AB"
	c, srv := tlsServer(t, answer, func(cfg *Config) { cfg.Fingerprint = wrong })
	_, err := c.Version(background(t))
	e := wantKind(t, err, KindTLS)
	if seen := fingerprint(srv.Certificate()); e.Expected != wrong || e.Seen != seen || !strings.Contains(e.Error(), seen) || !strings.Contains(e.Error(), wrong) {
		t.Error(e)
	}
	c, srv2 := tlsServer(t, answer, func(cfg *Config) { cfg.Fingerprint = "" })
	_, err = c.Version(background(t))
	e = wantKind(t, err, KindTLS)
	if e.Seen != fingerprint(srv2.Certificate()) || !strings.Contains(e.Error(), "proxops trust") {
		t.Error(e)
	}
	if calls.Load() != 0 {
		t.Error("a request, and so the credentials, went to an untrusted server")
	}

	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	c, srv3 := tlsServer(t, answer, func(cfg *Config) { cfg.Fingerprint, cfg.CAFile = "", file })
	if _, err := c.Version(background(t)); err != nil {
		t.Error(err)
	}
	c, _ = tlsServer(t, answer, func(cfg *Config) {
		cfg.Fingerprint = wrong + " " + strings.ToLower(strings.ReplaceAll(fingerprint(srv.Certificate()), ":", ""))
	})
	if _, err := c.Version(background(t)); err != nil {
		t.Error(err)
	}

	cert, err := Peek(background(t), srv3.URL)
	if err != nil || cert.Fingerprint != fingerprint(srv3.Certificate()) || cert.Trusted || !cert.SelfSigned {
		t.Errorf("%+v %v", cert, err)
	}
	if _, err := Peek(background(t), "http://127.0.0.1:1"); err == nil {
		t.Error("http has a certificate")
	}
	for _, bad := range []string{"AB", wrong + "00", "xyz"} {
		if _, err := ParseFingerprint(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestPlainHTTPAnswersHTTPS(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	go func() { _ = srv.Serve(ln) }()
	defer srv.Close()
	c, err := New(Config{Name: "prod", Endpoints: []string{"https://" + ln.Addr().String()}, Auth: tokenAuth()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Version(background(t))
	if e := wantKind(t, err, KindTLS); !strings.Contains(e.Error(), "does not speak TLS") {
		t.Error(e)
	}
}

func TestConfigErrors(t *testing.T) {
	good := Config{Name: "prod", Endpoints: []string{"https://pve01"}, Auth: tokenAuth()}
	for name, x := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"no endpoint":      {func(c *Config) { c.Endpoints = nil }, "base-url"},
		"http":             {func(c *Config) { c.Endpoints = []string{"http://pve01:8006"} }, "plain http"},
		"scheme":           {func(c *Config) { c.Endpoints = []string{"ftp://pve01:8006"} }, "use https"},
		"no URL":           {func(c *Config) { c.Endpoints = []string{"pve01:8006"} }, "base-url"},
		"userinfo":         {func(c *Config) { c.Endpoints = []string{"https://root:" + canary + "@pve01"} }, "credentials do not belong"},
		"nothing":          {func(c *Config) { c.Auth = Credentials{} }, "none are given"},
		"both":             {func(c *Config) { c.Auth.User = "a@pam" }, "use one"},
		"token id":         {func(c *Config) { c.Auth.TokenID = "ops@pve" }, "user@realm!name"},
		"token secret":     {func(c *Config) { c.Auth.TokenSecret = secret.New("") }, "secret is missing"},
		"header injection": {func(c *Config) { c.Auth.TokenSecret = secret.New(canary + "\nX: y") }, "white space"},
		"user":             {func(c *Config) { c.Auth = Credentials{User: "root", Password: secret.New(canary)} }, "user@realm"},
		"fingerprint":      {func(c *Config) { c.Fingerprint = "AB:CD" }, "SHA-256"},
		"ca-file":          {func(c *Config) { c.CAFile = "/nonexistent.pem" }, "ca-file"},
		"ca without PEM":   {func(c *Config) { c.CA = []byte("not a certificate") }, "no certificate in it"},
	} {
		cfg := good
		x.change(&cfg)
		_, err := New(cfg)
		if err == nil || !strings.Contains(err.Error(), x.says) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, ok := range []string{"http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://pve01/api2/json/"} {
		cfg := good
		cfg.Endpoints = []string{ok}
		if _, err := New(cfg); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
}

// Ctrl-C does not turn a write that was sent into one of unknown outcome.
func TestCancelledWriteStillGetsItsAnswer(t *testing.T) {
	arrived := make(chan struct{})
	c, _ := tlsServer(t, func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-time.After(200 * time.Millisecond)
		ok(w, "null")
	})
	ctx, cancel := context.WithCancel(background(t))
	go func() { <-arrived; cancel() }()
	if _, err := mustNode(t, c).UpdateConfig(ctx, QEMU, 100, nil, "d"); err != nil {
		t.Error(err)
	}
	_, err := mustNode(t, c).UpdateConfig(ctx, QEMU, 100, nil, "d")
	if e := wantKind(t, err, KindCanceled); !NothingApplied(e) || !errors.Is(err, context.Canceled) || c.Writes() != 1 {
		t.Errorf("%v, %d writes", err, c.Writes())
	}
}

func TestAllowList(t *testing.T) {
	c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
		t.Errorf("%s %s was sent", r.Method, r.URL.Path)
		return data(nil), nil
	})
	if _, err := c.Node("pve03"); !Is(err, KindNotAllowed) {
		t.Error(err)
	}
	for _, path := range []string{"/nodes/pve03/qemu", "//nodes//pve03/qemu", "/nodes%2Fpve03/qemu", "/nodes/%70ve03/qemu", "/nodes/localhost/qemu"} {
		if err := c.Get(background(t), path, nil, nil); !Is(err, KindNotAllowed) {
			t.Errorf("%s: %v", path, err)
		}
	}
	n := mustNode(t, c)
	if _, err := n.Migrate(background(t), QEMU, 100, "pve03", nil); !Is(err, KindNotAllowed) {
		t.Error(err)
	}
	if _, err := n.Clone(background(t), QEMU, 100, 101, wire.Params{{Key: "target", Value: wire.Plain("pve03")}}); !Is(err, KindNotAllowed) {
		t.Error(err)
	}
	if c.Writes() != 0 {
		t.Error(c.Writes())
	}
}
