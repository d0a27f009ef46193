package pvesim

import (
	"slices"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

func (w *World) ctRunning(r *Request) bool {
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	return err == nil && g.Running
}

// lxcStart refuses a running container at once, leaves one under HA to the HA manager, and starts all others in a task.
func (w *World) lxcStart(r *Request) (any, error) {
	if err := r.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	if w.ctRunning(r) {
		return nil, die("CT %d already running", r.VMID)
	}
	if upid, ok := r.haRequest(kindLXC, r.VMID, "start"); ok {
		return upid, nil
	}
	vmid, force := r.VMID, r.P.Bool("skiplock")
	return r.spawn("vzstart", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindLXC, vmid, func() error { return a.ctStartLocked(vmid, force) })
	}), nil
}

// ctStart starts a container within another worker.
func (a *Actor) ctStart(vmid int) error {
	return a.LockGuest(kindLXC, vmid, func() error { return a.ctStartLocked(vmid, false) })
}

func (a *Actor) ctStartLocked(vmid int, skiplock bool) error {
	g, err := a.w.guest(kindLXC, a.Node, vmid)
	switch {
	case err != nil:
		return err
	case g.Template():
		return die("you can't start a CT if it's a template")
	}
	if !skiplock {
		if err := g.checkLock(); err != nil {
			return err
		}
	}
	if g.Running {
		return die("CT %d already running", vmid)
	}
	if err := a.applyPending(g, func(string) bool { return true }); err != nil {
		a.Logf("%s", err.Error()) // PVE starts with what it has
	}
	if err := a.ctVolumes(g); err != nil {
		return err
	}
	if !a.ctBoots(g) {
		return die("startup for container '%d' failed", vmid)
	}
	if err := a.Work(startTime); err != nil {
		return err
	}
	a.w.PID++
	g.Running, g.Started, g.PID = true, time.Now(), a.w.PID
	return nil
}

// ctVolumes activates the volumes of a container: each must have a name that the storage takes, and be there.
func (a *Actor) ctVolumes(g *Guest) error {
	for _, m := range mounts(g.Config, false) {
		if m.kind() != "volume" {
			continue
		}
		if _, _, err := a.w.parseVolid(m.volume()); err != nil {
			return err
		}
		if a.w.volume(a.Node, m.volume()) == nil {
			return die("volume '%s' does not exist", m.volume())
		}
	}
	return nil
}

// ctBoots says whether LXC gets the container up: its NICs need their bridges, tagged ones VLAN support, and its devices must be there.
func (a *Actor) ctBoots(g *Guest) bool {
	n := a.w.node(a.Node)
	for k, v := range g.Config {
		if !indexed(k, "net") {
			continue
		}
		p, err := schema.ParsePropString(".net", "", v)
		if err != nil {
			return false
		}
		if b := p["bridge"]; b != "" && (!slices.Contains(n.Bridges, b) || p["tag"] != "" && n.lacks(Lacks8021q)) {
			return false
		}
	}
	return true
}

func (w *World) lxcStop(r *Request) (any, error) {
	if err := r.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	if !w.ctRunning(r) {
		return nil, die("CT %d not running", r.VMID)
	}
	if upid, ok := r.haRequest(kindLXC, r.VMID, "stop"); ok {
		return upid, nil
	}
	vmid, force, overrule := r.VMID, r.P.Bool("skiplock"), r.P.Bool("overrule-shutdown")
	return r.spawn("vzstop", decimal(vmid), func(a *Actor) error {
		if overrule {
			a.overruleShutdown("vzshutdown", vmid)
		}
		return a.LockGuest(kindLXC, vmid, func() error { return a.ctStop(vmid, force) })
	}), nil
}

// ctStop ends a container. What was waiting for that comes into effect with the next start, as it does in PVE.
func (a *Actor) ctStop(vmid int, skiplock bool) error {
	g, err := a.w.guest(kindLXC, a.Node, vmid)
	if err != nil {
		return err
	}
	if !skiplock {
		if err := g.checkLock(); err != nil {
			return err
		}
	}
	if !g.Running {
		return nil
	}
	if err := a.Work(stopTime); err != nil {
		return err
	}
	g.Running, g.PID = false, 0
	return nil
}

