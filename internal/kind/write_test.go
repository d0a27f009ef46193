package kind_test

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
)

const liveVM = "name: a\ncpu: host\ncores: 2\nmemory: 2048\n"
const liveCT = "hostname: a\nmemory: 512\nrootfs: local-lvm:vm-102-disk-0,size=8G\n"

func editOf(t *testing.T, k, spec, live string, key string) (field.Edit, field.Delta) {
	t.Helper()
	head := vmHead
	if k == "LXC" {
		head = ctHead
	}
	s := mustParse(t, doc(k, "a", head+spec)).Spec
	g := guest(k == "LXC", live)
	g.Running = true
	d := field.Diff(s.Shape(g), g)
	for _, e := range d.Edits {
		if e.Key == key {
			return e, d
		}
	}
	return field.Edit{}, d
}

// What PVE keeps from API tokens is said before it is written.
func TestRootOnly(t *testing.T) {
	for _, c := range []struct {
		kind, spec, live, key string
		root                  bool
	}{
		{"LXC", "networks: []\noptions: {keyctl: true}", liveCT + "unprivileged: 1", "features", true},
		{"LXC", "networks: []\noptions: {mount: [nfs]}", liveCT + "unprivileged: 1", "features", true},
		{"LXC", "networks: []\noptions: {nesting: true}", liveCT + "unprivileged: 1", "features", false},
		{"LXC", "networks: []\noptions: {nesting: true}", liveCT + "unprivileged: 1\nfeatures: keyctl=1", "features", false},
		{"LXC", "networks: []\noptions: {nesting: true}", liveCT, "features", true},
		{"LXC", "networks: []\nbind-mounts: [{host-path: /srv/a, mount-point: /a}]", liveCT, "mp0", true},
		{"LXC", "networks: []\nmount-points: [{storage: s1, size: 1GiB, mount-point: /a}]", liveCT, "mp0", false},
		{"LXC", "networks: []\nextra: {dev0: /dev/kvm}", liveCT, "dev0", true},
		{"VM", "disks: []\nnetworks: []\nhardware: {pci-devices: [{device: '01:00'}]}", liveVM, "hostpci0", true},
		{"VM", "disks: []\nnetworks: []\nhardware: {pci-devices: [{mapping: gpu0, pcie: true}]}", liveVM, "hostpci0", false},
		{"VM", "disks: []\nnetworks: []\nhardware: {pci-devices: [{device: '01:00', pcie: true}]}", liveVM + "hostpci0: 0000:01:00", "hostpci0", true},
		{"VM", "disks: []\nnetworks: []\nhardware: {serial0: /dev/ttyS0}", liveVM, "serial0", true},
		{"VM", "disks: []\nnetworks: []\nhardware: {serial0: socket}", liveVM, "serial0", false},
		{"VM", "disks: []\nnetworks: []\nextra: {args: -cpu x}", liveVM, "args", true},
		{"VM", "disks: []\nnetworks: []\nextra: {usb0: 'host=1234:5678'}", liveVM, "usb0", true},
		{"VM", "disks: []\nnetworks: []\nextra: {usb0: spice, usb1: mapping=stick}", liveVM, "usb0", false},
	} {
		e, d := editOf(t, c.kind, c.spec, c.live, c.key)
		if e.Key == "" || (e.RootOnly != "") != c.root {
			t.Errorf("%s over %s: root %q, want %t; %s", c.spec, c.live, e.RootOnly, c.root, show(d))
		}
	}
}

