package cases_test

import (
	"strings"
	"testing"
)

// regenerations counts how often a VM's cloud-init drive was written anew on
// demand.
func (l *lab) regenerations(id string) (n int) {
	for _, r := range l.w.Requests() {
		if r.Method == "PUT" && strings.HasSuffix(r.Path, "/"+id+"/cloudinit") {
			n++
		}
	}
	return n
}

// Name servers and search domains are sets, whatever separates them.
func TestCloudInitSets(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "cloud-init-data: {nameservers: [192.0.2.53, '2001:db8::53'], search-domains: [a.example, b.example]}")
		l.converge(m)
		for _, live := range [][2]string{
			{"2001:db8::53 192.0.2.53", "b.example a.example"}, {"192.0.2.53,2001:DB8:0::53", "a.example;B.example"},
			{"192.0.2.53; 2001:db8::53", " a.example, b.example"},
		} {
			l.edit(100, func(g *guest) { g.Config["nameserver"], g.Config["searchdomain"] = live[0], live[1] })
			l.settled(m)
		}
		l.put(100, "nameserver", "192.0.2.53", "searchdomain", "a.example b.example c.example")
		if got := changed(l.converge(m)); got != "nameserver,searchdomain" {
			t.Errorf("changed %s", got)
		}
		l.converge(vm("a", 100, "cloud-init-data: {nameservers: null, search-domains: null}"))
		if c := l.conf(100); c["nameserver"]+c["searchdomain"] != "" {
			t.Errorf("null left %q and %q", c["nameserver"], c["searchdomain"])
		}
	})
}

// A password is hashed before it is sent, but for Windows, whose cloudbase-init
// wants it as it is; one that is there stays, whatever the manifest names.
func TestCloudInitPasswords(t *testing.T) {
	for ostype, prefix := range map[string]string{"l26": "$6$", "win11": "correct-horse"} {
		story(t, func(l *lab) {
			l.secrets(map[string]string{"cloud-init.passwords.web": "correct-horse", "cloud-init.passwords.other": "battery"})
			m := func(entry string) string {
				return vm("a", 100, "options: {ostype: "+ostype+"}", "hardware: {cloud-init: {storage: local-lvm}}", "cloud-init-data: {ci-password-ref: cloud-init.passwords."+entry+"}")
			}
			l.converge(m("web"))
			stored := l.conf(100)["cipassword"]
			if !strings.HasPrefix(stored, prefix) {
				t.Errorf("%s: PVE holds %.5s", ostype, stored)
			}
			l.wantVerbs(l.converge(m("other")), "")
			l.put(100, "cipassword", "of-somebody")
			theirs := l.conf(100)["cipassword"]
			l.wantVerbs(l.converge(m("web")), "")
			if l.conf(100)["cipassword"] != theirs {
				t.Errorf("%s: a live password was replaced", ostype)
			}
			sent := 0
			for _, r := range l.w.Requests() {
				if r.Params.Str("cipassword") != "" && r.Params.Str("cipassword") != "of-somebody" {
					sent++
				}
			}
			if sent != 1 {
				t.Errorf("%s: the password was sent %d times", ostype, sent)
			}
		})
	}
}

// The drive of a running VM is written anew for what stands on it, the name
// and the cards included, and for nothing else; a stopped VM gets it at its
// start, and one without a drive has none.
func TestCloudInitDriveIsWrittenAnew(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		runs, drive    bool
		want           int
	}{
		{"a user", "cloud-init-data: {ci-user: a}", "cloud-init-data: {ci-user: b}", true, true, 1},
		{"a key", "cloud-init-data: {ssh-keys: ['" + keyA + "']}", "cloud-init-data: {ssh-keys: ['" + keyB + "']}", true, true, 1},
		{"an address", "cloud-init-data: {ipconfigs: [{ip: dhcp}]}", "cloud-init-data: {ipconfigs: [{ip: 192.0.2.7/24}]}", true, true, 1},
		{"cleared", "cloud-init-data: {search-domains: [a.example]}", "cloud-init-data: {search-domains: null}", true, true, 1},
		{"the name", "pve-name: a", "pve-name: b", true, true, 1},
		{"a card", "networks: []", "networks: [{bridge: vmbr0}]", true, true, 1},
		{"a card's VLAN", "networks: [{bridge: vmbr0}]", "networks: [{bridge: vmbr0, vlan: 7}]", true, true, 0},
		{"a note", "pve-description: a", "pve-description: b", true, true, 0},
		{"stopped", "cloud-init-data: {ci-user: a}", "cloud-init-data: {ci-user: b}", false, true, 0},
		{"no drive", "cloud-init-data: {ci-user: a}", "cloud-init-data: {ci-user: b}", true, false, 0},
	} {
		story(t, func(l *lab) {
			m := func(line string) string {
				lines := []string{line, "state: " + map[bool]string{true: "started", false: "stopped"}[c.runs]}
				if c.drive {
					lines = append(lines, "hardware: {cloud-init: {storage: local-lvm, slot: scsi7}}")
				}
				return noted(vm("a", 100, lines...), `proxops/claim: "true"`)
			}
			l.converge(m(c.from))
			rep := l.converge(m(c.to))
			if n := l.regenerations("100"); n != c.want {
				t.Errorf("%s: the drive was written anew %d times, want %d", c.name, n, c.want)
			}
			if told := strings.Contains(text(rep), "next boot"); told != (c.want > 0) {
				t.Errorf("%s: next boot told %t:\n%s", c.name, told, text(rep))
			}
		})
	}
}

// Options of a disk converge on the live text of its slot, on every bus: the
// volume and what the manifest does not own stay.
func TestDiskOptionsOnEveryBus(t *testing.T) {
	for slot, c := range map[string]struct{ live, options, want string }{
		"scsi2":   {"iops_rd=100,ssd=1,product=p", "discard: on, ssd: false, iothread: true, aio: native, cache: none, backup: false, replicate: false, read-only: true, serial: S1", "aio=native,backup=0,cache=none,discard=on,iops_rd=100,iothread=1,product=p,replicate=0,ro=1,serial=S1,size=1G,ssd=0"},
		"virtio3": {"mbps_wr=5,iothread=1", "discard: on, iothread: null, cache: writeback, backup: true, read-only: true, serial: S1", "backup=1,cache=writeback,discard=on,mbps_wr=5,ro=1,serial=S1,size=1G"},
		"sata1":   {"wwn=0x5000000000000001,ssd=1", "discard: ignore, ssd: null, aio: threads, replicate: true, serial: S1", "aio=threads,discard=ignore,serial=S1,size=1G,wwn=0x5000000000000001"},
		"ide0":    {"detect_zeroes=1,model=m", "discard: on, ssd: true, cache: unsafe, backup: false", "backup=0,cache=unsafe,detect_zeroes=1,discard=on,model=m,size=1G,ssd=1"},
	} {
		story(t, func(l *lab) {
			l.make("qemu", 100, "name", "a", "memory", "512", "cpu", "host", "tags", "proxops", slot, "local-lvm:1,"+c.live)
			volume := vol0(l.conf(100)[slot])
			l.wantVerbs(l.converge(vm("a", 100, "disks: [{interface: "+slot+", storage: local-lvm, size: 1GiB, "+c.options+"}]")), "Update 100")
			l.wantConf(100, slot, volume+","+c.want)
		})
	}
}
