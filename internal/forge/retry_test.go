package forge

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

// wire stands for the network to a forge: it keeps what is sent and answers as
// a test says.
type wire struct {
	mu     sync.Mutex
	sent   []string // commit, state and description
	answer func(n int, what string) int
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	data, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	what := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:] + " " + string(data)
	w.sent = append(w.sent, what)
	status := w.answer(len(w.sent), what)
	w.mu.Unlock()
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}, nil
}

func (w *wire) count(part string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, s := range w.sent {
		if strings.Contains(s, part) {
			n++
		}
	}
	return n
}

// wired is a reporter in a bubble of synctest, on a wire.
func wired(t *testing.T, w *wire) (*Reporter, *logs) {
	t.Helper()
	l := &logs{}
	r := New(Options{Log: slog.New(slog.NewTextHandler(l, nil)), Token: func(context.Context, string) (secret.Text, error) { return secret.New(token), nil }})
	if err := r.Configure(settings("gitea", "https://git.example.org/api/v1")); err != nil {
		t.Fatal(err)
	}
	r.api.client.Transport = w
	return r, l
}

// Of a cluster only the newest status is told: one that is still being tried
// ends when there is a newer one, and it does not come back.
func TestOutOfDate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answer: func(_ int, what string) int {
			if strings.HasPrefix(what, "old ") {
				return http.StatusBadGateway
			}
			return http.StatusCreated
		}}
		r, _ := wired(t, w)
		r.Finished(cycle("old", plan.Converged))
		synctest.Wait()
		r.Finished(cycle("new", plan.Converged))
		time.Sleep(giveUp)
		if w.count("old ") != 1 || w.count("new ") != 1 {
			t.Errorf("told %q, want the old once, and the new once", w.sent)
		}
		r.Close(t.Context())
	})
}

// What a forge did not take for as long as a status is tried is told by a later
// cycle; what it refused is not told again.
func TestGivenUpAndRefused(t *testing.T) {
	for name, c := range map[string]struct{ status, again int }{
		"down for long": {http.StatusBadGateway, 1}, "refused": {http.StatusUnauthorized, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{answer: func(int, string) int { return c.status }}
				r, l := wired(t, w)
				r.Finished(cycle(sha, plan.Converged))
				time.Sleep(2 * giveUp)
				tries := w.count("")
				w.mu.Lock()
				w.answer = func(int, string) int { return http.StatusCreated }
				w.mu.Unlock()
				r.Finished(cycle(sha, plan.Converged))
				time.Sleep(2 * giveUp)
				r.Finished(cycle(sha, plan.Converged))
				time.Sleep(time.Minute)
				if got := w.count("") - tries; got != c.again {
					t.Errorf("told %d times more, want %d", got, c.again)
				}
				if n := strings.Count(l.String(), "not accepted"); n != 1 {
					t.Errorf("%d warnings, want 1: %s", n, l)
				}
				r.Close(t.Context())
			})
		})
	}
}

// What a forge refused is offered to it again after a while, and to other settings at once.
func TestRefusedIsOfferedLater(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		other bool
		again int
	}{
		"soon": {refusedFor - 2*time.Minute, false, 0}, "later": {refusedFor, false, 1}, "other settings": {time.Minute, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{answer: func(int, string) int { return http.StatusUnauthorized }}
				r, _ := wired(t, w)
				r.Finished(cycle(sha, plan.Converged))
				time.Sleep(c.after)
				if c.other {
					g := settings("gitea", "https://git.example.org/api/v1")
					g.Status.Link = "https://proxops.example.org"
					if err := r.Configure(g); err != nil {
						t.Fatal(err)
					}
					r.api.client.Transport = w
				}
				for range 3 {
					r.Finished(cycle(sha, plan.Converged))
					time.Sleep(time.Second)
				}
				if got := w.count("") - 1; got != c.again {
					t.Errorf("offered %d times more, want %d", got, c.again)
				}
				r.Close(t.Context())
			})
		})
	}
}

// Settings that could not be used are tried again as they are: a file that they name may be there by now.
func TestSettingsThatWorkLater(t *testing.T) {
	r := New(Options{})
	defer r.Close(t.Context())
	g := settings("gitea", "https://git.example.org/api/v1")
	g.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := r.Configure(g); err == nil {
		t.Fatal("a CA file that is not there is taken")
	}
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	if err := os.WriteFile(g.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Configure(g); err != nil {
		t.Errorf("the file is there now: %v", err)
	}
}

// A fault that lasts from commit to commit is logged once, and again after it
// was mended.
func TestFaultIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answer: func(_ int, what string) int {
			if strings.HasPrefix(what, "good") {
				return http.StatusCreated
			}
			return http.StatusUnauthorized
		}}
		r, l := wired(t, w)
		for i, c := range []struct {
			commit string
			logged int
		}{{"bad1", 1}, {"bad2", 1}, {"good1", 1}, {"bad3", 2}} {
			r.Finished(cycle(c.commit, plan.Converged))
			time.Sleep(time.Minute)
			if n := strings.Count(l.String(), "not accepted"); n != c.logged {
				t.Errorf("%d: %d warnings, want %d", i, n, c.logged)
			}
		}
		r.Close(t.Context())
	})
}

