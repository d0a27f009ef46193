package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/proxops/proxops/internal/reconcile"
)

// Markdown prints the reports of a diff for a merge request or a wiki.
func Markdown(w io.Writer, reports []reconcile.Report) {
	for _, r := range reports {
		fmt.Fprintf(w, "## %s\n\n", md(r.Cluster))
		if c := commit(r); c != "" {
			fmt.Fprintf(w, "Commit %s\n\n", md(c))
		}
		if r.Abort != nil {
			for _, l := range strings.Split(r.Abort.Error(), "\n") {
				fmt.Fprintf(w, "- **error** %s\n", md(l))
			}
			fmt.Fprintln(w)
		}
		if len(r.Plan.Actions) > 0 {
			fmt.Fprint(w, "| action | object | where | why | power | changes |\n|---|---|---|---|---|---|\n")
		}
		for _, a := range r.Plan.Actions {
			var ch []string
			for _, l := range changeLines(a) {
				ch = append(ch, md(strings.TrimSpace(l.path)+" "+l.value))
			}
			if a.Refused != "" {
				ch = append(ch, "**PVE will refuse this:** "+md(a.Refused))
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", a.Verb, md(a.Ref.Kind+"/"+a.Ref.Name), md(a.Node+"/"+a.ID), md(a.Why), a.PowerText(), strings.Join(ch, "<br>"))
		}
		if len(r.Plan.Actions) > 0 {
			fmt.Fprintln(w)
		}
		for _, e := range r.Plan.Errors {
			fmt.Fprintf(w, "- **error** %s\n", md(place(e)))
		}
		for _, a := range r.Plan.Anomalies {
			fmt.Fprintf(w, "- **anomaly** %s %s: %s %s _%s_\n", md(a.Ref.Kind+"/"+a.Ref.Name), md(a.ID), md(a.Path), md(a.Text), md(a.Todo))
		}
		for _, s := range r.Plan.Suppressed {
			fmt.Fprintf(w, "- **delete held back** %s %d: %s _%s_\n", md(s.Name), s.VMID, md(s.Text), md(s.Todo))
		}
		fmt.Fprintf(w, "\n%s\n\n", md(totals([]reconcile.Report{r})))
	}
}

// md escapes what Markdown or HTML would act on.
func md(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", `\|`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`).Replace(Clean(s))
}
