package field

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/wire"
)

// part is one line of the reference: a row, block, list or map of a specimen.
type part struct {
	path string // networks[].vlan
	node Node
}

// parts lists a specimen's parts in shape order.
func parts(b *Block, path string) []part {
	var out []part
	for _, x := range b.Nodes {
		name := nameOf(x)
		if name == "" {
			continue
		}
		p := join(path, name)
		switch x := x.(type) {
		case *Row:
			x.Path = p
			out = append(out, part{trimSpecimen(p), x})
		case *Block:
			out = append(out, part{trimSpecimen(p), x})
			out = append(out, parts(x, p)...)
		case *List:
			out = append(out, part{trimSpecimen(p) + "[]", x})
			out = append(out, parts(x.Elem(0), p+"[0]")...)
		case *Map:
			out = append(out, part{trimSpecimen(p), x})
		}
	}
	return out
}

var index = regexp.MustCompile(`\[[0-9*]*\]`)

// Explain says all about the field or block at path in a specimen. Indexes in
// the path may be left out: networks.vlan. The empty path is the whole spec.
func Explain(b *Block, lxc bool, path string) (string, error) {
	bare := func(s string) string { return index.ReplaceAllString(s, "") }
	all := parts(b, "")
	if path == "" {
		return b.Doc + "\n\n" + list(all, ""), nil
	}
	var names []string
	for _, p := range all {
		if bare(p.path) != bare(path) {
			names = append(names, bare(p.path))
			continue
		}
		switch x := p.node.(type) {
		case *Row:
			return x.explain(p.path, lxc), nil
		case *Block:
			return head(p.path, "block", x.Required, x.Doc) + list(all, bare(p.path)+"."), nil
		case *List:
			return head(p.path, "list of blocks", x.Required, x.Doc) + list(all, bare(p.path)+"."), nil
		case *Map:
			return head(p.path, "map", false, x.Doc), nil
		}
	}
	if near := nearest(bare(path), names); near != "" {
		return "", fmt.Errorf("%s: unknown field; did you mean %s?", path, near)
	}
	return "", fmt.Errorf("%s: unknown field; leave the path out to list all", path)
}

func head(path, what string, required bool, doc string) string {
	if required {
		what += ", required"
	}
	return path + " (" + what + ")\n  " + doc + "\n"
}

// list prints the parts below a prefix, one a line.
func list(all []part, prefix string) string {
	var b strings.Builder
	for _, p := range all {
		bare := index.ReplaceAllString(p.path, "")
		rest, ok := strings.CutPrefix(bare, prefix)
		if r, isRow := p.node.(*Row); ok && rest != "" && isRow {
			fmt.Fprintf(&b, "  %-36s %-17s %s\n", p.path, r.Type.Name, r.Doc)
		}
	}
	return b.String()
}

func (r *Row) explain(path string, lxc bool) string {
	var b strings.Builder
	b.WriteString(head(path, r.Type.words(), r.Required, r.Doc))
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", name+":", text)
		}
	}
	line("PVE", r.wireName(lxc))
	line("running", r.effect(lxc))
	line("when", r.when())
	if r.HasDefault {
		line("default", "PVE takes "+r.Default+" where the key is absent; the two count as equal")
	}
	if r.CreateDefault != "" {
		line("created", "sent as "+r.CreateDefault+" when the field is absent")
	}
	line("rights", r.RootOnly)
	if r.nullable() {
		line("null", r.null())
	}
	if len(r.Type.Examples) > 0 {
		line("example", r.Name+": "+r.Type.Examples[0])
	}
	return b.String()
}

func (r *Row) null() string {
	switch {
	case r.NullOK:
		return `stands for "not known"`
	case r.Key == "":
		return ""
	}
	return "clears it in PVE"
}

// wireName is the PVE key of a row, indexes as N.
func (r *Row) wireName(lxc bool) string {
	switch r.Role {
	case RoleNone, RoleSlot:
		return ""
	}
	key := r.Key
	if c := wire.KeyClass(key); c != key && (strings.HasSuffix(key, "0") || c == "mp") {
		switch c {
		case "efidisk", "tpmstate", "rng", "audio":
		default:
			key = c + "N"
		}
	}
	if f := wire.FormatOf(lxc, r.Key); r.Token != "" && key != "" && !f.Plain && (r.Token != f.Default || f.Net) {
		return key + "." + r.Token
	}
	return key
}

// effect says what a change does to a running guest.
func (r *Row) effect(lxc bool) string {
	switch {
	case r.Fixed != "" && r.Impact != None:
		return "a new one: " + r.change(lxc) + "; a live one is never rewritten"
	case r.Fixed != "", r.Role == RoleStorage && r.Impact == None:
		return "never rewritten; a difference is reported"
	case r.Role == RoleStorage:
		return "a new volume: " + r.change(lxc) + "; a live one is never moved"
	case r.Role == RoleSize:
		return "growing: live; another difference is reported"
	case r.Key == "" || r.Role == RoleSlot || r.Role == RoleSource:
		return ""
	}
	return r.change(lxc)
}

// change is the impact of a row in words.
func (r *Row) change(lxc bool) string {
	switch {
	case r.Hotplug != "" && lxc:
		return "live"
	case r.Hotplug != "":
		return "live where hotplug has " + r.Hotplug + ", else " + max(r.Impact, Pending).String()
	case r.Impact == None:
		return "no effect on a running guest"
	}
	return r.Impact.String()
}

// when says when the field is written.
func (r *Row) when() string {
	switch {
	case r.Role == RoleSource:
		return "once, into an empty slot"
	case r.CreateOnly && r.Identity:
		return "at create and after a clone; not compared"
	case r.CreateOnly:
		return "at create; not compared"
	case r.WriteIfAbsent:
		return "where live has none"
	}
	return ""
}

// Table is the Markdown reference of a specimen: one row a field.
func Table(b *Block, lxc bool) string {
	var out strings.Builder
	out.WriteString("| field | takes | PVE | on a running guest | notes |\n|---|---|---|---|---|\n")
	esc := func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ")
	}
	code := func(s string) string {
		if s == "" {
			return "–"
		}
		return "`" + s + "`"
	}
	for _, p := range parts(b, "") {
		switch x := p.node.(type) {
		case *Row:
			takes := x.Type.short()
			if x.Required {
				takes += ", required"
			}
			notes, more := x.Doc, slices.DeleteFunc([]string{x.when(), x.RootOnly}, func(n string) bool { return n == "" })
			if len(more) > 0 {
				notes += " _" + strings.Join(more, "; ") + "_"
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", p.path, esc(takes), code(x.wireName(lxc)), dash(x.effect(lxc)), esc(notes))
		case *Block:
			fmt.Fprintf(&out, "| **`%s`** | block%s | | | %s |\n", p.path, must(x.Required), esc(x.Doc))
		case *List:
			fmt.Fprintf(&out, "| **`%s`** | list%s | | | %s |\n", p.path, must(x.Required), esc(x.Doc))
		case *Map:
			fmt.Fprintf(&out, "| **`%s`** | map | | | %s |\n", p.path, esc(x.Doc))
		}
	}
	return out.String()
}

func must(required bool) string {
	if required {
		return ", required"
	}
	return ""
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// short is the type with its values or range.
func (t Type) short() string {
	switch {
	case len(t.Enum) > 0:
		return strings.Join(t.Enum, ", ")
	case t.Min != nil && t.Max != nil:
		return t.Name + " " + span(*t.Min, *t.Max)
	}
	return t.Name
}
