package pve

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/proxops/proxops/internal/wire"
)

const (
	pollFirst = 200 * time.Millisecond
	pollMax   = 2 * time.Second
	tailLines = 12
	// A guest has at most some 300 volumes (unused0 to unused255 among them), and
	// the log of its end has about a line for each.
	destroyLines = 500
	lostTask     = time.Minute // how long a task's node may be out of reach before we give up following
	foundWithin  = 3           // looks for the task of a write without an answer
)

// taskSet remembers the tasks that this client follows or has followed.
type taskSet struct {
	mu sync.Mutex
	m  map[UPID]time.Time
}

func (s *taskSet) add(u UPID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[UPID]time.Time{}
	}
	for k, t := range s.m {
		if time.Since(t) > 2*time.Hour {
			delete(s.m, k)
		}
	}
	s.m[u] = time.Now()
}

func (s *taskSet) has(u UPID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.m[u]
	return ok
}

type hookKey struct{}

// WithTaskHook makes f hear of the tasks of calls made with the context, next
// to Config.OnTask. f must not block.
func WithTaskHook(ctx context.Context, f func(TaskEvent)) context.Context {
	return context.WithValue(ctx, hookKey{}, f)
}

func (c *core) hook(ctx context.Context) func(TaskEvent) {
	f, _ := ctx.Value(hookKey{}).(func(TaskEvent))
	switch {
	case f == nil:
		return c.onTask
	case c.onTask == nil:
		return f
	}
	return func(e TaskEvent) { c.onTask(e); f(e) }
}

// write sends a write and follows its task. Lock timeouts that PVE reports
// before doing any work are repeated a few times; with a digest, the storage's
// as well, since PVE would notice a half-applied first try.
func (c *Client) write(ctx context.Context, w write) (TaskResult, error) {
	scrub := c.core.scrubber(w.params)
	for try := 1; ; try++ {
		res, err := c.writeOnce(ctx, w, scrub)
		res.Tail, res.Warnings, res.Remains = scrub.lines(res.Tail), scrub.lines(res.Warnings), scrub.lines(res.Remains)
		if err == nil {
			return res, nil
		}
		scrub.err(err)
		if e, ok := As(err); !ok || try == busyTries || !w.repeatable(e) {
			return res, err
		}
		pause := time.Duration(1<<try)*500*time.Millisecond + rand.N(500*time.Millisecond)
		c.core.log.Debug("busy, trying again", "cluster", c.core.name, "path", w.path, "in", pause)
		select {
		case <-ctx.Done():
			return res, err
		case <-time.After(pause):
		}
	}
}

// repeatable reports whether a refused write may be sent again: PVE waited in
// vain for the guest's own lock, before any work; or for another lock, and
// there is a digest by which it would notice a half-applied first try. A guest
// that is locked by a backup or migration stays so for long: not repeated.
func (w write) repeatable(e *Error) bool {
	switch {
	case e.Kind != KindBusy || locked.MatchString(e.Message):
		return false
	case e.UPID != "":
		return w.power && guestLockFile(e.Message)
	}
	return guestLockFile(e.Message) || w.guarded && lockWait.MatchString(e.Message)
}

// taskID is the id that the write's task has in its UPID.
func (w write) taskID() string {
	if w.vmid != 0 {
		return strconv.Itoa(w.vmid)
	}
	return w.file
}

