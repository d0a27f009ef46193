package pvesim_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim"
)

// TestPrivilegePerKey says which privilege each kind of key needs: with it alone the change is made, with all the others it is not. Keys
// that belong to no privilege are root's, by ticket.
func TestPrivilegePerKey(t *testing.T) {
	all := []string{
		"VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network",
		"VM.Config.Options", "VM.PowerMgmt",
	}
	cases := []struct {
		key, value string
		privs      []string // any of them will do; none is root only
		both       bool     // all of them are needed
	}{
		{key: "cores", value: "2", privs: []string{"VM.Config.CPU"}},
		{key: "numa0", value: "cpus=0,memory=128", privs: []string{"VM.Config.CPU"}},
		{key: "memory", value: "256", privs: []string{"VM.Config.Memory"}},
		{key: "balloon", value: "0", privs: []string{"VM.Config.Memory"}},
		{key: "machine", value: "q35", privs: []string{"VM.Config.HWType"}},
		{key: "scsihw", value: "virtio-scsi-pci", privs: []string{"VM.Config.HWType"}},
		{key: "serial0", value: "socket", privs: []string{"VM.Config.HWType"}},
		{key: "usb0", value: "spice", privs: []string{"VM.Config.HWType"}},
		{key: "name", value: "x", privs: []string{"VM.Config.Options"}},
		{key: "onboot", value: "1", privs: []string{"VM.Config.Options"}},
		{key: "tags", value: "x", privs: []string{"VM.Config.Options"}},
		{key: "boot", value: "order=scsi0", privs: []string{"VM.Config.Disk"}},
		{key: "scsi0", value: "local-dir:100/vm-100-disk-0.raw,backup=0", privs: []string{"VM.Config.Disk"}},
		{key: "ide2", value: "none,media=cdrom", privs: []string{"VM.Config.CDROM"}},
		{key: "ide3", value: "local-dir:cloudinit", privs: []string{"VM.Config.CDROM", "VM.Config.Cloudinit"}, both: true},
		{key: "net1", value: "virtio", privs: []string{"VM.Config.Network"}},
		{key: "ciuser", value: "u", privs: []string{"VM.Config.Cloudinit", "VM.Config.Network"}},
		{key: "ipconfig0", value: "ip=dhcp", privs: []string{"VM.Config.Cloudinit", "VM.Config.Network"}},
		{key: "freeze", value: "1", privs: []string{"VM.PowerMgmt", "VM.Config.CPU"}, both: true}, // the call itself wants some VM.Config
		{key: "args", value: "-no-reboot"},
		{key: "lock", value: "backup"},
		{key: "hugepages", value: "2"},
		{key: "serial1", value: "/dev/ttyS0"},
		{key: "usb1", value: "host=1234:5678"},
		{key: "hostpci0", value: "host=01:00.0"},
	}
	w := world(t, "base", pvesim.Options{})
	root := inProcess(t, w)
	root.makeVM(100, "scsi0", "local-dir:1", "ide2", "none,media=cdrom")
	root.ok("POST", "/access/users", "userid", "u@pve")
	root.ok("POST", "/access/roles", "roleid", "R", "privs", "VM.Audit")
	root.ok("PUT", "/access/acl", "path", "/vms/100", "users", "u@pve", "roles", "R")
	secret := root.ok("POST", "/access/users/u@pve/token/tok", "privsep", "0").(map[string]any)["value"].(string)
	user := inProcess(t, w)
	user.token = "u@pve!tok=" + secret
	with := func(privs []string) {
		root.ok("PUT", "/access/roles/R", "privs", strings.Join(append([]string{"VM.Audit"}, privs...), ","))
	}
	for _, c := range cases {
		var others []string
		for _, p := range all {
			if !slices.Contains(c.privs, p) {
				others = append(others, p)
			}
		}
		with(others)
		if r := user.do("PUT", vmPath+"/100/config", c.key, c.value); r.code == http.StatusOK {
			t.Errorf("%s=%s was set without any of %v", c.key, c.value, c.privs)
		} else if c.privs == nil && !strings.Contains(r.reason, "only root can") {
			t.Errorf("%s=%s: %d %s", c.key, c.value, r.code, r.reason)
		}
		sets := [][]string{c.privs}
		if !c.both {
			sets = nil
			for _, p := range c.privs {
				sets = append(sets, []string{p})
			}
		}
		for _, privs := range sets {
			with(privs)
			if r := user.do("PUT", vmPath+"/100/config", c.key, c.value); r.code != http.StatusOK {
				t.Errorf("%s=%s with %v alone: %d %s", c.key, c.value, privs, r.code, r.raw)
			}
		}
	}
}

// TestPartlyRefusedChange says that a change is refused as a whole for a right that a plain key lacks, before anything is written.
func TestPartlyRefusedChange(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	root := inProcess(t, w)
	root.makeVM(100, "memory", "128")
	user := inProcess(t, w)
	user.token = "gitops@pve!ops=33333333-3333-4333-8333-333333333333"
	r := user.do("PUT", vmPath+"/100/config", "memory", "256", "args", "-no-reboot")
	if r.code != http.StatusInternalServerError || r.reason != "only root can set 'args' config" {
		t.Errorf("%d %s", r.code, r.reason)
	}
	if c := root.config(100, false); c["memory"] != "128" {
		t.Errorf("memory is %v", c["memory"])
	}
}
