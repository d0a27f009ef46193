package pvesim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

// TestCloneInheritance says what a clone takes over from its source and what it draws anew.
func TestCloneInheritance(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100, "name", "src", "memory", "128", "scsi0", "local-dir:1,discard=on", "ide2", "local-dir:cloudinit", "ide3", "local:iso/seed.iso,media=cdrom",
		"net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=7", "tags", "a;b", "description", "text", "onboot", "1", "protection", "1", "ciuser", "u",
		"cipassword", "geheim", "smbios1", "uuid=d46a693f-e0c9-403e-a315-f988ec631658,manufacturer=ACME")
	a.ok("PUT", vmPath+"/100/config", "unused0", "local-dir:100/vm-100-disk-9.raw")
	src := a.config(100, true)
	wantTask(t, a.task("POST", vmPath+"/100/clone", "newid", "101"), "OK")
	wantTask(t, a.task("POST", vmPath+"/100/clone", "newid", "102", "name", "named", "description", "other"), "OK")
	c := a.config(101, true)
	for _, k := range []string{"memory", "tags", "description", "onboot", "protection", "ciuser", "cipassword", "ide3", "boot", "meta"} {
		if c[k] != src[k] {
			t.Errorf("%s is %v, want %v as in the source", k, c[k], src[k])
		}
	}
	for _, k := range []string{"net0", "smbios1", "vmgenid", "scsi0", "ide2"} {
		if c[k] == nil || c[k] == src[k] {
			t.Errorf("%s is %v, the same as in the source or nothing", k, c[k])
		}
	}
	for k, want := range map[string]string{
		"name": "Copy-of-VM-src", "scsi0": "local-dir:101/vm-101-disk-0.raw,discard=on,size=1G",
		"ide2": "local-dir:101/vm-101-cloudinit.qcow2,media=cdrom,size=4M",
	} {
		if c[k] != want {
			t.Errorf("%s is %v, want %s", k, c[k], want)
		}
	}
	if n := fmt.Sprint(c["net0"]); !strings.HasPrefix(n, "virtio=BC:24:11:") || !strings.HasSuffix(n, ",bridge=vmbr0,tag=7") {
		t.Errorf("net0 is %s", n)
	}
	if s := fmt.Sprint(c["smbios1"]); !strings.Contains(s, "manufacturer=ACME") {
		t.Errorf("smbios1 is %s", s)
	}
	if c["unused0"] != nil {
		t.Errorf("the unused volume was taken over: %v", c["unused0"])
	}
	if c := a.config(102, true); c["name"] != "named" || c["description"] != "other" {
		t.Errorf("name and description of the clone are %v and %v", c["name"], c["description"])
	}
}

// TestCloneKind says which clones are linked, and what cannot be asked of those.
func TestCloneKind(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100, "scsi0", "local-dir:1")
	a.makeVM(200, "scsi0", "local-dir:1")
	wantTask(t, a.task("POST", vmPath+"/200/template"), "OK")
	cases := []struct {
		source string
		form   []string
		disk   string // "" is a refusal
		says   string
	}{
		{"100", nil, "local-dir:300/vm-300-disk-0.raw", ""},
		{"100", []string{"full", "0"}, "", "Linked clone feature is not supported"},
		{"200", nil, "local-dir:200/base-200-disk-0.raw/300/vm-300-disk-0.qcow2", ""},
		{"200", []string{"full", "1"}, "local-dir:300/vm-300-disk-0.raw", ""},
		{"200", []string{"full", "1", "format", "qcow2"}, "local-dir:300/vm-300-disk-0.qcow2", ""},
		{"200", []string{"format", "qcow2"}, "", "parameter 'format' not allowed for linked clones"},
		{"200", []string{"storage", "local-dir"}, "", "parameter 'storage' not allowed for linked clones"},
		{"200", []string{"snapname", "none"}, "", "snapshot 'none' does not exist"},
		{"200", []string{"target", "nowhere"}, "", "no such cluster node"},
	}
	for _, c := range cases {
		form := append([]string{"newid", "300"}, c.form...)
		if c.disk == "" {
			if r := a.do("POST", vmPath+"/"+c.source+"/clone", form...); r.code != http.StatusInternalServerError || !strings.Contains(r.reason, c.says) {
				t.Errorf("clone of %s with %v: %d %s, want %q", c.source, c.form, r.code, r.reason, c.says)
			}
			continue
		}
		wantTask(t, a.task("POST", vmPath+"/"+c.source+"/clone", form...), "OK")
		if got := fmt.Sprint(a.config(300, true)["scsi0"]); !strings.HasPrefix(got, c.disk+",") {
			t.Errorf("clone of %s with %v has %s, want %s", c.source, c.form, got, c.disk)
		}
		wantTask(t, a.task("DELETE", vmPath+"/300"), "OK")
	}
}

