package cases_test

import (
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/pvesim/schema"
)

// likely are texts for PVE's keys and tokens that no schema tells: names of
// what the lab has, and what PVE checks by code.
var likely = map[string][]string{
	"affinity": {"0-1", "0,2"}, "args": {"-S"}, "bootdisk": {"scsi0"}, "order": {"scsi0", "net0;scsi0"}, "legacy": {"cdn", "n"}, "ciuser": {"root", "deploy"}, "cipassword": {"secret"},
	"description": {"x", "two\nlines\n", "50% \\u0041"}, "hotplug": {"network,disk,usb", "0", "1", "network,disk,usb,memory,cpu", ""}, "name": {"a", "B.example"}, "hostname": {"b"},
	"nameserver": {"192.0.2.53", "192.0.2.53, 192.0.2.54"}, "searchdomain": {"a.example", "a.example;b.example"}, "sshkeys": {strings.ReplaceAll(keyA, " ", "%20")},
	"smbios1": {"uuid=11111111-2222-4333-8444-555555555555", "manufacturer=QWNtZQ==,base64=1"}, "startup": {"order=3", "2,up=10", "down=5"}, "tags": {"proxops", "proxops;x", "ProxOps y, z"},
	"vmgenid": {"1", "0"}, "startdate": {"now", "2020-01-01"}, "timezone": {"host", "Europe/Berlin"}, "env": {"A=b"}, "entrypoint": {"/sbin/init"}, "vmstatestorage": {"local-lvm"},
	"file": {"none", "local-lvm:1", "local-dir:1", "local:iso/seed.iso", "local-lvm:cloudinit"}, "media": {"cdrom", "disk"}, "serial": {"X1"}, "bridge": {"vmbr0", "vmbr1"},
	"volume": {"local-lvm:1", "local-dir:1", "/srv/mirror"}, "mp": {"/srv", "opt/x", "/data/"}, "macaddr": {"02:15:5D:00:09:03", "bc:24:11:00:00:09"}, "hwaddr": {"bc:24:11:00:00:05"},
	"tag": {"7", "9"}, "trunks": {"2;3"}, "ip": {"dhcp", "192.0.2.7/24"}, "ip6": {"auto", "2001:db8::7/64"}, "gw": {"192.0.2.1"}, "gw6": {"2001:db8::1"}, "mtu": {"1400", "1"},
	"cputype": {"host", "kvm64", "x86-64-v2-AES", "Broadwell"}, "flags": {"+aes", "+aes;-pcid", "-md-clear"}, "phys-bits": {"host", "40"}, "hv-vendor-id": {"abc"},
	"cpus": {"0-1"}, "hostnodes": {"0"}, "host": {"spice", "0000:01:00.0"}, "mapping": {"gpu1"}, "size": {"1G"}, "type": nil, "mount": {"nfs;cifs"}, "mountoptions": {"noatime", "noatime;discard"},
	"mode": nil, "path": {"/dev/net/tun"}, "source": {"/dev/urandom"}, "dirid": {"share"}, "current": {"512", "1024"}, "migrate_downtime": {"0.3"}, "machine": {"q35", "pc", "pc-q35-9.0"},
}

