package etcd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/proxops/proxops/internal/pvesim"
)

// lease is what the agents are told; takeover the bound on how long a cluster
// may be without an owner after its agent died: the lease, etcd's own check of
// leases every half second, an election, and the start of a cycle on a busy
// machine.
const (
	lease    = 2 * time.Second
	takeover = lease + 3*time.Second
	clusters = 6
)

var binary string

// TestMain builds the agent, or takes the one that PROXOPS_BINARY names.
func TestMain(m *testing.M) {
	if binary = os.Getenv("PROXOPS_BINARY"); binary != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "proxops-etcd")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "proxops")
	cmd := exec.Command("go", "build", "-o", binary, "./cmd/proxops")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the agent: %v\n%s", err, out)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// startEtcd runs a server in this process and gives its client URL.
func startEtcd(t *testing.T) string {
	t.Helper()
	return serveEtcd(t, "http", func(*embed.Config) {})
}

// serveEtcd runs a server in this process that clients reach over scheme.
func serveEtcd(t *testing.T, scheme string, change func(*embed.Config)) (endpoint string) {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel, cfg.LogOutputs, cfg.UnsafeNoFsync = t.TempDir(), "panic", []string{"/dev/null"}, true
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{{Scheme: scheme, Host: "127.0.0.1:0"}}, []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = cfg.ListenClientUrls, cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	change(cfg)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(20 * time.Second):
		t.Fatal("etcd does not get ready")
	}
	return scheme + "://" + e.Clients[0].Addr().String()
}

// lab is the simulated clusters, with a repository that makes every agent
// write to each of them in every cycle.
type lab struct {
	t      *testing.T
	dir    string
	worlds []*pvesim.World
	agents []*agent
	done   chan struct{}
	wg     sync.WaitGroup
}

// tokens are one for each agent, so that the simulators' logs tell them apart.
func token(agent int) (id, secret string) {
	return fmt.Sprintf("agent%d", agent), fmt.Sprintf("0000000%d-0000-4000-8000-000000000000", agent)
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, dir: t.TempDir(), done: make(chan struct{})}
	l.write("proxops.yaml", "reconcile: {poll-interval: 1s}\n")
	for i := range clusters {
		state, err := pvesim.Recorded("base")
		if err != nil {
			t.Fatal(err)
		}
		root := state.Access.Users["root@pam"]
		for a := range 3 {
			id, secret := token(a)
			root.Tokens[id] = &pvesim.Token{ID: id, Secret: secret}
		}
		w := pvesim.New(pvesim.Options{Seed: uint64(i), TimeScale: 0.2, KeepRequests: 200000}, state)
		t.Cleanup(w.Stop)
		srv, err := w.Serve("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = srv.Close() })
		l.worlds = append(l.worlds, w)
		l.cluster(i, srv)
	}
	l.wg.Go(l.meddle)
	t.Cleanup(func() { close(l.done); l.wg.Wait() })
	return l
}

func (l *lab) write(name, text string) {
	l.t.Helper()
	full := filepath.Join(l.dir, "repo", name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) cluster(i int, srv *pvesim.Server) {
	name := fmt.Sprintf("c%d", i)
	l.write("clusters/"+name+"/config.yaml", fmt.Sprintf("pve:\n  clusters:\n    %s:\n      base-url: %s\n      fingerprint: %q\n      nodes: [pve01]\n", name, srv.URL, srv.Fingerprint))
	l.write("clusters/"+name+"/resources.yaml", "resources: [vm/"+name+"/vms.yaml]\n")
	var docs []string
	for v := range 4 {
		docs = append(docs, fmt.Sprintf("apiVersion: proxops/v1alpha1\nkind: VM\nmetadata: {name: vm-%d}\nspec:\n  node: pve01\n  vmid: %d\n  state: stopped\n  cpu: {type: host, cores: 1}\n  memory: 512MiB\n  pve-description: as declared\n  disks: []\n  networks: []\n", v, 100+v))
	}
	l.write("vm/"+name+"/vms.yaml", strings.Join(docs, "---\n"))
}

// meddle edits guests by hand all the time, so that every cycle has something
// to write.
func (l *lab) meddle() {
	t := time.NewTicker(300 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-t.C:
		}
		for _, w := range l.worlds {
			w.View(func(s *pvesim.State) {
				for _, g := range s.Guests {
					g.Config["description"] = "by hand"
				}
			})
		}
	}
}

