package pvesim

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// Task is one worker and what it leaves behind.
type Task struct {
	UPID string
	Node string
	Type string
	ID   string
	// AuthID is who started it, with the token.
	AuthID string
	PID    int
	// PStart is the process start in clock ticks, as the UPID has it.
	PStart int64
	Start  time.Time
	// End is zero while the task runs.
	End time.Time
	// Exit is "", then "OK", "WARNINGS: N" or the error.
	Exit     string
	Log      []string
	Warnings int

	cancel context.CancelFunc
	done   chan struct{}
}

// Running says whether the worker is still at work.
func (t *Task) Running() bool { return t.End.IsZero() }

// spawn starts a worker on the actor's node and returns its UPID. It must be called with the world locked; the worker begins when
// the caller gives way. Its actor is a new one: locks of the caller are not inherited.
func (a *Actor) spawn(kind, id string, work func(a *Actor) error) string {
	w := a.w
	if a.task == nil && w.faults.hit(a, FaultNoWorker) {
		a.stillborn = true
		return ""
	}
	w.PID++
	now := time.Now()
	t := &Task{
		Node: a.Node, Type: kind, ID: id, AuthID: a.Who.AuthID(), PID: w.PID, Start: now, done: make(chan struct{}),
		PStart: int64(now.Sub(w.Booted)/(10*time.Millisecond)) + 1000,
	}
	t.UPID = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", t.Node, t.PID, t.PStart, now.Unix(), t.Type, t.ID, t.AuthID)
	ctx, cancel := context.WithCancel(w.ctx)
	t.cancel = cancel
	w.Tasks = append(w.Tasks, t)
	w.taskIndex[t.UPID] = t
	b := &Actor{w: w, Ctx: ctx, Who: a.Who, Node: a.Node, Cause: t.UPID, task: t}
	w.workers.Add(1)
	go func() {
		defer w.workers.Done()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.faults.task(b)
		err := work(b)
		if err == nil {
			err = b.doomed()
		}
		t.finish(err)
		cancel()
		w.trimTasks()
	}()
	return t.UPID
}

func (t *Task) finish(err error) {
	switch {
	case err != nil:
		t.Exit = strings.TrimRight(err.Error(), "\n")
		t.Log = append(t.Log, strings.Split("TASK ERROR: "+t.Exit, "\n")...)
	case t.Warnings > 0:
		t.Exit = "WARNINGS: " + strconv.Itoa(t.Warnings)
		t.Log = append(t.Log, "TASK "+t.Exit)
	default:
		t.Exit = "OK"
		t.Log = append(t.Log, "TASK OK")
	}
	t.End = time.Now()
	close(t.done)
}

// taskKeep is how many finished tasks PVE's task index keeps (two files of a thousand).
const taskKeep = 2000

func (w *World) trimTasks() {
	for len(w.Tasks) > taskKeep && !w.Tasks[0].Running() {
		delete(w.taskIndex, w.Tasks[0].UPID)
		w.Tasks[0] = nil
		w.Tasks = w.Tasks[1:]
	}
}

// wait gives way until the task has ended or d has passed, and says whether it has ended: PVE's background_delay.
func (a *Actor) wait(t *Task, d time.Duration) bool {
	a.Unlocked(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-t.done:
		case <-timer.C:
		case <-a.Ctx.Done():
		}
	})
	return !t.Running()
}

// overruleShutdown stops the guest's shutdowns under way, which would keep it locked, as far as the caller may stop these tasks.
func (a *Actor) overruleShutdown(kind string, vmid int) {
	var stopped []string
	for _, t := range a.w.Tasks {
		if t.Running() && t.Node == a.Node && t.Type == kind && t.ID == decimal(vmid) && (a.w.ownTask(a.Who, t) || a.w.can(a.Who, "/nodes/"+t.Node, "Sys.Modify")) {
			t.cancel()
			stopped = append(stopped, t.UPID)
		}
	}
	if len(stopped) > 0 {
		a.Logf("overruled %s tasks: %s", kind, strings.Join(stopped, ", "))
	}
}

// splitAuthID takes user@realm!token apart.
func splitAuthID(s string) Identity {
	u, t, _ := strings.Cut(s, "!")
	return Identity{User: u, Token: t}
}

// parseUPID checks a UPID's form and returns its node: UPID:node:pid:pstart:starttime:type:id:user: with hexadecimal numbers of eight
// digits, nine at most for pstart; the id may be empty.
func parseUPID(s string) (node string, ok bool) {
	f := strings.Split(s, ":")
	if len(f) != 9 || f[0] != "UPID" || f[8] != "" || f[5] == "" || f[7] == "" || strings.ContainsAny(s, " \t\r\n") {
		return "", false
	}
	for i, h := range f[2:5] {
		if len(h) != 8 && (i != 1 || len(h) != 9) {
			return "", false
		}
		if _, err := strconv.ParseUint(h, 16, 64); err != nil {
			return "", false
		}
	}
	return f[1], schema.CheckFormat("pve-node", f[1]) == nil
}
