package pvesim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim"
)

const vmPath = "/nodes/pve01/qemu"

// makeVM creates a VM with some keys.
func (a *api) makeVM(vmid int, form ...string) {
	a.t.Helper()
	wantTask(a.t, a.task("POST", vmPath, append([]string{"vmid", fmt.Sprint(vmid)}, form...)...), "OK")
}

// config is the config of a VM, with pending changes merged in, or the current one.
func (a *api) config(vmid int, current bool) map[string]any {
	a.t.Helper()
	path := fmt.Sprintf("%s/%d/config", vmPath, vmid)
	if current {
		return a.ok("GET", path, "current", "1").(map[string]any)
	}
	return a.ok("GET", path).(map[string]any)
}

// fill makes a VM's disks look as if a system had been installed on them.
func fill(w *pvesim.World, vmid int) {
	w.View(func(s *pvesim.State) {
		for _, v := range s.Volumes {
			if v.Owner == vmid {
				v.Used = 1 << 30
			}
		}
	})
}

// TestHotplugTable says of every kind of key whether a change reaches a running VM at once or waits for the next start.
func TestHotplugTable(t *testing.T) {
	const live, waits = true, false
	cases := []struct {
		name string
		vm   []string // keys of the VM before
		put  []string
		live bool
		err  string // the key at fault
	}{
		{"a name is only a label", nil, []string{"name", "b"}, live, ""},
		{"so are description, tags and onboot", nil, []string{"description", "d", "tags", "x", "onboot", "1"}, live, ""},
		{"protection and startup", nil, []string{"protection", "1", "startup", "order=1"}, live, ""},
		{"cloud-init settings go onto the drive later", nil, []string{"ciuser", "u", "ipconfig0", "ip=dhcp"}, live, ""},
		{"CPU weight and limit", nil, []string{"cpuunits", "50", "cpulimit", "1"}, live, ""},
		{"cores", nil, []string{"cores", "2"}, waits, ""},
		{"sockets", nil, []string{"sockets", "2"}, waits, ""},
		{"CPU type", nil, []string{"cpu", "host"}, waits, ""},
		{"memory without memory hotplug", nil, []string{"memory", "256"}, waits, ""},
		{"memory with it", []string{"hotplug", "memory", "numa", "1", "memory", "1024"}, []string{"memory", "2048"}, live, ""},
		{"vcpus without cpu hotplug", []string{"cores", "2", "vcpus", "1"}, []string{"vcpus", "2"}, waits, ""},
		{"vcpus with it", []string{"hotplug", "cpu", "cores", "2", "vcpus", "1"}, []string{"vcpus", "2"}, live, ""},
		{"more vcpus than there are cores", []string{"hotplug", "cpu", "cores", "2", "vcpus", "1"}, []string{"vcpus", "3"}, waits, "vcpus"},
		{"balloon target", []string{"memory", "1024", "balloon", "512"}, []string{"balloon", "256"}, live, ""},
		{"balloon device away", []string{"memory", "1024", "balloon", "512"}, []string{"balloon", "0"}, waits, ""},
		{"firmware", nil, []string{"bios", "ovmf"}, waits, ""},
		{"machine", nil, []string{"machine", "q35"}, waits, ""},
		{"boot order", nil, []string{"boot", "order=net0"}, waits, ""},
		{"guest agent", nil, []string{"agent", "1"}, waits, ""},
		{"guest agent in other words", []string{"agent", "1"}, []string{"agent", "enabled=1,fstrim_cloned_disks=1"}, live, ""},
		{"SCSI disk", nil, []string{"scsi1", "local-dir:1"}, live, ""},
		{"virtio disk", nil, []string{"virtio0", "local-dir:1"}, live, ""},
		{"SATA disk", nil, []string{"sata0", "local-dir:1"}, waits, ""},
		{"IDE disk", nil, []string{"ide0", "local-dir:1"}, waits, ""},
		{"disk without disk hotplug", []string{"hotplug", "network"}, []string{"scsi1", "local-dir:1"}, waits, ""},
		{"firmware variables", nil, []string{"efidisk0", "local-dir:1"}, waits, ""},
		{"NIC", nil, []string{"net1", "virtio,bridge=vmbr0"}, live, ""},
		{"NIC without network hotplug", []string{"hotplug", "disk"}, []string{"net1", "virtio,bridge=vmbr0"}, waits, ""},
		{"NIC on a bridge that is not there", nil, []string{"net1", "virtio,bridge=vmbr9"}, waits, "net1"},
		{"VLAN and link state of a NIC", nil, []string{"net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=5,link_down=1"}, live, ""},
		{"new MAC of a NIC that nobody lets go of", nil, []string{"net0", "virtio=BC:24:11:00:00:02,bridge=vmbr0"}, waits, "net0"},
		{"USB on an unknown system", nil, []string{"usb0", "spice"}, waits, ""},
		{"USB on Linux", []string{"ostype", "l26"}, []string{"usb0", "spice"}, live, ""},
		{"mounted ISO image", []string{"ide2", "none,media=cdrom"}, []string{"ide2", "local:iso/seed.iso,media=cdrom"}, live, ""},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := inProcess(t, world(t, "base", pvesim.Options{Seed: uint64(i)}))
			vm := append([]string{"scsi0", "local-dir:1", "net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"}, c.vm...)
			a.makeVM(100, vm...)
			wantTask(t, a.task("POST", vmPath+"/100/status/start"), "OK")
			before := a.config(100, true)
			r := a.do("PUT", vmPath+"/100/config", c.put...)
			if (r.code == http.StatusOK) != (c.err == "") || c.err != "" && !strings.Contains(r.Errors[c.err], "hotplug problem") {
				t.Fatalf("PUT answered %d %s, want a hotplug problem with %q", r.code, r.raw, c.err)
			}
			now, next := a.config(100, true), a.config(100, false)
			for j := 0; j < len(c.put); j += 2 {
				k := c.put[j]
				if next[k] == before[k] {
					t.Errorf("%s stays %v even after the next start", k, next[k])
				}
				if got := now[k] == next[k]; got != c.live {
					t.Errorf("%s: in force %v, wanted %v; running %v, to come %v", k, got, c.live, now[k], next[k])
				}
			}
			if c.put[0] == "bios" || c.err == "vcpus" || c.put[0] == "net1" && c.err != "" {
				return // these do not start without more
			}
			wantTask(t, a.task("POST", vmPath+"/100/status/stop"), "OK")
			wantTask(t, a.task("POST", vmPath+"/100/status/start"), "OK")
			for j := 0; j < len(c.put); j += 2 {
				if k := c.put[j]; a.config(100, true)[k] != next[k] {
					t.Errorf("%s = %v after a restart, want %v", k, a.config(100, true)[k], next[k])
				}
			}
		})
	}
}

