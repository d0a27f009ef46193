package pve

import "testing"

func TestSameCluster(t *testing.T) {
	nodes := func(pairs ...string) (out []NodeInfo) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, NodeInfo{Node: pairs[i], Fingerprint: pairs[i+1]})
		}
		return out
	}
	for name, c := range map[string]struct {
		a, b        []NodeInfo
		same, known bool
	}{
		"one node, asked twice":                  {nodes("pve01", "AA"), nodes("pve01", "AA"), true, true},
		"two lone nodes of one name":             {nodes("pve01", "AA"), nodes("pve01", "BB"), false, true},
		"no common name, one wildcard":           {nodes("pve01", "AA"), nodes("pve02", "AA"), false, true},
		"a node is offline, the other tells":     {nodes("pve01", "", "pve02", "BB"), nodes("pve01", "AA", "pve02", "BB"), true, true},
		"the common node is offline":             {nodes("pve01", ""), nodes("pve01", "AA"), false, false},
		"one of two offline, the other differs":  {nodes("pve01", "", "pve02", "BB"), nodes("pve01", "AA", "pve02", "CC"), false, false},
		"a node was added between the questions": {nodes("pve01", "AA"), nodes("pve01", "AA", "pve02", "BB"), true, true},
		"an offline node that the other has not": {nodes("pve01", "AA", "pve02", ""), nodes("pve01", "BB"), false, true},
		"an empty answer is none":                {nil, nodes("pve01", "AA"), false, false},
	} {
		same, known := SameCluster(c.a, c.b)
		if same != c.same || known != c.known {
			t.Errorf("%s: same %v, known %v", name, same, known)
		}
		if same2, known2 := SameCluster(c.b, c.a); same2 != same || known2 != known {
			t.Errorf("%s: the order matters", name)
		}
	}
}
