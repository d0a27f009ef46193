package adopt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// Group is one key that manifests do not hold, with every guest that has it.
type Group struct {
	Key    string   `json:"key"` // PVE's key, with the token behind a dot
	Count  int      `json:"count"`
	Guests []int    `json:"guests"`
	Reason string   `json:"reason"` // why it has no place in the manifest
	Own    bool     `json:"own"`    // PVE keeps it by itself: there is nothing to declare
	Values []string `json:"values"` // the different values, at most 5; secrets redacted
	More   int      `json:"more"`   // how many values there are beside these
}

const (
	noField  = "no field for it"
	ownWord  = "PVE's own record, nothing to declare"
	rawLines = "a raw line of the container's file"
	oddValue = "its field cannot say this value"
	masked   = "PVE does not give it back"
)

const mostValues = 5

// tellsSecret finds values that hold a secret by the look of them, such as
// -object secret,data=… in args.
var tellsSecret = regexp.MustCompile(`(?i)(pass(word|wd|phrase)?|secret|token|credentials?|api[-_]?key)[=:,]`)

func hide(gaps []field.Gap) []field.Gap {
	for i := range gaps {
		if v := gaps[i].Value; !v.IsSecret() && tellsSecret.MatchString(v.Reveal()) {
			gaps[i].Value = wire.Hidden(secret.New(v.Reveal()))
		}
	}
	return gaps
}

// groups counts the gaps of all manifests by key.
func groups(all []Manifest) []Group {
	type set struct{ values, reasons map[string]bool }
	byKey := map[string]*Group{}
	sets := map[string]set{}
	for _, m := range all {
		for _, gap := range m.Gaps {
			g := byKey[gap.Key]
			if g == nil {
				g = &Group{Key: gap.Key, Own: own(gap.Key)}
				byKey[gap.Key], sets[gap.Key] = g, set{map[string]bool{}, map[string]bool{}}
			}
			if !slices.Contains(g.Guests, m.VMID) {
				g.Guests = append(g.Guests, m.VMID)
				g.Count++
			}
			sets[gap.Key].reasons[gap.Reason] = true
			sets[gap.Key].values[gap.Value.String()] = true
		}
	}
	var out []Group
	for key, g := range byKey {
		slices.Sort(g.Guests)
		g.Reason = strings.Join(slices.Sorted(maps.Keys(sets[key].reasons)), "; ")
		g.Values = slices.Sorted(maps.Keys(sets[key].values))
		g.More = max(0, len(g.Values)-mostValues)
		g.Values = g.Values[:len(g.Values)-g.More]
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Group) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) })
	return out
}

// gap adds what a row read and the manifest does not hold.
func (x *adopting) gap(r *field.Row, text, why string) {
	key, f := r.Key, wire.FormatOf(x.g.LXC, r.Key)
	if r.Token != "" && !f.Plain {
		var ok bool
		if text, ok = wire.ParseProps(text, f).Get(r.Token); !ok {
			return
		}
		key += "." + r.Token
	}
	v := wire.Plain(text)
	if r.Secret {
		v = wire.Hidden(secret.New(text))
	}
	if !slices.ContainsFunc(x.out.Gaps, func(g field.Gap) bool { return g.Key == key }) {
		x.out.Gaps = append(x.out.Gaps, field.Gap{Key: key, Value: v, Reason: why})
	}
}

// gaps gives every gap its reason and adds raw lines.
func (x *adopting) gaps() {
	families := x.m.families[x.out.Kind]
	x.out.Gaps = slices.DeleteFunc(x.out.Gaps, func(g field.Gap) bool { return g.Key == "template" }) // the kind says it
	for i := range x.out.Gaps {
		g := &x.out.Gaps[i]
		key, _, token := strings.Cut(g.Key, ".")
		if key == "cipassword" {
			x.m.out.Passwords = append(x.m.out.Passwords, x.g.VMID)
		}
		switch {
		case g.Reason != "":
		case own(g.Key):
			g.Reason = ownWord
		case key == "cipassword":
			g.Reason = masked
		case !token && (families[wire.KeyClass(key)] || wire.IsVolumeKey(x.g.LXC, key)):
			g.Reason = oddValue
		default:
			g.Reason = noField
		}
	}
	for _, key := range slices.Sorted(maps.Keys(x.g.Raw)) {
		x.out.Gaps = append(x.out.Gaps, hide(raw(key, x.g.Raw[key]))...)
	}
	for i := range x.out.Gaps {
		if x.out.Gaps[i].Reason == rawLines && !slices.Contains(x.m.raw, x.g.VMID) {
			x.m.raw = append(x.m.raw, x.g.VMID)
		}
	}
	slices.SortStableFunc(x.out.Gaps, func(a, b field.Gap) int { return strings.Compare(a.Key, b.Key) })
}

// familiesOf are the key families that lists of a kind own.
func familiesOf(k *kind.Kind) map[string]bool {
	spec := k.New()
	b := field.Specimen(func() *field.Block { return spec.Shape(nil) })
	out := map[string]bool{}
	for _, r := range field.Rows(b) {
		if strings.Contains(r.Path, "[") {
			out[wire.KeyClass(r.Key)] = true
		}
	}
	delete(out, "")
	return out
}

