package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/sops"
	"golang.org/x/sync/errgroup"
)

// open opens the repository that the flags and the environment name.
func (a *app) open(noSecrets bool) (*repo.Repo, error) {
	dir := a.env["PWD"]
	if wd, err := getwd(); err == nil {
		dir = wd
	}
	return repo.Open(repo.Options{Dir: dir, Env: a.env, Overrides: a.flags, NoSecrets: noSecrets, OpenSecrets: openSecrets})
}

func openSecrets(name string, raw []byte, environ []string) (repo.SecretsFile, error) {
	d, err := sops.Decode(name, raw, sops.EnvFrom(environ))
	if err != nil {
		return nil, err
	}
	return d, nil
}

// session is an open repository with the clusters that a command works on.
type session struct {
	app   *app
	repo  *repo.Repo
	names []string
	stale bool
	since time.Time // of the last good fetch, when stale
	log   *slog.Logger
}

// session opens the repository, fetches it in URL mode, and picks the
// clusters that --cluster names.
func (a *app) session(ctx context.Context, noSecrets bool) (*session, error) {
	r, err := a.open(noSecrets)
	if err != nil {
		return nil, err
	}
	s := &session{app: a, repo: r, log: a.logger(r.Settings())}
	if r.URLMode() {
		st := r.Sync(ctx)
		if st.Tree == nil {
			return nil, fmt.Errorf("git.url: %w", st.Err)
		}
		if st.Stale {
			s.stale, s.since = true, st.Since
			s.log.Warn("the repository could not be fetched; the last good commit is used", "since", st.Since, "err", st.Err)
		}
	}
	if s.names, err = r.Known(a.clusters); err != nil {
		return nil, err
	}
	if len(s.names) == 0 {
		return nil, errors.New("the repository declares no cluster: add clusters/<name>/config.yaml and clusters/<name>/resources.yaml")
	}
	return s, nil
}

// connect makes a client and remembers nothing: a command is one cycle.
func (s *session) connect(c *repo.Cluster) (*pve.Client, error) { return reconcile.Connect(c, s.log) }

// options are a cycle's options for one cluster.
func (s *session) options(name string) reconcile.Options {
	return reconcile.Options{
		Cluster: name,
		Load:    func(ctx context.Context) (*repo.Cluster, error) { return s.repo.Load(ctx, name) },
		Connect: s.connect, Neighbour: s.connect,
		Policy: func(*plan.Policy) {},
		Stale:  s.stale, StaleSince: s.since,
	}
}

// cycles runs one cycle of every cluster, in parallel, and gives the reports
// in the clusters' order. with changes a cluster's options.
func (s *session) cycles(ctx context.Context, with func(name string, o *reconcile.Options)) []reconcile.Report {
	reports := make([]reconcile.Report, len(s.names))
	var g errgroup.Group
	g.SetLimit(16)
	for i, name := range s.names {
		g.Go(func() error {
			o := s.options(name)
			if with != nil {
				with(name, &o)
			}
			reports[i] = reconcile.Cycle(ctx, o)
			return nil
		})
	}
	_ = g.Wait()
	return reports
}

// diffCode is the exit code of diff and apply -n: 1 if a cluster or an object
// has an error or could not be looked at, else 2 if there are actions, else 0.
func diffCode(reports []reconcile.Report) error {
	code := exit(0)
	for _, r := range reports {
		if r.Failed() || r.Unread() > 0 {
			return exit(1)
		}
		if len(r.Plan.Actions) > 0 {
			code = 2
		}
	}
	if code == 0 {
		return nil
	}
	return code
}
