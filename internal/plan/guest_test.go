package plan

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/live"
)

func TestConverged(t *testing.T) {
	c := cluster(t, manifest("VM", "web", webSpec), manifest("LXC", "dns", ctSpec))
	p := Make(c, snapshot(guest(100, "pve01", "qemu", webConfig), guest(200, "pve01", "lxc", ctConfig)), Policy{})
	if got := lines(p); got != "" {
		t.Errorf("a converged cluster has a plan:\n%s", got)
	}
}

// Marking a template cannot be undone, so a name alone is no reason for it.
func TestClaimNeverMakesATemplateByName(t *testing.T) {
	stranger := func() *live.Guest {
		return guest(900, "pve01", "qemu", strings.NewReplacer("template: 1\n", "", "proxops;golden", "golden").Replace(goldenConfig))
	}
	p := Make(cluster(t, manifest("TemplateVM", "golden", goldenSpec)), snapshot(stranger()), Policy{})
	want(t, p, "which PVE cannot undo")
	wantNoWrites(t, p)
	p = Make(cluster(t, manifest("TemplateVM", "golden", goldenSpec, `proxops/claim: "true"`)), snapshot(stranger()), Policy{})
	want(t, p, "MarkTemplate TemplateVM:golden")
}

// A guest that runs is in use: it is not stopped to become a template for good,
// whatever its tag and name.
func TestRunningGuestIsMadeNoTemplate(t *testing.T) {
	ours := guest(900, "pve01", "qemu", strings.Replace(goldenConfig, "template: 1\n", "", 1))
	c := cluster(t, manifest("TemplateVM", "golden", goldenSpec, `proxops/claim: "true"`))
	p := Make(c, snapshot(running(ours)), Policy{})
	want(t, p, "no way back from a template")
	wantNoWrites(t, p)
	ours.Running = false
	want(t, Make(c, snapshot(ours), Policy{}), "MarkTemplate TemplateVM:golden")
}

