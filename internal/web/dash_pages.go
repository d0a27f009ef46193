package web

import (
	"cmp"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/journal"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/wire"
)

// card is one cluster on the overview.
type card struct {
	Name, State, Commit, Owner, Error string
	Mine, Running, Stale, ReadOnly    bool
	Dirty                             bool
	Finished, Next                    time.Time
	Failures                          int
	Objects, Converged, Drift         int
	Waiting, Anomalies, Suppressed    int
	Errors                            int
	Active                            []reconcile.Active
}

func cardOf(c reconcile.Standing) card {
	k := card{Name: c.Cluster, State: c.State(), Owner: c.Owner, Mine: c.Mine, Running: c.Running, Next: c.Next, Failures: c.Failures, Active: c.Active}
	r := c.Report
	if r == nil || !c.Mine { // what this agent saw last, before it gave the cluster away, is no news
		return k
	}
	k.Commit, k.Dirty, k.Finished, k.Stale, k.ReadOnly = r.Commit, r.Dirty, r.Finished, r.Stale, r.ReadOnly
	if r.Abort != nil {
		k.Error = r.Abort.Error()
	}
	n := r.Counts()
	k.Objects, k.Anomalies, k.Suppressed, k.Errors = n.Objects, n.Anomalies, n.PruneDeferred, n.ActionsError
	states := reconcile.StatesOf(c.Objects())
	k.Converged, k.Drift, k.Waiting = states[plan.Converged], states[plan.Drift]+states[plan.Desired], states[plan.WaitingRestart]
	return k
}

// stateCount is how many clusters are in a state.
type stateCount struct {
	State string
	N     int
}

// countStates sums the cards up, the worst first.
func countStates(cards []card) (out []stateCount) {
	order := []string{"failing", "errors", "stale", "in progress", "drift", "waiting", "incomplete", "anomalies", "not read yet", "in sync", "elsewhere"}
	for _, state := range order {
		n := 0
		for _, c := range cards {
			if c.State == state {
				n++
			}
		}
		if n > 0 {
			out = append(out, stateCount{state, n})
		}
	}
	return out
}

func (d *Dashboard) overview(w http.ResponseWriter, _ *http.Request) {
	s := d.store.Snapshot()
	var page struct {
		Cards  []card
		Counts []stateCount
		Agents []Agent
	}
	for _, c := range s.Clusters {
		page.Cards = append(page.Cards, cardOf(c))
	}
	page.Counts = countStates(page.Cards)
	page.Agents = s.Agents
	d.render(w, http.StatusOK, "overview.html", "Clusters", "overview", s, page)
}

// table is a filtered list of objects.
type table struct {
	Rows                  []ObjectStatus
	All                   int
	Q, State, Kind        string
	States, Kinds         []string
	ShowCluster           bool
	Action                string // the form's target
	Cluster               *card
	Anomalies, Suppressed int
	HasPlan               bool
}

func newTable(rows []ObjectStatus, r *http.Request) table {
	q := r.URL.Query()
	t := table{All: len(rows), Q: q.Get("q"), State: q.Get("state"), Kind: q.Get("kind"), Action: r.URL.Path}
	for _, o := range rows {
		t.States = append(t.States, o.State)
		t.Kinds = append(t.Kinds, o.Kind)
		if t.keeps(o) {
			t.Rows = append(t.Rows, o)
		}
	}
	slices.Sort(t.States)
	slices.Sort(t.Kinds)
	t.States, t.Kinds = slices.Compact(t.States), slices.Compact(t.Kinds)
	return t
}

