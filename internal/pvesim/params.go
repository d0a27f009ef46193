package pvesim

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// Params are the parameters of a request: from the path, the query and the body together. A value is what PVE's own code would
// see: a string; []string for a key given several times, []any for a JSON array; nil for a JSON null or a form key without "="; json.Number
// and bool from a JSON body; map[string]any for a JSON object. After the schema check the values of declared scalars are strings.
type Params map[string]any

// Has says whether the key was given at all.
func (p Params) Has(key string) bool { _, ok := p[key]; return ok }

// Str is the value as Perl would print it; "" when absent. Lists are joined with commas.
func (p Params) Str(key string) string { return text(p[key]) }

// Get is Str that tells an absent key from an empty value.
func (p Params) Get(key string) (string, bool) {
	v, ok := p[key]
	return text(v), ok
}

// Bool is Perl's truth of the value: "", "0" and an absent key are false.
func (p Params) Bool(key string) bool { s := p.Str(key); return s != "" && s != "0" }

// Int is the value as a number, def when absent or none.
func (p Params) Int(key string, def int) int {
	n, err := strconv.Atoi(strings.TrimPrefix(p.Str(key), "+"))
	if err != nil {
		return def
	}
	return n
}

// Keys are the keys in order.
func (p Params) Keys() []string { return sortedKeys(p) }

// Clone is a shallow copy.
func (p Params) Clone() Params {
	q := make(Params, len(p))
	for k, v := range p {
		q[k] = v
	}
	return q
}

// List splits a list parameter as PVE::Tools::split_list does.
func (p Params) List(key string) []string { return splitList(p.Str(key)) }

func splitList(s string) []string { return schema.SplitList(s) }

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		if v {
			return "1"
		}
		return "0"
	case json.Number:
		return numberText(v)
	case []string:
		return strings.Join(v, ",")
	case []any:
		var b strings.Builder
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(text(e))
		}
		return b.String()
	}
	return ""
}

// numberText prints a JSON number as Perl does: 2.0 is 2.
func numberText(n json.Number) string {
	if f, err := n.Float64(); err == nil && strings.ContainsAny(n.String(), ".eE") && f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return n.String()
}
