package kind

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// Hardware is the block hardware of a VM.
type Hardware struct {
	Machine    field.Opt[string]
	BIOS       field.Opt[string]
	Display    field.Opt[string]
	Serial0    field.Opt[string]
	Sockets    field.Opt[int]
	NUMA       field.Opt[bool]
	CDROM      *CDROM
	EFIDisk    *EFIDisk
	CloudInit  *CloudInitDrive
	TPM        *TPM
	PCIDevices []PCIDevice
}

// displays are PVE's display types.
var displays = []string{
	"std", "virtio", "virtio-gl", "qxl", "qxl2", "qxl3", "qxl4", "vmware", "cirrus",
	"serial0", "serial1", "serial2", "serial3", "none",
}

func (h *Hardware) shape(v *VM, live *field.Guest, place drivePlace) *field.Block {
	serial := field.Var(&h.Serial0, "serial0", "serial0", "",
		serialPort,
		"First serial port: socket, or a host device (which only root@pam may set).").On(field.Pending)
	if strings.HasPrefix(h.Serial0.Or(""), "/") {
		serial.Root("root@pam only: a real serial device of the host")
	}
	return field.Group("hardware", "Virtual hardware.",
		field.Var(&h.Machine, "machine", "machine", "type", machines,
			"Chipset: i440fx or q35, or one of PVE's versioned names such as pc-q35-9.2. Without a version every version of the chipset satisfies it. Takes a stop and start to change.").
			PVEDefault("pc").AtCreate("pc").On(field.Pending),
		field.Var(&h.BIOS, "bios", "bios", "", field.OneOf("seabios", "ovmf"),
			"Firmware: seabios or ovmf (UEFI). Takes a stop and start to change.").
			PVEDefault("seabios").AtCreate("seabios").On(field.Pending),
		field.Var(&h.Display, "display", "vga", "type", displayType,
			"Display adapter, such as std, virtio, qxl, serial0 or none.").PVEDefault("std").On(field.Pending),
		serial,
		field.Var(&h.Sockets, "sockets", "sockets", "", field.Int(1, 128),
			"CPU sockets, from 1. The VM has sockets times cores cores.").PVEDefault("1").AtCreate("1").On(field.Pending),
		field.Var(&h.NUMA, "numa", "numa", "", yesNo,
			"NUMA topology; memory hotplug needs it.").PVEDefault("0").On(field.Pending),
		field.Sub(&h.CDROM, "cdrom", "CD drive in ide2, or in ide3 where the cloud-init drive sits on ide2. A drive that a running VM lacks waits for its restart. Left out the drive is not owned.",
			func(c *CDROM) []field.Node { return c.rows(place.cd, live, v.volumes) }),
		h.efi(), h.cloudInit(place), h.tpm(),
		field.ListOf(&h.PCIDevices, "pci-devices", "Host PCI devices passed to the VM. A live one that is not listed is always reported and never removed.",
			func(i int, p *PCIDevice) *field.Block { return p.shape(i, live) }),
	)
}

// CDROM is the block hardware.cdrom.
type CDROM struct {
	ISO   field.Opt[string]
	Media field.Opt[string]

	volid string // the bound ISO's volume id
}

func (c *CDROM) rows(key string, live *field.Guest, volumes NameVolume) []field.Node {
	iso := field.Var(&c.ISO, "iso", key, "", c.isoCodec(volumes),
		"ISO to insert, by its metadata.name; none for an empty drive.").Req().On(field.Pending)
	if _, ok := live.Get(key); ok || live == nil {
		iso.On(field.Live) // PVE changes the medium of a running VM; it cannot plug an IDE drive
	}
	media := field.OneOf("cdrom", "disk")
	media.Type.Enum, media.Type.Examples = []string{"cdrom"}, []string{"cdrom"}
	return []field.Node{iso,
		field.Var(&c.Media, "media", "", "", media,
			"cdrom, the only medium that PVE takes for an ISO."),
	}
}

// isoCodec writes the whole drive, since PVE wants media=cdrom for ISO files
// (facts.md C). Field puts it into an empty slot or a CD drive only.
func (c *CDROM) isoCodec(volumes NameVolume) field.Codec[string] {
	codec := isoName
	format := wire.FormatOf(false, "ide2")
	file := func(s string) string {
		f, _ := wire.ParseProps(s, format).Get("file")
		return f
	}
	want := func(name string) string {
		if name == "none" {
			return "none"
		}
		return c.volid
	}
	codec.Write = func(name string) string { return want(name) + ",media=cdrom" }
	codec.Read = func(s string) (string, error) {
		f := file(s)
		if f == "none" {
			return f, nil
		}
		if volumes != nil {
			if ref, ok := volumes(f); ok && ref.Kind == "ISO" {
				c.volid = f
				return ref.Name, nil
			}
		}
		return "", fmt.Errorf("no ISO manifest stands for %s", f)
	}
	codec.Equal = func(name, live string, _ field.Env) bool {
		return file(live) == want(name) && isCD(live)
	}
	return codec
}

