package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/proxops/proxops/internal/journal"
	"github.com/proxops/proxops/internal/show"
)

func (a *app) historyCmd() *cobra.Command {
	var limit int
	var object, output string
	var since time.Duration
	c := &cobra.Command{
		Use: "history", GroupID: "more", Args: noArgs,
		Short: "Print what the daemon did on this machine",
		Long: `Print the journal of proxops run: what was done when, for which commit, with
which task. The journal lies in data-dir and is bounded; the oldest entries go
first. It is for people: nothing depends on it.

With -o json each entry is a line of its own: time (RFC 3339), event (started,
stopped, action, aborted, recovered or interrupted), agent, cluster, commit,
dirty (uncommitted edits on top of it); of an action also action, kind, name,
node, id, why, changes (path, old, new), outcome (done, warnings, failed,
deferred or unknown), error, task (PVE's UPID), took_ns (nanoseconds), warnings
and tail (the task log's last lines). What is empty is left out.

Exit status: 0, or 1 when the journal cannot be read.`,
		RunE: func(*cobra.Command, []string) error {
			if output != "text" && output != "json" {
				return hint{err: fmt.Errorf("-o: %q is not text or json", output)}
			}
			if limit < 0 {
				return hint{err: fmt.Errorf("--limit: %d is less than 0; 0 is all", limit)}
			}
			r, err := a.open(true)
			if err != nil {
				return err
			}
			dir := journal.Dir(r.Settings().DataDir)
			entries, damaged, err := journal.Read(dir, limit, a.wanted(object, since))
			if err != nil {
				return err
			}
			if damaged > 0 {
				fmt.Fprintf(a.err, "%s: %d lines cannot be read and are left out\n", dir, damaged)
			}
			if output == "json" {
				return a.historyJSON(entries)
			}
			asked := ""
			if object != "" || since > 0 || len(a.clusters) > 0 {
				asked = " that --object, --since or --cluster asks for"
			}
			return a.historyText(dir, asked, entries)
		},
	}
	c.Flags().IntVar(&limit, "limit", 50, "the newest entries only; 0 is all")
	c.Flags().StringVar(&object, "object", "", "only this object: kind/name, a name, or an id")
	c.Flags().DurationVar(&since, "since", 0, "only entries of this long ago or newer, such as 24h")
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json (an entry a line)")
	offer(c, "output", "text", "json")
	return c
}

// wanted picks entries.
func (a *app) wanted(object string, since time.Duration) func(journal.Entry) bool {
	from := time.Time{}
	if since > 0 {
		from = time.Now().Add(-since)
	}
	return func(e journal.Entry) bool {
		switch {
		case e.Time.Before(from):
			return false
		case len(a.clusters) > 0 && !slices.Contains(a.clusters, e.Cluster):
			return false
		}
		// PVE keeps a name in the case it was given at first, a manifest may have
		// another; for both they are one name.
		return object == "" || object == e.ID || strings.EqualFold(object, e.Name) || strings.EqualFold(object, e.Kind+"/"+e.Name)
	}
}

func (a *app) historyJSON(entries []journal.Entry) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	for _, e := range entries {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) historyText(dir, asked string, entries []journal.Entry) error {
	if len(entries) == 0 {
		fmt.Fprintf(a.out, "no entries%s in %s; proxops run writes it, apply does not\n", asked, dir)
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tCLUSTER\tWHAT\tOBJECT\tNODE\tID\tOUTCOME\tTOOK\tCOMMIT\tDETAIL")
	for _, e := range entries {
		what, name := string(e.Event), ""
		if e.Event == journal.Action {
			what, name = e.Action, e.Kind+"/"+e.Name
		}
		took := ""
		if e.Took > 0 {
			took = e.Took.Round(100 * time.Millisecond).String()
		}
		first, _, _ := strings.Cut(cmp.Or(e.Error, strings.Join(e.Warnings, "; "), e.Why), "\n")
		row := []string{e.Time.UTC().Format("2006-01-02T15:04:05Z"), e.Cluster, what, name, e.Node, e.ID, e.Outcome, took, show.Commit(e.Commit, e.Dirty), first}
		for i := range row {
			row[i] = cmp.Or(show.Clean(row[i]), "-")
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}
