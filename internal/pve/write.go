package pve

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/wire"
)

// Node writes to one allow-listed node. Calls that start a task wait for its
// end: they return how it ended, and an error when it failed. A ctx that ends
// stops the waiting, never the task.
type Node struct {
	client *Client
	name   string
}

// Name is the node's name.
func (n *Node) Name() string { return n.name }

func (n *Node) guest(t GuestType, vmid int, rest ...string) string {
	return guestPath(n.name, t, vmid, rest...)
}

// kindOf maps a guest type to the prefix of its task types.
func kindOf(t GuestType, vm, ct string) string {
	if t == LXC {
		return ct
	}
	return vm
}

// CreateGuest creates a guest with the given id; the POST answers before the
// work is done and the task may fail later (facts B).
func (n *Node) CreateGuest(ctx context.Context, t GuestType, vmid int, p wire.Params) (TaskResult, error) {
	p = slices.Clone(p)
	p.Set("vmid", wire.Plain(strconv.Itoa(vmid)))
	return n.client.write(ctx, write{node: n.name, method: http.MethodPost, path: at("nodes", n.name, string(t)),
		params: p, vmid: vmid, task: kindOf(t, "qmcreate", "vzcreate")})
}

// UpdateConfig changes a guest's config, synchronously (PUT). PVE hot-plugs
// what it can on a running guest and leaves the rest pending: read Pending
// afterwards, also after a refusal, for a refused PUT may be half applied
// (facts D, L). The digest makes PVE refuse if somebody else wrote meanwhile
// (KindConflict); "" is not checked. Deletions and reverts are the parameters
// "delete" and "revert".
func (n *Node) UpdateConfig(ctx context.Context, t GuestType, vmid int, p wire.Params, digest string) (TaskResult, error) {
	p = slices.Clone(p)
	if digest != "" {
		p.Set("digest", wire.Plain(digest))
	}
	return n.client.write(ctx, write{node: n.name, method: http.MethodPut, path: n.guest(t, vmid, "config"),
		params: p, vmid: vmid, guarded: digest != "", synchronous: true})
}

// Revert drops pending changes of the keys. On a stopped VM it does nothing
// (facts D).
func (n *Node) Revert(ctx context.Context, t GuestType, vmid int, keys []string, digest string) (TaskResult, error) {
	p := wire.Params{{Key: "revert", Value: wire.Plain(strings.Join(keys, ","))}}
	return n.UpdateConfig(ctx, t, vmid, p, digest)
}

// Resize grows a disk to size bytes; PVE refuses to shrink, in the task for a
// VM and at once for a container (facts D).
func (n *Node) Resize(ctx context.Context, t GuestType, vmid int, disk string, size int64, digest string) (TaskResult, error) {
	p := wire.Params{{Key: "disk", Value: wire.Plain(disk)}, {Key: "size", Value: wire.Plain(strconv.FormatInt(size, 10))}}
	if digest != "" {
		p.Set("digest", wire.Plain(digest))
	}
	return n.client.write(ctx, write{node: n.name, method: http.MethodPut, path: n.guest(t, vmid, "resize"),
		params: p, vmid: vmid, task: "resize", guarded: digest != ""})
}

// Clone copies source to newid. PVE's default for a template is a linked
// clone; send full=1 for a copy (facts E). A target node must be on the
// allow-list too.
func (n *Node) Clone(ctx context.Context, t GuestType, source, newid int, p wire.Params) (TaskResult, error) {
	home := n.name
	if target, ok := p.Get("target"); ok {
		home = target.Reveal()
		if err := n.client.core.allowed(home); err != nil {
			return TaskResult{}, err
		}
	}
	p = slices.Clone(p)
	p.Set("newid", wire.Plain(strconv.Itoa(newid)))
	return n.client.write(ctx, write{node: n.name, method: http.MethodPost, path: n.guest(t, source, "clone"),
		params: p, vmid: source, task: kindOf(t, "qmclone", "vzclone"), makes: guestPath(home, t, newid, "config")})
}

// MarkTemplate turns a stopped guest into a template. For a container PVE
// answers null although a task runs (facts A ix, E); this waits for it.
func (n *Node) MarkTemplate(ctx context.Context, t GuestType, vmid int) (TaskResult, error) {
	w := write{node: n.name, method: http.MethodPost, path: n.guest(t, vmid, "template"), vmid: vmid,
		task: kindOf(t, "qmtemplate", "vztemplate")}
	if t == QEMU {
		return n.client.write(ctx, w)
	}
	return n.templateCT(ctx, w)
}

// Start starts a guest. Starting a running one is an error of PVE. For a guest
// under HA the task, as with Shutdown and Stop, only asks the HA manager: the
// state follows later.
func (n *Node) Start(ctx context.Context, t GuestType, vmid int) (TaskResult, error) {
	return n.client.write(ctx, write{node: n.name, method: http.MethodPost, path: n.guest(t, vmid, "status", "start"),
		vmid: vmid, task: kindOf(t, "qmstart", "vzstart"), power: true})
}

