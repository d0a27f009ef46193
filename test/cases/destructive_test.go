package cases_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
)

// Growing or changing one disk leaves the others alone.
func TestB1_OtherDisksStay(t *testing.T) {
	story(t, func(l *lab) {
		m := func(size, more string) []string {
			return []string{seedImage, vm("a", 100, "disks: [{storage: local-lvm, image: seed}, {storage: local-dir, size: "+size+", grow: true"+more+"}]",
				"hardware: {bios: ovmf, efi-disk: {storage: local-lvm}, tpm: {storage: local-lvm}}")}
		}
		l.converge(m("2GiB", "")...)
		before := map[string]string{}
		for _, k := range []string{"scsi0", "efidisk0", "tpmstate0"} {
			before[k] = l.conf(100)[k]
		}
		l.wantVerbs(l.converge(m("3GiB", ", discard: on, iothread: true")...), "Resize 100, Update 100")
		rep := l.converge(seedImage, vm("a", 100, "disks: [{storage: local-lvm, image: seed}, {storage: local-dir, size: 3GiB}]", "hardware: {machine: q35, bios: ovmf, efi-disk: {storage: local-lvm}, tpm: {storage: local-lvm}}"))
		if got := changed(rep); got != "machine" {
			t.Errorf("changed %s", got)
		}
		for k, v := range before {
			l.wantConf(100, k, v)
		}
	})
}

// What is pending on a slot would undo a resize: it is looked at first.
func TestB2_ResizeAndPending(t *testing.T) {
	story(t, func(l *lab) {
		m := func(size string) string {
			return vm("a", 100, "state: started", "disks: [{storage: local-lvm, size: "+size+", grow: true}]")
		}
		l.converge(m("10GiB"))
		l.edit(100, func(g *guest) {
			if g.Pending == nil {
				g.Pending = pvesim.Section{}
			}
			g.Pending["scsi0"] = vol0(g.Config["scsi0"]) + ",cache=none,size=10G"
		})
		rep := l.diff(m("15GiB"))
		l.wantVerbs(rep, "")
		l.says(rep, "pending", "15G")
		l.put(100, "revert", "scsi0")
		l.wantVerbs(l.converge(m("15GiB")), "Resize 100")
		l.wantVerbs(l.converge(strings.Replace(m("20GiB"), "grow: true", "grow: true, cache: none", 1)), "Resize 100, Update 100")
		l.api("POST", l.path(100)+"/status/stop")
		l.api("POST", l.path(100)+"/status/start")
		if got := l.conf(100)["scsi0"]; !strings.Contains(got, "size=20G") {
			t.Errorf("after the next start the disk is %s", got)
		}
	})
}

// A shrink is an anomaly with both sizes; nothing is tried, ever.
func TestB4_Shrink(t *testing.T) {
	story(t, func(l *lab) {
		m := func(size string) []string {
			return []string{debian, vm("a", 100, "disks: [{storage: local-lvm, size: "+size+", grow: true}]"),
				ct("b", 101, "template: debian", "root: {storage: local-lvm, size: "+size+", grow: true}", "mount-points: [{storage: local-lvm, size: "+size+", grow: true, mount-point: /srv}]")}
		}
		l.converge(m("10GiB")...)
		for range 2 {
			rep := l.apply(m("8GiB")...)
			if rep.Writes != 0 || len(rep.Plan.Anomalies) != 3 {
				t.Errorf("%d writes, %d anomalies:\n%s", rep.Writes, len(rep.Plan.Anomalies), text(rep))
			}
			l.says(rep, "10G", "8G", "cannot shrink")
		}
	})
}

func TestB5_ContainerInPlace(t *testing.T) {
	story(t, func(l *lab) {
		m := func(mps, more string) []string {
			return []string{ct("a", 100, "template: debian", "mount-points: ["+mps+"]", "options: {unprivileged: true}", more), debian}
		}
		one := func(size string) string {
			return "{slot: mp0, storage: local-lvm, size: " + size + ", mount-point: /srv, grow: true}"
		}
		l.converge(m(one("10GiB"), "init: {ssh-keys: ['"+keyA+"']}")...)
		vol := vol0(l.conf(100)["mp0"])
		l.wantVerbs(l.converge(m(one("20GiB")+", {slot: mp7, storage: local-dir, size: 1GiB, mount-point: /opt}", "init: {ssh-keys: ['"+keyA+" ']}")...), "Resize 100, Update 100")
		if vol0(l.conf(100)["mp0"]) != vol {
			t.Error("the mount point was made anew")
		}
		rep := l.diff(ct("a", 100, "options: {unprivileged: false}"))
		l.wantVerbs(rep, "")
		l.says(rep, "unprivileged")
		if l.stateOf(rep, "a") != plan.Anomalous {
			t.Errorf("a changed unprivileged is %s", l.stateOf(rep, "a"))
		}
	})
}

