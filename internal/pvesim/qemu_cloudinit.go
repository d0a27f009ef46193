package pvesim

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"github.com/GehirnInc/crypt/sha256_crypt"
)

// sha256Crypt hashes a password as PVE does before it writes it into a config.
func sha256Crypt(password, salt string) string {
	h, err := sha256_crypt.New().Generate([]byte(password), []byte("$5$"+salt))
	if err != nil {
		return ""
	}
	return h
}

// cryptSalt makes a salt of random bytes.
func cryptSalt(b []byte) string {
	return strings.NewReplacer("+", ".", "=", "").Replace(base64.StdEncoding.EncodeToString(b))[:8]
}

// cloudinitChanged notes that a running guest's cloud-init drive is behind its config: CloudInit holds the values that the drive was
// written with, of the keys that differ, and under "added" the keys that it lacks ([special:cloudinit] of the config file).
func (g *Guest) cloudinitChanged(k, old string, had bool, value string, has bool) {
	if !cloudinitPending(k) {
		return
	}
	if g.CloudInit == nil {
		g.CloudInit = Section{}
	}
	recorded, isRecorded := g.CloudInit[k]
	added := splitList(g.CloudInit["added"])
	i := slices.Index(added, k)
	drop := func() {
		if i >= 0 {
			added = slices.Delete(added, i, i+1)
		}
	}
	switch {
	case has && isRecorded:
		if value == recorded {
			delete(g.CloudInit, k)
			drop()
		}
	case has && i >= 0, !has && !had, !has && isRecorded:
	case has && had, !has && i < 0:
		g.CloudInit[k] = old
	case has:
		added = append(added, k)
	default:
		drop()
	}
	slices.Sort(added)
	delete(g.CloudInit, "added")
	if len(added) > 0 {
		g.CloudInit["added"] = strings.Join(added, ",")
	}
	if len(g.CloudInit) == 0 {
		g.CloudInit = nil
	}
}

// qemuCloudinitWrite writes the guest's cloud-init drive, if it has one, making the volume when it is gone. Snippets of cicustom must
// be there.
func (a *Actor) qemuCloudinitWrite(g *Guest) error {
	k := g.cloudinitKey("")
	if k == "" {
		return nil
	}
	d, ok := parseDrive(k, orElse(g.Config[k], g.Pending[k]))
	if !ok {
		return nil
	}
	if err := a.cloudinitSnippets(g.Config); err != nil {
		return err
	}
	if a.w.volume(a.Node, d.file()) == nil {
		id, name, _ := splitVolid(d.file())
		s, err := a.w.storageOn(id, a.Node)
		if err != nil {
			return err
		}
		name = name[strings.LastIndexByte(name, '/')+1:]
		if _, err := a.allocate(s, g.VMID, contentImages, a.w.volumeFormat(d.file()), name, cloudinitKiB); err != nil {
			return err
		}
	}
	a.Logf("generating cloud-init ISO")
	g.CloudInit = nil
	return nil
}

// qemuCloudinitRefresh writes the drive and notes its size, as a start, a regenerate and a clone do.
func (a *Actor) qemuCloudinitRefresh(g *Guest) error {
	if err := a.qemuCloudinitWrite(g); err != nil {
		return err
	}
	for _, k := range driveKeys(g.Config) {
		d, ok := parseDrive(k, g.Config[k])
		if v := a.w.volume(a.Node, g.Config.volids()[k]); ok && d.cloudinit() && v != nil {
			d.setSize(v.Size)
			g.Config[k] = d.text()
			qemuSaved(g)
		}
	}
	return nil
}

func (a *Actor) cloudinitSnippets(conf Section) error {
	custom := propMap(conf["cicustom"])
	for _, k := range sortedKeys(custom) {
		volid := custom[k]
		kind, err := a.w.volumeType(volid)
		if err != nil {
			return err
		}
		if kind != "snippets" {
			return die("%s is not in the snippets directory", volid)
		}
		if a.w.volume(a.Node, volid) == nil {
			return die("volume '%s' does not exist", volid)
		}
	}
	return nil
}

const passwordMask = "**********"

func (w *World) qemuCloudinit(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	mask := func(k, v string) string {
		if k == "cipassword" {
			return passwordMask
		}
		return v
	}
	out := []map[string]any{}
	added := splitList(g.CloudInit["added"])
	for _, k := range added {
		out = append(out, map[string]any{"key": k, "pending": mask(k, g.Config[k])})
	}
	for _, k := range cloudinitKeys() {
		cur := g.Config[k]
		if cur == "" || cur == "0" || slices.Contains(added, k) {
			continue
		}
		item := map[string]any{"key": k, "value": mask(k, cur)}
		if old := g.CloudInit[k]; old != "" {
			item["value"], item["pending"] = mask(k, old), mask(k, cur)
		}
		out = append(out, item)
	}
	for _, k := range g.CloudInit.Keys() {
		if k != "added" && g.Config[k] == "" {
			out = append(out, map[string]any{"key": k, "delete": 1})
		}
	}
	return out, nil
}

