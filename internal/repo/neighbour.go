package repo

import (
	"fmt"

	"github.com/proxops/proxops/internal/gitrepo"
)

// Elsewhere is a manifest of another cluster of the same repository that
// declares a vmid.
type Elsewhere struct {
	Cluster string
	gitrepo.Declaration
}

// Elsewhere lists what the repository's other clusters declare of the vmids,
// by cluster. Files only are asked, those with faults too; a cluster that was
// not loaded from a repository has no others.
func (c *Cluster) Elsewhere(vmids []int) []Elsewhere {
	if c.view == nil {
		return nil
	}
	var out []Elsewhere
	for _, name := range sorted(c.view.configs) {
		if name == c.Name {
			continue
		}
		for _, d := range c.view.tree.Declarations(name, vmids) {
			out = append(out, Elsewhere{name, d})
		}
	}
	return out
}

// Neighbour gives what it takes to reach another cluster of the repository,
// configuration and credentials, without its manifests. The faults of those
// are the error.
func (c *Cluster) Neighbour(name string) (*Cluster, error) {
	if c.view == nil || c.view.configs[name] == nil {
		return nil, fmt.Errorf("cluster %q is not in the repository", name)
	}
	l := &loader{view: c.view, name: name, config: c.view.configs[name]}
	l.problems = append(l.problems, l.config.problems...)
	if err := l.problems.Sorted().Err(); err != nil {
		return nil, err
	}
	out := l.cluster()
	l.secrets(out)
	if err := l.problems.Sorted().Err(); err != nil {
		return nil, err
	}
	return out, nil
}
