package pvesim

import (
	"strings"
	"time"
)

// sid is a guest's name in the HA manager.
func (g *Guest) sid() string {
	if g.Kind == kindLXC {
		return "ct:" + decimal(g.VMID)
	}
	return "vm:" + decimal(g.VMID)
}

// guestOfSID finds the guest of an HA resource; nil when it is gone.
func (w *World) guestOfSID(sid string) *Guest {
	kind, id, _ := strings.Cut(sid, ":")
	g := w.Guests[number(id)]
	if g == nil || kind != "ct" && g.Kind == kindLXC || kind == "ct" && g.Kind != kindLXC {
		return nil
	}
	return g
}

// haAdd puts a guest under HA.
func (w *World) haAdd(g *Guest, state string) {
	w.HA[g.sid()] = &HAResource{SID: g.sid(), State: state}
}

// haFigures is the "ha" of a guest's status.
func (w *World) haFigures(g *Guest) map[string]any {
	h := w.HA[g.sid()]
	if h == nil {
		return map[string]any{"managed": 0}
	}
	row := map[string]any{"managed": 1, "state": h.State}
	if h.Group != "" {
		row["group"] = h.Group
	}
	return row
}

// haPace is how long the HA manager takes to notice a request: its loop runs every ten seconds.
const haPace = 10 * time.Second

// haRequest answers a start or stop of a guest that HA manages: the call ends in a short task that only tells the HA manager, which
// acts a while later on its own. ok is false for guests that are not under HA, and for the HA manager's own calls.
func (r *Request) haRequest(kind string, vmid int, what string) (upid string, ok bool) {
	w := r.w
	g, err := w.guest(kind, r.Node, vmid)
	if err != nil || r.ha {
		return "", false
	}
	h := w.HA[g.sid()]
	if h == nil || h.State == "ignored" {
		return "", false
	}
	want := map[string]string{"start": "started", "stop": "stopped"}[what]
	upid = r.spawn("ha"+what, decimal(vmid), func(a *Actor) error {
		a.Logf("Requesting HA %s for %s %d", what, kindName(kind), vmid)
		if h := w.HA[g.sid()]; h != nil {
			h.State = want
			w.haSoon(g.sid())
		}
		return nil
	})
	return upid, true
}

// haSoon lets the HA manager look at a resource, a while from now.
func (w *World) haSoon(sid string) {
	b := &Actor{w: w, Ctx: w.ctx, Who: Identity{User: "root@pam"}, Cause: "ha-manager", ha: true}
	w.workers.Add(1)
	go func() {
		defer w.workers.Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		if b.Work(haPace) != nil {
			return
		}
		w.haAct(b, sid)
	}()
}

// haAct brings a guest into the state that its resource wants, by the same calls that a client would make.
func (w *World) haAct(b *Actor, sid string) {
	h, g := w.HA[sid], w.guestOfSID(sid)
	if h == nil || g == nil || w.node(g.Node) == nil || !w.node(g.Node).Online() {
		return
	}
	what := ""
	switch {
	case h.State == "started" && !g.Running:
		what = "start"
	case (h.State == "stopped" || h.State == "disabled") && g.Running:
		what = "stop"
	default:
		return
	}
	b.Node = g.Node
	r := &Request{Actor: b, Method: "POST", P: Params{"node": g.Node, "vmid": decimal(g.VMID)}, VMID: g.VMID}
	if handle := w.handlers["POST /nodes/{node}/"+g.Kind+"/{vmid}/status/"+what]; handle != nil {
		_, _ = handle(w, r) // its task tells how it went
	}
}
