// Package reconcile runs one cluster's cycle: load, read, plan, apply, report.
// It is the only place where the functions of the pipeline meet.
package reconcile

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/gitrepo"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/repo"
)

// Options are one cycle's inputs.
type Options struct {
	Cluster string
	// Load gives the desired state; it reads files and nothing of PVE.
	Load func(context.Context) (*repo.Cluster, error)
	// Connect gives the client for the loaded cluster. The caller owns it and
	// may give the same one each cycle.
	Connect func(*repo.Cluster) (*pve.Client, error)
	// Neighbour gives a client of another cluster of the repository, which is
	// closed when its question is answered; nil = Connect.
	Neighbour func(*repo.Cluster) (*pve.Client, error)
	// Policy is changed from the cluster's own settings, by flags; nil = not.
	Policy func(*plan.Policy)

	Write bool          // apply the plan; false = a read-only cycle
	Apply apply.Options // when Write
	// Planned hears of the plan before anything is written; an error stops the
	// cycle there. nil = nobody asks.
	Planned func(plan.Plan) error
	// Hold says why an action is not to be tried in this cycle; what needs it
	// is then deferred. nil = everything is tried.
	Hold func(plan.Action) error
	// Previous is the last report of this cluster: objects keep from it when
	// they last converged. nil = none.
	Previous *Report
	// Stale says that the desired state is older than it should be, since a
	// fetch failed.
	Stale bool
	// StaleSince is when the desired state was last fetched; zero = not known.
	StaleSince time.Time
	// Settled tells which of the guests that the files of a work tree stopped
	// declaring, with no commit to tell of it, have been so for long enough to
	// be deleted. nil = all have: a person asked for this one cycle.
	Settled func(head string, vmids []int) map[int]bool
	// Memory keeps what git said between the cycles of one cluster; nil = git is
	// asked each time.
	Memory *gitrepo.Memory
}

// Report is everything that one cycle found and did.
type Report struct {
	Cluster  string
	Commit   string
	Dirty    bool // the files that were planned differ from Commit
	Started  time.Time
	Finished time.Time
	Stale    bool // the desired state is the last good one: a fetch failed
	ReadOnly bool // nothing was to be written

	Plan    plan.Plan     // zero when Abort is set before planning
	Result  *apply.Result // nil when nothing was applied
	Objects []Object      // in the plan's order
	Abort   error         // why the cycle ended early; nil = it did not
	Reads   int64         // GETs
	Writes  int64         // other requests

	BadFiles bool // Abort is why the desired state could not be loaded; PVE was not asked
}

// Object is one object's state after the cycle.
type Object struct {
	Cluster     string
	Kind        string
	Name        string
	Node        string
	ID          string
	State       plan.ObjectState
	Why         string
	LastAction  plan.Verb
	LastError   string
	Converged   time.Time // when it was last seen converged; zero = never
	PruneReason string
	Updated     time.Time
}

// Cycle runs one cycle. It always returns a report, also after a panic below
// it: one cluster's trouble never ends the process that reconciles others.
func Cycle(ctx context.Context, o Options) (rep Report) {
	rep = Report{Cluster: o.Cluster, Started: time.Now(), Stale: o.Stale, ReadOnly: !o.Write}
	defer func() {
		if r := recover(); r != nil {
			rep.Abort = fmt.Errorf("%s: the cycle broke off: %v\n%s", o.Cluster, r, debug.Stack())
		}
		rep.Finished = time.Now()
		rep.objects(o.Previous)
	}()
	rep.Abort = rep.run(ctx, o)
	return rep
}

func (rep *Report) run(ctx context.Context, o Options) error {
	c, err := o.Load(ctx)
	if err != nil {
		rep.BadFiles = ctx.Err() == nil
		return whileReading(ctx, o.Cluster, err)
	}
	rep.Commit, rep.Dirty = c.Commit, c.Dirty
	rep.ReadOnly = !o.Write || c.Reconcile.ReadOnly
	client, err := o.Connect(c)
	if err != nil {
		return err
	}
	before := client.Reader().Stats()
	defer func() {
		after := client.Reader().Stats()
		rep.Reads, rep.Writes = after.Reads-before.Reads, after.Writes-before.Writes
	}()
	p, snap, err := Plan(ctx, c, client.Reader(), o)
	if err != nil {
		return whileReading(ctx, o.Cluster, err)
	}
	rep.Plan = p
	if o.Planned != nil {
		if err := o.Planned(p); err != nil {
			return err
		}
	}
	if rep.ReadOnly || len(p.Actions) == 0 {
		return nil
	}
	opt := o.Apply
	opt.Shared = sharedStorages(snap)
	opt.WindowOpen = func() bool { return windowOpen(c.Reconcile.RestartWindow, time.Now()) }
	if opt.MaxDisruptions == 0 {
		opt.MaxDisruptions = c.Reconcile.MaxDisruptions
	}
	res := applyWith(p, o.Hold, opt, func(p plan.Plan, opt apply.Options) apply.Result { return apply.Run(ctx, client, p, opt) })
	rep.Result = &res
	if res.Interrupted {
		return fmt.Errorf("%s: interrupted: %s", o.Cluster, left(res))
	}
	return nil
}

