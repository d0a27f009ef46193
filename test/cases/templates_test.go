package cases_test

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
)

// The tokens of features are merged one by one: those that the manifest does
// not name stay, whatever they are.
func TestFeaturesTokenByToken(t *testing.T) {
	story(t, func(l *lab) {
		l.as("") // root by password: features other than nesting are root@pam's alone
		m := func(options string) []string { return []string{debian, ct("a", 100, "template: debian", options)} }
		l.converge(m("options: {nesting: true}")...)
		l.edit(100, func(g *guest) { g.Config["features"] = "force_rw_sys=1,keyctl=1,mount=nfs;cifs,nesting=1" })
		l.settled(m("options: {nesting: true}")...)
		l.converge(m("options: {nesting: false, fuse: true}")...)
		got := l.conf(100)["features"]
		for _, token := range []string{"force_rw_sys=1", "keyctl=1", "mount=nfs;cifs", "fuse=1"} {
			if !strings.Contains(got, token) {
				t.Errorf("features: %s lost or lacks %s", got, token)
			}
		}
		if strings.Contains(got, "nesting=1") {
			t.Errorf("features: %s", got)
		}
	})
}

// A live container never gets a create-form rootfs, which PVE takes and which
// breaks it, also where its own rootfs cannot be seen or is elsewhere.
func TestNoCreateFormOverALiveRootfs(t *testing.T) {
	for name, damage := range map[string]func(g *guest){
		"gone":      func(g *guest) { delete(g.Config, "rootfs") },
		"elsewhere": func(g *guest) { g.Config["rootfs"] = "shared:100/vm-100-disk-0.raw,size=1G" },
		"bigger":    func(g *guest) { g.Config["rootfs"] = strings.Replace(g.Config["rootfs"], "size=1G", "size=4G", 1) },
		"broken":    func(g *guest) { g.Config["rootfs"] = "local-lvm:0.1" },
	} {
		story(t, func(l *lab) {
			m := ct("a", 100, "template: debian", "root: {storage: local-lvm, size: 1GiB, grow: true}")
			l.converge(m, debian)
			l.edit(100, damage)
			l.w.ForgetRequests()
			l.write(m, debian)
			rep := l.cycle(true)
			for _, r := range l.w.Requests() {
				if r.Method != "GET" && r.Params.Has("rootfs") {
					t.Errorf("%s: %s %s rootfs=%s", name, r.Method, r.Path, r.Params.Str("rootfs"))
				}
			}
			if s := l.stateOf(rep, "a"); s != plan.Anomalous {
				t.Errorf("%s: a is %s:\n%s", name, s, text(rep))
			}
		})
	}
}

// Marking is idempotent, and a container is done only when its config says so:
// PVE answers long before.
func TestMarkingWaits(t *testing.T) {
	storyWith(t, pvesim.Options{Seed: 1, TimeScale: 1}, func(l *lab) {
		ms := []string{debian, spec("TemplateCT", "base", 900, "template: debian"), spec("TemplateVM", "golden", 901, "disks: [{storage: local-lvm, size: 1GiB}]")}
		l.write(ms...)
		if rep := l.cycle(true); !rep.Converged() {
			t.Fatalf("not converged:\n%s", text(rep))
		}
		l.wantConf(900, "template", "1") // at once, with nobody waiting for tasks
		l.wantConf(901, "template", "1")
		l.settled(ms...)
		// Somebody else marks it between plan and write.
		next := append(ms, spec("TemplateCT", "late", 902, "template: debian"))
		l.make("lxc", 902, "hostname", "late", "rootfs", "local-lvm:1", "tags", "proxops")
		l.write(next...)
		l.cycleBetween(func() { l.api("POST", "/nodes/pve01/lxc/902/template") })
		l.settled(next...)
	})
}

// A template with linked clones is not deleted where the storage tells of
// them, and their ids are named; elsewhere the plan says that nobody knows.
func TestTemplateWithLinkedClones(t *testing.T) {
	for _, storage := range []string{"local-dir", "local-lvm"} {
		story(t, func(l *lab) {
			disk := "disks: [{storage: " + storage + ", size: 1GiB}]"
			keep, golden := spec("TemplateVM", "keep", 901, disk), spec("TemplateVM", "golden", 900, disk)
			l.converge(keep, golden)
			for _, id := range []string{"300", "301"} {
				l.api("POST", "/nodes/pve01/qemu/900/clone", "newid", id, "full", "0")
				l.put(map[string]int{"300": 300, "301": 301}[id], "tags", "theirs")
			}
			l.w.ForgetRequests()
			rep := l.apply(keep)
			if storage == "local-dir" {
				l.says(rep, "delete held back: TemplateVM/golden 900", "linked clones depend on it: 300, 301")
				if rep.Writes != 0 || l.conf(900) == nil {
					t.Errorf("%d writes", rep.Writes)
				}
				return
			}
			l.wantVerbs(rep, "Delete 900")
			l.says(rep, "PVE does not tell whether it has linked clones on local-lvm")
			if l.conf(300) == nil || l.conf(301) == nil {
				t.Error("a clone is gone")
			}
		})
	}
}

// A new disk takes a new volume, and the plan says that the one that lies
// unused is not meant.
func TestB16_UnusedIsSaid(t *testing.T) {
	story(t, func(l *lab) {
		one := "{interface: scsi0, storage: local-lvm, size: 1GiB}"
		m := func(more string) string { return vm("a", 100, "disks: ["+one+more+"]") }
		l.converge(m(", {interface: scsi1, storage: local-lvm, size: 1GiB}"))
		rep := l.diff(m(""))
		l.says(rep, "scsi1", "keeps the volume as unusedN")
		l.put(100, "delete", "scsi1")
		rep = l.diff(m(", {interface: scsi1, storage: local-lvm, size: 5GiB}"))
		l.says(rep, "makes a new, empty volume", "unused0 (local-lvm:vm-100-disk-1) stays unused")
	})
}

// What could not be looked at is neither right nor wrong: the run has not done
// all that it was to do.
func TestUnknownIsCounted(t *testing.T) {
	story(t, func(l *lab) {
		ms := []string{vm("a", 100), vm("b", 101)}
		l.converge(ms...)
		l.w.SetFaults(pvesim.Fault{Kind: pvesim.FaultError, P: 1, Method: "GET", Path: "/nodes/*/qemu/100/pending"})
		rep := l.apply(ms...)
		if rep.Unread() != 1 || rep.Converged() || l.stateOf(rep, "a") != plan.Unknown || l.stateOf(rep, "b") != plan.Converged {
			t.Errorf("%d unread, converged %v:\n%s", rep.Unread(), rep.Converged(), text(rep))
		}
		l.says(rep, "1 could not be looked at")
		l.w.SetFaults()
		if rep = l.apply(ms...); rep.Unread() != 0 || !rep.Converged() {
			t.Errorf("%d unread afterwards", rep.Unread())
		}
	})
}
