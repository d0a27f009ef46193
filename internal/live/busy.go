package live

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pve"
)

// lockTasks are the types of the tasks that set each of PVE's locks, without
// their prefix qm or vz.
var lockTasks = map[string][]string{
	"backup":          {"dump"},
	"clone":           {"clone"},
	"create":          {"create", "restore"},
	"disk":            {"move", "move_volume", "resize", "disk", "import"},
	"fstrim":          {"fstrim"},
	"migrate":         {"migrate"},
	"mounted":         {"mount"},
	"rollback":        {"rollback"},
	"snapshot":        {"snapshot"},
	"snapshot-delete": {"delsnapshot"},
	"suspended":       {"suspend"},
	"suspending":      {"suspend"},
}

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
	switch {
	case known && t.Running:
		g.Busy, g.BusySince = g.Busy+": task "+whose(t)+" is running", t.Start
	case g.Lock == "create":
		g.Busy = x.staleCreate(g, t, known)
	case known:
		g.Busy, g.BusySince = fmt.Sprintf("%s: its task %s has ended (%s)", g.Busy, whose(t), t.Exit), t.Start
	}
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

// staleCreate words the guest that a lost create left behind: a config that
// holds little but its lock. PVE never clears it by itself, and nothing here
// may decide that its volumes are of no use. How to clear it is said only once
// the task that made it is known to be gone.
func (x *reading) staleCreate(g *Guest, t pve.Task, known bool) string {
	tool := "qm"
	if g.LXC {
		tool = "pct"
	}
	clear := fmt.Sprintf("clear it on the node with `%s unlock %d` and then `%s destroy %d`", tool, g.VMID, tool, g.VMID)
	switch {
	case known:
		g.BusySince = t.Start
		return fmt.Sprintf("busy or stale: create: its task %s on %s has ended (%s); %s", whose(t), g.Node, t.Exit, clear)
	case x.blind[g.Node]:
		return fmt.Sprintf("busy or stale: create: no task that this token may see works on it on %s; with Sys.Audit on /nodes/%s the token could tell whether its creation has ended",
			g.Node, g.Node)
	}
	return fmt.Sprintf("busy or stale: create: no task works on it on %s; %s", g.Node, clear)
}

// BusyFor is how long the guest has been held at the time now; 0 = not known.
func (g *Guest) BusyFor(now time.Time) time.Duration {
	if g.Busy == "" || g.BusySince.IsZero() || now.Before(g.BusySince) {
		return 0
	}
	return now.Sub(g.BusySince)
}