// TestDigestGuardsChanges says that a change with the digest of an older config is refused and changes nothing.
func TestDigestGuardsChanges(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100, "scsi0", "local-dir:1")
	digest := fmt.Sprint(a.config(100, true)["digest"])
	a.ok("PUT", vmPath+"/100/config", "cores", "2", "digest", digest)
	for _, d := range []string{digest, "zz", strings.ToUpper(fmt.Sprint(a.config(100, true)["digest"]))} {
		for _, method := range []string{"PUT", "POST"} {
			r := a.do(method, vmPath+"/100/config", "cores", "3", "digest", d)
			if r.code != http.StatusInternalServerError || !strings.Contains(r.reason, "checksum mismatch") {
				t.Errorf("%s with digest %s: %d %s", method, d, r.code, r.reason)
			}
		}
	}
	if end := a.task("PUT", vmPath+"/100/resize", "disk", "scsi0", "size", "+1G", "digest", digest); !strings.Contains(end, "checksum mismatch") {
		t.Errorf("resize ended %q", end)
	}
	if c := a.config(100, true); c["cores"] != 2.0 || !strings.HasSuffix(fmt.Sprint(c["scsi0"]), "size=1G") {
		t.Errorf("config is %v", c)
	}
	for _, d := range []string{"", "0"} {
		a.ok("PUT", vmPath+"/100/config", "cores", "4", "digest", d)
	}
}

// TestLockedVM says which calls a locked VM refuses at once and which in their task; the lock itself is root's.
func TestLockedVM(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	a := inProcess(t, w)
	a.makeVM(100, "scsi0", "local-dir:1")
	w.View(func(s *pvesim.State) { s.Guests[100].Config["lock"] = "backup" })
	for _, call := range [][]string{
		{"PUT", "/config", "cores", "2"}, {"POST", "/config", "cores", "2"}, {"POST", "/clone", "newid", "101"}, {"POST", "/template"},
		{"POST", "/move_disk", "disk", "scsi0", "storage", "local-dir", "format", "qcow2"}, {"PUT", "/cloudinit"},
	} {
		if r := a.do(call[0], vmPath+"/100"+call[1], call[2:]...); r.code != http.StatusInternalServerError || r.reason != "VM is locked (backup)" {
			t.Errorf("%v: %d %s", call, r.code, r.reason)
		}
	}
	for _, call := range [][]string{
		{"POST", "/status/start"}, {"DELETE", ""}, {"PUT", "/resize", "disk", "scsi0", "size", "2G"}, {"POST", "/snapshot", "snapname", "s1"},
	} {
		if end := a.task(call[0], vmPath+"/100"+call[1], call[2:]...); end != "VM is locked (backup)" {
			t.Errorf("%v ended %q", call, end)
		}
	}
	if r := a.do("PUT", vmPath+"/100/config", "delete", "lock"); r.code != http.StatusInternalServerError || !strings.Contains(r.reason, "only root can") {
		t.Errorf("a token took the lock away: %d %s", r.code, r.reason)
	}
	if r := a.do("PUT", vmPath+"/100/config", "cores", "2", "skiplock", "1"); r.code != http.StatusBadRequest {
		t.Errorf("a token passed the lock: %d %s", r.code, r.reason)
	}
}

