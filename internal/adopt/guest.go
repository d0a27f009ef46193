package adopt

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/yamldoc"
)

// guests makes the manifests of all picked guests, then of the files that
// they, or the selector, ask for.
func (m *maker) guests() {
	for _, k := range kind.All {
		if k.IsGuest() {
			m.guestsOf(k)
		}
	}
	m.writeFiles()
}

// guestsOf names all guests of a kind, picked or not, so that names do not
// depend on the selection, and makes the manifests of the picked ones.
func (m *maker) guestsOf(k *kind.Kind) {
	var list []*live.Guest
	for _, id := range slices.Sorted(maps.Keys(m.s.Guests)) {
		g := m.s.Guests[id]
		if of, ok := kind.Of(g.Type, g.Template); !ok || of != k {
			continue
		}
		if !m.s.Nodes[g.Node].Allowed {
			m.out.Elsewhere++
			continue
		}
		list = append(list, g)
	}
	n := &names{kind: k, taken: m.o.Known.taken(k)}
	got := n.all(len(list),
		func(i int) string {
			if t, ok := m.o.Terraform[list[i].VMID]; ok {
				return t.Name
			}
			return list[i].Name
		},
		func(i int) string { return strconv.Itoa(list[i].VMID) },
		func(i int) string {
			if p, ok := m.o.Known.at[strconv.Itoa(list[i].VMID)]; ok && p.own && p.resource.Kind == k {
				return p.resource.Name
			}
			return ""
		})
	for i, g := range list {
		if !m.o.Select.guest(k, g) {
			continue
		}
		id := strconv.Itoa(g.VMID)
		switch p, known := m.o.Known.at[id]; {
		case known && !p.own:
			m.out.Manifests = append(m.out.Manifests, Manifest{Kind: k, Name: p.resource.Name, ID: id, VMID: g.VMID,
				Nodes: []string{g.Node}, File: p.resource.File, Declared: p.resource.File, resource: p.resource})
		case g.Unknown != "":
			m.refuse(k.Name, id, g.Node, "%s", g.Unknown)
		case !g.Read:
			m.refuse(k.Name, id, g.Node, "its config was not read")
		case g.Lock == "create" || g.Lock == "clone":
			m.refuse(k.Name, id, g.Node, "it is being made, or its making broke off: adopt again once its lock (%s) is gone", g.Lock)
		default:
			m.guest(k, got[i], g)
		}
	}
}

// volumesOf names the files that drives of a node's guests refer to.
func (m *maker) volumesOf(node string, used map[*group]bool) kind.NameVolume {
	return func(volid string) (kind.Ref, bool) {
		f := m.files[placeOf(node, volid)]
		if f == nil {
			return kind.Ref{}, false
		}
		used[f] = true
		return f.resource.Ref(), true
	}
}

func (m *maker) guest(k *kind.Kind, name string, g *live.Guest) {
	used := map[*group]bool{}
	x := &adopting{m: m, g: g, spec: k.New().(kind.GuestSpec),
		out: Manifest{Kind: k, Name: name, File: m.file(k, name), ID: strconv.Itoa(g.VMID), VMID: g.VMID, Nodes: []string{g.Node}}}
	x.spec.Allocate(&g.Guest, m.volumesOf(g.Node, used))
	x.out.Gaps = hide(field.ReadInto(x.spec.Shape(&g.Guest), &g.Guest))
	x.spec.SetPlace(g.Node, g.VMID, g.Running)
	x.keys()
	x.draft(name)
	var err error
	if x.out.resource, err = x.d.settle(x.taken); err != nil {
		m.refuse(k.Name, x.out.ID, g.Node, "no manifest can say what it is: %v", err)
		return
	}
	x.extra()
	x.gaps()
	x.verify()
	for f := range used {
		f.wanted = true
	}
	m.out.Manifests = append(m.out.Manifests, x.out)
}

// adopting is one guest on its way into a manifest.
type adopting struct {
	m    *maker
	g    *live.Guest
	spec kind.GuestSpec
	d    *draft
	out  Manifest
}

// keys names the guest's public keys by entries of the secrets file, or
// leaves them alone: they never stand in a manifest.
func (x *adopting) keys() {
	h, ok := x.spec.(kind.KeyHolder)
	if !ok || len(h.Keys()) == 0 {
		return
	}
	if refs, ok := x.m.o.Keys.Refs(h.Keys()); ok {
		h.UseKeyRefs(refs)
		return
	}
	h.KeepKeys()
	x.m.out.Sentinel = append(x.m.out.Sentinel, x.g.VMID)
}

// nameKey is PVE's key of a guest's name.
func (x *adopting) nameKey() string {
	if x.g.LXC {
		return "hostname"
	}
	return "name"
}

func (x *adopting) draft(name string) {
	shape := x.spec.Shape(&x.g.Guest)
	x.d = newDraft(x.out.Kind, name, x.out.File, field.ToNode(shape, &x.g.Guest))
	if x.g.Name == name { // that is what it is when left out
		for _, r := range field.Rows(shape) {
			if r.Key == x.nameKey() {
				remove(x.d.spec, split(r.Path))
			}
		}
	}
	x.tags()
	if t, ok := x.m.o.Terraform[x.g.VMID]; ok {
		x.out.Terraform = t.Address
		if t.Module != "" {
			x.d.labels = yamldoc.Map().Put("terraform-module", yamldoc.Str(t.Module))
		}
	}
	x.d.unknowns(shape, x.guess, &x.out)
	if _, ok := x.g.Get(x.nameKey()); !ok {
		x.incomplete(Item{Path: "vmid", anyText: true, Text: fmt.Sprintf(
			"PVE has no name for this guest, so nothing shows that it is the one meant: it is left alone until metadata.annotations holds proxops/claim: \"true\", and is then named %s in PVE", name)})
	}
}

