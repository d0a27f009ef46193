package coord

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/apply"
)

func testLease(ttl time.Duration) *lease {
	l := &lease{ttl: ttl}
	l.fence, l.cut = context.WithCancelCause(context.Background())
	l.timer = time.AfterFunc(ttl, func() {
		if l.expired() {
			l.cut(errFenced)
		}
	})
	return l
}

// The fence falls before etcd can give the lease's clusters to another: etcd
// counts from when it received a renewal, the agent from when it sent it.
func TestFenceFallsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLease(10 * time.Second)
		sent := time.Now()
		time.Sleep(3 * time.Second) // the answer took long
		l.renewed(sent, l.ttl)
		released := 0
		own := l.ownership(t.Context(), &owned{}, func() { released++ })
		time.Sleep(4900 * time.Millisecond)
		if err := own.Context.Err(); err != nil {
			t.Fatalf("7.9 s after the renewal: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if err := own.Context.Err(); !errors.Is(err, apply.ErrFenced) || !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(own.Context), apply.ErrFenced) {
			t.Errorf("8.1 s after the renewal: %v", err)
		}
		select {
		case <-own.Context.Done():
		default:
			t.Error("the context is not done")
		}
		own.Release()
		if released != 1 {
			t.Error("not released")
		}
	})
}

// A process whose timers did not run, since it was suspended, finds out when
// it asks.
func TestFenceNeedsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLease(10 * time.Second)
		l.renewed(time.Now(), l.ttl)
		l.timer.Stop()
		own := l.ownership(t.Context(), &owned{}, func() {})
		time.Sleep(9 * time.Second)
		if !errors.Is(own.Context.Err(), apply.ErrFenced) {
			t.Error("it still counts as the owner")
		}
		own.Release()
	})
}

func TestReleaseIsNoFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLease(10 * time.Second)
		l.renewed(time.Now(), l.ttl)
		own := l.ownership(t.Context(), &owned{}, func() {})
		own.Release()
		if err := own.Context.Err(); err == nil || errors.Is(err, apply.ErrFenced) {
			t.Errorf("%v", err)
		}
		l.timer.Stop()
		l.cut(nil)
	})
}
