package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
)

// Markdown prints the reports of a diff for a merge request or a wiki: of each
// cluster a heading, a table of actions, a list of findings and the totals.
func Markdown(w io.Writer, reports []reconcile.Report) {
	for _, r := range reports {
		parts := []string{"## " + md(r.Cluster)}
		if c := commit(r); c != "" {
			parts = append(parts, "Commit "+md(c))
		}
		for _, lines := range [][]string{mdNotes(r), mdActions(r.Plan.Actions), mdFindings(r.Plan)} {
			if len(lines) > 0 {
				parts = append(parts, strings.Join(lines, "\n"))
			}
		}
		parts = append(parts, md(totals([]reconcile.Report{r})))
		fmt.Fprintf(w, "%s\n\n", strings.Join(parts, "\n\n"))
	}
}

func mdNotes(r reconcile.Report) []string {
	var out []string
	for _, n := range r.Plan.Notes {
		out = append(out, "- **note** "+md(n))
	}
	for _, l := range faults(r.Abort) {
		out = append(out, "- **error** "+md(l))
	}
	return out
}

func mdActions(actions []plan.Action) []string {
	if len(actions) == 0 {
		return nil
	}
	out := []string{"| action | object | where | why | power | changes |", "|---|---|---|---|---|---|"}
	for _, a := range actions {
		var ch []string
		for _, l := range changeLines(a) {
			ch = append(ch, md(strings.TrimSpace(l.path)+" "+strings.TrimSpace(l.value)))
		}
		for _, v := range deleted(a) {
			ch = append(ch, "volume "+md(v))
		}
		if a.Refused != "" {
			ch = append(ch, "**PVE will refuse this:** "+md(a.Refused))
		}
		out = append(out, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", a.Verb, md(a.Ref.Kind+"/"+a.Ref.Name), md(place(a)), md(a.Why), a.PowerText(), strings.Join(ch, "<br>")))
	}
	return out
}

func mdFindings(p plan.Plan) []string {
	var out []string
	todo := func(s string) string {
		if s == "" {
			return ""
		}
		return " _" + md(s) + "_"
	}
	for _, e := range p.Errors {
		out = append(out, "- **error** "+md(errorPlace(e)))
	}
	for _, a := range p.Anomalies {
		text := a.Text
		if a.Path != "" {
			text = a.Path + ": " + text
		}
		out = append(out, fmt.Sprintf("- **anomaly** %s %s: %s%s", md(a.Ref.Kind+"/"+a.Ref.Name), md(a.ID), md(text), todo(a.Todo)))
	}
	for _, s := range p.Suppressed {
		k := "guest"
		if s.Kind != nil {
			k = s.Kind.Name
		}
		out = append(out, fmt.Sprintf("- **delete held back** %s %d%s: %s%s", md(k+"/"+s.Name), s.VMID, md(on(s.Node)), md(s.Text), todo(s.Todo)))
	}
	for _, o := range p.Objects {
		state, ok := noted(o)
		if !ok {
			continue
		}
		text := md(o.Why)
		if lines := changeLines(plan.Action{Kind: o.Kind, Changes: o.Waiting}); len(lines) > 0 {
			var ch []string
			for _, l := range lines {
				ch = append(ch, md(strings.TrimSpace(l.path)+" "+strings.TrimSpace(l.value)))
			}
			text = strings.Join(ch, ", ")
		}
		out = append(out, fmt.Sprintf("- **%s** %s %s%s: %s%s", state, md(o.Ref.Kind+"/"+o.Ref.Name), md(o.ID), md(on(o.Node)), text, todo(o.Todo)))
	}
	return out
}

// md escapes what Markdown or HTML would act on.
func md(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`).Replace(Clean(s))
}
