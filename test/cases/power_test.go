package cases_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/reconcile"
)

// disk is one with a system on it, which reacts to a shutdown.
const disk = "disks: [{storage: local-lvm, image: seed}]"

// power is what was asked of guests' power since the log was forgotten, in
// order: "shutdown 100, start 100".
func (l *lab) power() string {
	var out []string
	for _, r := range l.w.Requests() {
		parts := strings.Split(r.Path, "/")
		if r.Method == "POST" && len(parts) > 2 && parts[len(parts)-2] == "status" {
			out = append(out, parts[len(parts)-1]+" "+parts[len(parts)-3])
		}
	}
	return strings.Join(out, ", ")
}

func (l *lab) wantPower(want string) {
	l.Helper()
	if got := l.power(); got != want {
		l.Errorf("asked of the guests' power: %q, want %q", got, want)
	}
	l.w.ForgetRequests()
}

// A VM and a container that run, with changes that wait for a restart (cores
// of a VM without CPU hotplug, tty of a container).
func waiting(cores string) []string {
	return []string{debian, seedImage, vm("a", 100, "state: started", "cpu: {type: host, cores: "+cores+"}", disk),
		ct("b", 101, "template: debian", "state: started", "options: {ttys: "+cores+"}")}
}

func TestRestartPolicyNever(t *testing.T) {
	story(t, func(l *lab) {
		l.converge(waiting("1")...)
		l.w.ForgetRequests()
		rep := l.apply(waiting("2")...)
		l.wantVerbs(rep, "Update 100, Update 101")
		for _, name := range []string{"a", "b"} {
			if s := l.stateOf(rep, name); s != plan.WaitingRestart {
				t.Errorf("after apply %s is %s", name, s)
			}
		}
		rep = l.apply(waiting("2")...)
		l.wantVerbs(rep, "")
		if rep.Converged() || rep.Failed() || rep.Writes != 0 {
			t.Errorf("converged %v, failed %v, %d writes", rep.Converged(), rep.Failed(), rep.Writes)
		}
		l.says(rep, "waiting-restart: VM/a 100", "cpu.cores  1 → 2", "waiting-restart: LXC/b 101", "options.ttys  1 → 2", "2 waiting for restart")
		l.wantPower("")
		// Somebody restarts them: nothing is left to say.
		for _, id := range []int{100, 101} {
			l.api("POST", l.path(id)+"/status/stop")
			l.api("POST", l.path(id)+"/status/start")
		}
		if rep := l.diff(waiting("2")...); !rep.Converged() {
			t.Errorf("after the restart:\n%s", text(rep))
		}
	})
}

func TestRestartPolicyImmediate(t *testing.T) {
	story(t, func(l *lab) {
		l.settings = "      reconcile: {restart-policy: immediate}\n"
		l.converge(waiting("1")...)
		l.w.ForgetRequests()
		rep := l.diff(waiting("2")...)
		l.wantVerbs(rep, "Update 100, Restart 100, Update 101, Restart 101") // power last, as actions of their own
		l.says(rep, "[waits for restart]", "restart policy immediate: cpu.cores", "[stop+start]")
		l.w.ForgetRequests()
		if rep = l.apply(waiting("2")...); !rep.Converged() {
			t.Errorf("not converged:\n%s", text(rep))
		}
		got := l.power()
		for _, want := range []string{"shutdown 100, start 100", "shutdown 101, start 101"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q: one at a time is %q", got, want)
			}
		}
		l.w.ForgetRequests()
		l.settled(waiting("2")...)
		// What waits for somebody else's key is not ours to restart for.
		l.put(100, "sockets", "2")
		rep = l.apply(waiting("2")...)
		l.wantVerbs(rep, "")
		l.says(rep, "anomaly: VM/a 100: sockets has a change that waits for a restart", "--revert sockets")
		l.wantPower("")
	})
}

