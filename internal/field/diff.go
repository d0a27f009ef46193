package field

import (
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

// Diff is all that separates a live guest from its manifest. Every edit
// starts from the live text of its key and changes owned tokens only, so a MAC
// address, a volume name and what we have never heard of survive. A create
// form goes into an empty slot and nowhere else.
//
// Grows come before Edits when both touch a slot: an edit's text carries the
// size after the growth.
func Diff(b *Block, g *Guest) Delta {
	if g == nil {
		g = &Guest{}
	}
	if !g.Exists {
		none := *g
		none.Env.Creating = true
		g = &none
	}
	d := &differ{g: g}
	for _, k := range collect(b) {
		d.key(k)
	}
	return d.out
}

// CreateParams is the diff against nothing: the parameters that make the
// guest, and the changes they stand for.
func CreateParams(b *Block, lxc bool, env Env) (wire.Params, []Change) {
	env.Creating = true
	d := Diff(b, &Guest{LXC: lxc, Env: env})
	var params wire.Params
	var changes []Change
	for _, e := range d.Edits {
		params.Set(e.Key, e.Value)
		changes = append(changes, e.Changes...)
	}
	return params, changes
}

// keyRows is what a spec says about one key of PVE.
type keyRows struct {
	key   string
	rows  []*Row // tokens, in shape order
	guard []*Row // storage, size and source of its volume
	vol   *Volume
}

// collect groups the rows by key, in the order in which keys first stand in
// the shape.
func collect(b *Block) []*keyRows {
	var out []*keyRows
	at := map[string]*keyRows{}
	get := func(key string) *keyRows {
		k := at[key]
		if k == nil {
			k = &keyRows{key: key}
			at[key] = k
			out = append(out, k)
		}
		return k
	}
	walk(b, "", visitor{
		vol: func(v *Volume) { get(v.Key).vol = v },
		row: func(r *Row, vol *Volume) {
			switch r.Role {
			case RoleToken, RolePool:
				if r.Key != "" {
					k := get(r.Key)
					k.rows = append(k.rows, r)
				}
			case RoleStorage, RoleSize, RoleSource:
				if vol != nil {
					k := get(vol.Key)
					k.guard = append(k.guard, r)
				}
			}
		},
	})
	return out
}

type differ struct {
	g   *Guest
	out Delta
}

func (d *differ) anomaly(path, todo, format string, args ...any) {
	d.out.Anomalies = append(d.out.Anomalies, Anomaly{Path: path, Text: fmt.Sprintf(format, args...), Todo: todo})
}

// live is the effective text of a key. PVE stores some empty values as one
// blank (facts.md C): a blank text is an absence.
func (d *differ) live(key string) (string, bool) {
	text, ok := d.g.Get(key)
	return text, ok && strings.TrimSpace(text) != ""
}

// key compares one key and adds what follows from it.
func (d *differ) key(k *keyRows) {
	live, has := d.live(k.key)
	if d.unmade(k.key) {
		live, has = "", false
	}
	w := &work{
		d: d, keyRows: k, format: wire.FormatOf(d.g.LXC, k.key), has: has, live: live,
		edit: Edit{Key: k.key},
	}
	w.old = wire.ParseProps(live, w.format)
	w.now = w.old
	switch {
	case k.vol != nil && !has:
		if !w.create() {
			return
		}
	case k.vol != nil:
		if !w.guardVolume() {
			return
		}
	}
	for _, r := range k.rows {
		if !w.apply(r) {
			return
		}
	}
	w.finish()
}

// work is the comparing of one key.
type work struct {
	*keyRows
	d        *differ
	format   wire.Format
	has      bool
	live     string
	old, now wire.Props
	differs  []*Row // rows whose token is to change
	edit     Edit
}

// fresh reports whether the key is made by this edit: the guest is created,
// or one more slot is filled.
func (w *work) fresh(r *Row) bool {
	return !w.has && (w.d.g.Env.Creating || r.Token != "" && w.slot())
}

// slot reports whether the key is one of several like it (net0, scsi1) or a
// drive: such keys come and go while a guest lives.
func (w *work) slot() bool {
	return wire.KeyClass(w.key) != w.key
}

// bySlotTokens reports whether a row that owns the key's whole text owns, in
// truth, only the tokens it names: a drive's volume name and a NIC's MAC are
// PVE's, whoever wrote the text.
func (w *work) bySlotTokens(r *Row) bool {
	return r.Token == "" && (wire.IsVolumeKey(w.d.g.LXC, w.key) || wire.KeyClass(w.key) == "net" && w.slot())
}

// apply brings one row's token into w.now. False means that nothing may be
// written to the key.
func (w *work) apply(r *Row) bool {
	env := w.d.g.Env
	if w.bySlotTokens(r) {
		return w.applyWhole(r)
	}
	token := w.token(r)
	live, has := w.get(w.old, token)
	cur, _ := w.get(w.now, token)
	text, keep, differs := "", true, false
	switch state := r.state(); {
	case r.CreateOnly && !w.fresh(r) && !(env.AfterClone && r.Identity):
		return true
	case state == Absent && r.CreateDefault != "" && w.fresh(r) && (w.explicit(token) && !w.slot() || w.wanted()):
		text, differs = r.CreateDefault, true
	case state == Null && has && r.FilledIn != "" && live == r.FilledIn:
		return true
	case state == Null || state == Absent && r.Identity:
		text = r.clear(cur)
		keep, differs = text != "", r.clear(live) != live
		if has && !keep && w.stands(r, token) { // then only PVE's default can stand for nothing
			text, keep, differs = r.Default, true, !sameWord(live, r.Default)
		}
	case state == Absent:
		return true
	case r.WriteIfAbsent && has && !env.AfterClone:
		return true
	case has && !(r.WriteIfAbsent && env.AfterClone) && w.same(r, live, token):
		if r.merges && cur != live {
			w.now.Set(token, r.want(cur, env)) // another row of the set took more than its own
		}
		return true
	case !has && r.HasDefault && r.equal(r.Default, env) && !(w.fresh(r) && w.explicit(token)):
		return true
	default:
		text, differs = r.want(cur, env), true
	}
	if !differs {
		return true
	}
	if r.Fixed != "" && !w.fresh(r) {
		w.d.anomaly(r.Path, r.Fixed, "live is %s, the manifest wants %s", orNone(shown(r, live), has), r.wants())
		return token != w.format.Default && token != ""
	}
	switch {
	case token == "":
		w.now = wire.ParseProps(text, w.format) // text is "" when nothing is kept
	case keep:
		w.now.Set(token, text)
	default:
		w.now.Del(token)
	}
	w.differs = append(w.differs, r)
	return true
}

// stands reports whether the row's token is the default one of a text with
// further tokens: PVE refuses those without it (agent's enabled).
func (w *work) stands(r *Row, token string) bool {
	return r.HasDefault && token != "" && token == w.format.Default && len(w.now.Tokens()) > 1
}

// sameWord compares two texts, or two booleans in whatever spelling.
func sameWord(a, b string) bool {
	x, okX := wire.ParseBool(a)
	y, okY := wire.ParseBool(b)
	return a == b || okX && okY && x == y
}

// wanted reports whether the manifest wants anything in this key: defaults
// alone do not make one.
func (w *work) wanted() bool {
	return w.edit.Create || slices.ContainsFunc(w.rows, func(r *Row) bool { return r.state() == Set })
}

// token is the row's token, or "" where the key has no tokens.
func (w *work) token(r *Row) string {
	if w.format.Plain {
		return ""
	}
	return r.Token
}

// get is a token's text, or the whole text for "".
func (w *work) get(p wire.Props, token string) (string, bool) {
	if token != "" {
		return p.Get(token)
	}
	if strings.TrimSpace(p.String()) == "" {
		return "", false
	}
	return p.String(), true
}

// same compares a set row with its live text. A row that owns the whole text
// of a property string is compared by token.
func (w *work) same(r *Row, live, token string) bool {
	if r.equal(live, w.d.g.Env) {
		return true
	}
	return token == "" && !w.format.Plain &&
		wire.ParseProps(r.want(live, w.d.g.Env), w.format).Same(wire.ParseProps(live, w.format))
}

// explicit reports whether a value that equals PVE's default is still sent
// when its key is made: whole values and default tokens are, so that a create
// request says what the manifest says.
func (w *work) explicit(token string) bool {
	return token == "" || token == w.format.Default
}

func (r *Row) wants() string {
	if r.state() == Set {
		return r.Text()
	}
	return "none"
}

func orNone(text string, has bool) string {
	if !has {
		return "not set"
	}
	return text
}

// shown is a live text for messages.
func shown(r *Row, live string) string {
	if r.Secret {
		return "(redacted)"
	}
	return live
}

// dropStanding deletes a default token that was only left standing for tokens
// which other rows then cleared.
func (w *work) dropStanding() {
	left := w.now.Tokens()
	if len(left) != 1 {
		return
	}
	for _, r := range w.rows {
		token := w.token(r)
		if r.state() != Null || !r.HasDefault || token == "" || token != w.format.Default {
			continue
		}
		if text, has := w.now.Get(token); has && sameWord(text, r.Default) {
			w.now.Del(token)
			if !slices.Contains(w.differs, r) {
				w.differs = append(w.differs, r)
			}
		}
	}
}

// finish turns what changed into an edit, and what waits into Waiting.
func (w *work) finish() {
	w.dropStanding()
	var changed []*Row
	for _, r := range w.differs {
		token := w.token(r)
		a, okA := w.get(w.old, token)
		b, okB := w.get(w.now, token)
		if a != b || okA != okB || r.WriteIfAbsent {
			changed = append(changed, r)
		}
	}
	w.waiting()
	if len(changed) == 0 && !w.edit.Create {
		return
	}
	e := &w.edit
	e.Delete = w.now.Empty()
	if e.Delete && !w.has {
		return
	}
	w.keepSize()
	text := w.now.String()
	hidden := false
	for _, r := range changed {
		hidden = hidden || r.Secret
		e.Impact = max(e.Impact, w.impact(r))
		if r.RootOnly != "" {
			e.RootOnly, e.RootPaths = r.RootOnly, append(e.RootPaths, r.Path)
		}
		c := w.change(r, w.old, w.now)
		c.Running = w.running(r)
		e.Changes = append(e.Changes, c)
	}
	for _, r := range w.rows {
		hidden = hidden || r.Secret && r.state() == Set
	}
	if !e.Delete {
		e.Value = wire.Plain(text)
		if hidden {
			e.Value = wire.Hidden(secret.New(text))
		}
	}
	if w.edit.Create && w.vol != nil {
		e.Impact = max(e.Impact, w.d.volumeImpact(w.vol))
	}
	w.d.out.Edits = append(w.d.out.Edits, *e)
}

// keepSize keeps the size token of a volume slot true: it goes when the slot
// gets another volume.
func (w *work) keepSize() {
	if !w.has || w.edit.Create || !wire.IsVolumeKey(w.d.g.LXC, w.key) {
		return
	}
	first := wire.FirstToken(w.d.g.LXC)
	a, _ := w.old.Get(first)
	if b, _ := w.now.Get(first); a != b {
		w.now.Del("size")
	}
}

// change describes a row's change from one text of the key to another.
func (w *work) change(r *Row, from, to wire.Props) Change {
	return Change{Path: r.Path, Key: w.name(r), Old: w.side(r, from), New: w.side(r, to), Impact: w.impact(r)}
}

// running is what a row's token is in the guest that runs, where that is
// neither what waits for a restart nor what is to be written.
func (w *work) running(r *Row) *wire.Value {
	e := w.d.g.Config[w.key]
	if !w.d.g.Running || e.Value == nil || e.Pending == nil && !e.Delete || w.edit.Create {
		return nil
	}
	token, now := w.token(r), wire.ParseProps(*e.Value, w.format)
	text, ok := w.get(now, token)
	for _, p := range []wire.Props{w.old, w.now} {
		if other, has := w.get(p, token); !ok || has && other == text {
			return nil
		}
	}
	return w.side(r, now)
}

// impact is what writing a row does to the running guest. Taking back
// somebody's pending change does nothing to it.
func (w *work) impact(r *Row) Impact {
	e := w.d.g.Config[w.key]
	if e.Value != nil && (e.Pending != nil || e.Delete) && !w.edit.Create {
		a, okA := w.get(wire.ParseProps(*e.Value, w.format), w.token(r))
		if b, okB := w.get(w.now, w.token(r)); okA == okB && a == b {
			return None
		}
	}
	return w.d.impact(r)
}

// name is PVE's name of what a row writes: net0.tag, or the key alone for the
// token that stands without its name.
func (w *work) name(r *Row) string {
	if t := w.token(r); t != "" && t != w.format.Default || w.format.Net && t != "" {
		return w.key + "." + t
	}
	return w.key
}

func (w *work) side(r *Row, p wire.Props) *wire.Value {
	text, ok := w.get(p, w.token(r))
	if !ok {
		return nil
	}
	v := wire.Plain(text)
	if r.Secret {
		v = wire.Hidden(secret.New(text))
	}
	return &v
}

// waiting notes owned rows whose wanted value PVE holds until a restart.
func (w *work) waiting() {
	e, ok := w.d.g.Config[w.key]
	if !ok || e.Pending == nil && !e.Delete {
		return
	}
	running := wire.ParseProps("", w.format)
	if e.Value != nil {
		running = wire.ParseProps(*e.Value, w.format)
	}
	if w.vol != nil && e.Value == nil && w.has { // the whole slot waits
		text := wire.Plain(w.live)
		w.d.out.Waiting = append(w.d.out.Waiting, Change{Path: w.vol.Path, Key: w.key, New: &text, Impact: Pending})
		return
	}
	for _, r := range w.rows {
		state := r.state()
		if slices.Contains(w.differs, r) || r.CreateOnly || state == Absent && !r.Identity {
			continue
		}
		token := w.token(r)
		a, okA := w.get(running, token)
		b, okB := w.get(w.old, token)
		switch {
		case a == b && okA == okB:
			continue
		case state == Set && okA && okB && (r.WriteIfAbsent || r.equal(a, w.d.g.Env)):
			continue
		}
		w.d.out.Waiting = append(w.d.out.Waiting, w.change(r, running, w.old))
	}
}
