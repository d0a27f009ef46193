package field

import (
	"strings"

	"github.com/proxops/proxops/internal/yamldoc"
)

// Specimen is a spec's shape with every block present and one element in
// every list, for the schema and the reference. shape must be bound to a spec
// that is used for nothing else.
func Specimen(shape func() *Block) *Block {
	for range 16 {
		if !fill(shape()) {
			break
		}
	}
	return shape()
}

func fill(b *Block) (made bool) {
	for _, x := range b.Nodes {
		switch x := x.(type) {
		case *Block:
			if x.Present != nil && !x.Present() && x.Alloc != nil {
				x.Alloc()
				made = true
				continue
			}
			made = fill(x) || made
		case *List:
			if !x.Present() || x.Len() == 0 {
				x.Resize(1)
				made = true
				continue
			}
			made = fill(x.Elem(0)) || made
		}
	}
	return made
}

// Schema is the JSON Schema (draft 2020-12) of a specimen. encoding/json
// prints it with sorted keys.
func Schema(b *Block) map[string]any {
	props := map[string]any{}
	required := []string{}
	for _, x := range b.Nodes {
		switch x := x.(type) {
		case *Row:
			if x.Name == "" {
				continue
			}
			props[x.Name] = x.schema()
			if x.Required {
				required = append(required, x.Name)
			}
		case *Block:
			props[x.Name] = Schema(x)
			if x.Required {
				required = append(required, x.Name)
			}
		case *List:
			props[x.Name] = map[string]any{"type": "array", "description": x.Doc, "items": Schema(x.Elem(0))}
			if x.Required {
				required = append(required, x.Name)
			}
		case *Map:
			s := map[string]any{"type": "object", "description": x.Doc}
			if x.Entry != nil {
				s["additionalProperties"] = x.Entry("").schema()
			}
			props[x.Name] = s
		}
	}
	out := map[string]any{"type": "object", "additionalProperties": false, "properties": props}
	if b.Doc != "" {
		out["description"] = b.Doc
	}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// sizePattern is what a manifest's size looks like; see wire.ParseSize.
const sizePattern = `^[0-9]+ ?(K|M|G|T|KiB|MiB|GiB|TiB)$`

// nullable reports whether the manifest may say null.
func (r *Row) nullable() bool {
	return r.NullOK || !r.Required && (r.Role == RoleToken || r.Role == RolePool || r.Role == RoleNone)
}

func (r *Row) schema() map[string]any {
	out := map[string]any{}
	t := r.Type
	var types []string
	str := map[string]any{"type": "string"}
	switch t.Name {
	case "integer", "number", "boolean":
		types = []string{t.Name}
	case "size":
		types, out["pattern"] = []string{"string"}, sizePattern
	case "size or 0":
		types, out["pattern"], out["minimum"], out["maximum"] = []string{"string", "integer"}, sizePattern, 0, 0
	case "list of string":
		types, out["items"], out["uniqueItems"] = []string{"array"}, str, true
	case "list of string or string":
		types, out["items"], out["uniqueItems"] = []string{"array", "string"}, str, true
	case "scalar":
		types = []string{"string", "number", "boolean"}
	case "string or integer":
		types = []string{"string", "integer"}
	default:
		types = []string{"string"}
	}
	if t.Pattern != "" {
		if t.Name == "list of string" {
			out["items"] = map[string]any{"type": "string", "pattern": t.Pattern}
		} else {
			out["pattern"] = t.Pattern
		}
	}
	if t.Min != nil {
		out["minimum"] = *t.Min
	}
	if t.Max != nil {
		out["maximum"] = *t.Max
	}
	if r.nullable() {
		types = append(types, "null")
	}
	if out["type"] = types; len(types) == 1 {
		out["type"] = types[0]
	}
	if len(t.Enum) > 0 {
		var enum []any
		for _, e := range t.Enum {
			enum = append(enum, e)
		}
		if r.nullable() {
			enum = append(enum, nil)
		}
		out["enum"] = enum
	}
	if r.Doc != "" {
		out["description"] = r.Doc
	}
	return out
}

// Examples are the codec's valid values as nodes.
func (r *Row) Examples() ([]*yamldoc.Node, error) {
	var out []*yamldoc.Node
	for _, e := range r.Type.Examples {
		docs, problems := yamldoc.Parse("example of "+r.Path, []byte("x: "+e+"\n"))
		if err := problems.Err(); err != nil {
			return nil, err
		}
		for _, d := range docs {
			out = append(out, d.Get("x"))
		}
	}
	return out, nil
}

// Load reads one value into the row's field, as from a manifest.
func (r *Row) Load(n *yamldoc.Node) error { return r.load(n) }

// Read reads PVE's text of the row's key or token into its field.
func (r *Row) Read(text string) error { return r.read(text) }

// trimSpecimen is a path without its indexes: networks[0].vlan is
// networks[].vlan.
func trimSpecimen(path string) string { return strings.ReplaceAll(path, "[0]", "[]") }
