// Package notify tells people what the daemon finds and does: it derives
// events from reports, and sends them to the services of notifications.
package notify

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
)

// Kind says what an Event tells. The kinds are those of repo.NotifyEvents.
type Kind string

// The kinds.
const (
	Drift      Kind = "drift"            // somebody changed what is declared, or a read-only cluster differs
	Corrected  Kind = "corrected"        // an action was carried out
	Failed     Kind = "failed"           // an action or an object's manifest is at fault, or a cycle broke off
	Recovered  Kind = "recovered"        // what had failed is as declared again
	Anomaly    Kind = "anomaly"          // something that only a person can settle
	Suppressed Kind = "prune-suppressed" // a guard holds a delete back
)

// Event is one thing to tell of one cluster or object. Templates see it.
type Event struct {
	Event   Kind      `json:"event"`
	Time    time.Time `json:"time"`
	Cluster string    `json:"cluster"`
	Commit  string    `json:"commit,omitempty"`
	Kind    string    `json:"kind,omitempty"` // VM, LXC, …; "" = of the whole cluster
	Name    string    `json:"name,omitempty"`
	Node    string    `json:"node,omitempty"`
	ID      string    `json:"id,omitempty"`
	Text    string    `json:"text"`
	Todo    string    `json:"todo,omitempty"` // what the reader can do
}

// Limits of what is told.
const (
	maxText = 400
	// repeatAfter is how soon the same drift or correction of the same object
	// is told again, when somebody keeps undoing what is corrected.
	repeatAfter = time.Hour
	// maxVariants bounds how many texts are told of one lasting condition, such
	// as a failure whose words change.
	maxVariants = 5
)

// object is what an event is about; zero is the cluster itself.
type object struct{ kind, name, node, id string }

// condition is something that lasts: it is told when it begins and when its
// text changes, not in each cycle.
type condition struct {
	event  Kind
	object object
	detail string // an anomaly's path, a guard's rule
}

// tracker remembers of one cluster what was told.
type tracker struct {
	told    map[condition]map[string]bool // by the texts told, without what varies
	recent  map[string]repeat             // drift and corrections
	settled map[object]bool               // at the end of the last cycle that planned
	commit  string                        // of that cycle
	seen    map[condition]bool            // in the report at hand
	met     bool                          // a report with a plan was taken in
}

type repeat struct {
	at    time.Time
	times int // since at, without being told
}

func newTracker() *tracker {
	return &tracker{told: map[condition]map[string]bool{}, recent: map[string]repeat{}}
}

// events gives what of a report is news. Reports must come in their order.
func (t *tracker) events(rep *reconcile.Report) []Event {
	if errors.Is(rep.Abort, apply.ErrFenced) || errors.Is(rep.Abort, reconcile.ErrStopping) {
		return nil // nothing is wrong with the cluster; who reconciles it next will tell
	}
	t.seen = map[condition]bool{}
	d := digest{tracker: t, rep: rep}
	d.cycle()
	if rep.Plan.Cluster == "" { // nothing is known of the objects
		return d.out
	}
	d.drift()
	d.faults()
	d.results()
	d.anomalies()
	d.ended()
	d.meet()
	t.commit, t.settled = rep.Commit, map[object]bool{}
	for _, o := range rep.Objects {
		t.settled[object{o.Kind, o.Name, o.Node, o.ID}] = settled(o.State)
	}
	return d.out
}

// digest works on one report.
type digest struct {
	*tracker
	rep   *reconcile.Report
	out   []Event
	lasts []Event // of what lasts, while the cluster is new to this agent
}

func (d *digest) event(k Kind, o object, text, todo string) Event {
	return Event{Event: k, Time: d.rep.Finished, Cluster: d.rep.Cluster, Commit: d.rep.Commit,
		Kind: o.kind, Name: o.name, Node: o.node, ID: o.id, Text: plain(text), Todo: plain(todo)}
}