// TestSlowWorkHoldsTheConfig says that a change waits ten seconds for work on the same VM, and then gives up.
func TestSlowWorkHoldsTheConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, "base", pvesim.Options{TimeScale: 1})
		defer w.Stop()
		a := inProcess(t, w)
		a.makeVM(100, "scsi0", "local-dir:1")
		w.View(func(s *pvesim.State) {
			for _, v := range s.Volumes {
				if v.Owner == 100 {
					v.Size = 100 << 30 // some minutes of copying
				}
			}
		})
		a.ok("POST", vmPath+"/100/move_disk", "disk", "scsi0", "storage", "local-dir", "format", "qcow2")
		time.Sleep(time.Second)
		start := time.Now()
		r := a.do("PUT", vmPath+"/100/config", "cores", "2")
		if took := time.Since(start); took != 10*time.Second || !strings.Contains(r.reason, "got timeout") {
			t.Errorf("%d %s after %s", r.code, r.reason, took)
		}
		if r := a.do("GET", vmPath+"/100/config"); r.code != http.StatusOK {
			t.Errorf("reading the config: %d %s", r.code, r.reason)
		}
	})
}

// TestRollback says that a rollback brings the config and the disks back, keeps what was added since as unused, and the description.
func TestRollback(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100, "cores", "1", "description", "before", "scsi0", "local-dir:1,format=qcow2")
	wantTask(t, a.task("POST", vmPath+"/100/snapshot", "snapname", "s1"), "OK")
	a.ok("PUT", vmPath+"/100/config", "cores", "4", "description", "after", "scsi1", "local-dir:1,format=qcow2")
	wantTask(t, a.task("POST", vmPath+"/100/snapshot", "snapname", "s2"), "OK")
	if end := a.task("POST", vmPath+"/100/snapshot", "snapname", "s2"); !strings.Contains(end, "already used") {
		t.Errorf("a second snapshot of one name ended %q", end)
	}
	wantTask(t, a.task("POST", vmPath+"/100/snapshot/s1/rollback"), "OK")
	c := a.config(100, true)
	for k, want := range map[string]any{
		"cores": 1.0, "description": "after", "scsi1": nil, "unused0": "local-dir:100/vm-100-disk-1.qcow2", "parent": "s1",
	} {
		if c[k] != want {
			t.Errorf("%s is %v, want %v", k, c[k], want)
		}
	}
	if r := a.do("PUT", vmPath+"/100/config", "delete", "unused0"); !strings.Contains(r.reason, "still in use (snapshot?)") {
		t.Errorf("deleting a volume that a snapshot holds: %d %s", r.code, r.reason)
	}
	if r := a.do("POST", vmPath+"/100/template"); !strings.Contains(r.reason, "contains snapshots") {
		t.Errorf("template of a VM with snapshots: %d %s", r.code, r.reason)
	}
	for _, s := range []string{"s2", "s1"} {
		wantTask(t, a.task("DELETE", vmPath+"/100/snapshot/"+s), "OK")
	}
	a.ok("PUT", vmPath+"/100/config", "delete", "unused0")
	a.makeVM(101, "scsi0", "local-dir:1")
	if end := a.task("POST", vmPath+"/101/snapshot", "snapname", "s9"); end != "snapshot feature is not available" {
		t.Errorf("snapshot of a raw file ended %q", end)
	}
}

