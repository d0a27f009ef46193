package field

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/secret"
)

const (
	oneDisk = "disks: [{storage: lvm, size: 32GiB}]"
	oneNIC  = "networks: [{bridge: vmbr0, vlan: 20}]"
)

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name, spec, live, want string
		do                     func(v *vm, g *Guest)
	}{
		{name: "nothing owned", live: "net0: virtio=AA:BB:CC:00:00:01,bridge=x\nfoo: bar\nscsi0: lvm:vm-1-disk-0,size=1G"},
		{name: "memory", spec: "memory: 1GiB", live: "memory: 2048", want: "memory=1024"},
		{name: "memory keeps its spelling", spec: "memory: 1GiB", live: "memory: current=2048", want: "memory=current=1024"},
		{name: "default equals absence", spec: "cpu: {cores: 1, type: kvm64}\nhardware: {machine: i440fx}", live: ""},
		{name: "default differs from another value", spec: "cpu: {cores: 1}", live: "cores: 2", want: "cores=1"},
		{name: "null deletes", spec: "pve-description: null", live: "description: x", want: "delete description"},
		{name: "null of nothing", spec: "pve-description: null"},
		{name: "null of a blank", spec: "cloud-init-data: {nameservers: null}", live: "nameserver:  "},
		{name: "null of a token", spec: "networks: [{bridge: vmbr0, vlan: null}]", live: "net0: virtio=AA:BB:CC:00:00:01,bridge=vmbr0,tag=5", want: "net0=virtio=AA:BB:CC:00:00:01,bridge=vmbr0"},
		{name: "the MAC survives", spec: oneNIC, live: "net0: virtio=aa:BB:CC:00:00:01,bridge=vmbr0,tag=10,queues=4,zzz=1", want: "net0=virtio=aa:BB:CC:00:00:01,bridge=vmbr0,tag=20,queues=4,zzz=1"},
		{name: "a model change keeps the MAC", spec: "networks: [{bridge: vmbr0, model: e1000}]", live: "net0: virtio=AA:BB:CC:00:00:01,bridge=vmbr0", want: "net0=e1000=AA:BB:CC:00:00:01,bridge=vmbr0"},
		{name: "MAC case", spec: `networks: [{bridge: vmbr0, mac: "AA:BB:CC:00:00:0E"}]`, live: "net0: virtio=aa:bb:cc:00:00:0e,bridge=vmbr0"},
		{name: "MAC case in extra", spec: "extra: {net3: 'virtio=aa:bb:cc:00:00:0e,bridge=vmbr0'}", live: "net3: virtio=AA:BB:CC:00:00:0E,bridge=vmbr0,tag=5"},
		{name: "another MAC in extra", spec: "extra: {net3: 'virtio=aa:bb:cc:00:00:0e,bridge=vmbr0'}", live: "net3: virtio=AA:BB:CC:00:00:0C,bridge=vmbr0,tag=5", want: "net3=virtio=aa:bb:cc:00:00:0e,bridge=vmbr0,tag=5"},
		{name: "MAC case of a container in extra", spec: "extra: {net3: 'name=eth3,hwaddr=aa:bb:cc:00:00:0e,type=veth'}", live: "net3: name=eth3,hwaddr=AA:BB:CC:00:00:0E,type=veth", do: func(_ *vm, g *Guest) { g.LXC = true }},
		{name: "the same CD in extra", spec: "extra: {sata1: 'local:iso/a.iso,media=cdrom'}", live: "sata1: local:iso/a.iso,media=cdrom,size=4M"},
		{name: "another CD in extra", spec: "extra: {sata1: 'local:iso/b.iso,media=cdrom'}", live: "sata1: local:iso/a.iso,media=cdrom", want: "sata1=local:iso/b.iso,media=cdrom"},
		{name: "another CD of the same size in extra", spec: "extra: {sata1: 'local:iso/b.iso,media=cdrom'}", live: "sata1: local:iso/a.iso,media=cdrom,size=4M", want: "sata1=local:iso/b.iso,media=cdrom"},
		{name: "the same volume in extra", spec: "extra: {sata1: 'lvm:vm-1-disk-3'}", live: "sata1: lvm:vm-1-disk-3,size=8G,cache=none"},
		{name: "another volume in extra", spec: "extra: {sata1: 'lvm:vm-1-disk-4'}", live: "sata1: lvm:vm-1-disk-3,size=8G", want: "anomaly extra.sata1: sata1 holds lvm:vm-1-disk-3, the manifest wants lvm:vm-1-disk-4; a live volume is not replaced"},
		{name: "a set value over a blank", spec: "pve-description: x", live: "description:  ", want: "description=x"},
		{name: "a default over a blank", spec: "cpu: {cores: 1}", live: "cores:  "},
		{name: "null of a blank text", spec: "pve-description: null", live: "description:  "},
		{name: "null of a blank property string", spec: "cpu: {type: null, flags: null}\noptions: {startup: null, nested-virt: null}", live: "cpu:  \nstartup:  "},
		{name: "null of every sort, of nothing", spec: "cpu: {type: null, cores: null, flags: null}\noptions: {startup: null, nested-virt: null}\ncloud-init-data: {nameservers: null, ssh-keys: null}\nhardware: {machine: null}\npool: null"},
		{name: "boolean spellings", spec: "networks: [{bridge: vmbr0, firewall: true}]", live: "net0: virtio=AA:BB:CC:00:00:01,bridge=vmbr0,firewall=yes"},
		{name: "a NIC is added", spec: oneNIC, want: "net0=virtio,bridge=vmbr0,tag=20"},
		{name: "case of a CPU type", spec: "cpu: {type: X86-64-V2-aes}", live: "cpu: x86-64-v2-AES,flags=+aes"},
		{name: "flags one by one", spec: `cpu: {flags: ["+aes", "-pcid"]}`, live: "cpu: host,flags=+pcid;+spec-ctrl,hidden=1", want: "cpu=host,flags=-pcid;+spec-ctrl;+aes,hidden=1"},
		{name: "flags owned and there", spec: `cpu: {flags: [aes]}`, live: "cpu: host,flags=+pcid;+aes"},
		{name: "nested beside flags", spec: "cpu: {flags: [aes]}\noptions: {nested-virt: true}", live: "cpu: host", want: "cpu=host,flags=+aes;+nested-virt"},
		{name: "nested cleared", spec: "options: {nested-virt: null}", live: "cpu: host,flags=+aes;+nested-virt", want: "cpu=host,flags=+aes"},
		{name: "flags null beside nested", spec: "cpu: {flags: null}\noptions: {nested-virt: true}", live: "cpu: host,flags=+nested-virt"},
		{name: "tags as a set", spec: "tags: [Web, a]", live: "tags: a;proxops;web"},
		{name: "tags get the owner", spec: "tags: [web]", live: "tags: web", want: "tags=web;proxops"},
		{name: "tags with case", spec: "tags: [Web]", live: "tags: web,proxops", do: func(_ *vm, g *Guest) { g.Env.TagsCaseSensitive = true }, want: "tags=Web;proxops"},
		{name: "tags null", spec: "tags: null", live: "tags: a;b", want: "tags=proxops"},
		{name: "tags null and none", spec: "tags: null", want: "tags=proxops"},
		{name: "tags null and ours alone", spec: "tags: null", live: "tags: ProxOps"},
		{name: "description line ends", spec: "pve-description: \"a\\nb\"", do: func(_ *vm, g *Guest) { g.Config["description"] = Entry{Value: ptr("a\r\nb \n")} }},
		{name: "startup by token", spec: "options: {startup: order=10}", live: "startup: 10"},
		{name: "startup is owned whole", spec: "options: {startup: order=10}", live: "startup: order=10,up=5", want: "startup=order=10 (Sys.Modify on /)"},
		{name: "names as a set", spec: "cloud-init-data: {nameservers: [192.0.2.1, 192.0.2.2]}", live: "nameserver: 192.0.2.2, 192.0.2.1"},
		{name: "keys as a set", spec: "cloud-init-data: {ssh-keys: [ssh-ed25519 A a, ssh-rsa B+/ b]}", live: "sshkeys: ssh-rsa%20B+%2F%20b%0Assh-ed25519%20A%20a%0A"},
		{name: "a spelled value", spec: "hardware: {machine: i440fx}", live: "machine: q35,viommu=intel", want: "machine=pc,viommu=intel"},
		{name: "pool", spec: "pool: web", live: "pool: db", want: "pool=web"},
		{name: "fixed", spec: "options: {unprivileged: true}", want: "anomaly options.unprivileged: live is not set, the manifest wants true"},
		{name: "fixed and equal", spec: "options: {unprivileged: false}"},
		{name: "create-only is not compared", spec: "template: debian", live: "ostemplate: x"},

		{name: "a disk into an empty slot", spec: oneDisk, want: "create scsi0=lvm:32 on lvm"},
		{name: "seeded", spec: "disks: [{storage: lvm, image: d.qcow2, discard: on}]", want: "create scsi0=lvm:0,import-from=local:import/d.qcow2,discard=on on lvm"},
		{name: "seeded and live", spec: "disks: [{storage: lvm, image: d.qcow2}]", live: "scsi0: lvm:vm-1-disk-0,size=2252M"},
		{name: "equal within an extent", spec: oneDisk, live: "scsi0: lvm:vm-1-disk-0,size=32772M"},
		{name: "too large", spec: oneDisk, live: "scsi0: lvm:vm-1-disk-0,size=40G", want: "anomaly disks[0].size: the live volume has 40GiB, the manifest wants 32GiB"},
		{name: "too small", spec: oneDisk, live: "scsi0: lvm:vm-1-disk-0,size=2252M", want: "anomaly disks[0].size: the live volume has 2252MiB, the manifest wants 32GiB"},
		{name: "never shrunk", spec: oneDisk, live: "scsi0: lvm:vm-1-disk-0,size=40G", do: func(v *vm, _ *Guest) { v.disks[0].grow = true }, want: "anomaly disks[0].size: the live volume has 40GiB, the manifest wants 32GiB"},
		{name: "a seeded disk's size is its image's", spec: "disks: [{storage: lvm, image: d.qcow2, size: 9GiB}]", live: "scsi0: lvm:vm-1-disk-0,size=3G"},
		{name: "grow", spec: oneDisk, live: "scsi0: lvm:vm-1-disk-0,size=10G", do: func(v *vm, _ *Guest) { v.disks[0].grow = true }, want: "grow scsi0 10GiB to 32GiB"},
		{name: "grow and options", spec: "disks: [{storage: lvm, size: 32GiB, serial: abc}]", live: "scsi0: lvm:vm-1-disk-0,size=10G,zzz=1", do: func(v *vm, _ *Guest) { v.disks[0].grow = true }, want: "scsi0=lvm:vm-1-disk-0,size=32G,zzz=1,serial=abc\ngrow scsi0 10GiB to 32GiB"},
		{name: "no grow over a pending line", spec: oneDisk, live: "scsi0: lvm:vm-1-disk-0,size=10G\nscsi0!pending: lvm:vm-1-disk-0,cache=none,size=10G", do: func(v *vm, _ *Guest) { v.disks[0].grow = true }, want: "anomaly disks[0].size: the live volume has 10GiB, the manifest wants 32GiB, but scsi0 has a pending change that would undo a resize at the next restart"},
		{name: "another storage", spec: oneDisk, live: "scsi0: zfs:vm-1-disk-0,size=32G", want: "anomaly disks[0].storage: the live volume zfs:vm-1-disk-0 is on zfs, the manifest wants lvm"},
		{name: "another storage, options converge", spec: "disks: [{storage: lvm, size: 32GiB, serial: x}]", live: "scsi0: zfs:vm-1-disk-0,size=32G", want: "scsi0=zfs:vm-1-disk-0,size=32G,serial=x\nanomaly disks[0].storage: the live volume zfs:vm-1-disk-0 is on zfs, the manifest wants lvm"},
		{name: "a CD in a disk's slot", spec: "disks: [{storage: local, size: 1GiB, serial: x}]", live: "scsi0: local:iso/x.iso,media=cdrom,size=1G", want: "anomaly disks[0]: scsi0 holds a CD drive (local:iso/x.iso), the manifest wants a disk there"},
		{name: "a cloud-init drive in a disk's slot", spec: "disks: [{storage: lvm, size: 1GiB}]", live: "scsi0: lvm:vm-1-cloudinit,media=cdrom,size=4M", want: "anomaly disks[0]: scsi0 holds a cloud-init drive (lvm:vm-1-cloudinit), the manifest wants a disk there"},
		{name: "a raw device", spec: oneDisk, live: "scsi0: /dev/disk/by-id/x,size=32G", want: "anomaly disks[0].storage: the live volume /dev/disk/by-id/x is on no storage, the manifest wants lvm"},
		{name: "a slot whose volume waits to go", spec: oneDisk, live: "scsi0: lvm:vm-1-disk-0,size=32G\n-scsi0", want: "anomaly disks[0]: the volume in scsi0 waits to be removed at the next restart; the slot is not free"},
		{name: "efi", spec: "hardware: {efi-disk: {storage: lvm}}", want: "create efidisk0=lvm:1,efitype=4m on lvm"},
		{name: "efi live", spec: "hardware: {efi-disk: {storage: lvm}}", live: "efidisk0: lvm:vm-1-disk-0,efitype=2m,ms-cert=2023k,size=528K"},
		{name: "efi token", spec: "hardware: {efi-disk: {storage: lvm, template: 4m}}", live: "efidisk0: lvm:vm-1-disk-0,efitype=2m,ms-cert=2023k,size=528K", want: "efidisk0=lvm:vm-1-disk-0,efitype=4m,ms-cert=2023k,size=528K"},
		{name: "cloud-init", spec: "hardware: {cloud-init: {storage: lvm}}", want: "create ide2=lvm:cloudinit on lvm"},
		{name: "cloud-init live", spec: "hardware: {cloud-init: {storage: local}}", live: "ide2: local:1/vm-1-cloudinit.qcow2,media=cdrom,size=4M"},
		{name: "cloud-init over a CD", spec: "hardware: {cloud-init: {storage: local}}", live: "ide2: none,media=cdrom", want: "anomaly hardware.cloud-init: ide2 holds a CD drive (none), the manifest wants a cloud-init drive there"},
		{name: "fixed slot empty", spec: "hardware: {bind: {host: a, path: p}}", want: "usb0=a,mapping=p"},
		{name: "fixed slot taken", spec: "hardware: {bind: {host: a, path: p}}", live: "usb0: b,usb3=1", want: "anomaly hardware.bind.host: live is b, the manifest wants a"},
		{name: "fixed slot, other token", spec: "hardware: {bind: {host: a, path: p}}", live: "usb0: a,usb3=1", want: "usb0=a,usb3=1,mapping=p"},

		{name: "extra creates", spec: "extra: {sata1: 'lvm:8,ssd=1'}", want: "create sata1=lvm:8,ssd=1 on lvm"},
		{name: "extra over a live volume", spec: "extra: {sata1: 'lvm:8,ssd=1'}", live: "sata1: lvm:vm-1-disk-3,size=8G,discard=on", want: "sata1=lvm:vm-1-disk-3,size=8G,discard=on,ssd=1"},
		{name: "extra over another size", spec: "extra: {sata1: 'lvm:8'}", live: "sata1: lvm:vm-1-disk-3,size=9G", want: "anomaly extra.sata1: the live volume lvm:vm-1-disk-3 has 9GiB, the manifest wants 8GiB"},
		{name: "extra on another storage", spec: "extra: {sata1: 'lvm:8'}", live: "sata1: zfs:vm-1-disk-3,size=8G", want: `anomaly extra.sata1: the live volume zfs:vm-1-disk-3 is on "zfs", the manifest wants lvm`},
		{name: "extra names another volume", spec: "extra: {sata1: 'lvm:vm-1-disk-4'}", live: "sata1: lvm:vm-1-disk-3,size=8G", want: "anomaly extra.sata1: sata1 holds lvm:vm-1-disk-3, the manifest wants lvm:vm-1-disk-4; a live volume is not replaced"},
		{name: "extra changes a CD", spec: "extra: {sata1: 'local:iso/b.iso,media=cdrom'}", live: "sata1: local:iso/a.iso,media=cdrom,size=350K", want: "sata1=local:iso/b.iso,media=cdrom"},
		{name: "extra NIC keeps its MAC", spec: "extra: {net5: 'virtio,bridge=vmbr1'}", live: "net5: virtio=AA:BB:CC:00:00:01,bridge=vmbr0", want: "net5=virtio=AA:BB:CC:00:00:01,bridge=vmbr1"},
		{name: "extra clears", spec: "extra: {args: null, vga: null}", live: "args: -x", want: "delete args"},
		{name: "extra detaches", spec: "extra: {sata1: null}", live: "sata1: lvm:vm-1-disk-3,size=8G", want: "delete sata1"},
		{name: "extra never frees a volume", spec: "extra: {unused0: null}", live: "unused0: lvm:vm-1-disk-3", want: "anomaly extra.unused0: unused0 keeps lvm:vm-1-disk-3, and clearing it would destroy the volume"},
		{name: "extra by token", spec: "extra: {vga: 'memory=32,qxl'}", live: "vga: qxl,memory=32"},

		{name: "clone clears identity", live: "ciuser: t\ncicustom: x\nnameserver: 1.1.1.1", do: func(v *vm, _ *Guest) { v.clone = true }, want: "delete ciuser\ndelete nameserver\ndelete cicustom"},
		{name: "no clone, no clearing", live: "ciuser: t\ncicustom: x"},
		{name: "password where none is", do: func(v *vm, _ *Guest) { v.password = Some(secret.New("pw")) }, want: "cipassword=(redacted)"},
		{name: "password where one is", live: "cipassword: **********", do: func(v *vm, _ *Guest) { v.password = Some(secret.New("pw")) }},
		{name: "an empty password deletes nothing that is not there", do: func(v *vm, _ *Guest) { v.password = Some(secret.New("")) }},
		{name: "an empty password over a blank", live: "cipassword:  ", do: func(v *vm, _ *Guest) { v.password = Some(secret.New("")) }},
		{name: "password after a clone", live: "cipassword: **********", do: func(v *vm, g *Guest) { v.password, v.clone, g.Env.AfterClone = Some(secret.New("pw")), true, true }, want: "cipassword=(redacted)"},

		{name: "ours waits", spec: "cpu: {cores: 4}", live: "cores: 2\ncores!pending: 4", want: "waiting cpu.cores cores: 2 -> 4"},
		{name: "foreign pending is drift", spec: "cpu: {cores: 2}", live: "cores: 2\ncores!pending: 4", want: "cores=2"},
		{name: "foreign pending deletion", spec: "cpu: {cores: 2}", live: "cores: 2\n-cores", want: "cores=2"},
		{name: "pending deletion of ours", spec: "cpu: {cores: null}", live: "cores: 2\n-cores", want: "waiting cpu.cores cores: 2 -> none"},
		{name: "pending on what is not owned", live: "cores: 2\ncores!pending: 4"},
		{name: "pending token of another", spec: oneNIC, live: "net0: virtio=AA:BB:CC:00:00:01,bridge=vmbr0,tag=20\nnet0!pending: virtio=AA:BB:CC:00:00:01,bridge=vmbr0,tag=20,mtu=9000"},
		{name: "a write keeps what is pending beside it", spec: oneNIC, live: "net0: virtio=AA:BB:CC:00:00:01,bridge=vmbr0,tag=1\nnet0!pending: virtio=AA:BB:CC:00:00:01,bridge=vmbr0,tag=1,mtu=9000", want: "net0=virtio=AA:BB:CC:00:00:01,bridge=vmbr0,tag=20,mtu=9000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, g := load(t, c.spec), guest(c.live)
			if c.do != nil {
				c.do(v, g)
			}
			d := Diff(v.shape(), g)
			if got := show(d); got != c.want {
				t.Fatalf("got\n%s\nwant\n%s", got, c.want)
			}
			after := Diff(v.shape(), settle(g, d))
			if !after.Empty() {
				t.Errorf("applied, and still\n%s", show(after))
			}
		})
	}
}

