package cases_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/yamldoc"
)

// pools are values that a lab can live with, by the path of a field without
// indices; a field that is not here draws from its own examples.
var pools = map[string][]string{
	"node": {"pve01"}, "pve-name": {"a", "a-2"}, "pve-description": {"y", `"two\nlines"`, "'- list: 1, é'"}, "tags": {"[q]", "[q, R]", "[proxops]"}, "pool": {"one"},
	"memory": {"512MiB", "1GiB", "2GiB"}, "balloon": {"0", "256MiB", "512MiB"}, "swap": {"0", "256MiB"},
	"cpu.type": {"host", "kvm64", "x86-64-v2-AES", "Max"}, "cpu.cores": {"1", "2"}, "cpu.flags": {"[+aes]", "[-aes, +pcid]", "[pdpe1gb]"},
	"disks.storage": {"local-lvm", "local-dir", "shared"}, "disks.size": {"1GiB", "2GiB", "1500MiB"}, "disks.image": {"seed"},
	"disks.interface": {"scsi0", "scsi1", "scsi5", "virtio0", "virtio1", "sata1", "ide0", "ide1"}, "disks.serial": {"X", "Y-2"},
	"networks.bridge": {"vmbr0", "vmbr1"}, "networks.mac": {"BC:24:11:00:00:01", "02:15:5D:00:09:03"}, "networks.hwaddr": {"bc:24:11:00:00:05"}, "networks.mtu": {"1", "1300"},
	"networks.queues": {"2", "4"}, "networks.slot": {"net0", "net1", "2", "7"}, "networks.iface": {"eth0", "lan", "eth7"}, "networks.rate-limit": {"5", "1.5"},
	"networks.ip": {"dhcp", "manual", "192.0.2.8/24"}, "networks.gw": {"192.0.2.1"}, "networks.ip6": {"auto", `"2001:db8::8/64"`}, "networks.gw6": {`"2001:db8::1"`},
	"hardware.serial0": {"socket"}, "hardware.sockets": {"1", "2"}, "hardware.cdrom.iso": {"none", "seed"}, "hardware.efi-disk.storage": {"local-lvm", "local-dir"},
	"hardware.tpm.storage": {"local-lvm"}, "hardware.cloud-init.storage": {"local-lvm", "local-dir"}, "hardware.cloud-init.slot": {"ide2", "ide3", "scsi7", "sata3"},
	"hardware.pci-devices.mapping": {"gpu1"}, "hardware.pci-devices.device": {`"0000:01:00.0"`}, "hardware.pci-devices.slot": {"hostpci0", "1"},
	"options.hotplug": {"[disk]", "[network, disk, usb]", `"0"`, "[network, disk, cpu, memory]", "[cloudinit, network]"}, "options.boot-order": {"[scsi0]", "[net0, scsi0]", "[ide2]"},
	"cloud-init-data.ssh-keys":      {"['" + keyA + "']", `["*"]`},
	"cloud-init-data.ipconfigs.nic": {"0", "net1", "2"}, "cloud-init-data.ipconfigs.ip": {"dhcp", "192.0.2.9/24"}, "cloud-init-data.ipconfigs.gateway": {"192.0.2.1"},
	"template": {"debian"}, "root.storage": {"local-lvm", "local-dir"}, "root.size": {"1GiB", "2GiB", "3GiB"}, "arch": {"amd64"},
	"mount-points.storage": {"local-lvm", "local-dir"}, "mount-points.size": {"1GiB", "2GiB"}, "mount-points.mount-point": {"/srv", "/opt/x", "/data"}, "mount-points.slot": {"mp0", "mp3", "9"},
	"bind-mounts.host-path": {"/srv/mirror"}, "bind-mounts.mount-point": {"/bind", "/opt/y/"}, "bind-mounts.slot": {"mp5", "mp6"},
	"dns.hostname": {"b", "b2"}, "options.unprivileged": {"true"}, "options.mount": {"[nfs, cifs]", "[ext4]"},
}

// undrawn are fields that a drawn manifest leaves out: they need more around
// them than a lab has. Other tests hold them.
var undrawn = map[string]bool{
	"vmid": true, "clone": true, "init.ssh-key-refs": true, "init.password-ref": true,
	"cloud-init-data.ssh-key-refs": true, "cloud-init-data.ci-password-ref": true, "mount-points.options.quota": true,
}

