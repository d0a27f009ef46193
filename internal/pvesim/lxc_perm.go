package pvesim

import (
	"github.com/proxops/proxops/internal/pvesim/schema"
)

// ctChange is a change of a container's config whose rights are to be checked.
type ctChange struct {
	vmid         int
	old          Section
	set          Params
	remove       []string
	unprivileged bool
	// pool is where a new container will be: rights on it count.
	pool string
}

// ctPermissions is check_ct_modify_config_perm: which right each key needs. root@pam by ticket may do all; its tokens are ordinary
// callers here (facts.md A vi).
func (a *Actor) ctPermissions(c ctChange) error {
	if a.Who.RootTicket() {
		return nil
	}
	for _, k := range c.remove {
		if err := a.ctPermission(c, k, true); err != nil {
			return err
		}
	}
	for _, k := range c.set.Keys() {
		if err := a.ctPermission(c, k, false); err != nil {
			return err
		}
	}
	return nil
}

// needs checks a privilege on the container, or on the pool it will be in.
func (a *Actor) needs(c ctChange, priv string) error {
	if c.pool != "" && a.w.can(a.Who, "/pool/"+c.pool, priv) {
		return nil
	}
	return a.w.check(a.Who, "/vms/"+decimal(c.vmid), priv)
}

func (a *Actor) ctPermission(c ctChange, k string, remove bool) error {
	value := c.set.Str(k)
	switch {
	case k == "cores" || k == "cpuunits" || k == "cpulimit":
		return a.needs(c, "VM.Config.CPU")
	case k == "memory" || k == "swap":
		return a.needs(c, "VM.Config.Memory")
	case k == "rootfs" || indexed(k, "mp"):
		if err := a.needs(c, "VM.Config.Disk"); err != nil || remove {
			return err
		}
		return a.mountPermission(c.vmid, k, value)
	case k == "nameserver" || k == "searchdomain" || k == "hostname" || indexed(k, "net"):
		if err := a.needs(c, "VM.Config.Network"); err != nil {
			return err
		}
		if !indexed(k, "net") {
			return nil
		}
		if err := a.bridgeAccess(c.old[k]); err != nil || remove {
			return err
		}
		return a.bridgeAccess(value)
	case k == "features":
		return a.featurePermission(c, value, remove)
	case k == "hookscript":
		return permErr("changing the hookscript is only allowed for root@pam")
	case indexed(k, "dev"):
		return permErr("configuring device passthrough is only allowed for root@pam")
	case k == "tags":
		if remove {
			value = ""
		}
		return a.w.checkTags(a.Who, c.vmid, c.old[k], value)
	}
	return a.needs(c, "VM.Config.Options")
}

// mountPermission: new volumes need space on their storage, existing ones access; directories and devices of the node are root's.
func (a *Actor) mountPermission(vmid int, key, value string) error {
	m, err := parseMount(key, value)
	if err != nil {
		return err
	}
	if kind := m.kind(); kind != "volume" {
		return permErr("mount point type " + kind + " is only allowed for root@pam")
	}
	if f := newMount.FindStringSubmatch(m.volume()); f != nil {
		return a.w.check(a.Who, "/storage/"+f[1], "Datastore.AllocateSpace")
	}
	return a.w.volumeAccess(a.Who, vmid, m.volume(), contentRootdir)
}

// bridgeAccess checks SDN.Use on the bridge of a NIC, with its VLAN below it.
func (a *Actor) bridgeAccess(net string) error {
	if net == "" {
		return nil
	}
	p, err := schema.ParsePropString(".net", "net", net)
	if err != nil || p["bridge"] == "" {
		return nil
	}
	path := "/sdn/zones/localnetwork/" + p["bridge"]
	if p["tag"] != "" && a.w.can(a.Who, path+"/"+p["tag"], "SDN.Use") {
		return nil
	}
	return a.w.check(a.Who, path, "SDN.Use")
}

// featurePermission: nesting may be changed with VM.Allocate on unprivileged containers; all else is root's. What counts is the
// difference to what is there.
func (a *Actor) featurePermission(c ctChange, value string, remove bool) error {
	if !c.unprivileged {
		return permErr("changing feature flags for privileged container is only allowed for root@pam")
	}
	before, after := features(c.old["features"]), features(value)
	if remove {
		after = schema.Props{}
	}
	nesting, other := false, false
	for _, m := range []schema.Props{before, after} {
		for f := range m {
			if before[f] != after[f] {
				nesting, other = nesting || f == "nesting", other || f != "nesting"
			}
		}
	}
	if other {
		return permErr("changing feature flags (except nesting) is only allowed for root@pam")
	}
	if nesting {
		return a.needs(c, "VM.Allocate")
	}
	return nil
}

func features(text string) schema.Props {
	p, err := schema.ParsePropString(".features", "features", text)
	if text == "" || err != nil {
		return schema.Props{}
	}
	return p
}
