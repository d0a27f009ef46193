// Package cases_test tells, case by case, what hurts when PVE is managed
// declaratively, and that it does not hurt here: whole cycles over a
// repository of files, against a simulated cluster.
package cases_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
)

// The identities of the recorded states.
const (
	rootToken = "root@pam!full=11111111-1111-4111-8111-111111111111"
	opsToken  = "gitops@pve!ops=33333333-3333-4333-8333-333333333333"
)

// lab is a simulated cluster, a repository, and a way to run cycles on them.
type lab struct {
	testing.TB
	w      *pvesim.World
	dir    string
	client *pve.Client
	wire   http.RoundTripper // what the client's requests go over

	settings string            // further lines of the cluster's entry
	files    map[string]string // by path from the root
	env      map[string]string
	entries  map[string]string // of the secrets file, by dot path
	policy   func(*plan.Policy)
	fails    bool // the next cycles may end with errors
}

// story runs one case in a bubble of its own, where waiting takes no time.
func story(t *testing.T, f func(l *lab), shape ...func(*pvesim.State)) {
	t.Helper()
	storyWith(t, pvesim.Options{Seed: 1}, f, shape...)
}

func storyWith(t *testing.T, o pvesim.Options, f func(l *lab), shape ...func(*pvesim.State)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, dir, o, state(t, shape...))
		defer l.w.Stop()
		f(l)
	})
}

func newLab(t testing.TB, dir string, o pvesim.Options, s pvesim.State) *lab {
	l := &lab{TB: t, dir: dir, files: map[string]string{}, w: pvesim.New(o, s), env: map[string]string{"PROXOPS_PVE_TOKEN_VALUE": rootToken}}
	l.wire = l.w
	return l
}

// state is a cluster of two nodes with directory, thin and shared storage.
func state(t testing.TB, shape ...func(*pvesim.State)) pvesim.State {
	t.Helper()
	s, err := pvesim.Recorded("lvmthin")
	if err != nil {
		t.Fatal(err)
	}
	one := s.Nodes[0]
	one.Lacks, one.CPUs, one.Bridges, s.ClusterName, one.ID = nil, 8, []string{"vmbr0", "vmbr1"}, "lab", 1
	two := *one
	two.Name, two.ID, two.IP = "pve02", 2, "192.0.2.12"
	s.Nodes = append(s.Nodes, &two)
	s.Storages = append(s.Storages, &pvesim.Storage{ID: "shared", Type: "nfs", Shared: true, Total: 1 << 40,
		Content: []string{"images", "rootdir", "iso", "vztmpl", "import"},
		Props:   map[string]string{"path": "/mnt/pve/shared", "server": "192.0.2.9", "export": "/srv"}})
	for _, f := range shape {
		f(&s)
	}
	return s
}

func (l *lab) load(ctx context.Context) (*repo.Cluster, error) {
	r, err := repo.Open(repo.Options{Dir: l.dir, Env: l.env, Overrides: repo.Overrides{GitPath: l.dir}, OpenSecrets: l.openSecrets})
	if err != nil {
		return nil, err
	}
	return r.Load(ctx, "lab")
}

// loadError is what loading the manifests says.
func (l *lab) loadError(manifests ...string) string {
	l.Helper()
	l.write(manifests...)
	_, err := l.load(l.Context())
	if err == nil {
		return ""
	}
	return err.Error()
}

// connect makes a client once for each identity.
func (l *lab) connect(c *repo.Cluster) (*pve.Client, error) {
	if l.client == nil {
		auth := pve.Credentials{TokenID: c.Secrets.TokenID, TokenSecret: c.Secrets.Token}
		if reconcile.UsesTicket(c) {
			auth = pve.Credentials{User: c.Secrets.User, Password: c.Secrets.Password}
		}
		client, err := pve.New(pve.Config{Name: "lab", Endpoints: append([]string{c.Config.BaseURL}, c.Config.Endpoints...), Nodes: c.Config.Nodes, Transport: l.wire, Auth: auth})
		if err != nil {
			return nil, err
		}
		l.client = client
	}
	return l.client, nil
}

// as changes who ProxOps is: a token value, or "" for root's password.
func (l *lab) as(token string) {
	l.client = nil
	l.env = map[string]string{"PROXOPS_PVE_TOKEN_VALUE": token}
	if token == "" {
		l.env = map[string]string{"PROXOPS_PVE_USER": "root@pam", "PROXOPS_PVE_PASSWORD": "pvetest1"}
	}
}

func (l *lab) cycle(write bool) reconcile.Report {
	return reconcile.Cycle(l.Context(), reconcile.Options{Cluster: "lab", Write: write, Load: l.load, Connect: l.connect, Policy: l.policy})
}

// cycleBetween is a writing cycle in which something happens between the plan
// and the first write.
func (l *lab) cycleBetween(f func()) reconcile.Report {
	return reconcile.Cycle(l.Context(), reconcile.Options{Cluster: "lab", Write: true, Load: l.load, Connect: l.connect, Policy: l.policy,
		Planned: func(plan.Plan) error { f(); return nil }})
}

// diff plans; nothing may be written by it.
func (l *lab) diff(manifests ...string) reconcile.Report {
	l.Helper()
	l.write(manifests...)
	before := l.census()
	rep := l.cycle(false)
	if rep.Writes != 0 {
		l.Errorf("a diff made %d writes", rep.Writes)
	}
	l.guard(before, rep)
	l.expectFine(rep)
	return rep
}

// apply runs one writing cycle under all guards.
func (l *lab) apply(manifests ...string) reconcile.Report {
	l.Helper()
	l.write(manifests...)
	before := l.census()
	rep := l.cycle(true)
	l.guard(before, rep)
	l.expectFine(rep)
	l.drain()
	return rep
}

// converge applies, and then holds that nothing is left to do.
func (l *lab) converge(manifests ...string) reconcile.Report {
	l.Helper()
	rep := l.apply(manifests...)
	l.settled(manifests...)
	return rep
}

// settled holds that two diffs plan nothing and are the same to the byte.
func (l *lab) settled(manifests ...string) {
	l.Helper()
	a, b := l.diff(manifests...), l.diff(manifests...)
	if len(a.Plan.Actions) > 0 {
		l.Errorf("a second plan is not empty:\n%s", text(a))
	}
	if x, y := document(l, a), document(l, b); x != y {
		l.Errorf("two plans of the same differ:\n%s\n%s", x, y)
	}
}

func (l *lab) expectFine(rep reconcile.Report) {
	l.Helper()
	unsure := rep.Result != nil && rep.Result.Counts()[apply.Unknown] > 0
	if l.fails || !rep.Failed() && !unsure {
		return
	}
	l.Errorf("the cycle failed: %v\n%s", rep.Abort, text(rep))
	if rep.Result != nil {
		for _, a := range rep.Result.Actions {
			if a.Err != nil {
				l.Errorf("%s %s: %s: %v %v", a.Action.Verb, a.Action.ID, a.Outcome, a.Err, a.Tail)
			}
		}
	}
	l.FailNow()
}