// The annotation goes before the cluster's policy, either way.
func TestRestartAnnotation(t *testing.T) {
	for policy, note := range map[string]string{"immediate": "never", "never": "immediate"} {
		story(t, func(l *lab) {
			l.settings = "      reconcile: {restart-policy: " + policy + "}\n"
			mine := func(cores string) []string {
				ms := waiting(cores)
				ms[2] = noted(ms[2], "proxops/restart: "+note)
				return ms
			}
			l.converge(mine("1")...)
			l.w.ForgetRequests()
			l.apply(mine("2")...)
			restarted := map[string]string{"immediate": "shutdown 100, start 100", "never": "shutdown 101, start 101"}[note]
			l.wantPower(restarted)
			rep := l.diff(mine("2")...)
			left := map[string]string{"immediate": "b", "never": "a"}[note]
			if s := l.stateOf(rep, left); s != plan.WaitingRestart {
				t.Errorf("%s, annotated %s: %s is %s", policy, note, left, s)
			}
		})
	}
	story(t, func(l *lab) { // a window that nobody has set
		mine := func(cores string) []string {
			ms := waiting(cores)
			ms[2] = noted(ms[2], "proxops/restart: window")
			return ms[1:3]
		}
		l.converge(mine("1")...)
		l.apply(mine("2")...)
		l.wantVerbs(l.diff(mine("2")...), "")
	})
}

// In a window guests are restarted inside it alone: a window of a Saturday
// evening that reaches into Sunday, and one that the change to summer time
// cuts short.
func TestRestartWindow(t *testing.T) {
	for _, c := range []struct {
		window, clock string
		open          bool
	}{
		{"30 22 * * sat 3h Europe/Berlin", "2000-03-04T22:29:00+01:00", false},
		{"30 22 * * sat 3h Europe/Berlin", "2000-03-05T01:00:00+01:00", true},
		{"30 22 * * sat 3h Europe/Berlin", "2000-03-05T01:30:00+01:00", false},
		{"0 1 * * sun 2h Europe/Berlin", "2000-03-26T03:30:00+02:00", true},
		{"0 1 * * sun 2h Europe/Berlin", "2000-03-26T04:00:00+02:00", false},
	} {
		story(t, func(l *lab) {
			at, err := time.Parse(time.RFC3339, c.clock)
			if err != nil {
				t.Fatal(err)
			}
			l.settings = "      reconcile: {restart-policy: window, restart-window: '" + c.window + "'}\n"
			l.converge(waiting("1")...)
			l.apply(waiting("2")...) // the bubble's clock begins at midnight of a Saturday in January 2000, at one o'clock in Berlin
			if rep := l.diff(waiting("2")...); verbs(rep) != "" {
				t.Fatalf("outside the window:\n%s", text(rep))
			}
			l.w.ForgetRequests()
			time.Sleep(time.Until(at))
			rep := l.apply(waiting("2")...)
			if got := verbs(rep); (got == "Restart 100, Restart 101") != c.open || !c.open && got != "" {
				t.Errorf("%s at %s: %q", c.window, c.clock, got)
			}
			if rep.Converged() != c.open {
				t.Errorf("%s at %s: converged %v\n%s", c.window, c.clock, rep.Converged(), text(rep))
			}
		})
	}
}

