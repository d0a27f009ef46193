package main

import (
	"encoding/json"
	"fmt"
	"os"

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

// readEstate reads what proxops snapshot wrote.
func readEstate(file string) (pvesim.State, error) {
	var s pvesim.State
	b, err := os.ReadFile(file)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s: %w; it should be a file that proxops snapshot wrote", file, err)
	}
	if len(s.Nodes) == 0 {
		return s, fmt.Errorf("%s: names no node; it should be a file that proxops snapshot wrote", file)
	}
	return s, nil
}
