package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/repo"
)

// single opens a session for a command that works on one cluster: the one that
// --cluster names, or the only one there is.
func (a *app) single(ctx context.Context, noSecrets bool) (*session, string, error) {
	s, err := a.session(ctx, noSecrets)
	if err != nil {
		return nil, "", err
	}
	if len(s.names) != 1 {
		return nil, "", hint{err: fmt.Errorf("--cluster: name one of %s", strings.Join(s.names, ", "))}
	}
	return s, s.names[0], nil
}

// reader loads one cluster and connects to it; the client is the caller's to
// close.
func (a *app) reader(ctx context.Context) (*repo.Cluster, *pve.Client, error) {
	s, name, err := a.single(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	c, err := s.repo.Load(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	client, err := s.connect(c)
	return c, client, err
}
