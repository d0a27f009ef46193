package plan

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/live"
)

// A vmid says nothing of what lives under it now: the type has to be the one
// that was declared, and a doubt keeps the guest.
func TestWordHolds(t *testing.T) {
	ct := guest(300, "pve01", "lxc", "hostname: old300\ntags: proxops\nrootfs: local-lvm:vm-300-disk-0,size=1G")
	tpl := old(300)
	tpl.Template = true
	git := &Hold{Rule: "unknown-name", Text: "not known", Todo: "declare it"}
	files := &Hold{Rule: "stale", Text: "not fetched", Todo: "see why", Files: true}
	word := func(h *Hold, kinds ...string) Word {
		return Word{Commit: "1a2b3c4", Names: []string{"old300"}, Kinds: kinds, Hold: h, Text: "removed by 1a2b3c4"}
	}
	for name, c := range map[string]struct {
		g      *live.Guest
		word   Word
		prune  string
		want   string
		delete bool
	}{
		"as declared":               {old(300), word(nil, "VM"), "", "Delete VM:old300", true},
		"made a template since":     {tpl, word(nil, "VM"), "", "Delete TemplateVM:old300", true},
		"a template, not marked":    {old(300), word(nil, "TemplateVM"), "", "Delete VM:old300", true},
		"a container now":           {ct, word(nil, "VM"), "", "was of VM old300: the vmid may have been used again", false},
		"a VM now":                  {old(300), word(nil, "LXC"), "", "was of LXC old300: the vmid may have been used again", false},
		"a VM, was a CT's template": {old(300), word(nil, "TemplateCT"), "", "the vmid may have been used again", false},
		"declared as both":          {ct, word(nil, "LXC", "VM"), "", "Delete LXC:old300", true},
		"a container, tag alone":    {ct, word(nil, "VM"), "tagged", "Delete LXC:old300", true},
		"git doubts":                {old(300), word(git, "VM"), "", "suppressed VM 300: unknown-name", false},
		"git doubts, tag alone":     {old(300), word(git, "VM"), "tagged", "Delete VM:old300", true},
		"the files doubt":           {old(300), word(files, "VM"), "", "suppressed VM 300: stale", false},
		"the files doubt, tag":      {old(300), word(files, "VM"), "tagged", "suppressed VM 300: stale", false},
	} {
		t.Run(name, func(t *testing.T) {
			pol := Policy{Words: map[int]Word{300: c.word}, Prune: c.prune, PruneVanished: []string{"TemplateVM", "LXC"}}
			p := Make(cluster(t, keep), snapshot(kept(), c.g), pol)
			want(t, p, c.want)
			if got := strings.Contains(lines(p), "Delete"); got != c.delete {
				t.Errorf("deletes: %v\n%s", got, lines(p))
			}
		})
	}
	p := Make(cluster(t, keep), snapshot(kept(), old(300)), Policy{Words: map[int]Word{300: {Broken: true, Todo: "copy the objects", Text: "not readable"}}})
	if len(p.Suppressed) != 1 || !strings.HasPrefix(p.Suppressed[0].Todo, "copy the objects; with reconcile.prune: tagged") {
		t.Errorf("%+v", p.Suppressed)
	}
}
