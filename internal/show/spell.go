package show

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/wire"
)

// speller knows the row of each field of an action's kind has, so that values
// are shown as a manifest spells them: 2GiB where PVE says 2048.
type speller map[string]*field.Row

var itemIndex = regexp.MustCompile(`\[\d+\]`)

func spellerOf(a plan.Action) speller {
	if a.Kind == nil || len(a.Changes) == 0 {
		return nil
	}
	spec := a.Kind.New()
	s := speller{}
	s.learn(field.Specimen(func() *field.Block { return spec.Shape(nil) }), "")
	return s
}

func (s speller) learn(b *field.Block, at string) {
	for _, n := range b.Nodes {
		switch n := n.(type) {
		case *field.Row:
			if n.Name != "" {
				s[strings.TrimPrefix(at+"."+n.Name, ".")] = n
			}
		case *field.Block:
			s.learn(n, at+"."+n.Name)
		case *field.List:
			if n.Len() > 0 {
				s.learn(n.Elem(0), at+"."+n.Name)
			}
		}
	}
}

// value spells one side of a change. What cannot be read is shown as it is.
func (s speller) value(c field.Change, v *wire.Value) string {
	if v == nil || v.IsSecret() {
		return value(v)
	}
	text := v.String()
	r := s[itemIndex.ReplaceAllString(c.Path, "")]
	if r == nil {
		return value(v)
	}
	switch r.Type.Name {
	case "boolean":
		switch text {
		case "1":
			return "true"
		case "0":
			return "false"
		}
	case "size", "size or 0": // sizes of volumes have a unit on the wire, memory is in MiB
		if n, err := strconv.ParseInt(text, 10, 40); err == nil && n > 0 {
			return wire.Size(n << 20).Manifest()
		}
	case "list of string":
		if strings.Contains(text, "ssh-") || strings.Contains(text, "ecdsa-") {
			return publicKeys(text)
		}
	default:
		if len(r.Type.Enum) > 0 {
			return Clean(r.Spell(text))
		}
	}
	return value(v)
}

// publicKeys shows of each key its type, the end of its data and its comment,
// by which people know it.
func publicKeys(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	var out []string
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		w := strings.Fields(line)
		if len(w) < 2 || len(w[1]) < 16 {
			out = append(out, Clean(strings.TrimSpace(line)))
			continue
		}
		w[1] = "…" + w[1][len(w[1])-8:]
		out = append(out, Clean(strings.Join(w, " ")))
	}
	return strings.Join(out, ", ")
}
