package pvesim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim"
)

const rootPassword = "pvetest1"

// TestKeysOfRoot: what PVE lets only root set, and how it looks at what is set.
func TestKeysOfRoot(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100)
	root, _ := a.ticket("root@pam", rootPassword)
	const conf = vmPath + "/100/config"
	for _, c := range []struct {
		who        *api
		key, value string
		code       int
		says       string
	}{
		{a, "delete", "meta", 500, "only root can set 'meta' config"},
		{a, "delete", "runningcpu", 500, "only root can set 'runningcpu' config"},
		{a, "delete", "digest", 400, "unknown option 'digest'"},
		{root, "delete", "meta", 200, ""},
		{a, "delete", ",", 200, ""},
		{a, "delete", "", 500, "no options specified"},
		{root, "hookscript", "local:iso/seed.iso", 400, "not in the snippets directory"},
		{root, "hookscript", "local:snippets/a.sh", 400, "script 'local:snippets/a.sh' does not exist"},
		{root, "hookscript", "nil:snippets/a.sh", 400, "storage 'nil' does not exist"},
		{a, "affinity", "0,2-5", 200, ""},
		{a, "affinity", "5-2", 400, "unable to parse cpuset"},
		{a, "affinity", "0,,1", 400, "unable to parse cpuset"},
	} {
		if r := c.who.do("PUT", conf, c.key, c.value); r.code != c.code || !strings.Contains(r.raw, c.says) {
			t.Errorf("%s=%s: %d %s, want %d %s", c.key, c.value, r.code, r.raw, c.code, c.says)
		}
	}
	if got := a.do("GET", conf).Data.(map[string]any); got["meta"] != nil || got["affinity"] != "0,2-5" {
		t.Errorf("the config is %v", got)
	}
	root.ok("POST", vmPath, "vmid", "101", "hookscript", "local:snippets/a.sh") // looked at when it is used
	if r := a.do("POST", vmPath, "vmid", "102", "hookscript", "local:snippets/a.sh"); r.code != 500 || !strings.Contains(r.reason, "only root can set 'hookscript'") {
		t.Errorf("a token sets a hook script: %d %s", r.code, r.reason)
	}
}

// TestPathsOfDrives: a path is the volume that a storage keeps there, and a drive that its bus cannot have is passed over.
func TestPathsOfDrives(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100, "scsi0", "local-dir:1")
	const disk = "/var/lib/pvedata/images/100/vm-100-disk-0.raw"
	for _, c := range []struct {
		key, value string
		code       int
		says, want string
	}{
		{"ide2", "/var/lib/vz/template/iso/seed.iso", 200, "", "local:iso/seed.iso,media=cdrom,size=350K"},
		{"ide2", "/var/lib/vz/template/iso/none.iso", 500, "volume 'local:iso/none.iso' does not exist", "local:iso/seed.iso,media=cdrom,size=350K"},
		{"ide3", "/var/lib/vz/template/iso/seed.iso,media=disk", 400, "unexpected media type (iso != images)", ""},
		{"ide3", "/nowhere/seed.iso", 400, "unable to associate path '/nowhere/seed.iso' to any storage", ""},
		{"scsi1", disk, 200, "", "local-dir:100/vm-100-disk-0.raw,size=1G"},
		{"virtio0", "none", 200, "", ""},
		{"tpmstate0", "none", 200, "", ""},
	} {
		r := a.do("PUT", vmPath+"/100/config", c.key, c.value)
		got, _ := a.config(100, false)[c.key].(string)
		if r.code != c.code || !strings.Contains(r.raw, c.says) || got != c.want {
			t.Errorf("%s=%s: %d %s, the config has %q; want %d %s and %q", c.key, c.value, r.code, r.raw, got, c.code, c.says, c.want)
		}
	}
}

// TestResizeLimits: snapshots inside the image, empty drives and sizes beyond all measure.
func TestResizeLimits(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100, "scsi0", "local-dir:1,format=qcow2", "scsi1", "local-dir:1", "ide2", "none")
	resize := func(disk, size, want string) {
		t.Helper()
		if got := a.task("PUT", vmPath+"/100/resize", "disk", disk, "size", size); !strings.Contains(got, want) {
			t.Errorf("%s to %s: %q, want %q", disk, size, got, want)
		}
	}
	resize("ide2", "+1G", "unable to parse volume ID 'none'")
	resize("scsi0", "+1G", "OK")
	resize("scsi1", "+99999999999T", "OK")
	resize("scsi1", "1T", "shrinking disks is not supported")
	a.ok("PUT", vmPath+"/100/config", "delete", "scsi1")
	wantTask(t, a.task("POST", vmPath+"/100/snapshot", "snapname", "one"), "OK")
	resize("scsi0", "+1G", "can't resize volume: scsi0 if snapshot exists")
	wantTask(t, a.task("DELETE", vmPath+"/100/snapshot/one"), "OK")
	resize("scsi0", "+1G", "OK")
}

