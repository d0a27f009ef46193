package plan

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/live"
)

// A guest whose config or node did not answer is unknown, whichever of the
// snapshot's signs says so.
func TestNotReadIsUnknown(t *testing.T) {
	for name, change := range map[string]func(*live.Snapshot, *live.Guest){
		"config not read":  func(_ *live.Snapshot, g *live.Guest) { g.Read = false },
		"node offline":     func(s *live.Snapshot, _ *live.Guest) { s.Nodes["pve01"] = live.Node{Name: "pve01", Allowed: true} },
		"node not listed":  func(s *live.Snapshot, _ *live.Guest) { delete(s.Nodes, "pve01") },
		"power state lost": func(_ *live.Snapshot, g *live.Guest) { g.Unknown = "whether it runs could not be read" },
	} {
		g := guest(100, "pve01", "qemu", strings.Replace(webConfig, "memory: 2048", "memory: 1024", 1))
		s := snapshot(g)
		change(s, g)
		p := Make(cluster(t, manifest("VM", "web", webSpec)), s, Policy{})
		wantNoWrites(t, p)
		if got := p.Objects[0].State; got != Unknown {
			t.Errorf("%s: %s:\n%s", name, got, lines(p))
		}
	}
}

// Nothing is cloned from a guest that is not our template as the manifest
// says: the copy would hold somebody else's data.
func TestCloneOfWhatIsNotOurTemplate(t *testing.T) {
	const stranger = "name: payroll\ntemplate: 1\nscsi0: local-lvm:base-900-disk-0,size=10G"
	for _, tt := range []struct{ node, config, placement, want string }{
		{"pve01", stranger, "report", "VM:app is skipped: waits for TemplateVM:golden: the guest with its vmid is not ours"},
		{"pve02", goldenConfig, "report", "VM:app is skipped: waits for TemplateVM:golden: it lives on pve02, the manifest says pve01"},
		{"pve02", goldenConfig, "follow", "TemplateVM:golden lives on pve02: PVE clones on the template's node"},
	} {
		c := cluster(t, manifest("TemplateVM", "golden", goldenSpec, "proxops/placement: "+tt.placement), manifest("VM", "app", cloneSpec))
		p := Make(c, free(snapshot(guest(900, tt.node, "qemu", tt.config)), 101), Policy{})
		want(t, p, tt.want)
		wantNoWrites(t, p)
	}
}

// What depends on a guest that lives elsewhere than declared is not made yet.
func TestDependentWaitsForTheMisplaced(t *testing.T) {
	next := manifest("VM", "next", strings.Replace(webSpec, "vmid: 100", "vmid: 101", 1), "proxops/depends-on: VM:web")
	p := Make(cluster(t, manifest("VM", "web", webSpec), next), free(snapshot(guest(100, "pve02", "qemu", webConfig)), 101), Policy{})
	want(t, p, "VM:next is skipped: waits for VM:web: it lives on pve02")
	wantNoWrites(t, p)
}

// The storages that a clone copies on count, not only those that it adds to.
func TestCloneAllocatesWhereItsTemplateLies(t *testing.T) {
	c := cluster(t, manifest("TemplateVM", "golden", goldenSpec), manifest("VM", "app", cloneSpec))
	p := Make(c, free(snapshot(guest(900, "pve01", "qemu", goldenConfig)), 101), Policy{})
	if got := p.Actions[0].Do.(CloneStep).Storages; len(got) != 1 || got[0] != "local-lvm" {
		t.Errorf("allocates on %v", got)
	}
}

// The marker makes a guest ours only where the manifest is a clone.
func TestMarkerIsNoClaim(t *testing.T) {
	config := strings.NewReplacer("name: web", "name: payroll", "tags: proxops", "description: "+CloneMarker).Replace(webConfig)
	p := Make(cluster(t, manifest("VM", "web", webSpec)), snapshot(guest(100, "pve01", "qemu", config)), Policy{})
	want(t, p, "it is somebody else's, nothing is written")
	wantNoWrites(t, p)
}

