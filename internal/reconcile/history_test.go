package reconcile

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/proxops/proxops/internal/gitrepo"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
)

// The history is read when there is something to prune, and then once for a
// commit.
func TestHistoryIsReadOnlyToPrune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "lab")
		commit := e.repository()
		var memory gitrepo.Memory
		cycle := func(write bool, reads int) Report {
			t.Helper()
			rep := Cycle(t.Context(), Options{
				Cluster: "lab", Write: write, Memory: &memory, Connect: e.connect,
				Load: func(ctx context.Context) (*repo.Cluster, error) {
					r, err := e.options().Open()
					if err != nil {
						return nil, err
					}
					return r.Load(ctx, "lab")
				},
			})
			if rep.Failed() || memory.Reads() != reads {
				t.Fatalf("%d reads of the history, want %d; %v", memory.Reads(), reads, rep.Abort)
			}
			return rep
		}
		web, old := vmText("web", 100, "512MiB"), vmText("old", 9001, "512MiB")
		e.vms("lab", web, old)
		commit()
		cycle(true, 0)
		cycle(false, 0)
		e.vms("lab", vmText("web", 100, "1GiB"), old)
		commit()
		cycle(true, 0)
		e.vms("lab", vmText("web", 100, "1GiB"))
		by := commit()
		for range 2 {
			rep := cycle(false, 1)
			if len(rep.Plan.Actions) != 1 || rep.Plan.Actions[0].Verb != plan.Delete || !strings.Contains(rep.Plan.Actions[0].Why, by[:10]) {
				t.Errorf("%+v", rep.Plan.Actions)
			}
		}
		cycle(true, 1)
		cycle(true, 1)
	})
}
