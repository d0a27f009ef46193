package pvesim

import (
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// clusterOptions is datacenter.cfg with its property strings taken apart, and the tags that the caller may set. Without Sys.Audit on
// / only what a user interface needs is shown.
func (w *World) clusterOptions(r *Request) (any, error) {
	out := map[string]any{}
	all := w.can(r.Who, "/", "Sys.Audit")
	m := schema.Lookup("PUT", "/cluster/options")
	for k, v := range w.Datacenter {
		if all || k == "console" || k == "tag-style" {
			out[k] = datacenterValue(m, k, v)
		}
	}
	if all {
		if _, ok := out["mac_prefix"]; !ok {
			out["mac_prefix"] = "BC:24:11"
		}
		if _, ok := out["description"]; !ok {
			out["description"] = ""
		}
	}
	allowed, _, _ := w.allowedTags(r.Who, w.can(r.Who, "/", "Sys.Modify"))
	out["allowed-tags"] = sortedSet(allowed)
	return out, nil
}

func datacenterValue(m *schema.Method, k, v string) any {
	if k == "registered-tags" {
		return sortedList(v)
	}
	p, ok := m.Key(k)
	switch {
	case !ok:
		return v
	case p.Format != nil:
		props, err := p.Format.Parse("", v)
		if err != nil {
			return v
		}
		out := map[string]any{}
		for sub, text := range props {
			out[sub] = text
			if q, ok := p.Format.Key(sub); ok && (q.Type == schema.Boolean || q.Type == schema.Integer || q.Type == schema.Number) {
				if n, err := strconv.ParseFloat(text, 64); err == nil {
					out[sub] = n
				}
			}
			if sub == "user-allow-list" {
				out[sub] = sortedList(text)
			}
		}
		return out
	case p.Type == schema.Integer || p.Type == schema.Boolean:
		if n, err := strconv.Atoi(v); err == nil {
			return n
		}
	}
	return v
}

// sortedList is a list of tags as datacenter.cfg keeps them: each once, in the alphabet's order.
func sortedList(text string) []string {
	list := splitList(text)
	slices.Sort(list)
	return slices.Compact(list)
}

func (w *World) clusterSetOptions(r *Request) (any, error) {
	for _, k := range r.P.List("delete") {
		delete(w.Datacenter, k)
	}
	for _, k := range r.P.Keys() {
		if k == "delete" {
			continue
		}
		v := r.P.Str(k)
		if k == "registered-tags" {
			v = strings.Join(sortedList(v), ";")
		}
		w.Datacenter[k] = v
	}
	return nil, nil
}
