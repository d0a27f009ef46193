package cases_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/reconcile"
)

// Every lock of PVE defers its guest with the reason; the others go on, and
// when the lock is gone the guest is reconciled.
func TestLocksDefer(t *testing.T) {
	for _, lock := range []string{"backup", "clone", "create", "disk", "fstrim", "migrate", "mounted", "rollback", "snapshot", "snapshot-delete", "suspended", "suspending"} {
		story(t, func(l *lab) {
			m := func(text string) []string {
				return []string{debian, vm("a", 100, "pve-description: "+text), ct("b", 101, "template: debian", "pve-description: "+text), vm("c", 102, "pve-description: "+text), ct("d", 103, "template: debian", "pve-description: "+text)}
			}
			l.converge(m("x")...)
			for _, id := range []int{100, 101} {
				l.edit(id, func(g *guest) { g.Config["lock"] = lock })
			}
			rep := l.apply(m("y")...)
			l.wantVerbs(rep, "Update 102, Update 103")
			for _, name := range []string{"a", "b"} {
				if s := l.stateOf(rep, name); s != plan.Skipped || rep.Failed() {
					t.Errorf("%s: %s is %s", lock, name, s)
				}
			}
			l.says(rep, "locked ("+lock+")")
			stale := lock != "mounted" && lock != "suspended" // those outlive their task
			for _, advice := range []string{"`qm unlock 100`", "`pct unlock 101`"} {
				if strings.Contains(text(rep), advice) != stale {
					t.Errorf("%s: advice %s:\n%s", lock, advice, text(rep))
				}
			}
			if n := len(rep.Plan.Anomalies); n != 0 && !stale || n != 2 && stale {
				t.Errorf("%s: %d anomalies", lock, n)
			}
			for _, id := range []int{100, 101} {
				l.edit(id, func(g *guest) { delete(g.Config, "lock") })
			}
			l.wantVerbs(l.converge(m("y")...), "Update 100, Update 101")
		})
	}
}

// task puts a task into PVE's index: one that began at start and runs, or
// ended.
func (l *lab) task(kind, id, exit string, start time.Time) {
	l.w.View(func(s *pvesim.State) {
		t := &pvesim.Task{Node: "pve01", Type: kind, ID: id, AuthID: "root@pam", PID: 4242, PStart: 4242, Start: start, Exit: exit,
			UPID: "UPID:pve01:00001092:00001092:386D4380:" + kind + ":" + id + ":root@pam:"}
		if exit != "" {
			t.End = start.Add(time.Minute)
		}
		s.Tasks = append(s.Tasks, t)
	})
}

// A guest that stays locked is told with since when and for how long; after
// reconcile.busy-alarm it is an anomaly, whose words do not change by the hour.
// A guest that is not locked costs no request for it.
func TestC13_Alarm(t *testing.T) {
	for _, c := range []struct{ name, task, id, exit, says string }{
		{"its own backup", "vzdump", "100", "", "locked (backup): task vzdump of root@pam is running, since "},
		{"a backup of many", "vzdump", "", "", "locked (backup): task vzdump of root@pam is running, since "},
	} {
		story(t, func(l *lab) {
			l.settings = "      reconcile: {busy-alarm: 8h}\n"
			ms := []string{vm("a", 100), vm("b", 101)}
			l.converge(ms...)
			l.w.ForgetRequests()
			l.diff(ms...)
			if n := l.calls("GET", "/tasks"); n != 2 {
				t.Errorf("%d task lists for two nodes and no lock", n)
			}
			began := time.Now()
			l.edit(100, func(g *guest) { g.Config["lock"] = "backup" })
			l.task(c.task, c.id, c.exit, began)
			rep := l.diff(ms...)
			l.says(rep, c.says+began.UTC().Format("2006-01-02 15:04 UTC"))
			if len(rep.Plan.Anomalies) > 0 {
				t.Errorf("%s: an anomaly at once:\n%s", c.name, text(rep))
			}
			time.Sleep(7*time.Hour + time.Minute)
			rep = l.diff(ms...)
			l.says(rep, ", 7 h")
			if len(rep.Plan.Anomalies) > 0 || rep.Failed() {
				t.Errorf("%s: after seven hours:\n%s", c.name, text(rep))
			}
			time.Sleep(time.Hour)
			first := l.diff(ms...)
			l.says(first, "anomaly: VM/a 100", "longer than reconcile.busy-alarm (8h)", "qm unlock 100")
			time.Sleep(5 * time.Hour)
			second := l.diff(ms...)
			if len(first.Plan.Anomalies) != 1 || len(second.Plan.Anomalies) != 1 || first.Plan.Anomalies[0] != second.Plan.Anomalies[0] {
				t.Errorf("%s: one anomaly became %v, %v", c.name, first.Plan.Anomalies, second.Plan.Anomalies)
			}
			if s := l.stateOf(second, "a"); s != plan.Skipped {
				t.Errorf("%s: a is %s", c.name, s)
			}
			l.edit(100, func(g *guest) { delete(g.Config, "lock") })
			l.w.View(func(s *pvesim.State) { s.Tasks = s.Tasks[:len(s.Tasks)-1] })
			l.settled(ms...)
		})
	}
}

