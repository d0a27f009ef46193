package notify

import (
	"bytes"
	"context"
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

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

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

// desk is a notifier whose secrets a test can change.
type desk struct {
	*Notifier
	logs logs
	mu   sync.Mutex
	urls map[string]string
}

func newDesk(t *testing.T, p pace) *desk {
	d := &desk{urls: map[string]string{}}
	d.Notifier = New(Options{Log: slog.New(slog.NewTextHandler(&d.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Resolve: func(key string) (secret.Text, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if u, ok := d.urls[key]; ok {
				return secret.New(u), nil
			}
			return secret.Text{}, errors.New("secrets." + key + ": no such entry")
		}})
	d.pace = p
	t.Cleanup(func() { d.Close(context.Background()) })
	return d
}

func (d *desk) url(key, u string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.urls[key] = u
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatal(what)
}

func quick() pace {
	return pace{gather: 20 * time.Millisecond, every: time.Hour, burst: 100, send: 10 * time.Second, retry: 10 * time.Millisecond,
		giveUp: 10 * time.Second, stuck: time.Hour, final: time.Second}
}

func TestFiltersAndTemplates(t *testing.T) {
	s := newSink(t, false)
	d := newDesk(t, quick())
	for _, k := range []string{"all", "failed", "lab", "own", "bad"} {
		d.url(k, "generic+"+s.URL+"/"+k)
	}
	d.Configure([]repo.Notification{
		{Name: "all", URL: "all"},
		{Name: "failed", URL: "failed", Events: []string{"failed"}},
		{Name: "lab", URL: "lab", Clusters: []string{"lab"}},
		{Name: "own", URL: "own", Template: `{"text": {{json .Title}}, "n": {{len .Events}}}`},
		{Name: "bad", URL: "bad", Template: `{{(index .Events 99).Text}}`},
	})
	d.Finished(failing("prod", `<script>"x"`))
	by := func(path string) (out []string) {
		for _, g := range s.got() {
			if g.uri == "/"+path {
				out = append(out, g.body)
			}
		}
		return out
	}
	eventually(t, "not all were told", func() bool { return len(by("all"))+len(by("failed"))+len(by("own"))+len(by("bad")) == 4 })
	if len(by("lab")) != 0 {
		t.Errorf("lab was told of prod: %v", by("lab"))
	}
	if got := by("own")[0]; got != `{"text": "ProxOps: prod: 1 failed, 1 anomaly", "n": 2}` {
		t.Errorf("own template: %s", got)
	}
	if got := by("bad")[0]; got != by("all")[0] || !strings.Contains(d.logs.String(), "the template is at fault") {
		t.Errorf("a bad template: %s\n%s", got, d.logs.String())
	}
	if got := by("failed")[0]; strings.Contains(got, "anomaly") || !strings.Contains(got, `failed: VM web (100 on pve01): Update: <script>"x"`) {
		t.Errorf("failed alone: %s", got)
	}
}

// Secrets, targets and filters that change are in force with the next message.
func TestConfigureAgain(t *testing.T) {
	s := newSink(t, false)
	d := newDesk(t, quick())
	d.url("k", s.URL+"/one")
	d.Configure([]repo.Notification{{Name: "a", URL: "k"}})
	d.Finished(failing("prod", "first"))
	eventually(t, "nothing came", func() bool { return len(s.got()) == 1 })
	d.url("k", s.URL+"/two")
	d.Finished(failing("prod", "second"))
	eventually(t, "the new URL is not used", func() bool { g := s.got(); return len(g) == 2 && strings.HasPrefix(g[1].uri, "/two") })
	d.url("b", s.URL+"/b")
	d.Configure([]repo.Notification{{Name: "b", URL: "b"}})
	d.Finished(failing("prod", "third"))
	eventually(t, "nothing came", func() bool { return len(s.got()) == 3 })
	d.Close(t.Context()) // b, which may still wait for its answer, sends it again then
	for i, r := range s.got() {
		if i > 1 && !strings.HasPrefix(r.uri, "/b") {
			t.Errorf("message %d to %s: a target that is gone is still told", i+1, r.uri)
		}
	}
}

// While a service is down a message is tried again, what comes meanwhile joins
// the next, and no cycle waits. The URL is in no log.
func TestRetries(t *testing.T) {
	s := newSink(t, false)
	s.set(http.StatusBadGateway, "ECHO")
	d := newDesk(t, quick())
	d.url("k", s.URL+"/canarypath?token=canaryvalue")
	d.Configure([]repo.Notification{{Name: "a", URL: "k"}, {Name: "missing", URL: "nowhere"}})
	d.Finished(failing("prod", "first"))
	eventually(t, "it is not tried again", func() bool { return len(s.got()) >= 3 })
	begin := time.Now()
	for i := range 50 {
		d.Finished(failing("prod"+fmt.Sprint(i), "more"))
	}
	if took := time.Since(begin); took > time.Second {
		t.Errorf("telling took %s", took)
	}
	s.set(http.StatusOK, "")
	eventually(t, "it was not delivered", func() bool { return strings.Contains(d.logs.String(), "delivered again") })
	eventually(t, "the rest was not", func() bool { g := s.got(); return strings.Contains(g[len(g)-1].body, "50 clusters") })
	log := d.logs.String()
	for _, msg := range []string{"a notification could not be delivered", "nothing can be sent to this target"} {
		if n := strings.Count(log, "msg=\""+msg); n != 1 {
			t.Errorf("%d times %q, want one warning for each target", n, msg)
		}
	}
	if strings.Contains(log, "canary") || strings.Contains(log, "://") {
		t.Errorf("a URL is logged:\n%s", log)
	}
	if !strings.Contains(log, "secrets.nowhere: no such entry") {
		t.Errorf("the missing entry is not named:\n%s", log)
	}
}

// Past its burst a target gets one message in an interval, with everything
// that came; what is left is told at the end.
func TestRateLimit(t *testing.T) {
	s := newSink(t, false)
	p := quick()
	p.burst, p.gather = 2, time.Millisecond
	d := newDesk(t, p)
	d.url("k", s.URL)
	d.Configure([]repo.Notification{{Name: "a", URL: "k"}})
	for i := range 2 {
		d.Finished(failing("prod", fmt.Sprint("burst ", i)))
		eventually(t, "nothing came", func() bool { return len(s.got()) == i+1 })
	}
	for i := range 400 {
		d.Finished(failing(fmt.Sprint("c", i), "flood"))
	}
	d.Close(t.Context())
	all := s.got()
	if len(all) != 3 {
		t.Fatalf("%d messages, want 2 and what was held back", len(all))
	}
	if got := all[2].body; !strings.Contains(got, "400 failed, 400 anomaly") || !strings.Contains(got, "and 775 more: 375 failed, 400 anomaly") {
		t.Errorf("the summary: %s", got)
	}
}

// What could not be delivered is not forgotten without a word.
func TestGivenUp(t *testing.T) {
	s := newSink(t, false)
	s.set(500, "")
	p := quick()
	p.giveUp = 50 * time.Millisecond
	d := newDesk(t, p)
	d.url("k", s.URL)
	d.Configure([]repo.Notification{{Name: "a", URL: "k"}})
	d.Finished(failing("prod", "first"))
	eventually(t, "it is not given up", func() bool { return strings.Contains(d.logs.String(), "given up") })
	s.set(200, "")
	d.Finished(failing("prod", "second"))
	eventually(t, "nothing came", func() bool { g := s.got(); return strings.Contains(g[len(g)-1].body, "second") })
	if g := s.got(); !strings.Contains(g[len(g)-1].body, "2 earlier events could not be delivered") {
		t.Errorf("got %s", g[len(g)-1].body)
	}
}

func TestTemplateThatNeverEnds(t *testing.T) {
	m := compose([]Event{{Event: Failed, Cluster: "prod", Text: "x"}}, nil, 0)
	for _, text := range []string{"{{range 1000000000}}x{{end}}", "{{.Nothing}}", "{{", " {{if .Lost}}x{{end}} ", "{{call .Title}}", `{{template "none"}}`} {
		if got, err := m.render(text); err == nil || got != m.Text {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

// The events that settings may name are those that are told.
func TestEventNames(t *testing.T) {
	if got, want := fmt.Sprint(repo.NotifyEvents), fmt.Sprint([]Kind{Drift, Corrected, Failed, Recovered, Anomaly, Suppressed}); got != want {
		t.Errorf("settings know %s, reports give %s", got, want)
	}
	_ = plan.Drift
}

// One message that a service never answers does not silence it for good: after a while the next one goes out beside it.
func TestServiceThatNeverAnswersOnce(t *testing.T) {
	release, first := make(chan struct{}), true
	var mu sync.Mutex
	said := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hang := first
		first = false
		mu.Unlock()
		if hang {
			<-release
			return
		}
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		said = string(body)
	}))
	defer s.Close()
	defer close(release)
	p := quick()
	p.send, p.stuck = 20*time.Millisecond, 100*time.Millisecond
	d := newDesk(t, p)
	d.url("hook", "generic+"+s.URL+"/hook")
	d.Configure([]repo.Notification{{Name: "hook", URL: "hook"}})
	d.Finished(failing("prod", "text"))
	eventually(t, "the target stays silent", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return said != ""
	})
	if log := d.logs.String(); !strings.Contains(log, "did not answer in time") || !strings.Contains(log, errStillSending.Error()) {
		t.Errorf("the log says %s", log)
	}
}
