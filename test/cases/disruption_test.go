package cases_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/pvesim"
)

var update = flag.Bool("update", false, "write docs/disruption.md")

const disruptionDoc = "../../docs/disruption.md"

// trial is one field with two values, as lines of a manifest.
type trial struct {
	path     string // as in the field reference, without indexes
	from, to []string
}

const (
	oneDisk = "disks: [{storage: local-lvm, size: 1GiB, grow: true%s}]"
	oneNIC  = "networks: [{bridge: vmbr0%s}]"
	oneMP   = "mount-points: [{storage: local-lvm, size: 1GiB, mount-point: /srv, grow: true%s}]"
)

// with puts two texts into a line's hole.
func with(path, line, a, b string) trial {
	return trial{path, []string{fmt.Sprintf(line, a)}, []string{fmt.Sprintf(line, b)}}
}

func leaf(path, a, b string) trial {
	block, name, nested := strings.Cut(path, ".")
	if !nested {
		return trial{path, []string{path + ": " + a}, []string{path + ": " + b}}
	}
	return trial{path, []string{block + ": {" + name + ": " + a + "}"}, []string{block + ": {" + name + ": " + b + "}"}}
}

var vmTrials = []trial{
	leaf("pve-name", "one", "two"), leaf("pve-description", "one", "two"), leaf("tags", "[one]", "[two]"), leaf("pool", "one", "two"),
	leaf("memory", "1GiB", "2GiB"), leaf("balloon", "256MiB", "300MiB"),
	{"cpu.type", nil, []string{"cpu: {type: kvm64, cores: 1}"}}, {"cpu.cores", nil, []string{"cpu: {type: host, cores: 2}"}},
	{"cpu.flags", nil, []string{"cpu: {type: host, cores: 1, flags: [+aes]}"}}, {"cpu.limit", nil, []string{"cpu: {type: host, cores: 1, limit: 1}"}},
	{"cpu.units", nil, []string{"cpu: {type: host, cores: 1, units: 200}"}},
	{"disks.storage", nil, []string{"disks: [{interface: scsi5, storage: local-lvm, image: seed}, {interface: scsi1, storage: local-lvm, size: 1GiB}]"}},
	with("disks.size", "disks: [{storage: local-lvm, size: %s, grow: true}]", "1GiB", "2GiB"),
	with("disks.iothread", oneDisk, ", iothread: false", ", iothread: true"), with("disks.discard", oneDisk, ", discard: ignore", ", discard: on"),
	with("disks.ssd", oneDisk, ", ssd: false", ", ssd: true"), with("disks.aio", oneDisk, ", aio: native", ", aio: threads"),
	with("disks.cache", oneDisk, ", cache: none", ", cache: writeback"), with("disks.backup", oneDisk, ", backup: true", ", backup: false"),
	with("disks.replicate", oneDisk, ", replicate: true", ", replicate: false"), with("disks.read-only", oneDisk, ", read-only: false", ", read-only: true"),
	with("disks.serial", oneDisk, ", serial: A", ", serial: B"), leaf("disks.controller", "", ""),
	with("networks.model", oneNIC, "", ", model: e1000"), with("networks.bridge", "networks: [{bridge: %s}]", "vmbr0", "vmbr1"),
	with("networks.mac", oneNIC, ", mac: 'BC:24:11:00:00:01'", ", mac: 'BC:24:11:00:00:02'"), with("networks.vlan", oneNIC, "", ", vlan: 7"),
	with("networks.firewall", oneNIC, "", ", firewall: true"), with("networks.rate-limit", oneNIC, "", ", rate-limit: 10"),
	with("networks.mtu", oneNIC, "", ", mtu: 1400"), with("networks.queues", oneNIC, "", ", queues: 4"), with("networks.link-down", oneNIC, "", ", link-down: true"),
	leaf("hardware.machine", "i440fx", "q35"), leaf("hardware.bios", "seabios", "ovmf"), leaf("hardware.display", "std", "qxl"),
	{"hardware.serial0", nil, []string{"hardware: {serial0: socket}"}}, leaf("hardware.sockets", "1", "2"), leaf("hardware.numa", "false", "true"),
	leaf("hardware.cdrom.iso", "", ""), {"hardware.efi-disk.storage", nil, []string{"hardware: {bios: ovmf, efi-disk: {storage: local-lvm}}"}},
	{"hardware.efi-disk.secure-boot", []string{"hardware: {bios: ovmf, efi-disk: {storage: local-lvm, secure-boot: disabled}}"}, []string{"hardware: {bios: ovmf, efi-disk: {storage: local-lvm, secure-boot: enabled}}"}},
	{"hardware.tpm.storage", nil, []string{"hardware: {tpm: {storage: local-lvm}}"}}, {"hardware.cloud-init.storage", nil, []string{"hardware: {cloud-init: {storage: local-lvm}}"}},
	{"hardware.pci-devices.mapping", nil, []string{"hardware: {pci-devices: [{mapping: gpu1}]}"}},
	leaf("options.onboot", "false", "true"), leaf("options.startup", "order=1", "order=2"), leaf("options.protection", "false", "true"),
	leaf("options.agent", "false", "true"), leaf("options.acpi", "true", "false"), leaf("options.tablet", "true", "false"),
	leaf("options.hotplug", "[network, disk, usb]", "[network, disk]"), leaf("options.boot-order", "[net0]", "[scsi0]"),
	leaf("options.nested-virt", "false", "true"), leaf("options.hidden", "false", "true"), leaf("options.ostype", "l26", "other"),
	leaf("cloud-init-data.ci-user", "one", "two"), leaf("cloud-init-data.ssh-keys", "['"+keyA+"']", "['"+keyB+"']"),
	leaf("cloud-init-data.nameservers", "[192.0.2.1]", "[192.0.2.2]"), leaf("cloud-init-data.search-domains", "[a.example]", "[b.example]"),
	leaf("cloud-init-data.ipconfigs.ip", "", ""),
}

