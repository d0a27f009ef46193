package schema

import (
	"slices"
	"strconv"
	"strings"
)

// Type is the JSON type that PVE declares for a parameter.
type Type string

// The types that occur in PVE's schema. An entry that PVE leaves untyped, or
// types "any", has the empty type and admits everything.
const (
	String  Type = "string"
	Integer Type = "integer"
	Number  Type = "number"
	Boolean Type = "boolean"
	Array   Type = "array"
)

// Method is one HTTP method of one path template.
type Method struct {
	HTTP      string // GET, POST, PUT or DELETE
	Path      string // template, such as /nodes/{node}/qemu/{vmid}/config
	Name      string // PVE's name of the method, such as update_vm
	Protected bool   // runs in the privileged daemon
	Proxy     bool   // is forwarded to the node named in the path
	AllowTok  bool   // API tokens may call it
	Open      bool   // parameters outside the schema are accepted
	Returns   string // type of the data member: null, string, object, array, ...
	Perm      Perm   // who may call it

	params []*Param          // in schema order (sorted by name)
	byName map[string]*Param // plain names
	ranges []*Param          // numbered families
}

// Param describes one parameter of a method or one sub-key of a property string.
type Param struct {
	Name       string // without the index for a numbered family
	Low, High  int    // index range of a numbered family, inclusive
	Numbered   bool   // the keys are Name+index for Low <= index <= High
	Type       Type
	Optional   bool
	DefaultKey bool     // may be given without its name, first in a property string
	Min, Max   *float64 // inclusive bounds of integers and numbers
	MinLen     int      // characters; 0 means no bound
	MaxLen     int      // characters; 0 means no bound
	Enum       []string // allowed values in PVE's order
	Pattern    string   // Go regular expression, unanchored as PVE declares it
	FormatName string   // PVE's name of a single-value check ("pve-node") or of Format
	Format     *Format  // property-string format, nil for plain values
	Items      *Format  // format of the elements of an array, nil for plain strings
	Requires   string   // parameter that must be present when this one is
	Default    string   // PVE's documented default, "" for none
	Alias      string   // sub-key that this one stands for
	KeyAlias   string   // sub-key that receives this one's name

	re *matcher
}

// Format is a property-string format: a comma-separated list of key=value
// pairs, the value of the default key possibly without its name.
type Format struct {
	Name  string // PVE's name, or a name with a leading dot for inline formats
	Check string // PVE's extra validator, "" for none

	keys       []*Param // sorted by name
	byName     map[string]*Param
	defaultKey string
}

// Find looks up the method that serves a request path (without the /api2/json
// prefix and without query). PVE decodes a path as a whole before it splits it,
// so that an encoded slash separates parts: the path given here is decoded
// ([PercentDecode]). Only a trailing {volume} takes the rest of the path, slashes
// included. ok is false when the path is unknown or
// has no such method; [Allowed] tells the two apart.
func Find(method, path string) (m *Method, vars map[string]string, ok bool) {
	n, vars := load().find(path)
	if n == nil {
		return nil, nil, false
	}
	m = n.methods[method]
	if m == nil {
		return nil, nil, false
	}
	return m, vars, true
}

// Allowed lists the HTTP methods that the path has, sorted; empty when the path
// does not exist.
func Allowed(path string) []string {
	n, _ := load().find(path)
	if n == nil {
		return nil
	}
	var out []string
	for k := range n.methods {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Lookup returns the method of a path template exactly as PVE writes it, such
// as ("PUT", "/nodes/{node}/qemu/{vmid}/config"), or nil.
func Lookup(method, template string) *Method {
	for _, m := range load().methods {
		if m.HTTP == method && m.Path == template {
			return m
		}
	}
	return nil
}

// Methods returns every method of the schema, by path and HTTP method.
func Methods() []*Method { return slices.Clone(load().methods) }

// Named returns a property-string format by PVE's name, such as
// "pve-qm-ipconfig", or nil.
func Named(name string) *Format { return load().formats[name] }

// Keys returns the parameters of the method, numbered families once each.
func (m *Method) Keys() []*Param { return slices.Clone(m.params) }

// Key resolves a parameter by the name a client would send: "cores", "net0".
// An index outside the family's range is unknown, as it is to PVE, and so is a
// padded one ("net00").
func (m *Method) Key(name string) (*Param, bool) {
	if p := m.byName[name]; p != nil {
		return p, true
	}
	for _, p := range m.ranges {
		digits, ok := strings.CutPrefix(name, p.Name)
		if !ok {
			continue
		}
		i, err := strconv.Atoi(digits)
		if err == nil && i >= p.Low && i <= p.High && strconv.Itoa(i) == digits {
			return p, true
		}
	}
	return nil, false
}

// Keys returns the sub-keys of the format sorted by name, aliases included.
func (f *Format) Keys() []*Param { return slices.Clone(f.keys) }

// Key resolves a sub-key by name. An alias is returned as such; follow
// [Param.Alias] for the key that it stands for.
func (f *Format) Key(name string) (*Param, bool) {
	p, ok := f.byName[name]
	return p, ok
}

// DefaultKey is the sub-key whose name may be left out, "" when there is none.
func (f *Format) DefaultKey() string { return f.defaultKey }

// Names lists the keys that the parameter stands for: its name, or every
// numbered key of the family.
func (p *Param) Names() []string {
	if !p.Numbered {
		return []string{p.Name}
	}
	out := make([]string, 0, p.High-p.Low+1)
	for i := p.Low; i <= p.High; i++ {
		out = append(out, p.Name+strconv.Itoa(i))
	}
	return out
}
