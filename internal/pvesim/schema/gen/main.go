// Command gen writes the compact PVE API schema to standard output. Its argument
// is a directory with api-schema.json (the list of API methods) and formats.json
// (the property-string formats and index ranges behind the large endpoints).
//
//	go run ./internal/pvesim/schema/gen DIR > internal/pvesim/schema/pve.txt
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen DIR")
		os.Exit(2)
	}
	w := bufio.NewWriter(os.Stdout)
	err := generate(os.Args[1], w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

type method struct {
	AllowToken  int             `json:"allowtoken"`
	Protected   int             `json:"protected"`
	ProxyTo     *string         `json:"proxyto"`
	Method      string          `json:"method"`
	Name        string          `json:"name"`
	Path        string          `json:"path"`
	Permissions json.RawMessage `json:"permissions"`
	Parameters  struct {
		Additional int              `json:"additionalProperties"`
		Properties map[string]param `json:"properties"`
	} `json:"parameters"`
	Returns struct {
		Type       string         `json:"type"`
		Properties map[string]any `json:"properties"`
	} `json:"returns"`
}

type param struct {
	Type       string          `json:"type"`
	Optional   any             `json:"optional"`
	DefaultKey int             `json:"default_key"`
	Minimum    any             `json:"minimum"`
	Maximum    any             `json:"maximum"`
	MinLength  int             `json:"minLength"`
	MaxLength  int             `json:"maxLength"`
	Enum       []string        `json:"enum"`
	Pattern    string          `json:"pattern"`
	Format     json.RawMessage `json:"format"`
	FormatName string          `json:"format_name"`
	Items      *param          `json:"items"`
	Requires   string          `json:"requires"`
	Default    any             `json:"default"`
	Alias      string          `json:"alias"`
	KeyAlias   string          `json:"keyAlias"`
	IndexRange []int           `json:"index_range"`
}

type generator struct {
	names  map[string]string // content of a format -> its name
	used   map[string]bool
	order  []string // lines of the formats, in order of first use
	ranges map[string][]int
	named  map[string]map[string]param
}

func generate(dir string, w *bufio.Writer) error {
	var methods []method
	if err := read(filepath.Join(dir, "api-schema.json"), &methods); err != nil {
		return err
	}
	var formats map[string]map[string]param
	if err := read(filepath.Join(dir, "formats.json"), &formats); err != nil {
		return err
	}
	g := &generator{names: map[string]string{}, used: map[string]bool{}, ranges: map[string][]int{}, named: map[string]map[string]param{}}
	for _, set := range slices.Sorted(maps.Keys(formats)) {
		kind, _, _ := strings.Cut(set, "_")
		for _, k := range slices.Sorted(maps.Keys(formats[set])) {
			p := formats[set][k]
			if p.IndexRange != nil {
				g.ranges[kind+" "+k] = p.IndexRange
			}
			if sub := p.nested(); sub != nil && p.FormatName != "" {
				g.named[p.FormatName] = sub
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.named)) {
		g.register(name, g.named[name])
	}
	slices.SortFunc(methods, func(a, b method) int {
		return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method)
	})
	var body []string
	for _, m := range methods {
		lines, err := g.method(m)
		if err != nil {
			return fmt.Errorf("%s %s: %w", m.Method, m.Path, err)
		}
		body = append(body, lines...)
	}
	fmt.Fprintln(w, "# Proxmox VE 9.2 API schema; the package comment explains the form. Generated: do not edit.")
	for _, l := range append(g.order, body...) {
		fmt.Fprintln(w, l)
	}
	return nil
}

func read(file string, v any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func (g *generator) method(m method) ([]string, error) {
	head := m.Method + " " + m.Path + " " + m.Name
	for _, f := range []struct {
		on   bool
		word string
	}{{m.Protected != 0, "protected"}, {m.ProxyTo != nil, "proxy"}, {m.AllowToken == 0, "notoken"}, {m.Parameters.Additional != 0, "open"}} {
		if f.on {
			head += " " + f.word
		}
	}
	ret := m.Returns.Type
	if ret == "" && m.Returns.Properties != nil {
		ret = "object"
	}
	if ret == "" {
		ret = "any"
	}
	allow, err := permission(m.Permissions)
	if err != nil {
		return nil, err
	}
	out := []string{head + " returns=" + ret, "  allow " + allow}
	kind := ""
	for _, k := range []string{"qemu", "lxc"} {
		if strings.Contains(m.Path, "/"+k) {
			kind = k
		}
	}
	for _, k := range slices.Sorted(maps.Keys(m.Parameters.Properties)) {
		name := k
		if base, ok := strings.CutSuffix(k, "[n]"); ok {
			r := g.ranges[kind+" "+k]
			if r == nil {
				return nil, fmt.Errorf("%s has no index range", k)
			}
			name = fmt.Sprintf("%s[%d-%d]", base, r[0], r[1])
		}
		out = append(out, g.entry(name, strings.TrimSuffix(k, "[n]"), m.Parameters.Properties[k]))
	}
	return out, nil
}

func (p param) nested() map[string]param {
	var sub map[string]param
	if len(p.Format) == 0 || json.Unmarshal(p.Format, &sub) != nil {
		return nil
	}
	return sub
}

// register names a property-string format and writes it, once per content.
func (g *generator) register(name string, sub map[string]param) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(sub)) {
		lines = append(lines, g.entry(k, name+"-"+k, sub[k]))
	}
	content := strings.Join(lines, "\n")
	if old, ok := g.names[content]; ok && g.named[name] == nil {
		return old
	}
	unique := name
	for i := 2; g.used[unique]; i++ {
		unique = name + "-" + strconv.Itoa(i)
	}
	g.used[unique], g.names[content] = true, unique
	head := "format " + unique
	if unique == "pve-vm-cpu-conf" {
		head += " check=" + unique
	}
	g.order = append(g.order, head)
	g.order = append(g.order, lines...)
	return unique
}

