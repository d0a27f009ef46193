// Package live reads one cluster, read-only, into a Snapshot.
//
// A snapshot keeps four things apart that look alike on the wire: a guest that
// is absent, one that the token cannot see, one whose node does not answer,
// and one that something else works on. Only the first may be created.
package live

import (
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/wire"
)

// Snapshot is everything a plan needs to know of one cluster, as one cycle
// read it.
type Snapshot struct {
	Cluster  string
	Version  string          // of pve-manager, such as "9.2.11"
	Nodes    map[string]Node // every node the cluster names
	Guests   map[int]*Guest  // by vmid, cluster-wide, wherever it lives
	Contents map[Store]Content
	Options  Options
	// Complete is false when a listing, an allowed node or a guest's config
	// could not be read: nothing is pruned then. What is affected itself is
	// unknown; a create elsewhere goes on, since the list of guests is
	// cluster-wide and nextid confirms it (facts I, K).
	Complete bool
	Problems []string // what could not be read and why, sorted
	// Free answers /cluster/nextid?vmid=N for the wanted ids that the listing
	// does not show; an id that could not be asked for is not in it.
	Free map[int]bool
	// Perms are the token's effective privileges by path; nil = not read.
	Perms map[string]map[string]bool
	// Identity is who asked, such as "gitops@pve!ops"; RootTicket is true for
	// root@pam logged in with a password.
	Identity   string
	RootTicket bool
	// Storages are the storages of the cluster-wide listing, as far as the
	// token may audit them.
	Storages  map[Store]Storage
	Inventory map[string]*Inventory // by node; nil = not read, see Survey
	// PCI are the nodes of each PCI mapping; nil = not read.
	PCI map[string][]string
	// Pools are the pools that the token sees; nil = not read.
	Pools map[string]bool
	// Jobs are what backup, replication and HA say of guests; nil = not read,
	// see ReadJobs.
	Jobs  *Jobs
	Calls int64 // GETs that this snapshot took
}

// Node is one cluster member.
type Node struct {
	Name    string
	Online  bool
	Allowed bool // on the cluster's allow-list
	CPUs    int  // 0 = not told
	Error   string
}

// Guest is one live guest.
type Guest struct {
	field.Guest
	VMID     int
	Node     string
	Type     string // qemu or lxc
	Name     string // from the config when read
	Template bool
	Status   string // running, stopped, unknown
	Tags     []string
	Pool     string
	Lock     string
	HA       string // hastate; "" = not managed by HA
	Digest   string
	Read     bool   // the config was read
	Unknown  string // why nothing is known of it (node offline, read failed); "" = known
	Busy     string // a running task or lock, in words; "" = not busy
	// BusySince is when the task that holds the guest began, by its node's
	// clock to the second; zero = not known, or not busy.
	BusySince time.Time
	// Stale says that the lock is of a kind that only tasks set and that none
	// of them is left: it stays until somebody takes it off.
	Stale bool
	// Identity is what must still be the same right before a delete, see the
	// function of that name.
	Identity string
	// Raw are keys that are not plain text, such as a container's lxc lines.
	Raw map[string]string
	// Snapshots counts the guest's snapshots, when known (-1 = not read).
	Snapshots int
	// Linked are the vmids of the linked clones of a template that may be
	// pruned. They are known on storages that keep volumes as files;
	// LinkedUnknown names the storages where PVE does not tell (facts E).
	Linked        []int
	LinkedUnknown []string
}

// Tagged reports whether the guest carries tag. Letter case does not count:
// PVE folds it by default, and a capital must not turn a guest of ours into a
// stranger.
func (g *Guest) Tagged(tag string) bool {
	return wire.HasTag(g.Tags, tag)
}

// Store names one storage on one node.
type Store struct{ Node, Storage string }

// Content is what an artifact storage holds, by volume id.
type Content struct {
	Files map[string]int64 // volid → bytes
	Err   string           // why the listing could not be read
}

// Options are the datacenter options that comparing needs.
type Options struct {
	MACPrefix         string // what PVE draws addresses with; "" = its own
	TagsCaseSensitive bool
	TagsConfigOrder   bool
	UserTagAccess     string // free, list, existing or none; "" = free
	RegisteredTags    []string
	AllowedTags       []string // what this token may set without Sys.Modify on /
}

// Inventory is what one node offers, for preflight.
type Inventory struct {
	Storages map[string]Storage
	Bridges  map[string]bool // nil = could not be read
	Err      string
}

// Storage is one storage as a node sees it.
type Storage struct {
	Type    string
	Content map[string]bool
	Active  bool
	Shared  bool
}

// FileBased reports whether the storage keeps volumes as files, so that a
// linked clone's name holds its template's (facts E).
func (s Storage) FileBased() bool {
	return slices.Contains([]string{"dir", "nfs", "cifs", "cephfs", "glusterfs"}, s.Type)
}

// Holds reports whether the token has one of the privileges at an ACL path.
// PVE lists a path with what is held there, each privilege with whether it is
// handed down; a path that is not listed has what the nearest one above it
// hands down. True while the permissions have not been read: nothing is known
// against it.
func (s *Snapshot) Holds(path string, privs ...string) bool {
	if s.Perms == nil || s.RootTicket {
		return true
	}
	exact := true
	for {
		if held, ok := s.Perms[path]; ok {
			return slices.ContainsFunc(privs, func(p string) bool {
				down, here := held[p]
				return here && (down || exact)
			})
		}
		if path == "/" || path == "" {
			return false
		}
		exact = false
		if path = path[:strings.LastIndexByte(path, '/')]; path == "" {
			path = "/"
		}
	}
}
