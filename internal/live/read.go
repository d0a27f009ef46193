package live

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/pve"
)

// Want says what a snapshot is for: what to read beyond the shared listings.
type Want struct {
	Cluster string
	Nodes   []string           // the allow-list; other nodes are never read
	Guests  map[int]Declared   // the declared guests
	Stores  map[Store][]string // where artifacts belong, with their content types
	Tag     string             // guests with this tag are read too
	All     bool               // read every guest on the allowed nodes (adopt)
	// RawLines reads the raw lxc lines of containers too, which GET …/pending
	// leaves out. It costs a second request for each container that has pending
	// changes, snapshots or a config file edited by hand.
	RawLines bool
	// Parallel bounds the requests under way [8].
	Parallel int
	Identity string // who asks, for messages
	// RootTicket is true for root@pam with a password: the only one who may
	// write root-only keys (facts A vi).
	RootTicket bool
}

// Declared is what is declared of one guest that bears on reading it.
type Declared struct {
	Running bool
	Pool    string // "" = not declared
	MoveTo  string // the node to move it to when it lives elsewhere; "" = it is not moved
}

// Read takes one snapshot. It makes one listing of the cluster, one read of
// each declared or tagged guest, one listing of each artifact storage, and a
// handful of small requests. An error means that nothing can be said of the
// cluster; what concerns one node, guest or storage is in the Snapshot.
func Read(ctx context.Context, r *pve.Reader, want Want) (*Snapshot, error) {
	if want.Parallel <= 0 {
		want.Parallel = 8
	}
	x := &reading{ctx: ctx, r: r, want: want, snap: &Snapshot{
		Cluster: want.Cluster, Nodes: map[string]Node{}, Guests: map[int]*Guest{}, Contents: map[Store]Content{},
		Free: map[int]bool{}, Storages: map[Store]Storage{}, Identity: want.Identity, RootTicket: want.RootTicket, Complete: true,
	}}
	before := r.Stats().Reads
	if err := x.shared(); err != nil {
		return nil, err
	}
	x.perGuest()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	x.pools()
	x.linkedClones()
	slices.Sort(x.snap.Problems)
	x.snap.Problems = slices.Compact(x.snap.Problems)
	x.snap.Calls = r.Stats().Reads - before
	return x.snap, ctx.Err()
}

// reading is one Read under way.
type reading struct {
	ctx  context.Context
	r    *pve.Reader
	want Want
	mu   sync.Mutex // guards snap while requests run in parallel
	snap *Snapshot
	// Of the tasks that run: those by vmid, and by node the one of a backup job
	// over several guests.
	tasks   map[int]pve.Task
	backups map[string]pve.Task
	blind   map[string]bool // nodes whose running tasks are not all visible
}

// problem notes something that could not be read; the snapshot is then
// incomplete.
func (x *reading) problem(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snap.Complete = false
	x.snap.Problems = append(x.snap.Problems, fmt.Sprintf(format, args...))
}

// parallel runs jobs, at most want.Parallel at a time. Jobs report through
// problem; nothing fails the others. A panic of one is a panic of the caller,
// which can be recovered from; in a goroutine of its own it would end the
// process, and with it the work on other clusters.
func (x *reading) parallel(jobs []func()) {
	var g errgroup.Group
	g.SetLimit(x.want.Parallel)
	for _, job := range jobs {
		g.Go(func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("%v\n%s", r, debug.Stack())
				}
			}()
			if x.ctx.Err() == nil {
				job()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		panic(err)
	}
}

// shared reads what concerns the whole cluster.
func (x *reading) shared() error {
	v, err := x.r.Version(x.ctx)
	if err != nil {
		return err
	}
	x.snap.Version = v.Version
	var rows []pve.Resource
	var listing error
	x.parallel([]func(){
		func() { rows, listing = x.r.Resources(x.ctx) },
		x.options,
		x.permissions,
	})
	if err := x.ctx.Err(); err != nil {
		return err
	}
	if listing != nil {
		return listing
	}
	x.rows(rows)
	x.runningTasks()
	return nil
}

func (x *reading) options() {
	o, err := x.r.Options(x.ctx)
	if err != nil {
		x.problem("datacenter options: %v", err)
		return
	}
	x.snap.Options = Options{MACPrefix: o.MACPrefix, TagsCaseSensitive: o.TagCaseSensitive, TagsConfigOrder: o.TagOrdering == "config",
		UserTagAccess: o.UserTagAccess, RegisteredTags: o.RegisteredTags, AllowedTags: o.AllowedTags}
}

func (x *reading) permissions() {
	p, err := x.r.Permissions(x.ctx)
	if err != nil {
		x.problem("the token's permissions: %v", err)
		return
	}
	x.snap.Perms = p
}

