package reconcile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/gitrepo"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/repo"
)

// ErrStopping is in the error of a cycle that ended early because the daemon
// stops or its cluster is no longer declared.
var ErrStopping = errors.New("the agent is stopping")

// loop is one cluster's loop. Its cycles never overlap: one goroutine runs
// them all.
type loop struct {
	d    *Daemon
	name string
	log  *slog.Logger
	gone chan struct{} // closed when the cluster is no longer declared
	kick chan struct{}

	client *pve.Client
	access [sha256.Size]byte // what client was made from
	held   holds
	said   gitrepo.Memory
	seen   sightings

	mu sync.Mutex // guards st, and orders what Observe hears
	st Standing
}

func newLoop(d *Daemon, name string) *loop {
	return &loop{d: d, name: name, log: d.log.With("cluster", name), gone: make(chan struct{}), kick: make(chan struct{}, 1), st: Standing{Cluster: name}}
}

// poke asks for a cycle as soon as none runs.
func (l *loop) poke() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// update changes the standing and tells of it.
func (l *loop) update(f func(*Standing)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.st)
	if l.d.o.Observe != nil {
		l.d.o.Observe(l.st)
	}
}

// ended reports whether the loop is to start nothing more.
func (l *loop) ended() bool {
	select {
	case <-l.d.stop:
		return true
	case <-l.gone:
		return true
	default:
		return false
	}
}

// run runs cycles whenever this agent owns the cluster, until the daemon stops
// or the cluster is gone. ctx cuts everything off.
func (l *loop) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.close()
	for !l.ended() {
		own, err := l.own(ctx)
		if err != nil {
			if !l.ended() {
				l.log.Error("waiting for the right to reconcile", "err", err)
				l.sleep(ctx, defaultEvery)
			}
			continue
		}
		l.guarded(own)
		l.update(func(s *Standing) { s.Mine, s.Next, s.Running, s.Active = false, time.Time{}, false, nil })
		own.Release()
	}
}

// own waits for the right to reconcile; the wait ends with the loop.
func (l *loop) own(ctx context.Context) (Ownership, error) {
	if l.d.o.Own == nil {
		return Ownership{Context: ctx, Release: func() {}}, nil
	}
	l.update(func(*Standing) {})
	giveUp := make(chan struct{})
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer close(giveUp)
		select {
		case <-l.d.stop:
		case <-l.gone:
		case <-done:
		}
	}()
	return l.d.o.Own(ctx, l.name, giveUp)
}

// strictContext asks the right itself each time whether it still holds: a
// process that was suspended finds out before it acts, not when a timer of its
// gets to run.
type strictContext struct {
	context.Context
	right context.Context
}

func (c strictContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	return c.right.Err()
}

// guarded runs cycles; a panic in the loop itself costs one round.
func (l *loop) guarded(own Ownership) {
	defer func() {
		if r := recover(); r != nil {
			l.log.Error("the loop broke off and starts anew", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			l.sleep(own.Context, defaultEvery)
		}
	}()
	l.cycles(own)
}

func (l *loop) cycles(own Ownership) {
	d := firstWait(l.d.src.latest().every(), draw())
	for {
		due := time.Now().Add(d)
		l.update(func(s *Standing) { s.Mine, s.Next = true, due })
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-l.kick:
		case <-own.Yield:
		case <-own.Context.Done():
		case <-l.d.stop:
		case <-l.gone:
		}
		t.Stop()
		if own.Context.Err() != nil || l.ended() || yields(own) {
			return
		}
		d = l.cycle(own.Context)
		if own.Context.Err() != nil || l.ended() || yields(own) {
			return
		}
	}
}

func yields(o Ownership) bool {
	select {
	case <-o.Yield:
		return true
	default:
		return false
	}
}

// cycle runs one cycle and gives the wait until the next.
func (l *loop) cycle(own context.Context) time.Duration {
	select { // what was asked for until now is served by this cycle
	case <-l.kick:
	default:
	}
	now := time.Now()
	l.update(func(s *Standing) {
		s.Running, s.Started, s.LastSign, s.Next, s.Active = true, now, now, time.Time{}, nil
	})
	desired := l.d.src.look(own, l.d.src.age())
	previous := l.st.Report // only this goroutine sets it
	rep := l.attempt(own, desired, previous)
	failures := l.judge(desired, rep, previous)
	d := wait(desired.every(), failures, draw())
	l.update(func(s *Standing) {
		s.Running, s.Report, s.LastSign, s.Active = false, rep, rep.Finished, nil
		s.Failures, s.Cycles = failures, s.Cycles+1
		s.Every, s.Next = desired.every(), time.Now().Add(d)
	})
	if l.d.o.Finished != nil {
		l.d.o.Finished(rep, previous)
	}
	return d
}

