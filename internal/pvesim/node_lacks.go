package pvesim

import "slices"

// What the kernel of a node may lack.
const (
	// LacksAppArmor fails the hot-plugging of containers' mount points.
	LacksAppArmor = "apparmor"
	// Lacks8021q fails whatever puts a running guest's NIC on a VLAN.
	Lacks8021q = "8021q"
	// LacksCgroup2 has the wider CPU weights of cgroup v1.
	LacksCgroup2 = "cgroup2"
)

func (n *Node) lacks(what string) bool { return slices.Contains(n.Lacks, what) }

// clampShares is clamp_cpu_shares: the CPU weights that the kernel takes.
func (n *Node) clampShares(v int) int {
	if n.lacks(LacksCgroup2) {
		return min(max(v, 2), 262144)
	}
	return min(max(v, 1), 10000)
}
