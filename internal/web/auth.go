package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"

	"github.com/proxops/proxops/internal/secret"
)

// handler routes. Health answers anybody: it says nothing but a word. Webhooks
// prove themselves. Everything else asks who is there.
func (s *Server) handler() http.Handler {
	open := http.NewServeMux()
	open.HandleFunc("GET /healthz", s.healthz)
	open.HandleFunc("GET /readyz", s.readyz)
	if !s.cfg.Webhook.Empty() {
		hooks := newHooks(s.cfg)
		hooks.secret = func() secret.Text { return s.secrets.Load().webhook }
		open.HandleFunc("POST /webhook/{forge}", hooks.serve)
	}
	inner := http.NewServeMux()
	inner.HandleFunc("GET /status", s.status)
	inner.Handle("GET /metrics", s.metrics.handler())
	if s.cfg.Pages != nil {
		inner.Handle("/", s.cfg.Pages)
	} else {
		inner.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
			text(w, http.StatusOK, "proxops: see /status, /metrics, /healthz and /readyz\n")
		})
	}
	open.Handle("/", s.guarded(inner))
	return headers(open)
}

// headers are sent with every answer.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if h.Get("Content-Security-Policy") == "" {
			h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		}
		next.ServeHTTP(w, r)
	})
}

// guarded lets in who may read.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			text(w, http.StatusMethodNotAllowed, "this server is read-only\n")
			return
		}
		switch code, why := s.allowed(r); code {
		case http.StatusOK:
			next.ServeHTTP(w, r)
		case http.StatusUnauthorized:
			w.Header().Add("WWW-Authenticate", `Bearer realm="proxops"`)
			w.Header().Add("WWW-Authenticate", `Basic realm="proxops", charset="UTF-8"`)
			text(w, code, why)
		default:
			text(w, code, why)
		}
	})
}

func (s *Server) allowed(r *http.Request) (code int, why string) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return http.StatusOK, ""
	}
	if token := s.secrets.Load().token; !token.Empty() {
		if given, ok := credentials(r); ok && equal(given, token) {
			return http.StatusOK, ""
		}
		return http.StatusUnauthorized, "a bearer token is needed (a browser sends it as the password, with any user)\n"
	}
	if s.cfg.ClientCAFile != "" {
		return http.StatusForbidden, "a client certificate is needed\n"
	}
	// On loopback without a token the only thing between a web page and this
	// server is the name in the request: a page of evil.example that resolves
	// to 127.0.0.1 must not read the answer.
	if !localName(r.Host) {
		return http.StatusMisdirectedRequest, "this server answers to localhost alone; behind a proxy, set listen-auth\n"
	}
	return http.StatusOK, ""
}

// credentials are the bearer token, or the password of a browser's prompt.
func credentials(r *http.Request) (string, bool) {
	if t, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return strings.TrimSpace(t), true
	}
	_, password, ok := r.BasicAuth()
	return password, ok
}

// equal compares in a time that depends on neither text.
func equal(given string, want secret.Text) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want.Reveal()))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

func localName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func text(w http.ResponseWriter, code int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(s))
}
