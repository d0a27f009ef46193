package pvesim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// estate builds a random cluster.
type estate struct {
	*State
	rng *rand.Rand
	// base is when the oldest guest was made, as far as configs say it: a fixed day, so that a seed gives the same configs always.
	base time.Time
}

// Estate is a believable random cluster of a number of guests (VMs and containers, about three to one) on a number of nodes, 1 to 64:
// names that say what they do, tags, pools, several disks and NICs, snapshots, templates with linked clones, odd config lines, guests
// that run and others that do not. The same seed gives the same configs on the same nodes; how long guests have been running goes by
// the clock. The users and tokens are those of Recorded("base").
func Estate(seed uint64, guests, nodes int) State {
	s, err := Recorded("base")
	if err != nil { // "base" is always there
		s = State{}
	}
	e := &estate{State: &s, rng: rand.New(rand.NewPCG(seed, 0x5eed)), base: time.Date(2023, 4, 1, 8, 0, 0, 0, time.UTC)}
	e.nodes(min(max(nodes, 1), 64))
	e.storages()
	s.Guests, s.Pools = map[int]*Guest{}, map[string]*Pool{}
	for _, id := range []string{"infra", "production", "staging", "lab"} {
		s.Pools[id] = &Pool{ID: id, Comment: "guests of " + id, VMs: map[int]bool{}, Storages: map[string]bool{}}
	}
	e.templates(guests)
	for len(s.Guests) < guests {
		if e.chance(25) {
			e.container()
		} else {
			e.vm()
		}
	}
	if e.chance(60) {
		s.Datacenter["registered-tags"] = "critical"
	}
	s.furnish()
	return s
}

func (e *estate) chance(percent int) bool    { return e.rng.IntN(100) < percent }
func (e *estate) pick(list ...string) string { return list[e.rng.IntN(len(list))] }
func (e *estate) between(low, high int) int  { return low + e.rng.IntN(high-low+1) }
func (e *estate) hex(n int) string           { return fmt.Sprintf("%0*x", n, e.rng.Uint64()&(1<<(4*n)-1)) }
func (e *estate) later() time.Time           { return e.base.Add(time.Duration(e.rng.IntN(900*24)) * time.Hour) }

func (e *estate) mac() string {
	h := strings.ToUpper(e.hex(6))
	return "BC:24:11:" + h[:2] + ":" + h[2:4] + ":" + h[4:]
}

func (e *estate) uuid() string {
	return e.hex(8) + "-" + e.hex(4) + "-4" + e.hex(3) + "-a" + e.hex(3) + "-" + e.hex(12)
}

func (e *estate) nodes(n int) {
	first := e.Nodes[0]
	first.Lacks, first.CPUs, first.Memory, first.Bridges = nil, 32, 256<<30, []string{"vmbr0", "vmbr1"}
	if n == 1 {
		return
	}
	e.ClusterName, first.ID = "lab", 1
	for i := 2; i <= n; i++ {
		c := *first
		c.Name, c.ID, c.IP = fmt.Sprintf("pve%02d", i), i, fmt.Sprintf("192.0.2.%d", 10+i)
		c.Bridges, c.Files = slices.Clone(first.Bridges), nil
		e.Nodes = append(e.Nodes, &c)
	}
}

func (e *estate) storages() {
	dir := func(id, path string) *Storage {
		return &Storage{ID: id, Type: storageDir, Content: []string{contentISO, contentVztmpl, contentBackup, contentImport, contentSnippets}, Total: 2 << 40, Props: map[string]string{"path": path}}
	}
	disks := []string{contentImages, contentRootdir}
	e.Storages = []*Storage{
		dir("local", "/var/lib/vz"),
		{ID: "local-lvm", Type: storageLVMThin, Content: disks, Total: 8 << 40, Props: map[string]string{"vgname": "pve", "thinpool": "data"}},
		{ID: "tank", Type: "zfspool", Content: disks, Total: 16 << 40, Props: map[string]string{"pool": "tank/vmdata", "sparse": "1"}},
		{
			ID: "nas", Type: "nfs", Content: []string{contentImages, contentISO, contentRootdir, contentVztmpl}, Shared: true, Total: 64 << 40,
			Props: map[string]string{"path": "/mnt/pve/nas", "server": "192.0.2.20", "export": "/export/pve"},
		},
		{ID: "ceph-vm", Type: "rbd", Content: disks, Shared: true, Total: 96 << 40, Props: map[string]string{"pool": "vm", "krbd": "1"}},
	}
}

