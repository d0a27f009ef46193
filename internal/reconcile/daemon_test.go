package reconcile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
)

// A cluster that cannot be reached is asked less and less often, and delays no
// other.
func TestBrokenClusterDelaysNone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "good", "bad", "fine")
		defer e.stop()
		e.breakCluster("bad", errNoRoute)
		e.run(e.options(), func(*Daemon) { time.Sleep(time.Hour) })
		for _, name := range []string{"good", "fine"} {
			if rep := e.last(name); !rep.Converged() {
				t.Errorf("%s: %v %+v", name, rep.Abort, rep.Objects)
			}
			starts := e.starts[name]
			if n := len(starts); n < 115 || n > 135 {
				t.Errorf("%s: %d cycles in an hour at 30 s", name, n)
			}
			for i := 1; i < len(starts); i++ {
				if gap := starts[i].Sub(starts[i-1]); gap < 26*time.Second || gap > 32*time.Second {
					t.Errorf("%s: %s between two cycles", name, gap)
				}
			}
		}
		bad := e.starts["bad"]
		if n := len(bad); n < 10 || n > 20 {
			t.Errorf("bad: %d cycles in an hour", n)
		}
		if gap := bad[len(bad)-1].Sub(bad[len(bad)-2]); gap < 4*time.Minute || gap > 6*time.Minute {
			t.Errorf("bad: at last %s between two cycles", gap)
		}
	})
}

func TestRecoversAfterBackoff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "lab")
		defer e.stop()
		e.breakCluster("lab", errNoRoute)
		e.run(e.options(), func(d *Daemon) {
			time.Sleep(20 * time.Minute)
			if st := e.stands("lab"); st.Failures < 4 || st.Report.Abort == nil {
				t.Errorf("%+v", st)
			}
			e.breakCluster("lab", nil)
			d.Kick("test") // somebody who knows that it is back need not wait
			time.Sleep(10 * time.Second)
			if st := e.stands("lab"); st.Failures != 0 || st.Report.Abort != nil {
				t.Errorf("%+v", st)
			}
		})
	})
}

// What changes in the repository is picked up without a restart: manifests,
// clusters, access.
func TestPicksUpChanges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "one")
		defer e.stop()
		e.run(e.options(), func(*Daemon) {
			time.Sleep(time.Minute)
			if !e.last("one").Converged() {
				t.Fatalf("%+v", e.last("one"))
			}
			e.vms("one", vmText("web", 100, "512MiB"), vmText("db", 101, "1GiB"))
			e.cluster("two")
			time.Sleep(time.Minute)
			if got := e.last("one"); len(got.Objects) != 2 || !got.Converged() {
				t.Errorf("%+v", got.Objects)
			}
			if !e.last("two").Converged() {
				t.Errorf("%+v", e.last("two"))
			}
			if n := e.connects["one"]; n != 1 {
				t.Errorf("the client was made %d times for the same access", n)
			}
			e.write("clusters/one/config.yaml", "pve:\n  clusters:\n    one:\n      base-url: https://other.example.org\n      nodes: [pve01]\n")
			if err := os.RemoveAll(filepath.Join(e.dir, "clusters/two")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if n := e.connects["one"]; n != 2 {
				t.Errorf("the client was made %d times after the access changed once", n)
			}
			if !slices.Equal(e.gone, []string{"two"}) {
				t.Errorf("gone: %v", e.gone)
			}
			n := e.count("two")
			time.Sleep(5 * time.Minute)
			if e.count("two") != n {
				t.Error("a cluster that is no longer declared is still reconciled")
			}
			if w := e.writes("two"); slices.ContainsFunc(w, func(s string) bool { return strings.HasPrefix(s, "DELETE") }) {
				t.Errorf("taking a cluster out of the repository deleted guests: %v", w)
			}
		})
	})
}

