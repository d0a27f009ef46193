package kind

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

// Validate implements Spec.
func (v *VM) Validate(report Report) {
	noNull(report, "state", v.State)
	noNull(report, "pve-name", v.Name)
	noNull(report, "clone", v.Clone)
	if v.template && v.State.Or("stopped") == "started" {
		report("state", "a template cannot be started; write stopped or leave state out")
	}
	if least, all := v.Balloon.Or(0), v.Memory.Or(0); v.Memory.IsSet() && least > all {
		report("balloon", "%s is more than memory, %s: PVE refuses every change of the two; give memory or less", least, all)
	}
	v.validateDisks(report)
	v.validateNetworks(report)
	v.validateHardware(report)
	v.validateOptions(report)
	v.validateCloudInit(report)
	extraFaults(report, v.Extra, false, &VM{template: v.template}, v.slots(silent))
}

// noNull reports null on a field that cannot be cleared.
func noNull[V any](report Report, path string, o field.Opt[V]) {
	if o.State() == field.Null {
		report(path, "null is not allowed here; leave the field out")
	}
}

func (v *VM) validateDisks(report Report) {
	switch {
	case v.Clone.IsSet() && len(v.Disks) > 0:
		report("disks", "a clone brings its template's disks; leave disks out, or clone")
	case !v.Clone.IsSet() && v.Disks == nil:
		report("disks", "required; [] means none")
	}
	for i := range v.Disks {
		d := &v.Disks[i]
		at := func(name string) string { return fmt.Sprintf("disks[%d].%s", i, name) }
		noNull(report, at("grow"), d.Grow)
		switch {
		case d.Image.IsSet() && d.Size.IsSet():
			report(at("size"), "an image decides the size; leave size out, or image")
		case !d.Image.IsSet() && !d.Size.IsSet():
			report(at("size"), "required unless image is given")
		}
		if d.Grow.Or(false) && d.Image.IsSet() {
			report(at("grow"), "an image-seeded disk has no size to grow to")
		}
		b, _ := bus(d.Slot(i))
		if b == "" {
			report(fmt.Sprintf("disks[%d]", i), "%s, the default slot of this position, is none that PVE has; set interface: %s", d.Slot(i), driveSlots)
		}
		if d.SSD.State() != field.Absent && b == "virtio" {
			report(at("ssd"), "PVE has no ssd on virtio; use scsi, sata or ide, or leave ssd out")
		}
		if d.IOThread.State() != field.Absent && b != "scsi" && b != "virtio" {
			report(at("iothread"), "PVE has iothread on scsi and virtio only, not on %s", b)
		}
		if d.ReadOnly.State() != field.Absent && b != "scsi" && b != "virtio" {
			report(at("read-only"), "PVE has read-only disks on scsi and virtio only, not on %s", b)
		}
	}
	v.slots(report)
}

// slots gives the slots that disks, cloud-init drive and CD use and what uses
// them, and reports each that two use.
func (v *VM) slots(report Report) map[string]string {
	used := map[string]string{}
	take := func(path, slot string) {
		if by, ok := used[slot]; ok {
			report(path, "%s is taken by %s; every drive has its own slot", slot, by)
			return
		}
		used[slot] = path
	}
	for i := range v.Disks {
		take(fmt.Sprintf("disks[%d]", i), v.Disks[i].Slot(i))
	}
	place := vmPlace(nil, v)
	if c := v.Hardware.CloudInit; c != nil && c.Enabled.Or(true) {
		take("hardware.cloud-init", place.cloudInit)
	}
	if v.Hardware.CDROM != nil {
		take("hardware.cdrom", place.cd)
	}
	return used
}

func (v *VM) validateNetworks(report Report) {
	used := map[int]string{}
	for i := range v.Networks {
		n := &v.Networks[i]
		at := fmt.Sprintf("networks[%d]", i)
		noNull(report, at+".model", n.Model)
		noNull(report, at+".mac", n.MAC)
		if m, ok := n.MTU.Get(); ok && m != 1 && m < 576 {
			report(at+".mtu", "%d is not 1 or in 576-65520", m)
		}
		uniqueSlot(report, used, at, "net", n.Slot.Or(i), maxNet)
	}
}

func uniqueSlot(report Report, used map[int]string, path, family string, slot, max int) {
	if slot > max {
		report(path, "%s%d, the default slot of this position, is none that PVE has (%s0-%s%d)", family, slot, family, family, max)
		return
	}
	if by, ok := used[slot]; ok {
		report(path, "%s%d is taken by %s; give one of them another slot", family, slot, by)
		return
	}
	used[slot] = path
}

