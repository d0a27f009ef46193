package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/wire"
)

// worker does the actions of one object.
type worker struct {
	*run
	res       ActionResult      // of the action under way
	digest    string            // of the config after our own last write; "" = none yet
	moved     map[string]string // digests that our own stop changed, old to new; see follow
	disrupted bool              // holds a place among the disruptions
	waits     func(note string) // tells what the action under way waits for
}

// deferral is an outcome that is nobody's fault: the next cycle decides.
type deferral struct{ err error }

func (d deferral) Error() string { return d.err.Error() }
func (d deferral) Unwrap() error { return d.err }

func later(format string, args ...any) error { return deferral{fmt.Errorf(format, args...)} }

// explained adds to a refusal that names no right what the plan knows to be
// missing.
func explained(err error, a plan.Action) error {
	if e, ok := pve.As(err); ok && e.Kind == pve.KindForbidden && e.ACLPath == "" && a.Refused != "" {
		return fmt.Errorf("%w: %s", err, a.Refused)
	}
	return err
}

// settle turns an error into an outcome.
func (w *worker) settle(err error) {
	w.res.Err = err
	var d deferral
	e, isPVE := pve.As(err)
	if isPVE {
		w.res.Tail = e.Tail
		if e.UPID != "" {
			w.res.UPID = string(e.UPID)
		}
	}
	switch {
	case err == nil && len(w.res.Warnings) > 0:
		w.res.Outcome = Warned
	case err == nil:
		w.res.Outcome = Done
	case errors.As(err, &d):
		w.res.Outcome = Deferred
	case !isPVE:
		w.res.Outcome = Failed
	case e.Kind == pve.KindUnknownOutcome, e.Kind == pve.KindTaskTimeout, e.Kind == pve.KindCanceled && e.UPID != "":
		w.res.Outcome = Unknown
	case e.Kind == pve.KindBusy, e.Kind == pve.KindConflict, e.Kind == pve.KindCanceled:
		w.res.Outcome = Deferred
	default:
		w.res.Outcome = Failed
	}
}

// took notes how a task ended.
func (w *worker) took(t pve.TaskResult, err error) error {
	if t.UPID != "" {
		w.res.UPID = string(t.UPID)
	}
	w.res.Warnings = append(w.res.Warnings, t.Warnings...)
	if len(t.Tail) > 0 {
		w.res.Tail = t.Tail
	}
	return err
}

func (w *worker) do(ctx context.Context, a plan.Action) error {
	n, err := w.c.Node(a.Node)
	if err != nil {
		return err
	}
	switch step := a.Do.(type) {
	case plan.DownloadStep:
		return w.download(ctx, n, step)
	case plan.CreateStep:
		return w.create(ctx, n, a, step)
	case plan.CloneStep:
		return w.clone(ctx, n, a, step)
	case plan.UpdateStep:
		return w.update(ctx, n, a.VMID, step)
	case plan.ResizeStep:
		return w.resize(ctx, n, a.VMID, step)
	case plan.MarkStep:
		return w.mark(ctx, n, a.VMID, pve.GuestType(step.Guest))
	case plan.PowerStep:
		return w.power(ctx, n, a.VMID, step)
	case plan.MigrateStep:
		return w.took(n.Migrate(ctx, pve.GuestType(step.Guest), a.VMID, step.To, step.Params))
	case plan.DeleteStep:
		return w.delete(ctx, n, a.VMID, step)
	}
	return fmt.Errorf("%s: no such step", a.Verb)
}

func (w *worker) download(ctx context.Context, n *pve.Node, step plan.DownloadStep) error {
	err := w.took(n.Download(ctx, step.Storage, step.Params))
	if pve.Is(err, pve.KindAlreadyExists) {
		return later("the file is there by now: %w", err)
	}
	return err
}

