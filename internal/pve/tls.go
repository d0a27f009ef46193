package pve

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	dialTimeout   = 5 * time.Second
	headerTimeout = 35 * time.Second // PVE's own limit between its daemons is 30 s
	idleTimeout   = 4 * time.Second  // PVE closes idle connections at 5 s
)

// link holds the two transports. Reads share kept-alive connections; every
// write gets a connection of its own, so that a connection which PVE has just
// closed (after an error, 5 s of idleness, 100 requests) cannot make a write's
// outcome unknown.
type link struct {
	read, write http.RoundTripper
	own         bool
}

func newLink(cfg Config) (*link, error) {
	if cfg.Transport != nil {
		return &link{read: cfg.Transport, write: cfg.Transport}, nil
	}
	t, err := tlsConfig(cfg)
	if err != nil {
		return nil, err
	}
	read := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:       t,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: headerTimeout,
		IdleConnTimeout:       idleTimeout,
		MaxIdleConnsPerHost:   orElse(cfg.MaxInFlight, 8),
		Protocols:             new(http.Protocols),
	}
	read.Protocols.SetHTTP1(true)
	write := read.Clone()
	write.DisableKeepAlives = true
	write.WriteBufferSize = 64 << 10 // headers and body leave in one write (facts L)
	return &link{read: read, write: write, own: true}, nil
}

func (l *link) close() {
	for _, t := range []http.RoundTripper{l.read, l.write} {
		if t, ok := t.(*http.Transport); ok && l.own {
			t.CloseIdleConnections()
		}
	}
}

func tlsConfig(cfg Config) (*tls.Config, error) {
	t := &tls.Config{
		MinVersion: tls.VersionTLS12,
		// A request that fits one record shall travel in one (facts L).
		DynamicRecordSizingDisabled: true,
		ClientSessionCache:          tls.NewLRUClientSessionCache(16),
	}
	if cfg.Fingerprint != "" {
		pins, err := parsePins(cfg.Fingerprint)
		if err != nil {
			return nil, err
		}
		t.InsecureSkipVerify = true // the pin below takes the chain's place
		t.VerifyConnection = func(cs tls.ConnectionState) error {
			if seen := fingerprint(cs.PeerCertificates[0]); !slices.Contains(pins, seen) {
				return &pinError{expected: strings.Join(pins, " or "), seen: seen}
			}
			return nil
		}
		return t, nil
	}
	if cfg.CAFile != "" || cfg.CA != nil {
		pem, err := cfg.CA, error(nil)
		if pem == nil {
			pem, err = os.ReadFile(cfg.CAFile)
		}
		if err != nil {
			return nil, fmt.Errorf("ca-file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca-file: %s: no certificate in it: PVE's own CA is /etc/pve/pve-root-ca.pem on every node", cfg.CAFile)
		}
	}
	return t, nil
}

// pinError is a certificate that is not the pinned one.
type pinError struct{ expected, seen string }

func (e *pinError) Error() string {
	return fmt.Sprintf("the server's certificate has the fingerprint %s, expected is %s", e.seen, e.expected)
}

// ParseFingerprint reads a SHA-256 fingerprint, 64 hex digits with or without
// colons, and gives it as PVE shows it: upper case, with colons.
func ParseFingerprint(s string) (string, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(s), ":", ""))
	if err != nil || len(b) != sha256.Size {
		return "", fmt.Errorf("fingerprint: %q is not a SHA-256 fingerprint: 32 pairs of hex digits are expected, as `proxops trust` prints them", s)
	}
	return colons(b), nil
}

func parsePins(s string) ([]string, error) {
	var out []string
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' }) {
		p, err := ParseFingerprint(f)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, errors.New("fingerprint: is blank: remove it, or give 32 pairs of hex digits")
	}
	return out, nil
}

func colons(b []byte) string {
	parts := make([]string, len(b))
	for i, x := range b {
		parts[i] = fmt.Sprintf("%02X", x)
	}
	return strings.Join(parts, ":")
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return colons(sum[:])
}

// Certificate is what a server shows, for people to compare.
type Certificate struct {
	Subject, Issuer     string
	Names               []string // DNS names and IP addresses
	NotBefore, NotAfter time.Time
	Fingerprint         string // SHA-256, as PVE shows it
	SelfSigned          bool
	Trusted             bool // by the system's roots, for the URL's host
}

// Peek fetches the certificate of an https URL and sends nothing else: no
// request, no credential.
func Peek(ctx context.Context, base string) (Certificate, error) {
	eps, err := parseEndpoints([]string{base})
	if err != nil {
		return Certificate{}, err
	}
	u, err := url.Parse(eps[0].base)
	if err != nil || u.Scheme != "https" {
		return Certificate{}, fmt.Errorf("base-url: %s: has no certificate: it is plain http", eps[0].host)
	}
	// Any certificate will do: looking at it is the purpose, and nothing is sent.
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}}
	conn, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return Certificate{}, fmt.Errorf("%s: %w: check the address and that pveproxy runs there", u.Host, err)
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	certs := conn.(*tls.Conn).ConnectionState().PeerCertificates
	leaf := certs[0]
	out := Certificate{Subject: leaf.Subject.String(), Issuer: leaf.Issuer.String(), Names: slices.Clone(leaf.DNSNames),
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, Fingerprint: fingerprint(leaf),
		SelfSigned: leaf.CheckSignatureFrom(leaf) == nil || leaf.Subject.String() == leaf.Issuer.String()}
	for _, ip := range leaf.IPAddresses {
		out.Names = append(out.Names, ip.String())
	}
	pool := x509.NewCertPool()
	for _, c := range certs[1:] {
		pool.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{DNSName: u.Hostname(), Intermediates: pool})
	out.Trusted = err == nil
	return out, nil
}