func (e *estate) vmid() int {
	for {
		id := 100 + e.rng.IntN(200+3*len(e.Guests))
		if e.Guests[id] == nil {
			return id
		}
	}
}

// enter makes a guest with what VMs and containers have in common.
func (e *estate) enter(kind, node string) *Guest {
	g := &Guest{VMID: e.vmid(), Kind: kind, Node: node}
	g.complete()
	e.Guests[g.VMID] = g
	if e.chance(60) {
		tags := []string{e.pick("production", "staging", "dev"), e.pick("linux", "debian", "windows", "docker", "k8s", "critical", "backup-daily", "team-a", "10.0.4")}
		slices.Sort(tags)
		g.Config["tags"] = strings.Join(tags[:e.between(1, 2)], ";")
	}
	if e.chance(50) {
		g.Config["onboot"] = "1"
	}
	if e.chance(15) {
		g.Config["startup"] = fmt.Sprintf("order=%d,up=%d", e.between(1, 20), 10*e.between(1, 12))
	}
	if e.chance(8) {
		g.Config["protection"] = "1"
	}
	if e.chance(35) {
		g.Config["description"] = e.pick("Owner: platform team", "# Web front end\n\n- TLS ends here\n- 100% of the traffic", "do not touch\nask ops first",
			"<div align='center'><h2>Service</h2></div>", "moved from vCenter 2021: see wiki", "Größe: klein")
	}
	if e.chance(70) {
		e.Pools[e.pick("infra", "production", "staging", "lab")].VMs[g.VMID] = true
	}
	if g.Running = e.chance(70); g.Running {
		g.PID, g.Started = 2000+g.VMID, time.Now().Add(-time.Duration(e.between(1, 400))*time.Hour)
	}
	return g
}

func (e *estate) host() string {
	return fmt.Sprintf("%s%s-%02d", e.pick("", "", "prod-", "test-", "Old-"),
		e.pick("web", "db", "mail", "git", "ci-runner", "proxy", "dns", "ldap", "monitor", "nas", "k8s-node", "win-dc", "pihole", "plex", "vault"), e.between(1, 40))
}

func (e *estate) node() string { return e.Nodes[e.rng.IntN(len(e.Nodes))].Name }

// disk names a new volume of a guest.
func (e *estate) disk(storage string, g *Guest, n int) string {
	switch {
	case storage == "nas":
		return fmt.Sprintf("nas:%d/vm-%d-disk-%d.%s", g.VMID, g.VMID, n, e.pick("qcow2", "raw"))
	case g.Kind == kindLXC && storage == "tank":
		return fmt.Sprintf("tank:subvol-%d-disk-%d", g.VMID, n)
	}
	return fmt.Sprintf("%s:vm-%d-disk-%d", storage, g.VMID, n)
}