// agent is one agent in a process of its own.
type agent struct {
	n    int
	cmd  *exec.Cmd
	log  *bytes.Buffer
	port string
	cut  *proxy
}

// start starts an agent that reaches etcd through a proxy of its own.
func (l *lab) start(n int, etcd string) *agent {
	l.t.Helper()
	a := &agent{n: n, log: &bytes.Buffer{}, port: freePort(l.t), cut: newProxy(l.t, strings.TrimPrefix(etcd, "http://"))}
	id, secret := token(n)
	config := filepath.Join(l.dir, fmt.Sprintf("agent%d.yaml", n))
	text := fmt.Sprintf("reconcile: {poll-interval: 1s}\nlisten: 127.0.0.1:%s\ndata-dir: %s\ncoordination:\n  etcd:\n    endpoints: [\"http://%s\"]\n    lease: %s\n",
		a.port, filepath.Join(l.dir, fmt.Sprintf("data%d", n)), a.cut.addr(), lease)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	a.cmd = exec.Command(binary, "run", "--config", config, "--git-path", filepath.Join(l.dir, "repo"))
	a.cmd.Env = []string{"PROXOPS_PVE_TOKEN_VALUE=root@pam!" + id + "=" + secret, "HOME=" + l.dir, "NO_COLOR=1"}
	a.cmd.Stdout, a.cmd.Stderr = a.log, a.log
	if err := a.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.agents = append(l.agents, a)
	l.t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
		if l.t.Failed() {
			l.t.Logf("agent %d:\n%s", n, tail(a.log.String(), 40))
		}
	})
	return a
}

