// Package web serves what the daemon knows: health, status, metrics, webhooks
// and the dashboard, all over the latest reports.
package web

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/proxops/proxops/internal/journal"
	"github.com/proxops/proxops/internal/reconcile"
)

// historyLength is how many journal entries are kept for each cluster in
// memory, for the pages.
const historyLength = 500

// Store holds the latest standing of every cluster. It is safe for concurrent
// use, and what it hands out is never changed afterwards.
type Store struct {
	process Process

	mu       sync.Mutex
	clusters map[string]reconcile.Standing
	history  map[string][]journal.Entry
	agents   []Agent
	repo     Repository
	stopping bool
	version  uint64
	subs     map[*Subscription]bool
}

// Process is what does not change while the process lives.
type Process struct {
	Version string
	Agent   string // its name among the agents
	Host    string
	Start   time.Time
}

// Repository is the state of the desired side.
type Repository struct {
	Source string // the work tree or the URL, without credentials
	Commit string
	Dirty  bool // files differ from Commit
	Stale  bool
	Since  time.Time // of the last good fetch, when stale; zero when not known
	Err    error     // why it is stale, or why nothing can be loaded
}

// Agent is one of the processes that share the clusters.
type Agent struct {
	Name     string    `json:"name"`
	Host     string    `json:"host"`
	Started  time.Time `json:"started_at"`
	Clusters []string  `json:"clusters"` // that it owns now
	Self     bool      `json:"self"`
}

// Snapshot is everything at one moment.
type Snapshot struct {
	Process  Process
	Repo     Repository
	Clusters []reconcile.Standing // by name
	Agents   []Agent              // by name; one when this agent is alone
	Stopping bool
	Version  uint64 // grows with every change
}

// NewStore makes an empty store.
func NewStore(p Process) *Store {
	return &Store{process: p, clusters: map[string]reconcile.Standing{}, history: map[string][]journal.Entry{}, subs: map[*Subscription]bool{}}
}

// Put takes a cluster's standing over. A report that was not there before adds
// to the cluster's history.
func (s *Store) Put(st reconcile.Standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.clusters[st.Cluster]
	s.clusters[st.Cluster] = st
	if st.Report != nil && st.Report != before.Report {
		h := append(s.history[st.Cluster], journal.Entries(st.Report, before.Report)...)
		s.history[st.Cluster] = slices.Clone(h[max(0, len(h)-historyLength):])
	}
	s.changed(st.Cluster)
}

// Remove forgets a cluster that is no longer declared.
func (s *Store) Remove(cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clusters, cluster)
	delete(s.history, cluster)
	s.changed(cluster)
}

// SetRepository takes over how the desired side stands.
func (s *Store) SetRepository(r Repository) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repo = r
	s.changed("")
}

// SetAgents takes over who shares the work.
func (s *Store) SetAgents(list []Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents = slices.Clone(list)
	s.changed("")
}

// Stopping says that the process is about to end: it is not ready any more.
func (s *Store) Stopping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	s.changed("")
}

// Snapshot gives everything at this moment.
func (s *Store) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Snapshot{Process: s.process, Repo: s.repo, Agents: slices.Clone(s.agents), Stopping: s.stopping, Version: s.version}
	owners := map[string]string{}
	for _, a := range s.agents {
		for _, c := range a.Clusters {
			owners[c] = a.Name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.clusters)) {
		c := s.clusters[name]
		if c.Owner = owners[name]; c.Mine {
			c.Owner = s.process.Agent
		}
		out.Clusters = append(out.Clusters, c)
	}
	if len(out.Agents) == 0 {
		self := Agent{Name: s.process.Agent, Host: s.process.Host, Started: s.process.Start.UTC(), Clusters: []string{}, Self: true}
		for _, c := range out.Clusters {
			if c.Mine {
				self.Clusters = append(self.Clusters, c.Cluster)
			}
		}
		out.Agents = []Agent{self}
	}
	return out
}

// Cluster gives one cluster's standing.
func (s *Store) Cluster(name string) (reconcile.Standing, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.clusters[name]
	return st, ok
}

// History gives what this process did on a cluster, newest first: at most the
// last 500 entries.
func (s *Store) History(cluster string) []journal.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.history[cluster])
	slices.Reverse(out)
	return out
}

// changed wakes the subscribers. The lock is held.
func (s *Store) changed(cluster string) {
	s.version++
	for sub := range s.subs {
		sub.pending[cluster] = true
		select {
		case sub.wake <- struct{}{}:
		default:
		}
	}
}

// Change tells a subscriber what changed since it last asked.
type Change struct {
	Version  uint64
	Clusters []string // by name; "" among them: something beside the clusters
}

// Subscription hears of changes. Changes that come while nobody asks are
// merged, so that a slow reader costs nothing.
type Subscription struct {
	store   *Store
	wake    chan struct{}
	pending map[string]bool
}

// Subscribe begins to collect changes. The caller closes the subscription.
func (s *Store) Subscribe() *Subscription {
	sub := &Subscription{store: s, wake: make(chan struct{}, 1), pending: map[string]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs[sub] = true
	return sub
}

// Next waits for the next change. The error is ctx's.
func (sub *Subscription) Next(ctx context.Context) (Change, error) {
	select {
	case <-ctx.Done():
		return Change{}, ctx.Err()
	case <-sub.wake:
	}
	sub.store.mu.Lock()
	defer sub.store.mu.Unlock()
	c := Change{Version: sub.store.version, Clusters: slices.Sorted(maps.Keys(sub.pending))}
	clear(sub.pending)
	return c, nil
}

// Close ends the subscription.
func (sub *Subscription) Close() {
	sub.store.mu.Lock()
	defer sub.store.mu.Unlock()
	delete(sub.store.subs, sub)
}

// unread reports whether nothing is known yet.
func (r Repository) unread() bool { return r.Source == "" && r.Err == nil }