func (w *World) lxcShutdown(r *Request) (any, error) {
	if !w.ctRunning(r) {
		return nil, die("CT %d not running", r.VMID)
	}
	if upid, ok := r.haRequest(kindLXC, r.VMID, "stop"); ok {
		return upid, nil
	}
	vmid := r.VMID
	return r.spawn("vzshutdown", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindLXC, vmid, func() error { return a.ctStop(vmid, false) })
	}), nil
}

func (w *World) lxcReboot(r *Request) (any, error) {
	if !w.ctRunning(r) {
		return nil, die("CT %d not running", r.VMID)
	}
	vmid := r.VMID
	return r.spawn("vzreboot", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindLXC, vmid, func() error {
			if err := a.ctStop(vmid, false); err != nil {
				return err
			}
			return a.ctStartLocked(vmid, false)
		})
	}), nil
}

// lxcSuspend and lxcResume are experiments of PVE's that need a checkpoint tool that it does not bring along: their tasks fail.
func (w *World) lxcSuspend(r *Request) (any, error) {
	if !w.ctRunning(r) {
		return nil, die("CT %d not running", r.VMID)
	}
	return r.checkpoint("vzsuspend"), nil
}

func (w *World) lxcResume(r *Request) (any, error) {
	if w.ctRunning(r) {
		return nil, die("CT %d already running", r.VMID)
	}
	return r.checkpoint("vzresume"), nil
}

func (r *Request) checkpoint(kind string) string {
	vmid := r.VMID
	return r.spawn(kind, decimal(vmid), func(a *Actor) error {
		if _, err := a.w.guest(kindLXC, a.Node, vmid); err != nil {
			return err
		}
		return die("command 'lxc-checkpoint -n %d -s -D /var/lib/vz/dump' failed: exit code 1", vmid)
	})
}

// lxcDestroy removes a container: protection, locks and HA refuse at once, a running one wants force.
func (w *World) lxcDestroy(r *Request) (any, error) {
	vmid, force, purge, stray := r.VMID, r.P.Bool("force"), r.P.Bool("purge"), r.P.Bool("destroy-unreferenced-disks")
	early := func(node string) (*Guest, error) {
		g, err := w.guest(kindLXC, node, vmid)
		if err != nil {
			return nil, err
		}
		if err := g.checkProtection("can't remove CT %d", vmid); err != nil {
			return nil, err
		}
		if err := g.checkLock(); err != nil {
			return nil, err
		}
		if !purge && w.HA[g.sid()] != nil {
			return nil, die("unable to remove CT %d - used in HA resources and purge parameter not set.", vmid)
		}
		if err := w.checkReplication(vmid); err != nil && !purge {
			return nil, err
		}
		return g, nil
	}
	g, err := early(r.Node)
	if err != nil {
		return nil, err
	}
	if g.Running && !force {
		return nil, die("unable to destroy CT %d - container is running", vmid)
	}
	return r.spawn("vzdestroy", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindLXC, vmid, func() error {
			g, err := early(a.Node)
			if err != nil {
				return err
			}
			if g.Running {
				if !force {
					return die("unable to destroy CT %d - container is running", vmid)
				}
				a.Logf("forced to stop CT %d before destroying!", vmid)
				if err := a.ctStop(vmid, true); err != nil {
					return err
				}
			}
			if err := a.ctFree(g, stray); err != nil {
				return err
			}
			a.removeGuest(g)
			if purge {
				w.purgeJobs(vmid)
				delete(w.HA, g.sid())
			}
			return nil
		})
	}), nil
}

// ctFree frees all volumes that a container's config names, those of snapshots and unused ones included; stray frees what carries
// its id elsewhere too.
func (a *Actor) ctFree(g *Guest, stray bool) error {
	sections := []Section{g.Config}
	for _, s := range g.Snapshots {
		sections = append(sections, s.Config)
	}
	seen := map[string]bool{}
	for _, s := range sections {
		for _, m := range mounts(s, true) {
			if m.kind() != "volume" || seen[m.volume()] {
				continue
			}
			seen[m.volume()] = true
			if err := a.freeMount(g.VMID, m.volume()); err != nil {
				return err
			}
		}
	}
	if !stray {
		return nil
	}
	for _, s := range a.w.Storages {
		if s.Disabled || !s.On(a.Node) {
			continue
		}
		for _, v := range a.w.volumesOf(s, a.Node) {
			if v.Owner == g.VMID && a.w.contentOf(v) != contentBackup {
				if err := a.free(v.ID); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
