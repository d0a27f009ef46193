package pvesim

import (
	"regexp"
	"slices"
)

// aclList shows the whole ACL to auditors of /access, to others the paths whose ACL they may change.
func (w *World) aclList(r *Request) (any, error) {
	all := w.canAny(r.Who, "/access", "Sys.Audit", "Permissions.Modify")
	out := []map[string]any{}
	for _, path := range w.Access.aclPaths() {
		if !all && w.checkPermModify(r.Who, path) != nil {
			continue
		}
		for _, kind := range []string{"user", "group", "token"} {
			for _, e := range w.Access.ACL {
				if e.Path == path && e.Kind == kind {
					out = append(out, map[string]any{"path": path, "type": kind, "ugid": e.Who, "roleid": e.Role, "propagate": bit(e.Propagate)})
				}
			}
		}
	}
	return out, nil
}

// aclPathPattern is PVE's check_path: the paths that entries can be made for.
const aclPathPattern = `^(?:/|/access|/access/groups|/access/groups/[[:alnum:]._-]+|/access/realm|/access/realm/[[:alnum:]._-]+` +
	`|/nodes|/nodes/[[:alnum:]._-]+|/pool|/pool/[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+){0,2}` +
	`|/sdn|/sdn/controllers|/sdn/controllers/[[:alnum:]_-]+|/sdn/dns|/sdn/dns/[[:alnum:]]+|/sdn/fabrics|/sdn/fabrics/[[:alnum:]._-]+` +
	`|/sdn/ipams|/sdn/ipams/[[:alnum:]]+|/sdn/zones|/sdn/zones/[[:alnum:]._-]+|/sdn/zones/[[:alnum:]._-]+/[[:alnum:]._-]+` +
	`|/sdn/zones/[[:alnum:]._-]+/[[:alnum:]._-]+/[1-9][0-9]{0,3}` +
	`|/storage|/storage/[[:alnum:]._-]+|/vms|/vms/[1-9][0-9]{2,}|/mapping|/mapping/[[:alnum:]._-]+|/mapping/[[:alnum:]._-]+/[[:alnum:]._-]+)$`

// aclUpdate works on a copy: PVE writes user.cfg only when all went well.
func (w *World) aclUpdate(r *Request) (any, error) {
	if r.P.Str("users") == "" && r.P.Str("groups") == "" && r.P.Str("tokens") == "" {
		const text = "either 'users', 'groups' or 'tokens' is required."
		return nil, paramErrs(map[string]string{"users": text, "groups": text, "tokens": text})
	}
	path, remove := normalPath(r.P.Str("path")), r.P.Bool("delete")
	if path == "" || !remove && !regexp.MustCompile(aclPathPattern).MatchString(path) {
		return nil, paramErr("path", "invalid ACL path '%s'", r.P.Str("path"))
	}
	propagate := !r.P.Has("propagate") || r.P.Bool("propagate")
	acl := slices.Clone(w.Access.ACL)
	mine := w.privs(r.Who, path)
	for _, role := range r.P.List("roles") {
		if err := w.mayHandOn(mine, role, remove, propagate); err != nil {
			return nil, wrap("ACL update failed: ", err)
		}
		for _, kind := range []string{"group", "user", "token"} {
			for _, who := range r.P.List(kind + "s") {
				if err := w.grantee(kind, who); err != nil {
					return nil, wrap("ACL update failed: ", err)
				}
				acl = setACL(acl, ACLEntry{Path: path, Kind: kind, Who: who, Role: role, Propagate: propagate}, remove)
			}
		}
	}
	w.Access.ACL = acl
	return nil, nil
}

func setACL(acl []ACLEntry, e ACLEntry, remove bool) []ACLEntry {
	i := slices.IndexFunc(acl, func(o ACLEntry) bool {
		return o.Path == e.Path && o.Kind == e.Kind && o.Who == e.Who && o.Role == e.Role
	})
	switch {
	case i >= 0 && remove:
		return slices.Delete(acl, i, i+1)
	case i >= 0:
		acl[i] = e
		return acl
	case remove:
		return acl
	}
	return append(acl, e)
}

// mayHandOn: without Permissions.Modify (but with VM.Allocate on the VM, say) one may hand on no more than one has (au-382, au-383).
func (w *World) mayHandOn(mine map[string]bool, role string, remove, propagate bool) error {
	privs, ok := w.Access.Roles[role]
	if !ok {
		return die("role '%s' does not exist", role)
	}
	if _, ok := mine["Permissions.Modify"]; ok {
		return nil
	}
	verb := "add"
	if remove {
		verb = "remove"
	}
	if role == "NoAccess" { // it has no privileges that could be compared
		return paramErr("role", "Cannot %s role '%s' - requires 'Permissions.Modify'", verb, role)
	}
	for _, p := range privs {
		has, ok := mine[p]
		switch {
		case !ok:
			return paramErr("role", "Cannot %s role '%s' - requires 'Permissions.Modify' or superset of privileges.", verb, role)
		case propagate && !has && !remove:
			return paramErr("role", "Cannot %s role '%s' with propagation - requires 'Permissions.Modify' or propagated superset of privileges.", verb, role)
		}
	}
	return nil
}

func (w *World) grantee(kind, who string) error {
	switch kind {
	case "group":
		if w.Access.Groups[who] == nil {
			return die("group '%s' does not exist", who)
		}
		return nil
	case "user":
		if w.Access.Users[who] == nil {
			return die("user '%s' does not exist", who)
		}
		return nil
	}
	id := splitAuthID(who)
	_, err := w.Access.token(id.User, id.Token)
	return err
}
