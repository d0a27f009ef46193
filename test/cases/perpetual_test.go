package cases_test

import (
	"strings"
	"testing"
)

// Tags are a set, whatever order they were written in.
func TestA1_TagOrder(t *testing.T) {
	story(t, func(l *lab) {
		for _, kind := range []string{"VM", "LXC"} {
			id := map[string]int{"VM": 100, "LXC": 101}[kind]
			m := func(tags string) []string {
				extra := []string{"tags: " + tags}
				if kind == "LXC" {
					extra = append(extra, "template: debian", "options: {nesting: true}")
				}
				return []string{spec(kind, "a", id, extra...), debian}
			}
			l.converge(m("[gamma, beta, alpha]")...)
			l.wantConf(id, "tags", "alpha;beta;gamma;proxops")
			l.settled(m("[beta, gamma, alpha]")...)
			l.edit(id, func(g *guest) { g.Config["tags"] = "proxops gamma,alpha; beta" })
			l.settled(m("[alpha, beta, gamma]")...)
		}
	})
	story(t, func(l *lab) { // the datacenter keeps the order as given
		l.api("PUT", "/cluster/options", "tag-style", "ordering=config")
		l.converge(vm("a", 100, "tags: [gamma, beta, alpha]"))
		l.settled(vm("a", 100, "tags: [alpha, beta, gamma]"))
	})
}

// Case is folded as PVE folds it, and the ownership tag with it.
func TestA2_TagCaseAndSeparators(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "tags: [Prod, web]")
		l.converge(m)
		l.wantConf(100, "tags", "prod;proxops;web")
		l.edit(100, func(g *guest) { g.Config["tags"] = "ProxOps Web,PROD" })
		l.settled(m)
		l.wantVerbs(l.diff(), "") // the kind vanished, but the guest is still seen as ours
		if got := l.diff().Plan.Suppressed; len(got) != 1 {
			t.Errorf("a guest tagged ProxOps is not ours any more: %+v", got)
		}
		if got := l.loadError(vm("a", 100, "tags: [Web, web]")); !strings.Contains(got, "tags") {
			t.Errorf("two tags that differ in case alone are taken: %q", got)
		}
	})
	story(t, func(l *lab) {
		l.api("PUT", "/cluster/options", "tag-style", "case-sensitive=1")
		m := vm("a", 100, "tags: [Prod, web]")
		l.converge(m)
		l.wantConf(100, "tags", "Prod;proxops;web")
		l.put(100, "tags", "prod;proxops;web")
		l.wantVerbs(l.converge(m), "Update 100")
	})
}

// Line ends and trailing blanks of notes are no difference, on either kind.
func TestA3_DescriptionNewlines(t *testing.T) {
	story(t, func(l *lab) {
		notes := "pve-description: |\n  first line\n  second: 100% — ü\n\n"
		ms := []string{vm("a", 100, notes), ct("b", 101, notes, "template: debian"), debian}
		l.converge(ms...)
		for _, id := range []int{100, 101} {
			for _, live := range []string{"first line\r\nsecond: 100% — ü\r\n", "first line\nsecond: 100% — ü", "first line\nsecond: 100% — ü  \n\n"} {
				l.edit(id, func(g *guest) { g.Config["description"] = live })
				l.settled(ms...)
			}
		}
		for _, id := range []int{100, 101} {
			l.put(id, "description", "first line\nsecond: 100%")
		}
		l.wantVerbs(l.converge(ms...), "Update 100, Update 101")
	})
}

// What the template brought along and the manifest does not own stays.
func TestA4_InheritedDescription(t *testing.T) {
	story(t, func(l *lab) {
		tpl := spec("TemplateVM", "golden", 900, "pve-description: k8", "disks: [{storage: local-lvm, size: 1GiB}]")
		m := vm("a", 100, "clone: golden")
		l.converge(tpl, m)
		l.wantConf(100, "description", "k8")
		l.wantVerbs(l.converge(tpl, vm("a", 100, "clone: golden", "pve-description: null")), "Update 100")
		if _, there := l.conf(100)["description"]; there {
			t.Error("null does not clear the description")
		}
	})
}

func TestA5_MACCase(t *testing.T) {
	story(t, func(l *lab) {
		ms := []string{vm("a", 100, "networks: [{bridge: vmbr0, mac: 02:15:5D:00:09:03}]"),
			ct("b", 101, "template: debian", "networks: [{bridge: vmbr0, hwaddr: 02:15:5D:00:09:04}]"), debian}
		l.converge(ms...)
		l.edit(100, func(g *guest) { g.Config["net0"] = "virtio=02:15:5d:00:09:03,bridge=vmbr0" })
		l.edit(101, func(g *guest) { g.Config["net0"] = strings.ToLower(g.Config["net0"]) })
		l.settled(ms...)
	})
}

