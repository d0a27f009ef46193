package schema

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Props are the values of a property string by sub-key, aliases resolved.
type Props map[string]string

// ParsePropString reads text by the named property-string format, such as
// "pve-qm-ipconfig". path is the parameter that the errors name.
func ParsePropString(format, path, text string) (Props, error) {
	f := Named(format)
	if f == nil {
		return nil, fmt.Errorf("property-string format %q is unknown", format)
	}
	return f.Parse(path, text)
}

// PrintPropString writes props by the named format; see [Format.Print].
func PrintPropString(format string, props Props) (string, error) {
	f := Named(format)
	if f == nil {
		return "", fmt.Errorf("property-string format %q is unknown", format)
	}
	return f.Print(props)
}

// propError is a refusal in PVE's words, newline included, so that it can stand
// after "invalid format - ".
type propError string

func (e propError) Error() string { return string(e) }

// Parse reads a property string and checks every sub-key. Booleans come back as
// 0 or 1 whichever of yes, on, true, no, off, false was written. The error text
// is PVE's, the faults of all sub-keys in it, sorted by key and named path.key;
// it ends with a newline.
func (f *Format) Parse(path, text string) (Props, error) {
	props, fault := f.scan(text)
	if fault != "" {
		return nil, propError(fault)
	}
	if e := f.verify(path, props); len(e) > 0 {
		return nil, propError("format error\n" + e.lines())
	}
	if fault := validate(f.Check, props); fault != "" {
		return nil, propError(fault)
	}
	return props, nil
}

// scan cuts the string into sub-keys without checking the values.
func (f *Format) scan(text string) (props Props, fault string) {
	props = Props{}
	named := false // a value without key was seen
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		k, v, hasKey := strings.Cut(part, "=")
		v = strings.TrimSuffix(v, "\n") // PVE's pattern drops one, and matches no other
		switch {
		case hasKey && k != "" && v != "" && !strings.Contains(v, "\n"):
			if _, dup := props[k]; dup {
				return nil, "duplicate key in comma-separated list property: " + k + "\n"
			}
			p := f.byName[k]
			if p != nil && p.Alias != "" {
				if p.KeyAlias != "" {
					if _, dup := props[p.KeyAlias]; dup {
						return nil, "key alias '" + p.KeyAlias + "' is already defined\n"
					}
					props[p.KeyAlias] = k
				}
				k = p.Alias
				p = f.byName[k]
			}
			props[k] = booleanWord(p, v)
		case hasKey:
			return nil, "missing key in comma-separated list property\n"
		default:
			if f.defaultKey == "" {
				return nil, "value without key, but schema does not define a default key\n"
			}
			if old := props[f.defaultKey]; named || old != "" && old != "0" {
				return nil, "duplicate key in comma-separated list property: " + f.defaultKey + "\n"
			}
			props[f.defaultKey] = booleanWord(f.byName[f.defaultKey], part)
			named = true
		}
	}
	return props, ""
}

func booleanWord(p *Param, v string) string {
	if p == nil || p.Type != Boolean {
		return v
	}
	switch strings.ToLower(v) {
	case "1", "on", "yes", "true":
		return "1"
	case "0", "off", "no", "false":
		return "0"
	}
	return v
}

// verify is PVE's check_object over the sub-keys.
func (f *Format) verify(path string, props Props) errors {
	e := errors{}
	prefix := ""
	if path != "" {
		prefix = path + "."
	}
	for _, p := range f.keys {
		v, given := props[p.Name]
		switch {
		case !given && !p.Optional && p.Alias == "":
			e.add(prefix+p.Name, errMissing)
		case given && p.Alias == "":
			p.checkText(prefix+p.Name, v, e)
			if _, ok := props[p.Requires]; p.Requires != "" && !ok {
				e.add(prefix+p.Requires, "missing property required by '"+prefix+p.Name+"'")
			}
		}
	}
	for k := range props {
		if f.byName[k] == nil {
			e.add(prefix+k, errUnknown)
		}
	}
	return e
}

func (e errors) lines() string {
	keys := make([]string, 0, len(e))
	for k := range e {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(k + ": " + e[k] + "\n")
	}
	return b.String()
}

// Print writes a property string as PVE does: the default key first and without
// its name, joined with the key it models where there is one (virtio=<mac>);
// then the sub-keys that are not optional, then the rest, each group sorted. A
// disk-size given in bytes is printed with the largest unit that divides it.
func (f *Format) Print(props Props) (string, error) {
	if e := f.verify("", props); len(e) > 0 {
		return "", propError("format error\n" + e.lines())
	}
	keys := make([]string, 0, len(props))
	for k, v := range props {
		if strings.Contains(v, ",") {
			return "", propError("illegal value with commas for " + k + "\n")
		}
		keys = append(keys, k)
	}
	slices.Sort(keys)
	done := map[string]bool{}
	var out []string
	add := func(k string) {
		v, ok := props[k]
		if !ok || done[k] {
			return
		}
		done[k] = true
		text := f.printable(k, v)
		if partner := f.partner(k); partner != "" && props[partner] != "" {
			done[partner] = true
			out = append(out, text+"="+f.printable(partner, props[partner]))
			return
		}
		if k != f.defaultKey {
			text = k + "=" + text
		}
		out = append(out, text)
	}
	add(f.defaultKey)
	for _, k := range keys {
		if p := f.byName[k]; p != nil && !p.Optional {
			add(k)
		}
	}
	for _, k := range keys {
		add(k)
	}
	return strings.Join(out, ","), nil
}

// partner is the sub-key that key aliases pair with k: macaddr for model.
func (f *Format) partner(k string) string {
	for _, p := range f.keys {
		if p.KeyAlias == k {
			return p.Alias
		}
	}
	return ""
}

func (f *Format) printable(k, v string) string {
	p := f.byName[k]
	if p == nil || p.FormatName != "disk-size" {
		return v
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return v
	}
	return FormatSize(n)
}

// FormatSize prints a size in bytes with the largest unit of K, M, G and T that
// divides it; zero is 0T.
func FormatSize(n int64) string {
	unit := ""
	for _, u := range []string{"K", "M", "G", "T"} {
		if n%1024 != 0 {
			break
		}
		n, unit = n/1024, u
	}
	return strconv.FormatInt(n, 10) + unit
}

// ParseSize reads a size such as 512, 4M or 1.5G into bytes, rounding down; what goes beyond 63 bits is the largest number.
func ParseSize(s string) (bytes int64, ok bool) {
	if !sizeRE.MatchString(s) {
		return 0, false
	}
	factor := 1.0
	if i := strings.IndexByte("KMGT", s[len(s)-1]); i >= 0 {
		s = s[:len(s)-1]
		for ; i >= 0; i-- {
			factor *= 1024
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if f *= factor; f >= math.MaxInt64 {
		return math.MaxInt64, true
	}
	return int64(f), err == nil
}
