package pvesim

import "slices"

func storageRoutes() []route {
	return []route{
		{"GET", "/nodes/{node}/storage", (*World).nodeStorages},
		{"GET", "/nodes/{node}/storage/{storage}/content", (*World).contentList},
	}
}

func (w *World) nodeStorages(r *Request) (any, error) {
	out := []map[string]any{}
	for _, s := range w.Storages {
		if !s.On(r.Node) || !w.canAny(r.Who, "/storage/"+s.ID, "Datastore.Audit", "Datastore.AllocateSpace") {
			continue
		}
		row := map[string]any{
			"storage": s.ID, "type": s.Type, "content": joined(s.Content, ","), "shared": bit(s.Shared), "enabled": bit(!s.Disabled), "active": bit(!s.Disabled),
		}
		if !s.Disabled {
			used := w.used(s, r.Node)
			row["total"], row["used"], row["avail"], row["used_fraction"] = s.Total, used, s.Total-used, float64(used)/float64(max(s.Total, 1))
		}
		out = append(out, row)
	}
	return out, nil
}

func (w *World) contentList(r *Request) (any, error) {
	s, err := w.storageOn(r.P.Str("storage"), r.Node)
	if err != nil {
		return nil, err
	}
	out := []map[string]any{}
	for _, v := range w.volumesOf(s, r.Node) {
		if want := r.P.Str("content"); want != "" && v.Content != want {
			continue
		}
		if want := r.P.Int("vmid", 0); want != 0 && v.Owner != want {
			continue
		}
		if !slices.Contains(s.Content, v.Content) {
			continue
		}
		row := map[string]any{"volid": v.ID, "content": v.Content, "format": v.Format, "size": v.Size, "ctime": v.Created.Unix()}
		if v.Owner != 0 {
			row["vmid"] = v.Owner
		}
		if v.Base != "" {
			row["parent"] = v.Base
		}
		out = append(out, row)
	}
	return out, nil
}