// lasting tells of a condition unless this was told already.
func (d *digest) lasting(k Kind, o object, detail, text, todo string) {
	c := condition{k, o, detail}
	d.seen[c] = true
	if d.told[c] == nil {
		d.told[c] = map[string]bool{}
	}
	key := steady(text)
	if d.told[c][key] || len(d.told[c]) >= maxVariants {
		return
	}
	d.told[c][key] = true
	if e := d.event(k, o, text, todo); d.met || o == (object{}) {
		d.out = append(d.out, e)
	} else {
		d.lasts = append(d.lasts, e)
	}
}

// once tells of something that happened, unless the same was told lately.
func (d *digest) once(k Kind, o object, text string) {
	for key, r := range d.recent {
		if age := d.rep.Finished.Sub(r.at); age >= repeatAfter && r.times == 0 || age >= 24*repeatAfter {
			delete(d.recent, key)
		}
	}
	key := fmt.Sprintf("%s\x00%v\x00%s", k, o, steady(text))
	r, known := d.recent[key]
	if known && d.rep.Finished.Sub(r.at) < repeatAfter {
		r.times++
		d.recent[key] = r
		return
	}
	if r.times > 0 {
		text += fmt.Sprintf(" (and %d times since %s)", r.times, r.at.UTC().Format("15:04 MST"))
	}
	d.recent[key] = repeat{at: d.rep.Finished}
	d.out = append(d.out, d.event(k, o, text, ""))
}

// cycle tells of cycles that break off and complete again.
func (d *digest) cycle() {
	cluster := condition{event: Failed}
	switch {
	case d.rep.Result != nil && d.rep.Result.Interrupted: // by a stop of the agent
	case d.rep.Abort != nil:
		d.lasting(Failed, object{}, "", d.rep.Abort.Error(), "")
	case d.told[cluster] != nil:
		delete(d.told, cluster)
		d.out = append(d.out, d.event(Recovered, object{}, "cycles complete again", ""))
	}
}

// drift tells of differences that no commit brought: an object that was as
// declared is not any more. Where nothing may be written every difference is.
func (d *digest) drift() {
	for _, a := range d.rep.Plan.Actions {
		o := object{a.Ref.Kind, a.Ref.Name, a.Node, a.ID}
		switch {
		case d.rep.ReadOnly:
			d.lasting(Drift, o, string(a.Verb), describe(a), "")
		case d.settled[o] && d.commit == d.rep.Commit:
			d.once(Drift, o, describe(a))
		}
	}
}

func (d *digest) faults() {
	for _, e := range d.rep.Plan.Errors {
		d.lasting(Failed, d.objectOf(e.Ref.Kind, e.Ref.Name), "", e.File+": "+e.Path+": "+e.Text, "")
	}
}

// objectOf completes an object that only its name is known of.
func (d *digest) objectOf(kind, name string) object {
	for _, o := range d.rep.Objects {
		if o.Kind == kind && o.Name == name {
			return object{o.Kind, o.Name, o.Node, o.ID}
		}
	}
	return object{kind: kind, name: name}
}

func (d *digest) results() {
	if d.rep.Result == nil {
		return
	}
	for _, r := range d.rep.Result.Actions {
		o := object{r.Action.Ref.Kind, r.Action.Ref.Name, r.Action.Node, r.Action.ID}
		switch r.Outcome {
		case apply.Done, apply.Warned:
			text := describe(r.Action)
			if len(r.Warnings) > 0 {
				text += "; warnings: " + strings.Join(r.Warnings, "; ")
			}
			d.once(Corrected, o, text)
		case apply.Failed, apply.Unknown:
			c := condition{event: Failed, object: o}
			if errors.Is(r.Err, reconcile.ErrHeld) && d.told[c] != nil {
				d.seen[c] = true // it was told when it was tried
				continue
			}
			text := string(r.Action.Verb) + ": what became of it is not known"
			if r.Err != nil {
				text = string(r.Action.Verb) + ": " + r.Err.Error()
			}
			d.lasting(Failed, o, "", text, "")
		}
	}
}

