package apply

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/wire"
)

func action(verb plan.Verb, vmid int, step plan.Step) plan.Action {
	return plan.Action{Verb: verb, Ref: kind.Ref{Kind: "VM", Name: "web" + strconv.Itoa(vmid)}, Node: "pve01", VMID: vmid, ID: strconv.Itoa(vmid), Do: step}
}

func memory(text, digest string) plan.UpdateStep {
	return plan.UpdateStep{Guest: "qemu", Params: wire.Params{{Key: "memory", Value: wire.Plain(text)}}, Digest: digest}
}

func ours(id string) *machine {
	return &machine{config: map[string]string{"name": "web" + id, "tags": "proxops", "memory": "1024", "vmgenid": "gen-" + id, "smbios1": "uuid=u-" + id,
		"scsi0": "local-lvm:vm-" + id + "-disk-0,size=1G"}}
}

func deleteStep(id string) plan.DeleteStep {
	return plan.DeleteStep{Guest: "qemu", Name: "web" + id, Identity: "vmgenid gen-" + id + ", uuid u-" + id, Digest: "d0",
		Volumes: []string{"local-lvm:vm-" + id + "-disk-0"}}
}

// outcomes is the result in one line, for comparing.
func outcomes(r Result) string {
	var out []string
	for _, a := range r.Actions {
		out = append(out, string(a.Action.Verb)+" "+string(a.Outcome))
	}
	return strings.Join(out, ", ")
}

