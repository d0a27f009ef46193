package repo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/yamldoc"
)

// readSettings makes the settings in force from all layers. root is the local
// repository, or "".
func (r *Repo) readSettings(root string) error {
	s := defaults()
	s.DataDir = r.defaultDataDir()
	r.settings = s
	var problems yamldoc.Problems
	file, data, err := r.findSettings(root)
	if err != nil {
		return err
	}
	if file != "" {
		s.File = file
		problems = append(problems, r.parseSettings(file, data)...)
	}
	r.environment()
	problems = append(problems, r.flags()...)
	if _, _, err := net.SplitHostPort(s.Listen); err != nil {
		problems = append(problems, yamldoc.Problem{File: file, Path: "listen", Text: fmt.Sprintf("%q is not host:port", s.Listen)})
	}
	if s.Reconcile.RestartPolicy == "window" && s.Reconcile.RestartWindow == "" {
		problems = append(problems, yamldoc.Problem{File: file, Path: "reconcile.restart-policy", Text: "window needs reconcile.restart-window"})
	}
	return problems.Err()
}

// findSettings reads the file that --config or PROXOPS_CONFIG names, which must
// be there, or proxops.yaml at the root, or in the working directory where
// there is no repository.
func (r *Repo) findSettings(root string) (file string, data []byte, err error) {
	named := r.opts.Overrides.Config
	if named == "" {
		named = r.opts.Env["PROXOPS_CONFIG"]
	}
	switch {
	case named != "" && !filepath.IsAbs(named):
		file = filepath.Join(r.opts.Dir, named)
	case named != "":
		file = named
	case root != "":
		file = filepath.Join(root, "proxops.yaml")
	default:
		file = filepath.Join(r.opts.Dir, "proxops.yaml")
	}
	if file, err = filepath.Abs(file); err != nil {
		return "", nil, err
	}
	data, err = readLimited(file)
	if errors.Is(err, fs.ErrNotExist) && named == "" {
		return "", nil, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("%s: no such file: correct --config or PROXOPS_CONFIG", file)
	}
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", file, err)
	}
	if r.opts.Overrides.Config == "" && named == "" && root != "" {
		return "proxops.yaml", data, nil
	}
	return file, data, nil
}

// readLimited reads a file of the size of a manifest at most.
func readLimited(file string) ([]byte, error) {
	st, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fs.ErrNotExist
	case err != nil:
		return nil, errors.New("cannot be read: " + bare(err))
	case st.IsDir():
		return nil, errors.New("is a directory, not a file")
	case !st.Mode().IsRegular():
		return nil, errors.New("is not a regular file")
	case st.Size() > yamldoc.MaxBytes:
		return nil, fmt.Errorf("is too large: %d bytes, at most %d", st.Size(), yamldoc.MaxBytes)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, errors.New("cannot be read: " + bare(err))
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, yamldoc.MaxBytes+1))
}