// What a write does to a running guest.
func TestImpact(t *testing.T) {
	disk := "scsi0: s1:vm-101-disk-0,size=1G\n"
	for _, c := range []struct {
		kind, spec, live, key string
		want                  field.Impact
	}{
		{"VM", "disks: []\nnetworks: []\npve-description: x", liveVM, "description", field.Live},
		{"VM", "disks: []\nnetworks: [{bridge: vmbr1}]", liveVM + "net0: virtio=BC:24:11:00:00:01,bridge=vmbr0", "net0", field.Live},
		{"VM", "disks: []\nnetworks: [{bridge: vmbr0, model: e1000}]", liveVM + "net0: virtio=BC:24:11:00:00:01,bridge=vmbr0\nhotplug: disk", "net0", field.Pending},
		{"VM", "disks: []\nnetworks: [{bridge: vmbr0, model: e1000}]", liveVM + "net0: virtio=BC:24:11:00:00:01,bridge=vmbr0", "net0", field.Live},
		{"VM", "disks: []\nnetworks: []\nhardware: {bios: ovmf}", liveVM, "bios", field.Pending},
		{"VM", "disks: [{storage: s1, size: 1GiB, backup: false}]\nnetworks: []", liveVM + disk, "scsi0", field.Live},
		{"VM", "disks: [{storage: s1, size: 1GiB, cache: none}]\nnetworks: []", liveVM + disk, "scsi0", field.Pending},
		{"VM", "disks: [{storage: s1, size: 1GiB, interface: sata0}]\nnetworks: []", liveVM, "sata0", field.Pending},
		{"VM", "disks: [{storage: s1, size: 1GiB}]\nnetworks: []", liveVM, "scsi0", field.Live},
		{"VM", "disks: []\nnetworks: []\nballoon: 1GiB", liveVM + "balloon: 512", "balloon", field.Live},
		{"VM", "disks: []\nnetworks: []\nballoon: 0", liveVM + "balloon: 512", "balloon", field.Pending},
		{"VM", "disks: []\nnetworks: []\noptions: {hotplug: [disk]}", liveVM, "hotplug", field.Live},
		{"VM", "disks: []\nnetworks: []\noptions: {hotplug: [memory]}", liveVM, "hotplug", field.Pending},
		{"VM", "disks: []\nnetworks: []\ncloud-init-data: {ci-user: x}", liveVM, "ciuser", field.None},
		{"VM", "disks: []\nnetworks: []\nhardware: {cdrom: {iso: none}}", liveVM + "ide2: local:iso/x.iso,media=cdrom", "ide2", field.Live},
		{"VM", "disks: []\nnetworks: []\nhardware: {cdrom: {iso: none}}", liveVM, "ide2", field.Pending},
		{"LXC", "networks: []\nswap: 0", liveCT, "swap", field.Live},
		{"LXC", "networks: []\noptions: {ttys: 1}", liveCT, "tty", field.Pending},
		{"LXC", "networks: []\nmount-points: [{storage: s1, size: 1GiB, mount-point: /a}]", liveCT, "mp0", field.Live},
		{"LXC", "networks: []\nmount-points: [{storage: s1, size: 1GiB, mount-point: /b}]", liveCT + "mp0: s1:vm-102-disk-1,mp=/a,size=1G", "mp0", field.Pending},
	} {
		e, d := editOf(t, c.kind, c.spec, c.live, c.key)
		if e.Key == "" || e.Impact != c.want {
			t.Errorf("%s over %s: %s, want %s; %s", c.spec, c.live, e.Impact, c.want, show(d))
		}
	}
}

// Live strings: what a manifest says equals them, or changes its own token.
func TestLiveSpellings(t *testing.T) {
	for _, c := range []struct{ kind, spec, live, want string }{
		{"VM", "disks: []\nnetworks: []\nhardware: {machine: i440fx}", liveVM, ""},
		{"VM", "disks: []\nnetworks: []\nhardware: {machine: i440fx}", liveVM + "machine: pc-i440fx-9.2+pve1", ""},
		{"VM", "disks: []\nnetworks: []\nhardware: {machine: q35}", liveVM + "machine: pc-q35-9.2,viommu=intel", ""},
		{"VM", "disks: []\nnetworks: []\nhardware: {machine: q35}", liveVM + "machine: pc,viommu=intel", "machine=q35,viommu=intel"},
		{"VM", "disks: []\nnetworks: []\nhardware: {machine: pc-q35-9.0}", liveVM + "machine: q35", "machine=pc-q35-9.0"},
		{"VM", "disks: []\nnetworks: []\noptions: {nested-virt: true, hidden: true}", liveVM + "cpu: host,flags=+aes;-pcid,phys-bits=host", "cpu=host,flags=+aes;-pcid;+nested-virt,phys-bits=host,hidden=1"},
		{"VM", "disks: []\nnetworks: []\noptions: {hotplug: 'usb,network,disk'}", liveVM, ""},
		{"VM", "disks: []\nnetworks: []\noptions: {hotplug: 'usb,network,disk'}", liveVM + "hotplug: 1", ""},
		{"VM", "disks: []\nnetworks: []\noptions: {hotplug: '0'}", liveVM + "hotplug: 0", ""},
		{"VM", "disks: []\nnetworks: []\noptions: {agent: true}", liveVM + "agent: enabled=1,fstrim_cloned_disks=1", ""},
		{"VM", "disks: []\nnetworks: []\nhardware: {efi-disk: {storage: s1, secure-boot: enabled}}", liveVM + "efidisk0: s1:vm-101-disk-1,efitype=4m,ms-cert=2023k,size=528K", "efidisk0=s1:vm-101-disk-1,efitype=4m,ms-cert=2023k,size=528K,pre-enrolled-keys=1"},
		{"VM", "disks: []\nnetworks: []\nhardware: {pci-devices: [{device: '01:00', pcie: true}]}", liveVM + "hostpci0: 0000:01:00,pcie=1,x-vga=1", ""},
		{"VM", "disks: []\nnetworks: []\nhardware: {pci-devices: [{mapping: gpu0}]}", liveVM + "hostpci0: 0000:01:00,pcie=1,x-vga=1", "hostpci0=pcie=1,x-vga=1,mapping=gpu0"},
		{"VM", "disks: []\nnetworks: [{bridge: vmbr0, vlan: 20}]", liveVM + "net0: virtio=bc:24:11:00:00:01,bridge=vmbr0,tag=10,mtu=1400", "net0=virtio=bc:24:11:00:00:01,bridge=vmbr0,tag=20,mtu=1400"},
		{"VM", "disks: []\nnetworks: []\nextra: {watchdog: 'action=reset,model=i6300esb'}", liveVM + "watchdog: i6300esb,action=reset", ""},
		{"LXC", "networks: [{bridge: vmbr0, tag: 5}]", liveCT + "net0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:02,mtu=9000", "net0=name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:02,mtu=9000,tag=5"},
		{"LXC", "networks: [{bridge: vmbr0, slot: net3}]", liveCT, "net3=bridge=vmbr0,name=net3"},
		{"LXC", "networks: []\noptions: {keyctl: false, mount: [cifs, nfs]}", liveCT + "features: keyctl=1,mount=nfs;cifs,nesting=1", "features=keyctl=0,mount=nfs;cifs,nesting=1"},
		{"LXC", "networks: []\nmount-points: [{storage: s1, size: 1GiB, mount-point: /srv/x}]", liveCT + "mp0: s1:vm-102-disk-1,mp=srv/x,size=1G", ""},
	} {
		_, d := editOf(t, c.kind, c.spec, c.live, "")
		var got []string
		for _, e := range d.Edits {
			if e.Key != "tags" {
				got = append(got, e.Key+"="+e.Value.String())
			}
		}
		if s := strings.Join(got, " "); s != c.want || len(d.Anomalies) > 0 {
			t.Errorf("%s\nover %s: %q, want %q; %s", c.spec, c.live, s, c.want, show(d))
		}
	}
}

