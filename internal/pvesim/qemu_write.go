package pvesim

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// qemuCreateOnly are the parameters of POST …/qemu that are no config keys.
func qemuCreateOnly() map[string]bool {
	return map[string]bool{
		"node": true, "vmid": true, "storage": true, "pool": true, "start": true, "unique": true, "force": true, "archive": true, "bwlimit": true,
		"live-restore": true, "ha-managed": true, "import-working-storage": true,
	}
}

func (w *World) qemuCreate(r *Request) (any, error) {
	vmid, pool := r.P.Int("vmid", 0), r.P.Str("pool")
	if pool != "" && w.Pools[pool] == nil {
		return nil, permErr(fmt.Sprintf("pool '%s' does not exist", pool))
	}
	if !w.can(r.Who, "/vms/"+decimal(vmid), "VM.Allocate") && (pool == "" || !w.can(r.Who, "/pool/"+pool, "VM.Allocate")) {
		return nil, permErr("")
	}
	if g := w.Guests[vmid]; g != nil {
		return nil, die("unable to create VM %d - VM %d already exists on node '%s'", vmid, vmid, g.Node)
	}
	conf, start := Section{}, r.P.Bool("start")
	for k := range r.P {
		if !qemuCreateOnly()[k] {
			conf[k] = r.P.Str(k)
		}
	}
	g := r.newGuest(kindQemu, vmid)
	g.Config["lock"] = "create"
	if pool != "" {
		w.Pools[pool].VMs[vmid] = true
	}
	return r.spawn("qmcreate", decimal(vmid), func(a *Actor) error {
		if err := a.qemuFill(g, conf); err != nil {
			a.removeGuest(g)
			return err
		}
		if start {
			w.PID++
			g.Running, g.Started, g.PID = true, time.Now(), w.PID
		}
		return nil
	}), nil
}

// qemuFill turns the parameters of a create into the config, making the volumes; on a failure those made are freed again.
func (a *Actor) qemuFill(g *Guest, conf Section) error {
	var made []*Volume
	undo := func(err error) error {
		for _, v := range made {
			a.destroyVolume(v)
		}
		return err
	}
	for _, k := range conf.Keys() {
		v, vol, err := a.qemuValue(g, k, conf[k])
		if err != nil {
			return undo(err)
		}
		if vol != nil {
			made = append(made, vol)
		}
		conf[k] = v
	}
	conf["smbios1"], conf["vmgenid"] = orElse(conf["smbios1"], "uuid="+a.w.uuid()), orElse(conf["vmgenid"], a.w.uuid())
	conf["meta"] = fmt.Sprintf("creation-qemu=10.0.13,ctime=%d", time.Now().Unix())
	if conf["boot"] == "" {
		conf["boot"] = defaultBoot(conf)
	}
	g.Config, g.Changed = conf, time.Now()
	return nil
}

func orElse(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

var newDisk = regexp.MustCompile(`^([^:,]+):(\d+(?:\.\d+)?)(?:,(.*))?$`)

// qemuValue is the config's form of a parameter, with the volume that had to be made for it.
func (a *Actor) qemuValue(g *Guest, key, value string) (string, *Volume, error) {
	base := strings.TrimRight(key, "0123456789")
	switch {
	case base == "net" && base != key:
		model, rest, _ := strings.Cut(value, ",")
		if !strings.Contains(model, "=") {
			model += "=" + a.w.mac()
		}
		return strings.TrimSuffix(model+","+rest, ","), nil, nil
	case !isVolumeKey(key):
		return value, nil, nil
	}
	m := newDisk.FindStringSubmatch(value)
	if m == nil {
		return value, nil, nil
	}
	s, err := a.w.storageOn(m[1], a.Node)
	if err != nil {
		return "", nil, err
	}
	gib, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		return "", nil, die("unable to parse size '%s'", m[2])
	}
	vol, err := a.allocate(s, g.VMID, contentImages, "", "", int64(gib*(1<<20)+0.5))
	if err != nil {
		return "", nil, err
	}
	out := vol.ID + ",size=" + schema.FormatSize(vol.Size)
	if m[3] != "" {
		out = vol.ID + "," + m[3] + ",size=" + schema.FormatSize(vol.Size)
	}
	a.Logf("%s: successfully created disk '%s'", key, out)
	return out, vol, nil
}

// defaultBoot is the boot order that PVE writes at create: the first disk, then CD drives, then the first NIC; one blank when there
// is nothing to boot from.
func defaultBoot(conf Section) string {
	var disk, cd, net string
	for _, bus := range []string{"ide", "scsi", "virtio", "sata"} {
		for i := range 31 {
			key := bus + decimal(i)
			switch v, ok := conf[key]; {
			case !ok:
			case strings.Contains(v, "media=cdrom"):
				cd = orElse(cd, key)
			default:
				disk = orElse(disk, key)
			}
		}
	}
	for i := range 32 {
		if _, ok := conf["net"+decimal(i)]; ok && net == "" {
			net = "net" + decimal(i)
		}
	}
	var order []string
	for _, k := range []string{disk, cd, net} {
		if k != "" {
			order = append(order, k)
		}
	}
	if len(order) == 0 {
		return " "
	}
	return "order=" + strings.Join(order, ";")
}

func (w *World) qemuUpdate(r *Request) (any, error) {
	digest := r.P.Str("digest")
	set, remove := Section{}, r.P.List("delete")
	for k := range r.P {
		switch k {
		case "node", "vmid", "digest", "delete", "skiplock", "revert", "force":
		default:
			set[k] = r.P.Str(k)
		}
	}
	if len(set) == 0 && len(remove) == 0 {
		return nil, die("no options specified")
	}
	for _, k := range remove {
		if _, ok := qemuConfigMethod().Key(k); !ok {
			return nil, paramErr("delete", "unknown option '%s'", k)
		}
		if _, both := set[k]; both {
			return nil, paramErr("delete", "you can't use '-%s' and -delete %s' at the same time", k, k)
		}
	}
	return nil, r.LockGuest(kindQemu, r.VMID, func() error {
		g, err := w.guest(kindQemu, r.Node, r.VMID)
		if err != nil {
			return err
		}
		if digest != "" && digest != "0" && digest != g.Digest() {
			return die("checksum mismatch (file change by other user?)")
		}
		if err := g.checkLock(); err != nil {
			return err
		}
		return r.qemuApply(g, set, remove)
	})
}

// qemuApply changes a config in place. A drive that a value replaces, or that is deleted, stays as the next unused one.
func (a *Actor) qemuApply(g *Guest, set Section, remove []string) error {
	g.Changed = time.Now()
	for _, k := range remove {
		a.qemuDetach(g, k)
		delete(g.Config, k)
	}
	for _, k := range set.Keys() {
		v, _, err := a.qemuValue(g, k, set[k])
		if err != nil {
			return err
		}
		if old := g.Config.volids()[k]; old != "" && old != (Section{k: v}).volids()[k] {
			a.qemuDetach(g, k)
		}
		g.Config[k] = v
	}
	return nil
}

// qemuDetach keeps a drive's own volume as the next free unusedN.
func (a *Actor) qemuDetach(g *Guest, key string) {
	v := a.w.volume(a.Node, g.Config.volids()[key])
	if v == nil || v.Owner != g.VMID || strings.HasPrefix(key, "unused") {
		return
	}
	for i := range 256 {
		if k := "unused" + decimal(i); g.Config[k] == "" {
			g.Config[k] = v.ID
			return
		}
	}
}
