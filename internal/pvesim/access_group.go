package pvesim

import (
	"slices"
	"sort"
	"strings"
)

func (w *World) groupList(r *Request) (any, error) {
	out := []map[string]any{}
	for _, id := range w.groupsWith(r.Who, "User.Modify", "Sys.Audit", "Group.Allocate") {
		g := w.Access.Groups[id]
		row := map[string]any{"groupid": id, "users": joined(sortedKeys(g.Users))}
		if g.Comment != "" {
			row["comment"] = g.Comment
		}
		out = append(out, row)
	}
	return out, nil
}

func (w *World) groupGet(r *Request) (any, error) {
	id := r.P.Str("groupid")
	g := w.Access.Groups[id]
	if g == nil {
		return nil, die("group '%s' does not exist", id)
	}
	out := map[string]any{"members": sortedKeys(g.Users)}
	if g.Comment != "" {
		out["comment"] = g.Comment
	}
	return out, nil
}

func (w *World) groupCreate(r *Request) (any, error) {
	id := r.P.Str("groupid")
	if w.Access.Groups[id] != nil {
		return nil, die("create group failed: group '%s' already exists", id)
	}
	w.Access.Groups[id] = &Group{ID: id, Comment: r.P.Str("comment"), Users: map[string]bool{}}
	return nil, nil
}

func (w *World) groupUpdate(r *Request) (any, error) {
	g := w.Access.Groups[r.P.Str("groupid")]
	if g == nil {
		return nil, die("update group failed: group '%s' does not exist", r.P.Str("groupid"))
	}
	if r.P.Has("comment") {
		g.Comment = r.P.Str("comment")
	}
	return nil, nil
}

func (w *World) groupDelete(r *Request) (any, error) {
	id := r.P.Str("groupid")
	if w.Access.Groups[id] == nil {
		return nil, die("delete group failed: group '%s' does not exist", id)
	}
	delete(w.Access.Groups, id)
	w.Access.removeACLOf("group", id)
	return nil, nil
}

func (w *World) roleList(*Request) (any, error) {
	builtin := builtinRoles()
	out := []map[string]any{}
	for _, id := range sortedKeys(w.Access.Roles) {
		_, special := builtin[id]
		out = append(out, map[string]any{"roleid": id, "privs": joined(w.Access.Roles[id]), "special": bit(special)})
	}
	return out, nil
}

func (w *World) roleGet(r *Request) (any, error) {
	privs, ok := w.Access.Roles[r.P.Str("roleid")]
	if !ok {
		return nil, die("role '%s' does not exist", r.P.Str("roleid"))
	}
	out := map[string]int{}
	for _, p := range privs {
		out[p] = 1
	}
	return out, nil
}

func (w *World) roleCreate(r *Request) (any, error) {
	id := r.P.Str("roleid")
	if strings.HasPrefix(strings.ToLower(id), "pve") {
		return nil, paramErr("roleid", "cannot use role ID starting with the (case-insensitive) 'PVE' namespace")
	}
	if _, ok := w.Access.Roles[id]; ok {
		return nil, die("create role failed: role '%s' already exists", id)
	}
	privs, err := privList(r.P)
	if err != nil {
		return nil, wrap("create role failed: ", err)
	}
	w.Access.Roles[id] = privs
	return nil, nil
}

// roleChange finds a role that may be changed.
func (w *World) roleChange(id, verb string) ([]string, error) {
	old, ok := w.Access.Roles[id]
	if !ok {
		return nil, die("role '%s' does not exist", id)
	}
	if _, ok := builtinRoles()[id]; ok {
		return nil, die("auto-generated role '%s' cannot be %s", id, verb)
	}
	return old, nil
}

func (w *World) roleUpdate(r *Request) (any, error) {
	id := r.P.Str("roleid")
	old, err := w.roleChange(id, "modified")
	if err != nil {
		return nil, wrap("update role failed: ", err)
	}
	privs, err := privList(r.P)
	if err != nil {
		return nil, wrap("update role failed: ", err)
	}
	if r.P.Bool("append") {
		privs = append(privs, old...)
		sort.Strings(privs)
		privs = slices.Compact(privs)
	}
	w.Access.Roles[id] = privs
	return nil, nil
}

// roleDelete also drops what the role was granted by: PVE ignores entries of unknown roles and does not write them again.
func (w *World) roleDelete(r *Request) (any, error) {
	id := r.P.Str("roleid")
	if _, err := w.roleChange(id, "deleted"); err != nil {
		return nil, wrap("delete role failed: ", err)
	}
	delete(w.Access.Roles, id)
	w.Access.ACL = slices.DeleteFunc(w.Access.ACL, func(e ACLEntry) bool { return e.Role == id })
	return nil, nil
}

// privList is the parameter privs, sorted.
func privList(p Params) ([]string, error) {
	known := privileges()
	list := p.List("privs")
	for _, s := range list {
		if !slices.Contains(known, s) {
			return nil, die("invalid privilege '%s'", s)
		}
	}
	sort.Strings(list)
	return slices.Compact(list), nil
}
