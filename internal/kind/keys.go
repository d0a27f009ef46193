package kind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
)

// vmKeys and ctKeys are the keys of a guest's configuration in PVE 9.2 that
// have no number, without the control parameters of its calls.
var (
	vmKeys = strings.Fields(`
acpi affinity agent allow-ksm amd-sev arch args autostart balloon bios boot bootdisk cicustom
cipassword citype ciupgrade ciuser cores cpu cpulimit cpuunits description freeze hookscript
hotplug hugepages intel-tdx ivshmem keephugepages keyboard kvm localtime machine memory
migrate_downtime migrate_speed name nameserver numa onboot ostype protection reboot scsihw
searchdomain shares smbios1 smp sockets spice_enhancements sshkeys startdate startup tablet tags
tdf vcpus vga vmgenid vmstatestorage watchdog`)
	ctKeys = strings.Fields(`
arch cmode console cores cpulimit cpuunits debug description entrypoint env features hookscript
hostname memory nameserver onboot ostype protection rootfs searchdomain startup swap tags timezone
tty`)
)

// family is a numbered key, from 0 to max.
type family struct {
	name string
	max  int
}

var (
	vmFamilies = []family{
		{"audio", 0}, {"efidisk", 0}, {"hostpci", maxHostPCI}, {"ide", 3}, {"ipconfig", maxIPConfig}, {"net", maxNet},
		{"numa", 7}, {"parallel", 2}, {"rng", 0}, {"sata", 5}, {"scsi", 30}, {"serial", 3}, {"tpmstate", 0},
		{"usb", 13}, {"virtio", 15}, {"virtiofs", 9},
	}
	ctFamilies = []family{{"dev", 255}, {"mp", maxMP}, {"net", maxNet}}
)

// unknownKey is nil for a key that PVE's configuration of a guest has, and
// otherwise says so, with the nearest one that it has.
func unknownKey(lxc bool, key string) error {
	what, keys, families := "VM", vmKeys, vmFamilies
	if lxc {
		what, keys, families = "container", ctKeys, ctFamilies
	}
	if slices.Contains(keys, key) {
		return nil
	}
	name := strings.TrimRight(key, "0123456789")
	names := slices.Clone(keys)
	for _, f := range families {
		n, ok := numbered(key, f.name)
		switch {
		case ok && n <= f.max:
			return nil
		case name == f.name && f.max == 0:
			return fmt.Errorf("%q is not a key of a %s in PVE, which has %s0 alone", key, what, name)
		case name == f.name:
			return fmt.Errorf("%q is not a key of a %s in PVE, which has %s0-%s%d", key, what, name, name, f.max)
		}
		names = append(names, f.name+key[len(name):])
	}
	if near := field.Nearest(key, names); near != "" && near != key {
		return fmt.Errorf("%q is not a key of a %s in PVE; did you mean %s?", key, what, near)
	}
	return fmt.Errorf("%q is not a key of a %s in PVE", key, what)
}
