package pvesim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// Where ids below 100 go, which PVE does not have: collections of config files are often just counted through.
const (
	confFirstVM = 1000
	confFirstCT = 2000
)

var confFile = regexp.MustCompile(`^(\d+)\.conf$`)

// LoadConf makes a state of PVE's own config files: DIR/qemu/N.conf (or DIR/qemu-server/N.conf) and DIR/lxc/N.conf. The guest has the
// id N; N below 100, which is no id for PVE, counts from 1000 for VMs and from 2000 for containers, and an id that is taken moves to
// the next free one. Every storage that the files name is there with a fitting type, and every volume too, so that the guests can be
// started, cloned and deleted; so is every bridge. A guest with pending changes is running, all others are stopped. Users, tokens and
// the node are those of Recorded("base"). What PVE's parsers would warn about is skipped as they skip it: ParseConf tells.
//
// Errors are those of reading files; a directory without any config file is one too.
func LoadConf(dir string) (State, error) {
	s, err := Recorded("base")
	if err != nil {
		return State{}, err
	}
	s.Nodes[0].Lacks = nil
	s.Guests = map[int]*Guest{}
	var errs []error
	found := 0
	for _, part := range []struct {
		dir, kind string
		first     int
	}{{"qemu", kindQemu, confFirstVM}, {"qemu-server", kindQemu, confFirstVM}, {"lxc", kindLXC, confFirstCT}} {
		n, err := s.loadConfs(filepath.Join(dir, part.dir), part.kind, part.first)
		found += n
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return State{}, err
	}
	if found == 0 {
		return State{}, fmt.Errorf("%s: no config files; qemu/N.conf and lxc/N.conf are looked for", dir)
	}
	s.furnish()
	return s, nil
}

func (s *State) loadConfs(dir, kind string, first int) (int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var errs []error
	found := 0
	for _, e := range entries {
		m := confFile.FindStringSubmatch(e.Name())
		if m == nil || e.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		vmid := number(m[1])
		if vmid < 100 {
			vmid += first
		}
		for s.Guests[vmid] != nil {
			vmid++
		}
		g, _ := ParseConf(kind, vmid, string(text))
		g.Node = s.Nodes[0].Name
		if g.Running = (len(g.Pending) > 0 || len(g.Delete) > 0) && !g.Template(); g.Running {
			g.PID, g.Started = 10000+vmid, time.Now().Add(-time.Hour)
		}
		s.Guests[vmid] = g
		found++
	}
	return found, errors.Join(errs...)
}

// furnish makes what the guests of a state name: storages, volumes, bridges.
func (s *State) furnish() {
	named := map[[2]string]int64{} // node and volid → size
	for _, vmid := range sortedIDs(s.Guests) {
		g := s.Guests[vmid]
		for _, sec := range g.sections() {
			for _, k := range sec.Keys() {
				s.addBridge(g, k, sec[k])
				if volid, size := namedVolume(k, sec[k]); volid != "" {
					key := [2]string{g.Node, volid}
					named[key] = max(named[key], size)
				}
			}
		}
		for _, snap := range g.Snapshots {
			if snap.VMState != "" {
				named[[2]string{g.Node, snap.VMState}] = g.memory()
			}
		}
	}
	names := map[string][]string{}
	for key := range named {
		id, name, _ := splitVolid(key[1])
		names[id] = append(names[id], name)
	}
	for _, id := range sortedKeys(names) {
		slices.Sort(names[id])
		s.addStorage(id, names[id])
	}
	for key, size := range named {
		s.addVolume(key[0], key[1], size)
	}
	for _, g := range s.Guests {
		s.addSnapshots(g)
	}
}

