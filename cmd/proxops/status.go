package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/web"
	"github.com/spf13/cobra"
)

func (a *app) statusCmd() *cobra.Command {
	var remote, output string
	c := &cobra.Command{
		Use: "status", GroupID: "main", Args: noArgs,
		Short: "Say what is in sync, what drifted and what waits",
		Long: `Run a read-only cycle of every cluster and print one row a cluster, then every
object that is not converged with the reason, every anomaly and every delete
that is held back, with what to do.

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
			var snap web.Snapshot
			for _, r := range s.cycles(cmd.Context(), nil) {
				snap.Clusters = append(snap.Clusters, reconcile.Standing{Cluster: r.Cluster, Report: &r, Mine: true})
			}
			return a.printStatus(web.StatusOf(snap), output == "json")
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json: clusters and objects as in a daemon's /status")
	offer(c, "output", "text", "json")
	c.Flags().StringVar(&remote, "remote", "", "URL of a running proxops run, such as http://127.0.0.1:9494")
	return c
}

// printStatus prints what a cycle, or a daemon, knows; as JSON the part that the
// two have in common.
func (a *app) printStatus(st web.Status, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(struct {
			Clusters []web.ClusterStatus `json:"clusters"`
			Objects  []web.ObjectStatus  `json:"objects"`
		}{st.Clusters, st.Objects}); err != nil {
			return err
		}
	} else {
		st.Text(a.out, a.style(a.out))
	}
	if st.Bad() {
		return exit(1)
	}
	return nil
}

// remoteStatus prints what a daemon knows, and who reconciles the clusters
// that are not its own.
func (a *app) remoteStatus(ctx context.Context, url string, asJSON bool) error {
	st, err := web.Fetch(ctx, url, secret.New(a.env["PROXOPS_LISTEN_AUTH"]), a.flags.CAFile)
	if err != nil {
		return err
	}
	if err := st.Only(a.clusters); err != nil {
		return err
	}
	return a.printStatus(*st, asJSON)
}
