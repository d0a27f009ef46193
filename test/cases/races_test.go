package cases_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
)

// calls counts the requests of a method whose path ends so.
func (l *lab) calls(method, end string) int {
	n := 0
	for _, r := range l.w.Requests() {
		if r.Method == method && strings.HasSuffix(r.Path, end) {
			n++
		}
	}
	return n
}

// A lock that is not to be had is busy, never a failure.
func TestC1_ConfigLock(t *testing.T) {
	story(t, func(l *lab) {
		l.converge(vm("a", 100), ct("b", 101, "template: debian"), debian)
		l.w.SetFaults(pvesim.Fault{Kind: pvesim.FaultLockTimeout, P: 1, Count: 2})
		ms := []string{vm("a", 100, "pve-description: x"), ct("b", 101, "template: debian", "pve-description: x"), debian}
		rep := l.apply(ms...)
		if rep.Failed() {
			t.Errorf("a lock timeout fails the cycle:\n%s", text(rep))
		}
		l.w.SetFaults()
		l.converge(ms...)
	})
}

// At most two allocating tasks at a time on one storage; others go on.
func TestC2_StorageLock(t *testing.T) {
	storyWith(t, pvesim.Options{Seed: 1, TimeScale: 1}, func(l *lab) {
		ms := []string{spec("TemplateVM", "golden", 900, "disks: [{storage: local-lvm, size: 4GiB}]")}
		l.converge(ms...)
		for i := range 12 {
			ms = append(ms, vm(fmt.Sprintf("c%d", i), 200+i, "clone: golden"))
		}
		l.converge(ms...)
		l.w.View(func(s *pvesim.State) {
			for _, a := range s.Tasks {
				n := 0
				for _, b := range s.Tasks {
					if a.Type == "qmclone" && b.Type == "qmclone" && !b.Start.After(a.Start) && b.End.After(a.Start) {
						n++
					}
				}
				if n > 2 {
					t.Errorf("%d clones at a time on one storage", n)
				}
			}
		})
	})
}

// A write whose answer is lost is looked for, never repeated.
func TestC3_LostAnswer(t *testing.T) {
	for _, fault := range []pvesim.Fault{{Kind: pvesim.FaultLost}, {Kind: pvesim.FaultTruncate}, {Kind: pvesim.FaultError, Status: 596}, {Kind: pvesim.FaultError, Status: 599}} {
		for _, what := range []string{"create", "clone", "config"} {
			story(t, func(l *lab) {
				tpl := spec("TemplateVM", "golden", 900, "disks: [{storage: local-lvm, size: 1GiB}]")
				ms := []string{tpl, vm("a", 100)}
				l.converge(ms...)
				f := fault
				f.P, f.Count = 1, 1
				switch what {
				case "create":
					ms = append(ms, vm("b", 101, "disks: [{storage: local-lvm, size: 1GiB}]"))
					f.Method, f.Path = "POST", "/nodes/*/qemu"
				case "clone":
					ms = append(ms, vm("b", 101, "clone: golden"))
					f.Method, f.Path = "POST", "/nodes/*/qemu/900/clone"
				default:
					ms[1] = vm("a", 100, "memory: 1GiB")
					f.Path = "/nodes/*/qemu/100/config"
				}
				l.w.ForgetRequests()
				l.w.SetFaults(f)
				l.fails = true
				l.apply(ms...)
				writes := l.calls("POST", "/qemu") + l.calls("POST", "/clone")
				if writes > 1 {
					t.Errorf("%s %s: the write was sent %d times", fault.Kind, what, writes)
				}
				l.w.SetFaults()
				l.fails = false
				l.drain()
				l.converge(ms...)
			})
		}
	}
}

