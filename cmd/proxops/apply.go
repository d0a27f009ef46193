package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/show"
	"github.com/spf13/cobra"
)

func (a *app) applyCmd() *cobra.Command {
	var dry, diff bool
	var output string
	var vanished []string
	c := &cobra.Command{
		Use: "apply", GroupID: "main", Args: noArgs,
		Short: "Make PVE match the repository",
		Long: `Read every cluster, plan, and run the plan: level by level, in parallel within
a level, one writer per guest. What could not be done now is deferred with its
reason; the next run decides anew.

Ctrl-C starts nothing more and leaves running tasks to PVE; a second one quits
at once.

Exit status: 0 done (tasks that ended with warnings included), 1 a cluster
broke off, an object has an error or could not be looked at (unknown), or an
action failed. With -n as diff.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(output); err != nil {
				return err
			}
			if output != "text" && !dry {
				return hint{err: fmt.Errorf("--output: %s is of a plan alone: add -n, or look at proxops history -o json afterwards", output)}
			}
			kinds, err := guestKinds(vanished)
			if err != nil {
				return err
			}
			s, err := a.session(cmd.Context(), false)
			if err != nil {
				return err
			}
			if dry {
				return a.diff(cmd.Context(), s, output, kinds)
			}
			return a.apply(cmd.Context(), s, diff, kinds)
		},
	}
	c.Flags().BoolVarP(&dry, "dry-run", "n", false, "plan only, as diff does")
	c.Flags().BoolVar(&diff, "diff", false, "print each plan before it runs")
	c.Flags().StringVarP(&output, "output", "o", "text", "with -n: text, json or markdown")
	offer(c, "output", "text", "json", "markdown")
	vanishedFlag(c, &vanished)
	return c
}

// guestKinds are the kinds' names as manifests spell them, from names in any
// case.
func guestKinds(names []string) ([]string, error) {
	var out []string
	for _, n := range names {
		k, err := kindNamed(n)
		if err != nil || !k.IsGuest() {
			return nil, hint{err: fmt.Errorf("--prune-vanished: %q is not one of VM, LXC, TemplateVM, TemplateCT", n)}
		}
		out = append(out, k.Name)
	}
	return out, nil
}

// apply runs the clusters' cycles and prints, while they run, a line for each
// event; on a terminal the actions under way are shown below the lines.
func (a *app) apply(ctx context.Context, s *session, diff bool, vanished []string) error {
	st := a.style(a.out)
	var mu sync.Mutex
	terminal := isTerminal(a.out) && a.env["TERM"] != "dumb"
	to := a.out
	if terminal {
		to = plain(a.out) // whose width the display asks for
	}
	live := show.NewProgress(to, st, terminal)
	reports := s.cycles(ctx, func(name string, o *reconcile.Options) {
		o.Policy = allow(vanished)
		o.Write = true
		o.Apply.Events = func(e apply.Event) { live.Event(name, e) }
		o.Planned = func(p plan.Plan) error {
			if !diff {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			live.Print(func(w show.Writer) {
				show.Section(w, st, reconcile.Report{Cluster: name, Commit: p.Commit, Dirty: p.Dirty, Plan: p})
			})
			return nil
		}
	})
	live.Close()
	show.Applied(a.out, st, reports, diff)
	for _, r := range reports {
		if r.Failed() || r.Unread() > 0 {
			return exit(1)
		}
	}
	return nil
}
