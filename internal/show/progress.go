package show

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Writer is where Progress.Print lets others print.
type Writer = io.Writer

// Progress tells of actions while they run. Without a terminal it prints one
// line an event; on one, running actions have a line each at the bottom.
type Progress struct {
	mu   sync.Mutex
	w    io.Writer
	st   Style
	bars *mpb.Progress // nil without a terminal
	bar  map[key]*running
}

type key struct {
	cluster string
	index   int
}

type running struct {
	bar   *mpb.Bar
	mu    sync.Mutex
	last  string
	start time.Time
}

// NewProgress starts the display.
func NewProgress(w io.Writer, st Style, terminal bool) *Progress {
	p := &Progress{w: w, st: st, bar: map[key]*running{}}
	if terminal {
		p.bars = mpb.New(mpb.WithOutput(w), mpb.WithRefreshRate(150*time.Millisecond), mpb.WithWidth(4))
	}
	return p
}

// Print lets f print above the running actions.
func (p *Progress) Print(f func(Writer)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	f(&b)
	p.write(b.String())
}

func (p *Progress) write(s string) {
	if p.bars != nil {
		_, _ = p.bars.Write([]byte(s))
		return
	}
	_, _ = io.WriteString(p.w, s)
}

// Event tells of one event of one cluster's apply.
func (p *Progress) Event(cluster string, e apply.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := key{cluster, e.Index}
	switch e.Kind {
	case apply.Started:
		if p.bars != nil {
			p.bar[k] = p.spin(cluster + ": " + subject(p.st, e))
			return
		}
		p.write(cluster + ": " + subject(p.st, e) + " …\n")
	case apply.Progress:
		r, last := p.bar[k], e.Note
		if n := len(e.Lines); n > 0 {
			last = e.Lines[n-1]
		}
		switch {
		case r != nil && last != "":
			r.mu.Lock()
			r.last = Clean(last)
			r.mu.Unlock()
		case r == nil && e.Note != "":
			p.write(cluster + ": " + subject(p.st, e) + " " + Clean(e.Note) + " …\n")
		}
	case apply.Ended:
		if r := p.bar[k]; r != nil {
			r.bar.Abort(true)
			delete(p.bar, k)
		}
		p.write(cluster + ": " + subject(p.st, e) + " " + ended(p.st, e) + "\n")
	}
}

func (p *Progress) spin(name string) *running {
	r := &running{start: time.Now()}
	r.bar = p.bars.New(1, mpb.SpinnerStyle(), mpb.BarRemoveOnComplete(),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
			r.mu.Lock()
			defer r.mu.Unlock()
			s := fmt.Sprintf(" %s  %s", name, time.Since(r.start).Round(time.Second))
			if r.last != "" {
				s += "  " + r.last
			}
			return s
		})))
	return r
}

// subject names an action; a delete with its reason, which nobody can look up
// in a manifest.
func subject(st Style, e apply.Event) string {
	a := e.Action
	s := fmt.Sprintf("%s  %s  %s", st.verb(a.Verb), a.Ref.Kind+"/"+Clean(a.Ref.Name), Clean(strings.TrimPrefix(a.Node+"/"+a.ID, "/")))
	if why := reason(a); a.Verb == plan.Delete && why != "" {
		s += "  " + st.dim(why)
	}
	return s
}

func ended(st Style, e apply.Event) string {
	if e.Result == nil {
		return "ended"
	}
	took := ""
	if e.Result.Took >= 100*time.Millisecond {
		took = st.dim(fmt.Sprintf(" (%s)", e.Result.Took.Round(100*time.Millisecond)))
	}
	return outcome(st, *e.Result) + took
}

func outcome(st Style, r apply.ActionResult) string {
	switch r.Outcome {
	case apply.Done:
		return st.good("done")
	case apply.Warned:
		return st.warn("done with warnings: ") + Clean(strings.Join(r.Warnings, "; "))
	case apply.Deferred:
		return st.warn("deferred: ") + errText(r.Err)
	case apply.Unknown:
		return st.bad("outcome unknown: ") + errText(r.Err)
	}
	return st.bad("failed: ") + errText(r.Err)
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return Clean(first)
}

// Close ends the display.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.bar {
		r.bar.Abort(true)
	}
	if p.bars != nil {
		p.bars.Wait()
	}
}

// Applied prints what became of each cluster's plan: what did not go well with
// its reason and log tail, what waits, then totals. A plan that was not to run
// is printed itself, unless shown says that it was already.
func Applied(w io.Writer, st Style, reports []reconcile.Report, shown bool) {
	for _, r := range reports {
		if r.Pending() && !shown {
			Section(w, st, r)
			continue
		}
		fmt.Fprintln(w, st.bold("=== "+r.Cluster+" ==="))
		if r.Abort != nil {
			Problems(w, st, r.Abort)
		}
		if r.Result != nil {
			applied(w, st, *r.Result)
		}
		p := r.Plan
		p.Actions = nil
		if findings(w, st, p) {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, st.bold(r.Cluster+": ")+result(r))
		fmt.Fprintln(w)
	}
}

func applied(w io.Writer, st Style, res apply.Result) {
	for _, a := range res.Actions {
		switch {
		case a.Outcome == apply.Done && len(a.Waiting) == 0:
			continue
		case a.Outcome == apply.Done:
			fmt.Fprintf(w, "%s  %s\n", st.verb(a.Action.Verb), object(a.Action.Ref.Kind, a.Action.Ref.Name))
			fmt.Fprintf(w, "    %s%s\n", st.warn("waits for restart: "), Clean(strings.Join(a.Waiting, ", ")))
			continue
		}
		fmt.Fprintf(w, "%s  %s  %s\n", st.verb(a.Action.Verb), object(a.Action.Ref.Kind, a.Action.Ref.Name), outcome(st, a))
		for _, l := range a.Tail {
			fmt.Fprintln(w, "    "+st.dim("| ")+Clean(l))
		}
		if a.Todo != "" {
			fmt.Fprintln(w, "    "+st.dim("→ "+Clean(a.Todo)))
		}
	}
}

func result(r reconcile.Report) string {
	left := remains{waiting: r.States()[plan.WaitingRestart]}
	left.add(r)
	if r.Result == nil {
		if len(r.Plan.Actions) == 0 && r.Abort == nil {
			return "nothing to do for " + plural(r.Declared(), "object") + left.String()
		}
		if r.Pending() {
			return "read-only: nothing was applied"
		}
		if notRead(r) {
			return "not read, " + plural(Faults(r.Abort), "error") + "; nothing was applied"
		}
		return "nothing was applied"
	}
	by := r.Result.Counts()
	s := fmt.Sprintf("%d of %s done", by[apply.Done]+by[apply.Warned], plural(len(r.Result.Actions), "action"))
	for _, x := range []struct {
		o    apply.Outcome
		what string
	}{{apply.Warned, "with warnings"}, {apply.Failed, "failed"}, {apply.Deferred, "deferred"}, {apply.Unknown, "with unknown outcome"}} {
		if by[x.o] > 0 {
			s += fmt.Sprintf(", %d %s", by[x.o], x.what)
		}
	}
	return s + left.String()
}