// Every write of a property string keeps what the manifest does not own.
func TestA6_NICUpdateKeepsMAC(t *testing.T) {
	story(t, func(l *lab) {
		base := func(vlan string) []string {
			return []string{vm("a", 100, "networks: [{bridge: vmbr0, vlan: "+vlan+"}]"),
				ct("b", 101, "template: debian", "networks: [{bridge: vmbr0, tag: "+vlan+"}]"), debian}
		}
		l.converge(base("10")...)
		l.put(100, "net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=10,mtu=1400,queues=4,trunks=2;3,link_down=1")
		l.put(101, "net0", "name=lan,bridge=vmbr0,hwaddr=BC:24:11:00:00:02,ip=dhcp,ip6=auto,tag=10,mtu=1400,type=veth,host-managed=1")
		l.settled(base("10")...)
		l.converge(base("20")...)
		for id, tokens := range map[int]string{100: "virtio=BC:24:11:00:00:01 mtu=1400 queues=4 trunks=2;3 link_down=1 tag=20",
			101: "hwaddr=BC:24:11:00:00:02 mtu=1400 ip=dhcp ip6=auto name=lan tag=20 host-managed=1"} {
			for token := range strings.FieldsSeq(tokens) {
				if !strings.Contains(","+l.conf(id)["net0"]+",", ","+token+",") {
					t.Errorf("guest %d lost %s: %s", id, token, l.conf(id)["net0"])
				}
			}
		}
	})
}

// Nothing is defaulted into a guest that has no such key.
func TestA7_NoDefaults(t *testing.T) {
	story(t, func(l *lab) {
		l.make("qemu", 100, "name", "a", "memory", "512", "cpu", "host", "tags", "proxops")
		l.make("lxc", 101, "hostname", "b", "rootfs", "local-lvm:1", "tags", "proxops")
		before := [2]string{print(l.conf(100)), print(l.conf(101))}
		l.settled(vm("a", 100), ct("b", 101))
		rep := l.apply(vm("a", 100), ct("b", 101))
		if rep.Writes != 0 || print(l.conf(100)) != before[0] || print(l.conf(101)) != before[1] {
			t.Errorf("%d writes to guests without drift:\n%s\n%s", rep.Writes, print(l.conf(100)), print(l.conf(101)))
		}
	})
}

// cpu is one string that several fields own parts of.
func TestA8_CPUString(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "cpu: {type: x86-64-v2-aes, cores: 2, flags: [+aes, -pcid]}", "options: {hidden: true, nested-virt: true}")
		l.converge(m)
		if got := l.conf(100)["cpu"]; !strings.Contains(got, "x86-64-v2-AES") {
			t.Errorf("PVE's spelling is not sent: %s", got)
		}
		l.put(100, "cpu", "x86-64-v2-AES,flags=-pcid;+aes;+nested-virt;+md-clear,hidden=1,phys-bits=host")
		l.settled(m)
		l.converge(vm("a", 100, "cpu: {type: host, cores: 2, flags: [aes]}", "options: {hidden: false}"))
		got := l.conf(100)["cpu"]
		for _, keep := range []string{"+md-clear", "phys-bits=host", "-pcid", "+aes", "+nested-virt"} {
			if !strings.Contains(got, keep) {
				t.Errorf("cpu lost %s: %s", keep, got)
			}
		}
		if e := l.loadError(vm("a", 100, "cpu: {type: x86-64-v2-AXS, cores: 1}")); !strings.Contains(e, "x86-64-v2-AES") {
			t.Errorf("no near name: %s", e)
		}
	})
}

// The slot is the identity: the order of a list means nothing.
func TestA9_SlotIsIdentity(t *testing.T) {
	story(t, func(l *lab) {
		a, b := "{interface: scsi1, storage: local-lvm, size: 2GiB}", "{interface: virtio0, storage: local-lvm, size: 1GiB}"
		na, nb := "{slot: net1, bridge: vmbr1}", "{slot: net0, bridge: vmbr0}"
		ma, mb := "{slot: mp1, storage: local-lvm, size: 2GiB, mount-point: /b}", "{slot: mp0, storage: local-lvm, size: 1GiB, mount-point: /a}"
		list := func(name, x, y string) string { return name + ": [" + x + ", " + y + "]" }
		first := []string{vm("a", 100, list("disks", a, b), list("networks", na, nb)), ct("c", 101, "template: debian", list("mount-points", ma, mb), list("networks", na, nb)), debian}
		l.converge(first...)
		l.settled(vm("a", 100, list("disks", b, a), list("networks", nb, na)), ct("c", 101, "template: debian", list("mount-points", mb, ma), list("networks", nb, na)), debian)
	})
}

// Sizes are compared in bytes, however they are spelled.
func TestA10_Sizes(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "memory: 1GiB", "disks: [{storage: local-lvm, size: 100GiB}, {storage: local-dir, size: 2560MiB}]", "hardware: {bios: ovmf, efi-disk: {storage: local-dir, size: 4MiB}}")
		l.converge(m)
		for _, size := range []string{"100G", "102400M", "104857600K", "107374182400", "102402M"} {
			l.edit(100, func(g *guest) { g.Config["scsi0"] = vol0(g.Config["scsi0"]) + ",size=" + size })
			l.settled(m)
		}
		for _, size := range []string{"528K", "1M", "128K", "4M"} {
			l.edit(100, func(g *guest) { g.Config["efidisk0"] = vol0(g.Config["efidisk0"]) + ",size=" + size })
			l.settled(m)
		}
		l.edit(100, func(g *guest) { g.Config["scsi1"] = vol0(g.Config["scsi1"]) + ",size=2252M" })
		rep := l.diff(m)
		l.says(rep, "2252", "2560")
		l.wantVerbs(rep, "")
	})
}

func vol0(s string) string { v, _, _ := strings.Cut(s, ","); return v }
