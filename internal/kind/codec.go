package kind

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// Patterns of PVE's own names (its formats pve-node, pve-storage-id,
// pve-poolid, dns-name and pve-configid).
const (
	nodePattern    = `[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?`
	storagePattern = `[a-zA-Z][a-zA-Z0-9._-]*[a-zA-Z0-9]`
	poolPattern    = `[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+){0,2}`
	dnsPattern     = `[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*`
	bridgePattern  = `[-_.a-zA-Z0-9]+`
	// NamePattern is metadata.name of every kind.
	NamePattern = `[a-z0-9]+(?:-[a-z0-9]+)*`
)

func nodeCodec() field.Codec[string] {
	return field.TextMatching(nodePattern, "a node name: letters, digits and inner hyphens", "pve01")
}

func storageCodec() field.Codec[string] {
	return field.TextMatching(storagePattern, "a storage id: a letter first, then letters, digits and . _ -", "local-lvm")
}

func poolCodec() field.Codec[string] {
	return field.TextMatching(poolPattern, "a pool id: letters, digits and . _ -, up to three parts joined by /", "production")
}

func dnsCodec(eg string) field.Codec[string] {
	return field.TextMatching(dnsPattern, "a DNS name: letters, digits and inner hyphens, parts joined by dots", eg)
}

// refCodec is the metadata.name of another resource.
func refCodec(what, eg string) field.Codec[string] {
	return field.TextMatching(NamePattern, "the metadata.name of "+what, eg)
}

// secretRef is a dot path below prefix in the SOPS document.
func secretRef(prefix string) string {
	return regexp.QuoteMeta(prefix) + `[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*`
}

// Prefixes of references into the SOPS document.
const (
	KeyRefPrefix      = "cloud-init.ssh-keys."
	PasswordRefPrefix = "cloud-init.passwords."
)

// driveBuses are the buses of a VM's drives and PVE's highest index of each
// (facts.md C).
var driveBuses = []struct {
	name string
	max  int
}{{"scsi", 30}, {"virtio", 15}, {"sata", 5}, {"ide", 3}}

// Highest indexes of the numbered keys (facts.md C).
const (
	maxNet      = 31
	maxIPConfig = 31
	maxHostPCI  = 15
	maxMP       = 255
)

// bus gives the bus of a drive slot such as scsi0, and whether PVE has the slot.
func bus(slot string) (string, bool) {
	for _, b := range driveBuses {
		digits, ok := strings.CutPrefix(slot, b.name)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(digits)
		return b.name, err == nil && n >= 0 && n <= b.max && strconv.Itoa(n) == digits
	}
	return "", false
}

// numbered splits a key such as net3 of the family net.
func numbered(key, family string) (int, bool) {
	digits, ok := strings.CutPrefix(key, family)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == digits
}

const driveSlots = "scsi0-scsi30, virtio0-virtio15, sata0-sata5 or ide0-ide3"

// driveSlot is a drive slot in full.
func driveSlot(eg string) field.Codec[string] {
	c := field.TextMatching(`(?:scsi|virtio|sata|ide)[0-9]+`, driveSlots, eg)
	parse := c.Parse
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := parse(n)
		if err == nil {
			if _, ok := bus(s); !ok {
				err = fmt.Errorf("%q is not a slot that PVE has: %s", s, driveSlots)
			}
		}
		return s, err
	}
	return c
}

// emptyAbsent lets the empty string or list through as the empty value, which
// the spec then takes for an absent field (cloud-init-data only).
func emptyAbsent[V any](c field.Codec[V]) field.Codec[V] {
	parse := c.Parse
	c.Parse = func(n *yamldoc.Node) (V, error) {
		if n.Kind == yamldoc.Scalar && n.Tag == yamldoc.String && n.Value == "" ||
			n.Kind == yamldoc.Sequence && len(n.Items) == 0 {
			var zero V
			return zero, nil
		}
		return parse(n)
	}
	return c
}

