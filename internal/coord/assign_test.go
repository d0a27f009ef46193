package coord

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func list(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

func loads(m map[string]string, agents []string) (low, high int) {
	n := map[string]int{}
	for _, a := range m {
		n[a]++
	}
	low = len(m)
	for _, a := range agents {
		low, high = min(low, n[a]), max(high, n[a])
	}
	return low, high
}

// Every cluster has one agent of those there are, and all have as many give or
// take one, whatever order the sets come in.
func TestAssignSpreads(t *testing.T) {
	for clusters := range 60 {
		for agents := 1; agents < 12; agents++ {
			c, a := list("c", clusters), list("a", agents)
			got := assign(c, a)
			if len(got) != clusters {
				t.Fatalf("%d clusters, %d agents: %d assigned", clusters, agents, len(got))
			}
			if low, high := loads(got, a); clusters > 0 && high-low > 1 {
				t.Errorf("%d clusters, %d agents: from %d to %d each", clusters, agents, low, high)
			}
			shuffle := func(s []string) []string {
				s = append(slices.Clone(s), s[:len(s)/2]...) // and some twice
				rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
				return s
			}
			if again := assign(shuffle(c), shuffle(a)); !maps.Equal(got, again) {
				t.Errorf("%d clusters, %d agents: the order matters", clusters, agents)
			}
		}
	}
	if got := assign(list("c", 3), nil); len(got) != 0 {
		t.Errorf("no agents: %v", got)
	}
}

// An agent's death moves its own clusters and few others.
func TestAssignMovesFew(t *testing.T) {
	c, a := list("c", 50), list("a", 5)
	before := assign(c, a)
	for gone := range a {
		after := assign(c, slices.Delete(slices.Clone(a), gone, gone+1))
		moved := 0
		for name, owner := range before {
			if owner != a[gone] && after[name] != owner {
				moved++
			}
		}
		if moved > 20 {
			t.Errorf("the death of %s moved %d clusters of others", a[gone], moved)
		}
	}
}

func TestView(t *testing.T) {
	v := viewOf("/p", map[string]keyed{
		"/p/agents/01":          {`{"name":"one","host":"h"}`, 1},
		"/p/agents/02":          {`{"name":"two"}`, 2},
		"/p/agents/03":          {`broken`, 3},
		"/p/clusters/prod/02":   {"02", 9},
		"/p/clusters/prod/01":   {"01", 7},
		"/p/clusters/lab/02":    {"02", 8},
		"/p/something/else/out": {"", 1},
	})
	if got := v.owner("prod"); got != (candidate{"01", 7}) {
		t.Errorf("the oldest candidacy owns: %+v", got)
	}
	if v.owner("none") != (candidate{}) || !v.stands("prod", "02") || v.stands("lab", "01") {
		t.Errorf("%+v", v)
	}
	m := v.members("02")
	if len(m) != 2 || m[0].Name != "one" || !slices.Equal(m[0].Clusters, []string{"prod"}) || !m[1].Self || !slices.Equal(m[1].Clusters, []string{"lab"}) {
		t.Errorf("%+v", m)
	}
}
