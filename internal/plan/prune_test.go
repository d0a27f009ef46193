package plan

import (
	"fmt"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/live"
)

// keep is a declared VM, so that the kind has not vanished.
var keep = manifest("VM", "keep", strings.Replace(webSpec, "vmid: 100", "vmid: 150", 1))

func kept() *live.Guest {
	return guest(150, "pve01", "qemu", strings.NewReplacer("name: web", "name: keep", "vm-100", "vm-150").Replace(webConfig))
}

// old is an undeclared VM of ours.
func old(id int) *live.Guest {
	return guest(id, "pve01", "qemu", fmt.Sprintf("name: old%d\ntags: proxops\nvmgenid: %d\nscsi0: local-lvm:vm-%d-disk-0,size=1G\nide2: local:iso/x.iso,media=cdrom\nunused0: local-lvm:vm-%d-disk-1", id, id, id, id))
}

func TestPrune(t *testing.T) {
	edit := func(g *live.Guest, f func(*live.Guest)) *live.Guest { f(g); return g }
	never := map[int]Word{300: {Never: true, Text: "never declared in the whole history"}}
	tests := []struct {
		name   string
		g      *live.Guest
		policy Policy
		s      func(*live.Snapshot)
		want   string
		prunes bool
	}{
		{"ours", old(300), Policy{Words: map[int]Word{300: {Commit: "1a2b3c4", Text: "removed by 1a2b3c4"}}}, nil, "Delete VM:old300 pve01", true},
		{"untagged", edit(old(300), func(g *live.Guest) { g.Tags = nil }), Policy{}, nil, "", false},
		{"older tool's tag", edit(old(300), func(g *live.Guest) { g.Tags = []string{"pveconform"} }), Policy{}, nil, "", false},
		{"node not allowed", edit(old(300), func(g *live.Guest) { g.Node = "pve03" }), Policy{}, nil, "", false},
		{"git never knew it", old(300), Policy{Words: never}, nil, "but its vmid was never declared in the whole history: the tag is inherited or was set by hand", false},
		{"vmid used again", old(300), Policy{Words: map[int]Word{300: {Commit: "1a2b3c4", Names: []string{"web"}, Text: "removed by 1a2b3c4"}}}, nil, "the vmid may have been used again", false},
		{"named as declared", old(300), Policy{Words: map[int]Word{300: {Commit: "1a2b3c4", Names: []string{"a", "Old300"}, Text: "removed by 1a2b3c4"}}}, nil, "Delete VM:old300 pve01", true},
		{"history not readable", old(300), Policy{Words: map[int]Word{300: {Broken: true, Text: "git could not be asked: object not found"}}}, nil, "suppressed VM 300: unreadable-history", false},
		{"no history", old(300), Policy{Words: map[int]Word{300: {Text: "git could not be asked: the clone is shallow"}}}, nil, "Delete VM:old300 pve01", true},
		{"tag alone decides", old(300), Policy{Words: never, Prune: "tagged"}, nil, "Delete VM:old300", true},
		{"incomplete read", old(300), Policy{}, func(s *live.Snapshot) { s.Complete = false }, "suppressed VM 300: incomplete-read", false},
		{"not read", edit(old(300), func(g *live.Guest) { g.Read = false }), Policy{}, nil, "suppressed VM 300: incomplete-read", false},
		{"protected", edit(old(300), func(g *live.Guest) {
			one := "1"
			e := g.Config["protection"]
			e.Value = &one
			g.Config["protection"] = e
		}), Policy{}, nil, "suppressed VM 300: protection", false},
		{"busy", edit(old(300), func(g *live.Guest) { g.Busy = "locked (backup)" }), Policy{}, nil, "suppressed VM 300: busy", false},
		{"HA", edit(old(300), func(g *live.Guest) { g.HA = "started" }), Policy{}, nil, "suppressed VM 300: ha", false},
		{"power not read", edit(old(300), func(g *live.Guest) { g.Unknown = "whether it runs could not be read" }), Policy{}, nil, "suppressed VM 300: incomplete-read", false},
		{"HA that ignores it", old(300), Policy{}, func(s *live.Snapshot) { s.Jobs = &live.Jobs{HA: map[int]string{300: "ignored"}} }, "suppressed VM 300: ha", false},
		{"moved to a cluster of the same PVE", old(300), Policy{Elsewhere: map[int]Elsewhere{300: {Cluster: "d", File: "vm/d/a.yaml"}}}, nil, "suppressed VM 300: declared-elsewhere", false},
		{"moved, the tag alone decides", old(300), Policy{Prune: "tagged", Elsewhere: map[int]Elsewhere{300: {Cluster: "d", Doubt: "no answer"}}}, nil, "suppressed VM 300: declared-elsewhere", false},
		{"replicated", old(300), Policy{}, func(s *live.Snapshot) { s.Jobs = &live.Jobs{Replication: map[int][]string{300: {"300-0"}}} }, "suppressed VM 300: replication", false},
		{"template with linked clones", edit(old(300), func(g *live.Guest) { g.Template = true; g.Linked = []int{301} }), Policy{PruneVanished: []string{"TemplateVM"}}, nil, "suppressed TemplateVM 300: linked-clones", false},
		{"vanished kind", edit(old(300), func(g *live.Guest) { g.Template = true }), Policy{}, nil, "suppressed TemplateVM 300: vanished-kind", false},
		{"vanished kind, meant", edit(old(300), func(g *live.Guest) { g.Template = true }), Policy{PruneVanished: []string{"templatevm"}}, nil, "Delete TemplateVM:old300", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := snapshot(kept(), tt.g)
			if tt.s != nil {
				tt.s(s)
			}
			p := Make(cluster(t, keep), s, tt.policy)
			want(t, p, tt.want)
			if prunes := strings.Contains(lines(p), "Delete"); prunes != tt.prunes {
				t.Errorf("prunes: %v, want %v\n%s", prunes, tt.prunes, lines(p))
			}
		})
	}
}

