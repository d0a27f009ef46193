package pvesim

import (
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// roles finds the roles of a user, or of a token for itself, at a path: role → whether it propagates. The deepest entry replaces
// what is inherited; at one place the user's own entry beats those of groups (facts.md M).
func (w *World) roles(authID, path string) map[string]bool {
	kind := "user"
	if strings.Contains(authID, "!") {
		kind = "token"
	}
	var got map[string]bool
	parts := []string{""}
	if path != "/" {
		parts = strings.Split(path, "/")
	}
	for i := range parts {
		here := strings.Join(parts[:i+1], "/")
		if here == "" {
			here = "/"
		}
		final := i == len(parts)-1
		at := w.rolesAt(kind, authID, here, final)
		if at == nil && kind == "user" {
			at = w.rolesAt("group", authID, here, final)
		}
		if at != nil {
			got = at
		}
	}
	if p, ok := got["NoAccess"]; ok {
		return map[string]bool{"NoAccess": p}
	}
	return got
}

func (w *World) rolesAt(kind, who, path string, final bool) map[string]bool {
	var out map[string]bool
	for _, e := range w.Access.ACL {
		if e.Path != path || e.Kind != kind || !final && !e.Propagate {
			continue
		}
		if kind == "group" {
			if g := w.Access.Groups[e.Who]; g == nil || !g.Users[who] {
				continue
			}
		} else if e.Who != who {
			continue
		}
		if out == nil {
			out = map[string]bool{}
		}
		out[e.Role] = e.Propagate
	}
	return out
}

// privs finds what a caller may do at a path: privilege → whether it propagates. What lies in a pool takes the pool's privileges
// too; a token with privilege separation has no more than its user.
func (w *World) privs(who Identity, path string) map[string]bool {
	out := map[string]bool{}
	if who.User == "root@pam" && who.Token == "" {
		for _, p := range privileges() {
			out[p] = true
		}
		return out
	}
	if who.Token != "" {
		u := w.Access.Users[who.User]
		if u == nil || u.Tokens[who.Token] == nil {
			return out
		}
		ofUser := w.privs(Identity{User: who.User}, path)
		if !u.Tokens[who.Token].Privsep {
			return ofUser
		}
		own := w.privsOf(who.AuthID(), path)
		for p, prop := range own {
			if q, ok := ofUser[p]; ok {
				out[p] = prop && q
			}
		}
		return out
	}
	return w.privsOf(who.User, path)
}

func (w *World) privsOf(authID, path string) map[string]bool {
	out := map[string]bool{}
	roles := w.roles(authID, path)
	if _, no := roles["NoAccess"]; no {
		return out
	}
	add := func(roles map[string]bool) {
		for r, prop := range roles {
			for _, p := range w.Access.Roles[r] {
				out[p] = out[p] || prop
			}
		}
	}
	add(roles)
	if pool := w.poolOfPath(path); pool != "" {
		if r := w.roles(authID, "/pool/"+pool); r != nil {
			if _, no := r["NoAccess"]; !no {
				add(r)
			}
		}
	}
	return out
}

func (w *World) poolOfPath(path string) string {
	kind, id, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	for _, name := range sortedKeys(w.Pools) {
		p := w.Pools[name]
		if kind == "storage" && p.Storages[id] || kind == "vms" && p.VMs[Params{"id": id}.Int("id", 0)] {
			return name
		}
	}
	return ""
}

// can says whether a caller holds all of the privileges at a path.
func (w *World) can(who Identity, path string, privs ...string) bool {
	have := w.privs(who, path)
	for _, p := range privs {
		if _, ok := have[p]; !ok {
			return false
		}
	}
	return true
}

// check is RPCEnvironment::check: 403 for the first privilege that the caller lacks.
func (w *World) check(who Identity, path string, privs ...string) error {
	have := w.privs(who, path)
	for _, p := range privs {
		if _, ok := have[p]; !ok {
			return permErr(path + ", " + p)
		}
	}
	return nil
}

// checkAny is RPCEnvironment::check_any: one of the privileges is enough.
func (w *World) checkAny(who Identity, path string, privs ...string) error {
	have := w.privs(who, path)
	for _, p := range privs {
		if _, ok := have[p]; ok {
			return nil
		}
	}
	return permErr(path + ", " + strings.Join(privs, "|"))
}

// permitted evaluates the rule that the schema declares for a method.
func (w *World) permitted(who Identity, rule schema.Perm, p Params) error {
	switch rule.Op {
	case "world", "all":
		return nil
	case "root":
		if who.User == "root@pam" {
			return nil
		}
		return permErr("user != root@pam")
	case "perm":
		if rule.If != "" && p.Str(rule.If) == "" {
			return permErr("")
		}
		path := fillPath(rule.Path, p)
		if rule.Any {
			return w.checkAny(who, path, rule.Privs...)
		}
		return w.check(who, path, rule.Privs...)
	case "and":
		for _, r := range rule.Args {
			if err := w.permitted(who, r, p); err != nil {
				return err
			}
		}
		return nil
	case "or":
		for _, r := range rule.Args {
			if w.permitted(who, r, p) == nil {
				return nil
			}
		}
		return permErr("")
	case "userid-param", "userid-group", "perm-modify":
		return w.permittedUser(who, rule, p)
	}
	return permErr("")
}

// permittedUser evaluates the rules about users and ACLs.
func (w *World) permittedUser(who Identity, rule schema.Perm, p Params) error {
	switch {
	case rule.Op == "perm-modify":
		return w.check(who, fillPath(rule.Path, p), "Permissions.Modify")
	case rule.Op == "userid-group":
		return w.checkAny(who, "/access/groups", rule.Privs...)
	case rule.Arg == "self":
		if who.Token == "" && who.User == p.Str("userid") {
			return nil
		}
		return permErr("")
	}
	_, realm, _ := strings.Cut(p.Str("userid"), "@")
	return w.check(who, "/access/realm/"+realm, rule.Arg)
}

// fillPath puts parameters into an ACL path.
func fillPath(path string, p Params) string {
	parts := strings.Split(path, "/")
	for i, s := range parts {
		if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") {
			parts[i] = p.Str(s[1 : len(s)-1])
		}
	}
	if out := "/" + strings.Trim(strings.Join(parts, "/"), "/"); out != "/" {
		return out
	}
	return "/"
}

// canAny says whether a caller holds one of the privileges at a path.
func (w *World) canAny(who Identity, path string, privs ...string) bool {
	return w.checkAny(who, path, privs...) == nil
}