// cpuModels are the built-in CPU types of PVE 9.2.
var cpuModels = strings.Fields(`
486 a64fx athlon Broadwell Broadwell-IBRS Broadwell-noTSX Broadwell-noTSX-IBRS
Cascadelake-Server Cascadelake-Server-noTSX Cascadelake-Server-v2 Cascadelake-Server-v4
Cascadelake-Server-v5 ClearwaterForest Conroe Cooperlake Cooperlake-v2 core2duo coreduo
cortex-a35 cortex-a53 cortex-a55 cortex-a57 cortex-a710 cortex-a72 cortex-a76 EPYC
EPYC-Genoa EPYC-Genoa-v2 EPYC-IBPB EPYC-Milan EPYC-Milan-v2 EPYC-Milan-v3 EPYC-Rome
EPYC-Rome-v2 EPYC-Rome-v3 EPYC-Rome-v4 EPYC-Rome-v5 EPYC-Turin EPYC-v3 EPYC-v4 EPYC-v5
GraniteRapids GraniteRapids-v2 GraniteRapids-v3 Haswell Haswell-IBRS Haswell-noTSX
Haswell-noTSX-IBRS host Icelake-Client Icelake-Client-noTSX Icelake-Server
Icelake-Server-noTSX Icelake-Server-v3 Icelake-Server-v4 Icelake-Server-v5
Icelake-Server-v6 Icelake-Server-v7 IvyBridge IvyBridge-IBRS KnightsMill kvm32 kvm64 max
Nehalem Nehalem-IBRS neoverse-n1 neoverse-n2 neoverse-v1 Opteron_G1 Opteron_G2 Opteron_G3
Opteron_G4 Opteron_G5 Penryn pentium pentium2 pentium3 phenom qemu32 qemu64 SandyBridge
SandyBridge-IBRS SapphireRapids SapphireRapids-v2 SapphireRapids-v3 SapphireRapids-v4
SierraForest SierraForest-v2 SierraForest-v3 Skylake-Client Skylake-Client-IBRS
Skylake-Client-noTSX-IBRS Skylake-Client-v4 Skylake-Server Skylake-Server-IBRS
Skylake-Server-noTSX-IBRS Skylake-Server-v4 Skylake-Server-v5 Westmere Westmere-IBRS
x86-64-v2 x86-64-v2-AES x86-64-v3 x86-64-v4`)

// cpuFlags are the flags that a single VM may set (facts.md A ii).
var cpuFlags = []string{
	"aes", "amd-no-ssb", "amd-ssbd", "hv-evmcs", "hv-tlbflush", "ibpb", "md-clear",
	"nested-virt", "pcid", "pdpe1gb", "spec-ctrl", "ssbd", "virt-ssbd",
}

// cpuType is a CPU type of PVE, in any case, sent in PVE's spelling; or
// custom-<name>.
func cpuType() field.Codec[string] {
	models := field.OneOf(cpuModels...)
	c := field.Fold(field.Text())
	text := c.Parse
	c.Type.Examples = []string{"host", "x86-64-v2-AES", "kvm64"}
	c.Parse = func(n *yamldoc.Node) (string, error) {
		if n.Kind == yamldoc.Scalar && n.Tag == yamldoc.Int { // 486 is a CPU
			n = yamldoc.Str(n.Value)
		}
		s, err := text(n)
		if err != nil {
			return s, err
		}
		for _, m := range cpuModels {
			if strings.EqualFold(m, s) {
				return m, nil
			}
		}
		if rest, ok := strings.CutPrefix(s, "custom-"); ok && rest != "" {
			return s, nil
		}
		_, err = models.Parse(n)
		_, hint, near := strings.Cut(err.Error(), "; did you mean ")
		if near {
			return s, fmt.Errorf("%q is not a CPU type of PVE; did you mean %s", s, hint)
		}
		return s, fmt.Errorf("%q is not a CPU type of PVE, nor custom-<name>; host, kvm64 and x86-64-v2-AES are the usual ones", s)
	}
	return c
}

// Machine names that stand for PVE's two chipsets.
var machineVersion = regexp.MustCompile(`^(?:pc-i440fx|pc-q35|pc)-[0-9]+(?:\.[0-9]+)+(?:\+pve[0-9]+)?(?:\.pxe)?$`)