// tags spells the tags as they will stand in PVE once the claim has written
// them, so that the manifest is the same before and after.
func (x *adopting) tags() {
	n, o := x.d.spec.Get("tags"), x.m.s.Options
	if n == nil || n.Kind != yamldoc.Sequence {
		return
	}
	var tags []string
	for _, t := range n.Items {
		tags = append(tags, t.Value)
	}
	n.Items = yamldoc.Strs(plan.TagSet(tags, o)).Items
}

func (x *adopting) incomplete(i Item) { x.out.Incomplete = append(x.out.Incomplete, i) }

// guess is the archive that a container may have been made from.
func (x *adopting) guess(r *field.Row) string {
	ostype, ok := x.g.Get("ostype")
	if !ok || r.Key != "ostemplate" {
		return ""
	}
	var found []string
	for _, a := range x.m.archives(x.g.Node) {
		if strings.HasPrefix(a.filename, ostype+"-") || strings.HasPrefix(a.filename, ostype+"_") {
			found = append(found, a.resource.Name)
		}
	}
	slices.Sort(found)
	switch found = slices.Compact(found); {
	case len(found) == 0:
		return "its ostype is " + ostype
	case len(found) > 4:
		return fmt.Sprintf("its ostype is %s, perhaps %s or another of %d", ostype, strings.Join(found[:4], ", "), len(found))
	}
	return fmt.Sprintf("its ostype is %s, perhaps %s", ostype, strings.Join(found, " or "))
}

// taken makes gaps of what validation refused.
func (x *adopting) taken(path, why string) {
	found := false
	for _, r := range field.Rows(x.spec.Shape(&x.g.Guest)) {
		if r.Path != path && !strings.HasPrefix(r.Path, path+".") && !strings.HasPrefix(r.Path, path+"[") {
			continue
		}
		text, ok := x.g.Get(r.Key)
		if r.Key == "" || !ok || r.State() != field.Set {
			continue
		}
		found = true
		x.gap(r, text, why)
	}
	if !found {
		x.incomplete(Item{Path: path, Text: "left out: " + why})
	}
}

// verify reads the manifest back and holds it against the guest: what cannot
// be said is told as incomplete, and any other difference is a fault of ours.
func (x *adopting) verify() {
	r := x.out.resource
	if r == nil {
		x.out.Fault = "the manifest does not read back"
		return
	}
	for _, ref := range r.Spec.Refs() {
		if res := x.m.byRef(ref.To); res == nil {
			x.out.Fault = fmt.Sprintf("%s: there is no %s", ref.Path, ref.To)
		} else if err := ref.Bind(res); err != nil {
			x.out.Fault = fmt.Sprintf("%s: %v", ref.Path, err)
		}
	}
	for _, ref := range r.Spec.Secrets() {
		if err := ref.Bind(x.m.o.Keys.value(ref.Ref)); err != nil {
			x.out.Fault = fmt.Sprintf("%s: %v", ref.Path, err)
		}
	}
	spec := r.Spec.(kind.GuestSpec)
	d := field.Diff(spec.Shape(&x.g.Guest), &x.g.Guest)
	for _, a := range append(d.Anomalies, spec.Undeclared(&x.g.Guest)...) {
		x.incomplete(Item{Path: a.Path, Text: a.Text})
	}
	x.waiting(d)
	for _, row := range field.Rows(spec.Shape(&x.g.Guest)) {
		if row.RootOnly != "" && row.State() == field.Set {
			x.m.root = append(x.m.root, x.g.VMID)
			break
		}
	}
	nameless := x.g.Name == ""
	for _, e := range d.Edits {
		if e.Key != "tags" && !(nameless && e.Key == x.nameKey()) && x.out.Fault == "" {
			x.out.Fault = e.Key + " would be written"
		}
	}
	for _, grow := range d.Grows {
		x.out.Fault = grow.Key + " would be grown"
	}
	from := fmt.Sprintf("%s: %s %d on %s", x.m.o.Cluster, x.g.Type, x.g.VMID, x.g.Node)
	if x.out.Terraform != "" {
		from += "; in Terraform " + x.out.Terraform
	}
	x.out.Text = x.d.print(from, x.header())
}

// waiting tells what PVE does at the next restart to keys that the manifest
// does not hold.
func (x *adopting) waiting(d field.Delta) {
	ours := map[string]bool{}
	for _, c := range d.Waiting {
		key, _, _ := strings.Cut(c.Key, ".")
		ours[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(x.g.Config)) {
		switch e := x.g.Config[key]; {
		case ours[key], e.Pending == nil && !e.Delete, e.Pending != nil && e.Value != nil && *e.Pending == *e.Value:
		case e.Delete:
			x.incomplete(Item{pending: key, Text: key + " waits for a restart to be removed; the manifest does not hold it"})
		default:
			x.incomplete(Item{pending: key, Text: key + " waits for a restart to change; the manifest does not hold it"})
		}
	}
}

// header is the items that do not stand beside their field.
func (x *adopting) header() []Item {
	var out []Item
	for _, i := range x.out.Incomplete {
		if n := find(x.d.spec, i.Path); i.Path == "" || n == nil || n.Comment != "INCOMPLETE: "+i.Text {
			out = append(out, i)
		}
	}
	return out
}

func (m *maker) byRef(ref kind.Ref) *kind.Resource {
	for _, g := range m.all {
		if g.resource != nil && g.resource.Ref() == ref {
			return g.resource
		}
	}
	return nil
}
