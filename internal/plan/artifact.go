package plan

import (
	"fmt"
	"slices"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/wire"
)

// artifact plans one ISO, CTTemplate or DiskImage on each of its nodes. The
// file's presence is all that is compared: what the URL holds by now says
// nothing about it, and files are never deleted.
func (m *maker) artifact(r *kind.Resource, spec kind.ArtifactSpec) {
	nodes := slices.Sorted(slices.Values(spec.Nodes()))
	fetch := map[string]*object{} // by storage when shared: one download serves all nodes
	for _, node := range slices.Compact(nodes) {
		o := m.object(r, node, 0, spec.VolID())
		content, read := m.s.Contents[live.Store{Node: node, Storage: spec.Storage()}]
		n, known := m.s.Nodes[node]
		_, present := content.Files[spec.VolID()]
		switch {
		case !known:
			o.fault("nodes", "the cluster has no node %s", node)
			o.block(node, "the cluster has no node "+node)
			o.done("", "")
		case !n.Online || !read || content.Err != "":
			why := content.Err
			if why == "" {
				why = fmt.Sprintf("node %s does not answer", node)
			}
			o.block(node, why)
			o.done(Unknown, why)
		case present:
			o.done(Converged, "")
		default:
			m.download(o, spec, fetch)
		}
	}
	for _, o := range fetch {
		o.done(Desired, "")
	}
}

// download plans the fetch of a missing file, or adds a node to the one that
// already serves its shared storage.
func (m *maker) download(o *object, spec kind.ArtifactSpec, fetch map[string]*object) {
	node, storage := o.row.Node, spec.Storage()
	if m.s.Storages[live.Store{Node: node, Storage: storage}].Shared {
		if first := fetch[""]; first != nil {
			step := first.actions[0].Do.(DownloadStep)
			step.Nodes = append(step.Nodes, node)
			first.actions[0].Do = step
			o.done(Desired, "comes with the download on "+first.row.Node)
			return
		}
	}
	params, err := spec.Download()
	if err != nil {
		o.faultOf(err)
		o.block(node, err.Error())
		o.done("", "")
		return
	}
	if !m.storageFits(o, node, "storage", storage, o.r.Kind.Content) {
		o.block(node, "its storage does not fit")
		o.done("", "")
		return
	}
	step := DownloadStep{Storage: storage, Filename: spec.Filename(), Nodes: []string{node}}
	for _, p := range params {
		step.Params.Set(p.Key, wire.Plain(p.Value))
	}
	o.act(Action{Verb: Download, Why: "not on the storage", Do: step})
	m.making[o.row.Ref] = true
	key := node
	if m.s.Storages[live.Store{Node: node, Storage: storage}].Shared {
		key = ""
	}
	fetch[key] = o
}
