// Package yamldoc is the one place that knows the YAML library. It turns text
// into position-keeping nodes under strict rules and prints nodes back.
package yamldoc

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is the shape of a node.
type Kind int

// The four shapes. A null is a shape of its own: it is one of the three states
// that every optional field has.
const (
	Null Kind = iota
	Scalar
	Mapping
	Sequence
)

// Tag is what the YAML core schema makes of a scalar. Only true and false are
// booleans here: yes, no, on and off stay strings.
type Tag int

// The scalar types.
const (
	String Tag = iota
	Int
	Float
	Bool
)

// Node is one value of a document with its place. Line and Col count from 1;
// both are 0 in a node that no file holds.
type Node struct {
	Kind   Kind
	Tag    Tag
	Value  string // a scalar's text, unquoted
	Quoted bool   // a scalar that stood in quotes or in a block: always a string
	Line   int
	Col    int
	Keys   []*Node // a mapping's keys (scalars), in file order
	Values []*Node // a mapping's values, parallel to Keys
	Items  []*Node // a sequence's items

	// For printing.
	Comment string // above the node, without "# "
	Line1   string // behind the node on its line, without "# "
	Flow    bool   // print a sequence or mapping on one line
}

// Str makes a string scalar.
func Str(s string) *Node { return &Node{Kind: Scalar, Value: s} }

// Num makes an integer scalar.
func Num(n int) *Node { return &Node{Kind: Scalar, Tag: Int, Value: fmt.Sprint(n)} }

// Boolean makes a boolean scalar.
func Boolean(b bool) *Node { return &Node{Kind: Scalar, Tag: Bool, Value: fmt.Sprint(b)} }

// Strs makes a sequence of strings.
func Strs(ss []string) *Node {
	n := &Node{Kind: Sequence}
	for _, s := range ss {
		n.Items = append(n.Items, Str(s))
	}
	return n
}

// Map makes an empty mapping.
func Map() *Node { return &Node{Kind: Mapping} }

// Put appends key: v to a mapping and returns the mapping.
func (n *Node) Put(key string, v *Node) *Node {
	n.Keys, n.Values = append(n.Keys, Str(key)), append(n.Values, v)
	return n
}

// Get gives the value of key in a mapping, or nil.
func (n *Node) Get(key string) *Node {
	if n == nil || n.Kind != Mapping {
		return nil
	}
	for i, k := range n.Keys {
		if k.Value == key {
			return n.Values[i]
		}
	}
	return nil
}

// Problem is one fault in one place of one file.
type Problem struct {
	File string // relative to the repository root
	Line int    // from 1; 0 = the file as a whole
	Col  int
	Path string // dotted path of the field, such as networks[0].vlan; may be ""
	Text string // the fault, then what is allowed or what to do
}

// lineBreaks spells what would begin a line. Names of files and values may hold
// it, and a fault of one line must not look like two.
var lineBreaks = strings.NewReplacer("\n", `\n`, "\r", `\r`)

// Error is `file:line:column: path: text`, on one line.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
			if p.Col > 0 {
				fmt.Fprintf(&b, ":%d", p.Col)
			}
		}
		b.WriteString(": ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Text)
	return lineBreaks.Replace(b.String())
}

// Problems is every fault of one run; as an error it is one line a fault, by
// file and place.
type Problems []Problem

// Error lists the problems, one a line, sorted.
func (ps Problems) Error() string {
	var lines []string
	for _, p := range ps.Sorted() {
		lines = append(lines, p.Error())
	}
	return strings.Join(lines, "\n")
}

// Sorted is the problems by file, line, column, path and text, each once.
func (ps Problems) Sorted() Problems {
	out := slices.Clone(ps)
	slices.SortFunc(out, func(a, b Problem) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		if a.Col != b.Col {
			return a.Col - b.Col
		}
		if c := strings.Compare(a.Path, b.Path); c != 0 {
			return c
		}
		return strings.Compare(a.Text, b.Text)
	})
	return slices.Compact(out)
}

// Err is nil when there is no problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}
