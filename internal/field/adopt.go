package field

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// Gap is something live that no row of a spec took over.
type Gap struct {
	Key    string     `json:"key"` // PVE key, with the token behind a dot
	Value  wire.Value `json:"value"`
	Reason string     `json:"reason"` // "" = no field for it
}

// ReadInto fills a spec from a live guest: every row reads its token, what is
// pending merged in. Blocks and list elements must be allocated. What no row
// read is returned by key and token. Required fields whose live value is
// absent take PVE's default.
func ReadInto(b *Block, g *Guest) []Gap {
	a := &adopter{g: g, used: map[string]map[string]bool{}, left: map[string]string{}}
	var rows []*Row
	walk(b, "", visitor{
		row: func(r *Row, vol *Volume) {
			if vol != nil && r.Role != RoleToken {
				a.slot(r, vol)
			} else if r.Key != "" && (r.Role == RoleToken || r.Role == RolePool) {
				rows = append(rows, r)
			}
		},
		vol: func(v *Volume) { a.use(v.Key, v.FirstToken); a.use(v.Key, "size"); a.use(v.Key, "media") },
	})
	// Members of a set take theirs first; the set gets the rest.
	slices.SortStableFunc(rows, func(x, y *Row) int {
		switch {
		case x.member == y.member:
			return 0
		case x.member:
			return -1
		}
		return 1
	})
	for _, r := range rows {
		a.row(r)
	}
	a.rest()
	return a.gaps
}

type adopter struct {
	g    *Guest
	used map[string]map[string]bool
	left map[string]string // what members left of a token, by key.token
	gaps []Gap
}

func (a *adopter) use(key, token string) {
	if a.used[key] == nil {
		a.used[key] = map[string]bool{}
	}
	a.used[key][token] = true
}

func (a *adopter) gap(key, token, value string, hide bool, reason string) {
	if token != "" {
		key += "." + token
	}
	v := wire.Plain(value)
	if hide {
		v = wire.Hidden(secret.New(value))
	}
	a.gaps = append(a.gaps, Gap{Key: key, Value: v, Reason: reason})
}

// slot reads a volume's storage and size.
func (a *adopter) slot(r *Row, v *Volume) {
	text, ok := a.g.Get(v.Key)
	if !ok || r.NotAdopted {
		return
	}
	p := wire.ParseProps(text, wire.FormatOf(a.g.LXC, v.Key))
	switch r.Role {
	case RoleStorage:
		file, _ := p.Get(v.FirstToken)
		storage, _, ok := wire.SplitVolID(file)
		if !ok {
			a.gap(v.Key, "", file, false, "the volume is on no storage of PVE")
			return
		}
		a.try(r, v.Key, "", storage)
	case RoleSize:
		if size, ok := p.Get("size"); ok {
			a.try(r, v.Key, "size", size)
		} else {
			a.gap(v.Key, "size", "", false, "PVE tells no size")
		}
	}
}

func (a *adopter) try(r *Row, key, token, text string) {
	if err := r.adopt(text); err != nil {
		reason, hide := err.Error(), r.Secret || secretKey(key)
		if hide {
			reason = "the value does not fit the field"
		}
		a.gap(key, token, text, hide, reason)
	}
}

// row reads one token.
func (a *adopter) row(r *Row) {
	f := wire.FormatOf(a.g.LXC, r.Key)
	token := r.Token
	if f.Plain {
		token = ""
	}
	text, ok := a.g.Get(r.Key)
	ok = ok && strings.TrimSpace(text) != ""
	if token != "" && ok {
		text, ok = wire.ParseProps(text, f).Get(token)
	}
	switch {
	case !ok:
		if r.Required && r.HasDefault && r.state() == Absent {
			_ = r.read(r.Default) // the row's own default reads back; a law tests it
		}
		return
	case r.NotAdopted || r.drawn != nil && r.drawn(text, a.g.Env):
		a.use(r.Key, token)
		return
	case r.CreateOnly || r.WriteIfAbsent || r.Name == "":
		return
	}
	id := r.Key + "." + token
	if rest, ok := a.left[id]; ok {
		text = rest
	}
	switch {
	case r.member:
		if r.read(text) == nil {
			a.left[id] = r.clear(text)
			a.use(r.Key, token)
		}
	case text == "":
	case r.clear(text) == text: // nothing of it is the manifest's, such as the tag of ours alone
		a.use(r.Key, token)
	default:
		a.use(r.Key, token)
		a.try(r, r.Key, token, text)
	}
}

