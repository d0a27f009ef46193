package field

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// items gives the strings of a list. With comma set, one string with commas
// is a list too.
func items(n *yamldoc.Node, comma bool) ([]string, error) {
	switch n.Kind {
	case yamldoc.Null:
		return nil, errors.New("null is not allowed here")
	case yamldoc.Mapping:
		return nil, errors.New("a mapping stands where a list belongs")
	case yamldoc.Scalar:
		if !comma {
			return nil, fmt.Errorf("%q is not a list; write [%s]", n.Value, n.Value)
		}
		s, err := text(n)
		if err != nil {
			return nil, err
		}
		var out []string
		for _, x := range strings.Split(s, ",") {
			if x = strings.TrimSpace(x); x != "" {
				out = append(out, x)
			}
		}
		return out, nil
	}
	if len(n.Items) == 0 {
		return nil, errors.New("the empty list is not allowed; leave the field out, or write null to clear it")
	}
	var out []string
	for i, x := range n.Items {
		s, err := text(x)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// ListOptions says how a list of strings is spelled and compared.
type ListOptions struct {
	Sep     string                   // PVE's separator when written
	Cut     string                   // the characters that separate when read; "" = Sep
	Ordered bool                     // order matters
	Comma   bool                     // the manifest may write one comma string
	Fold    bool                     // compared without case
	Empty   string                   // wire text of the empty list; "" = an empty list is refused
	Check   func(item string) error  // nil or what is allowed
	Example string                   // YAML flow text
	Norm    func(item string) string // canonical form for comparing; nil = itself
}

// split cuts PVE's text.
func (o ListOptions) split(s string) []string {
	cut := o.Cut
	if cut == "" {
		cut = o.Sep
	}
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(cut, r) })
}

