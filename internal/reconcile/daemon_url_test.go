package reconcile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
)

// In URL mode new commits are followed; while the remote is away the last good
// commit is reconciled, and said to be stale.
func TestFollowsRemote(t *testing.T) {
	e := newEstate(t, pvesim.Options{}, "lab")
	defer e.stop()
	commit := e.repository()
	first := commit()
	home := t.TempDir()
	config := filepath.Join(home, "proxops.yaml")
	if err := os.WriteFile(config, []byte("reconcile: {poll-interval: 1h}\ngit: {url: "+e.dir+"}\ndata-dir: "+filepath.Join(home, "data")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := e.options()
	o.Open = func() (*repo.Repo, error) {
		return repo.Open(repo.Options{Dir: home, Env: map[string]string{"PROXOPS_PVE_TOKEN_VALUE": labToken}, Overrides: repo.Overrides{Config: config}})
	}
	until := func(what string, ok func(*Report) bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			rep := e.stands("lab").Report
			if rep != nil && ok(rep) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("not seen: %s; the last cycle: %+v", what, rep)
			}
		}
	}
	e.run(o, func(d *Daemon) {
		until("the first commit", func(r *Report) bool { return r.Commit == first && r.Converged() && !r.Stale })
		e.vms("lab", vmText("web", 100, "512MiB"), vmText("db", 101, "512MiB"))
		second := commit()
		d.Kick("push webhook")
		until("the second commit", func(r *Report) bool { return r.Commit == second && len(r.Objects) == 2 && r.Converged() })
		away := e.dir + ".away"
		if err := os.Rename(e.dir, away); err != nil {
			t.Fatal(err)
		}
		d.Kick("test")
		until("a stale cycle", func(r *Report) bool { return r.Commit == second && r.Stale && r.Converged() })
		if err := os.Rename(away, e.dir); err != nil {
			t.Fatal(err)
		}
		d.Kick("test")
		until("fresh again", func(r *Report) bool { return r.Commit == second && !r.Stale })
	})
}
