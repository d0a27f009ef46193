package main

import (
	"context"
	"time"

	"github.com/proxops/proxops/internal/forge"
	"github.com/proxops/proxops/internal/notify"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/web"
)

// tellGrace is how long the last messages may take when the daemon stops.
const tellGrace = 6 * time.Second

// teller tells people and the forge.
type teller struct {
	notify *notify.Notifier
	forge  *forge.Reporter
	// Faults of git.status and of the HTTP server's secrets, each logged once;
	// guarded by agent.mu.
	fault, secrets string
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
	if g.news(&g.tell.fault, err) {
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

// news reports whether a fault is another than the last one.
func (g *agent) news(last *string, err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	changed := text != *last
	*last = text
	return changed && text != ""
}

// refresh looks up the secrets of the HTTP server again. While one cannot be
// had, the old one stays in force.
func (g *agent) refresh(server *web.Server) {
	r, err := g.app.open(false)
	if err != nil {
		return // the look at the repository tells of it
	}
	s := r.Settings()
	token, err := r.ListenToken()
	var hook secret.Text
	if err == nil && s.WebhookAuth != "" {
		hook, err = r.ProcessSecret(s.WebhookAuth)
	}
	if g.news(&g.tell.secrets, err) {
		g.log.Warn("the secrets of the HTTP server cannot be read again; the old ones stay in force", "err", err)
	}
	if err == nil {
		server.SetSecrets(token, hook)
	}
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