func TestImpact(t *testing.T) {
	for _, c := range []struct{ spec, live, want string }{
		{"pve-name: a", "", "name=a [live]"},
		{oneNIC, "", "net0=virtio,bridge=vmbr0,tag=20 [live]"},
		{oneNIC, "hotplug: disk", "net0=virtio,bridge=vmbr0,tag=20 [pending until restart]"},
		{oneNIC, "hotplug: 1", "net0=virtio,bridge=vmbr0,tag=20 [live]"},
		{oneNIC, "hotplug: 0", "net0=virtio,bridge=vmbr0,tag=20 [pending until restart]"},
		{"memory: 1GiB", "", "memory=1024 [pending until restart]"},
		{"memory: 1GiB", "hotplug: memory", "memory=1024 [pending until restart]"},
		{"memory: 1GiB", "hotplug: memory\nnuma: 1", "memory=1024 [live]"},
		{"memory: 1GiB", "hotplug: memory\nnuma!pending: 1", "memory=1024 [pending until restart]"},
		{oneDisk, "", "create scsi0=lvm:32 on lvm [live]"},
		{oneDisk, "hotplug: network", "create scsi0=lvm:32 on lvm [pending until restart]"},
		{"hardware: {machine: q35}", "", "machine=q35 [stop+start]"},
		{"hardware: {efi-disk: {storage: lvm}}", "", "create efidisk0=lvm:1,efitype=4m on lvm [stop+start]"},
		{"disks: [{storage: lvm, size: 1GiB, backup: false, serial: x}]", "scsi0: lvm:vm-1-disk-0,size=1G", "scsi0=lvm:vm-1-disk-0,size=1G,backup=0,serial=x [pending until restart]"},
		{"disks: [{storage: lvm, size: 1GiB, backup: false}]", "scsi0: lvm:vm-1-disk-0,size=1G", "scsi0=lvm:vm-1-disk-0,size=1G,backup=0 [live]"},
		{"tags: [a]", "tags: a", "tags=a;proxops"},
	} {
		g := guest(c.live)
		g.Running = true
		if got := show(Diff(load(t, c.spec).shape(), g)); got != c.want {
			t.Errorf("%s over %q: got\n%s\nwant\n%s", c.spec, c.live, got, c.want)
		}
		g.Running = false
		if got := show(Diff(load(t, c.spec).shape(), g)); strings.Contains(got, "[") {
			t.Errorf("%s on a stopped guest: %s", c.spec, got)
		}
	}
	if !(&Guest{LXC: true}).Hotplugs("memory") {
		t.Error("a container does not hotplug")
	}
}

