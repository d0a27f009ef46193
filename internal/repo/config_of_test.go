package repo

import (
	"strings"
	"testing"
)

// TestConfigOf: where a cluster is can be read whatever its manifests are
// like; faults of the configuration itself count.
func TestConfigOf(t *testing.T) {
	r := open(t, base().with(files{"clusters/prod/resources.yaml": "", "vm/prod/a.yaml": "nonsense: ["}).write(t))
	c, err := r.ConfigOf("prod")
	if err != nil || !strings.HasPrefix(c.BaseURL, "https://pve1.example.org") || c.File != "clusters/prod/config.yaml" {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := r.ConfigOf("nope"); err == nil {
		t.Error("a cluster that is not there has a configuration")
	}
	r = open(t, base().with(files{"clusters/prod/config.yaml": strings.Replace(configYAML, "https://pve1.example.org", "ftp://x", 1)}).write(t))
	if _, err := r.ConfigOf("prod"); err == nil || !strings.Contains(err.Error(), "base-url") {
		t.Errorf("a faulty configuration gives %v", err)
	}
}

// TestLoadWith: for adopt, a composition that is not there is an empty one; a
// faulty one stays a fault, and Load takes neither.
func TestLoadWith(t *testing.T) {
	r := open(t, base().with(files{"clusters/prod/resources.yaml": ""}).write(t))
	if _, err := r.Load(t.Context(), "prod"); err == nil || !strings.Contains(err.Error(), "resources.yaml: does not exist") {
		t.Errorf("Load without a composition: %v", err)
	}
	for further, want := range map[string]int{"": 0, "vm/prod/a.yaml": 1} {
		c, err := r.LoadWith(t.Context(), "prod", strings.Fields(further))
		if err != nil || len(c.Resources) != want {
			t.Errorf("with %q: %+v, %v", further, c, err)
		}
	}
	r = open(t, base().with(files{"clusters/prod/resources.yaml": "resources: [vm/prod/none.yaml]\n"}).write(t))
	if _, err := r.LoadWith(t.Context(), "prod", nil); err == nil || !strings.Contains(err.Error(), "vm/prod/none.yaml") {
		t.Errorf("a faulty composition: %v", err)
	}
}
