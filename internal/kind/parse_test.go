package kind_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/yamldoc"
)

// parse reads a manifest of one document.
func parse(text string) (*kind.Resource, yamldoc.Problems) {
	docs, problems := yamldoc.Parse("m.yaml", []byte(text))
	if len(problems) > 0 {
		return nil, problems
	}
	if len(docs) != 1 {
		return nil, yamldoc.Problems{{Text: fmt.Sprintf("%d documents", len(docs))}}
	}
	return kind.Parse("m.yaml", docs[0])
}

func mustParse(t *testing.T, text string) *kind.Resource {
	t.Helper()
	r, problems := parse(text)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

// doc is a manifest with a spec in flow style or indented lines.
func doc(k, name, spec string) string {
	return fmt.Sprintf("apiVersion: proxops/v1alpha1\nkind: %s\nmetadata:\n  name: %s\nspec:\n%s", k, name, indent(spec))
}

func indent(s string) string {
	var out strings.Builder
	for l := range strings.Lines(s) {
		out.WriteString("  " + l)
	}
	return out.String() + "\n"
}

// target is a resource that a reference may point at, on node pve01.
func target(t *testing.T, ref kind.Ref) *kind.Resource {
	t.Helper()
	k, _ := kind.Lookup(ref.Kind)
	if k.IsGuest() {
		return mustParse(t, doc(ref.Kind, ref.Name, "node: pve01\nvmid: 9000\nmemory: 1GiB\ncpu: {type: host, cores: 1}\ndisks: []\nnetworks: []"))
	}
	file := map[string]string{"iso": "x.iso", "vztmpl": "x.tar.zst", "import": "x.qcow2"}[k.Content]
	return mustParse(t, doc(ref.Kind, ref.Name, "nodes: [pve01]\nstorage: local\nfilename: "+file+"\nurl: https://example.com/"+file))
}

const vmHead = "node: pve01\nvmid: 101\nmemory: 2GiB\ncpu: {type: host, cores: 2}\n"
const ctHead = "node: pve01\nvmid: 102\nmemory: 512MiB\ntemplate: debian-13\nroot: {storage: local-lvm, size: 8GiB}\n"
const isoHead = "nodes: [pve01]\nstorage: local\n"

// Each manifest has the named faults, each with its place, and no others.
func TestParseRefuses(t *testing.T) {
	sum := strings.Repeat("0", 64)
	for _, c := range []struct{ name, text, want string }{
		{"empty mapping", "{}", "m.yaml:1:1: apiVersion: required\nm.yaml:1:1: kind: required\nm.yaml:1:1: metadata: required, with a name\nm.yaml:1:1: spec: required"},
		{"version", strings.Replace(doc("ISO", "a", isoHead+"filename: a.iso\nurl: https://h/a"), "v1alpha1", "v2", 1), `m.yaml:1:13: apiVersion: "proxops/v2" is not proxops/v1alpha1, the only version there is`},
		{"kind", doc("Vm", "a", "{}"), `m.yaml:2:7: kind: "Vm" is not one of ISO, CTTemplate, DiskImage, TemplateVM, TemplateCT, VM, LXC`},
		{"name", doc("ISO", "a--b", isoHead+"filename: a.iso\nurl: https://h/a"), `m.yaml:4:9: metadata.name: "a--b" is not a name: lower-case letters and digits, parts joined by single hyphens`},
		{"spec apart", "spec:\n  node: pve01\n", "m.yaml:2:3: spec: a spec without kind and metadata: they stand in one document, without --- between metadata and spec"},
		{"no spec", "apiVersion: proxops/v1alpha1\nkind: VM\nmetadata: {name: a}\n", "m.yaml:1:1: spec: required; it stands in the same document, without --- after metadata"},
		{"annotations", "apiVersion: proxops/v1alpha1\nkind: ISO\nmetadata:\n  name: a\n  owner: me\n  labels: {n: 1}\n  annotations:\n    proxops/color: red\n    proxops/restart: later\n    proxops/claim: \"yes\"\n    proxops/depends-on: \"ISO:b,Iso:c,ISO:b\"\nspec:\n" + indent(isoHead+"filename: a.iso\nurl: https://h/a"),
			"m.yaml:5:3: metadata.owner: unknown field; known here are name, labels, annotations\n" +
				`m.yaml:6:15: metadata.labels.n: 1 is not a string; write it in quotes: "1"` + "\n" +
				"m.yaml:8:20: metadata.annotations.proxops/color: unknown annotation; known are proxops/depends-on, proxops/claim, proxops/force-stop, proxops/restart and proxops/placement\n" +
				`m.yaml:8:5: metadata.annotations: only proxops/depends-on has a meaning for a ISO` + "\n"},
		{"vmid range", doc("VM", "a", strings.Replace(vmHead, "101", "99", 1)+"disks: []\nnetworks: []"), "m.yaml:7:9: vmid: 99 is not in 100-999999999"},
		{"missing", doc("VM", "a", "{}"), "cpu: this block is required|disks: required; [] means none|memory|networks|node|vmid"},
		{"unknown field", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nmemori: 1GiB"), "memori: unknown field; did you mean memory?"},
		{"balloon above memory", doc("VM", "a", vmHead+"balloon: 64GiB\ndisks: []\nnetworks: []"), "balloon: 64GiB is more than memory, "},
		{"disks with clone", doc("VM", "a", vmHead+"clone: t\ndisks: [{storage: s1, size: 1GiB}]\nnetworks: []"), "disks: a clone brings its template's disks; leave disks out, or clone"},
		{"size with image", doc("VM", "a", vmHead+"disks: [{storage: s1, size: 1GiB, image: i}]\nnetworks: []"), "disks[0].size: an image decides the size; leave size out, or image"},
		{"neither", doc("VM", "a", vmHead+"disks: [{storage: s1}]\nnetworks: []"), "disks[0].size: required unless image is given"},
		{"bus limits", doc("VM", "a", vmHead+"disks:\n- {storage: s1, size: 1GiB, interface: virtio0, ssd: true}\n- {storage: s1, size: 1GiB, interface: sata0, iothread: true, read-only: true}\n- {storage: s1, size: 1GiB, interface: sata6}\nnetworks: []"),
			"disks[0].ssd: PVE has no ssd on virtio; use scsi, sata or ide, or leave ssd out|disks[1].iothread: PVE has iothread on scsi and virtio only, not on sata|disks[1].read-only: PVE has read-only disks on scsi and virtio only, not on sata|" +
				`disks[2].interface: "sata6" is not a slot that PVE has: scsi0-scsi30, virtio0-virtio15, sata0-sata5 or ide0-ide3`},
		{"slot twice", doc("VM", "a", vmHead+"disks:\n- {storage: s1, size: 1GiB}\n- {storage: s1, size: 1GiB, interface: scsi0}\n- {storage: s1, size: 1GiB, interface: ide2}\nnetworks:\n- {bridge: vmbr0}\n- {bridge: vmbr0, slot: net0}\nhardware: {cloud-init: {storage: s1}, cdrom: {iso: none}}"),
			"disks[1]: scsi0 is taken by disks[0]; every drive has its own slot|hardware.cloud-init: ide2 is taken by disks[2]; every drive has its own slot|networks[1]: net0 is taken by networks[0]; give one of them another slot"},
		{"template started", doc("TemplateVM", "a", vmHead+"state: started\ndisks: []\nnetworks: []"), "state: a template cannot be started; write stopped or leave state out"},
		{"template ct started", doc("TemplateCT", "a", ctHead+"state: started\nnetworks: []"), "state: a template cannot be started; write stopped or leave state out"},
		{"efitype", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware: {bios: ovmf, efi-disk: {storage: s1, template: 8m}}"), `hardware.efi-disk.template: "8m" is not a type that PVE has: its efitype is 4m or 2m`},
		{"efi without ovmf", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware: {bios: seabios, efi-disk: {storage: s1}}"), "hardware.efi-disk: an EFI disk needs bios: ovmf, and bios is seabios"},
		{"tpm storage", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware: {tpm: {}}"), "hardware.tpm.storage: required where there is no efi-disk to take it from"},
		{"media", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware: {cdrom: {iso: a, media: disk}}"), "hardware.cdrom.media: PVE takes ISO images as media cdrom only; leave media out"},
		{"null where none can be", doc("VM", "a", vmHead+"pve-name: null\nstate: null\ndisks: [{storage: s1, size: 1GiB, interface: null}]\nnetworks: [{bridge: vmbr0, model: null, mac: null}]\nhardware: {cdrom: null, efi-disk: {storage: null}}"),
			"disks[0].interface: null has no meaning|hardware.cdrom: null stands where a block|hardware.efi-disk.storage: null is not allowed|networks[0].mac: null is not allowed here|networks[0].model: null is not allowed here|pve-name: null|state: null"},
		{"pci", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware:\n  pci-devices:\n  - {slot: 16, device: '01:00'}\n  - {slot: 1, device: '01:00', mapping: gpu}\n  - {slot: hostpci2, device: '1:0'}\n  - {}"),
			"hardware.pci-devices[0].slot: \"16\" is not a slot: hostpci0-hostpci15 or the number alone|hardware.pci-devices[1]: device and mapping exclude each other; keep one|hardware.pci-devices[2].device: \"1:0\" is not a PCI address|hardware.pci-devices[3].device: device or mapping is required"},
		{"nic", doc("VM", "a", vmHead+"disks: []\nnetworks:\n- {model: virtoi, bridge: vmbr0, mac: '01:00:00:00:00:01', vlan: 5000, mtu: 100}"),
			"networks[0].mac: 01:00:00:00:00:01 is a multicast address; the second digit must be even|networks[0].model: \"virtoi\" is not one of|networks[0].mtu: 100 is not 1 or in 576-65520|networks[0].vlan: 5000 is not in 1-4094"},
		{"cloud-init data", doc("VM", "a", vmHead+"disks: []\nnetworks: []\ncloud-init-data:\n  ssh-keys: ['*', ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL a, private]\n  ssh-key-refs: [cloud-init.keys.a]\n  ci-password-ref: secrets.pw\n  nameservers: [dns.example.com]\n  ipconfigs:\n  - {nic: 0, ip: 192.0.2.1, gateway: 192.0.2.254}\n  - {nic: 1, gateway: 192.0.2.254}\n  - {nic: 1, ip: dhcp, gateway: 192.0.2.254}\n  - {nic: 3, ip: 192.0.2.1/4}"),
			`cloud-init-data.ci-password-ref: "secrets.pw" is not a reference cloud-init.passwords.<name>|cloud-init-data.ipconfigs[0].ip: "192.0.2.1" is not an IPv4 address with a prefix length|cloud-init-data.ipconfigs[1].ip: an address is required beside a gateway|cloud-init-data.ipconfigs[2]: ipconfig1 is taken by|cloud-init-data.ipconfigs[3].ip: a prefix length below 8|cloud-init-data.nameservers: "dns.example.com" is not an IP address|cloud-init-data.ssh-key-refs: "cloud-init.keys.a" is not a reference cloud-init.ssh-keys.<name>, such as cloud-init.ssh-keys.a|cloud-init-data.ssh-keys[0]: "*" leaves the live keys alone and cannot stand beside keys|cloud-init-data.ssh-keys[2]: not a public key line`},
		{"keys and refs", doc("VM", "a", vmHead+"disks: []\nnetworks: []\ncloud-init-data: {ssh-keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL a], ssh-key-refs: [cloud-init.ssh-keys.a]}"), "cloud-init-data.ssh-key-refs: ssh-keys and ssh-key-refs exclude each other; keep one"},
		{"tags", doc("VM", "a", vmHead+"tags: [Web, web]\ndisks: []\nnetworks: []"), `tags: "Web" and "web" differ only in case`},
		{"tag characters", doc("VM", "a", vmHead+"tags: ['a b']\ndisks: []\nnetworks: []"), `tags: "a b" is several tags: write each as an item of its own, [a, b]`},
		{"tags as text", doc("VM", "a", vmHead+"tags: 'a;b'\ndisks: []\nnetworks: []"), `tags: "a;b" is not a list; write [a, b]`},
		{"bad tag", doc("VM", "a", vmHead+"tags: ['a b!']\ndisks: []\nnetworks: []"), `tags: "a b!" is not a tag: letters, digits and _ first`},
		{"name of digits", doc("ISO", "123", isoHead+"filename: a.iso\nurl: https://h/a"), `metadata.name: 123 is not a string; write it in quotes: "123"`},
		{"empty name", doc("ISO", "''", isoHead+"filename: a.iso\nurl: https://h/a"), `metadata.name: may not be empty`},
		{"PVE's names", doc("VM", "a", vmHead+"description: a\ndisks: [{storage: s1, size: 1GiB, ro: true}]\nnetworks: [{bridge: vmbr0, tag: 5}]"),
			"description: unknown field; did you mean pve-description?|disks[0].ro: unknown field; did you mean read-only?|networks[0].tag: unknown field; did you mean vlan?"},
		{"empty list", doc("VM", "a", vmHead+"tags: []\noptions: {boot-order: [], hotplug: []}\ndisks: []\nnetworks: []"), "options.boot-order: the empty list is not allowed|options.hotplug: the empty list is not allowed|tags: the empty list is not allowed"},
		{"flags", doc("VM", "a", strings.Replace(vmHead, "cores: 2", "cores: 2, flags: [nested-virt, -aes]", 1)+"options: {nested-virt: true}\ndisks: []\nnetworks: []"), "cpu.flags: nested-virt stands here and in options.nested-virt; keep one"},
		{"unknown flag", doc("VM", "a", strings.Replace(vmHead, "cores: 2", "cores: 2, flags: [vmx]", 1)+"disks: []\nnetworks: []"), `cpu.flags: "vmx" is not one of aes`},
		{"cpu type", doc("VM", "a", strings.Replace(vmHead, "type: host", "type: hosst", 1)+"disks: []\nnetworks: []"), `cpu.type: "hosst" is not a CPU type of PVE; did you mean host?`},
		{"boolean", doc("VM", "a", vmHead+"options: {onboot: yes}\ndisks: []\nnetworks: []"), "options.onboot: yes is not a boolean here: write true"},
		{"boolean in quotes", doc("VM", "a", vmHead+"options: {onboot: 'true'}\ndisks: []\nnetworks: []"), "options.onboot: in quotes it is a text: write true without quotes"},
		{"boot order", doc("VM", "a", vmHead+"options: {boot-order: [scsi1, net0, floppy]}\ndisks: [{storage: s1, size: 1GiB}]\nnetworks: []"), `options.boot-order: "floppy" is not a device to boot from`},
		{"boot order slots", doc("VM", "a", vmHead+"options: {boot-order: 'scsi1,net0'}\ndisks: [{storage: s1, size: 1GiB}]\nnetworks: []"), "options.boot-order[0]: scsi1 is no drive that the manifest declares|options.boot-order[1]: net0 is no card that the manifest declares"},
		{"extra", doc("VM", "a", vmHead+"disks: [{storage: s1, size: 1GiB}]\nnetworks: []\nextra: {scsi0: 's1:1', net0: x, net7: x, memory: 1, onboot: 1, tags: a, delete: a, skiplock: 1, digest: x, unused0: 'a:b', hostpci3: x, efidisk0: 's1:1', scsi4: null, scsihw: lsi, vmid: 1, Bad: 1}"),
			"extra.Bad: \"Bad\" is not a key|extra.delete: delete is a control parameter|extra.digest: digest is a control|extra.efidisk0: efidisk0 is owned by a field|extra.hostpci3: hostpci3 is owned|extra.memory: memory is owned by a field of its own|extra.net0: net0 is owned|extra.net7: net7 is owned|extra.onboot: onboot is owned|extra.scsi0: scsi0 belongs to disks[0]|extra.scsi4: null would detach|extra.scsihw: scsihw is owned|extra.skiplock: skiplock is a control|extra.tags: tags is owned|extra.unused0: unused0 is a detached volume|extra.vmid: vmid is a control"},
		{"extra ct", doc("LXC", "a", ctHead+"networks: []\nmount-points: [{storage: s1, size: 1GiB, mount-point: /a}]\nextra: {mp0: 's1:1,mp=/b', rootfs: x, features: nesting=1, password: x, hostname: a, unprivileged: 1}"),
			"extra.features: features is owned|extra.hostname: hostname is owned|extra.mp0: mp0 belongs to mount-points[0]|extra.password: password is a control|extra.rootfs: rootfs is owned|extra.unprivileged: unprivileged is a control"},
		{"bind roots", doc("LXC", "a", ctHead+"networks: []\nbind-mounts:\n- {host-path: /etc/, mount-point: /a}\n- {host-path: /lib64, mount-point: /b}\n- {host-path: /srv/data, mount-point: /a}\n- {host-path: /srv/../etc, mount-point: /d}\n- {host-path: srv, mount-point: /e}"),
			"bind-mounts[0].host-path: /etc/ is a system directory of the node|bind-mounts[1].host-path: /lib64 is a system directory|bind-mounts[2].mount-point: /a is taken by bind-mounts[0]|bind-mounts[3].host-path: \"/srv/../etc\" holds ..|bind-mounts[4].host-path: \"srv\" is not an absolute path"},
		{"mount slots", doc("LXC", "a", ctHead+"networks: []\nmount-points: [{storage: s1, size: 1GiB, mount-point: /a}, {storage: s1, size: 1GiB, mount-point: /b}]\nbind-mounts: [{host-path: /srv/a, mount-point: /c, slot: mp1}]"),
			"bind-mounts[0]: mp1 is taken by mount-points[1]; give one of them another slot"},
		{"ct network", doc("LXC", "a", ctHead+"networks:\n- {bridge: vmbr0, iface: net1, gw: 192.0.2.1}\n- {bridge: vmbr0, ip: static}"),
			"networks[0].ip: an address is required beside a gateway|networks[1].iface: net1 is the interface of networks[0]|networks[1].ip: \"static\" is not an IPv4 address with a prefix length"},
		{"ct arch", doc("LXC", "a", ctHead+"arch: x86\nnetworks: []"), `arch: "x86" is not one of amd64, arm64`},
		{"iso name", doc("ISO", "a", isoHead+"filename: a.qcow2\nurl: https://h/a"), `filename: "a.qcow2" has a wrong extension: PVE takes .iso and .img there`},
		{"iso path", doc("ISO", "a", isoHead+"filename: ../a.iso\nurl: ftp://h/a"), "filename: \"../a.iso\" is a path; a file name alone belongs here|url: not an http or https URL"},
		{"img import", doc("DiskImage", "a", isoHead+"filename: noble.img\nurl: https://h/noble.img"), "filename: PVE refuses .img as import content; cloud images named so are nearly always qcow2: write noble.qcow2 (filename may differ from the url)"},
		{"compressed", doc("DiskImage", "a", isoHead+"filename: f.qcow2\nurl: https://h/f.qcow2.xz"), "url: f.qcow2.xz is compressed, and PVE does not unpack disk images: it decompresses iso content only, and iso content cannot fill a disk"},
		{"nodes", doc("ISO", "a", "node: a\nnodes: [b]\nstorage: local\nfilename: a.iso\nurl: https://h/a"), "node: node and nodes exclude each other; keep nodes"},
		{"checksum", doc("ISO", "a", isoHead+"filename: a.iso\nurl: https://h/a\nchecksum: {algorithm: sha1, value: '"+sum+"'}"), "checksum.value: a sha1 checksum has 40 hex digits, this has 64"},
		{"algorithm", doc("ISO", "a", isoHead+"filename: a.iso\nurl: https://h/a\nchecksum: {algorithm: sha224, value: '"+sum+"'}"), `checksum.algorithm: "sha224" is not one of sha256, sha512, sha1, md5`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, problems := parse(c.text)
			got := problems.Error()
			if strings.Contains(c.want, "m.yaml") {
				for _, want := range strings.Split(strings.TrimSpace(c.want), "\n") {
					if !strings.Contains(got, want) {
						t.Errorf("no line %q in\n%s", want, got)
					}
				}
				return
			}
			wants := strings.Split(c.want, "|")
			for _, want := range wants {
				if !strings.Contains(got, ": "+want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			if len(problems.Sorted()) != len(wants) {
				t.Errorf("%d problems, want %d:\n%s", len(problems), len(wants), got)
			}
			for _, p := range problems {
				if p.Line == 0 {
					t.Errorf("no place: %s", p)
				}
			}
		})
	}
}

func TestParseAccepts(t *testing.T) {
	for _, c := range []struct{ name, text, warning string }{
		{"clone", doc("VM", "a", vmHead+"clone: t\nnetworks: [{bridge: vmbr0}]\nhardware: {cloud-init: {enabled: true, storage: s1}}\ncloud-init-data: {ci-user: '', ssh-keys: [], search-domains: [], ipconfigs: [{nic: 0, ip: 192.0.2.5/24, gateway: 192.0.2.1}]}"), ""},
		{"strings for lists", doc("VM", "a", vmHead+"disks: [{storage: s1, size: 1GiB, discard: on}]\nnetworks: [{bridge: vmbr0, slot: 3}]\noptions: {hotplug: 'network,disk', boot-order: 'scsi0,net3'}"), ""},
		{"controllers", doc("VM", "a", vmHead+"disks: [{storage: s1, size: 1GiB, controller: lsi}, {storage: s1, size: 1GiB, controller: megasas}]\nnetworks: []"), "disks[1].controller: the VM has one controller; lsi of the first disk that names one wins over megasas"},
		{"i440fx and case", doc("VM", "a", strings.Replace(vmHead, "host", "X86-64-V2-aes", 1)+"disks: []\nnetworks: []\nhardware: {machine: i440fx}"), ""},
		{"tpm of a BIOS", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware: {tpm: {storage: s1}}"), "hardware.tpm: a TPM is of use with bios: ovmf"},
		{"efi-disk of a BIOS", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware: {efi-disk: {storage: s1}}"), "hardware.efi-disk: an EFI disk is of use with bios: ovmf, and bios is left out"},
		{"efi-disk", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware: {bios: ovmf, efi-disk: {storage: s1}}"), ""},
		{"pcie of a PC", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware: {machine: i440fx, pci-devices: [{mapping: gpu}, {mapping: nic, pcie: true}]}"), "hardware.pci-devices[1].pcie: a PCI Express device needs machine: q35"},
		{"pcie", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware: {machine: q35, pci-devices: [{mapping: nic, pcie: true}]}"), ""},
		{"mtu of an e1000", doc("VM", "a", vmHead+"disks: []\nnetworks: [{bridge: vmbr0, mtu: 1400}, {bridge: vmbr0, model: e1000, mtu: 1400}]"), "networks[1].mtu: PVE gives an mtu to virtio cards only; this one is e1000"},
		{"mtu", doc("VM", "a", vmHead+"disks: []\nnetworks: [{bridge: vmbr0, mtu: 1400}]"), ""},
		{"cloud-init without a drive", doc("VM", "a", vmHead+"disks: []\nnetworks: []\ncloud-init-data: {ci-user: admin}"), "cloud-init-data: no cloud-init drive is declared"},
		{"cloud-init that is off", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nhardware: {cloud-init: {enabled: false}}\ncloud-init-data: {ipconfigs: [{ip: dhcp}]}"), "cloud-init-data: no cloud-init drive is declared"},
		{"cloud-init in extra", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nextra: {sata2: 's1:cloudinit'}\ncloud-init-data: {ci-user: admin}"), ""},
		{"cloud-init of a clone", doc("VM", "a", vmHead+"clone: t\nnetworks: []\ncloud-init-data: {ci-user: admin}"), ""},
		{"null clears", doc("VM", "a", vmHead+"pve-description: null\ntags: null\npool: null\ndisks: []\nnetworks: []\noptions: {hotplug: null, boot-order: null}\ncloud-init-data: {nameservers: null, ssh-keys: null}"), ""},
		{"extra drive", doc("VM", "a", vmHead+"disks: []\nnetworks: []\nextra: {sata3: 's1:8,ssd=1', watchdog: 'model=i6300esb', localtime: true, args: null}"), ""},
		{"not known", doc("LXC", "a", strings.Replace(ctHead, "debian-13", "null", 1)+"networks: []"), ""},
		{"below a root", doc("LXC", "a", ctHead+"networks: []\nbind-mounts: [{host-path: /srv/data, mount-point: /data}]"), ""},
		{"privileged", doc("LXC", "a", ctHead+"networks: []\noptions: {unprivileged: false}"), "options.unprivileged: root of a privileged container"},
		{"url null", doc("CTTemplate", "a", "node: pve01\nstorage: local\nfilename: a.tar.zst\nurl: null"), ""},
		{"plain http", doc("ISO", "a", isoHead+"filename: a.iso\nurl: http://h/a.iso"), "url: http without checksum"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := mustParse(t, c.text)
			if got := r.Warnings.Error(); c.warning == "" && got != "" || !strings.Contains(got, c.warning) {
				t.Errorf("warnings %q, want %q", got, c.warning)
			}
		})
	}
}

func TestAnnotations(t *testing.T) {
	r := mustParse(t, strings.Replace(doc("VM", "a", vmHead+"disks: []\nnetworks: []"), "  name: a\n",
		"  name: a\n  labels: {role: web}\n  annotations: {note: free, proxops/depends-on: 'ISO:x, VM:b', proxops/claim: 'true', proxops/restart: window, proxops/placement: follow, proxops/force-stop: 'false'}\n", 1))
	a := r.Annotations
	if len(a.DependsOn) != 2 || a.DependsOn[1] != (kind.Ref{Kind: "VM", Name: "b"}) || !a.Claim || a.ForceStop || a.Restart != "window" || a.Placement != "follow" || a.Raw["note"] != "free" || r.Labels["role"] != "web" {
		t.Errorf("got %+v %v", a, r.Labels)
	}
	g := r.Spec.(kind.GuestSpec)
	if g.WantName() != "a" || !g.Started() {
		t.Errorf("name %q started %t", g.WantName(), g.Started())
	}
}

// The reference of every kind, one line a field: deleting a row, or changing
// what it takes or writes, shows here.
func TestFieldsGolden(t *testing.T) {
	var out strings.Builder
	for _, k := range kind.All {
		spec := k.New()
		fmt.Fprintf(&out, "## %s\n\n%s\n", k.Name, field.Table(field.Specimen(func() *field.Block { return spec.Shape(nil) }), k.Guest == "lxc"))
	}
	file := filepath.Join("testdata", "fields.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the rows differ from %s; look at the difference and run go test -update", file)
	}
}

func FuzzParse(f *testing.F) {
	for _, k := range kind.All {
		head := map[string]string{"qemu": vmHead + "disks: []\nnetworks: []", "lxc": ctHead + "networks: []", "": isoHead + "filename: a.iso\nurl: null"}[k.Guest]
		f.Add(doc(k.Name, "a", head))
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, problems := parse(text)
		if (r == nil) == (len(problems) == 0) {
			t.Fatalf("resource %v with problems %v", r, problems)
		}
		if r != nil && r.Kind.IsGuest() {
			field.CreateParams(r.Spec.Shape(nil), r.Kind.Guest == "lxc", field.Env{})
		}
	})
}