// cluster is a world of two nodes with a shared storage.
func cluster(t *testing.T) *pvesim.World {
	t.Helper()
	s, err := pvesim.Recorded("base")
	if err != nil {
		t.Fatal(err)
	}
	s.ClusterName = "test"
	s.Nodes[0].ID = 1
	s.Nodes = append(s.Nodes, &pvesim.Node{Name: "pve02", ID: 2, IP: "192.0.2.12", CPUs: 2, Memory: 8 << 30, Bridges: []string{"vmbr0"}})
	s.Storages = append(s.Storages,
		&pvesim.Storage{ID: "nas", Type: "nfs", Shared: true, Content: []string{"images", "iso"}, Props: map[string]string{"path": "/mnt/pve/nas"}},
		&pvesim.Storage{ID: "only1", Type: "dir", Nodes: []string{"pve01"}, Content: []string{"images"}, Props: map[string]string{"path": "/only1"}})
	w := pvesim.New(pvesim.Options{}, s)
	t.Cleanup(w.Stop)
	return w
}

// TestMigration says what moves between nodes: shared volumes stay where they are, local ones are carried, for a running VM only on
// request; local CD images and devices and storages that the target lacks hold a VM back.
func TestMigration(t *testing.T) {
	cases := []struct {
		name    string
		vm      []string
		running bool
		form    []string
		refused string // at once
		end     string // of the task
		disk    string
	}{
		{name: "shared, stopped", vm: []string{"scsi0", "nas:1"}, end: "OK", disk: "nas:100/vm-100-disk-0.raw"},
		{name: "shared, running", vm: []string{"scsi0", "nas:1"}, running: true, form: []string{"online", "1"}, end: "OK"},
		{name: "running without online", vm: []string{"scsi0", "nas:1"}, running: true, refused: "can't migrate running VM without --online"},
		{name: "local, stopped", vm: []string{"scsi0", "local-dir:1"}, end: "OK", disk: "local-dir:100/vm-100-disk-0.raw"},
		{name: "local, running", vm: []string{"scsi0", "local-dir:1"}, running: true, form: []string{"online", "1"}, end: "without with-local-disks"},
		{name: "local, running, on request", vm: []string{"scsi0", "local-dir:1"}, running: true, form: []string{"online", "1", "with-local-disks", "1"}, end: "OK"},
		{name: "local image in a drive", vm: []string{"ide2", "local:iso/seed.iso,media=cdrom"}, end: "local cdrom"},
		{name: "storage that the target lacks", vm: []string{"scsi0", "only1:1"}, refused: "not available on node 'pve02'"},
		{name: "to another storage", vm: []string{"scsi0", "only1:1"}, form: []string{"targetstorage", "local-dir"}, end: "OK", disk: "local-dir:100/"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := cluster(t)
			a := inProcess(t, w)
			a.makeVM(100, c.vm...)
			if c.running {
				wantTask(t, a.task("POST", vmPath+"/100/status/start"), "OK")
			}
			form := append([]string{"target", "pve02"}, c.form...)
			if c.refused != "" {
				if r := a.do("POST", vmPath+"/100/migrate", form...); !strings.Contains(r.reason, c.refused) {
					t.Errorf("%d %s, want %q", r.code, r.reason, c.refused)
				}
				return
			}
			end := a.task("POST", vmPath+"/100/migrate", form...)
			node := "pve02"
			if c.end != "OK" {
				node = "pve01"
			}
			if !strings.Contains(end, c.end) {
				t.Errorf("ended %q, want %q", end, c.end)
			}
			conf := a.ok("GET", "/nodes/"+node+"/qemu/100/config").(map[string]any)
			if !strings.HasPrefix(fmt.Sprint(conf["scsi0"]), c.disk) {
				t.Errorf("scsi0 is %v, want %s", conf["scsi0"], c.disk)
			}
			if end != "OK" {
				return
			}
			if r := a.do("GET", vmPath+"/100/config"); !strings.Contains(r.reason, "does not exist") {
				t.Errorf("the VM is still on its old node: %d %s", r.code, r.reason)
			}
			status := a.ok("GET", "/nodes/pve02/qemu/100/status/current").(map[string]any)["status"]
			if (status == "running") != c.running {
				t.Errorf("status is %v", status)
			}
			volid, _, _ := strings.Cut(fmt.Sprint(conf["scsi0"]), ",")
			w.View(func(s *pvesim.State) {
				for _, v := range s.Volumes {
					if v.ID == volid && v.Node != "pve02" && v.Node != "" {
						t.Errorf("%s is on %q", volid, v.Node)
					}
				}
			})
		})
	}
}

