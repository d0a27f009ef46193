package cases_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

const (
	keyA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ+gzOzRPeY3wx2cUHgMGSVZBXpoN5yhEbUO3lCBPVUR ada@example.org"
	keyB = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUWDZ5d2ckzxZ5qqPcyyvVQvDXjHZXzBsCIFeAcIiZB"
)

// Keys are a set: order, blank lines and PVE's encoding are no difference.
func TestA11_SSHKeys(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "cloud-init-data: {ssh-keys: ['"+keyA+"', '"+keyB+"']}")
		l.converge(m)
		esc := func(s string) string {
			return strings.NewReplacer(" ", "%20", "\n", "%0A", "+", "%2B", "/", "%2F", "@", "%40").Replace(s)
		}
		for _, live := range []string{esc(keyB + "\n" + keyA), esc(keyA + "\n\n" + keyB + "\n"), esc("\n" + keyA + "\r\n" + keyB), strings.ReplaceAll(esc(keyA+"\n"+keyB), "%2F", "/")} {
			l.edit(100, func(g *guest) { g.Config["sshkeys"] = live })
			l.settled(m)
		}
		l.put(100, "sshkeys", esc(keyA))
		l.wantVerbs(l.converge(m), "Update 100")
	})
}

// An address text is compared by token; what the manifest does not own stays.
func TestA12_IPConfig(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "cloud-init-data:\n  ipconfigs:\n  - {ip: 192.0.2.105/24, gateway: 192.0.2.1}\n  - {ip: dhcp, ip6: auto}\n  - {nic: net4, ip6: 2001:db8::5/64, gateway6: 2001:db8::1}")
		l.converge(m)
		l.edit(100, func(g *guest) {
			g.Config["ipconfig0"] = "gw=192.0.2.1,ip=192.0.2.105/24"
			g.Config["ipconfig1"] = "ip6=auto,ip=dhcp"
			g.Config["ipconfig4"] = "gw6=2001:DB8::1,ip6=2001:0db8::5/64"
		})
		l.settled(m)
		l.put(100, "ipconfig0", "ip=192.0.2.106/24,gw=192.0.2.1,ip6=dhcp")
		l.converge(m)
		if got := l.conf(100)["ipconfig0"]; !strings.Contains(got, "ip6=dhcp") || !strings.Contains(got, "ip=192.0.2.105/24") {
			t.Errorf("ipconfig0 is %s", got)
		}
		null := vm("a", 100, "cloud-init-data:\n  ipconfigs:\n  - {ip: null, ip6: null}\n  - {ip: null}\n  - {nic: net4, ip6: 2001:db8::5/64, gateway6: 2001:db8::1}")
		l.converge(null) // PVE refuses a gateway without an address
		l.wantConf(100, "ipconfig0", "", "ipconfig1", "ip6=auto")
	})
}

