package coord

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/reconcile"
)

// store is an etcd that makes every key at revision 20 and notes its
// transactions.
type store struct {
	clientv3.KV

	mu   sync.Mutex
	down bool
	txns []txn
}

type txn struct {
	s    *store
	cmps []clientv3.Cmp
	ops  []clientv3.Op
}

func (s *store) Txn(context.Context) clientv3.Txn { return &txn{s: s} }

func (t *txn) If(cs ...clientv3.Cmp) clientv3.Txn   { t.cmps = cs; return t }
func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn { t.ops = ops; return t }
func (t *txn) Else(...clientv3.Op) clientv3.Txn     { return t }

func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.s.down {
		return nil, errors.New("no leader")
	}
	t.s.txns = append(t.s.txns, *t)
	return &clientv3.TxnResponse{Header: &pb.ResponseHeader{Revision: 20}, Succeeded: true}, nil
}

// deletes counts the deletes that came through, and those among them that
// would take a key away which another revision made.
func (s *store) deletes() (all, careless int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.txns {
		if t.ops[0].IsDelete() {
			all++
			if len(t.cmps) != 1 || t.cmps[0].GetCompare().Target != pb.Compare_CREATE || t.cmps[0].GetCompare().Result != pb.Compare_EQUAL {
				careless++
			}
		}
	}
	return all, careless
}

// agent is a coordinator with a lease, without an etcd to talk to but the store.
func agent(t *testing.T) (*Coordinator, *lease, *store) {
	s := &store{}
	c := &Coordinator{cfg: Config{Prefix: "/p", Lease: 10 * time.Second}, log: slog.New(slog.NewTextHandler(io.Discard, nil)), client: clientv3.NewCtxClient(t.Context()),
		wake: make(chan struct{}), owned: map[string]*owned{}, litter: map[string]int64{}, orphaned: map[string]time.Time{}}
	c.client.KV = s
	l := testLease(time.Hour)
	l.c, l.lid = c, 7
	l.renewed(time.Now(), l.ttl)
	t.Cleanup(func() { l.timer.Stop(); l.cut(nil) })
	c.declared = []string{"prod"}
	c.setLease(l)
	return c, l, s
}

// see shows the agents that are alive and who stands for prod, oldest first.
func (c *Coordinator) see(agents []string, standing ...candidate) {
	v := view{agents: map[string]agentEntry{}, candidates: map[string][]candidate{}}
	for _, a := range agents {
		v.agents[a] = agentEntry{}
	}
	if len(standing) > 0 {
		v.candidates["prod"] = standing
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = v
	c.changed()
}

// The oldest candidacy owns a cluster. Whoever stands behind it waits, however
// much the spread is for him.
func TestSecondInLineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, _ := agent(t)
		other, self := candidate{"other", 10}, candidate{l.id(), 20}
		c.see([]string{l.id()}, other, self)
		got := make(chan reconcile.Ownership, 1)
		go func() {
			own, err := c.Own(t.Context(), "prod", nil)
			if err != nil {
				t.Error(err)
			}
			got <- own
		}()
		time.Sleep(time.Minute)
		select {
		case <-got:
			t.Fatal("two agents own the cluster")
		default:
		}
		c.see([]string{l.id()}, candidate{l.id(), 19}) // an entry of ours that another life of the key made
		time.Sleep(time.Minute)
		select {
		case <-got:
			t.Fatal("a candidacy that is not the one put up counts")
		default:
		}
		c.see([]string{l.id()}, self)
		(<-got).Release()
	})
}

// Without a lease that surely holds nothing is owned, though etcd shows it.
func TestNothingIsOwnedUnderAnOldLease(t *testing.T) {
	for name, spoil := range map[string]func(*Coordinator, *lease){
		"expired":  func(_ *Coordinator, l *lease) { l.renewed(time.Now().Add(-2*l.ttl), l.ttl) },
		"replaced": func(c *Coordinator, _ *lease) { c.lease = nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, l, _ := agent(t)
			c.see([]string{l.id()}, candidate{l.id(), 20})
			spoil(c, l)
			giveUp := make(chan struct{})
			time.AfterFunc(time.Minute, func() { close(giveUp) })
			if own, ok, err := c.stand(t.Context(), l, "prod", giveUp); ok || err != nil {
				t.Errorf("%s: owned, %v", name, err)
				own.Release()
			}
		})
	}
}

// A cluster is given up only to an agent that stands ready for it.
func TestYieldsToWhoStandsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, _ := agent(t)
		self := candidate{l.id(), 20}
		c.see([]string{l.id()}, self)
		own, ok, err := c.stand(t.Context(), l, "prod", nil)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		defer own.Release()
		yields := func() bool {
			select {
			case <-own.Yield:
				return true
			default:
				return false
			}
		}
		c.see([]string{"other"}, self) // the spread is for the other one
		if yields() {
			t.Error("given up to nobody")
		}
		c.see([]string{"other"}, self, candidate{"other", 30})
		if !yields() {
			t.Error("kept from the agent that it is for")
		}
	})
}

// renewals answers keep-alives after a while.
type renewals struct {
	clientv3.Lease

	takes time.Duration
	err   error
}

func (r renewals) KeepAliveOnce(context.Context, clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	time.Sleep(r.takes)
	if r.err != nil {
		return nil, r.err
	}
	return &clientv3.LeaseKeepAliveResponse{TTL: 10}, nil
}

// A renewal counts from when it was sent, and a lease that etcd does not know
// any more is over at once, whatever its deadline says.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := agent(t)
		l := testLease(10 * time.Second)
		defer func() { l.timer.Stop(); l.cut(nil) }()
		l.c = c
		sent := time.Now()
		l.renewed(sent, l.ttl)
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, stop)
		c.client.Lease = renewals{takes: 2 * time.Second}
		l.keep(ctx)
		if got := l.deadline.Load().Sub(sent); got != 8*time.Second {
			t.Errorf("the fence is %s after the renewal was sent", got)
		}
		c.client.Lease = renewals{err: rpctypes.ErrLeaseNotFound}
		l.keep(t.Context())
		if !l.expired() || !errors.Is(context.Cause(l.fence), apply.ErrFenced) {
			t.Error("a lost lease still counts")
		}
	})
}

// A key is deleted only as the one that this agent made, and again while etcd
// does not answer: a candidacy that nobody acts on keeps the cluster from all.
func TestCandidaciesAreTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l, s := agent(t)
		s.down = true
		c.drop(l, "/p/clusters/prod/7", 20)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { c.maintain(ctx); close(ended) }()
		time.Sleep(time.Minute)
		s.mu.Lock()
		s.down = false
		s.mu.Unlock()
		time.Sleep(time.Minute)
		stop()
		<-ended
		if all, careless := s.deletes(); all != 1 || careless > 0 {
			t.Errorf("%d deletes, %d without the revision", all, careless)
		}
	})
}

// A cluster that the spread gives to somebody else is taken up only after
// nobody stood for it for a whole lease.
func TestOrphansAreTakenUpLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := agent(t)
		c.see([]string{"other"})
		mine := func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.mine("prod")
		}
		time.Sleep(9 * time.Second)
		if mine() {
			t.Error("taken from an agent that may be about to stand")
		}
		time.Sleep(2 * time.Second)
		if !mine() {
			t.Error("left to an agent that does not stand")
		}
	})
}