func tail(s string, n int) string {
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

// status is what the test wants to know of /status.
type status struct {
	Agents []struct {
		Name     string   `json:"name"`
		Clusters []string `json:"clusters"`
		Self     bool     `json:"self"`
	} `json:"agents"`
}

func (a *agent) status() (s status, err error) {
	c := http.Client{Timeout: 2 * time.Second}
	r, err := c.Get("http://127.0.0.1:" + a.port + "/status")
	if err != nil {
		return s, err
	}
	defer r.Body.Close()
	return s, json.NewDecoder(r.Body).Decode(&s)
}

// eventually waits for a condition, at most for a time.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > within {
			t.Fatalf("after %s still not: %s", within, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(start)
}

// spread reports whether an agent sees n agents that own all clusters, each
// as many as the others give or take one.
func (a *agent) spread(n int) bool {
	s, err := a.status()
	if err != nil || len(s.Agents) != n {
		return false
	}
	total, low, high := 0, clusters, 0
	for _, x := range s.Agents {
		total += len(x.Clusters)
		low, high = min(low, len(x.Clusters)), max(high, len(x.Clusters))
	}
	return total == clusters && high-low <= 1
}

// reconciles reports whether each cluster was written since a time by one of
// the agents.
func (l *lab) reconciles(since time.Time, agents ...int) bool {
	for _, w := range l.worlds {
		ok := slices.ContainsFunc(w.Requests(), func(r pvesim.RequestEntry) bool {
			return r.Time.After(since) && r.Method != http.MethodGet && slices.ContainsFunc(agents, func(a int) bool { return r.Who == who(a) })
		})
		if !ok {
			return false
		}
	}
	return true
}

func who(agent int) string {
	id, _ := token(agent)
	return "root@pam!" + id
}

// checkAlone fails where two agents worked on one cluster at a time: between
// the first and the last write of one turn of an agent no other may write. A
// turn ends when another's begins; agents may come back, but only after the
// other has ended, so the writes of two never interleave within a lease.
func (l *lab) checkAlone() {
	l.t.Helper()
	for i, w := range l.worlds {
		type span struct {
			who         string
			first, last time.Time
		}
		var turns []span
		writes := 0
		for _, r := range w.Requests() {
			if r.Method == http.MethodGet {
				continue
			}
			writes++
			begin, end := r.Time, r.Time.Add(r.Took)
			if n := len(turns); n > 0 && turns[n-1].who == r.Who {
				turns[n-1].last = end
				continue
			}
			if n := len(turns); n > 0 && begin.Before(turns[n-1].last) {
				l.t.Errorf("c%d: %s wrote at %s while a write of %s went on until %s", i, r.Who, begin.Format(time.StampMicro), turns[n-1].who, turns[n-1].last.Format(time.StampMicro))
			}
			// A return within a cycle's length means that two took turns.
			if n := len(turns); n > 1 && turns[n-2].who == r.Who && begin.Sub(turns[n-2].last) < lease/4 {
				l.t.Errorf("c%d: %s and %s wrote in turns around %s", i, turns[n-1].who, r.Who, begin.Format(time.StampMicro))
			}
			turns = append(turns, span{r.Who, begin, end})
		}
		if writes == 0 {
			l.t.Errorf("c%d was never written: the test shows nothing", i)
		}
		if len(turns) > 12 {
			l.t.Errorf("c%d changed its owner %d times", i, len(turns))
		}
	}
}

// Three agents share six clusters. One is killed, one is cut off from etcd and
// comes back, one is stopped in order. No cluster is ever worked on by two, and
// every one has an owner again within the bound.
func TestKillAndCutOff(t *testing.T) {
	etcd := startEtcd(t)
	l := newLab(t)
	a, b, c := l.start(0, etcd), l.start(1, etcd), l.start(2, etcd)
	eventually(t, 20*time.Second, "three agents share the clusters", func() bool { return a.spread(3) && b.spread(3) && c.spread(3) })
	eventually(t, 10*time.Second, "every cluster is reconciled", func() bool { return l.reconciles(time.Now().Add(-3*time.Second), 0, 1, 2) })

	killed := time.Now()
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, takeover, "the killed agent's clusters are reconciled by the others", func() bool { return l.reconciles(killed.Add(100*time.Millisecond), 1, 2) })
	t.Logf("taken over %s after the kill", took.Round(10*time.Millisecond))
	eventually(t, takeover, "two agents share the clusters", func() bool { return b.spread(2) && c.spread(2) })

	b.cut.sever()
	cut := time.Now()
	took = eventually(t, takeover, "the cut-off agent's clusters are reconciled by the last", func() bool { return l.reconciles(cut.Add(100*time.Millisecond), 2) })
	t.Logf("taken over %s after the cut", took.Round(10*time.Millisecond))
	quiet := time.Now()
	time.Sleep(lease / 2)
	for i, w := range l.worlds {
		for _, r := range w.Requests() {
			if r.Who == who(1) && r.Method != http.MethodGet && r.Time.After(quiet) {
				t.Errorf("c%d: the cut-off agent still wrote: %s %s", i, r.Method, r.Path)
			}
		}
	}

	b.cut.mend()
	eventually(t, 15*time.Second, "the agent that is back gets its share", func() bool { return b.spread(2) && c.spread(2) })
	back := time.Now()
	eventually(t, 10*time.Second, "every cluster is reconciled", func() bool { return l.reconciles(back, 1, 2) })

	if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	took = eventually(t, takeover, "the stopped agent's clusters are reconciled by the last", func() bool { return l.reconciles(stopped, 1) })
	t.Logf("taken over %s after the orderly stop", took.Round(10*time.Millisecond))
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the stopped agent: %v", err)
	}
	l.checkAlone()
}

// proxy is a TCP proxy that can be cut: connections then hang, as they do when
// a cable is pulled, and new ones are taken and never answered.
type proxy struct {
	ln     net.Listener
	target string

	mu    sync.Mutex
	open  *sync.Cond
	dead  bool
	shut  bool
	conns map[net.Conn]bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, conns: map[net.Conn]bool{}}
	p.open = sync.NewCond(&p.mu)
	go p.accept()
	t.Cleanup(func() {
		p.mu.Lock()
		p.shut = true
		p.open.Broadcast()
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		_ = ln.Close()
	})
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) sever() { p.set(true) }
func (p *proxy) mend()  { p.set(false) }

func (p *proxy) set(dead bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = dead
	p.open.Broadcast()
}

// pass waits until the proxy is whole.
func (p *proxy) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.dead && !p.shut {
		p.open.Wait()
	}
	return !p.shut
}

func (p *proxy) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

func (p *proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.keep(in)
		go func() {
			if !p.pass() {
				return
			}
			out, err := net.Dial("tcp", p.target)
			if err != nil {
				_ = in.Close()
				return
			}
			p.keep(out)
			go p.copy(in, out)
			p.copy(out, in)
		}()
	}
}

func (p *proxy) copy(dst, src net.Conn) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && p.pass() {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