func sortedIDs(m map[int]*Guest) []int {
	out := make([]int, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// sections are all key-value sections of a guest.
func (g *Guest) sections() []Section {
	out := []Section{g.Config, g.Pending}
	for _, s := range g.Snapshots {
		out = append(out, s.Config)
	}
	return out
}

// namedVolume is the volid that a config value names, with the size it says; "" for paths of the node, empty drives and other keys.
func namedVolume(key, value string) (volid string, size int64) {
	if !isVolumeKey(key) {
		return "", 0
	}
	for part := range strings.SplitSeq(value, ",") {
		k, v, ok := strings.Cut(part, "=")
		switch {
		case !ok && volid == "":
			volid = part
		case ok && (k == "file" || k == "volume"):
			volid = v
		case ok && k == "size":
			size, _ = schema.ParseSize(v)
		}
	}
	id, _, ok := splitVolid(volid)
	if !ok || !storageID.MatchString(id) {
		return "", 0
	}
	return volid, size
}

// addBridge enters the bridge of a NIC.
func (s *State) addBridge(g *Guest, key, value string) {
	if !indexed(key, "net") {
		return
	}
	for part := range strings.SplitSeq(value, ",") {
		if b, ok := strings.CutPrefix(part, "bridge="); ok {
			for _, n := range s.Nodes {
				if n.Name == g.Node && !slices.Contains(n.Bridges, b) {
					n.Bridges = append(n.Bridges, b)
				}
			}
		}
	}
}

// addStorage enters a storage of the type that its volumes' names are made for, and that its own name suggests.
func (s *State) addStorage(id string, names []string) {
	all := []string{contentImages, contentRootdir, contentISO, contentVztmpl, contentBackup, contentSnippets, contentImport}
	if i := slices.IndexFunc(s.Storages, func(o *Storage) bool { return o.ID == id }); i >= 0 {
		if s.Storages[i].fileBased() {
			s.Storages[i].Content = all
		}
		return
	}
	st := &Storage{ID: id, Content: []string{contentImages, contentRootdir}, Total: 8 << 40, Props: map[string]string{}}
	lower := strings.ToLower(id)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(lower, w) })
	}
	switch {
	case slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "/") && !zfsName.MatchString(n) }):
		st.Content, st.Type = all, storageDir
		st.Props["path"] = "/mnt/" + id
		switch {
		case has("nfs"):
			st.Type, st.Shared = "nfs", true
			st.Props = map[string]string{"path": "/mnt/pve/" + id, "server": "192.0.2.20", "export": "/export/" + id}
		case has("btrfs"):
			st.Type = "btrfs"
		}
	case has("ceph", "rbd"):
		st.Type, st.Shared, st.Props["pool"] = "rbd", true, id
	case has("zfs", "rpool", "tank") || slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "subvol-") || strings.HasPrefix(n, "basevol-") }):
		st.Type, st.Props["pool"] = "zfspool", id
	default:
		st.Type = storageLVMThin
		st.Props["vgname"], st.Props["thinpool"] = strings.ToLower(id), "data"
	}
	s.Storages = append(s.Storages, st)
}

// addVolume enters a volume, and the base image that its name carries.
func (s *State) addVolume(node, volid string, size int64) {
	w := &World{State: *s}
	id, name, _ := splitVolid(volid)
	st, err := w.storage(id)
	if err != nil {
		return
	}
	v := Volume{ID: volid, Node: st.volNode(node), Content: contentImages, Format: "raw", Created: time.Now()}
	parsed, err := st.parseName(name)
	if err == nil {
		v.Owner, v.Format = parsed.owner, parsed.format
		if v.Content = parsed.vtype; v.Content != contentImages {
			v.Format = fileFormat(v.Content, volid)
		}
	}
	if v.Size = size; size == 0 {
		v.Size = defaultSize(v.Content, name)
	}
	if v.Content != contentImages {
		v.Used = v.Size
	}
	if parsed.baseName != "" {
		base := id + ":" + parsed.baseName
		if st.fileBased() {
			base = id + ":" + decimal(parsed.baseOwner) + "/" + parsed.baseName
		}
		v.Base = base
		if s.Volumes[volumeKey(v.Node, base)] == nil {
			s.addVolume(node, base, size)
		}
	}
	if old := s.Volumes[volumeKey(v.Node, volid)]; old == nil || old.Size < v.Size && size > 0 {
		s.Volumes[volumeKey(v.Node, volid)] = &v
	}
}

// defaultSize is for volumes whose line says none.
func defaultSize(content, name string) int64 {
	switch {
	case strings.Contains(name, "cloudinit"):
		return 4 << 20
	case content == contentISO:
		return 700 << 20
	}
	return 8 << 30
}

// addSnapshots lets the volumes of a guest's snapshots have them.
func (s *State) addSnapshots(g *Guest) {
	for _, snap := range g.Snapshots {
		for _, k := range snap.Config.Keys() {
			volid, _ := namedVolume(k, snap.Config[k])
			for _, node := range []string{"", g.Node} {
				if v := s.Volumes[volumeKey(node, volid)]; v != nil && v.Owner != 0 && !slices.Contains(v.Snapshots, snap.Name) {
					v.Snapshots = append(v.Snapshots, snap.Name)
				}
			}
		}
	}
}
