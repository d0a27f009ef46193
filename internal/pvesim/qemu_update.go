package pvesim

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// update is one change of a VM's config.
type update struct {
	vmid int
	// set are the values as sent (nil for a JSON null), plain the same as text, drives and NICs as PVE prints them.
	set    map[string]any
	plain  Section
	remove []string
	revert []string
	digest string
	// force destroys the volumes of removed drives; skipLock passes the lock of the config; empty says that nothing was asked for.
	force, skipLock, empty bool
}

func (w *World) qemuUpdate(r *Request) (any, error) {
	u, err := r.qemuUpdateParams()
	if err != nil {
		return nil, err
	}
	return nil, r.qemuUpdateSync(u)
}

func (a *Actor) qemuUpdateSync(u *update) error {
	return a.LockGuest(kindQemu, u.vmid, func() error {
		g, err := a.qemuUpdateCheck(u)
		if err != nil {
			return err
		}
		return a.qemuUpdateApply(g, u)
	})
}

// qemuUpdateAsync is POST …/config: the checks are made at once, the work in a task. With background_delay the answer waits for it.
func (w *World) qemuUpdateAsync(r *Request) (any, error) {
	u, err := r.qemuUpdateParams()
	if err != nil {
		return nil, err
	}
	err = r.LockGuest(kindQemu, u.vmid, func() error {
		_, err := r.qemuUpdateCheck(u)
		return err
	})
	if err != nil {
		return nil, err
	}
	line := u.String()
	upid := r.spawn("qmconfig", decimal(u.vmid), func(a *Actor) error {
		a.Logf("%s", line)
		return a.LockGuest(kindQemu, u.vmid, func() error {
			g, err := w.guest(kindQemu, a.Node, u.vmid)
			if err != nil {
				return err
			}
			return a.qemuUpdateApply(g, u)
		})
	})
	d := r.P.Int("background_delay", 0)
	if d <= 0 {
		return upid, nil
	}
	t := w.taskIndex[upid]
	switch {
	case t == nil || !r.wait(t, time.Duration(d)*time.Second):
		return upid, nil
	case t.Exit == "OK" || strings.HasPrefix(t.Exit, "WARNINGS"):
		return nil, nil
	}
	return nil, die("failed to update VM %d: %s", u.vmid, t.Exit)
}

// String is the line that PVE logs about a change.
func (u *update) String() string {
	line := "update VM " + decimal(u.vmid) + ":"
	args := Section{}
	for k, v := range u.set {
		args[k] = text(v)
	}
	if len(u.remove) > 0 {
		args["delete"] = strings.Join(u.remove, ",")
	}
	for _, k := range args.Keys() {
		if k == "cipassword" {
			args[k] = "<hidden>"
		}
		line += " -" + k + " " + args[k]
	}
	return line
}

// qemuUpdateParams reads the call and makes the checks that need no lock.
func (r *Request) qemuUpdateParams() (*update, error) {
	set, err := r.qemuParams()
	if err != nil {
		return nil, err
	}
	u := &update{
		vmid: r.VMID, set: set, remove: r.P.List("delete"), revert: r.P.List("revert"), digest: r.P.Str("digest"), force: r.P.Bool("force"),
		skipLock: r.P.Bool("skiplock"), empty: len(set) == 0 && !r.P.Bool("delete") && !r.P.Bool("revert"),
	}
	return u, r.qemuUpdatePrepare(u)
}

func (a *Actor) qemuUpdatePrepare(u *update) error {
	w := a.w
	if u.skipLock && !a.Who.RootTicket() {
		return paramErr("skiplock", "Only root may use this option.")
	}
	if u.empty {
		return die("no options specified")
	}
	for _, k := range u.revert {
		if !qemuKey(k) {
			return paramErr("revert", "unknown option '%s'", k)
		}
		if _, both := u.set[k]; both {
			return paramErr("delete", "you can't use '-%s' and -revert %s' at the same time", k, k)
		}
	}
	for i, k := range u.remove {
		if k == "cdrom" {
			k = "ide2"
			u.remove[i] = k
		}
		if _, both := u.set[k]; both {
			return paramErr("delete", "you can't use '-%s' and -delete %s' at the same time", k, k)
		}
		if slices.Contains(u.revert, k) {
			return paramErr("revert", "you can't use '-%s' and -revert %s' at the same time", k, k)
		}
		if !qemuKey(k) {
			return paramErr("delete", "unknown option '%s'", k)
		}
	}
	u.plain = Section{}
	for k, v := range u.set {
		u.plain[k] = text(v)
	}
	if err := a.qemuCleanDrives(u.plain); err != nil {
		return err
	}
	for _, k := range u.plain.Keys() {
		if k == "tags" || u.set[k] == nil { // tags are compared as sent first
			continue
		}
		if k == "hookscript" {
			if err := a.checkHookscript(u.plain[k]); err != nil {
				return paramErr(k, "%s\n", err.Error())
			}
		}
		v, err := w.canonical(a.Node, k, u.plain[k])
		if err != nil {
			return err
		}
		u.plain[k] = v
	}
	if err := a.keyPerms(u.vmid, "", u.remove); err != nil {
		return err
	}
	if err := a.keyPerms(u.vmid, "", u.plain.Keys()); err != nil {
		return err
	}
	if err := a.storagePerms(u.vmid, u.plain, ""); err != nil {
		return err
	}
	return a.bridgePerm(u.plain)
}

