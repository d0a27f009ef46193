package pvesim

import (
	"slices"
	"strings"
)

func accessRoutes() []route {
	return []route{
		{"GET", "/access/roles", (*World).roleList},
		{"POST", "/access/roles", (*World).roleCreate},
		{"PUT", "/access/roles/{roleid}", (*World).roleUpdate},
		{"POST", "/access/groups", (*World).groupCreate},
		{"POST", "/access/users", (*World).userCreate},
		{"PUT", "/access/users/{userid}", (*World).userUpdate},
		{"POST", "/access/users/{userid}/token/{tokenid}", (*World).tokenCreate},
		{"PUT", "/access/users/{userid}/token/{tokenid}", (*World).tokenUpdate},
		{"DELETE", "/access/users/{userid}/token/{tokenid}", (*World).tokenDelete},
		{"PUT", "/access/acl", (*World).aclUpdate},
	}
}

func (w *World) roleList(*Request) (any, error) {
	builtin := builtinRoles()
	out := []map[string]any{}
	for _, id := range sortedKeys(w.Access.Roles) {
		row := map[string]any{"roleid": id, "privs": joined(w.Access.Roles[id], ",")}
		if _, ok := builtin[id]; ok {
			row["special"] = 1
		}
		out = append(out, row)
	}
	return out, nil
}

func (w *World) roleCreate(r *Request) (any, error) {
	id := r.P.Str("roleid")
	if _, ok := w.Access.Roles[id]; ok {
		return nil, die("create role failed: role '%s' already exists", id)
	}
	privs, err := privList(r.P)
	if err != nil {
		return nil, err
	}
	w.Access.Roles[id] = privs
	return nil, nil
}

func (w *World) roleUpdate(r *Request) (any, error) {
	id := r.P.Str("roleid")
	old, ok := w.Access.Roles[id]
	if !ok {
		return nil, die("update role failed: role '%s' does not exist", id)
	}
	if _, ok := builtinRoles()[id]; ok {
		return nil, die("update role failed: auto-generated role '%s' cannot be modified", id)
	}
	privs, err := privList(r.P)
	if err != nil {
		return nil, err
	}
	if r.P.Bool("append") {
		privs = append(privs, old...)
	}
	slices.Sort(privs)
	w.Access.Roles[id] = slices.Compact(privs)
	return nil, nil
}

func privList(p Params) ([]string, error) {
	known := privileges()
	list := p.List("privs")
	for _, s := range list {
		if !slices.Contains(known, s) {
			return nil, die("invalid privilege '%s'", s)
		}
	}
	return list, nil
}

func (w *World) groupCreate(r *Request) (any, error) {
	id := r.P.Str("groupid")
	if w.Access.Groups[id] != nil {
		return nil, die("create group failed: group '%s' already exists", id)
	}
	w.Access.Groups[id] = &Group{ID: id, Comment: r.P.Str("comment"), Users: map[string]bool{}}
	return nil, nil
}

func (w *World) userCreate(r *Request) (any, error) {
	id := r.P.Str("userid")
	if w.Access.Users[id] != nil {
		return nil, die("create user failed: user '%s' already exists", id)
	}
	u := &User{ID: id, Enabled: true, Tokens: map[string]*Token{}}
	w.Access.Users[id] = u
	w.setUser(u, r.P)
	return nil, nil
}

func (w *World) userUpdate(r *Request) (any, error) {
	u := w.Access.Users[r.P.Str("userid")]
	if u == nil {
		return nil, die("update user failed: no such user ('%s')", r.P.Str("userid"))
	}
	w.setUser(u, r.P)
	return nil, nil
}

