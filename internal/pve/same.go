package pve

// SameCluster reports whether two answers of GET /nodes are of one PVE, and
// whether that can be told. A cluster lists all its nodes, with the fingerprint
// of each node's certificate where the node is online, to callers without any
// privilege too (auth au-166, offline-node p2-002): without a common name there are two; a node of both
// with one certificate makes them one. A common name alone says nothing: a
// lone node is often called pve. Nor does a common certificate, which may be a
// wildcard.
func SameCluster(a, b []NodeInfo) (same, known bool) {
	prints := map[string]string{}
	for _, n := range a {
		prints[n.Node] = n.Fingerprint
	}
	known = len(a) > 0 && len(b) > 0
	for _, n := range b {
		print, both := prints[n.Node]
		switch {
		case !both:
		case print == "" || n.Fingerprint == "":
			known = false
		case print == n.Fingerprint:
			return true, true
		}
	}
	return false, known
}