// Sizes, pools and what PVE decided at create never lead to a write.
func TestAnomaliesInsteadOfWrites(t *testing.T) {
	for _, c := range []struct{ kind, spec, live, path, text string }{
		{"VM", "disks: [{storage: s1, size: 2GiB}]\nnetworks: []", liveVM + "scsi0: s1:vm-101-disk-0,size=1G", "disks[0].size", "wants 2GiB"},
		{"VM", "disks: [{storage: s1, size: 1GiB, grow: true}]\nnetworks: []", liveVM + "scsi0: s1:vm-101-disk-0,size=2G", "disks[0].size", "wants 1GiB"},
		{"VM", "disks: [{storage: s2, size: 1GiB}]\nnetworks: []", liveVM + "scsi0: s1:vm-101-disk-0,size=1G", "disks[0].storage", "wants s2"},
		{"VM", "disks: [{storage: s2, image: i}]\nnetworks: []", liveVM + "scsi0: s1:vm-101-disk-0,size=1G", "disks[0].storage", "wants s2"},
		{"VM", "disks: []\nnetworks: []\nhardware: {efi-disk: {storage: s1, template: 4m}}", liveVM + "efidisk0: s1:vm-101-disk-1,size=128K", "hardware.efi-disk.template", "wants 4m"},
		{"VM", "disks: []\nnetworks: []\nhardware: {tpm: {storage: s1, version: v2.0}}", liveVM + "tpmstate0: s1:vm-101-disk-1,version=v1.2,size=4M", "hardware.tpm.version", "wants v2.0"},
		{"VM", "disks: []\nnetworks: []\nhardware: {cloud-init: {storage: s2}}", liveVM + "ide2: s1:vm-101-cloudinit,media=cdrom", "hardware.cloud-init.storage", "wants s2"},
		{"VM", "disks: []\nnetworks: []\nextra: {sata0: 's2:1'}", liveVM + "sata0: s1:vm-101-disk-1,size=1G", "extra.sata0", "wants s2"},
		{"LXC", "networks: []\noptions: {unprivileged: true}", liveCT, "options.unprivileged", "wants true"},
		{"LXC", "networks: []", strings.Replace(liveCT, "size=8G", "size=4G", 1), "root.size", "wants 8GiB"},
		{"LXC", "networks: []", strings.Replace(liveCT, "local-lvm", "s9", 1), "root.storage", "wants local-lvm"},
	} {
		_, d := editOf(t, c.kind, c.spec, c.live, "")
		if len(d.Edits)+len(d.Grows) > 0 || len(d.Anomalies) != 1 || d.Anomalies[0].Path != c.path ||
			!strings.Contains(d.Anomalies[0].Text, c.text) || d.Anomalies[0].Todo == "" {
			t.Errorf("%s\nover %s: %s, %d grows", c.spec, c.live, show(d), len(d.Grows))
		}
	}
	_, d := editOf(t, "VM", "disks: [{storage: s1, size: 2GiB, grow: true}]\nnetworks: []", liveVM+"scsi0: s1:vm-101-disk-0,size=1G", "")
	if len(d.Grows) != 1 || len(d.Anomalies) > 0 {
		t.Errorf("growth: %s, %v", show(d), d.Grows)
	}
}
