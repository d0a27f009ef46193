package pve

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// GuestType is PVE's word for the two kinds of guest, as it stands in paths.
type GuestType string

// The guest types.
const (
	QEMU GuestType = "qemu"
	LXC  GuestType = "lxc"
)

// Version is the answer of GET /version.
type Version struct {
	Version string // such as "9.2.11"
	Release string // such as "9.2"
	RepoID  string
}

// ClusterStatus is the answer of GET /cluster/status.
type ClusterStatus struct {
	Name    string // "" on a lone node, which has no cluster entry (facts I)
	Quorate bool   // true on a lone node
	Nodes   []NodeStatus
}

// NodeStatus is one node of a ClusterStatus.
type NodeStatus struct {
	Name   string
	IP     string
	Online bool
	Local  bool // the node that answered
}

// NodeInfo is one row of GET /nodes.
type NodeInfo struct {
	Node        string
	Status      string // online, offline, unknown
	Fingerprint string // SHA-256 of the node's certificate
	MaxCPU      int
	MaxMem      int64 // bytes
	Uptime      int64 // seconds
}

// Resource is one row of GET /cluster/resources. Its figures and names lag up
// to 10 s behind the configs, and a guest on an offline node has no name,
// template, tags or sizes at all (facts I, K): trust it for which guest exists
// where, and for the power state, not for more.
type Resource struct {
	ID         string // such as qemu/100, storage/pve01/local, node/pve01
	Type       string // qemu, lxc, storage, node, sdn, pool, ...
	Node       string
	VMID       int // guests
	Name       string
	Status     string // guests: running, stopped, unknown; storages: available; nodes: online
	Template   bool
	Tags       []string // in PVE's order
	Pool       string
	HAState    string
	Lock       string // such as backup; "" when there is none
	Storage    string // storages
	PluginType string // storages: dir, lvmthin, ...
	Content    []string
	Shared     bool
	Uptime     int64 // seconds
	MaxCPU     int   // CPUs of a node or guest; 0 = not told
	MaxMem     int64 // bytes
	MaxDisk    int64 // bytes
	Raw        map[string]json.RawMessage
}

// IsGuest reports whether the row is a VM or a container.
func (r Resource) IsGuest() bool { return r.Type == string(QEMU) || r.Type == string(LXC) }

// Options is the answer of GET /cluster/options. For a caller without
// Sys.Audit on / PVE shows less of it.
type Options struct {
	MACPrefix        string   // mac_prefix: what PVE draws addresses with; "" is BC:24:11
	TagOrdering      string   // tag-style ordering: config, or "" for alphabetical
	TagCaseSensitive bool     // tag-style case-sensitive
	UserTagAccess    string   // user-tag-access user-allow: free, list, existing, none; "" is free
	UserAllowList    []string // user-tag-access user-allow-list
	RegisteredTags   []string
	AllowedTags      []string // what this caller may set without Sys.Modify
	Raw              map[string]json.RawMessage
}

// PendingEntry is one key of a guest's config.
type PendingEntry struct {
	Key     string
	Value   *string         // what runs; nil when the key is not in the running config
	Pending *string         // what a restart would bring; nil when nothing is pending
	Delete  int             // 1 pending deletion, 2 a forced one, 0 none
	Raw     json.RawMessage // set, with Value nil, when the value is an array or object (a container's raw lxc lines)
}

// Want is the value that counts for comparison: the pending one if there is
// one, nothing if a deletion is pending, else the running one.
func (e PendingEntry) Want() (string, bool) {
	switch {
	case e.Pending != nil:
		return *e.Pending, true
	case e.Delete != 0 || e.Value == nil:
		return "", false
	}
	return *e.Value, true
}

// IsPending reports whether a change waits for a restart.
func (e PendingEntry) IsPending() bool { return e.Pending != nil || e.Delete != 0 }

