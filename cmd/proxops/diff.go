package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/show"
	"github.com/spf13/cobra"
)

func getwd() (string, error) { return os.Getwd() }

// formats are the outputs of a plan.
var formats = [...]string{"text", "json", "markdown"}

func (a *app) diffCmd() *cobra.Command {
	var output string
	var vanished []string
	c := &cobra.Command{
		Use: "diff", GroupID: "main", Args: noArgs,
		Short: "Show what PVE must change; writes nothing",
		Long: `Read every cluster and print the plan that apply would run.

Exit status: 0 nothing to do, 2 there are actions, 1 a cluster or an object has
an error or could not be looked at (unknown). Anomalies, busy guests and deletes
held back alone are 0.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(output); err != nil {
				return err
			}
			kinds, err := guestKinds(vanished)
			if err != nil {
				return err
			}
			s, err := a.session(cmd.Context(), false)
			if err != nil {
				return err
			}
			return a.diff(cmd.Context(), s, output, kinds)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text, json or markdown")
	offer(c, "output", "text", "json", "markdown")
	vanishedFlag(c, &vanished)
	return c
}

// diff plans every cluster and prints the plans.
func (a *app) diff(ctx context.Context, s *session, output string, kinds []string) error {
	reports := s.cycles(ctx, func(_ string, o *reconcile.Options) { o.Policy = allow(kinds) })
	if err := a.print(output, reports); err != nil {
		return err
	}
	return diffCode(reports)
}

func checkFormat(o string) error {
	if !slices.Contains(formats[:], o) {
		return hint{err: fmt.Errorf("--output: %q is not one of text, json, markdown", o)}
	}
	return nil
}

func (a *app) print(output string, reports []reconcile.Report) error {
	switch output {
	case "json":
		return show.JSON(a.out, reports)
	case "markdown":
		show.Markdown(a.out, reports)
	default:
		show.Text(a.out, a.style(a.out), reports)
	}
	return nil
}

func vanishedFlag(c *cobra.Command, to *[]string) {
	c.Flags().StringArrayVar(to, "prune-vanished", nil, "allow deletes of this kind although the composition names none of it any more; may be given several times")
	offer(c, "prune-vanished", kindsWithIDs()...)
}

func allow(kinds []string) func(*plan.Policy) {
	return func(p *plan.Policy) { p.PruneVanished = kinds }
}
