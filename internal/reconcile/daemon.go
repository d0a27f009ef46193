package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/repo"
)

// DaemonOptions are what a daemon works with. Functions that are nil are not
// called. Those that hear of something must not block for long.
type DaemonOptions struct {
	// Open opens the repository anew, so that changed settings are seen.
	Open func() (*repo.Repo, error)
	// Clusters are the only ones to reconcile; none = all that are declared.
	Clusters []string
	// Connect makes a cluster's client; nil = Connect. It is called when the
	// cluster's access changed.
	Connect func(*repo.Cluster) (*pve.Client, error)
	// Own waits until this agent may reconcile a cluster, or giveUp is closed,
	// which is an error; nil = it always may. The right's context is one of
	// ctx's.
	Own func(ctx context.Context, cluster string, giveUp <-chan struct{}) (Ownership, error)
	// Watch also hears of changes in a local work tree between two looks.
	Watch bool
	// Grace is how long running tasks are followed after a stop [60s].
	Grace time.Duration
	Log   *slog.Logger // nil = silent

	Observe  func(Standing)              // a loop moved
	Finished func(rep, previous *Report) // a cycle ended; previous may be nil
	Looked   func(Desired)               // the repository was looked at
	Gone     func(cluster string)        // a cluster is no longer declared
	Declared func(clusters []string)     // the declared clusters changed
}

// Ownership is the right to reconcile one cluster, for a while.
type Ownership struct {
	// Context ends the moment that the right may be lost; Err and the cause
	// then are apply.ErrFenced. Err asks the clock, not only a timer.
	Context context.Context
	// Yield is closed when another agent is to take over after the present
	// cycle; nil = never.
	Yield <-chan struct{}
	// Release gives the right back. It is called once, when no cycle runs.
	Release func()
}

// Daemon reconciles all clusters, each in a loop of its own.
type Daemon struct {
	o    DaemonOptions
	log  *slog.Logger
	src  *source
	stop chan struct{} // closed when nothing new is to be started

	mu    sync.Mutex
	loops map[string]*loop
	wg    sync.WaitGroup
}

// NewDaemon makes a daemon; Run starts it.
func NewDaemon(o DaemonOptions) *Daemon {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Grace <= 0 {
		o.Grace = time.Minute
	}
	if o.Connect == nil {
		log := o.Log
		o.Connect = func(c *repo.Cluster) (*pve.Client, error) { return Connect(c, log.With("cluster", c.Name)) }
	}
	return &Daemon{o: o, log: o.Log, src: newSource(o.Open, o.Clusters, o.Log), stop: make(chan struct{}), loops: map[string]*loop{}}
}

// Run reconciles until ctx ends. Then nothing new is started, running tasks are
// followed to their end for as long as Grace allows, and Run returns.
func (d *Daemon) Run(ctx context.Context) error {
	// Cycles do not end with ctx: they are stopped, and cut off after Grace.
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	w := newWatcher(d.log)
	defer w.close()
	edited := false
	tick := time.NewTimer(0)
	defer tick.Stop()
	var before Desired
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-w.changed:
			edited = true
			d.src.invalidate()
		case <-d.src.due:
		case <-tick.C:
		}
		now := d.src.look(ctx, 0)
		if ctx.Err() != nil {
			break
		}
		d.adjust(work, now)
		if d.o.Watch {
			w.follow(now)
		}
		if !before.At.IsZero() && (edited || now.differs(before)) {
			d.kickAll()
		}
		edited = false
		if d.o.Looked != nil && now.At != before.At {
			d.o.Looked(now)
		}
		before = now
		tick.Reset(now.nextLook())
	}
	d.log.Info("stopping: nothing new is started", "grace", d.o.Grace)
	close(d.stop)
	late := time.AfterFunc(d.o.Grace, func() { cut(errors.New("the grace period of the stop is over")) })
	defer late.Stop()
	d.wg.Wait()
	d.src.close()
	return nil
}

// Kick makes every cluster reconcile now, from a fresh look at the repository.
// Kicks that come while a cycle runs lead to one further cycle.
func (d *Daemon) Kick(why string) {
	d.log.Info("reconciling now", "why", why)
	d.src.invalidate()
	d.mu.Lock()
	for _, l := range d.loops {
		l.held.forget()
	}
	d.mu.Unlock()
	d.kickAll()
}

func (d *Daemon) kickAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.loops {
		l.poke()
	}
}

// Clusters are the names of the clusters that loops run for, sorted.
func (d *Daemon) Clusters() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return sortedKeys(d.loops)
}

// adjust starts loops for clusters that are new and ends those of clusters
// that are gone. While the repository cannot be read at all, what was known
// stays.
func (d *Daemon) adjust(work context.Context, now Desired) {
	d.mu.Lock()
	changed := false
	for _, name := range now.Clusters {
		if d.loops[name] == nil {
			l := newLoop(d, name)
			d.loops[name] = l
			changed = true
			d.wg.Go(func() { l.run(work) })
		}
	}
	for name, l := range d.loops {
		if now.Err == nil && !slices.Contains(now.Clusters, name) {
			delete(d.loops, name)
			changed = true
			close(l.gone)
		}
	}
	names := sortedKeys(d.loops)
	d.mu.Unlock()
	if changed && d.o.Declared != nil {
		d.o.Declared(names)
	}
}
