package pve

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// estate is three endpoints with their cluster's status.
type estate struct {
	mu      sync.Mutex
	slow    time.Duration
	down    map[string]bool
	status  map[string]any // host: data of /cluster/status
	hosts   []string       // who answered what else
	refused bool           // /cluster/status needs Sys.Audit
}

func member(cluster string, nodes ...string) []map[string]any {
	out := []map[string]any{{"type": "cluster", "name": cluster, "quorate": 1}}
	for _, n := range nodes {
		out = append(out, map[string]any{"type": "node", "name": n, "node": n, "online": 1, "ip": "192.0.2.1"})
	}
	return out
}

func newEstate() *estate {
	return &estate{down: map[string]bool{}, status: map[string]any{
		"a:8006": member("prod", "pve01", "pve02"), "b:8006": member("prod", "pve02", "pve01"), "c:8006": member("other", "pve01", "pve02")}}
}

func (s *estate) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(s.slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := r.URL.Host
	if s.down[h] {
		return nil, dialError()
	}
	switch r.URL.Path {
	case "/api2/json/cluster/status":
		if s.refused {
			return reply(403, "Permission check failed (/, Sys.Audit)", ""), nil
		}
		return data(s.status[h]), nil
	case "/api2/json/nodes":
		return data(s.status[h].([]map[string]any)[1:]), nil
	}
	s.hosts = append(s.hosts, r.Method+" "+h)
	return data(nil), nil
}

func (s *estate) client(t *testing.T, hosts ...string) *Client {
	t.Helper()
	return inProcess(t, tokenAuth(), s.RoundTrip, func(c *Config) {
		c.Endpoints = nil
		for _, h := range hosts {
			c.Endpoints = append(c.Endpoints, "https://"+h)
		}
	})
}

func (s *estate) take() string {
	out := strings.Join(s.hosts, ", ")
	s.hosts = nil
	return out
}

func TestFailover(t *testing.T) {
	for _, refused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newEstate()
			s.refused = refused
			c := s.client(t, "a", "b")
			n := mustNode(t, c)
			use := func(want string) {
				t.Helper()
				if _, err := n.UpdateConfig(t.Context(), QEMU, 100, nil, ""); err != nil {
					t.Fatal(err)
				}
				if got := s.take(); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			use("PUT a:8006")
			s.down["a:8006"] = true
			use("PUT b:8006")
			s.down["a:8006"] = false
			use("PUT b:8006") // sticks
			s.down["a:8006"] = true
			time.Sleep(61 * time.Second)
			use("PUT b:8006") // tried a again, in vain
			s.down["a:8006"] = false
			time.Sleep(30 * time.Second)
			use("PUT b:8006")
			time.Sleep(31 * time.Second)
			use("PUT a:8006") // returned
			s.down["a:8006"], s.down["b:8006"] = true, true
			_, err := n.UpdateConfig(t.Context(), QEMU, 100, nil, "")
			if e := wantKind(t, err, KindUnreachable); !strings.Contains(e.Error(), "a:8006") || !strings.Contains(e.Error(), "b:8006") {
				t.Error(e)
			}
		})
	}
}

// Only network errors fail over; an answer is an answer.
func TestNoFailoverOnAnswers(t *testing.T) {
	for _, status := range []int{400, 401, 403, 500, 595, 596} {
		synctest.Test(t, func(t *testing.T) {
			s := newEstate()
			hosts := map[string]int{}
			c := s.client(t, "a", "b")
			c.core.wire.read = wireTrip(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/version") {
					hosts[r.URL.Host]++
					return reply(status, "x", ""), nil
				}
				return s.RoundTrip(r)
			})
			if _, err := c.Version(t.Context()); err == nil || hosts["b:8006"] != 0 {
				t.Errorf("%d: %v %v", status, err, hosts)
			}
		})
	}
}

func TestEndpointsMustBeOneCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEstate()
		c := s.client(t, "a", "c")
		n := mustNode(t, c)
		if _, err := n.UpdateConfig(t.Context(), QEMU, 100, nil, ""); err != nil {
			t.Fatal(err)
		}
		s.take()
		s.down["a:8006"] = true
		_, err := n.Start(t.Context(), QEMU, 100)
		if err == nil || !strings.Contains(err.Error(), `endpoint c:8006 is another cluster`) || s.take() != "" {
			t.Errorf("%v, %s", err, s.hosts)
		}
		// A cluster that grew while we looked is still the same.
		s.down["a:8006"] = false
		time.Sleep(2 * time.Minute)
		c = s.client(t, "a", "b")
		if _, err := c.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.status["a:8006"], s.status["b:8006"] = member("prod", "pve01", "pve02", "pve03"), member("prod", "pve01", "pve02", "pve03")
		if _, err := c.ClusterStatus(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.down["a:8006"] = true
		s.take()
		if _, err := c.Version(t.Context()); err != nil || s.take() != "GET b:8006" {
			t.Error(err, s.hosts)
		}
	})
}

// Two lone nodes are often both called "pve".
func TestLoneNodesAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEstate()
		lone := func(ip string) any {
			return []map[string]any{{"type": "node", "name": "pve", "node": "pve", "online": 1, "ip": ip}}
		}
		s.status["a:8006"], s.status["b:8006"] = lone("192.0.2.1"), lone("192.0.2.2")
		c := s.client(t, "a", "b")
		if _, err := c.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.down["a:8006"] = true
		if _, err := c.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "another cluster") {
			t.Error(err)
		}
	})
}

// Many callers at once ask once whose an endpoint is.
func TestVerifyingIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEstate()
		s.slow = 100 * time.Millisecond
		c := s.client(t, "a", "b")
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				if _, err := c.Version(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := c.Stats().Reads; n != 7 {
			t.Errorf("%d reads for six callers", n)
		}
	})
}