// GuestConfig is the answer of GET .../pending: every key of the config with
// its running value, what is pending for it, and the config's digest (facts L).
type GuestConfig struct {
	Digest  string // send it with the next config write
	Entries []PendingEntry
}

// Get gives the entry of key.
func (c GuestConfig) Get(key string) (PendingEntry, bool) {
	i, ok := slices.BinarySearchFunc(c.Entries, key, func(e PendingEntry, k string) int { return strings.Compare(e.Key, k) })
	if !ok {
		return PendingEntry{}, false
	}
	return c.Entries[i], true
}

// Volume is one row of a storage's content.
type Volume struct {
	VolID   string
	Content string // iso, vztmpl, import, images, rootdir, backup, snippets
	Format  string
	Size    int64 // bytes
	VMID    int   // owner, 0 when there is none
	CTime   time.Time
	Parent  string // the base volume of a linked clone, where the storage says so
	Raw     map[string]json.RawMessage
}

// Storage is one row of GET /nodes/{node}/storage.
type Storage struct {
	Storage string
	Type    string // dir, lvmthin, zfspool, ...
	Content []string
	Active  bool
	Enabled bool
	Shared  bool
	Total   int64 // bytes
	Used    int64 // bytes
	Avail   int64 // bytes
}

// Interface is one row of GET /nodes/{node}/network.
type Interface struct {
	Iface     string
	Type      string // bridge, OVSBridge, eth, bond, vlan, ...
	Active    bool
	VLANAware bool
	Comments  string
}

// PCIMapping is one row of GET /cluster/mapping/pci.
type PCIMapping struct {
	ID    string
	Nodes []string // nodes that have a device for it
	Map   []string // PVE's own property strings
}

// Pool is a resource pool with its members.
type Pool struct {
	PoolID  string
	Comment string
	Guests  []int    // vmids, ascending; only the pool's own
	Storage []string // storage ids
}

// Permissions maps an ACL path to the privileges that the caller has there;
// the value says whether the privilege holds below the path as well.
type Permissions map[string]map[string]bool

// Has reports whether one of the privileges is held at path. A path that PVE
// does not name takes what its closest named ancestor propagates.
func (p Permissions) Has(path string, privs ...string) bool {
	for at := path; ; {
		if held, ok := p[at]; ok {
			return slices.ContainsFunc(privs, func(s string) bool {
				propagates, has := held[s]
				return has && (propagates || at == path)
			})
		}
		i := strings.LastIndexByte(at, '/')
		switch {
		case i < 0 || at == "/":
			return false
		case i == 0:
			at = "/"
		default:
			at = at[:i]
		}
	}
}

// HAResource is one row of GET /cluster/ha/resources.
type HAResource struct {
	SID   string // vm:100 or ct:100
	State string // requested state: started, stopped, ignored, disabled
	Group string
}

// VMID is the number in the SID, or 0.
func (h HAResource) VMID() int {
	_, n, _ := strings.Cut(h.SID, ":")
	id, _ := strconv.Atoi(n)
	return id
}

// GuestStatus is the answer of GET .../status/current.
type GuestStatus struct {
	Status    string // running, stopped
	QMPStatus string // VMs: running, paused, prelaunch, ...
	Name      string
	Tags      []string
	Template  bool
	Lock      string
	HAManaged bool
	Uptime    int64 // seconds
	PID       int
	Raw       map[string]json.RawMessage
}

// Snapshot is one row of a guest's snapshots, without the entry "current".
type Snapshot struct {
	Name        string
	Parent      string
	Description string
	Time        time.Time
	VMState     bool
}

// UPID is a task's id: UPID:node:pid:pstart:starttime:type:id:user:
type UPID string

func (u UPID) field(i int) string {
	p := strings.Split(string(u), ":")
	if len(p) < 8 || p[0] != "UPID" {
		return ""
	}
	return p[i]
}

// Valid reports whether the text has a UPID's form.
func (u UPID) Valid() bool { return u.field(1) != "" }

// Node is the node that runs the task.
func (u UPID) Node() string { return u.field(1) }

