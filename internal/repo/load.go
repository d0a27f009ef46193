package repo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/yamldoc"
)

// Load reads one cluster. Every fault of every file is in the error, a
// yamldoc.Problems; nothing is asked of PVE while there is one.
func (r *Repo) Load(ctx context.Context, name string) (*Cluster, error) {
	return r.load(ctx, name, nil, false)
}

// ConfigOf reads the configuration of one cluster alone, for what has to work
// before its manifests and secrets do. The faults of the configuration are the
// error.
func (r *Repo) ConfigOf(name string) (ClusterConfig, error) {
	if _, err := r.Known([]string{name}); err != nil {
		return ClusterConfig{}, err
	}
	v, err := r.look()
	if err != nil {
		return ClusterConfig{}, err
	}
	c := v.configs[name]
	if len(c.problems) > 0 || c.entry == nil {
		return ClusterConfig{}, c.problems.Sorted()
	}
	return c.entry.ClusterConfig, nil
}

// LoadWith is Load as if the composition listed further files, which are paths
// from the root. A composition that is not there yet is an empty one. Nothing
// is written.
func (r *Repo) LoadWith(ctx context.Context, name string, further []string) (*Cluster, error) {
	return r.load(ctx, name, further, true)
}

func (r *Repo) load(ctx context.Context, name string, further []string, maybeNone bool) (*Cluster, error) {
	if _, err := r.Known([]string{name}); err != nil {
		return nil, err
	}
	v, err := r.look()
	if err != nil {
		return nil, err
	}
	l := &loader{view: v, name: name, further: further, maybeNone: maybeNone, config: v.configs[name], broken: map[kind.Ref]bool{}}
	l.problems = slices.Clone(l.config.problems)
	if err := l.read(ctx); err != nil {
		return nil, err
	}
	l.index()
	l.bind()
	c := l.cluster()
	if !r.opts.NoSecrets && l.config.entry != nil {
		l.secrets(c)
	}
	dirty, err := v.tree.Dirty(l.composed())
	if len(l.problems) > 0 {
		if len(dirty) > 0 {
			return nil, uncommitted{l.problems.Sorted()}
		}
		return nil, l.problems.Sorted()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: comparing the files with the head commit: %w", v.tree.Root, err)
	}
	c.Dirty = len(dirty) > 0
	return c, nil
}

// uncommitted are faults of files that differ from the head commit.
type uncommitted struct{ error }

func (u uncommitted) Unwrap() error { return u.error }

// Uncommitted reports whether the faults that Load gave are of files that
// differ from the head commit, so that they may not be that commit's.
func Uncommitted(err error) bool {
	var u uncommitted
	return errors.As(err, &u)
}

// loader is one cluster being read.
type loader struct {
	view      *view
	name      string
	further   []string // files beside the composition's
	maybeNone bool     // there may be no composition
	config    *config
	files     []listed
	resources []*kind.Resource
	byRef     map[kind.Ref]*kind.Resource
	broken    map[kind.Ref]bool // named by manifests with faults: references to them are no news
	unread    map[string]bool   // kinds of which a whole file could not be read
	levels    [][]kind.Ref
	problems  yamldoc.Problems
}

// composed lists every file that decides the cluster's state.
func (l *loader) composed() []string {
	e := l.config.entry
	var out []string
	if e != nil && e.dir != "" {
		out = append(out, e.File)
		if e.SecretsFile != "" {
			out = append(out, e.SecretsFile)
		}
	}
	out = append(out, compositionFile(l.name))
	for _, f := range l.files {
		out = append(out, f.file)
	}
	return out
}

