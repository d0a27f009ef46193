package adopt

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/wire"
)

// group is one file of one storage, on every node that has it.
type group struct {
	kind     *kind.Kind
	storage  string
	filename string
	volid    string
	nodes    []string
	size     int64
	name     string
	fault    string         // why no manifest can name it
	declared *kind.Resource // in another file than adopt's own, for all of its nodes
	resource *kind.Resource
	wanted   bool // picked, or referred to by a picked guest
}

func placeOf(node, volid string) string { return node + " " + volid }

// artifacts finds the files of all storages and names them.
func (m *maker) artifacts() {
	byVolume := map[string]*group{}
	for _, st := range m.stores() {
		for _, volid := range slices.Sorted(maps.Keys(m.s.Contents[st].Files)) {
			storage, rest, ok := wire.SplitVolID(volid)
			content, file, isFile := strings.Cut(rest, "/")
			k, known := kind.OfContent(content)
			if !ok || !isFile || !known || strings.Contains(file, "/") {
				continue
			}
			g := byVolume[volid]
			if g == nil {
				g = &group{kind: k, storage: storage, filename: file, volid: volid, size: m.s.Contents[st].Files[volid]}
				byVolume[volid] = g
			}
			g.nodes = append(g.nodes, st.Node)
		}
	}
	for _, volid := range slices.Sorted(maps.Keys(byVolume)) {
		g := byVolume[volid]
		slices.Sort(g.nodes)
		g.nodes = slices.Compact(g.nodes)
		m.all = append(m.all, g)
	}
	for _, k := range kind.All {
		if k.Content != "" {
			m.nameFiles(k)
		}
	}
	for _, g := range m.all {
		m.settleFile(g)
	}
}

func (m *maker) stores() []live.Store {
	return slices.SortedFunc(maps.Keys(m.s.Contents), func(a, b live.Store) int {
		if a.Node != b.Node {
			return strings.Compare(a.Node, b.Node)
		}
		return strings.Compare(a.Storage, b.Storage)
	})
}

// extension is what a file name loses to become a name.
var extension = regexp.MustCompile(`(?i)(\.tar)?\.(iso|img|gz|xz|zst|qcow2|vmdk|raw|ova)$`)

func (m *maker) nameFiles(k *kind.Kind) {
	var list []*group
	for _, g := range m.all {
		if g.kind == k {
			list = append(list, g)
		}
	}
	n := &names{kind: k, taken: m.o.Known.taken(k)}
	got := n.all(len(list),
		func(i int) string { return extension.ReplaceAllString(list[i].filename, "") },
		func(i int) string { return list[i].storage },
		func(i int) string { return m.knownFile(list[i]) })
	for i, g := range list {
		g.name = got[i]
	}
}

// knownFile is the name that a file has in the manifests that are there.
// Nodes that a file other than adopt's own declares are left to that one.
func (m *maker) knownFile(g *group) string {
	var rest []string
	name := ""
	for _, node := range g.nodes {
		p, ok := m.o.Known.at[placeOf(node, g.volid)]
		switch {
		case ok && !p.own:
			g.declared = p.resource
		case ok:
			name = p.resource.Name
			fallthrough
		default:
			rest = append(rest, node)
		}
	}
	switch {
	case len(rest) == 0 && g.declared != nil:
		return "" // its name is in another file, and is taken there
	case g.declared != nil:
		g.declared = nil
		g.nodes = rest
	}
	return name
}

// settleFile makes the resource of a file and lets guests find it.
func (m *maker) settleFile(g *group) {
	if g.declared != nil {
		g.name, g.resource = g.declared.Name, g.declared
	} else {
		spec := g.kind.New()
		spec.(kind.ArtifactSpec).Fill(g.nodes, g.storage, g.filename)
		d := newDraft(g.kind, g.name, m.file(g.kind, g.name), field.ToNode(spec.Shape(nil), nil))
		res, problems := d.parse()
		if len(problems) > 0 {
			g.fault = problems[0].Text
			return
		}
		g.resource = res
	}
	for _, node := range g.nodes {
		m.files[placeOf(node, g.volid)] = g
	}
	g.wanted = m.o.Select.file(g.kind, g.name)
}

// writeFiles makes the manifests of the wanted files.
func (m *maker) writeFiles() {
	for _, g := range m.all {
		switch {
		case g.fault != "" && m.o.Select.Empty():
			m.refuse(g.kind.Name, g.volid, joinNodes(g.nodes), "no manifest can name this file: %s", g.fault)
			continue
		case g.fault != "" || !g.wanted:
			continue
		}
		out := Manifest{Kind: g.kind, Name: g.name, ID: g.volid, Nodes: g.nodes, resource: g.resource}
		if g.declared != nil {
			out.Declared, out.File = g.declared.File, g.declared.File
			m.out.Manifests = append(m.out.Manifests, out)
			continue
		}
		out.File = m.file(g.kind, g.name)
		spec := g.kind.New()
		spec.(kind.ArtifactSpec).Fill(g.nodes, g.storage, g.filename)
		shape := spec.Shape(nil)
		d := newDraft(g.kind, g.name, out.File, field.ToNode(shape, nil))
		d.unknowns(shape, func(r *field.Row) string { return urlGuess(g) }, &out)
		out.Text = d.print(m.o.Cluster+": "+g.volid+" on "+joinNodes(g.nodes), nil)
		m.out.Manifests = append(m.out.Manifests, out)
	}
}

// pveSystem is how Proxmox names the archives that it publishes.
var pveSystem = regexp.MustCompile(`^[a-z]+-[0-9.]+-[a-z]+_[0-9][0-9A-Za-z.-]*_(amd64|arm64)\.tar\.(gz|xz|zst)$`)

// urlGuess is where a file may have come from.
func urlGuess(g *group) string {
	if g.kind.Content == "vztmpl" && pveSystem.MatchString(g.filename) {
		return "perhaps http://download.proxmox.com/images/system/" + g.filename + " (compare the checksum)"
	}
	return ""
}

func (m *maker) file(k *kind.Kind, name string) string {
	if f := m.o.Known.file(k, name); f != "" {
		return f
	}
	return path.Join(k.Folder, m.o.Cluster, name+".yaml")
}

func joinNodes(nodes []string) string { return strings.Join(nodes, ", ") }

// joinWords is a list in words.
func joinWords(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

// archives are the container templates that a node has.
func (m *maker) archives(node string) []*group {
	var out []*group
	for _, g := range m.all {
		if g.kind.Content == "vztmpl" && g.resource != nil && slices.Contains(g.nodes, node) {
			out = append(out, g)
		}
	}
	return out
}