func (t table) keeps(o ObjectStatus) bool {
	if t.State != "" && o.State != t.State || t.Kind != "" && o.Kind != t.Kind {
		return false
	}
	text := strings.ToLower(strings.Join([]string{o.Cluster, o.Kind, o.Name, o.Node, o.ID, o.State, o.Why, o.LastError}, " "))
	for _, word := range strings.Fields(strings.ToLower(t.Q)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

func (d *Dashboard) objects(w http.ResponseWriter, r *http.Request) {
	s := d.store.Snapshot()
	t := newTable(StatusOf(s).Objects, r)
	t.ShowCluster = true
	d.render(w, http.StatusOK, "objects.html", "Objects", "objects", s, t)
}

func (d *Dashboard) find(w http.ResponseWriter, r *http.Request) (Snapshot, reconcile.Standing, bool) {
	s := d.store.Snapshot()
	name := r.PathValue("cluster")
	i := slices.IndexFunc(s.Clusters, func(c reconcile.Standing) bool { return c.Cluster == name })
	if i < 0 {
		d.missing(w, "There is no cluster "+name+".")
		return s, reconcile.Standing{}, false
	}
	return s, s.Clusters[i], true
}

func (d *Dashboard) cluster(w http.ResponseWriter, r *http.Request) {
	s, c, ok := d.find(w, r)
	if !ok {
		return
	}
	var rows []ObjectStatus
	if c.Report != nil {
		rows = objects(c)
	}
	t := newTable(rows, r)
	k := cardOf(c)
	t.Cluster, t.HasPlan = &k, c.Report != nil
	d.render(w, http.StatusOK, "objects.html", c.Cluster, c.Cluster, s, t)
}

// step is an action as the pages show it.
type step struct {
	Verb, Kind, Name, Node, ID, Why, Power, Refused string
	Outcome, Error, UPID, Todo                      string
	Changes                                         []change
	Tail, Warnings, Waiting                         []string
	Volumes                                         []string
	Took                                            time.Duration
}

type change struct{ Path, Key, Old, New, Impact string }

func changesOf(list []field.Change) []change {
	var out []change
	for _, c := range list {
		x := change{Path: c.Path, Old: valueOf(c.Old), New: valueOf(c.New)}
		if c.Running != nil {
			x.Old = valueOf(c.Running) + " (" + x.Old + " was pending)"
		}
		if c.Key != c.Path {
			x.Key = c.Key
		}
		if c.Impact != field.None {
			x.Impact = c.Impact.String()
		}
		out = append(out, x)
	}
	return out
}

func valueOf(v *wire.Value) string {
	if v == nil {
		return "(none)"
	}
	return v.String()
}

func stepsOf(r *reconcile.Report, keep func(plan.Action) bool) []step {
	var out []step
	for i, a := range r.Plan.Actions {
		if !keep(a) {
			continue
		}
		s := step{Verb: string(a.Verb), Kind: a.Ref.Kind, Name: a.Ref.Name, Node: a.Node, ID: a.ID, Why: a.Why, Refused: a.Refused, Changes: changesOf(a.Changes)}
		if a.Power != field.None {
			s.Power = a.PowerText()
		}
		if del, ok := a.Do.(plan.DeleteStep); ok {
			s.Volumes = del.Volumes
		}
		if r.Result != nil && i < len(r.Result.Actions) {
			res := r.Result.Actions[i]
			s.Outcome, s.Todo, s.UPID, s.Tail, s.Warnings, s.Waiting, s.Took = string(res.Outcome), res.Todo, res.UPID, res.Tail, res.Warnings, res.Waiting, res.Took.Round(time.Millisecond)
			if res.Err != nil {
				s.Error = res.Err.Error()
			}
		}
		out = append(out, s)
	}
	return out
}

func (d *Dashboard) plan(w http.ResponseWriter, r *http.Request) {
	s, c, ok := d.find(w, r)
	if !ok {
		return
	}
	var page struct {
		Cluster    card
		Read       bool
		Graph      template.HTML
		Left       int // objects that the graph leaves out
		Steps      []step
		Anomalies  []plan.Anomaly
		Errors     []plan.ObjectError
		Suppressed []plan.Suppressed
		Notes      []string
	}
	page.Cluster = cardOf(c)
	if rep := c.Report; rep != nil {
		page.Read = true
		page.Graph, page.Left = graph(rep)
		page.Steps = stepsOf(rep, func(plan.Action) bool { return true })
		page.Anomalies, page.Errors, page.Suppressed, page.Notes = rep.Plan.Anomalies, rep.Plan.Errors, rep.Plan.Suppressed, rep.Plan.Notes
	}
	d.render(w, http.StatusOK, "plan.html", "Plan of "+c.Cluster, c.Cluster, s, page)
}

func (d *Dashboard) object(w http.ResponseWriter, r *http.Request) {
	s, c, ok := d.find(w, r)
	if !ok {
		return
	}
	kind, name := r.PathValue("kind"), r.PathValue("name")
	var page struct {
		Cluster   string
		Objects   []ObjectStatus
		Kind      string
		Name      string
		File      string
		Needs     []string
		Steps     []step
		Waiting   []change
		Todo      string // what ends the wait
		Active    []reconcile.Active
		Anomalies []plan.Anomaly
		Errors    []plan.ObjectError
		History   []journal.Entry
	}
	page.Cluster, page.Kind, page.Name = c.Cluster, kind, name
	if c.Report == nil {
		d.missing(w, "Cluster "+c.Cluster+" has not been read yet.")
		return
	}
	for _, o := range objects(c) {
		if o.Kind == kind && o.Name == name {
			page.Objects = append(page.Objects, o)
		}
	}
	if len(page.Objects) == 0 {
		d.missing(w, "Cluster "+c.Cluster+" has no object "+kind+"/"+name+".")
		return
	}
	p := c.Report.Plan
	for _, o := range p.Objects {
		if o.Ref.Kind != kind || o.Ref.Name != name {
			continue
		}
		page.File = cmp.Or(page.File, o.File)
		page.Waiting = append(page.Waiting, changesOf(o.Waiting)...)
		page.Todo = cmp.Or(page.Todo, o.Todo)
		for _, n := range o.Needs {
			page.Needs = append(page.Needs, n.String())
		}
	}
	slices.Sort(page.Needs)
	page.Needs = slices.Compact(page.Needs)
	page.Steps = stepsOf(c.Report, func(a plan.Action) bool { return a.Ref.Kind == kind && a.Ref.Name == name })
	page.Anomalies = slices.DeleteFunc(slices.Clone(p.Anomalies), func(a plan.Anomaly) bool { return a.Ref.Kind != kind || a.Ref.Name != name })
	page.Errors = slices.DeleteFunc(slices.Clone(p.Errors), func(e plan.ObjectError) bool { return e.Ref.Kind != kind || e.Ref.Name != name })
	page.Active = slices.DeleteFunc(slices.Clone(c.Active), func(a reconcile.Active) bool { return a.Action.Ref.Kind != kind || a.Action.Ref.Name != name })
	for _, e := range d.store.History(c.Cluster) {
		if e.Kind == kind && e.Name == name {
			page.History = append(page.History, e)
		}
	}
	d.render(w, http.StatusOK, "object.html", kind+"/"+name, c.Cluster, s, page)
}
