package reconcile

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/proxops/proxops/internal/pvesim"
)

// soakSize is how large a soak is and how long it runs. By itself it is small,
// and looks for what goes wrong with many loops at all; PROXOPS_SOAK, such as
// 10m, makes it an agency's fifty clusters for that long.
type soakSize struct {
	clusters, guests int
	long, poll       time.Duration
	looks            int // at what the process takes
}

func soakOf(t *testing.T) soakSize {
	text := os.Getenv("PROXOPS_SOAK")
	if text == "" {
		if testing.Short() {
			t.Skip("short")
		}
		return soakSize{clusters: 12, guests: 10, long: 4 * time.Second, poll: time.Second, looks: 5}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("PROXOPS_SOAK: %v", err)
	}
	return soakSize{clusters: 50, guests: 40, long: d, poll: 4 * time.Second, looks: 20}
}

// sample is what the process took at a moment.
type sample struct {
	heap       uint64
	goroutines int
}

// measure takes the least of several looks: what a cycle under way holds is no
// growth.
func measure(looks int) (least sample) {
	for i := range looks {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now := sample{m.HeapAlloc, runtime.NumGoroutine()}
		if i == 0 {
			least = now
		}
		least = sample{min(least.heap, now.heap), min(least.goroutines, now.goroutines)}
		time.Sleep(200 * time.Millisecond)
	}
	return least
}

// Many clusters of many guests, edited by hand and out of order all the time,
// one of them never reachable: every other converges, none waits for another,
// and nothing grows.
func TestSoak(t *testing.T) {
	size := soakOf(t)
	before := goleak.IgnoreCurrent()
	defer goleak.VerifyNone(t, before)
	e := newEstate(t, pvesim.Options{KeepRequests: 10})
	defer e.stop()
	e.write("proxops.yaml", fmt.Sprintf("reconcile: {poll-interval: %s}\n", size.poll))
	var names []string
	for i := range size.clusters {
		name := fmt.Sprintf("c%02d", i)
		names = append(names, name)
		e.cluster(name)
		var docs []string
		for g := range size.guests {
			docs = append(docs, strings.Replace(vmText(fmt.Sprintf("vm-%d", g), 100+g, "512MiB"), "state: started", "state: stopped\n  pve-description: as declared", 1))
		}
		e.vms(name, docs...)
	}
	const broken = "c07"
	e.breakCluster(broken, errNoRoute)
	var lock sync.Mutex
	var late []time.Duration
	o := e.options()
	observe := o.Observe
	o.Observe = func(s Standing) {
		e.mu.Lock()
		was := e.standing[s.Cluster]
		e.mu.Unlock()
		if s.Running && !was.Running && !was.Next.IsZero() {
			lock.Lock()
			late = append(late, max(0, s.Started.Sub(was.Next)))
			lock.Unlock()
		}
		observe(s)
	}
	var first, last sample
	var edits int
	e.run(o, func(*Daemon) {
		e.await(t, 2*time.Minute, names, broken) // the guests are made
		lock.Lock()
		late = nil
		lock.Unlock()
		first = measure(size.looks)
		edits = e.meddle(names, broken, size)
		for _, name := range names {
			e.world(name).SetFaults()
		}
		settled := time.Now()
		e.await(t, 2*time.Minute, names, broken)
		t.Logf("converged %s after the last edit", time.Since(settled).Round(100*time.Millisecond))
		last = measure(size.looks)
	})
	slices.Sort(late)
	p := func(q float64) time.Duration {
		return late[int(q*float64(len(late)-1))].Round(time.Millisecond)
	}
	t.Logf("%d clusters of %d guests, %s, %d edits, %d cycles; start later than due: p50 %s, p95 %s, max %s; heap %d → %d MiB; goroutines %d → %d",
		size.clusters, size.guests, size.long, edits, len(late), p(.5), p(.95), p(1), first.heap>>20, last.heap>>20, first.goroutines, last.goroutines)
	if p(.95) > 3*time.Second {
		t.Errorf("p95 of the cycles started %s later than due", p(.95))
	}
	slack := uint64(32 << 20) // of cycles under way, which a short run on a busy machine cannot wait out
	if size.long >= time.Minute {
		slack = 8 << 20
	}
	if last.heap > first.heap*5/4+slack {
		t.Errorf("the heap grew from %d to %d MiB", first.heap>>20, last.heap>>20)
	}
	if last.goroutines > first.goroutines+100 {
		t.Errorf("goroutines grew from %d to %d", first.goroutines, last.goroutines)
	}
	if e.standing[broken].Report.Abort == nil {
		t.Error("the broken cluster did not break off: the test shows nothing")
	}
}

// await waits until every cluster but one is converged, as of a cycle that
// began after the call.
func (e *estate) await(t *testing.T, within time.Duration, names []string, but string) {
	t.Helper()
	from := time.Now()
	for {
		var open []string
		e.mu.Lock()
		for _, name := range names {
			rep := e.standing[name].Report
			if name != but && (rep == nil || rep.Started.Before(from) || !rep.Converged()) {
				open = append(open, name)
			}
		}
		e.mu.Unlock()
		if len(open) == 0 {
			return
		}
		if time.Since(from) > within {
			rep := e.last(open[0])
			t.Fatalf("%d clusters have not converged: %v; the first: %v", len(open), open, rep.Abort)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// meddle edits guests by hand, and makes the clusters misbehave, for a while.
func (e *estate) meddle(names []string, but string, size soakSize) (edits int) {
	rng := rand.New(rand.NewPCG(1, 2))
	for end := time.Now().Add(size.long); time.Now().Before(end); {
		name := names[rng.IntN(len(names))]
		if name == but {
			continue
		}
		w := e.world(name)
		if rng.IntN(20) == 0 {
			kinds := []pvesim.Fault{
				{Kind: pvesim.FaultError, Status: 596, P: .05}, {Kind: pvesim.FaultReset, P: .05}, {Kind: pvesim.FaultLost, P: .05},
				{Kind: pvesim.FaultSlow, P: .02, Delay: 300 * time.Millisecond}, {Kind: pvesim.FaultLockTimeout, P: .05},
			}
			w.SetFaults(kinds[rng.IntN(len(kinds))])
		}
		w.View(func(s *pvesim.State) {
			g := s.Guests[100+rng.IntN(size.guests)]
			if g == nil {
				return
			}
			edits++
			switch rng.IntN(4) {
			case 0:
				g.Config["memory"] = fmt.Sprint(1024 + rng.IntN(1024))
			case 1:
				g.Config["cores"] = fmt.Sprint(2 + rng.IntN(3))
			default:
				g.Config["description"] = fmt.Sprintf("by hand %d", edits)
			}
		})
		time.Sleep(20 * time.Millisecond)
	}
	return edits
}
