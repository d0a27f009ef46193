package pvesim

import (
	"errors"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// qemuApplyPending is vmconfig_apply_pending: it puts pending changes into force on a guest that does not run. What cannot be applied
// stays pending, and is reported again by every later change (facts.md D).
func (a *Actor) qemuApplyPending(g *Guest, errs map[string]string) error {
	fail := func(k string, err error) {
		errs[k] = "unable to apply pending change " + k + " : " + err.Error() + "\n"
		a.Logf("%s", strings.TrimSuffix(errs[k], "\n"))
	}
	for _, k := range sortedKeys(g.Delete) {
		if err := a.qemuDropDrive(g, k, g.Delete[k]); err != nil {
			fail(k, err)
			continue
		}
		delete(g.Delete, k)
		delete(g.Config, k)
	}
	g.cleanPending()
	generate := false
	for _, k := range g.Pending.Keys() {
		if old := g.Config[k]; old != "" && isDrive(k) {
			if d, ok := parseDrive(k, old); ok {
				if err := a.registerUnused(g, d); err != nil {
					fail(k, err)
					continue
				}
			}
		}
		if d, ok := parseDrive(k, g.Pending[k]); ok && isDrive(k) && d.cloudinit() {
			generate = true
		}
		g.Config[k] = g.Pending[k]
		delete(g.Pending, k)
	}
	qemuSaved(g)
	if generate {
		return a.qemuCloudinitWrite(g)
	}
	return nil
}

// qemuDropDrive is vmconfig_delete_or_detach_drive; keys that are no drives, or not set, need nothing.
func (a *Actor) qemuDropDrive(g *Guest, k string, force bool) error {
	old := g.Config[k]
	if old == "" || !isDrive(k) {
		return nil
	}
	d, ok := parseDrive(k, old)
	switch {
	case !ok:
		return nil
	case !force:
		return a.registerUnused(g, d)
	}
	if err := a.vmPerm(g.VMID, "", "VM.Config.Disk"); err != nil {
		return err
	}
	if d.cloudinit() {
		return a.registerUnused(g, d)
	}
	return a.deallocate(g, d)
}

// skipped is PVE's "skip": the key cannot change while the guest runs and stays pending.
type skipped struct{}

func (skipped) Error() string { return "skip" }

// qemuHotplug is vmconfig_hotplug_pending: of the pending changes of a running guest it applies those that never touch the machine,
// and, of the keys that this change modified, those that can be plugged.
func (a *Actor) qemuHotplug(g *Guest, modified map[string]bool, errs map[string]string) {
	for _, k := range g.Pending.Keys() {
		if fastPlug(k) {
			old, had := g.Config[k]
			g.cloudinitChanged(k, old, had, g.Pending[k], true)
			g.Config[k] = g.Pending[k]
			delete(g.Pending, k)
		}
	}
	features := hotplugFeatures(g.Config)
	note := func(k string, err error) {
		if !errors.Is(err, skipped{}) {
			errs[k] = "hotplug problem - " + err.Error() + "\n"
		}
	}
	for _, k := range sortedKeys(g.Delete) {
		if !modified[k] {
			continue
		}
		if err := a.qemuUnplug(g, k, g.Delete[k], features); err != nil {
			note(k, err)
			continue
		}
		old, had := g.Config[k]
		g.cloudinitChanged(k, old, had, "", false)
		delete(g.Config, k)
		delete(g.Delete, k)
	}
	cloudinit := ""
	for _, k := range g.Pending.Keys() {
		if !modified[k] {
			continue
		}
		if d, ok := parseDrive(k, g.Pending[k]); ok && isDrive(k) && d.cloudinit() {
			cloudinit = k
			continue
		}
		if err := a.qemuPlug(g, k, g.Pending[k], features); err != nil {
			note(k, err)
			continue
		}
		old, had := g.Config[k]
		g.cloudinitChanged(k, old, had, g.Pending[k], true)
		g.Config[k] = g.Pending[k]
		delete(g.Pending, k)
	}
	if cloudinit != "" {
		if err := a.qemuPlugCloudinit(g, cloudinit, features["disk"]); err != nil {
			note(cloudinit, err)
		}
	}
	qemuSaved(g)
	if features["cloudinit"] && len(g.CloudInit) > 0 {
		if err := a.qemuCloudinitRefresh(g); err != nil {
			a.Logf("%s", err.Error())
		}
	}
}

// qemuPlugCloudinit writes a cloud-init drive that is to be plugged, last of all, when everything else on it is in force.
func (a *Actor) qemuPlugCloudinit(g *Guest, k string, plug bool) error {
	if err := a.qemuCloudinitWrite(g); err != nil {
		return err
	}
	if err := a.qemuPlugDrive(g, k, g.Pending[k], plug); err != nil {
		return err
	}
	g.Config[k] = g.Pending[k]
	delete(g.Pending, k)
	return nil
}

// usbHotplug says whether USB devices can be plugged: only guests of a modern system get the controller for it.
func usbHotplug(g *Guest, features map[string]bool) bool {
	return features["usb"] && slices.Contains([]string{"l26", "win8", "win10", "win11"}, g.Config["ostype"])
}

func (a *Actor) qemuUnplug(g *Guest, k string, force bool, features map[string]bool) error {
	f := family(k)
	switch {
	case k == "hotplug":
		if strings.Contains(g.Config[k], "cpu") || strings.Contains(g.Config[k], "memory") {
			return skipped{}
		}
	case k == "tablet":
		if !features["usb"] {
			return skipped{}
		}
	case f == "usb" && f != k:
		if !usbHotplug(g, features) {
			return skipped{}
		}
	case k == "vcpus":
		if !features["cpu"] {
			return skipped{}
		}
	case k == "balloon":
		if g.Config[k] == "0" {
			return skipped{}
		}
	case k == "memory":
		if !features["memory"] {
			return skipped{}
		}
	case fastPlug(k), k == "cpuunits", k == "cpulimit":
	case f == "net" && f != k:
		if !features["network"] {
			return skipped{}
		}
		return a.pciUnplug(g, k)
	case isDrive(k):
		if !features["disk"] || f != "scsi" && f != "virtio" {
			return skipped{}
		}
		if f == "virtio" {
			if err := a.pciUnplug(g, k); err != nil {
				return err
			}
		}
		return a.qemuDropDrive(g, k, force)
	default:
		return skipped{}
	}
	return nil
}

// pciUnplug asks the guest's system to let go of a PCI device; one that has no system, or is paused, never does.
func (a *Actor) pciUnplug(g *Guest, k string) error {
	if _, there := g.Config[k]; !there {
		return nil
	}
	if !a.w.hasSystem(g) || g.Suspended {
		return die("error on hot-unplugging device '%s' - still busy in guest?", k)
	}
	return nil
}

// hasSystem says whether a VM boots an operating system that reacts: one of its disks was filled with more than a bare partition table.
func (w *World) hasSystem(g *Guest) bool {
	for k, volid := range g.Config.volids() {
		if v := w.volume(g.Node, volid); v != nil && isDrive(k) && v.Content == contentImages && v.Used > 64<<10 && !cloudinitVolume.MatchString(volid) {
			return true
		}
	}
	return false
}

func (a *Actor) qemuPlug(g *Guest, k, value string, features map[string]bool) error {
	f := family(k)
	switch {
	case k == "hotplug":
		now, was := hotplugFeatures(Section{k: value}), features
		if now["memory"] || was["memory"] || now["cpu"] || was["cpu"] {
			return skipped{}
		}
	case k == "tablet":
		if !features["usb"] {
			return skipped{}
		}
	case f == "usb" && f != k:
		if !usbHotplug(g, features) {
			return skipped{}
		}
	case k == "vcpus":
		return a.plugCPUs(g, value, features)
	case k == "balloon":
		if old, set := g.Config[k]; (set && old == "0") != (value == "0") {
			return skipped{}
		}
	case k == "cpuunits", k == "cpulimit":
	case f == "net" && f != k:
		return a.qemuPlugNet(g, k, value, features["network"])
	case isDrive(k):
		if f == "efidisk" || f == "tpmstate" {
			return skipped{}
		}
		return a.qemuPlugDrive(g, k, value, features["disk"])
	case k == "memory":
		if !features["memory"] {
			return skipped{}
		}
	case k == "agent":
		return plugAgent(g, value)
	default:
		return skipped{}
	}
	return nil
}

func (a *Actor) plugCPUs(g *Guest, value string, features map[string]bool) error {
	n := Params{"v": value}.Int("v", 0)
	switch {
	case !features["cpu"]:
		return skipped{}
	case n > g.number("cores", 1)*g.number("sockets", 1):
		return die("you can't add more vcpus than maxcpus")
	case n < g.cpus() && !a.w.hasSystem(g):
		return die("error unplugging cpu%d", g.cpus())
	}
	return nil
}

// plugAgent lets through what changes nothing in the machine: another spelling, or fstrim_cloned_disks.
func plugAgent(g *Guest, value string) error {
	old, set := g.Config["agent"]
	p, ok := qemuConfigMethod().Key("agent")
	if !set || !ok || p.Format == nil {
		return skipped{}
	}
	was, err := p.Format.Parse("agent", old)
	if err != nil {
		return skipped{}
	}
	is, err := p.Format.Parse("agent", value)
	if err != nil {
		return skipped{}
	}
	delete(was, "fstrim_cloned_disks")
	delete(is, "fstrim_cloned_disks")
	if !sameProps(was, is) {
		return skipped{}
	}
	return nil
}

func sameProps(a, b schema.Props) bool {
	for k := range a {
		if a[k] != b[k] {
			return false
		}
	}
	return len(a) == len(b)
}

// qemuPlugNet is vmconfig_update_net: bridge, VLAN, rate, firewall and link state change on the fly, another model, MAC, queue number
// or MTU need the device to be unplugged.
func (a *Actor) qemuPlugNet(g *Guest, k, value string, plug bool) error {
	is, err := parseNet(k, value)
	if err != nil {
		return err
	}
	if old := g.Config[k]; old != "" {
		was, err := parseNet(k, old)
		if err != nil {
			return err
		}
		same := true
		for _, f := range []string{"model", "macaddr", "queues", "mtu"} {
			same = same && was[f] == is[f]
		}
		if same {
			if was["bridge"] != is["bridge"] {
				return a.bridgeThere(is["bridge"])
			}
			return nil
		}
		if !plug {
			return skipped{}
		}
		if err := a.pciUnplug(g, k); err != nil {
			return err
		}
	}
	if !plug {
		return skipped{}
	}
	return a.bridgeThere(is["bridge"])
}

func (a *Actor) bridgeThere(bridge string) error {
	if n := a.w.node(a.Node); bridge != "" && n != nil && !slices.Contains(n.Bridges, bridge) {
		return die("bridge '%s' does not exist", bridge)
	}
	return nil
}

// qemuPlugDrive is vmconfig_update_disk.
func (a *Actor) qemuPlugDrive(g *Guest, k, value string, plug bool) error {
	is, ok := parseDrive(k, value)
	if !ok {
		return skipped{}
	}
	if was, ok := parseDrive(k, g.Config[k]); ok && g.Config[k] != "" {
		switch {
		case orElse(was.props["media"], "disk") != orElse(is.props["media"], "disk"):
			return die("unable to change media type")
		case was.cdrom(false):
			if was.cloudinit() && was.file() != is.file() {
				return a.registerUnused(g, was)
			}
			return nil
		case was.file() != is.file():
			if !plug {
				return skipped{}
			}
			if family(k) == "virtio" {
				if err := a.pciUnplug(g, k); err != nil {
					return err
				}
			}
			if err := a.registerUnused(g, was); err != nil {
				return err
			}
		default:
			for _, f := range []string{"aio", "discard", "iothread", "queues", "product", "cache", "ssd", "vendor", "ro"} {
				if was.props[f] != is.props[f] {
					return skipped{}
				}
			}
			return nil
		}
	}
	if f := family(k); !plug || f == "ide" || f == "sata" {
		return skipped{}
	}
	return nil
}
