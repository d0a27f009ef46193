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
	Objects       int
	ActionsOK     int
	ActionsError  int
	Pruned        int
	PruneDeferred int // suppressed deletes, and planned ones that were put off
	Skipped       int // busy, deferred or not read
	Anomalies     int
}

// Counts computes the figures of the report.
func (rep *Report) Counts() Counts {
	c := Counts{Objects: len(rep.Plan.Objects), Anomalies: len(rep.Plan.Anomalies), PruneDeferred: len(rep.Plan.Suppressed),
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

// states is how many objects are in which state: "converged 40, drift 2".
func (rep *Report) states() string {
	n := map[plan.ObjectState]int{}
	for _, o := range rep.Objects {
		n[o.State]++
	}
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
		list := []any{r.Commit, r.ReadOnly, r.Stale}
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

// Converged reports whether every object is as declared and nothing waits.
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
		if o.Why == "" && o.State != plan.Converged {
			o.Why = rep.why(po)
		}
		rep.outcome(&o, po.Ref, po.Node, po.ID)
		rep.add(o, before)
	}
	for _, a := range rep.Plan.Actions {
		if a.Verb == plan.Delete {
			o := Object{Cluster: rep.Cluster, Kind: a.Ref.Kind, Name: a.Ref.Name, Node: a.Node, ID: a.ID, State: plan.Drift,
				Why: "to be deleted", PruneReason: a.Why, Updated: rep.Finished}
			rep.outcome(&o, a.Ref, a.Node, a.ID)
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

// outcome moves an object on by what became of its actions and faults.
func (rep *Report) outcome(o *Object, ref kind.Ref, node, oid string) {
	for _, e := range rep.Plan.Errors {
		if e.Ref == ref {
			o.LastError = e.File + ": " + e.Path + ": " + e.Text
			break
		}
	}
	if rep.Result == nil {
		return
	}
	waiting := false
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
