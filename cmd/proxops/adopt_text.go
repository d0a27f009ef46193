package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/adopt"
	"github.com/proxops/proxops/internal/show"
)

// text prints what adopt did with each cluster.
func (x *adoption) text(w io.Writer, reports []adoptReport, shared []string) {
	st := x.app.style(w)
	for i, r := range reports {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, show.Bold(st, "=== "+r.res.Cluster+" ==="))
		x.files(w, st, r)
		x.incomplete(w, st, r)
		x.gaps(w, st, r)
		x.secrets(w, r)
		x.terraform(w, st, r)
		for _, h := range r.res.Hints {
			fmt.Fprintln(w, "hint:", show.Clean(h))
		}
		x.checked(w, st, r)
		fmt.Fprintf(w, "requests to PVE: %d reads, %d writes\n", r.res.Reads, r.writes)
		if r.writes != 0 {
			fmt.Fprintln(w, "a write was sent although adopt never does: this is a bug in ProxOps")
		}
	}
	for _, h := range shared {
		fmt.Fprintln(w, "hint:", show.Clean(h))
	}
}

func head(w io.Writer, st show.Style, format string, args ...any) {
	fmt.Fprintln(w, show.Bold(st, fmt.Sprintf(format, args...)))
}

func (x *adoption) files(w io.Writer, st show.Style, r adoptReport) {
	count := map[adopt.Status]int{}
	for _, f := range r.files {
		count[f.Status]++
	}
	fmt.Fprintf(w, "objects adopted: %d", len(r.res.Manifests))
	for _, s := range []adopt.Status{adopt.Written, adopt.Replaced, adopt.Same, adopt.Differs, adopt.Declared} {
		if count[s] > 0 {
			fmt.Fprintf(w, ", %d %s", count[s], s)
		}
	}
	fmt.Fprintln(w)
	for _, f := range r.files {
		if f.Diff == "" {
			continue
		}
		if f.Status == adopt.Differs {
			head(w, st, "%s says something else and was left; --force overwrites it:", f.Manifest.File)
		} else {
			head(w, st, "%s was overwritten:", f.Manifest.File)
		}
		for l := range strings.Lines(f.Diff) {
			fmt.Fprintln(w, "  "+show.Clean(strings.TrimRight(l, "\n")))
		}
	}
	x.composition(w, st, r)
}

// composition tells what the cluster's composition lacks.
func (x *adoption) composition(w io.Writer, st show.Style, r adoptReport) {
	file := strings.TrimSuffix(r.proposal.File, ".proposed")
	switch {
	case r.proposed && r.proposal.None:
		fmt.Fprintf(w, "new lines in %s, %d: there is no %s yet; rename it to that when you agree\n", r.proposal.File, len(r.proposal.New), file)
	case r.proposed:
		fmt.Fprintf(w, "new lines in %s, %d: compare it with resources.yaml and put it in its place\n", r.proposal.File, len(r.proposal.New))
	case len(r.proposal.New) == 0:
	default:
		if r.proposal.None {
			head(w, st, "there is no %s yet; make it, or let --compose propose it:", file)
			fmt.Fprintln(w, "  resources:")
		} else {
			head(w, st, "add to resources: in %s", file)
		}
		for _, l := range r.proposal.New {
			fmt.Fprintln(w, "  - "+l)
		}
	}
}