func (e *estate) vm() *Guest {
	g := e.enter(kindQemu, e.node())
	c := g.Config
	c["name"], c["memory"], c["cores"], c["sockets"] = e.host(), decimal(1024<<e.rng.IntN(6)), decimal(1<<e.rng.IntN(4)), "1"
	c["ostype"], c["scsihw"], c["numa"] = e.pick("l26", "l26", "l26", "win11", "win10", "other"), e.pick("virtio-scsi-single", "virtio-scsi-pci"), "0"
	c["smbios1"], c["vmgenid"], c["meta"] = "uuid="+e.uuid(), e.uuid(), fmt.Sprintf("creation-qemu=10.0.2,ctime=%d", e.later().Unix())
	if e.chance(80) {
		c["cpu"] = e.pick("host", "x86-64-v2-AES", "x86-64-v3", "host,flags=+aes")
	}
	if e.chance(70) {
		c["agent"] = e.pick("1", "enabled=1,fstrim_cloned_disks=1", "1,type=virtio")
	}
	disks := 0
	if e.chance(35) {
		c["bios"], c["machine"] = "ovmf", e.pick("q35", "pc-q35-9.0")
		c["efidisk0"] = e.disk(e.pick("local-lvm", "ceph-vm"), g, disks) + ",efitype=4m,pre-enrolled-keys=1,size=4M"
		disks++
	}
	e.drives(g, disks)
	for i := range e.between(1, 2) {
		c["net"+decimal(i)] = e.pick("virtio", "virtio", "e1000") + "=" + e.mac() + ",bridge=" + e.pick("vmbr0", "vmbr0", "vmbr1") + e.pick("", ",firewall=1", ",tag="+decimal(e.between(2, 400)))
	}
	if e.chance(40) {
		c["ide2"] = e.pick("none,media=cdrom", "local:iso/debian-13.1.0-amd64-netinst.iso,media=cdrom,size=784M", "nas:iso/virtio-win-0.1.271.iso,media=cdrom,size=709474K")
	} else if e.chance(50) {
		e.cloudInit(g)
	}
	e.oddLines(g)
	if e.chance(12) {
		e.snapshots(g)
	}
	return g
}

func (e *estate) drives(g *Guest, n int) {
	bus, storage := e.pick("scsi", "scsi", "scsi", "virtio", "sata"), e.pick("local-lvm", "ceph-vm", "tank", "nas")
	for i := range e.between(1, 3) {
		opts := e.pick("", ",discard=on", ",backup=0", ",cache=writeback")
		if bus == "scsi" {
			opts += e.pick("", ",iothread=1", ",ssd=1")
		}
		g.Config[bus+decimal(i)] = fmt.Sprintf("%s%s,size=%dG", e.disk(storage, g, n+i), opts, 8*e.between(1, 32))
	}
	g.Config["boot"] = "order=" + bus + "0;net0"
	if e.chance(10) {
		g.Config["unused0"] = e.disk(storage, g, n+3)
	}
}

func (e *estate) cloudInit(g *Guest) {
	c := g.Config
	c["ide2"] = fmt.Sprintf("local-lvm:vm-%d-cloudinit,media=cdrom,size=4M", g.VMID)
	c["ciuser"], c["ipconfig0"] = e.pick("admin", "debian", "ops"), e.pick("ip=dhcp", fmt.Sprintf("ip=10.0.%d.%d/24,gw=10.0.%d.1", e.between(0, 9), e.between(2, 254), e.between(0, 9)))
	if e.chance(50) {
		c["sshkeys"] = "ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAI" + e.hex(16) + e.hex(16) + e.hex(11) + "%20ops%40lab"
	}
}

// oddLines are what old and hand-made configs have.
func (e *estate) oddLines(g *Guest) {
	c := g.Config
	for _, odd := range [][2]string{
		{"args", "-cpu host,-hypervisor,+svm"}, {"hostpci0", "0000:01:00,pcie=1"}, {"usb0", "host=0951:1666"}, {"affinity", "0-7"}, {"bootdisk", "scsi0"},
		{"balloon", "0"}, {"vga", "qxl,memory=32"}, {"serial0", "socket"}, {"rng0", "source=/dev/urandom"}, {"localtime", "0"}, {"tablet", "0"}, {"hotplug", "disk,network,usb"},
		{"runningmachine", "pc-q35-8.1+pve0"}, {"watchdog", "model=i6300esb,action=reset"}, {"cicustom", "vendor=local:snippets/vendor.yaml"},
	} {
		if e.chance(4) {
			c[odd[0]] = odd[1]
		}
	}
	if e.chance(5) {
		g.Running, g.Pending["memory"] = true, "8192"
		g.PID, g.Started = 2000+g.VMID, time.Now().Add(-time.Hour)
	}
}

