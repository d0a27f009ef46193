package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/proxops/proxops/internal/gitrepo"
	"github.com/proxops/proxops/internal/repo"
)

// Limits of a look at the repository.
const (
	defaultEvery = 30 * time.Second // until settings could be read
	lookTimeout  = 2 * time.Minute  // of one look, a fetch included
	lookPatience = 5 * time.Second  // how long a cycle waits for a look while there is an older one
)

// Desired is what one look at the repository found.
type Desired struct {
	At       time.Time
	Settings *repo.Settings // nil before the first good look
	Source   string         // the work tree or the URL, without credentials
	Commit   string         // "" when there is none
	Dirty    bool           // files of a picked cluster differ from Commit
	Clusters []string       // declared (and picked), sorted
	Stale    bool
	Since    time.Time // of the last good fetch, when stale
	FetchErr error     // why it is stale
	Err      error     // stops all clusters: nothing can be loaded

	loaded map[string]repo.Loaded
	local  bool
}

// load gives one cluster's desired state out of the look.
func (d Desired) load(name string) (*repo.Cluster, error) {
	if d.Err != nil {
		return nil, d.Err
	}
	l, ok := d.loaded[name]
	if !ok {
		return nil, fmt.Errorf("cluster %q is no longer declared", name)
	}
	return l.Cluster, l.Err
}

func (d Desired) every() time.Duration {
	if d.Settings == nil {
		return defaultEvery
	}
	return d.Settings.PollInterval
}

// nextLook is the time until the next look. A work tree is looked at twice in
// an interval, since nothing tells of its edits for sure; a forge is asked once.
func (d Desired) nextLook() time.Duration {
	if d.local {
		return d.every() / 2
	}
	return d.every()
}

// differs reports whether clusters should look again at once: the commit moved
// or what is declared changed, or a fault came or went.
func (d Desired) differs(before Desired) bool {
	if d.Commit != before.Commit || !slices.Equal(d.Clusters, before.Clusters) || (d.Err == nil) != (before.Err == nil) {
		return true
	}
	for name, l := range d.loaded {
		if (l.Err == nil) != (before.loaded[name].Err == nil) {
			return true
		}
	}
	return false
}

// source looks at the repository on behalf of all clusters: one look at a
// time, and its result is everybody's.
type source struct {
	open   func() (*repo.Repo, error)
	filter []string
	log    *slog.Logger
	due    chan struct{} // somebody wants a look soon

	mu      sync.Mutex
	last    Desired
	fresh   bool               // last may be used for as long as it is young
	running chan struct{}      // closed when the look under way ends; nil = none is
	cancel  context.CancelFunc // of the look under way
	again   bool               // something changed while a look was under way

	repo    *repo.Repo // only the look under way uses it
	signers os.FileInfo
}

func newSource(open func() (*repo.Repo, error), filter []string, log *slog.Logger) *source {
	return &source{open: open, filter: filter, log: log, due: make(chan struct{}, 1)}
}

// invalidate makes the next look a real one.
func (s *source) invalidate() {
	s.mu.Lock()
	s.fresh = false
	s.again = s.running != nil
	s.mu.Unlock()
	select {
	case s.due <- struct{}{}:
	default:
	}
}

// age is how old a look may be for a cycle to use it. The daemon looks at least
// once in an interval, so that cycles seldom wait for a look; they do when the
// last one took long, or something is known to have changed.
func (s *source) age() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.every() * 3 / 2
}