// A fault in the files stops what it concerns, until it is gone; nothing is
// asked of PVE meanwhile, and nobody has to wait out a backoff.
func TestFaultsOfFiles(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "one", "two")
		defer e.stop()
		e.run(e.options(), func(*Daemon) {
			time.Sleep(time.Minute)
			e.vms("one", "kind: Nonsense\n")
			time.Sleep(time.Minute)
			e.world("one").ForgetRequests()
			time.Sleep(10 * time.Minute)
			if rep := e.last("one"); rep.Abort == nil || len(e.world("one").Requests()) != 0 {
				t.Errorf("%v, %d requests", rep.Abort, len(e.world("one").Requests()))
			}
			if !e.last("two").Converged() {
				t.Error("a fault of one cluster's files concerns another")
			}
			e.vms("one", vmText("web", 100, "512MiB"))
			time.Sleep(35 * time.Second)
			if !e.last("one").Converged() {
				t.Errorf("%v", e.last("one").Abort)
			}
			e.write("proxops.yaml", "nonsense: 1\n")
			time.Sleep(time.Minute)
			for _, name := range []string{"one", "two"} {
				if rep := e.last(name); rep.Abort == nil || !strings.Contains(rep.Abort.Error(), "nonsense") {
					t.Errorf("%s: %v", name, rep.Abort)
				}
			}
			e.write("proxops.yaml", "reconcile: {poll-interval: 5m}\n")
			time.Sleep(time.Minute)
			n := e.count("two")
			time.Sleep(time.Hour)
			if got := e.count("two") - n; got < 11 || got > 15 {
				t.Errorf("%d cycles in an hour at 5m", got)
			}
		})
	})
}

func TestReadOnlyClusterIsNeverWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{})
		e.cluster("look", "      reconcile: {read-only: true}\n")
		e.cluster("work")
		defer e.stop()
		e.run(e.options(), func(*Daemon) { time.Sleep(10 * time.Minute) })
		if w := e.writes("look"); len(w) > 0 {
			t.Errorf("a read-only cluster was written: %v", w)
		}
		if rep := e.last("look"); !rep.ReadOnly || rep.Abort != nil || len(rep.Plan.Actions) == 0 {
			t.Errorf("the drift is not reported: %+v", rep)
		}
		if len(e.writes("work")) == 0 {
			t.Error("the other was not written either")
		}
	})
}

// A stop while a task runs: the task is followed to its end and written down,
// and nothing else is started.
func TestStopFollowsRunningTasks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{TimeScale: 1}, "lab")
		defer e.stop()
		var docs []string
		for i := range 20 {
			docs = append(docs, vmText("vm-"+string(rune('a'+i)), 100+i, "512MiB"))
		}
		e.vms("lab", docs...)
		var stopped time.Time
		e.run(e.options(), func(*Daemon) {
			for len(e.writes("lab")) < 3 {
				time.Sleep(50 * time.Millisecond)
			}
			synctest.Wait()
			stopped = time.Now()
		})
		rep := e.last("lab")
		if rep.Result == nil || !rep.Result.Interrupted {
			t.Fatalf("the run was not interrupted: %v", rep.Abort)
		}
		done := 0
		for _, a := range rep.Result.Actions {
			switch a.Outcome {
			case apply.Done:
				done++
			case apply.Deferred:
			default:
				t.Errorf("%s %s: %s %v", a.Action.Verb, a.Action.Ref, a.Outcome, a.Err)
			}
			if a.Started.After(stopped) {
				t.Errorf("%s %s was started after the stop", a.Action.Verb, a.Action.Ref)
			}
		}
		if done == 0 || done > 8 {
			t.Errorf("%d of 20 guests were made", done)
		}
	})
}

// A cut-off connection does not keep the process from ending.
func TestStopEndsAfterGrace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{TimeScale: 1e6}, "lab") // tasks take days
		defer e.stop()
		var stopped time.Time
		e.run(e.options(), func(*Daemon) {
			time.Sleep(time.Minute)
			stopped = time.Now()
		})
		if took := time.Since(stopped); took < 30*time.Second || took > 75*time.Second {
			t.Errorf("the stop took %s", took)
		}
	})
}

func TestStopWhileReadingIsPrompt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{Latency: 20 * time.Second}, "lab")
		defer e.stop()
		var stopped time.Time
		e.run(e.options(), func(*Daemon) {
			time.Sleep(30 * time.Second)
			stopped = time.Now()
		})
		if took := time.Since(stopped); took > 2*time.Second {
			t.Errorf("the stop took %s", took)
		}
		if w := e.writes("lab"); len(w) > 0 {
			t.Errorf("written: %v", w)
		}
		if rep := e.last("lab"); !errors.Is(rep.Abort, ErrStopping) || e.stands("lab").Failures != 0 {
			t.Errorf("the stop is told as a fault: %v", rep.Abort)
		}
	})
}

