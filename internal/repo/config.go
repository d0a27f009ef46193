package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/yamldoc"
)

// entry is pve.clusters.<name> as it is read.
type entry struct {
	ClusterConfig
	refs      secretRefs
	reconcile Reconcile
	dir       string        // of File, from the root
	node      *yamldoc.Node // for places
}

// secretRefs are the keys of the decrypted document's secrets: mapping.
type secretRefs struct{ user, tokenID, token, password, gitToken string }

func (s secretRefs) list() []namedRef {
	return []namedRef{
		{"secrets.pve.user", s.user}, {"secrets.pve.token-id", s.tokenID}, {"secrets.pve.token", s.token},
		{"secrets.pve.password", s.password}, {"secrets.git.token", s.gitToken},
	}
}

type namedRef struct{ path, key string }

// config is one cluster's configuration with its faults.
type config struct {
	entry    *entry // nil when there is none to speak of
	problems yamldoc.Problems
}

var nodeName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?$`)

func (v *view) readConfig(name string) *config {
	file := path.Join("clusters", name, "config.yaml")
	fault := func(format string, args ...any) *config {
		return &config{problems: yamldoc.Problems{{File: file, Text: fmt.Sprintf(format, args...)}}}
	}
	outer := v.repo.entries[name]
	data, err := v.tree.ReadFile(file, yamldoc.MaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist) && outer != nil:
		return v.readEntry(name, v.repo.settings.File, "", outer, "")
	case errors.Is(err, fs.ErrNotExist):
		return fault("does not exist: declare pve.clusters.%s here (base-url, nodes), or remove clusters/%s", name, name)
	case err != nil:
		return fault("%s", err)
	case outer != nil:
		return fault("pve.clusters.%s stands in %s too: keep one of them", name, v.repo.settings.File)
	}
	docs, problems := yamldoc.Parse(file, data)
	if len(problems) > 0 {
		return &config{problems: problems}
	}
	if len(docs) != 1 {
		return fault("holds %d documents, not one with pve.clusters.%s", len(docs), name)
	}
	var top struct{ auth string }
	var clusters *yamldoc.Node
	problems = readKeys(file, docs[0], &top, []Key[struct{ auth string }]{
		oneOf("pve.auth", "", "", func(s *struct{ auth string }) *string { return &s.auth }, "token", "ticket"),
	}, &nest{names: []string{"pve.clusters"}, take: map[string]func(*yamldoc.Node, string) yamldoc.Problems{
		"pve.clusters": func(n *yamldoc.Node, _ string) yamldoc.Problems { clusters = n; return nil },
	}})
	if clusters == nil && len(problems) > 0 {
		return &config{problems: problems}
	}
	if clusters == nil || clusters.Kind != yamldoc.Mapping || len(clusters.Keys) != 1 || clusters.Keys[0].Value != name {
		at := docs[0]
		var have []string
		if clusters != nil {
			at = clusters
			for _, k := range clusters.Keys {
				have = append(have, k.Value)
			}
		}
		return &config{problems: append(problems, yamldoc.Problem{File: file, Line: at.Line, Col: at.Col, Path: "pve.clusters",
			Text: fmt.Sprintf("declares exactly one entry, named after the directory: %s; there is %s", name, quoteAll(have))})}
	}
	c := v.readEntry(name, file, path.Dir(file), clusters.Values[0], top.auth)
	c.problems = append(problems, c.problems...)
	return c
}

func quoteAll(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// readEntry reads and checks one pve.clusters.<name>.
func (v *view) readEntry(name, file, dir string, n *yamldoc.Node, auth string) *config {
	e := &entry{ClusterConfig: ClusterConfig{Name: name, File: file, Auth: auth}, dir: dir, node: n, reconcile: v.repo.settings.Reconcile}
	c := &config{entry: e}
	extra := &nest{take: map[string]func(*yamldoc.Node, string) yamldoc.Problems{}}
	for _, k := range ReconcileKeys {
		extra.names = append(extra.names, k.Path)
		extra.take[k.Path] = func(n *yamldoc.Node, path string) yamldoc.Problems {
			if err := k.load(&e.reconcile, n); err != nil {
				return yamldoc.Problems{{File: file, Line: n.Line, Col: n.Col, Path: path, Text: err.Error()}}
			}
			return nil
		}
	}
	c.problems = readKeys(file, n, e, ClusterKeys, extra)
	for i := range c.problems {
		c.problems[i].Path = strings.TrimSuffix("pve.clusters."+name+"."+c.problems[i].Path, ".")
	}
	v.checkEntry(c)
	// Flags win over every file.
	o := v.repo.opts.Overrides
	if o.PruneBudget != nil {
		e.reconcile.PruneBudget = *o.PruneBudget
	}
	if o.ReadOnly != nil {
		e.reconcile.ReadOnly = *o.ReadOnly
	}
	if o.PVEAuth != "" || e.Auth == "" {
		e.Auth = v.repo.settings.PVE.Auth
	}
	return c
}

func (c *config) fault(at, format string, args ...any) {
	line, col := field.PathPos(c.entry.node, at)
	full := strings.TrimSuffix("pve.clusters."+c.entry.Name+"."+at, ".")
	c.problems = append(c.problems, yamldoc.Problem{File: c.entry.File, Line: line, Col: col, Path: full, Text: fmt.Sprintf(format, args...)})
}

func (c *config) broken(at string) bool {
	return slices.ContainsFunc(c.problems, func(p yamldoc.Problem) bool {
		return strings.HasPrefix(p.Path, "pve.clusters."+c.entry.Name+"."+at)
	})
}

func (v *view) checkEntry(c *config) {
	e := c.entry
	if e.BaseURL == "" && !c.broken("base-url") {
		c.fault("", "base-url is required: the URL of PVE's API, such as https://pve1.example.org:8006")
	}
	seen := map[string]bool{}
	url := func(at string, u *string) {
		normal, err := normalURL(*u)
		if err != nil {
			c.fault(at, "%s", err)
			return
		}
		if seen[normal] {
			c.fault(at, "%s stands there twice", normal)
		}
		seen[normal] = true
		*u = normal
	}
	if e.BaseURL != "" {
		url("base-url", &e.BaseURL)
	}
	for i := range e.Endpoints {
		url(fmt.Sprintf("endpoints[%d]", i), &e.Endpoints[i])
	}
	if len(e.Nodes) == 0 && !c.broken("nodes") {
		c.fault("nodes", "is required: the nodes of this cluster that may be read and written")
	}
	for i, n := range e.Nodes {
		if !nodeName.MatchString(n) {
			c.fault(fmt.Sprintf("nodes[%d]", i), "%q is not a node name", n)
		}
	}
	if e.reconcile.RestartPolicy == "window" && e.reconcile.RestartWindow == "" {
		c.fault("reconcile.restart-policy", "window needs reconcile.restart-window")
	}
	v.checkSecretsBlock(c)
	v.readCA(c)
}

func (v *view) checkSecretsBlock(c *config) {
	e := c.entry
	for _, r := range e.refs.list() {
		if r.key != "" && e.SecretsFile == "" && !c.broken("secrets-file") {
			c.fault(r.path, "names an entry of the secrets-file, and there is none: add secrets-file")
		}
	}
	if e.SecretsFile == "" {
		return
	}
	if e.dir == "" { // from proxops.yaml: a path on this machine
		e.SecretsFile = v.repo.absolute(e.SecretsFile, v.repo.settingsDir())
		return
	}
	full := path.Join(e.dir, filepath.ToSlash(e.SecretsFile))
	if path.IsAbs(e.SecretsFile) || full == ".." || strings.HasPrefix(full, "../") {
		c.fault("secrets-file", "%q leads out of the repository: the encrypted file stands in it, the identity outside", e.SecretsFile)
		return
	}
	if _, err := v.tree.ReadFile(full, yamldoc.MaxBytes); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			c.fault("secrets-file", "%s does not exist: create it with proxops secrets init --cluster %s, or correct the path", full, e.Name)
		} else {
			c.fault("secrets-file", "%s: %s", full, err)
		}
	}
	e.SecretsFile = full
}

// readCA reads the certificate authority: a relative path is a file of the
// repository, an absolute one a file of this machine.
func (v *view) readCA(c *config) {
	e := c.entry
	var err error
	switch {
	case e.CAFile == "" || v.repo.opts.Overrides.CAFile != "":
		if e.CAFile = v.repo.settings.PVE.CAFile; e.CAFile == "" {
			return
		}
		if e.CA, err = readLimited(e.CAFile); err != nil {
			c.fault("", "%s: %s: correct pve.ca-file", e.CAFile, err)
		}
	case filepath.IsAbs(e.CAFile):
		if e.CA, err = readLimited(e.CAFile); err != nil {
			c.fault("ca-file", "%s: %s", e.CAFile, err)
		}
	case e.dir == "":
		e.CAFile = v.repo.absolute(e.CAFile, v.repo.settingsDir())
		if e.CA, err = readLimited(e.CAFile); err != nil {
			c.fault("ca-file", "%s: %s", e.CAFile, err)
		}
	default:
		full := path.Join(e.dir, filepath.ToSlash(e.CAFile))
		if full == ".." || strings.HasPrefix(full, "../") {
			c.fault("ca-file", "%q leads out of the repository: put the file beside this one, or give an absolute path of this machine", e.CAFile)
			return
		}
		switch e.CA, err = v.tree.ReadFile(full, yamldoc.MaxBytes); {
		case errors.Is(err, fs.ErrNotExist):
			c.fault("ca-file", "%s does not exist: a relative path begins at %s", full, e.dir)
		case err != nil:
			c.fault("ca-file", "%s: %s", full, err)
		}
		e.CAFile = full
	}
	if err == nil && !strings.Contains(string(e.CA), "-----BEGIN CERTIFICATE-----") {
		c.fault("ca-file", "%s: holds no PEM certificate", e.CAFile)
	}
}

// sharedEndpoints stops every cluster whose API another one names too.
func sharedEndpoints(configs map[string]*config) {
	owners := map[string][]string{}
	for _, name := range sorted(configs) {
		if e := configs[name].entry; e != nil {
			for _, u := range append([]string{e.BaseURL}, e.Endpoints...) {
				if u != "" && !slices.Contains(owners[u], name) {
					owners[u] = append(owners[u], name)
				}
			}
		}
	}
	for _, u := range sorted(owners) {
		if len(owners[u]) < 2 {
			continue
		}
		for _, name := range owners[u] {
			c := configs[name]
			at := "base-url"
			if i := slices.Index(c.entry.Endpoints, u); i >= 0 {
				at = fmt.Sprintf("endpoints[%d]", i)
			}
			c.fault(at, "%s is named by clusters %s: two clusters may not share an endpoint, or each would prune what the other owns", u, strings.Join(owners[u], " and "))
		}
	}
}
