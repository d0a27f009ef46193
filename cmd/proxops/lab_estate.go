package main

import (
	"fmt"

	"github.com/proxops/proxops/internal/pvesim"
)

// Sizes of a simulated node, in bytes and cores.
const (
	gib       = int64(1) << 30
	nodeCores = 16
	nodeRAM   = 64 * gib
	nodeRoot  = 100 * gib
)

// plainEstate is what a fresh installation of PVE on n nodes has: the
// directory storage local, the LVM-thin pool local-lvm and the bridge vmbr0.
func plainEstate(n int) pvesim.State {
	s := pvesim.State{
		Storages: []*pvesim.Storage{
			{ID: "local", Type: "dir", Content: []string{"iso", "vztmpl", "backup", "import", "snippets"}, Total: nodeRoot,
				Props: map[string]string{"path": "/var/lib/vz"}},
			{ID: "local-lvm", Type: "lvmthin", Content: []string{"images", "rootdir"}, Total: 800 * gib,
				Props: map[string]string{"vgname": "pve", "thinpool": "data"}},
		},
		Datacenter: map[string]string{"keyboard": "en-us"},
	}
	for i := 1; i <= n; i++ {
		node := &pvesim.Node{Name: fmt.Sprintf("pve%02d", i), IP: fmt.Sprintf("192.0.2.%d", 10+i), CPUs: nodeCores, Memory: nodeRAM,
			RootTotal: nodeRoot, RootUsed: 6 * gib, Bridges: []string{"vmbr0"}}
		if n > 1 {
			node.ID = i
		}
		s.Nodes = append(s.Nodes, node)
	}
	if n > 1 {
		s.ClusterName = "lab"
	}
	return s
}
