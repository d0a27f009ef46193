package kind_test

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
)

// promise is one line of the manifest schema: the field, a value of it, and
// what a create with it sends to PVE, as KEY=VALUE or KEY~TOKEN. "" stands for
// a field that only steers ProxOps.
type promise struct{ path, value, sent string }

// The schema that was promised, line by line. It is written out and not read
// from the rows, so that a row that goes missing is missed.
var (
	promisedVM = []promise{
		{"node", "pve01", ""},
		{"vmid", "101", "vmid=101"},
		{"state", "stopped", ""},
		{"clone", "golden", ""},
		{"pve-name", "front", "name=front"},
		{"pve-description", "hello", "description=hello"},
		{"tags", "[web]", "tags~web"},
		{"pool", "prod", "pool=prod"},
		{"memory", "8GiB", "memory=8192"},
		{"balloon", "1GiB", "balloon=1024"},
		{"cpu.type", "host", "cpu~host"},
		{"cpu.cores", "4", "cores=4"},
		{"cpu.flags", "[+aes]", "cpu~flags=+aes"},
		{"cpu.limit", "1.5", "cpulimit=1.5"},
		{"cpu.units", "200", "cpuunits=200"},

		{"disks[0].storage", "tank", "scsi0~tank:32"},
		{"disks[0].size", "50GiB", "scsi0~local-lvm:50"},
		{"disks[0].image", "debian-cloud", "scsi0~import-from=local:import/x.qcow2"},
		{"disks[0].interface", "sata2", "sata2~local-lvm:32"},
		{"disks[0].grow", "true", ""},
		{"disks[0].controller", "virtio-scsi-single", "scsihw=virtio-scsi-single"},
		{"disks[0].iothread", "true", "scsi0~iothread=1"},
		{"disks[0].discard", `"on"`, "scsi0~discard=on"},
		{"disks[0].ssd", "false", "scsi0~ssd=0"},
		{"disks[0].aio", "threads", "scsi0~aio=threads"},
		{"disks[0].cache", "writeback", "scsi0~cache=writeback"},
		{"disks[0].backup", "false", "scsi0~backup=0"},
		{"disks[0].replicate", "false", "scsi0~replicate=0"},
		{"disks[0].read-only", "true", "scsi0~ro=1"},
		{"disks[0].serial", "DISK7", "scsi0~serial=DISK7"},

		{"networks[0].model", "e1000", "net0~e1000"},
		{"networks[0].bridge", "vmbr7", "net0~bridge=vmbr7"},
		{"networks[0].mac", "BC:24:11:00:00:77", "net0~virtio=BC:24:11:00:00:77"},
		{"networks[0].vlan", "77", "net0~tag=77"},
		{"networks[0].rate-limit", "12.5", "net0~rate=12.5"},
		{"networks[0].firewall", "true", "net0~firewall=1"},
		{"networks[0].mtu", "1400", "net0~mtu=1400"},
		{"networks[0].queues", "4", "net0~queues=4"},
		{"networks[0].link-down", "true", "net0~link_down=1"},
		{"networks[0].slot", "net5", "net5~bridge=vmbr0"},

		{"hardware.machine", "i440fx", "machine=pc"},
		{"hardware.bios", "ovmf", "bios=ovmf"},
		{"hardware.display", "qxl", "vga~qxl"},
		{"hardware.cdrom.iso", "debian", "ide3~local:iso/x.iso"},
		{"hardware.cdrom.iso", "none", "ide3~none"},
		{"hardware.cdrom.media", "cdrom", "ide3~media=cdrom"},
		{"hardware.efi-disk.storage", "tank", "efidisk0~tank:1"},
		{"hardware.efi-disk.size", "4MiB", ""},
		{"hardware.efi-disk.template", "4m", "efidisk0~efitype=4m"},
		{"hardware.efi-disk.secure-boot", "enabled", "efidisk0~pre-enrolled-keys=1"},
		{"hardware.cloud-init.enabled", "true", "ide2~local-lvm:cloudinit"},
		{"hardware.cloud-init.storage", "tank", "ide2~tank:cloudinit"},
		{"hardware.cloud-init.size", "4MiB", ""},
		{"hardware.cloud-init.slot", "sata5", "sata5~local-lvm:cloudinit"},
		{"hardware.tpm.version", "v2.0", "tpmstate0~version=v2.0"},
		{"hardware.tpm.storage", "tank", "tpmstate0~tank:1"},
		{"hardware.serial0", "socket", "serial0=socket"},
		{"hardware.sockets", "2", "sockets=2"},
		{"hardware.numa", "true", "numa=1"},
		{"hardware.pci-devices[0].slot", "hostpci7", "hostpci7~mapping=gpu0"},
		{"hardware.pci-devices[0].slot", "7", "hostpci7~mapping=gpu0"},
		{"hardware.pci-devices[0].device", `"0000:01:00.0"`, "hostpci0~0000:01:00.0"},
		{"hardware.pci-devices[0].mapping", "gpu7", "hostpci0~mapping=gpu7"},
		{"hardware.pci-devices[0].pcie", "true", "hostpci0~pcie=1"},

		{"options.onboot", "true", "onboot=1"},
		{"options.startup", "order=10", "startup~order=10"},
		{"options.protection", "true", "protection=1"},
		{"options.agent", "true", "agent~1"},
		{"options.acpi", "false", "acpi=0"},
		{"options.tablet", "false", "tablet=0"},
		{"options.hotplug", "[disk, network]", "hotplug=disk,network"},
		{"options.hotplug", "disk,network", "hotplug=disk,network"},
		{"options.boot-order", "[scsi0, net0]", "boot=order=scsi0;net0"},
		{"options.nested-virt", "true", "cpu~flags=+nested-virt"},
		{"options.hidden", "true", "cpu~hidden=1"},
		{"options.ostype", "win11", "ostype=win11"},

		{"cloud-init-data.ci-user", "ops", "ciuser=ops"},
		{"cloud-init-data.ssh-keys", "[ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL a]", "sshkeys=ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL%20a"},
		{"cloud-init-data.ssh-key-refs", "[cloud-init.ssh-keys.ops]", "sshkeys=ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL%20b"},
		{"cloud-init-data.ci-password-ref", "cloud-init.passwords.ops", "cipassword=$6$*"},
		{"cloud-init-data.nameservers", "[192.0.2.53, 192.0.2.54]", "nameserver=192.0.2.53 192.0.2.54"},
		{"cloud-init-data.search-domains", "[a.example, b.example]", "searchdomain=a.example b.example"},
		{"cloud-init-data.ipconfigs[0].nic", "3", "ipconfig3~ip=192.0.2.10/24"},
		{"cloud-init-data.ipconfigs[0].ip", "192.0.2.7/24", "ipconfig0~ip=192.0.2.7/24"},
		{"cloud-init-data.ipconfigs[0].ip", "dhcp", "ipconfig0~ip=dhcp"},
		{"cloud-init-data.ipconfigs[0].gateway", "192.0.2.1", "ipconfig0~gw=192.0.2.1"},
		{"cloud-init-data.ipconfigs[0].ip6", `"2001:db8::7/64"`, "ipconfig0~ip6=2001:db8::7/64"},
		{"cloud-init-data.ipconfigs[0].gateway6", `"2001:db8::1"`, "ipconfig0~gw6=2001:db8::1"},
	}
	promisedLXC = []promise{
		{"node", "pve01", ""},
		{"vmid", "101", "vmid=101"},
		{"state", "stopped", ""},
		{"template", "debian", "ostemplate=local:vztmpl/x.tar.zst"},
		{"pve-description", "hello", "description=hello"},
		{"tags", "[web]", "tags~web"},
		{"pool", "prod", "pool=prod"},
		{"memory", "1GiB", "memory=1024"},
		{"swap", "256MiB", "swap=256"},
		{"arch", "arm64", "arch=arm64"},
		{"cpu.cores", "4", "cores=4"},
		{"cpu.units", "200", "cpuunits=200"},
		{"cpu.limit", "1.5", "cpulimit=1.5"},
		{"root.storage", "tank", "rootfs~tank:32"},
		{"root.size", "9GiB", "rootfs~local-lvm:9"},
		{"root.grow", "true", ""},

		{"mount-points[0].storage", "tank", "mp0~tank:32"},
		{"mount-points[0].size", "9GiB", "mp0~local-lvm:9"},
		{"mount-points[0].mount-point", "/data", "mp0~mp=/data"},
		{"mount-points[0].slot", "mp5", "mp5~local-lvm:32"},
		{"mount-points[0].slot", "5", "mp5~local-lvm:32"},
		{"mount-points[0].grow", "true", ""},
		{"mount-points[0].options.read-only", "true", "mp0~ro=1"},
		{"mount-points[0].options.backup", "true", "mp0~backup=1"},
		{"mount-points[0].options.acl", "true", "mp0~acl=1"},
		{"mount-points[0].options.quota", "true", "mp0~quota=1"},
		{"mount-points[0].options.shared", "true", "mp0~shared=1"},
		{"mount-points[0].options.mount-options", "[noatime, nosuid]", "mp0~mountoptions=noatime;nosuid"},
		{"bind-mounts[0].host-path", "/srv/other", "mp1~/srv/other"},
		{"bind-mounts[0].mount-point", "/other", "mp1~mp=/other"},
		{"bind-mounts[0].slot", "mp7", "mp7~mp=/srv/bind"},
		{"bind-mounts[0].read-only", "true", "mp1~ro=1"},

		{"networks[0].bridge", "vmbr7", "net0~bridge=vmbr7"},
		{"networks[0].iface", "eth7", "net0~name=eth7"},
		{"networks[0].type", "veth", "net0~type=veth"},
		{"networks[0].tag", "77", "net0~tag=77"},
		{"networks[0].hwaddr", "BC:24:11:00:00:77", "net0~hwaddr=BC:24:11:00:00:77"},
		{"networks[0].rate-limit", "12.5", "net0~rate=12.5"},
		{"networks[0].firewall", "true", "net0~firewall=1"},
		{"networks[0].ip", "dhcp", "net0~ip=dhcp"},
		{"networks[0].gw", "192.0.2.1", "net0~gw=192.0.2.1"},
		{"networks[0].ip6", "auto", "net0~ip6=auto"},
		{"networks[0].gw6", `"2001:db8::1"`, "net0~gw6=2001:db8::1"},
		{"networks[0].slot", "net5", "net5~bridge=vmbr0"},

		{"dns.hostname", "front", "hostname=front"},
		{"dns.nameservers", "[192.0.2.53, 192.0.2.54]", "nameserver=192.0.2.53 192.0.2.54"},
		{"dns.domain", "a.example", "searchdomain=a.example"},

		{"options.unprivileged", "false", "unprivileged=0"},
		{"options.protection", "true", "protection=1"},
		{"options.nesting", "true", "features~nesting=1"},
		{"options.keyctl", "true", "features~keyctl=1"},
		{"options.fuse", "true", "features~fuse=1"},
		{"options.mount", "[nfs, cifs]", "features~mount=nfs;cifs"},
		{"options.mknod", "true", "features~mknod=1"},
		{"options.onboot", "true", "onboot=1"},
		{"options.startup", "order=10", "startup~order=10"},
		{"options.console", "false", "console=0"},
		{"options.ttys", "3", "tty=3"},
		{"options.cmode", "shell", "cmode=shell"},

		{"init.ssh-keys", "[ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL a]", "ssh-public-keys=ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL a"},
		{"init.ssh-key-refs", "[cloud-init.ssh-keys.ops]", "ssh-public-keys=ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL b"},
		{"init.password-ref", "cloud-init.passwords.ops", "password=a-password"},
	}
	promisedFile = []promise{
		{"nodes", "[pve01, pve02]", ""},
		{"node", "pve02", ""},
		{"storage", "tank", "storage=tank"},
		{"url", "https://example.org/x", "url=https://example.org/x"},
		{"checksum.algorithm", "sha512", "checksum-algorithm=sha512"},
		{"checksum.value", "00ff", "checksum=00ff"},
	}
)

