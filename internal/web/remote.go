package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/secret"
)

const (
	remoteTimeout = 15 * time.Second
	maxStatus     = 64 << 20 // bytes of a status document
)

// Fetch asks a running daemon for its status. caFile holds further authorities
// for an https URL; "" = the system's. The token is not sent in clear text to
// another machine.
func Fetch(ctx context.Context, base string, token secret.Text, caFile string) (*Status, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("--remote: %q is not an http or https URL", base)
	}
	if u.User != nil {
		return nil, errors.New("--remote: credentials do not belong in the URL: set PROXOPS_LISTEN_AUTH")
	}
	if u.Scheme == "http" && !token.Empty() && !localName(u.Host) {
		return nil, fmt.Errorf("--remote: the token would travel to %s in clear text: use https", u.Host)
	}
	tr := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca-file: %s: holds no certificate in PEM", caFile)
		}
		tr.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	client := &http.Client{Transport: tr, Timeout: remoteTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(u.String(), "/")+"/status", nil)
	if err != nil {
		return nil, fmt.Errorf("--remote: %w", err)
	}
	if !token.Empty() {
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("--remote: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxStatus))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--remote: %s: %w", base, err)
	case res.StatusCode == http.StatusUnauthorized && !token.Empty():
		return nil, fmt.Errorf("--remote: %s refuses the token in PROXOPS_LISTEN_AUTH: it is not the one that the daemon's listen-auth names", base)
	case res.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("--remote: %s wants a token: set PROXOPS_LISTEN_AUTH", base)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("--remote: %s answers %s: %.200s", base, res.Status, strings.TrimSpace(string(body)))
	}
	var st Status
	if err := json.Unmarshal(body, &st); err != nil || st.ProcessStart.IsZero() {
		return nil, fmt.Errorf("--remote: %s does not answer as proxops run does", base)
	}
	return &st, nil
}
