package apply

import (
	"errors"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
)

// A refusal that names no right gets what the plan knows to be missing; one
// that names it, and any other error, stays as it is.
func TestRefusalNamesTheRight(t *testing.T) {
	a := plan.Action{Refused: "cores needs VM.Config.CPU on /vms/100"}
	for _, c := range []struct {
		name string
		err  error
		adds bool
	}{
		{"bare", &pve.Error{Kind: pve.KindForbidden, Message: "Permission check failed"}, true},
		{"named", &pve.Error{Kind: pve.KindForbidden, ACLPath: "/vms/100", Message: "Permission check failed (/vms/100, VM.Audit)"}, false},
		{"other", errors.New("no route"), false},
	} {
		got := explained(c.err, a)
		if !errors.Is(got, c.err) || strings.Contains(got.Error(), a.Refused) != c.adds {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if explained(nil, a) != nil {
		t.Error("success became an error")
	}
}