func (c *Client) writeOnce(ctx context.Context, w write, scrub scrubber) (TaskResult, error) {
	start := time.Now()
	var upid UPID
	var lost error
	out := any(&upid)
	if w.synchronous {
		out = nil
	}
	_, err := c.core.do(ctx, w.request(), out)
	if err == nil && upid == "" && !w.synchronous {
		err = c.core.fail(w.request(), KindUnknownOutcome, "PVE's answer names no task, where it always does; the change may have been made or not", unknownHint)
	}
	switch {
	case Is(err, KindUnknownOutcome) && w.task != "" && w.taskID() != "":
		t, found := c.recover(ctx, w, start)
		if !found {
			return TaskResult{}, err
		}
		upid, lost = t.UPID, err
	case err != nil:
		return TaskResult{}, err
	}
	if upid == "" {
		return TaskResult{Exit: "OK", Duration: time.Since(start)}, nil
	}
	res, err := c.follow(ctx, w, upid, scrub)
	if err == nil && lost != nil && w.makes != "" && c.Get(ctx, w.makes, nil, nil) != nil {
		return TaskResult{}, lost // it was the task of another clone
	}
	return res, err
}

// recover looks for the task of a write whose answer was lost. A task that is
// found is ours: of the right type, on that guest, by this caller, started
// since, and not followed yet.
func (c *Client) recover(ctx context.Context, w write, since time.Time) (Task, bool) {
	for i := range foundWithin {
		select {
		case <-ctx.Done():
			return Task{}, false
		case <-time.After(500 * time.Millisecond << i):
		}
		if t, ok, err := c.findTask(ctx, w.node, TaskFilter{VMID: w.vmid, Type: w.task}, w.taskID(), since); err == nil && ok {
			c.core.log.Info("found the task of a write whose answer was lost", "cluster", c.core.name, "task", t.UPID)
			return t, true
		}
	}
	return Task{}, false
}

// Follow waits for a task's end, as the writing calls do.
func (c *Client) Follow(ctx context.Context, u UPID) (TaskResult, error) {
	return c.follow(ctx, write{method: "TASK", path: u.Type() + " " + u.ID(), node: u.Node()}, u, c.core.scrubber(nil))
}

func (c *Client) follow(ctx context.Context, w write, u UPID, scrub scrubber) (TaskResult, error) {
	if !u.Valid() {
		return TaskResult{}, c.core.fail(w.request(), KindUnknownOutcome, "PVE's answer is no task id", unknownHint)
	}
	c.core.followed.add(u)
	f := follower{c: c, w: w, upid: u, start: time.Now(), hook: c.core.hook(ctx), scrub: scrub}
	return f.run(ctx)
}

// follower polls one task.
type follower struct {
	c     *Client
	w     write
	upid  UPID
	start time.Time
	hook  func(TaskEvent)
	scrub scrubber
	lines int       // log lines read so far
	lost  time.Time // since when the status cannot be read
}

func (f *follower) run(ctx context.Context) (TaskResult, error) {
	deadline := time.NewTimer(f.c.core.taskTimeout)
	defer deadline.Stop()
	f.tell(ctx, false, "")
	for wait := pollFirst; ; wait = min(wait*3/2, pollMax) {
		t, err := f.c.TaskStatus(ctx, f.upid)
		switch {
		case err == nil && !t.Running:
			return f.ended(ctx, t.Exit)
		case err == nil:
			f.lost = time.Time{}
			f.tell(ctx, false, "")
		case ctx.Err() == nil && f.giveUp(err):
			return f.result(""), f.fail(KindUnknownOutcome, "the task cannot be followed any more: "+err.Error(), unknownHint)
		}
		select {
		case <-ctx.Done():
			e := f.fail(KindCanceled, "stopped waiting; the task goes on in PVE", "")
			e.cause = context.Cause(ctx)
			return f.result(""), e
		case <-deadline.C:
			return f.result(""), f.fail(KindTaskTimeout, fmt.Sprintf("the task still runs after %s and goes on in PVE", f.c.core.taskTimeout), "raise reconcile.task-timeout if it needs that long")
		case <-time.After(wait):
		}
	}
}

// giveUp tells whether a failed status read is final: refusals are, network
// trouble after a while.
func (f *follower) giveUp(err error) bool {
	if !Is(err, KindUnreachable, KindUnavailable) {
		return true
	}
	if f.lost.IsZero() {
		f.lost = time.Now()
	}
	return time.Since(f.lost) > lostTask
}