func (x *adoption) incomplete(w io.Writer, st show.Style, r adoptReport) {
	type unknown struct{ kind, path string }
	count := map[unknown]int{}
	var order []unknown
	var rest []string
	for _, m := range r.res.Manifests {
		for _, i := range m.Incomplete {
			if !i.Unknown {
				rest = append(rest, fmt.Sprintf("%s: %s: %s", m.File, i.Path, i.Text))
				continue
			}
			u := unknown{m.Kind.Name, i.Path}
			if count[u] == 0 {
				order = append(order, u)
			}
			count[u]++
		}
		if m.Fault != "" {
			rest = append(rest, fmt.Sprintf("%s: %s: this is a bug in ProxOps", m.File, m.Fault))
		}
	}
	if len(order)+len(rest) > 0 {
		head(w, st, "INCOMPLETE, for a human to decide:")
	}
	for _, u := range order {
		fmt.Fprintf(w, "  %s of %s: not known to PVE, needed only to make the object anew\n", u.path, several(count[u], u.kind+" manifest"))
	}
	for _, l := range rest {
		fmt.Fprintln(w, "  "+show.Clean(l))
	}
	if len(r.res.Refused) > 0 {
		head(w, st, "not adopted:")
	}
	for _, f := range r.res.Refused {
		at := strings.TrimSpace(f.Kind + " " + f.ID)
		if f.Node != "" {
			at += " on " + f.Node
		}
		if at != "" {
			at += ": "
		}
		fmt.Fprintln(w, "  "+show.Clean(at+f.Text))
	}
}

func (x *adoption) gaps(w io.Writer, st show.Style, r adoptReport) {
	var own []string
	titled, width := false, 0
	for _, g := range r.res.Gaps {
		if !g.Own {
			width = max(width, len(show.Clean(g.Key)))
		}
	}
	for _, g := range r.res.Gaps {
		if g.Own {
			own = append(own, fmt.Sprintf("%s (%d)", g.Key, g.Count))
			continue
		}
		if !titled {
			head(w, st, "gaps, which stay as they are in PVE:")
			titled = true
		}
		fmt.Fprintf(w, "  %-*s %4d  %s", width, show.Clean(g.Key), g.Count, show.Clean(g.Reason))
		if len(g.Values) > 0 {
			fmt.Fprintf(w, ": %s", show.Clean(strings.Join(g.Values, " | ")))
		}
		if g.More > 0 {
			fmt.Fprintf(w, " and %d more", g.More)
		}
		fmt.Fprintln(w)
	}
	if len(own) > 0 {
		fmt.Fprintln(w, "PVE's own records, nothing to declare:", show.Clean(strings.Join(own, ", ")))
	}
}

func ids(list []int) string {
	var out []string
	for _, id := range list {
		out = append(out, fmt.Sprint(id))
	}
	return strings.Join(out, ", ")
}

func (x *adoption) secrets(w io.Writer, r adoptReport) {
	if len(r.added) > 0 {
		fmt.Fprintf(w, "public keys stored in the secrets file, %d: %s\n", len(r.added), strings.Join(r.added, ", "))
	}
	if n := len(r.res.Sentinel); n > 0 {
		fmt.Fprintf(w, "public keys left as they are (ssh-keys: [\"*\"]), since no secrets file holds all of them, on %d: %s\n", n, ids(r.res.Sentinel))
	}
	if n := len(r.res.Passwords); n > 0 {
		fmt.Fprintf(w, "cloud-init passwords, which PVE does not give back, on %d: %s; name a ci-password-ref before one is made anew\n", n, ids(r.res.Passwords))
	}
}

func (x *adoption) terraform(w io.Writer, st show.Style, r adoptReport) {
	if x.flags.state == "" {
		return
	}
	found := map[string]bool{}
	var lines []string
	for _, m := range r.res.Manifests {
		if m.Terraform != "" {
			found[m.Terraform] = true
			lines = append(lines, fmt.Sprintf("  terraform state rm %s   # %s", shellQuoted(show.Clean(m.Terraform)), m.File))
		}
	}
	head(w, st, "Terraform: %d of %d guests of the state were adopted; when diff shows claims alone:", len(lines), len(x.state))
	for _, l := range lines {
		fmt.Fprintln(w, l)
	}
	for _, t := range x.state {
		if !found[t.Address] && !slices.Contains(r.twice, t.VMID) {
			fmt.Fprintf(w, "  %s (vmid %d) is in the state and was not adopted here\n", show.Clean(t.Address), t.VMID)
		}
	}
	if len(r.twice) > 0 {
		fmt.Fprintf(w, "  these vmids stand in the state more than once and were not named after it: %s\n", ids(r.twice))
	}
}

