package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

// parrot is a PVE that repeats what it is sent: its refusals quote the values,
// and so do the logs and results of its tasks.
type parrot struct {
	world *pvesim.World

	mu     sync.Mutex
	refuse bool
	said   string
}

// ServeHTTP implements http.Handler.
func (p *parrot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if r.Method != http.MethodGet {
		values, _ := url.ParseQuery(string(body))
		p.said += " " + r.Header.Get("Authorization")
		for _, v := range values {
			p.said += " " + strings.Join(v, " ")
		}
		if p.refuse {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]any{"data": nil, "message": "Parameter verification failed: " + p.said, "errors": map[string]string{"password": "'" + p.said + "' is too short"}})
			return
		}
	}
	out := r.Clone(r.Context())
	out.Body = io.NopCloser(bytes.NewReader(body))
	res, err := p.world.RoundTrip(out)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if strings.Contains(r.URL.Path, "/tasks/") {
		text = p.echo(r.URL.Path, text)
	}
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(text)
}

func (p *parrot) echo(path string, text []byte) []byte {
	var a struct {
		Data any `json:"data"`
	}
	if json.Unmarshal(text, &a) != nil {
		return text
	}
	switch status, _ := a.Data.(map[string]any); {
	case strings.HasSuffix(path, "/log"):
		a.Data = []map[string]any{{"n": 1, "t": "used " + p.said}, {"n": 2, "t": "TASK ERROR: cannot use " + p.said}}
	case status["status"] == "stopped":
		status["exitstatus"] = "cannot use " + p.said
	}
	out, _ := json.Marshal(a)
	return out
}

func newParrot(t *testing.T) (*parrot, *planted) {
	w, _, _ := labFor(t, 1)
	p := &parrot{world: w}
	srv := httptest.NewTLSServer(p)
	t.Cleanup(srv.Close)
	sum := sha256.Sum256(srv.Certificate().Raw)
	return p, plantAt(t, w, srv.URL, hex.EncodeToString(sum[:]))
}

// TestCanaryEchoed: a secret that PVE itself repeats is not passed on.
func TestCanaryEchoed(t *testing.T) {
	p, repo := newParrot(t)
	p.refuse = true
	for _, o := range []string{"text", "json", "markdown"} {
		repo.run(t, repo.env, "diff", "-o", o)
	}
	if text := repo.run(t, repo.env, "apply"); !strings.Contains(text, "is too short") {
		t.Errorf("the refusal is not told:\n%s", text)
	}
	p.mu.Lock()
	if !strings.Contains(p.said, canaryCT) || !strings.Contains(p.said, canaryToken) {
		t.Error("the test's own premise: the parrot was sent the secrets")
	}
	p.refuse, p.said = false, ""
	p.mu.Unlock()
	if text := repo.run(t, repo.env, "apply"); !strings.Contains(text, "cannot use") {
		t.Errorf("the task's log is not told:\n%s", text)
	}
	repo.run(t, repo.env, "status")
}

// TestCanaryDaemon: neither pages, metrics, events, the journal, messages nor
// the log show a secret, also when PVE does.
func TestCanaryDaemon(t *testing.T) {
	_, p := newParrot(t)
	s := newTold(t)
	own := strings.ReplaceAll(canaryProcess, "http://127.0.0.1:1", s.URL)
	writeFiles(t, p.dir, map[string]string{"proxops.yaml": own + "log: {format: json}\n"})
	replaceSecret(t, p, "secrets.chat", s.URL+"/"+canaryChat)
	if err := commitAll(p.dir, "tell"); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := &watched{line: make(chan struct{}, 1)}, make(chan int, 1)
	go func() {
		ended <- run(ctx, system{out: out, err: out, environ: append([]string{"HOME=" + home}, p.env[:1]...)},
			[]string{"--git-path", p.dir, "--git-poll-sec", "1", "--log-level", "debug", "run", "--listen", "127.0.0.1:0"})
	}()
	until := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(60 * time.Second); !f(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				cancel()
				t.Fatalf("never seen: %s\n%s", what, out)
			}
		}
	}
	at, base := regexp.MustCompile(`"listen":"(http://[^"]+)"`), ""
	until("the address", func() bool {
		if m := at.FindStringSubmatch(out.String()); m != nil {
			base = m[1]
		}
		return base != ""
	})
	until("a message and a status", func() bool { return s.has(canaryChat, "cannot use") && s.has("/api/v1/", canaryForge, "failure") })

	get := func(path, bearer string) string {
		ctx, end := context.WithTimeout(t.Context(), 2*time.Second)
		defer end()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+bearer)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text := ""
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			text += lines.Text() + "\n"
		}
		p.check(t, path, text)
		return text
	}
	for path, says := range map[string]string{
		"/": "prod", "/objects": "LXC", "/clusters/prod": "LXC", "/clusters/prod/plan": "prod", "/clusters/prod/LXC/b": "cannot use", "/clusters/prod/VM/a": "100",
		"/status": "LXC", "/metrics": "proxops_", "/events": "", "/healthz": "", "/readyz": "", "/assets/app.js": "", "/nowhere": "",
	} {
		if text := get(path, canaryBearer); !strings.Contains(text, says) {
			t.Errorf("%s does not say %q:\n%s", path, says, text)
		}
		get(path, canaryStdin)
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.check(t, "the log", out.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all { // address and login are secrets by nature, what is said is not
		_, body, _ := strings.Cut(one, "{")
		p.check(t, "a message", body)
	}
	journals, err := filepath.Glob(filepath.Join(home, ".local/share/proxops/*/*"))
	if err != nil || len(journals) == 0 {
		t.Errorf("no journal: %v", err)
	}
	for _, f := range journals {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		p.check(t, f, string(text))
	}
	p.files(t)
}

// replaceSecret sets a value of the process's own secrets.
func replaceSecret(t *testing.T, p *planted, ref, value string) {
	t.Helper()
	in := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	if code := run(t.Context(), system{in: f, out: &out, err: &out, environ: p.env}, []string{"--git-path", p.dir, "secrets", "set", "--process", ref}); code != 0 {
		t.Fatal(out.String())
	}
}