func (v *VM) validateHardware(report Report) {
	h := &v.Hardware
	if c := h.CDROM; c != nil {
		noNull(report, "hardware.cdrom.media", c.Media)
		if c.Media.Or("cdrom") == "disk" {
			report("hardware.cdrom.media", "PVE takes ISO images as media cdrom only; leave media out")
		}
	}
	if e := h.EFIDisk; e != nil {
		noNull(report, "hardware.efi-disk.size", e.Size)
		noNull(report, "hardware.efi-disk.template", e.Template)
		if h.BIOS.Or("ovmf") != "ovmf" {
			report("hardware.efi-disk", "an EFI disk needs bios: ovmf, and bios is %s", h.BIOS.Or(""))
		}
	}
	if t := h.TPM; t != nil {
		noNull(report, "hardware.tpm.version", t.Version)
		if h.tpmStorage() == "" {
			report("hardware.tpm.storage", "required where there is no efi-disk to take it from")
		}
	}
	if c := h.CloudInit; c != nil {
		noNull(report, "hardware.cloud-init.enabled", c.Enabled)
		noNull(report, "hardware.cloud-init.size", c.Size)
		if c.Enabled.Or(true) && c.Storage.State() == field.Absent {
			report("hardware.cloud-init.storage", "required for the drive")
		}
	}
	used := map[int]string{}
	for i := range h.PCIDevices {
		p := &h.PCIDevices[i]
		at := fmt.Sprintf("hardware.pci-devices[%d]", i)
		noNull(report, at+".device", p.Device)
		noNull(report, at+".mapping", p.Mapping)
		switch d, m := p.Device.State(), p.Mapping.State(); {
		case d == field.Set && m == field.Set:
			report(at, "device and mapping exclude each other; keep one")
		case d == field.Absent && m == field.Absent:
			report(at+".device", "device or mapping is required")
		}
		uniqueSlot(report, used, at, "hostpci", p.Slot.Or(i), maxHostPCI)
	}
}

func (v *VM) validateOptions(report Report) {
	o := &v.Options
	for _, f := range v.CPU.Flags.Or(nil) {
		switch name := strings.TrimLeft(f, "+-"); {
		case name == "nested-virt" && o.NestedVirt.State() != field.Absent:
			report("cpu.flags", "nested-virt stands here and in options.nested-virt; keep one")
		case name == "hidden" && o.Hidden.State() != field.Absent:
			report("cpu.flags", "hidden stands here and in options.hidden; keep one")
		}
	}
	for i, dev := range o.BootOrder.Or(nil) {
		if fault := v.bootFault(dev); fault != "" {
			report(fmt.Sprintf("options.boot-order[%d]", i), "%s", fault)
		}
	}
}

// bootFault is why the VM cannot boot from a device: the manifest declares
// every drive and card but what a clone brings and a CD that it does not own.
func (v *VM) bootFault(dev string) string {
	if _, ok := bus(dev); ok {
		inExtra := slices.ContainsFunc(v.Extra, func(e field.MapEntry[string]) bool { return e.Key == dev })
		cd := v.Hardware.CDROM == nil && (dev == "ide2" || dev == "ide3")
		if v.slots(silent)[dev] == "" && !inExtra && !cd && !v.Clone.IsSet() {
			return dev + " is no drive that the manifest declares"
		}
	}
	if n, ok := numbered(dev, "net"); ok {
		has := false
		for i := range v.Networks {
			has = has || v.Networks[i].Slot.Or(i) == n
		}
		if !has {
			return dev + " is no card that the manifest declares"
		}
	}
	return ""
}

func (v *VM) validateCloudInit(report Report) {
	const at = "cloud-init-data."
	c := &v.CloudInit
	if c.SSHKeys.State() != field.Absent && c.SSHKeyRefs.State() != field.Absent {
		report(at+"ssh-key-refs", "ssh-keys and ssh-key-refs exclude each other; keep one")
	}
	keyFaults(report, at+"ssh-keys", c.SSHKeys, true)
	used := map[int]string{}
	for i := range c.IPConfigs {
		p := &c.IPConfigs[i]
		path := fmt.Sprintf("cloud-init-data.ipconfigs[%d]", i)
		prefix(report, path+".ip", p.IP)
		prefix(report, path+".ip6", p.IP6)
		gateway(report, path+".ip", p.Gateway, p.IP)
		gateway(report, path+".ip6", p.Gateway6, p.IP6)
		if p.IP.State() == field.Absent && p.IP6.State() == field.Absent && !p.Gateway.IsSet() && !p.Gateway6.IsSet() {
			report(path+".ip", "ip or ip6 is required")
		}
		uniqueSlot(report, used, path, "ipconfig", p.NIC.Or(i), maxIPConfig)
	}
}

// prefix refuses prefix lengths below 8, which PVE does not take.
func prefix(report Report, path string, ip field.Opt[string]) {
	if p, err := netip.ParsePrefix(ip.Or("")); err == nil && p.Bits() < 8 {
		report(path, "a prefix length below 8 is none that PVE takes")
	}
}

