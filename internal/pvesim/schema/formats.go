package schema

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Patterns of PVE's single-value checks. A $ in Perl admits one final newline,
// hence the \n? (a name with one passes the schema and fails later, au-126).
var (
	sizeRE     = regexp.MustCompile(`^\d+(?:\.\d+)?[KMGT]?$`)
	vmidRE     = regexp.MustCompile(`^[1-9][0-9]{2,8}\n?$`)
	nodeRE     = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-]*[a-zA-Z0-9])?\n?$`)
	dnsRE      = regexp.MustCompile(`^(?:[a-zA-Z0-9](?:[a-zA-Z0-9\-]*[a-zA-Z0-9])?\.)*[a-zA-Z0-9](?:[a-zA-Z0-9\-]*[a-zA-Z0-9])?\n?$`)
	configidRE = regexp.MustCompile(`^(?i)[a-z][a-z0-9_-]+\n?$`)
	storageRE  = regexp.MustCompile(`^(?i)[a-z][a-z0-9\-_.]*[a-z0-9]\n?$`)
	volumeRE   = regexp.MustCompile(`^(?i)[a-z][a-z0-9\-_.]*[a-z0-9]:.+\n?$`)
	macRE      = regexp.MustCompile(`^(?i)[a-f0-9][02468ace](?::[a-f0-9]{2}){5}\n?$`)
	macPreRE   = regexp.MustCompile(`^(?i)[a-f0-9][02468ace](?::[a-f0-9]{2}){0,2}:?\n?$`)
	ifaceRE    = regexp.MustCompile(`^(?i)[a-z][a-z0-9_]{1,20}(?:[:.]\d+)?\n?$`)
	bridgeRE   = regexp.MustCompile(`^[-_.\w\d]+\n?$`)
	tagRE      = regexp.MustCompile(`^(?i)[a-z0-9_][a-z0-9_\-+.]*\n?$`)
	urlRE      = regexp.MustCompile(`^[-%a-zA-Z0-9_.!~*'()]*\n?$`)
	poolRE     = regexp.MustCompile(`^[A-Za-z0-9.\-_]+(?:/[A-Za-z0-9.\-_]+){0,2}\n?$`)
	idRE       = regexp.MustCompile(`^[A-Za-z0-9.\-_]+\n?$`)
	realmRE    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.\-_]+\n?$`)
	userRE     = regexp.MustCompile(`^[^\s:/]+@[A-Za-z][A-Za-z0-9.\-_]+\n?$`)
	tokenRE    = regexp.MustCompile(`^[^\s:/]+@[A-Za-z][A-Za-z0-9.\-_]+![A-Za-z][A-Za-z0-9.\-_]+\n?$`)
	privRE     = regexp.MustCompile(`^[A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)+$`)
	emailRE    = regexp.MustCompile(`^[\w+\-~]+(?:\.[\w+\-~]+)*@[a-zA-Z0-9\-]+(?:\.[a-zA-Z0-9\-]+)*$`)
	cpusetRE   = regexp.MustCompile(`^\s*(\d+)(?:-(\d+))?\s*$`)
	statusRE   = regexp.MustCompile(`^(?i)(?:ok|error|warning|unknown)$`)
	hotplugRE  = regexp.MustCompile(`^(?:network|disk|cpu|memory|usb|cloudinit)$`)
	startupRE  = regexp.MustCompile(`^(?:(?:order=)?\d+|up=\d+|down=\d+)\n?$`)
	pairRE     = regexp.MustCompile(`^[^:\s]+(?::[^:\s]+)?$`)
	zoneRE     = regexp.MustCompile(`^(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Europe|Indian|Pacific)(?:/[A-Z][A-Za-z0-9_+\-]+){1,2}$`)
	bootNetRE  = regexp.MustCompile(`^(?:net|usb|hostpci)\d+\n?$`)
	driveRE    = regexp.MustCompile(`^(?:ide[0-3]|sata[0-5]|scsi(?:[0-9]|[12][0-9]|30)|virtio(?:[0-9]|1[0-5])|efidisk0|tpmstate0)$`)
	linkLocal  = regexp.MustCompile(`^(fe80:[^%]+)%(.+)$`)
	absPathRE  = regexp.MustCompile(`^/[^;()]+`)
	vgRE       = regexp.MustCompile(`^(?i)[a-z0-9][a-z0-9\-_.]*[a-z0-9]\n?$`)
	dotsRE     = regexp.MustCompile(`/\.\.?(?:/|\n?$)`)
	lxcDevRE   = regexp.MustCompile(`^/dev/.+$`)
)

// CheckFormat applies one of PVE's named single-value checks to a value. The
// suffix -list splits the value at commas, semicolons, blanks and NULs and
// checks every part (an empty list passes); -opt admits the empty string. The
// error is PVE's text, newline included. A name that is not known here admits
// everything: [Known] tells.
func CheckFormat(name, value string) error {
	if base, ok := strings.CutSuffix(name, "-list"); ok {
		for _, v := range SplitList(value) {
			if err := CheckFormat(base, v); err != nil {
				return err
			}
		}
		return nil
	}
	if base, ok := strings.CutSuffix(name, "-opt"); ok {
		if value == "" || value == "0" {
			return nil
		}
		name = base
	}
	if f := Named(name); f != nil {
		_, err := f.Parse("", value)
		return err
	}
	check, ok := checks()[name]
	if !ok {
		return nil
	}
	if fault := check(value); fault != "" {
		return propError(fault + "\n")
	}
	return nil
}

// Known reports whether the named format is checked by this package.
func Known(name string) bool {
	base := strings.TrimSuffix(strings.TrimSuffix(name, "-list"), "-opt")
	_, ok := checks()[base]
	return ok || Named(base) != nil
}

// SplitList cuts a list value as PVE does: at NULs if there are any, else at
// commas, semicolons and white space. Empty values at the end do not count.
func SplitList(s string) []string {
	if strings.Contains(s, "\x00") {
		s = strings.TrimRight(s, "\x00")
		if s == "" {
			return nil
		}
		return strings.Split(s, "\x00")
	}
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(",; \t\r\n\f\v", r) })
}

type check func(string) (fault string)

func match(re *regexp.Regexp, text string) check {
	return func(s string) string {
		if re.MatchString(s) {
			return ""
		}
		return strings.ReplaceAll(text, "%", s)
	}
}

// checks is the table of single-value formats; % in a text stands for the value.
var checks = sync.OnceValue(func() map[string]check {
	volume := match(volumeRE, "unable to parse volume ID '%'")
	ip := test(isIP, "value does not look like a valid IP address")
	return map[string]check{
		"pve-vmid":                       match(vmidRE, "value does not look like a valid VM ID"),
		"pve-node":                       match(nodeRE, "value does not look like a valid node name"),
		"dns-name":                       match(dnsRE, "value does not look like a valid DNS name"),
		"pve-configid":                   match(configidRE, "invalid configuration ID '%'"),
		"pve-storage-id":                 match(storageRE, "storage ID '%' contains illegal characters"),
		"pve-volume-id":                  volume,
		"pve-volume-id-or-absolute-path": unless(func(s string) bool { return strings.HasPrefix(s, "/") }, volume),
		"pve-volume-id-or-qm-path": unless(func(s string) bool {
			return s == "none" || s == "cdrom" || strings.HasPrefix(s, "/")
		}, volume),
		"mac-addr":             match(macRE, "value does not look like a valid unicast MAC address"),
		"mac-prefix":           match(macPreRE, "value is not a valid unicast MAC address prefix"),
		"pve-iface":            match(ifaceRE, "invalid network interface name '%'"),
		"pve-bridge-id":        match(bridgeRE, "invalid bridge ID '%'"),
		"pve-tag":              match(tagRE, "invalid characters in tag"),
		"urlencoded":           match(urlRE, "invalid urlencoded string: %"),
		"pve-poolid":           match(poolRE, "pool name '%' contains invalid characters"),
		"pve-groupid":          match(idRE, "group name '%' contains invalid characters"),
		"pve-roleid":           match(idRE, "role name '%' contains invalid characters"),
		"pve-realm":            match(realmRE, "value does not look like a valid realm"),
		"pve-userid":           userid,
		"pve-tokenid":          match(tokenRE, "value '%' does not look like a valid token ID"),
		"pve-priv":             match(privRE, "invalid privilege '%'"),
		"email":                match(emailRE, "value does not look like a valid email address"),
		"ipv4":                 test(isIPv4, "value does not look like a valid IPv4 address"),
		"ipv6":                 test(isIPv6, "value does not look like a valid IPv6 address"),
		"ip":                   ip,
		"lxc-ip-with-ll-iface": ipWithIface,
		"address":              test(func(s string) bool { return isIP(s) || dnsRE.MatchString(s) }, "value does not look like a valid address: %"),
		"CIDR":                 test(func(s string) bool { return isCIDRv4(s) || isCIDRv6(s) }, "value does not look like a valid CIDR network"),
		"CIDRv4":               test(isCIDRv4, "value does not look like a valid IPv4 network"),
		"CIDRv6":               test(isCIDRv6, "value does not look like a valid IPv6 network"),
		"pve-ipv4-config":      test(ipv4Config, "value does not look like a valid ipv4 network configuration"),
		"pve-ipv6-config":      test(ipv6Config, "value does not look like a valid ipv6 network configuration"),
		"disk-size":            match(sizeRE, "value does not look like a valid disk size: %"),
		"pve-startup-order":    test(startupOrder, "unable to parse startup options"),
		"pve-hotplug-features": hotplugFeatures,
		"pve-qm-bootdev":       test(func(s string) bool { return bootNetRE.MatchString(s) || driveRE.MatchString(s) }, "invalid boot device '%'"),
		"pve-qm-bootdisk":      match(driveRE, "invalid boot disk '%'"),
		"pve-cpuset":           test(cpuset, "unable to parse cpuset option '%'"),
		"pve-ct-timezone":      test(func(s string) bool { return s == "host" || s == "UTC" || zoneRE.MatchString(s) }, "invalid time zone '%'"),
		"pve-storage-content":  test(storageContent, "invalid content type '%'"),
		"pve-task-status-type": match(statusRE, "value '%' does not look like a valid task status"),
		"pve-phys-bits":        test(physBits, "value must be an integer between 8 and 64 or 'host'"),
		"pve-lxc-dev-string":   match(lxcDevRE, "% is not a valid device path"),
		"storage-pair":         match(pairRE, "unable to parse storage pair '%'"),
		"bridge-pair":          match(pairRE, "unable to parse bridge pair '%'"),
		"IPorCIDR":             test(func(s string) bool { return isIP(s) || isCIDRv4(s) || isCIDRv6(s) }, "value does not look like a valid IP address or CIDR network"),
		"pve-lxc-mp-string":    test(func(s string) bool { return !dotsRE.MatchString(s) }, "% contains illegal character sequences"),
		"pve-storage-server":   test(func(s string) bool { return isIP(s) || dnsRE.MatchString(s) }, "value does not look like a valid server name or IP address"),
		"pve-storage-vgname":   match(vgRE, "lvm name '%' contains illegal characters"),
		"pve-fw-protocol-spec": test(firewallProtocol, "unknown protocol '%'"),
		"pve-fw-sport-spec":    test(firewallPorts, "invalid port '%'"),
		"pve-fw-dport-spec":    test(firewallPorts, "invalid port '%'"),
		"pve-fw-addr-spec":     test(firewallAddresses, "invalid address '%'"),
		"IPorCIDRorAlias": test(func(s string) bool { return isIP(s) || isCIDRv4(s) || isCIDRv6(s) || aliasRE.MatchString(s) },
			"value does not look like a valid IP address, CIDR network or alias"),
		"pve-storage-path": match(absPathRE, "value does not look like a valid absolute path"),
	}
})

func test(ok func(string) bool, text string) check {
	return func(s string) string {
		if ok(s) {
			return ""
		}
		return strings.ReplaceAll(text, "%", s)
	}
}

func unless(ok func(string) bool, c check) check {
	return func(s string) string {
		if ok(s) {
			return ""
		}
		return c(s)
	}
}

func isIP(s string) bool   { return isIPv4(s) || isIPv6(s) }
func isIPv4(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() }
func isIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6() && a.Zone() == ""
}

// A prefix of 7 or less is no network to PVE.
func isCIDRv4(s string) bool { a, n, ok := prefix(s); return ok && isIPv4(a) && n >= 8 && n <= 32 }
func isCIDRv6(s string) bool { a, n, ok := prefix(s); return ok && isIPv6(a) && n >= 8 && n <= 128 }

func prefix(s string) (addr string, bits int, ok bool) {
	addr, len, ok := strings.Cut(s, "/")
	if !ok || strings.ContainsAny(len, "+-") {
		return "", 0, false
	}
	bits, err := strconv.Atoi(len)
	return addr, bits, err == nil
}

func ipv4Config(s string) bool { return s == "dhcp" || s == "manual" || isCIDRv4(s) }
func ipv6Config(s string) bool {
	return s == "auto" || s == "dhcp" || s == "manual" || isCIDRv6(s)
}

// ipWithIface also takes link-local addresses with their interface.
func ipWithIface(s string) string {
	if m := linkLocal.FindStringSubmatch(s); m != nil && isIPv6(m[1]) && ifaceRE.MatchString(m[2]) {
		return ""
	}
	if isIP(s) {
		return ""
	}
	return "value does not look like a valid IP address"
}

func userid(s string) string {
	switch {
	case len(s) < 3:
		return "user name '" + s + "' is too short"
	case len(s) > 64:
		return "user name '" + s + "' is too long (" + strconv.Itoa(len(s)) + " > 64)"
	case !userRE.MatchString(s):
		return "value '" + s + "' does not look like a valid user name"
	}
	return ""
}

// cpuset is parse_cpuset: numbers and ascending ranges between commas, or nothing at all.
func cpuset(s string) bool {
	if s = strings.TrimRight(s, ","); s == "" {
		return true
	}
	for p := range strings.SplitSeq(s, ",") {
		m := cpusetRE.FindStringSubmatch(p)
		if m == nil {
			return false
		}
		from, err := strconv.Atoi(m[1])
		to, err2 := strconv.Atoi(m[2])
		if err != nil || m[2] != "" && (err2 != nil || to < from) {
			return false
		}
	}
	return true
}

func startupOrder(s string) bool {
	if s == "" || s == "0" {
		return false
	}
	for p := range strings.SplitSeq(s, ",") {
		if strings.TrimSpace(p) != "" && !startupRE.MatchString(p) {
			return false
		}
	}
	return true
}

func hotplugFeatures(s string) string {
	if s == "0" || s == "1" {
		return ""
	}
	for _, f := range SplitList(s) {
		if !hotplugRE.MatchString(f) {
			return "invalid hotplug feature '" + f + "'"
		}
	}
	return ""
}

func storageContent(s string) bool {
	return contains([]string{"images", "rootdir", "iso", "vztmpl", "backup", "snippets", "import", "none"}, s)
}

func physBits(s string) bool {
	n, err := strconv.Atoi(s)
	return s == "host" || err == nil && n >= 8 && n <= 64
}

// cpuFlags are the flags that a guest's own cpu option may set.
const cpuFlags = "aes, amd-no-ssb, amd-ssbd, hv-evmcs, hv-tlbflush, ibpb, md-clear, nested-virt, pcid, pdpe1gb, spec-ctrl, ssbd, virt-ssbd"

// CPUFlags are the flags that a guest's own cpu option may set, by name.
func CPUFlags() []string { return strings.Split(cpuFlags, ", ") }

// validate runs the extra validator that PVE attaches to a property string.
func validate(name string, props Props) (fault string) {
	if name != "pve-vm-cpu-conf" {
		return ""
	}
	cpu := props["cputype"]
	if custom, ok := strings.CutPrefix(cpu, "custom-"); ok {
		return "Custom cputype '" + custom + "' not found\n" // none are defined on a fresh node
	}
	models, _ := Named(name).Key("reported-model")
	builtin := []string{"x86-64-v2", "x86-64-v2-AES", "x86-64-v3", "x86-64-v4"}
	if cpu != "" && !contains(models.Enum, cpu) && !contains(builtin, cpu) {
		return "Built-in cputype '" + cpu + "' is not defined (missing 'custom-' prefix?)\n"
	}
	for f := range strings.SplitSeq(props["flags"], ";") {
		if f != "" && !contains(CPUFlags(), f[1:]) {
			return "VM-specific CPU flags must be a subset of: " + cpuFlags + "\n"
		}
	}
	return ""
}
