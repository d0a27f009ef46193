package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/wire"
)

// Ask is a right that a declared object needs.
type Ask struct {
	Need
	Ref   kind.Ref // the zero Ref for the cluster as a whole
	Field string   // the field of the manifest, or in words what it is for

	// spared is true where PVE does not ask whoever has Sys.Modify on /.
	spared bool
}

// Why names the object and the field, such as VM/web-01 options.startup.
func (a Ask) Why() string {
	if a.Ref == (kind.Ref{}) {
		return a.Field
	}
	object := a.Ref.Kind + "/" + a.Ref.Name
	return object + " " + a.Field
}

// Held reports whether the token has what is asked for.
func (a Ask) Held(s *live.Snapshot) bool {
	return a.Need.Held(s) || a.spared && s.Holds("/", "Sys.Modify") && s.Holds("/", "Sys.Audit")
}

// Rights lists what making and keeping every declared object asks for, whatever
// the token holds. What is kept may drift in any field that is declared, so
// that each counts, also where the object is right now and where it could not
// be made: an adopted container whose template nobody knows. What an edit by
// hand plugged in (another bridge, another pool) is known only while it is there.
func Rights(c *repo.Cluster, s *live.Snapshot) []Ask {
	k := keeper{maker: newMaker(c, bare(s), Policy{})}
	k.ask(kind.Ref{}, "reading the cluster", Need{Privs: []string{"Sys.Audit"}, Paths: []string{"/"}})
	pol := PolicyOf(c.Reconcile)
	for _, at := range []*live.Snapshot{bare(s), emptied(c, s)} {
		for _, a := range Make(c, at, pol).Actions {
			if a.RootOnly && a.Verb == Update {
				continue // never sent
			}
			k.action(a, at)
		}
	}
	for _, r := range k.resources {
		switch spec := r.Spec.(type) {
		case kind.GuestSpec:
			k.guest(r, spec)
		case kind.ArtifactSpec:
			k.ask(r.Ref(), "its files", Need{Privs: []string{"Datastore.Audit", "Datastore.AllocateSpace"}, Paths: []string{"/storage/" + spec.Storage()}})
		}
	}
	return narrowest(k.asks)
}

// bare is the snapshot of a token that holds nothing: what PVE asks for then is
// what it asks of everybody.
func bare(s *live.Snapshot) *live.Snapshot {
	out := *s
	out.Perms, out.RootTicket = map[string]map[string]bool{}, false
	return &out
}

// emptied is the cluster without the declared objects, so that all are made.
// Files stay that could not be fetched again.
func emptied(c *repo.Cluster, s *live.Snapshot) *live.Snapshot {
	out := bare(s)
	out.Guests, out.Contents, out.Free, out.Complete = map[int]*live.Guest{}, map[live.Store]live.Content{}, map[int]bool{}, true
	for st, content := range s.Contents {
		out.Contents[st] = live.Content{Files: maps.Clone(content.Files)}
	}
	for _, r := range c.Resources {
		switch spec := r.Spec.(type) {
		case kind.GuestSpec:
			_, id := spec.Place()
			out.Free[id] = true
		case kind.ArtifactSpec:
			if _, err := spec.Download(); err != nil {
				continue
			}
			for _, content := range out.Contents {
				delete(content.Files, spec.VolID())
			}
		}
	}
	return out
}

// keeper gathers rights.
type keeper struct {
	*maker
	asks []Ask
}

func (k *keeper) ask(ref kind.Ref, what string, needs ...Need) {
	for _, n := range needs {
		spared := slices.Contains(n.Privs, "Sys.AccessNetwork") || n.For == "tags" && strings.HasSuffix(ref.Kind, "VM")
		k.asks = append(k.asks, Ask{Need: n, Ref: ref, Field: what, spared: spared})
	}
}

func (k *keeper) action(a Action, s *live.Snapshot) {
	for _, n := range slices.Concat(Needs(a, s), tagNeeds(a.Changes, s.Options)) {
		k.ask(a.Ref, fieldOf(a.Changes, n, strings.ToLower(n.For)), n)
	}
}

// fieldOf is the path of the field that a need is for: of a card's the bridge,
// of another key's the first that is changed.
func fieldOf(changes []field.Change, n Need, none string) string {
	for _, is := range []func(key string) bool{
		func(key string) bool { return slices.Contains(n.Privs, "SDN.Use") && key == n.For+".bridge" },
		func(key string) bool { return key == n.For || strings.HasPrefix(key, n.For+".") },
	} {
		if i := slices.IndexFunc(changes, func(c field.Change) bool { return is(c.Key) }); i >= 0 {
			return changes[i].Path
		}
	}
	return none
}

