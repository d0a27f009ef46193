package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/repo"
)

// neighbourPatience is how long another cluster has to tell its nodes.
const neighbourPatience = 10 * time.Second

// elsewhere finds the guests to delete that another cluster of the repository
// declares by vmid and name, where that cluster is this same PVE or does not
// tell. It is asked only for a plan with deletes, and connects to another
// cluster only when the files name such a guest.
func elsewhere(ctx context.Context, c *repo.Cluster, snap *live.Snapshot, pol plan.Policy, r *pve.Reader, o Options) map[int]plan.Elsewhere {
	var out map[int]plan.Elsewhere
	n := neighbours{cluster: c, reader: r, connect: o.Neighbour, doubts: map[string]error{}}
	if n.connect == nil {
		n.connect = o.Connect
	}
	for _, d := range c.Elsewhere(plan.Candidates(c, snap)) {
		names := append([]string{snap.Guests[d.VMID].Name}, pol.Words[d.VMID].Names...)
		if !called(d.Names, names) {
			continue
		}
		err := n.another(ctx, d.Cluster)
		if err == nil {
			continue
		}
		e := plan.Elsewhere{Cluster: d.Cluster, File: d.File}
		if !errors.Is(err, errSamePVE) {
			e.Doubt = err.Error()
		}
		if out == nil {
			out = map[int]plan.Elsewhere{}
		}
		if old, ok := out[d.VMID]; !ok || old.Doubt != "" && e.Doubt == "" {
			out[d.VMID] = e
		}
	}
	return out
}

// called reports whether a declaration's names and a guest's have one in
// common. PVE's names are DNS names, where case says nothing; a declaration
// that does not tell may be of any.
func called(declared, names []string) bool {
	return len(declared) == 0 || slices.ContainsFunc(declared, func(d string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, d) })
	})
}

var errSamePVE = errors.New("it is this same PVE")

// neighbours asks each other cluster once whose it is.
type neighbours struct {
	cluster *repo.Cluster
	reader  *pve.Reader
	connect func(*repo.Cluster) (*pve.Client, error)
	own     []pve.NodeInfo
	doubts  map[string]error // by cluster; nil = it is another PVE
}

// another is nil when the cluster is known to be another PVE than ours,
// errSamePVE when it is the same, else what keeps us from knowing.
func (n *neighbours) another(ctx context.Context, name string) error {
	err, asked := n.doubts[name]
	if !asked {
		err = n.ask(ctx, name)
		n.doubts[name] = err
	}
	return err
}

func (n *neighbours) ask(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, neighbourPatience)
	defer cancel()
	if n.own == nil {
		own, err := n.reader.Nodes(ctx)
		if err != nil {
			return err
		}
		n.own = own
	}
	c, err := n.cluster.Neighbour(name)
	if err != nil {
		return err
	}
	client, err := n.connect(c)
	if err != nil {
		return err
	}
	defer client.Close()
	nodes, err := client.Reader().Nodes(ctx)
	if err != nil {
		return err
	}
	same, known := pve.SameCluster(n.own, nodes)
	switch {
	case same:
		return errSamePVE
	case !known:
		return fmt.Errorf("%s has a node of the same name, and PVE does not tell its certificate: it may be offline", name)
	}
	return nil
}
