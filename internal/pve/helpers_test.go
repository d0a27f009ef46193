package pve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/proxops/proxops/internal/secret"
)

const canary = "5ec7e700-canary-4111-8111-111111111111"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tokenAuth() Credentials {
	return Credentials{TokenID: "ops@pve!git", TokenSecret: secret.New(canary)}
}

func passwordAuth() Credentials {
	return Credentials{User: "ops@pve", Password: secret.New(canary)}
}

// wireTrip is a server in the same process, for synctest bubbles.
type wireTrip func(*http.Request) (*http.Response, error)

func (f wireTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func reply(status int, reason, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: fmt.Sprintf("%d %s", status, reason), Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body))}
}

func data(v any) *http.Response {
	b, _ := json.Marshal(map[string]any{"data": v})
	return reply(200, "OK", string(b))
}

// die is PVE's answer to a die in its code.
func die(text string) *http.Response {
	b, _ := json.Marshal(map[string]any{"data": nil, "message": text + "\n"})
	return reply(500, text, string(b))
}

func dialError() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connect: connection refused")}
}

func resetError() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: fmt.Errorf("connection reset by peer")}
}

func inProcess(t *testing.T, auth Credentials, rt wireTrip, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{Name: "prod", Endpoints: []string{"https://pve01.example:8006"}, Nodes: []string{"pve01", "pve02"}, Auth: auth, Transport: rt}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tlsServer is a real server on loopback; the client pins its certificate.
func tlsServer(t *testing.T, h http.HandlerFunc, change ...func(*Config)) (*Client, *httptest.Server) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	cfg := Config{Name: "prod", Endpoints: []string{srv.URL}, Nodes: []string{"pve01"}, Auth: tokenAuth(),
		Fingerprint: fingerprint(srv.Certificate()), RequestTimeout: 5 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, srv
}

func mustNode(t *testing.T, c *Client) *Node {
	t.Helper()
	n, err := c.Node("pve01")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func wantKind(t *testing.T, err error, k Kind) *Error {
	t.Helper()
	e, ok := As(err)
	if !ok || e.Kind != k {
		t.Fatalf("got %v (%T), want kind %s", err, err, k)
	}
	if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), canary) {
		t.Fatalf("the error shows a secret: %#v", err)
	}
	return e
}

func background(t *testing.T) context.Context {
	t.Helper()
	return t.Context()
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"pve01"}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
