package pvesim

import (
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// vmPerm is check_vm_perm: privileges on the pool that the guest is being made in will do, else they are needed on the guest.
func (a *Actor) vmPerm(vmid int, pool string, privs ...string) error {
	if pool != "" && a.w.can(a.Who, "/pool/"+pool, privs...) {
		return nil
	}
	return a.w.check(a.Who, "/vms/"+decimal(vmid), privs...)
}

// keyPerms is check_vm_modify_config_perm for the keys whose privilege does not depend on their value.
func (a *Actor) keyPerms(vmid int, pool string, keys []string) error {
	if a.Who.RootTicket() {
		return nil
	}
	for _, k := range keys {
		f := family(k)
		if isDrive(k) || k == "cdrom" || k == "tags" || f != k && slices.Contains([]string{"unused", "serial", "usb", "hostpci"}, f) {
			continue
		}
		privs, anyOf := keyPrivilege(k)
		var err error
		switch {
		case privs == nil:
			return die("only root can set '%s' config", k)
		case anyOf:
			if pool == "" || !a.w.canAny(a.Who, "/pool/"+pool, privs...) {
				err = a.w.checkAny(a.Who, "/vms/"+decimal(vmid), privs...)
			}
		default:
			err = a.vmPerm(vmid, pool, privs...)
		}
		if err == nil && k == "startup" {
			err = a.w.check(a.Who, "/", "Sys.Modify")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// devicePerm checks what may be done with a serial port, USB or PCI device, random number source or shared directory: real devices
// are root's, mapped ones need the right to use the mapping. verb is set, modify or delete.
func (a *Actor) devicePerm(vmid int, pool, key, value, verb string) error {
	if a.Who.RootTicket() {
		return nil
	}
	hw := func() error { return a.vmPerm(vmid, pool, "VM.Config.HWType") }
	p, ok := qemuConfigMethod().Key(key)
	var props schema.Props
	if ok && p.Format != nil {
		props, _ = p.Format.Parse(key, value)
	}
	mapped := func(kind string) error {
		if err := hw(); err != nil {
			return err
		}
		return a.w.check(a.Who, "/mapping/"+kind+"/"+props["mapping"], "Mapping.Use")
	}
	switch f := family(key); {
	case f == "serial" && f != key:
		if value == "socket" {
			return hw()
		}
		return die("only root can %s '%s' config for real devices", verb, key)
	case f == "usb" && f != key:
		switch {
		case props["host"] == "spice":
			return hw()
		case props["host"] != "":
			return die("only root can set '%s' config for real devices", key)
		case props["mapping"] != "":
			return mapped("usb")
		}
		return die("either 'host' or 'mapping' must be set.")
	case f == "hostpci" && f != key:
		switch {
		case props["host"] != "":
			return die("only root can set '%s' config for non-mapped devices", key)
		case props["mapping"] != "":
			return mapped("pci")
		}
		return die("either 'host' or 'mapping' must be set.")
	case key == "rng0" && props["source"] == "/dev/hwrng":
		return a.w.check(a.Who, "/mapping/hwrng", "Mapping.Use")
	case f == "virtiofs" && f != key:
		return a.w.check(a.Who, "/mapping/dir/"+props["dirid"], "Mapping.Use")
	}
	return nil
}

// bridgePerm is check_bridge_access: a NIC needs SDN.Use on its bridge, on the VLAN below it when it has a tag or trunks.
func (a *Actor) bridgePerm(nics Section) error {
	if a.Who.RootTicket() {
		return nil
	}
	for _, k := range nics.Keys() {
		if f := family(k); f != "net" || f == k {
			continue
		}
		net, err := parseNet(k, nics[k])
		if err != nil || net["bridge"] == "" {
			continue
		}
		path := "/sdn/zones/localnetwork/" + net["bridge"]
		var paths []string
		if net["tag"] != "" {
			paths = append(paths, path+"/"+net["tag"])
		}
		for _, t := range splitList(net["trunks"]) {
			paths = append(paths, path+"/"+t)
		}
		if len(paths) == 0 {
			paths = []string{path}
		}
		for _, p := range paths {
			if err := a.w.check(a.Who, p, "SDN.Use"); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseNet reads a netN value.
func parseNet(key, value string) (schema.Props, error) {
	p, ok := qemuConfigMethod().Key(key)
	if !ok || p.Format == nil {
		return nil, die("unknown network device '%s'", key)
	}
	return p.Format.Parse(key, value)
}

// netText prints a NIC as the config holds it, with a new MAC when it has none: every write without one draws again (facts.md C).
func (w *World) netText(key, value string) (string, error) {
	p, ok := qemuConfigMethod().Key(key)
	if !ok || p.Format == nil {
		return "", die("unknown network device '%s'", key)
	}
	props, err := p.Format.Parse(key, value)
	if err != nil {
		return "", die("%s", strings.TrimSpace(err.Error()))
	}
	if props["macaddr"] == "" {
		props["macaddr"] = w.mac()
	}
	return p.Format.Print(props)
}

// drivePerm checks the privilege for the kind of drive that a value is.
func (a *Actor) drivePerm(vmid int, key, value string) error {
	d, ok := parseDrive(key, value)
	switch {
	case !ok:
		return nil
	case d.cloudinit():
		return a.vmPerm(vmid, "", "VM.Config.Cloudinit", "VM.Config.CDROM")
	case d.cdrom(true):
		return a.vmPerm(vmid, "", "VM.Config.CDROM")
	}
	return a.vmPerm(vmid, "", "VM.Config.Disk")
}

// storagePerms is check_storage_access: may the caller use the storages and volumes that the drives name, and can they be used?
func (a *Actor) storagePerms(vmid int, set Section, def string) error {
	for _, k := range set.Keys() {
		if !isDrive(k) {
			continue
		}
		d, ok := parseDrive(k, set[k])
		if !ok {
			continue
		}
		if err := a.driveAccess(vmid, d, def); err != nil {
			return err
		}
		if src := d.props["import-from"]; src != "" {
			if err := a.importAccess(vmid, d.key, src); err != nil {
				return err
			}
		}
	}
	if s := set["vmstatestorage"]; s != "" {
		return a.w.check(a.Who, "/storage/"+s, "Datastore.AllocateSpace")
	}
	return nil
}

func (a *Actor) driveAccess(vmid int, d *drive, def string) error {
	_, name, managed := splitVolid(d.file())
	storage, _, fresh := d.newDisk(def)
	switch {
	case d.file() == "none", d.file() == "cloudinit", managed && name == "cloudinit":
		return nil
	case d.cdrom(false) && d.file() == "cdrom":
		return a.w.check(a.Who, "/", "Sys.Console")
	case !d.cdrom(false) && fresh:
		if storage == "" {
			return die("no storage ID specified (and no default storage)")
		}
		if err := a.w.check(a.Who, "/storage/"+storage, "Datastore.AllocateSpace"); err != nil {
			return err
		}
		s, err := a.w.storage(storage)
		if err != nil {
			return err
		}
		if !s.Has(contentImages) {
			return paramErr("storage", "storage '%s' does not support vm images", storage)
		}
		return nil
	case d.file() == "cdrom":
		return nil
	}
	if err := a.w.volumeAccess(a.Who, vmid, d.file(), ""); err != nil {
		return err
	}
	if managed && !strings.HasPrefix(d.file(), "/") {
		kind, err := a.w.volumeType(d.file())
		if err != nil {
			return err
		}
		if kind == contentISO && !d.cdrom(false) {
			return paramErr(d.key, "explicit 'media=cdrom' is required for iso images")
		}
	}
	return nil
}

func (a *Actor) importAccess(vmid int, key, src string) error {
	if _, _, managed := splitVolid(src); managed && !strings.HasPrefix(src, "/") {
		kind, err := a.w.volumeType(src)
		if err != nil {
			return err
		}
		if kind != contentImages && kind != contentImport {
			return paramErr(key, "%s has wrong type '%s' - needs to be 'images' or 'import'", src, kind)
		}
		if owner := a.w.ownerOf(src); kind == contentImages && owner != 0 {
			return a.w.check(a.Who, "/vms/"+decimal(owner), "VM.Clone")
		}
	}
	return a.w.volumeAccess(a.Who, vmid, src, "")
}