// A file is fetched only where its absence is known and its storage takes it.
func TestDownloadOnlyWhereMissing(t *testing.T) {
	iso := manifest("ISO", "deb", isoSpec)
	unread := func(s *live.Snapshot) *live.Snapshot {
		s.Contents[live.Store{Node: "pve01", Storage: "local"}] = live.Content{Err: "storage 'local' is not online"}
		return s
	}
	down := holding(snapshot(), "pve01", "local")
	down.Nodes["pve01"] = live.Node{Name: "pve01", Allowed: true}
	full := surveyed(holding(snapshot(), "pve01", "local"))
	full.Inventory["pve01"].Storages["local"] = live.Storage{Type: "dir", Active: true, Content: map[string]bool{"images": true}}
	for _, tt := range []struct {
		name string
		s    *live.Snapshot
		want string
	}{
		{"listing failed", unread(snapshot()), "ISO:deb is unknown: storage 'local' is not online"},
		{"not listed", snapshot(), "ISO:deb is unknown"},
		{"node offline", down, "ISO:deb is unknown: node pve01 does not answer"},
		{"storage without ISOs", full, `does not take iso: its content types are images`},
	} {
		p := Make(cluster(t, iso), tt.s, Policy{})
		want(t, p, tt.want)
		if len(p.Actions) > 0 {
			t.Errorf("%s:\n%s", tt.name, lines(p))
		}
	}
}

// A step of a window says so, for apply to look again.
func TestWindowedStepsSaySo(t *testing.T) {
	spec := strings.Replace(webSpec, "state: stopped", "state: started", 1)
	waits := running(guest(100, "pve01", "qemu", strings.Replace(webConfig, "cores: 2", "cores: 1 => 2", 1)))
	for policy, windowed := range map[string]bool{"window": true, "immediate": false} {
		p := Make(cluster(t, manifest("VM", "web", spec)), snapshot(waits), Policy{Restart: policy, WindowOpen: true})
		if len(p.Actions) != 1 || !p.Actions[0].Disrupts || p.Actions[0].Windowed != windowed {
			t.Errorf("%s: %+v", policy, p.Actions)
		}
	}
}

// Every write to a guest that is there carries the digest that it was planned on.
func TestWritesCarryTheDigest(t *testing.T) {
	spec := strings.Replace(webSpec, "size: 10GiB", "size: 10GiB, grow: true", 1)
	config := strings.NewReplacer("size=10G", "size=5G", "memory: 2048", "memory: 1024").Replace(webConfig)
	p := Make(cluster(t, manifest("VM", "web", spec)), snapshot(guest(100, "pve01", "qemu", config)), Policy{})
	seen := ""
	for _, a := range p.Actions {
		switch step := a.Do.(type) {
		case UpdateStep:
			seen += "update " + step.Digest + " "
		case ResizeStep:
			seen += "resize " + step.Digest + " "
		}
	}
	if seen != "resize d100 update d100 " {
		t.Errorf("%s", seen)
	}
}

// Each thing that PVE's migration would stumble over is told before.
func TestBlockersOfAMove(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*live.Snapshot, *live.Guest)
		want   string
	}{
		"node offline": {func(s *live.Snapshot, _ *live.Guest) { s.Nodes["pve01"] = live.Node{Name: "pve01", Allowed: true} }, "node pve01 does not answer"},
		"linked clone": {func(_ *live.Snapshot, g *live.Guest) {
			text := "local:900/base-900-disk-0.raw/100/vm-100-disk-0.qcow2,size=10G"
			e := g.Config["scsi0"]
			e.Value = &text
			g.Config["scsi0"] = e
		}, "is a linked clone of base-900-disk-0.raw"},
	} {
		g := guest(100, "pve02", "qemu", webConfig)
		s := snapshot(g)
		x.change(s, g)
		p := Make(cluster(t, manifest("VM", "web", webSpec, "proxops/placement: migrate")), s, Policy{})
		want(t, p, "it cannot be moved: ", x.want)
		if len(p.Actions) > 0 {
			t.Errorf("%s:\n%s", name, lines(p))
		}
	}
	p := Make(cluster(t, manifest("TemplateVM", "golden", goldenSpec, "proxops/placement: migrate")), snapshot(guest(900, "pve02", "qemu", goldenConfig)), Policy{})
	want(t, p, "it cannot be moved: it is a template")
	wantNoWrites(t, p)
}

