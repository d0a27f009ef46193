package schema

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	errUnknown = "property is not defined in schema and the schema does not allow additional properties"
	errMissing = "property is missing and it is not optional"
	errURI     = "duplicate parameter (already defined in URI) with conflicting values!"
)

// Integers and numbers as PVE accepts them: "+2" passes, " 2" and "0x2" do not
// (au-084).
var (
	integerRE = regexp.MustCompile(`^[+-]?\d+\n?$`)
	numberRE  = regexp.MustCompile(`^[+-]?(?:\d+\.\d+|\d+\.|\.\d+|\d+)(?:[eE][+-]?\d+)?\n?$`)
)

// matcher is a pattern anchored the way PVE anchors it: between ^ and $, with
// no group around it, so that a|b means ^a or b$; and $ admits a final newline.
type matcher struct{ *regexp.Regexp }

func newMatcher(pattern string) (*matcher, error) {
	re, err := regexp.Compile("^" + pattern + "\\n?$")
	if err != nil {
		return nil, err
	}
	return &matcher{re}, nil
}

// Check validates the variables of the path and the parameters of a request
// together, as PVE does. A parameter value is a string, a bool, a json.Number,
// a float64, an int, a []string, a []any, a map or nil, as [DecodeForm] and
// encoding/json deliver them; nil counts as not given, but its key must be known
// and what it requires must be there (au-094, au-117).
//
// errs is nil when the request is acceptable, else it maps parameter names to
// PVE's texts, all of them at once. values then holds every given parameter as
// text: booleans as 0 or 1, lists and arrays joined by NUL. PVE's values are
// verbatim too: "+2" stays "+2".
func (m *Method) Check(vars map[string]string, params map[string]any) (values, errs map[string]string) {
	e := errors{}
	given := map[string]any{}
	for k, v := range params {
		if k == "_dc" { // _dc only defeats caches (au-079)
			continue
		}
		if u, ok := vars[k]; ok && u != plain(v) {
			e.add(k, errURI)
		}
		given[k] = v
	}
	if len(e) > 0 {
		return nil, e // PVE stops before it looks at the schema (au-113)
	}
	for k, v := range vars {
		given[k] = v
	}
	values = map[string]string{}
	for k, v := range given {
		p, ok := m.Key(k)
		if !ok {
			if !m.Open {
				e.add(k, errUnknown)
			}
			if v != nil {
				values[k] = plain(v)
			}
			continue
		}
		if p.Requires != "" && given[p.Requires] == nil {
			e.add(p.Requires, "missing property required by '"+k+"'")
		}
		if v != nil {
			v = p.listValue(v)
			p.check(k, v, e)
			values[k] = plain(v)
		}
	}
	for _, p := range m.params {
		if !p.Optional && !p.Numbered && given[p.Name] == nil {
			e.add(p.Name, errMissing)
		}
	}
	if len(e) > 0 {
		return nil, e
	}
	return values, nil
}

// errors collects one text per path. A second text for the same path is
// appended after a backslash and an n, which is what PVE really prints.
type errors map[string]string

func (e errors) add(path, text string) {
	if path == "" || path == "0" { // what is no path to Perl
		path = "_root"
	}
	if old, ok := e[path]; ok {
		text = old + `\n` + text
	}
	e[path] = text
}

// listValue folds repeated keys: a -list format takes several values (au-115),
// an array takes a single one.
func (p *Param) listValue(v any) any {
	switch x := v.(type) {
	case []string:
		if strings.HasSuffix(p.FormatName, "-list") {
			return strings.Join(x, "\x00")
		}
	case []any:
		if strings.HasSuffix(p.FormatName, "-list") {
			return plain(x)
		}
	case string:
		if p.Type == Array {
			return []string{x}
		}
	}
	return v
}

// check validates one value that was given.
func (p *Param) check(path string, v any, e errors) {
	switch x := v.(type) {
	case []string:
		if p.wants(Array, path, "ARRAY", e) {
			for i, s := range x {
				p.checkItem(path, i, s, e)
			}
		}
	case []any:
		if p.wants(Array, path, "ARRAY", e) {
			for i, s := range x {
				p.checkItem(path, i, plain(s), e)
			}
		}
	case map[string]any:
		p.wants("object", path, "HASH", e)
	case bool:
		if p.Type != "" && p.Type != Boolean {
			e.add(path, "type check ('"+string(p.Type)+"') failed - got JSON::PP::Boolean")
		}
	default:
		p.checkText(path, plain(v), e)
	}
}

// wants reports whether a reference value of PVE's kind fits the type.
func (p *Param) wants(t Type, path, kind string, e errors) bool {
	if p.Type == "" || p.Type == t {
		return true
	}
	e.add(path, "type check ('"+string(p.Type)+"') failed - got "+kind)
	return false
}

