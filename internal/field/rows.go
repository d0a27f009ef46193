package field

import "fmt"

// visitor sees the parts of a spec's shape, parents before children. vol is
// the volume slot that the part's block fills, or nil.
type visitor struct {
	row  func(r *Row, vol *Volume)
	vol  func(v *Volume)
	list func(l *List, path string)
}

// walk visits what is present and sets the paths of rows and volumes.
func walk(b *Block, path string, v visitor) {
	if b == nil || b.Present != nil && !b.Present() {
		return
	}
	if b.Volume != nil {
		b.Volume.Path = path
		if v.vol != nil {
			v.vol(b.Volume)
		}
	}
	for _, n := range b.Nodes {
		switch n := n.(type) {
		case *Row:
			n.Path = join(path, n.Name)
			v.row(n, b.Volume)
		case *Block:
			walk(n, join(path, n.Name), v)
		case *List:
			if !n.Present() {
				continue
			}
			p := join(path, n.Name)
			if v.list != nil {
				v.list(n, p)
			}
			for i := range n.Len() {
				walk(n.Elem(i), fmt.Sprintf("%s[%d]", p, i), v)
			}
		case *Map:
			if !n.Present() {
				continue
			}
			for _, k := range n.Keys() {
				r := n.Entry(k)
				r.Name = k
				r.Path = join(join(path, n.Name), k)
				v.row(r, nil)
			}
		}
	}
}

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// Rows lists the rows of a spec in shape order, with their paths set. Blocks
// that are not present have none.
func Rows(b *Block) []*Row {
	var out []*Row
	walk(b, "", visitor{row: func(r *Row, _ *Volume) { out = append(out, r) }})
	return out
}

// Volumes lists the volume slots of a spec in shape order, with their paths
// set.
func Volumes(b *Block) []*Volume {
	var out []*Volume
	walk(b, "", visitor{row: func(*Row, *Volume) {}, vol: func(v *Volume) { out = append(out, v) }})
	return out
}

// State tells whether the row's field is absent, null or set.
func (r *Row) State() State { return r.state() }

// Wanted is the text that a set field wants on the wire where nothing is
// live. Secrets are in clear.
func (r *Row) Wanted() (string, bool) {
	if r.state() != Set {
		return "", false
	}
	return r.want("", Env{}), true
}

// Text is the set value in manifest spelling, for messages; secrets redacted.
func (r *Row) Text() string {
	switch n := r.print(); {
	case r.Secret && !r.Names:
		return "(redacted)"
	case n.Value != "" || len(n.Items) == 0:
		return n.Value
	default:
		s := ""
		for i, x := range n.Items {
			if i > 0 {
				s += ", "
			}
			s += x.Value
		}
		return s
	}
}
