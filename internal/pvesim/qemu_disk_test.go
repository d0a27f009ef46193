package pvesim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim"
)

// TestCreateFormLeaks says that sending "storage:size" over a live disk makes another volume each time, and destroys none: the ledger
// and unusedN show what a resend costs.
func TestCreateFormLeaks(t *testing.T) {
	for _, storage := range []string{"local-dir", "local-lvm"} {
		t.Run(storage, func(t *testing.T) {
			w := world(t, "lvmthin", pvesim.Options{})
			a := inProcess(t, w)
			a.makeVM(100, "scsi0", storage+":1")
			for range 3 {
				a.ok("PUT", vmPath+"/100/config", "scsi0", storage+":1")
			}
			made, gone := 0, 0
			for _, e := range w.LedgerEntries() {
				switch e.Op {
				case "create":
					made++
				case "destroy":
					gone++
				}
			}
			if made != 4 || gone != 0 {
				t.Errorf("%d volumes made and %d destroyed, want 4 and none", made, gone)
			}
			conf := a.config(100, false)
			for i := range 3 {
				if k := fmt.Sprintf("unused%d", i); !strings.Contains(fmt.Sprint(conf[k]), fmt.Sprintf("disk-%d", i)) {
					t.Errorf("%s is %v, want disk %d", k, conf[k], i)
				}
			}
			wantTask(t, a.task("DELETE", vmPath+"/100"), "OK")
			if left := a.ok("GET", "/nodes/pve01/storage/"+storage+"/content").([]any); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestVolumesOfDrives follows a volume through detaching, attaching and deleting.
func TestVolumesOfDrives(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100, "scsi0", "local-dir:1", "scsi1", "local-dir:2,discard=on,cache=writeback", "ide2", "local-dir:cloudinit")
	steps := []struct {
		what string
		put  []string
		want map[string]any
	}{
		{
			"options are replaced and sorted, the size is the volume's", []string{"scsi1", "local-dir:100/vm-100-disk-1.raw,ssd=1,backup=0,size=9G"},
			map[string]any{"scsi1": "local-dir:100/vm-100-disk-1.raw,backup=0,size=2G,ssd=1"},
		},
		{
			"a removed disk stays as unused", []string{"delete", "scsi1"},
			map[string]any{"scsi1": nil, "unused0": "local-dir:100/vm-100-disk-1.raw"},
		},
		{
			"attached again it is unused no more", []string{"sata0", "local-dir:100/vm-100-disk-1.raw"},
			map[string]any{"sata0": "local-dir:100/vm-100-disk-1.raw,size=2G", "unused0": nil},
		},
		{
			"a removed cloud-init drive is destroyed, and leaves the boot order", []string{"delete", "ide2"},
			map[string]any{"ide2": nil, "unused0": nil, "boot": "order=scsi0"},
		},
		{
			"a new CD drive can be booted from", []string{"ide2", "local:iso/seed.iso,media=cdrom"},
			map[string]any{"ide2": "local:iso/seed.iso,media=cdrom,size=350K", "boot": "order=scsi0;ide2"},
		},
		{"a new disk cannot", []string{"scsi2", "local-dir:1"}, map[string]any{"boot": "order=scsi0;ide2"}},
		{"an ejected image leaves an empty drive", []string{"ide2", "none"}, map[string]any{"ide2": "none,media=cdrom"}},
		{"a disk that is replaced by nothing is kept", []string{"sata0", "none"}, map[string]any{"unused0": "local-dir:100/vm-100-disk-1.raw"}},
		{"an unused volume is destroyed on request", []string{"delete", "unused0"}, map[string]any{"unused0": nil}},
	}
	for _, s := range steps {
		a.ok("PUT", vmPath+"/100/config", s.put...)
		conf := a.config(100, true)
		for k, v := range s.want {
			if conf[k] != v {
				t.Errorf("%s: %s is %v, want %v", s.what, k, conf[k], v)
			}
		}
	}
	if r := a.do("PUT", vmPath+"/100/config", "sata1", "local-dir:100/vm-100-disk-1.raw"); r.code != http.StatusInternalServerError {
		t.Errorf("attaching a destroyed volume answered %d %s", r.code, r.raw)
	}
}

// TestProtectionKeepsVolumes says that a protected VM loses neither itself nor a drive.
func TestProtectionKeepsVolumes(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	a := inProcess(t, w)
	a.makeVM(100, "scsi0", "local-dir:1", "protection", "1")
	for _, call := range [][]string{{"DELETE", vmPath + "/100"}, {"PUT", vmPath + "/100/config", "delete", "scsi0"}} {
		if r := a.do(call[0], call[1], call[2:]...); !strings.Contains(r.reason, "protection mode enabled") {
			t.Errorf("%v answered %d %s", call, r.code, r.reason)
		}
	}
	for _, e := range w.LedgerEntries() {
		if e.Op == "destroy" {
			t.Errorf("%s was destroyed", e.Volid)
		}
	}
}

// TestFailedCreateLeavesNothing says that a create which fails half way frees what it had made.
func TestFailedCreateLeavesNothing(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	a := inProcess(t, w)
	end := a.task("POST", vmPath, "vmid", "100", "ide0", "local-dir:1", "ide2", "local:iso/none.iso,media=cdrom")
	if !strings.Contains(end, "does not exist") {
		t.Fatalf("create ended %q", end)
	}
	if r := a.do("GET", vmPath+"/100/config"); r.code != http.StatusInternalServerError {
		t.Errorf("the VM is there: %s", r.raw)
	}
	balance := 0
	for _, e := range w.LedgerEntries() {
		balance += map[string]int{"create": 1, "destroy": -1}[e.Op]
	}
	if balance != 0 || len(w.LedgerEntries()) == 0 {
		t.Errorf("%d volumes left, ledger %v", balance, w.LedgerEntries())
	}
}

// TestDeletingATemplate says that linked clones keep their template's base image on a directory, and do not on LVM-thin, where they
// depend on nothing.
func TestDeletingATemplate(t *testing.T) {
	for storage, refused := range map[string]bool{"local-dir": true, "local-lvm": false} {
		t.Run(storage, func(t *testing.T) {
			a := inProcess(t, world(t, "lvmthin", pvesim.Options{}))
			a.makeVM(100, "name", "tpl", "scsi0", storage+":1", "ide2", storage+":cloudinit")
			wantTask(t, a.task("POST", vmPath+"/100/template"), "OK")
			wantTask(t, a.task("POST", vmPath+"/100/clone", "newid", "101"), "OK")
			end := a.task("DELETE", vmPath+"/100")
			if strings.Contains(end, "still in use by linked clone") != refused || !refused && end != "OK" {
				t.Fatalf("delete ended %q", end)
			}
			if refused { // nothing may be gone then, not even the cloud-init drive
				if c := a.config(100, true); c["scsi0"] == nil || c["ide2"] == nil {
					t.Errorf("the template is now %v", c)
				}
				n := len(a.ok("GET", "/nodes/pve01/storage/"+storage+"/content", "vmid", "100").([]any))
				if n != 2 {
					t.Errorf("%d volumes of the template left, want 2", n)
				}
				wantTask(t, a.task("DELETE", vmPath+"/101"), "OK")
				wantTask(t, a.task("DELETE", vmPath+"/100"), "OK")
				return
			}
			wantTask(t, a.task("POST", vmPath+"/101/status/start"), "OK")
		})
	}
}

// TestStrayVolumes says which volumes go with a VM: those its config names, all of its own only on request, never another's.
func TestStrayVolumes(t *testing.T) {
	for _, all := range []string{"0", "1"} {
		a := inProcess(t, world(t, "base", pvesim.Options{}))
		a.makeVM(100, "scsi0", "local-dir:1")
		a.makeVM(101, "scsi0", "local-dir:1")
		a.ok("POST", "/nodes/pve01/storage/local-dir/content", "vmid", "100", "filename", "vm-100-disk-7.raw", "size", "1M")
		a.ok("PUT", vmPath+"/100/config", "scsi5", "local-dir:101/vm-101-disk-0.raw")
		wantTask(t, a.task("DELETE", vmPath+"/100", "destroy-unreferenced-disks", all), "OK")
		left := map[string]int{}
		for _, vmid := range []string{"100", "101"} {
			left[vmid] = len(a.ok("GET", "/nodes/pve01/storage/local-dir/content", "vmid", vmid).([]any))
		}
		if want := map[string]int{"0": 1, "1": 0}[all]; left["100"] != want || left["101"] != 1 {
			t.Errorf("destroy-unreferenced-disks=%s left %v", all, left)
		}
	}
}
