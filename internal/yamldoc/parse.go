package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// The bounds of one file. They are far above any manifest and keep hostile
// input from costing time or memory.
const (
	MaxBytes = 1 << 20
	MaxKeys  = 4096   // in one mapping, and items in one list
	MaxNodes = 100000 // with aliases expanded
	MaxDepth = 64
)

var (
	intRE   = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)$`)
	floatRE = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)\.[0-9]+$`)
)

// resolve gives the type of a plain scalar. Only true, false, null, decimal
// integers and decimal fractions have a type of their own; everything that
// YAML 1.1 readers disagree about (yes, 0101, 1_000, 12:30, 2026-01-01) is a
// string.
func resolve(s string) (kind Kind, tag Tag) {
	switch {
	case s == "" || s == "~" || s == "null" || s == "Null" || s == "NULL":
		return Null, String
	case s == "true" || s == "false":
		return Scalar, Bool
	case intRE.MatchString(s):
		return Scalar, Int
	case floatRE.MatchString(s):
		return Scalar, Float
	}
	return Scalar, String
}

// Parse reads the documents of a YAML file, strictly: duplicate keys, merge
// keys, custom tags, bytes that are not UTF-8 text and files beyond the bounds
// are problems. Empty documents are left out; comments are not kept. Aliases
// are expanded. Every problem has its line and column.
func Parse(file string, data []byte) ([]*Node, Problems) {
	if p := badText(file, data); p != nil {
		return nil, p
	}
	c := &converter{file: file, open: map[*yaml.Node]bool{}}
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithV4Defaults(), yaml.WithUniqueKeys(false))
	if err != nil {
		return nil, c.syntax(err)
	}
	var docs []*Node
	for {
		var doc yaml.Node
		err := loader.Load(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, append(c.problems, c.syntax(err)...)
		}
		for _, n := range doc.Content {
			if out := c.convert(n, nil, 0); out != nil && out.Kind != Null {
				docs = append(docs, out)
			}
		}
	}
	if len(c.problems) > 0 {
		return nil, c.problems.Sorted()
	}
	return docs, nil
}

// badText finds what no YAML text may hold before the library sees it.
func badText(file string, data []byte) Problems {
	if len(data) > MaxBytes {
		return Problems{{File: file, Text: fmt.Sprintf("the file has %d bytes; a manifest has at most %d", len(data), MaxBytes)}}
	}
	line, start := 1, 0
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		text := ""
		switch {
		case r == utf8.RuneError && n <= 1:
			text = fmt.Sprintf("byte 0x%02x is not UTF-8; save the file as UTF-8", data[i])
		case r < ' ' && r != '\t' && r != '\n' && r != '\r', r == 0x7f:
			text = fmt.Sprintf("control character 0x%02x is not allowed", r)
		}
		if text != "" {
			return Problems{{File: file, Line: line, Col: utf8.RuneCount(data[start:i]) + 1, Text: text}}
		}
		if i += n; r == '\n' {
			line, start = line+1, i
		}
	}
	return nil
}

type converter struct {
	file     string
	problems Problems
	nodes    int
	tooMany  bool
	open     map[*yaml.Node]bool // the anchors being expanded
}

func (c *converter) fault(n *yaml.Node, format string, args ...any) {
	c.problems = append(c.problems, Problem{File: c.file, Line: n.Line, Col: n.Column, Text: fmt.Sprintf(format, args...)})
}

// syntax turns the library's error into problems.
func (c *converter) syntax(err error) Problems {
	var many *yaml.LoadErrors
	if errors.As(err, &many) && len(many.Errors) > 0 {
		var out Problems
		for _, e := range many.Errors {
			out = append(out, c.syntax(e)...)
		}
		return out
	}
	p := Problem{File: c.file, Text: err.Error()}
	var one *yaml.LoadError
	if errors.As(err, &one) {
		p.Line, p.Col, p.Text = one.Mark.Line, one.Mark.Column, one.Message
	}
	p.Text = strings.TrimPrefix(strings.TrimPrefix(p.Text, "go-yaml: "), "yaml: ")
	if strings.Contains(p.Text, "start any token") {
		p.Text += "; a tab may not indent: use blanks; one of @ ` % may not begin a plain value: put it in quotes"
	}
	return Problems{p}
}