// qemuUpdateCheck makes the checks against the config, under its lock.
func (a *Actor) qemuUpdateCheck(u *update) (*Guest, error) {
	g, err := a.w.guest(kindQemu, a.Node, u.vmid)
	if err != nil {
		return nil, err
	}
	if u.digest != "" && u.digest != "0" && u.digest != g.Digest() {
		return nil, die("checksum mismatch (file change by other user?)")
	}
	if !u.skipLock {
		if err := g.checkLock(); err != nil {
			return nil, err
		}
	}
	if err := g.balloonFits(u.plain); err != nil {
		return nil, err
	}
	for _, k := range u.revert {
		if v, ok := g.Config[k]; ok {
			u.plain[k], u.set[k] = v, v
		} else if _, ok := g.Pending[k]; ok {
			u.remove = append(u.remove, k)
		}
	}
	return g, nil
}

// balloonFits refuses a balloon target above the memory, which only changes check: a create takes any (qc-017).
func (g *Guest) balloonFits(set Section) error {
	if set["memory"] == "" && set["balloon"] == "" {
		return nil
	}
	value := func(k string) string { return orElse(orElse(set[k], g.Pending[k]), g.Config[k]) }
	balloon := Params{"v": value("balloon")}.Int("v", 0)
	if memory := memoryOf(value("memory")) >> 20; balloon > 0 && int64(balloon) > memory {
		return die("balloon value too large (must be smaller than assigned memory)")
	}
	return nil
}

// qemuUpdateApply writes the change into the pending section and then applies what can be applied: all of it on a stopped guest, what
// hotplugs on a running one. It is not atomic: what came before a fault stays (facts.md D).
func (a *Actor) qemuUpdateApply(g *Guest, u *update) error {
	modified := map[string]bool{}
	order := bootOrder(g.Config["boot"])
	for _, k := range u.remove {
		modified[k] = true
		if err := a.qemuRemoveKey(g, u, k, &order, modified); err != nil {
			return err
		}
	}
	for _, k := range u.plain.Keys() {
		modified[k] = true
		if v, ok := g.Pending[k]; ok && v == u.plain[k] {
			continue
		}
		if err := a.qemuSetKey(g, u, k, &order, modified); err != nil {
			return err
		}
		delete(g.Delete, k)
		qemuSaved(g)
	}
	g.cleanPending()
	if len(g.Pending) == 0 && len(g.Delete) == 0 {
		return nil
	}
	errs := map[string]string{}
	if g.Running {
		a.qemuHotplug(g, modified, errs)
	} else if err := a.qemuApplyPending(g, errs); err != nil {
		return err
	}
	if len(errs) > 0 {
		return paramErrs(errs)
	}
	return nil
}