// PVE answers a create with "got no worker upid" and leaves a config that
// holds nothing but its lock. It is never done, never touched, and how to
// clear it is said only by who can know that its task is gone.
func TestH2_NoWorker(t *testing.T) {
	story(t, func(l *lab) {
		l.w.SetFaults(pvesim.Fault{Kind: pvesim.FaultNoWorker, P: 1, Method: "POST", Path: "/nodes/*/qemu"}, pvesim.Fault{Kind: pvesim.FaultNoWorker, P: 1, Method: "POST", Path: "/nodes/*/lxc"})
		ms := []string{debian, vm("a", 100, "disks: [{storage: local-lvm, size: 1GiB}]"), ct("b", 101, "template: debian"), vm("c", 102)}
		l.fails = true
		rep := l.apply(ms...)
		for _, a := range rep.Result.Actions {
			if a.Outcome != apply.Unknown {
				t.Errorf("%s %s: %s", a.Action.Verb, a.Action.ID, a.Outcome)
			}
		}
		if n := l.calls("POST", "/qemu") + l.calls("POST", "/lxc"); n != 3 {
			t.Errorf("three creates were sent %d times", n)
		}
		if !rep.Failed() || l.stateOf(rep, "a") != plan.Unknown {
			t.Errorf("failed %v, a is %s", rep.Failed(), l.stateOf(rep, "a"))
		}
		l.w.SetFaults()
		l.fails = false
		l.w.View(func(s *pvesim.State) { delete(s.Guests, 102) }) // of this one nothing is left
		rep = l.apply(ms...)
		l.wantVerbs(rep, "Create 102")
		l.says(rep, "locked (create): no task works on it", "`qm unlock 100` and then `qm destroy 100`", "`pct unlock 101` and then `pct destroy 101`")
		if s := print(l.conf(100)) + print(l.conf(101)); s != "lock: create\nlock: create\n" {
			t.Errorf("it was touched: %s", s)
		}
		rep = l.apply(debian, ms[3]) // no longer declared, and without a tag: not ours to delete
		if rep.Writes != 0 {
			t.Errorf("%d writes", rep.Writes)
		}
		// An operator clears it.
		l.edit(100, func(g *guest) { delete(g.Config, "lock") })
		l.edit(101, func(g *guest) { delete(g.Config, "lock") })
		l.w.View(func(s *pvesim.State) { delete(s.Guests, 100); delete(s.Guests, 101) })
		l.wantVerbs(l.converge(ms...), "Create 100, Create 101")
	})
	story(t, func(l *lab) { // the creation runs, or who asks cannot see whether it does
		l.w.View(func(s *pvesim.State) {
			s.Guests[100] = &pvesim.Guest{VMID: 100, Kind: "qemu", Node: "pve01", Config: pvesim.Section{"lock": "create"}}
		})
		l.task("qmcreate", "100", "", time.Now())
		rep := l.diff(vm("a", 100))
		l.says(rep, "task qmcreate of root@pam is running")
		if strings.Contains(text(rep), "unlock") {
			t.Errorf("a running creation is to be cleared:\n%s", text(rep))
		}
		l.w.View(func(s *pvesim.State) { s.Tasks = s.Tasks[:len(s.Tasks)-1] })
		l.role("Blind", "VM.Audit VM.Allocate")
		l.grant("Blind", "/vms")
		l.as(l.token())
		rep = l.diff(vm("a", 100))
		l.says(rep, "locked (create)", "Sys.Audit on /nodes/pve01")
		if strings.Contains(text(rep), "unlock") {
			t.Errorf("who cannot see tasks says how to clear it:\n%s", text(rep))
		}
	})
}

