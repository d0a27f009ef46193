package forge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

const (
	sha   = "0123456789abcdef0123456789abcdef01234567"
	token = "canary-forge-token"
)

// host is a forge that keeps what it is told.
type host struct {
	*httptest.Server
	mu     sync.Mutex
	got    []posted
	answer func(n int) (status int, header http.Header, body string)
}

type posted struct {
	uri    string
	header http.Header
	body   map[string]string
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		p := posted{uri: r.Method + " " + r.RequestURI, header: r.Header}
		if err := json.Unmarshal(data, &p.body); err != nil {
			t.Errorf("%v: %s", err, data)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, p)
		if h.answer == nil {
			w.WriteHeader(http.StatusCreated)
			return
		}
		status, header, body := h.answer(len(h.got))
		for k := range header {
			w.Header().Set(k, header.Get(k))
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *host) all() []posted {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]posted(nil), h.got...)
}

// logs is a writer that several goroutines use.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func reporter(t *testing.T, g repo.GitSettings) (*Reporter, *logs) {
	t.Helper()
	l := &logs{}
	r := New(Options{Log: slog.New(slog.NewTextHandler(l, nil)), Token: func(context.Context, string) (secret.Text, error) { return secret.New(token), nil }})
	r.retry = 5 * time.Millisecond
	t.Cleanup(func() { r.Close(context.Background()) })
	if err := r.Configure(g); err != nil {
		t.Fatal(err)
	}
	return r, l
}

func settings(provider, api string) repo.GitSettings {
	return repo.GitSettings{URL: "https://git.example.org/ops/infra.git", Status: repo.StatusSettings{Provider: provider, APIURL: api, Link: "https://dash.example.org"}}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatal(what)
}

func cycle(commit string, states ...plan.ObjectState) *reconcile.Report {
	rep := &reconcile.Report{Cluster: "prod", Commit: commit, Plan: plan.Plan{Cluster: "prod"}}
	for i, s := range states {
		o := reconcile.Object{Kind: "VM", Name: fmt.Sprint(i), State: s}
		if s == plan.Pruned {
			o.PruneReason = "not declared any more"
		} else {
			rep.Plan.Objects = append(rep.Plan.Objects, plan.Object{Ref: o.Ref()})
		}
		rep.Objects = append(rep.Objects, o)
		if s == plan.Failed {
			rep.Plan.Errors = append(rep.Plan.Errors, plan.ObjectError{})
		}
	}
	return rep
}

