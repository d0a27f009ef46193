package pvesim_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

const (
	gitopsToken = "gitops@pve!ops=33333333-3333-4333-8333-333333333333"
	ct          = "/nodes/pve01/lxc"
	template    = "local:vztmpl/debian-13-tiny_13.1-1_amd64.tar.gz"
)

// step is a call and what must come of it: code 0 is 200; says is a part of the answer; task, when not "", what the task it started ends
// with (a part); config, when not nil, what the config of ct/100 must hold then, "" for keys that must not be there.
type step struct {
	call   string
	form   []string
	who    string
	code   int
	says   string
	task   string
	config map[string]string
}

func run(t *testing.T, a *api, steps []step) {
	t.Helper()
	for _, s := range steps {
		method, path, _ := strings.Cut(s.call, " ")
		if s.code == 0 {
			s.code = 200
		}
		caller := *a
		if s.who != "" {
			caller.token = s.who
		}
		if s.task != "" {
			if got := caller.task(method, path, s.form...); !strings.Contains(got, s.task) {
				t.Errorf("%s %v: task ended %q, want %q", s.call, s.form, got, s.task)
			}
		} else if r := caller.do(method, path, s.form...); r.code != s.code || !strings.Contains(r.raw, s.says) {
			t.Errorf("%s %v: %d %s, want %d %s", s.call, s.form, r.code, r.raw, s.code, s.says)
		}
		if s.config == nil {
			continue
		}
		conf := a.ok("GET", ct+"/100/config").(map[string]any)
		for k, want := range s.config {
			got := ""
			if v, ok := conf[k]; ok {
				got = fmt.Sprint(v)
			}
			if got != want {
				t.Errorf("%s %v: %s is %q, want %q", s.call, s.form, k, got, want)
			}
		}
	}
}

// newCT makes a world with one container of 1 GiB, 100.
func newCT(t *testing.T, variant string, form ...string) (*pvesim.World, *api) {
	t.Helper()
	w := world(t, variant, pvesim.Options{Seed: 3})
	a := inProcess(t, w)
	storage := "local-dir"
	if variant == "lvmthin" {
		storage = "local-lvm"
	}
	wantTask(t, a.task("POST", ct, append([]string{"vmid", "100", "ostemplate", template, "rootfs", storage + ":1"}, form...)...), "OK")
	return w, a
}

func TestContainerCreate(t *testing.T) {
	make100 := func(form ...string) []string {
		return append([]string{"vmid", "100", "ostemplate", template}, form...)
	}
	tests := []struct {
		name string
		step step
	}{
		{"defaults", step{form: make100("rootfs", "local-dir:0.1"), task: "OK", config: map[string]string{
			"rootfs": "local-dir:100/vm-100-disk-0.raw,size=102M", "hostname": "CT100", "arch": "amd64", "ostype": "debian", "memory": "512", "swap": "512", "unprivileged": "1",
		}}},
		{"four GiB on a storage that is only named", step{form: make100("storage", "local-dir"), task: "OK", config: map[string]string{"rootfs": "local-dir:100/vm-100-disk-0.raw,size=4G"}}},
		{"a bare size is no volume to anybody but root's ticket", step{form: make100("storage", "local-dir", "rootfs", "0.5"), code: 500, says: "Only root can pass"}},
		{"no size is a directory", step{form: make100("rootfs", "local-dir:0"), task: "OK", config: map[string]string{"rootfs": "local-dir:100/subvol-100-disk-0.subvol,size=0T"}}},
		{"the default storage has no containers", step{form: make100(), code: 400, says: "does not support container directories"}},
		{"sizes have no units", step{form: make100("rootfs", "local-dir:1G"), code: 500, says: "unable to parse directory volume name '1G'"}},
		{"mount points want a root", step{form: make100("storage", "local-dir", "mp0", "local-dir:1,mp=/a"), code: 500, says: "'rootfs' not set"}},
		{"a template is needed", step{form: []string{"vmid", "100", "rootfs", "local-dir:1"}, code: 400, says: "ostemplate"}},
		{"and must be one", step{form: []string{"vmid", "100", "rootfs", "local-dir:1", "ostemplate", "local:iso/seed.iso"}, code: 500, says: "content type needs to be 'vztmpl'"}},
		{"an absent one fails in the task", step{form: []string{"vmid", "100", "rootfs", "local-dir:1", "ostemplate", "local:vztmpl/no.tar.gz"}, task: "does not exist"}},
		{"ssh keys are plain text", step{form: make100("rootfs", "local-dir:1", "ssh-public-keys", "ssh-ed25519%20AAAA"), code: 500, says: "SSH public key validation error"}},
		{"addresses are joined with blanks, tags sorted, NICs completed", step{
			form: make100("rootfs", "local-dir:1", "nameserver", "192.0.2.1,192.0.2.2", "tags", "B;a b", "net0", "name=eth0,hwaddr=BC:24:11:00:00:01,bridge=vmbr0"), task: "OK",
			config: map[string]string{"nameserver": "192.0.2.1 192.0.2.2", "tags": "a;b", "net0": "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,type=veth"},
		}},
		{"privileged is for Sys.Modify", step{who: gitopsToken, form: make100("rootfs", "local-dir:1", "unprivileged", "0"), code: 403, says: "/, Sys.Modify"}},
		{"keyctl is for root's ticket", step{form: make100("rootfs", "local-dir:1", "features", "keyctl=1"), code: 403, says: "except nesting"}},
		{"nesting is not", step{form: make100("rootfs", "local-dir:1", "features", "nesting=1"), task: "OK", config: map[string]string{"features": "nesting=1"}}},
		{"except in privileged ones", step{form: make100("rootfs", "local-dir:1", "features", "nesting=1", "unprivileged", "0"), code: 403, says: "privileged container"}},
		{"bind mounts are for root's ticket", step{form: make100("rootfs", "local-dir:1", "mp0", "/srv,mp=/srv"), code: 403, says: "mount point type bind"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := world(t, "base", pvesim.Options{Seed: 3})
			a := inProcess(t, w)
			tt.step.call = "POST " + ct
			run(t, a, []step{tt.step})
			if tt.step.task != "OK" { // whatever failed leaves nothing behind
				if n := len(a.ok("GET", "/nodes/pve01/storage/local-dir/content").([]any)); n != 0 {
					t.Errorf("%d volumes are left", n)
				}
				if r := a.do("GET", ct+"/100/config"); r.code == 200 {
					t.Error("the container is there")
				}
			}
		})
	}
}