// TestPromisedFields: every field that the schema promises can be written in a
// manifest, and a create sends what it stands for.
func TestPromisedFields(t *testing.T) {
	for _, k := range kind.All {
		promised := map[string][]promise{"qemu": promisedVM, "lxc": promisedLXC, "": promisedFile}[k.Guest]
		if name := "other" + map[string]string{"iso": ".iso", "vztmpl": ".tar.xz", "import": ".raw"}[k.Content]; !k.IsGuest() {
			promised = append([]promise{{"filename", name, "filename=" + name}}, promised...)
		}
		for _, p := range promised {
			if k.Template && (p.path == "clone" || p.path == "state" && p.value != "stopped") {
				continue
			}
			t.Run(k.Name+" "+p.path+" "+p.value, func(t *testing.T) { keeps(t, k, p) })
		}
		named := map[string]bool{}
		for _, p := range promised {
			named[strings.ReplaceAll(p.path, "[0]", "[]")] = true
		}
		for _, r := range field.Rows(base(t, k).Shape(nil)) {
			if path := strings.ReplaceAll(r.Path, "[0]", "[]"); r.Name != "" && !named[path] {
				t.Errorf("%s.%s is not among the promised fields: add it", k.Name, path)
			}
		}
	}
}

func keeps(t *testing.T, k *kind.Kind, p promise) {
	spec := base(t, k)
	setRow(t, spec, p.path, p.value)
	r := rowAt(spec, nil, p.path)
	if r == nil || r.State() != field.Set {
		t.Fatalf("%s is not set by its own value", p.path)
	}
	if p.sent == "" {
		return
	}
	params, _ := field.CreateParams(spec.Shape(nil), k.Guest == "lxc", field.Env{})
	key, want, token := strings.Cut(p.sent, "~")
	if !token {
		key, want, _ = strings.Cut(p.sent, "=")
	}
	v, ok := params.Get(key)
	if !ok {
		t.Fatalf("nothing is sent for %s", key)
	}
	got := v.Reveal()
	prefix, open := strings.CutSuffix(want, "*")
	switch {
	case open && strings.HasPrefix(got, prefix), !token && got == want:
		return
	case token:
		for _, tok := range strings.FieldsFunc(got, func(r rune) bool { return r == ',' || key == "tags" && r == ';' }) {
			if tok == want || strings.HasPrefix(want, "flags=") && strings.HasPrefix(tok, "flags=") && strings.Contains(tok, want[6:]) {
				return
			}
		}
	}
	t.Errorf("sent is %s=%s, want %s", key, got, p.sent)
}
