package pvesim

import (
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// lxcUpdate is PUT …/config: update_vm and update_pct_config. Everything is written to the pending section first; on a stopped
// container it is applied at once, on a running one as far as it can be hot-plugged. What was asked for at one time fails one by one:
// the errors of single keys are collected while the others are kept.
func (w *World) lxcUpdate(r *Request) (any, error) {
	set := r.P.Clone()
	digest, remove, revert := r.P.Str("digest"), r.P.List("delete"), r.P.List("revert")
	for _, k := range []string{"node", "vmid", "digest"} {
		delete(set, k)
	}
	if len(set) == 0 {
		return nil, die("no options specified")
	}
	delete(set, "delete")
	delete(set, "revert")
	for what, list := range map[string][]string{"delete": remove, "revert": revert} {
		for _, k := range list {
			if !ctOption(k) {
				return nil, paramErr(what, "unknown option '%s'", k)
			}
			if set.Has(k) {
				return nil, paramErr(what, "you can't use '-%s' and -%s %s' at the same time", k, what, k)
			}
		}
	}
	return nil, r.LockGuest(kindLXC, r.VMID, func() error {
		g, err := w.guest(kindLXC, r.Node, r.VMID)
		if err != nil {
			return err
		}
		if err := g.checkLock(); err != nil {
			return err
		}
		if digest != "" && digest != "0" && digest != g.Digest() {
			return die("detected modified configuration - file changed by other user? Try again.")
		}
		c := ctChange{vmid: g.VMID, old: g.Config, set: set, remove: remove, unprivileged: g.Config["unprivileged"] == "1"}
		if err := r.ctPermissions(c); err != nil {
			return err
		}
		return r.ctUpdate(g, set, remove, revert)
	})
}

// ctOption says whether a key may stand in a container's config.
func ctOption(k string) bool {
	switch k {
	case "node", "vmid", "digest", "delete", "revert":
		return false
	}
	_, ok := lxcConfigMethod().Key(k)
	return ok
}

func (a *Actor) ctUpdate(g *Guest, set Params, remove, revert []string) error {
	pending, gone := g.Pending.Clone(), map[string]bool{}
	for k, v := range g.Delete {
		gone[k] = v
	}
	modified := map[string]bool{}
	for _, k := range revert {
		delete(pending, k)
		delete(gone, k)
	}
	for _, k := range remove {
		_, here := g.Config[k]
		if _, waits := pending[k]; !here && !waits {
			continue
		}
		modified[k] = true
		switch {
		case k == "memory" || k == "rootfs" || k == "ostype":
			return die("unable to delete required option '%s'", k)
		case k == "unprivileged":
			return die("unable to delete read-only option: '%s'", k)
		case indexed(k, "unused") || indexed(k, "mp"):
			if err := g.checkProtection("can't remove CT %d drive '%s'", g.VMID, k); err != nil {
				return err
			}
		}
		delete(pending, k)
		if here {
			gone[k] = false
		}
	}
	for _, k := range set.Keys() {
		modified[k] = true
		v, err := a.ctPendingValue(g, k, set.Str(k))
		if err != nil {
			return err
		}
		pending[k] = v
		delete(gone, k)
	}
	g.Pending, g.Delete, g.Changed = pending, gone, time.Now()
	g.cleanPending()
	return a.applyPending(g, func(k string) bool { return modified[k] })
}

// ctPendingValue is the value as it waits in the pending section: NICs and mount points get their final form only when applied.
func (a *Actor) ctPendingValue(g *Guest, k, v string) (string, error) {
	switch {
	case k == "unprivileged":
		return "", die("unable to modify read-only option: '%s'", k)
	case k == "rootfs" || indexed(k, "mp"):
		if err := g.checkProtection("can't update CT %d drive '%s'", g.VMID, k); err != nil {
			return "", err
		}
		m, err := parseMount(k, v)
		if err != nil || m.kind() != "volume" {
			return v, err
		}
		id, _, ok := splitVolid(m.volume())
		if !ok {
			return "", die("unable to parse volume ID '%s'", m.volume())
		}
		s, err := a.w.storage(id)
		if err != nil {
			return "", err
		}
		if !s.Has(contentRootdir) {
			return "", die("storage '%s' does not allow content type 'rootdir' (Container)", id)
		}
		return v, nil
	case indexed(k, "net"):
		return v, a.checkMTU(k, v)
	}
	return a.ctValue(k, v)
}

// checkMTU refuses an MTU beyond that of the bridge; the simulator's bridges have 1500.
func (a *Actor) checkMTU(k, v string) error {
	p, err := schema.ParsePropString(".net", "", v)
	if err != nil || p["mtu"] == "" {
		return nil
	}
	switch {
	case !slices.Contains(a.w.node(a.Node).Bridges, p["bridge"]):
		return die("bridge '%s' does not exist", p["bridge"])
	case number(p["mtu"]) > bridgeMTU:
		return die("%s: MTU size '%s' is bigger than bridge MTU '%d'", k, p["mtu"], bridgeMTU)
	}
	return nil
}

const bridgeMTU = 1500

// ctFastPlug are the keys that need no work on a running container.
func ctFastPlug(k string) bool {
	switch k {
	case "description", "onboot", "startup", "protection", "hostname", "hookscript", "cores", "tags", "lock":
		return true
	}
	return false
}

// applyPending brings what is pending into effect, as far as wanted says: all keys on a stopped container, those that can be
// hot-plugged on a running one; the rest waits for a restart.
func (a *Actor) applyPending(g *Guest, wanted func(string) bool) error {
	errs := map[string]string{}
	fail := func(k string, err error) {
		what := "unable to apply pending change " + k + " : "
		if g.Running {
			what = "unable to hotplug " + k + ": "
		}
		errs[k] = what + strings.TrimRight(asError(err).Error(), "\n") + "\n"
	}
	for _, k := range sortedKeys(g.Delete) {
		if !wanted(k) || g.Running && !ctHotRemove(k) {
			continue
		}
		if err := a.ctRemove(g, k); err != nil {
			fail(k, err)
			continue
		}
		delete(g.Config, k)
		delete(g.Delete, k)
	}
	for _, k := range g.Pending.Keys() {
		if !wanted(k) || g.Running && !ctHotPlug(g, k) {
			continue
		}
		v, err := a.ctApply(g, k, g.Pending[k])
		if err != nil {
			fail(k, err)
			continue
		}
		delete(g.Pending, k)
		if g.Config[k] = v; k == "description" && v == "" {
			delete(g.Config, k)
		}
	}
	g.cleanPending()
	if len(errs) > 0 {
		return paramErrs(errs)
	}
	return nil
}

func ctHotRemove(k string) bool {
	switch k {
	case "swap", "cpulimit", "cpuunits":
		return true
	}
	return ctFastPlug(k) || indexed(k, "unused") || indexed(k, "net")
}

func ctHotPlug(g *Guest, k string) bool {
	switch k {
	case "swap", "memory", "cpulimit", "cpuunits":
		return true
	}
	_, has := g.Config[k]
	return ctFastPlug(k) || indexed(k, "net") || indexed(k, "mp") && !has
}

// ctRemove does what the removal of a key entails: volumes stay as unusedN, and go with that.
func (a *Actor) ctRemove(g *Guest, k string) error {
	m, err := parseMount(k, g.Config[k])
	switch {
	case indexed(k, "mp") && err == nil:
		if m.kind() == "volume" && !g.ctInUse(m.volume(), k) {
			return g.addUnused(m.volume())
		}
	case indexed(k, "unused"):
		if err == nil && !g.ctInUse(m.volume(), k) {
			return a.freeMount(g.VMID, m.volume())
		}
	}
	return nil
}

// ctApply does what a new value entails and returns its final form. rootfs is taken as it is, even in create form: PVE stores it
// and breaks the container (facts.md G).
func (a *Actor) ctApply(g *Guest, k, v string) (string, error) {
	switch {
	case indexed(k, "net"):
		if g.Running {
			if err := a.replug(g, k, v); err != nil {
				return "", err
			}
		}
		return a.ctNet(v)
	case indexed(k, "mp"):
		return a.applyMount(g, k, v)
	}
	return v, nil
}

// replug puts a running container's NIC in the place of the one it has. The old one is gone, from the config too, before the new one
// is tried: a failure leaves the container without (vx-033, vx-035).
func (a *Actor) replug(g *Guest, k, v string) error {
	before, err := schema.ParsePropString(".net", "", g.Config[k])
	after, err2 := schema.ParsePropString(".net", "", v)
	if err == nil && err2 == nil {
		if before["hwaddr"] != after["hwaddr"] || before["name"] != after["name"] {
			delete(g.Config, k)
		} else {
			for _, sub := range []string{"bridge", "tag", "trunks", "firewall", "rate"} {
				delete(before, sub)
			}
			if s, err := schema.PrintPropString(".net", before); err == nil {
				g.Config[k] = s
			}
		}
	}
	return a.plugNIC(v)
}

// plugNIC fails where the bridge or, for a tagged NIC, VLAN support is missing.
func (a *Actor) plugNIC(v string) error {
	p, err := schema.ParsePropString(".net", "", v)
	if err != nil || p["bridge"] == "" {
		return nil
	}
	n := a.w.node(a.Node)
	switch {
	case !slices.Contains(n.Bridges, p["bridge"]):
		return die("bridge '%s' does not exist", p["bridge"])
	case p["tag"] != "" && n.lacks(Lacks8021q):
		return die("no physical interface on bridge '%s'", p["bridge"])
	}
	return nil
}

// applyMount is apply_pending_mountpoint: the create form makes a volume every time, and what it replaces becomes unused.
func (a *Actor) applyMount(g *Guest, k, v string) (string, error) {
	m, err := parseMount(k, v)
	if err != nil {
		return "", err
	}
	if g.Running && a.w.node(a.Node).lacks(LacksAppArmor) {
		return "", die("failed to change apparmor profile: Invalid argument")
	}
	if newMount.MatchString(m.volume()) {
		if _, err := a.createMount(g.VMID, m); err != nil {
			return "", err
		}
	} else if vol := a.w.volume(a.Node, m.volume()); vol != nil {
		m.setSize(vol.Size)
	}
	for u, old := range g.Config { // what is in use again is not unused
		if indexed(u, "unused") && old == m.volume() {
			delete(g.Config, u)
		}
	}
	if old, err := parseMount(k, g.Config[k]); err == nil && old.kind() == "volume" && old.volume() != m.volume() && !g.ctInUse(old.volume(), k) {
		return m.print(), g.addUnused(old.volume())
	}
	return m.print(), nil
}