// Each case is the VM of webSpec with some lines of its spec, annotations or
// live config changed.
func TestGuest(t *testing.T) {
	set := func(config, key, value string) string {
		var out []string
		for _, l := range strings.Split(strings.TrimSpace(config), "\n") {
			if !strings.HasPrefix(l, key+": ") {
				out = append(out, l)
			}
		}
		if value != "" {
			out = append(out, key+": "+value)
		}
		return strings.Join(out, "\n")
	}
	type guestOf func() *live.Guest
	vm := func(config string) guestOf { return func() *live.Guest { return guest(100, "pve01", "qemu", config) } }
	on := func(g guestOf) guestOf { return func() *live.Guest { return running(g()) } }
	tests := []struct {
		name    string
		spec    string
		notes   []string // annotations
		live    guestOf
		policy  Policy
		want    []string
		nothing bool // writes nothing
	}{
		{name: "drift", spec: webSpec, live: vm(set(webConfig, "memory", "1024")),
			want: []string{"Update VM:web pve01 memory\n", "VM:web is drift"}},
		{name: "claim by name adds the tag", spec: webSpec, live: vm(set(webConfig, "tags", "")),
			want: []string{"Update VM:web pve01 tags\n"}},
		{name: "claim by annotation", spec: webSpec, notes: []string{`proxops/claim: "true"`}, live: vm(set(set(webConfig, "tags", "pveconform"), "name", "old")),
			want: []string{"Update VM:web pve01 pve-name tags\n"}},
		{name: "stranger", spec: webSpec, live: vm(set(set(webConfig, "tags", "pveconform"), "name", "mail")),
			want: []string{`it is somebody else's, nothing is written`, "VM:web is anomalous"}, nothing: true},
		{name: "capital tag is ours", spec: webSpec, live: vm(set(set(webConfig, "tags", "ProxOps"), "memory", "1024")),
			want: []string{"Update VM:web pve01"}},
		{name: "container with the vmid", spec: webSpec, live: func() *live.Guest { return guest(100, "pve01", "lxc", ctConfig) },
			want: []string{"vmid 100 is a container on pve01, the manifest is a VM"}, nothing: true},
		{name: "template with the vmid", spec: webSpec, live: vm(set(webConfig, "template", "1")),
			want: []string{"PVE has no way back from a template"}, nothing: true},
		{name: "locked", spec: webSpec, live: func() *live.Guest {
			g := vm(set(webConfig, "memory", "1024"))()
			g.Busy = "locked (backup)"
			return g
		}, want: []string{"VM:web is skipped: locked (backup)"}, nothing: true},
		{name: "unread", spec: webSpec, live: func() *live.Guest {
			g := vm(set(webConfig, "memory", "1024"))()
			g.Unknown, g.Read = "its config could not be read", false
			return g
		}, want: []string{"VM:web is unknown: its config"}, nothing: true},
		{name: "on a node that is not allowed", spec: webSpec, live: func() *live.Guest { return guest(100, "pve03", "qemu", webConfig) },
			want: []string{"not on the cluster's allow-list"}, nothing: true},
		{name: "misplaced is reported and compared", spec: webSpec, live: func() *live.Guest {
			return guest(100, "pve02", "qemu", set(webConfig, "memory", "1024"))
		}, want: []string{"it lives on pve02, the manifest says pve01", "1 fields differ too: memory"}, nothing: true},
		{name: "misplaced and followed", spec: webSpec, notes: []string{"proxops/placement: follow"}, live: func() *live.Guest {
			return guest(100, "pve02", "qemu", set(webConfig, "memory", "1024"))
		}, want: []string{"Update VM:web pve02 memory"}},
		{name: "misplaced and moved back", spec: webSpec, notes: []string{"proxops/placement: migrate"}, live: func() *live.Guest {
			return running(guest(100, "pve02", "qemu", set(webConfig, "memory", "1024")))
		}, want: []string{"Migrate VM:web pve02 [live]\n"}},
		{name: "cannot be moved back", spec: webSpec, notes: []string{"proxops/placement: migrate"}, live: func() *live.Guest {
			return guest(100, "pve02", "qemu", set(webConfig, "hostpci0", "0000:01:00.0"))
		}, want: []string{"hostpci0 (0000:01:00.0) is a device or path of node pve02"}, nothing: true},
		{name: "restart never", spec: strings.Replace(webSpec, "state: stopped", "state: started", 1), live: on(vm(set(webConfig, "cores", "1"))),
			want: []string{"Update VM:web pve01 [pending until restart] cpu.cores\n"}},
		{name: "waiting", spec: strings.Replace(webSpec, "state: stopped", "state: started", 1), live: on(vm(set(webConfig, "cores", "1 => 2"))),
			want: []string{"VM:web is waiting-restart: waits for a restart: cpu.cores"}, nothing: true},
		{name: "restart immediate", spec: strings.Replace(webSpec, "state: stopped", "state: started", 1), live: on(vm(set(webConfig, "cores", "1 => 2"))),
			policy: Policy{Restart: "immediate"}, want: []string{"Restart VM:web pve01 [stop+start]"}},
		{name: "restart window closed", spec: strings.Replace(webSpec, "state: stopped", "state: started", 1), live: on(vm(set(webConfig, "cores", "1 => 2"))),
			policy: Policy{Restart: "window"}, nothing: true},
		{name: "restart window open", spec: strings.Replace(webSpec, "state: stopped", "state: started", 1), live: on(vm(set(webConfig, "cores", "1 => 2"))),
			policy: Policy{Restart: "window", WindowOpen: true}, want: []string{"Restart VM:web"}},
		{name: "annotation goes before the cluster's policy", spec: strings.Replace(webSpec, "state: stopped", "state: started", 1), notes: []string{"proxops/restart: never"},
			live: on(vm(set(webConfig, "cores", "1 => 2"))), policy: Policy{Restart: "immediate"}, nothing: true},
		{name: "somebody else's pending change is no reason to restart", spec: strings.Replace(webSpec, "state: stopped", "state: started", 1),
			live: on(vm(set(webConfig, "balloon", " => 512"))), policy: Policy{Restart: "immediate"},
			want: []string{"balloon has a change that waits for a restart and that the manifest does not own"}, nothing: true},
		{name: "a stopped guest is not started to apply", spec: webSpec, live: vm(set(webConfig, "cores", "1")), policy: Policy{Restart: "immediate"},
			want: []string{"Update VM:web pve01 cpu.cores\nVM:web is drift"}},
		{name: "start comes last", spec: strings.Replace(webSpec, "state: stopped", "state: started", 1), live: vm(set(webConfig, "cores", "1")),
			want: []string{"Update VM:web pve01 cpu.cores\nStart VM:web"}},
		{name: "stop", spec: webSpec, live: on(vm(webConfig)), want: []string{"Stop VM:web pve01 [stop+start]\n"}},
		{name: "a foreign pending change on a key of ours is reverted", spec: strings.Replace(webSpec, "state: stopped", "state: started", 1),
			live: on(vm(set(webConfig, "cores", "2 => 8"))), want: []string{"Update VM:web pve01 [live] cpu.cores"}},
		{name: "pool drift is never written", spec: webSpec, live: vm(set(webConfig, "scsi0", "other:vm-100-disk-0,size=10G")),
			want: []string{"anomaly VM:web disks[0].storage"}, nothing: true},
		{name: "growing without grow", spec: webSpec, live: vm(set(webConfig, "scsi0", "local-lvm:vm-100-disk-0,size=5G")), want: []string{"anomaly VM:web disks[0].size"}, nothing: true},
		{name: "growing", spec: strings.Replace(webSpec, "size: 10GiB", "size: 10GiB, grow: true", 1), live: vm(set(webConfig, "scsi0", "local-lvm:vm-100-disk-0,size=5G")),
			want: []string{"Resize VM:web pve01 disks[0].size\n"}},
		{name: "an undeclared disk stays", spec: webSpec, live: vm(webConfig + "scsi1: local-lvm:vm-100-disk-1,size=1G"), want: []string{"anomaly VM:web disks: scsi1"}, nothing: true},
		{name: "another name", spec: webSpec, live: vm(set(webConfig, "name", "shop")), want: []string{"Update VM:web pve01 pve-name"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := Make(cluster(t, manifest("VM", "web", tt.spec, tt.notes...)), snapshot(tt.live()), tt.policy)
			want(t, p, tt.want...)
			if tt.nothing {
				wantNoWrites(t, p)
			} else if len(p.Actions) == 0 {
				t.Errorf("the plan must write:\n%s", lines(p))
			}
		})
	}
}

