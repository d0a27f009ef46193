package repo

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/proxops/proxops/internal/gitrepo"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/yamldoc"
)

// view is what was read of one tree: all configurations, and the manifests
// that compositions shared so far.
type view struct {
	repo    *Repo
	tree    *gitrepo.Tree
	configs map[string]*config

	mu    sync.Mutex
	files map[string]*document

	tokenOnce sync.Once
	tokens    map[string]secret.Text // see gitTokens
}

// document is one parsed manifest file.
type document struct {
	once     sync.Once
	docs     []*yamldoc.Node
	problems yamldoc.Problems
}

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

var clusterName = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// look reads the configurations of the present tree once. The error stops all
// clusters.
func (r *Repo) look() (*view, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view != nil {
		return r.view, nil
	}
	if r.tree == nil {
		if r.state.Err != nil {
			return nil, r.state.Err
		}
		return nil, fmt.Errorf("%s: was not fetched yet", r.settings.Git.URL)
	}
	v := &view{repo: r, tree: r.tree, configs: map[string]*config{}, files: map[string]*document{}}
	if err := v.flatManifests(); err != nil {
		return nil, err
	}
	names, err := v.clusterNames()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		v.configs[name] = v.readConfig(name)
	}
	sharedEndpoints(v.configs)
	r.view = v
	return v, nil
}

// flatManifests finds YAML files directly under a kind root. They stop all
// clusters: whose they would be is anybody's guess.
func (v *view) flatManifests() error {
	var problems yamldoc.Problems
	for _, k := range kind.All {
		entries, err := fs.ReadDir(v.tree, k.Folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			problems = append(problems, yamldoc.Problem{File: k.Folder, Text: "cannot be listed: " + bare(err)})
			continue
		}
		for _, e := range entries {
			if !e.IsDir() && isYAML(e.Name()) {
				problems = append(problems, yamldoc.Problem{File: k.Folder + "/" + e.Name(), Text: fmt.Sprintf(
					"stands directly under %s: move it to %s/base or %s/<cluster>, and list it in a resources.yaml", k.Folder, k.Folder, k.Folder)})
			}
		}
	}
	return problems.Err()
}

func isYAML(name string) bool {
	ext := strings.ToLower(path.Ext(name))
	return ext == ".yaml" || ext == ".yml"
}

// clusterNames lists the directories under clusters/ that hold anything, and
// the entries of proxops.yaml.
func (v *view) clusterNames() ([]string, error) {
	dirs, err := v.tree.Dirs("clusters")
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, d := range dirs {
		entries, err := fs.ReadDir(v.tree, "clusters/"+d)
		if err == nil && len(entries) == 0 || strings.HasPrefix(d, ".") {
			continue // git keeps no empty directories: a left-over of a removed cluster
		}
		names[d] = true
	}
	for name := range v.repo.entries {
		names[name] = true
	}
	var problems yamldoc.Problems
	for name := range names {
		if !clusterName.MatchString(name) || name == "base" {
			problems = append(problems, yamldoc.Problem{File: "clusters/" + name, Text: fmt.Sprintf("%q cannot be a cluster's name: letters, digits, '.', '_' and '-', and not base", name)})
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: holds no cluster: add clusters/<name>/config.yaml and clusters/<name>/resources.yaml", v.tree.Root)
	}
	return sorted(names), problems.Err()
}

// parsed reads one manifest file; its documents are shared between clusters.
func (v *view) parsed(name string) *document {
	v.mu.Lock()
	d, ok := v.files[name]
	if !ok {
		d = &document{}
		v.files[name] = d
	}
	v.mu.Unlock()
	d.once.Do(func() {
		data, err := v.tree.ReadFile(name, yamldoc.MaxBytes)
		if err != nil {
			d.problems = yamldoc.Problems{{File: name, Text: err.Error()}}
			return
		}
		d.docs, d.problems = yamldoc.Parse(name, data)
		if len(d.docs) == 0 && len(d.problems) == 0 {
			d.problems = yamldoc.Problems{{File: name, Text: "is empty: write a manifest, or take the file off the composition"}}
		}
	})
	return d
}
