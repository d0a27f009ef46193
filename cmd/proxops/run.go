package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/proxops/proxops/internal/coord"
	"github.com/proxops/proxops/internal/journal"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/web"
)

func (a *app) runCmd() *cobra.Command {
	return &cobra.Command{
		Use: "run", GroupID: "main", Args: noArgs,
		Short: "Keep PVE matching the repository, until stopped",
		Long: `Reconcile every cluster again and again, each on its own schedule. Changes of
git, of the configuration, of secrets and of certificates are picked up without
a restart. With --read-only drift is reported and never corrected.

An HTTP server (listen, 127.0.0.1:9494 unless set) gives /status, /metrics,
/healthz, /readyz and takes push webhooks at /webhook/github, gitlab, gitea and
forgejo.

SIGHUP, or a webhook, makes every cluster reconcile now. SIGTERM or Ctrl-C
starts nothing new, follows running tasks to their end for up to a minute, and
ends; a second one ends at once.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.daemon(cmd.Context()) },
	}
}

// agent is the daemon with everything around it.
type agent struct {
	app      *app
	log      *slog.Logger
	settings *repo.Settings // at the start
	name     string
	store    *web.Store
	metrics  *web.Metrics
	journal  *journal.Journal // nil = none could be had
	coord    *coord.Coordinator
	tell     *teller
	server   *web.Server // nil until it listens

	mu   sync.Mutex
	told bool // of settings that need a restart
}

func (a *app) daemon(ctx context.Context) error {
	r, err := a.open(false)
	if err != nil {
		return err
	}
	if !r.URLMode() && len(a.clusters) > 0 {
		if _, err := r.Known(a.clusters); err != nil {
			return err
		}
	}
	s := r.Settings()
	g := &agent{app: a, log: a.logger(s), settings: s, name: agentName(s)}
	started := time.Now()
	host, _ := os.Hostname()
	g.store = web.NewStore(web.Process{Version: versionText(), Agent: g.name, Host: host, Start: started})
	g.metrics = web.NewMetrics(g.store)
	if g.coord, err = g.coordinator(r, started); err != nil {
		return err
	}
	g.tell = g.newTeller()
	g.configure(reconcile.Desired{Settings: s})
	defer g.tell.close()
	d := reconcile.NewDaemon(g.options())
	if g.server, err = g.listen(r, d); err != nil {
		return err
	}
	if g.journal, err = journal.Open(journal.Dir(s.DataDir)); err != nil {
		g.log.Warn("no journal is kept: see to its place, or choose another data-dir, and start again", "err", err)
	}
	return g.run(ctx, d)
}

// agentName is the machine's name, with the process where several agents may
// share a machine.
func agentName(s *repo.Settings) string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	if len(s.Etcd.Endpoints) > 0 {
		return fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	return host
}

// options wire the daemon to those who want to know.
func (g *agent) options() reconcile.DaemonOptions {
	o := reconcile.DaemonOptions{
		Open:     func() (*repo.Repo, error) { return g.app.open(false) },
		Clusters: g.app.clusters,
		Watch:    true,
		Log:      g.log,
		Observe:  g.observe,
		Finished: g.finished,
		Looked:   g.looked,
		Gone: func(cluster string) {
			g.store.Remove(cluster)
			g.metrics.Forget(cluster)
			g.tell.gone(cluster)
		},
	}
	if g.coord != nil {
		o.Own, o.Declared = g.coord.Own, g.coord.Declare
	}
	return o
}

// run serves and reconciles until ctx ends.
func (g *agent) run(ctx context.Context, d *reconcile.Daemon) error {
	g.log.Info("starting", "version", versionText(), "listen", g.server.URL(), "agent", g.name)
	g.note(journal.Entry{Time: time.Now(), Event: journal.Started})
	// The server and the coordination outlive the daemon: while it stops, it is
	// to be seen, and its clusters are to stay its own.
	around, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var wg sync.WaitGroup
	var serving error
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() {
		if serving = g.server.Serve(around); serving != nil {
			stop()
		}
	})
	if g.coord != nil {
		wg.Go(func() { _ = g.coord.Run(around) })
	}
	wg.Go(func() { g.watchdog(around) })
	wg.Go(func() { g.hangups(around, d) })
	context.AfterFunc(ctx, func() {
		g.store.Stopping()
		_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	})
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	err := d.Run(ctx)
	g.note(journal.Entry{Time: time.Now(), Event: journal.Stopped})
	end()
	wg.Wait()
	if g.journal != nil {
		_ = g.journal.Close()
	}
	g.log.Info("stopped")
	if serving != nil {
		return serving
	}
	return err
}

// watchdog tells systemd that the loops move, as often as it wants to know.
// When one is stuck it keeps silent, and systemd restarts the process.
func (g *agent) watchdog(ctx context.Context) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return
	}
	t := time.NewTicker(every / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if stuck := g.store.Health(time.Now(), g.settings.Reconcile.TaskTimeout); len(stuck) > 0 {
			g.log.Error("a loop is stuck: the watchdog is not fed", "stuck", stuck)
			continue
		}
		_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
	}
}

// hangups makes SIGHUP mean: reconcile now.
func (g *agent) hangups(ctx context.Context, d *reconcile.Daemon) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			d.Kick("SIGHUP")
		}
	}
}

func (g *agent) observe(st reconcile.Standing) {
	if before, ok := g.store.Cluster(st.Cluster); ok && st.Running && !before.Running && !before.Next.IsZero() {
		if late := st.Started.Sub(before.Next); late >= 0 {
			g.metrics.Delay(late)
		}
	}
	g.store.Put(st)
}

func (g *agent) finished(rep, previous *reconcile.Report) {
	g.metrics.Cycle(rep)
	g.note(journal.Entries(rep, previous)...)
	g.tell.finished(rep)
}

// note writes to the journal. A journal that cannot be written stops nothing.
func (g *agent) note(entries ...journal.Entry) {
	if g.journal == nil {
		return
	}
	for i := range entries {
		entries[i].Agent = g.name
	}
	if err := g.journal.Append(entries...); err != nil {
		g.log.Warn("journal entries were lost: make room there", "err", err)
	}
}

func (g *agent) looked(d reconcile.Desired) {
	r := web.Repository{Source: d.Source, Commit: d.Commit, Stale: d.Stale, Since: d.Since, Err: d.FetchErr}
	if d.Err != nil {
		r.Err = d.Err
	}
	if before := g.store.Snapshot().Repo; d.Err != nil && (before.Err == nil || before.Err.Error() != d.Err.Error()) {
		g.log.Error("the repository cannot be read; nothing is reconciled", "err", d.Err)
	}
	g.store.SetRepository(r)
	if d.Settings == nil {
		return
	}
	_ = g.app.level.UnmarshalText([]byte(d.Settings.Log.Level))
	g.configure(d)
	if d.Settings.ListenAuth != "" || d.Settings.WebhookAuth != "" {
		g.refresh(g.server)
	}
	fixed := func(s *repo.Settings) []any {
		return []any{s.Listen, s.ListenAuth != "", s.ListenTLS, s.WebhookAuth != "", s.DataDir, s.Etcd, s.Log.Format}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if same := reflect.DeepEqual(fixed(d.Settings), fixed(g.settings)); !same && !g.told {
		g.told = true
		g.log.Warn("listen*, data-dir, log.format or coordination.* changed, or listen-auth or webhook-auth came or went: that takes effect after a restart")
	}
}

// listen opens the HTTP server.
func (g *agent) listen(r *repo.Repo, d *reconcile.Daemon) (*web.Server, error) {
	s := r.Settings()
	token, err := r.ListenToken()
	if err != nil {
		return nil, fmt.Errorf("listen-auth: %w", err)
	}
	var hook secret.Text
	if s.WebhookAuth != "" {
		if hook, err = r.ProcessSecret(s.WebhookAuth); err != nil {
			return nil, fmt.Errorf("webhook-auth: %w", err)
		}
	}
	return web.Listen(web.Config{
		Listen: s.Listen, Token: token, CertFile: s.ListenTLS.CertFile, KeyFile: s.ListenTLS.KeyFile, ClientCAFile: s.ListenTLS.ClientCAFile,
		Webhook: hook, Branch: s.Git.Branch, Reconcile: d.Kick, TaskTimeout: s.Reconcile.TaskTimeout, Log: g.log,
		Pages: web.Pages(g.store, g.log),
	}, g.store, g.metrics)
}

// coordinator is nil where this agent is alone.
func (g *agent) coordinator(r *repo.Repo, started time.Time) (*coord.Coordinator, error) {
	e := r.Settings().Etcd
	if len(e.Endpoints) == 0 {
		return nil, nil
	}
	tc, err := coord.TLS(e.CAFile, e.CertFile, e.KeyFile)
	if err != nil {
		return nil, err
	}
	var password secret.Text
	if e.Password != "" {
		if password, err = r.ProcessSecret(e.Password); err != nil {
			return nil, fmt.Errorf("coordination.etcd.password: %w", err)
		}
	}
	host, _ := os.Hostname()
	return coord.New(coord.Config{
		Endpoints: e.Endpoints, TLS: tc, User: e.User, Password: password, Prefix: e.Prefix, Lease: e.Lease,
		Name: g.name, Host: host, Started: started, Log: g.log,
		Changed: func(members []coord.Member) {
			var list []web.Agent
			for _, m := range members {
				list = append(list, web.Agent{Name: m.Name, Host: m.Host, Started: m.Started.UTC(), Clusters: m.Clusters, Self: m.Self})
			}
			g.store.SetAgents(list)
		},
	})
}