// Absent is not owned, null clears, and a blank is never sent: for every
// optional scalar that PVE keeps as text.
func TestA13_EmptyAndAbsent(t *testing.T) {
	story(t, func(l *lab) {
		fields := map[string][3]string{ // field: a value, PVE's key, a live value
			"pve-description": {"x", "description", "y"}, "balloon": {"256MiB", "balloon", "300"},
			"options.startup": {"order=1", "startup", "order=2"}, "options.onboot": {"true", "onboot", "0"},
			"options.hotplug": {"[disk]", "hotplug", "usb"}, "options.boot-order": {"[net0]", "boot", "order=net0"},
			"cloud-init-data.ci-user": {"deploy", "ciuser", "root"}, "cloud-init-data.nameservers": {"[192.0.2.53]", "nameserver", "192.0.2.54"},
			"cloud-init-data.search-domains": {"[example.org]", "searchdomain", "example.com"}, "cpu.limit": {"2", "cpulimit", "1"},
			"cpu.units": {"200", "cpuunits", "300"}, "hardware.display": {"qxl", "vga", "std"}, "hardware.bios": {"ovmf", "bios", "seabios"},
		}
		for name, f := range fields {
			line := func(value string) string {
				block, leaf, nested := strings.Cut(name, ".")
				if block == "cpu" {
					return "cpu: {type: host, cores: 1, " + leaf + ": " + value + "}"
				}
				if nested {
					return block + ": {" + leaf + ": " + value + "}"
				}
				return name + ": " + value
			}
			nic := "networks: [{bridge: vmbr0}]"
			l.converge(vm("a", 100, nic))
			l.put(100, f[1], f[2])
			l.settled(vm("a", 100, nic))
			l.converge(vm("a", 100, nic, line(f[0])))
			l.converge(vm("a", 100, nic, line("null")))
			if v, there := l.conf(100)[f[1]]; there {
				t.Errorf("%s: null leaves %s: %q", name, f[1], v)
			}
			l.settled(vm("a", 100, nic))
		}
		for _, r := range l.w.Requests() {
			for key := range r.Params {
				if v := r.Params.Str(key); r.Method != "GET" && strings.TrimSpace(v) == "" {
					t.Errorf("%s %s sends a blank %s", r.Method, r.Path, key)
				}
			}
		}
	})
}

// secrets gives the lab's cluster a secrets file with the token of root and
// these entries. It is not encrypted: how SOPS is opened is tested where it is.
func (l *lab) secrets(entries map[string]string) {
	l.files["clusters/lab/secrets.sops.yaml"] = "# see openSecrets\n"
	l.env = nil
	l.settings = "      secrets-file: secrets.sops.yaml\n      secrets: {pve: {token: whole}}\n"
	l.entries = entries
	l.entries["secrets.whole"] = rootToken
}

// opened is a secrets file by its dot paths.
type opened map[string]string

// Lookup implements repo.SecretsFile.
func (o opened) Lookup(ref string) (secret.Text, error) {
	v, ok := o[ref]
	if !ok {
		return secret.Text{}, fmt.Errorf("%s: no such entry", ref)
	}
	return secret.New(v), nil
}

func (l *lab) openSecrets(string, []byte, []string) (repo.SecretsFile, error) {
	return opened(l.entries), nil
}

// The mask is neither compared nor sent; a password is sent where there is
// none. The guard of every cycle looks for the mask.
func TestA14_PasswordMask(t *testing.T) {
	story(t, func(l *lab) {
		l.secrets(map[string]string{"cloud-init.passwords.web": "correct-horse"})
		m := vm("a", 100, "cloud-init-data: {ci-user: deploy, ci-password-ref: cloud-init.passwords.web}")
		l.converge(m)
		if got := l.conf(100)["cipassword"]; !strings.HasPrefix(got, "$6$") {
			t.Errorf("the password is not stored as a hash: %.4s", got)
		}
		rep := l.diff(m)
		if strings.Contains(text(rep)+document(t, rep), "correct-horse") {
			t.Error("the password is printed")
		}
		l.put(100, "delete", "cipassword")
		l.wantVerbs(l.converge(m), "Update 100")
		l.put(100, "ciuser", "root") // another cloud-init key is written: the mask stays where it is
		l.wantVerbs(l.converge(m), "Update 100")
		if got := l.conf(100)["cipassword"]; !strings.HasPrefix(got, "$6$") {
			t.Errorf("the password went: %.4s", got)
		}
	})
}

// A CD or a cloud-init volume is no disk, on whatever bus.
func TestA17_CDIsNoDisk(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "disks: [{storage: local-lvm, size: 1GiB}]")
		l.converge(m)
		l.put(100, "scsi2", "local:iso/seed.iso,media=cdrom", "sata0", "none,media=cdrom", "scsi5", "local-lvm:cloudinit")
		rep := l.diff(m)
		l.wantVerbs(rep, "")
		if len(rep.Plan.Anomalies) != 0 {
			t.Errorf("%s", text(rep))
		}
	})
}