// EFIDisk is the block hardware.efi-disk.
type EFIDisk struct {
	Storage    field.Opt[string]
	Size       field.Opt[wire.Size]
	Template   field.Opt[string]
	SecureBoot field.Opt[string]
}

func (h *Hardware) efi() *field.Block {
	const key = "efidisk0"
	b := field.Sub(&h.EFIDisk, "efi-disk", "Disk for UEFI variables; needs bios: ovmf. Added in place, never made anew.", func(e *EFIDisk) []field.Node {
		efitype := field.OneOf("4m", "2m")
		parse := efitype.Parse
		efitype.Parse = func(n *yamldoc.Node) (string, error) {
			s, err := parse(n)
			if err != nil && (n.Value == "byos" || n.Value == "8m") {
				err = fmt.Errorf("%q is not a type that PVE has: its efitype is 4m or 2m", n.Value)
			}
			return s, err
		}
		return []field.Node{
			field.Var(&e.Storage, "storage", key, "", storageID,
				"Storage that a missing disk is allocated on. A live one elsewhere is reported, never moved.").Req().Is(field.RoleStorage).On(field.Pending),
			field.Var(&e.Size, "size", "", "", volumeSize,
				"Accepted and never compared: PVE makes the disk as large as its firmware file, whatever is asked.").Eg("4MiB"),
			field.Var(&e.Template, "template", key, "efitype", efitype,
				"Size of the variable store: 4m, or 2m for old guests. Decided when the disk is made.").
				PVEDefault("2m").Fix("PVE decides the type when it makes the disk; to change it, remove the EFI disk in PVE and let it be made anew (its UEFI variables are lost)"),
			field.Var(&e.SecureBoot, "secure-boot", key, "pre-enrolled-keys", secureBoot,
				"Secure Boot keys enrolled in the variable store: enabled or disabled. The guest sees it at its next boot.").
				PVEDefault("0").On(field.Pending),
		}
	})
	if e := h.EFIDisk; e != nil {
		storage := e.Storage.Or("")
		b.Fills(&field.Volume{Key: key, Kind: field.EFI, Storage: storage, FirstToken: "file",
			CreateText: func() string { return storage + ":1" }})
	}
	return b
}

// TPM is the block hardware.tpm.
type TPM struct {
	Version field.Opt[string]
	Storage field.Opt[string]
}

// tpmStorage is the TPM's own storage or the EFI disk's.
func (h *Hardware) tpmStorage() string {
	if s, ok := h.TPM.Storage.Get(); ok || h.EFIDisk == nil {
		return s
	}
	return h.EFIDisk.Storage.Or("")
}

func (h *Hardware) tpm() *field.Block {
	const key = "tpmstate0"
	b := field.Sub(&h.TPM, "tpm", "TPM state. Added in place, never made anew.", func(t *TPM) []field.Node {
		return []field.Node{
			field.Var(&t.Version, "version", key, "version", field.OneOf("v2.0", "v1.2"),
				"TPM version, v2.0 or v1.2. A new TPM is v2.0; it is decided when the state is made.").
				PVEDefault("v1.2").AtCreate("v2.0").Fix("PVE decides the version when it makes the TPM state; to change it, remove the TPM in PVE and let it be made anew (what it sealed is lost)"),
			field.Var(&t.Storage, "storage", key, "", storageID,
				"Storage of the state. Left out it is the efi-disk's.").Is(field.RoleStorage).On(field.Pending),
		}
	})
	if h.TPM != nil {
		storage := h.tpmStorage()
		b.Fills(&field.Volume{Key: key, Kind: field.TPM, Storage: storage, FirstToken: "file",
			CreateText: func() string { return storage + ":1" }})
	}
	return b
}

// CloudInitDrive is the block hardware.cloud-init.
type CloudInitDrive struct {
	Enabled field.Opt[bool]
	Storage field.Opt[string]
	Size    field.Opt[wire.Size]
	Slot    field.Opt[string]
}

