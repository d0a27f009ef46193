// Package pvesim is a Proxmox VE 9.2 cluster in one process: it answers PVE's API over HTTPS on loopback, or in process as an
// http.RoundTripper, with nodes, storages, guests, tasks, users and permissions that behave as the real ones do. It knows nothing
// of the programs that are tested with it and imports nothing of them; package schema below it is PVE's own parameter schema.
//
//	state, err := pvesim.Recorded("base")       // or a State of one's own
//	w := pvesim.New(pvesim.Options{Seed: 1}, state)
//	defer w.Stop()
//	client := &http.Client{Transport: w}        // in process, also inside testing/synctest
//	srv, err := w.Serve("127.0.0.1:0")          // or over TLS: srv.URL, srv.Fingerprint
//
// Tests look at what happened by World.Requests (every call: who, what, parameters, status), World.LedgerEntries (every volume that
// was made, renamed, resized or destroyed, and by which call or task) and World.View (the state itself).
//
// # Map
//
//	world.go, recorded.go         State (all that survives a restart), World, Options; the clean states of the recordings
//	node.go, node_api.go          members; finding the node of a call
//	node_reads.go                 what a node can run; figures over time
//	firewall*.go                  guests' firewalls, kept and not enforced
//	storage.go, storage_name.go   storages and the volume ledger; volume names, who may use a volume
//	storage_api.go, storage_content.go, storage_config.go   the storage endpoints; storage.cfg
//	storage_download.go, storage_file.go   downloads over the network; what is kept of a file
//	storage_alloc.go              allocating and freeing guests' volumes, per storage type
//	guest.go, guest_figures.go    guests, config sections, digest; figures of lists, types of config values
//	task.go, task_api.go          workers, UPIDs, logs; the task endpoints
//	actor.go, lock.go, pace.go    a thread of PVE's code: who, where, giving way, locks, how long work takes
//	errors.go, params.go          PVE's errors; parameters as PVE sees them
//	dispatch.go, body.go          from an HTTP request to a handler, in PVE's order of checks
//	respond.go, server.go, roundtrip.go   answers, HTTP/1.1 over TLS, and without a socket
//	faults.go, requestlog.go      faults on purpose; the log of calls
//	auth_*.go                     tickets, tokens, privileges, the schema's permission rules
//	access_*.go, pool_*.go        users, groups, roles, ACLs, what others vouch for; pools
//	index_api.go                  lists of what lies below a path
//	cluster_*.go                  /cluster: status, resources with their lag, nextid, options, tags, HA
//	conf.go, conf_load.go         PVE's guest config files: parser, printer, a state from a directory of them
//	conf_estate.go, conf_snapshot.go   random estates; a state from a cluster's answers
//	snapshot.go                   snapshots of either kind of guest
//	qemu_create.go, qemu_alloc.go VMs: making them, and the volumes of their drives
//	qemu_update.go, qemu_pending.go   changes of a config: checks, the pending section, what hotplugs
//	qemu_keys.go, qemu_drive.go, qemu_perm.go   keys and what they need; drives and unused volumes; rights
//	qemu_*.go                     everything else of VMs, by the name of the call; qemu_mapping.go holds resource mappings
//	lxc_*.go                      containers
//
// # Conventions
//
// The world is a monitor. Handlers and workers run one at a time, with World.mu held, and may use all state freely. They give way
// only in Actor.Sleep, Work, Lock, LockGuest, LockStorage, wait and Unlocked; what was looked up before one of these must be
// looked up again after it. Nothing else locks, and nothing sleeps or does input and output while it holds the world. All waiting
// is by package time, so that a world runs inside a testing/synctest bubble.
//
// PVE does much of its work either in the request or in a task. Code that changes the world therefore takes an *Actor, which a
// Request embeds and a worker gets: it knows the caller (Who), the node, the cause for the ledger; Logf and Warnf reach the task's
// log when there is one. Work(d) takes d times Options.TimeScale.
//
// Errors are *Error: die for PVE's die (500), paramErr and paramErrs for 400, permErr for 403, raise for other codes; wrap gives
// the prefix that makes an exception a die again. Returned by a worker they become the task's exit status, with PVE's prefix.
// Messages have no final line feed; respond.go adds it.
//
// Config sections map keys to values exactly as PVE's files hold them. Volumes exist only in State.Volumes, and change only by
// createVolume, destroyVolume, renameVolume, resizeVolume (through allocate and free for guests' volumes), which keep the ledger.
// The state holds no unexported fields that matter: what is in it is saved and loaded as JSON.
//
// Whatever is drawn (MACs, uuids, secrets) comes from World's seeded source: w.mac, w.uuid, w.draw.
//
// # Adding a handler
//
// Write func (w *World) name(r *Request) (any, error) in a file of its part, and add a line to that part's table
// ({"GET", "/nodes/{node}/qemu/{vmid}/pending", (*World).qemuPending} in qemuRoutes). The path is the schema's template, letter by
// letter. Before the handler runs, dispatch.go has authenticated the caller, evaluated the permission that the schema declares
// for the method (World.permitted), found the node (r.Node is its real name, "localhost" resolved), and checked all parameters
// (r.P; values are text, lists are joined by NUL: use r.P.List). Only permissions that the schema does not declare (those it
// describes in prose, or that depend on values) are for the handler: w.check, w.checkAny, w.can. The returned value becomes
// "data"; return a Reply to add attributes beside it. A task is r.spawn(type, id, worker), whose UPID is usually the answer.
package pvesim