// What there was to say before the forge was known is said once it is; a
// report without a commit says nothing; the same is said once; and a cluster
// that was forgotten is told of anew.
func TestOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answer: func(int, string) int { return http.StatusCreated }}
		r := New(Options{Token: func(context.Context, string) (secret.Text, error) { return secret.New(token), nil }})
		step := func(what string, want int, f func()) {
			t.Helper()
			f()
			time.Sleep(time.Minute)
			if got := w.count(""); got != want {
				t.Errorf("%s: %d statuses, want %d", what, got, want)
			}
		}
		finished := func() { r.Finished(cycle(sha, plan.Converged)) }
		step("not configured", 0, finished)
		g := settings("gitea", "https://git.example.org/api/v1")
		if err := r.Configure(g); err != nil {
			t.Fatal(err)
		}
		r.api.client.Transport = w
		step("configured", 1, finished)
		step("the same", 1, finished)
		step("no commit", 1, func() { r.Finished(cycle("", plan.Converged)) })
		step("begun already", 1, func() { r.Begin(sha, []string{"prod"}) })
		step("the same settings", 2, func() {
			if err := r.Configure(g); err != nil || r.api.client.Transport != http.RoundTripper(w) {
				t.Errorf("the client is made anew, %v", err)
			}
			r.Finished(cycle(sha, plan.Converged, plan.Converged))
		})
		step("forgotten", 3, func() {
			r.Forget("prod")
			r.Finished(cycle(sha, plan.Converged, plan.Converged))
		})
		step("switched off", 3, func() {
			if err := r.Configure(repo.GitSettings{URL: g.URL}); err != nil {
				t.Error(err)
			}
			r.Finished(cycle(sha, plan.Failed))
		})
		r.Close(t.Context())
	})
}

// Without a token nothing is sent, and the fault says what to set.
func TestNoToken(t *testing.T) {
	for name, token := range map[string]func(context.Context, string) (secret.Text, error){
		"empty": func(context.Context, string) (secret.Text, error) { return secret.Text{}, nil },
		"a fault": func(context.Context, string) (secret.Text, error) {
			return secret.Text{}, errors.New("set git.status.token")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{answer: func(int, string) int { return http.StatusCreated }}
				r, l := wired(t, w)
				r.o.Token = token
				r.Finished(cycle(sha, plan.Converged))
				time.Sleep(giveUp)
				if w.count("") != 0 || strings.Count(l.String(), "set git.status.token") != 1 {
					t.Errorf("sent %q, logged %s", w.sent, l)
				}
				r.Close(t.Context())
			})
		})
	}
}

// A guest that was to be deleted and is not yet keeps a commit from success.
func TestVerdictOfDeletes(t *testing.T) {
	for state, want := range map[plan.ObjectState]State{plan.Pruned: Success, plan.Skipped: Pending, plan.Drift: Pending, plan.Unknown: Pending} {
		rep := cycle(sha, plan.Converged)
		rep.Objects = append(rep.Objects, reconcile.Object{Kind: "VM", Name: "old", State: state, PruneReason: "not declared any more"})
		if got, text, _ := verdict(rep); got != want {
			t.Errorf("a delete that is %s: %s %s, want %s", state, got, text, want)
		}
	}
	done := cycle(sha, plan.Converged)
	done.ReadOnly = true
	if got, text, _ := verdict(done); got != Success {
		t.Errorf("read-only and as declared: %s %s", got, text)
	}
}

// A description is no longer than the strictest forge takes, in characters.
func TestDescriptionIsBounded(t *testing.T) {
	a, err := newAPI(settings("github", ""))
	if err != nil {
		t.Fatal(err)
	}
	a.link = ""
	for _, text := range []string{strings.Repeat("ü", maxText), strings.Repeat("ü", maxText+1)} {
		req, err := a.request(t.Context(), secret.New(token), status{commit: sha, cluster: "prod", state: Success, text: text})
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(req.Body)
		if got, full := strings.Count(string(data), "ü"), len([]rune(text)) == maxText; full && got != maxText || !full && got != maxText-1 {
			t.Errorf("%d characters of %d", got, len([]rune(text)))
		}
		if strings.Contains(string(data), "target_url") {
			t.Errorf("a link that is not set is sent: %s", data)
		}
	}
}
