package pvesim

import (
	"crypto/sha1" //nolint:gosec // PVE's digest is SHA-1
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// The kinds of guest, as the API's paths name them.
const (
	kindQemu = "qemu"
	kindLXC  = "lxc"
)

// Section is a section of a guest's config file: key → value exactly as the file holds it (a description with its line feeds as
// they are, before the file's encoding). PVE writes the keys sorted, so there is no other order to keep.
type Section map[string]string

// Clone is a copy.
func (s Section) Clone() Section {
	c := make(Section, len(s))
	for k, v := range s {
		c[k] = v
	}
	return c
}

// Keys are the keys, sorted.
func (s Section) Keys() []string { return sortedKeys(s) }

// Guest is a VM or a container.
type Guest struct {
	VMID   int
	Kind   string
	Node   string
	Config Section
	// Raw are a container's lxc.* lines: they may repeat and keep their order.
	Raw []string
	// Pending are new values waiting for a restart; Delete the keys to go then, true when forced ("!key").
	Pending   Section
	Delete    map[string]bool
	Snapshots []*Snapshot
	// CloudInit is what the cloud-init drive of a running VM was written with, of the keys that have changed since, and under "added" the
	// keys that it lacks: the [special:cloudinit] section of the file. nil when the drive is up to date.
	CloudInit Section

	Running bool
	// Suspended is a paused VM (qmpstatus paused).
	Suspended bool
	Started   time.Time
	Created   time.Time
	// Changed is when the config was written last: /cluster/resources shows an older one for a while.
	Changed time.Time
	PID     int
	// RunningMachine is what the running VM was started with.
	RunningMachine string
}

// Snapshot is a snapshot section.
type Snapshot struct {
	Name   string
	Config Section
	Raw    []string
	// Parent is the name of the snapshot before, "" for the first.
	Parent      string
	Description string
	Time        time.Time
	// VMState is the volid of the saved memory.
	VMState string
	// State is "" or prepare, delete, rollback.
	State string
}

func (g *Guest) complete() {
	if g.Config == nil {
		g.Config = Section{}
	}
	if g.Pending == nil {
		g.Pending = Section{}
	}
	if g.Delete == nil {
		g.Delete = map[string]bool{}
	}
}

// newGuest enters a guest with an empty config.
func (a *Actor) newGuest(kind string, vmid int) *Guest {
	g := &Guest{VMID: vmid, Kind: kind, Node: a.Node, Created: time.Now(), Changed: time.Now()}
	g.complete()
	a.w.Guests[vmid] = g
	return g
}

// removeGuest forgets a guest and what refers to it: pool membership and ACL entries (facts.md I, M).
func (a *Actor) removeGuest(g *Guest) {
	delete(a.w.Guests, g.VMID)
	for _, p := range a.w.Pools {
		delete(p.VMs, g.VMID)
	}
	a.w.Access.removeACLPath(fmt.Sprintf("/vms/%d", g.VMID))
	a.w.removeFirewall(g.VMID)
}

// guest finds a guest of one kind on one node, or dies as PVE does when the config file is not there: the text is the same for a
// guest that lives on another node.
func (w *World) guest(kind, node string, vmid int) (*Guest, error) {
	g := w.Guests[vmid]
	if g == nil || g.Kind != kind || g.Node != node {
		return nil, die("Configuration file '%s' does not exist", configFile(kind, node, vmid))
	}
	return g, nil
}

func configFile(kind, node string, vmid int) string {
	dir := "qemu-server"
	if kind == kindLXC {
		dir = "lxc"
	}
	return fmt.Sprintf("nodes/%s/%s/%d.conf", node, dir, vmid)
}

// guestsOf lists guests by id; kind and node "" are any.
func (w *World) guestsOf(kind, node string) []*Guest {
	var out []*Guest
	for _, g := range w.Guests {
		if (kind == "" || g.Kind == kind) && (node == "" || g.Node == node) {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b *Guest) int { return a.VMID - b.VMID })
	return out
}

// poolOf is the pool a guest is in, "" for none.
func (w *World) poolOf(vmid int) string {
	for _, id := range sortedKeys(w.Pools) {
		if w.Pools[id].VMs[vmid] {
			return id
		}
	}
	return ""
}

// Template says whether the guest is marked as one.
func (g *Guest) Template() bool { t := g.Config["template"]; return t != "" && t != "0" }

// checkLock is PVE::AbstractConfig::check_lock.
func (g *Guest) checkLock() error {
	l := g.Config["lock"]
	switch {
	case l == "":
		return nil
	case g.Kind == kindLXC:
		return die("CT is locked (%s)", l)
	}
	return die("VM is locked (%s)", l)
}

// Digest is the SHA-1 of the config file, which clients hand back to detect changes by others.
func (g *Guest) Digest() string {
	sum := sha1.Sum([]byte(g.Conf())) //nolint:gosec // see above
	return hex.EncodeToString(sum[:])
}

// snapshot finds a snapshot by name.
func (g *Guest) snapshot(name string) *Snapshot {
	for _, s := range g.Snapshots {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// volids lists the volumes that a section refers to, by key.
func (s Section) volids() map[string]string {
	out := map[string]string{}
	for k, v := range s {
		if !isVolumeKey(k) {
			continue
		}
		v, _, _ = strings.Cut(v, ",")
		v = strings.TrimPrefix(strings.TrimPrefix(v, "file="), "volume=")
		if _, _, ok := splitVolid(v); ok && !strings.HasPrefix(v, "/") {
			out[k] = v
		}
	}
	return out
}

// isVolumeKey says whether a config key holds a volume.
func isVolumeKey(k string) bool {
	base := strings.TrimRight(k, "0123456789")
	switch base {
	case "ide", "sata", "scsi", "virtio", "efidisk", "tpmstate", "unused", "mp":
		return base != k
	case "rootfs", "vmstate":
		return base == k
	}
	return false
}

// pendingRows is the answer of GET …/pending: every key with its value, what is
// pending for it, and deletions. value shapes one value for the answer.
func (g *Guest) pendingRows(value func(key, text string) any) []map[string]any {
	out := []map[string]any{{"key": "digest", "value": g.Digest()}}
	for _, k := range g.Config.Keys() {
		row := map[string]any{"key": k, "value": value(k, g.Config[k])}
		if p, ok := g.Pending[k]; ok {
			row["pending"] = value(k, p)
		}
		if force, ok := g.Delete[k]; ok {
			row["delete"] = 1 + bit(force)
		}
		out = append(out, row)
	}
	for _, k := range g.Pending.Keys() {
		if _, ok := g.Config[k]; !ok {
			out = append(out, map[string]any{"key": k, "pending": value(k, g.Pending[k])})
		}
	}
	return out
}

// next is the config as it will be once what is pending has come into effect.
func (g *Guest) next() Section {
	conf := g.Config.Clone()
	for k := range g.Delete {
		delete(conf, k)
	}
	for k, v := range g.Pending {
		conf[k] = v
	}
	return conf
}

// cleanPending drops pending values that equal the current ones, and deletions of what is not there.
func (g *Guest) cleanPending() {
	for k, v := range g.Pending {
		if cur, ok := g.Config[k]; ok && cur == v {
			delete(g.Pending, k)
		}
	}
	for k := range g.Delete {
		if _, ok := g.Config[k]; !ok {
			delete(g.Delete, k)
		}
	}
}

// checkProtection refuses what a protected guest must keep.
func (g *Guest) checkProtection(format string, args ...any) error {
	if p := g.Config["protection"]; p == "" || p == "0" {
		return nil
	}
	return die(format+" - protection mode enabled", args...)
}

// addUnused keeps a volume as the next free unusedN, unless it is one already.
func (g *Guest) addUnused(volid string) error {
	free := ""
	for i := 255; i >= 0; i-- {
		k := "unused" + decimal(i)
		if g.Config[k] == volid {
			return nil
		}
		if g.Config[k] == "" {
			free = k
		}
	}
	if free == "" {
		return die("Too many unused volumes - please delete them first.")
	}
	g.Config[free] = volid
	return nil
}

// checkPublicKeys is validate_ssh_public_keys: every line that is not blank must be an OpenSSH public key; a comment is none.
func checkPublicKeys(text string) error {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)); err != nil {
			return die("SSH public key validation error")
		}
	}
	return nil
}