// What is waited for is told although the guest has an anomaly, too.
func TestWaitingWithAnAnomaly(t *testing.T) {
	config := strings.Replace(strings.Replace(webConfig, "cores: 2", "cores: 1 => 2", 1), "size=10G", "size=12G", 1)
	p := Make(cluster(t, manifest("VM", "web", strings.Replace(webSpec, "stopped", "started", 1))), snapshot(running(guest(100, "pve01", "qemu", config))), Policy{})
	if len(p.Anomalies) == 0 || p.Objects[0].State != WaitingRestart {
		t.Errorf("%d anomalies, state %s", len(p.Anomalies), p.Objects[0].State)
	}
}

// A further edit of what waits for a restart names what runs, what waited and
// what is wanted; what else waits stays in the plan, with what to do.
func TestAFurtherEditOfWhatWaits(t *testing.T) {
	config := strings.NewReplacer("cores: 2", "cores: 1 => 3", "memory: 2048", "memory: 1024 => 2048").Replace(webConfig)
	for policy, todo := range map[string]string{
		"never":     "restart it with `qm reboot 100`, or set the annotation proxops/restart to immediate or window",
		"window":    "it is restarted in the window (Sun 02:00-04:00)",
		"immediate": "",
	} {
		p := Make(cluster(t, manifest("VM", "web", strings.Replace(webSpec, "stopped", "started", 1))), snapshot(running(guest(100, "pve01", "qemu", config))),
			Policy{Restart: policy, Window: "Sun 02:00-04:00"})
		if c := p.Actions[0].Changes; len(c) != 1 || c[0].Running == nil || c[0].Running.String()+c[0].Old.String()+c[0].New.String() != "132" {
			t.Errorf("%s: changes %+v", policy, c)
		}
		o := p.Objects[0]
		if len(o.Waiting) != 1 || o.Waiting[0].Path != "memory" || o.Waiting[0].Running != nil || o.Todo != todo {
			t.Errorf("%s: waits %+v → %q", policy, o.Waiting, o.Todo)
		}
	}
	// What is taken back to what runs, and what a stopped guest holds, has no third value.
	for spec, g := range map[string]*live.Guest{
		strings.Replace(webSpec, "stopped", "started", 1): running(guest(100, "pve01", "qemu", strings.Replace(webConfig, "cores: 2", "cores: 2 => 3", 1))),
		webSpec: guest(100, "pve01", "qemu", strings.Replace(webConfig, "cores: 2", "cores: 1 => 3", 1)),
	} {
		if c := Make(cluster(t, manifest("VM", "web", spec)), snapshot(g), Policy{}).Actions[0].Changes; len(c) != 1 || c[0].Running != nil {
			t.Errorf("%s: %+v", spec, c)
		}
	}
}