func (f *follower) tell(ctx context.Context, ended bool, exit string) {
	if f.hook == nil {
		return
	}
	lines, next, _, err := f.c.taskLog(ctx, f.upid, f.lines, 200)
	if err == nil {
		f.lines = next
	}
	f.hook(TaskEvent{UPID: f.upid, Elapsed: time.Since(f.start), Lines: f.scrub.lines(lines), Ended: ended, Exit: f.scrub.text(exit)})
}

func (f *follower) result(exit string) TaskResult {
	return TaskResult{UPID: f.upid, Exit: f.scrub.text(exit), Duration: time.Since(f.start)}
}

func (f *follower) fail(k Kind, msg, hint string) *Error {
	return &Error{Kind: k, Cluster: f.c.core.name, Method: f.w.method, Path: f.w.path, Node: f.w.node, Message: msg, Hint: hint, UPID: f.upid}
}

// remains are lines by which a task that ends with OK says that something stays
// which it should have removed: for PVE a volume that cannot be freed is no
// reason to keep a guest.
var remains = regexp.MustCompile(`(?i)check manually|(?:could not|unable to|failed to|can(?:not|'t)) (?:remove|delete|destroy|free)`)

// removes tells the types of task whose log is read although they ended with OK.
func removes(taskType string) bool { return taskType == "qmdestroy" || taskType == "vzdestroy" }

// left gives the lines of the log that tell of remains. It reads on where a
// guest had more volumes than a tail has lines.
func (f *follower) left(ctx context.Context) []string {
	log, err := f.c.TaskTail(ctx, f.upid, destroyLines)
	if err != nil {
		f.c.core.log.Warn("whether the delete left volumes behind is not known: its log could not be read", "cluster", f.c.core.name, "task", f.upid, "error", err)
	}
	return slices.DeleteFunc(log, func(l string) bool { return !remains.MatchString(l) })
}

// ended reads the log of what did not end with OK, and of what removes volumes.
func (f *follower) ended(ctx context.Context, exit string) (TaskResult, error) {
	res := f.result(exit)
	f.tell(ctx, true, exit)
	if removes(f.upid.Type()) && (exit == "OK" || strings.HasPrefix(exit, "WARNINGS")) {
		res.Remains = f.left(ctx)
	}
	if exit == "OK" {
		return res, nil
	}
	tail, err := f.c.TaskTail(ctx, f.upid, tailLines)
	if err == nil {
		res.Tail = tail
	}
	if strings.HasPrefix(exit, "WARNINGS") {
		for _, l := range tail {
			if u := strings.ToUpper(l); strings.HasPrefix(u, "WARN") {
				res.Warnings = append(res.Warnings, l)
			}
		}
		if len(res.Warnings) == 0 {
			res.Warnings = tail
		}
		return res, nil
	}
	kind, hint := classifyText(exit)
	switch kind {
	case KindRefused, KindUnknownOutcome:
		kind = KindTaskFailed
	}
	if exit == "" {
		exit = "no exit status"
	}
	e := f.fail(kind, "the task "+f.upid.Type()+" failed: "+exit, hint)
	e.Tail = slices.Clone(res.Tail)
	if kind == KindForbidden {
		f.c.core.forbidden(e)
	}
	return res, e
}