func bare(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

func (r *Repo) parseSettings(file string, data []byte) yamldoc.Problems {
	docs, problems := yamldoc.Parse(file, data)
	if len(problems) > 0 || len(docs) == 0 {
		return problems
	}
	if len(docs) > 1 {
		return yamldoc.Problems{{File: file, Line: docs[1].Line, Col: docs[1].Col, Text: "a second document; proxops.yaml holds one"}}
	}
	s := r.settings
	extra := &nest{take: map[string]func(*yamldoc.Node, string) yamldoc.Problems{
		"pve.clusters": func(n *yamldoc.Node, path string) yamldoc.Problems {
			if n.Kind != yamldoc.Mapping {
				return yamldoc.Problems{{File: file, Line: n.Line, Col: n.Col, Path: path, Text: "is a mapping of cluster names to entries"}}
			}
			r.entries = map[string]*yamldoc.Node{}
			for i, k := range n.Keys {
				r.entries[k.Value] = n.Values[i]
			}
			return nil
		},
	}, names: []string{"pve.clusters"}}
	for _, k := range ReconcileKeys {
		extra.names = append(extra.names, k.Path)
		extra.take[k.Path] = func(n *yamldoc.Node, path string) yamldoc.Problems {
			if err := k.load(&s.Reconcile, n); err != nil {
				return yamldoc.Problems{{File: file, Line: n.Line, Col: n.Col, Path: path, Text: err.Error()}}
			}
			return nil
		}
	}
	problems = readKeys(file, docs[0], s, ProcessKeys, extra)
	base := r.settingsDir()
	for _, p := range []*string{
		&s.PVE.CAFile, &s.Git.SSHKey, &s.Git.KnownHosts, &s.Git.CAFile, &s.Git.AllowedSigners, &s.SecretsFile, &s.DataDir,
		&s.ListenTLS.CertFile, &s.ListenTLS.KeyFile, &s.ListenTLS.ClientCAFile, &s.Etcd.CAFile, &s.Etcd.CertFile, &s.Etcd.KeyFile,
	} {
		*p = r.absolute(*p, base)
	}
	return problems
}

// settingsDir is what relative paths in proxops.yaml start from.
func (r *Repo) settingsDir() string {
	if filepath.IsAbs(r.settings.File) {
		return filepath.Dir(r.settings.File)
	}
	root, err := r.findRoot()
	if err != nil {
		return r.opts.Dir
	}
	return root
}

func (r *Repo) absolute(p, base string) string {
	if rest, ok := strings.CutPrefix(p, "~/"); ok && r.opts.Env["HOME"] != "" {
		return filepath.Join(r.opts.Env["HOME"], rest)
	}
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(base, p)
}

func (r *Repo) defaultDataDir() string {
	if d := r.opts.Env["XDG_DATA_HOME"]; filepath.IsAbs(d) {
		return filepath.Join(d, "proxops")
	}
	if h := r.opts.Env["HOME"]; h != "" {
		return filepath.Join(h, ".local", "share", "proxops")
	}
	return filepath.Join(os.TempDir(), "proxops")
}

// environment overlays what the environment may set: credentials.
func (r *Repo) environment() {
	s, env := r.settings, r.opts.Env
	if v := env["PROXOPS_GIT_TOKEN"]; v != "" {
		s.Git.Token = secret.New(v)
	}
}

// flags overlays the command line.
func (r *Repo) flags() (problems yamldoc.Problems) {
	s, o := r.settings, r.opts.Overrides
	bad := func(flag, format string, args ...any) {
		problems = append(problems, yamldoc.Problem{Path: flag, Text: fmt.Sprintf(format, args...)})
	}
	set := func(at *string, flag, v string, allowed ...string) {
		if v == "" {
			return
		}
		if len(allowed) > 0 && !slices.Contains(allowed, v) {
			bad(flag, "is %s, not %q", strings.Join(allowed, " or "), v)
			return
		}
		*at = v
	}
	set(&s.Log.Level, "--log-level", o.LogLevel, "debug", "info", "warn", "error")
	set(&s.Listen, "--listen", o.Listen)
	set(&s.Git.URL, "--git-url", o.GitURL)
	set(&s.Git.Branch, "--git-branch", o.GitBranch)
	set(&s.PVE.Auth, "--pve-auth", o.PVEAuth, "token", "ticket")
	if o.CAFile != "" {
		s.PVE.CAFile = r.absolute(o.CAFile, r.opts.Dir)
	}
	if o.GitPollSec != nil {
		if *o.GitPollSec < 1 {
			bad("--git-poll-sec", "is at least 1, not %d", *o.GitPollSec)
		}
		s.PollInterval = time.Duration(*o.GitPollSec) * time.Second
	}
	if o.PruneBudget != nil {
		if *o.PruneBudget < 0 {
			bad("--prune-budget", "is at least 0, not %d", *o.PruneBudget)
		}
		s.Reconcile.PruneBudget = *o.PruneBudget
	}
	if o.ReadOnly != nil {
		s.Reconcile.ReadOnly = *o.ReadOnly
	}
	return problems
}
