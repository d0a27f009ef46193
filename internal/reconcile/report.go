package reconcile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
)

// Counts are a report's figures, under the names of /status.
type Counts struct {
	Objects       int // that are declared; see States
	ActionsOK     int
	ActionsError  int
	Pruned        int
	PruneDeferred int // suppressed deletes, and planned ones that were put off
	Skipped       int // busy, deferred or not read
	Anomalies     int
}

// Counts computes the figures of the report.
func (rep *Report) Counts() Counts {
	c := Counts{Objects: rep.Declared(), Anomalies: len(rep.Plan.Anomalies), PruneDeferred: len(rep.Plan.Suppressed),
		ActionsError: len(rep.Plan.Errors)}
	for _, o := range rep.Objects {
		if o.State == plan.Skipped || o.State == plan.Unknown {
			c.Skipped++
		}
	}
	if rep.Result == nil {
		return c
	}
	for _, a := range rep.Result.Actions {
		isDelete := a.Action.Verb == plan.Delete
		switch a.Outcome {
		case apply.Done, apply.Warned:
			c.ActionsOK++
			if isDelete {
				c.Pruned++
			}
		case apply.Failed, apply.Unknown:
			c.ActionsError++
		case apply.Deferred:
			if isDelete {
				c.PruneDeferred++
			}
		}
	}
	return c
}

// Declared counts the declared objects: a file that is to be on two nodes is
// one object in two places, and a guest that is to be deleted is none. After a
// cycle that ended before it had a plan these are the ones that were known.
func (rep *Report) Declared() int {
	refs := map[kind.Ref]bool{}
	for _, o := range rep.Plan.Objects {
		refs[o.Ref] = true
	}
	for _, o := range rep.Objects {
		if !o.Undeclared() {
			refs[o.Ref()] = true
		}
	}
	return len(refs)
}

// Ref names the object.
func (o Object) Ref() kind.Ref { return kind.Ref{Kind: o.Kind, Name: o.Name} }

// Undeclared reports whether this is a guest that is to be deleted, or was.
func (o Object) Undeclared() bool { return o.PruneReason != "" }

// worst orders states: an object in several places is in the worst of theirs.
var worst = [...]plan.ObjectState{plan.Converged, plan.Pruned, plan.WaitingRestart, plan.Anomalous, plan.InProgress, plan.Desired, plan.Drift,
	plan.Skipped, plan.Unknown, plan.Failed}

// States counts the declared objects by state, as they stand after the cycle.
// An object in several places counts once, in the worst of their states;
// guests to be deleted are left out, so that the sum is Counts.Objects.
func (rep *Report) States() map[plan.ObjectState]int { return StatesOf(rep.Objects) }

// StatesOf is Report.States of objects as they stand at another moment.
func StatesOf(objects []Object) map[plan.ObjectState]int {
	state := map[kind.Ref]plan.ObjectState{}
	for _, o := range objects {
		if was, known := state[o.Ref()]; !o.Undeclared() && (!known || slices.Index(worst[:], o.State) > slices.Index(worst[:], was)) {
			state[o.Ref()] = o.State
		}
	}
	n := map[plan.ObjectState]int{}
	for _, s := range state {
		n[s]++
	}
	return n
}

// State is how the cluster stands after the cycle, in one word or two: the one
// answer that status, the dashboard and /status give. It is that of Standing
// where nothing is under way.
func (rep *Report) State() string {
	switch {
	case rep.Abort != nil:
		return "failing"
	case rep.Counts().ActionsError > 0:
		return "errors"
	case rep.Stale:
		return "stale"
	case len(rep.Plan.Actions) > 0 && rep.Result == nil:
		return "drift"
	}
	for _, o := range rep.Objects {
		switch o.State {
		case plan.WaitingRestart:
			return "waiting"
		case plan.Unknown, plan.Skipped:
			return "incomplete"
		}
	}
	if len(rep.Plan.Anomalies) > 0 || len(rep.Plan.Suppressed) > 0 {
		return "anomalies"
	}
	return InSync
}

// InSync is the state of a cluster that nothing is to be said of.
const InSync = "in sync"

// states is how many objects are in which state: "converged 40, drift 2".
func (rep *Report) states() string {
	n := rep.States()
	if len(n) == 0 {
		return "none"
	}
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%s %d", s, n[s]))
	}
	return strings.Join(parts, ", ")
}

// differs reports whether the cluster stands otherwise than before: in another
// commit, with an object in another state or with another fault, or with other
// anomalies.
func (rep *Report) differs(before *Report) bool {
	stand := func(r *Report) any {
		list := []any{r.Commit, r.Dirty, r.ReadOnly, r.Stale}
		for _, o := range r.Objects {
			list = append(list, [5]string{o.Kind, o.Name, o.Node, o.ID, string(o.State)})
		}
		for _, e := range r.Plan.Errors {
			list = append(list, e)
		}
		for _, a := range r.Plan.Anomalies {
			list = append(list, [5]string{a.Ref.Kind, a.Ref.Name, a.Node, a.ID, a.Path})
		}
		for _, s := range r.Plan.Suppressed {
			list = append(list, [3]any{s.Name, s.VMID, s.Rule})
		}
		return list
	}
	return !reflect.DeepEqual(stand(rep), stand(before))
}

// Failed reports whether something of the cycle is an error: it ended early,
// an object has a fault, or an action failed.
func (rep *Report) Failed() bool {
	return rep.Abort != nil || rep.Counts().ActionsError > 0
}

// Unread counts the objects that the cycle could not look at: their node does
// not answer, a read failed, or the token may not see them. They are neither
// right nor wrong, so a run that met one has not done all that it was to do.
func (rep *Report) Unread() int {
	n := 0
	for _, o := range rep.Plan.Objects {
		if o.State == plan.Unknown {
			n++
		}
	}
	return n
}

