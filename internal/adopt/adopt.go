// Package adopt turns what a cluster holds into manifests, without touching
// it. It reads through a pve.Reader, which can send nothing but GET requests,
// and it reads fields through the rows that plan compares with, so that an
// adopted manifest differs from its guest in the ownership tag alone.
//
// Whatever a manifest cannot say is told: a key without a field is a Gap, a
// thing that a human must decide is an Item and stands as an INCOMPLETE
// comment in the manifest.
package adopt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/pve"
)

// Options say what to make manifests of, and how.
type Options struct {
	Cluster string
	Select  Selector
	// Extra puts keys without a field into spec.extra where they may stand
	// there: not those of root@pam, and not PVE's own records.
	Extra bool
	// Known are the manifests that are there already: objects keep their names
	// and files. nil = none.
	Known *Known
	// Keys names public keys by entries of the cluster's secrets file; nil =
	// there is none.
	Keys *KeyRing
	// Terraform are the names that guests have in a Terraform state, by vmid.
	Terraform map[int]Terraform
}

// Item is something of one manifest that a human must look at.
type Item struct {
	Path string `json:"path"` // in the spec; "" = the manifest as a whole
	Text string `json:"text"`
	// Unknown says that PVE does not report the field: nothing is wrong while
	// the object lives.
	Unknown bool `json:"unknown"`
	// anyText lets every anomaly at Path count as this item.
	anyText bool
	// pending is a key whose change waits for a restart and is not in the
	// manifest.
	pending string
}

// Manifest is one object as a file.
type Manifest struct {
	Kind       *kind.Kind
	Name       string // metadata.name
	File       string // from the repository root, with slashes
	ID         string // the vmid, or the volume id of an artifact
	VMID       int    // 0 for artifacts
	Nodes      []string
	Text       []byte // nil where Declared is set
	Incomplete []Item
	Gaps       []field.Gap
	// Declared is another file that declares the object already, so that none
	// is made; "" = none does.
	Declared  string
	Terraform string // the address in the Terraform state; "" = not in it
	// Fault is a difference between the manifest and what it was made of that
	// nothing explains: an error in this program.
	Fault string

	resource *kind.Resource
}

// Ref names the object.
func (m *Manifest) Ref() kind.Ref { return kind.Ref{Kind: m.Kind.Name, Name: m.Name} }

// Refusal is an object that no manifest can be made of.
type Refusal struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Node string `json:"node"`
	Text string `json:"text"`
}

// Result is all that one cluster gives.
type Result struct {
	Cluster   string
	Manifests []Manifest // in the order of kind.All, then by name
	Refused   []Refusal  // what could not be adopted and why
	Gaps      []Group    // keys without a field, by key
	Hints     []string
	Passwords []int // guests with a password, which PVE does not give back
	Sentinel  []int // guests whose public keys stand in no secrets file
	Elsewhere int   // guests on nodes that are not on the allow-list
	Reads     int64 // GETs
	Complete  bool  // false when something that should have been read was not
}

// Contents are the content types of the kinds that are files.
func contents() []string {
	var out []string
	for _, k := range kind.All {
		if k.Content != "" {
			out = append(out, k.Content)
		}
	}
	return out
}

// Read reads what is to be adopted: one listing of the cluster and one of each
// storage with files, and one request a guest. want names the cluster, its
// nodes and who asks. No guest is locked and no task started.
func Read(ctx context.Context, r *pve.Reader, want live.Want, sel Selector) (*live.Snapshot, error) {
	before := r.Stats().Reads
	rows, err := r.Resources(ctx)
	if err != nil {
		return nil, err
	}
	online := map[string]bool{}
	for _, row := range rows {
		if row.Type == "node" {
			online[row.Node] = row.Status != "offline" && slices.Contains(want.Nodes, row.Node)
		}
	}
	want.All, want.RawLines, want.Tag, want.Guests = sel.Empty(), true, "", map[int]live.Declared{}
	want.Stores = map[live.Store][]string{}
	shared := map[string]bool{}
	for _, row := range rows { // sorted by id, so that a shared storage is read on its first node
		switch {
		case row.IsGuest() && online[row.Node] && !sel.Empty() && sel.row(row):
			want.Guests[row.VMID] = live.Declared{Running: row.Status == "running"}
		case row.Type == "storage" && online[row.Node] && row.Status == "available" && holdsFiles(row.Content) && !shared[row.Storage]:
			shared[row.Storage] = row.Shared
			want.Stores[live.Store{Node: row.Node, Storage: row.Storage}] = row.Content
		}
	}
	snap, err := live.Read(ctx, r, want)
	if err != nil {
		return nil, err
	}
	sharedContents(snap)
	snap.Calls = r.Stats().Reads - before
	return snap, nil
}

// sharedContents gives every node that has a shared storage what was read of it
// on one.
func sharedContents(s *live.Snapshot) {
	for st, c := range maps.Clone(s.Contents) {
		for other, x := range s.Storages {
			n := s.Nodes[other.Node]
			if other.Storage == st.Storage && x.Shared && x.Active && n.Allowed && n.Online && s.Storages[st].Shared {
				s.Contents[other] = c
			}
		}
	}
}

func holdsFiles(content []string) bool {
	return slices.ContainsFunc(contents(), func(c string) bool { return slices.Contains(content, c) })
}

// Make makes the manifests of a snapshot. It is a function of its arguments:
// equal ones give equal bytes.
func Make(s *live.Snapshot, o Options) Result {
	if o.Known == nil {
		o.Known = &Known{}
	}
	m := &maker{s: s, o: o, out: Result{Cluster: o.Cluster, Reads: s.Calls, Complete: s.Complete}, files: map[string]*group{}, families: map[*kind.Kind]map[string]bool{}}
	for _, k := range kind.All {
		m.families[k] = familiesOf(k)
	}
	m.artifacts()
	m.guests()
	m.unread()
	slices.SortStableFunc(m.out.Manifests, func(a, b Manifest) int {
		if a.Kind != b.Kind {
			return slices.Index(kind.All, a.Kind) - slices.Index(kind.All, b.Kind)
		}
		return strings.Compare(a.Name, b.Name)
	})
	slices.SortStableFunc(m.out.Refused, func(a, b Refusal) int { return strings.Compare(a.ID, b.ID) })
	m.out.Gaps = groups(m.out.Manifests)
	m.hints()
	return m.out
}

// maker is one Make under way.
type maker struct {
	s     *live.Snapshot
	o     Options
	out   Result
	files map[string]*group // artifacts by node and volume id
	all   []*group
	root  []int // guests with fields that only root@pam may write
	raw   []int // containers with raw lines
	// families are the key families of the kinds' lists.
	families map[*kind.Kind]map[string]bool
}

func (m *maker) refuse(kindName, id, node, format string, args ...any) {
	m.out.Refused = append(m.out.Refused, Refusal{Kind: kindName, ID: id, Node: node, Text: fmt.Sprintf(format, args...)})
}

// unread tells what of the allowed nodes could not be read.
func (m *maker) unread() {
	for _, p := range m.s.Problems {
		if !strings.HasPrefix(p, "guest ") { // told with its guest
			m.refuse("", "", "", "not read: %s", p)
		}
	}
}
