package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxops/proxops/internal/secret"
)

// Limits of the HTTP server.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = 30 * time.Second // streams set their own
	idleTimeout   = time.Minute
	maxHeader     = 32 << 10
	shutdownGrace = 3 * time.Second
)

// Config is what the server needs to know.
type Config struct {
	Listen       string      // host:port
	Token        secret.Text // bearer token; empty = none
	CertFile     string
	KeyFile      string
	ClientCAFile string // authority whose client certificates are let in
	// Webhook is what push webhooks are checked with; empty = there are none.
	Webhook secret.Text
	// Branch is the one that pushes must be to; "" = any.
	Branch string
	// Reconcile is called for a good push.
	Reconcile func(why string)
	// TaskTimeout is how long a task may be silent before its loop is stuck.
	TaskTimeout time.Duration
	// Pages serves / and everything that nothing else does; nil = a short text.
	Pages http.Handler
	Log   *slog.Logger
}

// Server is the daemon's HTTP server.
type Server struct {
	cfg      Config
	store    *Store
	metrics  *Metrics
	listener net.Listener
	http     *http.Server
	tls      bool
	loopback bool

	secrets atomic.Pointer[secrets] // in force
}

// secrets are what requests are checked with.
type secrets struct{ token, webhook secret.Text }

// SetSecrets changes the token and what webhooks are checked with. Neither is
// taken away by that: an empty one leaves the old in force.
func (s *Server) SetSecrets(token, webhook secret.Text) {
	now := *s.secrets.Load()
	if !now.token.Empty() && !token.Empty() {
		now.token = token
	}
	if !now.webhook.Empty() && !webhook.Empty() {
		now.webhook = webhook
	}
	s.secrets.Store(&now)
}

// Listen checks the configuration and opens the listener; Serve serves it.
// Beyond loopback it refuses to start without a token or client certificates.
func Listen(cfg Config, store *Store, metrics *Metrics) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, store: store, metrics: metrics}
	s.secrets.Store(&secrets{cfg.Token, cfg.Webhook})
	var err error
	if s.loopback, err = isLoopback(cfg.Listen); err != nil {
		return nil, err
	}
	if !s.loopback && cfg.Token.Empty() && cfg.ClientCAFile == "" {
		return nil, fmt.Errorf("listen: %s is reachable from other machines and nothing protects it: set listen-auth (or PROXOPS_LISTEN_AUTH) or listen-tls.client-ca-file, or listen on 127.0.0.1", cfg.Listen)
	}
	tc, err := cfg.tlsConfig()
	if err != nil {
		return nil, err
	}
	if s.listener, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, fmt.Errorf("listen: %s: %w", cfg.Listen, bareNet(err))
	}
	if tc != nil {
		s.tls = true
		s.listener = tls.NewListener(s.listener, tc)
	} else if !s.loopback {
		cfg.Log.Warn("the bearer token travels in clear text: set listen-tls.cert-file and key-file, or put a TLS proxy in front", "listen", cfg.Listen)
	}
	s.http = &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// URL is where the server listens.
func (s *Server) URL() string {
	scheme := "http"
	if s.tls {
		scheme = "https"
	}
	return scheme + "://" + s.listener.Addr().String()
}

// Serve serves until ctx ends; answers under way get a moment to finish.
func (s *Server) Serve(ctx context.Context) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s.http.BaseContext = func(net.Listener) context.Context { return base }
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() {
		wg.Add(1)
		defer wg.Done()
		cancel() // ends the event streams
		grace, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer done()
		if s.http.Shutdown(grace) != nil {
			_ = s.http.Close()
		}
	})
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("listen: %w", err)
	}
	return nil
}

func bareNet(err error) error {
	var oe *net.OpError
	if errors.As(err, &oe) {
		return oe.Err
	}
	return err
}

// isLoopback reports whether an address is one that only this machine reaches.
// A name is resolved by the listener later, so only localhost counts.
func isLoopback(listen string) (bool, error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false, fmt.Errorf("listen: %q is not host:port", listen)
	}
	if host == "localhost" {
		return true, nil
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback(), nil
}

// tlsConfig is nil without a certificate. Certificate, key and authority are
// read again whenever the files change.
func (cfg Config) tlsConfig() (*tls.Config, error) {
	switch {
	case cfg.CertFile == "" && cfg.KeyFile == "" && cfg.ClientCAFile == "":
		return nil, nil
	case cfg.CertFile == "" || cfg.KeyFile == "":
		return nil, errors.New("listen-tls: needs cert-file and key-file together, and both where there is a client-ca-file")
	}
	pair := &reloaded[tls.Certificate]{files: []string{cfg.CertFile, cfg.KeyFile}, read: func() (tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return c, fmt.Errorf("listen-tls: %s and %s: %w", cfg.CertFile, cfg.KeyFile, err)
		}
		return c, nil
	}}
	if _, err := pair.get(); err != nil {
		return nil, err
	}
	tc := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		c, err := pair.get()
		return &c, err
	}}
	if cfg.ClientCAFile == "" {
		return tc, nil
	}
	pool := &reloaded[*x509.CertPool]{files: []string{cfg.ClientCAFile}, read: func() (*x509.CertPool, error) {
		pem, err := os.ReadFile(cfg.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("listen-tls.client-ca-file: %w", err)
		}
		p := x509.NewCertPool()
		if !p.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("listen-tls.client-ca-file: %s: holds no certificate in PEM", cfg.ClientCAFile)
		}
		return p, nil
	}}
	if _, err := pool.get(); err != nil {
		return nil, err
	}
	// Asked for, not required: probes, webhooks and holders of the token come
	// without one. allowed decides.
	tc.ClientAuth = tls.VerifyClientCertIfGiven
	tc.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		p, err := pool.get()
		if err != nil {
			return nil, err
		}
		c := tc.Clone()
		c.GetConfigForClient, c.ClientCAs = nil, p
		return c, nil
	}
	return tc, nil
}

// reloaded is what files hold, read again when they changed. While the new
// files are bad the old content serves: a renewal writes several files.
type reloaded[T any] struct {
	files []string
	read  func() (T, error)

	mu    sync.Mutex
	have  bool
	value T
	stamp string
}

func (r *reloaded[T]) get() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stamp := ""
	for _, f := range r.files {
		if st, err := os.Stat(f); err == nil {
			stamp += fmt.Sprint(st.Size(), st.ModTime().UnixNano(), ";")
		}
	}
	if r.have && stamp == r.stamp {
		return r.value, nil
	}
	v, err := r.read()
	if err != nil {
		if r.have {
			return r.value, nil
		}
		return v, err
	}
	r.value, r.have, r.stamp = v, true, stamp
	return v, nil
}
