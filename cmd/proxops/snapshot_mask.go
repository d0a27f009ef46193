package main

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// masker replaces what tells whose estate it is, equal things by equal ones,
// so that references between answers still hold.
type masker struct {
	names map[string]string // of nodes, guests, pools, snapshots and the cluster
	macs  map[string]string
	nets  map[string]int // first three bytes of an IPv4 address → number
	six   map[string]int
	uuids map[string]string
}

func newMasker() *masker {
	return &masker{names: map[string]string{}, macs: map[string]string{}, nets: map[string]int{}, six: map[string]int{}, uuids: map[string]string{}}
}

// learn finds the names.
func (m *masker) learn(answers map[string]any) {
	count := map[string]int{}
	name := func(old, stem string) {
		if old != "" && m.names[old] == "" {
			count[stem]++
			m.names[old] = fmt.Sprintf("%s%02d", stem, count[stem])
		}
	}
	for _, n := range objects(answers["/nodes"]) {
		name(word(n["node"]), "node")
	}
	for _, n := range objects(answers["/cluster/status"]) {
		if word(n["type"]) == "cluster" {
			name(word(n["name"]), "cluster")
		} else {
			name(word(n["name"]), "node")
		}
	}
	for _, p := range objects(answers["/pools"]) {
		name(word(p["poolid"]), "pool")
	}
	for _, g := range objects(answers["/cluster/resources?type=vm"]) {
		if old := word(g["name"]); old != "" && m.names[old] == "" {
			m.names[old] = fmt.Sprintf("guest-%v", g["vmid"])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(answers)) {
		if strings.HasSuffix(path, "/snapshot") {
			for _, s := range objects(answers[path]) {
				if old := word(s["name"]); old != "current" {
					name(old, "snap")
				}
			}
		}
	}
}

// all masks the answers and their paths.
func (m *masker) all(answers map[string]any) map[string]any {
	out := map[string]any{}
	for _, path := range slices.Sorted(maps.Keys(answers)) {
		bare, query, has := strings.Cut(path, "?")
		parts := strings.Split(bare, "/")
		for i, p := range parts {
			if old, err := url.PathUnescape(p); err == nil && m.names[old] != "" && i > 0 && slices.Contains([]string{"nodes", "pools", "snapshot"}, parts[i-1]) {
				parts[i] = m.names[old]
			}
		}
		to := strings.Join(parts, "/")
		if has {
			to += "?" + query
		}
		out[to] = m.value("", answers[path])
	}
	return out
}

// dropped are keys whose values are left out, and replaced those whose values
// become one fixed text.
var (
	dropped = []string{"sshkeys", "cipassword", "ssh-public-keys", "ssl_fingerprint", "fingerprint", "password", "keyring", "encryption-key",
		"master-pubkey", "args", "description", "comment", "comments", "notes", "digest", "http", "webauthn", "u2f", "email_from", "consent-text", "description-edit"}
	replaced = map[string]string{"ciuser": "user", "searchdomain": "example.com", "server": "192.0.2.200", "server2": "192.0.2.201", "portal": "192.0.2.202",
		"monhost": "192.0.2.203", "username": "user", "target": "target", "export": "/export", "share": "share", "domain": "example.com",
		"smbios1": "", "volname": "volume", "datastore": "datastore", "namespace": "namespace"}
)

// value masks one value; key is the key it stands under.
func (m *masker) value(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		return m.object(v)
	case []any:
		out := []any{}
		for _, x := range v {
			if x = m.value(key, x); x != nil {
				out = append(out, x)
			}
		}
		return out
	case string:
		return m.text(v)
	}
	return v
}

func (m *masker) object(v map[string]any) any {
	out := map[string]any{}
	at := word(v["key"]) // rows of /pending name the key
	if slices.Contains(dropped, at) {
		return nil
	}
	for _, k := range slices.Sorted(maps.Keys(v)) {
		name := k
		if at != "" && (k == "value" || k == "pending") {
			name = at
		}
		text, isText := v[k].(string)
		fixed, fix := replaced[name]
		switch {
		case slices.Contains(dropped, name):
		case name == "smbios1" && isText:
			out[k] = m.smbios(text)
		case fix && isText:
			out[k] = fixed
		case (name == "name" || name == "hostname") && isText && m.names[text] == "" && text != "current":
			out[k] = "guest" // a name that was never listed, such as a pending one
		default:
			out[k] = m.value(name, v[k])
		}
	}
	return out
}

// smbios keeps the uuid alone: the rest is serial numbers.
func (m *masker) smbios(s string) string {
	for _, t := range strings.Split(s, ",") {
		if strings.HasPrefix(t, "uuid=") {
			return m.text(t)
		}
	}
	return "uuid=00000000-0000-4000-8000-000000000000"
}

var (
	uuidText = regexp.MustCompile(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)
	macText  = regexp.MustCompile(`\b[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\b`)
	ip4Text  = regexp.MustCompile(`\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b`)
	ip6Text  = regexp.MustCompile(`[0-9A-Fa-f:]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*`)
	nameText = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9_.-]*`)
)

// text masks what may stand in any text.
func (m *masker) text(s string) string {
	if to := m.names[s]; to != "" {
		return to
	}
	s = uuidText.ReplaceAllStringFunc(s, func(u string) string {
		u = strings.ToLower(u)
		if m.uuids[u] == "" {
			m.uuids[u] = fmt.Sprintf("00000000-0000-4000-8000-%012x", len(m.uuids)+1)
		}
		return m.uuids[u]
	})
	s = macText.ReplaceAllStringFunc(s, func(a string) string {
		a = strings.ToUpper(a)
		if m.macs[a] == "" {
			n := len(m.macs) + 1
			m.macs[a] = fmt.Sprintf("BC:24:11:%02X:%02X:%02X", n>>16&255, n>>8&255, n&255)
		}
		return m.macs[a]
	})
	s = ip4Text.ReplaceAllStringFunc(s, m.ip4)
	s = ip6Text.ReplaceAllStringFunc(s, m.ip6)
	return nameText.ReplaceAllStringFunc(s, func(w string) string {
		if to := m.names[w]; to != "" {
			return to
		}
		return w
	})
}

// ip4 keeps the last byte, so that a gateway stays in its guest's network.
func (m *masker) ip4(s string) string {
	a, err := netip.ParseAddr(s)
	if err != nil || a.IsLoopback() || a.IsUnspecified() {
		return s
	}
	b := a.As4()
	net := fmt.Sprint(b[:3])
	if _, ok := m.nets[net]; !ok {
		m.nets[net] = len(m.nets)
	}
	n := m.nets[net]
	return fmt.Sprintf("10.%d.%d.%d", 128+n>>8&127, n&255, b[3])
}

func (m *masker) ip6(s string) string {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.IsLoopback() || a.IsUnspecified() {
		return s
	}
	if _, ok := m.six[a.String()]; !ok {
		m.six[a.String()] = len(m.six) + 1
	}
	return fmt.Sprintf("2001:db8::%x", m.six[a.String()])
}