// Pending reports whether there is a plan that a read-only cycle left as it is.
func (rep *Report) Pending() bool {
	return rep.ReadOnly && rep.Abort == nil && rep.Result == nil && len(rep.Plan.Actions) > 0
}

// Converged reports whether every declared object is as declared, nothing
// waits, and every delete that was planned was carried out. A delete that a
// guard holds back is no step that the cycle owes: State tells of it.
func (rep *Report) Converged() bool {
	if rep.Abort != nil {
		return false
	}
	for _, o := range rep.Objects {
		if o.State != plan.Converged && o.State != plan.Pruned {
			return false
		}
	}
	return true
}

type id struct{ kind, name, node, id string }

// objects gives every object its state after the cycle: what the plan said,
// moved on by what became of its actions.
func (rep *Report) objects(previous *Report) {
	before := map[id]Object{}
	if previous != nil {
		for _, o := range previous.Objects {
			before[id{o.Kind, o.Name, o.Node, o.ID}] = o
		}
	}
	if rep.Plan.Cluster == "" { // ended before planning: what was known stays
		if previous != nil {
			rep.Objects = previous.Objects
		}
		return
	}
	for _, po := range rep.Plan.Objects {
		o := Object{Cluster: rep.Cluster, Kind: po.Ref.Kind, Name: po.Ref.Name, Node: po.Node, ID: po.ID, State: po.State, Why: po.Why, Updated: rep.Finished}
		switch {
		case o.State == plan.Drift: // what waits does not hide what is to be done
			o.Why = strings.Trim(rep.why(po)+"; "+po.Why, "; ")
		case o.Why == "" && o.State != plan.Converged:
			o.Why = rep.why(po)
		}
		rep.outcome(&o, po, len(po.Waiting) > 0 && po.Todo != "")
		rep.add(o, before)
	}
	for _, a := range rep.Plan.Actions {
		if a.Verb == plan.Delete {
			o := Object{Cluster: rep.Cluster, Kind: a.Ref.Kind, Name: a.Ref.Name, Node: a.Node, ID: a.ID, State: plan.Drift,
				Why: "to be deleted", PruneReason: a.Why, Updated: rep.Finished}
			rep.outcome(&o, plan.Object{Ref: a.Ref, Node: a.Node, ID: a.ID}, false)
			rep.add(o, before)
		}
	}
}

// why gathers what the plan says of an object that is not converged: the
// reasons of its actions, then its anomalies.
func (rep *Report) why(po plan.Object) string {
	var parts []string
	for _, a := range rep.Plan.Actions {
		if a.Ref == po.Ref && a.ID == po.ID && (a.VMID != 0 || a.Node == po.Node) && a.Why != "" {
			parts = append(parts, a.Why)
		}
	}
	for _, a := range rep.Plan.Anomalies {
		if a.Ref == po.Ref && a.ID == po.ID {
			text := a.Text
			if a.Path != "" {
				text = a.Path + ": " + text
			}
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "; ")
}

func (rep *Report) add(o Object, before map[id]Object) {
	last := before[id{o.Kind, o.Name, o.Node, o.ID}]
	o.Converged = last.Converged
	if o.State == plan.Converged {
		o.Converged = rep.Finished
	}
	if o.LastAction == "" {
		o.LastAction = last.LastAction
	}
	if o.State == last.State && o.LastError == last.LastError && o.Why == last.Why && rep.Result == nil {
		o.Updated = orNow(last.Updated, o.Updated)
	}
	rep.Objects = append(rep.Objects, o)
}

func orNow(t, now time.Time) time.Time {
	if t.IsZero() {
		return now
	}
	return t
}

// outcome moves an object on by what became of its actions and faults. waiting
// says that it has a change that waits for a restart which the plan does not
// make.
func (rep *Report) outcome(o *Object, of plan.Object, waiting bool) {
	ref, node, oid := of.Ref, of.Node, of.ID
	for _, e := range rep.Plan.Errors {
		if e.Ref == ref {
			o.LastError = e.File + ": " + e.Path + ": " + e.Text
			break
		}
	}
	if rep.Result == nil {
		return
	}
	for _, a := range rep.Result.Actions {
		if a.Action.Ref != ref || a.Action.ID != oid || a.Action.VMID == 0 && a.Action.Node != node {
			continue
		}
		o.LastAction = a.Action.Verb
		waiting = (waiting || len(a.Waiting) > 0) && a.Action.Verb != plan.Restart && a.Action.Verb != plan.Start
		switch a.Outcome {
		case apply.Done, apply.Warned:
			o.State, o.Why = plan.Converged, ""
			if a.Action.Verb == plan.Delete {
				o.State = plan.Pruned
			}
			continue
		case apply.Deferred:
			o.State = plan.Skipped
		case apply.Unknown:
			o.State = plan.Unknown
		case apply.Failed:
			o.State = plan.Failed
		}
		if a.Err != nil {
			o.LastError = a.Err.Error()
			o.Why = o.LastError
		}
		return
	}
	if waiting && o.State == plan.Converged {
		o.State, o.Why = plan.WaitingRestart, "a change waits for a restart"
	}
	if o.State == plan.Converged {
		rep.leftOver(o, ref)
	}
}

// leftOver keeps an object from being called converged while the plan has an
// anomaly of it.
func (rep *Report) leftOver(o *Object, ref kind.Ref) {
	for _, a := range rep.Plan.Anomalies {
		if a.Ref == ref {
			o.State, o.Why = plan.Anomalous, a.Text
			return
		}
	}
}