// machine is i440fx (PVE says pc), q35, or a versioned name verbatim. Without
// a version any version of the chipset satisfies it.
func machine() field.Codec[string] {
	chipset := func(s string) string {
		switch {
		case s == "q35", strings.HasPrefix(s, "pc-q35-"):
			return "q35"
		case s == "", s == "pc", s == "i440fx", strings.HasPrefix(s, "pc-"):
			return "i440fx"
		}
		return s
	}
	c := field.Text()
	c.Type.Pattern = `^(?:i440fx|pc|q35|(?:pc-i440fx|pc-q35|pc)-[0-9]+(?:\.[0-9]+)+(?:\+pve[0-9]+)?(?:\.pxe)?)$`
	c.Type.Examples = []string{"q35", "i440fx", "pc-q35-9.2+pve1"}
	parse := c.Parse
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := parse(n)
		if err == nil && s != "i440fx" && s != "pc" && s != "q35" && !machineVersion.MatchString(s) {
			err = fmt.Errorf("%q is not i440fx, q35 or a versioned name such as pc-q35-9.2", s)
		}
		return s, err
	}
	c.Write = func(s string) string {
		if s == "i440fx" {
			return "pc"
		}
		return s
	}
	c.Read = func(s string) (string, error) {
		if s == "pc" {
			return "i440fx", nil
		}
		return s, nil
	}
	c.Equal = func(want, live string, _ field.Env) bool {
		if machineVersion.MatchString(want) {
			return want == live
		}
		return chipset(want) == chipset(live)
	}
	return c
}

// balloon is a size in MiB, or 0 for no balloon device.
func balloon() field.Codec[wire.Size] {
	c := field.MiBSize(0, 0)
	parse, print := c.Parse, c.Print
	c.Type.Name = "size or 0"
	c.Type.Examples = []string{"1GiB", "0"}
	c.Parse = func(n *yamldoc.Node) (wire.Size, error) {
		if n.Kind == yamldoc.Scalar && n.Tag == yamldoc.Int && n.Value == "0" {
			return 0, nil
		}
		return parse(n)
	}
	c.Print = func(v wire.Size) *yamldoc.Node {
		if v == 0 {
			return yamldoc.Num(0)
		}
		return print(v)
	}
	return c
}

var hotplugClasses = []string{"network", "disk", "usb", "memory", "cpu", "cloudinit"}

// hotplug is a set of device classes; "0" alone turns it off. PVE's "1" means
// its default.
func hotplug() field.Codec[[]string] {
	one := field.OneOf(append([]string{"0"}, hotplugClasses...)...)
	c := field.Strings(field.ListOptions{
		Sep: ",", Cut: ",; ", Comma: true, Example: "[network, disk, usb]",
		Check: func(s string) error {
			_, err := one.Parse(yamldoc.Str(s))
			return err
		},
	})
	parse, equal := c.Parse, c.Equal
	c.Parse = func(n *yamldoc.Node) ([]string, error) {
		if n.Kind == yamldoc.Scalar && n.Value == "0" {
			return []string{"0"}, nil
		}
		ss, err := parse(n)
		for _, s := range ss {
			if s == "0" && len(ss) > 1 && err == nil {
				err = errors.New(`"0" turns hotplug off and stands alone`)
			}
		}
		return ss, err
	}
	c.Equal = func(want []string, live string, env field.Env) bool {
		if live == "1" {
			live = defaultHotplug
		}
		return equal(want, live, env)
	}
	return c
}

const defaultHotplug = "network,disk,usb"

// bootOrder is the list of devices to boot from, in order.
func bootOrder() field.Codec[[]string] {
	c := field.Strings(field.ListOptions{
		Sep: ";", Ordered: true, Comma: true, Example: "[scsi0, net0]",
		Check: func(s string) error {
			if bootDevice(s) {
				return nil
			}
			return fmt.Errorf("%q is not a device to boot from: a drive (%s), net0-net31, hostpci0-hostpci15 or usb0-usb13", s, driveSlots)
		},
	})
	write, read := c.Write, c.Read
	c.Write = func(ss []string) string { return "order=" + write(ss) }
	c.Read = func(s string) ([]string, error) {
		order, ok := wire.ParseProps(s, wire.FormatOf(false, "boot")).Get("order")
		if !ok || strings.TrimSpace(order) == "" {
			return nil, errors.New("no boot order of devices")
		}
		return read(order)
	}
	c.Equal = func(want []string, live string, _ field.Env) bool {
		now, err := c.Read(live)
		return err == nil && c.Write(now) == c.Write(want)
	}
	return c
}

func bootDevice(s string) bool {
	if _, ok := bus(s); ok {
		return true
	}
	for family, max := range map[string]int{"net": maxNet, "hostpci": maxHostPCI, "usb": 13} {
		if n, ok := numbered(s, family); ok && n <= max {
			return true
		}
	}
	return false
}