// rows takes the cluster listing in. It says which guest is where and, within
// ten seconds, whether it runs; its names, tags and templates may be older
// than the configs, so they serve only until the config is read (facts I).
func (x *reading) rows(rows []pve.Resource) {
	s := x.snap
	for _, row := range rows {
		switch {
		case row.Type == "node":
			s.Nodes[row.Node] = Node{Name: row.Node, Online: row.Status != "offline", Allowed: slices.Contains(x.want.Nodes, row.Node), CPUs: row.MaxCPU}
		case row.Type == "storage":
			s.Storages[Store{row.Node, row.Storage}] = Storage{Type: row.PluginType, Content: set(row.Content),
				Active: row.Status == "available", Shared: row.Shared}
		case row.IsGuest() && row.VMID <= 0:
			x.problem("PVE listed a guest without a usable vmid (%q, %q on node %q): it is left out", row.ID, row.Name, row.Node)
		case row.IsGuest():
			s.Guests[row.VMID] = &Guest{
				Guest: field.Guest{Exists: true, LXC: row.Type == "lxc", Running: row.Status == "running", Config: map[string]field.Entry{}},
				VMID:  row.VMID, Node: row.Node, Type: row.Type, Name: row.Name, Template: row.Template, Status: row.Status,
				Tags: row.Tags, Pool: row.Pool, Lock: row.Lock, HA: row.HAState, Snapshots: -1,
			}
		}
	}
	for _, name := range x.want.Nodes {
		n, ok := s.Nodes[name]
		switch {
		case !ok:
			x.problem("node %s: on the allow-list, but the cluster has no node of that name", name)
		case !n.Online:
			x.offline(name, "the cluster says that it is offline")
		}
	}
}

// offline marks a node whose objects are unknown.
func (x *reading) offline(name, why string) {
	x.mu.Lock()
	n := x.snap.Nodes[name]
	n.Online, n.Error = false, why
	x.snap.Nodes[name] = n
	x.mu.Unlock()
	x.problem("node %s: %s", name, why)
}

// reachable lists the allowed nodes that answer, sorted.
func (x *reading) reachable() []string {
	var out []string
	for name, n := range x.snap.Nodes {
		if n.Allowed && n.Online {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// consoles are tasks that last as long as somebody looks at a screen; they do
// not stand in the way of a config write.
var consoles = []string{"vncproxy", "vncshell", "spiceproxy", "spiceshell", "termproxy"}

// runningTasks lists the running tasks of each node. It is also the first
// request that every node must answer itself: one that cannot be reached here
// is offline, and none of its guests costs another three seconds (facts K).
func (x *reading) runningTasks() {
	x.tasks, x.backups, x.blind = map[int]pve.Task{}, map[string]pve.Task{}, map[string]bool{}
	var jobs []func()
	for _, node := range x.reachable() {
		if !x.snap.Holds("/nodes/"+node, "Sys.Audit") {
			x.blind[node] = true
		}
		jobs = append(jobs, func() {
			list, err := x.r.Tasks(x.ctx, node, pve.TaskFilter{Running: true})
			switch {
			case pve.Is(err, pve.KindUnreachable, pve.KindUnavailable):
				x.offline(node, err.Error())
			case err != nil:
				x.problem("node %s: its running tasks: %v", node, err)
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			for _, t := range list {
				if id, err := strconv.Atoi(t.ID); err == nil && !slices.Contains(consoles, t.Type) {
					x.tasks[id] = t
				} else if t.ID == "" && t.Type == "vzdump" {
					x.backups[node] = t
				}
			}
		})
	}
	x.parallel(jobs)
}

// perGuest reads configs, storage contents and free ids, all in one bounded
// wave.
func (x *reading) perGuest() {
	var jobs []func()
	for _, id := range slices.Sorted(maps.Keys(x.snap.Guests)) {
		g := x.snap.Guests[id]
		wanted, declared := x.want.Guests[id]
		if !declared && !x.want.All && !(x.want.Tag != "" && g.Tagged(x.want.Tag)) {
			continue
		}
		switch n := x.snap.Nodes[g.Node]; {
		case !n.Allowed:
			g.Unknown = fmt.Sprintf("it lives on node %s, which is not on the allow-list", g.Node)
		case !n.Online:
			g.Unknown = fmt.Sprintf("node %s does not answer", g.Node)
			g.Status = "unknown"
		default:
			jobs = append(jobs, func() { x.guest(g, declared, wanted.Running) })
		}
	}
	for store, contents := range x.want.Stores {
		jobs = append(jobs, func() { x.content(store, contents) })
	}
	for id := range x.want.Guests {
		if x.snap.Guests[id] == nil {
			jobs = append(jobs, func() { x.free(id) })
		}
	}
	x.parallel(jobs)
}

func (x *reading) free(id int) {
	ok, err := x.r.VMIDFree(x.ctx, id)
	if err != nil {
		x.problem("vmid %d: whether it is free: %v", id, err)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snap.Free[id] = ok
}

func (x *reading) content(store Store, contents []string) {
	c := Content{Files: map[string]int64{}}
	n, known := x.snap.Nodes[store.Node]
	switch {
	case !known:
		c.Err = fmt.Sprintf("the cluster has no node %s", store.Node)
	case !n.Online:
		c.Err = fmt.Sprintf("node %s does not answer", store.Node)
	default:
		kind := ""
		if len(contents) == 1 {
			kind = contents[0]
		}
		list, err := x.r.StorageContent(x.ctx, store.Node, store.Storage, kind)
		if err != nil {
			c.Err = err.Error()
			x.problem("storage %s on %s: %v", store.Storage, store.Node, err)
		}
		for _, v := range list {
			c.Files[v.VolID] = v.Size
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snap.Contents[store] = c
}

func set(list []string) map[string]bool {
	out := map[string]bool{}
	for _, s := range list {
		out[s] = true
	}
	return out
}
