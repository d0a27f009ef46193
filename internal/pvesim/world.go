package pvesim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Options shape a world.
type Options struct {
	// Seed makes what the simulator draws (MACs, uuids, secrets, faults) reproducible.
	Seed uint64
	// TimeScale stretches the work of tasks: 1 is about a real node's pace, 0 makes work instant.
	TimeScale float64
	// AuthDelay is how long a refused log-in or a dead neighbour takes to answer; PVE takes 3 s.
	AuthDelay time.Duration
	// Latency is added to every call.
	Latency time.Duration
	// StatLag is how old the figures of /cluster/resources may be; pvestatd makes that 10 s. 0 is none.
	StatLag time.Duration
	// KeepRequests bounds the request log; 0 is 10000.
	KeepRequests int
	// Faults are the things that may go wrong.
	Faults []Fault
}

// State is all that survives a restart; it is what State files hold.
type State struct {
	// ClusterName is "" on a lone node.
	ClusterName string
	Nodes       []*Node
	Storages    []*Storage
	// Volumes are by volumeKey: a local storage holds other volumes on every node.
	Volumes map[string]*Volume
	// Ledger is what happened to volumes, as far back as LedgerEntries says.
	Ledger []LedgerEntry
	Guests map[int]*Guest
	Access Access
	Pools  map[string]*Pool
	// Datacenter is datacenter.cfg: key → value as the file has it.
	Datacenter map[string]string
	// HA is the HA manager's resources: sid ("vm:100") → resource.
	HA map[string]*HAResource
	// Mappings are the cluster's resource mappings by kind and name: "pci/gpu1".
	Mappings map[string]*Mapping
	// Firewalls are the firewall files of guests, by vmid.
	Firewalls map[int]*Firewall
	// BackupJobs and Replication are the cluster's jobs, by id.
	BackupJobs  map[string]*BackupJob
	Replication map[string]*ReplicationJob

	Tasks  []*Task
	PID    int
	Booted time.Time
	// Starts counts the worlds made of this state, so that one that goes on draws no MAC or uuid a second time.
	Starts uint64
}

// HAResource is a guest under HA.
type HAResource struct {
	SID   string
	State string // started, stopped, ignored, disabled
	Group string
	// MaxRestart and MaxRelocate are as set, 0 for PVE's default of one.
	MaxRestart, MaxRelocate int
	Comment                 string
	NoFailback              bool
}

// Pool is a resource pool. Members are kept even when they exist no more, as PVE keeps them.
type Pool struct {
	ID       string
	Comment  string
	VMs      map[int]bool
	Storages map[string]bool
}

// World is a simulated cluster. All of its exported methods are safe for concurrent use; the state itself is guarded by mu as the
// Actor type explains.
type World struct {
	mu sync.Mutex
	State
	opts   Options
	rng    *rand.Rand
	faults faults
	locks  locks
	// shelves are the volumes by storage; nil means that they are to be built.
	shelves map[string]map[string]*Volume
	// lag is what /cluster/resources still shows of guests that were changed.
	lag       map[int]lagged
	taskIndex map[string]*Task
	// handlers are by method and path template: "GET /nodes/{node}/qemu".
	handlers map[string]handler
	log      requestLog
	ctx      context.Context
	stop     context.CancelFunc
	workers  sync.WaitGroup
	// fingerprint is of the serving certificate, as GET /nodes shows it.
	fingerprint string
}

// New returns a world with the given state, which it takes over. Stop ends its workers.
func New(o Options, s State) *World {
	if o.KeepRequests == 0 {
		o.KeepRequests = 10000
	}
	w := &World{State: s, opts: o, rng: rand.New(rand.NewPCG(o.Seed, 0x9e3779b97f4a7c15+s.Starts)), locks: locks{}, taskIndex: map[string]*Task{}}
	w.Starts++
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.log.keep = o.KeepRequests
	w.faults.seed = o.Seed
	w.faults.set(o.Faults)
	w.complete()
	w.handlers = map[string]handler{}
	for _, r := range routes() {
		w.handlers[r.method+" "+r.path] = r.handle
	}
	return w
}

// complete gives a state, fresh or loaded, all that its code relies on.
func (w *World) complete() {
	if w.Volumes == nil {
		w.Volumes = map[string]*Volume{}
	}
	if w.Guests == nil {
		w.Guests = map[int]*Guest{}
	}
	if w.Pools == nil {
		w.Pools = map[string]*Pool{}
	}
	if w.Datacenter == nil {
		w.Datacenter = map[string]string{}
	}
	if w.HA == nil {
		w.HA = map[string]*HAResource{}
	}
	if w.Booted.IsZero() {
		w.Booted = time.Now().Add(-time.Hour)
	}
	if w.PID == 0 {
		w.PID = 1000
	}
	w.Access.complete(w)
	for _, g := range w.Guests {
		g.complete()
	}
	for _, t := range w.Tasks {
		t.done = make(chan struct{})
		if t.Running() { // a restart kills workers
			t.Exit, t.End = "unexpected status", time.Now()
		}
		close(t.done)
		w.taskIndex[t.UPID] = t
	}
}

// Stop ends all workers and waits for them.
func (w *World) Stop() {
	w.stop()
	w.workers.Wait()
}

// View runs f alone with the world's state, for tests and for tools that look at it or shape it from outside.
func (w *World) View(f func(s *State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.State)
	w.shelves = nil
}

// Save writes the state to dir/state.json, replacing it in one step: a process that is killed leaves the old file or the new one. What
// it leaves half-written beside them is removed by the next LoadState.
func (w *World) Save(dir string) error {
	w.mu.Lock()
	b, err := json.MarshalIndent(&w.State, "", " ")
	w.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: encode the state: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "state-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already when all went well
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, "state.json"))
}

// LoadState reads what Save wrote; found is false when there is nothing yet.
func LoadState(dir string) (s State, found bool, err error) {
	name := filepath.Join(dir, "state.json")
	litter, err := filepath.Glob(filepath.Join(dir, "state-*"))
	if err != nil {
		return s, false, err
	}
	for _, l := range litter { // of a world that was killed while it saved
		if err := os.Remove(l); err != nil {
			return s, false, err
		}
	}
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, false, fmt.Errorf("%s: %w; remove the file to start afresh", name, err)
	}
	return s, true, nil
}

// LedgerEntries returns what happened to volumes so far, oldest first: all of it, or at least the last 20,000 entries.
func (w *World) LedgerEntries() []LedgerEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.Ledger)
}

// uuid draws a version 4 uuid.
func (w *World) uuid() string {
	b := w.draw(16)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// mac draws a MAC in the default prefix of datacenter.cfg.
func (w *World) mac() string {
	prefix := w.Datacenter["mac_prefix"]
	if prefix == "" {
		prefix = "BC:24:11"
	}
	b := w.draw(6)
	m := prefix
	for i := len(prefix)/3 + 1; i < 6; i++ {
		m += fmt.Sprintf(":%02X", b[i])
	}
	return m
}

func (w *World) draw(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	return b
}

// secret is a key of the world, for tickets: it follows from the seed, so that tickets survive a restart.
func (w *World) secret(purpose string) []byte {
	h := sha256.Sum256(fmt.Appendf(nil, "%d/%s", w.opts.Seed, purpose))
	return h[:]
}
