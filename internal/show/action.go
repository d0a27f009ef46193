package show

import (
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/plan"
)

// Columns are no wider than this: one long name pushes its own line only.
const (
	widestObject = 40
	widestPlace  = 28
)

// columns are the widths that line the heads of a cluster's actions up.
type columns struct{ verb, object, place, power int }

func columnsOf(actions []plan.Action) columns {
	var c columns
	fit := func(to *int, s string, most int) {
		if n := utf8.RuneCountInString(s); n <= most {
			*to = max(*to, n)
		}
	}
	for _, a := range actions {
		fit(&c.verb, sign(a.Verb)+" "+string(a.Verb), widestObject)
		fit(&c.object, object(a.Ref.Kind, a.Ref.Name), widestObject)
		fit(&c.place, place(a), widestPlace)
		fit(&c.power, powerLabel(a), widestPlace)
	}
	return c
}

func place(a plan.Action) string {
	if a.Node == "" {
		return Clean(a.ID)
	}
	return Clean(a.Node + "/" + a.ID)
}

// powerLabel is what an action does to a running guest, "" for nothing.
func powerLabel(a plan.Action) string {
	switch {
	case a.Power == field.None || a.Verb == plan.Stop:
		return ""
	case a.Verb == plan.Delete:
		return "[" + a.PowerText() + ", up to " + minutes(apply.DefaultShutdown) + "]"
	}
	return impactLabel(a.Power)
}

// minutes is a duration without the seconds that it does not have.
func minutes(d time.Duration) string {
	if d%time.Minute == 0 && d < time.Hour {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

func impactLabel(i field.Impact) string {
	switch i {
	case field.Live:
		return "[applies live]"
	case field.Pending:
		return "[waits for restart]"
	}
	return "[stop+start]"
}

func power(st Style, i field.Impact) string { return st.impact(i, impactLabel(i)) }

func (s Style) impact(i field.Impact, text string) string {
	switch i {
	case field.Live:
		return s.good(text)
	case field.Pending:
		return s.warn(text)
	}
	return s.bad(text)
}

// action prints the head of an action in columns, then its changes.
func action(w io.Writer, st Style, a plan.Action, c columns) {
	cells := []struct {
		text  string
		width int
		paint func(string) string
	}{
		{sign(a.Verb) + " " + string(a.Verb), c.verb, func(s string) string { return st.paintVerb(a.Verb, s) }},
		{object(a.Ref.Kind, a.Ref.Name), c.object, st.bold},
		{place(a), c.place, func(s string) string { return s }},
		{powerLabel(a), c.power, func(s string) string { return st.powerOf(a, s) }},
		{reason(a), 0, st.dim},
	}
	line, gap := "", 0
	for _, x := range cells {
		if x.text != "" {
			line += fmt.Sprintf("%*s%s", gap, "", x.paint(x.text))
			gap = 0
		}
		if x.width > 0 {
			gap += max(x.width-utf8.RuneCountInString(x.text), 0) + 2
		}
	}
	fmt.Fprintln(w, line)
	for _, l := range changeLines(a) {
		fmt.Fprintln(w, "    "+l.text(st))
	}
	for _, v := range deleted(a) {
		fmt.Fprintln(w, "    "+st.bad("volume ")+Clean(v))
	}
	if a.Refused != "" {
		fmt.Fprintln(w, "    "+st.bad("PVE will refuse this: ")+Clean(a.Refused))
	}
}

func (s Style) powerOf(a plan.Action, text string) string {
	switch {
	case text == "":
		return ""
	case a.Verb == plan.Delete:
		return s.warn(text)
	}
	return s.impact(a.Power, text)
}

func reason(a plan.Action) string {
	if a.Why == "" {
		return ""
	}
	return "(" + Clean(a.Why) + ")"
}

func deleted(a plan.Action) []string {
	if d, ok := a.Do.(plan.DeleteStep); ok {
		return d.Volumes
	}
	return nil
}
