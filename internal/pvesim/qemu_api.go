package pvesim

import (
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

func qemuRoutes() []route {
	return []route{
		{"GET", "/nodes/{node}/qemu", (*World).qemuList},
		{"POST", "/nodes/{node}/qemu", (*World).qemuCreate},
		{"DELETE", "/nodes/{node}/qemu/{vmid}", (*World).qemuDestroy},
		{"GET", "/nodes/{node}/qemu/{vmid}/config", (*World).qemuConfig},
		{"PUT", "/nodes/{node}/qemu/{vmid}/config", (*World).qemuUpdate},
		{"GET", "/nodes/{node}/qemu/{vmid}/status/current", (*World).qemuCurrent},
		{"POST", "/nodes/{node}/qemu/{vmid}/status/start", (*World).qemuStart},
		{"POST", "/nodes/{node}/qemu/{vmid}/status/stop", (*World).qemuStop},
	}
}

// qemuConfigMethod is the method whose parameters are the keys of a VM's config.
func qemuConfigMethod() *schema.Method {
	return schema.Lookup("PUT", "/nodes/{node}/qemu/{vmid}/config")
}

func (w *World) qemuList(r *Request) (any, error) {
	out := []map[string]any{}
	for _, g := range w.guestsOf(kindQemu, r.Node) {
		if !w.can(r.Who, "/vms/"+decimal(g.VMID), "VM.Audit") {
			continue
		}
		row := w.guestFigures(g)
		if r.P.Bool("full") {
			row["qmpstatus"] = g.status()
		}
		out = append(out, row)
	}
	return out, nil
}

func (w *World) qemuCurrent(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	row := w.guestFigures(g)
	row["qmpstatus"], row["ha"] = g.status(), map[string]any{"managed": bit(w.HA["vm:"+decimal(g.VMID)] != nil)}
	return row, nil
}

func (w *World) qemuConfig(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	conf := g.Config.Clone()
	if !r.P.Bool("current") {
		for k, v := range g.Pending {
			conf[k] = v
		}
		for k := range g.Delete {
			delete(conf, k)
		}
	}
	if conf["cipassword"] != "" {
		conf["cipassword"] = "**********"
	}
	return g.apiConfig(conf, qemuConfigMethod()), nil
}

func (w *World) qemuStart(r *Request) (any, error) {
	vmid := r.VMID
	return r.spawn("qmstart", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			g, err := w.guest(kindQemu, a.Node, vmid)
			if err != nil {
				return err
			}
			if g.Template() {
				return die("you can't start a vm if it's a template")
			}
			if err := g.checkLock(); err != nil {
				return err
			}
			if g.Running {
				return die("VM %d already running", vmid)
			}
			if err := a.Work(startTime); err != nil {
				return err
			}
			w.PID++
			g.Running, g.Started, g.PID = true, time.Now(), w.PID
			return nil
		})
	}), nil
}

func (w *World) qemuStop(r *Request) (any, error) {
	vmid := r.VMID
	return r.spawn("qmstop", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			g, err := w.guest(kindQemu, a.Node, vmid)
			if err != nil {
				return err
			}
			if !g.Running {
				return nil
			}
			if err := g.checkLock(); err != nil {
				return err
			}
			if err := a.Work(stopTime); err != nil {
				return err
			}
			g.Running, g.PID = false, 0
			return nil
		})
	}), nil
}

func (w *World) qemuDestroy(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	switch {
	case err != nil:
		return nil, err
	case g.Config["protection"] == "1":
		return nil, die("can't remove VM %d - protection mode enabled", g.VMID)
	case g.Running:
		return nil, die("VM %d is running - destroy failed", g.VMID)
	}
	vmid := r.VMID
	return r.spawn("qmdestroy", decimal(vmid), func(a *Actor) error {
		return a.LockGuest(kindQemu, vmid, func() error {
			g, err := w.guest(kindQemu, a.Node, vmid)
			if err != nil {
				return err
			}
			if err := g.checkLock(); err != nil {
				return err
			}
			return a.destroyGuest(g)
		})
	}), nil
}

// destroyGuest frees the volumes that a guest owns and forgets it. Volumes of other guests and files stay.
func (a *Actor) destroyGuest(g *Guest) error {
	volids := g.Config.volids()
	for _, k := range sortedKeys(volids) {
		v := a.w.volume(a.Node, volids[k])
		if v == nil || v.Owner != g.VMID {
			continue
		}
		if err := a.free(v.ID); err != nil {
			return err
		}
	}
	a.removeGuest(g)
	return nil
}
