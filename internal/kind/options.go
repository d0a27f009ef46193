package kind

import (
	"errors"
	"strings"

	"github.com/proxops/proxops/internal/field"
)

// Options is the block options of a VM.
type Options struct {
	OnBoot     field.Opt[bool]
	Startup    field.Opt[string]
	Protection field.Opt[bool]
	Agent      field.Opt[bool]
	ACPI       field.Opt[bool]
	Tablet     field.Opt[bool]
	Hotplug    field.Opt[[]string]
	BootOrder  field.Opt[[]string]
	NestedVirt field.Opt[bool]
	Hidden     field.Opt[bool]
	OSType     field.Opt[string]
}

// osTypes are PVE's guest operating systems of VMs.
var osTypes = []string{"l26", "l24", "win11", "win10", "win8", "win7", "wvista", "w2k8", "w2k3", "w2k", "wxp", "solaris", "other"}

func (o *Options) shape(v *VM, live *field.Guest) *field.Block {
	hot := field.Var(&o.Hotplug, "hotplug", "hotplug", "", hotplugs,
		`What may be plugged into the running VM: a list or comma string of network, disk, usb, memory, cpu and cloudinit; "0" for nothing.`).
		PVEDefault(defaultHotplug).On(field.Live)
	if now, _ := live.Get("hotplug"); strings.Contains(now+strings.Join(o.Hotplug.Or(nil), ","), "memory") {
		hot.On(field.Pending) // PVE cannot turn memory hotplug on or off while the VM runs
	}
	nested := field.Var(&o.NestedVirt, "nested-virt", "cpu", "flags", nestedFlag,
		"Whether the guest may run VMs itself, as the cpu flag nested-virt; other flags stay.").On(field.Pending)
	return field.Group("options", "Options of the VM.",
		onbootRow(&o.OnBoot), startupRow(&o.Startup), protectionRow(&o.Protection),
		field.Var(&o.Agent, "agent", "agent", "enabled", yesNo,
			"Channel to the QEMU guest agent; other settings of the agent stay as they are.").PVEDefault("0").On(field.Pending),
		field.Var(&o.ACPI, "acpi", "acpi", "", yesNo,
			"ACPI, which a clean shutdown without guest agent needs.").PVEDefault("1").On(field.Pending),
		field.Var(&o.Tablet, "tablet", "tablet", "", yesNo,
			"USB tablet, for a mouse pointer in step with the console.").PVEDefault("1").On(field.Pending).HotplugBy("usb"),
		hot,
		field.Var(&o.BootOrder, "boot-order", "boot", "", v.bootCodec(),
			"Devices to boot from, first one first: a list or comma string of drive slots, netN, hostpciN and usbN that the VM has.").On(field.Pending),
		nested,
		field.Var(&o.Hidden, "hidden", "cpu", "hidden", yesNo,
			"Hides KVM from the guest, as the token hidden of cpu.").PVEDefault("0").On(field.Pending),
		field.Var(&o.OSType, "ostype", "ostype", "", osType,
			"Guest operating system, which decides PVE's tuning: l26 for Linux, win11, other and so on.").PVEDefault("other").On(field.Pending),
	)
}

// bootCodec reads a live order for adopt only where the manifest can say it.
func (v *VM) bootCodec() field.Codec[[]string] {
	c := bootOrders
	c.Read = func(s string) ([]string, error) {
		devs, err := bootOrders.Read(s)
		for _, dev := range devs {
			if fault := v.bootFault(dev); fault != "" && err == nil {
				err = errors.New(fault)
			}
		}
		return devs, err
	}
	return c
}

func onbootRow(o *field.Opt[bool]) *field.Row {
	return field.Var(o, "onboot", "onboot", "", yesNo,
		"Starts the guest when its node boots.").PVEDefault("0").On(field.Live)
}

func startupRow(o *field.Opt[string]) *field.Row {
	return field.Var(o, "startup", "startup", "", startupOrder,
		"Order and pauses at the start and stop of the node: [order=]N[,up=SECONDS][,down=SECONDS].").On(field.Live)
}

func protectionRow(o *field.Opt[bool]) *field.Row {
	return field.Var(o, "protection", "protection", "", yesNo,
		"PVE then refuses to destroy the guest or to remove a disk of it.").PVEDefault("0").On(field.Live)
}

// windows reports whether the VM runs Windows, by the manifest or, where that
// is silent, by live: its cloud-init wants the password in clear.
func (v *VM) windows(live *field.Guest) bool {
	os, ok := v.Options.OSType.Get()
	if !ok {
		os, _ = live.Get("ostype")
	}
	return strings.HasPrefix(os, "w")
}