// convert copies a node of the library; at is the alias it is reached by.
func (c *converter) convert(n, at *yaml.Node, depth int) *Node {
	if c.nodes++; c.nodes > MaxNodes || depth > MaxDepth {
		if !c.tooMany {
			c.tooMany = true
			c.fault(place(n, at), "the document is too large once aliases are expanded, or nested more than %d deep", MaxDepth)
		}
		return nil
	}
	if c.tooMany {
		return nil
	}
	if n.Kind == yaml.AliasNode {
		if n.Alias == nil || c.open[n.Alias] {
			c.fault(place(n, at), "alias *%s stands inside its own anchor", n.Value)
			return nil
		}
		if at == nil {
			at = n
		}
		return c.convert(n.Alias, at, depth+1)
	}
	if n.Anchor != "" {
		c.open[n] = true
		defer delete(c.open, n)
	}
	p := place(n, at)
	out := &Node{Line: p.Line, Col: p.Column}
	if n.Style&yaml.TaggedStyle != 0 {
		c.fault(p, "tag %s is not allowed; remove it", n.Tag)
		return nil
	}
	switch n.Kind {
	case yaml.ScalarNode:
		out.Value = n.Value
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			out.Kind, out.Quoted = Scalar, true
			return out
		}
		if out.Kind, out.Tag = resolve(n.Value); out.Kind == Null {
			out.Value = ""
		}
	case yaml.SequenceNode:
		out.Kind, out.Flow = Sequence, n.Style&yaml.FlowStyle != 0
		if len(n.Content) > MaxKeys {
			c.fault(p, "the list has %d items; at most %d are allowed", len(n.Content), MaxKeys)
			return nil
		}
		for _, item := range n.Content {
			if x := c.convert(item, at, depth+1); x != nil {
				out.Items = append(out.Items, x)
			}
		}
	case yaml.MappingNode:
		out.Kind, out.Flow = Mapping, n.Style&yaml.FlowStyle != 0
		c.mapping(n, at, out, depth)
	default:
		c.fault(p, "this kind of YAML node is not allowed")
		return nil
	}
	return out
}

func (c *converter) mapping(n, at *yaml.Node, out *Node, depth int) {
	if len(n.Content)/2 > MaxKeys {
		c.fault(place(n, at), "the mapping has %d keys; at most %d are allowed", len(n.Content)/2, MaxKeys)
		return
	}
	first := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode && key.Alias != nil {
			key = key.Alias
		}
		plain := key.Kind == yaml.ScalarNode && key.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0
		switch {
		case key.Kind != yaml.ScalarNode:
			c.fault(place(key, at), "a mapping's key must be a plain word")
			continue
		case plain && key.Value == "<<":
			c.fault(place(key, at), "merge keys (<<) are not supported; write the fields out, or use an alias for the whole value")
			continue
		case first[key.Value] != nil:
			c.fault(place(key, at), "key %q stands twice; first in line %d", key.Value, first[key.Value].Line)
			continue
		}
		first[key.Value] = key
		k, v := c.convert(key, at, depth+1), c.convert(value, at, depth+1)
		if k == nil || v == nil {
			continue
		}
		k.Kind, k.Tag, k.Value = Scalar, String, key.Value
		out.Keys, out.Values = append(out.Keys, k), append(out.Values, v)
	}
}

// place is where a node stands in the text: at its alias when it is reached
// by one.
func place(n, at *yaml.Node) *yaml.Node {
	if at != nil {
		return at
	}
	return n
}