// whileReading words the error of a cycle that was interrupted before it had a
// plan: what the interrupt looked like to a request says nothing.
func whileReading(ctx context.Context, cluster string, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%s: interrupted while reading; nothing was written", cluster)
}

// left words what an interrupt left of a plan.
func left(res apply.Result) string {
	notStarted, cut := res.Left()
	var parts []string
	if notStarted > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d actions were not started", notStarted, len(res.Actions)))
	}
	if cut > 0 {
		parts = append(parts, fmt.Sprintf("%d under way were not followed to their end: running tasks go on in PVE", cut))
	}
	return strings.Join(parts, ", ")
}

// Plan reads the cluster and plans. What is only needed before writing, the
// storages and bridges of the nodes, is read only when the plan writes.
func Plan(ctx context.Context, c *repo.Cluster, r *pve.Reader, o Options) (plan.Plan, *live.Snapshot, error) {
	snap, err := live.Read(ctx, r, Want(c))
	if err != nil {
		return plan.Plan{}, nil, err
	}
	if snap.Perms != nil && len(snap.Perms) == 0 && !snap.RootTicket {
		return plan.Plan{}, nil, fmt.Errorf("%s: %s has no right at all in PVE, so that everything looks absent: grant it a role (proxops doctor --cluster %s prints the lines); a token with privilege separation has only what it and its user both have",
			c.Name, Want(c).Identity, c.Name)
	}
	pol := plan.PolicyOf(c.Reconcile)
	pol.Now = time.Now()
	pol.WindowOpen = windowOpen(c.Reconcile.RestartWindow, pol.Now)
	if ids := plan.Candidates(c, snap); len(ids) > 0 {
		if pol.Words, err = words(ctx, c, o, ids); err != nil {
			return plan.Plan{}, nil, err
		}
	}
	if o.Policy != nil {
		o.Policy(&pol)
	}
	p := plan.Make(c, snap, pol)
	if p.Deletes() {
		if pol.Elsewhere = elsewhere(ctx, c, snap, pol, r, o); len(pol.Elsewhere) > 0 {
			p = plan.Make(c, snap, pol)
		}
	}
	if p.Deletes() {
		if err := live.ReadJobs(ctx, r, snap); err != nil {
			return plan.Plan{}, nil, err
		}
	}
	if nodes := p.WriteNodes(); len(nodes) > 0 {
		if err := live.Survey(ctx, r, snap, nodes); err != nil {
			return plan.Plan{}, nil, err
		}
		p = plan.Make(c, snap, pol)
	}
	return p, snap, nil
}

// Want is what a snapshot for the cluster must hold.
func Want(c *repo.Cluster) live.Want {
	w := live.Want{Cluster: c.Name, Nodes: c.Config.Nodes, Guests: map[int]live.Declared{}, Stores: map[live.Store][]string{},
		Tag: kind.OwnerTag, Identity: c.Secrets.TokenID}
	if UsesTicket(c) {
		w.Identity, w.RootTicket = c.Secrets.User, c.Secrets.User == "root@pam"
	}
	for _, r := range c.Resources {
		switch spec := r.Spec.(type) {
		case kind.GuestSpec:
			node, id := spec.Place()
			pool, _ := spec.Pool().Get()
			d := live.Declared{Running: spec.Started() && !r.Kind.Template, Pool: pool}
			if r.Annotations.Placement == "migrate" {
				d.MoveTo = node
			}
			w.Guests[id] = d
		case kind.ArtifactSpec:
			for _, node := range spec.Nodes() {
				st := live.Store{Node: node, Storage: spec.Storage()}
				if have := w.Stores[st]; len(have) == 0 || have[0] != r.Kind.Content {
					w.Stores[st] = append(have, r.Kind.Content)
				}
			}
		}
	}
	return w
}

func windowOpen(text string, now time.Time) bool {
	if text == "" {
		return false
	}
	w, err := repo.ParseWindow(text)
	return err == nil && w.Open(now)
}

func sharedStorages(s *live.Snapshot) func(string) bool {
	shared := map[string]bool{}
	for st, x := range s.Storages {
		shared[st.Storage] = shared[st.Storage] || x.Shared
	}
	return func(name string) bool { return shared[name] }
}
