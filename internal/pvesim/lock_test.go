package pvesim

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func testWorld(t *testing.T) (*World, *Actor) {
	t.Helper()
	s, err := Recorded("base")
	if err != nil {
		t.Fatal(err)
	}
	w := New(Options{Seed: 1, TimeScale: 1}, s)
	t.Cleanup(w.Stop)
	return w, &Actor{w: w, Ctx: w.ctx, Who: Identity{User: "root@pam"}, Node: "pve01", Cause: "test"}
}

// TestGuestLock: waiters get a guest's lock in turn, give up after ten seconds, and may take what they hold.
func TestGuestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a := testWorld(t)
		var order []string
		hold := func(name string, d time.Duration) string {
			return a.spawn("test", name, func(a *Actor) error {
				return a.LockGuest(kindQemu, 100, func() error {
					return a.LockGuest(kindQemu, 100, func() error {
						order = append(order, name)
						return a.Sleep(d)
					})
				})
			})
		}
		w.mu.Lock()
		first := hold("first", 4*time.Second)
		w.mu.Unlock()
		synctest.Wait()
		w.mu.Lock()
		second := hold("second", 20*time.Second)
		w.mu.Unlock()
		synctest.Wait()
		w.mu.Lock()
		third := hold("third", 0)
		w.mu.Unlock()
		time.Sleep(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := fmt.Sprint(order); got != "[first second]" {
			t.Errorf("the lock went to %s", got)
		}
		for upid, want := range map[string]string{first: "OK", second: "OK", third: "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout"} {
			if got := w.taskIndex[upid].Exit; got != want {
				t.Errorf("%s ended %q, want %q", upid, got, want)
			}
		}
		if len(w.locks) != 0 {
			t.Errorf("locks are left: %v", w.locks)
		}
	})
}

// TestTaskEnds: the three ways a task ends, and a stopped one.
func TestTaskEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a := testWorld(t)
		w.mu.Lock()
		upids := map[string]string{
			"OK":          a.spawn("t", "1", func(*Actor) error { return nil }),
			"WARNINGS: 2": a.spawn("t", "2", func(a *Actor) error { a.Warnf("one"); a.Warnf("two"); return nil }),
			"403 Permission check failed (/vms/1, VM.Audit)": a.spawn("t", "3", func(*Actor) error { return permErr("/vms/1, VM.Audit") }),
			"received interrupt":                             a.spawn("t", "4", func(a *Actor) error { return a.Sleep(time.Hour) }),
		}
		w.taskIndex[upids["received interrupt"]].cancel()
		w.mu.Unlock()
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		for want, upid := range upids {
			task := w.taskIndex[upid]
			if task.Running() || task.Exit != want || !strings.HasSuffix(task.Log[len(task.Log)-1], want) {
				t.Errorf("%s: exit %q, log %q; want %q", upid, task.Exit, task.Log, want)
			}
			if node, ok := parseUPID(upid); !ok || node != "pve01" {
				t.Errorf("%s does not parse", upid)
			}
		}
	})
}
