package pvesim

import (
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// ctClone is a clone whose checks are done.
type ctClone struct {
	from, to int
	pool     string
	storage  string
	target   string
	snap     string
	full     bool
	mounts   []mount
}

// lxcClone copies a container. All is checked in the request; the task copies the volumes.
func (w *World) lxcClone(r *Request) (any, error) {
	p := r.P
	c := &ctClone{
		from: r.VMID, to: p.Int("newid", 0), pool: p.Str("pool"), storage: p.Str("storage"), snap: p.Str("snapname"), target: p.Str("target"),
	}
	if c.pool != "" && w.Pools[c.pool] == nil {
		return nil, permErr("pool '" + c.pool + "' does not exist")
	}
	if c.target == r.Node || c.target == "localhost" {
		c.target = ""
	}
	if c.target != "" && w.node(c.target) == nil {
		return nil, die("no such cluster node '%s'", c.target)
	}
	if err := w.cloneStorage(r.Node, c.storage, c.target); err != nil {
		return nil, err
	}
	var upid string
	err := r.LockGuest(kindLXC, c.from, func() error {
		src, err := w.guest(kindLXC, r.Node, c.from)
		if err != nil {
			return err
		}
		if err := src.checkLock(); err != nil {
			return err
		}
		if o := w.Guests[c.to]; o != nil {
			return die("%s %d already exists on node '%s'", kindName(o.Kind), c.to, o.Node)
		}
		conf, raw, err := r.cloneConfig(c, src)
		if err != nil {
			return err
		}
		g := r.newGuest(kindLXC, c.to)
		g.Config, g.Raw = Section{"lock": "create"}, raw
		src.Config["lock"] = "disk"
		upid = r.cloneStart(c, conf)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return upid, nil
}

// cloneConfig is the clone's config without its volumes, which go to c.mounts.
func (r *Request) cloneConfig(c *ctClone, src *Guest) (Section, []string, error) {
	p := r.P
	c.full = !src.Template()
	if p.Has("full") {
		c.full = p.Bool("full")
	}
	if c.storage != "" && !c.full {
		return nil, nil, die("parameter 'storage' not allowed for linked clones")
	}
	from, raw := src.Config, src.Raw
	if c.snap != "" {
		s := src.snapshot(c.snap)
		if s == nil {
			return nil, nil, die("snapshot '%s' does not exist", c.snap)
		}
		from, raw = s.Config, s.Raw
	}
	conf, local := Section{}, false
	for _, k := range from.Keys() {
		v := from[k]
		switch {
		case indexed(k, "unused"):
		case k == "rootfs" || indexed(k, "mp"):
			m, err := parseMount(k, v)
			if err != nil {
				return nil, nil, err
			}
			shared, err := r.cloneMount(c, src, m)
			if err != nil {
				return nil, nil, err
			}
			local = local || !shared
			c.mounts = append(c.mounts, m)
		case indexed(k, "net"):
			var err error
			if conf[k], err = r.cloneNIC(v); err != nil {
				return nil, nil, err
			}
		default:
			conf[k] = v
		}
	}
	if c.target != "" && local {
		return nil, nil, die("can't clone CT to node '%s' (CT uses local storage)", c.target)
	}
	for _, k := range []string{"lock", "parent", "template"} {
		delete(conf, k)
	}
	if h := p.Str("hostname"); h != "" {
		conf["hostname"] = h
	}
	if d, ok := p.Get("description"); ok {
		conf["description"] = strings.TrimRight(d, "\n")
		if conf["description"] == "" {
			delete(conf, "description")
		}
	}
	return conf, append([]string(nil), raw...), nil
}

// cloneNIC is a NIC with another MAC, on a bridge that the caller may use.
func (r *Request) cloneNIC(v string) (string, error) {
	n, err := schema.ParsePropString(".net", "", v)
	if err != nil {
		return "", die("%s", strings.TrimSpace(err.Error()))
	}
	n["hwaddr"] = r.w.mac()
	if v, err = schema.PrintPropString(".net", n); err != nil {
		return "", die("%s", strings.TrimSpace(err.Error()))
	}
	if r.Who.RootTicket() {
		return v, nil
	}
	return v, r.bridgeAccess(v)
}

// cloneMount checks one mount point: volumes only, with space on the target storage; a linked clone needs a storage that has them.
func (r *Request) cloneMount(c *ctClone, src *Guest, m mount) (shared bool, err error) {
	w := r.w
	if m.kind() != "volume" {
		return false, die("unable to clone mountpoint '%s' (type %s)", m.key, m.kind())
	}
	s, _, err := w.parseVolid(m.volume())
	if err != nil {
		return false, err
	}
	shared = s.Shared
	id := orElse(c.storage, s.ID)
	if err := w.check(r.Who, "/storage/"+id, "Datastore.AllocateSpace"); err != nil {
		return false, err
	}
	switch {
	case c.full && src.Running && c.snap == "":
		return false, die("Full clone of a running container is only possible from a snapshot")
	case c.full && !w.volumeFeature("copy", m.volume(), c.snap):
		return false, die("Full clone feature for '%s' is not available", m.volume())
	case !c.full && !w.volumeFeature("clone", m.volume(), c.snap):
		return false, die("Linked clone feature for '%s' is not available", m.volume())
	}
	return shared, nil
}

// cloneStart starts the worker and returns its UPID.
func (a *Actor) cloneStart(c *ctClone, conf Section) string {
	w := a.w
	return a.spawn("vzclone", decimal(c.from), func(a *Actor) error {
		err := a.cloneVolumes(c, conf)
		if src := w.Guests[c.from]; src != nil {
			delete(src.Config, "lock")
		}
		g := w.Guests[c.to]
		if g == nil {
			return die("clone failed: Configuration file '%s' does not exist", configFile(kindLXC, a.Node, c.to))
		}
		if err != nil {
			delete(w.Guests, c.to)
			return wrap("clone failed: ", err)
		}
		if err := w.copyFirewall(c.from, c.to); err != nil {
			return wrap("clone failed: ", err)
		}
		g.Config = conf
		a.touch(g)
		if c.pool != "" && w.Pools[c.pool] != nil {
			w.Pools[c.pool].VMs[c.to] = true
		}
		if c.target != "" {
			g.Node = c.target
		}
		return nil
	})
}

// cloneVolumes makes the volumes, by the keys' order; when one fails, those before it go again.
func (a *Actor) cloneVolumes(c *ctClone, conf Section) error {
	var made []*Volume
	for _, m := range c.mounts {
		var v *Volume
		var err error
		if c.full {
			a.Logf("create full clone of mountpoint %s (%s)", m.key, m.volume())
			v, err = a.copyMount(m, c.to, c.storage)
		} else {
			a.Logf("create linked clone of mount point %s (%s)", m.key, m.volume())
			v, err = a.linkMount(m.volume(), c.to)
		}
		if err != nil {
			for _, v := range made {
				a.destroyVolume(v)
			}
			return err
		}
		made = append(made, v)
		m.props["volume"] = v.ID
		conf[m.key] = m.print()
	}
	return nil
}

// linkMount is vdisk_clone for a container's volume: LVM-thin names carry no base, those of ZFS and RBD do.
func (a *Actor) linkMount(volid string, vmid int) (*Volume, error) {
	s, name, err := a.w.parseVolid(volid)
	if err != nil {
		return nil, err
	}
	base := a.w.volume(a.Node, volid)
	if base == nil {
		return nil, die("volume '%s' does not exist", volid)
	}
	var v *Volume
	err = a.LockStorage(s, func() error {
		if err := a.Work(allocTime); err != nil {
			return err
		}
		next := a.w.freeDiskName(s, a.Node, vmid, "")
		if base.Format == "subvol" {
			next = strings.Replace(next, "vm-", "subvol-", 1)
		}
		n := Volume{ID: s.ID + ":" + next, Owner: vmid, Content: contentRootdir, Format: base.Format, Size: base.Size}
		if s.Type != storageLVMThin && name.isBase {
			n.ID, n.Base = s.ID+":"+name.name+"/"+next, base.ID
		}
		var err error
		v, err = a.createVolume(s, n)
		return err
	})
	return v, err
}

// baseTime is what making an image file immutable takes at the least: the call that wants a template is answered long before (ct-254).
const baseTime = 400 * time.Millisecond

// lxcTemplate turns a container into a template. The answer is null although the work is that of a task.
func (w *World) lxcTemplate(r *Request) (any, error) {
	vmid := r.VMID
	return nil, r.LockGuest(kindLXC, vmid, func() error {
		g, err := w.guest(kindLXC, r.Node, vmid)
		if err != nil {
			return err
		}
		if err := g.checkLock(); err != nil {
			return err
		}
		switch {
		case g.Template():
			return die("you can't convert a template to a template")
		case g.Running:
			return die("you can't convert a CT to template if the CT is running")
		case len(g.Snapshots) > 0:
			return die("unable to create template, because CT contains snapshots")
		}
		r.spawn("vztemplate", decimal(vmid), func(a *Actor) error { return a.ctTemplate(vmid) })
		return nil
	})
}

func (a *Actor) ctTemplate(vmid int) error {
	return a.LockGuest(kindLXC, vmid, func() error {
		g, err := a.w.guest(kindLXC, a.Node, vmid)
		if err != nil {
			return err
		}
		for _, m := range mounts(g.Config, false) {
			if m.kind() != "volume" {
				continue
			}
			to, err := a.makeBase(m.volume())
			if err != nil {
				return err
			}
			m.props["volume"] = to
			g.Config[m.key] = m.print()
		}
		g.Config["template"] = "1"
		a.touch(g)
		return nil
	})
}

// makeBase is vdisk_create_base: a volume becomes a base image under another name.
func (a *Actor) makeBase(volid string) (string, error) {
	s, name, err := a.w.parseVolid(volid)
	if err != nil {
		return "", err
	}
	if name.isBase {
		return volid, nil
	}
	next := strings.Replace(strings.Replace(name.name, "vm-", "base-", 1), "subvol-", "basevol-", 1)
	if s.fileBased() {
		if err := a.Sleep(baseTime); err != nil {
			return "", err
		}
		next = decimal(name.owner) + "/" + strings.Replace(name.name, "vm-", "base-", 1)
	}
	v := a.w.volume(a.Node, volid)
	if v == nil {
		return "", die("volume '%s' does not exist", volid)
	}
	if err := a.renameVolume(v, s.ID+":"+next); err != nil {
		return "", err
	}
	return v.ID, nil
}
