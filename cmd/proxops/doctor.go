package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/show"
	"github.com/spf13/cobra"
)

func (a *app) doctorCmd() *cobra.Command {
	return &cobra.Command{
		Use: "doctor --cluster NAME", GroupID: "more", Args: noArgs,
		Short: "Compare the token's rights with what the manifests need",
		Long: `Read what the token may do and compare it with what making and keeping every
object of the composition needs, also where the object could not be made anew.
It prints what is lacking and for which field, what is more than needed, and the
pveum lines of roles that fit exactly: those that the cluster does not have yet,
and where they are granted. A role's name stands for what it holds. Only GET
requests are sent.

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
	need, lacks := needed(plan.Rights(c, snap), snap)
	section(a.out, bold("lacks"), lacks)
	section(a.out, bold("has more than it needs"), excess(snap, need))
	section(a.out, bold("only root@pam itself may do"), plan.RootFields(c, snap))
	who, lead, note := grantees(snap.Identity, len(lacks) > 0)
	if note != "" {
		fmt.Fprintf(a.out, "\n%s\n", show.Clean(note))
	}
	fmt.Fprintf(a.out, "\n%s\n", bold("roles that fit exactly, on a node's shell:"))
	for _, l := range append(lead, pveum(who, need, roles(ctx, client.Reader()))...) {
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

// needed lists the privileges by path, and those that the token does not hold
// with the first object and field that needs them. Of alternatives one that is
// needed anyway counts, else the one that is held, else the first.
func needed(asks []plan.Ask, snap *live.Snapshot) (need rights, lacks []string) {
	need = rights{}
	for _, a := range asks {
		if !a.Held(snap) {
			lacks = append(lacks, fmt.Sprintf("%s on %s (%s)", strings.Join(a.Privs, " or "), strings.Join(a.Paths, " or "), a.Why()))
		}
		if need.has(a.Need) {
			continue
		}
		path, priv := a.Paths[0], a.Privs[0]
		for _, at := range a.Paths {
			if i := slices.IndexFunc(a.Privs, func(p string) bool { return snap.Holds(at, p) }); i >= 0 {
				path, priv = at, a.Privs[i]
				break
			}
		}
		need.add(path, priv)
	}
	slices.Sort(lacks)
	return need, lacks
}

func (r rights) has(n plan.Need) bool {
	for _, path := range n.Paths {
		for _, priv := range n.Privs {
			if r[path][priv] {
				return true
			}
		}
	}
	return false
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

// roles are the cluster's roles, each with its privileges. Every user may list
// them; where that fails all the same, there are none to go by.
func roles(ctx context.Context, r *pve.Reader) map[string][]string {
	var list []struct {
		ID    string `json:"roleid"`
		Privs string `json:"privs"`
	}
	if err := r.Get(ctx, "/access/roles", nil, &list); err != nil {
		return nil
	}
	out := map[string][]string{}
	for _, x := range list {
		out[x.ID] = slices.Sorted(strings.SplitSeq(x.Privs, ","))
	}
	return out
}

// pveum gives the lines that make a role for each distinct set of privileges
// of an area, and grant it where it is needed. A role is named after what it
// holds, so that one which is there already, from an earlier run, is the right
// one; if somebody has changed it since, it is put right.
func pveum(who string, need rights, have map[string][]string) []string {
	var roles, acls []string
	for _, path := range slices.Sorted(maps.Keys(need)) {
		privs := slices.Sorted(maps.Keys(need[path]))
		name := roleName(path, privs)
		verb := "add"
		if now, there := have[name]; there {
			verb = "modify"
			if slices.Equal(now, privs) {
				verb = ""
			}
		}
		line := fmt.Sprintf("pveum role %s %s --privs %s", verb, name, strings.Join(privs, ","))
		if verb != "" && !slices.Contains(roles, line) {
			roles = append(roles, line)
		}
		propagate := ""
		if path == "/" {
			propagate = " --propagate 0"
		}
		acls = append(acls, fmt.Sprintf("pveum acl modify %s --roles %s %s%s", path, name, who, propagate))
	}
	return append(roles, acls...)
}

// roleName is the name of the role that holds just these sorted privileges.
func roleName(path string, privs []string) string {
	area := areas[slices.IndexFunc(areas[:], func(a struct{ prefix, name string }) bool { return strings.HasPrefix(path, a.prefix) })].name
	sum := sha256.Sum256([]byte(strings.Join(privs, ",")))
	return fmt.Sprintf("%s-%x", area, sum[:4])
}
