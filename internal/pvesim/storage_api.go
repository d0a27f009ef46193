package pvesim

import (
	"slices"
)

func storageRoutes() []route {
	return []route{
		{"GET", "/nodes/{node}/storage", (*World).nodeStorages},
		{"GET", "/nodes/{node}/storage/{storage}", (*World).nodeStorageIndex},
		{"GET", "/nodes/{node}/storage/{storage}/status", (*World).nodeStorageStatus},
		{"GET", "/nodes/{node}/storage/{storage}/content", (*World).contentList},
		{"POST", "/nodes/{node}/storage/{storage}/content", (*World).contentAllocate},
		{"GET", "/nodes/{node}/storage/{storage}/content/{volume}", (*World).contentInfo},
		{"PUT", "/nodes/{node}/storage/{storage}/content/{volume}", (*World).contentAttributes},
		{"DELETE", "/nodes/{node}/storage/{storage}/content/{volume}", (*World).contentDelete},
		{"POST", "/nodes/{node}/storage/{storage}/upload", (*World).upload},
		{"POST", "/nodes/{node}/storage/{storage}/download-url", (*World).downloadURL},
		{"GET", "/nodes/{node}/storage/{storage}/file-restore/list", (*World).fileRestore},
		{"GET", "/nodes/{node}/storage/{storage}/file-restore/download", (*World).fileRestore},
		{"GET", "/nodes/{node}/storage/{storage}/import-metadata", (*World).importMetadata},
		{"GET", "/nodes/{node}/query-url-metadata", (*World).urlMetadata},
		{"GET", "/storage", (*World).storageList},
		{"POST", "/storage", (*World).storageCreate},
		{"GET", "/storage/{storage}", (*World).storageRead},
		{"PUT", "/storage/{storage}", (*World).storageUpdate},
		{"DELETE", "/storage/{storage}", (*World).storageDelete},
	}
}

// figures is a storage as its node sees it.
func (w *World) figures(s *Storage, node string) map[string]any {
	row := map[string]any{
		"type": s.Type, "content": joined(s.Content), "shared": bit(s.Shared), "enabled": bit(!s.Disabled), "active": bit(!s.Disabled),
	}
	if !s.Disabled {
		used := min(w.used(s, node), s.Total)
		row["total"], row["used"], row["avail"] = s.Total, used, s.Total-used
	}
	return row
}

func (w *World) nodeStorages(r *Request) (any, error) {
	out := []map[string]any{}
	target := r.P.Str("target")
	for _, s := range w.Storages {
		switch {
		case !s.On(r.Node), r.P.Has("storage") && s.ID != r.P.Str("storage"), s.Disabled && r.P.Bool("enabled"):
			continue
		case !w.canAny(r.Who, "/storage/"+s.ID, "Datastore.Audit", "Datastore.AllocateSpace"):
			continue
		case target != "" && target != r.Node && (!s.Shared || !s.On(target)):
			continue
		}
		if want := r.P.List("content"); len(want) > 0 && !slices.ContainsFunc(want, s.Has) {
			continue
		}
		row := w.figures(s, r.Node)
		row["storage"] = s.ID
		if total, ok := row["total"].(int64); ok {
			used, _ := row["used"].(int64)
			row["used_fraction"] = float64(used) / float64(max(total, 1))
		}
		if r.P.Bool("format") && s.fileBased() {
			row["formats"] = map[string]any{"supported": []string{"qcow2", "raw", "subvol", "vmdk"}, "default": "raw"}
		}
		out = append(out, row)
	}
	return out, nil
}

func (w *World) nodeStorageStatus(r *Request) (any, error) {
	s, err := w.storageOn(r.P.Str("storage"), r.Node)
	if err != nil {
		return nil, err
	}
	return w.figures(s, r.Node), nil
}

func (w *World) nodeStorageIndex(*Request) (any, error) {
	return subdirs("content", "download-url", "file-restore", "import-metadata", "identity", "oci-registry-pull", "prunebackups", "rrd", "rrddata",
		"status", "upload"), nil
}

// subdirs is the answer of a directory of the API.
func subdirs(names ...string) []map[string]any {
	out := make([]map[string]any, 0, len(names))
	for _, n := range names {
		out = append(out, map[string]any{"subdir": n})
	}
	return out
}