func (h *Hardware) cloudInit(place drivePlace) *field.Block {
	key := place.cloudInit
	b := field.Sub(&h.CloudInit, "cloud-init", "Drive that hands cloud-init-data to the guest. A live one is owned on whatever slot it is.", func(c *CloudInitDrive) []field.Node {
		storage := field.Var(&c.Storage, "storage", key, "", storageID,
			"Storage of the drive; it must carry images content, or the VM does not start. A live drive elsewhere is reported, never moved.").Is(field.RoleStorage).On(field.Pending)
		if b, _ := bus(key); b == "scsi" || b == "virtio" {
			storage.HotplugBy("disk")
		}
		return []field.Node{
			field.Var(&c.Enabled, "enabled", "", "", yesNo,
				"Whether the VM has the drive; left out it has. false over a live drive is reported, the drive stays."),
			storage,
			field.Var(&c.Size, "size", "", "", volumeSize,
				"Accepted and never compared: PVE makes the drive as large as its data.").Eg("4MiB"),
			field.Var(&c.Slot, "slot", "", "", cloudInitSlot,
				"Slot of a new drive: "+driveSlots+". Left out it is ide2.").Is(field.RoleSlot),
		}
	})
	if c := h.CloudInit; c != nil && c.Enabled.Or(true) {
		storage := c.Storage.Or("")
		b.Fills(&field.Volume{Key: key, Kind: field.CloudInit, Storage: storage, FirstToken: "file",
			CreateText: func() string { return storage + ":cloudinit" }})
	}
	return b
}

// PCIDevice is one element of hardware.pci-devices.
type PCIDevice struct {
	Slot    field.Opt[int]
	Device  field.Opt[string]
	Mapping field.Opt[string]
	PCIe    field.Opt[bool]
}

const rawDevice = "root@pam only: a raw host device; a token may set mapping instead"

const bdf = `(?:[0-9a-fA-F]{4,}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?`

var bdfList = regexp.MustCompile(`^` + bdf + `(?:;` + bdf + `)*$`)

func (p *PCIDevice) shape(i int, live *field.Guest) *field.Block {
	key := fmt.Sprintf("hostpci%d", p.Slot.Or(i))
	host := field.Var(&p.Device, "device", key, "host", pciAddress,
		"PCI address of the host device, [domain:]bus:slot[.function] in hex, such as 0000:01:00.0; several functions joined by ;. Either this or mapping.").
		On(field.Pending).Root(rawDevice)
	mapping := field.Var(&p.Mapping, "mapping", key, "mapping",
		mappingID,
		"PCI mapping of the datacenter, the form that an API token may set. Either this or device.").On(field.Pending)
	pcie := field.Var(&p.PCIe, "pcie", key, "pcie", yesNo,
		"PCI Express instead of PCI; needs machine q35.").PVEDefault("0").On(field.Pending)
	if now, _ := live.Get(key); p.Device.IsSet() || hasTokens(now, key, false, "host") {
		pcie.Root(rawDevice) // PVE lets nobody else write a slot with a raw device
	}
	nodes := []field.Node{
		field.Var(&p.Slot, "slot", "", "", hostPCISlot,
			"Slot of the device, hostpci0-hostpci15 or the number. Left out it is the position in the list.").Is(field.RoleSlot),
		host, mapping, pcie,
	}
	return field.Group("", "One passed-through device. Changes of it wait for a stop and start.", append(nodes, p.switched(key, live)...)...)
}

// switched clears the token of the other form where the live slot has it: PVE
// refuses a slot with both.
func (p *PCIDevice) switched(key string, live *field.Guest) []field.Node {
	text, ok := live.Get(key)
	if !ok {
		return nil
	}
	props, clear := wire.ParseProps(text, wire.FormatOf(false, key)), field.Cleared[string]()
	if _, has := props.Get("host"); has && p.Mapping.IsSet() && !p.Device.IsSet() {
		return []field.Node{field.Var(&clear, "device", key, "host", field.Text(), "").On(field.Pending)}
	}
	if _, has := props.Get("mapping"); has && p.Device.IsSet() && !p.Mapping.IsSet() {
		return []field.Node{field.Var(&clear, "mapping", key, "mapping", field.Text(), "").On(field.Pending)}
	}
	return nil
}

// bdfCodec lower-cases the address; the domain 0000 may be left out.
func bdfCodec() field.Codec[string] {
	norm := func(s string) string {
		parts := strings.Split(strings.ToLower(s), ";")
		for i, p := range parts {
			if strings.Count(p, ":") == 1 {
				parts[i] = "0000:" + p
			}
		}
		return strings.Join(parts, ";")
	}
	c := field.Text()
	c.Type.Pattern, c.Type.Examples = bdfList.String(), []string{`"0000:01:00.0"`, `"01:00"`}
	parse := c.Parse
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := parse(n)
		if err == nil && !bdfList.MatchString(s) {
			err = fmt.Errorf("%q is not a PCI address: [domain:]bus:slot[.function] in hex, such as 0000:01:00.0", s)
		}
		return strings.ToLower(s), err
	}
	c.Equal = func(want, live string, _ field.Env) bool { return norm(want) == norm(live) }
	return c
}
