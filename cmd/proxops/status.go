package main

import (
	"context"
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
	var remote string
	c := &cobra.Command{
		Use: "status", GroupID: "main", Args: noArgs,
		Short: "Say what is in sync, what drifted and what waits",
		Long: `Run a read-only cycle of every cluster and print one row a cluster, then every
object that is not converged with the reason.

With --remote a running daemon is asked instead; the token of its listen-auth
comes from PROXOPS_LISTEN_AUTH, and --ca-file names the authority of its
certificate.

Exit status: 0, or 1 when a cluster or an object has an error.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if remote != "" {
				return a.remoteStatus(cmd.Context(), remote)
			}
			s, err := a.session(cmd.Context(), false)
			if err != nil {
				return err
			}
			return a.statusOf(s.cycles(cmd.Context(), nil))
		},
	}
	c.Flags().StringVar(&remote, "remote", "", "URL of a running proxops run, such as http://127.0.0.1:9494")
	return c
}

func (a *app) statusOf(reports []reconcile.Report) error {
	show.Status(a.out, a.style(a.out), reports)
	for _, r := range reports {
		if r.Failed() {
			return exit(1)
		}
	}
	return nil
}

// remoteStatus prints what a daemon knows, and who reconciles the clusters
// that are not its own.
func (a *app) remoteStatus(ctx context.Context, url string) error {
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
