// Package coord lets several agents share the clusters through etcd, so that
// each cluster has one owner at a time and a dead agent's clusters find a new
// one.
//
// Every agent holds one lease. Under it stand its entry among the agents and
// its candidacies: the oldest candidacy for a cluster owns it. Who stands for
// which cluster is computed by every agent from the same two sets, so that the
// work is spread without anybody deciding.
//
// What makes it safe is the fence: an agent counts its lease from the moment
// that it sent the last renewal that was answered, less a margin, while etcd
// counts from the moment that it received it. So an agent stops before any
// other can begin, also when it cannot reach etcd, or was suspended.
package coord

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
)

// Config says where etcd is and who this agent is.
type Config struct {
	Endpoints []string
	TLS       *tls.Config // nil = none
	User      string      // "" = no login
	Password  secret.Text
	Prefix    string        // of all keys, such as /proxops
	Lease     time.Duration // how long a dead agent keeps its clusters; whole seconds, at least 2
	Name      string        // of this agent, for people
	Host      string
	Started   time.Time
	Log       *slog.Logger   // nil = silent
	Changed   func([]Member) // nil = nobody; told of every change, in order: it must not wait, nor call the Coordinator
}

// Member is an agent that is alive, as far as its lease says.
type Member struct {
	ID       string // of its lease
	Name     string
	Host     string
	Started  time.Time
	Clusters []string // that it owns, sorted
	Self     bool
}

// Coordinator is this agent's part. Run must be running for Own to succeed.
type Coordinator struct {
	cfg    Config
	log    *slog.Logger
	client *clientv3.Client

	mu       sync.Mutex
	wake     chan struct{} // closed and replaced when anything below changes
	declared []string
	lease    *lease // nil while there is none
	seen     view
	owned    map[string]*owned
	litter   map[string]int64 // own keys that could not be deleted yet, with their revisions
	orphaned map[string]time.Time
}

// owned is a cluster that this agent owns.
type owned struct {
	key   string
	rev   int64 // fence token: grows with every change of owner
	yield chan struct{}
	given bool // yield is closed
}

// New makes a coordinator. etcd need not be reachable yet.
func New(cfg Config) (*Coordinator, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("coordination.etcd.endpoints: is empty")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Prefix = "/" + strings.Trim(cfg.Prefix, "/")
	cfg.Lease = max(cfg.Lease.Round(time.Second), 2*time.Second)
	c := &Coordinator{cfg: cfg, log: cfg.Log, wake: make(chan struct{}), owned: map[string]*owned{},
		litter: map[string]int64{}, orphaned: map[string]time.Time{}}
	if cfg.User != "" {
		return c, nil // a client logs in as it is made, so Run makes it
	}
	return c, c.dial()
}

// dial makes the client. With a login it asks etcd for up to five seconds.
func (c *Coordinator) dial() (err error) {
	c.client, err = clientv3.New(clientv3.Config{
		Endpoints: c.cfg.Endpoints, TLS: c.cfg.TLS, Username: c.cfg.User, Password: c.cfg.Password.Reveal(), Logger: zap.NewNop(),
		DialTimeout: 5 * time.Second, DialKeepAliveTime: max(c.cfg.Lease/3, time.Second), DialKeepAliveTimeout: max(c.cfg.Lease/3, time.Second),
	})
	if err != nil {
		return fmt.Errorf("coordination.etcd: %w", err)
	}
	return nil
}

// login makes the client, however long etcd is away, and says why it waits.
func (c *Coordinator) login(ctx context.Context) {
	told := ""
	for ctx.Err() == nil && c.client == nil {
		if err := c.dial(); err != nil {
			if told != err.Error() {
				c.log.Error("etcd takes no login: no cluster is reconciled by this agent", "user", c.cfg.User, "err", err)
				told = err.Error()
			}
			pause(ctx, time.Second)
		}
	}
}

// Run keeps the lease and follows what the other agents do, until ctx ends.
// Then it gives everything back, so that others need not wait for the lease to
// run out.
func (c *Coordinator) Run(ctx context.Context) error {
	if c.login(ctx); c.client == nil {
		return nil
	}
	defer func() { _ = c.client.Close() }()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.follow(ctx) })
	wg.Go(func() { c.maintain(ctx) })
	told := ""
	for ctx.Err() == nil {
		l, err := c.begin(ctx)
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			if told != err.Error() {
				c.log.Error("etcd gives no lease: no cluster is reconciled by this agent", "err", err)
				told = err.Error()
			}
			pause(ctx, time.Second)
			continue
		}
		told = ""
		c.log.Info("coordination: holding a lease", "lease", l.id(), "ttl", l.ttl)
		c.setLease(l)
		l.keep(ctx)
		c.setLease(nil)
		if ctx.Err() == nil {
			c.log.Error("the lease was lost: nothing more is started on the clusters of this agent")
		}
		l.end()
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Declare tells which clusters there are.
func (c *Coordinator) Declare(clusters []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.declared = unique(clusters)
	c.changed()
}

func (c *Coordinator) setLease(l *lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lease = l
	if l == nil { // everything under it goes with it
		clear(c.litter)
		clear(c.owned)
	}
	c.changed()
}