// Provenance counts only while the guest is absent.
func TestB6_ProvenanceIsNoDrift(t *testing.T) {
	story(t, func(l *lab) {
		tpl := spec("TemplateVM", "golden", 900, "disks: [{storage: local-lvm, size: 1GiB}]")
		l.converge(tpl)
		l.make("qemu", 100, "name", "a", "memory", "512", "cpu", "host", "scsi0", "local-lvm:7")
		l.make("lxc", 101, "hostname", "b", "rootfs", "local-lvm:1")
		rep := l.diff(tpl, vm("a", 100, "clone: golden"), ct("b", 101, "template: debian"), debian)
		l.wantVerbs(rep, "Update 100, Update 101")
		if got := changed(rep); got != "tags" {
			t.Errorf("a claim changes %s", got)
		}
	})
}

// The plan says what each action does to the running guest; nothing is
// stopped without being told to.
func TestB7_NoSilentStop(t *testing.T) {
	story(t, func(l *lab) {
		var first, second []string
		for i := range 3 {
			name, id := fmt.Sprintf("fw%d", i), 100+i
			first = append(first, vm(name, id, "state: started", "disks: [{storage: local-lvm, size: 1GiB}]"))
			second = append(second, vm(name, id, "state: started", "disks: [{storage: local-lvm, size: 1GiB}]", "options: {agent: true, tablet: false}", "hardware: {machine: q35}"))
		}
		l.converge(first...)
		rep := l.apply(second...)
		for _, r := range l.w.Requests() {
			if strings.Contains(r.Path, "/status/s") && r.Method == "POST" && !strings.HasSuffix(r.Path, "/start") {
				t.Errorf("%s %s", r.Method, r.Path)
			}
		}
		l.says(rep, "restart")
		after := l.diff(second...)
		l.wantVerbs(after, "")
		for i := range 3 {
			if st := l.stateOf(after, fmt.Sprintf("fw%d", i)); st != plan.WaitingRestart {
				t.Errorf("fw%d is %s", i, st)
			}
		}
	})
}

// A stopped guest is not started by a change, a started one not stopped.
func TestB9_PowerFlips(t *testing.T) {
	story(t, func(l *lab) {
		m := func(state, d string) []string {
			return []string{debian, vm("a", 100, "state: "+state, "pve-description: "+d, "disks: [{storage: local-lvm, size: 1GiB}]"), ct("b", 101, "template: debian", "state: "+state, "pve-description: "+d)}
		}
		for _, state := range []string{"stopped", "started"} {
			l.converge(m(state, "x")...)
			l.wantVerbs(l.converge(m(state, "y"+state)...), "Update 100, Update 101")
			if l.running(100) != (state == "started") || l.running(101) != (state == "started") {
				t.Errorf("%s: the power state flipped", state)
			}
		}
		l.converge(m("stopped", "z")[0], m("stopped", "z")[2]) // the container stops by itself; the VM is not declared
	})
}

// PVE hotplugs what the guest lets it; the rest waits visibly.
func TestB10_HotplugOrWait(t *testing.T) {
	story(t, func(l *lab) {
		m := func(mem, cores string) string {
			return vm("a", 100, "state: started", "memory: "+mem, "cpu: {type: host, cores: "+cores+"}", "hardware: {numa: true}", "options: {hotplug: [memory, disk, network, usb]}", "disks: [{storage: local-lvm, size: 1GiB}]")
		}
		l.converge(m("1GiB", "2"))
		l.converge(m("2GiB", "2"))
		if l.pending(100)["memory"] != "" || l.conf(100)["memory"] != "2048" {
			t.Errorf("memory was not hotplugged: %s, pending %s", l.conf(100)["memory"], l.pending(100)["memory"])
		}
		rep := l.apply(m("2GiB", "4"))
		if len(rep.Result.Actions) != 1 || len(rep.Result.Actions[0].Waiting) == 0 {
			t.Errorf("apply does not say that cores wait: %+v", rep.Result.Actions)
		}
		after := l.diff(m("2GiB", "4"))
		l.wantVerbs(after, "")
		if l.stateOf(after, "a") != plan.WaitingRestart || after.Converged() {
			t.Errorf("state %s, converged %v", l.stateOf(after, "a"), after.Converged())
		}
		l.says(after, "cpu.cores")
		l.api("POST", l.path(100)+"/status/stop")
		l.api("POST", l.path(100)+"/status/start")
		if rep := l.diff(m("2GiB", "4")); !rep.Converged() {
			t.Errorf("after the restart:\n%s", text(rep))
		}
	})
}

