package reconcile

import (
	"fmt"
	"log/slog"

	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/repo"
)

// Connect makes the client of a loaded cluster. Nothing is sent yet.
func Connect(c *repo.Cluster, log *slog.Logger) (*pve.Client, error) {
	cfg := pve.Config{
		Name:        c.Name,
		Endpoints:   append([]string{c.Config.BaseURL}, c.Config.Endpoints...),
		Nodes:       c.Config.Nodes,
		CAFile:      c.Config.CAFile,
		CA:          c.Config.CA,
		Fingerprint: c.Config.Fingerprint,
		TaskTimeout: c.Reconcile.TaskTimeout,
		Log:         log,
	}
	if UsesTicket(c) {
		cfg.Auth = pve.Credentials{User: c.Secrets.User, Password: c.Secrets.Password}
	} else {
		cfg.Auth = pve.Credentials{TokenID: c.Secrets.TokenID, TokenSecret: c.Secrets.Token}
	}
	client, err := pve.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return client, nil
}

// UsesTicket reports whether the cluster is logged in to with a password: as
// its settings say, else by the credentials that are there.
func UsesTicket(c *repo.Cluster) bool {
	return c.Config.Auth == "ticket" || c.Config.Auth == "" && c.Secrets.TokenID == "" && c.Secrets.Password.IsSet()
}
