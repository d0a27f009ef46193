package pvesim

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// qemuVersion is the QEMU that nodes of the simulator run.
const qemuVersion = "10.0.13"

// qemuParams takes the config keys out of a request's parameters; nothing is checked but SSH keys, whose text must be keys once it is
// decoded, and cdrom is the ide2 it stands for.
func (r *Request) qemuParams() (map[string]any, error) {
	set := map[string]any{}
	for k, v := range r.P {
		if !qemuNoKeys()[k] {
			set[k] = v
		}
	}
	if v, ok := r.P["cdrom"]; ok {
		if _, both := set["ide2"]; both {
			return nil, paramErr("cdrom", "conflicts with parameter 'ide2'")
		}
		set["ide2"] = orElse(text(v), "none") + ",media=cdrom"
		if strings.Contains(text(v), "media=") {
			set["ide2"] = text(v)
		}
	}
	if keys, ok := r.P.Get("sshkeys"); ok {
		if decoded, err := url.PathUnescape(keys); err == nil {
			keys = decoded
		}
		if err := checkPublicKeys(keys); err != nil {
			return nil, err
		}
	}
	return set, nil
}

func (w *World) qemuCreate(r *Request) (any, error) {
	vmid, pool, storage := r.P.Int("vmid", 0), r.P.Str("pool"), r.P.Str("storage")
	set, err := r.qemuParams()
	if err != nil {
		return nil, err
	}
	if pool != "" && w.Pools[pool] == nil {
		return nil, permErr(fmt.Sprintf("pool '%s' does not exist", pool))
	}
	if storage != "" {
		if err := w.check(r.Who, "/storage/"+storage, "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
	}
	if !w.can(r.Who, "/vms/"+decimal(vmid), "VM.Allocate") && (pool == "" || !w.can(r.Who, "/pool/"+pool, "VM.Allocate")) {
		return nil, permErr("")
	}
	if r.P.Str("archive") != "" {
		return nil, die("unable to restore VM %d - backups are not simulated", vmid)
	}
	plain := Section{}
	for k, v := range set {
		plain[k] = text(v)
	}
	if err := r.qemuCreatePerms(vmid, pool, storage, plain); err != nil {
		return nil, err
	}
	if g := w.Guests[vmid]; g != nil {
		kind := "VM"
		if g.Kind == kindLXC {
			kind = "CT"
		}
		return nil, die("unable to create VM %d - %s %d already exists on node '%s'", vmid, kind, vmid, g.Node)
	}
	start := r.P.Bool("start")
	if start {
		if err := r.vmPerm(vmid, pool, "VM.PowerMgmt"); err != nil {
			return nil, err
		}
	}
	g := r.newGuest(kindQemu, vmid)
	g.Config["lock"] = "create"
	ha := r.P.Bool("ha-managed")
	return r.spawn("qmcreate", decimal(vmid), func(a *Actor) error {
		err := a.LockGuest(kindQemu, vmid, func() error { return a.qemuFill(g, set, plain, pool, storage) })
		if err != nil {
			a.abandonGuest(g)
			return wrap(fmt.Sprintf("unable to create VM %d - ", vmid), err)
		}
		if ha {
			w.HA["vm:"+decimal(vmid)] = &HAResource{SID: "vm:" + decimal(vmid), State: "started"}
		}
		if start {
			a.Logf("Execute autostart")
			if err := a.qemuStartGuest(vmid, startOptions{}); err != nil {
				a.Logf("%s", err.Error())
			}
		}
		return nil
	}), nil
}

// abandonGuest takes back the reservation of an id whose guest could not be made. Rights on the id stay, unlike after a removal.
func (a *Actor) abandonGuest(g *Guest) {
	if a.w.Guests[g.VMID] != g {
		return
	}
	delete(a.w.Guests, g.VMID)
	for _, p := range a.w.Pools {
		delete(p.VMs, g.VMID)
	}
}

// qemuCreatePerms is what create checks before it takes the id, in PVE's order; plain comes back with drives and NICs as PVE prints
// them.
func (a *Actor) qemuCreatePerms(vmid int, pool, storage string, plain Section) error {
	if err := a.storagePerms(vmid, plain, storage); err != nil {
		return err
	}
	if err := a.keyPerms(vmid, pool, plain.Keys()); err != nil {
		return err
	}
	for _, k := range plain.Keys() {
		if err := a.devicePerm(vmid, pool, k, plain[k], "set"); err != nil {
			return err
		}
	}
	if err := a.bridgePerm(plain); err != nil {
		return err
	}
	return a.qemuCleanDrives(plain)
}

// qemuFill turns the parameters of a create into the config, making the volumes.
func (a *Actor) qemuFill(g *Guest, set map[string]any, plain Section, pool, storage string) error {
	w := a.w
	if t, ok := plain["tags"]; ok {
		if err := w.checkTags(a.Who, g.VMID, "", t); err != nil {
			return err
		}
	}
	conf := Section{}
	for _, k := range plain.Keys() {
		v, err := w.canonical(a.Node, k, plain[k])
		if err != nil {
			return err
		}
		var value any = v
		if set[k] == nil {
			value = nil
		}
		v, keep, err := fileValue(k, value)
		if err != nil {
			return err
		}
		if keep && (k != "description" || v != "") && !isDrive(k) {
			conf[k] = v
		}
	}
	disks, err := a.createDisks(&Guest{VMID: g.VMID, Config: Section{}, Pending: Section{}}, plain, storage, Params{"t": plain["template"]}.Bool("t"))
	if err != nil {
		return err
	}
	for k, v := range disks {
		conf[k] = v
	}
	if conf["smbios1"] == "" {
		conf["smbios1"] = "uuid=" + w.uuid()
	}
	if conf["vmgenid"] == "" || conf["vmgenid"] == "1" {
		conf["vmgenid"] = w.uuid()
	}
	conf["meta"] = fmt.Sprintf("creation-qemu=%s,ctime=%d", qemuVersion, time.Now().Unix())
	if strings.TrimSpace(conf["boot"]) == "" {
		conf["boot"] = defaultBoot(conf)
	}
	pinWindowsMachine(conf)
	if w.Guests[g.VMID] != g {
		return die("Configuration file '%s' does not exist", configFile(kindQemu, a.Node, g.VMID))
	}
	if pool != "" && w.Pools[pool] != nil {
		w.Pools[pool].VMs[g.VMID] = true
	}
	g.Config = conf
	qemuSaved(g)
	return nil
}

// canonical is a value as PVE writes it where it is not as sent: NICs with their MAC, the machine's type first, tags.
func (w *World) canonical(node, key, value string) (string, error) {
	switch f := family(key); {
	case f == "net" && f != key:
		return w.netText(key, value)
	case key == "machine":
		if p, ok := qemuConfigMethod().Key(key); ok && p.Format != nil {
			props, err := p.Format.Parse(key, value)
			if err != nil {
				return value, nil
			}
			return p.Format.Print(props)
		}
	case key == "tags":
		return w.uniqueTags(value), nil
	case key == "cpuunits" && plainInteger.MatchString(value):
		return decimal(w.node(node).clampShares(number(value))), nil
	case key == "vmgenid" && value == "1":
		return w.uuid(), nil
	}
	return value, nil
}

// pinWindowsMachine fixes the machine version of a new Windows guest, as PVE does so that its hardware never changes by itself.
func pinWindowsMachine(conf Section) {
	if !strings.HasPrefix(conf["ostype"], "w") {
		return
	}
	kind, rest, _ := strings.Cut(conf["machine"], ",")
	version := qemuVersion[:strings.LastIndexByte(qemuVersion, '.')] + "+pve0"
	switch kind {
	case "", "pc":
		kind = "pc-i440fx-" + version
	case "q35":
		kind = "pc-q35-" + version
	}
	if conf["machine"] = kind; rest != "" {
		conf["machine"] += "," + rest
	}
}

func orElse(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// defaultBoot is the boot order that PVE writes at create: the first disk, the first CD drive, the first NIC; one blank when there is
// nothing to boot from.
func defaultBoot(conf Section) string {
	var disk, cd string
	for _, k := range driveKeys(conf) {
		d, ok := parseDrive(k, conf[k])
		switch {
		case !ok || !strings.Contains(strings.Join(bootBuses(), " "), family(k)):
		case d.cdrom(false):
			cd = orElse(cd, k)
		default:
			disk = orElse(disk, k)
		}
	}
	var order []string
	for _, k := range []string{disk, cd} {
		if k != "" {
			order = append(order, k)
		}
	}
	for i := range 32 {
		if k := "net" + decimal(i); conf[k] != "" {
			order = append(order, k)
			break
		}
	}
	return bootText(order)
}

// bootOrder is the devices of a boot value in the new form; nil for the legacy one.
func bootOrder(boot string) []string {
	for part := range strings.SplitSeq(boot, ",") {
		if order, ok := strings.CutPrefix(part, "order="); ok {
			return splitList(order)
		}
	}
	return nil
}

func bootText(order []string) string {
	if len(order) == 0 {
		return " "
	}
	return "order=" + strings.Join(order, ";")
}