// TestReassignVolumes: what is checked before a volume goes to another guest, and where it is then.
func TestReassignVolumes(t *testing.T) {
	a := inProcess(t, world(t, "lvmthin", pvesim.Options{}))
	a.makeVM(100, "scsi0", "local-lvm:1")
	a.makeVM(101, "scsi0", "local-lvm:1")
	for _, id := range []string{"200", "201"} {
		wantTask(t, a.task("POST", ct, "vmid", id, "ostemplate", template, "rootfs", "local-dir:0.1", "mp0", "local-lvm:0.1,mp=/d"), "OK")
	}
	const both = "either set 'storage' or 'target-vmid', but not both"
	for _, c := range []struct {
		call string
		form []string
		code int
		says string
	}{
		{vmPath + "/100/move_disk", []string{"disk", "scsi0", "target-vmid", "101", "storage", "local-dir"}, 400, both},
		{vmPath + "/100/move_disk", []string{"disk", "scsi0", "target-vmid", "999"}, 500, "could not find VM 999"},
		{vmPath + "/100/move_disk", []string{"disk", "scsi0", "target-vmid", "101"}, 500, "already in use"},
		{ct + "/200/move_volume", []string{"volume", "mp0", "target-vmid", "201", "storage", "local-dir"}, 400, both},
		{ct + "/200/move_volume", []string{"volume", "mp0"}, 400, "both 'storage' and 'target-vmid' missing"},
		{ct + "/200/move_volume", []string{"volume", "mp0", "target-vmid", "200"}, 400, "must be different"},
		{ct + "/200/move_volume", []string{"volume", "mp0", "target-vmid", "999"}, 500, "could not find CT 999"},
		{ct + "/200/move_volume", []string{"volume", "mp0", "target-vmid", "201"}, 500, "already in use"},
		{ct + "/200/move_volume", []string{"volume", "rootfs", "target-vmid", "201", "target-volume", "mp1"}, 500, "rootfs"},
		{ct + "/200/move_volume", []string{"volume", "unused0", "target-vmid", "201", "target-volume", "mp1"}, 500, "Moving an unused volume"},
		{ct + "/200/move_volume", []string{"volume", "mp7", "target-vmid", "201"}, 500, "volume 'mp7' for container '200' does not exist"},
		{ct + "/200/move_volume", []string{"volume", "mp0", "target-vmid", "201", "target-volume", "mp1", "target-digest", "x"}, 500, "Container 201: detected modified"},
	} {
		if r := a.do("POST", c.call, c.form...); r.code != c.code || !strings.Contains(r.raw, c.says) {
			t.Errorf("%s %v: %d %s, want %d %s", c.call, c.form, r.code, r.raw, c.code, c.says)
		}
	}
	wantTask(t, a.task("POST", ct+"/200/move_volume", "volume", "mp0", "target-vmid", "201", "target-volume", "mp1"), "OK")
	from, to := a.ok("GET", ct+"/200/config").(map[string]any), a.ok("GET", ct+"/201/config").(map[string]any)
	if from["mp0"] != nil || !strings.HasPrefix(fmt.Sprint(to["mp1"]), "local-lvm:vm-201-disk-1,mp=/d") {
		t.Errorf("mp0 of 200 is %v, mp1 of 201 is %v", from["mp0"], to["mp1"])
	}
}

// TestMountsOfContainers: a directory in the place of a volume leaves that unused, and a create looks at MTU and volumes.
func TestMountsOfContainers(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	root, _ := a.ticket("root@pam", rootPassword)
	create := func(form ...string) answer {
		return a.do("POST", ct, append([]string{"vmid", "100", "ostemplate", template, "rootfs", "local-dir:0.1"}, form...)...)
	}
	if r := create("net0", "name=eth0,bridge=vmbr0,mtu=9000"); r.code != 500 || !strings.Contains(r.reason, "bigger than bridge MTU") {
		t.Errorf("an MTU beyond the bridge's: %d %s", r.code, r.reason)
	}
	wantTask(t, root.task("POST", ct, "vmid", "101", "ostemplate", template, "rootfs", "local-dir:0.1", "mp0", "local-dir:101/vm-101-disk-7.raw,mp=/d"),
		"unable to create CT 101 - volume 'local-dir:101/vm-101-disk-7.raw' does not exist")
	wantTask(t, a.task("POST", ct, "vmid", "100", "ostemplate", template, "rootfs", "local-dir:0.1", "mp0", "local-dir:0.1,mp=/d"), "OK")
	root.ok("PUT", ct+"/100/config", "mp0", "/srv,ro=1,mp=/s")
	conf := a.ok("GET", ct+"/100/config").(map[string]any)
	if conf["mp0"] != "/srv,mp=/s,ro=1" || conf["unused0"] != "local-dir:100/vm-100-disk-1.raw" {
		t.Errorf("mp0 is %v, unused0 %v", conf["mp0"], conf["unused0"])
	}
}