func (w *World) setUser(u *User, p Params) {
	if p.Has("enable") {
		u.Enabled = p.Bool("enable")
	}
	if p.Has("expire") {
		u.Expire = int64(p.Int("expire", 0))
	}
	if p.Has("password") {
		u.SetPassword(p.Str("password"))
	}
	for key, field := range map[string]*string{"comment": &u.Comment, "email": &u.Email, "firstname": &u.FirstName, "lastname": &u.LastName} {
		if p.Has(key) {
			*field = p.Str(key)
		}
	}
	if !p.Has("groups") {
		return
	}
	if !p.Bool("append") {
		for _, g := range w.Access.Groups {
			delete(g.Users, u.ID)
		}
	}
	for _, id := range p.List("groups") {
		if g := w.Access.Groups[id]; g != nil {
			g.Users[u.ID] = true
		}
	}
}

func (w *World) token(r *Request) (*User, *Token, error) {
	u := w.Access.Users[r.P.Str("userid")]
	if u == nil {
		return nil, nil, die("no such user ('%s')", r.P.Str("userid"))
	}
	return u, u.Tokens[r.P.Str("tokenid")], nil
}

func (w *World) tokenCreate(r *Request) (any, error) {
	u, t, err := w.token(r)
	id := r.P.Str("tokenid")
	switch {
	case err != nil:
		return nil, err
	case t != nil:
		return nil, paramErr("tokenid", "Token already exists.")
	}
	t = &Token{ID: id, Secret: w.uuid(), Privsep: !r.P.Has("privsep") || r.P.Bool("privsep"), Expire: int64(r.P.Int("expire", 0)), Comment: r.P.Str("comment")}
	u.Tokens[id] = t
	info := map[string]any{"privsep": bit(t.Privsep)}
	for _, k := range []string{"expire", "comment"} {
		if r.P.Has(k) {
			info[k] = r.P.Str(k)
		}
	}
	return map[string]any{"value": t.Secret, "full-tokenid": u.ID + "!" + id, "info": info}, nil
}

func (w *World) tokenUpdate(r *Request) (any, error) {
	u, t, err := w.token(r)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, die("no such token '%s' for user '%s'", r.P.Str("tokenid"), u.ID)
	}
	if r.P.Has("privsep") {
		t.Privsep = r.P.Bool("privsep")
	}
	if r.P.Has("expire") {
		t.Expire = int64(r.P.Int("expire", 0))
	}
	if r.P.Has("comment") {
		t.Comment = r.P.Str("comment")
	}
	out := map[string]any{"privsep": bit(t.Privsep), "expire": t.Expire}
	if r.P.Has("expire") {
		out["expire"] = r.P.Str("expire")
	}
	if t.Comment != "" {
		out["comment"] = t.Comment
	}
	if r.P.Bool("regenerate") {
		t.Secret = w.uuid()
		out["value"], out["full-tokenid"] = t.Secret, u.ID+"!"+t.ID
	}
	return out, nil
}

func (w *World) tokenDelete(r *Request) (any, error) {
	u, t, err := w.token(r)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, die("no such token '%s' for user '%s'", r.P.Str("tokenid"), u.ID)
	}
	delete(u.Tokens, t.ID)
	full := u.ID + "!" + t.ID
	w.Access.ACL = slices.DeleteFunc(w.Access.ACL, func(e ACLEntry) bool { return e.Kind == "token" && e.Who == full })
	return nil, nil
}

func (w *World) aclUpdate(r *Request) (any, error) {
	path := "/" + strings.Trim(r.P.Str("path"), "/")
	remove, propagate := r.P.Bool("delete"), !r.P.Has("propagate") || r.P.Bool("propagate")
	for _, role := range r.P.List("roles") {
		if _, ok := w.Access.Roles[role]; !ok {
			return nil, die("ACL update failed: role '%s' does not exist", role)
		}
		for _, kind := range []string{"user", "group", "token"} {
			for _, who := range r.P.List(kind + "s") {
				w.Access.ACL = slices.DeleteFunc(w.Access.ACL, func(e ACLEntry) bool {
					return e.Path == path && e.Kind == kind && e.Who == who && e.Role == role
				})
				if !remove {
					w.Access.ACL = append(w.Access.ACL, ACLEntry{Path: path, Kind: kind, Who: who, Role: role, Propagate: propagate})
				}
			}
		}
	}
	return nil, nil
}
