package cases_test

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
)

// moved puts guest 100 on pve02, as HA or a person would.
func (l *lab) moved() {
	l.w.View(func(s *pvesim.State) { s.Guests[100].Node = "pve02" })
}

// A guest that moved is found where it is: never made twice, never pruned.
func TestB11_Misplaced(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "memory: 1GiB", "disks: [{storage: shared, size: 1GiB}]")
		l.converge(m)
		l.api("POST", "/nodes/pve01/qemu/100/migrate", "target", "pve02")
		l.put(100, "memory", "2048")
		rep := l.apply(m)
		l.says(rep, "pve02", "pve01", "memory")
		if rep.Writes != 0 || l.stateOf(rep, "a") != plan.Anomalous {
			t.Errorf("%d writes, %s", rep.Writes, l.stateOf(rep, "a"))
		}
		l.wantVerbs(l.converge(noted(m, "proxops/placement: follow")), "Update 100")
		l.wantConf(100, "memory", "1024")
		l.wantVerbs(l.apply(noted(m, "proxops/placement: migrate")), "Migrate 100")
		l.settled(m)
	})
	story(t, func(l *lab) { // its node is down: unknown, neither made nor pruned
		m := vm("a", 100, "node: pve02", "disks: [{storage: shared, size: 1GiB}]")
		l.converge(m, vm("b", 101))
		l.w.View(func(s *pvesim.State) { s.Nodes[1].Offline = true })
		rep := l.apply(m, vm("b", 101))
		if l.stateOf(rep, "a") != plan.Unknown || rep.Writes != 0 {
			t.Errorf("%s, %d writes", l.stateOf(rep, "a"), rep.Writes)
		}
		rep = l.apply(vm("b", 101))
		if rep.Writes != 0 {
			t.Errorf("pruned while a node is down:\n%s", text(rep))
		}
	})
	story(t, func(l *lab) { // a node that is not on the allow-list: hands off
		l.make("qemu", 100, "name", "a", "tags", "proxops")
		l.w.View(func(s *pvesim.State) {
			three := *s.Nodes[0]
			three.Name, three.ID, three.IP = "pve03", 3, "192.0.2.13"
			s.Nodes = append(s.Nodes, &three)
			s.Guests[100].Node = "pve03"
		})
		rep := l.apply(noted(vm("a", 100, "memory: 1GiB"), "proxops/placement: follow"))
		l.says(rep, "pve03", "hands off")
		if rep.Writes != 0 {
			t.Errorf("%d writes", rep.Writes)
		}
		if rep := l.apply(vm("b", 101)); strings.Contains(verbs(rep), "Delete") {
			t.Errorf("pruned on a node that is not allowed:\n%s", text(rep))
		}
	})
	story(t, func(l *lab) { // HA places it
		m := vm("a", 100, "state: started", "disks: [{storage: shared, size: 1GiB}]")
		l.converge(m)
		l.w.View(func(s *pvesim.State) {
			if s.HA == nil {
				s.HA = map[string]*pvesim.HAResource{}
			}
			s.HA["vm:100"] = &pvesim.HAResource{SID: "vm:100", State: "started"}
			s.Guests[100].Node = "pve02"
		})
		rep := l.apply(noted(m, "proxops/placement: migrate"))
		l.says(rep, "HA")
		if rep.Writes != 0 {
			t.Errorf("%d writes", rep.Writes)
		}
	})
}

// What stands in the way of a move is listed before it is tried, and nothing
// is written; PVE would find each only inside its task, one at a time.
func TestB11_Blockers(t *testing.T) {
	shared := "disks: [{storage: shared, size: 1GiB}]"
	for _, c := range []struct {
		name, kind, state, says string
		with                    func(l *lab, g *guest)
	}{
		{"a device", "VM", "stopped", "hostpci0 (0000:01:00.0) is a device or path of node pve02", func(_ *lab, g *guest) { g.Config["hostpci0"] = "0000:01:00.0" }},
		{"a USB device", "VM", "stopped", "usb0 (host=1234:5678) is a device", func(_ *lab, g *guest) { g.Config["usb0"] = "host=1234:5678" }},
		{"a serial port", "VM", "stopped", "serial1 (/dev/ttyS0) is a device", func(_ *lab, g *guest) { g.Config["serial1"] = "/dev/ttyS0" }},
		{"an ISO", "VM", "stopped", "ide2 holds local:iso/seed.iso, a medium on local storage", func(_ *lab, g *guest) { g.Config["ide2"] = "local:iso/seed.iso,media=cdrom" }},
		{"a running VM's snapshot on a local disk", "VM", "started", "has snapshots, which do not move with it from the local storage local-lvm", func(l *lab, g *guest) {
			g.Config["parent"] = "before"
			l.local(g)
		}},
		{"snapshots that only their list shows", "VM", "stopped", "has snapshots", func(l *lab, g *guest) {
			g.Snapshots = []*pvesim.Snapshot{{Name: "before", Config: pvesim.Section{"memory": "512"}}}
			l.local(g)
		}},
		{"a storage that is not there", "VM", "stopped", "node pve01 has no storage only2", func(l *lab, g *guest) {
			l.w.View(func(s *pvesim.State) {
				s.Storages = append(s.Storages, &pvesim.Storage{ID: "only2", Type: "dir", Nodes: []string{"pve02"}, Content: []string{"images"}, Total: 1 << 40, Props: map[string]string{"path": "/only2"}})
			})
			g.Config["unused0"] = "only2:100/vm-100-disk-0.qcow2"
		}},
		{"a bind mount", "LXC", "stopped", "mp3 (/srv/data) is a device or path", func(_ *lab, g *guest) { g.Config["mp3"] = "/srv/data,mp=/data" }},
		{"a running container under restart-policy never", "LXC", "started", "a running container is moved by a restart", func(*lab, *guest) {}},
	} {
		story(t, func(l *lab) {
			m, more := vm("a", 100, "state: "+c.state, shared), debian
			if c.kind == "LXC" {
				m = ct("a", 100, "template: debian", "state: "+c.state, "root: {storage: shared, size: 1GiB}")
			}
			l.converge(m, more)
			l.moved()
			var change *guest
			l.edit(100, func(g *guest) { change = g })
			c.with(l, change)
			rep := l.apply(noted(m, "proxops/placement: migrate"), more)
			l.says(rep, c.says, "it lives on pve02, the manifest says pve01")
			if rep.Writes != 0 || l.stateOf(rep, "a") != plan.Anomalous {
				t.Errorf("%s: %d writes, %s:\n%s", c.name, rep.Writes, l.stateOf(rep, "a"), text(rep))
			}
		})
	}
}

