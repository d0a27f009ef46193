// Package forge tells GitHub, GitLab, Gitea or Forgejo, on the commit itself,
// what became of it on each cluster.
package forge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

// State is what a status says of a commit.
type State string

// The states, in the words of GitHub and Gitea.
const (
	Pending State = "pending"
	Success State = "success"
	Failure State = "failure"
)

// status is one commit's on one cluster.
type status struct {
	commit, cluster string
	state           State
	text            string
}

// Options are what a Reporter works with.
type Options struct {
	// Token gives a token that may write statuses. It is asked for each time.
	Token func(ctx context.Context, cluster string) (secret.Text, error)
	Log   *slog.Logger // nil = silent
}

// Reporter sends the newest status of each cluster. None of its methods but
// Close waits for the forge.
type Reporter struct {
	o     Options
	retry time.Duration // first pause after a failed try; it doubles
	wake  chan struct{}
	stop  context.CancelFunc
	done  chan struct{}

	mu       sync.Mutex
	api      *api             // nil = nothing is told
	settings repo.GitSettings // that api was made from
	made     bool             // api is what settings say; false = they could not be used yet
	pending  map[string]status
	last     map[string]status    // by cluster: queued, sent or refused
	refused  map[string]time.Time // by cluster: when the forge refused the last

	fault string // the last one logged; only run's
}

const (
	// giveUp is how long one status is tried.
	giveUp = 10 * time.Minute
	// refusedFor is for how long the same status is not offered to a forge again
	// that refused it: a token may be mended meanwhile, or a commit be pushed.
	refusedFor = time.Hour
)

// New makes a reporter that tells nothing until it is configured.
func New(o Options) *Reporter {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Reporter{o: o, retry: 5 * time.Second, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{}),
		pending: map[string]status{}, last: map[string]status{}, refused: map[string]time.Time{}}
	go r.run(ctx)
	return r
}

// Configure takes over git.*. The error says what is missing; nothing is told
// then. Other settings than before are told everything anew.
func (r *Reporter) Configure(g repo.GitSettings) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := reflect.DeepEqual(g, r.settings)
	if same && r.made {
		return nil
	}
	if !same {
		clear(r.last)
		clear(r.refused)
	}
	r.settings = g
	r.api, err = newAPI(g)
	r.made = err == nil
	return err
}

// Begin tells that a commit waits for its first cycle on the clusters.
func (r *Reporter) Begin(commit string, clusters []string) {
	for _, c := range clusters {
		r.mu.Lock()
		known := r.last[c].commit == commit
		r.mu.Unlock()
		if !known {
			r.offer(status{commit, c, Pending, "waits for its cycle"})
		}
	}
}

// Finished tells what a cycle made of its commit.
func (r *Reporter) Finished(rep *reconcile.Report) {
	if state, text, ok := verdict(rep); ok {
		r.offer(status{rep.Commit, rep.Cluster, state, text})
	}
}

// Forget drops what is known of a cluster that is no longer declared.
func (r *Reporter) Forget(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, cluster)
	delete(r.last, cluster)
	delete(r.refused, cluster)
}

func (r *Reporter) offer(s status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.api == nil || s.commit == "" {
		return
	}
	if at, refused := r.refused[s.cluster]; r.last[s.cluster] == s && (!refused || time.Since(at) < refusedFor) {
		return
	}
	delete(r.refused, s.cluster)
	r.last[s.cluster], r.pending[s.cluster] = s, s
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// verdict is what a report says of its commit: figures only, since a status may
// be public. ok is false for cycles that say nothing of it.
func verdict(rep *reconcile.Report) (State, string, bool) {
	c := rep.Counts()
	switch {
	case errors.Is(rep.Abort, reconcile.ErrStopping), errors.Is(rep.Abort, apply.ErrFenced), rep.Result != nil && rep.Result.Interrupted:
		return "", "", false
	case rep.Dirty: // what became of uncommitted edits is nothing of the commit's
		return "", "", false
	case rep.BadFiles:
		return Failure, "the cluster's files cannot be loaded", true
	case rep.Abort != nil:
		return Pending, "the cluster cannot be reconciled at present", true
	}
	open, waiting := 0, 0
	for state, n := range rep.States() {
		switch state {
		case plan.Converged, plan.Anomalous:
		case plan.WaitingRestart:
			waiting += n
		default:
			open += n
		}
	}
	for _, o := range rep.Objects {
		if o.Undeclared() && o.State != plan.Pruned {
			open++
		}
	}
	text := fmt.Sprintf("%d objects", c.Objects)
	if c.Objects == 1 {
		text = "1 object"
	}
	for _, n := range []struct {
		n    int
		what string
	}{{c.ActionsError, "failed"}, {open, "not as declared"}, {waiting, "waiting for a restart"}, {c.Anomalies, "anomalies"}} {
		if n.n > 0 {
			text += fmt.Sprintf(", %d %s", n.n, n.what)
		}
	}
	switch {
	case c.ActionsError > 0:
		return Failure, text, true
	case rep.ReadOnly && open > 0:
		return Pending, "read-only: " + text, true
	case open > 0:
		return Pending, text, true
	}
	return Success, text, true
}

// run sends until ctx ends.
func (r *Reporter) run(ctx context.Context) {
	defer close(r.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		r.mu.Lock()
		list := r.pending
		r.pending = map[string]status{}
		r.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(list)) {
			r.send(ctx, list[name])
		}
	}
}

// send tries one status until it is sent, refused for good, out of date, or
// not worth it any more.
func (r *Reporter) send(ctx context.Context, s status) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.Multiplier, pause.MaxInterval = r.retry, 2, 2*time.Minute
	refused := false
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		r.mu.Lock()
		api, current := r.api, r.last[s.cluster]
		r.mu.Unlock()
		if api == nil || current != s {
			return struct{}{}, nil
		}
		token, err := r.o.Token(ctx, s.cluster)
		if err != nil {
			return struct{}{}, backoff.Permanent(err)
		}
		err = api.post(ctx, token, s)
		refused = errors.As(err, new(*backoff.PermanentError))
		return struct{}{}, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(giveUp))
	if err != nil {
		r.mu.Lock()
		switch {
		case r.last[s.cluster] != s: // there is a newer one
		case refused:
			r.refused[s.cluster] = time.Now()
		default: // the next cycle tries again
			delete(r.last, s.cluster)
		}
		r.mu.Unlock()
	}
	switch {
	case ctx.Err() != nil:
	case err == nil:
		r.fault = ""
	case err.Error() != r.fault: // the same for the next commit need not be said
		r.fault = err.Error()
		r.o.Log.Warn("a commit status was not accepted", "cluster", s.cluster, "commit", s.commit, "err", err)
	}
}

// Close ends, and waits for a status under way until ctx ends.
func (r *Reporter) Close(ctx context.Context) {
	r.stop()
	select {
	case <-r.done:
	case <-ctx.Done():
	}
}