// A delete takes the guest's own volumes and nothing else, and says so.
func TestB13_DestroyNoMore(t *testing.T) {
	story(t, func(l *lab) {
		l.converge(vm("a", 100, "disks: [{storage: local-lvm, size: 1GiB}]"), vm("b", 101))
		l.w.View(func(s *pvesim.State) {
			s.Volumes["pve01 local-lvm:vm-100-data"] = &pvesim.Volume{ID: "local-lvm:vm-100-data", Node: "pve01", Owner: 100, Content: "images", Format: "raw", Size: 1 << 30}
		})
		rep := l.apply(vm("b", 101))
		l.wantVerbs(rep, "Delete 100")
		l.says(rep, "local-lvm:vm-100-disk-0")
		for _, r := range l.w.Requests() {
			if r.Method == "DELETE" && (r.Params.Has("purge") || r.Params.Has("destroy-unreferenced-disks")) {
				t.Errorf("%s %s %v", r.Method, r.Path, r.Params)
			}
		}
		kept := false
		l.w.View(func(s *pvesim.State) { kept = s.Volumes["pve01 local-lvm:vm-100-data"] != nil })
		if !kept {
			t.Error("a volume that no config names is gone")
		}
	})
}

// A delete names every backup job that names the guest, and leaves the jobs
// alone; a guest that a replication job or an HA entry names is not deleted,
// since PVE refuses that without purge, which is never sent.
func TestB13_JobsOfADeletedGuest(t *testing.T) {
	for _, kind := range []string{"qemu", "lxc"} {
		m, lists := vm, []string{"/cluster/backup", "/cluster/replication", "/cluster/ha/resources"}
		sid := "vm:"
		if kind == "lxc" {
			m, sid = func(name string, id int, _ ...string) string { return ct(name, id, "template: debian") }, "ct:"
		}
		story(t, func(l *lab) {
			all := []string{debian, m("keep", 100), m("a", 101), m("b", 102), m("c", 103), m("d", 104), m("e", 105)}
			l.converge(all...)
			l.api("POST", "/cluster/backup", "id", "nightly", "vmid", "100,101,103", "storage", "local")
			l.api("POST", "/cluster/backup", "id", "weekly", "all", "1", "exclude", "101", "storage", "local")
			l.api("POST", "/cluster/replication", "id", "102-0", "type", "local", "target", "pve02")
			l.api("POST", "/cluster/ha/resources", "sid", sid+"103", "state", "ignored")
			l.policy = func(p *plan.Policy) { p.PruneBudget = 0 }
			l.w.ForgetRequests()
			l.settled(all...)
			for _, path := range lists {
				if n := l.calls("GET", path); n != 0 {
					t.Errorf("%s: %d reads of %s while nothing is to be deleted", kind, n, path)
				}
			}
			l.w.ForgetRequests()
			l.fails = true
			rep := l.apply(debian, all[1])
			for _, path := range lists {
				if n := l.calls("GET", path); n != 1 {
					t.Errorf("%s: %d reads of %s for one plan", kind, n, path)
				}
			}
			l.wantVerbs(rep, "Delete 101, Delete 104, Delete 105")
			why := map[int]string{}
			for _, a := range rep.Plan.Actions {
				why[a.VMID] = a.Why
			}
			if w := why[101]; !strings.Contains(w, "each of the backup jobs nightly, weekly names it and stays as it is, since no purge is sent") {
				t.Errorf("%s: %s", kind, w)
			}
			if w := why[104]; strings.Contains(w, "job") {
				t.Errorf("%s: no job names it: %s", kind, w)
			}
			rules := map[int]string{}
			for _, s := range rep.Plan.Suppressed {
				rules[s.VMID] = s.Rule + ": " + s.Text
			}
			if len(rules) != 2 || !strings.HasPrefix(rules[102], "replication: replication job 102-0") || !strings.HasPrefix(rules[103], "ha: ") || !strings.Contains(rules[103], "ignored") {
				t.Errorf("%s: suppressed %v", kind, rules)
			}
			if got := outcomes(rep); got != "done,done,done" {
				t.Errorf("%s: %s", kind, got)
			}
			for _, id := range []int{102, 103} { // PVE refuses what is held back
				if _, err := l.try(rootToken, "DELETE", l.path(id)); err == nil {
					t.Errorf("%s: PVE deletes %d", kind, id)
				}
			}
			l.w.View(func(s *pvesim.State) {
				if got := s.BackupJobs["nightly"].Props["vmid"]; got != "100,101,103" {
					t.Errorf("%s: the job's guests are %s", kind, got)
				}
			})
		})
		story(t, func(l *lab) { // not visible is said, and is no hindrance
			l.converge(debian, m("keep", 100), m("a", 101))
			l.role("Keeper", poolPrivs+" Datastore.AllocateSpace Datastore.Audit SDN.Use")
			l.grant("Keeper", "/vms", "/storage", "/sdn")
			l.as(l.token())
			rep := l.apply(debian, m("keep", 100))
			l.wantVerbs(rep, "Delete 101")
			l.says(rep, "HA resources and backup jobs could not be read")
		})
	}
}

