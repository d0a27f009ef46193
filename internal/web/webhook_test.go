package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/secret"
	"golang.org/x/time/rate"
)

const hookKey = "a shared secret"

func sign(key, body string) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(body))
	return hex.EncodeToString(m.Sum(nil))
}

// delivery is a push as the forge sends it, signed with key.
func delivery(forge, key, id, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/webhook/"+forge, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	switch forge {
	case "github":
		r.Header.Set("X-GitHub-Event", "push")
		r.Header.Set("X-GitHub-Delivery", id)
		r.Header.Set("X-Hub-Signature-256", "sha256="+sign(key, body))
	case "gitlab":
		r.Header.Set("X-Gitlab-Event", "Push Hook")
		r.Header.Set("X-Gitlab-Event-UUID", id)
		r.Header.Set("X-Gitlab-Token", key)
	case "gitea":
		r.Header.Set("X-Gitea-Event", "push")
		r.Header.Set("X-Gitea-Delivery", id)
		r.Header.Set("X-Gitea-Signature", sign(key, body))
	case "forgejo":
		r.Header.Set("X-Forgejo-Event", "push")
		r.Header.Set("X-Forgejo-Delivery", id)
		r.Header.Set("X-Forgejo-Signature", sign(key, body))
	}
	return r
}

// hookServer counts the reconciles that webhooks ask for.
func hookServer(t *testing.T, branch string) (send func(*http.Request) int, kicks *int) {
	t.Helper()
	kicks = new(int)
	cfg := Config{Webhook: secret.New(hookKey), Branch: branch, Reconcile: func(string) { *kicks++ }, Token: secret.New("other")}
	h := serve(t, cfg, twoClusters()).http.Handler
	return func(r *http.Request) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}, kicks
}

const push = `{"ref":"refs/heads/main","after":"1234"}`

func TestWebhooks(t *testing.T) {
	for name := range forges {
		t.Run(name, func(t *testing.T) {
			send, kicks := hookServer(t, "")
			want := func(r *http.Request, code, n int) {
				t.Helper()
				if got := send(r); got != code || *kicks != n {
					t.Errorf("%d and %d reconciles, want %d and %d", got, *kicks, code, n)
				}
			}
			want(delivery(name, "a wrong secret", "1", push), 401, 0)
			want(delivery(name, "", "1", push), 401, 0)
			r := delivery(name, hookKey, "1", push)
			r.Header.Del(forges[name].signature)
			want(r, 401, 0)
			want(delivery(name, hookKey, "1", push), 202, 1)
			want(delivery(name, hookKey, "1", push), 200, 1) // a replay
			want(delivery(name, hookKey, "2", `{"ref":"refs/heads/main","after":"5678"}`), 202, 2)
			want(delivery(name, hookKey, "3", `{"nothing":1}`), 400, 2)
			want(delivery(name, hookKey, "4", `not json`), 400, 2)
			want(delivery(name, hookKey, "4", `not json`), 400, 2) // what was refused does not count as seen
			want(delivery(name, hookKey, "4", `{"ref":"refs/heads/main","after":"9abc"}`), 202, 3)
			other := delivery(name, hookKey, "5", push+" ")
			other.Header.Set(forges[name].event, "issues")
			want(other, 200, 3)
		})
	}
}

// The delivery id is not signed: a replay under another id is still one.
func TestReplayUnderAnotherID(t *testing.T) {
	for _, name := range []string{"github", "gitea", "forgejo"} {
		send, kicks := hookServer(t, "")
		send(delivery(name, hookKey, "1", push))
		if code := send(delivery(name, hookKey, "2", push)); code != 200 || *kicks != 1 {
			t.Errorf("%s: %d, %d reconciles", name, code, *kicks)
		}
	}
}

func TestWebhookDetails(t *testing.T) {
	send, kicks := hookServer(t, "main")
	if code := send(delivery("github", hookKey, "1", `{"ref":"refs/heads/feature"}`)); code != 200 || *kicks != 0 {
		t.Errorf("another branch: %d %d", code, *kicks)
	}
	ping := delivery("github", hookKey, "2", `{"zen":"x"}`)
	ping.Header.Set("X-GitHub-Event", "ping")
	if code := send(ping); code != 200 || *kicks != 0 {
		t.Errorf("ping: %d %d", code, *kicks)
	}
	form := delivery("github", hookKey, "3", "payload="+url.QueryEscape(push))
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if code := send(form); code != 202 || *kicks != 1 {
		t.Errorf("a form: %d %d", code, *kicks)
	}
	if code := send(delivery("github", hookKey, "4", strings.Repeat(" ", maxHook+1))); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a huge body: %d", code)
	}
	if code := send(delivery("svn", hookKey, "5", push)); code != 404 {
		t.Errorf("an unknown forge: %d", code)
	}
	limited := 0
	for i := range 200 {
		if send(delivery("github", "guess", fmt.Sprint(i), push)) == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited < 100 {
		t.Errorf("only %d of 200 guesses were put off", limited)
	}
}

func TestNoWebhooksWithoutSecret(t *testing.T) {
	kicked := false
	h := serve(t, Config{Reconcile: func(string) { kicked = true }}, twoClusters()).http.Handler
	w := httptest.NewRecorder()
	r := delivery("gitlab", "", "1", push)
	r.Host = "localhost"
	h.ServeHTTP(w, r)
	if kicked || w.Code < 400 {
		t.Errorf("%d", w.Code)
	}
}

func TestReplayMemoryIsBounded(t *testing.T) {
	h := newHooks(Config{Webhook: secret.New(hookKey)})
	h.limit = rate.NewLimiter(rate.Inf, 0)
	f := forges["github"]
	for i := range 3 * hookMemory {
		if h.known(f, http.Header{}, fmt.Append(nil, i)) {
			t.Fatalf("%d is new", i)
		}
	}
	if len(h.seen) != hookMemory || len(h.ring) != hookMemory {
		t.Errorf("%d remembered", len(h.seen))
	}
	if !h.known(f, http.Header{}, fmt.Append(nil, 3*hookMemory-1)) {
		t.Error("the newest is forgotten")
	}
}