// The cloud-init drive is owned where it is; there is at most one.
func TestA18_CloudInitSlot(t *testing.T) {
	for _, slot := range []string{"scsi1", "sata5", "ide3", "ide0", "ide2", "virtio1"} {
		story(t, func(l *lab) {
			if slot == "virtio1" { // PVE takes a CD on ide, sata and scsi alone
				slot = "scsi30"
			}
			l.make("qemu", 100, "name", "a", "memory", "512", "cpu", "host", "tags", "proxops", slot, "local-lvm:cloudinit")
			m := vm("a", 100, "hardware: {cloud-init: {storage: local-lvm}}", "cloud-init-data: {ci-user: deploy}")
			l.converge(m)
			if n := strings.Count(print(l.conf(100)), "cloudinit"); n != 1 {
				t.Errorf("%s: %d cloud-init drives:\n%s", slot, n, print(l.conf(100)))
			}
		})
	}
	story(t, func(l *lab) { // a template's drive comes with the clone
		tpl := spec("TemplateVM", "golden", 900, "disks: [{storage: local-lvm, size: 1GiB}]", "hardware: {cloud-init: {storage: local-lvm, slot: scsi1}}")
		l.converge(tpl, vm("a", 100, "clone: golden", "hardware: {cloud-init: {storage: local-lvm}}"))
		if n := strings.Count(print(l.conf(100)), "cloudinit"); n != 1 {
			t.Errorf("%d cloud-init drives:\n%s", n, print(l.conf(100)))
		}
	})
}

// Features are flags of their own: each is owned by itself.
func TestA19_Features(t *testing.T) {
	story(t, func(l *lab) {
		l.as("")
		m := func(o string) []string { return []string{ct("a", 100, "template: debian", "options: "+o), debian} }
		l.converge(m("{nesting: true}")...)
		l.edit(100, func(g *guest) { g.Config["features"] = "keyctl=1,mount=nfs;cifs,nesting=1,force_rw_sys=1" })
		l.settled(m("{nesting: true}")...)
		l.settled(m("{nesting: true, mount: [cifs, nfs]}")...)
		l.converge(m("{nesting: true, keyctl: false, fuse: true}")...)
		got := l.conf(100)["features"]
		for _, want := range []string{"force_rw_sys=1", "nesting=1", "fuse=1"} {
			if !strings.Contains(got, want) || strings.Contains(got, "keyctl=1") {
				t.Errorf("features are %s", got)
			}
		}
		if !strings.Contains(got, "mount=") || !strings.Contains(got, "cifs") {
			t.Errorf("features lost mount: %s", got)
		}
	})
}

func TestA20_IPv6OnContainers(t *testing.T) {
	story(t, func(l *lab) {
		m := func(nic string) []string {
			return []string{ct("a", 100, "template: debian", "networks: [{bridge: vmbr0, "+nic+"}]"), debian}
		}
		l.converge(m("iface: eth0, ip: dhcp, ip6: dhcp")...)
		l.edit(100, func(g *guest) {
			g.Config["net0"] = "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:02,ip=dhcp,ip6=dhcp,type=veth,mtu=1300"
		})
		l.settled(m("iface: eth0, ip: dhcp, ip6: dhcp")...)
		l.converge(m("ip6: 2001:db8::7/64, gw6: 2001:db8::1")...)
		if got := l.conf(100)["net0"]; !strings.Contains(got, "ip6=2001:db8::7/64") || !strings.Contains(got, "mtu=1300") || !strings.Contains(got, "BC:24:11:00:00:02") {
			t.Errorf("net0 is %s", got)
		}
	})
}