func (p *Param) checkItem(path string, i int, s string, e errors) {
	if p.Items == nil {
		return
	}
	item := Param{Type: String, Format: p.Items}
	item.checkText(path+"["+strconv.Itoa(i)+"]", s, e)
}

// Fault returns PVE's refusal of a value, or "" when the parameter admits it.
// path is the name that nested faults carry ("net0" gives "net0.tag: ...").
func (p *Param) Fault(path, value string) string {
	e := errors{}
	p.checkText(path, value, e)
	return e[path]
}

// checkText validates a scalar: type, then format, pattern, length, range and
// enumeration, stopping at the first fault of this value.
func (p *Param) checkText(path, s string, e errors) {
	if !p.typeAdmits(s) {
		if p.Type == Array {
			e.add(path, "type check ('array') failed")
			return
		}
		e.add(path, "type check ('"+string(p.Type)+"') failed - got '"+s+"'")
		return
	}
	if text := p.formatFault(path, s); text != "" {
		e.add(path, "invalid format - "+text)
		return
	}
	if p.re != nil && !p.re.MatchString(s) {
		e.add(path, "value does not match the regex pattern")
		return
	}
	if n := utf8.RuneCountInString(s); p.MaxLen > 0 && n > p.MaxLen {
		e.add(path, "value may only be "+strconv.Itoa(p.MaxLen)+" characters long")
		return
	} else if p.MinLen > 0 && n < p.MinLen {
		e.add(path, "value must be at least "+strconv.Itoa(p.MinLen)+" characters long")
		return
	}
	if text := p.rangeFault(s); text != "" {
		e.add(path, text)
		return
	}
	if p.Enum != nil && !contains(p.Enum, s) {
		e.add(path, "value '"+s+"' does not have a value in the enumeration '"+strings.Join(p.Enum, ", ")+"'")
	}
}

func (p *Param) typeAdmits(s string) bool {
	switch p.Type {
	case Boolean:
		return s == "0" || s == "1"
	case Integer:
		return integerRE.MatchString(s)
	case Number:
		return numberRE.MatchString(s)
	case Array, "object":
		return false
	}
	return true
}

// formatFault returns what PVE's format check dies with, newline included.
func (p *Param) formatFault(path, s string) string {
	if p.Format != nil {
		if _, err := p.Format.Parse(path, s); err != nil {
			return err.Error()
		}
		return ""
	}
	if p.FormatName == "" {
		return ""
	}
	if err := CheckFormat(p.FormatName, s); err != nil {
		return err.Error()
	}
	return ""
}

func (p *Param) rangeFault(s string) string {
	if p.Min == nil && p.Max == nil || !numberRE.MatchString(s) {
		return ""
	}
	f, err := strconv.ParseFloat(strings.TrimSuffix(s, "\n"), 64)
	if err != nil && f == 0 {
		return ""
	}
	if p.Max != nil && f > *p.Max {
		return "value must have a maximum value of " + number(*p.Max)
	}
	if p.Min != nil && f < *p.Min {
		return "value must have a minimum value of " + number(*p.Min)
	}
	return ""
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// plain renders a decoded value as Perl would print it.
func plain(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	case bool:
		if x {
			return "1"
		}
		return "0"
	case json.Number:
		f, err := x.Float64()
		if _, whole := x.Int64(); whole == nil || err != nil {
			return x.String()
		}
		return strconv.FormatFloat(f, 'g', 15, 64) // 2.0 reads back as 2 (au-093)
	case float64:
		return strconv.FormatFloat(x, 'g', 15, 64)
	case int:
		return strconv.Itoa(x)
	case []string:
		return strings.Join(x, "\x00")
	case []any:
		s := make([]string, len(x))
		for i := range x {
			s[i] = plain(x[i])
		}
		return strings.Join(s, "\x00")
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// DecodeForm decodes a query string or an urlencoded body as PVE's web server
// does: pairs are separated by & or ;, text after a second raw = is lost (au-119),
// + is a blank, a repeated key becomes a list, and a key without = has no value
// (au-117), which is not the empty string and takes away what the key had before.
// Nothing between two separators is a key of no name.
func DecodeForm(s string) map[string]any {
	out := map[string]any{}
	s = strings.TrimRight(strings.NewReplacer(";", "&", "+", " ").Replace(s), "&")
	if s == "" {
		return out
	}
	for pair := range strings.SplitSeq(s, "&") {
		parts := strings.Split(pair, "=")
		k := PercentDecode(parts[0])
		if len(parts) == 1 {
			out[k] = nil
			continue
		}
		v := PercentDecode(parts[1])
		switch old := out[k].(type) {
		case nil:
			out[k] = v
		case string:
			out[k] = []string{old, v}
		case []string:
			out[k] = append(old, v)
		}
	}
	return out
}

// PercentDecode decodes every %XX and leaves a stray % as it is. Bytes that are
// no UTF-8 then become U+FFFD, one each (au-123).
func PercentDecode(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return string([]rune(b.String()))
}
