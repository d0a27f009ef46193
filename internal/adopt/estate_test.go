package adopt_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/adopt"
	"github.com/proxops/proxops/internal/pvesim"
)

// Random clusters: adopt, compose, plan to ownership claims and what the
// manifests list; twice the same bytes; not one write; little more than a call
// a guest.
func TestRandomEstates(t *testing.T) {
	for seed, guests := range map[uint64]int{1: 60, 2: 60, 3: 120, 4: 250, 5: 2000} {
		t.Run(fmt.Sprintf("%d guests, seed %d", guests, seed), func(t *testing.T) {
			if guests > 1000 && testing.Short() {
				t.Skip("long")
			}
			state := pvesim.Estate(seed, guests, 5)
			total := len(state.Guests)
			var nodes []string
			for _, n := range state.Nodes {
				nodes = append(nodes, n.Name)
			}
			e := newEstate(t, state, nodes...)
			start := time.Now()
			_, first := e.adopt(adopt.Options{})
			took := time.Since(start)
			e.untouched()
			res, checked := e.proof(adopt.Options{})
			e.untouched()
			if !bytes.Equal(first.Stream(), res.Stream()) {
				t.Error("adopted twice, the manifests differ")
			}
			adopted := 0
			for _, m := range res.Manifests {
				if m.VMID > 0 {
					adopted++
				}
			}
			if adopted != total || len(res.Refused) > 0 {
				t.Errorf("%d of %d guests were adopted; refused: %v", adopted, total, res.Refused)
			}
			if calls := float64(res.Reads) / float64(total); guests >= 2000 && calls > 1.1 {
				t.Errorf("%.3f calls a guest", calls)
			}
			if checked.Claims == 0 || checked.Objects != len(res.Manifests) {
				t.Errorf("checked %+v of %d", checked, len(res.Manifests))
			}
			if guests < 1000 {
				if _, third := e.adopt(adopt.Options{}); !bytes.Equal(first.Stream(), third.Stream()) { // with its own files there
					t.Error("adopted over its own files, the manifests differ")
				}
			}
			t.Logf("%d manifests, %d claims, %d listed, %.3f calls a guest, %v", len(res.Manifests), checked.Claims, checked.Listed, float64(res.Reads)/float64(total), took.Round(time.Millisecond))
		})
	}
}

// A hundred keys without a field are told once each, however many guests have
// them.
func TestEachGapOnce(t *testing.T) {
	s := pvesim.Estate(9, 40, 2)
	vms := 0
	for _, id := range slices.Sorted(maps.Keys(s.Guests)) {
		g := s.Guests[id]
		if g.Kind != "qemu" {
			continue
		}
		vms++
		for i := range 100 {
			g.Config[fmt.Sprintf("future_%c%c", 'a'+i/10, 'a'+i%10)] = "x"
		}
	}
	e := newEstate(t, s, "pve01", "pve02")
	res, _ := e.proof(adopt.Options{})
	seen := map[string]int{}
	for _, g := range res.Gaps {
		seen[g.Key]++
		if strings.HasPrefix(g.Key, "future_") && (g.Count != vms || len(g.Guests) != vms || g.Reason == "") {
			t.Errorf("%+v: not told of all %d VMs", g, vms)
		}
	}
	future := 0
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%s is told %d times", key, n)
		}
		if strings.HasPrefix(key, "future_") {
			future++
		}
	}
	if future != 100 {
		t.Errorf("%d of 100 keys are told", future)
	}
}