// TestRevertAndCleanup says that a pending change goes when it is reverted, or when the current value is sent again.
func TestRevertAndCleanup(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100, "memory", "128")
	wantTask(t, a.task("POST", vmPath+"/100/status/start"), "OK")
	pending := func() string {
		var out []string
		for _, row := range a.ok("GET", vmPath+"/100/pending").([]any) {
			r := row.(map[string]any)
			if v, ok := r["pending"]; ok {
				out = append(out, fmt.Sprint(r["key"], "=", v))
			}
			if _, ok := r["delete"]; ok {
				out = append(out, fmt.Sprint("!", r["key"]))
			}
		}
		return strings.Join(out, " ")
	}
	want := func(text string) {
		t.Helper()
		if got := pending(); got != text {
			t.Errorf("pending is %q, want %q", got, text)
		}
	}
	a.ok("PUT", vmPath+"/100/config", "memory", "256", "cores", "2")
	want("memory=256 cores=2")
	a.ok("PUT", vmPath+"/100/config", "revert", "memory")
	want("cores=2")
	a.ok("PUT", vmPath+"/100/config", "memory", "256")
	a.ok("PUT", vmPath+"/100/config", "memory", "128")
	want("cores=2")
	a.ok("PUT", vmPath+"/100/config", "delete", "memory")
	want("!memory cores=2")
	a.ok("PUT", vmPath+"/100/config", "revert", "memory,cores")
	want("")
}

// TestUnplugNeedsASystem says that a NIC can only be taken from a running VM whose system lets go of it.
func TestUnplugNeedsASystem(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	a := inProcess(t, w)
	for vmid, installed := range map[int]bool{100: false, 101: true} {
		a.makeVM(vmid, "scsi0", "local-dir:1", "net0", "virtio,bridge=vmbr0")
		if installed {
			fill(w, vmid)
		}
		path := fmt.Sprintf("%s/%d", vmPath, vmid)
		wantTask(t, a.task("POST", path+"/status/start"), "OK")
		r := a.do("PUT", path+"/config", "delete", "net0")
		_, stays := a.config(vmid, true)["net0"]
		if (r.code == http.StatusOK) != installed || stays == installed {
			t.Errorf("installed=%v: %d %s, NIC still there: %v", installed, r.code, r.raw, stays)
		}
		if end := a.task("POST", path+"/status/shutdown", "timeout", "1"); (end == "OK") != installed {
			t.Errorf("installed=%v: shutdown ended %q", installed, end)
		}
	}
}

// TestStuckChangeIsReportedAgain says that a pending change which cannot be applied makes later changes fail too, though these are
// applied.
func TestStuckChangeIsReportedAgain(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100, "scsi0", "local-dir:1")
	volid, _, _ := strings.Cut(a.config(100, true)["scsi0"].(string), ",")
	a.ok("PUT", vmPath+"/100/config", "scsi1", volid)
	for _, put := range [][]string{{"delete", "scsi1", "force", "1"}, {"name", "later"}} {
		r := a.do("PUT", vmPath+"/100/config", put...)
		if r.code != http.StatusBadRequest || !strings.Contains(r.Errors["scsi1"], "still in use") {
			t.Errorf("%v: %d %s, want scsi1 to be refused", put, r.code, r.raw)
		}
	}
	if c := a.config(100, true); c["name"] != "later" || c["scsi1"] == nil {
		t.Errorf("config is %v, want the new name and scsi1 still there", c)
	}
}
