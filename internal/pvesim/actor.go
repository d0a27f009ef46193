package pvesim

import (
	"context"
	"fmt"
	"time"
)

// Identity is who asks.
type Identity struct {
	// User is user@realm.
	User string
	// Token is the token's id without the user, "" for a ticket.
	Token string
}

// AuthID is user@realm, or user@realm!token for a token: what UPIDs and permission checks hold.
func (i Identity) AuthID() string {
	if i.Token != "" {
		return i.User + "!" + i.Token
	}
	return i.User
}

// RootTicket says whether the caller is root@pam by password. Root-only options look for exactly this: a token of root is refused
// (facts.md C, "Secrets/devices").
func (i Identity) RootTicket() bool { return i.User == "root@pam" && i.Token == "" }

// Actor is one thread of PVE's code at work: a request's handler, or a task's worker. PVE runs much of its code in either, so
// whatever changes the world takes an *Actor.
//
// The world is a monitor: a handler or worker runs alone, with the world locked, and gives way only inside Sleep, Work, Unlocked
// and Lock. State may be read and written freely between these, without further locking; pointers into the state must be looked
// up again after them.
type Actor struct {
	w *World
	// Ctx ends when the task is stopped or the world ends; a client that goes away does not end its request.
	Ctx context.Context
	// Who is the caller.
	Who Identity
	// Node is the name of the node on which the code runs.
	Node string
	// Cause names the request or the task, for the ledger.
	Cause string
	task  *Task
	held  map[string]int
	// ha marks the HA manager's own calls.
	ha bool
	// doom is what the next lock or piece of work fails with: an injected fault.
	doom error
	// stillborn says that the request's task could not be started: an injected fault.
	stillborn bool
}

// Sleep gives way for d.
func (a *Actor) Sleep(d time.Duration) error {
	if d <= 0 {
		return a.ended()
	}
	a.Unlocked(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-a.Ctx.Done():
		}
	})
	return a.ended()
}

// Work is a piece of work that takes d on a real node; it lasts d times Options.TimeScale here.
func (a *Actor) Work(d time.Duration) error {
	return a.Sleep(time.Duration(float64(d) * a.w.opts.TimeScale))
}

func (a *Actor) ended() error {
	if a.Ctx.Err() != nil {
		return die("received interrupt")
	}
	return a.doomed()
}

// doomed gives the injected failure, once: what cleans up after it works again.
func (a *Actor) doomed() error {
	err := a.doom
	a.doom = nil
	return err
}

// Unlocked runs f without the world's lock: for waiting and for real input and output. f must not touch the world.
func (a *Actor) Unlocked(f func()) {
	a.w.mu.Unlock()
	defer a.w.mu.Lock()
	f()
}

// Logf adds a line to the task's log; outside a task it goes nowhere, as PVE's output of a synchronous call does.
func (a *Actor) Logf(format string, args ...any) {
	if a.task != nil {
		a.task.Log = append(a.task.Log, fmt.Sprintf(format, args...))
	}
}

// Warnf is PVE's log_warn: the task ends in "WARNINGS: N" instead of "OK".
func (a *Actor) Warnf(format string, args ...any) {
	if a.task != nil {
		a.task.Warnings++
		a.Logf("WARN: "+format, args...)
	}
}

// InTask says whether the code runs in a worker.
func (a *Actor) InTask() bool { return a.task != nil }
