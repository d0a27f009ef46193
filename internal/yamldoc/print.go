package yamldoc

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// wide is the column from which a flow collection is printed as a block.
const wide = 100

// Print writes a document: two blanks of indentation, keys in the given order,
// literal blocks for text of several lines, quotes where any YAML reader could
// take the text for something else. Parse reads it back as the same node.
func Print(n *Node) []byte {
	var p printer
	p.comment(n.Comment, 0)
	switch {
	case inline(n):
		p.b.WriteString(flow(n) + p.tail(n) + "\n")
	case n.Kind == Scalar:
		p.scalar(n, 0)
	default:
		p.block(n, 0)
	}
	return []byte(p.b.String())
}

type printer struct{ b strings.Builder }

func (p *printer) comment(text string, indent int) {
	if text == "" {
		return
	}
	for _, l := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		p.b.WriteString(strings.TrimRight(strings.Repeat(" ", indent)+"# "+oneLine(l), " ") + "\n")
	}
}

// oneLine keeps a comment from ending early or holding what YAML forbids.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !printable(r) && r != '\t' || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s)
}

func (p *printer) tail(n *Node) string {
	if n.Line1 == "" {
		return ""
	}
	return " # " + oneLine(strings.ReplaceAll(n.Line1, "\n", " "))
}

// inline reports whether a node is printed behind its key.
func inline(n *Node) bool {
	switch n.Kind {
	case Mapping:
		return len(n.Keys) == 0 || n.Flow && len(flow(n)) < wide
	case Sequence:
		return len(n.Items) == 0 || n.Flow && len(flow(n)) < wide
	case Scalar:
		return n.Tag != String || !literal(n.Value)
	}
	return true
}

func (p *printer) block(n *Node, indent int) {
	pad := strings.Repeat(" ", indent)
	for i, k := range n.Keys {
		v := n.Values[i]
		p.comment(k.Comment, indent)
		p.comment(v.Comment, indent)
		p.b.WriteString(pad + word(k.Value, false) + ":")
		p.value(v, indent)
	}
	for _, v := range n.Items {
		p.comment(v.Comment, indent)
		p.b.WriteString(pad + "-")
		if v.Kind == Mapping && !inline(v) && v.Line1 == "" && v.Keys[0].Comment == "" && v.Values[0].Comment == "" {
			var in printer
			in.block(v, indent+2)
			p.b.WriteString(" " + strings.TrimLeft(in.b.String(), " "))
			continue
		}
		p.value(v, indent)
	}
}

// value prints what follows "key:" or "-".
func (p *printer) value(v *Node, indent int) {
	switch {
	case inline(v):
		p.b.WriteString(" " + flow(v) + p.tail(v) + "\n")
	case v.Kind == Scalar:
		p.b.WriteString(" ")
		p.scalar(v, indent)
	default:
		p.b.WriteString(p.tail(v) + "\n")
		p.block(v, indent+2)
	}
}

// scalar prints a literal block.
func (p *printer) scalar(n *Node, indent int) {
	text, chomp := n.Value, "-"
	if strings.HasSuffix(text, "\n") {
		chomp = ""
		if strings.HasSuffix(text, "\n\n") {
			chomp = "+"
		}
	} else {
		text += "\n"
	}
	p.b.WriteString("|" + chomp + p.tail(n) + "\n")
	for l := range strings.Lines(text) {
		if l != "\n" {
			p.b.WriteString(strings.Repeat(" ", indent+2))
		}
		p.b.WriteString(l)
	}
}

// literal reports whether text is to be printed as a literal block.
func literal(s string) bool {
	body := strings.TrimRight(s, "\n")
	if !strings.Contains(s, "\n") || body == "" || strings.HasPrefix(s, "\n") || s[0] == ' ' || s[0] == '\t' {
		return false
	}
	for l := range strings.SplitSeq(body, "\n") {
		if strings.TrimRight(l, " \t") != l {
			return false
		}
	}
	for _, r := range s {
		if r != '\n' && r != '\t' && !printable(r) || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// printable reports whether a literal block may hold r.
func printable(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029, r == 0xfeff, r >= 0xd800 && r < 0xe000, r == 0xfffe, r == 0xffff:
		return false
	}
	return true
}

// flow prints a node on one line.
func flow(n *Node) string {
	switch n.Kind {
	case Null:
		return "null"
	case Scalar:
		if n.Tag != String {
			return n.Value
		}
		return word(n.Value, false)
	}
	var parts []string
	for i, k := range n.Keys {
		parts = append(parts, word(k.Value, true)+": "+inFlow(n.Values[i]))
	}
	for _, v := range n.Items {
		parts = append(parts, inFlow(v))
	}
	if n.Kind == Mapping {
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

func inFlow(n *Node) string {
	if n.Kind == Scalar && n.Tag == String {
		return word(n.Value, true)
	}
	return flow(n)
}

var (
	plainRE   = regexp.MustCompile(`^[A-Za-z0-9_/.(+][A-Za-z0-9_./+@~=;:,()<>$^'*!?| \x{a1}-\x{2027}\x{2030}-\x{d7ff}-]*$`)
	typedRE   = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null|~|<<|=)$`)
	numericRE = regexp.MustCompile(`^[-+.]?[0-9][0-9_.:eE+\-]*$|^[-+]?0[xXoObB]|^[-+]?\.(?i:inf|nan)$|^\.[0-9]|^[0-9]{4}-[0-9]`)
	dotted    = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+){2,}$`) // 192.0.2.10 is a number to nobody
)

// word prints a string: plain when every YAML reader takes it as this string,
// else in double quotes.
func word(s string, inFlow bool) string {
	plain := plainRE.MatchString(s) && !typedRE.MatchString(s) &&
		(!numericRE.MatchString(s) || dotted.MatchString(s)) &&
		!strings.Contains(s, ": ") && !strings.Contains(s, " #") &&
		!strings.HasSuffix(s, ":") && !strings.HasSuffix(s, " ") && len(s) < 1000 && s != "..." &&
		!(inFlow && strings.ContainsAny(s, ",?:"))
	if plain {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case printable(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