// A panic costs the cluster that it happened on one cycle, and nobody else
// anything.
func TestPanicIsContained(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "bad", "good")
		defer e.stop()
		o := e.options()
		o.Connect = func(c *repo.Cluster) (*pve.Client, error) {
			if c.Name == "bad" {
				panic("index out of range")
			}
			return e.connect(c)
		}
		observe := o.Observe
		o.Observe = func(s Standing) {
			observe(s)
			if s.Cluster == "good" && len(s.Active) == 1 && e.count("good") == 1 {
				panic("while an action runs") // reaches the goroutine of the action
			}
		}
		e.run(o, func(*Daemon) { time.Sleep(10 * time.Minute) })
		if rep := e.last("bad"); rep.Abort == nil || !strings.Contains(rep.Abort.Error(), "index out of range") {
			t.Errorf("%v", rep.Abort)
		}
		if rep := e.last("good"); !rep.Converged() {
			t.Errorf("%v %+v", rep.Abort, rep.Objects)
		}
	})
}

// The moment the right to reconcile is lost nothing more is started, also not
// by a process whose timers did not run yet.
func TestFencedAtOnce(t *testing.T) {
	for _, timer := range []bool{true, false} {
		inBubble(t, func(t *testing.T) {
			e := newEstate(t, pvesim.Options{TimeScale: 1}, "lab")
			defer e.stop()
			var docs []string
			for i := range 12 {
				docs = append(docs, vmText("vm-"+string(rune('a'+i)), 100+i, "512MiB"))
			}
			e.vms("lab", docs...)
			right := &fakeRight{lost: make(chan struct{})}
			o := e.options()
			first := true
			o.Own = func(ctx context.Context, _ string, giveUp <-chan struct{}) (Ownership, error) {
				if !first {
					<-giveUp
					return Ownership{}, errors.New("given up")
				}
				first = false
				inner, cut := context.WithCancelCause(ctx)
				right.Context, right.cut = inner, cut
				return Ownership{Context: right, Release: func() {}}, nil
			}
			e.run(o, func(*Daemon) {
				for len(e.writes("lab")) < 3 {
					time.Sleep(50 * time.Millisecond)
				}
				synctest.Wait()
				close(right.lost)
				if timer {
					right.cut(apply.ErrFenced)
				}
				synctest.Wait()
				n := len(e.writes("lab"))
				time.Sleep(5 * time.Minute)
				if w := e.writes("lab"); len(w) != n {
					t.Errorf("timer %v: written after the right was lost: %v", timer, w[n:])
				}
				if !timer { // the running tasks are still followed
					return
				}
				if rep, st := e.last("lab"), e.stands("lab"); !errors.Is(rep.Abort, apply.ErrFenced) || st.Mine || st.Failures != 0 {
					t.Errorf("the lost right is told as a fault: %v, %+v", rep.Abort, st)
				}
			})
		})
	}
}

// fakeRight is a right whose context ends with or without a timer.
type fakeRight struct {
	context.Context
	cut  context.CancelCauseFunc
	lost chan struct{}
}

func (f *fakeRight) Err() error {
	select {
	case <-f.lost:
		return apply.ErrFenced
	default:
		return f.Context.Err()
	}
}

// A cluster is handed over between two cycles, not in one.
func TestYield(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "lab")
		defer e.stop()
		yield := make(chan struct{})
		released := 0
		o := e.options()
		o.Own = func(ctx context.Context, _ string, giveUp <-chan struct{}) (Ownership, error) {
			if released > 0 {
				<-giveUp
				return Ownership{}, errors.New("given up")
			}
			return Ownership{Context: ctx, Yield: yield, Release: func() { released++ }}, nil
		}
		e.run(o, func(*Daemon) {
			time.Sleep(time.Minute)
			close(yield)
			time.Sleep(time.Second)
			n := e.count("lab")
			if released != 1 || n < 2 || e.standing["lab"].Mine {
				t.Errorf("released %d times after %d cycles: %+v", released, n, e.standing["lab"])
			}
			time.Sleep(10 * time.Minute)
			if e.count("lab") != n {
				t.Error("it is still reconciled")
			}
		})
	})
}
