package pvesim

import "strings"

// roles finds the roles of a user, or of a token for itself, at a path: role → whether it propagates. Walking down, an entry replaces
// all that is inherited; at one place the user's own entries beat those of groups, entries for one user at one place add up
// (facts.md M, au-291 to au-299).
func (w *World) roles(authID, path string) map[string]bool {
	kind := "user"
	if strings.Contains(authID, "!") {
		kind = "token"
	}
	parts := strings.Split(path, "/")
	for len(parts) > 1 && parts[len(parts)-1] == "" { // as Perl's split drops empty fields at the end
		parts = parts[:len(parts)-1]
	}
	var got map[string]bool
	here := "/"
	for i, part := range parts {
		if part != "" {
			here = strings.TrimSuffix(here, "/") + "/" + part
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

// privs finds what a caller may do at a path: privilege → whether it propagates. root@pam by ticket may do all; a token without
// privilege separation may do what its user may, one with it has what is granted to the token, as far as the user has that too.
func (w *World) privs(who Identity, path string) map[string]bool {
	out := map[string]bool{}
	if who.Token == "" {
		switch {
		case who.User == "root@pam":
			for _, p := range privileges() {
				out[p] = true
			}
			return out
		case path == "": // what the caller sent makes no ACL path
			return out
		}
		return w.privsOf(who.User, path)
	}
	u := w.Access.Users[who.User]
	if u == nil || u.Tokens[who.Token] == nil {
		return out
	}
	ofUser := w.privs(Identity{User: who.User}, path)
	if !u.Tokens[who.Token].Privsep {
		return ofUser
	}
	for p, prop := range w.privsOf(who.AuthID(), path) {
		if q, ok := ofUser[p]; ok {
			out[p] = prop && q
		}
	}
	return out
}

// privsOf adds the privileges of roles up. What lies in a pool takes the roles at the pool too, without propagation. NoAccess, at the
// path or at the pool, beats all.
func (w *World) privsOf(authID, path string) map[string]bool {
	roles := w.roles(authID, path)
	for _, pool := range w.poolsOfPath(path) {
		for role := range w.roles(authID, "/pool/"+pool) {
			if roles == nil {
				roles = map[string]bool{}
			}
			if _, ok := roles[role]; !ok {
				roles[role] = false
			}
		}
	}
	out := map[string]bool{}
	if _, no := roles["NoAccess"]; no {
		return out
	}
	for r, prop := range roles {
		for _, p := range w.Access.Roles[r] {
			out[p] = out[p] || prop
		}
	}
	return out
}

// poolsOfPath are the pools that the guest or the storage of an ACL path is in.
func (w *World) poolsOfPath(path string) []string {
	kind, id, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	vmid := Params{"id": id}.Int("id", 0)
	var out []string
	for _, name := range sortedKeys(w.Pools) {
		p := w.Pools[name]
		if kind == "storage" && p.Storages[id] || kind == "vms" && p.VMs[vmid] {
			out = append(out, name)
		}
	}
	return out
}

// mayAll says that a caller has root's rights: there is nothing to look up then.
func (w *World) mayAll(who Identity) bool {
	u := w.Access.Users["root@pam"]
	return who.RootTicket() || who.User == "root@pam" && u.Tokens[who.Token] != nil && !u.Tokens[who.Token].Privsep
}

// can says whether a caller holds all of the privileges at a path.
func (w *World) can(who Identity, path string, privs ...string) bool {
	return w.check(who, path, privs...) == nil
}

// canAny says whether a caller holds one of the privileges at a path.
func (w *World) canAny(who Identity, path string, privs ...string) bool {
	return w.checkAny(who, path, privs...) == nil
}

// check is RPCEnvironment::check: 403 for the first privilege that the caller lacks.
func (w *World) check(who Identity, path string, privs ...string) error {
	if w.mayAll(who) {
		return nil
	}
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
	if w.mayAll(who) {
		return nil
	}
	have := w.privs(who, path)
	for _, p := range privs {
		if _, ok := have[p]; ok {
			return nil
		}
	}
	return permErr(path + ", " + strings.Join(privs, "|"))
}

// checkPermModify is RPCEnvironment::check_perm_modify: who may change the ACL of a path, or take what it stands for into a pool.
func (w *World) checkPermModify(who Identity, path string) error {
	privs := []string{"Permissions.Modify"}
	for prefix, p := range map[string]string{"/storage/": "Datastore.Allocate", "/vms/": "VM.Allocate", "/pool/": "Pool.Allocate"} {
		if len(path) > len(prefix) && strings.HasPrefix(path, prefix) {
			privs = append(privs, p)
		}
	}
	return w.checkAny(who, path, privs...)
}

// normalPath is PVE's normalize_path: one slash between parts, one in front, none behind; "" when the path has other characters than
// ACL paths may have.
func normalPath(path string) string {
	out := "/" + strings.Join(splitPath(path), "/")
	for _, c := range out {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-/", c) {
			return ""
		}
	}
	if path == "" {
		return ""
	}
	return out
}
