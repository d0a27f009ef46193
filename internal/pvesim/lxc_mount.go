package pvesim

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// newMount is the create form of a mount point's volume: a storage and a size in GiB.
var newMount = regexp.MustCompile(`^([^:\s]+):(\d+(?:\.\d+)?)$`)

// mount is a rootfs, mpN or unusedN of a container.
type mount struct {
	key   string
	props schema.Props
}

// parseMount reads a mount point. The error is the exception of PVE's parser, which reaches the client as a 500 with the sub-keys
// at fault (ct-210).
func parseMount(key, text string) (mount, error) {
	name := ".mp"
	switch {
	case key == "rootfs":
		name = ".rootfs"
	case strings.HasPrefix(key, "unused"):
		name = ".unused"
	}
	p, err := schema.ParsePropString(name, "", text)
	if err == nil {
		return mount{key, p}, nil
	}
	e := &Error{Status: 500, Message: "format error", Errors: map[string]string{}}
	first, rest, _ := strings.Cut(err.Error(), "\n")
	if first != "format error" {
		return mount{}, die("%s", first)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(rest), "\n") {
		if k, v, ok := strings.Cut(line, ": "); ok {
			e.Errors[k] = v
		}
	}
	return mount{}, e
}

func (m mount) volume() string { return m.props["volume"] }

// kind is classify_mountpoint: volume, bind (a directory of the node) or device.
func (m mount) kind() string {
	switch v := m.volume(); {
	case strings.HasPrefix(v, "/dev/"):
		return "device"
	case strings.HasPrefix(v, "/"):
		return "bind"
	}
	return "volume"
}

// print is the config's form, size included as it is in props.
func (m mount) print() string {
	f := ".mp"
	if m.key == "rootfs" {
		f = ".rootfs"
	}
	s, err := schema.PrintPropString(f, m.props)
	if err != nil {
		return m.volume()
	}
	return s
}

// setSize sets the size that the config shows.
func (m mount) setSize(bytes int64) { m.props["size"] = schema.FormatSize(bytes) }

// mounts lists the mount points of a section, rootfs first, as foreach_volume does; what cannot be read is left out.
func mounts(s Section, unused bool) []mount {
	var out []mount
	for _, k := range s.mountKeys(unused) {
		if m, err := parseMount(k, s[k]); err == nil {
			out = append(out, m)
		}
	}
	return out
}

// mountKeys lists the keys of a section's mount points: rootfs, mpN by number, unusedN by number.
func (s Section) mountKeys(unused bool) []string {
	var out []string
	for k := range s {
		if k == "rootfs" || indexed(k, "mp") || unused && indexed(k, "unused") {
			out = append(out, k)
		}
	}
	rank := func(k string) int {
		switch {
		case k == "rootfs":
			return -1
		case strings.HasPrefix(k, "mp"):
			return number(k[2:])
		}
		return 1000 + number(k[6:])
	}
	slices.SortFunc(out, func(a, b string) int { return rank(a) - rank(b) })
	return out
}

// allocateMount makes a container's volume: directories hold raw images, or a subvol when no size is wanted; ZFS has subvols.
func (a *Actor) allocateMount(s *Storage, vmid int, sizeKiB int64) (*Volume, error) {
	format := "raw"
	if s.fileBased() && sizeKiB == 0 || s.Type == "zfspool" {
		format = "subvol"
	}
	return a.allocate(s, vmid, contentRootdir, format, "", sizeKiB)
}

// createMount is create_disks for one mount point: the create form becomes a new volume, which is returned too; a volume that exists
// gets its size entered.
func (a *Actor) createMount(vmid int, m mount) (*Volume, error) {
	f := newMount.FindStringSubmatch(m.volume())
	if m.kind() != "volume" {
		return nil, nil
	}
	if f == nil {
		if _, _, err := a.w.parseVolid(m.volume()); err != nil {
			return nil, err
		}
		if v := a.w.volume(a.Node, m.volume()); v != nil {
			m.setSize(v.Size)
		}
		return nil, nil
	}
	s, err := a.w.storageOn(f[1], a.Node)
	if err != nil {
		return nil, err
	}
	gib, err := strconv.ParseFloat(f[2], 64)
	if err != nil || gib > 1<<30 {
		return nil, die("unable to parse size '%s'", f[2])
	}
	kib := int64(gib*1024) * 1024 // whole MiB, rounded down
	v, err := a.allocateMount(s, vmid, kib)
	if err != nil {
		return nil, err
	}
	m.props["volume"] = v.ID
	m.setSize(kib << 10)
	return v, nil
}

// checkBind dies when the directory of a bind mount is not on the node. The simulator's nodes have the directories of a plain
// Debian and those of their storages.
func (a *Actor) checkBind(m mount) error {
	if m.kind() == "device" {
		return nil
	}
	dir := strings.TrimRight(m.volume(), "/")
	if slices.Contains([]string{"", "/boot", "/etc", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/var", "/var/lib", "/var/log", "/var/tmp"}, dir) {
		return nil
	}
	for _, s := range a.w.Storages {
		if p := s.Props["path"]; p != "" && (p == dir || strings.HasPrefix(p, dir+"/")) && s.On(a.Node) {
			return nil
		}
	}
	for _, g := range a.w.guestsOf(kindLXC, a.Node) { // whatever a container mounts already is there
		for _, o := range mounts(g.Config, false) {
			if o.kind() == "bind" && strings.TrimRight(o.volume(), "/") == dir {
				return nil
			}
		}
	}
	return die("directory '%s' does not exist", m.volume())
}

// ctInUse is is_volume_in_use: whether a volume is a mount point of the current config or of a snapshot.
func (g *Guest) ctInUse(volid string, except string) bool {
	for _, m := range mounts(g.Config, false) {
		if m.volume() == volid && m.key != except {
			return true
		}
	}
	for k, v := range g.Pending {
		if m, err := parseMount(k, v); (k == "rootfs" || indexed(k, "mp")) && k != except && err == nil && m.volume() == volid {
			return true
		}
	}
	for _, s := range g.Snapshots {
		for _, m := range mounts(s.Config, false) {
			if m.volume() == volid {
				return true
			}
		}
	}
	return false
}

// freeMount is delete_mountpoint_volume: a volume that carries another guest's id stays.
func (a *Actor) freeMount(vmid int, volid string) error {
	_, v, err := a.w.parseVolid(volid)
	if err != nil {
		return err
	}
	if v.owner != vmid {
		a.Warnf("ignore deletion of '%s', CT %d isn't the owner!", volid, vmid)
		return nil
	}
	return a.free(volid)
}

// volumeFeature is volume_has_feature for container volumes: snapshot, clone (linked) and copy, by storage type and by whether the
// volume is a base image.
func (w *World) volumeFeature(feature, volid, snap string) bool {
	s, v, err := w.parseVolid(volid)
	if err != nil {
		return false
	}
	switch s.Type {
	case storageLVMThin, "zfspool", "rbd", "btrfs":
		return feature == "copy" || feature == "snapshot" && !v.isBase && snap == "" || feature == "clone" && (v.isBase || snap != "")
	}
	return feature == "copy" && snap == ""
}