// The vmid went to another guest between plan and delete.
func TestB14_ReusedID(t *testing.T) {
	for _, kind := range []string{"qemu", "lxc"} {
		story(t, func(l *lab) {
			l.converge(vm("a", 100), vm("b", 101), ct("c", 102, "template: debian"), ct("d", 103, "template: debian"), debian)
			left := []string{vm("b", 101), ct("d", 103, "template: debian"), debian}
			id := map[string]int{"qemu": 100, "lxc": 102}[kind]
			l.write(left...)
			rep := l.cycleBetween(func() {
				l.api("DELETE", l.path(id))
				if kind == "qemu" {
					l.make("qemu", id, "name", "a", "tags", "proxops", "memory", "512")
				} else {
					l.make("lxc", id, "hostname", "other", "tags", "proxops", "rootfs", "local-lvm:1")
				}
			})
			if l.conf(id) == nil {
				t.Errorf("the stranger was deleted:\n%s", text(rep))
			}
		})
	}
}

// Protection and HA are seen before anything is tried.
func TestB15_ProtectedAndHA(t *testing.T) {
	story(t, func(l *lab) {
		l.converge(vm("a", 100, "options: {protection: true}"), vm("b", 101), vm("c", 102, "state: started", "disks: [{storage: shared, size: 1GiB}]"))
		l.w.View(func(s *pvesim.State) {
			if s.HA == nil {
				s.HA = map[string]*pvesim.HAResource{}
			}
			s.HA["vm:102"] = &pvesim.HAResource{SID: "vm:102", State: "started"}
		})
		rep := l.apply(vm("b", 101))
		if rep.Writes != 0 || len(rep.Plan.Suppressed) != 2 {
			t.Errorf("%d writes, suppressed %+v", rep.Writes, rep.Plan.Suppressed)
		}
		l.says(rep, "protection", "HA")
	})
}

// A disk that was detached is never picked up again.
func TestB16_UnusedIsNeverReused(t *testing.T) {
	story(t, func(l *lab) {
		one, two := "{interface: scsi0, storage: local-lvm, size: 1GiB}", "{interface: scsi1, storage: local-lvm, size: 1GiB}"
		l.converge(vm("a", 100, "disks: ["+one+", "+two+"]"))
		rep := l.diff(vm("a", 100, "disks: ["+one+"]"))
		l.wantVerbs(rep, "")
		l.says(rep, "scsi1", "local-lvm:vm-100-disk-1")
		l.put(100, "delete", "scsi1")
		old := l.conf(100)["unused0"]
		l.converge(vm("a", 100, "disks: ["+one+", {interface: scsi1, storage: local-lvm, size: 5GiB}]"))
		if got := l.conf(100)["scsi1"]; strings.Contains(got, old) || !strings.Contains(got, "size=5G") || l.conf(100)["unused0"] != old {
			t.Errorf("scsi1 is %s, unused0 %s (was %s)", got, l.conf(100)["unused0"], old)
		}
	})
}

// A NIC in front does not renumber the others.
func TestB17_NICSlots(t *testing.T) {
	story(t, func(l *lab) {
		m := func(nics string) []string {
			return []string{debian, vm("a", 100, "networks: ["+nics+"]"), ct("b", 101, "template: debian", "networks: ["+nics+"]")}
		}
		l.converge(m("{slot: net0, bridge: vmbr0}, {slot: net1, bridge: vmbr1}")...)
		before := [2]string{l.conf(100)["net0"] + l.conf(100)["net1"], l.conf(101)["net0"] + l.conf(101)["net1"]}
		l.converge(m("{slot: net2, bridge: vmbr1}, {slot: net0, bridge: vmbr0}, {slot: net1, bridge: vmbr1}")...)
		if got := [2]string{l.conf(100)["net0"] + l.conf(100)["net1"], l.conf(101)["net0"] + l.conf(101)["net1"]}; got != before {
			t.Errorf("cards were renumbered: %v, were %v", got, before)
		}
		rep := l.diff(m("{slot: net0, bridge: vmbr0}")...)
		l.wantVerbs(rep, "")
		if len(rep.Plan.Anomalies) != 4 {
			t.Errorf("%s", text(rep))
		}
	})
}

