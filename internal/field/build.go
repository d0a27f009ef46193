package field

import "github.com/proxops/proxops/internal/yamldoc"

// Var makes the row of *o. While *o is absent the field is not owned. key is
// PVE's key and token the token in its property string ("" = the whole text);
// key is "" for fields that are not on the wire.
func Var[V any](o *Opt[V], name, key, token string, c Codec[V], doc string) *Row {
	r := &Row{Name: name, Doc: doc, Type: c.Type, Key: key, Token: token}
	if key == "" {
		r.Role = RoleNone
	}
	r.merges, r.member = c.Merge != nil, c.Merge != nil && c.Clear != nil
	r.state = func() State { return o.state }
	r.load = func(n *yamldoc.Node) error {
		if n.Kind == yamldoc.Null {
			*o = Cleared[V]()
			return nil
		}
		v, err := c.Parse(n)
		if err != nil {
			return err
		}
		*o = Some(v)
		return nil
	}
	r.read = func(text string) error {
		v, err := c.Read(text)
		if err != nil {
			return err
		}
		*o = Some(v)
		return nil
	}
	r.adopt = func(text string) error {
		v, err := c.Read(text)
		if err == nil {
			n := c.Print(v)
			v, err = c.Parse(n) // a manifest must be able to say it
			if err != nil && n.Kind == yamldoc.Sequence && len(n.Items) == 0 {
				return nil // nothing is left to be said
			}
		}
		if err == nil {
			*o = Some(v)
		}
		return err
	}
	r.spell = func(text string) (string, bool) {
		v, err := c.Read(text)
		if err != nil {
			return "", false
		}
		n := c.Print(v)
		return n.Value, n.Kind == yamldoc.Scalar && n.Value != ""
	}
	r.print = func() *yamldoc.Node { return c.Print(o.v) }
	r.want = func(live string, env Env) string {
		if c.Merge != nil {
			return c.Merge(o.v, live, env)
		}
		return c.Write(o.v)
	}
	r.equal = func(live string, env Env) bool { return c.same(o.v, live, env) }
	r.clear = func(live string) string {
		if c.Clear != nil {
			return c.Clear(live)
		}
		return ""
	}
	r.wire = func(n *yamldoc.Node) (string, error) {
		v, err := c.Parse(n)
		if err != nil {
			return "", err
		}
		return c.Write(v), nil
	}
	return r
}

// same compares a wanted value with PVE's text by the codec's own rule.
func (c Codec[V]) same(want V, live string, env Env) bool {
	if c.Equal != nil {
		return c.Equal(want, live, env)
	}
	now, err := c.Read(live)
	return err == nil && c.Write(now) == c.Write(want)
}

// ClearOnClone is a row without a field: PVE's key is cleared where it was
// inherited (cicustom, an undeclared ipconfigN of a clone).
func ClearOnClone(key, doc string) *Row {
	var o Opt[string]
	return Var(&o, "", key, "", Text(), doc).CloudIdentity()
}

// Req makes the field required; null is then an error.
func (r *Row) Req() *Row { r.Required = true; return r }

// OrUnknown lets a required field be null, for "not known".
func (r *Row) OrUnknown() *Row { r.Required, r.NullOK = true, true; return r }

// AtCreate is what is sent for an absent field when its key is made: with the
// guest for whole-text keys, with the slot for tokens.
func (r *Row) AtCreate(wire string) *Row { r.CreateDefault = wire; return r }

// PVEDefault is PVE's documented default: it equals a live absence.
func (r *Row) PVEDefault(wire string) *Row { r.Default, r.HasDefault = wire, true; return r }

// PVEFills says what PVE puts into the key by itself when it makes the guest.
// A guest that was made with null would otherwise be changed once more.
func (r *Row) PVEFills(wire string) *Row { r.FilledIn = wire; return r }

// OnlyAtCreate marks a field that PVE takes at create and never reports.
func (r *Row) OnlyAtCreate() *Row { r.CreateOnly = true; return r }

// Fix turns drift into an anomaly with this advice. Nothing is written over a
// live value.
func (r *Row) Fix(todo string) *Row { r.Fixed = todo; return r }