var ctTrials = []trial{
	leaf("pve-description", "one", "two"), leaf("tags", "[one]", "[two]"), leaf("pool", "one", "two"), leaf("memory", "512MiB", "1GiB"), leaf("swap", "512MiB", "256MiB"),
	leaf("cpu.cores", "1", "2"), leaf("cpu.units", "100", "200"), leaf("cpu.limit", "1", "2"), leaf("arch", "amd64", "arm64"),
	{"root.size", []string{"root: {storage: local-lvm, size: 1GiB, grow: true}"}, []string{"root: {storage: local-lvm, size: 2GiB, grow: true}"}},
	{"mount-points.storage", nil, []string{fmt.Sprintf(oneMP, "")}}, with("mount-points.size", "mount-points: [{storage: local-lvm, size: %s, mount-point: /srv, grow: true}]", "1GiB", "2GiB"),
	{"mount-points.mount-point", []string{fmt.Sprintf(oneMP, "")}, []string{strings.Replace(fmt.Sprintf(oneMP, ""), "/srv", "/opt", 1)}},
	with("mount-points.options.read-only", oneMP, ", options: {read-only: false}", ", options: {read-only: true}"),
	with("mount-points.options.backup", oneMP, ", options: {backup: false}", ", options: {backup: true}"),
	with("mount-points.options.acl", oneMP, ", options: {acl: false}", ", options: {acl: true}"),
	with("mount-points.options.shared", oneMP, ", options: {shared: false}", ", options: {shared: true}"),
	with("mount-points.options.mount-options", oneMP, ", options: {mount-options: [nodev]}", ", options: {mount-options: [noatime]}"),
	with("networks.bridge", "networks: [{bridge: %s}]", "vmbr0", "vmbr1"), with("networks.iface", oneNIC, ", iface: one", ", iface: two"),
	with("networks.tag", oneNIC, "", ", tag: 7"), with("networks.hwaddr", oneNIC, ", hwaddr: 'BC:24:11:00:00:01'", ", hwaddr: 'BC:24:11:00:00:02'"),
	with("networks.rate-limit", oneNIC, "", ", rate-limit: 10"), with("networks.firewall", oneNIC, "", ", firewall: true"),
	with("networks.ip", oneNIC, ", ip: dhcp", ", ip: 192.0.2.7/24"), with("networks.gw", oneNIC, ", ip: 192.0.2.7/24, gw: 192.0.2.1", ", ip: 192.0.2.7/24, gw: 192.0.2.2"),
	with("networks.ip6", oneNIC, ", ip6: auto", ", ip6: dhcp"), with("networks.gw6", oneNIC, ", ip6: 2001:db8::2/64, gw6: 2001:db8::1", ", ip6: 2001:db8::2/64, gw6: 2001:db8::3"),
	leaf("dns.hostname", "one", "two"), leaf("dns.nameservers", "[192.0.2.1]", "[192.0.2.2]"), leaf("dns.domain", "a.example", "b.example"),
	leaf("options.protection", "false", "true"), leaf("options.nesting", "false", "true"), leaf("options.keyctl", "false", "true"), leaf("options.fuse", "false", "true"),
	leaf("options.mount", "[nfs]", "[cifs]"), leaf("options.mknod", "false", "true"), leaf("options.onboot", "false", "true"), leaf("options.startup", "order=1", "order=2"),
	leaf("options.console", "true", "false"), leaf("options.ttys", "2", "4"), leaf("options.cmode", "tty", "shell"),
	{"bind-mounts.host-path", nil, []string{"bind-mounts: [{host-path: /srv/mirror, mount-point: /data}]"}},
	{"bind-mounts.read-only", []string{"bind-mounts: [{host-path: /srv/mirror, mount-point: /data}]"}, []string{"bind-mounts: [{host-path: /srv/mirror, mount-point: /data, read-only: true}]"}},
	{"bind-mounts.mount-point", []string{"bind-mounts: [{host-path: /srv/mirror, mount-point: /data}]"}, []string{"bind-mounts: [{host-path: /srv/mirror, mount-point: /other}]"}},
}

