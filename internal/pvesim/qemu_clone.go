package pvesim

import (
	"fmt"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// cloneJob is a clone as far as it was checked.
type cloneJob struct {
	from, to     int
	target, pool string
	storage      string
	format       string
	snapshot     string
	name         string
	description  string
	full         string // "" asks for the default
}

func (w *World) qemuClone(r *Request) (any, error) {
	p := r.P
	j := &cloneJob{
		from: r.VMID, to: p.Int("newid", 0), target: p.Str("target"), pool: p.Str("pool"), storage: p.Str("storage"), format: p.Str("format"),
		snapshot: p.Str("snapname"), name: p.Str("name"), description: p.Str("description"), full: p.Str("full"),
	}
	if j.target == r.Node || j.target == "localhost" {
		j.target = ""
	}
	g, err := w.qemuSource(r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	if j.pool != "" && w.Pools[j.pool] == nil {
		return nil, permErr(fmt.Sprintf("pool '%s' does not exist", j.pool))
	}
	if j.target != "" && w.node(j.target) == nil {
		return nil, die("no such cluster node '%s'", j.target)
	}
	if _, _, err := r.qemuCloneCheck(g, j); err != nil {
		return nil, err
	}
	if other := w.Guests[j.to]; other != nil {
		return nil, die("unable to create VM %d: config file already exists", j.to)
	}
	n := r.newGuest(kindQemu, j.to)
	n.Config["lock"] = "clone"
	if j.pool != "" {
		w.Pools[j.pool].VMs[j.to] = true
	}
	return r.spawn("qmclone", decimal(j.from), func(a *Actor) error {
		err := a.LockGuest(kindQemu, j.from, func() error {
			return a.LockGuest(kindQemu, j.to, func() error {
				g, err := w.qemuSource(a.Node, j.from)
				if err != nil {
					return err
				}
				return a.qemuCloneInto(g, n, j)
			})
		})
		if err != nil {
			a.abandonGuest(n)
			return wrap("clone failed: ", err)
		}
		return nil
	}), nil
}

// qemuCloneCheck makes the checks of a clone, in PVE's order, and returns the config that is cloned.
func (a *Actor) qemuCloneCheck(g *Guest, j *cloneJob) (conf Section, full bool, err error) {
	w := a.w
	if err := w.cloneStorage(a.Node, j.storage, j.target); err != nil {
		return nil, false, err
	}
	if err := g.checkLock(); err != nil {
		return nil, false, err
	}
	conf = g.Config
	if j.snapshot != "" {
		s := g.snapshot(j.snapshot)
		if s == nil {
			return nil, false, die("snapshot '%s' does not exist", j.snapshot)
		}
		conf = s.Config
	}
	full = !g.Template()
	if j.full != "" {
		full = j.full != "0"
	}
	if !full && j.storage != "" {
		return nil, false, die("parameter 'storage' not allowed for linked clones")
	}
	if !full && j.format != "" {
		return nil, false, die("parameter 'format' not allowed for linked clones")
	}
	shared := true
	for _, k := range driveKeys(conf) {
		d, ok := parseDrive(k, conf[k])
		if !ok {
			continue
		}
		isShared, err := a.cloneDriveAccess(d, j.storage)
		if err != nil {
			return nil, false, err
		}
		shared = shared && isShared
	}
	if s := conf["vmstatestorage"]; s != "" {
		if err := w.check(a.Who, "/storage/"+s, "Datastore.AllocateSpace"); err != nil {
			return nil, false, err
		}
	}
	if err := a.bridgePerm(conf); err != nil {
		return nil, false, err
	}
	if j.target != "" && !shared {
		return nil, false, die("can't clone VM to node '%s' (VM uses local storage)", j.target)
	}
	for _, d := range snapshotDrives(conf) {
		switch {
		case full && g.Running && j.snapshot == "" && d.key == "tpmstate0":
			return nil, false, die("cannot clone TPM state while VM is running")
		case !full && !w.hasFeature("clone", g, d):
			return nil, false, die("Linked clone feature is not supported for '%s' (%s)", d.file(), d.key)
		}
	}
	return conf, full, nil
}

// cloneDriveAccess checks the right to make a copy of a drive, and says whether the drive is on shared storage.
func (a *Actor) cloneDriveAccess(d *drive, storage string) (shared bool, err error) {
	id, _, managed := splitVolid(d.file())
	switch {
	case d.file() == "none":
		return true, nil
	case d.cdrom(false) && d.file() == "cdrom":
		return true, a.w.check(a.Who, "/", "Sys.Console")
	case !managed:
		return false, nil
	}
	s, err := a.w.storage(id)
	if err != nil {
		return false, err
	}
	if !d.cdrom(false) {
		err = a.w.check(a.Who, "/storage/"+orElse(storage, id), "Datastore.AllocateSpace")
	}
	return s.Shared, err
}

// qemuCloneInto fills the new guest: everything is inherited but MACs, the machine's identity, snapshots, unused volumes and pending
// changes (facts.md D, E).
func (a *Actor) qemuCloneInto(g, n *Guest, j *cloneJob) error {
	w, source := a.w, g.Node
	old, full, err := a.qemuCloneCheck(g, j)
	if err != nil {
		return err
	}
	if len(g.Pending) > 0 {
		a.Logf("found pending changes for '%s', discarding for clone", strings.Join(g.Pending.Keys(), ","))
	}
	a.Logf("creating a clone of VM %d with ID %d", j.from, j.to)
	conf, err := w.cloneConfig(old, j)
	if err != nil {
		return err
	}
	var made []*Volume
	for _, k := range old.Keys() {
		d, ok := parseDrive(k, old[k])
		if !isDrive(k) || !ok || d.cdrom(true) {
			continue
		}
		v, err := a.cloneDisk(d, source, j.to, j.storage, j.format, full)
		if err != nil {
			for _, v := range made {
				if ferr := a.free(v.ID); ferr != nil {
					a.Logf("%s", ferr.Error())
				}
			}
			return err
		}
		made = append(made, v)
		d.props["file"] = v.ID
		d.setSize(v.Size)
		conf[k] = d.text()
		n.Config = conf.Clone()
		n.Config["lock"] = "clone"
		qemuSaved(n)
	}
	if w.Guests[j.to] != n {
		return die("Configuration file '%s' does not exist", configFile(kindQemu, a.Node, j.to))
	}
	if err := w.copyFirewall(j.from, j.to); err != nil {
		return err
	}
	n.Config = conf
	if j.target != "" {
		n.Node = j.target
	}
	qemuSaved(n)
	return nil
}

func (w *World) cloneConfig(old Section, j *cloneJob) (Section, error) {
	conf := Section{}
	for k, v := range old {
		f := family(k)
		switch {
		case k == "parent", k == "vmstate", k == "template", k == "lock", f == "unused":
		case isDrive(k):
			if d, ok := parseDrive(k, v); ok && d.cdrom(true) {
				conf[k] = v
			}
		case f == "net" && f != k:
			p, ok := qemuConfigMethod().Key(k)
			if !ok {
				continue
			}
			props, err := p.Format.Parse(k, v)
			if err != nil {
				return nil, die("unable to parse '%s'", k)
			}
			props["macaddr"] = w.mac()
			if conf[k], err = p.Format.Print(props); err != nil {
				return nil, die("unable to print '%s'", k)
			}
		default:
			conf[k] = v
		}
	}
	smbios, err := schema.ParsePropString("pve-qm-smbios1", "smbios1", conf["smbios1"])
	if err != nil {
		smbios = schema.Props{}
	}
	smbios["uuid"] = w.uuid()
	if conf["smbios1"], err = schema.PrintPropString("pve-qm-smbios1", smbios); err != nil {
		return nil, err
	}
	if v := conf["vmgenid"]; v != "" && v != "0" {
		conf["vmgenid"] = w.uuid()
	}
	conf["name"] = orElse(j.name, "Copy-of-VM-"+orElse(old["name"], decimal(j.from)))
	if j.description != "" {
		conf["description"] = strings.TrimRight(j.description, " \t\r\n")
	}
	return conf, nil
}

// qemuTemplate converts a VM: the disks, or one of them, become base images.
func (w *World) qemuTemplate(r *Request) (any, error) {
	vmid, disk := r.VMID, r.P.Str("disk")
	check := func(node string) (*Guest, error) {
		g, err := w.guest(kindQemu, node, vmid)
		switch {
		case err != nil:
			return nil, err
		case g.checkLock() != nil:
			return nil, g.checkLock()
		case len(g.Snapshots) > 0:
			return nil, die("unable to create template, because VM contains snapshots")
		case g.Template() && disk == "":
			return nil, die("you can't convert a template to a template")
		case g.Running:
			return nil, die("you can't convert a VM to template if VM is running")
		}
		return g, nil
	}
	if _, err := check(r.Node); err != nil {
		return nil, err
	}
	return r.spawn("qmtemplate", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			g, err := check(a.Node)
			if err != nil {
				return err
			}
			g.Config["template"] = "1"
			for _, d := range snapshotDrives(g.Config) {
				v := w.volume(a.Node, d.file())
				if disk != "" && d.key != disk || v == nil || !w.hasFeature("template", g, d) {
					continue
				}
				volid, err := a.makeBase(v.ID)
				if err != nil {
					return err
				}
				d.props["file"] = volid
				g.Config[d.key] = d.text()
			}
			qemuSaved(g)
			return nil
		})
	}), nil
}
