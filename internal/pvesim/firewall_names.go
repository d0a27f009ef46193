package pvesim

import (
	"net/netip"
	"regexp"
	"strings"
)

// The names of a guest's firewall: aliases of addresses, and sets of them.

// address is an address or network as the firewall keeps it; the first address of a network may have bits of the host set.
func address(text string) (string, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		if p.IsSingleIP() {
			return p.Addr().String(), nil
		}
		return p.Masked().String(), nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return a.String(), nil
	}
	return "", die("invalid IP address or network '%s'", text)
}

func (e *FirewallEntry) row(digest string) map[string]any {
	out := map[string]any{"cidr": e.CIDR, "digest": digest}
	if e.Comment != "" {
		out["comment"] = e.Comment
	}
	if e.NoMatch {
		out["nomatch"] = 1
	}
	return out
}

func aliasRow(f *Firewall, name string) map[string]any {
	row := f.Aliases[name].row(firewallDigest(f.Aliases))
	row["name"], row["ipversion"] = name, ipVersion(f.Aliases[name].CIDR)
	return row
}

func (w *World) firewallAliases(r *Request) (any, error) {
	f := w.firewall(r.VMID)
	out := []map[string]any{}
	for _, name := range sortedKeys(f.Aliases) {
		out = append(out, aliasRow(f, name))
	}
	return out, nil
}

func (w *World) firewallAlias(r *Request) (any, error) {
	f, name := w.firewall(r.VMID), strings.ToLower(r.P.Str("name"))
	if f.Aliases[name] == nil {
		return nil, paramErr("name", "no such alias")
	}
	return aliasRow(f, name), nil
}

func (w *World) firewallAddAlias(r *Request) (any, error) {
	f, err := r.firewallEdit(nil)
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(r.P.Str("name"))
	if f.Aliases[name] != nil {
		return nil, paramErr("name", "alias '%s' already exists", r.P.Str("name"))
	}
	cidr, err := address(r.P.Str("cidr"))
	if err != nil {
		return nil, err
	}
	f.Aliases[name] = &FirewallEntry{CIDR: cidr, Comment: r.P.Str("comment")}
	return nil, nil
}

func (w *World) firewallSetAlias(r *Request) (any, error) {
	f, err := r.firewallEdit(firewallAliasesOf)
	if err != nil {
		return nil, err
	}
	name, rename := strings.ToLower(r.P.Str("name")), strings.ToLower(r.P.Str("rename"))
	if f.Aliases[name] == nil {
		return nil, paramErr("name", "no such alias")
	}
	cidr, err := address(r.P.Str("cidr"))
	if err != nil {
		return nil, err
	}
	if rename != "" && rename != name {
		if f.Aliases[rename] != nil {
			return nil, paramErr("name", "alias '%s' already exists", r.P.Str("rename"))
		}
		delete(f.Aliases, name)
		name = rename
	}
	f.Aliases[name] = &FirewallEntry{CIDR: cidr, Comment: r.P.Str("comment")}
	return nil, nil
}

func (w *World) firewallDropAlias(r *Request) (any, error) {
	f, err := r.firewallEdit(firewallAliasesOf)
	if err == nil {
		delete(f.Aliases, strings.ToLower(r.P.Str("name")))
	}
	return nil, err
}

func (w *World) firewallSets(r *Request) (any, error) {
	f := w.firewall(r.VMID)
	out := []map[string]any{}
	for _, name := range sortedKeys(f.Sets) {
		row := map[string]any{"name": name, "digest": firewallDigest(f.Sets)}
		if c := f.Sets[name].Comment; c != "" {
			row["comment"] = c
		}
		out = append(out, row)
	}
	return out, nil
}

func (w *World) firewallAddSet(r *Request) (any, error) {
	f, err := r.firewallEdit(func(f *Firewall) any { return f.Sets })
	if err != nil {
		return nil, err
	}
	name, rename := r.P.Str("name"), r.P.Str("rename")
	switch {
	case rename != "" && f.Sets[rename] == nil:
		return nil, paramErr("name", "IPSet '%s' does not exist", rename)
	case rename != "" && rename != name && f.Sets[name] != nil, rename == "" && f.Sets[name] != nil:
		return nil, paramErr("name", "IPSet '%s' already exists", name)
	case rename != "":
		set := f.Sets[rename]
		delete(f.Sets, rename)
		if f.Sets[name] = set; r.P.Has("comment") {
			set.Comment = r.P.Str("comment")
		}
		return nil, nil
	}
	f.Sets[name] = &FirewallSet{Comment: r.P.Str("comment"), Entries: map[string]*FirewallEntry{}}
	return nil, nil
}

