package cases_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/wire"
)

// FuzzPlan makes live guests of valid calls and manifests of valid fields, both
// drawn from a seed, and holds the laws of every plan: no volume is lost, no
// token that the manifest does not own changes, and after an apply the next
// plan is empty, or says what waits, or what PVE refuses.
func FuzzPlan(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed, seed*7)
	}
	f.Fuzz(func(t *testing.T, liveSeed, wantSeed uint64) { draw(t, liveSeed, wantSeed) })
}

func draw(t *testing.T, liveSeed, wantSeed uint64) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, dir, pvesim.Options{Seed: liveSeed}, state(t, mirror))
		defer l.w.Stop()
		a, b := &dice{rand.New(rand.NewPCG(liveSeed, 1))}, &dice{rand.New(rand.NewPCG(wantSeed, 2))}
		l.as(b.of("", "", rootToken))
		l.drawLive(a)
		ms := []string{debian, seedISO, seedImage, l.wantVM(b), l.wantCT(b)}
		if b.yes() {
			ms = append(ms[:3], b.manifest("VM", "a", 100), b.manifest("LXC", "b", 101))
		}
		restart := b.of("never", "immediate")
		l.policy = func(p *plan.Policy) { p.Restart = restart }
		l.laws(ms)
	})
}

// drawLive makes a VM and a container: of what a manifest may also say, then of
// anything else that PVE has.
func (l *lab) drawLive(d *dice) {
	l.Helper()
	l.api("POST", "/pools", "poolid", "one")
	l.api("POST", "/cluster/mapping/pci", "id", "gpu1", "map", "node=pve01,path=0000:01:00.0,id=10de:1234")
	if d.IntN(12) > 0 {
		l.liveVM(d)
		l.byHand(d, 100, d.IntN(16))
		l.history(d, 100)
	}
	if d.IntN(12) > 0 {
		l.liveCT(d)
		l.byHand(d, 101, d.IntN(12))
		l.history(d, 101)
	}
	for _, id := range []int{100, 101} {
		if l.path(id) != "" && d.IntN(3) == 0 {
			l.oddly(d, id)
		}
	}
}

// laws applies manifests and holds what every plan must.
func (l *lab) laws(ms []string) {
	l.Helper()
	before := l.effective()
	l.fails = true
	rep := l.apply(ms...)
	l.unowned(before, rep)
	if l.unforeseen(rep) {
		return
	}
	after := l.diff(ms...)
	for _, act := range after.Plan.Actions {
		if act.Refused == "" && !l.faulty(after, act.VMID) && !made(rep, act) {
			l.Errorf("the plan after an apply is not empty:\nfirst:\n%s\nthen:\n%s", text(rep), text(after))
			break
		}
	}
	for _, o := range after.Plan.Objects {
		if o.VMID != 0 && o.State == plan.Converged && l.running(o.VMID) && len(l.pending(o.VMID)) > 0 {
			l.Errorf("%s is converged although PVE holds %v", o.ID, l.pending(o.VMID))
		}
	}
	if x, y := document(l, after), document(l, l.diff(ms...)); x != y {
		l.Errorf("two plans differ:\n%s\n%s", x, y)
	}
	if l.Failed() {
		l.Logf("live now:\n%s\n%s\nmanifests:\n%s\n%s", print(l.conf(100)), print(l.conf(101)), ms[3], ms[4])
	}
}

// effective is the census without what goes at the next start, whoever starts
// the guest.
func (l *lab) effective() census {
	c := l.census()
	l.w.View(func(s *pvesim.State) {
		for id, g := range s.Guests {
			for key := range g.Delete {
				delete(c.guests[id], key)
			}
		}
	})
	return c
}

// made reports whether an action deletes a key that PVE filled in when the
// plan before it made the guest: null means none, which a create cannot say.
func made(rep reconcile.Report, act plan.Action) bool {
	created := slices.ContainsFunc(rep.Plan.Actions, func(a plan.Action) bool { return a.Verb == plan.Create && a.VMID == act.VMID })
	return created && !slices.ContainsFunc(act.Changes, func(c field.Change) bool { return c.Key != "boot" && c.Key != "machine" || c.New != nil })
}

// faulty reports whether the plan has an error of a guest: it is told, and
// nothing of it is applied.
func (l *lab) faulty(rep reconcile.Report, id int) bool {
	for _, e := range rep.Plan.Errors {
		for _, o := range rep.Plan.Objects {
			if o.Ref == e.Ref && o.VMID == id {
				return true
			}
		}
	}
	return false
}

