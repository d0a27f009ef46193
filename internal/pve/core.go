package pve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// Limits of one exchange.
const (
	maxAnswer   = 64 << 20  // bytes of an answer's body, decompressed
	maxBody     = 512 << 10 // PVE cuts larger request bodies off (facts B)
	readTries   = 4
	busyTries   = 4
	cancelGrace = 5 * time.Second // how long a sent write may still answer after ctx ended
)

// core is what a Client and its Reader share.
type core struct {
	name           string
	nodes          []string
	wire           *link
	auth           *auth
	eps            *endpoints
	slots          *semaphore.Weighted
	retries        *rate.Limiter // one budget for all repeats, so that an outage is not amplified
	requestTimeout time.Duration
	taskTimeout    time.Duration
	onTask         func(TaskEvent)
	log            *slog.Logger
	stats          counters
	clockSkew      atomic.Int64 // server minus us, from Date headers
	followed       taskSet
	sent           sent
}

// New checks the configuration and makes a client. Nothing is sent yet.
func New(cfg Config) (*Client, error) {
	var errs []error
	list, err := parseEndpoints(cfg.Endpoints)
	errs = append(errs, err)
	errs = append(errs, cfg.Auth.check())
	w, err := newLink(cfg)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Name, err)
	}
	c := &core{name: cfg.Name, nodes: slices.Clone(cfg.Nodes), wire: w,
		eps:            &endpoints{list: list, coolDown: orElse(cfg.CoolDown, time.Minute), asking: semaphore.NewWeighted(1)},
		slots:          semaphore.NewWeighted(int64(orElse(cfg.MaxInFlight, 8))),
		retries:        rate.NewLimiter(2, 30),
		requestTimeout: orElse(cfg.RequestTimeout, 60*time.Second),
		taskTimeout:    orElse(cfg.TaskTimeout, 30*time.Minute),
		onTask:         cfg.OnTask, log: cfg.Log}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.auth = &auth{core: c, creds: cfg.Auth}
	return &Client{&Reader{core: c}}, nil
}

func orElse[T int | time.Duration](v, def T) T {
	if v > 0 {
		return v
	}
	return def
}

// allowed refuses nodes that are not on the allow-list. "localhost", which PVE
// takes for the answering node, is refused like any other name.
func (c *core) allowed(node string) error {
	if slices.Contains(c.nodes, node) {
		return nil
	}
	return &Error{Kind: KindNotAllowed, Cluster: c.name, Node: node,
		Message: fmt.Sprintf("node %q is not on the cluster's allow-list (%s)", node, strings.Join(c.nodes, ", ")),
		Hint:    "add it to nodes: in the cluster's config.yaml if ProxOps may work there"}
}

// skew is how far the server's clock is ahead of ours.
func (c *core) skew() time.Duration { return time.Duration(c.clockSkew.Load()) }

// request is one API request. form is nil for GET and DELETE.
type request struct {
	method, path string
	query, form  url.Values
	login        bool
}

func (r request) isRead() bool { return r.method == http.MethodGet }

// node is the node that the path names. The generic Get takes paths from
// callers, so doubled slashes and escapes must not hide one.
func (r request) node() string {
	var segs []string
	for _, s := range strings.Split(r.path, "/") {
		if u, err := url.PathUnescape(s); err == nil {
			s = u
		}
		segs = append(segs, strings.FieldsFunc(s, func(c rune) bool { return c == '/' })...)
	}
	if len(segs) > 1 && segs[0] == "nodes" {
		return segs[1]
	}
	return ""
}

// envelope is the frame of every PVE answer.
type envelope struct {
	Data    json.RawMessage   `json:"data"`
	Total   int               `json:"total"`
	Message string            `json:"message"`
	Errors  map[string]string `json:"errors"`
}