// A clone is configured before it first starts; later data wait for a boot.
func TestB19_FirstBoot(t *testing.T) {
	story(t, func(l *lab) {
		tpl := spec("TemplateVM", "golden", 900, "disks: [{storage: local-lvm, size: 1GiB}]", "hardware: {cloud-init: {storage: local-lvm}}", "cloud-init-data: {ci-user: builder}")
		m := func(user string) []string {
			return []string{tpl, vm("a", 100, "clone: golden", "state: started", "cloud-init-data: {ci-user: "+user+", ssh-keys: ['"+keyA+"']}")}
		}
		l.converge(m("deploy")...)
		order := ""
		for _, r := range l.w.Requests() {
			switch {
			case r.Method == "GET" || !strings.Contains(r.Path, "/100/") && !strings.Contains(r.Path, "/clone"):
			case strings.HasSuffix(r.Path, "/clone"), strings.HasSuffix(r.Path, "/config"), strings.HasSuffix(r.Path, "/start"):
				order += r.Path[strings.LastIndex(r.Path, "/"):]
			}
		}
		if order != "/clone/config/start" {
			t.Errorf("order of writes: %s", order)
		}
		rep := l.apply(m("ada")...)
		l.says(rep, "next boot")
		regenerated := false
		for _, r := range l.w.Requests() {
			regenerated = regenerated || r.Method == "PUT" && strings.HasSuffix(r.Path, "/100/cloudinit")
		}
		if !regenerated {
			t.Error("the drive was not written anew")
		}
		l.settled(m("ada")...)
	})
}

// A template is marked by its own call, and linked clones hold it.
func TestB20_Template(t *testing.T) {
	story(t, func(l *lab) {
		tpl := spec("TemplateVM", "golden", 900, "disks: [{storage: local-dir, size: 1GiB}]")
		ctpl := spec("TemplateCT", "base", 901, "template: debian")
		other := []string{ctpl, debian, spec("TemplateVM", "other", 902)}
		l.converge(append(other, tpl)...)
		if got := l.conf(900)["scsi0"]; !strings.Contains(got, "base-900-disk-0") || l.conf(900)["template"] != "1" || l.conf(901)["template"] != "1" {
			t.Errorf("not a template: %s", got)
		}
		rep := l.diff(append(other, vm("golden", 900, "disks: [{storage: local-dir, size: 1GiB}]"))...)
		l.wantVerbs(rep, "")
		l.says(rep, "template")
		l.api("POST", "/nodes/pve01/qemu/900/clone", "newid", "110", "name", "linked")
		l.put(110, "delete", "tags")
		rep = l.apply(other...)
		if rep.Writes != 0 {
			t.Errorf("%d writes", rep.Writes)
		}
		l.says(rep, "110")
	})
	story(t, func(l *lab) { // thin pools do not tell
		l.converge(spec("TemplateVM", "golden", 900, "disks: [{storage: local-lvm, size: 1GiB}]"), spec("TemplateVM", "other", 902))
		rep := l.diff(spec("TemplateVM", "other", 902))
		l.wantVerbs(rep, "Delete 900")
		l.says(rep, "local-lvm", "linked clones")
	})
}

// A guest that somebody deleted is made again, if it is absent for certain.
func TestB21_MadeAgain(t *testing.T) {
	story(t, func(l *lab) {
		m := vm("a", 100, "disks: [{storage: local-lvm, size: 1GiB}]")
		l.converge(m)
		l.api("DELETE", "/nodes/pve01/qemu/100")
		l.wantVerbs(l.converge(m), "Create 100")
		l.api("DELETE", "/nodes/pve01/qemu/100")
		l.w.SetFaults(pvesim.Fault{Kind: pvesim.FaultError, Method: "GET", Path: "/cluster/nextid", P: 1, Status: 500})
		if rep := l.apply(m); rep.Writes != 0 || l.stateOf(rep, "a") != plan.Unknown {
			t.Errorf("made although PVE did not say that the id is free: %s", l.stateOf(rep, "a"))
		}
	})
}