// Shutdown asks the guest to shut down and waits for it at most timeout
// (whole seconds, 0 = PVE's default); with forceStop PVE then pulls the plug,
// without it the task fails.
func (n *Node) Shutdown(ctx context.Context, t GuestType, vmid int, timeout time.Duration, forceStop bool) (TaskResult, error) {
	var p wire.Params
	if timeout > 0 {
		p.Set("timeout", wire.Plain(strconv.Itoa(max(1, int(timeout/time.Second)))))
	}
	if forceStop {
		p.Set("forceStop", wire.Plain("1"))
	}
	return n.client.write(ctx, write{node: n.name, method: http.MethodPost, path: n.guest(t, vmid, "status", "shutdown"),
		params: p, vmid: vmid, task: kindOf(t, "qmshutdown", "vzshutdown"), power: true})
}

// Stop pulls the plug. Stopping a stopped VM is fine, a stopped container is
// an error of PVE (facts B).
func (n *Node) Stop(ctx context.Context, t GuestType, vmid int) (TaskResult, error) {
	return n.client.write(ctx, write{node: n.name, method: http.MethodPost, path: n.guest(t, vmid, "status", "stop"),
		vmid: vmid, task: kindOf(t, "qmstop", "vzstop"), power: true})
}

// Delete destroys a stopped guest and the volumes in its config. It sends no
// purge flags: backup jobs, replication and HA entries, and volumes that are
// not in the config, stay.
func (n *Node) Delete(ctx context.Context, t GuestType, vmid int) (TaskResult, error) {
	return n.client.write(ctx, write{node: n.name, method: http.MethodDelete, path: n.guest(t, vmid),
		vmid: vmid, task: kindOf(t, "qmdestroy", "vzdestroy")})
}

// Download makes the node fetch a URL into a storage: parameters url, content,
// filename, checksum with checksum-algorithm, ... (facts F). An existing file
// is an error of the task unless the checksum matches.
func (n *Node) Download(ctx context.Context, storage string, p wire.Params) (TaskResult, error) {
	file, _ := p.Get("filename")
	return n.client.write(ctx, write{node: n.name, method: http.MethodPost,
		path: at("nodes", n.name, "storage", storage, "download-url"), params: p, task: "download", file: file.String()})
}

// RegenerateCloudInit writes the cloud-init drive anew from the config.
func (n *Node) RegenerateCloudInit(ctx context.Context, vmid int) (TaskResult, error) {
	return n.client.write(ctx, write{node: n.name, method: http.MethodPut, path: n.guest(QEMU, vmid, "cloudinit"),
		vmid: vmid, synchronous: true})
}

// Migrate moves a guest to target, which must be on the allow-list. Further
// parameters (online, with-local-disks, restart, ...) differ between VMs and
// containers and go through as they are.
func (n *Node) Migrate(ctx context.Context, t GuestType, vmid int, target string, p wire.Params) (TaskResult, error) {
	if err := n.client.core.allowed(target); err != nil {
		return TaskResult{}, err
	}
	p = slices.Clone(p)
	p.Set("target", wire.Plain(target))
	return n.client.write(ctx, write{node: n.name, method: http.MethodPost, path: n.guest(t, vmid, "migrate"),
		params: p, vmid: vmid, task: kindOf(t, "qmigrate", "vzmigrate")})
}

// AddToPool makes guests members of a pool. A guest is in one pool at most:
// without move, PVE refuses one that is in another (facts I).
func (c *Client) AddToPool(ctx context.Context, pool string, move bool, vmids ...int) error {
	p := poolParams(pool, vmids)
	if move {
		p.Set("allow-move", wire.Plain("1"))
	}
	_, err := c.write(ctx, write{method: http.MethodPut, path: "/pools", params: p, synchronous: true})
	return err
}

// RemoveFromPool takes guests out of a pool; PVE refuses those that are not in
// it.
func (c *Client) RemoveFromPool(ctx context.Context, pool string, vmids ...int) error {
	p := poolParams(pool, vmids)
	p.Set("delete", wire.Plain("1"))
	_, err := c.write(ctx, write{method: http.MethodPut, path: "/pools", params: p, synchronous: true})
	return err
}

func poolParams(pool string, vmids []int) wire.Params {
	ids := make([]string, 0, len(vmids))
	for _, id := range vmids {
		ids = append(ids, strconv.Itoa(id))
	}
	return wire.Params{{Key: "poolid", Value: wire.Plain(pool)}, {Key: "vms", Value: wire.Plain(strings.Join(ids, ","))}}
}

// write is one write request and what is known about it.
type write struct {
	node, method, path string
	params             wire.Params
	vmid               int
	task               string // the task's type, to find it when the answer is lost
	makes              string // config of the clone: its task is named after the source, which may have several
	file               string // a download's task has the file's name for its id
	guarded            bool   // carries a digest: repeating it is safe, PVE compares
	synchronous        bool   // answers null, no UPID
	power              bool   // starts or stops: repeating it after a lock timeout in the task is safe
}

func (w write) request() request {
	r := request{method: w.method, path: w.path}
	if v := w.params.Reveal(); w.method == http.MethodDelete {
		r.query = v // PVE refuses a body here (facts B)
	} else {
		r.form = v
		if r.form == nil {
			r.form = url.Values{}
		}
	}
	return r
}