// A running container is moved by a restart, which counts among the guests
// that may be down at a time; a running VM is moved as it runs.
func TestMovesThatDisrupt(t *testing.T) {
	for kindName, disrupts := range map[string]bool{"LXC": true, "VM": false} {
		spec, g := webSpec, guest(100, "pve02", "qemu", webConfig)
		if disrupts {
			spec, g = ctSpec, guest(200, "pve02", "lxc", ctConfig)
		}
		spec = strings.Replace(spec, "state: stopped", "state: started", 1)
		p := Make(cluster(t, manifest(kindName, "a", spec, "proxops/placement: migrate", `proxops/claim: "true"`)), snapshot(running(g)), Policy{Restart: "immediate"})
		if len(p.Actions) != 1 || p.Actions[0].Verb != Migrate || p.Actions[0].Disrupts != disrupts {
			t.Errorf("%s:\n%s", kindName, lines(p))
		}
	}
}

// What the token may not see is not known to be missing; PVE has the last word.
func TestInvisibleStorageIsNoFault(t *testing.T) {
	spec := strings.Replace(webSpec, "local-lvm", "ceph", 1)
	for blind, faults := range map[bool]int{true: 0, false: 1} {
		s := surveyed(free(snapshot(), 100))
		s.Perms = map[string]map[string]bool{"/": {"Datastore.Audit": true}}
		if blind {
			s.Perms = map[string]map[string]bool{"/storage/local-lvm": {"Datastore.AllocateSpace": true}}
		}
		if p := Make(cluster(t, manifest("VM", "web", spec)), s, Policy{}); len(p.Errors) != faults {
			t.Errorf("blind %v:\n%s", blind, lines(p))
		}
	}
}

// A guest that is there gets no medium that is known to be missing.
func TestMediumThatIsMissing(t *testing.T) {
	iso := manifest("ISO", "deb", "nodes: [pve01]\nstorage: local\nfilename: deb.iso\nurl: null")
	vm := manifest("VM", "web", webSpec+"hardware: {cdrom: {iso: deb}}\n")
	s := surveyed(holding(snapshot(guest(100, "pve01", "qemu", webConfig)), "pve01", "local"))
	p := Make(cluster(t, vm, iso), s, Policy{})
	want(t, p, `node pve01 has no iso/deb.iso on storage "local"`)
	wantNoWrites(t, p)
}

// The plug is pulled only where the manifest says so, and whatever takes a
// guest down to bring it up again counts among those that are down.
func TestPowerSteps(t *testing.T) {
	started := strings.Replace(webSpec, "state: stopped", "state: started", 1)
	waits := strings.Replace(webConfig, "cores: 2", "cores: 1 => 2", 1)
	for _, force := range []bool{true, false} {
		for name, x := range map[string]struct {
			spec, config string
			disrupts     bool
		}{
			"stop": {webSpec, webConfig, false}, "restart": {started, waits, true},
		} {
			var notes []string
			if force {
				notes = []string{`proxops/force-stop: "true"`}
			}
			p := Make(cluster(t, manifest("VM", "web", x.spec, notes...)), snapshot(running(guest(100, "pve01", "qemu", x.config))), Policy{Restart: "immediate"})
			if len(p.Actions) != 1 {
				t.Fatalf("%s:\n%s", name, lines(p))
			}
			if step := p.Actions[0].Do.(PowerStep); step.Force != force || p.Actions[0].Disrupts != x.disrupts {
				t.Errorf("%s, force %v: %+v, disrupts %v", name, force, step, p.Actions[0].Disrupts)
			}
		}
	}
}
