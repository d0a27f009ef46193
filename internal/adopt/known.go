package adopt

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"

	"github.com/proxops/proxops/internal/gitrepo"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/yamldoc"
)

// Known are the manifests that a repository has already of one cluster: those
// of its composition, and those in the folders that adopt writes to.
type Known struct {
	at    map[string]known // by vmid, or by node and volume id
	names map[kind.Ref]known
}

type known struct {
	resource *kind.Resource
	// own says that the file is one that adopt would write: alone in its file,
	// in the cluster's own folder.
	own bool
}

// LoadKnown reads what there is of a cluster. Files of the cluster's folders
// that the composition does not list count where they are valid.
func LoadKnown(t *gitrepo.Tree, c *repo.Cluster) (*Known, error) {
	k := &Known{at: map[string]known{}, names: map[kind.Ref]known{}}
	perFile := map[string]int{}
	for _, r := range c.Resources {
		perFile[r.File]++
	}
	for _, r := range c.Resources {
		k.add(r, perFile[r.File] == 1 && path.Dir(r.File) == path.Join(r.Kind.Folder, c.Name))
	}
	for _, kd := range kind.All {
		entries, err := fs.ReadDir(t, path.Join(kd.Folder, c.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			file := path.Join(kd.Folder, c.Name, e.Name())
			if ext := path.Ext(file); e.IsDir() || ext != ".yaml" && ext != ".yml" || perFile[file] > 0 {
				continue
			}
			k.unlisted(t, kd, file)
		}
	}
	return k, nil
}

func (k *Known) unlisted(t *gitrepo.Tree, kd *kind.Kind, file string) {
	data, err := t.ReadFile(file, yamldoc.MaxBytes)
	if err != nil {
		return
	}
	docs, problems := yamldoc.Parse(file, data)
	if len(problems) > 0 || len(docs) != 1 {
		return
	}
	if r, _ := kind.Parse(file, docs[0]); r != nil && r.Kind == kd {
		k.add(r, true)
	}
}

// add takes a manifest in. The composition comes first and wins.
func (k *Known) add(r *kind.Resource, own bool) {
	var at []string
	switch spec := r.Spec.(type) {
	case kind.GuestSpec:
		_, id := spec.Place()
		at = append(at, strconv.Itoa(id))
	case kind.ArtifactSpec:
		for _, node := range spec.Nodes() {
			at = append(at, placeOf(node, spec.VolID()))
		}
	}
	p := known{r, own}
	if _, ok := k.names[r.Ref()]; ok {
		return
	}
	k.names[r.Ref()] = p
	for _, id := range at {
		if _, ok := k.at[id]; !ok {
			k.at[id] = p
		}
	}
}

func (k *Known) taken(kd *kind.Kind) map[string]bool {
	out := map[string]bool{}
	for ref := range k.names {
		if ref.Kind == kd.Name {
			out[ref.Name] = true
		}
	}
	return out
}

// file is where adopt's own manifest of that name is, or "".
func (k *Known) file(kd *kind.Kind, name string) string {
	if p, ok := k.names[kind.Ref{Kind: kd.Name, Name: name}]; ok && p.own {
		return p.resource.File
	}
	return ""
}

// SharedFiles suggests base manifests: files of storages that several
// clusters have in just the same way. results are of the clusters adopted
// now; the manifests of other clusters are read from the tree.
func SharedFiles(t *gitrepo.Tree, clusters []string, results []Result) []string {
	type holder struct{ cluster, file string }
	byKey := map[string][]holder{}
	add := func(r *kind.Resource, cluster, file string) {
		spec, ok := r.Spec.(kind.ArtifactSpec)
		if !ok {
			return
		}
		key := r.Kind.Name + " " + spec.VolID() + " on " + joinNodes(spec.Nodes())
		for _, h := range byKey[key] {
			if h.cluster == cluster {
				return
			}
		}
		byKey[key] = append(byKey[key], holder{cluster, file})
	}
	for _, res := range results {
		for _, m := range res.Manifests {
			if m.resource != nil && m.Kind.Content != "" {
				add(m.resource, res.Cluster, m.File)
			}
		}
	}
	for _, kd := range kind.All {
		if kd.Content == "" {
			continue
		}
		for _, dir := range append([]string{"base"}, clusters...) {
			entries, _ := fs.ReadDir(t, path.Join(kd.Folder, dir)) // a folder that is not there holds nothing
			for _, e := range entries {
				data, err := t.ReadFile(path.Join(kd.Folder, dir, e.Name()), yamldoc.MaxBytes)
				if err != nil {
					continue
				}
				docs, _ := yamldoc.Parse(e.Name(), data)
				for _, d := range docs {
					if r, _ := kind.Parse(e.Name(), d); r != nil {
						add(r, dir, path.Join(kd.Folder, dir, e.Name()))
					}
				}
			}
		}
	}
	var out []string
	for key, holders := range byKey {
		if len(holders) < 2 {
			continue
		}
		var files []string
		for _, h := range holders {
			files = append(files, h.file)
		}
		slices.Sort(files)
		out = append(out, key+": "+joinWords(files)+" say the same; one file in the kind's base folder, listed by each cluster, is enough")
	}
	slices.Sort(out)
	return out
}
