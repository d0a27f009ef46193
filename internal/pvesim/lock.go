package pvesim

import (
	"fmt"
	"time"
)

// How long PVE waits for a lock before it gives up.
const (
	guestLockWait   = 10 * time.Second
	storageLockWait = 60 * time.Second
	// sharedLockWait is for the cluster-wide lock of a shared storage: a few allocations in a row are enough to exceed it.
	sharedLockWait = 10 * time.Second
)

// locks holds PVE's lock files: name → who waits. An entry exists while the lock is held.
type locks map[string]*lockQueue

type lockQueue struct{ waiting []chan struct{} }

// Lock runs f while holding the named lock, waiting for it for at most wait, then fails with text. An actor may take a lock that it
// holds already, as PVE's lock_file lets a process do.
func (a *Actor) Lock(name string, wait time.Duration, text string, f func() error) error {
	if a.held[name] > 0 {
		a.held[name]++
		defer func() { a.held[name]-- }()
		return f()
	}
	if err := a.doomed(); err != nil {
		return err
	}
	if a.w.faults.hit(a, FaultLockTimeout) {
		if err := a.Sleep(wait); err != nil {
			return err
		}
		return die("%s", text)
	}
	if err := a.acquire(name, wait, text); err != nil {
		return err
	}
	if a.held == nil {
		a.held = map[string]int{}
	}
	a.held[name] = 1
	defer func() {
		delete(a.held, name)
		a.w.release(name)
	}()
	return f()
}

// LockGuest takes the lock of a guest's config file.
func (a *Actor) LockGuest(kind string, vmid int, f func() error) error {
	file := fmt.Sprintf("/var/lock/qemu-server/lock-%d.conf", vmid)
	if kind == kindLXC {
		file = fmt.Sprintf("/run/lock/lxc/pve-config-%d.lock", vmid)
	}
	text := fmt.Sprintf("can't lock file '%s' - got timeout", file)
	return a.Lock("guest/"+file, guestLockWait, text, f)
}

// LockStorage takes a storage's lock: cluster-wide for a shared storage, else of the actor's node.
func (a *Actor) LockStorage(s *Storage, f func() error) error {
	name, text := "storage/"+a.Node+"/"+s.ID, fmt.Sprintf("can't lock file '/var/lock/pve-manager/pve-storage-%s' - got timeout", s.ID)
	wait := storageLockWait
	if s.Shared {
		wait = sharedLockWait
		name, text = "storage/"+s.ID, fmt.Sprintf("error with cfs lock 'storage-%s': got lock request timeout", s.ID)
	}
	return a.Lock(name, wait, text, f)
}

func (a *Actor) acquire(name string, wait time.Duration, text string) error {
	q := a.w.locks[name]
	if q == nil {
		a.w.locks[name] = &lockQueue{}
		return nil
	}
	ch := make(chan struct{})
	q.waiting = append(q.waiting, ch)
	got := false
	a.Unlocked(func() {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-ch:
			got = true
		case <-t.C:
		case <-a.Ctx.Done():
		}
	})
	if got {
		return nil
	}
	select {
	case <-ch: // handed over in the very moment we gave up
		a.w.release(name)
	default:
		for i, c := range q.waiting {
			if c == ch {
				q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
				break
			}
		}
	}
	if err := a.ended(); err != nil {
		return err
	}
	return die("%s", text)
}

// release hands the lock to who has waited longest.
func (w *World) release(name string) {
	q := w.locks[name]
	if q == nil {
		return
	}
	if len(q.waiting) == 0 {
		delete(w.locks, name)
		return
	}
	next := q.waiting[0]
	q.waiting = q.waiting[1:]
	close(next)
}