// rest finds the keys and tokens that nobody used.
func (a *adopter) rest() {
	for _, key := range slices.Sorted(maps.Keys(a.g.Config)) {
		text, ok := a.g.Get(key)
		if !ok || strings.TrimSpace(text) == "" || a.used[key][""] {
			continue
		}
		f := wire.FormatOf(a.g.LXC, key)
		if len(a.used[key]) == 0 || f.Plain {
			a.gap(key, "", text, secretKey(key), "")
			continue
		}
		for _, t := range wire.ParseProps(text, f).Tokens() {
			if !a.used[key][t.Key] {
				a.gap(key, t.Key, t.Value, false, "")
			}
		}
	}
}

// secretKey reports whether the value of an unmodelled key must not be shown.
func secretKey(key string) bool {
	switch key {
	case "cipassword", "sshkeys", "ssh-public-keys", "password", "env":
		return true
	}
	return false
}

// ToNode prints what a spec has set, in shape order. With a guest, a field
// whose change waits for a restart carries the running value as a comment.
// Secrets are never printed.
func ToNode(b *Block, g *Guest) *yamldoc.Node {
	return toNode(b, g)
}

func toNode(b *Block, g *Guest) *yamldoc.Node {
	out := yamldoc.Map()
	if b.Present != nil && !b.Present() {
		return out
	}
	for _, x := range b.Nodes {
		switch x := x.(type) {
		case *Row:
			if v := rowNode(x, g); v != nil && x.Name != "" {
				out.Put(x.Name, v)
			}
		case *Block:
			if v := toNode(x, g); len(v.Keys) > 0 {
				out.Put(x.Name, v)
			}
		case *List:
			switch present := x.Present(); {
			case !present && !x.Required:
				continue
			case !present || x.Len() == 0: // none, which is not the same as not owned
				out.Put(x.Name, yamldoc.Strs(nil))
				continue
			}
			list := &yamldoc.Node{Kind: yamldoc.Sequence}
			for i := range x.Len() {
				list.Items = append(list.Items, toNode(x.Elem(i), g))
			}
			out.Put(x.Name, list)
		case *Map:
			if !x.Present() || len(x.Keys()) == 0 {
				continue
			}
			m := yamldoc.Map()
			for _, k := range x.Keys() {
				if v := rowNode(x.Entry(k), g); v != nil {
					m.Put(k, v)
				}
			}
			out.Put(x.Name, m)
		}
	}
	return out
}

func rowNode(r *Row, g *Guest) *yamldoc.Node {
	switch {
	case r.Secret && !r.Names:
		return nil
	case r.state() == Null || r.state() == Absent && r.NullOK:
		return &yamldoc.Node{Kind: yamldoc.Null}
	case r.state() == Absent:
		return nil
	}
	n := r.print()
	if g == nil || r.Key == "" {
		return n
	}
	e, ok := g.Config[r.Key]
	if !ok || e.Pending == nil && !e.Delete {
		return n
	}
	f := wire.FormatOf(g.LXC, r.Key)
	token := r.Token
	if f.Plain {
		token = ""
	}
	now, has := "", false
	if e.Value != nil {
		now, has = *e.Value, true
		if token != "" {
			now, has = wire.ParseProps(*e.Value, f).Get(token)
		}
	}
	switch {
	case !has:
		n.Comment = "waits for a restart; runs without it"
	case !r.equal(now, g.Env):
		n.Comment = fmt.Sprintf("waits for a restart; runs with %s", r.Spell(now))
	}
	return n
}

// Spell is PVE's text of the row as a manifest spells it: 1GiB where PVE says
// 1024. What cannot be read, or is no single value, stays as it is.
func (r *Row) Spell(text string) string {
	if s, ok := r.spell(text); ok {
		return s
	}
	return text
}
