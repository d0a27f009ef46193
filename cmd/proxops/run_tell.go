package main

import (
	"context"
	"time"

	"github.com/proxops/proxops/internal/forge"
	"github.com/proxops/proxops/internal/notify"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

// tellGrace is how long the last messages may take when the daemon stops.
const tellGrace = 6 * time.Second

// teller tells people and the forge.
type teller struct {
	notify *notify.Notifier
	forge  *forge.Reporter
	fault  string // of git.status, logged once; guarded by agent.mu
}

func (g *agent) newTeller() *teller {
	return &teller{
		notify: notify.New(notify.Options{Log: g.log, Resolve: func(key string) (secret.Text, error) {
			r, err := g.app.open(false) // secrets-file may have changed, and what is in it
			if err != nil {
				return secret.Text{}, err
			}
			return r.ProcessSecret(key)
		}}),
		forge: forge.New(forge.Options{Log: g.log, Token: g.statusToken}),
	}
}

// statusToken is that of git.status.token, or the git token as a fetch has it.
func (g *agent) statusToken(ctx context.Context, cluster string) (secret.Text, error) {
	r, err := g.app.open(false)
	if err != nil {
		return secret.Text{}, err
	}
	s := r.Settings()
	if key := s.Git.Status.Token; key != "" {
		return r.ProcessSecret(key)
	}
	if c, err := r.Load(ctx, cluster); err == nil && !c.Secrets.GitToken.Empty() {
		return c.Secrets.GitToken, nil
	}
	return s.Git.Token, nil
}

// configure takes over the settings that a look found, and tells the forge of a
// new commit on behalf of this agent's clusters.
func (g *agent) configure(d reconcile.Desired) {
	g.tell.notify.Configure(d.Settings.Notify)
	err := g.tell.forge.Configure(d.Settings.Git)
	g.mu.Lock()
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	news := fault != g.tell.fault
	g.tell.fault = fault
	g.mu.Unlock()
	if news && fault != "" {
		g.log.Error("no commit status is told", "err", err)
	}
	if d.Err != nil || d.Settings.Git.Status == (repo.StatusSettings{}) {
		return
	}
	var mine []string
	for _, name := range d.Clusters {
		if st, ok := g.store.Cluster(name); ok && st.Mine {
			mine = append(mine, name)
		}
	}
	g.tell.forge.Begin(d.Commit, mine)
}

// finished takes in a cycle's report.
func (t *teller) finished(rep *reconcile.Report) {
	t.notify.Finished(rep)
	t.forge.Finished(rep)
}

func (t *teller) gone(cluster string) {
	t.notify.Forget(cluster)
	t.forge.Forget(cluster)
}

// close lets what is under way end.
func (t *teller) close() {
	ctx, cancel := context.WithTimeout(context.Background(), tellGrace)
	defer cancel()
	t.notify.Close(ctx)
	t.forge.Close(ctx)
}
