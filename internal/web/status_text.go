package web

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/show"
)

// Only leaves the named clusters in the document; no name leaves all. An
// unknown name is an error that lists the known.
func (st *Status) Only(names []string) error {
	var known []string
	for _, c := range st.Clusters {
		known = append(known, c.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("cluster %q is not one of the daemon's: %s", name, strings.Join(known, ", "))
		}
	}
	if len(names) == 0 {
		return nil
	}
	st.Clusters = slices.DeleteFunc(st.Clusters, func(c ClusterStatus) bool { return !slices.Contains(names, c.Name) })
	st.Objects = slices.DeleteFunc(st.Objects, func(o ObjectStatus) bool { return !slices.Contains(names, o.Cluster) })
	return nil
}

// Bad reports whether a cluster or an object has an error or could not be
// looked at.
func (st *Status) Bad() bool {
	return slices.ContainsFunc(st.Clusters, func(c ClusterStatus) bool {
		return c.LastCycle != nil && (c.LastCycle.Aborted || c.LastCycle.ActionsError > 0)
	}) || slices.ContainsFunc(st.Objects, func(o ObjectStatus) bool { return o.State == string(plan.Unknown) })
}

// Text prints the document's clusters and objects for people: a row a cluster,
// then what is not converged, each anomaly and the deletes that are held back,
// with the reasons. It shows what the document says and works nothing out.
func (st *Status) Text(w io.Writer, style show.Style) {
	rows := [][]string{{"CLUSTER", "STATE", "OBJECTS", "CONVERGED", "MISSING", "DRIFT", "WAITING", "HELD", "ANOMALIES", "ERRORS", "COMMIT"}}
	var unread, faults []string
	for _, c := range st.Clusters {
		l := c.LastCycle
		if l == nil {
			unread = append(unread, c.unread())
			continue
		}
		errs := l.ActionsError
		if l.Aborted {
			errs += show.Faults(errors.New(l.AbortReason))
			for _, line := range strings.Split(strings.TrimRight(l.AbortReason, "\n"), "\n") {
				faults = append(faults, c.Name+": "+strings.TrimPrefix(line, c.Name+": "))
			}
		}
		row := []string{c.Name, c.State}
		for _, n := range []int{l.Objects, c.States[plan.Converged], c.States[plan.Desired], c.States[plan.Drift], c.States[plan.WaitingRestart], l.PruneDeferred, l.Anomalies, errs} {
			row = append(row, fmt.Sprint(n))
		}
		rows = append(rows, append(row, show.Commit(l.Commit, l.Dirty)))
	}
	blank := false
	table := func(rows [][]string) {
		if len(rows) < 2 {
			return
		}
		if blank {
			fmt.Fprintln(w)
		}
		show.Table(w, style, rows)
		blank = true
	}
	table(rows)
	table(append([][]string{{"CLUSTER", "OBJECT", "NODE", "ID", "STATE", "WHY"}}, st.open()...))
	if blank && len(unread)+len(faults) > 0 {
		fmt.Fprintln(w)
	}
	for _, l := range unread {
		fmt.Fprintln(w, l)
	}
	if len(faults) > 0 {
		show.Problems(w, style, errors.New(strings.Join(faults, "\n")))
	}
}

// open lists what is not converged, by cluster.
func (st *Status) open() (rows [][]string) {
	for _, c := range st.Clusters {
		for _, o := range st.Objects {
			if o.Cluster != c.Name || o.State == string(plan.Converged) {
				continue
			}
			why, told := c.without(o)
			if o.State != string(plan.Anomalous) || !told {
				rows = append(rows, []string{c.Name, o.Kind + "/" + o.Name, o.Node, o.ID, o.State, cmp.Or(why, o.LastError)})
			}
		}
		for _, a := range c.Anomalies {
			why := a.line()
			if a.Todo != "" {
				why += " → " + a.Todo
			}
			rows = append(rows, []string{c.Name, cmp.Or(a.Kind, "guest") + "/" + a.Name, a.Node, a.ID, "anomaly", why})
		}
		for _, h := range c.Held {
			why := h.Text
			if h.Todo != "" {
				why += " → " + h.Todo
			}
			rows = append(rows, []string{c.Name, cmp.Or(h.Kind, "guest") + "/" + h.Name, h.Node, h.ID, "held back", why})
		}
	}
	return rows
}

// line is an anomaly's text as it stands in the reason of an object.
func (a Anomaly) line() string {
	if a.Path == "" {
		return a.Text
	}
	return a.Path + ": " + a.Text
}

// without is the reason of an object without its anomalies, which have rows of
// their own, and whether it has any.
func (c ClusterStatus) without(o ObjectStatus) (why string, told bool) {
	why = o.Why
	for _, a := range c.Anomalies {
		if a.Kind == o.Kind && a.Name == o.Name && a.ID == o.ID {
			told = true
			why = strings.Replace(why, "; "+a.line(), "", 1)
		}
	}
	return why, told
}

// unread says why there are no figures of a cluster.
func (c ClusterStatus) unread() string {
	name := show.Clean(c.Name)
	switch {
	case c.Mine:
		return name + ": its first cycle has not ended yet"
	case c.Owner != "":
		return name + ": reconciled by " + show.Clean(c.Owner)
	}
	return name + ": no agent reconciles it now"
}
