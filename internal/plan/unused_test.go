package plan

import (
	"strings"
	"testing"
)

// A disk whose slot changes in the manifest is a new, empty one, and the plan
// says so beside what becomes of the old.
func TestNewVolumesAreSaid(t *testing.T) {
	vm := func(disks string) string {
		return strings.Replace(webSpec, "  - {storage: local-lvm, size: 10GiB}", "  - {storage: local-lvm, size: 10GiB}\n"+disks, 1)
	}
	data := webConfig + "scsi1: local-lvm:vm-100-disk-1,size=20G\n"
	for name, c := range map[string]struct{ kind, spec, live, want string }{
		"another slot":   {"VM", vm("  - {storage: local-lvm, size: 20GiB, interface: scsi2}"), data, "; makes a new, empty volume of 20GiB on local-lvm in scsi2\n|anomaly VM:web disks: scsi1"},
		"a further disk": {"VM", vm("  - {storage: local-lvm, size: 1536MiB}"), webConfig, "; makes a new, empty volume of 1536MiB on local-lvm in scsi1\n"},
		"two":            {"VM", vm("  - {storage: local-lvm, size: 1GiB}\n  - {storage: local, size: 2GiB}"), webConfig, "makes a new, empty volume of 1GiB on local-lvm in scsi1, a new, empty volume of 2GiB on local in scsi2\n"},
		"beside an old":  {"VM", vm("  - {storage: local-lvm, size: 1GiB}"), webConfig + "unused0: local-lvm:vm-100-disk-7\n", "in scsi1; unused0 (local-lvm:vm-100-disk-7) stays unused\n"},
		"EFI disk":       {"VM", webSpec + "hardware: {bios: ovmf, efi-disk: {storage: local-lvm}}\n", webConfig, "makes a new, empty volume on local-lvm in efidisk0\n"},
		"mount point":    {"LXC", ctSpec + "mount-points: [{storage: local-lvm, size: 4GiB, mount-point: /data, slot: mp3}]\n", ctConfig, "makes a new, empty volume of 4GiB on local-lvm in mp3\n"},
		"no news":        {"VM", webSpec + "hardware: {cloud-init: {storage: local-lvm}}\npve-description: x\n", webConfig, ""},
	} {
		guestType, id, ref := "qemu", 100, "web"
		if c.kind == "LXC" {
			guestType, id, ref = "lxc", 200, "dns"
		}
		p := Make(cluster(t, manifest(c.kind, ref, c.spec)), snapshot(guest(id, "pve01", guestType, c.live)), Policy{})
		var why strings.Builder
		for _, a := range p.Actions {
			why.WriteString(a.Why + "\n")
		}
		got := why.String() + lines(p)
		for _, part := range strings.Split(c.want, "|") {
			if !strings.Contains(got, part) {
				t.Errorf("%s: the plan lacks %q:\n%s", name, part, got)
			}
		}
		if c.want == "" && (len(p.Actions) == 0 || strings.Contains(got, "new, empty")) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
