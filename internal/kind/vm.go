package kind

import (
	"fmt"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/wire"
)

// VM is the spec of the kinds VM and TemplateVM.
type VM struct {
	Node        field.Opt[string]
	VMID        field.Opt[int]
	State       field.Opt[string]
	Name        field.Opt[string] // pve-name
	Description field.Opt[string]
	TagSet      field.Opt[[]string]
	PoolID      field.Opt[string]
	Clone       field.Opt[string]
	Memory      field.Opt[wire.Size]
	Balloon     field.Opt[wire.Size]
	CPU         CPU
	Disks       []Disk
	Networks    []NIC
	Hardware    Hardware
	Options     Options
	CloudInit   CloudInitData // cloud-init-data
	Extra       []field.MapEntry[string]

	template bool
	source   *Resource // the bound clone source
	volumes  NameVolume
}

// CPU is the block cpu of a VM.
type CPU struct {
	Type  field.Opt[string]
	Cores field.Opt[int]
	Flags field.Opt[[]string]
	Limit field.Opt[float64]
	Units field.Opt[int]
}

// Shape implements Spec.
func (v *VM) Shape(live *field.Guest) *field.Block {
	place := vmPlace(live, v)
	nodes := []field.Node{
		field.Var(&v.Node, "node", "", "", nodeName,
			"PVE node that the VM lives on, as PVE names it; never a DNS name.").Req(),
		field.Var(&v.VMID, "vmid", "vmid", "", vmids,
			"PVE's numeric id, 100-999999999, unique in the whole cluster among VMs, containers and templates.").Req().OnlyAtCreate(),
		field.Var(&v.State, "state", "", "", v.stateCodec(),
			"Power state to hold: started or stopped. Left out it is started; a template is always stopped."),
		field.Var(&v.Clone, "clone", "", "", cloneName,
			"TemplateVM that a missing VM is made from, as a full clone on the same node. The clone brings the template's disks, so disks may not be declared beside it. Of no effect on a VM that exists."),
		field.Var(&v.Name, "pve-name", "name", "", guestName,
			"Name in PVE, a DNS name. Left out it is metadata.name.").On(field.Live),
		field.Var(&v.Description, "pve-description", "description", "", guestDescription,
			"Notes shown in PVE, up to 8192 characters of Markdown. Trailing blanks and line ends are no difference.").On(field.Live),
		tagsRow(&v.TagSet), poolRow(&v.PoolID),
		field.Var(&v.Memory, "memory", "memory", "current", guestMemory,
			"RAM, at least 16MiB, whole MiB, such as 8GiB. A running VM takes it at once only where hotplug names memory (with numa); else at its next start.").
			Req().PVEDefault("512").On(field.Pending).HotplugBy("memory"),
		field.Var(&v.Balloon, "balloon", "balloon", "", sizeOrNone,
			"Least RAM that the balloon driver may shrink the VM to, whole MiB; 0 removes the balloon device. Switching to or from 0 takes effect at the next start.").
			On(balloonImpact(v.Balloon, live)),
		v.cpu(),
		field.ListOf(&v.Disks, "disks", "Disks, each in one slot of one bus. A disk is known by its slot; the order in the file only gives the default slots. A live disk that is not listed is reported and never removed.", func(i int, d *Disk) *field.Block {
			return d.shape(i, v)
		}),
		field.ListOf(&v.Networks, "networks", "Network cards, each in one slot. [] means none; a live card that is not listed is reported and never removed.", func(i int, n *NIC) *field.Block {
			return n.shape(i)
		}).Req(),
		v.Hardware.shape(v, live, place),
		v.Options.shape(v, live),
		v.CloudInit.shape(v, live),
		extraMap(&v.Extra, false),
	}
	nodes = append(nodes, v.inherited(live)...)
	return field.Group("", "", nodes...)
}

func vmidCodec() field.Codec[int] {
	c := field.Int(100, 999999999)
	c.Type.Examples = []string{"101"}
	return c
}