// Booleans that PVE spells in several ways, in property strings too.
func TestA22_AgentString(t *testing.T) {
	story(t, func(l *lab) {
		m := func(on string) string { return vm("a", 100, "options: {agent: "+on+"}") }
		l.converge(m("true"))
		for live, on := range map[string]string{"1": "true", "enabled=1,fstrim_cloned_disks=1": "true", "enabled=1,type=virtio": "true", "yes": "true", "on,type=isa": "true",
			"enabled=0,type=virtio": "false", "0": "false", "no": "false"} {
			l.edit(100, func(g *guest) { g.Config["agent"] = live })
			l.settled(m(on))
		}
		l.edit(100, func(g *guest) { g.Config["agent"] = "enabled=0,type=isa,fstrim_cloned_disks=1" })
		l.converge(m("true"))
		if got := l.conf(100)["agent"]; !strings.Contains(got, "type=isa") || !strings.Contains(got, "fstrim_cloned_disks=1") {
			t.Errorf("agent is %s", got)
		}
	})
	story(t, func(l *lab) { // all booleans of a VM that stand for one key
		for field, key := range map[string]string{"onboot": "onboot", "protection": "protection", "acpi": "acpi", "tablet": "tablet"} {
			for _, v := range []string{"true", "false"} {
				m := vm("a", 100, "options: {"+field+": "+v+"}")
				l.converge(m)
				l.edit(100, func(g *guest) { g.Config[key] = map[string]string{"true": "1", "false": "0"}[v] })
				l.settled(m)
			}
		}
	})
}

func TestA24_NonASCII(t *testing.T) {
	story(t, func(l *lab) {
		const s = "GPU — rack 2, ÄÖÜ, 東京, 🚀, 50% + a%20b; [x]"
		ms := []string{vm("a", 100, "pve-description: '"+s+"'"), ct("b", 101, "template: debian", "pve-description: '"+s+"'"), debian}
		l.converge(ms...)
		for _, id := range []int{100, 101} {
			if got := strings.TrimSpace(l.conf(id)["description"]); got != s {
				t.Errorf("%d: %q", id, got)
			}
		}
	})
}

// EFI and TPM volumes are added in place and never made anew.
func TestA25_EFITokens(t *testing.T) {
	story(t, func(l *lab) {
		l.make("qemu", 100, "name", "a", "memory", "512", "cpu", "host", "tags", "proxops", "bios", "ovmf")
		hw := func(efi string) string {
			return vm("a", 100, "hardware: {bios: ovmf, efi-disk: {storage: local-lvm, "+efi+"}, tpm: {version: v2.0}}")
		}
		l.converge(hw("template: 4m, secure-boot: enabled"))
		vol, tpm := vol0(l.conf(100)["efidisk0"]), vol0(l.conf(100)["tpmstate0"])
		l.edit(100, func(g *guest) {
			g.Config["efidisk0"] = vol + ",efitype=4m,pre-enrolled-keys=1,ms-cert=2023k,size=4M"
		})
		l.settled(vm("a", 100, "hardware: {bios: ovmf, efi-disk: {storage: local-lvm}}"))
		l.settled(hw("template: 4m, secure-boot: enabled"))
		l.converge(hw("template: 4m, secure-boot: disabled"))
		got := l.conf(100)["efidisk0"]
		if vol0(got) != vol || !strings.Contains(got, "ms-cert=2023k") || !strings.Contains(got, "efitype=4m") || vol0(l.conf(100)["tpmstate0"]) != tpm {
			t.Errorf("efidisk0 is %s, tpmstate0 %s", got, l.conf(100)["tpmstate0"])
		}
		l.wantVerbs(l.diff(hw("template: 2m")), "") // an anomaly, never a replacement
	})
}

// A pool that the token cannot see is not visible, not absent.
func TestA26_InvisiblePool(t *testing.T) {
	story(t, func(l *lab) {
		l.api("POST", "/pools", "poolid", "prod")
		l.api("POST", "/pools", "poolid", "dev")
		m := vm("a", 100, "pool: prod")
		l.converge(m)
		l.settled(vm("a", 100))
		l.wantVerbs(l.converge(vm("a", 100, "pool: dev")), "Update 100")
		l.wantVerbs(l.converge(vm("a", 100, "pool: null")), "Update 100")
		l.converge(m)
		l.role("blind", "VM.Audit VM.Config.Options VM.Config.Disk VM.PowerMgmt VM.Config.Memory Sys.Audit Datastore.Audit")
		l.grant("blind", "/vms", "/nodes", "/storage")
		l.as(l.token())
		l.settled(m)
	})
}