func TestContainerConfig(t *testing.T) {
	_, a := newCT(t, "base")
	put := "PUT " + ct + "/100/config"
	const disk = "local-dir:100/vm-100-disk-"
	run(t, a, []step{
		{call: put, code: 500, says: "no options specified"},
		{call: put, form: []string{"memory", "600", "digest", strings.Repeat("a", 40)}, code: 500, says: "detected modified configuration"},
		{call: put, form: []string{"unprivileged", "1"}, code: 500, says: "read-only option"},
		{call: put, form: []string{"delete", "memory"}, code: 500, says: "required option"},
		{call: put, form: []string{"delete", "nosuch", "cores", "2"}, code: 400, says: "unknown option", config: map[string]string{"cores": ""}},
		{call: put, form: []string{"delete", "cores", "cores", "2"}, code: 400, says: "at the same time"},
		{call: put, form: []string{"delete", "onboot"}},
		{call: put, form: []string{"description", "a\nb\n"}, config: map[string]string{"description": "a\nb\n"}},
		{call: put, form: []string{"description", ""}, config: map[string]string{"description": ""}},
		{call: put, form: []string{"tags", ""}, config: map[string]string{"tags": " "}},
		// the create form makes a volume every time it is sent; what it replaces is kept as unused
		{call: put, form: []string{"mp0", "local-dir:0.1,mp=/d"}, config: map[string]string{"mp0": disk + "1.raw,mp=/d,size=102M"}},
		{call: put, form: []string{"mp0", "local-dir:0.1,mp=/d"}, config: map[string]string{"mp0": disk + "2.raw,mp=/d,size=102M", "unused0": disk + "1.raw"}},
		{call: put, form: []string{"mp0", disk + "2.raw,mp=/e"}, config: map[string]string{"mp0": disk + "2.raw,mp=/e,size=102M"}},
		{call: put, form: []string{"mp1", disk + "1.raw,mp=/f"}, config: map[string]string{"mp1": disk + "1.raw,mp=/f,size=102M", "unused0": ""}},
		{call: put, form: []string{"delete", "mp1"}, config: map[string]string{"mp1": "", "unused0": disk + "1.raw"}},
		{call: put, form: []string{"protection", "1"}},
		{call: put, form: []string{"delete", "unused0"}, code: 500, says: "protection mode"},
		{call: put, form: []string{"delete", "protection"}},
		{call: put, form: []string{"delete", "unused0"}, config: map[string]string{"unused0": ""}},
		{call: "GET /nodes/pve01/storage/local-dir/content/" + disk + "1.raw", code: 500, says: "no format"},
		{call: put, form: []string{"mp2", "local:1,mp=/x"}, code: 500, says: "content type 'rootdir'"},
		{call: put, form: []string{"net0", "name=eth0,bridge=vmbr0,mtu=9000"}, code: 500, says: "bigger than bridge MTU"},
		{call: put, form: []string{"lock", "backup"}},
		{call: put, form: []string{"cores", "1"}, code: 500, says: "CT is locked (backup)"},
	})
}

