package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/gitrepo"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/yamldoc"
)

// listed is one file of a composition.
type listed struct {
	file string // from the root, as spelled
	kind *kind.Kind
}

// compositionFile is where a cluster's composition stands.
func compositionFile(cluster string) string {
	return path.Join("clusters", cluster, "resources.yaml")
}

// hasComposition reports whether a cluster has a composition.
func (v *view) hasComposition(cluster string) bool {
	_, err := fs.Stat(v.tree, compositionFile(cluster))
	return !errors.Is(err, fs.ErrNotExist)
}

// composition reads clusters/<cluster>/resources.yaml.
// unread are the kinds of which an item could not be taken.
func (v *view) composition(cluster string) (files []listed, unread map[string]bool, problems yamldoc.Problems) {
	file := compositionFile(cluster)
	data, err := v.tree.ReadFile(file, yamldoc.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, yamldoc.Problems{{File: file, Text: "does not exist: list the cluster's manifests here, or write resources: [] for none"}}
	}
	if err != nil {
		return nil, nil, yamldoc.Problems{{File: file, Text: err.Error()}}
	}
	docs, problems := yamldoc.Parse(file, data)
	if len(problems) > 0 {
		return nil, nil, problems
	}
	if len(docs) != 1 {
		return nil, nil, yamldoc.Problems{{File: file, Text: "is not one document with resources: write resources: [] for none"}}
	}
	c := &composer{view: v, cluster: cluster, file: file, seen: map[string]*yamldoc.Node{}, unread: map[string]bool{}}
	c.document(docs[0])
	return c.out, c.unread, c.problems
}

type composer struct {
	view     *view
	cluster  string
	file     string
	seen     map[string]*yamldoc.Node // by what the path leads to
	out      []listed
	unread   map[string]bool
	problems yamldoc.Problems
}

func (c *composer) fault(n *yamldoc.Node, at, format string, args ...any) {
	c.problems = append(c.problems, yamldoc.Problem{File: c.file, Line: n.Line, Col: n.Col, Path: at, Text: fmt.Sprintf(format, args...)})
}

func (c *composer) document(doc *yamldoc.Node) {
	if doc.Kind != yamldoc.Mapping {
		c.fault(doc, "", "is a mapping with resources, a list of paths, not %s", shape(doc))
		return
	}
	for _, k := range doc.Keys {
		if k.Value != "resources" {
			c.fault(k, k.Value, "unknown key; there is resources")
		}
	}
	list := doc.Get("resources")
	switch {
	case list == nil:
		c.fault(doc, "resources", "is required: a list of paths, [] for none")
		return
	case list.Kind != yamldoc.Sequence:
		c.fault(list, "resources", "is a list of paths, [] for none, not %s", shape(list))
		return
	}
	for i, n := range list.Items {
		at := fmt.Sprintf("resources[%d]", i)
		if n.Kind != yamldoc.Scalar || n.Value == "" {
			c.fault(n, at, "is the path of a manifest, not %s", shape(n))
			continue
		}
		c.item(n, at)
	}
}

func (c *composer) item(n *yamldoc.Node, at string) {
	file, err := c.spelled(n.Value)
	if err != nil {
		c.fault(n, at, "%s: %s", n.Value, err)
		return
	}
	k, err := c.place(file)
	if err != nil {
		c.fault(n, at, "%s: %s", n.Value, err)
		return
	}
	taken := len(c.out)
	defer func() {
		if len(c.out) == taken {
			c.unread[k.Name] = true
		}
	}()
	real, err := c.view.tree.Resolve(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.fault(n, at, "%s: no such file%s", n.Value, c.near(file))
		return
	case errors.Is(err, gitrepo.ErrOutside):
		c.fault(n, at, "%s: leads out of the repository through a symbolic link", n.Value)
		return
	case err != nil:
		c.fault(n, at, "%s: %s", n.Value, err)
		return
	}
	st, err := fs.Stat(c.view.tree, file)
	switch {
	case err != nil:
		c.fault(n, at, "%s: %s", n.Value, bare(err))
		return
	case st.IsDir():
		c.fault(n, at, "%s: is a directory: list its files one by one", n.Value)
		return
	}
	if first, ok := c.seen[real]; ok {
		c.fault(n, at, "%s: is listed twice, first on line %d: keep one", n.Value, first.Line)
		return
	}
	c.seen[real] = n
	c.out = append(c.out, listed{file: file, kind: k})
}

// spelled turns an item into a path from the root: from a kind root, it is
// one; else it starts at the cluster's directory.
func (c *composer) spelled(item string) (string, error) {
	switch {
	case strings.Contains(item, `\`):
		return "", errors.New("holds a backslash: write / between folders")
	case path.IsAbs(item):
		return "", errors.New("is absolute: write it from the repository's root or from this file's directory")
	}
	first, _, _ := strings.Cut(item, "/")
	if _, ok := kind.ByFolder(first); ok {
		item = path.Clean(item)
	} else {
		item = path.Join("clusters", c.cluster, item)
	}
	if item == ".." || strings.HasPrefix(item, "../") {
		return "", errors.New("leads out of the repository")
	}
	return item, nil
}

// place checks the folder that a manifest stands in.
func (c *composer) place(file string) (*kind.Kind, error) {
	parts := strings.Split(file, "/")
	k, ok := kind.ByFolder(parts[0])
	if !ok {
		return nil, fmt.Errorf("is not under a kind's folder (%s)", strings.Join(folders(), ", "))
	}
	switch {
	case !isYAML(file) || strings.ToLower(path.Ext(file)) != path.Ext(file):
		return nil, errors.New("does not end in .yaml or .yml")
	case len(parts) == 2:
		return nil, fmt.Errorf("stands directly under %s: move it to %s/base or %s/%s", k.Folder, k.Folder, k.Folder, c.cluster)
	case parts[1] == "base":
		return k, nil
	}
	if _, ok := c.view.configs[parts[1]]; !ok {
		return nil, fmt.Errorf("%s is neither base nor a cluster%s", parts[1], hint(parts[1], append(sorted(c.view.configs), "base")))
	}
	return k, nil
}

func folders() []string {
	var out []string
	for _, k := range kind.All {
		out = append(out, k.Folder)
	}
	slices.Sort(out)
	return out
}

// near names a file in the same folder, for a slip of the pen.
func (c *composer) near(file string) string {
	entries, err := fs.ReadDir(c.view.tree, path.Dir(file))
	if err != nil {
		return ""
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if h := hint(path.Base(file), names); strings.HasPrefix(h, "; did you") {
		return h
	}
	return ""
}
