package pvesim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// startOptions shape a start.
type startOptions struct {
	skipLock bool
	machine  string
	// resume starts from a snapshot's memory: the cloud-init drive is left alone.
	resume bool
}

// rootOnly refuses options that only root's ticket may use.
func (r *Request) rootOnly(keys ...string) error {
	for _, k := range keys {
		if r.P.Bool(k) && !r.Who.RootTicket() {
			return paramErr(k, "Only root may use this option.")
		}
	}
	return nil
}

func (w *World) qemuStart(r *Request) (any, error) {
	if err := r.rootOnly("skiplock", "stateuri", "migratedfrom"); err != nil {
		return nil, err
	}
	vmid, o := r.VMID, startOptions{skipLock: r.P.Bool("skiplock"), machine: r.P.Str("machine")}
	if upid, ok := r.haRequest(kindQemu, vmid, "start"); ok {
		return upid, nil
	}
	return r.spawn("qmstart", decimal(vmid), func(a *Actor) error { return a.qemuStartGuest(vmid, o) }), nil
}

func (a *Actor) qemuStartGuest(vmid int, o startOptions) error {
	return a.LockGuest(kindQemu, vmid, func() error {
		g, err := a.w.guest(kindQemu, a.Node, vmid)
		if err != nil {
			return err
		}
		if g.Template() {
			return die("you can't start a vm if it's a template")
		}
		if g.Config["lock"] == "suspended" {
			return a.qemuWake(g)
		}
		if !o.skipLock {
			if err := g.checkLock(); err != nil {
				return err
			}
		}
		if g.Running {
			return die("VM %d already running", vmid)
		}
		return a.qemuBoot(g, o)
	})
}

// qemuBoot starts a stopped guest under its lock: pending changes come into force, the cloud-init drive is written, and the machine
// must be one that this node can run.
func (a *Actor) qemuBoot(g *Guest, o startOptions) error {
	errs := map[string]string{}
	if err := a.qemuApplyPending(g, errs); err != nil {
		return err
	}
	if !o.resume {
		if err := a.qemuCloudinitRefresh(g); err != nil {
			return err
		}
	}
	if err := a.qemuStartable(g); err != nil {
		return err
	}
	if err := a.Work(startTime); err != nil {
		return err
	}
	a.w.PID++
	g.Running, g.Suspended, g.Started, g.PID = true, false, time.Now(), a.w.PID
	g.RunningMachine = orElse(o.machine, runningMachine(g.Config["machine"]))
	return nil
}

func runningMachine(machine string) string {
	kind, _, _ := strings.Cut(machine, ",")
	version := qemuVersion[:strings.LastIndexByte(qemuVersion, '.')] + "+pve0"
	switch kind {
	case "", "pc":
		return "pc-i440fx-" + version
	case "q35":
		return "pc-q35-" + version
	}
	return kind
}

// qemuStartable finds what keeps a guest from starting on this node.
func (a *Actor) qemuStartable(g *Guest) error {
	conf, n := g.Config, a.w.node(a.Node)
	machine, _, _ := strings.Cut(conf["machine"], ",")
	if err := checkMachine(conf["machine"]); err != nil {
		return err
	}
	if newerMachine(machine) {
		if !strings.Contains(machine, "+pve") {
			machine += "+pve0"
		}
		return die("Installed QEMU version '%s' is too old to run machine type '%s', please upgrade node '%s'", qemuVersion, machine, a.Node)
	}
	if conf["bios"] == "ovmf" && conf["efidisk0"] == "" {
		a.Warnf("no efidisk configured! Using temporary efivars disk.")
	}
	for i := range 16 {
		if err := a.pciThere(n, conf["hostpci"+decimal(i)], "hostpci"+decimal(i)); err != nil {
			return err
		}
	}
	for _, k := range driveKeys(conf) {
		if d, ok := parseDrive(k, conf[k]); ok {
			if err := a.driveUsable(d); err != nil {
				return err
			}
		}
	}
	for i := range 32 {
		k := "net" + decimal(i)
		if conf[k] == "" {
			continue
		}
		if net, err := parseNet(k, conf[k]); err == nil {
			if err := a.bridgeThere(net["bridge"]); err != nil {
				return err
			}
		}
	}
	total := g.number("cores", 1) * g.number("sockets", 1)
	if n != nil && n.CPUs > 0 && total > n.CPUs {
		return die("MAX %d vcpus allowed per VM on this node", n.CPUs)
	}
	if g.number("vcpus", total) > total {
		a.Logf("kvm: Invalid CPU topology: maxcpus must be equal to or greater than smp: maxcpus (%d) < smp_cpus (%s)", total, conf["vcpus"])
		return die("start failed: QEMU exited with code 1")
	}
	return nil
}

