package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/wire"
)

// longest is how many characters of a value a plan shows.
const longest = 60

// Text prints the reports of a diff, in the order given, then totals.
func Text(w io.Writer, st Style, reports []reconcile.Report) {
	for _, r := range reports {
		Section(w, st, r)
	}
	if len(reports) > 1 {
		fmt.Fprintln(w, st.bold("total: ")+totals(reports))
	}
}

// Section prints one cluster: its plan, or why there is none.
func Section(w io.Writer, st Style, r reconcile.Report) {
	head := "=== " + r.Cluster + " ==="
	if r.Commit != "" {
		head += " " + commit(r)
	}
	fmt.Fprintln(w, st.bold(head))
	for _, n := range r.Plan.Notes {
		fmt.Fprintln(w, st.warn("note: ")+Clean(n))
	}
	if r.Abort != nil {
		for _, line := range strings.Split(strings.TrimRight(r.Abort.Error(), "\n"), "\n") {
			fmt.Fprintln(w, st.bad("error: ")+Clean(line))
		}
	}
	p := r.Plan
	c := columnsOf(p.Actions)
	for i, a := range p.Actions {
		if i > 0 && !sameObject(a, p.Actions[i-1]) {
			fmt.Fprintln(w)
		}
		action(w, st, a, c)
	}
	if findings(w, st, p) || len(p.Actions) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, st.bold(r.Cluster+": ")+totals([]reconcile.Report{r}))
	fmt.Fprintln(w)
}

func sameObject(a, b plan.Action) bool { return a.Ref == b.Ref && a.ID == b.ID && a.Node == b.Node }

// line is one change, aligned with its neighbours.
type line struct {
	path, value, note string
	impact            field.Impact
	mixed             bool
}

func changeLines(a plan.Action) []line {
	var out []line
	width, widest := 0, 0
	creating := a.Verb == plan.Create || a.Verb == plan.Clone || a.Verb == plan.Download
	spell := spellerOf(a)
	for _, c := range a.Changes {
		l := line{path: Clean(c.Path), value: spell.arrow(c, creating), impact: c.Impact, mixed: c.Impact != a.Power && a.Power != field.None}
		if c.Key != "" && c.Key != c.Path {
			l.note = Clean(c.Key)
		}
		out = append(out, l)
		width = max(width, utf8.RuneCountInString(l.path))
		if n := utf8.RuneCountInString(l.value); n <= widestPlace {
			widest = max(widest, n)
		}
	}
	for i := range out {
		out[i].path = pad(out[i].path, width)
		if out[i].note != "" || out[i].mixed {
			out[i].value = pad(out[i].value, widest)
		}
	}
	return out
}

func (l line) text(st Style) string {
	s := l.path + "  " + l.value
	if l.note != "" {
		s += st.dim("  " + l.note)
	}
	if l.mixed && l.impact != field.None {
		s += "  " + power(st, l.impact)
	}
	return s
}

func (s speller) arrow(c field.Change, creating bool) string {
	if creating && c.Old == nil {
		return s.value(c, c.New)
	}
	if c.Running != nil {
		return s.value(c, c.Running) + " → " + s.value(c, c.New) + " (" + s.value(c, c.Old) + " was pending)"
	}
	return s.value(c, c.Old) + " → " + s.value(c, c.New)
}

func value(v *wire.Value) string {
	if v == nil {
		return "(none)"
	}
	s := Clean(v.String())
	if s == "" || s == " " {
		return `"` + s + `"`
	}
	if r := []rune(s); len(r) > longest {
		return string(r[:longest-1]) + "…"
	}
	return s
}

// findings prints what is not an action: errors, anomalies, suppressed
// deletes, objects that wait or are unknown. It reports whether there was any.
func findings(w io.Writer, st Style, p plan.Plan) (found bool) {
	gap := len(p.Actions) > 0
	section := func() {
		found = true
		if gap {
			fmt.Fprintln(w)
			gap = false
		}
	}
	for _, e := range p.Errors {
		section()
		fmt.Fprintf(w, "%s%s\n", st.bad("error: "), Clean(errorPlace(e)))
	}
	for _, a := range p.Anomalies {
		section()
		path := ""
		if a.Path != "" {
			path = a.Path + ": "
		}
		fmt.Fprintf(w, "%s%s %s: %s\n", st.warn("anomaly: "), object(a.Ref.Kind, a.Ref.Name), Clean(a.ID), Clean(path+a.Text))
		if a.Todo != "" {
			fmt.Fprintf(w, "    %s\n", st.dim("→ "+Clean(a.Todo)))
		}
	}
	for _, s := range p.Suppressed {
		section()
		k := "guest"
		if s.Kind != nil {
			k = s.Kind.Name
		}
		fmt.Fprintf(w, "%s%s %d on %s: %s\n", st.warn("delete held back: "), object(k, s.Name), s.VMID, Clean(s.Node), Clean(s.Text))
		if s.Todo != "" {
			fmt.Fprintf(w, "    %s\n", st.dim("→ "+Clean(s.Todo)))
		}
	}
	for _, o := range p.Objects {
		state, ok := noted(o)
		if !ok {
			continue
		}
		section()
		why := ": " + Clean(o.Why)
		if len(o.Waiting) > 0 {
			why = "" // the changes that follow say it
		}
		fmt.Fprintf(w, "%s%s %s%s%s\n", st.warn(string(state)+": "), object(o.Ref.Kind, o.Ref.Name), Clean(o.ID), on(o.Node), why)
		for _, l := range changeLines(plan.Action{Kind: o.Kind, Changes: o.Waiting}) {
			fmt.Fprintln(w, "    "+l.text(st))
		}
		if o.Todo != "" {
			fmt.Fprintf(w, "    %s\n", st.dim("→ "+Clean(o.Todo)))
		}
	}
	return found
}