// canon is what two lists are compared by.
func (o ListOptions) canon(ss []string) []string {
	out := make([]string, 0, len(ss))
	for _, s := range ss {
		if o.Norm != nil {
			s = o.Norm(s)
		}
		if o.Fold {
			s = strings.ToLower(s)
		}
		out = append(out, s)
	}
	if !o.Ordered {
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return out
}

// Strings is a list of strings in one text of PVE.
func Strings(o ListOptions) Codec[[]string] {
	write := func(ss []string) string {
		if len(ss) == 0 {
			return o.Empty
		}
		return strings.Join(ss, o.Sep)
	}
	name := "list of string"
	if o.Comma {
		name += " or string"
	}
	return Codec[[]string]{
		Type: Type{Name: name, Examples: []string{o.Example}},
		Parse: func(n *yamldoc.Node) ([]string, error) {
			if n.Kind == yamldoc.Sequence && len(n.Items) == 0 && o.Empty != "" {
				return []string{}, nil
			}
			ss, err := items(n, o.Comma)
			if err != nil {
				return nil, err
			}
			for i, s := range ss {
				if o.Check != nil {
					if err := o.Check(s); err != nil {
						return nil, err
					}
				}
				if slices.Contains(ss[:i], s) {
					return nil, fmt.Errorf("%q stands twice", s)
				}
			}
			return ss, nil
		},
		Print: flowStrings,
		Read: func(s string) ([]string, error) {
			if o.Empty != "" && s == o.Empty {
				return []string{}, nil
			}
			return o.split(s), nil
		},
		Write: write,
		Equal: func(want []string, live string, _ Env) bool {
			if o.Empty != "" && live == o.Empty {
				live = ""
			}
			return slices.Equal(o.canon(want), o.canon(o.split(live)))
		},
	}
}

func flowStrings(ss []string) *yamldoc.Node {
	n := yamldoc.Strs(ss)
	n.Flow = true
	return n
}

// Tags is a tag set. PVE takes commas, semicolons and blanks, sorts, removes
// doubles and folds case unless the datacenter says otherwise (facts.md H).
// owner is part of every wanted set, and all of it for null; adopt leaves it
// out, and older, the tags of tools that did the same before.
func Tags(owner string, older ...string) Codec[[]string] {
	set := func(ss []string, env Env) []string { return wire.FoldTags(ss, env.TagsCaseSensitive) }
	alone := func(live string) string { // null: the owner's tag alone
		if owner != "" && slices.Equal(set(wire.SplitTags(live), Env{}), []string{strings.ToLower(owner)}) {
			return live
		}
		return owner
	}
	return Codec[[]string]{
		Clear: alone,
		Type:  Type{Name: "list of string", Pattern: wire.TagPattern, Examples: []string{"[web, prod]"}},
		Parse: func(n *yamldoc.Node) ([]string, error) {
			if n.Kind == yamldoc.Sequence && len(n.Items) == 0 {
				return nil, errors.New("the empty list is not allowed; write null for no tags, or leave the field out")
			}
			if tags := wire.SplitTags(n.Value); n.Kind == yamldoc.Scalar && len(tags) > 1 {
				return nil, fmt.Errorf("%q is not a list; write [%s]", n.Value, strings.Join(tags, ", "))
			}
			ss, err := items(n, false)
			if err != nil {
				return nil, err
			}
			for i, s := range ss {
				if !wire.ValidTag(s) && slices.IndexFunc(wire.SplitTags(s), func(t string) bool { return !wire.ValidTag(t) }) < 0 {
					return nil, fmt.Errorf("%q is several tags: write each as an item of its own, [%s]", s, strings.Join(wire.SplitTags(s), ", "))
				}
				if !wire.ValidTag(s) {
					return nil, fmt.Errorf("%q is not a tag: letters, digits and _ first, then also + . -", s)
				}
				for _, t := range ss[:i] {
					if strings.EqualFold(s, t) {
						return nil, fmt.Errorf("%q and %q differ only in case, and PVE folds case", t, s)
					}
				}
			}
			return ss, nil
		},
		Print: flowStrings,
		Read: func(s string) ([]string, error) {
			return slices.DeleteFunc(wire.SplitTags(s), func(t string) bool {
				return owner != "" && strings.EqualFold(t, owner) || wire.HasTag(older, t)
			}), nil
		},
		Write: func(ss []string) string { return wire.JoinTags(withOwner(ss, owner)) },
		Equal: func(want []string, live string, env Env) bool {
			return slices.Equal(set(withOwner(want, owner), env), set(wire.SplitTags(live), env))
		},
	}
}

func withOwner(ss []string, owner string) []string {
	if owner == "" || slices.ContainsFunc(ss, func(t string) bool { return strings.EqualFold(t, owner) }) {
		return ss
	}
	return append(slices.Clone(ss), owner)
}

// SSHKeys is a set of public keys, one a line. encoded is the VM's form, where
// PVE wants the value itself percent-encoded (facts.md A xiii); containers
// take raw text.
func SSHKeys(encoded bool) Codec[[]string] {
	c := Codec[[]string]{
		Type: Type{Name: "list of string", Lines: true, Examples: []string{"[ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL ops@example]"}},
		Parse: func(n *yamldoc.Node) ([]string, error) {
			ss, err := items(n, false)
			if err != nil {
				return nil, err
			}
			for i, s := range ss {
				if strings.ContainsAny(s, "\r\n") {
					return nil, fmt.Errorf("item %d holds more than one line; write one key an item", i)
				}
				ss[i] = strings.TrimSpace(s)
			}
			return ss, nil
		},
		Print: yamldoc.Strs,
		Read:  func(s string) ([]string, error) { return wire.SplitKeys(s), nil },
		Write: func(ss []string) string { return strings.Join(ss, "\n") },
	}
	if encoded {
		c.Read = wire.DecodeSSHKeys
		c.Write = wire.EncodeSSHKeys
	}
	read := c.Read
	c.Equal = func(want []string, live string, _ Env) bool {
		now, err := read(live)
		return err == nil && slices.Equal(keySet(now), keySet(want))
	}
	return c
}

func keySet(ss []string) []string {
	var out []string
	for _, s := range ss {
		if s = strings.Join(strings.Fields(s), " "); s != "" {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Flags is a set of cpu flags, +aes, -pcid or aes. Each named flag is owned by
// itself: the others of the live text stay. known lists the valid names
// without sign; nil allows any.
func Flags(known []string) Codec[[]string] {
	return Codec[[]string]{
		Type: Type{Name: "list of string", Examples: []string{`["+aes", "-pcid"]`}},
		Parse: func(n *yamldoc.Node) ([]string, error) {
			ss, err := items(n, false)
			if err != nil {
				return nil, err
			}
			var seen []string
			for i, s := range ss {
				name := strings.TrimLeft(s, "+-")
				if len(s)-len(name) > 1 || name == "" || strings.ContainsAny(name, ";, =") {
					return nil, fmt.Errorf("%q is not a flag such as +aes or -pcid", s)
				}
				if known != nil && !slices.Contains(known, name) {
					return nil, notOneOf(name, known)
				}
				if slices.Contains(seen, name) {
					return nil, fmt.Errorf("flag %s stands twice", name)
				}
				seen = append(seen, name)
				if s[0] != '+' && s[0] != '-' {
					ss[i] = "+" + s
				}
			}
			return ss, nil
		},
		Print: flowStrings,
		Read:  func(s string) ([]string, error) { return wire.SplitFlags(s), nil },
		Write: wire.JoinFlags,
		Equal: func(want []string, live string, _ Env) bool {
			now := wire.SplitFlags(live)
			for _, f := range want {
				if !slices.Contains(now, f) {
					return false
				}
			}
			return true
		},
		Merge: func(want []string, live string, _ Env) string {
			now := wire.SplitFlags(live)
			for _, f := range want {
				now = wire.SetFlag(now, f)
			}
			return wire.JoinFlags(now)
		},
	}
}

// FlagMember is one cpu flag as a boolean; the other flags of the text stay.
func FlagMember(name string) Codec[bool] {
	c := Bool()
	sign := func(b bool) string {
		if b {
			return "+" + name
		}
		return "-" + name
	}
	c.Read = func(s string) (bool, error) {
		on, ok := wire.HasFlag(wire.SplitFlags(s), name)
		if !ok {
			return false, fmt.Errorf("no flag %s", name)
		}
		return on, nil
	}
	c.Write = sign
	c.Merge = func(want bool, live string, _ Env) string {
		return wire.JoinFlags(wire.SetFlag(wire.SplitFlags(live), sign(want)))
	}
	c.Clear = func(live string) string {
		return wire.JoinFlags(slices.DeleteFunc(wire.SplitFlags(live), func(f string) bool { return strings.TrimLeft(f, "+-") == name }))
	}
	return c
}