// A run that goes on past the window's end takes no further guest down.
func TestWindowClosesDuringARun(t *testing.T) {
	storyWith(t, pvesim.Options{Seed: 1, TimeScale: 1}, func(l *lab) {
		l.settings = "      reconcile: {restart-policy: window, restart-window: '0 3 * * * 1m UTC'}\n"
		fleet := func(cores string) []string {
			out := []string{seedImage}
			for i := range 12 {
				out = append(out, vm(fmt.Sprintf("g%d", i), 100+i, "state: started", "cpu: {type: host, cores: "+cores+"}", disk))
			}
			return out
		}
		l.converge(fleet("1")...)
		l.apply(fleet("2")...)
		now := time.Now().UTC()
		time.Sleep(time.Until(time.Date(now.Year(), now.Month(), now.Day()+1, 3, 0, 30, 0, time.UTC)))
		l.w.ForgetRequests()
		rep := l.apply(fleet("2")...)
		done, deferred := rep.Result.Counts()[apply.Done], rep.Result.Counts()[apply.Deferred]
		if done == 0 || deferred == 0 || rep.Failed() {
			t.Errorf("%d restarts done, %d deferred:\n%s", done, deferred, text(rep))
		}
		for _, r := range l.w.Requests() {
			if strings.HasSuffix(r.Path, "/shutdown") && (r.Time.UTC().Hour() != 3 || r.Time.UTC().Minute() != 0) {
				t.Errorf("%s at %s", r.Path, r.Time.UTC())
			}
		}
		for i := range 12 { // nobody is left down
			if !l.running(100 + i) {
				t.Errorf("guest %d is down", 100+i)
			}
		}
	})
}

// One guest is down at a time, unless max-disruptions says more: between a
// shutdown and the start that ends it no other guest is shut down.
func TestMaxDisruptions(t *testing.T) {
	for _, most := range []int{1, 2} {
		storyWith(t, pvesim.Options{Seed: 1, TimeScale: 1}, func(l *lab) {
			l.settings = fmt.Sprintf("      reconcile: {restart-policy: immediate, max-disruptions: %d}\n", most)
			fleet := func(cores string) []string {
				out := []string{debian, seedImage}
				for i := range 4 {
					out = append(out, vm(fmt.Sprintf("g%d", i), 100+i, "state: started", "cpu: {type: host, cores: "+cores+"}", disk))
				}
				for i := range 2 { // a change that cannot be made while it runs: stop, update, start
					id := 200 + i
					c := ct(fmt.Sprintf("c%d", i), id, "template: debian", "state: started", "options: {ttys: "+cores+"}")
					out = append(out, c)
				}
				return out
			}
			l.converge(fleet("1")...)
			l.w.ForgetRequests()
			l.converge(fleet("2")...)
			down, worst := map[string]bool{}, 0
			for _, step := range strings.Split(l.power(), ", ") {
				what, id, _ := strings.Cut(step, " ")
				down[id] = what == "shutdown"
				n := 0
				for _, d := range down {
					if d {
						n++
					}
				}
				worst = max(worst, n)
			}
			if worst != most || len(down) != 6 {
				t.Errorf("max-disruptions %d: %d of %d guests were down at a time: %s", most, worst, len(down), l.power())
			}
		})
	}
}

// A guest that does not shut down is left running, unless the manifest says
// that it may be stopped hard. After one such no other is taken down.
func TestForceStop(t *testing.T) {
	for _, force := range []bool{false, true} {
		story(t, func(l *lab) {
			l.settings = "      reconcile: {restart-policy: immediate}\n"
			m := func(cores string) []string {
				one := vm("a", 100, "state: started", "cpu: {type: host, cores: "+cores+"}", disk)
				if force {
					one = noted(one, `proxops/force-stop: "true"`)
				}
				return []string{seedImage, one, vm("b", 101, "state: started", "cpu: {type: host, cores: "+cores+"}", disk)}
			}
			l.converge(m("1")...)
			l.w.SetFaults(pvesim.Fault{Kind: pvesim.FaultTaskFail, P: 1, Path: "/nodes/*/tasks/qmshutdown"})
			if force {
				l.w.SetFaults()
			}
			l.w.ForgetRequests()
			l.fails = !force
			rep := l.apply(m("2")...)
			for _, r := range l.w.Requests() {
				if strings.HasSuffix(r.Path, "/shutdown") && (r.Params.Str("forceStop") == "1") != (force && strings.Contains(r.Path, "/100/")) {
					t.Errorf("%s %v", r.Path, r.Params)
				}
				if strings.HasSuffix(r.Path, "/stop") {
					t.Errorf("%s: the plug was pulled", r.Path)
				}
			}
			if !l.running(100) || !l.running(101) {
				t.Errorf("a guest is left down:\n%s", text(rep))
			}
			if force {
				return
			}
			down := 0
			for _, a := range rep.Result.Actions {
				if a.Action.Verb != plan.Restart {
					continue
				}
				down++
				if a.Outcome == apply.Done || a.Err == nil {
					t.Errorf("%s %s: %s %v", a.Action.Verb, a.Action.ID, a.Outcome, a.Err)
				}
			}
			if down != 2 || strings.Count(l.power(), "shutdown") != 1 {
				t.Errorf("after one that does not shut down: %s", l.power())
			}
		})
	}
}

