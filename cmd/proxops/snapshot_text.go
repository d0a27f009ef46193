package main

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var (
	uuidText    = regexp.MustCompile(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)
	macText     = regexp.MustCompile(`\b[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\b`)
	ip4Text     = regexp.MustCompile(`\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b`)
	ip6Text     = regexp.MustCompile(`[0-9A-Fa-f:]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*`)
	volidText   = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]):([^:]+)$`)
	nameServers = regexp.MustCompile(`[^ ,;]+`)
	plainBridge = regexp.MustCompile(`^vmbr\d+$`)
	plainNIC    = regexp.MustCompile(`^(?:eth|net|en[ops]|ens|wan|lan)\d*$`)
	ownedName   = regexp.MustCompile(`^((?:vm|base|subvol|basevol)-\d+-)(.+?)((?:\.(?:raw|qcow2|vmdk|subvol))?)$`)
	plainVolume = regexp.MustCompile(`^(?:disk-\d+|cloudinit)$`)
	plainBackup = regexp.MustCompile(`^vzdump-(?:qemu|lxc|openvz)-\d+-[0-9_-]+\.[a-z.]+$`)
	fileSuffix  = regexp.MustCompile(`(?i)(?:\.tar)?\.(?:iso|img|qcow2|raw|vmdk|ova|ovf|gz|xz|zst|bz2|yaml|yml|json|cfg|conf|sh|pl|py|txt)$`)
	plainRaw    = regexp.MustCompile(`^lxc\.(?:mount|cgroup2?|idmap|apparmor|cap|prlimit|autodev|tty|arch|seccomp|selinux)(?:\.|$)`)
	pathText    = regexp.MustCompile(`(?:/[^/,;= ]+)+`)
	plainDevice = regexp.MustCompile(`^(?:card|renderD|sd|tty[A-Z]*|video|hidraw|nvme|nvidia|loop|fb|kfd|vd|hd)[a-z0-9]*$`)
)

// plainDirs are parts of paths that tell nothing.
var plainDirs = []string{
	"", "dev", "srv", "mnt", "pve", "var", "lib", "vz", "data", "media", "home", "opt", "etc", "tmp", "run", "usr", "local", "share", "root", "net", "tun",
	"dri", "disk", "by-id", "by-path", "by-uuid", "bus", "usb", "cdrom", "urandom", "random", "hwrng", "fuse", "kvm", "log", "backup", "snd", "bin", "sbin", "init",
}

// fixedTexts stand for every value of their key.
var fixedTexts = map[string]string{
	"cipassword": "**********", "password": "**********", "args": "-nodefaults", "env": "MASKED=1", "entrypoint": "/sbin/init",
	"ciuser": "user", "searchdomain": "example.com", "username": "user@pve", "server": "192.0.2.200", "portal": "192.0.2.202", "monhost": "192.0.2.203",
	"target": "iqn.2000-01.example:target", "export": "/export", "share": "share", "datastore": "datastore",
}

// text masks a text that stands under a key.
func (m *masker) text(path, key, s string) string {
	if strings.TrimSpace(s) == "" {
		return s
	}
	if fixed, ok := fixedTexts[key]; ok {
		return fixed
	}
	switch key {
	case "sshkeys", "ssh-public-keys":
		return m.sshKeys(s)
	case "description":
		return m.notes.mask(strings.TrimRight(s, "\n"))
	case "smbios1":
		return m.smbios(s)
	case "tags", "registered-tags", "allowed-tags", "user-allow-list":
		return m.tagList(s)
	case "node":
		return m.nodes.mask(s)
	case "nodes":
		return m.each(s, m.nodes.mask)
	case "pool", "poolid":
		if strings.HasSuffix(path, "/storage") { // of ZFS or Ceph
			return m.each(s, m.others.mask)
		}
		return m.pool(s)
	case "vgname", "thinpool", "mapping", "dirid":
		return m.others.mask(s)
	case "group":
		return m.groups.mask(s)
	case "storage", "vmstatestorage":
		return m.stores.mask(s)
	case "iface":
		return m.bridges.mask(s)
	case "parent", "snapname":
		if !strings.Contains(path, "/content") {
			return m.snaps.mask(s)
		}
	case "name", "hostname":
		return m.name(path, s)
	case "id":
		return m.id(s)
	case "sid":
		return s
	case "nameserver":
		return nameServers.ReplaceAllStringFunc(s, func(w string) string {
			if _, err := netip.ParseAddr(w); err != nil {
				return "192.0.2.53"
			}
			return m.addresses.text(w)
		})
	}
	parts := strings.Split(s, ",")
	for i, p := range parts {
		k, v, pair := strings.Cut(p, "=")
		if !pair || strings.Contains(k, ":") || strings.Contains(k, "/") {
			parts[i] = m.word(p)
			continue
		}
		parts[i] = k + "=" + m.token(key, k, v)
	}
	return m.addresses.text(strings.Join(parts, ","))
}

// token masks the value of a token of a property string.
func (m *masker) token(key, k, v string) string {
	switch k {
	case "bridge":
		return m.bridges.mask(v)
	case "serial", "wwn", "password", "vendor-id", "romfile":
		return "0x5000000000000001"
	case "mapping", "dirid":
		return m.others.mask(v)
	case "name":
		if strings.HasPrefix(key, "net") && plainNIC.MatchString(v) {
			return v
		}
		return m.others.mask(v)
	case "host": // a device; 1d6b:0002 looks like a volume
		return v
	}
	return m.word(v)
}

// word masks a value that may be a volume, a path, or a CPU model of one's own.
func (m *masker) word(s string) string {
	if v := volidText.FindStringSubmatch(s); v != nil && !macText.MatchString(s) {
		return m.stores.mask(v[1]) + ":" + m.volume(v[2])
	}
	if name, ok := strings.CutPrefix(s, "custom-"); ok {
		return "custom-" + m.others.mask(name)
	}
	if strings.HasPrefix(s, "/") {
		return m.dirs(s)
	}
	return s
}

// volume masks a volume's name within its storage.
func (m *masker) volume(name string) string {
	kind, file, ok := strings.Cut(name, "/")
	if ok && slices.Contains([]string{"iso", "vztmpl", "import", "snippets", "backup"}, kind) {
		if kind == "backup" && plainBackup.MatchString(file) {
			return name
		}
		suffix := fileSuffix.FindString(file)
		return kind + "/" + m.files.mask(strings.TrimSuffix(file, suffix)) + suffix
	}
	parts := strings.Split(name, "/")
	for i, p := range parts {
		own := ownedName.FindStringSubmatch(p)
		switch {
		case own != nil && plainVolume.MatchString(own[2]):
		case own != nil && strings.HasPrefix(own[2], "state-"):
			parts[i] = own[1] + "state-" + m.snaps.mask(strings.TrimPrefix(own[2], "state-")) + own[3]
		case own != nil:
			parts[i] = own[1] + m.others.mask(own[2]) + own[3]
		case strings.Trim(p, "0123456789") != "" && p != "none" && p != "cloudinit":
			parts[i] = m.others.mask(p)
		}
	}
	return strings.Join(parts, "/")
}

// dirs masks the parts of paths that tell something.
func (m *masker) dirs(s string) string {
	return pathText.ReplaceAllStringFunc(s, func(p string) string {
		parts := strings.Split(p, "/")
		for i, d := range parts {
			if strings.Trim(d, "0123456789.:") != "" && !(slices.Contains(parts[:i], "dev") && plainDevice.MatchString(d)) {
				parts[i] = m.paths.mask(d)
			}
		}
		return strings.Join(parts, "/")
	})
}

// raw masks a value of LXC's own configuration: words that are paths, with or
// without the first slash; of keys that may hold anything, all.
func (m *masker) raw(key, s string) string {
	if !plainRaw.MatchString(key) {
		return "masked"
	}
	words := strings.Fields(s)
	for i, w := range words {
		if strings.Contains(w, "/") {
			words[i] = strings.TrimPrefix(m.dirs("/"+strings.TrimPrefix(w, "/")), "/")
			if w[0] == '/' {
				words[i] = "/" + words[i]
			}
		}
	}
	return m.addresses.text(strings.Join(words, " "))
}

func (m *masker) name(path, s string) string {
	switch {
	case strings.HasSuffix(path, "/snapshot"):
		return m.snaps.mask(s)
	case path == "/cluster/status" && m.nodes.to[s] == "":
		return m.groups.mask(s)
	case path == "/cluster/status":
		return m.nodes.mask(s)
	}
	return m.guests.mask(s)
}

// id masks the ids of rows: node/NAME, storage/NODE/NAME, qemu/VMID.
func (m *masker) id(s string) string {
	parts := strings.Split(s, "/")
	switch {
	case len(parts) == 2 && parts[0] == "node":
		parts[1] = m.nodes.mask(parts[1])
	case len(parts) == 3 && parts[0] == "storage":
		parts[1], parts[2] = m.nodes.mask(parts[1]), m.stores.mask(parts[2])
	case parts[0] == "qemu" || parts[0] == "lxc":
	default:
		return m.groups.mask(s)
	}
	return strings.Join(parts, "/")
}

func (m *masker) each(s string, mask func(string) string) string {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '/' })
	sep := ","
	if strings.Contains(s, "/") {
		sep = "/"
	}
	for i, p := range parts {
		parts[i] = mask(p)
	}
	return strings.Join(parts, sep)
}

func (m *masker) tagList(s string) string {
	list := splitTags(s)
	for i, t := range list {
		list[i] = m.tags.mask(t)
	}
	return strings.Join(list, ";")
}

// sshKeys replaces each key by one that nobody has.
func (m *masker) sshKeys(s string) string {
	plain, err := url.PathUnescape(s)
	if err != nil {
		plain = s
	}
	var out []string
	for _, line := range strings.Split(plain, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		id := m.notes.mask("key " + line)
		blob := append([]byte("\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20"), make([]byte, 32)...)
		copy(blob[len(blob)-len(id):], id)
		out = append(out, "ssh-ed25519 "+base64.StdEncoding.EncodeToString(blob)+" user")
	}
	return url.PathEscape(strings.Join(out, "\n"))
}

// smbios keeps the uuid alone: the rest is serial numbers.
func (m *masker) smbios(s string) string {
	for _, t := range strings.Split(s, ",") {
		if strings.HasPrefix(t, "uuid=") {
			return m.addresses.text(t)
		}
	}
	return "uuid=00000000-0000-4000-8000-000000000000"
}

// addresses replaces MAC and IP addresses and uuids.
type addresses struct {
	macs, uuids map[string]string
	nets        map[string]int // first three bytes of an IPv4 address → number
	six         map[string]int
}

func newAddresses() addresses {
	return addresses{macs: map[string]string{}, uuids: map[string]string{}, nets: map[string]int{}, six: map[string]int{}}
}

func (a addresses) text(s string) string {
	s = uuidText.ReplaceAllStringFunc(s, func(u string) string {
		u = strings.ToLower(u)
		if a.uuids[u] == "" {
			a.uuids[u] = fmt.Sprintf("00000000-0000-4000-8000-%012x", len(a.uuids)+1)
		}
		return a.uuids[u]
	})
	s = macText.ReplaceAllStringFunc(s, func(mac string) string {
		mac = strings.ToUpper(mac)
		if a.macs[mac] == "" {
			n := len(a.macs) + 1
			a.macs[mac] = fmt.Sprintf("BC:24:11:%02X:%02X:%02X", n>>16&255, n>>8&255, n&255)
		}
		return a.macs[mac]
	})
	s = ip4Text.ReplaceAllStringFunc(s, a.ip4)
	return ip6Text.ReplaceAllStringFunc(s, a.ip6)
}

// ip4 keeps the last byte, so that a gateway stays in its guest's network.
func (a addresses) ip4(s string) string {
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.IsLoopback() || ip.IsUnspecified() {
		return s
	}
	b := ip.As4()
	net := string(b[:3])
	if _, ok := a.nets[net]; !ok {
		a.nets[net] = len(a.nets)
	}
	n := a.nets[net]
	return fmt.Sprintf("10.%d.%d.%d", 128+n>>8&127, n&255, b[3])
}

func (a addresses) ip6(s string) string {
	ip, err := netip.ParseAddr(s)
	if err != nil || !ip.Is6() || ip.IsLoopback() || ip.IsUnspecified() {
		return s
	}
	if _, ok := a.six[ip.String()]; !ok {
		a.six[ip.String()] = len(a.six) + 1
	}
	return fmt.Sprintf("2001:db8::%x", a.six[ip.String()])
}
