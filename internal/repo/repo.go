// Package repo reads a ProxOps repository: its root, configuration,
// compositions and manifests, with references and secrets resolved.
package repo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/proxops/proxops/internal/gitrepo"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/yamldoc"
)

// Cluster is the desired state of one cluster and how to reach it.
type Cluster struct {
	Name      string
	Config    ClusterConfig
	Resources []*kind.Resource // in composition order, references bound
	Levels    [][]kind.Ref     // level 0 first
	Commit    string           // the commit that holds it; "" when none
	Dirty     bool             // composed files differ from the commit
	Warnings  []string         // file:line:column: path: text
	Secrets   Secrets
	Reconcile Reconcile
	Tree      *gitrepo.Tree // the files it was read from, for Removals

	view *view // the other clusters of these files; nil = none
}

// ClusterConfig is one entry pve.clusters.<name>.
type ClusterConfig struct {
	Name        string
	BaseURL     string // scheme://host:port
	Endpoints   []string
	Nodes       []string
	Auth        string // token or ticket; "" = by the credentials given
	CAFile      string // for messages; its content is in CA
	CA          []byte // PEM; nil = the system's roots
	Fingerprint string
	VMIDRanges  VMIDRanges
	SecretsFile string // from the repository root; "" = none
	File        string // the file the entry stands in
}

// Secrets are the credentials of one cluster, resolved.
type Secrets struct {
	Auth     string // token or ticket: what these are for
	User     string // user@realm
	TokenID  string // user@realm!name
	Token    secret.Text
	Password secret.Text
	GitToken secret.Text
	Source   string // where they come from, for messages: environment, proxops.yaml, a file
}

// Options say where and how to open a repository.
type Options struct {
	Dir       string            // working directory
	Env       map[string]string // the process's environment
	Overrides Overrides
	// NoSecrets leaves credentials and secret references unresolved, so that
	// no age identity is needed: only their form is checked.
	NoSecrets bool
	// OpenSecrets decrypts a secrets-file; sops.Decode behind an interface. It
	// is handed in so that only the binary itself carries SOPS, whose key
	// services are most of what it links. nil = a secrets-file is an error.
	OpenSecrets func(name string, raw []byte, environ []string) (SecretsFile, error)
}

// SecretsFile is a decrypted secrets file.
type SecretsFile interface {
	// Lookup gives the value at a dot path. The error names file and path,
	// never a value.
	Lookup(ref string) (secret.Text, error)
}

// Repo is an open repository: the settings of the process and the files of
// one moment. Open it anew, or call Sync in URL mode, to see later ones.
type Repo struct {
	opts     Options
	settings *Settings
	tree     *gitrepo.Tree
	mirror   *gitrepo.Mirror
	state    gitrepo.State
	entries  map[string]*yamldoc.Node // pve.clusters of proxops.yaml

	mu   sync.Mutex
	view *view // what was read of tree; nil until needed
}

// Open finds proxops.yaml and the repository. In local mode (a work tree) the
// files are there at once; in URL mode the last mirrored commit is, when there
// is one, and Sync fetches. The error is a fault that stops all clusters.
func Open(opts Options) (*Repo, error) {
	if opts.Dir == "" {
		opts.Dir = "."
	}
	if opts.Env == nil {
		opts.Env = map[string]string{}
	}
	r := &Repo{opts: opts}
	root, rootErr := r.findRoot()
	if err := r.readSettings(root); err != nil {
		return nil, err
	}
	if r.settings.Git.URL != "" && r.pinned() == "" {
		return r, r.openMirror()
	}
	if rootErr != nil {
		return nil, rootErr
	}
	if len(r.entries) > 0 {
		return nil, fmt.Errorf("%s: pve.clusters: stands here only in URL mode outside a repository: move each entry to clusters/<name>/config.yaml", r.settings.File)
	}
	tree, err := gitrepo.OpenWork(root)
	if err != nil {
		return nil, err
	}
	r.tree = tree
	return r, nil
}

func (r *Repo) pinned() string {
	if p := r.opts.Overrides.GitPath; p != "" {
		return p
	}
	if r.opts.Overrides.GitURL != "" {
		return "" // a flag wins over the environment
	}
	return r.opts.Env["PROXOPS_GIT_PATH"]
}

// findRoot is the pinned root, or the nearest ancestor of the working
// directory that holds .git.
func (r *Repo) findRoot() (string, error) {
	if r.opts.Overrides.GitPath != "" && r.opts.Overrides.GitURL != "" {
		return "", errors.New("--git-path and --git-url exclude each other: give one of them")
	}
	pin := r.pinned()
	if pin == "" {
		return gitrepo.Discover(r.opts.Dir)
	}
	if !filepath.IsAbs(pin) {
		pin = filepath.Join(r.opts.Dir, pin)
	}
	st, err := os.Stat(pin)
	if err != nil || !st.IsDir() {
		return "", fmt.Errorf("%s: is not a directory: correct --git-path or PROXOPS_GIT_PATH", pin)
	}
	for _, mark := range []string{".git", "clusters", "proxops.yaml"} {
		if _, err := os.Lstat(filepath.Join(pin, mark)); err == nil {
			return filepath.Abs(pin)
		}
	}
	return gitrepo.Discover(pin)
}

