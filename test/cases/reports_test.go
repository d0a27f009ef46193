package cases_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/show"
)

func text(rep reconcile.Report) string {
	var b bytes.Buffer
	show.Text(&b, show.Style{}, []reconcile.Report{rep})
	return b.String()
}

func document(t testing.TB, rep reconcile.Report) string {
	var b bytes.Buffer
	if err := show.JSON(&b, []reconcile.Report{rep}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// verbs are the plan's actions, in order.
func verbs(rep reconcile.Report) string {
	var out []string
	for _, a := range rep.Plan.Actions {
		out = append(out, string(a.Verb)+" "+a.ID)
	}
	return strings.Join(out, ", ")
}

func (l *lab) wantVerbs(rep reconcile.Report, want string) {
	l.Helper()
	if got := verbs(rep); got != want {
		l.Errorf("planned %q, want %q\n%s", got, want, text(rep))
	}
}

// changed lists the PVE keys that a plan writes.
func changed(rep reconcile.Report) string {
	var out []string
	for _, a := range rep.Plan.Actions {
		for _, c := range a.Changes {
			out = append(out, c.Key)
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

// says holds that the report's text names all the parts.
func (l *lab) says(rep reconcile.Report, parts ...string) {
	l.Helper()
	got := text(rep)
	if rep.Abort != nil {
		got += rep.Abort.Error()
	}
	for _, p := range parts {
		if !strings.Contains(got, p) {
			l.Errorf("the report does not say %q:\n%s", p, got)
		}
	}
}

func (l *lab) stateOf(rep reconcile.Report, name string) plan.ObjectState {
	l.Helper()
	for _, o := range rep.Objects {
		if o.Name == name {
			return o.State
		}
	}
	l.Errorf("the report has no object %s", name)
	return ""
}

// outcomes are what became of the actions.
func outcomes(rep reconcile.Report) string {
	var out []string
	if rep.Result != nil {
		for _, a := range rep.Result.Actions {
			out = append(out, string(a.Outcome))
		}
	}
	return strings.Join(out, ",")
}
