package pvesim

import (
	"slices"
	"strings"
)

func taskRoutes() []route {
	return []route{
		{"GET", "/nodes/{node}/tasks", (*World).taskList},
		{"DELETE", "/nodes/{node}/tasks/{upid}", (*World).taskStop},
		{"GET", "/nodes/{node}/tasks/{upid}/status", (*World).taskStatus},
		{"GET", "/nodes/{node}/tasks/{upid}/log", (*World).taskLog},
	}
}

// task finds the task that a path names, and checks that the caller may see it: his own, or with a privilege on the node. A token's
// tasks are its user's too; the other way round they are not (facts.md M).
func (w *World) task(r *Request, priv string) (*Task, error) {
	upid := r.P.Str("upid")
	if _, ok := parseUPID(upid); !ok {
		return nil, paramErr("upid", "unable to parse worker upid")
	}
	t := w.taskIndex[upid]
	if t == nil || t.Node != r.Node {
		return nil, paramErr("upid", "no such task")
	}
	if !w.ownTask(r.Who, t) {
		if err := w.check(r.Who, "/nodes/"+t.Node, priv); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (w *World) ownTask(who Identity, t *Task) bool {
	return t.AuthID == who.AuthID() || who.Token == "" && splitAuthID(t.AuthID).User == who.User
}

func (t *Task) row() map[string]any {
	who := splitAuthID(t.AuthID)
	row := map[string]any{
		"upid": t.UPID, "node": t.Node, "pid": t.PID, "pstart": t.PStart, "starttime": t.Start.Unix(), "type": t.Type, "id": t.ID, "user": who.User,
	}
	if who.Token != "" {
		row["tokenid"] = who.Token
	}
	return row
}

func (w *World) taskStatus(r *Request) (any, error) {
	t, err := w.task(r, "Sys.Audit")
	if err != nil {
		return nil, err
	}
	row := t.row()
	if t.Running() {
		row["status"] = "running"
	} else {
		row["status"], row["exitstatus"] = "stopped", t.Exit
	}
	return row, nil
}

func (w *World) taskLog(r *Request) (any, error) {
	t, err := w.task(r, "Sys.Audit")
	if err != nil {
		return nil, err
	}
	start, limit := max(r.P.Int("start", 0), 0), r.P.Int("limit", 50)
	lines := []map[string]any{}
	for i := start; i < len(t.Log) && (limit <= 0 || len(lines) < limit); i++ {
		lines = append(lines, map[string]any{"n": i + 1, "t": t.Log[i]})
	}
	if len(lines) == 0 && len(t.Log) == 0 {
		lines = append(lines, map[string]any{"n": 1, "t": "no content"})
	}
	return Reply{Data: lines, Extra: map[string]any{"total": len(t.Log)}}, nil
}

func (w *World) taskStop(r *Request) (any, error) {
	t, err := w.task(r, "Sys.Modify")
	if err != nil {
		return nil, err
	}
	if t.Running() {
		t.cancel()
	}
	return nil, nil
}

func (w *World) taskList(r *Request) (any, error) {
	p := r.P
	all := w.can(r.Who, "/nodes/"+r.Node, "Sys.Audit")
	var rows []map[string]any
	for i := len(w.Tasks) - 1; i >= 0; i-- { // newest first
		t := w.Tasks[i]
		if t.Node != r.Node || !all && !w.ownTask(r.Who, t) || !t.wanted(p) {
			continue
		}
		row := t.row()
		if t.Running() {
			row["status"] = "RUNNING"
			delete(row, "endtime")
		} else {
			row["status"], row["endtime"] = t.Exit, t.End.Unix()
		}
		rows = append(rows, row)
	}
	total := len(rows)
	rows = rows[min(p.Int("start", 0), total):]
	rows = rows[:min(p.Int("limit", 50), len(rows))] // 0 is none at all
	if rows == nil {
		rows = []map[string]any{}
	}
	return Reply{Data: rows, Extra: map[string]any{"total": total}}, nil
}

// wanted applies the filters of a task list. The user of a token's task is the token's user.
func (t *Task) wanted(p Params) bool {
	source := orElse(p.Str("source"), "archive")
	user := splitAuthID(t.AuthID).User
	switch {
	case t.Running() && source == "archive", !t.Running() && source == "active":
		return false
	case p.Has("vmid") && t.ID != p.Str("vmid"), p.Str("typefilter") != "" && t.Type != p.Str("typefilter"):
		return false
	case !strings.Contains(strings.ToLower(user), strings.ToLower(p.Str("userfilter"))):
		return false
	case p.Bool("errors") && t.Exit == "OK":
		return false
	case p.Has("statusfilter") && (t.Running() || !slices.Contains(p.List("statusfilter"), t.statusType())):
		return false
	case p.Has("since") && t.Start.Unix() < int64(p.Int("since", 0)), p.Has("until") && t.Start.Unix() > int64(p.Int("until", 0)):
		return false
	}
	return true
}

// statusType sorts how a task ended into PVE's four kinds.
func (t *Task) statusType() string {
	switch {
	case t.Exit == "OK":
		return "ok"
	case strings.HasPrefix(t.Exit, "WARNINGS: "):
		return "warning"
	case t.Exit == "" || t.Exit == "unexpected status":
		return "unknown"
	}
	return "error"
}