// WARNINGS is done, with the text shown; nothing is made twice.
func TestC5_Warnings(t *testing.T) {
	story(t, func(l *lab) {
		ms := []string{vm("a", 100, "disks: [{storage: local-lvm, size: 1GiB}]", "state: started"), ct("b", 101, "template: debian"), debian}
		l.w.SetFaults(pvesim.Fault{Kind: pvesim.FaultTaskWarn, P: 1, Path: "/nodes/*/tasks/*", Count: 2})
		rep := l.apply(ms...)
		if !strings.Contains(outcomes(rep), "warnings") {
			t.Errorf("outcomes: %s", outcomes(rep))
		}
		l.settled(ms...)
	})
}

func TestC6_ProxyErrors(t *testing.T) {
	for _, status := range []int{595, 596, 599} {
		story(t, func(l *lab) {
			m := vm("a", 100, "pve-description: x")
			l.converge(vm("a", 100))
			l.fails = true
			l.w.SetFaults(pvesim.Fault{Kind: pvesim.FaultError, Status: status, P: 1, Path: "/nodes/*/qemu/100/config"})
			rep := l.apply(m)
			if got := outcomes(rep); got == "done" || rep.Converged() {
				t.Errorf("%d: %s", status, got)
			}
			l.fails = false
			if status != 595 { // 595 is a node that is down, the others pass: reads are tried again
				l.w.SetFaults(pvesim.Fault{Kind: pvesim.FaultError, Status: status, P: 1, Count: 2, Method: "GET"})
				l.apply(m)
			}
			l.w.SetFaults()
			l.converge(m)
		})
	}
}

// Nothing half made is ever deleted, and our own is found by its id again.
func TestC7_NotForgotten(t *testing.T) {
	story(t, func(l *lab) {
		tpl := spec("TemplateVM", "golden", 900, "disks: [{storage: local-lvm, size: 1GiB}]", "cloud-init-data: {ci-user: builder}")
		m := vm("a", 100, "clone: golden", "memory: 1GiB")
		l.converge(tpl)
		l.fails = true
		l.w.SetFaults(pvesim.Fault{Kind: pvesim.FaultReset, P: 1, Path: "/nodes/*/qemu/100/config"}) // after the clone, before the write
		l.apply(tpl, m)
		l.w.SetFaults()
		l.fails = false
		rep := l.converge(tpl, m)
		if strings.Contains(verbs(rep), "Clone") || l.calls("DELETE", "/100") > 0 || l.conf(100)["ciuser"] != "" {
			t.Errorf("planned %s; ciuser %q", verbs(rep), l.conf(100)["ciuser"])
		}
	})
}

// The listing lags: what it says of a guest is confirmed before acting on it.
func TestC8_LateListing(t *testing.T) {
	storyWith(t, pvesim.Options{Seed: 1, StatLag: 10 * time.Second}, func(l *lab) {
		tpl := spec("TemplateVM", "golden", 900, "disks: [{storage: local-lvm, size: 1GiB}]")
		ms := []string{tpl, vm("a", 100, "clone: golden", "state: started"), vm("b", 101, "state: started", "disks: [{storage: local-lvm, size: 1GiB}]")}
		l.converge(ms...)
		l.put(101, "name", "renamed")
		l.wantVerbs(l.converge(ms...), "Update 101")
		l.api("POST", l.path(101)+"/status/stop")
		l.wantVerbs(l.converge(ms...), "Start 101")
	})
}

// A task on the vmid defers the object: nothing is begun beside it.
func TestC10_InFlight(t *testing.T) {
	storyWith(t, pvesim.Options{Seed: 1, TimeScale: 1}, func(l *lab) {
		tpl := spec("TemplateVM", "golden", 900, "disks: [{storage: local-lvm, size: 4GiB}]")
		m := vm("a", 100, "clone: golden")
		l.converge(tpl)
		go func() {
			l.try(rootToken, "POST", "/nodes/pve01/qemu/900/clone", "newid", "100", "full", "1", "name", "a")
		}()
		time.Sleep(50 * time.Millisecond)
		rep := l.apply(tpl, m)
		if l.stateOf(rep, "a") != plan.Skipped || rep.Writes != 0 {
			t.Errorf("%s, %d writes:\n%s", l.stateOf(rep, "a"), rep.Writes, text(rep))
		}
		l.drain()
		time.Sleep(time.Minute)
	})
}