// stateCodec admits both states everywhere, so that Validate can say why a
// template's cannot be started.
func (v *VM) stateCodec() field.Codec[string] { return stateCodec(v.template) }

func stateCodec(template bool) field.Codec[string] {
	c := field.OneOf("started", "stopped")
	if template {
		c.Type.Enum = []string{"stopped"}
		c.Type.Examples = []string{"stopped"}
	}
	return c
}

func tagsRow(o *field.Opt[[]string]) *field.Row {
	return field.Var(o, "tags", "tags", "", guestTags,
		"PVE tags, compared as a set. The tag "+OwnerTag+" is added to whatever stands here; null leaves that one alone; left out, live tags stay.").On(field.Live)
}

func poolRow(o *field.Opt[string]) *field.Row {
	return field.Var(o, "pool", "pool", "", poolID,
		"Resource pool that the guest is a member of; null takes it out of its pool. Sent at create and clone, later through PVE's pool call.").
		Is(field.RolePool).On(field.Live)
}

// balloonImpact tells a change of the target, which PVE makes at once, from
// adding or removing the device.
func balloonImpact(want field.Opt[wire.Size], live *field.Guest) field.Impact {
	now, has := live.Get("balloon")
	w, set := want.Get()
	if (has && now == "0") != (set && w == 0) {
		return field.Pending
	}
	return field.Live
}

func (v *VM) cpu() *field.Block {
	c := &v.CPU
	return field.Group("cpu", "Processor.",
		field.Var(&c.Type, "type", "cpu", "cputype", cpuTypes,
			"CPU type as PVE knows it, in any case, such as host, kvm64 or x86-64-v2-AES; or custom-<name> for one that the cluster defines.").
			Req().PVEDefault("kvm64").On(field.Pending),
		field.Var(&c.Cores, "cores", "cores", "", field.Int(1, 8192),
			"Cores per socket, from 1.").Req().PVEDefault("1").On(field.Pending),
		field.Var(&c.Flags, "flags", "cpu", "flags", vmFlags,
			"CPU flags to force on (+aes or aes) or off (-pcid). Each named flag is owned by itself; others that the VM has stay.").On(field.Pending),
		field.Var(&c.Limit, "limit", "cpulimit", "", field.Number(0, 128),
			"Most CPU time in cores, 0-128, fractions allowed; 0 is no limit.").PVEDefault("0").On(field.Live).Eg("2", "1.5"),
		field.Var(&c.Units, "units", "cpuunits", "", field.Int(1, 262144),
			"Weight against other guests of the node, 1-262144; PVE's own is 100.").On(field.Live).Eg("200"),
	).Req()
}

// Disk is one element of disks.
type Disk struct {
	Storage    field.Opt[string]
	Size       field.Opt[wire.Size]
	Image      field.Opt[string]
	Interface  field.Opt[string]
	Grow       field.Opt[bool]
	Controller field.Opt[string]
	IOThread   field.Opt[bool]
	Discard    field.Opt[string]
	SSD        field.Opt[bool]
	AIO        field.Opt[string]
	Cache      field.Opt[string]
	Backup     field.Opt[bool]
	Replicate  field.Opt[bool]
	ReadOnly   field.Opt[bool]
	Serial     field.Opt[string]

	source string // the bound image's volume id
}

// Slot is the drive slot of the i-th disk: its interface, or scsi<i>.
func (d *Disk) Slot(i int) string { return d.Interface.Or(fmt.Sprintf("scsi%d", i)) }