// snapshots gives a guest a short chain of them, as far as its storages can have any.
func (e *estate) snapshots(g *Guest) {
	for k, v := range g.Config {
		if volid, _ := namedVolume(k, v); strings.HasSuffix(volid, ".raw") {
			return
		}
	}
	parent, taken := "", e.later()
	for i := range e.between(1, 3) {
		s := &Snapshot{Name: fmt.Sprintf("%s_%d", e.pick("before-upgrade", "auto_daily", "clean"), i), Config: snapshotConfig(g.Config), Parent: parent, Time: taken.Add(time.Duration(i) * time.Hour)}
		s.Description = e.pick("", "before the update")
		g.Snapshots, parent = append(g.Snapshots, s), s.Name
	}
	g.Config["parent"] = parent
}

func (e *estate) container() *Guest {
	g := e.enter(kindLXC, e.node())
	c := g.Config
	c["hostname"], c["arch"], c["ostype"] = e.host(), "amd64", e.pick("debian", "debian", "ubuntu", "alpine")
	c["memory"], c["swap"], c["cores"] = decimal(256<<e.rng.IntN(5)), e.pick("512", "0", "1024"), decimal(e.between(1, 4))
	storage := e.pick("local-lvm", "tank", "ceph-vm")
	c["rootfs"] = fmt.Sprintf("%s,size=%dG", e.disk(storage, g, 0), e.between(2, 32))
	c["net0"] = "name=eth0,bridge=vmbr0,hwaddr=" + e.mac() + ",ip=" + e.pick("dhcp", fmt.Sprintf("10.0.%d.%d/24", e.between(0, 9), e.between(2, 254))) + ",type=veth"
	if e.chance(80) {
		c["unprivileged"] = "1"
	}
	if e.chance(50) {
		c["features"] = e.pick("nesting=1", "nesting=1,keyctl=1", "fuse=1,nesting=1")
	}
	if e.chance(25) {
		c["mp0"] = e.pick(fmt.Sprintf("%s,mp=/data,size=%dG", e.disk(storage, g, 1), e.between(8, 200)), "/mnt/pve/nas/media,mp=/media")
	}
	if e.chance(8) {
		g.Raw = []string{"lxc.cgroup2.devices.allow: c 10:200 rwm", "lxc.mount.entry: /dev/net dev/net none bind,create=dir"}
	}
	if e.chance(10) && !strings.HasPrefix(c["mp0"], "/") {
		e.snapshots(g)
	}
	return g
}

// templates makes a few templates, each with linked clones: about one guest in twenty.
func (e *estate) templates(guests int) {
	for range (guests + 39) / 40 {
		if len(e.Guests)+3 > guests {
			return
		}
		t := e.enter(kindQemu, e.node())
		t.Running, t.PID = false, 0
		c := t.Config
		c["name"], c["memory"], c["cores"], c["template"], c["ostype"] = e.pick("debian-13", "ubuntu-24.04", "win2025", "rocky-9")+"-template", "2048", "2", "1", "l26"
		c["smbios1"], c["vmgenid"], c["boot"] = "uuid="+e.uuid(), e.uuid(), "order=scsi0"
		base := fmt.Sprintf("%d/base-%d-disk-0.qcow2", t.VMID, t.VMID)
		c["scsi0"], c["net0"] = "nas:"+base+",size=20G", "virtio="+e.mac()+",bridge=vmbr0"
		for range e.between(1, 2) {
			g := e.enter(kindQemu, e.node())
			for k, v := range c {
				if k != "template" && k != "protection" {
					g.Config[k] = v
				}
			}
			g.Config["name"], g.Config["smbios1"], g.Config["vmgenid"] = e.host(), "uuid="+e.uuid(), e.uuid()
			g.Config["scsi0"] = fmt.Sprintf("nas:%s/%d/vm-%d-disk-0.qcow2,size=20G", base, g.VMID, g.VMID)
			g.Config["net0"] = "virtio=" + e.mac() + ",bridge=vmbr0"
		}
	}
}
