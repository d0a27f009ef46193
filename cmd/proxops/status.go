package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/show"
	"github.com/proxops/proxops/internal/web"
	"github.com/spf13/cobra"
)

func (a *app) statusCmd() *cobra.Command {
	var remote, output string
	c := &cobra.Command{
		Use: "status", GroupID: "main", Args: noArgs,
		Short: "Say what is in sync, what drifted and what waits",
		Long: `Run a read-only cycle of every cluster and print one row a cluster, then every
object that is not converged with the reason.

With --remote a running daemon is asked instead; the token of its listen-auth
comes from PROXOPS_LISTEN_AUTH, and --ca-file names the authority of its
certificate.

Exit status: 0, or 1 when a cluster or an object has an error or could not be
looked at.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return hint{err: fmt.Errorf("--output: %q is not one of text, json", output)}
			}
			if remote != "" {
				return a.remoteStatus(cmd.Context(), remote, output == "json")
			}
			s, err := a.session(cmd.Context(), false)
			if err != nil {
				return err
			}
			reports := s.cycles(cmd.Context(), nil)
			if output != "json" {
				return a.statusOf(reports)
			}
			snap := web.Snapshot{}
			for i := range reports {
				snap.Clusters = append(snap.Clusters, reconcile.Standing{Cluster: reports[i].Cluster, Report: &reports[i], Mine: true})
			}
			st := web.StatusOf(snap)
			return a.statusJSON(st.Clusters, st.Objects, reports)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json: clusters and objects as in a daemon's /status")
	c.Flags().StringVar(&remote, "remote", "", "URL of a running proxops run, such as http://127.0.0.1:9494")
	return c
}

func (a *app) statusOf(reports []reconcile.Report) error {
	show.Status(a.out, a.style(a.out), reports)
	return statusCode(reports)
}

func statusCode(reports []reconcile.Report) error {
	for _, r := range reports {
		if r.Failed() || r.Unread() > 0 {
			return exit(1)
		}
	}
	return nil
}

func (a *app) statusJSON(clusters []web.ClusterStatus, objects []web.ObjectStatus, reports []reconcile.Report) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	doc := struct {
		Clusters []web.ClusterStatus `json:"clusters"`
		Objects  []web.ObjectStatus  `json:"objects"`
	}{append([]web.ClusterStatus{}, clusters...), append([]web.ObjectStatus{}, objects...)}
	if err := enc.Encode(doc); err != nil {
		return err
	}
	return statusCode(reports)
}

// remoteStatus prints what a daemon knows, and who reconciles the clusters
// that are not its own.
func (a *app) remoteStatus(ctx context.Context, url string, asJSON bool) error {
	st, err := web.Fetch(ctx, url, secret.New(a.env["PROXOPS_LISTEN_AUTH"]), a.flags.CAFile)
	if err != nil {
		return err
	}
	var known []string
	for _, c := range st.Clusters {
		known = append(known, c.Name)
	}
	for _, name := range a.clusters {
		if !slices.Contains(known, name) {
			return fmt.Errorf("cluster %q is not one of the daemon's: %s", name, strings.Join(known, ", "))
		}
	}
	picked := func(name string) bool { return len(a.clusters) == 0 || slices.Contains(a.clusters, name) }
	reports := slices.DeleteFunc(st.Reports(), func(r reconcile.Report) bool { return !picked(r.Cluster) })
	if asJSON {
		return a.statusJSON(slices.DeleteFunc(slices.Clone(st.Clusters), func(c web.ClusterStatus) bool { return !picked(c.Name) }),
			slices.DeleteFunc(slices.Clone(st.Objects), func(o web.ObjectStatus) bool { return !picked(o.Cluster) }), reports)
	}
	err = a.statusOf(reports)
	for _, c := range st.Clusters {
		switch {
		case !picked(c.Name) || c.LastCycle != nil:
		case c.Mine:
			fmt.Fprintf(a.out, "%s: its first cycle has not ended yet\n", show.Clean(c.Name))
		case c.Owner != "":
			fmt.Fprintf(a.out, "%s: reconciled by %s\n", show.Clean(c.Name), show.Clean(c.Owner))
		default:
			fmt.Fprintf(a.out, "%s: no agent reconciles it now\n", show.Clean(c.Name))
		}
	}
	return err
}
