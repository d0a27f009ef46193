package pvesim

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
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

	FaultNoWorker FaultKind = "no-worker" // the call comes as far as its task, which does not start: 500, and what was reserved for it stays

	FaultTaskFail    FaultKind = "task-fail"    // the worker's first step fails, and it cleans up as PVE's does
	FaultTaskWarn    FaultKind = "task-warn"    // the worker ends in WARNINGS
	FaultLockTimeout FaultKind = "lock-timeout" // a lock (of a guest, a storage) is not to be had
	FaultNodeDown    FaultKind = "node-down"    // the node asked for goes down for Delay
)

// Fault is one thing that may go wrong.
type Fault struct {
	Kind FaultKind
	// Method and Path choose the requests: "" and "" are all; Path is a path.Match pattern on the API path, "*" spanning one segment,
	// and a trailing "/**" everything below. What happens in a worker has no method, and the path /nodes/NODE/tasks/TYPE.
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

// faults draws what goes wrong. Whether a fault strikes follows from the seed, the fault's place in the list, the call's method and
// path, and how often that call was made before: neither the order of calls to other paths nor anything else that is drawn changes it.
type faults struct {
	seed uint64
	list []*Fault
	made map[faultCall]uint64
}

// faultCall is a call as faults count it: by the fault, and by the method and path with the drawn parts of UPIDs left out.
type faultCall struct {
	fault        int
	method, path string
}

func (f *faults) set(list []Fault) {
	f.list, f.made = nil, map[faultCall]uint64{}
	for _, x := range list {
		f.list = append(f.list, &x)
	}
}

// SetFaults replaces the faults to come.
func (w *World) SetFaults(list ...Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults.set(list)
}

// draw returns the first fault of the given kinds that strikes this call.
func (f *faults) draw(method, p string, kinds ...FaultKind) *Fault {
	for i, x := range f.list {
		if !slices.Contains(kinds, x.Kind) || x.Count < 0 || x.Method != "" && x.Method != method || !pathMatches(x.Path, p) {
			continue
		}
		if x.P < 1 && f.chance(faultCall{i, method, stablePath(p)}) >= x.P {
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

// chance is a number in [0,1) for the next call of its kind.
func (f *faults) chance(c faultCall) float64 {
	n := f.made[c]
	f.made[c] = n + 1
	h := sha256.Sum256(fmt.Appendf(nil, "%d/%d/%s %s/%d", f.seed, c.fault, c.method, c.path, n))
	return float64(binary.BigEndian.Uint64(h[:8])>>11) / (1 << 53)
}

// stablePath leaves of a UPID in a path its type and id: process numbers and times differ from run to run.
func stablePath(p string) string {
	parts := strings.Split(p, "/")
	for i, s := range parts {
		if f := strings.Split(s, ":"); f[0] == "UPID" && len(f) > 6 {
			parts[i] = f[5] + ":" + f[6]
		}
	}
	return strings.Join(parts, "/")
}

// hit draws a fault for what an actor does outside the dispatcher.
func (f *faults) hit(a *Actor, kind FaultKind) bool {
	method, p, _ := strings.Cut(a.Cause, " ")
	if a.task != nil {
		method, p = "", taskPath(a)
	}
	return f.draw(method, p, kind) != nil
}

// taskPath is what a worker is called in the paths of faults.
func taskPath(a *Actor) string { return "/nodes/" + a.Node + "/tasks/" + a.task.Type }

// task draws a fault for a worker. Its path is that of the task: /nodes/NODE/tasks/TYPE.
func (f *faults) task(a *Actor) {
	switch x := f.draw("", taskPath(a), FaultTaskFail, FaultTaskWarn); {
	case x == nil:
	case x.Kind == FaultTaskWarn:
		a.Warnf("injected warning")
	default:
		a.doom = die("injected task failure")
	}
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
