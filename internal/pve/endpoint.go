package pve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// endpoint is one base URL of the cluster.
type endpoint struct {
	base     string // scheme, host, path prefix; no trailing slash
	host     string
	verified bool      // belongs to the cluster; this and the next are guarded by endpoints.mu
	refused  *Error    // belongs to another one
	until    time.Time // when to look again
}

// endpoints chooses among them: the one that worked last, the first one again
// after a cool-down.
type endpoints struct {
	list     []*endpoint
	coolDown time.Duration

	mu     sync.Mutex
	active int
	since  time.Time // when the first one was last found unreachable
	known  *identity

	asking *semaphore.Weighted // one caller at a time finds out whose an endpoint is
}

// parseEndpoints accepts https URLs, and http ones of loopback addresses.
func parseEndpoints(urls []string) ([]*endpoint, error) {
	if len(urls) == 0 {
		return nil, errors.New("base-url: an address such as https://pve.example.net:8006 is required")
	}
	var out []*endpoint
	var errs []error
	for _, s := range urls {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Host == "" || u.Hostname() == "":
			errs = append(errs, errors.New("base-url: not a URL: write it as https://host:8006"))
			continue
		case u.User != nil:
			errs = append(errs, fmt.Errorf("base-url: %s: credentials do not belong into the URL: use the environment or the secrets file", u.Host))
			continue
		case u.RawQuery != "" || u.Fragment != "":
			errs = append(errs, fmt.Errorf("base-url: %s: a query or fragment makes no sense here: write https://host:8006", u.Host))
			continue
		case u.Scheme == "http" && !loopback(u.Hostname()):
			errs = append(errs, fmt.Errorf("base-url: %s: plain http would send the credentials in clear: use https", u.Host))
			continue
		case u.Scheme != "https" && u.Scheme != "http":
			errs = append(errs, fmt.Errorf("base-url: %s: scheme %q: use https", u.Host, u.Scheme))
			continue
		}
		host := u.Host
		if u.Port() == "" && u.Scheme == "https" {
			host = net.JoinHostPort(u.Hostname(), "8006")
		}
		path := strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), "/api2/json")
		out = append(out, &endpoint{base: u.Scheme + "://" + host + path, host: host})
	}
	return out, errors.Join(errs...)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (e *endpoints) order() []*endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	start := e.active
	if start != 0 && time.Since(e.since) >= e.coolDown {
		start, e.since = 0, time.Now() // one request tries; the others stay where it works
	}
	out := []*endpoint{e.list[start]}
	if start != e.active {
		out = append(out, e.list[e.active])
	}
	for i := range e.list {
		if x := e.list[(start+i)%len(e.list)]; !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return out
}

func (e *endpoints) use(ep *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.list, ep); i != e.active {
		if e.active == 0 {
			e.since = time.Now()
		}
		e.active = i
	}
}

func (e *endpoints) avoid(ep *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.list[e.active] == ep && len(e.list) > 1 {
		if e.active == 0 {
			e.since = time.Now()
		}
		e.active = (e.active + 1) % len(e.list)
	}
}

// identity is what makes two endpoints the same cluster: its name and nodes.
// A lone node has no cluster name and often the default name "pve", so its
// address counts as well. A caller without Sys.Audit on / sees the nodes only.
type identity struct {
	name  string
	nodes []string
	full  bool
}

func (a identity) same(b identity) bool {
	return slices.Equal(a.nodes, b.nodes) && (a.name == b.name || !a.full || !b.full)
}

func (a identity) String() string {
	s := "nodes " + strings.Join(a.nodes, ", ")
	if a.name != "" {
		s = fmt.Sprintf("cluster %q with %s", a.name, s)
	}
	return s
}

// verify makes sure, where there are several endpoints, that this one belongs
// to the same cluster as the others. A login goes unverified: there is nothing
// yet to ask with.
func (c *core) verify(ctx context.Context, ep *endpoint, cr cred, login bool) *Error {
	if len(c.eps.list) == 1 || login {
		return nil
	}
	if done, e := c.eps.verdict(ep); done {
		return e
	}
	if err := c.eps.asking.Acquire(ctx, 1); err != nil {
		return c.canceled(request{method: http.MethodGet, path: "/cluster/status"}, err)
	}
	defer c.eps.asking.Release(1)
	if done, e := c.eps.verdict(ep); done {
		return e
	}
	id, e := c.identify(ctx, ep, cr)
	if e != nil {
		return e
	}
	c.eps.mu.Lock()
	defer c.eps.mu.Unlock()
	if c.eps.known != nil && !id.same(*c.eps.known) {
		ep.refused = &Error{Kind: KindWrongCluster, Cluster: c.name,
			Message: fmt.Sprintf("endpoint %s is another cluster: it shows %s, the others %s", ep.host, id, *c.eps.known),
			Hint:    "remove it from endpoints: in the cluster's config.yaml"}
		ep.until = time.Now().Add(c.eps.coolDown)
		own := *ep.refused
		return &own
	}
	c.eps.known, ep.verified, ep.refused = &id, true, nil
	return nil
}

// verdict tells what is known about an endpoint already.
func (e *endpoints) verdict(ep *endpoint) (done bool, refused *Error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ep.verified || ep.refused == nil || !time.Now().Before(ep.until) {
		return ep.verified, nil
	}
	own := *ep.refused // callers share the verdict, not the error
	return true, &own
}

func (c *core) identify(ctx context.Context, ep *endpoint, cr cred) (identity, *Error) {
	r := request{method: http.MethodGet, path: "/cluster/status"}
	env, e := c.once(ctx, ep, r, cr)
	full := e == nil
	if e != nil && e.Status == http.StatusForbidden {
		r.path = "/nodes" // needs no privilege
		env, e = c.once(ctx, ep, r, cr)
	}
	if e != nil {
		return identity{}, e
	}
	var in []row
	if err := c.decode(r, env, &in); err != nil {
		e, _ = As(err)
		return identity{}, e
	}
	if !full {
		id := identity{}
		for _, x := range in {
			id.nodes = append(id.nodes, x.str("node"))
		}
		slices.Sort(id.nodes)
		return id, nil
	}
	s := clusterStatus(in)
	return s.identity(), nil
}

func (s ClusterStatus) identity() identity {
	id := identity{name: s.Name, full: true}
	for _, n := range s.Nodes {
		id.nodes = append(id.nodes, n.Name)
	}
	if s.Name == "" && len(s.Nodes) == 1 {
		id.name = "lone node at " + s.Nodes[0].IP
	}
	return id
}

// refresh notes the node set of now, so that a cluster that grows while we run
// can still be told from another one.
func (e *endpoints) refresh(s ClusterStatus) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known != nil {
		id := s.identity()
		e.known = &id
	}
}
