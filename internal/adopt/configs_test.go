package adopt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/proxops/proxops/internal/adopt"
	"github.com/proxops/proxops/internal/pvesim"
)

// Real configurations, where they are there: adopt, compose, plan to claims.
func TestRealConfigs(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "cases", "configs")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no collection of configurations here; TestOddConfigs tests the same on our own")
	}
	s, err := pvesim.LoadConf(dir)
	if err != nil {
		t.Fatal(err)
	}
	e := newEstate(t, s, "pve01")
	res, checked := e.proof(adopt.Options{})
	e.untouched()
	for _, r := range res.Refused {
		t.Logf("refused %+v", r)
	}
	for _, m := range res.Manifests {
		for _, i := range m.Incomplete {
			t.Logf("%s %s: %s: %s", m.Ref(), m.ID, i.Path, i.Text)
		}
	}
	t.Logf("%d manifests, %d refused, checked %+v, %d calls", len(res.Manifests), len(res.Refused), checked, res.Reads)
}
