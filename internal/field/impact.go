package field

import (
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/wire"
)

// impact is what a change of a row does to the guest as it runs now.
func (d *differ) impact(r *Row) Impact {
	switch {
	case !d.g.Running:
		return None
	case r.Hotplug != "" && d.g.Hotplugs(r.Hotplug):
		return Live
	case r.Hotplug != "" && r.Impact == None:
		return Pending
	}
	return r.Impact
}

// volumeImpact is what filling an empty slot does: containers take a mount
// point while they run; of a VM's buses only scsi and virtio are plugged in.
func (d *differ) volumeImpact(v *Volume) Impact {
	class := wire.KeyClass(v.Key)
	switch {
	case !d.g.Running:
		return None
	case d.g.LXC, (class == "scsi" || class == "virtio") && v.Kind == Disk && d.g.Hotplugs("disk"):
		return Live
	}
	return Pending
}

// Hotplugs reports whether the guest takes changes of a class ("cpu",
// "memory", "disk", "network", "usb") while it runs. Without the option PVE
// hotplugs network, disk and usb; 1 means the same and 0 none. Memory needs
// NUMA beside the option. A container has no such option and takes them all.
func (g *Guest) Hotplugs(class string) bool {
	if g.LXC {
		return true
	}
	text, ok := g.running("hotplug")
	classes := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",; ", r) })
	if !ok || text == "1" {
		classes = []string{"network", "disk", "usb"}
	}
	if class == "memory" {
		numa, _ := g.running("numa")
		if on, _ := wire.ParseBool(numa); !on {
			return false
		}
	}
	return slices.Contains(classes, class)
}

// running is the text of a key as the guest runs now.
func (g *Guest) running(key string) (string, bool) {
	e, ok := g.Config[key]
	if !ok || e.Value == nil {
		return "", false
	}
	return *e.Value, true
}