// own reports whether PVE keeps a key by itself.
func own(key string) bool {
	switch key {
	case "meta", "vmgenid", "smbios1", "smbios1.uuid", "digest", "lock", "parent", "snaptime", "snapstate",
		"runningmachine", "runningcpu", "running-nets-host-mtu", "vmstate":
		return true
	}
	return strings.HasPrefix(key, "meta.") || wire.KeyClass(key) == "unused" && key != "unused"
}

// raw makes a gap of each raw line. PVE gives a container's lxc lines as pairs;
// any other shape is told as it is.
func raw(key, text string) []field.Gap {
	var pairs [][]json.RawMessage
	if json.Unmarshal([]byte(text), &pairs) != nil {
		var b bytes.Buffer
		if json.Compact(&b, []byte(text)) != nil {
			b.WriteString(text)
		}
		return []field.Gap{{Key: key, Value: wire.Plain(b.String()), Reason: noField}}
	}
	var out []field.Gap
	for _, p := range pairs {
		var words []string
		for _, w := range p {
			var s string
			if json.Unmarshal(w, &s) != nil {
				s = string(w)
			}
			words = append(words, s)
		}
		if len(words) == 0 {
			continue
		}
		value := wire.Plain(strings.Join(words[1:], " "))
		if strings.HasPrefix(words[0], "lxc.environment") {
			value = wire.Hidden(secret.New(value.Reveal()))
		}
		out = append(out, field.Gap{Key: words[0], Value: value, Reason: rawLines})
	}
	return out
}

// extra moves keys without a field to spec.extra, as far as they may stand
// there and anybody with rights may write them.
func (x *adopting) extra() {
	if !x.m.o.Extra {
		return
	}
	moved := map[string]bool{}
	list := yamldoc.Map()
	for _, g := range x.out.Gaps {
		if g.Reason == "" && !strings.Contains(g.Key, ".") && !own(g.Key) && !g.Value.IsSecret() {
			list.Put(g.Key, yamldoc.Str(g.Value.Reveal()))
			moved[g.Key] = true
		}
	}
	drop := func(path string) {
		key := strings.TrimPrefix(path, "extra.")
		delete(moved, key)
	}
	if len(list.Keys) == 0 {
		return
	}
	x.d.spec.Put("extra", list)
	x.d.record(list, []string{"extra"})
	r, err := x.d.settle(func(path, _ string) { drop(path) })
	if err != nil {
		remove(x.d.spec, []string{"extra"})
		return
	}
	for _, row := range field.Rows(r.Spec.Shape(&x.g.Guest)) {
		if strings.HasPrefix(row.Path, "extra.") && row.RootOnly != "" {
			remove(x.d.spec, split(row.Path))
			drop(row.Path)
		}
	}
	x.out.resource, _ = x.d.parse()
	x.out.Gaps = slices.DeleteFunc(x.out.Gaps, func(g field.Gap) bool { return moved[g.Key] })
}

func numbers(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
}

// hints tells what may save work.
func (m *maker) hints() {
	multi := map[string]int{}
	for _, g := range m.all {
		if g.declared == nil && g.wanted && len(g.nodes) > 1 {
			multi[g.kind.Name]++
		}
	}
	for _, k := range kind.All {
		switch n := multi[k.Name]; {
		case n == 1:
			m.out.Hints = append(m.out.Hints, "1 "+k.Name+" manifest names several nodes: the same file is on each of them")
		case n > 1:
			m.out.Hints = append(m.out.Hints, fmt.Sprintf("%d %s manifests name several nodes: the same file is on each of them", n, k.Name))
		}
	}
	if len(m.root) > 0 {
		slices.Sort(m.root)
		m.out.Hints = append(m.out.Hints, fmt.Sprintf("%d guests have what PVE lets only root@pam write (bind mounts, raw devices, some features): it stands in their manifests and is fine while nothing of it is to change: %s",
			len(m.root), numbers(m.root)))
	}
	if len(m.raw) > 0 {
		slices.Sort(m.raw)
		m.out.Hints = append(m.out.Hints, fmt.Sprintf("raw lines (lxc.*) can neither be set nor moved through the API, and stand in the way of snapshots and of migration to another node; containers with some: %s", numbers(m.raw)))
	}
	for path, what := range map[string]string{"/vms": "VM.Audit", "/storage": "Datastore.Audit"} {
		if !m.s.Holds(path, what) {
			m.out.Hints = append(m.out.Hints, fmt.Sprintf("%s has no %s on %s: PVE shows it only a part, and what it does not see was not adopted (a token with privilege separation needs the right itself)", m.s.Identity, what, path))
		}
	}
	slices.Sort(m.out.Hints)
	if n := m.out.Elsewhere; n > 0 {
		m.out.Hints = append(m.out.Hints, fmt.Sprintf("%d guests live on nodes that are not on the cluster's list and were left alone", n))
	}
}