// whole puts in the trials whose values do not fit a helper.
func whole(trials []trial) []trial {
	out := slices.Clone(trials)
	for i, x := range out {
		switch x.path {
		case "disks.controller":
			out[i] = trial{x.path, []string{"disks: [{storage: local-lvm, size: 1GiB, controller: virtio-scsi-pci}]"}, []string{"disks: [{storage: local-lvm, size: 1GiB, controller: virtio-scsi-single}]"}}
		case "hardware.cdrom.iso":
			out[i] = trial{x.path, []string{"hardware: {cdrom: {iso: none}}"}, []string{"hardware: {cdrom: {iso: seed}}"}}
		case "cloud-init-data.ipconfigs.ip":
			out[i] = trial{x.path, []string{"cloud-init-data: {ipconfigs: [{ip: dhcp}]}"}, []string{"cloud-init-data: {ipconfigs: [{ip: 192.0.2.7/24}]}"}}
		case "options.boot-order":
			both := []string{"disks: [{storage: local-lvm, size: 1GiB}]", "networks: [{bridge: vmbr0}]"}
			out[i] = trial{x.path, append(slices.Clone(both), x.from...), append(slices.Clone(both), x.to...)}
		}
	}
	return out
}

// notTried are fields that say nothing to a running guest, and why.
var notTried = map[string]string{
	"node": "place", "vmid": "place", "state": "power", "clone": "create only", "disks.image": "create only", "template": "create only", "options.unprivileged": "create only",
	"init.ssh-keys": "create only", "init.ssh-key-refs": "create only", "init.password-ref": "create only", "extra": "any key",
	"hardware.efi-disk.template": "decided at creation", "hardware.tpm.version": "decided at creation", "root.storage": "decided at creation",
	"cloud-init-data.ssh-key-refs": "as ssh-keys", "cloud-init-data.ci-password-ref": "as ci-user", "cloud-init-data.ipconfigs.gateway": "as ip", "cloud-init-data.ipconfigs.ip6": "as ip",
	"cloud-init-data.ipconfigs.gateway6": "as ip", "hardware.pci-devices.device": "as mapping", "hardware.pci-devices.pcie": "as mapping", "networks.type": "PVE has one",
	"mount-points.options.quota": "not in unprivileged containers",
}

// unheld are changes that the machine sees at its next start alone, and that
// PVE writes into the config at once all the same.
var unheld = map[string]bool{"disks.serial": true}

var effects = map[field.Impact]string{field.None: "next boot", field.Live: "live", field.Pending: "pending"}

