// Package journal keeps a bounded, append-only record of what was done when,
// for which commit, with which task. It is for people: nothing reads it to
// decide anything, and losing it loses nothing else.
package journal

import (
	"errors"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/wire"
)

// Event says what an Entry tells.
type Event string

// The events.
const (
	Started   Event = "started"   // the agent
	Stopped   Event = "stopped"   // the agent
	Action    Event = "action"    // an action was carried out, or tried
	Aborted   Event = "aborted"   // a cluster's cycles begin to break off, or for another reason
	Recovered Event = "recovered" // its cycles complete again
	// Interrupted is a plan that was not carried out to its end, since the agent
	// stopped or lost the right to the cluster. Nothing is wrong with either.
	Interrupted Event = "interrupted"
)

// Entry is one line of the journal.
type Entry struct {
	Time     time.Time     `json:"time"`
	Event    Event         `json:"event"`
	Agent    string        `json:"agent,omitempty"`
	Cluster  string        `json:"cluster,omitempty"`
	Commit   string        `json:"commit,omitempty"`
	Dirty    bool          `json:"dirty,omitempty"`  // with uncommitted edits on top of Commit
	Action   string        `json:"action,omitempty"` // Create, Update, …
	Kind     string        `json:"kind,omitempty"`
	Name     string        `json:"name,omitempty"`
	Node     string        `json:"node,omitempty"`
	ID       string        `json:"id,omitempty"`
	Why      string        `json:"why,omitempty"`
	Changes  []Change      `json:"changes,omitempty"`
	Outcome  string        `json:"outcome,omitempty"` // done, warnings, failed, deferred, unknown
	Error    string        `json:"error,omitempty"`
	Task     string        `json:"task,omitempty"` // UPID
	Took     time.Duration `json:"took_ns,omitempty"`
	Warnings []string      `json:"warnings,omitempty"`
	Tail     []string      `json:"tail,omitempty"` // the task log's last lines
}

// Change is one field's change, with secrets redacted.
type Change struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// maxText bounds each text of an entry, in bytes.
const maxText = 2048

// Entries are a report's lines: one for each action that was started, and one
// where the cluster begins or ceases to break off. previous is the report
// before it, or nil.
func Entries(rep, previous *reconcile.Report) []Entry {
	var out []Entry
	if rep.Result != nil {
		for _, a := range rep.Result.Actions {
			if !a.Started.IsZero() || a.Outcome == apply.Failed && !errors.Is(a.Err, reconcile.ErrHeld) {
				out = append(out, ofAction(rep, a))
			}
		}
	}
	now, before := broken(rep), broken(previous)
	e := Entry{Time: rep.Finished, Cluster: rep.Cluster, Commit: rep.Commit, Dirty: rep.Dirty}
	switch {
	case cutShort(rep):
		if rep.Result != nil {
			e.Event, e.Why = Interrupted, text(rep.Abort)
			out = append(out, e)
		}
	case now != "" && now != before:
		e.Event, e.Error = Aborted, now
		out = append(out, e)
	case now == "" && before != "":
		e.Event = Recovered
		out = append(out, e)
	}
	return out
}

// cutShort reports whether the agent itself ended the cycle early.
func cutShort(rep *reconcile.Report) bool {
	return errors.Is(rep.Abort, reconcile.ErrStopping) || errors.Is(rep.Abort, apply.ErrFenced)
}

// broken is why the cluster's cycle broke off; "" = it did not.
func broken(rep *reconcile.Report) string {
	if rep == nil || cutShort(rep) {
		return ""
	}
	return text(rep.Abort)
}

func ofAction(rep *reconcile.Report, a apply.ActionResult) Entry {
	e := Entry{Time: a.Started, Event: Action, Cluster: rep.Cluster, Commit: rep.Commit, Dirty: rep.Dirty,
		Action: string(a.Action.Verb), Kind: a.Action.Ref.Kind, Name: a.Action.Ref.Name, Node: a.Action.Node, ID: a.Action.ID, Why: clip(a.Action.Why),
		Outcome: string(a.Outcome), Error: text(a.Err), Task: a.UPID, Took: a.Took, Warnings: clipAll(a.Warnings), Tail: clipAll(a.Tail)}
	if e.Time.IsZero() { // refused before it was sent
		e.Time = rep.Finished
	}
	for _, c := range a.Action.Changes {
		e.Changes = append(e.Changes, Change{Path: c.Path, Old: shown(c.Old), New: shown(c.New)})
	}
	return e
}

// shown is a value as the plan shows it, secrets redacted; nil is none.
func shown(v *wire.Value) string {
	if v == nil {
		return ""
	}
	return clip(v.String())
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return clip(err.Error())
}

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText] + "…"
}

func clipAll(list []string) []string {
	var out []string
	for _, s := range list[max(0, len(list)-20):] {
		out = append(out, clip(s))
	}
	return out
}
