package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"github.com/proxops/proxops/internal/secret"
)

// Bounds of webhooks.
const (
	maxHook    = 4 << 20 // bytes of a body; a push of many commits is long
	hookMemory = 1024    // deliveries remembered
	hookRate   = 5       // deliveries a second, after a burst of four times as many
)

// forge is how one forge sends a push.
type forge struct {
	event    string // header that names the event
	push     string // its value for a push
	ping     string // its value for a test delivery; "" = there is none
	delivery []string
	// signature holds the HMAC-SHA256 of the body in hex after prefix; with
	// token set the header holds the shared secret itself.
	signature string
	prefix    string
	token     bool
}

// forges are those whose webhooks are understood, by the last part of the path.
var forges = map[string]forge{
	"github":  {event: "X-GitHub-Event", push: "push", ping: "ping", delivery: []string{"X-GitHub-Delivery"}, signature: "X-Hub-Signature-256", prefix: "sha256="},
	"gitlab":  {event: "X-Gitlab-Event", push: "Push Hook", delivery: []string{"Idempotency-Key", "X-Gitlab-Event-UUID"}, signature: "X-Gitlab-Token", token: true},
	"gitea":   {event: "X-Gitea-Event", push: "push", delivery: []string{"X-Gitea-Delivery"}, signature: "X-Gitea-Signature"},
	"forgejo": {event: "X-Forgejo-Event", push: "push", delivery: []string{"X-Forgejo-Delivery"}, signature: "X-Forgejo-Signature"},
}

// hooks takes push webhooks. A good one does nothing but make the daemon look
// now: what is reconciled comes from git, never from the request.
type hooks struct {
	cfg    Config
	secret func() secret.Text // in force
	limit  *rate.Limiter

	mu   sync.Mutex
	seen map[string]bool
	ring []string // the keys of seen, oldest at next
	next int
}

func newHooks(cfg Config) *hooks {
	return &hooks{cfg: cfg, secret: func() secret.Text { return cfg.Webhook }, limit: rate.NewLimiter(hookRate, 4*hookRate), seen: map[string]bool{}}
}

func (h *hooks) serve(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("forge")
	f, ok := forges[name]
	if !ok {
		text(w, http.StatusNotFound, "webhooks are at /webhook/github, /webhook/gitlab, /webhook/gitea and /webhook/forgejo\n")
		return
	}
	if !h.limit.Allow() {
		w.Header().Set("Retry-After", "5")
		text(w, http.StatusTooManyRequests, "too many deliveries\n")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxHook))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			text(w, http.StatusRequestEntityTooLarge, "the delivery is too large\n")
		} else {
			text(w, http.StatusBadRequest, "the delivery breaks off\n")
		}
		return
	}
	if !h.genuine(f, r.Header.Get(f.signature), body) {
		h.cfg.Log.Warn("a webhook with a bad signature was refused", "forge", name, "from", r.RemoteAddr)
		text(w, http.StatusUnauthorized, "the signature or token does not fit webhook-auth\n")
		return
	}
	switch event := r.Header.Get(f.event); {
	case f.ping != "" && event == f.ping:
		text(w, http.StatusOK, "pong\n")
	case event != f.push:
		text(w, http.StatusOK, "ignored: not a push\n")
	default:
		h.push(w, f, name, r.Header, body)
	}
}

// push takes a push event. What is no such event is refused and not remembered:
// the forge may send it again.
func (h *hooks) push(w http.ResponseWriter, f forge, name string, header http.Header, body []byte) {
	ref, err := pushedRef(header.Get("Content-Type"), body)
	switch {
	case err != nil:
		text(w, http.StatusBadRequest, "the body is not a push event\n")
	case h.known(f, header, body):
		text(w, http.StatusOK, "ignored: this delivery was seen before\n")
	case h.cfg.Branch != "" && ref != "refs/heads/"+h.cfg.Branch && ref != "refs/tags/"+h.cfg.Branch:
		text(w, http.StatusOK, "ignored: not the branch that is followed\n")
	default:
		h.cfg.Log.Info("webhook", slog.String("forge", name), slog.String("ref", ref))
		h.cfg.Reconcile("push webhook from " + name)
		text(w, http.StatusAccepted, "reconciling now\n")
	}
}

// genuine checks the signature in a time that does not depend on how much of
// it is right.
func (h *hooks) genuine(f forge, given string, body []byte) bool {
	if f.token {
		return equal(given, h.secret())
	}
	hexed, ok := strings.CutPrefix(given, f.prefix)
	sum, err := hex.DecodeString(hexed)
	if !ok || err != nil {
		return false
	}
	mac := hmac.New(sha256.New, []byte(h.secret().Reveal()))
	_, _ = mac.Write(body)
	return hmac.Equal(sum, mac.Sum(nil))
}

// known reports whether a delivery came before, and remembers it. The delivery
// id is not signed, so that a body counts as known whatever id it comes with;
// where the body is not signed either, the id alone counts.
func (h *hooks) known(f forge, header http.Header, body []byte) bool {
	key := ""
	if f.token {
		for _, name := range f.delivery {
			if key == "" {
				key = header.Get(name)
			}
		}
	}
	if key == "" {
		sum := sha256.Sum256(body)
		key = string(sum[:])
	}
	key = f.event + "\x00" + key[:min(len(key), 200)]
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen[key] {
		return true
	}
	h.seen[key] = true
	if len(h.ring) < hookMemory {
		h.ring = append(h.ring, key)
		return false
	}
	delete(h.seen, h.ring[h.next])
	h.ring[h.next] = key
	h.next = (h.next + 1) % hookMemory
	return false
}

// pushedRef is the ref of a push event, sent as JSON or, by GitHub's and
// Gitea's choice, as a form with the JSON in a field.
func pushedRef(contentType string, body []byte) (string, error) {
	if kind, _, _ := mime.ParseMediaType(contentType); kind == "application/x-www-form-urlencoded" {
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return "", err
		}
		body = []byte(form.Get("payload"))
	}
	var event struct {
		Ref string `json:"ref"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return "", err
	}
	if event.Ref == "" {
		return "", errors.New("no ref")
	}
	return event.Ref, nil
}
