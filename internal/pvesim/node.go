package pvesim

import (
	"time"
)

// Node is a member of the cluster.
type Node struct {
	Name string
	// ID is the corosync node id; a lone node has 0.
	ID      int
	IP      string
	Offline bool
	// DownUntil ends an outage that was injected.
	DownUntil time.Time
	// CPUs is the number of cores; memory and root disk are in bytes.
	CPUs      int
	Memory    int64
	RootTotal int64
	RootUsed  int64
	// Bridges are what guests may be put on.
	Bridges []string
	// Files are plain files of the node outside its storages, by path: what root may import by path. PCI are the PCI devices that can be
	// passed through, such as 0000:01:00.0.
	Files map[string]*NodeFile
	PCI   []string
	// Lacks names what the kernel lacks (the Lacks constants); a normal node lacks nothing.
	Lacks []string
}

// NodeFile is a plain file of a node.
type NodeFile struct {
	// Size is what the file takes, Virtual the size of the image in it, in bytes.
	Size    int64
	Virtual int64
	// Format is the image format that is really in it, "" for something else.
	Format string
}

// Online says whether the node answers now.
func (n *Node) Online() bool { return !n.Offline && !time.Now().Before(n.DownUntil) }

// node finds a member by name.
func (w *World) node(name string) *Node {
	for _, n := range w.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// local is the node that clients talk to.
func (w *World) local() *Node { return w.Nodes[0] }

// clustered says whether the nodes form a cluster; a lone node does not.
func (w *World) clustered() bool { return w.ClusterName != "" }

// proxy finds the node a request is for, as PVE's proxy does before it looks at the parameters: unknown names fail in the resolver,
// dead neighbours answer 595 with nothing (facts.md K).
func (w *World) proxy(name string) (*Node, *Error) {
	if name == "localhost" {
		return w.local(), nil
	}
	n := w.node(name)
	if n == nil {
		return nil, die("hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name, name)
	}
	if !n.Online() {
		return nil, &Error{Status: 595, Message: "No route to host", Plain: new(string), Penalty: true}
	}
	return n, nil
}