// driveUsable finds what keeps a drive's volume from being used on this node; paths and empty drives need nothing.
func (a *Actor) driveUsable(d *drive) error {
	id, _, managed := splitVolid(d.file())
	if !managed || strings.HasPrefix(d.file(), "/") {
		return nil
	}
	s, err := a.w.storageOn(id, a.Node)
	if err != nil {
		return err
	}
	kind, err := a.w.volumeType(d.file())
	switch {
	case err != nil:
		return err
	case !s.Has(kind):
		return die("storage '%s' does not support content-type '%s'", id, kind)
	case a.w.volume(a.Node, d.file()) == nil:
		return a.w.volumeMissing(d.file())
	}
	return nil
}

// checkMachine is assert_valid_machine_property, which changes and starts make.
func checkMachine(value string) error {
	p, err := schema.ParsePropString(".machine", "machine", value)
	if value != "" && err == nil && p["viommu"] == "intel" && !strings.Contains(p["type"], "q35") {
		return die("to use Intel vIOMMU please set the machine type to q35")
	}
	return nil
}

// newerMachine says whether a versioned machine type is newer than the installed QEMU.
func newerMachine(machine string) bool {
	i := strings.LastIndexByte(machine, '-')
	if i < 0 {
		return false
	}
	version, _, _ := strings.Cut(machine[i+1:], "+")
	major, minor, ok := strings.Cut(version, ".")
	x, err1 := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	if !ok || err1 != nil || err2 != nil {
		return false
	}
	var qx, qy int
	if _, err := fmt.Sscanf(qemuVersion, "%d.%d", &qx, &qy); err != nil {
		return false
	}
	return x > qx || x == qx && y > qy
}

func (a *Actor) pciThere(n *Node, value, key string) error {
	if value == "" || n == nil {
		return nil
	}
	p, ok := qemuConfigMethod().Key(key)
	if !ok {
		return nil
	}
	props, err := p.Format.Parse(key, value)
	if err != nil {
		return nil
	}
	has := func(addr string) bool {
		if strings.Count(addr, ":") == 1 {
			addr = "0000:" + addr
		}
		return slices.ContainsFunc(n.PCI, func(d string) bool { return strings.HasPrefix(d, addr) })
	}
	switch {
	case props["mapping"] != "":
		addr, found := a.w.pciMapping(props["mapping"], a.Node)
		if !found {
			return die("PCI device mapping not found for '%s'", props["mapping"])
		}
		if !has(addr) {
			return die("PCI device mapping invalid (hardware probably changed): pci device '%s' not found ", addr)
		}
	case props["host"] == "":
		return die("either 'host' or 'mapping' must be set for '%s'", key)
	default:
		for addr := range strings.SplitSeq(props["host"], ";") {
			if !has(addr) {
				return die("no PCI device found for '%s'", addr)
			}
		}
	}
	return nil
}

// stopOptions shape a stop.
type stopOptions struct {
	// shutdown asks the guest's system; force ends the machine when it does not obey in time.
	shutdown, force bool
	skipLock        bool
	timeout         int
}

func (w *World) qemuStop(r *Request) (any, error) {
	if err := r.rootOnly("skiplock", "keepActive", "migratedfrom"); err != nil {
		return nil, err
	}
	vmid, o := r.VMID, stopOptions{force: true, skipLock: r.P.Bool("skiplock"), timeout: r.P.Int("timeout", -1)}
	if !r.P.Has("timeout") && !o.skipLock {
		if upid, ok := r.haRequest(kindQemu, vmid, "stop"); ok {
			return upid, nil
		}
	}
	overrule := r.P.Bool("overrule-shutdown")
	return r.spawn("qmstop", decimal(vmid), func(a *Actor) error {
		if overrule {
			a.overruleShutdown("qmshutdown", vmid)
		}
		return a.qemuStopGuest(vmid, o)
	}), nil
}

func (w *World) qemuShutdown(r *Request) (any, error) {
	if err := r.rootOnly("skiplock", "keepActive"); err != nil {
		return nil, err
	}
	vmid := r.VMID
	o := stopOptions{shutdown: true, force: r.P.Bool("forceStop"), skipLock: r.P.Bool("skiplock"), timeout: r.P.Int("timeout", -1)}
	if g := w.Guests[vmid]; g != nil && g.Kind == kindQemu && g.Node == r.Node && g.Running && g.Suspended {
		if !o.force {
			return nil, die("VM is paused - cannot shutdown")
		}
		o.shutdown = false
	}
	if !r.P.Has("timeout") {
		if upid, ok := r.haRequest(kindQemu, vmid, "stop"); ok {
			return upid, nil
		}
	}
	return r.spawn("qmshutdown", decimal(vmid), func(a *Actor) error { return a.qemuStopGuest(vmid, o) }), nil
}

func (a *Actor) qemuStopGuest(vmid int, o stopOptions) error {
	return a.LockGuest(kindQemu, vmid, func() error {
		g, err := a.w.qemuSource(a.Node, vmid)
		if err != nil || !g.Running {
			return err
		}
		if !o.skipLock {
			if err := g.checkLock(); err != nil {
				return err
			}
		}
		return a.qemuHalt(g, o)
	})
}