// latest is the last look, however old.
func (s *source) latest() Desired {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// look gives the last look. When that is older than maxAge a new one begins,
// but nobody waits for it: cycles keep to their schedule. After invalidate, and
// with a maxAge of 0, the new one is waited for; when it takes long, such as a
// fetch from a forge that hangs, the older is given all the same.
func (s *source) look(ctx context.Context, maxAge time.Duration) Desired {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := !s.last.At.IsZero()
	if s.fresh && time.Since(s.last.At) < maxAge {
		return s.last
	}
	if s.begin(ctx); have && s.fresh && maxAge > 0 {
		return s.last // it is only old: the next cycle has the new one
	}
	var patience <-chan time.Time
	if have {
		t := time.NewTimer(lookPatience)
		defer t.Stop()
		patience = t.C
	}
	// A look that was under way when something changed may have missed it:
	// then the one after it is waited for.
	for range 2 {
		ch, enough := s.begin(ctx), false
		s.mu.Unlock()
		select {
		case <-ch:
		case <-patience:
			enough = true
		case <-ctx.Done():
			enough = true
		}
		s.mu.Lock()
		if s.fresh || enough {
			break
		}
	}
	return s.last
}

// begin begins a look where none is under way, and gives what is closed at its
// end. The lock is held.
func (s *source) begin(ctx context.Context) chan struct{} {
	if s.running == nil {
		s.running = make(chan struct{})
		s.again = false
		work, cancel := context.WithCancel(context.WithoutCancel(ctx))
		s.cancel = cancel
		go s.refresh(work, s.running)
	}
	return s.running
}

// close ends the look under way and waits for its end.
func (s *source) close() {
	s.mu.Lock()
	ch, cancel := s.running, s.cancel
	s.mu.Unlock()
	if ch != nil {
		cancel()
		<-ch
	}
}

// refresh is one look.
func (s *source) refresh(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s.mu.Lock()
	before := s.last
	s.mu.Unlock()
	now := s.read(ctx, before)
	s.mu.Lock()
	s.last, s.fresh, s.running = now, !s.again, nil
	s.cancel()
	s.mu.Unlock()
	close(done)
}

// read opens, fetches and loads. What cannot be had is taken from before, with
// the reason.
func (s *source) read(ctx context.Context, before Desired) (now Desired) {
	now = Desired{Settings: before.Settings, Source: before.Source, Commit: before.Commit, Dirty: before.Dirty, Clusters: before.Clusters}
	defer func() {
		if r := recover(); r != nil {
			now.Err = fmt.Errorf("reading the repository broke off: %v\n%s", r, debug.Stack())
		}
		now.At = time.Now()
	}()
	r, err := s.reopen()
	if err != nil {
		now.Err = err
		return now
	}
	now.Settings = r.Settings()
	state := r.Sync(ctx)
	now.Stale, now.Since, now.FetchErr = state.Stale, state.Since, state.Err
	if state.Note != "" {
		s.log.Warn("the repository moved", "note", state.Note)
	}
	if state.Tree == nil {
		now.Source = r.Settings().Git.URL
		now.Err = fmt.Errorf("git.url: %w", orElse(state.Err, errors.New("there is no commit yet")))
		return now
	}
	s.tell(state, before)
	now.local = state.Tree.Local
	now.Source, now.Commit = state.Tree.Root, state.Tree.Head.Hash
	names, err := r.Clusters()
	if err != nil {
		now.Err = err
		return now
	}
	now.Clusters = s.pick(names)
	loaded, err := r.LoadAll(ctx, now.Clusters...)
	if err != nil {
		now.Err = err
		return now
	}
	now.loaded, now.Dirty = map[string]repo.Loaded{}, false
	for _, l := range loaded {
		now.loaded[l.Name] = l
		now.Dirty = now.Dirty || repo.Uncommitted(l.Err) || l.Cluster != nil && l.Cluster.Dirty
	}
	switch {
	case now.Dirty && !before.Dirty:
		s.log.Info("the work tree has uncommitted edits: they are desired, too", "commit", now.Commit)
	case before.Dirty && !now.Dirty:
		s.log.Info("the work tree is the commit again", "commit", now.Commit)
	}
	return now
}

func (s *source) tell(state gitrepo.State, before Desired) {
	switch {
	case state.Stale && !before.Stale:
		s.log.Warn("the repository could not be fetched; the last good commit is used", "since", state.Since, "err", state.Err)
	case !state.Stale && before.Stale:
		s.log.Info("the repository can be fetched again")
	}
	if head := state.Tree.Head.Hash; head != before.Commit {
		s.log.Info("desired state", "commit", head)
	}
}

func (s *source) pick(names []string) []string {
	if len(s.filter) == 0 {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(s.filter, n) })
}

// reopen opens the repository anew, so that proxops.yaml is read again. In URL
// mode the open one stays while the settings do: it knows the token that the
// clusters' secrets gave for the fetch.
func (s *source) reopen() (*repo.Repo, error) {
	r, err := s.open()
	if err != nil {
		return nil, err
	}
	signers, _ := os.Stat(r.Settings().Git.AllowedSigners)
	if r.URLMode() && s.repo != nil && reflect.DeepEqual(r.Settings(), s.repo.Settings()) && sameFile(signers, s.signers) {
		return s.repo, nil
	}
	s.repo, s.signers = r, signers
	return r, nil
}

func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
