package main

import (
	"context"
	"fmt"

	"github.com/proxops/proxops/internal/kind"
	"github.com/spf13/cobra"
)

func (a *app) nextIDCmd() *cobra.Command {
	from := 100
	c := &cobra.Command{
		Use: "next-id --cluster NAME", GroupID: "more", Args: noArgs,
		Short: "Print a vmid that neither PVE nor the repository uses",
		Long: `Print the lowest vmid from --from on that no guest of the cluster has, guests that
the token cannot see included, and that no manifest of its composition names.
Nothing reserves it.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.nextID(cmd.Context(), from) },
	}
	c.Flags().IntVar(&from, "from", 100, "lowest id to consider")
	return c
}

func (a *app) nextID(ctx context.Context, from int) error {
	if from < 100 || from > 999999999 {
		return hint{err: fmt.Errorf("--from: %d is not in 100-999999999", from)}
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
	for id := from; id <= 999999999; id++ {
		if taken[id] {
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
	return fmt.Errorf("no id from %d on is free", from)
}