// do sends a request and decodes the answer's data into out (nil = ignored).
func (c *core) do(ctx context.Context, r request, out any) (envelope, error) {
	if n := r.node(); n != "" {
		if err := c.allowed(n); err != nil {
			return envelope{}, err
		}
	}
	if len(r.form) > 0 && len(r.form.Encode()) > maxBody {
		return envelope{}, c.fail(r, KindInvalid, "the request is larger than the 512 KiB that PVE accepts", "shorten the largest values")
	}
	if !r.isRead() {
		env, e := c.authed(ctx, r)
		if e != nil {
			return env, e
		}
		return env, c.decode(r, env, out)
	}
	try := 0
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 200*time.Millisecond, 5*time.Second
	env, err := backoff.Retry(ctx, func() (envelope, error) {
		if try++; try > 1 {
			c.stats.retries.Add(1)
		}
		env, e := c.authed(ctx, r)
		switch {
		case e == nil:
			return env, nil
		case !Is(e, KindUnreachable, KindUnavailable), (e.slow || e.Status == statusNoRoute) && try >= 2, !c.retries.Allow():
			return env, backoff.Permanent(e)
		}
		c.log.Debug("repeating a read", "cluster", c.name, "path", r.path, "try", try, "error", e)
		return env, e
	}, backoff.WithBackOff(b), backoff.WithMaxTries(readTries))
	if err != nil {
		if e, ok := As(err); ok {
			return env, e
		}
		return env, c.canceled(r, err)
	}
	return env, c.decode(r, env, out)
}

func (c *core) decode(r request, env envelope, out any) error {
	if out == nil || len(env.Data) == 0 {
		return nil
	}
	if err := json.Unmarshal(env.Data, out); err != nil {
		e := c.fail(r, KindNotJSON, fmt.Sprintf("the answer has another shape than PVE's: %v", err), "")
		if !r.isRead() {
			e.Kind = KindUnknownOutcome
		}
		return e
	}
	return nil
}

// authed sends the request with credentials, and once more after a new login
// when a ticket was refused: PVE looks at the credentials before anything else
// (facts M), so that is safe for writes too.
func (c *core) authed(ctx context.Context, r request) (envelope, *Error) {
	for fresh := false; ; fresh = true {
		cr, e := c.auth.credential(ctx)
		if e != nil {
			return envelope{}, e
		}
		env, e := c.exchange(ctx, r, cr)
		if e != nil {
			c.scrubber(nil).err(e) // a write's params are known to it since before they were sent
		}
		if e == nil || e.Status != http.StatusUnauthorized || fresh || !c.auth.renewable(cr) {
			return env, e
		}
	}
}

// exchange tries the endpoints in their order until one can be reached.
func (c *core) exchange(ctx context.Context, r request, cr cred) (envelope, *Error) {
	if err := c.slots.Acquire(ctx, 1); err != nil {
		return envelope{}, c.canceled(r, err)
	}
	defer c.slots.Release(1)
	var first *Error
	for _, ep := range c.eps.order() {
		if e := c.verify(ctx, ep, cr, r.login); e != nil {
			first = worse(first, e)
			if Is(e, KindUnreachable, KindUnavailable, KindWrongCluster) {
				continue
			}
			return envelope{}, first
		}
		env, e := c.once(ctx, ep, r, cr)
		if e == nil || e.Status != 0 {
			c.eps.use(ep)
			return env, e
		}
		first = worse(first, e)
		switch {
		case Is(e, KindUnreachable), Is(e, KindUnavailable) && (r.isRead() || r.login):
			continue // network trouble, and nothing was applied
		case Is(e, KindUnknownOutcome):
			c.eps.avoid(ep) // the next request should look elsewhere
		}
		return env, e
	}
	return envelope{}, first
}

// worse keeps the first endpoint's error, and tells of the others in it.
func worse(first, e *Error) *Error {
	if first == nil {
		return e
	}
	out := *first
	out.Message += "; " + e.Message
	if e.Kind == KindWrongCluster {
		out.Hint = e.Hint
	}
	return &out
}

func (c *core) fail(r request, k Kind, msg, hint string) *Error {
	return &Error{Kind: k, Cluster: c.name, Method: r.method, Path: r.path, Node: r.node(), Message: msg, Hint: hint}
}

func (c *core) canceled(r request, err error) *Error {
	e := c.fail(r, KindCanceled, "stopped before PVE answered", "")
	e.unsent = true
	if errors.Is(err, context.DeadlineExceeded) {
		e.Message = "the time allowed for this was over before PVE answered"
	}
	e.cause = err
	return e
}
