package apply

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
)

// DefaultShutdown is how long a guest may take to shut down.
const DefaultShutdown = 3 * time.Minute

// Options bound a run. Zero values mean the default in brackets.
type Options struct {
	Parallel       int                       // objects worked on at a time [4]
	PerStorage     int                       // allocating tasks at a time on one storage [2]: PVE waits 10 s for a storage's lock
	MaxDisruptions int                       // running guests taken down at a time [1]
	Shutdown       time.Duration             // how long a guest may take to shut down [DefaultShutdown]
	Shared         func(storage string) bool // whether a storage is one for all nodes; nil = none is
	// WindowOpen says whether the restart window is open at this moment: no
	// guest that is bound to it is taken down after its end. nil = it is.
	WindowOpen func() bool
	// Stop, once closed, starts nothing more; what runs is followed to its end.
	// nil = only the context stops a run.
	Stop <-chan struct{}
	// Events hears of every action's start, progress and end. Calls do not
	// overlap; it must not block.
	Events func(Event)
}

// EventKind says what an Event tells.
type EventKind string

// The events of an action, in their order.
const (
	Started  EventKind = "started"
	Progress EventKind = "progress"
	Ended    EventKind = "ended"
)

// Event is one step of one action, for live progress.
type Event struct {
	Kind    EventKind
	Index   int // of the action in the plan
	Action  plan.Action
	UPID    string
	Elapsed time.Duration
	Lines   []string      // Progress: new lines of the task's log
	Note    string        // Progress: what is waited for from now on, and for how long at most; "" = no news
	Result  *ActionResult // Ended
}

// Run executes a plan: level by level, the objects of a level in parallel, the
// actions of one object in their order, so that no guest has two writers.
//
// When ctx ends nothing new is started; a task that runs is left to PVE. After
// Options.Stop nothing new is started either, but running tasks are followed
// to their end. One thing is finished in both cases: a guest that the run took
// down is brought up again, unless the context ended because of ErrFenced. The
// result holds every action of the plan in the plan's order, also those that
// were not reached.
func Run(ctx context.Context, c *pve.Client, p plan.Plan, o Options) Result {
	r := &run{c: c, o: o.defaults(), p: p, results: make([]ActionResult, len(p.Actions)), storages: map[string]chan struct{}{}}
	r.disrupt = make(chan struct{}, r.o.MaxDisruptions)
	before := c.Reader().Writes()
	for i, a := range p.Actions {
		r.results[i] = ActionResult{Action: a, Outcome: Deferred, Err: errInterrupted}
	}
	for _, level := range r.levels() {
		var g errgroup.Group
		g.SetLimit(r.o.Parallel)
		for _, chain := range level {
			g.Go(func() error {
				defer r.broke(chain)
				r.chain(ctx, chain)
				return nil
			})
		}
		_ = g.Wait()
	}
	res := Result{Actions: r.results, Writes: c.Reader().Writes() - before}
	notStarted, cut := res.Left()
	res.Interrupted = r.stopped(ctx) && notStarted+cut > 0
	return res
}

// broke keeps a panic to the object that it happened on: the others are not to
// suffer, nor the process.
func (r *run) broke(indexes []int) {
	p := recover()
	if p == nil {
		return
	}
	err := fmt.Errorf("broke off: %v\n%s", p, debug.Stack())
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range indexes {
		if errors.Is(r.results[i].Err, errInterrupted) {
			r.results[i].Outcome, r.results[i].Err = Unknown, err
		}
	}
}

var errInterrupted = errors.New("not started: interrupted")

// ErrFenced is the cause of a context that ends because somebody else may be
// writing to the cluster from now on: then not even a guest that is down is
// brought up again, since that is the other's to do.
var ErrFenced = errors.New("another agent may reconcile this cluster now")

// stopped reports whether nothing new is to be started.
func (r *run) stopped(ctx context.Context) bool {
	select {
	case <-r.o.Stop:
		return true
	default:
		return ctx.Err() != nil
	}
}

func fenced(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrFenced)
}