// templateCT marks a container. PVE answers null and names no task, so the
// task is looked for and the config has the last word.
func (n *Node) templateCT(ctx context.Context, w write) (TaskResult, error) {
	start := time.Now()
	w.synchronous = true
	if res, err := n.client.write(ctx, w); err != nil {
		return res, err
	}
	wait := pollFirst
	for time.Since(start) < n.client.core.taskTimeout {
		t, ok, err := n.client.FindTask(ctx, n.name, w.vmid, w.task, start)
		if err == nil && ok {
			return n.client.follow(ctx, w, t.UPID, n.client.core.scrubber(w.params))
		}
		var cfg row
		if err := n.client.Get(ctx, n.guest(LXC, w.vmid, "config"), nil, &cfg); err == nil && cfg.yes("template") {
			return TaskResult{Exit: "OK", Duration: time.Since(start)}, nil
		}
		select {
		case <-ctx.Done():
			e := n.client.core.canceled(w.request(), context.Cause(ctx))
			e.unsent, e.Message = false, "stopped waiting; the task goes on in PVE"
			return TaskResult{}, e
		case <-time.After(wait):
		}
		wait = min(wait*3/2, pollMax)
	}
	return TaskResult{}, n.client.core.fail(w.request(), KindTaskTimeout, "the container is still no template", "look at its tasks in PVE")
}

// scrubber makes texts of PVE fit to be shown: it removes secret values, since
// PVE may repeat what was sent, and hashes of passwords, whoever sent them; puts
// each on one line, so that none looks like a line of ours; and cuts it.
type scrubber struct{ sent *sent }

// hashed is a password as crypt(3) hashes it.
var hashed = regexp.MustCompile(`\$(?:1|2[abxy]?|5|6|7|y|gy)\$[./0-9A-Za-z$=,+-]{20,}`)

// sent are the secrets that went to PVE so far: a later task's log, or another
// guest's, may repeat them too.
type sent struct {
	mu  sync.Mutex
	all []string
}

// scrubber removes the credentials, the secrets among p and all others that
// were or will be sent.
func (c *core) scrubber(p wire.Params) scrubber {
	c.sent.mu.Lock()
	defer c.sent.mu.Unlock()
	add := func(v string) {
		if len(v) > 2 && !slices.Contains(c.sent.all, v) && !hashed.MatchString(v) {
			c.sent.all = append(c.sent.all, v)
		}
	}
	add(c.auth.creds.TokenSecret.Reveal())
	add(c.auth.creds.Password.Reveal())
	for _, x := range p {
		if x.Value.IsSecret() {
			add(x.Value.Reveal())
		}
	}
	slices.SortStableFunc(c.sent.all, func(a, b string) int { return len(b) - len(a) }) // one may stand in another
	return scrubber{&c.sent}
}

func (s scrubber) text(t string) string {
	s.sent.mu.Lock()
	defer s.sent.mu.Unlock()
	for _, v := range s.sent.all {
		t = strings.ReplaceAll(t, v, "(redacted)")
	}
	return oneLine(hashed.ReplaceAllString(t, "(redacted)"))
}

// oneLine joins the lines of a text and keeps its beginning: what somebody has
// to read is never longer than 2 kB, also when it comes by twice. Cutting comes
// after scrubbing, which would not know half a secret.
func oneLine(t string) string {
	const most, note = 2 << 10, 64
	if strings.ContainsAny(t, lineEnds) {
		lines := strings.FieldsFunc(t, func(c rune) bool { return strings.ContainsRune(lineEnds, c) })
		lines = slices.DeleteFunc(lines, func(l string) bool { return strings.TrimSpace(l) == "" })
		t = strings.Join(lines, "; ")
	}
	if len(t) <= most {
		return t
	}
	head := strings.ToValidUTF8(t[:most-note], "")
	return fmt.Sprintf("%s… (%d bytes more)", head, len(t)-len(head))
}

// lineEnds are the characters at which one output or another begins a line.
const lineEnds = "\n\r\v\f\u0085\u2028\u2029"

func (s scrubber) lines(in []string) []string {
	out := make([]string, 0, len(in))
	for _, l := range in {
		out = append(out, s.text(l))
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func (s scrubber) err(err error) {
	var e *Error
	if !errors.As(err, &e) {
		return
	}
	e.Message, e.Reason, e.Tail = s.text(e.Message), s.text(e.Reason), s.lines(e.Tail)
	for k, v := range e.Params {
		e.Params[k] = s.text(v)
	}
}