// create makes a guest. That its vmid exists already is never taken for
// success: the guest may be somebody else's, or half made.
func (w *worker) create(ctx context.Context, n *pve.Node, a plan.Action, step plan.CreateStep) error {
	t := pve.GuestType(step.Guest)
	if err := w.took(n.CreateGuest(ctx, t, a.VMID, step.Params)); err != nil {
		return err
	}
	if step.Mark {
		if err := w.mark(ctx, n, a.VMID, t); err != nil {
			return fmt.Errorf("created, but not made a template: %w", err)
		}
	}
	if step.Start {
		if err := w.took(n.Start(ctx, t, a.VMID)); err != nil {
			return fmt.Errorf("created, but not started: %w", err)
		}
	}
	return nil
}

// clone copies the template and then writes what separates the copy, as PVE
// made it, from its manifest. Should it break off in between, the marker in
// the description makes the next cycle write everything again.
func (w *worker) clone(ctx context.Context, n *pve.Node, a plan.Action, step plan.CloneStep) error {
	if err := w.took(n.Clone(ctx, pve.QEMU, step.Source, a.VMID, step.Params)); err != nil {
		return err
	}
	g, err := live.ReadGuest(ctx, w.c.Reader(), a.Node, "qemu", a.VMID)
	if err != nil {
		return fmt.Errorf("cloned, but not configured: %w", err)
	}
	if pool, ok := step.Params.Get("pool"); ok {
		text := pool.String()
		g.Config["pool"] = field.Entry{Value: &text}
	}
	d := plan.Configure(step.Resource, &g.Guest, step.Options, true, step.Description)
	up := plan.UpdateOf(&g.Guest, d.Edits)
	up.Digest = g.Digest
	if err := w.update(ctx, n, a.VMID, up); err != nil {
		return fmt.Errorf("cloned, but not configured: %w", err)
	}
	if step.Start {
		if err := w.took(n.Start(ctx, pve.QEMU, a.VMID)); err != nil {
			return fmt.Errorf("cloned and configured, but not started: %w", err)
		}
	}
	return nil
}

// update makes one config write and reads back what PVE made of it.
func (w *worker) update(ctx context.Context, n *pve.Node, vmid int, step plan.UpdateStep) error {
	t := pve.GuestType(step.Guest)
	params := slices.Clone(step.Params)
	if len(step.Delete) > 0 {
		params.Set("delete", wire.Plain(strings.Join(step.Delete, ",")))
	}
	if len(step.Revert) > 0 {
		params.Set("revert", wire.Plain(strings.Join(step.Revert, ",")))
	}
	if len(params) > 0 {
		err := w.took(n.UpdateConfig(ctx, t, vmid, params, w.current(step.Digest)))
		if err = w.readBack(ctx, n, vmid, step, err); err != nil {
			return err
		}
	}
	if step.RegenerateCloudInit {
		if err := w.took(n.RegenerateCloudInit(ctx, vmid)); err != nil {
			return fmt.Errorf("written, but the cloud-init drive was not made anew (the next start does it): %w", err)
		}
	}
	return w.pool(ctx, vmid, step.Pool)
}

// readBack reads what is pending after a write. PVE may answer a write with
// the error of an older pending change, although the write itself was done,
// and may leave a part of a refused write pending (facts D, L).
func (w *worker) readBack(ctx context.Context, n *pve.Node, vmid int, step plan.UpdateStep, failed error) error {
	if pve.NothingApplied(failed) || pve.Is(failed, pve.KindCanceled) {
		return failed
	}
	cfg, err := w.c.Reader().Pending(ctx, n.Name(), pve.GuestType(step.Guest), vmid)
	if err != nil {
		if failed != nil {
			return failed
		}
		w.digest = ""
		return nil // written; the next cycle reads it
	}
	w.digest = cfg.Digest
	for _, e := range cfg.Entries {
		if _, set := step.Params.Get(e.Key); e.IsPending() && (set || slices.Contains(step.Delete, e.Key)) {
			w.res.Waiting = append(w.res.Waiting, e.Key)
		}
	}
	if failed != nil && inPlace(cfg, step) {
		w.res.Warnings = append(w.res.Warnings, "written, but PVE reports: "+failed.Error())
		return nil
	}
	return failed
}