// outlasting gives a context that goes on after ctx has ended, unless that is
// because of ErrFenced.
func outlasting(ctx context.Context) (context.Context, func()) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if fenced(ctx) {
			end(ErrFenced)
		}
	})
	return out, func() { stop(); end(nil) }
}

func (o Options) defaults() Options {
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	if o.PerStorage <= 0 {
		o.PerStorage = 2
	}
	if o.MaxDisruptions <= 0 {
		o.MaxDisruptions = 1
	}
	if o.Shutdown <= 0 {
		o.Shutdown = DefaultShutdown
	}
	if o.WindowOpen == nil {
		o.WindowOpen = func() bool { return true }
	}
	if o.Shared == nil {
		o.Shared = func(string) bool { return false }
	}
	return o
}

// run is one Run under way.
type run struct {
	c       *pve.Client
	o       Options
	p       plan.Plan
	disrupt chan struct{}

	mu       sync.Mutex // guards what follows, and the order of events
	results  []ActionResult
	storages map[string]chan struct{}
	upset    error // a disruption failed: no further ones in this run
}

// levels groups the plan's actions: by level, and in it by object. The plan's
// order is kept in both.
func (r *run) levels() [][][]int {
	type key struct {
		vmid     int
		node, id string
	}
	var out [][][]int
	index := map[key]int{}
	for i, a := range r.p.Actions {
		if i == 0 || a.Level != r.p.Actions[i-1].Level {
			out = append(out, nil)
			index = map[key]int{}
		}
		k := key{vmid: a.VMID}
		if a.VMID == 0 {
			k = key{node: a.Node, id: a.ID}
		}
		last := &out[len(out)-1]
		at, ok := index[k]
		if !ok {
			at = len(*last)
			index[k] = at
			*last = append(*last, nil)
		}
		(*last)[at] = append((*last)[at], i)
	}
	return out
}

// chain runs the actions of one object. A failure defers the rest.
func (r *run) chain(ctx context.Context, indexes []int) {
	w := &worker{run: r}
	defer func() { w.endDisruption() }()
	var broken error
	defer r.restarted(indexes)
	for _, i := range indexes {
		a := r.p.Actions[i]
		switch {
		case r.stopped(ctx):
			continue // its result says already that it was not started
		case broken != nil:
			r.end(i, ActionResult{Action: a, Outcome: Deferred, Err: broken})
			continue
		}
		if err := r.prerequisite(a); err != nil {
			r.end(i, ActionResult{Action: a, Outcome: Deferred, Err: err})
			broken = err
			continue
		}
		res := r.one(ctx, w, i, a)
		if res.Outcome != Done && res.Outcome != Warned && !(a.RootOnly && a.Verb == plan.Update) {
			broken = fmt.Errorf("an earlier step of this object did not succeed: %s", a.Verb)
		}
	}
}

// restarted drops what the writes of one object left waiting for a restart
// where a later step took the guest down or up: PVE has put it into place.
func (r *run) restarted(indexes []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	power := false
	for _, i := range slices.Backward(indexes) {
		res := &r.results[i]
		if power {
			res.Waiting = nil
		}
		_, ok := res.Action.Do.(plan.PowerStep)
		power = power || ok && (res.Outcome == Done || res.Outcome == Warned)
	}
}