func TestChanges(t *testing.T) {
	v := load(t, oneNIC+"\ncpu: {type: host}\n"+oneDisk)
	v.password = Some(secret.New("hunter2"))
	d := Diff(v.shape(), guest("net0: virtio=AA:BB:CC:00:00:01,bridge=vmbr1,tag=1\ncpu: kvm64"))
	var lines []string
	for _, e := range d.Edits {
		for _, c := range e.Changes {
			lines = append(lines, c.Path+" "+c.Key+" "+side(c.Old)+" -> "+side(c.New))
		}
	}
	want := `cpu.type cpu kvm64 -> host
disks[0].storage scsi0 none -> lvm
disks[0].size scsi0 none -> 32GiB
networks[0].bridge net0.bridge vmbr1 -> vmbr0
networks[0].vlan net0.tag 1 -> 20
 cipassword none -> (redacted)`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestCreateParams(t *testing.T) {
	v := load(t, `memory: 512MiB
cpu: {type: host, cores: 1, flags: [aes]}
`+oneDisk+`
`+oneNIC+`
options: {hidden: false}
tags: null
template: debian
pool: web
`)
	v.password = Some(secret.New("pw"))
	params, changes := CreateParams(v.shape(), false, Env{})
	var got []string
	for _, p := range params {
		got = append(got, p.Key+"="+p.Value.String())
	}
	want := "memory=512 cpu=host,flags=+aes cores=1 scsi0=lvm:32 net0=virtio,bridge=vmbr0,tag=20 tags=proxops pool=web ostemplate=debian cipassword=(redacted)"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
	if len(changes) == 0 {
		t.Error("no changes")
	}
}