func (r *Repo) openMirror() error {
	g := r.settings.Git
	src := gitrepo.Source{URL: g.URL, Ref: g.Branch, DataDir: r.settings.DataDir, MaxPacks: g.MaxPacks}
	if g.AllowedSigners != "" {
		text, err := readLimited(g.AllowedSigners)
		if err != nil {
			return fmt.Errorf("%s: %w: correct git.verify.allowed-signers", g.AllowedSigners, err)
		}
		if src.Signers, err = gitrepo.ParseSigners(g.AllowedSigners, text); err != nil {
			return err
		}
	}
	m, err := gitrepo.NewMirror(src)
	if err != nil {
		return err
	}
	r.mirror = m
	r.state = m.Last()
	r.tree = r.state.Tree
	return nil
}

// Sync brings the files up to date. It may run beside Load, which keeps to the
// files it began with. In URL mode it asks the remote; when that
// fails the last good tree stays and the state says why and since when. In
// local mode the work tree is looked at afresh.
func (r *Repo) Sync(ctx context.Context) gitrepo.State {
	var token secret.Text
	if r.mirror != nil {
		token = r.gitToken()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mirror == nil {
		tree, err := gitrepo.OpenWork(r.tree.Root)
		if err != nil {
			return gitrepo.State{Tree: r.tree, Stale: true, Err: err}
		}
		r.tree, r.view = tree, nil
		return gitrepo.State{Tree: tree}
	}
	g := r.settings.Git
	r.state = r.mirror.Update(ctx, gitrepo.Auth{Token: token, SSHKey: g.SSHKey, KnownHosts: g.KnownHosts, CAFile: g.CAFile})
	if r.state.Tree != nil {
		r.tree, r.view = r.state.Tree, nil
	}
	return r.state
}

// Settings are the process-wide settings in force.
func (r *Repo) Settings() *Settings { return r.settings }

// Tree is the files in use; nil in URL mode before the first good fetch.
func (r *Repo) Tree() *gitrepo.Tree {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tree
}

// URLMode reports whether the desired state comes from git.url.
func (r *Repo) URLMode() bool { return r.mirror != nil }

// Clusters lists the names of all clusters, sorted, those with faults too.
// The error stops all of them.
func (r *Repo) Clusters() ([]string, error) {
	v, err := r.look()
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(v.configs)), nil
}

// Known checks a filter of cluster names: an unknown one is an error that
// lists the known. An empty filter gives all clusters.
func (r *Repo) Known(filter []string) ([]string, error) {
	all, err := r.Clusters()
	if err != nil || len(filter) == 0 {
		return all, err
	}
	var errs []error
	for _, name := range filter {
		if !slices.Contains(all, name) {
			errs = append(errs, fmt.Errorf("cluster %q is not in %s%s", name, r.Tree().Root, hint(name, all)))
		}
	}
	out := slices.Clone(filter)
	slices.Sort(out)
	return slices.Compact(out), errors.Join(errs...)
}

// Loaded is one cluster of LoadAll: its state or its faults.
type Loaded struct {
	Name    string
	Cluster *Cluster // nil with Err
	Err     error
}

// LoadAll loads the named clusters, or all when none is named, in order of
// their names. A fault of one is its own; the error stops all.
func (r *Repo) LoadAll(ctx context.Context, names ...string) ([]Loaded, error) {
	names, err := r.Known(names)
	if err != nil {
		return nil, err
	}
	out := make([]Loaded, len(names))
	for i, name := range names {
		c, err := r.Load(ctx, name)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		out[i] = Loaded{Name: name, Cluster: c, Err: err}
	}
	return out, nil
}

// gitToken is what to fetch with: the one that the clusters of the last good
// commit resolve to, else that of the environment or proxops.yaml, as for the
// first clone.
func (r *Repo) gitToken() secret.Text {
	if v, err := r.look(); err == nil && !r.opts.NoSecrets && len(v.disagreeing()) == 0 {
		for _, t := range v.gitTokens() { // all are the same
			return t
		}
	}
	return r.settings.Git.Token
}

// Removals asks git who removed the declarations of vmids from a cluster.
func (c *Cluster) Removals(ctx context.Context, vmids []int) (map[int]gitrepo.Word, error) {
	return c.Tree.Removals(ctx, c.Name, vmids)
}

// decrypt opens the bytes of a secrets file with the age identities that the
// process's environment names.
func (r *Repo) decrypt(name string, raw []byte) (SecretsFile, error) {
	if r.opts.OpenSecrets == nil {
		return nil, fmt.Errorf("%s: nothing here opens secrets files", name)
	}
	var environ []string
	for _, k := range slices.Sorted(maps.Keys(r.opts.Env)) {
		environ = append(environ, k+"="+r.opts.Env[k])
	}
	return r.opts.OpenSecrets(name, raw, environ)
}