// shellQuoted is text as one word of a shell, whatever it holds: the lines are
// made to be pasted, and an index key may be any text.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func several(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func (x *adoption) checked(w io.Writer, st show.Style, r adoptReport) {
	c := r.checked
	if c == nil {
		return
	}
	fmt.Fprintf(w, "check: %s planned: %s, %s listed as INCOMPLETE, %s\n", several(c.Objects, "object"), several(c.Claims, "ownership claim"),
		several(c.Listed, "item"), several(len(c.Bugs), "other difference"))
	for _, s := range c.Skipped {
		fmt.Fprintln(w, "  not compared: "+show.Clean(s))
	}
	if len(c.Bugs) > 0 {
		head(w, st, "what adopt wrote is not what PVE has; this is a bug in ProxOps, please report it:")
		for _, b := range c.Bugs {
			fmt.Fprintln(w, "  "+show.Clean(b))
		}
	}
}

type adoptObjectJSON struct {
	Kind       string       `json:"kind"`
	Name       string       `json:"name"`
	ID         string       `json:"id"`
	Nodes      []string     `json:"nodes"`
	File       string       `json:"file"`
	Status     adopt.Status `json:"status"`
	Incomplete []adopt.Item `json:"incomplete"`
	Terraform  string       `json:"terraform,omitempty"`
	Fault      string       `json:"fault,omitempty"`
	Diff       string       `json:"diff,omitempty"`
}

type adoptJSONCluster struct {
	Name      string            `json:"name"`
	Objects   []adoptObjectJSON `json:"objects"`
	Refused   []adopt.Refusal   `json:"refused"`
	Gaps      []adopt.Group     `json:"gaps"`
	Hints     []string          `json:"hints"`
	Passwords []int             `json:"passwords"`
	KeepKeys  []int             `json:"keep_keys"`
	Stored    []string          `json:"stored_keys"`
	Resources []string          `json:"resources"`
	Check     *adoptJSONCheck   `json:"check,omitempty"`
	Reads     int64             `json:"reads"`
	Writes    int64             `json:"writes"`
}

type adoptJSONCheck struct {
	Objects int      `json:"objects"`
	Claims  int      `json:"claims"`
	Listed  int      `json:"listed"`
	Skipped []string `json:"skipped"`
	Bugs    []string `json:"bugs"`
}

// adoptJSON prints the reports for programs. Lists are never null.
func adoptJSON(w io.Writer, reports []adoptReport, shared []string) error {
	clusters := []adoptJSONCluster{}
	for _, r := range reports {
		c := adoptJSONCluster{Name: r.res.Cluster, Objects: []adoptObjectJSON{}, Refused: some(r.res.Refused), Gaps: some(r.res.Gaps),
			Hints: some(r.res.Hints), Passwords: some(r.res.Passwords), KeepKeys: some(r.res.Sentinel), Stored: some(r.added),
			Resources: some(r.proposal.New), Reads: r.res.Reads, Writes: r.writes}
		for _, f := range r.files {
			m := f.Manifest
			c.Objects = append(c.Objects, adoptObjectJSON{Kind: m.Kind.Name, Name: m.Name, ID: m.ID, Nodes: some(m.Nodes), File: m.File, Status: f.Status,
				Incomplete: some(m.Incomplete), Terraform: m.Terraform, Fault: m.Fault, Diff: f.Diff})
		}
		if k := r.checked; k != nil {
			c.Check = &adoptJSONCheck{k.Objects, k.Claims, k.Listed, some(k.Skipped), some(k.Bugs)}
		}
		clusters = append(clusters, c)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		Clusters []adoptJSONCluster `json:"clusters"`
		Hints    []string           `json:"hints"`
	}{clusters, some(shared)})
}

func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