// attempt is the cycle itself. When the daemon stops before anything is
// written the cycle is cut off; after that apply finishes what runs.
func (l *loop) attempt(own context.Context, desired Desired, previous *Report) *Report {
	ctx, cancel := context.WithCancelCause(own)
	defer cancel(nil)
	var writing atomic.Bool
	stop := make(chan struct{})
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-l.d.stop:
		case <-l.gone:
		case <-over:
			return
		}
		close(stop)
		if !writing.Load() {
			cancel(ErrStopping)
		}
	}()
	rep := Cycle(strictContext{ctx, own}, Options{
		Cluster:    l.name,
		Load:       func(context.Context) (*repo.Cluster, error) { return desired.load(l.name) },
		Connect:    l.connect,
		Neighbour:  l.d.o.Connect,
		Write:      true,
		Previous:   previous,
		Stale:      desired.Stale,
		StaleSince: desired.Since,
		Settled: func(head string, vmids []int) map[int]bool {
			return l.seen.settled(desired.At, desired.every(), head, vmids)
		},
		Hold:   l.held.hold,
		Memory: &l.said,
		Apply: apply.Options{Stop: stop, Events: func(e apply.Event) {
			l.update(func(s *Standing) { s.follow(e, time.Now()) })
		}},
		Planned: func(plan.Plan) error {
			writing.Store(true)
			if l.ended() {
				return ErrStopping
			}
			return nil
		},
	})
	l.seen.ended()
	if rep.Abort != nil && l.ended() && !errors.Is(rep.Abort, ErrStopping) {
		rep.Abort = fmt.Errorf("%w: %w", ErrStopping, rep.Abort)
	}
	if rep.Abort != nil && errors.Is(own.Err(), apply.ErrFenced) && !errors.Is(rep.Abort, apply.ErrFenced) {
		rep.Abort = fmt.Errorf("%w: %w", apply.ErrFenced, rep.Abort)
	}
	if rep.Commit == "" { // the files have faults: they are that commit's, or edits on it
		rep.Commit, rep.Dirty = desired.Commit, repo.Uncommitted(rep.Abort)
	}
	return &rep
}

// judge logs the end of a cycle and counts the cycles in a row that broke off
// on the cluster. Faults of the files do not count: nothing was asked of PVE,
// and the next look may be at better files.
func (l *loop) judge(desired Desired, rep, previous *Report) int {
	l.held.learn(rep, desired.every())
	c := rep.Counts()
	attrs := []any{"commit", short(rep.Commit), "took", rep.Finished.Sub(rep.Started).Round(time.Millisecond), "objects", rep.states(),
		"done", c.ActionsOK, "errors", c.ActionsError, "anomalies", c.Anomalies, "suppressed", len(rep.Plan.Suppressed)}
	if rep.Dirty {
		attrs = slices.Insert(attrs, 2, any("uncommitted_edits"), any(true))
	}
	switch {
	case errors.Is(rep.Abort, ErrStopping):
		l.log.Info("cycle ended early: the agent is stopping")
		return l.st.Failures
	case errors.Is(rep.Abort, apply.ErrFenced):
		l.log.Warn("cycle ended early", "err", rep.Abort)
		return l.st.Failures
	case rep.Abort != nil:
		if previous == nil || previous.Abort == nil || previous.Abort.Error() != rep.Abort.Error() {
			l.log.Error("cycle broke off", append(attrs, "err", rep.Abort)...)
		} else {
			l.log.Debug("cycle broke off as before", append(attrs, "err", rep.Abort)...)
		}
		if _, err := desired.load(l.name); err != nil {
			return 0
		}
		return l.st.Failures + 1
	default:
		l.logActions(rep)
		if rep.ReadOnly {
			attrs = append(attrs, "readonly", true, "pending", len(rep.Plan.Actions))
		}
		level := slog.LevelDebug // what goes on as before is no news
		if c.ActionsOK > 0 || previous == nil || previous.Abort != nil || rep.differs(previous) {
			level = slog.LevelInfo
		}
		l.log.Log(context.Background(), level, "cycle", attrs...)
	}
	if previous != nil && previous.Abort != nil {
		l.log.Info("cycles complete again")
	}
	return 0
}

// logActions tells of each action; of one that is held back it was told when it
// failed.
func (l *loop) logActions(rep *Report) {
	if rep.Result == nil {
		return
	}
	for _, a := range rep.Result.Actions {
		attrs := []any{"action", a.Action.Verb, "object", a.Action.Ref.String(), "node", a.Action.Node, "id", a.Action.ID, "why", a.Action.Why, "outcome", a.Outcome}
		if a.UPID != "" {
			attrs = append(attrs, "task", a.UPID)
		}
		if a.Err != nil {
			attrs = append(attrs, "err", a.Err)
		}
		if a.Todo != "" {
			attrs = append(attrs, "todo", a.Todo)
		}
		level := slog.LevelInfo
		switch {
		case errors.Is(a.Err, ErrHeld):
			level = slog.LevelDebug
		case a.Outcome == apply.Failed || a.Outcome == apply.Unknown:
			level = slog.LevelError
		}
		l.log.Log(context.Background(), level, "action", attrs...)
	}
}

func short(hash string) string { return hash[:min(10, len(hash))] }

// connect keeps the client, with its connections and its ticket, for as long
// as the cluster's access is the same.
func (l *loop) connect(c *repo.Cluster) (*pve.Client, error) {
	key := accessKey(c)
	if l.client != nil && key == l.access {
		return l.client, nil
	}
	client, err := l.d.o.Connect(c)
	if err != nil {
		return nil, err
	}
	if l.client != nil {
		l.log.Info("the cluster's access changed: connecting anew")
		l.client.Close()
	}
	l.client, l.access = client, key
	return client, nil
}

// accessKey is a digest of everything that a client is made from.
func accessKey(c *repo.Cluster) [sha256.Size]byte {
	s := c.Secrets
	parts := slices.Concat([]string{c.Config.BaseURL, c.Config.CAFile, string(c.Config.CA), c.Config.Fingerprint, c.Config.Auth,
		s.User, s.TokenID, s.Token.Reveal(), s.Password.Reveal(), c.Reconcile.TaskTimeout.String(), "endpoints"}, c.Config.Endpoints, []string{"nodes"}, c.Config.Nodes)
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// sleep waits, but not longer than the loop lives.
func (l *loop) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-l.d.stop:
	case <-l.gone:
	}
}

func (l *loop) close() {
	if l.client != nil {
		l.client.Close()
	}
	select {
	case <-l.gone:
		l.log.Info("the cluster is no longer declared")
		if l.d.o.Gone != nil {
			l.d.o.Gone(l.name)
		}
	default:
	}
}
