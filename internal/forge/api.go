package forge

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

// requestTimeout bounds one request.
const requestTimeout = 20 * time.Second

// maxText is GitHub's limit for a description, in characters; the others allow
// more.
const maxText = 140

// api is one forge's REST interface.
type api struct {
	provider string
	base     string // without a slash at the end
	name     string // owner/name, as in the URL
	link     string
	client   *http.Client
}

// newAPI is nil where git.status is not configured.
func newAPI(g repo.GitSettings) (*api, error) {
	s := g.Status
	if s.Provider == "" {
		return nil, nil
	}
	base, name := derive(g.URL, s.Provider)
	if s.APIURL != "" {
		base = strings.TrimRight(s.APIURL, "/")
	}
	if s.Repository != "" {
		name = strings.Trim(s.Repository, "/")
	}
	switch {
	case base == "":
		return nil, errors.New("git.status.api-url: cannot be derived from git.url: give it")
	case name == "":
		return nil, errors.New("git.status.repository: cannot be derived from git.url: give it as owner/name")
	case s.Provider != "gitlab" && strings.Count(name, "/") != 1, s.Provider == "gitlab" && !strings.Contains(name, "/"):
		return nil, fmt.Errorf("git.status.repository: %q is not owner/name", name)
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("git.status.api-url: is not a plain URL such as https://git.example.org/api/v4")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return nil, fmt.Errorf("git.status.api-url: %s: the token would travel in clear text: use https", base)
	}
	client, err := newClient(g.CAFile)
	if err != nil {
		return nil, err
	}
	return &api{provider: s.Provider, base: base, name: name, link: s.Link, client: client}, nil
}

func newClient(caFile string) (*http.Client, error) {
	tc := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("git.ca-file: %w", err)
		}
		if tc.RootCAs, err = x509.SystemCertPool(); err != nil {
			tc.RootCAs = x509.NewCertPool()
		}
		if !tc.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("git.ca-file: %s: holds no certificate in PEM form", caFile)
		}
	}
	return &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tc, ForceAttemptHTTP2: true, IdleConnTimeout: 30 * time.Second},
		// A redirect would carry the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// derive gives a forge's API and the repository's name from a git URL, https,
// ssh or user@host:path; "" is what the URL does not tell.
func derive(gitURL, provider string) (base, name string) {
	scheme, host, path := "https", "", ""
	if u, err := url.Parse(gitURL); err == nil && u.Host != "" {
		host, path = u.Hostname(), u.Path
		if u.Scheme == "https" || u.Scheme == "http" { // the port of ssh says nothing of the API
			scheme, host = u.Scheme, u.Host
		}
	} else if before, after, ok := strings.Cut(gitURL, ":"); ok && !strings.Contains(before, "/") && !strings.HasPrefix(after, "//") {
		_, h, found := strings.Cut(before, "@")
		if !found {
			h = before
		}
		host, path = h, after
	}
	if host == "" {
		return "", ""
	}
	name = strings.TrimSuffix(strings.Trim(path, "/"), ".git")
	switch {
	case provider == "github" && host == "github.com":
		return "https://api.github.com", name
	case provider == "github":
		return scheme + "://" + host + "/api/v3", name
	case provider == "gitlab":
		return scheme + "://" + host + "/api/v4", name
	}
	return scheme + "://" + host + "/api/v1", name
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// request makes the request for a status.
//
// GitHub: POST /repos/{owner}/{repo}/statuses/{sha}. Gitea and Forgejo: the
// same. GitLab: POST /projects/{id}/statuses/{sha}, whose failure is "failed".
func (a *api) request(ctx context.Context, token secret.Text, s status) (*http.Request, error) {
	label := "proxops/" + s.cluster
	text := s.text
	if r := []rune(text); len(r) > maxText {
		text = string(r[:maxText-1]) + "…"
	}
	body := map[string]string{"state": string(s.state), "description": text}
	if a.link != "" {
		body["target_url"] = a.link
	}
	at := a.base
	if a.provider == "gitlab" {
		at += "/projects/" + url.PathEscape(a.name) + "/statuses/" + url.PathEscape(s.commit)
		body["name"] = label
		if s.state == Failure {
			body["state"] = "failed"
		}
	} else {
		owner, name, _ := strings.Cut(a.name, "/")
		at += "/repos/" + url.PathEscape(owner) + "/" + url.PathEscape(name) + "/statuses/" + url.PathEscape(s.commit)
		body["context"] = label
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "proxops")
	switch a.provider {
	case "github":
		req.Header.Set("Accept", "application/vnd.github+json")
		req.Header.Set("Authorization", "Bearer "+token.Reveal())
	case "gitlab":
		req.Header.Set("PRIVATE-TOKEN", token.Reveal())
	default:
		req.Header.Set("Authorization", "token "+token.Reveal())
	}
	return req, nil
}

// post sends a status. What another try cannot mend is a permanent error.
func (a *api) post(ctx context.Context, token secret.Text, s status) error {
	if token.Empty() {
		return backoff.Permanent(errors.New("there is no token that may write a commit status: set git.status.token or a git token"))
	}
	req, err := a.request(ctx, token, s)
	if err != nil {
		return backoff.Permanent(errors.New("git.status: the request cannot be made: a setting or the token holds a character that it may not"))
	}
	res, err := a.client.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", a.base, bare(err))
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	err = fmt.Errorf("%s: %s answers %s", a.base, a.provider, res.Status)
	switch {
	case res.StatusCode/100 == 2:
		return nil
	case a.provider == "gitlab" && res.StatusCode == http.StatusBadRequest && bytes.Contains(answer, []byte("Cannot transition status")):
		return nil // it has this state already
	case res.StatusCode == http.StatusTooManyRequests || res.StatusCode >= 500,
		res.StatusCode == http.StatusForbidden && (res.Header.Get("Retry-After") != "" || res.Header.Get("X-RateLimit-Remaining") == "0"):
		return err
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		err = fmt.Errorf("%w: the token is not valid or may not write commit statuses of %s", err, a.name)
	case res.StatusCode == http.StatusNotFound:
		err = fmt.Errorf("%w: there is no repository %s, or the token may not see it", err, a.name)
	case res.StatusCode == http.StatusUnprocessableEntity:
		err = fmt.Errorf("%w: commit %s is not known there: was it pushed?", err, s.commit)
	}
	return backoff.Permanent(err)
}

// bare is the network's fault without the request's URL.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