// one runs one action and tells of it.
func (r *run) one(ctx context.Context, w *worker, i int, a plan.Action) ActionResult {
	if a.RootOnly {
		return r.end(i, ActionResult{Action: a, Outcome: Failed, Err: fmt.Errorf("not sent: %s", a.Refused)})
	}
	if a.Disrupts {
		if err := w.beginDisruption(ctx, a); err != nil {
			return r.end(i, ActionResult{Action: a, Outcome: Deferred, Err: err})
		}
	}
	release, err := r.allocate(ctx, a)
	if err != nil {
		return r.end(i, ActionResult{Action: a, Outcome: Deferred, Err: errInterrupted})
	}
	defer release()
	if r.stopped(ctx) { // while it waited
		return r.end(i, ActionResult{Action: a, Outcome: Deferred, Err: errInterrupted})
	}
	start := time.Now()
	r.event(Event{Kind: Started, Index: i, Action: a})
	hooked := pve.WithTaskHook(ctx, func(e pve.TaskEvent) {
		r.event(Event{Kind: Progress, Index: i, Action: a, UPID: string(e.UPID), Elapsed: e.Elapsed, Lines: e.Lines})
	})
	if a.Disrupts && a.Verb != plan.Migrate { // the guest is to run again, whatever happens to ctx
		var cancel func()
		hooked, cancel = outlasting(hooked)
		defer cancel()
	}
	w.res = ActionResult{Action: a, Started: start}
	w.waits = func(note string) {
		r.event(Event{Kind: Progress, Index: i, Action: a, Elapsed: time.Since(start), Note: note})
	}
	w.settle(explained(w.do(hooked, a), a))
	w.res.Took = time.Since(start)
	if a.Disrupts && w.res.Outcome == Failed {
		r.mu.Lock()
		r.upset = fmt.Errorf("%s of %s failed: no further running guest is taken down in this run", a.Verb, a.Ref)
		r.mu.Unlock()
	}
	return r.end(i, w.res)
}

func (r *run) event(e Event) {
	if r.o.Events == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.o.Events(e)
}

func (r *run) end(i int, res ActionResult) ActionResult {
	r.mu.Lock()
	r.results[i] = res
	r.mu.Unlock()
	r.event(Event{Kind: Ended, Index: i, Action: res.Action, UPID: res.UPID, Elapsed: res.Took, Result: &res})
	return res
}

// prerequisite names an object that the action needs and that this run did not
// bring about.
func (r *run) prerequisite(a plan.Action) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, res := range r.results {
		done := res.Outcome == Done || res.Outcome == Warned
		if done || r.p.Actions[i].Level >= a.Level || !slices.Contains(a.Needs, res.Action.Ref) {
			continue
		}
		if d, ok := res.Action.Do.(plan.DownloadStep); ok && !slices.Contains(d.Nodes, a.Node) {
			continue
		}
		return fmt.Errorf("waits for %s, whose %s %s", res.Action.Ref, strings.ToLower(string(res.Action.Verb)), ended(res.Outcome))
	}
	return nil
}

// ended words an outcome that is no success.
func ended(o Outcome) string {
	switch o {
	case Failed:
		return "failed"
	case Deferred:
		return "was deferred"
	}
	return "has an unknown outcome"
}

// allocate waits until the storages that the action allocates on have room for
// one more task, always in the same order.
func (r *run) allocate(ctx context.Context, a plan.Action) (release func(), err error) {
	var held []chan struct{}
	release = func() {
		for _, ch := range held {
			<-ch
		}
	}
	for _, name := range r.locks(a) {
		r.mu.Lock()
		ch, ok := r.storages[name]
		if !ok {
			ch = make(chan struct{}, r.o.PerStorage)
			r.storages[name] = ch
		}
		r.mu.Unlock()
		select {
		case ch <- struct{}{}:
			held = append(held, ch)
		case <-r.o.Stop:
			release()
			return nil, errInterrupted
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
	return release, nil
}

// locks names the storages that an action allocates on: a local storage is
// another one on each node.
func (r *run) locks(a plan.Action) []string {
	var storages []string
	switch step := a.Do.(type) {
	case plan.DownloadStep:
		storages = []string{step.Storage}
	case plan.CreateStep:
		storages = step.Storages
	case plan.CloneStep:
		storages = step.Storages
	case plan.UpdateStep:
		storages = step.Storages
	case plan.ResizeStep:
		storages = []string{step.Storage}
	}
	var out []string
	for _, s := range storages {
		if !r.o.Shared(s) {
			s = a.Node + "/" + s
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Counts are the numbers of a result's outcomes.
func (r Result) Counts() map[Outcome]int {
	out := map[Outcome]int{}
	for _, a := range r.Actions {
		out[a.Outcome]++
	}
	return out
}

// OK reports whether an object's actions all succeeded.
func (r Result) OK(ref kind.Ref) bool {
	return !slices.ContainsFunc(r.Actions, func(a ActionResult) bool {
		return a.Action.Ref == ref && a.Outcome != Done && a.Outcome != Warned
	})
}