// Type is the task's type, such as qmcreate.
func (u UPID) Type() string { return u.field(5) }

// ID is what the task works on: a vmid, a storage, a file; may be empty.
func (u UPID) ID() string { return u.field(6) }

// User is user@realm, or user@realm!token for a token.
func (u UPID) User() string { return u.field(7) }

// Start is the task's start by the node's clock, in whole seconds.
func (u UPID) Start() time.Time {
	n, err := strconv.ParseInt(u.field(4), 16, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(n, 0)
}

// Task is one row of a node's task list, or a task's status.
type Task struct {
	UPID    UPID
	Node    string
	Type    string
	ID      string
	User    string // user@realm
	TokenID string // the part behind "!", when a token started it
	Running bool
	Exit    string // OK, "WARNINGS: N" or the error text; "" while it runs
	Start   time.Time
	End     time.Time // zero while it runs, and in a status
}

// TaskFilter narrows a task list. The zero value is all that PVE lists.
type TaskFilter struct {
	VMID    int
	Type    string // such as qmclone
	Running bool   // only tasks that run now
	Since   time.Time
	Limit   int // 0 = PVE's default of 50
}

// TaskResult is how a task, or a synchronous write (then with Exit "OK" and no
// UPID), ended.
type TaskResult struct {
	UPID     UPID
	Exit     string   // OK or "WARNINGS: N" when there is no error
	Warnings []string // the log's warning lines when Exit says so
	Tail     []string // the log's last lines, for warnings and failures
	// Remains are lines by which a delete that succeeded tells what it could not
	// remove, such as "Could not remove disk 'local-lvm:vm-100-disk-0', check
	// manually: …": the guest is gone, and PVE lists the volume under no guest.
	Remains  []string
	Duration time.Duration
}

// TaskEvent tells a hook how a followed task goes. Lines are log lines that
// are new since the last event.
type TaskEvent struct {
	UPID    UPID
	Elapsed time.Duration
	Lines   []string
	Ended   bool
	Exit    string
}

// row decodes PVE's loosely typed JSON objects: numbers, booleans and strings
// stand for each other from call to call.
type row map[string]json.RawMessage

// scalar gives v as PVE's config would spell it; false for null, arrays and
// objects.
func scalar(v json.RawMessage) (string, bool) {
	s := strings.TrimSpace(string(v))
	switch {
	case s == "" || s == "null" || s[0] == '[' || s[0] == '{':
		return "", false
	case s == "true":
		return "1", true
	case s == "false":
		return "0", true
	case s[0] == '"':
		var out string
		if json.Unmarshal(v, &out) != nil {
			return "", false
		}
		return out, true
	}
	return s, true
}

func (r row) str(key string) string { s, _ := scalar(r[key]); return s }

func (r row) num(key string) int64 {
	s := r.str(key)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		f, _ := strconv.ParseFloat(s, 64)
		return int64(f)
	}
	return n
}

func (r row) yes(key string) bool {
	switch strings.ToLower(r.str(key)) {
	case "", "0", "no", "off", "false":
		return false
	}
	return true
}

func (r row) time(key string) time.Time {
	n := r.num(key)
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(n, 0)
}

// list splits PVE's lists, which come as a string with comma, semicolon or
// blank, or as an array.
func (r row) list(key string) []string {
	var a []string
	if json.Unmarshal(r[key], &a) == nil && len(a) > 0 {
		return a
	}
	text := r.str(key)
	if text == "" {
		return nil
	}
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ';' || c == ' ' })
}

// set is list, sorted: PVE gives set-like strings in random order (facts B).
func (r row) set(key string) []string {
	l := r.list(key)
	slices.Sort(l)
	return l
}

// UnmarshalJSON accepts only an object, so that a wrong shape is an error
// with the place in it.
func (r *row) UnmarshalJSON(b []byte) error {
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("an object is expected here, got %.20q", b)
	}
	*r = m
	return nil
}
