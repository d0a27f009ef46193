package reconcile

import (
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
)

// TestWhy: an object that is not converged says why, in a cycle that wrote
// nothing, too: its actions first, then what no action can mend.
func TestWhy(t *testing.T) {
	vm, iso := kind.Ref{Kind: "VM", Name: "a"}, kind.Ref{Kind: "ISO", Name: "i"}
	rep := Report{Cluster: "lab", Plan: plan.Plan{
		Cluster: "lab",
		Objects: []plan.Object{
			{Ref: vm, Node: "n1", VMID: 100, ID: "100", State: plan.Drift},
			{Ref: iso, Node: "n1", ID: "local:iso/i.iso", State: plan.Desired},
			{Ref: iso, Node: "n2", ID: "local:iso/i.iso", State: plan.Converged},
			{Ref: kind.Ref{Kind: "VM", Name: "b"}, Node: "n1", VMID: 101, ID: "101", State: plan.Skipped, Why: "locked (backup)"},
		},
		Actions: []plan.Action{
			{Verb: plan.Update, Ref: vm, Node: "n1", VMID: 100, ID: "100", Why: "drift: memory"},
			{Verb: plan.Download, Ref: iso, Node: "n1", ID: "local:iso/i.iso", Why: "not on the storage"},
		},
		Anomalies: []plan.Anomaly{{Ref: vm, VMID: 100, ID: "100", Anomaly: field.Anomaly{Path: "disks[0].size", Text: "too small"}}},
	}}
	rep.objects(nil)
	want := []string{"drift: memory; disks[0].size: too small", "not on the storage", "", "locked (backup)"}
	if len(rep.Objects) != len(want) {
		t.Fatalf("%d objects, want %d", len(rep.Objects), len(want))
	}
	for i, o := range rep.Objects {
		if o.Why != want[i] {
			t.Errorf("%s/%s on %s: why is %q, want %q", o.Kind, o.Name, o.Node, o.Why, want[i])
		}
	}
}
