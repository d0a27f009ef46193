package cases_test

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
)

// PVE may hold a new mount point pending that it could not allocate, when the
// storage's lock was taken. A stopped container would keep it until somebody
// starts it: it is written again, and makes one volume.
func TestUnmadeMountPoint(t *testing.T) {
	story(t, func(l *lab) {
		l.converge(ct("a", 100, "template: debian"), debian)
		l.edit(100, func(g *guest) { g.Pending = pvesim.Section{"mp0": "local-lvm:1,mp=/srv"} })
		m := []string{ct("a", 100, "template: debian", "mount-points: [{storage: local-lvm, size: 1GiB, mount-point: /srv}]"), debian}
		rep := l.diff(m...)
		l.wantVerbs(rep, "Update 100")
		if st := l.stateOf(rep, "a"); st == plan.WaitingRestart {
			t.Errorf("a stopped container is said to be %s", st)
		}
		l.converge(m...)
		if got := l.conf(100)["mp0"]; !strings.HasPrefix(got, "local-lvm:vm-100-disk-1,") || len(l.pending(100)) > 0 {
			t.Errorf("mp0 is %s, pending %v", got, l.pending(100))
		}
	})
}