func (g *generator) entry(name, base string, p param) string {
	if p.Alias != "" {
		s := "  " + name + " -> " + p.Alias
		if p.KeyAlias != "" {
			s += " model=" + p.KeyAlias
		}
		return s
	}
	typ := p.Type
	if typ == "" {
		typ = "any"
	}
	if o := text(p.Optional); o != "" && o != "0" {
		typ += "?"
	}
	if class, ok := strings.CutSuffix(p.Pattern, "{0,4096}"); ok {
		p.Pattern, p.MaxLength = class+"*", 4096 // Go repeats at most 1000 times
	}
	s := "  " + name + " " + typ
	if p.DefaultKey != 0 {
		s += " default-key"
	}
	var fname string
	if sub := p.nested(); sub != nil {
		fname = g.register("."+strings.TrimPrefix(base, "."), sub)
	} else if len(p.Format) > 0 {
		_ = json.Unmarshal(p.Format, &fname)
	}
	items := ""
	if p.Items != nil {
		if sub := p.Items.nested(); sub != nil {
			items = g.register("."+base+"-item", sub)
		}
	}
	for _, a := range []struct{ k, v string }{
		{"fmt", fname}, {"items", items}, {"min", text(p.Minimum)}, {"max", text(p.Maximum)},
		{"minlen", positive(p.MinLength)}, {"maxlen", positive(p.MaxLength)},
		{"enum", strings.Join(p.Enum, ",")}, {"re", goPattern(p.Pattern)},
		{"needs", p.Requires}, {"default", text(p.Default)},
	} {
		if a.v != "" {
			s += " " + a.k + "=" + quote(a.v)
		}
	}
	return s
}

// goPattern turns Perl's notation into Go's where the two differ.
func goPattern(p string) string {
	return strings.NewReplacer("(?^:", "(?:", "(?^u:", "(?:", "(?^i:", "(?i:", "{,", "{0,", `\0`, `\x00`).Replace(p)
}

func positive(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func text(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	case bool:
		if x {
			return "1"
		}
		return "0"
	}
	return ""
}

func quote(s string) string {
	if strings.ContainsAny(s, " \"\n\t") {
		return strconv.Quote(s)
	}
	return s
}

func permission(raw json.RawMessage) (string, error) {
	var p *struct {
		User  string `json:"user"`
		Check []any  `json:"check"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", err
	}
	switch {
	case p == nil:
		return "root", nil
	case p.User != "":
		return p.User, nil // PVE looks at user first
	case p.Check != nil:
		return expression(p.Check)
	}
	return "root", nil
}

func expression(c []any) (string, error) {
	op := text(c[0])
	out := "(" + op
	rest := c[1:]
	switch op {
	case "and", "or":
		for _, x := range rest {
			sub, ok := x.([]any)
			if !ok {
				return "", fmt.Errorf("%s has operand %v", op, x)
			}
			s, err := expression(sub)
			if err != nil {
				return "", err
			}
			out += " " + s
		}
		return out + ")", nil
	case "perm", "perm-modify", "userid-param":
		out += " " + text(rest[0])
		rest = rest[1:]
	case "userid-group":
	default:
		return "", fmt.Errorf("permission check %q is unknown", op)
	}
	if len(rest) > 0 {
		if privs, ok := rest[0].([]any); ok {
			for _, x := range privs {
				out += " " + text(x)
			}
			rest = rest[1:]
		}
	}
	for i := 0; i+1 < len(rest); i += 2 {
		switch k := text(rest[i]); k {
		case "any":
			out += " :any"
		case "require_param":
			out += " :if " + text(rest[i+1])
		case "groups_param":
			out += " :groups " + text(rest[i+1])
		default:
			return "", fmt.Errorf("permission option %q is unknown", k)
		}
	}
	return out + ")", nil
}