// parameter draws a text for one parameter of PVE's schema; "" is none.
func (d *dice) parameter(p *schema.Param, key string) string {
	if texts := likely[p.Name]; texts != nil && (p.Format == nil || d.IntN(4) == 0) {
		return d.of(texts...)
	}
	switch {
	case p.Format != nil:
		return d.property(p.Format)
	case len(p.Enum) > 0:
		return d.of(p.Enum...)
	case p.Type == schema.Boolean:
		return d.of("0", "1")
	case p.Type == schema.Integer || p.Type == schema.Number:
		low := 0.0
		if p.Min != nil {
			low = *p.Min
		}
		n := low + float64(d.IntN(4))
		if p.Max != nil && n > *p.Max {
			n = *p.Max
		}
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return ""
}

// property draws a property string: what the format requires, and some of the
// rest, in any order.
func (d *dice) property(f *schema.Format) string {
	var parts []string
	for _, p := range f.Keys() {
		if p.Alias != "" || p.KeyAlias != "" || p.Name == "import-from" || p.Name == "format" || p.Optional && d.IntN(5) > 0 {
			continue
		}
		text := d.parameter(p, p.Name)
		switch {
		case text == "":
		case p.Name == f.DefaultKey() && d.yes():
			parts = append([]string{text}, parts...)
		default:
			parts = append(parts, p.Name+"="+text)
		}
	}
	if len(parts) > 1 && d.yes() {
		head := parts[:1]
		rest := parts[1:]
		d.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		parts = append(head, rest...)
	}
	return strings.Join(parts, ",")
}

// kept are parameters that a drawn call leaves alone: they are no
// configuration, or would make the guest another one.
var kept = map[string]bool{"node": true, "vmid": true, "digest": true, "delete": true, "revert": true, "force": true, "skiplock": true, "lock": true, "template": true,
	"unused": true, "rootfs": true, "hookscript": true, "cdrom": true, "arch": true, "hugepages": true, "unprivileged": true}

// byHand makes n calls of PVE's own schema on a guest, keys and values drawn,
// as root with a password and so with every right. What PVE refuses is no
// matter; it tells how many it took.
func (l *lab) byHand(d *dice, id, n int) (taken int) {
	l.Helper()
	guest := "qemu"
	if strings.Contains(l.path(id), "/lxc/") {
		guest = "lxc"
	}
	keys := schema.Lookup("PUT", "/nodes/{node}/"+guest+"/{vmid}/config").Keys()
	for range n {
		p := keys[d.IntN(len(keys))]
		if kept[p.Name] {
			continue
		}
		key := p.Name
		if p.Numbered {
			key += strconv.Itoa(p.Low + d.IntN(min(p.High-p.Low+1, 4)))
		}
		conf := l.conf(id)
		if conf[key] != "" && (slotted(key) || d.IntN(4) == 0) { // never over a volume
			if d.yes() && !slotted(key) {
				_, _ = l.try(rootToken, "PUT", l.path(id)+"/config", "delete", key)
			}
			continue
		}
		text := d.parameter(p, key)
		if p.Name == "efidisk0" || p.Name == "tpmstate0" {
			text = "local-lvm:1"
		}
		if text == "" || p.Fault(key, text) != "" {
			continue
		}
		if _, err := l.try(rootToken, "PUT", l.path(id)+"/config", key, text); err == nil {
			taken++
		}
	}
	l.drain()
	return taken
}

// oddly rewrites texts of a config file into other spellings that PVE reads
// the same, as older versions and editors leave them.
func (l *lab) oddly(d *dice, id int) {
	l.Helper()
	l.edit(id, func(g *guest) {
		for _, key := range g.Config.Keys() {
			if d.IntN(3) > 0 {
				continue
			}
			text := g.Config[key]
			switch class := strings.TrimRight(key, "0123456789"); {
			case key == "memory" && g.Kind == "qemu":
				text = "current=" + text
			case class == "net" && g.Kind == "qemu":
				model, rest, _ := strings.Cut(text, "=")
				text = "model=" + model + ",macaddr=" + rest
			case class == "scsi" || class == "sata":
				text = "file=" + strings.TrimPrefix(text, "file=")
			case key == "cpu":
				text = "cputype=" + strings.TrimPrefix(text, "cputype=")
			case key == "machine" && !strings.Contains(text, "="):
				text = "type=" + text
			case key == "vga" && !strings.Contains(text, "="):
				text = "type=" + text
			case key == "agent":
				text = strings.Replace(text, "1", "yes", 1)
			case key == "tags":
				text = strings.ReplaceAll(text, ";", " ")
			case key == "startup":
				text = strings.TrimPrefix(text, "order=")
			case key == "boot":
				text = " "
			case class == "mp" || key == "rootfs":
				text = "volume=" + text
			}
			g.Config[key] = text
		}
		if d.IntN(4) == 0 {
			g.Config["futurekey"] = "a=b"
		}
	})
}

// history gives a guest a snapshot, if PVE can make one.
func (l *lab) history(d *dice, id int) {
	if d.IntN(4) == 0 {
		_, _ = l.try(rootToken, "POST", l.path(id)+"/snapshot", "snapname", "before")
		l.drain()
	}
}

// mirror is a directory of the node that containers may mount, which another
// guest's config shows to be there.
func mirror(s *pvesim.State) {
	if s.Guests == nil {
		s.Guests = map[int]*pvesim.Guest{}
	}
	s.Guests[999] = &pvesim.Guest{VMID: 999, Kind: "lxc", Node: "pve01", Config: pvesim.Section{"mp0": "/srv/mirror,mp=/data"}}
}
