package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/kind"
)

// masker replaces what tells whose estate it is, equal things by equal ones,
// so that references between answers still hold. Names are replaced where
// names of their kind stand, never wherever the same word occurs: a guest may
// be called ubuntu without changing anybody's ostype.
type masker struct {
	nodes, guests, pools, snaps, stores, bridges, tags, groups, others names
	files, paths, notes                                                names
	addresses
}

// names are the replacements of one kind of name.
type names struct {
	stem string
	to   map[string]string
	keep func(string) bool // names that tell nothing, such as local-lvm
}

func kindOfName(stem string, keep ...string) names {
	return names{stem: stem, to: map[string]string{}, keep: func(s string) bool { return slices.Contains(keep, s) }}
}

// mask gives the replacement, a new one for a new name.
func (n names) mask(old string) string {
	if old == "" || n.keep(old) {
		return old
	}
	if n.to[old] == "" {
		n.to[old] = fmt.Sprintf("%s%02d", n.stem, len(n.to)+1)
	}
	return n.to[old]
}

func newMasker() *masker {
	m := &masker{
		nodes: kindOfName("node", "localhost"), guests: kindOfName("unlisted-"), pools: kindOfName("pool"), snaps: kindOfName("snap", "current"),
		stores: kindOfName("store", "local", "local-lvm", "local-zfs", "local-btrfs"), bridges: kindOfName("vnet"), tags: kindOfName("tag"),
		groups: kindOfName("group"), others: kindOfName("name", "rpool", "data", "pve", "rbd", "root"), files: kindOfName("file"), notes: kindOfName("note "),
		paths:     kindOfName("dir", plainDirs...),
		addresses: newAddresses(),
	}
	m.bridges.keep = plainBridge.MatchString
	// Whose a guest is decides what is planned for it.
	m.tags.keep = func(t string) bool { return strings.EqualFold(t, kind.OwnerTag) || strings.EqualFold(t, kind.OlderTag) }
	return m
}

// learn finds the names that lists tell, in the lists' order; tags in their
// own order, because PVE sorts them.
func (m *masker) learn(answers map[string]any) {
	for _, n := range objects(answers["/nodes"]) {
		m.nodes.mask(word(n["node"]))
	}
	for _, g := range objects(answers["/cluster/resources?type=vm"]) {
		if old := word(g["name"]); old != "" && m.guests.to[old] == "" {
			m.guests.to[old] = fmt.Sprintf("guest-%v", g["vmid"])
		}
	}
	for _, s := range objects(answers["/storage"]) {
		m.stores.mask(word(s["storage"]))
	}
	var tags []string
	var find func(v any)
	find = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				find(x)
			}
		case map[string]any:
			for k, x := range v {
				if key := word(v["key"]); k == "tags" || key == "tags" && (k == "value" || k == "pending") {
					tags = append(tags, splitTags(word(x))...)
				}
				find(x)
			}
		}
	}
	for _, a := range answers {
		find(a)
	}
	slices.Sort(tags)
	for _, t := range slices.DeleteFunc(slices.Compact(tags), m.tags.keep) {
		m.tags.to[t] = fmt.Sprintf("tag%04d", len(m.tags.to)+1)
	}
}

func splitTags(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ';' || r == ',' || r == ' ' })
}

// all masks the answers and their paths.
func (m *masker) all(answers map[string]any) map[string]any {
	out := map[string]any{}
	for _, path := range slices.Sorted(maps.Keys(answers)) {
		to := m.path(path)
		switch v := answers[path].(type) {
		case []any:
			rows := []any{}
			for _, x := range v {
				row, ok := x.(map[string]any)
				if x := m.object(path, row); ok && x != nil {
					rows = append(rows, x)
				}
			}
			out[to] = rows
		case map[string]any:
			out[to] = m.object(path, v)
		}
	}
	return out
}

