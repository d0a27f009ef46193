package coord

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/reconcile"
)

// marginPart is the part of a lease by which an agent stops early: a request
// that it sent in the last moment is to have arrived before another agent
// begins.
const marginPart = 5

// lease is one lease of this agent, and the fence that hangs on it.
type lease struct {
	c        *Coordinator
	lid      clientv3.LeaseID
	ttl      time.Duration
	deadline atomic.Pointer[time.Time]
	fence    context.Context // ends at the deadline, or when the lease is lost
	cut      context.CancelCauseFunc
	timer    *time.Timer
}

func (l *lease) id() string { return fmt.Sprintf("%016x", uint64(l.lid)) }

// begin gets a lease and puts the agent's entry under it.
func (c *Coordinator) begin(ctx context.Context) (*lease, error) {
	call, cancel := context.WithTimeout(ctx, max(c.cfg.Lease, 5*time.Second))
	defer cancel()
	sent := time.Now()
	g, err := c.client.Grant(call, int64(c.cfg.Lease/time.Second))
	if err != nil {
		return nil, err
	}
	l := &lease{c: c, lid: g.ID, ttl: time.Duration(g.TTL) * time.Second}
	l.fence, l.cut = context.WithCancelCause(context.Background())
	l.deadline.Store(&sent) // nothing counts as held before the timer is set
	l.timer = time.AfterFunc(l.ttl, func() {
		if l.expired() {
			l.cut(errFenced)
		}
	})
	l.renewed(sent, l.ttl)
	if _, err := c.client.Put(call, c.entry(l.id()), c.self(), clientv3.WithLease(l.lid)); err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// errFenced is what Err of an ownership's context gives after the fence fell:
// to those who ask for a canceled context it is one.
var errFenced = fmt.Errorf("%w: the lease in etcd ran out: %w", context.Canceled, apply.ErrFenced)

// renewed moves the fence: etcd received what was sent at that time, or later.
func (l *lease) renewed(sent time.Time, ttl time.Duration) {
	d := sent.Add(ttl - l.ttl/marginPart)
	l.deadline.Store(&d)
	l.timer.Reset(max(0, time.Until(d)))
}

// expired reports whether the lease may have run out. Both clocks are asked:
// the monotonic one stands still while the machine is suspended, the wall
// clock may be set back.
func (l *lease) expired() bool {
	d, now := *l.deadline.Load(), time.Now()
	return !now.Before(d) || !now.Round(0).Before(d.Round(0)) || l.fence.Err() != nil
}

// keep renews the lease until it is lost or ctx ends.
func (l *lease) keep(ctx context.Context) {
	for ctx.Err() == nil && !l.expired() {
		wait := l.ttl / 3
		call, cancel := context.WithDeadline(ctx, *l.deadline.Load())
		sent := time.Now()
		r, err := l.c.client.KeepAliveOnce(call, l.lid)
		cancel()
		switch {
		case err == nil && r.TTL > 0:
			l.renewed(sent, time.Duration(r.TTL)*time.Second)
		case err == nil, errors.Is(err, rpctypes.ErrLeaseNotFound):
			l.cut(errFenced)
			return
		default:
			wait = l.ttl / 20
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-l.fence.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// end drops the fence, then tells etcd that the lease is not needed any more.
func (l *lease) end() {
	l.timer.Stop()
	l.cut(errFenced)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = l.c.client.Revoke(ctx, l.lid) // or it runs out
}

// put puts a key under the lease, or finds it there, and gives the revision
// that made it.
func (l *lease) put(ctx context.Context, key string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.ttl)
	defer cancel()
	r, err := l.c.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, l.id(), clientv3.WithLease(l.lid))).Else(clientv3.OpGet(key)).Commit()
	switch {
	case err != nil:
		return 0, err
	case r.Succeeded:
		return r.Header.Revision, nil
	}
	return r.Responses[0].GetResponseRange().Kvs[0].CreateRevision, nil
}

// delete takes a key away if it still is the one that rev made.
func (l *lease) delete(key string, rev int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.ttl/2)
	defer cancel()
	_, err := l.c.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", rev)).Then(clientv3.OpDelete(key)).Commit()
	return err
}

// ownership is the right over one cluster under this lease.
func (l *lease) ownership(ctx context.Context, o *owned, release func()) reconcile.Ownership {
	inner, cut := context.WithCancelCause(ctx)
	undo := context.AfterFunc(l.fence, func() { cut(errFenced) })
	return reconcile.Ownership{Context: fenced{inner, l}, Yield: o.yield, Release: func() {
		undo()
		cut(nil)
		release()
	}}
}

// fenced is a context that looks at the clock whenever it is asked.
type fenced struct {
	context.Context
	l *lease
}

func (f fenced) Err() error {
	if f.l.expired() {
		return errFenced
	}
	return f.Context.Err()
}