// onWrite does something once, when the answer to a write is back.
type onWrite struct {
	http.RoundTripper
	path string
	do   func()
}

func (o *onWrite) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := o.RoundTripper.RoundTrip(req)
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, o.path) && o.do != nil {
		o.do()
		o.do = nil
	}
	return res, err
}

// A clone whose maker ends goes on in PVE: the guest is busy, since when. A
// clone that the node's crash ended keeps its lock for good: that is an
// anomaly with what to do, and nothing here unlocks or deletes.
func TestH2_CutClone(t *testing.T) {
	tpl := spec("TemplateVM", "golden", 900, "disks: [{storage: shared, size: 8GiB}]")
	ms := []string{tpl, vm("a", 101, "clone: golden"), vm("b", 102)}
	storyWith(t, pvesim.Options{Seed: 1, TimeScale: 1}, func(l *lab) {
		l.write(ms...)
		ctx, cut := context.WithCancel(l.Context())
		l.wire = &onWrite{l.w, "/900/clone", cut}
		rep := reconcile.Cycle(ctx, reconcile.Options{Cluster: "lab", Write: true, Load: l.load, Connect: l.connect, Policy: l.policy})
		if ctx.Err() == nil {
			t.Fatalf("nothing was cloned:\n%s", text(rep))
		}
		l.wire, l.client = l.w, nil
		rep = l.cycle(false)
		l.says(rep, "locked (clone): task qmclone of root@pam!full is running, since ")
		if s := l.stateOf(rep, "a"); s != plan.Skipped || len(rep.Plan.Anomalies) > 0 || rep.Failed() {
			t.Errorf("a is %s:\n%s", s, text(rep))
		}
		l.drain()
		l.converge(ms...)
	})
	story(t, func(l *lab) {
		l.converge(ms...)
		l.edit(101, func(g *guest) { g.Config = pvesim.Section{"lock": "clone"} })
		for range 2 {
			rep := l.apply(ms...)
			l.says(rep, "anomaly: VM/a 101", "locked (clone): no task works on it", "→ look at guest 101", "`qm unlock 101` and then `qm destroy 101`")
			if s := l.stateOf(rep, "a"); s != plan.Skipped || rep.Failed() || rep.Converged() || rep.Writes > 0 {
				t.Errorf("a is %s, %d writes:\n%s", s, rep.Writes, text(rep))
			}
			time.Sleep(24 * time.Hour)
		}
		// Its template is being cloned by somebody: into what, no task tells.
		l.task("qmclone", "900", "", time.Now())
		if rep := l.diff(ms...); len(rep.Plan.Anomalies) > 0 || strings.Contains(text(rep), "unlock") {
			t.Errorf("work of somebody's is to be cleared:\n%s", text(rep))
		}
		l.w.View(func(s *pvesim.State) { s.Tasks = s.Tasks[:len(s.Tasks)-1] })
		// With the tag, which a clone inherits, it may be whole; undeclared, its
		// delete is held back.
		l.edit(101, func(g *guest) { g.Config["tags"], g.Config["name"] = "proxops", "a" })
		l.says(l.diff(ms...), "`qm unlock 101` if its disks are whole, otherwise")
		rep := l.apply(tpl, ms[2])
		l.says(rep, "delete held back: VM/a 101", "`qm unlock 101` if its disks are whole, otherwise")
		if rep.Writes > 0 || print(l.conf(101)) != "lock: clone\nname: a\ntags: proxops\n" {
			t.Errorf("%d writes: %s", rep.Writes, print(l.conf(101)))
		}
		// An operator clears it.
		l.w.View(func(s *pvesim.State) { delete(s.Guests, 101) })
		l.wantVerbs(l.apply(ms...), "Clone 101")
	})
}