func TestRun(t *testing.T) {
	iso := plan.Action{Verb: plan.Download, Ref: kind.Ref{Kind: "ISO", Name: "deb"}, Node: "pve01", ID: "local:iso/deb.iso", Do: plan.DownloadStep{Storage: "local", Filename: "deb.iso", Nodes: []string{"pve01"}}}
	needs := func(a plan.Action) plan.Action {
		a.Level, a.Needs = 1, []kind.Ref{iso.Ref}
		return a
	}
	create := func(id int) plan.Action { return action(plan.Create, id, plan.CreateStep{Guest: "qemu", Start: true}) }
	disruptive := func(a plan.Action) plan.Action { a.Disrupts = true; return a }
	restart := func(id int) plan.Action {
		return disruptive(action(plan.Restart, id, plan.PowerStep{Guest: "qemu", Start: true, Stop: true}))
	}
	rootOnly := action(plan.Update, 100, memory("4096", "d0"))
	rootOnly.RootOnly, rootOnly.Refused = true, "hardware.pci-devices[0].device: root@pam only"
	tests := []struct {
		name    string
		s       *scripted
		guest   *machine // 100
		actions []plan.Action
		want    string
		err     string         // in the first error
		sent    map[string]int // how often a write must have been sent
	}{
		{name: "update", guest: ours("100"), actions: []plan.Action{action(plan.Update, 100, memory("2048", "d0"))}, want: "Update done", sent: map[string]int{put: 1}},
		{name: "somebody wrote since the plan", guest: ours("100"), actions: []plan.Action{action(plan.Update, 100, memory("2048", "stale"))},
			want: "Update deferred", err: "checksum mismatch"},
		{name: "two writes of ours follow each other", guest: ours("100"),
			actions: []plan.Action{action(plan.Update, 100, memory("2048", "d0")), action(plan.Update, 100, memory("4096", "d0"))}, want: "Update done, Update done"},
		{name: "an older pending change's error over a write that was done", guest: &machine{config: map[string]string{"memory": "2048"}},
			s:       &scripted{answer: map[string]func() reply{put: func() reply { return reply{400, "hotplug problem - scsi3", nil} }}},
			actions: []plan.Action{action(plan.Update, 100, memory("2048", "d0"))}, want: "Update warnings"},
		{name: "a refused write", guest: ours("100"),
			s:       &scripted{answer: map[string]func() reply{put: func() reply { return reply{403, "Permission check failed (/vms/100, VM.Config.Memory)", nil} }}},
			actions: []plan.Action{action(plan.Update, 100, memory("2048", "d0")), action(plan.Start, 100, plan.PowerStep{Guest: "qemu", Start: true})},
			want:    "Update failed, Start deferred", err: "VM.Config.Memory"},
		{name: "root only is not sent", guest: ours("100"), actions: []plan.Action{rootOnly, action(plan.Start, 100, plan.PowerStep{Guest: "qemu", Start: true})},
			want: "Update failed, Start done", err: "root@pam only", sent: map[string]int{put: 0}},
		{name: "failed prerequisite", s: &scripted{exits: map[string]string{"download": "download failed: exit code 8"}}, actions: []plan.Action{iso, needs(create(101))},
			want: "Download failed, Create deferred", sent: map[string]int{"POST /nodes/pve01/qemu": 0}},
		{name: "prerequisite of another node", s: &scripted{exits: map[string]string{"download": "download failed: exit code 8"}},
			actions: []plan.Action{iso, func() plan.Action { a := needs(create(101)); a.Node = "pve02"; return a }()}, want: "Download failed, Create done"},
		{name: "warnings", s: &scripted{exits: map[string]string{"qmcreate": "WARNINGS: 1"}}, actions: []plan.Action{create(101)}, want: "Create warnings"},
		{name: "the id is taken", s: &scripted{answer: map[string]func() reply{"POST /nodes/pve01/qemu": func() reply {
			return reply{500, "unable to create VM 101 - VM 101 already exists on node 'pve01'", nil}
		}}}, actions: []plan.Action{create(101)}, want: "Create failed", sent: map[string]int{"POST /nodes/pve01/qemu/101/status/start": 0}},
		{name: "an unknown outcome is not repeated", s: &scripted{answer: map[string]func() reply{"POST /nodes/pve01/qemu": func() reply { return reply{596, "Connection timed out", nil} }}},
			actions: []plan.Action{create(101)}, want: "Create unknown", sent: map[string]int{"POST /nodes/pve01/qemu": 1, "POST /nodes/pve01/qemu/101/status/start": 0}},
		{name: "delete", guest: ours("100"), actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}, want: "Delete done", sent: map[string]int{del: 1}},
		{name: "delete of a guest with the reused vmid", guest: ours("777"), actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))},
			want: "Delete deferred", err: "belongs to another guest", sent: map[string]int{del: 0}},
		{name: "delete of a guest that lost its tag", guest: func() *machine { m := ours("100"); m.config["tags"] = "mine"; return m }(),
			actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}, want: "Delete deferred", err: "lost the tag", sent: map[string]int{del: 0}},
		{name: "delete of a protected guest", guest: func() *machine { m := ours("100"); m.config["protection"] = "1"; return m }(),
			actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}, want: "Delete deferred", err: "protection", sent: map[string]int{del: 0}},
		{name: "delete of a running guest", guest: func() *machine { m := ours("100"); m.running = true; return m }(),
			actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}, want: "Delete done", sent: map[string]int{"POST /nodes/pve01/qemu/100/status/shutdown": 1, del: 1}},
		{name: "delete of a guest that does not shut down", guest: func() *machine { m := ours("100"); m.running = true; return m }(),
			s: &scripted{exits: map[string]string{"qmshutdown": "VM quit/powerdown failed - got timeout"}}, actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))},
			want: "Delete deferred", err: "never killed", sent: map[string]int{del: 0, "POST /nodes/pve01/qemu/100/status/stop": 0}},
		{name: "after a failed restart no other guest is taken down", guest: func() *machine { m := ours("100"); m.running = true; return m }(),
			s: &scripted{exits: map[string]string{"qmstart": "no space left on device"}}, actions: []plan.Action{restart(100), restart(102)}, want: "Restart failed, Restart deferred"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tt.s
				if s == nil {
					s = &scripted{}
				}
				s.guests = map[string]*machine{"102": {config: map[string]string{}, running: true}}
				if tt.guest != nil {
					s.guests["100"] = tt.guest
				}
				r := Run(t.Context(), s.client(t), plan.Plan{Actions: tt.actions}, Options{Parallel: 1})
				if got := outcomes(r); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
					for _, a := range r.Actions {
						t.Log(a.Action.Verb, a.Err)
					}
				}
				if tt.err != "" && !strings.Contains(fmt.Sprint(r.Actions[0].Err), tt.err) {
					t.Errorf("error %v, want %q in it", r.Actions[0].Err, tt.err)
				}
				for call, n := range tt.sent {
					if got := s.wrote(call); got != n {
						t.Errorf("%s was sent %d times, want %d", call, got, n)
					}
				}
			})
		})
	}
}

// Of one storage no more than two tasks allocate at a time; PVE's lock of it
// waits ten seconds only.
func TestAllocatingTasks(t *testing.T) {
	for _, tt := range []struct {
		node   string
		shared bool
		peak   int
	}{{"pve01", false, 2}, {"", false, 4}, {"", true, 2}} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{}, work: map[string]time.Duration{"qmcreate": time.Minute}}
			var p plan.Plan
			for i := range 8 {
				a := action(plan.Create, 100+i, plan.CreateStep{Guest: "qemu", Storages: []string{"data"}})
				if tt.node == "" && i%2 == 1 {
					a.Node = "pve02"
				}
				p.Actions = append(p.Actions, a)
			}
			r := Run(t.Context(), s.client(t), p, Options{Parallel: 8, Shared: func(string) bool { return tt.shared }})
			if !strings.HasPrefix(outcomes(r), "Create done") || s.peak["qmcreate"] != tt.peak {
				t.Errorf("shared %v: %d creates at a time, want %d: %s", tt.shared, s.peak["qmcreate"], tt.peak, outcomes(r))
			}
		})
	}
}