// qemuSource finds a VM as check_running does, whose words for an absent one differ.
func (w *World) qemuSource(node string, vmid int) (*Guest, error) {
	g, err := w.guest(kindQemu, node, vmid)
	if err != nil {
		return nil, die("unable to find configuration file for VM %d on node '%s'", vmid, node)
	}
	return g, nil
}

// qemuHalt ends a running machine; pending changes come into force then.
func (a *Actor) qemuHalt(g *Guest, o stopOptions) error {
	d := stopTime
	if o.shutdown && !a.w.hasSystem(g) {
		if o.timeout < 0 {
			o.timeout = 60
		}
		if agentEnabled(g.Config) {
			a.Logf("QEMU Guest Agent is not running - VM %d qga command 'guest-ping' failed - got timeout", g.VMID)
		}
		if err := a.Work(time.Duration(o.timeout) * time.Second); err != nil {
			return err
		}
		if !o.force {
			return die("VM quit/powerdown failed - got timeout")
		}
		a.Logf("VM still running - terminating now with SIGTERM")
	}
	if err := a.Work(d); err != nil {
		return err
	}
	g.Running, g.Suspended, g.PID, g.RunningMachine = false, false, 0, ""
	errs := map[string]string{}
	return a.qemuApplyPending(g, errs)
}

func agentEnabled(conf Section) bool {
	p, ok := qemuConfigMethod().Key("agent")
	if !ok || p.Format == nil || conf["agent"] == "" {
		return false
	}
	props, err := p.Format.Parse("agent", conf["agent"])
	return err == nil && props["enabled"] == "1"
}

// running is the check that suspend, resume, reset and reboot make before they start a task.
func (r *Request) running() error {
	g, err := r.w.qemuSource(r.Node, r.VMID)
	if err != nil {
		return err
	}
	if !g.Running {
		return die("VM %d not running", r.VMID)
	}
	return nil
}

// onRunning spawns a task that does something to a running guest under its lock.
func (r *Request) onRunning(task string, do func(a *Actor, g *Guest) error) (any, error) {
	if err := r.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	if err := r.running(); err != nil {
		return nil, err
	}
	vmid, skip := r.VMID, r.P.Bool("skiplock")
	return r.spawn(task, decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			g, err := a.w.guest(kindQemu, a.Node, vmid)
			if err != nil {
				return err
			}
			if !skip && !(task == "qmresume" && g.Config["lock"] == "suspended") {
				if err := g.checkLock(); err != nil {
					return err
				}
			}
			return do(a, g)
		})
	}), nil
}

func (w *World) qemuReboot(r *Request) (any, error) {
	timeout := r.P.Int("timeout", -1)
	return r.onRunning("qmreboot", func(a *Actor, g *Guest) error {
		if err := a.qemuHalt(g, stopOptions{shutdown: true, timeout: timeout}); err != nil {
			return err
		}
		return a.qemuBoot(g, startOptions{})
	})
}

func (w *World) qemuSuspend(r *Request) (any, error) {
	if !r.P.Bool("todisk") {
		return r.onRunning("qmpause", func(_ *Actor, g *Guest) error {
			g.Suspended = true
			return nil
		})
	}
	return r.onRunning("qmsuspend", func(a *Actor, g *Guest) error {
		if err := a.qemuSaveState(g, g.Config, "suspend-"+time.Now().Format("2006-01-02"), r.P.Str("statestorage")); err != nil {
			return err
		}
		g.Running, g.Suspended, g.PID = false, false, 0
		g.Config["lock"] = "suspended"
		qemuSaved(g)
		return nil
	})
}

func (w *World) qemuResume(r *Request) (any, error) {
	if g := w.Guests[r.VMID]; g != nil && g.Node == r.Node && g.Kind == kindQemu && g.Config["lock"] == "suspended" {
		vmid := r.VMID
		return r.spawn("qmresume", decimal(vmid), func(a *Actor) error {
			return a.LockGuest(kindQemu, vmid, func() error {
				g, err := w.guest(kindQemu, a.Node, vmid)
				if err != nil {
					return err
				}
				return a.qemuWake(g)
			})
		}), nil
	}
	return r.onRunning("qmresume", func(_ *Actor, g *Guest) error {
		g.Suspended = false
		return nil
	})
}

// qemuWake starts a guest that was suspended to disk, and frees its saved state.
func (a *Actor) qemuWake(g *Guest) error {
	if state := g.Config["vmstate"]; state != "" {
		if err := a.free(state); err != nil {
			return err
		}
	}
	delete(g.Config, "vmstate")
	delete(g.Config, "lock")
	qemuSaved(g)
	return a.qemuBoot(g, startOptions{resume: true})
}

func (w *World) qemuReset(r *Request) (any, error) {
	return r.onRunning("qmreset", func(*Actor, *Guest) error { return nil })
}