// role defines a role, grant gives it to the token of a user of its own.
func (l *lab) role(name, privs string) {
	l.w.View(func(s *pvesim.State) { s.Access.Roles[name] = strings.Fields(privs) })
}

const limited = "limited@pve"

func (l *lab) token() string { return limited + "!t=77777777-7777-4777-8777-777777777777" }

func (l *lab) grant(role string, paths ...string) {
	l.w.View(func(s *pvesim.State) {
		if s.Access.Users[limited] == nil {
			s.Access.Users[limited] = &pvesim.User{ID: limited, Enabled: true, Tokens: map[string]*pvesim.Token{"t": {ID: "t", Secret: "77777777-7777-4777-8777-777777777777"}}}
		}
		for _, p := range paths {
			s.Access.ACL = append(s.Access.ACL, pvesim.ACLEntry{Path: p, Kind: "user", Who: limited, Role: role, Propagate: true})
		}
	})
}

// Artifacts are there or not; that upstream moved changes no guest.
func TestA27_MovingImages(t *testing.T) {
	story(t, func(l *lab) {
		ms := []string{seedImage, vm("a", 100, "disks: [{storage: local-lvm, image: seed}]"), seedISO, vm("b", 101, "hardware: {cdrom: {iso: seed}}")}
		l.converge(ms...)
		l.w.View(func(s *pvesim.State) {
			for _, v := range s.Volumes {
				if v.Owner == 0 {
					v.Size, v.Used = v.Size*3, v.Used*3
				}
			}
		})
		l.settled(ms...)
		ms[0] = strings.Replace(seedImage, "url: null", "url: 'https://images.example.org/current/seed.qcow2'", 1)
		l.settled(ms...)
	})
}

// What PVE takes at create alone is not compared; a create form never comes
// twice.
func TestA28_ContainerSettles(t *testing.T) {
	story(t, func(l *lab) {
		m := func(more ...string) []string {
			return []string{ct("a", 100, append([]string{"template: debian", "root: {storage: local-lvm, size: 4GiB}", "mount-points: [{storage: local-dir, size: 8GiB, mount-point: /srv}]",
				"init: {ssh-keys: ['" + keyA + "']}"}, more...)...), debian}
		}
		l.converge(m()...)
		for range 3 {
			if rep := l.apply(m()...); rep.Writes != 0 {
				t.Errorf("%d writes to a converged container", rep.Writes)
			}
		}
		l.settled(ct("a", 100, "root: {storage: local-lvm, size: 4GiB}", "mount-points: [{storage: local-dir, size: 8GiB, mount-point: /srv}]", "init: {ssh-keys: ['"+keyB+"']}"))
	})
	story(t, func(l *lab) { // every slot of either kind that has a create form
		disks := "disks: ["
		for i, bus := range []string{"scsi3", "virtio2", "sata1", "ide1"} {
			disks += fmt.Sprintf("{interface: %s, storage: local-lvm, size: %dGiB}, ", bus, i+1)
		}
		m := vm("a", 100, disks+"]", "hardware: {bios: ovmf, efi-disk: {storage: local-lvm}, tpm: {storage: local-lvm}, cloud-init: {storage: local-lvm, slot: sata4}, cdrom: {iso: none}}",
			"extra: {scsi9: 'local-lvm:3,discard=on'}")
		l.converge(m)
		l.put(100, "scsi3", l.conf(100)["scsi3"]+",backup=0")
		l.put(100, "virtio2", l.conf(100)["virtio2"]+",cache=none")
		l.settled(m)
		if n := len(l.w.LedgerEntries()); n == 0 {
			t.Error("nothing was allocated")
		}
	})
}

var _ = plan.Converged
