package repo

import (
	"fmt"
	"strings"
	"testing"
)

// Another cluster can be reached with its own credentials whatever its
// manifests say, and cannot without its secrets or with a fault in its
// configuration.
func TestNeighbour(t *testing.T) {
	more := files{
		"clusters/lab/config.yaml":    strings.NewReplacer("prod:", "lab:", "pve1.example", "lab.example").Replace(configYAML),
		"clusters/lab/resources.yaml": "resources: [vm/lab/b.yaml]\n",
		"vm/lab/b.yaml":               vmYAML("b", 101),
		"vm/prod/a.yaml":              vmYAML("b", 101, "  nonsense: 1\n"),
	}
	const block = "      secrets: {pve: {token: whole}}\n"
	load := func(dir string, env map[string]string) *Cluster {
		t.Helper()
		env["PROXOPS_PVE_TOKEN_VALUE"] = "lab@pve!own=secret"
		c, err := open(t, dir, func(o *Options) { o.Env = env }).Load(t.Context(), "lab")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	dir, env := encrypted(t, block, more)
	c := load(dir, env)
	n, err := c.Neighbour("prod")
	if err != nil || n.Name != "prod" || n.Config.BaseURL != "https://pve1.example.org:8006" || n.Secrets.TokenID != "proxops@pve!agent" || n.Secrets.Token.Reveal() != "canary-whole" || len(n.Resources) > 0 {
		t.Errorf("%+v, %v", n, err)
	}
	if got := fmt.Sprint(c.Elsewhere([]int{101, 102})); got != "[{prod {101 vm/prod/a.yaml [b]}}]" {
		t.Error(got)
	}
	if n, err := c.Neighbour("gone"); err == nil {
		t.Errorf("a cluster that is not there: %+v", n)
	}
	if n, err := load(dir, map[string]string{}).Neighbour("prod"); err == nil || !strings.Contains(err.Error(), "secrets.sops.yaml") {
		t.Errorf("without an identity: %+v, %v", n, err)
	}
	more["clusters/prod/config.yaml"] = strings.Replace(configYAML, "nodes: [pve1, pve2]", "nodes: []", 1)
	if n, err := load(base().with(more).write(t), map[string]string{}).Neighbour("prod"); err == nil || !strings.Contains(err.Error(), "nodes") {
		t.Errorf("with a fault: %+v, %v", n, err)
	}
	made := Cluster{Name: "lab"}
	if got := made.Elsewhere([]int{101}); got != nil {
		t.Errorf("a cluster of no repository: %v", got)
	}
}
