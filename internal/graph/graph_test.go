package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/proxops/proxops/internal/kind"
)

// parse reads "VM:a < ISO:x ISO:y; ISO:x" into nodes.
func parse(text string) (nodes []Node) {
	ref := func(s string) kind.Ref {
		k, n, _ := strings.Cut(s, ":")
		return kind.Ref{Kind: k, Name: n}
	}
	for _, part := range strings.Split(text, ";") {
		head, needs, _ := strings.Cut(part, "<")
		n := Node{Ref: ref(strings.TrimSpace(head))}
		for _, f := range strings.Fields(needs) {
			n.Needs = append(n.Needs, ref(f))
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func TestLevels(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"VM:a", "[[VM:a]]"},
		{"VM:b < ISO:x; VM:a; ISO:x", "[[ISO:x VM:a] [VM:b]]"},
		{"VM:app < TemplateVM:t ISO:x; TemplateVM:t < ISO:x; ISO:x", "[[ISO:x] [TemplateVM:t] [VM:app]]"},
		{"VM:a < VM:b VM:b; VM:b", "[[VM:b] [VM:a]]"},
		{"VM:a < VM:a", "VM:a → VM:a"},
		{"VM:b < VM:a; VM:a < VM:c; VM:c < VM:b", "VM:a → VM:c → VM:b → VM:a"},
		{"VM:x < VM:b; VM:b < VM:a; VM:a < VM:b", "VM:a → VM:b → VM:a"},
		{"VM:a < ISO:none", "VM:a needs ISO:none, which is not there"},
	} {
		levels, err := Levels(parse(c.in))
		got := fmt.Sprint(levels)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.in, got, c.want)
		}
	}
}

// Every node stands right above its highest need, whatever the input order.
func TestLevelsLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "nodes")
		var nodes []Node
		for i := range n {
			node := Node{Ref: kind.Ref{Kind: "VM", Name: fmt.Sprint(i)}}
			for _, j := range rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 3).Draw(t, "needs") {
				node.Needs = append(node.Needs, kind.Ref{Kind: "VM", Name: fmt.Sprint(j)})
			}
			nodes = append(nodes, node)
		}
		levels, err := Levels(nodes)
		shuffled := rapid.Permutation(nodes).Draw(t, "shuffled")
		again, err2 := Levels(shuffled)
		if fmt.Sprint(levels, err) != fmt.Sprint(again, err2) {
			t.Fatalf("order matters: %v %v, %v %v", levels, err, again, err2)
		}
		var cycle *Cycle
		if errors.As(err, &cycle) {
			for i, r := range cycle.Refs {
				next := cycle.Refs[(i+1)%len(cycle.Refs)]
				at := slices.IndexFunc(nodes, func(n Node) bool { return n.Ref == r })
				if !slices.Contains(nodes[at].Needs, next) {
					t.Fatalf("%v: %s does not need %s", cycle, r, next)
				}
			}
			return
		}
		level := map[kind.Ref]int{}
		count := 0
		for i, refs := range levels {
			for _, r := range refs {
				level[r] = i
				count++
			}
		}
		if count != n {
			t.Fatalf("%d of %d nodes have a level", count, n)
		}
		for _, node := range nodes {
			want := 0
			for _, need := range node.Needs {
				want = max(want, level[need]+1)
			}
			if level[node.Ref] != want {
				t.Fatalf("%s is on level %d, want %d", node.Ref, level[node.Ref], want)
			}
		}
	})
}
