package field

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/yamldoc"
)

// Load reads a spec from its mapping. shape is called again after blocks and
// lists were allocated, so that every element is bound. All faults are
// reported at once, with the file's name and the field's path; n may be nil
// for a document without spec.
func Load(file string, n *yamldoc.Node, shape func() *Block) yamldoc.Problems {
	l := &loader{file: file}
	if n == nil {
		n = yamldoc.Map()
	}
	if n.Kind != yamldoc.Mapping {
		l.fault(n, "", "%s stands where a mapping of fields belongs", kindName(n))
		return l.problems
	}
	for range 16 { // each round allocates one more level of nesting
		if !allocate(shape(), n) {
			break
		}
	}
	l.block(shape(), n, "")
	return l.problems
}

// allocate makes blocks, lists and maps that the document has present, and
// reports whether it made any.
func allocate(b *Block, n *yamldoc.Node) (made bool) {
	for _, x := range b.Nodes {
		switch x := x.(type) {
		case *Block:
			v := n.Get(x.Name)
			if v == nil || v.Kind != yamldoc.Mapping {
				continue
			}
			if x.Alloc != nil && x.Present != nil && !x.Present() {
				x.Alloc()
				made = true
				continue
			}
			made = allocate(x, v) || made
		case *List:
			v := n.Get(x.Name)
			if v == nil || v.Kind != yamldoc.Sequence {
				continue
			}
			if !x.Present() || x.Len() != len(v.Items) {
				x.Resize(len(v.Items))
				made = true
				continue
			}
			for i, item := range v.Items {
				if item.Kind == yamldoc.Mapping {
					made = allocate(x.Elem(i), item) || made
				}
			}
		case *Map:
			v := n.Get(x.Name)
			if v == nil || v.Kind != yamldoc.Mapping || x.Present() {
				continue
			}
			var keys []string
			for _, k := range v.Keys {
				keys = append(keys, k.Value)
			}
			x.Alloc(keys)
			made = true
		}
	}
	return made
}

type loader struct {
	file     string
	problems yamldoc.Problems
}

func (l *loader) fault(n *yamldoc.Node, path, format string, args ...any) {
	l.problems = append(l.problems, yamldoc.Problem{File: l.file, Line: n.Line, Col: n.Col, Path: path, Text: fmt.Sprintf(format, args...)})
}

func kindName(n *yamldoc.Node) string {
	switch n.Kind {
	case yamldoc.Null:
		return "null"
	case yamldoc.Mapping:
		return "a mapping"
	case yamldoc.Sequence:
		return "a list"
	}
	return strconv.Quote(n.Value)
}

func nameOf(x Node) string {
	switch x := x.(type) {
	case *Row:
		return x.Name
	case *Block:
		return x.Name
	case *List:
		return x.Name
	case *Map:
		return x.Name
	}
	return ""
}

func (l *loader) block(b *Block, n *yamldoc.Node, path string) {
	var names []string
	for _, x := range b.Nodes {
		name := nameOf(x)
		if name == "" {
			continue
		}
		names = append(names, name)
		at, v := n, n.Get(name)
		if v != nil {
			at = v
		}
		if at.Line == 0 {
			at = n
		}
		l.node(x, v, at, join(path, name))
	}
	for _, k := range n.Keys {
		if slices.Contains(names, k.Value) {
			continue
		}
		if ours := byPVEName(b, k.Value); ours != "" {
			l.fault(k, join(path, k.Value), "unknown field; did you mean %s?", ours)
		} else if near := nearest(k.Value, names); near != "" {
			l.fault(k, join(path, k.Value), "unknown field; did you mean %s?", near)
		} else {
			slices.Sort(names)
			l.fault(k, join(path, k.Value), "unknown field; known here are %s", strings.Join(names, ", "))
		}
	}
}