// Hides marks a secret.
func (r *Row) Hides() *Row { r.Secret = true; return r }

// HidesWire marks a row whose manifest spelling names entries of the SOPS
// document: the names may be shown, what they resolve to is a secret.
func (r *Row) HidesWire() *Row { r.Secret, r.Names = true, true; return r }

// IfAbsent writes the field only where live has none, or right after a clone.
func (r *Row) IfAbsent() *Row { r.WriteIfAbsent = true; return r }

// CloudIdentity makes an absent field count as null; call it on clones only.
func (r *Row) CloudIdentity() *Row { r.Identity = true; return r }

// On is the impact on a running guest.
func (r *Row) On(i Impact) *Row { r.Impact = i; return r }

// HotplugBy makes the change live where the guest's hotplug option has class:
// "cpu", "memory", "disk", "network" or "usb".
func (r *Row) HotplugBy(class string) *Row { r.Hotplug = class; return r }

// NoAdopt keeps the live value out of adopted manifests, and out of the gaps.
func (r *Row) NoAdopt() *Row { r.NotAdopted = true; return r }

// NoAdoptWhen keeps such live values out of adopted manifests as drawn tells
// PVE's own by.
func (r *Row) NoAdoptWhen(drawn func(text string, env Env) bool) *Row { r.drawn = drawn; return r }

// Root says who may write the field, such as "root@pam only".
func (r *Row) Root(text string) *Row { r.RootOnly = text; return r }

// Is sets the row's part in a volume slot.
func (r *Row) Is(role Role) *Row { r.Role = role; return r }

// Eg replaces the codec's examples, YAML flow text each.
func (r *Row) Eg(examples ...string) *Row { r.Type.Examples = examples; return r }

// Group is a block that is part of its parent's struct: always there.
func Group(name, doc string, nodes ...Node) *Block {
	return &Block{Name: name, Doc: doc, Nodes: nodes}
}

// Sub is a block held by a pointer: nil is absent, and shape is then not
// called.
func Sub[T any](p **T, name, doc string, shape func(*T) []Node) *Block {
	b := &Block{
		Name: name, Doc: doc,
		Present: func() bool { return *p != nil },
		Alloc: func() {
			if *p == nil {
				*p = new(T)
			}
		},
	}
	if *p != nil {
		b.Nodes = shape(*p)
	}
	return b
}

// Req makes the block required.
func (b *Block) Req() *Block { b.Required = true; return b }

// Fills says that the block's rows live in a volume slot.
func (b *Block) Fills(v *Volume) *Block { b.Volume = v; return b }

// ListOf is a list of blocks held by a slice: nil is absent, empty is none.
func ListOf[T any](p *[]T, name, doc string, elem func(i int, e *T) *Block) *List {
	return &List{
		Name: name, Doc: doc,
		Present: func() bool { return *p != nil },
		Len:     func() int { return len(*p) },
		Resize:  func(n int) { *p = make([]T, n) },
		Elem:    func(i int) *Block { return elem(i, &(*p)[i]) },
	}
}

// Req makes the list required; it may still be empty.
func (l *List) Req() *List { l.Required = true; return l }

// MapEntry is one key of a Map.
type MapEntry[V any] struct {
	Key   string
	Value Opt[V]
}

// MapOf is a map with free keys held by a slice, in file order. row makes the
// row of one key; check refuses keys.
func MapOf[V any](p *[]MapEntry[V], name, doc string, row func(key string, o *Opt[V]) *Row, check func(key string) error) *Map {
	return &Map{
		Name: name, Doc: doc, Check: check,
		Present: func() bool { return *p != nil },
		Alloc: func(keys []string) {
			*p = make([]MapEntry[V], len(keys))
			for i, k := range keys {
				(*p)[i].Key = k
			}
		},
		Keys: func() []string {
			out := make([]string, 0, len(*p))
			for _, e := range *p {
				out = append(out, e.Key)
			}
			return out
		},
		Entry: func(key string) *Row {
			for i := range *p {
				if (*p)[i].Key == key {
					return row(key, &(*p)[i].Value)
				}
			}
			var none Opt[V]
			return row(key, &none)
		},
	}
}