// local gives a guest a disk on its node's own storage.
func (l *lab) local(g *guest) {
	l.w.View(func(s *pvesim.State) {
		s.Volumes["pve02 local-lvm:vm-100-disk-9"] = &pvesim.Volume{ID: "local-lvm:vm-100-disk-9", Node: "pve02", Owner: 100, Content: "images", Format: "raw", Size: 1 << 30}
		g.Config["unused0"] = "local-lvm:vm-100-disk-9"
	})
}

// A guest that can move is moved: online while it runs, local disks along;
// where it arrives it is compared again.
func TestB11_MovedBack(t *testing.T) {
	for _, c := range []struct{ kind, state, storage, wants string }{
		{"VM", "started", "shared", "online"}, {"VM", "stopped", "shared", ""}, {"VM", "started", "local-lvm", "online with-local-disks"}, {"LXC", "stopped", "shared", ""}, {"LXC", "started", "shared", "restart"},
	} {
		story(t, func(l *lab) {
			l.settings = "      reconcile: {restart-policy: immediate}\n"
			m := func(text string) []string {
				if c.kind == "LXC" {
					return []string{debian, noted(ct("a", 100, "template: debian", "state: "+c.state, "root: {storage: "+c.storage+", size: 1GiB}", "pve-description: "+text), "proxops/placement: migrate")}
				}
				return []string{debian, noted(vm("a", 100, "state: "+c.state, "disks: [{storage: "+c.storage+", size: 1GiB}]", "pve-description: "+text), "proxops/placement: migrate")}
			}
			l.converge(m("x")...)
			pairs := []string{"target", "pve02", "online", "1", "with-local-disks", "1"}
			if c.kind == "LXC" {
				pairs = []string{"target", "pve02", "restart", "1"}
			}
			l.api("POST", l.path(100)+"/migrate", pairs...)
			l.w.ForgetRequests()
			l.wantVerbs(l.apply(m("y")...), "Migrate 100")
			for _, r := range l.w.Requests() {
				if !strings.HasSuffix(r.Path, "/migrate") || r.Method != "POST" {
					continue
				}
				got := ""
				for _, key := range []string{"online", "with-local-disks", "restart"} {
					if r.Params.Str(key) == "1" {
						got = strings.TrimSpace(got + " " + key)
					}
				}
				if got != c.wants {
					t.Errorf("%s %s on %s: moved with %q, want %q", c.state, c.kind, c.storage, got, c.wants)
				}
			}
			l.wantVerbs(l.converge(m("y")...), "Update 100")
			if l.running(100) != (c.state == "started") {
				t.Errorf("%s %s: runs %v", c.state, c.kind, l.running(100))
			}
		})
	}
}

// A guest of ours that is elsewhere is not made anew, not pruned and not
// cloned over, under every policy, also when it is gone from the composition
// of the node it was on.
func TestB11_NeverTwice(t *testing.T) {
	for _, policy := range []string{"report", "follow", "migrate"} {
		story(t, func(l *lab) {
			m := noted(vm("a", 100, "disks: [{storage: shared, size: 1GiB}]"), "proxops/placement: "+policy)
			l.converge(m, vm("z", 199))
			l.moved()
			l.w.ForgetRequests()
			for range 3 {
				rep := l.apply(m, vm("z", 199))
				if v := verbs(rep); strings.Contains(v, "Create") || strings.Contains(v, "Delete") {
					t.Errorf("%s: %s", policy, v)
				}
			}
			if l.calls("POST", "/qemu")+l.calls("DELETE", "/100") > 0 || l.conf(100) == nil {
				t.Errorf("%s: made or deleted", policy)
			}
		})
	}
}