// A claim says once that it adds the tag, and what else it changes.
func TestClaimReason(t *testing.T) {
	for memory, want := range map[string]string{
		"2048": "claims the guest: adds the tag proxops",
		"1024": "claims the guest: adds the tag proxops; drift: memory",
	} {
		config := strings.NewReplacer("tags: proxops", "tags: old", "memory: 2048", "memory: "+memory).Replace(webConfig)
		p := Make(cluster(t, manifest("VM", "web", webSpec)), snapshot(guest(100, "pve01", "qemu", config)), Policy{})
		if len(p.Actions) != 1 || p.Actions[0].Why != want {
			t.Errorf("%+v, want %q", p.Actions, want)
		}
	}
}

// A refusal names the field that only root may write, not its neighbour in
// the same key.
func TestRootOnlyFieldIsNamed(t *testing.T) {
	spec := ctSpec + "options: {nesting: true, keyctl: true}\n"
	p := Make(cluster(t, manifest("LXC", "dns", spec)), snapshot(guest(200, "pve01", "lxc", ctConfig+"unprivileged: 1\n")), Policy{})
	for _, a := range p.Actions {
		if a.RootOnly {
			if !strings.HasPrefix(a.Refused, "options.keyctl: ") {
				t.Errorf("refused: %s", a.Refused)
			}
			return
		}
	}
	t.Errorf("nothing is refused: %+v", p.Actions)
}

// A running guest that goes is shut down, not stopped and started.
func TestPowerOfDeletes(t *testing.T) {
	for on, want := range map[bool]string{true: "shutdown", false: "none"} {
		if got := (Action{Verb: Delete, Do: DeleteStep{Running: on}}).PowerText(); got != want {
			t.Errorf("running %t: %s", on, got)
		}
	}
}

// A stopped guest has nothing to wait for: what PVE holds is in force at its
// next start. A change of somebody else's is told all the same.
func TestStoppedGuestWaitsForNothing(t *testing.T) {
	held := strings.Replace(webConfig, "cores: 2", "cores: 1 => 2", 1)
	p := Make(cluster(t, manifest("VM", "web", webSpec)), snapshot(guest(100, "pve01", "qemu", held)), Policy{})
	if len(p.Actions)+len(p.Anomalies) > 0 || p.Objects[0].State != Converged {
		t.Errorf("state %s:\n%s", p.Objects[0].State, lines(p))
	}
	foreign := held + "\nacpi: 1 => 0"
	p = Make(cluster(t, manifest("VM", "web", webSpec)), snapshot(guest(100, "pve01", "qemu", foreign)), Policy{})
	if len(p.Anomalies) != 1 || !strings.Contains(p.Anomalies[0].Text, "acpi has a change that takes effect at the next start") {
		t.Errorf("%+v", p.Anomalies)
	}
}

// PVE drops a pending change of a running guest alone: where the plan stops the
// guest first, what the manifest wants is written.
func TestNothingIsRevertedAfterAStop(t *testing.T) {
	config := strings.Replace(webConfig, "cores: 2", "cores: 2 => 3", 1)
	p := Make(cluster(t, manifest("VM", "web", webSpec+"\noptions: {acpi: false}")), snapshot(running(guest(100, "pve01", "qemu", config))), Policy{})
	for _, a := range p.Actions {
		step, ok := a.Do.(UpdateStep)
		if !ok {
			continue
		}
		if v, _ := step.Params.Get("cores"); len(step.Revert) > 0 || v.String() != "2" {
			t.Errorf("reverts %v, sends cores=%s", step.Revert, v)
		}
		return
	}
	t.Errorf("no update is planned:\n%s", lines(p))
}