// gateway wants an address beside a gateway; what is missing is said of ip, so
// that a faulty ip is reported once.
func gateway(report Report, ipPath string, gw, ip field.Opt[string]) {
	if gw.IsSet() && !ip.IsSet() {
		report(ipPath, "an address is required beside a gateway")
	}
}

// keyFaults checks ssh-keys; keep says whether the sentinel "*" is known.
func keyFaults(report Report, path string, keys field.Opt[[]string], keep bool) {
	list := keys.Or(nil)
	for i, k := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case k == keepKeys && !keep:
			report(at, `"*" is known for VMs only; containers take keys at create alone`)
		case k == keepKeys && len(list) > 1:
			report(at, `"*" leaves the live keys alone and cannot stand beside keys; keep one or the other`)
		case k != keepKeys && !publicKey(k):
			report(at, "not a public key line such as ssh-ed25519 AAAA… name")
		}
	}
}

// PublicKeys are the lines of an entry that ssh-key-refs can name. The error
// tells of the first line that is no public key, which PVE would refuse without
// saying where it stands, and never shows any of it.
func PublicKeys(entry secret.Text) ([]string, error) {
	lines := wire.SplitKeys(entry.Reveal())
	if len(lines) == 0 {
		return nil, errors.New("the entry is empty; a public key is needed")
	}
	for i, l := range lines {
		if !publicKey(l) {
			return nil, fmt.Errorf("line %d of the entry is no public key such as ssh-ed25519 AAAA… name; set it anew", i+1)
		}
	}
	return lines, nil
}

// publicKey accepts what sshd takes in authorized_keys, options in front
// included, and no private key. A key says in itself again of what type it is,
// after four bytes with the length of that. PVE asks ssh-keygen, which knows
// more types than a library would (facts xiii).
func publicKey(line string) bool {
	words := strings.Fields(line)
	for i, w := range words {
		if !keyType.MatchString(w) || i+1 == len(words) {
			continue
		}
		blob, err := base64.StdEncoding.DecodeString(words[i+1])
		if err == nil && len(blob) > 4+len(w) && string(blob[:4+len(w)]) == string(binary.BigEndian.AppendUint32(nil, uint32(len(w))))+w {
			return true
		}
	}
	return false
}

var keyType = fullMatch(`(?:ssh|ecdsa|sk)-[a-z0-9@.-]+`)

// Warn implements Spec.
func (v *VM) Warn(report Report) {
	first := ""
	for i := range v.Disks {
		c, ok := v.Disks[i].Controller.Get()
		switch {
		case !ok:
		case first == "":
			first = c
		case c != first:
			report(fmt.Sprintf("disks[%d].controller", i), "the VM has one controller; %s of the first disk that names one wins over %s", first, c)
		}
	}
	if v.Hardware.TPM != nil && v.Hardware.BIOS.Or("seabios") != "ovmf" {
		report("hardware.tpm", "a TPM is of use with bios: ovmf and machine: q35")
	}
	if v.Hardware.EFIDisk != nil && !v.Hardware.BIOS.IsSet() {
		report("hardware.efi-disk", "an EFI disk is of use with bios: ovmf, and bios is left out: a new VM gets seabios")
	}
	for i := range v.Hardware.PCIDevices {
		if m := v.Hardware.Machine.Or("pc"); v.Hardware.PCIDevices[i].PCIe.Or(false) && !strings.Contains(m, "q35") {
			report(fmt.Sprintf("hardware.pci-devices[%d].pcie", i), "a PCI Express device needs machine: q35: PVE starts no other VM that has one")
		}
	}
	for i := range v.Networks {
		n := &v.Networks[i]
		if m := n.Model.Or("virtio"); n.MTU.IsSet() && m != "virtio" { // left out: a new card is virtio
			report(fmt.Sprintf("networks[%d].mtu", i), "PVE gives an mtu to virtio cards only; this one is %s and goes without", m)
		}
	}
	v.warnCloudInit(report)
}

// warnCloudInit reports data that no drive brings to the guest. A clone has the
// drive of its template.
func (v *VM) warnCloudInit(report Report) {
	drive := v.Hardware.CloudInit != nil && v.Hardware.CloudInit.Enabled.Or(true) || v.Clone.IsSet() ||
		slices.ContainsFunc(v.Extra, func(e field.MapEntry[string]) bool { return strings.Contains(e.Value.Or(""), "cloudinit") })
	d := &v.CloudInit
	data := d.User.IsSet() || d.SSHKeys.IsSet() || d.SSHKeyRefs.IsSet() || d.PasswordRef.IsSet() || d.Nameservers.IsSet() || d.SearchDomains.IsSet() || len(d.IPConfigs) > 0
	if drive || !data {
		return
	}
	report("cloud-init-data", "no cloud-init drive is declared (hardware.cloud-init): without one the guest sees nothing of it")
}
