package pvesim

import (
	"path"
	"strings"
	"time"
)

// FaultKind names what goes wrong.
type FaultKind string

// The kinds of fault. The first group happens instead of the call, the second after its work is done, the third in workers.
const (
	FaultReset FaultKind = "reset" // the connection is cut before anything is done
	FaultError FaultKind = "error" // Status (500, 595, 596, 599) is answered and nothing done
	FaultSlow  FaultKind = "slow"  // the call waits for Delay first

	FaultLost     FaultKind = "lost"     // the work is done, the connection is cut instead of an answer
	FaultTruncate FaultKind = "truncate" // the work is done, half of the body arrives

	FaultTaskFail    FaultKind = "task-fail"    // the worker ends with an error before it does anything
	FaultTaskWarn    FaultKind = "task-warn"    // the worker ends in WARNINGS
	FaultLockTimeout FaultKind = "lock-timeout" // a guest's lock is not to be had
	FaultNodeDown    FaultKind = "node-down"    // the node asked for goes down for Delay
)

// Fault is one thing that may go wrong.
type Fault struct {
	Kind FaultKind
	// Method and Path choose the requests: "" and "" are all; Path is a path.Match pattern on the API path, "*" spanning one segment,
	// and a trailing "/**" everything below.
	Method, Path string
	// P is the probability, 0 to 1.
	P float64
	// Count bounds how often it happens; 0 is without bound.
	Count int
	// Status is for FaultError; 0 is 500.
	Status int
	// Delay is for FaultSlow and FaultNodeDown.
	Delay time.Duration
}

type faults struct {
	w    *World
	list []*Fault
}

// SetFaults replaces the faults to come.
func (w *World) SetFaults(list ...Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults.list = nil
	for _, f := range list {
		w.faults.list = append(w.faults.list, &f)
	}
}

// draw returns the first fault of the given kinds that strikes this call.
func (f *faults) draw(method, p string, kinds ...FaultKind) *Fault {
	for _, x := range f.list {
		if !hasKind(kinds, x.Kind) || x.Count < 0 || x.Method != "" && x.Method != method || !pathMatches(x.Path, p) {
			continue
		}
		if x.P < 1 && f.w.rng.Float64() >= x.P {
			continue
		}
		if x.Count > 0 {
			if x.Count--; x.Count == 0 {
				x.Count = -1
			}
		}
		return x
	}
	return nil
}

// hit draws a fault for what an actor does outside the dispatcher.
func (f *faults) hit(a *Actor, kind FaultKind) bool {
	method, p, _ := strings.Cut(a.Cause, " ")
	return f.draw(method, p, kind) != nil
}

// task draws a fault for a worker. Its path is that of the task: /nodes/NODE/tasks/TYPE.
func (f *faults) task(a *Actor) error {
	x := f.draw("", "/nodes/"+a.Node+"/tasks/"+a.task.Type, FaultTaskFail, FaultTaskWarn)
	switch {
	case x == nil:
		return nil
	case x.Kind == FaultTaskWarn:
		a.Warnf("injected warning")
		return nil
	}
	return die("injected task failure")
}

func hasKind(kinds []FaultKind, k FaultKind) bool {
	for _, x := range kinds {
		if x == k {
			return true
		}
	}
	return false
}

func pathMatches(pattern, p string) bool {
	if pattern == "" {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/**"); ok {
		n := strings.Count(below, "/") + 1
		parts := strings.SplitN(p, "/", n+1)
		if len(parts) <= n {
			return false
		}
		pattern, p = below, strings.Join(parts[:n], "/")
	}
	ok, err := path.Match(pattern, p)
	return err == nil && ok
}