// changed wakes everybody who waits, and asks owners to yield where another
// agent is to take over. The lock is held.
func (c *Coordinator) changed() {
	close(c.wake)
	c.wake = make(chan struct{})
	self := ""
	if c.lease != nil {
		self = c.lease.id()
	}
	want := assign(c.declared, c.seen.agentIDs())
	for name, o := range c.owned {
		// It yields only to an agent that stands ready: views may differ for a
		// moment, and a cluster is better off with the wrong owner than with none.
		if to := want[name]; to != "" && to != self && c.seen.stands(name, to) && !o.given {
			o.given = true
			close(o.yield)
		}
	}
	for _, name := range c.declared {
		if len(c.seen.candidates[name]) > 0 {
			delete(c.orphaned, name)
		} else if _, ok := c.orphaned[name]; !ok {
			c.orphaned[name] = time.Now()
		}
	}
	if c.cfg.Changed != nil {
		c.cfg.Changed(c.seen.members(self))
	}
}

// mine reports whether this agent should stand for a cluster: it is the one
// that the spread gives it to, or nobody stood for it for a whole lease. The
// lock is held.
func (c *Coordinator) mine(cluster string) bool {
	if c.lease == nil {
		return false
	}
	if assign(c.declared, c.seen.agentIDs())[cluster] == c.lease.id() {
		return true
	}
	since, ok := c.orphaned[cluster]
	return ok && time.Since(since) > c.cfg.Lease
}

// Own waits until this agent owns the cluster. It implements
// reconcile.DaemonOptions.Own.
func (c *Coordinator) Own(ctx context.Context, cluster string, giveUp <-chan struct{}) (reconcile.Ownership, error) {
	for {
		c.mu.Lock()
		l, wake, mine := c.lease, c.wake, c.mine(cluster)
		c.mu.Unlock()
		if mine {
			own, ok, err := c.stand(ctx, l, cluster, giveUp)
			if ok {
				return own, nil
			}
			if err != nil {
				c.log.Warn("standing for a cluster", "cluster", cluster, "err", err)
				pause(ctx, time.Second)
			}
		}
		t := time.NewTimer(c.cfg.Lease / 4)
		select {
		case <-wake:
		case <-t.C:
		case <-giveUp:
			t.Stop()
			return reconcile.Ownership{}, errors.New("given up")
		case <-ctx.Done():
			t.Stop()
			return reconcile.Ownership{}, ctx.Err()
		}
		t.Stop()
	}
}

// stand puts up a candidacy and waits until it is the oldest. ok is false when
// it was taken back.
func (c *Coordinator) stand(ctx context.Context, l *lease, cluster string, giveUp <-chan struct{}) (own reconcile.Ownership, ok bool, err error) {
	key := c.candidacy(cluster, l.id())
	rev, err := l.put(ctx, key)
	if err != nil {
		return own, false, err
	}
	for {
		c.mu.Lock()
		wake, lost := c.wake, c.lease != l
		if !lost && c.seen.owner(cluster) == (candidate{l.id(), rev}) && !l.expired() {
			o := &owned{key: key, rev: rev, yield: make(chan struct{})}
			c.owned[cluster] = o
			c.mu.Unlock()
			c.log.Info("owning a cluster", "cluster", cluster, "fence", rev)
			return l.ownership(ctx, o, func() { c.release(l, cluster, o) }), true, nil
		}
		mine := c.mine(cluster) || c.seen.stands(cluster, l.id()) && len(c.seen.candidates[cluster]) == 1
		c.mu.Unlock()
		if lost {
			return own, false, nil
		}
		select {
		case <-giveUp:
			c.drop(l, key, rev)
			return own, false, nil
		case <-ctx.Done():
			c.drop(l, key, rev)
			return own, false, nil
		default:
		}
		if !mine {
			c.drop(l, key, rev)
			return own, false, nil
		}
		t := time.NewTimer(c.cfg.Lease / 4)
		select {
		case <-wake:
		case <-t.C:
		case <-giveUp:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// release gives a cluster back.
func (c *Coordinator) release(l *lease, cluster string, o *owned) {
	c.mu.Lock()
	if c.owned[cluster] == o {
		delete(c.owned, cluster)
	}
	c.mu.Unlock()
	c.log.Info("no longer owning a cluster", "cluster", cluster, "fence", o.rev)
	c.drop(l, o.key, o.rev)
}

// drop deletes a key of this agent's lease, now or later: a candidacy that
// nobody acts on would keep the cluster from everybody.
func (c *Coordinator) drop(l *lease, key string, rev int64) {
	if l.delete(key, rev) == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease == l {
		c.litter[key] = rev
	}
}

// maintain deletes what could not be deleted before, and looks again at what
// depends on the time.
func (c *Coordinator) maintain(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, c.cfg.Lease/2)
		c.mu.Lock()
		l := c.lease
		todo := map[string]int64{}
		for k, v := range c.litter {
			todo[k] = v
		}
		c.changed()
		c.mu.Unlock()
		for key, rev := range todo {
			if l == nil || l.delete(key, rev) != nil {
				continue
			}
			c.mu.Lock()
			if c.litter[key] == rev {
				delete(c.litter, key)
			}
			c.mu.Unlock()
		}
	}
}

func (c *Coordinator) candidacy(cluster, id string) string {
	return c.cfg.Prefix + "/clusters/" + cluster + "/" + id
}

func (c *Coordinator) entry(id string) string { return c.cfg.Prefix + "/agents/" + id }

// agentEntry is what stands in etcd of an agent.
type agentEntry struct {
	Name    string    `json:"name"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
}

func (c *Coordinator) self() string {
	b, err := json.Marshal(agentEntry{c.cfg.Name, c.cfg.Host, c.cfg.Started})
	if err != nil {
		return "{}"
	}
	return string(b)
}
