package pvesim

import (
	"crypto/sha1" //nolint:gosec // PVE's digest is SHA-1
	"encoding/hex"
	"strings"
)

// Mapping is a cluster-wide name for devices or directories of single nodes.
type Mapping struct {
	// Kind is pci, usb or dir.
	Kind        string
	ID          string
	Description string
	// Map are the entries: node=…,path=…,id=… each.
	Map []string
	// Flags are further options as set: mdev, live-migration-capable.
	Flags map[string]string
}

func mappingRoutes() []route {
	var out []route
	for _, kind := range []string{"pci", "usb", "dir"} {
		base := "/cluster/mapping/" + kind
		out = append(out,
			route{"GET", base, (*World).mappingList}, route{"POST", base, (*World).mappingCreate}, route{"GET", base + "/{id}", (*World).mappingGet},
			route{"PUT", base + "/{id}", (*World).mappingUpdate}, route{"DELETE", base + "/{id}", (*World).mappingDelete})
	}
	return append(out, route{"GET", "/cluster/mapping", (*World).mappingIndex})
}

func (w *World) mappingIndex(*Request) (any, error) {
	return []map[string]any{{"name": "dir"}, {"name": "pci"}, {"name": "usb"}}, nil
}

// kind is the kind of mapping that a path is about.
func (r *Request) mappingKind() string { return splitPath(r.Path)[2] }

func (m *Mapping) row() map[string]any {
	h := sha1.New() //nolint:gosec // see above
	h.Write([]byte(m.Kind + m.ID + m.Description + strings.Join(m.Map, "\n")))
	out := map[string]any{"id": m.ID, "type": m.Kind, "map": m.Map, "digest": hex.EncodeToString(h.Sum(nil))}
	if m.Description != "" {
		out["description"] = m.Description
	}
	for k, v := range m.Flags {
		out[k] = Params{"v": v}.Int("v", 0)
	}
	return out
}

func (w *World) mappingList(r *Request) (any, error) {
	out := []map[string]any{}
	kind := r.mappingKind()
	for _, k := range sortedKeys(w.Mappings) {
		m := w.Mappings[k]
		if m.Kind == kind && w.canAny(r.Who, "/mapping/"+k, "Mapping.Use", "Mapping.Modify", "Mapping.Audit") {
			out = append(out, m.row())
		}
	}
	return out, nil
}

func (w *World) mapping(r *Request) (*Mapping, error) {
	m := w.Mappings[r.mappingKind()+"/"+r.P.Str("id")]
	if m == nil {
		return nil, die("mapping '%s' not found", r.P.Str("id"))
	}
	return m, nil
}

func (w *World) mappingGet(r *Request) (any, error) {
	m, err := w.mapping(r)
	if err != nil {
		return nil, err
	}
	return m.row(), nil
}

func (m *Mapping) set(p Params) {
	if p.Has("map") {
		m.Map = strings.Split(p.Str("map"), "\x00")
	}
	if p.Has("description") {
		m.Description = p.Str("description")
	}
	for _, k := range []string{"mdev", "live-migration-capable"} {
		if p.Has(k) {
			if m.Flags == nil {
				m.Flags = map[string]string{}
			}
			m.Flags[k] = p.Str(k)
		}
	}
}

func (w *World) mappingCreate(r *Request) (any, error) {
	key := r.mappingKind() + "/" + r.P.Str("id")
	if w.Mappings[key] != nil {
		return nil, die("%s ID '%s' already defined", r.mappingKind(), r.P.Str("id"))
	}
	m := &Mapping{Kind: r.mappingKind(), ID: r.P.Str("id")}
	m.set(r.P)
	if w.Mappings == nil {
		w.Mappings = map[string]*Mapping{}
	}
	w.Mappings[key] = m
	return nil, nil
}

func (w *World) mappingUpdate(r *Request) (any, error) {
	m, err := w.mapping(r)
	if err != nil {
		return nil, err
	}
	m.set(r.P)
	for _, k := range r.P.List("delete") {
		if k == "description" {
			m.Description = ""
		}
		delete(m.Flags, k)
	}
	return nil, nil
}

func (w *World) mappingDelete(r *Request) (any, error) {
	delete(w.Mappings, r.mappingKind()+"/"+r.P.Str("id"))
	return nil, nil
}

// pciMapping is the address that a PCI mapping has on a node.
func (w *World) pciMapping(id, node string) (addr string, ok bool) {
	m := w.Mappings["pci/"+id]
	if m == nil {
		return "", false
	}
	for _, e := range m.Map {
		if props := propMap(e); props["node"] == node {
			return strings.SplitN(props["path"], ";", 2)[0], true
		}
	}
	return "", false
}
