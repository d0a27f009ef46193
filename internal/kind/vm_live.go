package kind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/wire"
)

// drivePlace is where the cloud-init drive and the CD of a VM are.
type drivePlace struct{ cloudInit, cd string }

// fileOf is the first token of a VM's drive text.
func fileOf(text string) string {
	f, _ := wire.ParseProps(text, wire.FormatOf(false, "scsi0")).Get("file")
	return f
}

// isCloudInit tells the cloud-init drive by its volume's name, on any slot.
func isCloudInit(text string) bool { return wire.IsCloudInit(fileOf(text)) }

// isCD tells a CD drive on any bus; the cloud-init drive, which PVE attaches
// as a CD too, is none.
func isCD(text string) bool {
	p := wire.ParseProps(text, wire.FormatOf(false, "scsi0"))
	file, _ := p.Get("file")
	media, _ := p.Get("media")
	return !wire.IsCloudInit(file) && (media == "cdrom" || file == "none" || file == "cdrom")
}

// sortedKeys lists the live keys that have an effective value.
func sortedKeys(live *field.Guest) []string {
	if live == nil {
		return nil
	}
	var out []string
	for k := range live.Config {
		if _, ok := live.Get(k); ok {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, bySlot)
	return out
}

// bySlot sorts scsi2 before scsi10.
func bySlot(a, b string) int {
	ca, cb := wire.KeyClass(a), wire.KeyClass(b)
	if ca != cb {
		return strings.Compare(ca, cb)
	}
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// liveCloudInit is the slot of the live cloud-init drive, or "".
func liveCloudInit(live *field.Guest) string {
	for _, k := range sortedKeys(live) {
		if _, ok := bus(k); !ok {
			continue
		}
		if text, _ := live.Get(k); isCloudInit(text) {
			return k
		}
	}
	return ""
}

// vmPlace decides the slots that depend on the live guest. A live cloud-init
// drive is owned where it is; a new one goes to its slot, or where another
// drive sits on the default ide2, to the next free IDE slot. The CD is on
// ide3 only where cloud-init is on ide2.
func vmPlace(live *field.Guest, v *VM) drivePlace {
	c := v.Hardware.CloudInit
	at := liveCloudInit(live)
	wanted := c != nil && c.Enabled.Or(true)
	p := drivePlace{cloudInit: at, cd: "ide2"}
	if at == "" {
		p.cloudInit = "ide2"
		if c != nil && c.Slot.IsSet() {
			p.cloudInit = c.Slot.Or("")
		} else if _, taken := live.Get("ide2"); taken {
			p.cloudInit = v.freeIDE(live)
		}
	}
	if p.cloudInit == "ide2" && (at != "" || wanted) {
		p.cd = "ide3"
	}
	return p
}

func (v *VM) freeIDE(live *field.Guest) string {
	used := v.diskSlots()
	for _, k := range []string{"ide3", "ide0", "ide1"} {
		if _, taken := live.Get(k); !taken && used[k] == "" {
			return k
		}
	}
	return "ide2"
}

// diskSlots maps the slots of declared disks to their paths.
func (v *VM) diskSlots() map[string]string {
	out := map[string]string{}
	for i := range v.Disks {
		out[v.Disks[i].Slot(i)] = fmt.Sprintf("disks[%d]", i)
	}
	return out
}

// Undeclared implements GuestSpec.
func (v *VM) Undeclared(live *field.Guest) []field.Anomaly {
	var out []field.Anomaly
	disks, nics, pci, extra := v.diskSlots(), map[int]bool{}, map[int]bool{}, map[string]bool{}
	for i := range v.Networks {
		nics[v.Networks[i].Slot.Or(i)] = true
	}
	for i := range v.Hardware.PCIDevices {
		pci[v.Hardware.PCIDevices[i].Slot.Or(i)] = true
	}
	for _, e := range v.Extra {
		extra[e.Key] = true
	}
	place := vmPlace(live, v)
	ownCD := v.Hardware.CDROM != nil
	for _, key := range sortedKeys(live) {
		text, _ := live.Get(key)
		if n, ok := numbered(key, "net"); ok && n <= maxNet && v.Networks != nil && !nics[n] {
			out = append(out, undeclared("networks", key, text, "declare it with slot: "+key+", or remove the card in PVE"))
		}
		if n, ok := numbered(key, "hostpci"); ok && n <= maxHostPCI && !pci[n] {
			out = append(out, undeclared("hardware.pci-devices", key, text, "declare it with slot: "+key+", or remove the device in PVE"))
		}
		if _, ok := bus(key); !ok || extra[key] {
			continue
		}
		switch {
		case isCloudInit(text):
			out = append(out, v.cloudInitAnomaly(key)...)
		case isCD(text), wire.IsISO(fileOf(text)), ownCD && key == place.cd:
		case v.Disks != nil && !v.Clone.IsSet() && disks[key] == "":
			out = append(out, undeclared("disks", key, text, "declare it with interface: "+key+", or detach it in PVE, which keeps the volume as unusedN; it is never removed from here"))
		}
	}
	return out
}

func undeclared(path, key, text, todo string) field.Anomaly {
	first, _, _ := strings.Cut(text, ",")
	return field.Anomaly{Path: path, Text: fmt.Sprintf("%s (%s) is on the guest and not in the manifest", key, first), Todo: todo}
}

// cloudInitAnomaly tells a live cloud-init drive from the wanted one.
func (v *VM) cloudInitAnomaly(key string) []field.Anomaly {
	c := v.Hardware.CloudInit
	if c == nil {
		return nil
	}
	if !c.Enabled.Or(true) {
		return []field.Anomaly{{Path: "hardware.cloud-init.enabled",
			Text: "the VM has a cloud-init drive in " + key + " and the manifest wants none",
			Todo: "remove the drive in PVE, or set enabled: true"}}
	}
	if want, ok := c.Slot.Get(); ok && want != key {
		return []field.Anomaly{{Path: "hardware.cloud-init.slot",
			Text: fmt.Sprintf("the cloud-init drive is in %s, the manifest says %s", key, want),
			Todo: "write slot: " + key + ", or move the drive in PVE"}}
	}
	return nil
}

// Allocate implements GuestSpec.
func (v *VM) Allocate(live *field.Guest, volumes NameVolume) {
	v.volumes = volumes
	v.Disks, v.Networks = []Disk{}, []NIC{}
	place := vmPlace(live, v)
	for _, key := range sortedKeys(live) {
		text, _ := live.Get(key)
		if n, ok := numbered(key, "net"); ok && n <= maxNet {
			if hasTokens(text, key, false, "model", "bridge") {
				v.Networks = append(v.Networks, NIC{Slot: field.Some(n)})
			}
		}
		if n, ok := numbered(key, "hostpci"); ok && n <= maxHostPCI {
			v.Hardware.PCIDevices = append(v.Hardware.PCIDevices, PCIDevice{Slot: field.Some(n)})
		}
		if n, ok := numbered(key, "ipconfig"); ok && n <= maxIPConfig && strings.TrimSpace(text) != "" {
			v.CloudInit.IPConfigs = append(v.CloudInit.IPConfigs, IPConfig{NIC: field.Some(n)})
		}
		switch key {
		case "efidisk0":
			v.Hardware.EFIDisk = &EFIDisk{}
		case "tpmstate0":
			v.Hardware.TPM = &TPM{}
		}
		if _, ok := bus(key); ok {
			v.allocateDrive(key, text, place)
		}
	}
}

func (v *VM) allocateDrive(key, text string, place drivePlace) {
	_, _, isVolume := wire.SplitVolID(fileOf(text))
	switch {
	case isCloudInit(text):
		if key == place.cloudInit { // PVE allows one
			v.Hardware.CloudInit = &CloudInitDrive{Enabled: field.Some(true), Slot: field.Some(key)}
		}
	case isCD(text):
		if key == place.cd {
			v.Hardware.CDROM = &CDROM{}
		}
	case wire.IsISO(fileOf(text)) || !isVolume: // an ISO as a disk, or a host device: no field can make it
	default:
		v.Disks = append(v.Disks, Disk{Interface: field.Some(key)})
	}
}

// hasTokens reports whether a live text has what a row requires.
func hasTokens(text, key string, lxc bool, tokens ...string) bool {
	p := wire.ParseProps(text, wire.FormatOf(lxc, key))
	for _, t := range tokens {
		if v, ok := p.Get(t); !ok || v == "" {
			return false
		}
	}
	return true
}

// SetPlace implements GuestSpec.
func (v *VM) SetPlace(node string, vmid int, running bool) {
	v.Node, v.VMID = field.Some(node), field.Some(vmid)
	v.State = field.Some(powerWord(running))
}

func powerWord(running bool) string {
	if running {
		return "started"
	}
	return "stopped"
}

// KeyHolder is a spec with public keys that adopt names instead of copying.
type KeyHolder interface {
	Keys() []string           // as read from live
	KeepKeys()                // leaves the live keys alone
	UseKeyRefs(refs []string) // names entries of the SOPS document
}

// Keys implements KeyHolder.
func (v *VM) Keys() []string { return v.CloudInit.SSHKeys.Or(nil) }

// KeepKeys implements KeyHolder.
func (v *VM) KeepKeys() { v.CloudInit.SSHKeys = field.Some([]string{keepKeys}) }

// UseKeyRefs implements KeyHolder.
func (v *VM) UseKeyRefs(refs []string) {
	v.CloudInit.SSHKeys = field.Opt[[]string]{}
	v.CloudInit.SSHKeyRefs = field.Some(refs)
}
