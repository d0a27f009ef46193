package pvesim

import (
	"slices"
	"strings"
)

func qemuRoutes() []route {
	const vm = "/nodes/{node}/qemu/{vmid}"
	return slices.Concat([]route{
		{"GET", "/nodes/{node}/qemu", (*World).qemuList},
		{"POST", "/nodes/{node}/qemu", (*World).qemuCreate},
		{"GET", vm, (*World).qemuIndex},
		{"DELETE", vm, (*World).qemuDestroy},
		{"GET", vm + "/config", (*World).qemuConfig},
		{"PUT", vm + "/config", (*World).qemuUpdate},
		{"POST", vm + "/config", (*World).qemuUpdateAsync},
		{"GET", vm + "/pending", (*World).qemuPending},
		{"GET", vm + "/cloudinit", (*World).qemuCloudinit},
		{"PUT", vm + "/cloudinit", (*World).qemuCloudinitUpdate},
		{"GET", vm + "/cloudinit/dump", (*World).qemuCloudinitDump},
		{"GET", vm + "/feature", (*World).qemuFeature},
		{"GET", vm + "/status", (*World).qemuStatusIndex},
		{"GET", vm + "/status/current", (*World).qemuCurrent},
		{"POST", vm + "/status/start", (*World).qemuStart},
		{"POST", vm + "/status/stop", (*World).qemuStop},
		{"POST", vm + "/status/shutdown", (*World).qemuShutdown},
		{"POST", vm + "/status/reboot", (*World).qemuReboot},
		{"POST", vm + "/status/suspend", (*World).qemuSuspend},
		{"POST", vm + "/status/resume", (*World).qemuResume},
		{"POST", vm + "/status/reset", (*World).qemuReset},
		{"PUT", vm + "/resize", (*World).qemuResize},
		{"PUT", vm + "/unlink", (*World).qemuUnlink},
		{"POST", vm + "/move_disk", (*World).qemuMoveDisk},
		{"POST", vm + "/clone", (*World).qemuClone},
		{"POST", vm + "/template", (*World).qemuTemplate},
		{"GET", vm + "/migrate", (*World).qemuMigrateCheck},
		{"POST", vm + "/migrate", (*World).qemuMigrate},
		{"GET", vm + "/snapshot", (*World).qemuSnapshots},
		{"POST", vm + "/snapshot", (*World).qemuSnapshotCreate},
		{"GET", vm + "/snapshot/{snapname}", (*World).snapshotIndex},
		{"DELETE", vm + "/snapshot/{snapname}", (*World).qemuSnapshotDelete},
		{"GET", vm + "/snapshot/{snapname}/config", (*World).qemuSnapshotConfig},
		{"PUT", vm + "/snapshot/{snapname}/config", (*World).qemuSnapshotSet},
		{"POST", vm + "/snapshot/{snapname}/rollback", (*World).qemuRollback},
		{"POST", vm + "/monitor", (*World).qemuMonitor},
		{"PUT", vm + "/sendkey", (*World).qemuSendKey},
	}, agentRoutes())
}

func (w *World) qemuList(r *Request) (any, error) {
	out := []map[string]any{}
	for _, g := range w.guestsOf(kindQemu, r.Node) {
		if !w.can(r.Who, "/vms/"+decimal(g.VMID), "VM.Audit") {
			continue
		}
		row := w.guestFigures(g)
		if r.P.Bool("full") {
			row["qmpstatus"] = g.qmpStatus()
		}
		g.serialFigure(row)
		out = append(out, row)
	}
	return out, nil
}

// serialFigure says that a VM has a serial port, for consoles.
func (g *Guest) serialFigure(row map[string]any) {
	for i := range 4 {
		if g.Config["serial"+decimal(i)] != "" {
			row["serial"] = 1
		}
	}
}

func (w *World) qemuSendKey(r *Request) (any, error) {
	if err := r.rootOnly("skiplock"); err != nil {
		return nil, err
	}
	return nil, r.running()
}

func (w *World) qemuIndex(*Request) (any, error) {
	return subdirs("config", "cloudinit", "pending", "status", "unlink", "vncproxy", "termproxy", "migrate", "resize", "move", "rrd", "rrddata", "monitor",
		"agent", "snapshot", "spiceproxy", "sendkey", "firewall", "mtunnel", "remote_migrate"), nil
}

func (w *World) qemuStatusIndex(*Request) (any, error) {
	return subdirs("current", "start", "stop", "reset", "shutdown", "suspend", "reboot"), nil
}

func (g *Guest) qmpStatus() string {
	if g.Running && g.Suspended {
		return "paused"
	}
	return g.status()
}

func (w *World) qemuCurrent(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	row := w.guestFigures(g)
	row["qmpstatus"] = g.qmpStatus()
	row["ha"] = w.haFigures(g)
	if agentEnabled(g.Config) {
		row["agent"] = 1
	}
	g.serialFigure(row)
	if vga := strings.TrimPrefix(g.Config["vga"], "type="); strings.HasPrefix(vga, "qxl") || strings.HasPrefix(vga, "virtio") {
		row["spice"] = 1
	}
	if g.Running {
		row["running-machine"], row["running-qemu"] = g.RunningMachine, qemuVersion
	}
	return row, nil
}

// qemuConfig merges pending changes into the config unless the current one is asked for.
func (w *World) qemuConfig(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	conf := g.Config
	switch name := r.P.Str("snapshot"); {
	case name != "":
		s := g.snapshot(name)
		if s == nil {
			return nil, die("snapshot '%s' does not exist", name)
		}
		conf = s.Config
	case !r.P.Bool("current"):
		conf = g.next()
	}
	out := g.apiConfig(conf, qemuConfigMethod())
	if _, ok := conf["cipassword"]; ok {
		out["cipassword"] = passwordMask
	}
	return out, nil
}

// qemuPending lists every key with its value, its pending value and whether it goes.
func (w *World) qemuPending(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	value := func(k, v string) any {
		if k == "cipassword" {
			return passwordMask
		}
		return apiValue(k, v, qemuConfigMethod())
	}
	return g.pendingRows(value), nil
}