// unforeseen reports actions that failed although the plan said nothing
// against them.
func (l *lab) unforeseen(rep reconcile.Report) (found bool) {
	l.Helper()
	if rep.Abort != nil {
		l.Errorf("the cycle was aborted: %v", rep.Abort)
		return true
	}
	if rep.Result == nil {
		return false
	}
	for _, a := range rep.Result.Actions {
		if a.Err != nil && (strings.Contains(a.Err.Error(), "the task qmstart failed") || strings.Contains(a.Err.Error(), "no further running guest")) {
			found = true // the lab's node has no such hardware; a start tells
			continue
		}
		if a.Err != nil && a.Action.Refused == "" && !l.faulty(rep, a.Action.VMID) {
			l.Errorf("%s %s failed: %v\n%s\nlive:\n%s", a.Action.Verb, a.Action.ID, a.Err, text(rep), print(l.conf(a.Action.VMID)))
			found = true
		}
	}
	return found
}

// unowned holds that between two states of a guest only those tokens changed
// that the plan's changes name.
func (l *lab) unowned(before census, rep reconcile.Report) {
	l.Helper()
	named := map[int]map[string]bool{}
	for _, a := range rep.Plan.Actions {
		if named[a.VMID] == nil {
			named[a.VMID] = map[string]bool{}
		}
		for _, c := range a.Changes {
			named[a.VMID][c.Key] = true
		}
	}
	after := l.effective()
	for id, was := range before.guests {
		l.sameTokens(id, was, after.guests[id], named[id], rep)
	}
}

func (l *lab) sameTokens(id int, was, now pvesim.Section, named map[string]bool, rep reconcile.Report) {
	l.Helper()
	lxc := strings.Contains(l.path(id), "/lxc/")
	for _, key := range append(was.Keys(), now.Keys()...) {
		if was[key] == now[key] || named[key] || key == "digest" || key == "lock" || key == "boot" { // PVE puts new CD drives into the boot order
			continue
		}
		if was[key] == "" && anyToken(named, key) {
			continue // a key that the plan makes: PVE fills in the rest
		}
		format := wire.FormatOf(lxc, key)
		x, y := wire.ParseProps(was[key], format), wire.ParseProps(now[key], format)
		for _, t := range append(x.Tokens(), y.Tokens()...) {
			if t.Key == "size" && (strings.Contains(now[key], "cloudinit") || key == "tpmstate0") {
				continue // known to PVE once the volume was written
			}
			p, okP := x.Get(t.Key)
			q, okQ := y.Get(t.Key)
			if (p != q || okP != okQ) && !named[key+"."+t.Key] && !(t.Key == "file" || t.Key == "volume" || t.Key == format.Default) {
				l.Errorf("guest %d: %s: the token %s was %q, is %q, and no change of the plan names it (%s)", id, key, t.Key, p, q, text(rep))
			}
			if (t.Key == "file" || t.Key == "volume") && p != q && okP && p != "none" {
				l.Errorf("guest %d: %s: the volume was %s, is %s", id, key, p, q)
			}
		}
	}
}

