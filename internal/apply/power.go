package apply

import (
	"context"
	"errors"
	"fmt"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
)

// power takes a guest down, brings it up, or both. What the guest is by now
// counts, not what the plan saw: PVE refuses to start a running guest, and to
// stop a container that does not run.
func (w *worker) power(ctx context.Context, n *pve.Node, vmid int, step plan.PowerStep) error {
	t := pve.GuestType(step.Guest)
	st, err := w.c.Reader().GuestStatus(ctx, n.Name(), t, vmid)
	if err != nil {
		return err
	}
	if st.Lock != "" {
		return later("locked (%s)", st.Lock)
	}
	running := st.Status == "running"
	if step.Stop && running {
		before, known := w.c.Reader().Pending(ctx, n.Name(), t, vmid)
		if err := w.shutdown(ctx, n, t, vmid, step); err != nil {
			return err
		}
		if known == nil && !step.Start {
			w.follow(ctx, n, t, vmid, before)
		}
		running = false
	}
	if !step.Start || running {
		return nil
	}
	if err := w.took(n.Start(ctx, t, vmid)); err != nil {
		if step.Stop {
			return fmt.Errorf("it was shut down, but does not start: %w", err)
		}
		return err
	}
	if step.HA {
		return w.await(ctx, n, t, vmid, "running", w.o.Shutdown)
	}
	return nil
}

// follow takes over the digest that our own stop gives a config: PVE puts into
// place what it held pending, so the digest that the plan was made with no
// longer fits although nobody edited anything. Only where every key still has
// the value it was to have after the stop does the new digest count as ours;
// otherwise the old one stays, and PVE refuses the write that would overwrite
// somebody's edit.
func (w *worker) follow(ctx context.Context, n *pve.Node, t pve.GuestType, vmid int, before pve.GuestConfig) {
	after, err := w.c.Reader().Pending(ctx, n.Name(), t, vmid)
	if err != nil || after.Digest == before.Digest || !sameWanted(before, after) || !sameWanted(after, before) {
		return
	}
	if w.moved == nil {
		w.moved = map[string]string{}
	}
	w.moved[before.Digest] = after.Digest
}

// sameWanted reports whether every key of a has the same value in b, pending
// changes put into place.
func sameWanted(a, b pve.GuestConfig) bool {
	for _, e := range a.Entries {
		x, _ := b.Get(e.Key)
		was, had := e.Want()
		is, has := x.Want()
		if had != has || was != is {
			return false
		}
	}
	return true
}

// current is the digest to send: the plan's, or what it became by our own
// doing.
func (w *worker) current(digest string) string {
	if w.digest != "" {
		digest = w.digest
	}
	if d, ok := w.moved[digest]; ok {
		return d
	}
	return digest
}

func (w *worker) shutdown(ctx context.Context, n *pve.Node, t pve.GuestType, vmid int, step plan.PowerStep) error {
	note := fmt.Sprintf("shutting down, up to %s", w.o.Shutdown)
	if step.Force {
		note += ", then stopped hard"
	}
	w.waits(note)
	err := w.took(n.Shutdown(ctx, t, vmid, w.o.Shutdown, step.Force))
	if pve.Is(err, pve.KindTaskFailed) {
		hint := ": shut it down by hand, or set the annotation proxops/force-stop: \"true\""
		if step.Force {
			hint = ""
		}
		return fmt.Errorf("it does not shut down within %s%s: %w", w.o.Shutdown, hint, err)
	}
	if err != nil {
		return err
	}
	if step.HA {
		return w.await(ctx, n, t, vmid, "stopped", w.o.Shutdown)
	}
	return nil
}

// beginDisruption waits for a place among the guests that may be down at a
// time. After one failed no other is taken down: what broke it may break them
// all.
func (w *worker) beginDisruption(ctx context.Context, a plan.Action) error {
	if w.disrupted {
		return nil
	}
	select {
	case w.disrupt <- struct{}{}:
		w.disrupted = true
	case <-ctx.Done():
		return errInterrupted
	case <-w.o.Stop:
		return errInterrupted
	}
	if a.Windowed && !w.o.WindowOpen() {
		return errors.New("not started: the restart window has closed, the next one decides")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.upset
}

func (w *worker) endDisruption() {
	if w.disrupted {
		<-w.disrupt
		w.disrupted = false
	}
}
