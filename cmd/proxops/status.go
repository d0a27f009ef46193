package main

import (
	"github.com/proxops/proxops/internal/show"
	"github.com/spf13/cobra"
)

func (a *app) statusCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "status", GroupID: "main", Args: noArgs,
		Short: "Say what is in sync, what drifted and what waits",
		Long: `Run a read-only cycle of every cluster and print one row a cluster, then every
object that is not converged with the reason.

Exit status: 0, or 1 when a cluster or an object has an error.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.session(cmd.Context(), false)
			if err != nil {
				return err
			}
			reports := s.cycles(cmd.Context(), nil)
			show.Status(a.out, a.style(a.out), reports)
			for _, r := range reports {
				if r.Failed() {
					return exit(1)
				}
			}
			return nil
		},
	}
	return c
}