func (d *digest) anomalies() {
	for _, a := range d.rep.Plan.Anomalies {
		text := a.Text
		if a.Path != "" {
			text = a.Path + ": " + text
		}
		d.lasting(Anomaly, object{a.Ref.Kind, a.Ref.Name, a.Node, a.ID}, a.Path, text, a.Todo)
	}
	for _, s := range d.rep.Plan.Suppressed {
		o := object{name: s.Name, node: s.Node}
		if s.Kind != nil {
			o.kind = s.Kind.Name
		}
		if s.VMID != 0 {
			o.id = fmt.Sprint(s.VMID)
		}
		d.lasting(Suppressed, o, s.Rule, s.Text, s.Todo)
	}
}

// ended forgets conditions that are over, and tells of failures that are. An
// object that this cycle could not judge keeps its conditions.
func (d *digest) ended() {
	var over []condition
	for c := range d.told {
		if d.seen[c] || c == (condition{event: Failed}) {
			continue
		}
		state, declared := d.stateOf(c.object)
		switch {
		case !declared:
		case state == plan.Skipped, state == plan.Unknown, state == plan.InProgress:
			continue
		case c.event == Failed && !settled(state):
			continue
		}
		over = append(over, c)
	}
	slices.SortFunc(over, func(a, b condition) int {
		return cmp.Or(cmp.Compare(a.object.id, b.object.id), cmp.Compare(a.object.kind, b.object.kind), cmp.Compare(a.object.name, b.object.name),
			cmp.Compare(a.object.node, b.object.node), cmp.Compare(a.detail, b.detail))
	})
	for _, c := range over {
		delete(d.told, c)
		if _, declared := d.stateOf(c.object); declared && c.event == Failed {
			d.out = append(d.out, d.event(Recovered, c.object, "as declared again", ""))
		}
	}
}

// stateOf is an object's state after the cycle. One of which only the name was
// known when it failed is found by that.
func (d *digest) stateOf(o object) (plan.ObjectState, bool) {
	for _, x := range d.rep.Objects {
		if x.Kind == o.kind && x.Name == o.name && (o.id == "" || x.ID == o.id) && (o.node == "" || x.Node == o.node) {
			return x.State, true
		}
	}
	return "", false
}

// settled reports whether nothing is left to do to an object.
func settled(s plan.ObjectState) bool {
	return s == plan.Converged || s == plan.Anomalous || s == plan.WaitingRestart || s == plan.Pruned
}

// describe is an action in a line; secrets are redacted by their own type.
func describe(a plan.Action) string {
	var parts []string
	for i, c := range a.Changes {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more", len(a.Changes)-i))
			break
		}
		parts = append(parts, change(c))
	}
	text := string(a.Verb)
	if len(parts) > 0 && a.Verb != plan.Create && a.Verb != plan.Clone && a.Verb != plan.Download {
		return text + ": " + strings.Join(parts, ", ")
	}
	if a.Why != "" {
		text += ": " + a.Why
	}
	return text
}

func change(c field.Change) string {
	old, now := "(none)", "(none)"
	if c.Old != nil {
		old = c.Old.String()
	}
	if c.New != nil {
		now = c.New.String()
	}
	return fmt.Sprintf("%s: %s → %s", c.Path, clip(old, 60), clip(now, 60))
}

// varying are the parts of an error that differ each time it is the same.
var varying = regexp.MustCompile(`UPID:[^\s,;)]+|\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)?|:\d+->|\b\d+(\.\d+)?(ns|µs|ms|s|m|h)\b|\bfailed \d+ times`)

func steady(text string) string { return varying.ReplaceAllString(text, "…") }

// plain makes text of PVE and git fit for a line: no control characters, and
// not long.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return clip(strings.Join(strings.Fields(text), " "), maxText)
}

func clip(text string, limit int) string {
	r := []rune(text)
	if len(r) <= limit {
		return text
	}
	return string(r[:limit-1]) + "…"
}