// inPlace reports whether everything that the step wrote is in the config, as
// it was sent.
func inPlace(cfg pve.GuestConfig, step plan.UpdateStep) bool {
	for _, p := range step.Params {
		e, _ := cfg.Get(p.Key)
		if text, ok := e.Want(); p.Value.IsSecret() || !ok || text != p.Value.Reveal() {
			return false
		}
	}
	for _, key := range step.Delete {
		if e, ok := cfg.Get(key); ok {
			if _, still := e.Want(); still {
				return false
			}
		}
	}
	for _, key := range step.Revert {
		if e, ok := cfg.Get(key); ok && e.IsPending() {
			return false
		}
	}
	return true
}

func (w *worker) pool(ctx context.Context, vmid int, move *plan.PoolMove) error {
	switch {
	case move == nil || move.From == move.To:
		return nil
	case move.To == "":
		return w.c.RemoveFromPool(ctx, move.From, vmid)
	}
	return w.c.AddToPool(ctx, move.To, move.From != "", vmid)
}

func (w *worker) resize(ctx context.Context, n *pve.Node, vmid int, step plan.ResizeStep) error {
	t := pve.GuestType(step.Guest)
	if err := w.took(n.Resize(ctx, t, vmid, step.Key, int64(step.To), w.current(step.Digest))); err != nil {
		return err
	}
	cfg, err := w.c.Reader().Pending(ctx, n.Name(), t, vmid)
	if err != nil {
		w.digest = ""
		return nil
	}
	w.digest = cfg.Digest
	return nil
}

func (w *worker) mark(ctx context.Context, n *pve.Node, vmid int, t pve.GuestType) error {
	err := w.took(n.MarkTemplate(ctx, t, vmid))
	if err == nil {
		return nil
	}
	if cfg, rerr := w.c.Reader().Pending(ctx, n.Name(), t, vmid); rerr == nil {
		if e, ok := cfg.Get("template"); ok && e.Value != nil && *e.Value == "1" {
			return nil // PVE refuses a second marking of what is a template already
		}
	}
	return err
}

// delete reads the guest once more, right before: the vmid may have gone to
// another guest since the plan, or the guest may be in use.
func (w *worker) delete(ctx context.Context, n *pve.Node, vmid int, step plan.DeleteStep) error {
	t := pve.GuestType(step.Guest)
	g, err := w.recheck(ctx, n, vmid, step, nil)
	if err != nil {
		return err
	}
	if g.Running {
		w.waits(fmt.Sprintf("shutting down, up to %s", w.o.Shutdown))
		err := w.took(n.Shutdown(ctx, t, vmid, w.o.Shutdown, false))
		if err == nil {
			err = w.await(ctx, n, t, vmid, "stopped", w.o.Shutdown)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return later("not deleted: interrupted while it shut down: %w", err)
		case err != nil:
			w.res.Todo = fmt.Sprintf("look at why it does not shut down, or stop it with `%s stop %d`: the next run deletes it", plan.Tool(string(t)), vmid)
			return later("not deleted: it does not shut down within %s, and is never killed: %w", w.o.Shutdown, err)
		}
		if _, err = w.recheck(ctx, n, vmid, step, g); err != nil {
			return err
		}
	}
	res, err := n.Delete(ctx, t, vmid)
	if err := w.took(res, err); err != nil {
		return err
	}
	w.leftBehind(n, step, res.Remains)
	if len(w.res.Warnings) == 0 {
		return nil
	}
	if free, err := w.c.Reader().VMIDFree(ctx, vmid); err != nil || !free {
		return fmt.Errorf("the delete ended with warnings and guest %d is still there", vmid)
	}
	return nil
}