// TestPasswordsAreHashedOnChange says that a create keeps a cloud-init password as sent and a change hashes it, the mask included,
// which is never recognised.
func TestPasswordsAreHashedOnChange(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	a := inProcess(t, w)
	stored := func() (p string) {
		w.View(func(s *pvesim.State) { p = s.Guests[100].Config["cipassword"] })
		return p
	}
	a.makeVM(100, "cipassword", "first")
	if stored() != "first" {
		t.Errorf("create stored %q", stored())
	}
	mask := fmt.Sprint(a.config(100, true)["cipassword"])
	a.ok("PUT", vmPath+"/100/config", "cipassword", mask)
	if p := stored(); !strings.HasPrefix(p, "$5$") {
		t.Errorf("change stored %q", p)
	}
	a.ok("PUT", vmPath+"/100/config", "cipassword", "$6$salt$hash")
	if stored() != "$6$salt$hash" {
		t.Errorf("a hash was stored as %q", stored())
	}
	if p := a.config(100, true)["cipassword"]; p != "**********" {
		t.Errorf("read back as %v", p)
	}
}

// TestOverruledShutdown: a guest whose system does not react is locked by its shutdown until that times out; a stop waits for the lock
// in vain unless it ends the shutdown, which only who may stop that task can.
func TestOverruledShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := inProcess(t, world(t, "base", pvesim.Options{TimeScale: 1}))
		a.makeVM(100)
		wantTask(t, a.task("POST", vmPath+"/100/status/start"), "OK")
		shutdown := a.ok("POST", vmPath+"/100/status/shutdown", "timeout", "300").(string)
		end := func() any {
			return a.ok("GET", "/nodes/pve01/tasks/"+shutdown+"/status").(map[string]any)["exitstatus"]
		}
		stop := vmPath + "/100/status/stop"
		if got := a.task("POST", stop); !strings.Contains(got, "got timeout") {
			t.Errorf("a stop beside a shutdown ended %q", got)
		}
		other := a.bearer(gitopsToken)
		if got := other.task("POST", stop, "overrule-shutdown", "1"); !strings.Contains(got, "got timeout") || end() != nil {
			t.Errorf("a stop by another ended %q, the shutdown %v", got, end())
		}
		wantTask(t, a.task("POST", stop, "overrule-shutdown", "1"), "OK")
		if end() != "received interrupt" {
			t.Errorf("the shutdown ended %v", end())
		}
	})
}

// TestIntelIOMMUNeedsQ35: a change to Intel's IOMMU on another chipset is refused; a VM created with it does not start.
func TestIntelIOMMUNeedsQ35(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	const want = "to use Intel vIOMMU please set the machine type to q35"
	a.makeVM(100)
	for _, machine := range []string{"viommu=intel", "pc,viommu=intel", "pc-i440fx-9.0,viommu=intel"} {
		a.want(http.StatusInternalServerError, want, "PUT", vmPath+"/100/config", "machine", machine)
	}
	for _, machine := range []string{"q35,viommu=intel", "pc-q35-9.0,viommu=intel", "pc,viommu=virtio", "pc"} {
		a.ok("PUT", vmPath+"/100/config", "machine", machine)
	}
	a.makeVM(101, "machine", "pc,viommu=intel")
	wantTask(t, a.task("POST", vmPath+"/101/status/start"), want)
}
