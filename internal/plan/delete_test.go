package plan

import (
	"slices"
	"testing"

	"github.com/proxops/proxops/internal/field"
)

// A delete goes out with everything by which the guest is known again right
// before it: what is missing here, nobody can compare there.
func TestDeleteHoldsWhatItIsComparedBy(t *testing.T) {
	g := old(301)
	g.Digest, g.Identity, g.Running = "d301", "vmgenid x, uuid y", true
	for key, text := range map[string]string{"scsi1": "local-lvm:vm-301-disk-7,size=7G", "unused0": "local-lvm:vm-301-disk-8"} {
		g.Config[key] = field.Entry{Value: &text}
	}
	p := Make(cluster(t, manifest("VM", "web", webSpec)), snapshot(g), Policy{Prune: "tagged"})
	i := slices.IndexFunc(p.Actions, func(a Action) bool { return a.Verb == Delete })
	if i < 0 {
		t.Fatalf("no delete: %+v", p)
	}
	step := p.Actions[i].Do.(DeleteStep)
	if step.Digest != "d301" || step.Identity != g.Identity || step.Name != g.Name || !step.Running ||
		!slices.Contains(step.Volumes, "local-lvm:vm-301-disk-7") || !slices.Contains(step.Volumes, "local-lvm:vm-301-disk-8") {
		t.Errorf("%+v", step)
	}
}
