package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/repo"
	"github.com/spf13/cobra"
)

func (a *app) nextIDCmd() *cobra.Command {
	from, kindName := 100, ""
	c := &cobra.Command{
		Use: "next-id --cluster NAME", GroupID: "more", Args: noArgs,
		Short: "Print a vmid that neither PVE nor the repository uses",
		Long: `Print the lowest vmid from --from on that no guest of the cluster has, guests that
the token cannot see included, and that no manifest of its composition names.
With --kind it is one that the cluster's vmid-ranges keep for that kind, else one
that they keep for no kind. Nothing reserves it.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.nextID(cmd.Context(), from, kindName) },
	}
	c.Flags().IntVar(&from, "from", 100, "lowest id to consider")
	c.Flags().StringVar(&kindName, "kind", "", "VM, LXC, TemplateVM or TemplateCT: an id of the kind's vmid-ranges")
	offer(c, "kind", kindsWithIDs()...)
	return c
}

func (a *app) nextID(ctx context.Context, from int, kindName string) error {
	if from < 100 || from > 999999999 {
		return hint{err: fmt.Errorf("--from: %d is not in 100-999999999", from)}
	}
	if kindName != "" {
		k, err := kindNamed(kindName)
		if err != nil || !k.IsGuest() {
			return hint{err: fmt.Errorf("--kind: %q is not one of VM, LXC, TemplateVM, TemplateCT", kindName)}
		}
		kindName = k.Name
	}
	c, client, err := a.reader(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	taken := map[int]bool{}
	for _, r := range c.Resources {
		if g, ok := r.Spec.(kind.GuestSpec); ok {
			_, id := g.Place()
			taken[id] = true
		}
	}
	all, err := client.Reader().Resources(ctx)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.IsGuest() {
			taken[r.VMID] = true
		}
	}
	ranges, text, ok := c.Config.VMIDRanges.Of(kindName)
	var others []repo.VMIDRange
	if !ok {
		others = c.Config.VMIDRanges.Others(kindName)
		ranges, text = []repo.VMIDRange{{From: 100, To: 999999999}}, "100-999999999"
	}
	for _, r := range ranges {
		for id := max(from, r.From); id <= r.To; id++ {
			if taken[id] || slices.ContainsFunc(others, func(r repo.VMIDRange) bool { return r.Has(id) }) {
				continue
			}
			free, err := client.Reader().VMIDFree(ctx, id) // PVE's word counts: the token may not see every guest
			if err != nil {
				return err
			}
			if free {
				fmt.Fprintln(a.out, id)
				return nil
			}
		}
	}
	return fmt.Errorf("no id of %s from %d on is free", text, from)
}

// kindsWithIDs are the kinds of guests and their templates.
func kindsWithIDs() []string {
	var out []string
	for _, k := range kind.All {
		if k.IsGuest() {
			out = append(out, k.Name)
		}
	}
	return out
}