// extras are keys for extra, by guest type.
var extras = map[string][]string{
	"qemu": {"localtime: true", "rng0: source=/dev/urandom", "watchdog: 'model=i6300esb'", "usb0: spice", "usb1: 'spice,usb3=1'", "vcpus: 1", "scsi9: 'local-lvm:1,discard=on'",
		"sata4: 'local:iso/seed.iso,media=cdrom'", "serial1: socket", "audio0: 'device=ich9-intel-hda'", "citype: nocloud", "keyboard: null"},
	"lxc": {"timezone: host", "debug: false", "entrypoint: /sbin/init", "mp8: 'local-lvm:1,mp=/eight'", "env: A=b"},
}

// tree is a manifest's mapping: texts of YAML flow, trees and lists of trees.
type tree map[string]any

func (t tree) String() string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, k+": "+flow(t[k]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func flow(v any) string {
	list, ok := v.([]tree)
	if !ok {
		return fmt.Sprint(v)
	}
	var parts []string
	for _, x := range list {
		parts = append(parts, x.String())
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// manifest draws one of a kind with any of its fields, each absent, null or
// set. What validation refuses is taken out again.
func (d *dice) manifest(name, meta string, id int) string {
	k, _ := kind.Lookup(name)
	made := k.New()
	t := d.block(field.Specimen(func() *field.Block { return made.Shape(nil) }), "")
	t["vmid"] = strconv.Itoa(id)
	if name == "VM" && t["disks"] == nil {
		t["disks"] = []tree{}
	}
	if t["networks"] == nil {
		t["networks"] = []tree{}
	}
	if d.IntN(3) == 0 {
		t["extra"] = "{" + strings.Join(d.some(extras[k.Guest]...), ", ") + "}"
	}
	for range 60 {
		text := fmt.Sprintf("apiVersion: proxops/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec:\n", name, meta)
		for _, key := range slices.Sorted(maps.Keys(t)) {
			text += "  " + key + ": " + flow(t[key]) + "\n"
		}
		docs, problems := yamldoc.Parse("m.yaml", []byte(text))
		if len(problems) == 0 {
			_, problems = kind.Parse("m.yaml", docs[0])
		}
		if len(problems) == 0 {
			return text
		}
		for _, p := range problems {
			t.cut(p.Path)
		}
	}
	return spec(name, meta, id)
}

// cut takes out what stands at a path: the field, or, where that is gone
// already or required, what holds it.
func (t tree) cut(path string) {
	head, rest, nested := strings.Cut(path, ".")
	name, index, indexed := strings.Cut(strings.TrimSuffix(head, "]"), "[")
	switch v := t[name].(type) {
	case tree:
		if nested && v.has(rest) {
			v.cut(rest)
			return
		}
	case []tree:
		i, err := strconv.Atoi(index)
		if !indexed || err != nil || i >= len(v) {
			break
		}
		if nested && v[i].has(rest) {
			v[i].cut(rest)
			return
		}
		t[name] = slices.Delete(v, i, i+1)
		return
	}
	delete(t, name)
}

func (t tree) has(path string) bool {
	head, _, _ := strings.Cut(path, ".")
	name, _, _ := strings.Cut(head, "[")
	_, ok := t[name]
	return ok
}

func (d *dice) block(b *field.Block, path string) tree {
	out := tree{}
	for _, n := range b.Nodes {
		switch n := n.(type) {
		case *field.Row:
			if text, ok := d.value(n, path); ok {
				out[n.Name] = text
			}
		case *field.Block:
			if n.Required || n.Alloc == nil || d.yes() {
				if sub := d.block(n, path+n.Name+"."); len(sub) > 0 || n.Alloc != nil {
					out[n.Name] = sub
				}
			}
		case *field.List:
			if !n.Required && d.yes() {
				continue
			}
			list := []tree{}
			for range d.IntN(4) {
				list = append(list, d.block(n.Elem(0), path+n.Name+"."))
			}
			out[n.Name] = list
		}
	}
	return out
}

// value draws a field's flow text; false is absent.
func (d *dice) value(r *field.Row, path string) (string, bool) {
	at := path + r.Name
	if r.Name == "" || undrawn[at] {
		return "", false
	}
	roll := d.IntN(10)
	slot := r.Name == "interface" || r.Name == "slot" || r.Name == "nic"
	switch {
	case r.Required || slot && roll < 9:
	case roll < 5:
		return "", false
	case roll == 5:
		return "null", true
	}
	choices := pools[at]
	if choices == nil {
		choices = append(slices.Clone(r.Type.Examples), r.Type.Enum...)
	}
	return d.of(choices...), true
}