// Each forge is told in its own words, and of each change once.
func TestForges(t *testing.T) {
	for provider, c := range map[string]struct{ path, header, value, failure, label string }{
		"github":  {"POST /repos/ops/infra/statuses/" + sha, "Authorization", "Bearer " + token, "failure", "context"},
		"gitea":   {"POST /repos/ops/infra/statuses/" + sha, "Authorization", "token " + token, "failure", "context"},
		"forgejo": {"POST /repos/ops/infra/statuses/" + sha, "Authorization", "token " + token, "failure", "context"},
		"gitlab":  {"POST /projects/ops%2Finfra/statuses/" + sha, "Private-Token", token, "failed", "name"},
	} {
		t.Run(provider, func(t *testing.T) {
			h := newHost(t)
			r, _ := reporter(t, settings(provider, h.URL))
			tell := func(n int, f func()) posted {
				t.Helper()
				f()
				f()
				eventually(t, "nothing is told", func() bool { return len(h.all()) >= n })
				return h.all()[n-1]
			}
			for i, s := range []struct {
				tell        func()
				state, text string
			}{
				{func() { r.Begin(sha, []string{"prod"}) }, "pending", "waits for its cycle"},
				{func() { r.Finished(cycle(sha, plan.Converged, plan.Failed)) }, c.failure, "2 objects, 1 failed, 1 not as declared"},
				{func() { r.Finished(cycle(sha, plan.Converged, plan.Skipped)) }, "pending", "2 objects, 1 not as declared"},
				{func() { r.Finished(cycle(sha, plan.Converged, plan.WaitingRestart)) }, "success", "2 objects, 1 waiting for a restart"},
				{func() { r.Finished(cycle(sha, plan.Converged, plan.Converged)) }, "success", "2 objects"},
			} {
				got := tell(i+1, s.tell)
				if got.uri != c.path || got.header.Get(c.header) != c.value || got.body["state"] != s.state || got.body["description"] != s.text ||
					got.body[c.label] != "proxops/prod" || got.body["target_url"] != "https://dash.example.org" {
					t.Errorf("%d: got %+v", i, got)
				}
			}
			r.Close(t.Context())
			if n := len(h.all()); n != 5 {
				t.Errorf("%d statuses, want 5: the same is told twice", n)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	abort := func(err error, badFiles bool) *reconcile.Report {
		return &reconcile.Report{Cluster: "prod", Commit: sha, Abort: err, BadFiles: badFiles}
	}
	interrupted := cycle(sha, plan.Skipped)
	interrupted.Result, interrupted.Abort = &apply.Result{Interrupted: true}, errors.New("interrupted")
	edited := cycle(sha, plan.Converged)
	edited.Dirty = true
	look := cycle(sha, plan.Drift)
	look.ReadOnly = true
	for name, c := range map[string]struct {
		rep  *reconcile.Report
		want string
	}{
		"files at fault":       {abort(errors.New("vm/secret-project.yaml: x"), true), "failure the cluster's files cannot be loaded"},
		"cluster out of reach": {abort(errors.New("10.0.0.1: no route"), false), "pending the cluster cannot be reconciled at present"},
		"stop":                 {abort(reconcile.ErrStopping, false), " "},
		"right lost":           {abort(apply.ErrFenced, false), " "},
		"interrupted":          {interrupted, " "},
		"read-only":            {look, "pending read-only: 1 object, 1 not as declared"},
		"nothing declared":     {cycle(sha), "success 0 objects"},
		"pruned":               {cycle(sha, plan.Pruned, plan.Anomalous), "success 1 object"},
		"uncommitted edits":    {edited, " "},
	} {
		state, text, ok := verdict(c.rep)
		if got := string(state) + " " + text; got != c.want || ok != (c.want != " ") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestDerive(t *testing.T) {
	for _, c := range []struct{ url, provider, base, name string }{
		{"https://github.com/ops/infra.git", "github", "https://api.github.com", "ops/infra"},
		{"git@github.com:ops/infra.git", "github", "https://api.github.com", "ops/infra"},
		{"https://ghe.example.org/ops/infra", "github", "https://ghe.example.org/api/v3", "ops/infra"},
		{"https://gitlab.com/group/sub/infra.git", "gitlab", "https://gitlab.com/api/v4", "group/sub/infra"},
		{"ssh://git@git.example.org:2222/ops/infra.git", "gitea", "https://git.example.org/api/v1", "ops/infra"},
		{"https://git.example.org:8443/ops/infra/", "forgejo", "https://git.example.org:8443/api/v1", "ops/infra"},
		{"http://127.0.0.1:3000/ops/infra", "gitea", "http://127.0.0.1:3000/api/v1", "ops/infra"},
		{"git.example.org:ops/infra.git", "gitea", "https://git.example.org/api/v1", "ops/infra"},
		{"./git:ops/infra", "gitea", "", ""},
		{"/srv/git/infra.git", "gitea", "", ""}, {"", "gitlab", "", ""}, {"file:///srv/git/infra", "github", "", ""},
	} {
		if base, name := derive(c.url, c.provider); base != c.base || name != c.name {
			t.Errorf("%s for %s: %s %s, want %s %s", c.url, c.provider, base, name, c.base, c.name)
		}
	}
}

func TestSettingsThatCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		git  repo.GitSettings
		want string
	}{
		"local mode":     {repo.GitSettings{Status: repo.StatusSettings{Provider: "gitea"}}, "git.status.api-url: cannot be derived"},
		"no name":        {repo.GitSettings{Status: repo.StatusSettings{Provider: "gitea", APIURL: "https://x.example.org"}}, "git.status.repository: cannot be derived"},
		"clear text":     {settings("gitea", "http://git.example.org/api/v1"), "use https"},
		"a password":     {settings("gitea", "https://u:canary@git.example.org"), "is not a plain URL"},
		"a deep path":    {repo.GitSettings{URL: "https://github.com/a/b/c", Status: repo.StatusSettings{Provider: "github"}}, `"a/b/c" is not owner/name`},
		"a query":        {settings("gitea", "https://git.example.org/api?private_token=canary"), "is not a plain URL"},
		"no host":        {settings("gitea", "https:///api/v1"), "is not a plain URL"},
		"no URL":         {settings("gitea", "https://git.example.org/%zz"), "is not a plain URL"},
		"another scheme": {settings("gitea", "ftp://127.0.0.1/api/v1"), "use https"},
		"this machine":   {settings("gitea", "http://127.0.0.1:3000/api/v1"), ""},
		"by its name":    {settings("gitea", "http://localhost:3000/api/v1"), ""},
		"no group":       {repo.GitSettings{URL: "https://gitlab.com/infra", Status: repo.StatusSettings{Provider: "gitlab"}}, `"infra" is not owner/name`},
		"a sub-group":    {repo.GitSettings{URL: "https://gitlab.com/a/b/c", Status: repo.StatusSettings{Provider: "gitlab"}}, ""},
		"a name given":   {repo.GitSettings{URL: "https://github.com/a/b/c", Status: repo.StatusSettings{Provider: "github", Repository: "/a/b/"}}, ""},
		"a CA of no use": {repo.GitSettings{URL: "https://github.com/a/b", CAFile: "forge_test.go", Status: repo.StatusSettings{Provider: "github"}}, "holds no certificate"},
		"no such CA":     {repo.GitSettings{URL: "https://github.com/a/b", CAFile: "/nowhere", Status: repo.StatusSettings{Provider: "github"}}, "git.ca-file: open /nowhere"},
		"not configured": {repo.GitSettings{URL: "https://github.com/a/b"}, ""},
	} {
		_, err := newAPI(c.git)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// What may pass is tried again; what is refused is said once, without the
// token, and not tried for this commit any more.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		provider string
		status   int
		header   http.Header
		body     string
		tries    int
		logged   string
	}{
		"down":                 {"github", 502, nil, token, 3, ""},
		"rate limit":           {"github", 403, http.Header{"X-Ratelimit-Remaining": {"0"}}, "", 3, ""},
		"rate limit, later":    {"gitea", 403, http.Header{"Retry-After": {"60"}}, "", 3, ""},
		"refused at the limit": {"github", 404, http.Header{"X-Ratelimit-Remaining": {"0"}}, "", 1, "there is no repository"},
		"not GitLab":           {"gitea", 400, nil, `{"message":"Cannot transition status"}`, 1, "answers 400"},
		"GitLab refuses":       {"gitlab", 401, nil, `{"message":"Cannot transition status"}`, 1, "the token is not valid"},
		"too many":             {"gitlab", 429, nil, "", 3, ""},
		"not allowed":          {"gitea", 403, nil, token, 1, "may not write commit statuses of ops/infra"},
		"bad token":            {"github", 401, nil, token, 1, "the token is not valid"},
		"no repository":        {"gitlab", 404, nil, token, 1, "there is no repository ops/infra"},
		"not pushed":           {"github", 422, nil, token, 1, "was it pushed?"},
		"redirect":             {"gitlab", 302, http.Header{"Location": {"http://127.0.0.1:1/canary"}}, "", 1, "answers 302"},
		"GitLab has it so":     {"gitlab", 400, nil, `{"message":"Cannot transition status via :enqueue from :pending"}`, 1, ""},
		"GitLab's other fault": {"gitlab", 400, nil, token, 1, "answers 400"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.answer = func(n int) (int, http.Header, string) {
				if n == 3 || n > c.tries {
					return http.StatusCreated, nil, ""
				}
				return c.status, c.header, c.body
			}
			r, l := reporter(t, settings(c.provider, h.URL))
			r.Finished(cycle(sha, plan.Converged))
			eventually(t, "too few tries", func() bool { return len(h.all()) >= c.tries })
			eventually(t, "not logged: "+c.logged, func() bool { return strings.Contains(l.String(), c.logged) })
			r.Finished(cycle(sha, plan.Converged))
			r.Close(t.Context())
			if n := len(h.all()); n != c.tries {
				t.Errorf("%d tries, want %d", n, c.tries)
			}
			if c.logged == "" && l.String() != "" || strings.Contains(l.String(), "canary") {
				t.Errorf("logged: %s", l)
			}
		})
	}
}

// A forge that does not answer delays no cycle, and gets the newest status when
// it does again.
func TestForgeThatHangs(t *testing.T) {
	h := newHost(t)
	release := make(chan struct{})
	h.answer = func(n int) (int, http.Header, string) {
		if n == 1 {
			<-release
		}
		return http.StatusCreated, nil, ""
	}
	r, _ := reporter(t, settings("gitea", h.URL))
	begin := time.Now()
	for i := range 100 {
		r.Finished(cycle(sha, make([]plan.ObjectState, i+1)...))
	}
	r.Finished(cycle(sha, plan.Converged))
	if took := time.Since(begin); took > time.Second {
		t.Errorf("telling took %s", took)
	}
	close(release)
	eventually(t, "the newest is not told", func() bool { g := h.all(); return len(g) > 1 && g[len(g)-1].body["description"] == "1 object" })
	if n := len(h.all()); n > 3 {
		t.Errorf("%d statuses: what is out of date is told", n)
	}
}