func (d *Disk) shape(i int, v *VM) *field.Block {
	key := d.Slot(i)
	fresh := func(r *field.Row) *field.Row { // PVE plugs scsi and virtio into a running VM, ide and sata never
		r.On(field.Pending)
		if b, _ := bus(key); b == "scsi" || b == "virtio" {
			r.HotplugBy("disk")
		}
		return r
	}
	b := field.Group("", "One disk.",
		fresh(field.Var(&d.Storage, "storage", key, "", storageID,
			"Storage that a missing disk is allocated on (content images). A live disk on another storage is reported, never moved.").Is(field.RoleStorage)).Req(),
		field.Var(&d.Size, "size", key, "size", volumeSize,
			"Size of the disk, such as 50GiB; required unless image is given, and not allowed with it. A larger size grows the live disk only with grow: true; a smaller one is reported.").Is(field.RoleSize).On(field.Live),
		field.Var(&d.Image, "image", key, "import-from", imageName,
			"DiskImage that a missing disk is filled from. The disk takes the image's size and afterwards only its storage is compared.").Is(field.RoleSource),
		field.Var(&d.Interface, "interface", "", "", drive,
			"Slot of the disk: "+driveSlots+". Left out it is scsi<position in the list>.").Is(field.RoleSlot),
		field.Var(&d.Grow, "grow", "", "", yesNo,
			"Allows growing the live disk to size through PVE's resize. Left out or false, another size is reported."),
		v.controllerRow(i),
		field.Var(&d.IOThread, "iothread", key, "iothread", yesNo,
			"Own I/O thread for the disk; scsi and virtio only.").On(field.Pending),
		field.Var(&d.Discard, "discard", key, "discard", field.OneOf("on", "ignore"),
			"Passes TRIM of the guest to the storage: on or ignore.").On(field.Pending),
		field.Var(&d.SSD, "ssd", key, "ssd", yesNo,
			"Shows the disk to the guest as an SSD; scsi, sata and ide only.").On(field.Pending),
		field.Var(&d.AIO, "aio", key, "aio", field.OneOf("io_uring", "native", "threads"),
			"Asynchronous I/O engine: native, threads or io_uring.").On(field.Pending),
		field.Var(&d.Cache, "cache", key, "cache", field.OneOf("none", "writethrough", "writeback", "unsafe", "directsync"),
			"Host cache mode: none, writethrough, writeback, unsafe or directsync.").On(field.Pending),
		field.Var(&d.Backup, "backup", key, "backup", yesNo,
			"Whether backups include the disk; without the setting PVE includes it.").On(field.Live),
		field.Var(&d.Replicate, "replicate", key, "replicate", yesNo,
			"Whether storage replication includes the disk.").PVEDefault("1").On(field.Live),
		field.Var(&d.ReadOnly, "read-only", key, "ro", yesNo,
			"Write protection of the disk; scsi and virtio only.").On(field.Pending),
		field.Var(&d.Serial, "serial", key, "serial", serialNumber,
			"Serial number that the guest sees, up to 20 characters.").On(field.Pending),
	)
	return b.Fills(d.volume(key))
}

// serialCodec keeps to what needs no percent-encoding in a property string.
func serialCodec() field.Codec[string] {
	return field.TextMatching(`[A-Za-z0-9._-]{1,20}`, "a serial number of up to 20 letters, digits and . _ -", "DISK0001")
}

func (d *Disk) volume(key string) *field.Volume {
	storage, size := d.Storage.Or(""), d.Size.Or(0)
	vol := &field.Volume{
		Key: key, Kind: field.Disk, Storage: storage, Size: size, FirstToken: "file",
		Grow:       d.Grow.Or(false),
		CreateText: func() string { return storage + ":" + size.GiBNumber() },
	}
	if d.Image.IsSet() {
		vol.SeedOnly, vol.Source = true, d.source
		vol.CreateText = func() string { return storage + ":0" }
		vol.CreateExtra = []field.Token{{Key: "import-from", Value: d.source}}
	}
	return vol
}

// controllers are PVE's values of scsihw.
var controllers = []string{"virtio-scsi-single", "virtio-scsi-pci", "lsi", "lsi53c810", "megasas", "pvscsi"}

