package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/live"
)

const cagedSpec = `
node: pve01
vmid: 200
state: started
memory: 512MiB
template: null
root: {storage: local-lvm, size: 8GiB}
networks: []
`

const cagedConfig = `
hostname: cage
memory: 512
swap: 512
rootfs: local-lvm:vm-200-disk-0,size=8G
tags: proxops
unprivileged: 1
mp0: local-lvm:vm-200-disk-1,mp=/srv,size=1G
protection: 1
`

// writes are the keys of each config write of a plan, in their order.
func writes(p Plan) string {
	var out []string
	for _, a := range p.Actions {
		if step, ok := a.Do.(UpdateStep); ok {
			var keys []string
			for _, x := range step.Params {
				keys = append(keys, x.Key+"="+x.Value.String())
			}
			out = append(out, strings.Join(append(keys, step.Delete...), " "))
		}
	}
	return strings.Join(out, "; ")
}

// No guest is taken down for a field that PVE refuses to the token: it would be
// in every cycle, since the field never changes.
func TestNoRestartForWhatIsRefused(t *testing.T) {
	spec := cagedSpec + "options: {keyctl: true}"
	for _, ticket := range []bool{false, true} {
		for _, state := range []string{"started", "stopped"} {
			s := snapshot(running(guest(200, "pve01", "lxc", cagedConfig)))
			s.RootTicket = ticket
			p := Make(cluster(t, manifest("LXC", "cage", strings.Replace(spec, "started", state, 1))), s, Policy{Restart: "immediate"})
			restarts := slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Verb == Restart })
			if restarts != (ticket && state == "started") {
				t.Errorf("root@pam %t, %s: restarts %t\n%s", ticket, state, restarts, lines(p))
			}
			if !ticket && state == "stopped" && p.Actions[0].Verb != Update {
				t.Errorf("the stop comes first although nothing needs it:\n%s", lines(p))
			}
		}
	}
}

// PVE changes no mount point of a protected container: the plan says so, and
// writes the rest; protection that is to go goes first.
func TestProtectedMountPoints(t *testing.T) {
	mount := "mount-points: [{slot: mp0, storage: local-lvm, size: 1GiB, mount-point: /data}]\n"
	s := func() *live.Snapshot { return snapshot(running(guest(200, "pve01", "lxc", cagedConfig))) }
	p := Make(cluster(t, manifest("LXC", "cage", cagedSpec+mount+"options: {onboot: true}")), s(), Policy{})
	if got := writes(p); got != "onboot=1" || len(p.Anomalies) != 1 || p.Anomalies[0].Path != "mount-points[0].mount-point" {
		t.Errorf("writes %s; %+v", got, p.Anomalies)
	}
	p = Make(cluster(t, manifest("LXC", "cage", cagedSpec+mount+"options: {onboot: true, protection: false}")), s(), Policy{})
	if got := writes(p); got != "onboot=1 protection=0; mp0=local-lvm:vm-200-disk-1,mp=/data,size=1G" || len(p.Anomalies) > 0 {
		t.Errorf("writes %s; %+v", got, p.Anomalies)
	}
}

// PVE appends a new CD drive to the boot order, so that the order is written
// after it, also where it was right.
func TestBootOrderAfterANewCD(t *testing.T) {
	spec := webSpec + "hardware: {cdrom: {iso: none}}\noptions: {boot-order: [scsi0]}"
	for live, want := range map[string]string{
		"order=scsi0":      "ide2=none,media=cdrom; boot=order=scsi0",
		"order=net0;scsi0": "ide2=none,media=cdrom; boot=order=scsi0",
	} {
		p := Make(cluster(t, manifest("VM", "web", spec)), snapshot(guest(100, "pve01", "qemu", webConfig+"boot: "+live)), Policy{})
		if got := writes(p); got != want {
			t.Errorf("boot: %s: writes %q, want %q", live, got, want)
		}
	}
	null := strings.Replace(spec, "[scsi0]", "null", 1)
	p := Make(cluster(t, manifest("VM", "web", null)), snapshot(guest(100, "pve01", "qemu", webConfig+"boot: order=scsi0;net0")), Policy{})
	if got := writes(p); got != "ide2=none,media=cdrom; boot" {
		t.Errorf("no order: writes %q", got)
	}
	cd := "ide2: local:iso/x.iso,media=cdrom,size=350K\nboot: " // another medium: PVE appends it again
	for live, want := range map[string]string{
		"order=scsi0": "ide2=none,media=cdrom; boot=order=scsi0", "order=scsi0;ide2": "ide2=none,media=cdrom; boot=order=scsi0",
	} {
		p = Make(cluster(t, manifest("VM", "web", spec)), snapshot(guest(100, "pve01", "qemu", webConfig+cd+live)), Policy{})
		if got := writes(p); got != want {
			t.Errorf("boot: %s: writes %q, want %q", live, got, want)
		}
	}
	p = Make(cluster(t, manifest("VM", "web", strings.Replace(spec, "[scsi0]", "[scsi0, ide2]", 1))), snapshot(guest(100, "pve01", "qemu", webConfig+cd+"order=scsi0;ide2")), Policy{})
	if got := writes(p); got != "ide2=none,media=cdrom" {
		t.Errorf("an order that names the drive: writes %q", got)
	}
	p = Make(cluster(t, manifest("VM", "web", strings.Replace(spec, "options: {boot-order: [scsi0]}", "", 1))), snapshot(guest(100, "pve01", "qemu", webConfig+"boot: order=scsi0")), Policy{})
	if got := writes(p); got != "ide2=none,media=cdrom" {
		t.Errorf("an order that nobody owns: writes %q", got)
	}
}

// The cloud-init drive is written anew once, after the last write; without the
// right to it the data is written all the same.
func TestCloudInitDriveOnce(t *testing.T) {
	config := webConfig + "boot: order=net0\nide2: local-lvm:vm-100-cloudinit,media=cdrom"
	spec := strings.Replace(webSpec, "stopped", "started", 1) + "hardware: {cdrom: {iso: none}}\noptions: {boot-order: [scsi0]}\ncloud-init-data: {ci-user: ada}"
	for _, held := range []bool{true, false} {
		s := snapshot(running(guest(100, "pve01", "qemu", config)))
		s.Perms = map[string]map[string]bool{"/": {"VM.Config.Cloudinit": held, "VM.Config.Network": true}}
		if !held {
			delete(s.Perms["/"], "VM.Config.Cloudinit")
		}
		anew, told := "", ""
		for _, a := range Make(cluster(t, manifest("VM", "web", spec)), s, Policy{}).Actions {
			if step, ok := a.Do.(UpdateStep); ok {
				anew += map[bool]string{true: "yes ", false: "no "}[step.RegenerateCloudInit]
				told += a.Why
			}
		}
		want, words := "no yes ", "at its next boot"
		if !held {
			want, words = "no no ", "after a stop and start"
		}
		if anew != want || !strings.Contains(told, words) {
			t.Errorf("right held %t: %q; %s", held, anew, told)
		}
	}
}
