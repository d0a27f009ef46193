package pve

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Reader reads one cluster. It has no way to send anything but GET requests
// (and, under ticket authentication, the login). Nodes outside the allow-list
// are refused before anything is sent.
type Reader struct{ core *core }

// Writes counts the write requests sent so far by the Client that this Reader
// belongs to, the refused ones included. Logins are not writes.
func (r *Reader) Writes() int64 { return r.core.stats.writes.Load() }

// Stats counts the requests sent so far.
func (r *Reader) Stats() Stats { return r.core.stats.read() }

// Name is the cluster's name in the repository.
func (r *Reader) Name() string { return r.core.name }

// Get reads an API path, such as "/nodes/pve01/qemu", into out; path segments
// must be escaped already. GETs are repeated on network trouble, see the
// package's errors for the rest.
func (r *Reader) Get(ctx context.Context, path string, query url.Values, out any) error {
	_, err := r.core.do(ctx, request{method: http.MethodGet, path: path, query: query}, out)
	return err
}

func (r *Reader) row(ctx context.Context, path string) (row, error) {
	var out row
	err := r.Get(ctx, path, nil, &out)
	return out, err
}

// rows reads a list; the caller sorts, as PVE's order is random.
func rows[T any](ctx context.Context, r *Reader, path string, query url.Values, conv func(row) T) ([]T, error) {
	var in []row
	if err := r.Get(ctx, path, query, &in); err != nil {
		return nil, err
	}
	out := make([]T, 0, len(in))
	for _, x := range in {
		out = append(out, conv(x))
	}
	return out, nil
}

