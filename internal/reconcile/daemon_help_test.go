package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
)

const labToken = "root@pam!full=11111111-1111-4111-8111-111111111111"

// estate is a repository on disk and a simulated cluster for each of its
// clusters.
type estate struct {
	t    *testing.T
	dir  string
	opts pvesim.Options

	mu       sync.Mutex
	worlds   map[string]*pvesim.World
	broken   map[string]error // what a cluster's transport gives instead
	connects map[string]int
	ended    map[string]*Report // the last cycle of each cluster
	standing map[string]Standing
	starts   map[string][]time.Time
	overlaps int
	gone     []string
}

func newEstate(t *testing.T, o pvesim.Options, clusters ...string) *estate {
	e := &estate{t: t, dir: t.TempDir(), opts: o, worlds: map[string]*pvesim.World{}, broken: map[string]error{}, connects: map[string]int{}, ended: map[string]*Report{},
		standing: map[string]Standing{}, starts: map[string][]time.Time{}}
	e.write("proxops.yaml", "reconcile: {poll-interval: 30s}\n")
	for _, name := range clusters {
		e.cluster(name)
	}
	return e
}

func (e *estate) write(name, text string) {
	e.t.Helper()
	full := filepath.Join(e.dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		e.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		e.t.Fatal(err)
	}
}

// cluster declares a cluster with one VM, more are added with vm.
func (e *estate) cluster(name string, more ...string) {
	e.write("clusters/"+name+"/config.yaml", fmt.Sprintf("pve:\n  clusters:\n    %s:\n      base-url: https://%s.example.org\n      nodes: [pve01]\n%s", name, name, strings.Join(more, "")))
	e.write("clusters/"+name+"/resources.yaml", "resources: [vm/"+name+"/vms.yaml]\n")
	e.vms(name, vmText("web", 100, "512MiB"))
}

func vmText(name string, vmid int, memory string) string {
	return fmt.Sprintf("apiVersion: proxops/v1alpha1\nkind: VM\nmetadata: {name: %s}\nspec:\n  node: pve01\n  vmid: %d\n  state: started\n  cpu: {type: host, cores: 1}\n  memory: %s\n  disks: []\n  networks: []\n", name, vmid, memory)
}

func (e *estate) vms(cluster string, docs ...string) {
	e.write("vm/"+cluster+"/vms.yaml", strings.Join(docs, "---\n"))
}

func (e *estate) world(name string) *pvesim.World {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.worlds[name] == nil {
		state, err := pvesim.Recorded("base")
		if err != nil {
			e.t.Fatal(err)
		}
		e.worlds[name] = pvesim.New(e.opts, state)
	}
	return e.worlds[name]
}

func (e *estate) breakCluster(name string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken[name] = err
}

type transport struct {
	e    *estate
	name string
}

func (r transport) RoundTrip(req *http.Request) (*http.Response, error) {
	r.e.mu.Lock()
	err := r.e.broken[r.name]
	r.e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return r.e.world(r.name).RoundTrip(req)
}

func (e *estate) connect(c *repo.Cluster) (*pve.Client, error) {
	e.mu.Lock()
	e.connects[c.Name]++
	e.mu.Unlock()
	return pve.New(pve.Config{Name: c.Name, Endpoints: []string{c.Config.BaseURL}, Nodes: c.Config.Nodes, TaskTimeout: c.Reconcile.TaskTimeout,
		Auth: pve.Credentials{TokenID: c.Secrets.TokenID, TokenSecret: c.Secrets.Token}, Transport: transport{e, c.Name}})
}

func (e *estate) options() DaemonOptions {
	return DaemonOptions{
		Open: func() (*repo.Repo, error) {
			return repo.Open(repo.Options{Dir: e.dir, Env: map[string]string{"PROXOPS_PVE_TOKEN_VALUE": labToken}, Overrides: repo.Overrides{GitPath: e.dir}})
		},
		Connect: e.connect,
		Observe: func(s Standing) {
			e.mu.Lock()
			defer e.mu.Unlock()
			before := e.standing[s.Cluster]
			if s.Running && !before.Running {
				e.starts[s.Cluster] = append(e.starts[s.Cluster], s.Started)
			}
			if s.Running && before.Running && s.Started != before.Started {
				e.overlaps++
			}
			e.standing[s.Cluster] = s
		},
		Finished: func(rep, _ *Report) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.ended[rep.Cluster] = rep
		},
		Gone: func(c string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.gone = append(e.gone, c)
		},
	}
}

// repository makes the estate's files a git repository. The function it gives
// commits all of them and returns the commit's hash.
func (e *estate) repository() (commit func() string) {
	e.t.Helper()
	r, err := git.PlainInit(e.dir, false)
	if err != nil {
		e.t.Fatal(err)
	}
	return func() string {
		e.t.Helper()
		w, err := r.Worktree()
		if err != nil {
			e.t.Fatal(err)
		}
		if err := w.AddWithOptions(&git.AddOptions{All: true}); err != nil {
			e.t.Fatal(err)
		}
		h, err := w.Commit("change", &git.CommitOptions{Author: &object.Signature{Name: "a", Email: "a@example.org", When: time.Now()}})
		if err != nil {
			e.t.Fatal(err)
		}
		return h.String()
	}
}

// run runs a daemon while f does, then stops it and waits for its end.
func (e *estate) run(o DaemonOptions, f func(d *Daemon)) {
	e.t.Helper()
	d := NewDaemon(o)
	ctx, cancel := context.WithCancel(e.t.Context())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	f(d)
	cancel()
	if err := <-done; err != nil {
		e.t.Error(err)
	}
	if e.overlaps > 0 {
		e.t.Errorf("%d cycles of a cluster overlapped", e.overlaps)
	}
}

func (e *estate) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.worlds {
		w.Stop()
	}
}

// stands is where a cluster's loop stands now.
func (e *estate) stands(cluster string) Standing {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.standing[cluster]
}

func (e *estate) last(cluster string) *Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	if rep := e.ended[cluster]; rep != nil {
		return rep
	}
	e.t.Fatalf("%s: no cycle has ended", cluster)
	return nil
}

func (e *estate) count(cluster string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.starts[cluster])
}

// writes are the requests of a cluster that are no GETs.
func (e *estate) writes(cluster string) (out []string) {
	for _, r := range e.world(cluster).Requests() {
		if r.Method != http.MethodGet {
			out = append(out, r.Method+" "+r.Path)
		}
	}
	return out
}

// inBubble runs a test with a clock that moves only when nothing else can.
func inBubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

var errNoRoute = errors.New("connect: no route to host")
