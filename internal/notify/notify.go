package notify

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

// Options are what a Notifier works with.
type Options struct {
	// Resolve looks up an entry of the process's secrets. It is called for
	// each try to deliver.
	Resolve func(key string) (secret.Text, error)
	Log     *slog.Logger // nil = silent
}

// Notifier tells the targets of notifications what reports hold that is new.
// None of its methods but Close waits for a service. What was told is kept in
// memory: after a restart what still lasts is summed up once, see meet.
type Notifier struct {
	o    Options
	pace pace

	mu       sync.Mutex
	clusters map[string]*tracker
	targets  map[string]*target
	closed   bool
}

// New makes a notifier without targets.
func New(o Options) *Notifier {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Notifier{o: o, pace: defaultPace(), clusters: map[string]*tracker{}, targets: map[string]*target{}}
}

// Configure takes over the targets in force. Those that stay keep their queue.
func (n *Notifier) Configure(list []repo.Notification) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	for name, t := range n.targets {
		if !slices.ContainsFunc(list, func(c repo.Notification) bool { return c.Name == name }) {
			delete(n.targets, name)
			t.stop()
		}
	}
	for _, c := range list {
		if t := n.targets[c.Name]; t != nil {
			t.configure(c)
		} else {
			n.targets[c.Name] = newTarget(c, n.o, n.pace)
		}
	}
}

// Finished takes in a cluster's report; the reports of a cluster must come in
// their order.
func (n *Notifier) Finished(rep *reconcile.Report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.clusters[rep.Cluster]
	if t == nil {
		t = newTracker()
		n.clusters[rep.Cluster] = t
	}
	events := t.events(rep)
	if len(events) == 0 {
		return
	}
	for _, t := range n.targets {
		t.offer(events)
	}
}

// Forget drops what is known of a cluster that is no longer declared.
func (n *Notifier) Forget(cluster string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.clusters, cluster)
}

// Close delivers what is left, once, and ends; it waits for that until ctx
// ends.
func (n *Notifier) Close(ctx context.Context) {
	n.mu.Lock()
	n.closed = true
	targets := n.targets
	n.targets = nil
	n.mu.Unlock()
	for _, t := range targets {
		t.stop()
	}
	for _, t := range targets {
		select {
		case <-t.done:
		case <-ctx.Done():
		}
	}
}