// at joins path segments, escaping each.
func at(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

func guestPath(node string, t GuestType, vmid int, rest ...string) string {
	return at(append([]string{"nodes", node, string(t), strconv.Itoa(vmid)}, rest...)...)
}

// Version reads /version; any authenticated caller may.
func (r *Reader) Version(ctx context.Context) (Version, error) {
	x, err := r.row(ctx, "/version")
	return Version{Version: x.str("version"), Release: x.str("release"), RepoID: x.str("repoid")}, err
}

// ClusterStatus reads which nodes there are and which are online.
func (r *Reader) ClusterStatus(ctx context.Context) (ClusterStatus, error) {
	var in []row
	if err := r.Get(ctx, "/cluster/status", nil, &in); err != nil {
		return ClusterStatus{}, err
	}
	s := clusterStatus(in)
	r.core.eps.refresh(s)
	return s, nil
}

func clusterStatus(in []row) ClusterStatus {
	s := ClusterStatus{Quorate: true}
	for _, x := range in {
		switch x.str("type") {
		case "cluster":
			s.Name, s.Quorate = x.str("name"), x.yes("quorate")
		case "node":
			s.Nodes = append(s.Nodes, NodeStatus{Name: x.str("name"), IP: x.str("ip"), Online: x.yes("online"), Local: x.yes("local")})
		}
	}
	slices.SortFunc(s.Nodes, func(a, b NodeStatus) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// Nodes reads /nodes, by name.
func (r *Reader) Nodes(ctx context.Context) ([]NodeInfo, error) {
	out, err := rows(ctx, r, "/nodes", nil, func(x row) NodeInfo {
		return NodeInfo{Node: x.str("node"), Status: x.str("status"), Fingerprint: x.str("ssl_fingerprint"),
			MaxCPU: int(x.num("maxcpu")), MaxMem: x.num("maxmem"), Uptime: x.num("uptime")}
	})
	slices.SortFunc(out, func(a, b NodeInfo) int { return cmp.Compare(a.Node, b.Node) })
	return out, err
}

// Resources reads /cluster/resources, by ID. PVE shows only what the caller
// may audit, without a word about the rest (facts I).
func (r *Reader) Resources(ctx context.Context) ([]Resource, error) {
	out, err := rows(ctx, r, "/cluster/resources", nil, func(x row) Resource {
		return Resource{ID: x.str("id"), Type: x.str("type"), Node: x.str("node"), VMID: int(x.num("vmid")),
			Name: x.str("name"), Status: x.str("status"), Template: x.yes("template"), Tags: x.list("tags"),
			Pool: x.str("pool"), HAState: x.str("hastate"), Lock: x.str("lock"), Storage: x.str("storage"),
			PluginType: x.str("plugintype"), Content: x.set("content"), Shared: x.yes("shared"),
			Uptime: x.num("uptime"), MaxCPU: int(x.num("maxcpu")), MaxMem: x.num("maxmem"), MaxDisk: x.num("maxdisk"), Raw: x}
	})
	slices.SortFunc(out, func(a, b Resource) int { return cmp.Compare(a.ID, b.ID) })
	return out, err
}

// Options reads the datacenter options that bear on tags.
func (r *Reader) Options(ctx context.Context) (Options, error) {
	x, err := r.row(ctx, "/cluster/options")
	if err != nil {
		return Options{}, err
	}
	style, access := x.sub("tag-style"), x.sub("user-tag-access")
	return Options{MACPrefix: x.str("mac_prefix"), TagOrdering: style.str("ordering"), TagCaseSensitive: style.yes("case-sensitive"),
		UserTagAccess: access.str("user-allow"), UserAllowList: access.list("user-allow-list"),
		RegisteredTags: x.list("registered-tags"), AllowedTags: x.list("allowed-tags"), Raw: x}, nil
}

// sub reads a property that PVE gives as an object or as a property string.
func (r row) sub(key string) row {
	var o row
	if json.Unmarshal(r[key], &o) == nil {
		return o
	}
	o = row{}
	for _, p := range strings.Split(r.str(key), ",") {
		if k, v, ok := strings.Cut(p, "="); ok {
			b, _ := json.Marshal(v)
			o[k] = b
		}
	}
	return o
}

// GuestStatus reads .../status/current. It takes five times as long as
// Pending; Resources has the power state of all guests at once.
func (r *Reader) GuestStatus(ctx context.Context, node string, t GuestType, vmid int) (GuestStatus, error) {
	path := guestPath(node, t, vmid, "status", "current")
	x, err := r.row(ctx, path)
	if err == nil && x.str("status") == "" {
		err = r.core.fail(request{method: http.MethodGet, path: path}, KindNotJSON, "the answer does not say whether the guest runs", notPVEHint)
	}
	if err != nil {
		return GuestStatus{}, err
	}
	return GuestStatus{Status: x.str("status"), QMPStatus: x.str("qmpstatus"), Name: x.str("name"), Tags: x.list("tags"),
		Template: x.yes("template"), Lock: x.str("lock"), HAManaged: x.sub("ha").yes("managed"),
		Uptime: x.num("uptime"), PID: int(x.num("pid")), Raw: x}, nil
}

// Snapshots lists a guest's snapshots by name, without "current".
func (r *Reader) Snapshots(ctx context.Context, node string, t GuestType, vmid int) ([]Snapshot, error) {
	out, err := rows(ctx, r, guestPath(node, t, vmid, "snapshot"), nil, func(x row) Snapshot {
		return Snapshot{Name: x.str("name"), Parent: x.str("parent"), Description: x.str("description"),
			Time: x.time("snaptime"), VMState: x.yes("vmstate")}
	})
	out = slices.DeleteFunc(out, func(s Snapshot) bool { return s.Name == "current" })
	slices.SortFunc(out, func(a, b Snapshot) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

// CloudInitDump gives the generated cloud-init file: kind is user, network or
// meta. It may hold a password in clear (facts A xiv): never show it.
func (r *Reader) CloudInitDump(ctx context.Context, node string, vmid int, kind string) (string, error) {
	var out string
	err := r.Get(ctx, guestPath(node, QEMU, vmid, "cloudinit", "dump"), url.Values{"type": {kind}}, &out)
	return out, err
}

// StorageContent lists a storage's volumes of one content type ("" = all), by
// volume id. A type that is not enabled on the storage gives an empty list
// (facts A vii).
func (r *Reader) StorageContent(ctx context.Context, node, storage, content string) ([]Volume, error) {
	q := url.Values{}
	if content != "" {
		q.Set("content", content)
	}
	out, err := rows(ctx, r, at("nodes", node, "storage", storage, "content"), q, func(x row) Volume {
		return Volume{VolID: x.str("volid"), Content: x.str("content"), Format: x.str("format"), Size: x.num("size"),
			VMID: int(x.num("vmid")), CTime: x.time("ctime"), Parent: x.str("parent"), Raw: x}
	})
	slices.SortFunc(out, func(a, b Volume) int { return cmp.Compare(a.VolID, b.VolID) })
	return out, err
}

// Storages lists the storages that a node knows and the caller may see.
func (r *Reader) Storages(ctx context.Context, node string) ([]Storage, error) {
	out, err := rows(ctx, r, at("nodes", node, "storage"), nil, func(x row) Storage {
		return Storage{Storage: x.str("storage"), Type: x.str("type"), Content: x.set("content"), Active: x.yes("active"),
			Enabled: x.yes("enabled"), Shared: x.yes("shared"), Total: x.num("total"), Used: x.num("used"), Avail: x.num("avail")}
	})
	slices.SortFunc(out, func(a, b Storage) int { return cmp.Compare(a.Storage, b.Storage) })
	return out, err
}

// Network lists a node's network interfaces of one type ("" = all), such as
// any_bridge, by name.
func (r *Reader) Network(ctx context.Context, node, kind string) ([]Interface, error) {
	q := url.Values{}
	if kind != "" {
		q.Set("type", kind)
	}
	out, err := rows(ctx, r, at("nodes", node, "network"), q, func(x row) Interface {
		return Interface{Iface: x.str("iface"), Type: x.str("type"), Active: x.yes("active"),
			VLANAware: x.yes("bridge_vlan_aware"), Comments: x.str("comments")}
	})
	slices.SortFunc(out, func(a, b Interface) int { return cmp.Compare(a.Iface, b.Iface) })
	return out, err
}

// Bridges lists the bridges, SDN's virtual networks included, that a guest on
// the node may be attached to.
func (r *Reader) Bridges(ctx context.Context, node string) ([]Interface, error) {
	return r.Network(ctx, node, "any_bridge")
}

// PCIMappings lists the cluster's PCI mappings that the caller may see.
func (r *Reader) PCIMappings(ctx context.Context) ([]PCIMapping, error) {
	out, err := rows(ctx, r, "/cluster/mapping/pci", nil, func(x row) PCIMapping {
		var maps []string
		_ = json.Unmarshal(x["map"], &maps)
		m := PCIMapping{ID: x.str("id"), Map: maps}
		for _, s := range maps {
			for _, p := range strings.Split(s, ",") {
				if n, ok := strings.CutPrefix(p, "node="); ok && !slices.Contains(m.Nodes, n) {
					m.Nodes = append(m.Nodes, n)
				}
			}
		}
		slices.Sort(m.Nodes)
		return m
	})
	slices.SortFunc(out, func(a, b PCIMapping) int { return cmp.Compare(a.ID, b.ID) })
	return out, err
}

// Pools lists the pools that the caller may see, without members.
func (r *Reader) Pools(ctx context.Context) ([]Pool, error) {
	out, err := rows(ctx, r, "/pools", nil, pool)
	slices.SortFunc(out, func(a, b Pool) int { return cmp.Compare(a.PoolID, b.PoolID) })
	return out, err
}

// Pool reads one pool with its members. PVE answers it for everybody, also
// for members that the caller may not see elsewhere (facts M).
func (r *Reader) Pool(ctx context.Context, id string) (Pool, error) {
	out, err := rows(ctx, r, "/pools", url.Values{"poolid": {id}}, pool)
	if err != nil {
		return Pool{}, err
	}
	for _, p := range out {
		if p.PoolID == id {
			return p, nil
		}
	}
	return Pool{}, &Error{Kind: KindNotFound, Cluster: r.core.name, Method: http.MethodGet, Path: "/pools",
		Message: fmt.Sprintf("pool %q does not exist, or is not visible to this caller", id)}
}

func pool(x row) Pool {
	p := Pool{PoolID: x.str("poolid"), Comment: x.str("comment")}
	var members []row
	_ = json.Unmarshal(x["members"], &members)
	for _, m := range members {
		if id := int(m.num("vmid")); id != 0 {
			p.Guests = append(p.Guests, id)
		} else if s := m.str("storage"); s != "" && !slices.Contains(p.Storage, s) {
			p.Storage = append(p.Storage, s)
		}
	}
	slices.Sort(p.Guests)
	slices.Sort(p.Storage)
	return p
}

// VMIDFree asks the whole cluster, guests that the caller may not see
// included, whether no guest has the id: /cluster/nextid?vmid= (facts I).
func (r *Reader) VMIDFree(ctx context.Context, vmid int) (bool, error) {
	err := r.Get(ctx, "/cluster/nextid", url.Values{"vmid": {strconv.Itoa(vmid)}}, nil)
	if e, ok := As(err); ok && e.Status == http.StatusBadRequest && strings.Contains(e.Params["vmid"], "already exists") {
		return false, nil
	}
	return err == nil, err
}

// NextID gives the lowest vmid that is free now. Nothing reserves it.
func (r *Reader) NextID(ctx context.Context) (int, error) {
	var out json.RawMessage
	if err := r.Get(ctx, "/cluster/nextid", nil, &out); err != nil {
		return 0, err
	}
	s, _ := scalar(out)
	return strconv.Atoi(s)
}

// Permissions reads what the caller may do, by ACL path.
func (r *Reader) Permissions(ctx context.Context) (Permissions, error) {
	var in map[string]row
	if err := r.Get(ctx, "/access/permissions", nil, &in); err != nil {
		return nil, err
	}
	out := Permissions{}
	for path, x := range in {
		out[path] = map[string]bool{}
		for priv := range x {
			out[path][priv] = x.yes(priv)
		}
	}
	return out, nil
}

// HAResources lists the guests that the HA manager looks after.
func (r *Reader) HAResources(ctx context.Context) ([]HAResource, error) {
	out, err := rows(ctx, r, "/cluster/ha/resources", nil, func(x row) HAResource {
		return HAResource{SID: x.str("sid"), State: x.str("state"), Group: x.str("group")}
	})
	slices.SortFunc(out, func(a, b HAResource) int { return cmp.Compare(a.SID, b.SID) })
	return out, err
}

// Tasks lists a node's tasks, the newest first. A token sees only its own
// tasks, unless it has Sys.Audit on the node (facts M). Since is compared with
// the node's clock.
func (r *Reader) Tasks(ctx context.Context, node string, f TaskFilter) ([]Task, error) {
	q := url.Values{"source": {"all"}}
	if f.Running {
		q.Set("source", "active")
	}
	if f.VMID != 0 {
		q.Set("vmid", strconv.Itoa(f.VMID))
	}
	if f.Type != "" {
		q.Set("typefilter", f.Type)
	}
	if !f.Since.IsZero() {
		q.Set("since", strconv.FormatInt(f.Since.Unix(), 10))
	}
	if f.Limit != 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	out, err := rows(ctx, r, at("nodes", node, "tasks"), q, func(x row) Task {
		t := task(x)
		t.Exit, t.End = x.str("status"), x.time("endtime")
		t.Running = t.End.IsZero()
		if t.Running {
			t.Exit = "" // PVE's list says "RUNNING" here
		}
		return t
	})
	out = slices.DeleteFunc(out, func(t Task) bool { return f.Running && !t.Running || f.Type != "" && t.Type != f.Type })
	slices.SortStableFunc(out, func(a, b Task) int { return b.Start.Compare(a.Start) })
	return out, err
}

func task(x row) Task {
	return Task{UPID: UPID(x.str("upid")), Node: x.str("node"), Type: x.str("type"), ID: x.str("id"),
		User: x.str("user"), TokenID: x.str("tokenid"), Start: x.time("starttime")}
}

// TaskStatus reads whether a task runs, and how it ended.
func (r *Reader) TaskStatus(ctx context.Context, u UPID) (Task, error) {
	x, err := r.row(ctx, at("nodes", u.Node(), "tasks", string(u), "status"))
	if err != nil {
		return Task{}, err
	}
	t := task(x)
	t.Running, t.Exit = x.str("status") == "running", x.str("exitstatus")
	return t, nil
}

// taskLog reads log lines from start (counting from 0), and gives where to go
// on and how many there are.
func (r *Reader) taskLog(ctx context.Context, u UPID, start, limit int) (lines []string, next, total int, err error) {
	var in []row
	q := url.Values{"start": {strconv.Itoa(start)}, "limit": {strconv.Itoa(limit)}}
	env, err := r.core.do(ctx, request{method: http.MethodGet, path: at("nodes", u.Node(), "tasks", string(u), "log"), query: q}, &in)
	if err != nil {
		return nil, start, 0, err
	}
	slices.SortStableFunc(in, func(a, b row) int { return cmp.Compare(a.num("n"), b.num("n")) })
	next = start
	for _, x := range in {
		switch t := x.str("t"); {
		case t == "no content": // PVE's line for an empty log
			continue
		case t != "":
			lines = append(lines, t)
		}
		next++
	}
	return lines, next, env.Total, nil
}

// TaskTail reads the last lines of a task's log, at most n.
func (r *Reader) TaskTail(ctx context.Context, u UPID, n int) ([]string, error) {
	const page = 500
	lines, _, total, err := r.taskLog(ctx, u, 0, page)
	if err == nil && total > page {
		lines, _, _, err = r.taskLog(ctx, u, max(0, total-n), n)
	}
	return lines[max(0, len(lines)-n):], err
}

// FindTask looks for the newest task of one type on a guest that this caller
// started at since or later and that this client has not followed yet: what
// may be left of a write whose outcome is unknown. Since is a time of our
// clock; the node's is known from its answers.
func (r *Reader) FindTask(ctx context.Context, node string, vmid int, kind string, since time.Time) (Task, bool, error) {
	return r.findTask(ctx, node, TaskFilter{VMID: vmid, Type: kind}, strconv.Itoa(vmid), since)
}

func (r *Reader) findTask(ctx context.Context, node string, f TaskFilter, id string, since time.Time) (Task, bool, error) {
	list, err := r.Tasks(ctx, node, f)
	if err != nil {
		return Task{}, false, err
	}
	from := since.Add(r.core.skew()).Truncate(time.Second).Add(-time.Second)
	for _, t := range list {
		if t.UPID.ID() == id && !t.Start.Before(from) && r.core.auth.owns(t) && !r.core.followed.has(t.UPID) {
			return t, true, nil
		}
	}
	return Task{}, false, nil
}
