package pvesim

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// snapshotFormat is the "format" of a snapshot file.
const snapshotFormat = "pve-answers/1"

// answers are what a snapshot file holds: the data of GET answers by API path, with the query as it was asked.
type answers map[string]json.RawMessage

// LoadSnapshot makes a state of a cluster's answers: a JSON object with "format": "pve-answers/1" and "answers", which maps API paths
// (as asked, query included: "/nodes/pve1/qemu/100/config?current=1") to the data that GET gave. It uses what is there of
//
//	/cluster/status  /nodes  /storage  /pools/ID or /pools?poolid=ID  /cluster/options  /cluster/ha/resources
//	/cluster/resources or /cluster/resources?type=vm
//	/nodes/N/storage  /nodes/N/network  /nodes/N/storage/S/content
//	/nodes/N/qemu|lxc/ID/config?current=1 or …/config, …/pending, …/snapshot, …/snapshot/NAME/config
//
// and furnishes the rest as LoadConf does: volumes that configs name, and storages and bridges for them. A state that World.Save wrote
// is read too. Users and tokens are those of Recorded("base"). Errors name the file, and the path whose answer cannot be read.
func LoadSnapshot(file string) (State, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return State{}, err
	}
	var doc struct {
		Format  string  `json:"format"`
		Answers answers `json:"answers"`
		Nodes   []*Node
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return State{}, fmt.Errorf("%s: %w", file, err)
	}
	if doc.Format == "" && len(doc.Nodes) > 0 {
		var s State
		if err := json.Unmarshal(text, &s); err != nil {
			return State{}, fmt.Errorf("%s: %w", file, err)
		}
		return s, nil
	}
	if doc.Format != snapshotFormat {
		return State{}, fmt.Errorf("%s: format %q: %q is wanted", file, doc.Format, snapshotFormat)
	}
	s, err := Recorded("base")
	if err != nil {
		return State{}, err
	}
	if err := s.fromAnswers(doc.Answers); err != nil {
		return State{}, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// row is an object of an answer with its values as text.
type row map[string]any

func (r row) str(k string) string { return Params(r).Str(k) }
func (r row) num(k string) int64  { return int64(Params(r).Int(k, 0)) }

// rows reads the first answer that is there.
func (a answers) rows(paths ...string) ([]row, error) {
	for _, p := range paths {
		if raw, ok := a[p]; ok {
			var out []row
			if err := decodeNumbers(raw, &out); err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			return out, nil
		}
	}
	return nil, nil
}

func (a answers) object(paths ...string) (row, error) {
	for _, p := range paths {
		if raw, ok := a[p]; ok {
			out := row{}
			if err := decodeNumbers(raw, &out); err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			return out, nil
		}
	}
	return nil, nil
}

func decodeNumbers(raw json.RawMessage, into any) error {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	return d.Decode(into)
}

func (s *State) fromAnswers(a answers) error {
	for _, step := range []func(answers) error{s.nodesFrom, s.storagesFrom, s.guestsFrom, s.volumesFrom, s.poolsFrom, s.clusterFrom} {
		if err := step(a); err != nil {
			return err
		}
	}
	s.furnish()
	return nil
}

func (s *State) nodesFrom(a answers) error {
	status, err := a.rows("/cluster/status")
	if err != nil {
		return err
	}
	nodes, err := a.rows("/nodes")
	if err != nil {
		return err
	}
	first := *s.Nodes[0]
	first.Lacks, first.Files, first.Bridges = nil, nil, nil
	s.Nodes = nil
	add := func(name string) *Node {
		if i := slices.IndexFunc(s.Nodes, func(n *Node) bool { return n.Name == name }); i >= 0 {
			return s.Nodes[i]
		}
		n := first
		n.Name, n.ID = name, len(s.Nodes)+1
		s.Nodes = append(s.Nodes, &n)
		return &n
	}
	for _, r := range status {
		switch r.str("type") {
		case "cluster":
			s.ClusterName = r.str("name")
		case "node":
			n := add(r.str("name"))
			n.ID, n.Offline = int(r.num("nodeid")), !Params(r).Bool("online")
			if ip := r.str("ip"); ip != "" {
				n.IP = ip
			}
		}
	}
	for _, r := range nodes {
		n := add(r.str("node"))
		n.Offline = r.str("status") == "offline"
		if c := r.num("maxcpu"); c > 0 {
			n.CPUs, n.Memory, n.RootTotal, n.RootUsed = int(c), r.num("maxmem"), r.num("maxdisk"), r.num("disk")
		}
	}
	if len(s.Nodes) == 0 {
		return fmt.Errorf("neither /cluster/status nor /nodes names a node")
	}
	if len(s.Nodes) > 1 && s.ClusterName == "" {
		s.ClusterName = "cluster"
	}
	for _, n := range s.Nodes {
		ifaces, err := a.rows("/nodes/"+n.Name+"/network", "/nodes/"+n.Name+"/network?type=any_bridge")
		if err != nil {
			return err
		}
		for _, r := range ifaces {
			if strings.Contains(strings.ToLower(r.str("type")), "bridge") {
				n.Bridges = append(n.Bridges, r.str("iface"))
			}
		}
	}
	return nil
}

func (s *State) storagesFrom(a answers) error {
	s.Storages = nil
	known := map[string]*Storage{}
	add := func(r row) *Storage {
		id := r.str("storage")
		if known[id] == nil {
			known[id] = &Storage{ID: id, Type: orElse(r.str("type"), r.str("plugintype")), Props: map[string]string{}}
			s.Storages = append(s.Storages, known[id])
		}
		return known[id]
	}
	config, err := a.rows("/storage")
	if err != nil {
		return err
	}
	for _, r := range config {
		st := add(r)
		st.Shared = storageKinds()[st.Type].shared
		p := Params{}
		for k := range r {
			if k != "digest" {
				p[k] = r.str(k)
			}
		}
		plugin := storageKinds()[st.Type]
		plugin.content = append(slices.Clone(plugin.content), splitList(r.str("content"))...)
		if err := st.set(plugin, p); err != nil {
			return fmt.Errorf("/storage: %s: %w", st.ID, err)
		}
	}
	for _, n := range s.Nodes {
		seen, err := a.rows("/nodes/" + n.Name + "/storage")
		if err != nil {
			return err
		}
		for _, r := range seen {
			st := add(r)
			if st.Total = max(st.Total, r.num("total")); len(config) == 0 {
				st.Content, st.Shared, st.Disabled = splitList(r.str("content")), Params(r).Bool("shared"), !Params(r).Bool("enabled")
			}
		}
	}
	return nil
}

func (s *State) guestsFrom(a answers) error {
	s.Guests = map[int]*Guest{}
	list, err := a.rows("/cluster/resources?type=vm", "/cluster/resources")
	if err != nil {
		return err
	}
	for _, r := range list {
		kind := r.str("type")
		if kind != kindQemu && kind != kindLXC {
			continue
		}
		g := &Guest{VMID: int(r.num("vmid")), Kind: kind, Node: r.str("node")}
		g.complete()
		if g.Running = r.str("status") == "running"; g.Running {
			g.PID, g.Started = 2000+g.VMID, time.Now().Add(-time.Duration(r.num("uptime"))*time.Second)
		}
		if err := g.fromAnswers(a, "/nodes/"+g.Node+"/"+kind+"/"+decimal(g.VMID)); err != nil {
			return err
		}
		s.Guests[g.VMID] = g
	}
	return nil
}

// take enters the keys of an answered config.
func (g *Guest) take(r row, into Section) (raw []string) {
	for k, v := range r {
		if k == "digest" {
			continue
		}
		if pairs, ok := v.([]any); ok && k == "lxc" {
			for _, p := range pairs {
				if kv, ok := p.([]any); ok && len(kv) == 2 {
					raw = append(raw, text(kv[0])+": "+text(kv[1]))
				}
			}
			continue
		}
		into[k] = text(v)
		if k == "description" && g.Kind == kindLXC {
			into[k] = strings.TrimSuffix(into[k], "\n")
		}
	}
	return raw
}

func (g *Guest) fromAnswers(a answers, path string) error {
	conf, err := a.object(path+"/config?current=1", path+"/config")
	if err != nil {
		return err
	}
	g.Raw = g.take(conf, g.Config)
	pending, err := a.rows(path + "/pending")
	if err != nil {
		return err
	}
	for _, r := range pending {
		k := r.str("key")
		if p, ok := r["pending"]; ok {
			g.Pending[k] = text(p)
		}
		if d := r.num("delete"); d > 0 {
			g.Delete[k] = d > 1
		}
		if v, ok := r["value"]; ok && k != "digest" && (len(g.Pending) > 0 || len(g.Delete) > 0) && k != "lxc" && g.Config[k] == "" {
			g.Config[k] = text(v)
		}
	}
	list, err := a.rows(path + "/snapshot")
	if err != nil {
		return err
	}
	for _, r := range list {
		if r.str("name") == "current" {
			continue
		}
		snap := &Snapshot{Name: r.str("name"), Parent: r.str("parent"), Description: strings.TrimRight(r.str("description"), "\n"), Time: time.Unix(r.num("snaptime"), 0), Config: Section{}}
		c, err := a.object(path+"/snapshot/"+snap.Name+"/config", path+"/config?snapshot="+snap.Name)
		if err != nil {
			return err
		}
		section := Section{}
		snap.Raw = g.take(c, section)
		snap.VMState = section["vmstate"]
		snap.Config = snapshotConfig(section)
		g.Snapshots = append(g.Snapshots, snap)
	}
	return nil
}

func (s *State) volumesFrom(a answers) error {
	s.Volumes = map[string]*Volume{}
	for _, n := range s.Nodes {
		for _, st := range s.Storages {
			list, err := a.rows("/nodes/" + n.Name + "/storage/" + st.ID + "/content")
			if err != nil {
				return err
			}
			for _, r := range list {
				v := &Volume{
					ID: r.str("volid"), Node: st.volNode(n.Name), Owner: int(r.num("vmid")), Content: r.str("content"), Format: r.str("format"),
					Size: r.num("size"), Used: r.num("used"), Created: time.Unix(r.num("ctime"), 0), Notes: r.str("notes"), Protected: Params(r).Bool("protected"),
				}
				if v.Content != contentImages && v.Content != contentRootdir {
					v.Used = v.Size
				}
				s.Volumes[volumeKey(v.Node, v.ID)] = v
			}
		}
	}
	return nil
}

func (s *State) poolsFrom(a answers) error {
	s.Pools = map[string]*Pool{}
	type answer struct {
		Comment string `json:"comment"`
		Members []row  `json:"members"`
	}
	for _, path := range sortedKeys(a) {
		var r answer
		id, ok := strings.CutPrefix(path, "/pools/")
		if asked, listed := strings.CutPrefix(path, "/pools?poolid="); listed {
			var list []answer
			var err error
			if id, err = url.QueryUnescape(asked); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := decodeNumbers(a[path], &list); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if ok = len(list) == 1; ok {
				r = list[0]
			}
		} else if ok {
			if err := decodeNumbers(a[path], &r); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		if !ok {
			continue
		}
		p := &Pool{ID: id, Comment: r.Comment, VMs: map[int]bool{}, Storages: map[string]bool{}}
		for _, m := range r.Members {
			if id := int(m.num("vmid")); id != 0 {
				p.VMs[id] = true
			} else if st := m.str("storage"); st != "" {
				p.Storages[st] = true
			}
		}
		s.Pools[id] = p
	}
	return nil
}

func (s *State) clusterFrom(a answers) error {
	options, err := a.object("/cluster/options")
	if err != nil {
		return err
	}
	for k, v := range options {
		switch v := v.(type) {
		case map[string]any:
			var parts []string
			for _, sub := range sortedKeys(v) {
				t := strings.ReplaceAll(text(v[sub]), ",", ";")
				parts = append(parts, sub+"="+t)
			}
			s.Datacenter[k] = strings.Join(parts, ",")
		case []any:
			if k != "allowed-tags" {
				s.Datacenter[k] = strings.ReplaceAll(text(v), ",", ";")
			}
		default:
			if t := text(v); t != "" && k != "digest" {
				s.Datacenter[k] = t
			}
		}
	}
	ha, err := a.rows("/cluster/ha/resources")
	if err != nil {
		return err
	}
	for _, r := range ha {
		if s.HA == nil {
			s.HA = map[string]*HAResource{}
		}
		s.HA[r.str("sid")] = &HAResource{SID: r.str("sid"), State: orElse(r.str("state"), "started"), Group: r.str("group"), Comment: r.str("comment")}
	}
	return nil
}