// A rootfs in create form is stored as it is, and the container neither starts nor can be deleted until it is put right.
func TestContainerBrokenRoot(t *testing.T) {
	_, a := newCT(t, "base")
	run(t, a, []step{
		{call: "PUT " + ct + "/100/config", form: []string{"rootfs", "local-dir:2"}, config: map[string]string{"rootfs": "local-dir:2"}},
		{call: "POST " + ct + "/100/status/start", task: "unable to parse directory volume name '2'"},
		{call: "DELETE " + ct + "/100", task: "unable to parse directory volume name '2'"},
		{call: "PUT " + ct + "/100/config", form: []string{"rootfs", "local-dir:100/vm-100-disk-0.raw"}},
		{call: "POST " + ct + "/100/status/start", task: "OK"},
	})
}

func TestContainerFeaturesOfToken(t *testing.T) {
	w, a := newCT(t, "base")
	w.View(func(s *pvesim.State) { s.Guests[100].Config["features"] = "nesting=1,keyctl=1" })
	put := "PUT " + ct + "/100/config"
	run(t, a, []step{
		{call: put, form: []string{"features", "nesting=1"}, code: 403, says: "except nesting"},
		{call: put, form: []string{"delete", "features"}, code: 403, says: "except nesting"},
		{call: put, form: []string{"features", "keyctl=1,nesting=1"}, config: map[string]string{"features": "keyctl=1,nesting=1"}},
		{call: put, form: []string{"features", "keyctl=1"}, config: map[string]string{"features": "keyctl=1"}},
	})
}

func TestContainerRunning(t *testing.T) {
	w, a := newCT(t, "base", "net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01")
	put := "PUT " + ct + "/100/config"
	run(t, a, []step{
		{call: "POST " + ct + "/100/status/stop", code: 500, says: "CT 100 not running"},
		{call: "POST " + ct + "/100/status/start", task: "OK"},
		{call: "POST " + ct + "/100/status/start", code: 500, says: "already running"},
		{call: "DELETE " + ct + "/100", code: 500, says: "container is running"},
		{call: "POST " + ct + "/100/template", code: 500, says: "if the CT is running"},
		{call: "POST " + ct + "/100/clone", form: []string{"newid", "101"}, code: 500, says: "only possible from a snapshot"},
		{call: "POST " + ct + "/100/move_volume", form: []string{"volume", "rootfs", "storage", "local-dir"}, code: 500, says: "running container"},
		{call: put, form: []string{"memory", "700", "features", "nesting=1"}, config: map[string]string{"memory": "700", "features": "nesting=1"}},
		{call: "GET " + ct + "/100/config?current=1", says: `"memory":700`},
		{call: "GET " + ct + "/100/pending", says: `{"key":"features","pending":"nesting=1"}`},
		{call: put, form: []string{"revert", "features"}, config: map[string]string{"features": ""}},
		{call: put, form: []string{"tty", "1"}},
		// a new NIC that cannot be plugged leaves the container without the old one
		{call: put, form: []string{"net0", "name=eth0,bridge=nosuch"}, code: 400, says: "unable to hotplug net0"},
		{call: put, form: []string{"net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:02"}},
		{call: "POST " + ct + "/100/status/reboot", task: "OK"},
		{call: "GET " + ct + "/100/config?current=1", says: `"tty":1`},
		{call: "DELETE " + ct + "/100", form: []string{"force", "1"}, task: "OK"},
	})
	if n := len(w.LedgerEntries()); n != 2 {
		t.Errorf("%d ledger entries, want the volume's creation and its end", n)
	}
}

func TestContainerResize(t *testing.T) {
	_, a := newCT(t, "lvmthin")
	put := "PUT " + ct + "/100/resize"
	run(t, a, []step{
		{call: put, form: []string{"disk", "rootfs", "size", "512M"}, code: 500, says: "unable to shrink"},
		{call: put, form: []string{"disk", "rootfs", "size", "1G"}, code: 500, says: "already at specified size"},
		{call: put, form: []string{"disk", "mp0", "size", "1G"}, code: 500, says: "format error"},
		{call: put, form: []string{"disk", "rootfs", "size", "+100M"}, task: "OK", config: map[string]string{"rootfs": "local-lvm:vm-100-disk-0,size=1124M"}},
		{call: put, form: []string{"disk", "rootfs", "size", "+1M"}, task: "OK", config: map[string]string{"rootfs": "local-lvm:vm-100-disk-0,size=1125M"}},
		{call: "GET /nodes/pve01/storage/local-lvm/content", says: `"size":1182793728`}, // extents of 4 MiB
	})
}

func TestContainerClonesAndTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := newCT(t, "lvmthin", "mp0", "local-lvm:1,mp=/d", "tags", "x", "description", "d", "onboot", "1", "net0", "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01")
		clone := "POST " + ct + "/100/clone"
		run(t, a, []step{
			{call: clone, form: []string{"newid", "100"}, code: 500, says: "CT 100 already exists"},
			{call: clone, form: []string{"newid", "101", "full", "0"}, code: 500, says: "Linked clone feature"},
			{call: clone, form: []string{"newid", "101", "target", "nosuch"}, code: 500, says: "no such cluster node"},
			{call: clone, form: []string{"newid", "101", "hostname", "copy"}, task: "OK"},
			{call: "POST " + ct + "/100/template", says: `"data":null`},
		})
		time.Sleep(time.Second)
		run(t, a, []step{
			{call: "GET " + ct + "/100/config", says: `"template":1`, config: map[string]string{"rootfs": "local-lvm:base-100-disk-0,size=1G"}},
			{call: "POST " + ct + "/100/template", code: 500, says: "template to a template"},
			{call: "POST " + ct + "/100/status/start", task: "if it's a template"},
			{call: clone, form: []string{"newid", "102", "storage", "local-dir"}, code: 500, says: "not allowed for linked clones"},
			{call: clone, form: []string{"newid", "102"}, task: "OK"},
			{call: "DELETE " + ct + "/100", task: "OK"}, // LVM-thin clones do not need their origin
		})
		c := a.ok("GET", ct+"/102/config").(map[string]any)
		for k, want := range map[string]any{"tags": "x", "description": "d\n", "onboot": 1.0, "mp0": "local-lvm:vm-102-disk-0,mp=/d,size=1G", "rootfs": "local-lvm:vm-102-disk-1,size=1G"} {
			if c[k] != want {
				t.Errorf("clone: %s is %v, want %v", k, c[k], want)
			}
		}
		if strings.Contains(c["net0"].(string), "BC:24:11:00:00:01") || c["template"] != nil {
			t.Errorf("clone: %v", c)
		}
	})
}

// On a directory a template is made while its caller has the answer already, and linked clones are not to be had.
func TestContainerTemplateOnDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := newCT(t, "base")
		run(t, a, []step{{call: "POST " + ct + "/100/template", says: `"data":null`, config: map[string]string{"template": ""}}})
		time.Sleep(time.Second)
		run(t, a, []step{
			{call: "GET " + ct + "/100/config", config: map[string]string{"template": "1", "rootfs": "local-dir:100/base-100-disk-0.raw,size=1G"}},
			{call: "POST " + ct + "/100/clone", form: []string{"newid", "101"}, code: 500, says: "not available"},
			{call: "POST " + ct + "/100/clone", form: []string{"newid", "101", "full", "1"}, task: "OK"},
			{call: "PUT " + ct + "/100/config", form: []string{"delete", "template"}, config: map[string]string{"template": "", "rootfs": "local-dir:100/base-100-disk-0.raw,size=1G"}},
		})
	})
}

func TestContainerSnapshots(t *testing.T) {
	_, a := newCT(t, "lvmthin", "description", "then")
	snap := ct + "/100/snapshot"
	run(t, a, []step{
		{call: "POST " + snap, form: []string{"snapname", "current"}, code: 500, says: "reserved name"},
		{call: "POST " + snap, form: []string{"snapname", "s1", "description", "first"}, task: "OK", config: map[string]string{"parent": "s1"}},
		{call: "POST " + snap, form: []string{"snapname", "s1"}, task: "already used"},
		{call: "POST " + ct + "/100/template", code: 500, says: "contains snapshots"},
		{call: "PUT " + ct + "/100/config", form: []string{"memory", "900", "description", "now", "mp0", "local-lvm:1,mp=/d"}},
		{call: "POST " + snap, form: []string{"snapname", "s2"}, task: "OK"},
		{call: "GET " + snap, says: `"parent":"s1"`},
		{call: "GET " + snap + "/s1/config", says: `"memory":512`},
		{call: "POST " + snap + "/s1/rollback", task: "OK", config: map[string]string{
			"memory": "512", "description": "now\n", "mp0": "", "parent": "s1",
		}},
		{call: "DELETE " + snap + "/s1", task: "OK", config: map[string]string{"parent": ""}},
		{call: "DELETE " + snap + "/s1", task: "does not exist"},
	})
	_, b := newCT(t, "base")
	run(t, b, []step{{call: "POST " + snap, form: []string{"snapname", "s1"}, task: "snapshot feature is not available"}})
}
