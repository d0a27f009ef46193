package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/show"
	"github.com/spf13/cobra"
)

func (a *app) doctorCmd() *cobra.Command {
	return &cobra.Command{
		Use: "doctor --cluster NAME", GroupID: "more", Args: noArgs,
		Short: "Compare the token's rights with what the manifests need",
		Long: `Read what the token may do and compare it with what making and keeping every
object of the composition needs. It prints what is lacking, what is more than
needed, and the pveum lines of roles that fit exactly. Only GET requests are
sent.

Exit status: 0, or 1 when a right is lacking.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
}

// rights are privileges by ACL path.
type rights map[string]map[string]bool

func (r rights) add(path, priv string) {
	if r[path] == nil {
		r[path] = map[string]bool{}
	}
	r[path][priv] = true
}

func (a *app) doctor(ctx context.Context) error {
	c, client, err := a.reader(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	snap, err := live.Read(ctx, client.Reader(), reconcile.Want(c))
	if err != nil {
		return err
	}
	if err := live.Survey(ctx, client.Reader(), snap, c.Config.Nodes); err != nil {
		return err
	}
	bold := func(s string) string { return show.Bold(a.style(a.out), s) }
	fmt.Fprintf(a.out, "%s %s on PVE %s\n", bold(c.Name+":"), show.Clean(snap.Identity), show.Clean(snap.Version))
	if snap.RootTicket {
		fmt.Fprintln(a.out, "root@pam logged in with a password may do everything; an API token with a role of its own is safer")
		return nil
	}
	need, lacks := needed(c, snap)
	section(a.out, bold("lacks"), lacks)
	section(a.out, bold("has more than it needs"), excess(snap, need))
	section(a.out, bold("only root@pam itself may do"), rootOnly(c, snap))
	who, lead, note := grantees(snap.Identity, len(lacks) > 0)
	if note != "" {
		fmt.Fprintf(a.out, "\n%s\n", show.Clean(note))
	}
	fmt.Fprintf(a.out, "\n%s\n", bold("roles that fit exactly, on a node's shell:"))
	for _, l := range append(lead, pveum(who, need)...) {
		fmt.Fprintln(a.out, "  "+l)
	}
	if len(lacks) > 0 {
		return exit(1)
	}
	return nil
}

func section(w io.Writer, title string, lines []string) {
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, l := range lines {
		fmt.Fprintln(w, "  "+show.Clean(l))
	}
	if len(lines) == 0 {
		fmt.Fprintln(w, "  nothing")
	}
}

// fresh is the plan that makes every object from nothing: what PVE asks for
// then covers what keeping them takes.
func fresh(c *repo.Cluster, snap *live.Snapshot) (plan.Plan, *live.Snapshot) {
	empty := *snap
	empty.Guests, empty.Contents, empty.Free, empty.Complete = map[int]*live.Guest{}, map[live.Store]live.Content{}, map[int]bool{}, true
	for st := range snap.Contents {
		empty.Contents[st] = live.Content{Files: map[string]int64{}}
	}
	for _, r := range c.Resources {
		if g, ok := r.Spec.(kind.GuestSpec); ok {
			_, id := g.Place()
			empty.Free[id] = true
		}
	}
	return plan.Make(c, &empty, plan.PolicyOf(c.Reconcile)), &empty
}

// needed lists the privileges by path, and those that the token does not hold.
// Of alternatives the one that is held counts, else the first.
func needed(c *repo.Cluster, snap *live.Snapshot) (rights, []string) {
	need, lacks := rights{}, map[string]bool{}
	ask := func(n plan.Need) {
		for _, path := range n.Paths {
			for _, priv := range n.Privs {
				if snap.Holds(path, priv) {
					need.add(path, priv)
					return
				}
			}
		}
		need.add(n.Paths[0], n.Privs[0])
		lacks[strings.Join(n.Privs, " or ")+" on "+strings.Join(n.Paths, " or ")] = true
	}
	all, empty := fresh(c, snap)
	now := plan.Make(c, snap, plan.PolicyOf(c.Reconcile))
	for _, a := range all.Actions {
		for _, n := range plan.Needs(a, empty) {
			ask(n)
		}
	}
	for _, a := range now.Actions {
		for _, n := range plan.Needs(a, snap) {
			ask(n)
		}
	}
	for _, n := range reading(c) {
		ask(n)
	}
	return need, slices.Sorted(maps.Keys(lacks))
}

// reading is what a cycle's reads need, and what a guest needs to be kept:
// started, stopped, pruned.
func reading(c *repo.Cluster) []plan.Need {
	out := []plan.Need{{Privs: []string{"Sys.Audit"}, Paths: []string{"/"}, For: "reading the cluster"}}
	for _, r := range c.Resources {
		switch spec := r.Spec.(type) {
		case kind.GuestSpec:
			_, id := spec.Place()
			path := "/vms/" + strconv.Itoa(id)
			out = append(out, plan.Need{Privs: []string{"VM.Audit"}, Paths: []string{path}, For: "reading it"})
			if !r.Kind.Template {
				out = append(out, plan.Need{Privs: []string{"VM.PowerMgmt"}, Paths: []string{path}, For: "its power state"})
			}
		case kind.ArtifactSpec:
			out = append(out, plan.Need{Privs: []string{"Datastore.Audit", "Datastore.AllocateSpace"}, Paths: []string{"/storage/" + spec.Storage()}, For: "listing its files"})
		}
	}
	return out
}

// rootOnly names fields that PVE takes from no token.
func rootOnly(c *repo.Cluster, snap *live.Snapshot) []string {
	all, _ := fresh(c, snap)
	var out []string
	for _, a := range all.Actions {
		if a.RootOnly {
			out = append(out, a.Ref.String()+": "+a.Refused)
		}
	}
	return out
}

// excess lists privileges that nothing needs, and those that reach further
// than needed.
func excess(snap *live.Snapshot, need rights) []string {
	wanted := map[string][]string{}
	for _, path := range slices.Sorted(maps.Keys(need)) {
		for priv := range need[path] {
			wanted[priv] = append(wanted[priv], path)
		}
	}
	over, wide := map[string][]string{}, map[string][]string{}
	for _, path := range slices.Sorted(maps.Keys(snap.Perms)) {
		for _, priv := range slices.Sorted(maps.Keys(snap.Perms[path])) {
			switch paths := wanted[priv]; {
			case len(paths) == 0:
				over[path] = append(over[path], priv)
			case snap.Perms[path][priv] && !slices.Contains(paths, path) && !inherits(snap, path, priv):
				wide[path] = append(wide[path], priv)
			}
		}
	}
	var out []string
	for _, path := range slices.Sorted(maps.Keys(over)) {
		if left := notAbove(over, path); len(left) > 0 {
			out = append(out, "on "+path+": "+strings.Join(left, ", "))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(wide)) {
		out = append(out, "on "+path+" and all below it, needed only further below: "+strings.Join(wide[path], ", "))
	}
	return out
}

// inherits says whether a privilege at path comes from above, where it is
// told already.
func inherits(snap *live.Snapshot, path, priv string) bool {
	for _, p := range above(path) {
		if snap.Perms[p][priv] {
			return true
		}
	}
	return false
}

func notAbove(over map[string][]string, path string) []string {
	return slices.DeleteFunc(slices.Clone(over[path]), func(priv string) bool {
		return slices.ContainsFunc(above(path), func(p string) bool { return slices.Contains(over[p], priv) })
	})
}

// above are the paths above one, the nearest first.
func above(path string) []string {
	var out []string
	for path != "/" {
		i := strings.LastIndexByte(path, '/')
		if path = path[:max(i, 0)]; path == "" {
			path = "/"
		}
		out = append(out, path)
	}
	return out
}

// areas name the roles by the part of the ACL tree that they are for.
var areas = [...]struct{ prefix, name string }{
	{"/vms/", "ProxOpsGuest"}, {"/storage/", "ProxOpsStorage"}, {"/nodes/", "ProxOpsNode"}, {"/sdn/", "ProxOpsNetwork"},
	{"/pool/", "ProxOpsPool"}, {"/mapping/", "ProxOpsMapping"}, {"/", "ProxOpsCluster"},
}

// grantees says to whom the roles are given, as the last words of a pveum line,
// with the lines that must come before and what there is to say of it.
//
// root@pam needs no role and takes none: PVE never asks for its rights. Its
// token without privilege separation is the same; one with it has only what it
// was given itself. With another user's token both must hold a right where
// privileges are separate, and the user alone where they are not.
func grantees(identity string, lacking bool) (who string, lead []string, note string) {
	user, _, token := strings.Cut(identity, "!")
	switch {
	case user == "root@pam" && lacking:
		return "--tokens '" + identity + "'", nil, ""
	case user == "root@pam":
		const own = "proxops@pve"
		return "--users " + own, []string{"pveum user add " + own, "pveum user token add " + own + " gitops --privsep 0"},
			identity + " has the rights of root@pam and needs no role; a token of a user of its own has only what it needs:"
	case token:
		return "--users " + user + " --tokens '" + identity + "'", nil, ""
	}
	return "--users " + user, nil, ""
}

// pveum gives the lines that make a role for each distinct set of privileges
// of an area, and grant it where it is needed.
func pveum(who string, need rights) []string {
	role := map[string]string{} // area and privileges → role
	count := map[string]int{}
	var roles, acls []string
	for _, path := range slices.Sorted(maps.Keys(need)) {
		area := areas[slices.IndexFunc(areas[:], func(a struct{ prefix, name string }) bool { return strings.HasPrefix(path, a.prefix) })].name
		privs := strings.Join(slices.Sorted(maps.Keys(need[path])), ",")
		if role[area+privs] == "" {
			count[area]++
			name := area
			if n := count[area]; n > 1 {
				name += strconv.Itoa(n)
			}
			role[area+privs] = name
			roles = append(roles, fmt.Sprintf("pveum role add %s --privs %s", name, privs))
		}
		propagate := ""
		if path == "/" {
			propagate = " --propagate 0"
		}
		acls = append(acls, fmt.Sprintf("pveum acl modify %s --roles %s %s%s", path, role[area+privs], who, propagate))
	}
	return append(roles, acls...)
}