// The stop that state: stopped asks for is clean, and waits for the guest.
func TestStoppedByShutdown(t *testing.T) {
	story(t, func(l *lab) {
		m := func(state string) []string {
			return []string{debian, seedImage, vm("a", 100, "state: "+state, disk), ct("b", 101, "template: debian", "state: "+state)}
		}
		l.converge(m("started")...)
		l.w.ForgetRequests()
		rep := l.converge(m("stopped")...)
		l.wantVerbs(rep, "Stop 100, Stop 101")
		if got := l.power(); strings.Count(got, "shutdown") != 2 || strings.Contains(got, "stop ") {
			t.Errorf("%s", got)
		}
	})
}

// A stopped guest is never started to apply something, whatever the policy,
// and a change to it waits for nothing.
func TestStoppedStaysStopped(t *testing.T) {
	story(t, func(l *lab) {
		l.settings = "      reconcile: {restart-policy: immediate}\n"
		m := func(n string) []string {
			return []string{debian, seedImage, vm("a", 100, "state: stopped", "memory: "+n+"GiB", "cpu: {type: host, cores: "+n+"}", "hardware: {machine: "+map[string]string{"1": "pc", "2": "q35"}[n]+"}", disk),
				ct("b", 101, "template: debian", "state: stopped", "options: {ttys: "+n+"}")}
		}
		l.converge(m("1")...)
		l.w.ForgetRequests()
		rep := l.converge(m("2")...)
		l.wantVerbs(rep, "Update 100, Update 101")
		for _, a := range rep.Plan.Actions {
			if a.PowerText() != "none" {
				t.Errorf("%s %s: power %s", a.Verb, a.ID, a.PowerText())
			}
		}
		l.wantPower("")
	})
}

// Memory and cores that the guest takes while it runs are written and nothing
// is restarted, even where the policy would.
func TestHotplugNeedsNoRestart(t *testing.T) {
	story(t, func(l *lab) {
		l.settings = "      reconcile: {restart-policy: immediate}\n"
		m := func(n string) []string {
			return []string{debian, seedImage, vm("a", 100, "state: started", "memory: "+n+"GiB", "hardware: {numa: true}", "options: {hotplug: [memory, disk, network, usb]}", disk),
				ct("b", 101, "template: debian", "state: started", "memory: "+n+"GiB", "swap: "+n+"GiB", "cpu: {cores: "+n+"}")}
		}
		l.converge(m("1")...)
		l.w.ForgetRequests()
		rep := l.converge(m("2")...)
		l.wantVerbs(rep, "Update 100, Update 101")
		l.says(rep, "[applies live]")
		l.wantPower("")
		if len(l.pending(100))+len(l.pending(101)) > 0 || l.conf(100)["memory"] != "2048" || l.conf(101)["cores"] != "2" {
			t.Errorf("%s\n%s", print(l.conf(100)), print(l.conf(101)))
		}
	})
}