// What a plan says that a change does to a running guest is what PVE does; the
// table in docs/disruption.md is made of it.
func TestDisruption(t *testing.T) {
	var doc strings.Builder
	doc.WriteString("# What a change does to a running guest\n\nGenerated by the tests from the field table, and checked against the simulator for every line: *live* takes effect\nat once, *pending* is held by PVE until the guest is stopped and started (see `reconcile.restart-policy`), *next boot*\nis read by cloud-init when the guest boots. The hotplug option is PVE's default, `network,disk,usb`; with `memory` and\n`numa` in it memory is taken live.\n")
	for _, k := range []string{"VM", "LXC"} {
		trials := vmTrials
		if k == "LXC" {
			trials = ctTrials
		}
		doc.WriteString("\n## " + k + "\n\n| field | PVE key | effect |\n|---|---|---|\n")
		for _, x := range whole(trials) {
			key, effect := "", ""
			t.Run(k+" "+x.path, func(t *testing.T) { // a bubble that fails ends its test
				story(t, func(l *lab) { key, effect = l.disruption(k, x) })
			})
			fmt.Fprintf(&doc, "| `%s` | `%s` | %s |\n", x.path, key, effect)
		}
		everyRowIsTried(t, k, trials)
	}
	if *update {
		if err := os.WriteFile(disruptionDoc, []byte(doc.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(disruptionDoc)
	if err != nil || string(got) != doc.String() {
		t.Errorf("docs/disruption.md is out of date (%v): run go test ./test/cases -run TestDisruption -update", err)
	}
}

func everyRowIsTried(t *testing.T, name string, trials []trial) {
	t.Helper()
	k, _ := kind.Lookup(name)
	spec := k.New().(interface {
		Shape(*field.Guest) *field.Block
	})
	for _, r := range field.Rows(field.Specimen(func() *field.Block { return spec.Shape(nil) })) {
		path := plainPath(r.Path)
		if r.Key == "" || notTried[path] != "" || strings.HasPrefix(path, "extra") {
			continue
		}
		if !slices.ContainsFunc(trials, func(x trial) bool { return x.path == path }) {
			t.Errorf("%s: what a change of %s does is not tried", name, path)
		}
	}
}

func plainPath(p string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(p, ".") {
		name, _, _ := strings.Cut(part, "[")
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(name)
	}
	return b.String()
}

// disruption changes one field of a running guest and compares what was
// predicted with what happened.
func (l *lab) disruption(k string, x trial) (key, effect string) {
	l.Helper()
	l.as("")
	defer func() {
		if l.Failed() {
			l.Logf("%s %s", k, x.path)
		}
	}()
	l.w.View(func(s *pvesim.State) { // a stopped container that mounts the directory: so it is there
		s.Guests[999] = &pvesim.Guest{VMID: 999, Kind: "lxc", Node: "pve01", Config: pvesim.Section{"mp0": "/srv/mirror,mp=/data"}}
	})
	l.api("POST", "/pools", "poolid", "one")
	l.api("POST", "/pools", "poolid", "two")
	l.api("POST", "/cluster/mapping/pci", "id", "gpu1", "map", "node=pve01,path=0000:01:00.0,id=10de:1234")
	m := func(lines []string) []string {
		lines = append(slices.Clone(lines), "state: started")
		if k == "LXC" {
			return []string{spec(k, "a", 100, append(lines, "template: debian")...), debian}
		}
		if text := strings.Join(lines, "\n"); !strings.Contains(text, "disks:") { // a disk with a system, which lets go of what is unplugged
			lines = append(lines, "disks: [{interface: scsi5, storage: local-lvm, image: seed}]")
		}
		return []string{spec(k, "a", 100, lines...), seedISO, seedImage}
	}
	l.converge(m(x.from)...)
	rep := l.apply(m(x.to)...)
	predicted := field.Impact(-1)
	for _, a := range rep.Plan.Actions {
		for _, c := range a.Changes {
			if plainPath(c.Path) == x.path {
				predicted, key = max(predicted, c.Impact), c.Key
			}
		}
	}
	if predicted < 0 {
		l.Errorf("%s %s: no change was planned:\n%s", k, x.path, text(rep))
		return key, "?"
	}
	waits := false
	top, _, _ := strings.Cut(key, ".")
	l.edit(100, func(g *guest) {
		_, set := g.Pending[top]
		_, del := g.Delete[top]
		waits = set || del
	})
	l.explained(k, x, predicted)
	if unheld[x.path] {
		return key, "pending, though PVE shows it as done"
	}
	if waits != (predicted == field.Pending) {
		l.Errorf("%s %s (%s): predicted %s, but PVE holds it pending: %v", k, x.path, key, predicted, waits)
	}
	if after := l.diff(m(x.to)...); len(after.Plan.Actions) > 0 || waits == after.Converged() {
		l.Errorf("%s %s: afterwards:\n%s", k, x.path, text(after))
	}
	if !l.running(100) {
		l.Errorf("%s %s: the guest was stopped", k, x.path)
	}
	return key, news[last(x.path)] + effects[predicted]
}

// news are what a change of these fields is, where it is one at all: they are
// read from the guest and never rewritten.
var news = map[string]string{"storage": "a new volume: ", "size": "growing: ", "host-path": "a new one: "}

func last(path string) string { return path[strings.LastIndex(path, ".")+1:] }

// explained compares what explain and the field reference say of a field with
// what the plan said of its change.
func (l *lab) explained(k string, x trial, predicted field.Impact) {
	l.Helper()
	of, _ := kind.Lookup(k)
	spec := of.New()
	text, err := field.Explain(field.Specimen(func() *field.Block { return spec.Shape(nil) }), k == "LXC", x.path)
	if err != nil {
		l.Fatal(err)
	}
	_, said, _ := strings.Cut(text, "running: ")
	said, _, _ = strings.Cut(strings.TrimSpace(said), "\n")
	want := map[field.Impact]string{field.None: "no effect", field.Live: "live", field.Pending: "pending"}[predicted]
	said = strings.TrimPrefix(said, news[last(x.path)])
	if class, ok := strings.CutPrefix(said, "live where hotplug has "); ok { // PVE's default: see the head of the document
		class, said, _ = strings.Cut(class, ", else ")
		if slices.Contains([]string{"network", "disk", "usb"}, class) {
			said = "live"
		}
	}
	if !strings.HasPrefix(said, want) {
		l.Errorf("%s %s: the plan says %s, explain says %q", k, x.path, want, said)
	}
}