// A guest that is declared, on whatever node or by whatever kind, is never
// deleted.
func TestPruneNeverDeclared(t *testing.T) {
	for _, node := range []string{"pve01", "pve02", "pve03"} {
		for _, guestType := range []string{"qemu", "lxc"} {
			g := guest(150, node, guestType, "name: x\nhostname: x\ntags: proxops")
			if p := Make(cluster(t, keep), snapshot(g), Policy{}); strings.Contains(lines(p), "Delete") {
				t.Errorf("%s on %s: a declared vmid is deleted:\n%s", guestType, node, lines(p))
			}
		}
	}
}

func TestPruneBudgetAndOrder(t *testing.T) {
	tpl := old(301)
	tpl.Template = true
	s := snapshot(kept(), old(305), old(302), tpl, old(303), old(304))
	c := cluster(t, keep, manifest("TemplateVM", "golden", goldenSpec))
	s.Free[900] = false
	p := Make(c, s, Policy{PruneBudget: 3})
	want(t, p, "Delete VM:old302 pve01\nDelete VM:old303 pve01\nDelete VM:old304 pve01\n", "suppressed VM 305: budget\nsuppressed TemplateVM 301: budget")
	if n := strings.Count(lines(p), "Delete"); n != 3 {
		t.Errorf("%d deletes for a budget of 3", n)
	}
	p = Make(c, s, Policy{})
	want(t, p, "Delete VM:old305 pve01\nDelete TemplateVM:old301 pve01\n")
}

// A manifest with another vmid, or the vmid of another guest, ends no guest and
// renames none: only a manifest that is gone does.
func TestChangedVmidEndsNoGuest(t *testing.T) {
	at := func(name string, id int) *live.Guest {
		g := old(id)
		g.Name = name
		g.Config["name"] = field.Entry{Value: &name}
		return g
	}
	vm := func(name string, id int, more ...string) string {
		return manifest("VM", name, strings.Replace(webSpec, "vmid: 100", fmt.Sprintf("vmid: %d", id), 1)+strings.Join(more, ""))
	}
	for _, c := range []struct {
		name   string
		live   []*live.Guest
		files  []string
		want   []string
		writes bool
	}{
		{"another number", []*live.Guest{at("a", 300)}, []string{vm("a", 301)}, []string{"suppressed VM 300: still-declared", "Create VM:a"}, true},
		{"another number and case", []*live.Guest{at("A", 300)}, []string{vm("a", 301)}, []string{"suppressed VM 300: still-declared"}, true},
		{"under its PVE name", []*live.Guest{at("b", 300)}, []string{vm("a", 301, "pve-name: b\n")}, []string{"suppressed VM 300: still-declared"}, true},
		{"another's number", []*live.Guest{at("a", 300), at("b", 301)}, []string{vm("a", 301)}, []string{"suppressed VM 300: still-declared", `"a" lives under vmid 300`}, false},
		{"mixed up", []*live.Guest{at("a", 300), at("b", 301)}, []string{vm("a", 301), vm("b", 300)}, []string{`"a" lives under vmid 300`, `"b" lives under vmid 301`}, false},
		{"renamed", []*live.Guest{at("b", 301)}, []string{vm("a", 301)}, []string{"Update VM:a pve01 "}, true},
		{"the name of another kind", []*live.Guest{at("dns", 300)}, []string{vm("keep", 301), manifest("LXC", "dns", ctSpec)}, []string{"Delete VM:dns"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := snapshot(c.live...)
			s.Free[301], s.Free[200] = true, true
			p := Make(cluster(t, c.files...), s, Policy{})
			want(t, p, c.want...)
			if !c.writes {
				wantNoWrites(t, p)
			}
			if strings.Contains(lines(p), "Delete") != strings.HasPrefix(c.want[0], "Delete") {
				t.Errorf("a delete:\n%s", lines(p))
			}
		})
	}
}

// What the delete takes along, and what apply must find unchanged.
func TestDeleteStep(t *testing.T) {
	p := Make(cluster(t, keep), snapshot(kept(), running(old(300))), Policy{})
	step := p.Actions[0].Do.(DeleteStep)
	if got := strings.Join(step.Volumes, " "); got != "local-lvm:vm-300-disk-0 local-lvm:vm-300-disk-1" {
		t.Errorf("volumes %q", got)
	}
	if step.Identity == "" || step.Name != "old300" || !step.Running {
		t.Errorf("%+v", step)
	}
	if c := Candidates(cluster(t, keep), snapshot(kept(), old(300), old(299))); fmt.Sprint(c) != "[299 300]" {
		t.Errorf("candidates %v", c)
	}
}
