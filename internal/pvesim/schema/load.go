package schema

import (
	_ "embed"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"sync"
)

//go:embed pve.txt
var source string

//go:embed ha.txt
var sourceHA string

// load parses the embedded schema once. The text is part of the binary and a
// test reads it, so a fault in it cannot depend on input.
var load = sync.OnceValue(func() *tree {
	t, err := parse(source + sourceHA + sourceJobs)
	if err != nil {
		panic("embedded PVE schema: " + err.Error())
	}
	return t
})

type tree struct {
	methods []*Method
	formats map[string]*Format
	root    *node
}

type node struct {
	static  map[string]*node
	dynamic *node  // {name}
	varName string // name of the dynamic part that leads here
	rest    bool   // takes the rest of the path
	methods map[string]*Method
}

func newNode() *node { return &node{static: map[string]*node{}, methods: map[string]*Method{}} }

func (t *tree) add(m *Method) {
	n := t.root
	for _, part := range strings.FieldsFunc(m.Path, isSlash) {
		name, dynamic := strings.CutPrefix(part, "{")
		if !dynamic {
			if n.static[part] == nil {
				n.static[part] = newNode()
			}
			n = n.static[part]
			continue
		}
		if n.dynamic == nil {
			n.dynamic = newNode()
			n.dynamic.varName = strings.TrimSuffix(name, "}")
			n.dynamic.rest = n.dynamic.varName == "volume" || n.dynamic.varName == "cidr" // both hold slashes
		}
		n = n.dynamic
	}
	n.methods[m.HTTP] = m
}

func (t *tree) find(path string) (*node, map[string]string) {
	vars := map[string]string{}
	n := t.root
	parts := strings.FieldsFunc(path, isSlash)
	for i, part := range parts {
		if next := n.static[part]; next != nil {
			n = next
			continue
		}
		if n = n.dynamic; n == nil {
			return nil, nil
		}
		if n.rest {
			vars[n.varName] = strings.Join(parts[i:], "/")
			break
		}
		vars[n.varName] = part
	}
	if len(n.methods) == 0 {
		return nil, nil
	}
	return n, vars
}

func isSlash(r rune) bool { return r == '/' }

// parse reads the compact form; see the package comment.
func parse(text string) (*tree, error) {
	t := &tree{formats: map[string]*Format{}, root: newNode()}
	var f *Format
	var m *Method
	for no, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words, err := split(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", no+1, err)
		}
		if len(words) == 0 {
			return nil, fmt.Errorf("line %d: holds nothing", no+1)
		}
		switch indented := line[0] == ' '; {
		case !indented && words[0] == "format" && len(words) > 1:
			f, m = &Format{Name: words[1], byName: map[string]*Param{}}, nil
			if len(words) > 2 {
				f.Check = strings.TrimPrefix(words[2], "check=")
			}
			t.formats[f.Name] = f
		case !indented && len(words) >= 3:
			m, f = parseMethod(words), nil
			t.methods = append(t.methods, m)
			t.add(m)
		case indented && m != nil && words[0] == "allow":
			if m.Perm, err = parsePerm(strings.TrimPrefix(strings.TrimSpace(line), "allow ")); err != nil {
				return nil, fmt.Errorf("line %d: %w", no+1, err)
			}
		case indented && (m != nil || f != nil) && len(words) > 1:
			p, err := t.parseParam(words)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", no+1, err)
			}
			if m != nil {
				m.addParam(p)
			} else {
				f.addParam(p)
			}
		default:
			return nil, fmt.Errorf("line %d: %q is no record", no+1, line)
		}
	}
	sort.SliceStable(t.methods, func(i, j int) bool {
		a, b := t.methods[i], t.methods[j]
		return a.Path < b.Path || a.Path == b.Path && a.HTTP < b.HTTP
	})
	return t, nil
}

func parseMethod(w []string) *Method {
	m := &Method{HTTP: w[0], Path: w[1], Name: w[2], AllowTok: true, byName: map[string]*Param{}}
	for _, a := range w[3:] {
		switch {
		case a == "protected":
			m.Protected = true
		case a == "proxy":
			m.Proxy = true
		case a == "notoken":
			m.AllowTok = false
		case a == "open":
			m.Open = true
		case strings.HasPrefix(a, "returns="):
			m.Returns = a[len("returns="):]
		}
	}
	return m
}

func (m *Method) addParam(p *Param) {
	m.params = append(m.params, p)
	if p.Numbered {
		m.ranges = append(m.ranges, p)
	} else {
		m.byName[p.Name] = p
	}
}

func (f *Format) addParam(p *Param) {
	f.keys = append(f.keys, p)
	f.byName[p.Name] = p
	if p.DefaultKey {
		f.defaultKey = p.Name
	}
}

func (t *tree) parseParam(w []string) (*Param, error) {
	p := &Param{Name: w[0]}
	if name, idx, ok := strings.Cut(w[0], "["); ok {
		if _, err := fmt.Sscanf(idx, "%d-%d]", &p.Low, &p.High); err != nil {
			return nil, fmt.Errorf("index range %q: %w", w[0], err)
		}
		p.Name, p.Numbered = name, true
	}
	if w[1] == "->" {
		if len(w) < 3 {
			return nil, fmt.Errorf("alias %q has no target", w[0])
		}
		p.Alias = w[2]
		if len(w) > 3 {
			p.KeyAlias = strings.TrimPrefix(w[3], "model=")
		}
		return p, nil
	}
	typ, opt := strings.CutSuffix(w[1], "?")
	p.Optional = opt
	if typ != "any" {
		p.Type = Type(typ)
	}
	for _, a := range w[2:] {
		if err := t.attribute(p, a); err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return p, nil
}

func (t *tree) attribute(p *Param, a string) (err error) {
	k, v, _ := strings.Cut(a, "=")
	switch k {
	case "default-key":
		p.DefaultKey = true
	case "min":
		p.Min, err = bound(v)
	case "max":
		p.Max, err = bound(v)
	case "minlen":
		p.MinLen, err = strconv.Atoi(v)
	case "maxlen":
		p.MaxLen, err = strconv.Atoi(v)
	case "enum":
		p.Enum = strings.Split(v, ",")
	case "re":
		p.Pattern = v
		p.re, err = newMatcher(v)
	case "fmt":
		p.FormatName, p.Format = v, t.formats[v]
	case "items":
		if p.Items = t.formats[v]; p.Items == nil {
			err = fmt.Errorf("format %q is not defined before its use", v)
		}
	case "needs":
		p.Requires = v
	case "default":
		p.Default = v
	default:
		err = fmt.Errorf("attribute %q is unknown", k)
	}
	return err
}

func bound(s string) (*float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	return &f, err
}

// split cuts a line into words; key="go string" keeps its blanks.
func split(line string) ([]string, error) {
	var out []string
	for {
		line = strings.TrimLeft(line, " ")
		if line == "" {
			return out, nil
		}
		i := strings.IndexAny(line, " \"")
		switch {
		case i < 0:
			return append(out, line), nil
		case line[i] == ' ':
			out, line = append(out, line[:i]), line[i:]
		default:
			q, err := strconv.QuotedPrefix(line[i:])
			if err != nil {
				return nil, fmt.Errorf("bad quotes in %q", line)
			}
			s, err := strconv.Unquote(q)
			if err != nil {
				return nil, err
			}
			out, line = append(out, line[:i]+s), line[i+len(q):]
		}
	}
}