// Somebody's pending change on a key that we own is drift and is dropped; on
// another it is told, never touched.
func TestSomebodysPending(t *testing.T) {
	story(t, func(l *lab) {
		l.converge(waiting("1")...)
		l.put(100, "cores", "4", "sockets", "2")
		l.put(101, "tty", "5", "features", "nesting=1")
		l.w.ForgetRequests()
		rep := l.apply(waiting("1")...)
		l.wantVerbs(rep, "Update 100, Update 101")
		l.says(rep, "sockets has a change that waits", "features has a change that waits", "qm set 100 --revert sockets", "pct set 101 --revert features")
		if p := l.pending(100); p["cores"] != "" || p["sockets"] != "2" {
			t.Errorf("pending of the VM: %v", p)
		}
		if p := l.pending(101); p["tty"] != "" || p["features"] != "nesting=1" {
			t.Errorf("pending of the container: %v", p)
		}
		l.wantConf(100, "cores", "1")
		l.wantPower("")
		rep = l.diff(waiting("1")...)
		l.wantVerbs(rep, "")
		if s := l.stateOf(rep, "a"); s != plan.Anomalous {
			t.Errorf("a is %s", s)
		}
	})
}

// A plan of a new guest says that it will be started, and what a container
// will be where the manifest does not say.
func TestCreateSaysWhatBecomes(t *testing.T) {
	story(t, func(l *lab) {
		tpl := spec("TemplateVM", "golden", 900, disk)
		rep := l.diff(tpl, vm("a", 100, "state: started", disk), vm("b", 101, disk), vm("c", 102, "clone: golden", "state: started"),
			ct("d", 103, "template: debian", "state: started"), ct("e", 104, "template: debian", "options: {unprivileged: false}"), debian, seedImage)
		for _, a := range rep.Plan.Actions {
			starts := slices.ContainsFunc(a.Changes, func(c field.Change) bool { return c.Path == "state" && c.New.String() == "started" })
			if want := slices.Contains([]string{"a", "c", "d"}, a.Ref.Name); starts != want {
				t.Errorf("%s %s: says that it is started: %v", a.Verb, a.Ref.Name, starts)
			}
			if says := strings.Contains(a.Why, "PVE makes it unprivileged"); says != (a.Ref.Name == "d") {
				t.Errorf("%s %s: %s", a.Verb, a.Ref.Name, a.Why)
			}
		}
		l.converge(tpl, vm("a", 100, "state: started", disk), vm("b", 101, disk), vm("c", 102, "clone: golden", "state: started"),
			ct("d", 103, "template: debian", "state: started"), ct("e", 104, "template: debian", "options: {unprivileged: false}"), debian, seedImage)
		for id, on := range map[int]bool{100: true, 101: false, 102: true, 103: true, 104: false} {
			if l.running(id) != on {
				t.Errorf("%d runs: %v", id, !on)
			}
		}
		l.wantConf(103, "unprivileged", "1")
	})
}

// A run that is stopped between shutdown and start brings the guest up again.
func TestStoppedRunBringsTheGuestUp(t *testing.T) {
	storyWith(t, pvesim.Options{Seed: 1, TimeScale: 1}, func(l *lab) {
		l.settings = "      reconcile: {restart-policy: immediate}\n"
		l.converge(waiting("1")...)
		l.write(waiting("2")...)
		ctx, cancel := context.WithCancelCause(l.Context())
		defer cancel(nil)
		opts := reconcile.Options{Cluster: "lab", Write: true, Load: l.load, Connect: l.connect}
		opts.Apply.Events = func(e apply.Event) {
			if e.Kind == apply.Started && e.Action.Verb == plan.Restart {
				time.AfterFunc(time.Second, func() { cancel(errors.New("ctrl-c")) })
			}
		}
		reconcile.Cycle(ctx, opts)
		l.drain()
		if !l.running(100) || !l.running(101) {
			t.Errorf("left down: 100 %v, 101 %v; %s", l.running(100), l.running(101), l.power())
		}
	})
}
