package pvesim

import "slices"

// userList shows all users to whoever may change or audit users, else those of the groups that he may, and himself.
func (w *World) userList(r *Request) (any, error) {
	all := w.canAny(r.Who, "/access/groups", "User.Modify", "Sys.Audit")
	groups := w.groupsWith(r.Who, "User.Modify", "Sys.Audit")
	out := []map[string]any{}
	for _, id := range sortedKeys(w.Access.Users) {
		u := w.Access.Users[id]
		if !all && id != r.Who.AuthID() && !w.inAny(id, groups) {
			continue
		}
		if r.P.Has("enabled") && r.P.Bool("enabled") != u.Enabled {
			continue
		}
		row := u.row()
		row["userid"] = id
		if realm, err := verifyUser(id); err == nil && w.Access.Realms[realm] != nil {
			row["realm-type"] = w.Access.Realms[realm]["type"]
		}
		if r.P.Bool("full") {
			row["groups"] = joined(w.Access.groupsOf(id))
			if len(u.Tokens) > 0 {
				row["tokens"] = u.tokenRows()
			}
		}
		out = append(out, row)
	}
	return out, nil
}

// row is what PVE shows of a user.
func (u *User) row() map[string]any {
	out := map[string]any{"enable": bit(u.Enabled), "expire": u.Expire}
	for key, field := range u.texts() {
		if *field != "" {
			out[key] = *field
		}
	}
	return out
}

// texts are a user's text properties by the names of their parameters.
func (u *User) texts() map[string]*string {
	return map[string]*string{"comment": &u.Comment, "email": &u.Email, "firstname": &u.FirstName, "lastname": &u.LastName, "keys": &u.Keys}
}

func (w *World) userGet(r *Request) (any, error) {
	id := r.P.Str("userid")
	if err := w.userExists(id); err != nil {
		return nil, err
	}
	u := w.Access.Users[id]
	out := u.row()
	out["groups"] = w.Access.groupsOf(id)
	tokens := map[string]any{}
	for name, t := range u.Tokens {
		tokens[name] = t.row()
	}
	out["tokens"] = tokens
	return out, nil
}

func (w *World) userCreate(r *Request) (any, error) {
	id := r.P.Str("userid")
	realm, err := verifyUser(id)
	if err == nil && w.Access.Users[id] != nil {
		err = die("user '%s' already exists", id)
	}
	u := &User{ID: id, Enabled: true, Tokens: map[string]*Token{}}
	if err == nil && r.P.Has("password") {
		err = w.setPassword(u, realm, r.P.Str("password"))
	}
	if err == nil {
		err = w.knownGroups(r.P)
	}
	if err != nil {
		return nil, wrap("create user failed: ", err)
	}
	w.Access.Users[id] = u
	w.setUser(u, r.P)
	return nil, nil
}

func (w *World) userUpdate(r *Request) (any, error) {
	err := w.userExists(r.P.Str("userid"))
	if err == nil {
		err = w.knownGroups(r.P)
	}
	if err != nil {
		return nil, wrap("update user failed: ", err)
	}
	w.setUser(w.Access.Users[r.P.Str("userid")], r.P)
	return nil, nil
}

func (w *World) knownGroups(p Params) error {
	for _, id := range p.List("groups") {
		if w.Access.Groups[id] == nil {
			return die("no such group '%s'", id)
		}
	}
	return nil
}

func (w *World) setUser(u *User, p Params) {
	if p.Has("enable") {
		u.Enabled = p.Bool("enable")
	}
	if p.Has("expire") {
		u.Expire = int64(p.Int("expire", 0))
	}
	for key, field := range u.texts() {
		if p.Has(key) {
			*field = p.Str(key)
		}
	}
	if !p.Has("groups") {
		return
	}
	for id, g := range w.Access.Groups {
		switch {
		case slices.Contains(p.List("groups"), id):
			g.Users[u.ID] = true
		case !p.Bool("append"):
			delete(g.Users, u.ID)
		}
	}
}

// userDelete takes a user's tokens, memberships and grants along.
func (w *World) userDelete(r *Request) (any, error) {
	id, password := r.P.Str("userid"), ""
	if u := w.Access.Users[id]; u != nil {
		password = u.Password
		for t := range u.Tokens {
			w.Access.removeACLOf("token", id+"!"+t)
		}
	}
	delete(w.Access.Users, id)
	if id == "root@pam" { // there is always a root, who logs in at the system
		w.Access.Users[id] = &User{ID: id, Enabled: true, Password: password, Tokens: map[string]*Token{}}
	}
	for _, g := range w.Access.Groups {
		delete(g.Users, id)
	}
	w.Access.removeACLOf("user", id)
	return nil, nil
}

// setPassword keeps a password where the realm keeps its own: pve does, pam hands it to the system's users, of which a node has root
// alone, others have none to set.
func (w *World) setPassword(u *User, realm, password string) error {
	conf := w.Access.Realms[realm]
	switch {
	case conf == nil:
		return die("auth domain '%s' does not exist", realm)
	case conf["type"] == "pam" && u.ID != "root@pam":
		return die("change password failed: exit code 6")
	case conf["type"] != "pam" && conf["type"] != "pve":
		return die("can't set password on auth type '%s'", conf["type"])
	}
	u.SetPassword(password)
	return nil
}

// passwordChange: only root changes passwords without giving his own, and only root changes root's.
func (w *World) passwordChange(r *Request) (any, error) {
	id := r.P.Str("userid")
	if err := w.confirmed(r, id, "confirmation-password"); err != nil {
		return nil, err
	}
	realm, err := verifyUser(id)
	if err != nil {
		return nil, err
	}
	if realm == "pam" && r.Who.AuthID() != "root@pam" && r.Who.AuthID() != id {
		return nil, permErr("")
	}
	return nil, w.setPassword(w.Access.Users[id], realm, r.P.Str("password"))
}

// confirmed is what guards changes to a user's log-in: all but root confirm them by their own password.
func (w *World) confirmed(r *Request, userid, param string) error {
	if err := w.userExists(userid); err != nil {
		return err
	}
	if r.Who.RootTicket() {
		return nil
	}
	if userid == "root@pam" {
		return permErr("")
	}
	password, given := r.P.Get(param)
	if !given {
		return paramErr(param, "password is required to modify user")
	}
	if u := w.Access.Users[r.Who.User]; u == nil || !u.passwordIs(password) {
		return die("invalid credentials")
	}
	return nil
}