// No plan asks, or waits for, the guest agent.
func TestC11_AgentNeverWaitedFor(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "state: started", "options: {agent: true}", "disks: [{storage: local-lvm, size: 1GiB}]")
		began := time.Now()
		l.converge(m)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("it took %s", took)
		}
		for _, r := range l.w.Requests() {
			if strings.Contains(r.Path, "/agent") {
				t.Errorf("%s %s", r.Method, r.Path)
			}
		}
	})
}

// A failure is forgotten by the next cycle, which looks again.
func TestC12_NothingLatched(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "state: started", "disks: [{storage: local-lvm, size: 1GiB}]")
		l.fails = true
		l.w.SetFaults(pvesim.Fault{Kind: pvesim.FaultTaskFail, P: 1, Path: "/nodes/*/tasks/qmstart"})
		if rep := l.apply(m); l.stateOf(rep, "a") != plan.Failed {
			t.Errorf("%s", l.stateOf(rep, "a"))
		}
		l.fails = false
		l.w.SetFaults()
		l.wantVerbs(l.converge(m), "Start 100")
	})
}

// A locked guest is deferred with the reason; the others go on.
func TestC13_BackupLock(t *testing.T) {
	for _, lock := range []string{"backup", "snapshot", "migrate", "clone", "suspended"} {
		story(t, func(l *lab) {
			l.converge(vm("a", 100), vm("b", 101))
			l.edit(100, func(g *guest) { g.Config["lock"] = lock })
			rep := l.apply(vm("a", 100, "pve-description: x"), vm("b", 101, "pve-description: x"))
			l.wantVerbs(rep, "Update 101")
			l.says(rep, "locked ("+lock+")")
			if l.stateOf(rep, "a") != plan.Skipped || rep.Failed() {
				t.Errorf("%s", l.stateOf(rep, "a"))
			}
		})
	}
}

// One listing a cycle and one read a guest, however many there are.
func TestC14_ManyGuests(t *testing.T) {
	story(t, func(l *lab) {
		var ms []string
		const n = 200
		l.w.View(func(s *pvesim.State) {
			for i := range n {
				id := 1000 + i
				s.Guests[id] = &pvesim.Guest{VMID: id, Kind: "qemu", Node: "pve01", Config: pvesim.Section{"name": fmt.Sprintf("g%d", i), "memory": "512", "cpu": "host", "tags": "proxops"}}
				ms = append(ms, vm(fmt.Sprintf("g%d", i), id))
			}
		})
		rep := l.diff(ms...)
		l.wantVerbs(rep, "")
		if rep.Reads > n+12 {
			t.Errorf("%d reads for %d guests", rep.Reads, n)
		}
	})
}

// An id that somebody took in between is not updated.
func TestC15_IDRace(t *testing.T) {
	story(t, func(l *lab) {
		l.write(vm("mine", 108, "memory: 2GiB"))
		rep := l.cycleBetween(func() { l.make("qemu", 108, "name", "theirs", "memory", "1024") })
		if l.conf(108)["memory"] != "1024" || l.conf(108)["tags"] != "" || !rep.Failed() && rep.Converged() {
			t.Errorf("the stranger is %s", print(l.conf(108)))
		}
		rep = l.apply(vm("mine", 108, "memory: 2GiB"))
		if rep.Writes != 0 {
			t.Errorf("%d writes to a stranger", rep.Writes)
		}
		if e := l.loadError(vm("a", 100), vm("b", 100)); !strings.Contains(e, "100") {
			t.Errorf("one vmid twice: %q", e)
		}
	})
}