// guest asks for what keeping a guest takes: reading it, its power, pruning it,
// and a write of each field.
func (k *keeper) guest(r *kind.Resource, spec kind.GuestSpec) {
	_, id := spec.Place()
	g := k.s.Guests[id]
	vm := guestPaths(Action{VMID: id}, g)
	if pool, ok := spec.Pool().Get(); ok && !slices.Contains(vm, "/pool/"+pool) {
		vm = append(vm, "/pool/"+pool)
	}
	one := func(what, priv string) { k.ask(r.Ref(), what, Need{[]string{priv}, vm, what}) }
	one("reading it", "VM.Audit")
	one("pruning it", "VM.Allocate")
	if !r.Kind.Template {
		one("its power state", "VM.PowerMgmt")
	}
	if r.Annotations.Placement == "migrate" {
		one("proxops/placement", "VM.Migrate")
	}
	now := devicesOf(g)
	for _, e := range k.writes(r, spec) {
		path := editPath(e)
		if e.RootOnly != "" && len(e.Changes) == len(e.RootPaths) {
			continue // nobody's right helps
		}
		step := UpdateOf(&field.Guest{LXC: r.Kind.Guest == "lxc", Exists: true}, []field.Edit{e})
		if e.Key == "rootfs" {
			step.Storages = nil // never made anew
		}
		if e.Delete && step.Pool == nil {
			step.Params.Set(e.Key, wire.Plain(now[e.Key]))
			step.Delete = nil
		}
		needs := updateNeeds(step, nil, vm)
		if step.Pool == nil {
			needs = withAny(step.Guest, needs, vm)
		}
		for _, n := range append(needs, tagNeeds(e.Changes, k.s.Options)...) {
			k.ask(r.Ref(), fieldOf(e.Changes, n, path), n)
		}
	}
	for _, v := range field.Volumes(spec.Shape(k.view(r, g))) {
		if v.Grow {
			a := Action{VMID: id, Verb: Resize, Do: ResizeStep{Guest: r.Kind.Guest, Key: v.Key, Storage: v.Storage}}
			k.ask(r.Ref(), v.Path+".grow", Needs(a, k.s)...)
		}
	}
}

// view is a guest that has nothing yet but what decides what the others mean:
// whether a container is privileged, where a cloud-init drive lives.
func (k *keeper) view(r *kind.Resource, g *live.Guest) *field.Guest {
	out := &field.Guest{LXC: r.Kind.Guest == "lxc", Env: field.Env{TagsCaseSensitive: k.s.Options.TagsCaseSensitive, Creating: true}}
	if g != nil && g.Read {
		out = new(field.Guest)
		*out = g.Guest
	}
	return out
}

// writes are the edits that would write each declared field: one a key, with
// the text that a new guest would get. Fields that are compared at no time
// after the guest was made are none.
func (k *keeper) writes(r *kind.Resource, spec kind.GuestSpec) []field.Edit {
	nothing := field.Guest{LXC: r.Kind.Guest == "lxc", Env: field.Env{TagsCaseSensitive: k.s.Options.TagsCaseSensitive, Creating: true}}
	_, id := spec.Place()
	view := k.view(r, k.s.Guests[id])
	made := map[string]field.Edit{}
	for _, e := range Configure(r, &nothing, k.s.Options, false, "").Edits {
		made[e.Key] = e
	}
	out := []field.Edit{made["tags"]} // ours is on every guest
	at := map[string]int{"tags": 0}
	for _, row := range field.Rows(spec.Shape(view)) {
		if row.State() == field.Absent || row.CreateOnly || row.Fixed != "" || row.Key == "" || row.Role != field.RoleToken && row.Role != field.RolePool {
			continue
		}
		i, there := at[row.Key]
		if !there {
			e, known := made[row.Key]
			if !known {
				e = field.Edit{Key: row.Key, Delete: true}
			}
			e.RootOnly, e.RootPaths, e.Changes = "", nil, nil
			i = len(out)
			at[row.Key], out = i, append(out, e)
		}
		if row.Key != "tags" {
			out[i].Changes = append(out[i].Changes, field.Change{Path: row.Path, Key: strings.TrimSuffix(row.Key+"."+row.Token, ".")})
		}
		if row.RootOnly != "" {
			out[i].RootOnly, out[i].RootPaths = row.RootOnly, append(out[i].RootPaths, row.Path)
		}
	}
	for _, v := range field.Volumes(spec.Shape(view)) {
		if _, there := at[v.Key]; there {
			continue
		}
		e, known := made[v.Key]
		if !known {
			e = field.Edit{Key: v.Key, Delete: true}
		}
		e.Changes = []field.Change{{Path: v.Path, Key: v.Key}}
		out = append(out, e)
	}
	return out
}

// narrowest leaves out what another ask, at less places or of less rights, asks
// for as well, and gives those first that leave no choice.
func narrowest(asks []Ask) []Ask {
	var out []Ask
	within := func(a, b []string) bool {
		return !slices.ContainsFunc(a, func(x string) bool { return !slices.Contains(b, x) })
	}
	slices.SortStableFunc(asks, func(a, b Ask) int { return cmp.Compare(len(a.Privs)*len(a.Paths), len(b.Privs)*len(b.Paths)) })
	for _, a := range asks {
		if !slices.ContainsFunc(out, func(b Ask) bool {
			return (a.spared || !b.spared) && within(b.Privs, a.Privs) && within(b.Paths, a.Paths)
		}) {
			out = append(out, a)
		}
	}
	must := slices.ContainsFunc(out, func(a Ask) bool { return !a.spared && slices.Equal(a.Privs, []string{"Sys.Modify"}) })
	return slices.DeleteFunc(out, func(a Ask) bool { return must && a.spared })
}

// RootFields lists, object by object, the declared fields that PVE takes from
// no token, as plans predict it.
func RootFields(c *repo.Cluster, s *live.Snapshot) []string {
	k := keeper{maker: newMaker(c, s, Policy{})}
	var out []string
	for _, r := range k.resources {
		spec, ok := r.Spec.(kind.GuestSpec)
		if !ok {
			continue
		}
		_, id := spec.Place()
		g := k.view(r, s.Guests[id])
		edits := Configure(r, g, s.Options, false, "").Edits
		blank := *g
		blank.Config = map[string]field.Entry{}
		if now, ok := g.Config["unprivileged"]; ok {
			blank.Config["unprivileged"] = now
		}
		for _, e := range slices.Concat(edits, Configure(r, &blank, s.Options, false, "").Edits) {
			for _, path := range e.RootPaths {
				out = append(out, fmt.Sprintf("%s/%s %s: %s", r.Kind.Name, r.Name, path, e.RootOnly))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