// path masks the names in an API path.
func (m *masker) path(path string) string {
	bare, query, has := strings.Cut(path, "?")
	parts := strings.Split(bare, "/")
	for i := 1; i < len(parts); i++ {
		old, err := url.PathUnescape(parts[i])
		kind, ok := map[string]names{"nodes": m.nodes, "storage": m.stores, "snapshot": m.snaps}[parts[i-1]]
		if err == nil && ok && (parts[i-1] != "nodes" || i == 2) {
			parts[i] = url.PathEscape(kind.mask(old))
		}
	}
	bare = strings.Join(parts, "/")
	if id, ok := strings.CutPrefix(query, "poolid="); ok {
		if old, err := url.QueryUnescape(id); err == nil {
			query = "poolid=" + url.QueryEscape(m.pool(old))
		}
	}
	if has {
		bare += "?" + query
	}
	return bare
}

// pool masks a pool's name, level by level.
func (m *masker) pool(id string) string {
	levels := strings.Split(id, "/")
	for i := range levels {
		levels[i] = m.pools.mask(levels[i])
	}
	return strings.Join(levels, "/")
}

// kept are the keys that are taken over, by the end of the API path; for all
// other paths everything but the secrets is.
var kept = []struct {
	suffix string
	keys   []string
}{
	{"/storage", []string{
		"storage", "type", "content", "shared", "nodes", "disable", "path", "pool", "vgname", "thinpool", "sparse", "krbd", "blocksize", "preallocation",
		"format", "server", "export", "share", "portal", "target", "datastore", "monhost", "username", "iscsiprovider",
		"plugintype", "total", "used", "avail", "active", "enabled", "used_fraction", "password",
	}},
	{"/content", []string{"volid", "ctime", "size", "used", "format", "content", "vmid", "parent", "protected"}},
	{"/network", []string{"iface", "type", "active", "autostart", "exists", "bridge_vlan_aware", "bridge_vids", "priority", "method", "method6"}},
	{"/cluster/options", []string{"keyboard", "language", "console", "tag-style", "registered-tags", "allowed-tags", "user-tag-access", "next-id", "max_workers", "ha", "crs", "bwlimit"}},
	{"/cluster/status", []string{"id", "type", "name", "nodeid", "online", "ip", "local", "level", "quorate", "nodes", "version"}},
	{"/cluster/ha/resources", []string{"sid", "type", "state", "group", "max_restart", "max_relocate", "failback"}},
}

// secrets are left out wherever they stand.
var secrets = []string{
	"ssl_fingerprint", "fingerprint", "keyring", "encryption-key", "master-pubkey", "comment", "comments", "notes", "digest",
}

// object masks the keys of an object; nil leaves the object out.
func (m *masker) object(path string, v map[string]any) any {
	if strings.HasSuffix(path, "/network") && !strings.Contains(strings.ToLower(word(v["type"])), "bridge") {
		return nil
	}
	at := word(v["key"]) // rows of /pending name the key
	if slices.Contains(secrets, at) {
		return nil
	}
	out := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(v)) {
		name := k
		if at != "" && (k == "value" || k == "pending") {
			name = at
		}
		if slices.Contains(secrets, name) || !m.keeps(path, k) {
			continue
		}
		out[k] = m.value(path, name, v[k])
	}
	return out
}

func (m *masker) keeps(path, key string) bool {
	for _, k := range kept {
		if strings.HasSuffix(path, k.suffix) {
			return slices.Contains(k.keys, key)
		}
	}
	return true
}

// value masks what stands under a key.
func (m *masker) value(path, key string, v any) any {
	switch v := v.(type) {
	case string:
		return m.text(path, key, v)
	case map[string]any:
		if key == "tag-style" {
			delete(v, "color-map") // by tag
		}
		out := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out[k] = m.value(path, k, v[k])
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			switch pair, ok := x.([]any); {
			case ok && key == "lxc" && len(pair) == 2: // a raw line
				out = append(out, []any{pair[0], m.raw(word(pair[0]), word(pair[1]))})
			default:
				if row, ok := x.(map[string]any); ok {
					x = m.object(path, row)
				} else {
					x = m.value(path, key, x)
				}
				out = append(out, x)
			}
		}
		return out
	}
	return v
}