// noted reports whether an object has something that no action of the plan
// settles, and under which state that is told: a guest with a further edit may
// wait for a restart, too.
func noted(o plan.Object) (plan.ObjectState, bool) {
	switch {
	case o.State == plan.WaitingRestart, o.State == plan.Skipped, o.State == plan.Unknown:
		return o.State, true
	case len(o.Waiting) > 0 && o.Todo != "":
		return plan.WaitingRestart, true
	}
	return "", false
}

func on(node string) string {
	if node == "" {
		return ""
	}
	return " on " + Clean(node)
}

func errorPlace(e plan.ObjectError) string {
	var parts []string
	for _, s := range []string{e.File, e.Path} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(append(parts, e.Text), ": ")
}

func object(kind, name string) string { return kind + "/" + Clean(name) }

// faults are the lines of why a cycle ended early, one a fault.
func faults(abort error) []string {
	if abort == nil {
		return nil
	}
	return strings.Split(strings.TrimRight(abort.Error(), "\n"), "\n")
}

// Faults is how many faults ended a cycle early: lines that are set in go with
// the one above.
func Faults(abort error) int {
	n := 0
	for i, l := range faults(abort) {
		if i == 0 || l != "" && l[0] != ' ' && l[0] != '\t' {
			n++
		}
	}
	return n
}

// commit names the state that was planned: a commit, and whether the work tree
// says something else.
func commit(r reconcile.Report) string {
	return Commit(r.Commit, r.Dirty)
}

// Commit names a commit, and says where there are uncommitted edits on it.
func Commit(hash string, dirty bool) string {
	if dirty && hash != "" {
		return short(hash) + " with uncommitted edits"
	}
	return short(hash)
}

func short(hash string) string {
	if len(hash) > 10 {
		return hash[:10]
	}
	return hash
}

// order is how totals name verbs.
var order = [...]plan.Verb{plan.Download, plan.Create, plan.Clone, plan.Migrate, plan.Update, plan.Resize, plan.MarkTemplate, plan.Restart, plan.Start, plan.Stop, plan.Delete}

func word(v plan.Verb) string {
	if v == plan.MarkTemplate {
		return "mark template"
	}
	return string(v)
}

func totals(reports []reconcile.Report) string {
	n, errs, objects, unread := 0, 0, 0, 0
	var left remains
	verbs := map[plan.Verb]int{}
	for _, r := range reports {
		n += len(r.Plan.Actions)
		for _, a := range r.Plan.Actions {
			verbs[a.Verb]++
		}
		errs += len(r.Plan.Errors) + Faults(r.Abort)
		if notRead(r) {
			unread++
		}
		objects += r.Declared()
		left.add(r)
		for _, o := range r.Plan.Objects {
			if state, ok := noted(o); ok && state == plan.WaitingRestart { // as they are listed
				left.waiting++
			}
		}
	}
	if unread == len(reports) && unread > 0 {
		return "not read, " + plural(errs, "error")
	}
	s := plural(n, "action")
	var parts []string
	for _, v := range order {
		if verbs[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", verbs[v], strings.ToLower(word(v))))
		}
	}
	if len(parts) > 0 {
		s += " (" + strings.Join(parts, ", ") + ")"
	}
	s += " for " + plural(objects, "object") + left.String()
	if unread > 0 {
		s += ", " + plural(unread, "cluster") + " not read"
	}
	if errs > 0 {
		s += ", " + plural(errs, "error")
	}
	return s
}

// remains is what is left to be told when the actions are: of diff before they
// run, of apply afterwards.
type remains struct{ waiting, held, unknown, anomalies int }

// add takes in a report, but for what waits.
func (m *remains) add(r reconcile.Report) {
	m.held += len(r.Plan.Suppressed)
	m.unknown += r.Unread()
	m.anomalies += len(r.Plan.Anomalies)
}

func (m *remains) String() string {
	s := ""
	for _, x := range []struct {
		n         int
		one, many string
	}{
		{m.waiting, "waiting for restart", "waiting for restart"},
		{m.held, "delete held back", "deletes held back"},
		{m.unknown, "could not be looked at", "could not be looked at"},
		{m.anomalies, "anomaly", "anomalies"},
	} {
		switch {
		case x.n == 1:
			s += ", 1 " + x.one
		case x.n > 1:
			s += fmt.Sprintf(", %d %s", x.n, x.many)
		}
	}
	return s
}

// notRead reports whether a cycle ended before there was a plan.
func notRead(r reconcile.Report) bool { return r.Abort != nil && r.Plan.Cluster == "" }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Table prints rows in columns; the first row is the head.
func Table(w io.Writer, st Style, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(Clean(c)))
		}
	}
	for n, r := range rows {
		cells := make([]string, len(r))
		for i, c := range r {
			cells[i] = pad(Clean(c), width[i])
		}
		l := strings.TrimRight(strings.Join(cells, "  "), " ")
		if n == 0 {
			l = st.bold(l)
		}
		fmt.Fprintln(w, l)
	}
}

// Problems prints an error that may hold several lines, one fault a line.
func Problems(w io.Writer, st Style, err error) {
	lines := strings.Split(strings.TrimRight(err.Error(), "\n"), "\n")
	for _, l := range slices.Compact(lines) {
		fmt.Fprintln(w, st.bad("error: ")+Clean(l))
	}
}
