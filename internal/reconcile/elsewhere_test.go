package reconcile

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
)

// A guest whose manifest moved to another cluster of the repository is not
// deleted where that cluster leads to the same PVE, or does not tell.
func TestMovedToAnotherCluster(t *testing.T) {
	const one, two = `{"data":[{"node":"pve01","status":"online","ssl_fingerprint":"AA"}]}`, `{"data":[{"node":"pve01","status":"online","ssl_fingerprint":"BB"}]}`
	moved := strings.Replace(vmText("moved", 101, "512MiB"), "started", "stopped", 1)
	for name, c := range map[string]struct {
		prod  string // what prod answers for /nodes
		err   error  // or how it does not
		files map[string]string
		held  string // text of the rule; "" = it is deleted
		asked int    // how often prod was connected to
	}{
		"the same PVE":             {prod: one, held: "cluster prod declares it in vm/prod/vms.yaml, and prod is this same PVE", asked: 1},
		"another PVE":              {prod: two, asked: 1},
		"no answer":                {err: errors.New("no route to host"), held: "it is not known whether that is this same PVE", asked: 1},
		"not allowed":              {prod: "", held: "it is not known whether that is this same PVE", asked: 1},
		"its node is offline":      {prod: `{"data":[{"node":"pve01","status":"offline","ssl_fingerprint":null}]}`, held: "PVE does not tell its certificate", asked: 1},
		"another name":             {prod: one, files: map[string]string{"vm/prod/vms.yaml": vmText("other", 101, "512MiB")}},
		"its name in capitals":     {prod: one, files: map[string]string{"vm/prod/vms.yaml": vmText("MOVED", 101, "512MiB")}, held: "same PVE", asked: 1},
		"another vmid":             {prod: one, files: map[string]string{"vm/prod/vms.yaml": vmText("moved", 102, "512MiB")}},
		"not listed":               {prod: one, files: map[string]string{"clusters/prod/resources.yaml": "resources: []\n"}},
		"a manifest with faults":   {prod: one, files: map[string]string{"vm/prod/vms.yaml": strings.Replace(moved, "cores: 1", "cores: none", 1)}, held: "same PVE", asked: 1},
		"no YAML":                  {prod: one, files: map[string]string{"vm/prod/vms.yaml": moved + "\t}"}, held: "same PVE", asked: 1},
		"a composition, no YAML":   {prod: one, files: map[string]string{"clusters/prod/resources.yaml": "resources:\n  - vm/prod/vms.yaml\n}\n"}, held: "same PVE", asked: 1},
		"a config with faults":     {prod: one, files: map[string]string{"clusters/prod/config.yaml": "pve: {clusters: {prod: {nodes: [pve01]}}}\n"}, held: "base-url", asked: 0},
		"another PVE, with faults": {prod: two, files: map[string]string{"vm/prod/vms.yaml": strings.Replace(moved, "cores: 1", "cores: none", 1)}, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				e := newEstate(t, pvesim.Options{}, "lab", "prod")
				defer e.stop()
				e.vms("lab", vmText("web", 100, "512MiB"), moved)
				e.vms("prod", vmText("db", 200, "512MiB"))
				if rep := e.cycleOnce(); rep.Failed() || len(rep.Plan.Actions) != 2 || e.connects["prod"] > 0 {
					t.Fatalf("%v, %d actions, prod connected to %d times", rep.Abort, len(rep.Plan.Actions), e.connects["prod"])
				}
				e.vms("lab", vmText("web", 100, "512MiB"))
				e.vms("prod", vmText("db", 200, "512MiB"), moved)
				for name, text := range c.files {
					e.write(name, text)
				}
				e.breakCluster("prod", c.err)
				rep := e.cycleOnce(e.through(map[string]string{"/nodes": one}), func(o *Options) {
					o.Neighbour = func(cl *repo.Cluster) (*pve.Client, error) {
						e.connects[cl.Name]++
						own := &Options{}
						if e.through(map[string]string{"/nodes": c.prod})(own); c.err != nil {
							own.Connect = e.connect
						}
						return own.Connect(cl)
					}
				})
				if c.err != nil {
					c.asked++ // the estate counts its own
				}
				if rep.Abort != nil || e.connects["prod"] != c.asked {
					t.Fatalf("%v; prod was connected to %d times", rep.Abort, e.connects["prod"])
				}
				deleted := false
				for _, w := range e.writes("lab") {
					deleted = deleted || strings.HasPrefix(w, http.MethodDelete)
				}
				if deleted == (c.held != "") {
					t.Errorf("deleted: %v; %v", deleted, e.writes("lab"))
				}
				var rules []string
				for _, s := range rep.Plan.Suppressed {
					rules = append(rules, s.Rule+" "+s.Text+" "+s.Todo)
				}
				if got := strings.Join(rules, "\n"); (got == "") != (c.held == "") || !strings.Contains(got, c.held) || got != "" && !strings.HasPrefix(got, "declared-elsewhere") {
					t.Errorf("held: %q, want %q", got, c.held)
				}
			})
		})
	}
}

// The daemon asks the other cluster with a client of its own, and keeps the one
// that it has.
func TestDaemonAsksTheOtherCluster(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "lab", "prod")
		defer e.stop()
		e.worlds["prod"] = e.world("lab")
		moved := strings.Replace(vmText("moved", 101, "512MiB"), "started", "stopped", 1)
		e.vms("lab", vmText("web", 100, "512MiB"), moved)
		e.vms("prod", vmText("db", 200, "512MiB"))
		commit := e.repository()
		commit()
		e.run(e.options(), func(*Daemon) {
			time.Sleep(2 * time.Minute)
			if e.connects["lab"] != 1 || e.connects["prod"] != 1 {
				t.Errorf("connected to lab %d times and to prod %d times, with nothing to delete", e.connects["lab"], e.connects["prod"])
			}
			e.vms("lab", vmText("web", 100, "512MiB"))
			e.vms("prod", vmText("db", 200, "512MiB"), moved)
			commit()
			time.Sleep(5 * time.Minute)
		})
		if e.connects["lab"] != 1 || e.connects["prod"] < 2 {
			t.Errorf("connected to lab %d times and to prod %d times", e.connects["lab"], e.connects["prod"])
		}
		for _, w := range e.writes("lab") {
			if strings.HasPrefix(w, http.MethodDelete) {
				t.Errorf("%s, which prod declares", w)
			}
		}
		held := e.last("lab").Plan.Suppressed
		if len(held) != 1 || held[0].Rule != "declared-elsewhere" || !e.last("prod").Converged() {
			t.Errorf("held back: %+v; prod: %+v", held, e.last("prod").Objects)
		}
	})
}