// leftBehind warns of the volumes that PVE could not remove with their guest:
// no guest's config names them any more, so nobody would find them.
func (w *worker) leftBehind(n *pve.Node, step plan.DeleteStep, lines []string) {
	if len(lines) == 0 {
		return
	}
	for _, l := range lines {
		if !slices.Contains(w.res.Warnings, l) {
			w.res.Warnings = append(w.res.Warnings, l)
		}
	}
	var free []string
	for _, v := range step.Volumes {
		if slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "'"+v+"'") }) {
			free = append(free, fmt.Sprintf("`pvesm free %s`", v))
		}
	}
	w.res.Todo = fmt.Sprintf("the guest is gone and what PVE could not remove is not: see the task's log on %s and remove it by hand", n.Name())
	if len(free) > 0 {
		w.res.Todo = fmt.Sprintf("the guest is gone, its volumes are not: remove them on %s when their storage lets go of them (%s)", n.Name(), strings.Join(free, ", "))
	}
}

// recheck gives the guest only if it is still the one that the plan meant, with
// the volumes and the config that the plan saw. After our own shutdown the
// guest from before it stands for the plan's config: PVE has put into place
// what was pending, which changes the digest.
func (w *worker) recheck(ctx context.Context, n *pve.Node, vmid int, step plan.DeleteStep, before *live.Guest) (*live.Guest, error) {
	g, err := live.ReadGuest(ctx, w.c.Reader(), n.Name(), step.Guest, vmid)
	switch {
	case pve.Is(err, pve.KindNotFound):
		return nil, later("not deleted: guest %d is no longer on %s", vmid, n.Name())
	case err != nil:
		return nil, err
	case !g.Tagged(kind.OwnerTag):
		return nil, later("not deleted: guest %d has lost the tag %s since the plan", vmid, kind.OwnerTag)
	case g.Name != step.Name:
		return nil, later("not deleted: vmid %d belongs to another guest by now (%q, the plan meant %q)", vmid, g.Name, step.Name)
	case g.Identity != step.Identity:
		return nil, later("not deleted: vmid %d belongs to another guest by now, which is also named %q (%s; the plan meant %s)", vmid, g.Name, g.Identity, step.Identity)
	case g.Lock != "":
		return nil, later("not deleted: guest %d is locked (%s)", vmid, g.Lock)
	}
	if v, _ := g.Get("protection"); v == "1" {
		return nil, later("not deleted: the protection of guest %d was turned on since the plan", vmid)
	}
	more := slices.DeleteFunc(live.Volumes(&g.Guest), func(v string) bool { return slices.Contains(step.Volumes, v) })
	if len(more) > 0 {
		return nil, later("not deleted: guest %d has volumes that it did not have at the plan, and they would be destroyed with it (%s): plan again", vmid, strings.Join(more, ", "))
	}
	changed := step.Digest != "" && g.Digest != step.Digest
	if before != nil {
		changed = g.Digest != before.Digest && !(sameAfterStop(before, g) && sameAfterStop(g, before))
	}
	if changed {
		return nil, later("not deleted: the config of guest %d was changed since the plan: plan again", vmid)
	}
	return g, nil
}

// sameAfterStop reports whether every key of a has the same value in b, pending
// changes put into place.
func sameAfterStop(a, b *live.Guest) bool {
	for key := range a.Config {
		was, had := a.Get(key)
		is, has := b.Get(key)
		if had != has || was != is {
			return false
		}
	}
	return true
}

// await polls until a guest has the power state; the HA manager answers a
// request long before the guest has it.
func (w *worker) await(ctx context.Context, n *pve.Node, t pve.GuestType, vmid int, state string, most time.Duration) error {
	deadline := time.After(most)
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		st, err := w.c.Reader().GuestStatus(ctx, n.Name(), t, vmid)
		if err == nil && st.Status == state {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("guest %d is not %s after %s", vmid, state, most)
		case <-time.After(wait):
		}
	}
}