func (r *Request) firewallSet(f *Firewall) (*FirewallSet, error) {
	set := f.Sets[r.P.Str("name")]
	if set == nil {
		return nil, die("no such IPSet '%s'", r.P.Str("name"))
	}
	return set, nil
}

func (w *World) firewallSet(r *Request) (any, error) {
	set, err := r.firewallSet(w.firewall(r.VMID))
	if err != nil {
		return nil, err
	}
	out := []map[string]any{}
	for _, k := range sortedKeys(set.Entries) {
		out = append(out, set.Entries[k].row(firewallDigest(set.Entries)))
	}
	return out, nil
}

func (w *World) firewallDropSet(r *Request) (any, error) {
	f, err := r.firewallEdit(nil)
	if err != nil {
		return nil, err
	}
	set, err := r.firewallSet(f)
	if err != nil {
		return nil, err
	}
	if len(set.Entries) > 0 && !r.P.Bool("force") {
		return nil, die("IPSet '%s' is not empty", r.P.Str("name"))
	}
	delete(f.Sets, r.P.Str("name"))
	return nil, nil
}

var aliasName = regexp.MustCompile(`^(?:dc/|guest/)?[A-Za-z][A-Za-z0-9_-]+$`)

func (w *World) firewallAddIP(r *Request) (any, error) {
	f, err := r.firewallEdit(nil)
	if err != nil {
		return nil, err
	}
	set, err := r.firewallSet(f)
	if err != nil {
		return nil, err
	}
	cidr := r.P.Str("cidr")
	if aliasName.MatchString(cidr) {
		if f.Aliases[strings.ToLower(strings.TrimPrefix(cidr, "guest/"))] == nil {
			return nil, die("no such alias '%s'", cidr)
		}
	} else if cidr, err = address(cidr); err != nil {
		return nil, err
	}
	switch {
	case strings.HasSuffix(cidr, "/0"):
		return nil, paramErr("cidr", "a zero prefix is not allowed in ipset entries")
	case set.Entries[cidr] != nil:
		return nil, paramErr("cidr", "address '%s' already exists", cidr)
	}
	set.Entries[cidr] = &FirewallEntry{CIDR: cidr, Comment: r.P.Str("comment"), NoMatch: r.P.Bool("nomatch")}
	return nil, nil
}

// firewallMember finds the set and the entry that a path names.
func (r *Request) firewallMember(f *Firewall) (*FirewallSet, *FirewallEntry, error) {
	set, err := r.firewallSet(f)
	if err != nil {
		return nil, nil, err
	}
	e := set.Entries[r.P.Str("cidr")]
	if e == nil {
		return nil, nil, paramErr("cidr", "no such IP/Network")
	}
	return set, e, nil
}

func (w *World) firewallIP(r *Request) (any, error) {
	set, e, err := r.firewallMember(w.firewall(r.VMID))
	if err != nil {
		return nil, err
	}
	return e.row(firewallDigest(set.Entries)), nil
}

func (w *World) firewallSetIP(r *Request) (any, error) {
	f, err := r.firewallEdit(nil)
	if err != nil {
		return nil, err
	}
	set, e, err := r.firewallMember(f)
	switch d := r.P.Str("digest"); {
	case err != nil:
		return nil, err
	case d != "" && d != firewallDigest(set.Entries):
		return nil, die("detected modified configuration - file changed by other user? Try again.")
	}
	e.NoMatch, e.Comment = r.P.Bool("nomatch"), r.P.Str("comment")
	return nil, nil
}

func (w *World) firewallDropIP(r *Request) (any, error) {
	f, err := r.firewallEdit(nil)
	if err != nil {
		return nil, err
	}
	set, err := r.firewallSet(f)
	switch d := r.P.Str("digest"); {
	case err != nil:
		return nil, err
	case d != "" && d != firewallDigest(set.Entries):
		return nil, die("detected modified configuration - file changed by other user? Try again.")
	}
	delete(set.Entries, r.P.Str("cidr"))
	return nil, nil
}

// firewallRefs are the names that a guest's rules may use.
func (w *World) firewallRefs(r *Request) (any, error) {
	f, kind := w.firewall(r.VMID), r.P.Str("type")
	out := []map[string]any{}
	add := func(what, name, comment, prefix string) {
		if kind != "" && kind != what {
			return
		}
		row := map[string]any{"type": what, "name": name, "ref": prefix + "guest/" + name, "scope": "guest"}
		if comment != "" {
			row["comment"] = comment
		}
		out = append(out, row)
	}
	for _, name := range sortedKeys(f.Sets) {
		add("ipset", name, f.Sets[name].Comment, "+")
	}
	for _, name := range sortedKeys(f.Aliases) {
		add("alias", name, f.Aliases[name].Comment, "")
	}
	return out, nil
}