// read parses the composition's manifests, in parallel, and keeps their order.
func (l *loader) read(ctx context.Context) error {
	files, unread, problems := l.view.composition(l.name)
	if l.maybeNone && !l.view.hasComposition(l.name) {
		problems = nil
	}
	l.unread = map[string]bool{}
	maps.Copy(l.unread, unread)
	for _, f := range l.further {
		k, err := (&composer{view: l.view}).place(f)
		if err != nil {
			problems = append(problems, yamldoc.Problem{File: f, Text: err.Error()})
		} else if !slices.ContainsFunc(files, func(x listed) bool { return x.file == f }) {
			files = append(files, listed{file: f, kind: k})
		}
	}
	l.files, l.problems = files, append(l.problems, problems...)
	results := make([]parsedFile, len(files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, f := range files {
		g.Go(func() error {
			if ctx.Err() == nil {
				results[i] = l.manifest(f)
			}
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, p := range results {
		if len(p.resources)+len(p.broken) == 0 {
			l.unread[files[i].kind.Name] = true
		}
		l.resources = append(l.resources, p.resources...)
		l.problems = append(l.problems, p.problems...)
		for _, ref := range p.broken {
			l.broken[ref] = true
		}
	}
	return nil
}

type parsedFile struct {
	resources []*kind.Resource
	problems  yamldoc.Problems
	broken    []kind.Ref
}

func (l *loader) manifest(f listed) (out parsedFile) {
	d := l.view.parsed(f.file)
	out.problems = d.problems
	for _, doc := range d.docs {
		res, problems := kind.Parse(f.file, doc)
		out.problems = append(out.problems[:len(out.problems):len(out.problems)], problems...)
		if res == nil {
			if k, m := doc.Get("kind"), doc.Get("metadata").Get("name"); k != nil && m != nil {
				out.broken = append(out.broken, kind.Ref{Kind: k.Value, Name: m.Value})
			}
			continue
		}
		if res.Kind != f.kind {
			out.problems = append(out.problems, res.Problem("kind", fmt.Sprintf("is %s, and %s holds %s: move the file to %s", res.Kind.Name, f.kind.Folder, f.kind.Name, res.Kind.Folder)))
			out.broken = append(out.broken, res.Ref())
			continue
		}
		out.resources = append(out.resources, res)
	}
	return out
}

func (l *loader) cluster() *Cluster {
	c := &Cluster{Name: l.name, Resources: l.resources, Levels: l.levels, Tree: l.view.tree, Commit: l.view.tree.Head.Hash, view: l.view}
	if l.config.entry != nil {
		c.Config, c.Reconcile = l.config.entry.ClusterConfig, l.config.entry.reconcile
	}
	var warnings yamldoc.Problems
	for _, r := range l.resources {
		warnings = append(warnings, r.Warnings...)
	}
	for _, w := range warnings.Sorted() {
		c.Warnings = append(c.Warnings, w.Error())
	}
	if l.view.tree.Local && l.view.repo.settings.Git.AllowedSigners != "" {
		c.Warnings = append(c.Warnings, l.view.repo.settings.File+": git.verify.allowed-signers: signatures are checked in URL mode only; this is a work tree as it is on disk")
	}
	return c
}

// SecretUse is one reference into a cluster's secrets file and where it stands.
type SecretUse struct {
	File      string
	Line, Col int
	Path      string
	Ref       string // dot path in the document
}

// SecretUses lists every reference of a cluster, of its configuration and its
// manifests, and the secrets file from the repository root. It needs no
// identity. The faults of the cluster's files are the error.
func (r *Repo) SecretUses(ctx context.Context, name string) (file string, uses []SecretUse, err error) {
	plain := &Repo{opts: r.opts, settings: r.settings, tree: r.Tree(), entries: r.entries}
	plain.opts.NoSecrets = true
	c, err := plain.Load(ctx, name)
	if err != nil {
		return "", nil, err
	}
	e := plain.view.configs[name].entry
	for _, ref := range e.refs.list() {
		if ref.key != "" {
			line, col := e.place(ref.path)
			uses = append(uses, SecretUse{e.File, line, col, "pve.clusters." + name + "." + ref.path, "secrets." + ref.key})
		}
	}
	for _, res := range c.Resources {
		for _, s := range res.Spec.Secrets() {
			p := res.SpecProblem(s.Path, "")
			uses = append(uses, SecretUse{p.File, p.Line, p.Col, p.Path, s.Ref})
		}
	}
	return e.SecretsFile, uses, nil
}

var errNoSecretsFile = errors.New("the cluster has no secrets-file: add one with proxops secrets init, or take the reference out")