// controllerRow is the VM-wide scsihw: the first disk that names one owns it,
// the others' rows are off the wire.
func (v *VM) controllerRow(i int) *field.Row {
	key := "scsihw"
	for j := range v.Disks[:i] {
		if v.Disks[j].Controller.State() != field.Absent {
			key = ""
		}
	}
	r := field.Var(&v.Disks[i].Controller, "controller", key, "", scsiController,
		"SCSI controller of the whole VM: "+"virtio-scsi-single, virtio-scsi-pci, lsi, lsi53c810, megasas or pvscsi. The first disk that names one decides.").On(field.Pending)
	if key != "" {
		r.PVEDefault("lsi")
	}
	return r
}

// NIC is one element of a VM's networks.
type NIC struct {
	Model    field.Opt[string]
	Bridge   field.Opt[string]
	MAC      field.Opt[string]
	VLAN     field.Opt[int]
	Rate     field.Opt[float64]
	Firewall field.Opt[bool]
	MTU      field.Opt[int]
	Queues   field.Opt[int]
	LinkDown field.Opt[bool]
	Slot     field.Opt[int]
}

func (n *NIC) shape(i int) *field.Block {
	key := fmt.Sprintf("net%d", n.Slot.Or(i))
	return field.Group("", "One network card.",
		field.Var(&n.Model, "model", key, "model", cardModel,
			"Card model, such as virtio, e1000 or vmxnet3. Left out a new card is virtio and a live card keeps its model.").
			AtCreate("virtio").On(field.Pending).HotplugBy("network"),
		field.Var(&n.Bridge, "bridge", key, "bridge", bridgeName,
			"Bridge or SDN VNet that the card is plugged into, such as vmbr0.").Req().On(field.Live),
		field.Var(&n.MAC, "mac", key, "macaddr", macAddress,
			"Fixed unicast MAC address. Left out PVE draws one and every later write keeps it.").NoAdoptWhen(drawnMAC).On(field.Pending).HotplugBy("network"),
		field.Var(&n.VLAN, "vlan", key, "tag", vlanTag,
			"802.1Q VLAN tag, 1-4094.").On(field.Live),
		field.Var(&n.Rate, "rate-limit", key, "rate", field.Number(0, 1e6),
			"Bandwidth limit in megabytes per second (PVE's unit, not megabits); fractions allowed.").On(field.Live).Eg("10", "1.5"),
		field.Var(&n.Firewall, "firewall", key, "firewall", yesNo,
			"Puts the card behind PVE's firewall.").On(field.Live),
		field.Var(&n.MTU, "mtu", key, "mtu", field.Int(1, 65520),
			"MTU of a virtio card in bytes, 576-65520; 1 takes the bridge's.").On(field.Pending).HotplugBy("network").Eg("1500", "1"),
		field.Var(&n.Queues, "queues", key, "queues", field.Int(0, 64),
			"Packet queues of a virtio card, 0-64.").On(field.Pending).HotplugBy("network").Eg("4"),
		field.Var(&n.LinkDown, "link-down", key, "link_down", yesNo,
			"Pulls the cable: the card is there without link.").On(field.Live),
		field.Var(&n.Slot, "slot", "", "", netSlot,
			"Slot of the card, net0-net31 or the number. Left out it is the position in the list.").Is(field.RoleSlot),
	)
}

// drawnMAC reports whether PVE drew an address: it begins with the cluster's
// prefix. Adopt pins only others, which somebody chose.
func drawnMAC(text string, env field.Env) bool {
	prefix := env.MACPrefix
	if prefix == "" {
		prefix = "BC:24:11"
	}
	return strings.HasPrefix(strings.ToUpper(text), strings.ToUpper(prefix))
}

// nicModels puts the usual model first.
func nicModels() []string {
	out := []string{"virtio"}
	for _, m := range wire.NetModels() {
		if m != "virtio" {
			out = append(out, m)
		}
	}
	return out
}

func bridgeCodec() field.Codec[string] {
	return field.TextMatching(bridgePattern, "a bridge name: letters, digits and - _ .", "vmbr0")
}