func anyToken(named map[string]bool, key string) bool {
	for k := range named {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

type dice struct{ *rand.Rand }

func (d *dice) of(xs ...string) string { return xs[d.IntN(len(xs))] }
func (d *dice) yes() bool              { return d.IntN(2) == 0 }

// some keeps each of the texts with even odds.
func (d *dice) some(xs ...string) (out []string) {
	for _, x := range xs {
		if d.yes() {
			out = append(out, x)
		}
	}
	return out
}

func (l *lab) liveVM(d *dice) {
	l.Helper()
	pairs := []string{"name", "a", "memory", d.of("512", "1024", "2048"), "tags", d.of("proxops", "proxops;x", "ProxOps y")}
	set := func(key, value string) {
		if d.yes() {
			pairs = append(pairs, key, value)
		}
	}
	set("cpu", d.of("host", "kvm64,flags=+aes;-pcid", "x86-64-v2-AES,hidden=1", "cputype=host,flags=+md-clear,phys-bits=host"))
	set("cores", d.of("1", "2", "4"))
	set("sockets", "2")
	set("balloon", d.of("0", "256"))
	set("net0", d.of("virtio,bridge=vmbr0", "e1000=BC:24:11:00:00:01,bridge=vmbr1,tag=7,firewall=1", "virtio=02:15:5d:00:09:03,bridge=vmbr0,mtu=1400,queues=2,link_down=1"))
	set("net2", "virtio,bridge=vmbr0,trunks=2;3")
	set("scsi0", "local-lvm:1,discard=on,iothread=1,backup=0")
	set("scsi1", "local-dir:2,cache=none,serial=X")
	set("virtio0", "local-lvm:1,ro=1")
	set("sata3", "local:iso/seed.iso,media=cdrom")
	set(d.of("ide2", "ide3", "scsi7"), d.of("none,media=cdrom", "local-lvm:cloudinit"))
	set("efidisk0", "local-lvm:1,efitype=4m,pre-enrolled-keys=1")
	set("tpmstate0", "local-lvm:1,version=v2.0")
	set("scsihw", d.of("virtio-scsi-pci", "virtio-scsi-single"))
	set("machine", d.of("q35", "pc", "pc-q35-9.0", "q35,viommu=intel"))
	set("bios", d.of("ovmf", "seabios"))
	set("vga", d.of("std", "qxl,memory=32", "serial0"))
	set("serial0", "socket")
	set("numa", d.of("0", "1"))
	set("agent", d.of("1", "0", "enabled=1,fstrim_cloned_disks=1", "enabled=1,type=isa"))
	set("onboot", d.of("0", "1"))
	set("startup", d.of("order=1", "2,up=10"))
	set("hotplug", d.of("network,disk,usb", "0", "network,disk,usb,memory,cpu", "1"))
	set("tablet", "0")
	set("description", d.of("x", "two\nlines\n"))
	set("ciuser", "root")
	set("ipconfig0", d.of("ip=dhcp", "gw=192.0.2.1,ip=192.0.2.7/24", "ip6=auto"))
	set("nameserver", "192.0.2.53, 192.0.2.54")
	set("searchdomain", "a.example;b.example")
	set("pool", "one")
	set("start", "1")
	pairs = append(pairs, "scsi5", "local-lvm:0,import-from=local:import/seed.qcow2") // a system that lets go of what is unplugged
	l.make("qemu", 100, pairs...)
	if d.yes() { // something is left pending, or edited by hand
		if _, err := l.try(rootToken, "PUT", l.path(100)+"/config", d.of("cores", "sockets"), d.of("2", "3"), "acpi", d.of("0", "1")); err != nil {
			l.Logf("an edit by hand: %v", err)
		}
	}
}

func (l *lab) liveCT(d *dice) {
	l.Helper()
	pairs := []string{"hostname", "b", "rootfs", d.of("local-lvm:1", "local-dir:2"), "tags", "proxops"}
	set := func(key, value string) {
		if d.yes() {
			pairs = append(pairs, key, value)
		}
	}
	set("memory", d.of("512", "1024"))
	set("swap", d.of("0", "256"))
	set("cores", "2")
	set("net0", d.of("name=eth0,bridge=vmbr0,ip=dhcp", "name=lan,bridge=vmbr1,tag=7,ip6=auto,mtu=1400,hwaddr=BC:24:11:00:00:05"))
	set("mp0", "local-lvm:1,mp=/srv,backup=1,mountoptions=noatime")
	set("mp3", "local-dir:1,mp=/opt/x/")
	set("features", "nesting=1")
	set("onboot", "1")
	set("startup", "3")
	set("nameserver", "192.0.2.53 192.0.2.54")
	set("searchdomain", "a.example")
	set("description", d.of("x", "two\nlines\n"))
	set("tty", "4")
	set("cmode", "shell")
	set("cpulimit", "1.5")
	set("cpuunits", "200")
	set("start", "1")
	l.make("lxc", 101, pairs...)
}

func (l *lab) wantVM(d *dice) string {
	lines := []string{"state: " + d.of("started", "stopped"), "memory: " + d.of("512MiB", "1GiB", "2GiB")}
	disks := d.some("{interface: scsi0, storage: "+d.of("local-lvm", "local-dir")+", size: "+d.of("1GiB", "2GiB")+", grow: true"+d.of("", ", discard: on", ", discard: ignore, iothread: true")+"}",
		"{interface: scsi1, storage: local-dir, size: 2GiB"+d.of("", ", cache: writeback", ", backup: false, ssd: true")+"}",
		"{interface: virtio0, storage: local-lvm, size: 1GiB"+d.of("", ", read-only: false", ", serial: Y")+"}",
		"{interface: sata1, storage: local-lvm, size: 1GiB}")
	lines = append(lines, "disks: ["+strings.Join(disks, ", ")+"]")
	nics := d.some("{slot: net0, bridge: "+d.of("vmbr0", "vmbr1")+d.of("", ", vlan: 9", ", model: e1000, firewall: false", ", mtu: 1300, link-down: false")+"}",
		"{slot: net2, bridge: vmbr0"+d.of("", ", rate-limit: 5", ", queues: 4")+"}")
	lines = append(lines, "networks: ["+strings.Join(nics, ", ")+"]")
	cpu := append([]string{"type: " + d.of("host", "kvm64", "x86-64-v2-AES"), "cores: " + d.of("1", "2")}, d.some("flags: ["+d.of("+aes", "-pcid", "-aes, +pcid")+"]", "limit: "+d.of("1", "null"), "units: "+d.of("200", "null"))...)
	lines = append(lines, "cpu: {"+strings.Join(cpu, ", ")+"}")
	bios := d.of("ovmf", "seabios")
	hw := d.some("machine: "+d.of("q35", "i440fx", "null"), "bios: "+bios, "display: "+d.of("std", "qxl", "null"), "serial0: "+d.of("socket", "null"), "sockets: "+d.of("1", "2"), "numa: "+d.of("true", "false"),
		"cloud-init: {storage: local-lvm}", "cdrom: {iso: "+d.of("none", "seed")+"}", "tpm: {storage: local-lvm, version: v2.0}")
	lines = append(lines, "hardware: {"+strings.Join(hw, ", ")+"}")
	opts := d.some("onboot: "+d.of("true", "false", "null"), "startup: "+d.of("order=5", "null"), "agent: "+d.of("true", "false", "null"), "tablet: "+d.of("true", "false"), "hotplug: "+d.of("[disk]", "[network, disk, usb]", "null"),
		"nested-virt: "+d.of("true", "false"), "hidden: "+d.of("true", "false"), "ostype: "+d.of("l26", "other"), "acpi: "+d.of("true", "null"))
	lines = append(lines, "options: {"+strings.Join(opts, ", ")+"}")
	data := d.some("ci-user: "+d.of("deploy", "null"), "nameservers: "+d.of("[192.0.2.54, 192.0.2.53]", "null"), "search-domains: "+d.of("[c.example]", "null"), "ipconfigs: [{ip: "+d.of("dhcp", "192.0.2.9/24")+"}]", "ssh-keys: ['"+keyA+"']")
	lines = append(lines, "cloud-init-data: {"+strings.Join(data, ", ")+"}")
	lines = append(lines, d.some("balloon: "+d.of("0", "256MiB", "null"), "tags: "+d.of("[q, r]", "null"), "pve-description: "+d.of("y", "null"), "pool: "+d.of("one", "null"))...)
	return vm("a", 100, lines...)
}

func (l *lab) wantCT(d *dice) string {
	lines := []string{"state: " + d.of("started", "stopped"), "template: debian", "memory: " + d.of("512MiB", "1GiB"), "root: {storage: local-lvm, size: " + d.of("1GiB", "2GiB") + ", grow: true}"}
	mps := d.some("{slot: mp0, storage: local-lvm, size: "+d.of("1GiB", "3GiB")+", mount-point: "+d.of("/srv", "/data")+", grow: true"+d.of("", ", options: {read-only: true, backup: false}")+"}",
		"{slot: mp3, storage: local-dir, size: 1GiB, mount-point: /opt/x}", "{slot: mp9, storage: local-lvm, size: 1GiB, mount-point: /new}")
	lines = append(lines, "mount-points: ["+strings.Join(mps, ", ")+"]")
	nics := d.some("{slot: net0, bridge: vmbr0"+d.of("", ", tag: 9", ", ip: 192.0.2.8/24, gw: 192.0.2.1", ", ip6: dhcp, firewall: true")+"}", "{slot: net1, bridge: vmbr1}")
	lines = append(lines, "networks: ["+strings.Join(nics, ", ")+"]")
	opts := d.some("nesting: "+d.of("true", "false"), "keyctl: "+d.of("true", "false"), "onboot: "+d.of("true", "null"), "startup: "+d.of("order=2", "null"), "ttys: "+d.of("2", "3"), "cmode: "+d.of("tty", "null"), "console: "+d.of("true", "false"))
	lines = append(lines, "options: {"+strings.Join(opts, ", ")+"}")
	lines = append(lines, "cpu: {"+strings.Join(d.some("cores: "+d.of("1", "null"), "units: "+d.of("100", "null"), "limit: "+d.of("2", "null")), ", ")+"}")
	lines = append(lines, "dns: {"+strings.Join(d.some("nameservers: "+d.of("[192.0.2.54]", "null"), "domain: "+d.of("z.example", "null")), ", ")+"}")
	lines = append(lines, d.some("swap: "+d.of("0", "512MiB"), "tags: "+d.of("[q]", "null"), "pve-description: "+d.of("y", "null"))...)
	return ct("b", 101, lines...)
}
