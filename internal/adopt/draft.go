package adopt

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/yamldoc"
)

// draft is a manifest while it is made.
type draft struct {
	kind   *kind.Kind
	name   string
	file   string
	labels *yamldoc.Node
	spec   *yamldoc.Node
	origin map[*yamldoc.Node]string // the paths that nodes had at first: taking one out moves others
}

func newDraft(k *kind.Kind, name, file string, spec *yamldoc.Node) *draft {
	d := &draft{kind: k, name: name, file: file, spec: spec, origin: map[*yamldoc.Node]string{}}
	d.record(spec, nil)
	return d
}

func (d *draft) record(n *yamldoc.Node, at []string) {
	d.origin[n] = join(at)
	for i, k := range n.Keys {
		d.record(n.Values[i], append(slices.Clone(at), k.Value))
	}
	for i, x := range n.Items {
		d.record(x, append(slices.Clone(at), fmt.Sprintf("[%d]", i)))
	}
}

// print is the manifest with its header comment.
func (d *draft) print(from string, items []Item) []byte {
	meta := yamldoc.Map().Put("name", yamldoc.Str(d.name))
	if d.labels != nil {
		meta.Put("labels", d.labels)
	}
	n := yamldoc.Map().Put("apiVersion", yamldoc.Str(kind.APIVersion)).Put("kind", yamldoc.Str(d.kind.Name)).
		Put("metadata", meta).Put("spec", d.spec)
	var head []string
	if from != "" {
		head = append(head, "adopted from "+from)
	}
	for _, i := range items {
		at := ""
		if i.Path != "" {
			at = i.Path + ": "
		}
		head = append(head, "INCOMPLETE: "+at+i.Text)
	}
	n.Comment = strings.Join(head, "\n")
	return yamldoc.Print(n)
}

// parse reads the draft back as a loader would.
func (d *draft) parse() (*kind.Resource, yamldoc.Problems) {
	docs, problems := yamldoc.Parse(d.file, d.print("", nil))
	if len(problems) > 0 {
		return nil, problems
	}
	return kind.Parse(d.file, docs[0])
}

// unknowns comments the fields whose null stands for "not known".
func (d *draft) unknowns(b *field.Block, guess func(r *field.Row) string, m *Manifest) {
	for _, r := range field.Rows(b) {
		if !r.NullOK || r.State() == field.Set {
			continue
		}
		n := find(d.spec, r.Path)
		if n == nil {
			continue
		}
		text := "PVE does not report it; it is needed only to make the object anew"
		if g := guess(r); g != "" {
			text += "; " + g
		}
		n.Comment = "INCOMPLETE: " + text
		m.Incomplete = append(m.Incomplete, Item{Path: r.Path, Text: text, Unknown: true})
	}
}

// settle takes out what validation refuses, one field at a time, until the
// manifest is valid, and gives it as read back. What is taken out is told by
// its path. The error means that no valid manifest is left.
func (d *draft) settle(taken func(path, why string)) (*kind.Resource, error) {
	tries := map[string]int{}
	for range 500 {
		r, problems := d.parse()
		if len(problems) == 0 {
			return r, nil
		}
		p := problems[0]
		at, ok := strings.CutPrefix(p.Path, "spec.")
		if !ok {
			at = p.Path
		}
		parts := split(at)
		up := tries[at]
		tries[at]++
		if up >= len(parts) {
			return nil, fmt.Errorf("%s: %s", p.Path, p.Text)
		}
		if gone := remove(d.spec, parts[:len(parts)-up]); gone != nil {
			taken(d.origin[gone], p.Text)
		}
	}
	return nil, errors.New("it does not become valid")
}

// split cuts a path such as disks[0].size into disks, [0], size.
func split(path string) []string {
	var out []string
	for part := range strings.SplitSeq(path, ".") {
		for {
			i := strings.IndexByte(part, '[')
			if i < 0 {
				break
			}
			if i > 0 {
				out = append(out, part[:i])
			}
			end := strings.IndexByte(part, ']')
			if end < i {
				return out
			}
			out = append(out, part[i:end+1])
			part = part[end+1:]
		}
		if part != "" {
			out = append(out, part)
		}
	}
	return out
}

func join(parts []string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 && p[0] != '[' {
			b.WriteByte('.')
		}
		b.WriteString(p)
	}
	return b.String()
}

func index(part string) (int, bool) {
	if part[0] != '[' {
		return 0, false
	}
	i, err := strconv.Atoi(part[1 : len(part)-1])
	return i, err == nil
}

func child(n *yamldoc.Node, part string) *yamldoc.Node {
	if i, ok := index(part); ok {
		if n.Kind == yamldoc.Sequence && i < len(n.Items) {
			return n.Items[i]
		}
		return nil
	}
	return n.Get(part)
}

func find(n *yamldoc.Node, path string) *yamldoc.Node {
	for _, p := range split(path) {
		if n == nil {
			return nil
		}
		n = child(n, p)
	}
	return n
}

// remove takes the node at a path out and gives it; nil when there is none. A
// list of plain values goes as a whole: without one of them it would say
// something else. So does a mapping that is left empty.
func remove(root *yamldoc.Node, parts []string) *yamldoc.Node {
	if len(parts) == 0 {
		return nil
	}
	parent := find(root, join(parts[:len(parts)-1]))
	if parent == nil {
		return nil
	}
	last := parts[len(parts)-1]
	gone := child(parent, last)
	if gone == nil {
		return nil
	}
	if i, ok := index(last); ok {
		if gone.Kind == yamldoc.Scalar {
			return remove(root, parts[:len(parts)-1])
		}
		parent.Items = slices.Delete(parent.Items, i, i+1)
		return gone
	}
	i := slices.IndexFunc(parent.Keys, func(k *yamldoc.Node) bool { return k.Value == last })
	parent.Keys, parent.Values = slices.Delete(parent.Keys, i, i+1), slices.Delete(parent.Values, i, i+1)
	if len(parent.Keys) == 0 && len(parts) > 1 {
		remove(root, parts[:len(parts)-1])
	}
	return gone
}