// node loads one part of a block. v is its value, nil when the document has
// none; at is the place to name.
func (l *loader) node(x Node, v, at *yamldoc.Node, path string) {
	switch x := x.(type) {
	case *Row:
		l.row(x, v, at, path)
	case *Block:
		switch {
		case v == nil && x.Required:
			l.fault(at, path, "this block is required; it takes %s", strings.Join(namesOf(x), ", "))
		case v == nil:
		case v.Kind != yamldoc.Mapping:
			l.fault(at, path, "%s stands where a block of fields belongs", kindName(v))
		default:
			l.block(x, v, path)
		}
	case *List:
		switch {
		case v == nil && x.Required:
			l.fault(at, path, "this list is required; write [] for none")
		case v == nil:
		case v.Kind != yamldoc.Sequence:
			l.fault(at, path, "%s stands where a list belongs", kindName(v))
		default:
			for i, item := range v.Items {
				p := fmt.Sprintf("%s[%d]", path, i)
				if item.Kind != yamldoc.Mapping {
					l.fault(item, p, "%s stands where a block of fields belongs", kindName(item))
					continue
				}
				l.block(x.Elem(i), item, p)
			}
		}
	case *Map:
		l.free(x, v, at, path)
	}
}

func namesOf(b *Block) []string {
	var out []string
	for _, x := range b.Nodes {
		if name := nameOf(x); name != "" {
			out = append(out, name)
		}
	}
	return out
}

func (l *loader) free(m *Map, v, at *yamldoc.Node, path string) {
	switch {
	case v == nil:
		return
	case v.Kind != yamldoc.Mapping:
		l.fault(at, path, "%s stands where a mapping belongs", kindName(v))
		return
	}
	for i, k := range v.Keys {
		p := join(path, k.Value)
		if m.Check != nil {
			if err := m.Check(k.Value); err != nil {
				l.fault(k, p, "%s", err)
				continue
			}
		}
		l.row(m.Entry(k.Value), v.Values[i], v.Values[i], p)
	}
}

func (l *loader) row(r *Row, v, at *yamldoc.Node, path string) {
	switch {
	case v == nil:
		if r.Required {
			l.fault(at, path, "this field is required; it takes %s", r.Type.words())
		}
		return
	case v.Kind == yamldoc.Null && !r.NullOK:
		switch {
		case r.Required:
			l.fault(at, path, "null is not allowed, for the field is required; it takes %s", r.Type.words())
			return
		case r.Role != RoleToken && r.Role != RolePool && r.Role != RoleNone:
			l.fault(at, path, "null has no meaning here; leave the field out")
			return
		}
	}
	if err := r.load(v); err != nil {
		l.fault(at, path, "%s", err)
		return
	}
	if r.state() != Set || r.Key == "" || r.Role != RoleToken {
		return
	}
	text := r.want("", Env{})
	switch {
	case r.Token != "" && strings.Contains(text, ","):
		l.fault(at, path, "a comma cannot stand here: it would end the value in PVE's %s", r.Key)
	case !r.Type.Lines && strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }):
		l.fault(at, path, "a line end or control character cannot stand here")
	}
}

// words says in a few words what a type takes.
func (t Type) words() string {
	s := t.Name
	switch {
	case len(t.Enum) > 0:
		return "one of " + strings.Join(t.Enum, ", ")
	case t.Min != nil && t.Max != nil:
		s += " in " + span(*t.Min, *t.Max)
	}
	if len(t.Examples) > 0 && t.Examples[0] != "" {
		s += ", such as " + t.Examples[0]
	}
	return s
}

// PathPos is the place of a field's value, or of the nearest ancestor that
// the document has.
func PathPos(n *yamldoc.Node, path string) (line, col int) {
	for n != nil {
		if n.Line > 0 {
			line, col = n.Line, n.Col
		}
		if path == "" {
			break
		}
		n, path = step(n, path)
	}
	return line, col
}

// step descends one element of a path; nil where the document ends.
func step(n *yamldoc.Node, path string) (*yamldoc.Node, string) {
	if path[0] == '[' {
		num, rest, _ := strings.Cut(path[1:], "]")
		i, err := strconv.Atoi(num)
		if err != nil || i < 0 || n.Kind != yamldoc.Sequence || i >= len(n.Items) {
			return nil, ""
		}
		return n.Items[i], strings.TrimPrefix(rest, ".")
	}
	for i, k := range n.Keys {
		rest, ok := strings.CutPrefix(path, k.Value)
		if k.Value == "" || !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
			continue
		}
		v := n.Values[i]
		if v.Line == 0 {
			v = k
		}
		return v, strings.TrimPrefix(rest, ".")
	}
	return nil, ""
}

// byPVEName is the field of a block that PVE calls name, such as vlan for tag.
func byPVEName(b *Block, name string) string {
	for _, x := range b.Nodes {
		if r, ok := x.(*Row); ok && r.Name != "" && (r.Token == name || r.Token == "" && r.Key == name) {
			return r.Name
		}
	}
	return ""
}
