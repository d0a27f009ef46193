package show

import (
	"cmp"
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
		switch o.State {
		case plan.WaitingRestart, plan.Skipped, plan.Unknown:
			section()
			why := ": " + Clean(o.Why)
			if o.State == plan.WaitingRestart && len(o.Waiting) > 0 {
				why = "" // the changes that follow say it
			}
			fmt.Fprintf(w, "%s%s %s%s\n", st.warn(string(o.State)+": "), object(o.Ref.Kind, o.Ref.Name), Clean(o.ID), why)
			for _, l := range changeLines(plan.Action{Kind: o.Kind, Changes: o.Waiting}) {
				fmt.Fprintln(w, "    "+l.text(st))
			}
		}
	}
	return found
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

// count is how many faults there are: lines that are set in go with the one
// above.
func count(abort error) int {
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
	if r.Dirty && r.Commit != "" {
		return short(r.Commit) + " with uncommitted edits"
	}
	return short(r.Commit)
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
	n, anomalies, suppressed, errs, objects, waiting, unread, unknown := 0, 0, 0, 0, 0, 0, 0, 0
	verbs := map[plan.Verb]int{}
	for _, r := range reports {
		n += len(r.Plan.Actions)
		for _, a := range r.Plan.Actions {
			verbs[a.Verb]++
		}
		anomalies += len(r.Plan.Anomalies)
		suppressed += len(r.Plan.Suppressed)
		errs += len(r.Plan.Errors) + count(r.Abort)
		if notRead(r) {
			unread++
		}
		unknown += r.Unread()
		for _, o := range r.Plan.Objects {
			objects++
			if o.State == plan.WaitingRestart {
				waiting++
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
	s += " for " + plural(objects, "object")
	for _, x := range []struct {
		n    int
		what string
	}{{waiting, "waiting for restart"}, {suppressed, "held back"}, {unknown, "could not be looked at"}} {
		if x.n > 0 {
			s += fmt.Sprintf(", %d %s", x.n, x.what)
		}
	}
	if anomalies == 1 {
		s += ", 1 anomaly"
	} else if anomalies > 1 {
		s += fmt.Sprintf(", %d anomalies", anomalies)
	}
	if unread > 0 {
		s += ", " + plural(unread, "cluster") + " not read"
	}
	if errs > 0 {
		s += ", " + plural(errs, "error")
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

// Status prints the convergence table: a row a cluster, then the objects that
// are not converged.
func Status(w io.Writer, st Style, reports []reconcile.Report) {
	rows := [][]string{{"CLUSTER", "STATE", "OBJECTS", "CONVERGED", "MISSING", "DRIFT", "WAITING", "ANOMALIES", "ERRORS", "COMMIT"}}
	var rest [][]string
	for _, r := range reports {
		by := map[plan.ObjectState]int{}
		for _, o := range r.Objects {
			by[o.State]++
			if o.State != plan.Converged {
				rest = append(rest, []string{r.Cluster, o.Kind + "/" + o.Name, o.Node, o.ID, string(o.State), cmp.Or(o.Why, o.LastError)})
			}
		}
		c := r.Counts()
		errs := c.ActionsError + count(r.Abort)
		rows = append(rows, []string{r.Cluster, ClusterState(r), fmt.Sprint(len(r.Objects)), fmt.Sprint(by[plan.Converged]),
			fmt.Sprint(by[plan.Desired]), fmt.Sprint(by[plan.Drift]), fmt.Sprint(by[plan.WaitingRestart]), fmt.Sprint(c.Anomalies), fmt.Sprint(errs), commit(r)})
	}
	table(w, st, rows)
	if len(rest) > 0 {
		fmt.Fprintln(w)
		table(w, st, append([][]string{{"CLUSTER", "OBJECT", "NODE", "ID", "STATE", "WHY"}}, rest...))
	}
	for _, r := range reports {
		if r.Abort != nil {
			fmt.Fprintln(w)
			for _, l := range strings.Split(r.Abort.Error(), "\n") {
				fmt.Fprintf(w, "%s%s: %s\n", st.bad("error: "), r.Cluster, Clean(strings.TrimPrefix(l, r.Cluster+": ")))
			}
		}
	}
}

// ClusterState is a cluster's state in one word or two.
func ClusterState(r reconcile.Report) string {
	switch {
	case r.Abort != nil:
		return "failing"
	case r.Counts().ActionsError > 0:
		return "errors"
	case r.Stale:
		return "stale"
	case len(r.Plan.Actions) > 0 && r.Result == nil:
		return "drift"
	}
	for _, o := range r.Objects {
		switch o.State {
		case plan.WaitingRestart:
			return "waiting"
		case plan.Unknown, plan.Skipped:
			return "incomplete"
		}
	}
	if len(r.Plan.Anomalies) > 0 || len(r.Plan.Suppressed) > 0 {
		return "anomalies"
	}
	return "in sync"
}

func table(w io.Writer, st Style, rows [][]string) {
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