func (w *World) qemuCloudinitUpdate(r *Request) (any, error) {
	return nil, r.LockGuest(kindQemu, r.VMID, func() error {
		g, err := w.guest(kindQemu, r.Node, r.VMID)
		if err != nil {
			return err
		}
		if err := g.checkLock(); err != nil {
			return err
		}
		return r.qemuCloudinitRefresh(g)
	})
}

func (w *World) qemuCloudinitDump(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	conf := g.Config.Clone()
	if conf["cipassword"] != "" && !w.can(r.Who, "/vms/"+decimal(r.VMID), "VM.Config.Cloudinit") {
		conf["cipassword"] = passwordMask
	}
	switch r.P.Str("type") {
	case "network":
		return networkDump(conf), nil
	case "meta":
		return "instance-id: " + orElse(strings.TrimSpace(conf["vmgenid"]), decimal(r.VMID)) + "\n", nil
	}
	return userDump(conf, r.VMID), nil
}

func userDump(conf Section, vmid int) string {
	host := orElse(conf["name"], "VM"+decimal(vmid))
	fqdn := host
	if short, _, dotted := strings.Cut(host, "."); dotted {
		host = short
	} else if conf["searchdomain"] != "" {
		fqdn += "." + conf["searchdomain"]
	}
	var b strings.Builder
	b.WriteString("#cloud-config\nhostname: " + host + "\nmanage_etc_hosts: true\nfqdn: " + fqdn + "\n")
	if u := conf["ciuser"]; u != "" {
		b.WriteString("user: " + u + "\n")
	}
	if p := conf["cipassword"]; p != "" {
		b.WriteString("password: " + p + "\n")
	}
	if keys, err := url.PathUnescape(conf["sshkeys"]); err == nil && conf["sshkeys"] != "" {
		b.WriteString("ssh_authorized_keys:\n")
		for k := range strings.SplitSeq(keys, "\n") {
			if strings.TrimSpace(k) != "" {
				b.WriteString("  - " + k + "\n")
			}
		}
	}
	b.WriteString("chpasswd:\n  expire: False\n")
	if conf["ciuser"] != "root" {
		b.WriteString("users:\n  - default\n")
	}
	if conf["ciupgrade"] != "0" {
		b.WriteString("package_upgrade: true\n")
	}
	return b.String()
}

func networkDump(conf Section) string {
	var b strings.Builder
	b.WriteString("version: 1\nconfig:\n")
	for i := range 32 {
		n := decimal(i)
		net, err := parseNet("net"+n, conf["net"+n])
		if conf["net"+n] == "" || err != nil {
			continue
		}
		b.WriteString("    - type: physical\n      name: eth" + n + "\n      mac_address: '" + strings.ToLower(net["macaddr"]) + "'\n      subnets:\n")
		ip := propMap(conf["ipconfig"+n])
		switch ip["ip"] {
		case "":
		case "dhcp":
			b.WriteString("      - type: dhcp4\n")
		default:
			b.WriteString("      - type: static\n        address: '" + ip["ip"] + "'\n")
			if ip["gw"] != "" {
				b.WriteString("        gateway: '" + ip["gw"] + "'\n")
			}
		}
		switch ip["ip6"] {
		case "":
		case "dhcp", "auto":
			b.WriteString("      - type: " + map[string]string{"dhcp": "dhcp6", "auto": "ipv6_slaac"}[ip["ip6"]] + "\n")
		default:
			b.WriteString("      - type: static6\n        address: '" + ip["ip6"] + "'\n")
			if ip["gw6"] != "" {
				b.WriteString("        gateway: '" + ip["gw6"] + "'\n")
			}
		}
	}
	servers, domains := splitList(conf["nameserver"]), splitList(conf["searchdomain"])
	if conf["nameserver"] != "" || conf["searchdomain"] != "" {
		b.WriteString("    - type: nameserver\n")
	}
	list := func(head string, items []string) {
		if len(items) == 0 {
			return
		}
		b.WriteString("      " + head + ":\n")
		for _, s := range items {
			b.WriteString("      - '" + s + "'\n")
		}
	}
	list("address", servers)
	list("search", domains)
	return b.String()
}
