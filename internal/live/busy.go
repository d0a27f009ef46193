package live

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pve"
)

// lockTasks are the types of the tasks that set each of PVE's locks, without
// their prefix qm or vz. A container's clone is locked as one that is created.
var lockTasks = map[string][]string{
	"backup":          {"dump"},
	"clone":           {"clone"},
	"create":          {"create", "restore", "clone"},
	"disk":            {"move", "move_volume", "resize", "disk", "import", "clone"},
	"fstrim":          {"fstrim"},
	"migrate":         {"migrate"},
	"mounted":         {"mount"},
	"rollback":        {"rollback"},
	"snapshot":        {"snapshot"},
	"snapshot-delete": {"delsnapshot"},
	"suspended":       {"suspend"},
	"suspending":      {"suspend"},
}

// lasting are the locks that are meant to outlive the task that set them: a
// hibernated VM, and a container whose file systems somebody has mounted.
var lasting = []string{"suspended", "mounted"}

// sets reports whether a task of the type is one that sets the lock.
func sets(task, lock string) bool {
	for _, prefix := range []string{"qm", "vz", "ha", "q"} {
		if short, ok := strings.CutPrefix(task, prefix); ok && slices.Contains(lockTasks[lock], short) {
			return true
		}
	}
	return slices.Contains(lockTasks[lock], task)
}

// busy says what else works on the guest, and since when. A guest with neither
// a lock nor a running task costs no request.
func (x *reading) busy(g *Guest) {
	t, running := x.running(g)
	if g.Lock == "" {
		if running {
			g.Busy, g.BusySince = "task "+whose(t)+" is running", t.Start
		}
		return
	}
	known := running
	if !known {
		t, known = x.holder(g)
	}
	g.Busy = "locked (" + g.Lock + ")"
	if known {
		g.BusySince = t.Start
	}
	if known && t.Running {
		g.Busy += ": task " + whose(t) + " is running"
		return
	}
	if known {
		g.Busy += fmt.Sprintf(": its task %s has ended (%s)", whose(t), t.Exit)
	}
	if lockTasks[g.Lock] == nil || slices.Contains(lasting, g.Lock) {
		return
	}
	x.abandoned(g, known)
}

// abandoned settles whether the task that took the guest's lock is gone, which
// leaves the lock for good: PVE takes none off by itself, not even after the
// node's crash. It is so only where every running task that could hold the lock
// is in view: a task that is known to have ended may not have been the last.
// The lists are read after the lock was seen, and the lock once more after the
// lists, so that work which began or ended meanwhile is not taken for a dead
// one.
func (x *reading) abandoned(g *Guest, ended bool) {
	for _, node := range x.workplaces(g) {
		if n := x.snap.Nodes[node]; !n.Allowed || !n.Online {
			return // what works there is not known
		}
		if x.blind[node] {
			g.Busy += fmt.Sprintf("; no task that this token may see works on it, with Sys.Audit on /nodes/%s the token could tell whether any does", node)
			return
		}
		list, err := x.r.Tasks(x.ctx, node, pve.TaskFilter{Running: true})
		if err != nil {
			return
		}
		if i := slices.IndexFunc(list, func(t pve.Task) bool { return mayHold(t, g) }); i >= 0 {
			g.Busy, g.BusySince = "locked ("+g.Lock+"): task "+whose(list[i])+" is running", list[i].Start
			return
		}
	}
	again, err := x.config(g)
	if err != nil {
		return
	}
	if e, ok := again.Get("lock"); !ok || e.Value == nil || *e.Value != g.Lock {
		return
	}
	g.Stale = true
	if !ended {
		g.Busy += ": no task works on it"
	}
}

// workplaces are the nodes whose tasks may hold the guest's lock: its own, and
// for a move any, since the task runs where the guest comes from.
func (x *reading) workplaces(g *Guest) []string {
	if g.Lock == "migrate" {
		return slices.Sorted(maps.Keys(x.snap.Nodes))
	}
	return []string{g.Node}
}

// mayHold reports whether a running task may be the one that holds the guest's
// lock: any that bears its vmid, and of those that bear another's or none a
// clone, whose task has the vmid of its source, and a backup of many.
func mayHold(t pve.Task, g *Guest) bool {
	if t.ID == strconv.Itoa(g.VMID) {
		return !slices.Contains(consoles, t.Type)
	}
	return sets(t.Type, g.Lock) && (strings.HasSuffix(t.Type, "clone") || t.ID == "")
}

func whose(t pve.Task) string {
	if t.TokenID != "" {
		return t.Type + " of " + t.User + "!" + t.TokenID
	}
	return t.Type + " of " + t.User
}

// running is the running task that works on the guest. The task of a backup
// job over several guests names none of them, so that one on the node stands
// for the guests that are locked for a backup.
func (x *reading) running(g *Guest) (pve.Task, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	t, ok := x.tasks[g.VMID]
	if !ok && g.Lock == "backup" {
		t, ok = x.backups[g.Node]
	}
	return t, ok
}

// holder looks for the task that set the guest's lock, which may have ended:
// the newest of a fitting type. A token sees those of others only with
// Sys.Audit on the node (facts M); a clone's task bears its source's vmid.
func (x *reading) holder(g *Guest) (pve.Task, bool) {
	const enough = 50 // of the newest
	list, err := x.r.Tasks(x.ctx, g.Node, pve.TaskFilter{VMID: g.VMID, Limit: enough})
	if err != nil {
		return pve.Task{}, false // the lock is told all the same
	}
	i := slices.IndexFunc(list, func(t pve.Task) bool { return sets(t.Type, g.Lock) })
	if i < 0 {
		return pve.Task{}, false
	}
	return list[i], true
}

// BusyFor is how long the guest has been held at the time now; 0 = not known.
func (g *Guest) BusyFor(now time.Time) time.Duration {
	if g.Busy == "" || g.BusySince.IsZero() || now.Before(g.BusySince) {
		return 0
	}
	return now.Sub(g.BusySince)
}
