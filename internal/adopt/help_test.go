package adopt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/adopt"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

// estate is a simulated cluster with a repository that knows of it.
type estate struct {
	t      testing.TB
	world  *pvesim.World
	client *pve.Client
	nodes  []string
	root   string
}

const tokenValue = "root@pam!full=11111111-1111-4111-8111-111111111111"

func newEstate(t testing.TB, s pvesim.State, nodes ...string) *estate {
	t.Helper()
	w := pvesim.New(pvesim.Options{Seed: 7, KeepRequests: 100000}, s)
	t.Cleanup(w.Stop)
	id, token, _ := strings.Cut(tokenValue, "=")
	c, err := pve.New(pve.Config{Name: "lab", Endpoints: []string{"https://pve.example.org:8006"}, Nodes: nodes, Transport: w,
		Auth: pve.Credentials{TokenID: id, TokenSecret: secret.New(token)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	e := &estate{t: t, world: w, client: c, nodes: nodes, root: t.TempDir()}
	e.file(".git/keep", "")
	e.file("clusters/lab/config.yaml", fmt.Sprintf("pve:\n  clusters:\n    lab:\n      base-url: https://pve.example.org:8006\n      nodes: [%s]\n", strings.Join(nodes, ", ")))
	e.file("clusters/lab/resources.yaml", "resources: []\n")
	return e
}

func (e *estate) file(name, text string) {
	e.t.Helper()
	full := filepath.Join(e.root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		e.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
}

func (e *estate) read(name string) string {
	e.t.Helper()
	b, err := os.ReadFile(filepath.Join(e.root, filepath.FromSlash(name)))
	if err != nil {
		e.t.Fatal(err)
	}
	return string(b)
}

func (e *estate) open() *repo.Repo {
	e.t.Helper()
	r, err := repo.Open(repo.Options{Dir: e.root, Env: map[string]string{"PROXOPS_PVE_TOKEN_VALUE": tokenValue}, Overrides: repo.Overrides{GitPath: e.root}})
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

func (e *estate) load(further ...string) *repo.Cluster {
	e.t.Helper()
	c, err := e.open().LoadWith(e.t.Context(), "lab", further)
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// adopt reads and makes the manifests, as the command does.
func (e *estate) adopt(o adopt.Options) (*live.Snapshot, adopt.Result) {
	e.t.Helper()
	c := e.load()
	known, err := adopt.LoadKnown(c.Tree, c)
	if err != nil {
		e.t.Fatal(err)
	}
	o.Cluster, o.Known = "lab", known
	s, err := adopt.Read(e.t.Context(), e.client.Reader(), live.Want{Cluster: "lab", Nodes: e.nodes, Identity: "root@pam!full"}, o.Select)
	if err != nil {
		e.t.Fatal(err)
	}
	return s, adopt.Make(s, o)
}

// proof adopts, writes, composes what was written and plans.
func (e *estate) proof(o adopt.Options) (adopt.Result, adopt.Checked) {
	e.t.Helper()
	s, res := e.adopt(o)
	files, err := adopt.Write(e.root, res.Manifests, false)
	if err != nil {
		e.t.Fatal(err)
	}
	var further []string
	for _, m := range res.Manifests {
		further = append(further, m.File)
		if m.Fault != "" {
			e.t.Errorf("%s: %s\n%s", m.Ref(), m.Fault, m.Text)
		}
	}
	checked := adopt.Check(e.load(further...), s, files)
	for _, b := range checked.Bugs {
		e.t.Errorf("bug: %s", b)
	}
	return res, checked
}

// untouched fails when anything but GETs was sent.
func (e *estate) untouched() {
	e.t.Helper()
	if n := e.client.Reader().Writes(); n != 0 {
		e.t.Errorf("%d writes were sent", n)
	}
	for _, r := range e.world.Requests() {
		if r.Method != "GET" {
			e.t.Errorf("%s %s was sent", r.Method, r.Path)
		}
	}
	e.world.View(func(s *pvesim.State) {
		if len(s.Tasks) > 0 {
			e.t.Errorf("%d tasks were started", len(s.Tasks))
		}
		for id, g := range s.Guests {
			if g.Config["lock"] != "" {
				e.t.Errorf("guest %d is locked", id)
			}
		}
	})
}

// claim gives every guest the tags that a claim of its manifest writes.
func (e *estate) claim() {
	e.world.View(func(s *pvesim.State) {
		for _, g := range s.Guests {
			tags := append(wire.SplitTags(g.Config["tags"]), kind.OwnerTag)
			g.Config["tags"] = wire.JoinTags(wire.FoldTags(tags, false))
		}
	})
}
