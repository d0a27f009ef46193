package pvesim

func (t *Token) row() map[string]any {
	out := map[string]any{"privsep": bit(t.Privsep), "expire": t.Expire}
	if t.Comment != "" {
		out["comment"] = t.Comment
	}
	return out
}

func (u *User) tokenRows() []map[string]any {
	out := []map[string]any{}
	for _, id := range sortedKeys(u.Tokens) {
		row := u.Tokens[id].row()
		row["tokenid"] = id
		out = append(out, row)
	}
	return out
}

// token finds a token, or dies as PVE does.
func (a *Access) token(userid, id string) (*Token, error) {
	u := a.Users[userid]
	switch {
	case u == nil:
		return nil, die("no such user ('%s')", userid)
	case u.Tokens[id] == nil:
		return nil, die("no such token '%s' for user '%s'", id, userid)
	}
	return u.Tokens[id], nil
}

func (w *World) tokenList(r *Request) (any, error) {
	if err := w.userExists(r.P.Str("userid")); err != nil {
		return nil, err
	}
	return w.Access.Users[r.P.Str("userid")].tokenRows(), nil
}

func (w *World) tokenGet(r *Request) (any, error) {
	t, err := w.Access.token(r.P.Str("userid"), r.P.Str("tokenid"))
	if err != nil {
		return nil, err
	}
	return t.row(), nil
}

// tokenCreate is the only call, besides a regeneration, that shows a token's secret.
func (w *World) tokenCreate(r *Request) (any, error) {
	userid, id := r.P.Str("userid"), r.P.Str("tokenid")
	if err := w.userExists(userid); err != nil {
		return nil, err
	}
	u := w.Access.Users[userid]
	if u.Tokens[id] != nil {
		return nil, paramErr("tokenid", "Token already exists.")
	}
	t := &Token{ID: id, Secret: w.uuid(), Privsep: !r.P.Has("privsep") || r.P.Bool("privsep"), Expire: int64(r.P.Int("expire", 0)), Comment: r.P.Str("comment")}
	u.Tokens[id] = t
	info := map[string]any{"privsep": bit(t.Privsep)}
	if r.P.Has("expire") {
		info["expire"] = r.P.Str("expire")
	}
	if t.Comment != "" {
		info["comment"] = t.Comment
	}
	return map[string]any{"value": t.Secret, "full-tokenid": userid + "!" + id, "info": info}, nil
}

func (w *World) tokenUpdate(r *Request) (any, error) {
	userid, id := r.P.Str("userid"), r.P.Str("tokenid")
	t, err := w.Access.token(userid, id)
	if err != nil {
		return nil, err
	}
	for _, key := range r.P.List("delete") {
		switch key {
		case "comment":
			t.Comment = ""
		case "expire":
			t.Expire = 0
		case "privsep":
			t.Privsep = true
		}
	}
	if r.P.Has("privsep") {
		t.Privsep = r.P.Bool("privsep")
	}
	if r.P.Has("comment") {
		t.Comment = r.P.Str("comment")
	}
	if r.P.Has("expire") {
		t.Expire = int64(r.P.Int("expire", 0))
	}
	out := t.row()
	if r.P.Has("expire") {
		out["expire"] = r.P.Str("expire") // as it was sent: text (au-056)
	}
	if r.P.Bool("regenerate") {
		t.Secret = w.uuid()
		out["value"], out["full-tokenid"] = t.Secret, userid+"!"+id
	}
	return out, nil
}

func (w *World) tokenDelete(r *Request) (any, error) {
	userid, id := r.P.Str("userid"), r.P.Str("tokenid")
	if _, err := w.Access.token(userid, id); err != nil {
		return nil, err
	}
	delete(w.Access.Users[userid].Tokens, id)
	w.Access.removeACLOf("token", userid+"!"+id)
	return nil, nil
}
