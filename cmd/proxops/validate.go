package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/show"
	"github.com/spf13/cobra"
)

func (a *app) validateCmd() *cobra.Command {
	return &cobra.Command{
		Use: "validate", GroupID: "main", Args: noArgs,
		Short: "Check every file offline: no PVE, no age identity needed",
		Long: `Read the configuration, the compositions and every listed manifest, resolve
references and report every fault of every file with file:line:column.

Exit status: 0, or 1 when there is a fault.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.session(cmd.Context(), true)
			if err != nil {
				return err
			}
			st := a.style(a.out)
			loaded, err := s.repo.LoadAll(cmd.Context(), s.names...)
			if err != nil {
				return err
			}
			var faults []string
			for _, l := range loaded {
				if l.Err != nil {
					faults = append(faults, strings.Split(strings.TrimRight(l.Err.Error(), "\n"), "\n")...)
					fmt.Fprintf(a.out, "%s: faulty\n", l.Name)
					continue
				}
				for _, w := range l.Cluster.Warnings {
					fmt.Fprintf(a.out, "%s: warning: %s\n", l.Name, show.Clean(w))
				}
				what := "objects are valid"
				if len(l.Cluster.Resources) == 1 {
					what = "object is valid"
				}
				fmt.Fprintf(a.out, "%s: %d %s\n", l.Name, len(l.Cluster.Resources), what)
			}
			slices.Sort(faults)
			for _, f := range slices.Compact(faults) {
				show.Problems(a.err, st, fmt.Errorf("%s", f))
			}
			if len(faults) > 0 {
				return exit(1)
			}
			return nil
		},
	}
}
