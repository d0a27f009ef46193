package pvesim

import (
	"slices"
	"strings"
)

func (w *World) haIndex(*Request) (any, error) {
	return []map[string]any{{"id": "resources"}, {"id": "status"}}, nil
}

// haSID completes an HA id: a bare number takes its kind from the guest.
func (w *World) haSID(sid string) (string, error) {
	if strings.Contains(sid, ":") {
		return sid, nil
	}
	g := w.Guests[number(sid)]
	if g == nil {
		return "", die("unable to find VM %s", sid)
	}
	return g.sid(), nil
}

func (h *HAResource) row() map[string]any {
	kind, _, _ := strings.Cut(h.SID, ":")
	row := map[string]any{"sid": h.SID, "type": kind, "state": h.State}
	if h.MaxRestart != 0 {
		row["max_restart"] = h.MaxRestart
	}
	if h.MaxRelocate != 0 {
		row["max_relocate"] = h.MaxRelocate
	}
	if h.Comment != "" {
		row["comment"] = h.Comment
	}
	if h.Group != "" {
		row["group"] = h.Group
	}
	if h.NoFailback {
		row["failback"] = 0
	}
	return row
}

func (w *World) haList(r *Request) (any, error) {
	out := []map[string]any{}
	for _, sid := range sortedKeys(w.HA) {
		row := w.HA[sid].row()
		if want := r.P.Str("type"); want == "" || row["type"] == want {
			out = append(out, row)
		}
	}
	return out, nil
}

func (w *World) haRead(r *Request) (any, error) {
	sid, err := w.haSID(r.P.Str("sid"))
	if err != nil {
		return nil, err
	}
	h := w.HA[sid]
	if h == nil {
		return nil, die("no such resource '%s'", sid)
	}
	return h.row(), nil
}

// set changes a resource; "enabled" is an old word for started.
func (h *HAResource) set(p Params) {
	if s := p.Str("state"); s != "" {
		h.State = strings.Replace(s, "enabled", "started", 1)
	}
	if p.Has("max_restart") {
		h.MaxRestart = p.Int("max_restart", 1)
	}
	if p.Has("max_relocate") {
		h.MaxRelocate = p.Int("max_relocate", 1)
	}
	if c, ok := p.Get("comment"); ok {
		h.Comment = c
	}
	if p.Has("failback") {
		h.NoFailback = !p.Bool("failback")
	}
}

func (w *World) haCreate(r *Request) (any, error) {
	sid, err := w.haSID(r.P.Str("sid"))
	if err != nil {
		return nil, err
	}
	switch g := w.guestOfSID(sid); {
	case w.HA[sid] != nil:
		return nil, die("create resource failed: resource ID '%s' already defined", sid)
	case g == nil:
		return nil, die("cannot manage %s - no such guest", sid)
	case g.Template():
		return nil, die("unable to manage template '%s'", sid)
	}
	h := &HAResource{SID: sid, State: "started"}
	h.set(r.P)
	w.HA[sid] = h
	w.haSoon(sid)
	return nil, nil
}

func (w *World) haUpdate(r *Request) (any, error) {
	sid, err := w.haSID(r.P.Str("sid"))
	if err != nil {
		return nil, err
	}
	h := w.HA[sid]
	if h == nil {
		return nil, die("update resource failed: no such resource '%s'", sid)
	}
	gone := r.P.List("delete")
	if slices.Contains(gone, "comment") {
		h.Comment = ""
	}
	if slices.Contains(gone, "max_restart") {
		h.MaxRestart = 0
	}
	if slices.Contains(gone, "max_relocate") {
		h.MaxRelocate = 0
	}
	h.set(r.P)
	w.haSoon(sid)
	return nil, nil
}

func (w *World) haDelete(r *Request) (any, error) {
	sid, err := w.haSID(r.P.Str("sid"))
	if err != nil {
		return nil, err
	}
	if w.HA[sid] == nil {
		return nil, die("delete resource failed: cannot delete service '%s', not HA managed!", sid)
	}
	delete(w.HA, sid)
	return nil, nil
}

func (w *World) haStatus(*Request) (any, error) {
	quorum := "OK"
	out := []map[string]any{{"id": "quorum", "node": w.local().Name, "quorate": 1, "status": quorum, "type": "quorum"}}
	for _, sid := range sortedKeys(w.HA) {
		h, node := w.HA[sid], ""
		if g := w.guestOfSID(sid); g != nil {
			node = g.Node
		}
		out = append(out, map[string]any{
			"id": "service:" + sid, "sid": sid, "type": "service", "node": node, "state": h.State, "request_state": h.State, "crm_state": h.State,
			"status": sid + " (" + node + ", " + h.State + ")",
		})
	}
	return out, nil
}