func (a *Actor) qemuRemoveKey(g *Guest, u *update, k string, order *[]string, modified map[string]bool) error {
	value, ok := g.Config[k]
	pending, isPending := g.Pending[k]
	if !ok {
		value, ok = pending, isPending
	}
	if !ok {
		modified[k] = false
		a.Logf("cannot delete '%s' - not set in current configuration!", k)
		return nil
	}
	undo := func(err error) error { // PVE drops its copy of the config
		if isPending {
			g.Pending[k] = pending
		}
		return err
	}
	delete(g.Pending, k)
	var boot string
	if i := slices.Index(*order, k); i >= 0 {
		*order = slices.Delete(slices.Clone(*order), i, i+1)
		boot = bootText(*order)
	}
	f := family(k)
	var err error
	switch {
	case f == "unused":
		d := &drive{key: k, props: schema.Props{"file": strings.SplitN(value, ",", 2)[0]}}
		if err = g.checkProtection("can't remove unused disk '%s'", d.file()); err == nil {
			err = a.vmPerm(g.VMID, "", "VM.Config.Disk")
		}
		if err == nil {
			err = a.deallocate(g, d)
		}
		if err != nil {
			return undo(err)
		}
		delete(g.Config, k)
		qemuSaved(g)
		return nil
	case isDrive(k):
		if err = g.checkProtection("can't remove drive '%s'", k); err == nil {
			err = a.drivePerm(g.VMID, k, value)
		}
		if d, ok := parseDrive(k, pending); err == nil && isPending && ok {
			err = a.registerUnused(g, d)
		}
	case k == "tags":
		if err = a.w.checkTags(a.Who, g.VMID, value, ""); err == nil {
			delete(g.Config, k)
		}
	case f == "net" && f != k:
		err = a.bridgePerm(Section{k: g.Config[k]})
	default:
		err = a.devicePerm(g.VMID, "", k, value, "delete")
	}
	if err != nil {
		return undo(err)
	}
	if boot != "" {
		g.Pending["boot"] = boot
		modified["boot"] = true
	}
	if k != "tags" {
		g.Delete[k] = u.force
	}
	qemuSaved(g)
	return nil
}

var cryptHash = regexp.MustCompile(`^\$(?:[156]|2[ay])(\$.+){2}`)

func (a *Actor) qemuSetKey(g *Guest, u *update, k string, order *[]string, modified map[string]bool) error {
	w, value := a.w, u.plain[k]
	f := family(k)
	switch {
	case isDrive(k):
		return a.qemuSetDrive(g, u, k, order, modified)
	case f == "net" && f != k:
		if err := a.bridgePerm(Section{k: g.Config[k]}); err != nil {
			return err
		}
	case k == "tags":
		if err := w.checkTags(a.Who, g.VMID, g.Config[k], value); err != nil {
			return err
		}
		value = w.uniqueTags(value)
	case k == "machine":
		if err := checkMachine(value); err != nil {
			return err
		}
	case k == "cipassword" && !strings.HasPrefix(g.Config["ostype"], "w"):
		if !cryptHash.MatchString(value) {
			value = sha256Crypt(value, cryptSalt(w.draw(8)))
		}
	default:
		if old := g.Config[k]; old != "" && f != k {
			if err := a.devicePerm(g.VMID, "", k, old, "modify"); err != nil {
				return err
			}
		}
		if err := a.devicePerm(g.VMID, "", k, value, "modify"); err != nil {
			return err
		}
	}
	raw := any(value)
	if u.set[k] == nil {
		raw = nil
	}
	stored, keep, err := fileValue(k, raw)
	if err != nil || !keep {
		return err
	}
	if k == "boot" {
		for _, dev := range bootOrder(value) {
			_, cur := g.Config[dev]
			_, pend := g.Pending[dev]
			_, now := u.plain[dev]
			if !cur && !pend && !now || slices.Contains(u.remove, dev) {
				return die("invalid bootorder: device '%s' does not exist'", dev)
			}
		}
		if g.Config["bootdisk"] != "" {
			g.Delete["bootdisk"] = false
		}
		*order = bootOrder(value)
	}
	g.Pending[k] = stored
	return nil
}

func (a *Actor) qemuSetDrive(g *Guest, u *update, k string, order *[]string, modified map[string]bool) error {
	if old := g.Config[k]; old != "" {
		if err := a.drivePerm(g.VMID, k, old); err != nil {
			return err
		}
	}
	if err := a.drivePerm(g.VMID, k, u.plain[k]); err != nil {
		return err
	}
	if old, ok := g.Pending[k]; ok {
		if d, ok := parseDrive(k, old); ok {
			if err := a.registerUnused(g, d); err != nil {
				return err
			}
		}
	}
	made, err := a.createDisks(g, Section{k: u.plain[k]}, "", g.Template())
	if err != nil {
		return err
	}
	if text, ok := made[k]; ok { // what cannot be read as a drive of this bus is passed over
		g.Pending[k] = text
	}
	d, ok := parseDrive(k, u.plain[k])
	if len(*order) > 0 && ok && d.cdrom(true) && !slices.Contains(*order, k) { // new CD drives are bootable, disks are not
		*order = append(slices.Clone(*order), k)
		g.Pending["boot"] = bootText(*order)
		modified["boot"] = true
	}
	return nil
}