// An interrupt starts nothing new, leaves the running task to PVE, and the
// result tells which is which.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{guests: map[string]*machine{}, work: map[string]time.Duration{"qmcreate": time.Hour}}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		p := plan.Plan{Actions: []plan.Action{action(plan.Create, 100, plan.CreateStep{Guest: "qemu"}), action(plan.Create, 101, plan.CreateStep{Guest: "qemu"})}}
		var told []string
		r := Run(ctx, s.client(t), p, Options{Parallel: 1, Events: func(e Event) {
			if e.Kind != Progress {
				told = append(told, fmt.Sprint(e.Kind, " ", e.Index))
			}
		}})
		if got := outcomes(r); got != "Create unknown, Create deferred" || !r.Interrupted {
			t.Errorf("%s, interrupted %v: %v", got, r.Interrupted, r.Actions[0].Err)
		}
		if r.Actions[0].UPID == "" || len(s.sent) != 1 {
			t.Errorf("the task left behind is not named, or more was sent: %q %v", r.Actions[0].UPID, s.sent)
		}
		if got := strings.Join(told, ", "); got != "started 0, ended 0" {
			t.Errorf("events: %s", got)
		}
	})
}

// A stop that comes while the last actions run, and lets them end, interrupts
// nothing.
func TestStopWithNothingLeft(t *testing.T) {
	for started, want := range map[int]bool{1: true, 2: false} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{}, work: map[string]time.Duration{"qmcreate": 5 * time.Minute}}
			stop := make(chan struct{})
			time.AfterFunc(time.Minute, func() { close(stop) })
			p := plan.Plan{Actions: []plan.Action{action(plan.Create, 100, plan.CreateStep{Guest: "qemu"}), action(plan.Create, 101, plan.CreateStep{Guest: "qemu"})}}
			r := Run(t.Context(), s.client(t), p, Options{Parallel: started, Stop: stop})
			if left, cut := r.Left(); r.Interrupted != want || left != 2-started || cut != 0 {
				t.Errorf("%d of 2 started: interrupted %v, %d not started, %d cut off: %s", started, r.Interrupted, left, cut, outcomes(r))
			}
		})
	}
}

// A guest that does not go down is waited for with a word, left, and comes with
// what to do; an interrupt meanwhile is not called a timeout.
func TestDeleteTellsOfItsWait(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{"100": up(ours("100"))}, exits: map[string]string{"qmshutdown": "VM quit/powerdown failed - got timeout"},
				work: map[string]time.Duration{"qmshutdown": DefaultShutdown}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if interrupted {
				time.AfterFunc(time.Minute, cancel)
			}
			begun, notes := time.Now(), []string{}
			r := Run(ctx, s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}}, Options{Events: func(e Event) {
				if e.Note != "" {
					notes = append(notes, fmt.Sprint(time.Since(begun), " ", e.Note))
				}
			}})
			if got := strings.Join(notes, "; "); got != "0s shutting down, up to 3m0s" {
				t.Errorf("told %q", got)
			}
			a := r.Actions[0]
			timedOut := strings.Contains(fmt.Sprint(a.Err), "does not shut down within 3m0s")
			if a.Outcome != Deferred || timedOut == interrupted || strings.Contains(a.Todo, "qm stop 100") == interrupted || r.Interrupted != interrupted {
				t.Errorf("interrupted %v: %s: %v → %q", interrupted, a.Outcome, a.Err, a.Todo)
			}
		})
	}
}

// What a restart of the run itself has put into place waits no longer; where
// the restart did not succeed it does.
func TestOwnRestartEndsTheWait(t *testing.T) {
	for exit, want := range map[string]int{"": 0, "VM quit/powerdown failed": 1} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{"100": up(ours("100"))}, exits: map[string]string{"qmshutdown": exit}}
			s.answer = map[string]func() reply{"GET /nodes/pve01/qemu/100/pending": func() reply {
				return reply{200, "OK", []map[string]any{{"key": "digest", "value": "d1"}, {"key": "memory", "value": "1024", "pending": "2048"}}}
			}}
			r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Update, 100, memory("2048", "d0")),
				taking(plan.Restart, 100, plan.PowerStep{Stop: true, Start: true})}}, Options{})
			if len(r.Actions[0].Waiting) != want {
				t.Errorf("shutdown %q: %s, waits %v", exit, outcomes(r), r.Actions[0].Waiting)
			}
		})
	}
}
