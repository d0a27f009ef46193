package pvesim_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

// rowOf is a guest's row in /cluster/resources, nil for none.
func rowOf(a *api, id string) map[string]any {
	for _, r := range a.ok("GET", "/cluster/resources").([]any) {
		if row := r.(map[string]any); row["id"] == id {
			return row
		}
	}
	return nil
}

// /cluster/resources is told by pvestatd every ten seconds: a new guest is only a place at first, and a renamed one keeps its old name.
func TestResourcesLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, "base", pvesim.Options{Seed: 3, StatLag: 10 * time.Second})
		a := inProcess(t, w)
		wantTask(t, a.task("POST", "/nodes/pve01/qemu", "vmid", "100", "name", "one", "tags", "x"), "OK")
		if r := rowOf(a, "qemu/100"); r["status"] != "unknown" || r["name"] != nil || r["tags"] != nil || r["template"] != nil {
			t.Errorf("a new guest is shown as %v", r)
		}
		time.Sleep(11 * time.Second)
		if r := rowOf(a, "qemu/100"); r["name"] != "one" || r["tags"] != "x" || r["status"] != "stopped" {
			t.Errorf("after a while it is shown as %v", r)
		}
		a.ok("PUT", "/nodes/pve01/qemu/100/config", "name", "two")
		if r := rowOf(a, "qemu/100"); r["name"] != "one" {
			t.Errorf("a renamed guest is shown as %v", r)
		}
		if c := a.ok("GET", "/nodes/pve01/qemu/100/config").(map[string]any); c["name"] != "two" {
			t.Errorf("the config must be new at once: %v", c)
		}
		time.Sleep(11 * time.Second)
		if r := rowOf(a, "qemu/100"); r["name"] != "two" {
			t.Errorf("after a while it is shown as %v", r)
		}
	})
}

func TestResourcesByRight(t *testing.T) {
	w := world(t, "base", pvesim.Options{Seed: 3})
	a := inProcess(t, w)
	for _, id := range []string{"100", "101", "102"} {
		wantTask(t, a.task("POST", "/nodes/pve01/qemu", "vmid", id), "OK")
	}
	a.ok("POST", "/access/users", "userid", "u@pve", "password", "secret123")
	a.ok("POST", "/access/users/u@pve/token/tok", "privsep", "0")
	var secret string
	w.View(func(s *pvesim.State) { secret = s.Access.Users["u@pve"].Tokens["tok"].Secret })
	u := *a
	u.token = "u@pve!tok=" + secret
	seen := func() (ids []string) {
		for _, r := range u.ok("GET", "/cluster/resources", "type", "vm").([]any) {
			ids = append(ids, r.(map[string]any)["id"].(string))
		}
		return ids
	}
	if got := seen(); len(got) != 0 {
		t.Errorf("without rights %q is seen", got)
	}
	a.ok("PUT", "/access/acl", "path", "/vms/101", "users", "u@pve", "roles", "PVEAuditor")
	if got := seen(); fmt.Sprint(got) != "[qemu/101]" {
		t.Errorf("with a right on 101 %q is seen", got)
	}
	a.ok("POST", "/pools", "poolid", "p")
	a.ok("PUT", "/pools", "poolid", "p", "vms", "102")
	a.ok("PUT", "/access/acl", "path", "/pool/p", "users", "u@pve", "roles", "PVEAuditor")
	if got := seen(); fmt.Sprint(got) != "[qemu/101 qemu/102]" {
		t.Errorf("with a right on the pool of 102 too %q is seen", got)
	}
}

func TestOfflineNode(t *testing.T) {
	s := pvesim.Estate(3, 20, 2)
	w := pvesim.New(pvesim.Options{Seed: 3}, s)
	defer w.Stop()
	a := inProcess(t, w)
	w.View(func(s *pvesim.State) { s.Nodes[1].Offline = true })
	if r := a.do("GET", "/nodes/pve02/qemu"); r.code != 595 || r.raw != "" {
		t.Errorf("a dead neighbour answers %d %q", r.code, r.raw)
	}
	for _, r := range a.ok("GET", "/cluster/resources", "type", "vm").([]any) {
		row := r.(map[string]any)
		if down := row["node"] == "pve02"; (row["status"] == "unknown") != down || (row["name"] == nil) != down {
			t.Errorf("row %v", row)
		}
	}
	w.View(func(s *pvesim.State) { s.Nodes[1].Offline = false })
	a.ok("GET", "/nodes/pve02/qemu")
}

func TestClusterOptions(t *testing.T) {
	_, a := newCT(t, "base")
	put := "PUT " + ct + "/100/config"
	run(t, a, []step{
		{call: "PUT /cluster/options", form: []string{"tag-style", "ordering=config"}},
		{call: put, form: []string{"tags", "z;A;a"}, config: map[string]string{"tags": "z;a"}},
		{call: "PUT /cluster/options", form: []string{"tag-style", "case-sensitive=1"}},
		{call: put, form: []string{"tags", "z;A;a"}, config: map[string]string{"tags": "A;a;z"}},
		{call: "PUT /cluster/options", form: []string{"registered-tags", "prod", "user-tag-access", "user-allow=list,user-allow-list=one"}},
		{call: put, who: gitopsToken, form: []string{"tags", "A;a;z;one"}},
		{call: put, who: gitopsToken, form: []string{"tags", "A;a;z;two"}, code: 403, says: "modifying tag"},
		{call: put, who: gitopsToken, form: []string{"tags", "A;a;z;one;prod"}, code: 403, says: "modifying tag 'prod'"},
		{call: put, form: []string{"tags", "prod"}},
		{call: put, who: gitopsToken, form: []string{"delete", "tags"}, code: 403, says: "modifying tag 'prod'"},
		{call: "GET /cluster/options", says: `"registered-tags":["prod"]`},
		{call: "PUT /cluster/options", form: []string{"registered-tags", "prod;b;a;b", "user-tag-access", "user-allow=list,user-allow-list=two;one;two"}},
		{call: "GET /cluster/options", says: `"registered-tags":["a","b","prod"]`},
		{call: "GET /cluster/options", says: `"user-allow-list":["one","two"]`},
		{call: "PUT /cluster/options", form: []string{"next-id", "lower=500"}},
		{call: "GET /cluster/nextid", says: `"500"`},
		{call: "GET /cluster/nextid", form: []string{"vmid", "100"}, code: 400, says: "already exists"},
	})
}

// A guest under HA, of either kind, is started and stopped by the HA manager a while after it was asked for.
func TestHA(t *testing.T) {
	for sid, make100 := range map[string][]string{"ct:100": {"vmid", "100", "ostemplate", template, "rootfs", "local-dir:1"}, "vm:100": {"vmid", "100"}} {
		t.Run(sid, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testHA(t, sid, make100) }) })
	}
}

func testHA(t *testing.T, sid string, make100 []string) {
	w := world(t, "base", pvesim.Options{Seed: 3, TimeScale: 1})
	a := inProcess(t, w)
	guests := ct
	if strings.HasPrefix(sid, "vm") {
		guests = vmPath
	}
	wantTask(t, a.task("POST", guests, make100...), "OK")
	a.ok("POST", "/cluster/ha/resources", "sid", sid, "state", "stopped")
	run(t, a, []step{
		{call: "POST /cluster/ha/resources", form: []string{"sid", sid}, code: 500, says: "already defined"},
		{call: "POST /cluster/ha/resources", form: []string{"sid", "ct:999"}, code: 500, says: "no such guest"},
		{call: "GET /cluster/resources", says: `"hastate":"stopped"`},
		{call: "DELETE " + guests + "/100", code: 500, says: "used in HA resources"},
		{call: "POST " + guests + "/100/status/start", task: "OK"},
		{call: "GET " + guests + "/100/status/current", says: `"status":"stopped"`},
	})
	time.Sleep(20 * time.Second)
	run(t, a, []step{
		{call: "GET " + guests + "/100/status/current", says: `"status":"running"`},
		{call: "POST " + guests + "/100/status/stop", task: "OK"},
		{call: "GET " + guests + "/100/status/current", says: `"status":"running"`},
	})
	time.Sleep(20 * time.Second)
	run(t, a, []step{
		{call: "GET " + guests + "/100/status/current", says: `"status":"stopped"`},
		{call: "GET /cluster/ha/resources/" + sid, says: `"state":"stopped"`},
		{call: "DELETE " + guests + "/100", form: []string{"purge", "1"}, task: "OK"},
		{call: "GET /cluster/ha/resources", says: `"data":[]`},
	})
}

// More than a few allocations at a time on a shared storage run into the timeout of its cluster-wide lock.
func TestSharedStorageLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := pvesim.Estate(3, 0, 1)
		w := pvesim.New(pvesim.Options{Seed: 3, TimeScale: 1}, s)
		defer w.Stop()
		a := inProcess(t, w)
		upids := []string{}
		for i := range 8 {
			upids = append(upids, a.ok("POST", "/nodes/pve01/qemu", "vmid", fmt.Sprint(100+i), "scsi0", "nas:1").(string))
		}
		time.Sleep(2 * time.Minute)
		done, late := 0, 0
		for _, u := range upids {
			switch exit := a.ok("GET", "/nodes/pve01/tasks/"+u+"/status").(map[string]any)["exitstatus"].(string); {
			case exit == "OK":
				done++
			case strings.Contains(exit, "error with cfs lock 'storage-nas': got lock request timeout"):
				late++
			default:
				t.Errorf("task ended %q", exit)
			}
		}
		if done < 3 || late < 2 {
			t.Errorf("%d tasks got the lock, %d did not", done, late)
		}
	})
}

// A snapshot of a cluster's answers must give back the cluster that gave them.
func TestLoadSnapshot(t *testing.T) {
	w := pvesim.New(pvesim.Options{Seed: 3}, pvesim.Estate(5, 60, 3))
	defer w.Stop()
	a := inProcess(t, w)
	got := map[string]any{}
	ask := func(path string) any {
		got[path] = a.ok("GET", path)
		return got[path]
	}
	list := func(path string) []map[string]any {
		var out []map[string]any
		for _, r := range ask(path).([]any) {
			out = append(out, r.(map[string]any))
		}
		return out
	}
	ask("/cluster/status")
	ask("/storage")
	ask("/cluster/options")
	for _, n := range list("/nodes") {
		node := "/nodes/" + n["node"].(string)
		ask(node + "/network")
		for _, s := range list(node + "/storage") {
			ask(node + "/storage/" + s["storage"].(string) + "/content")
		}
	}
	for _, g := range list("/cluster/resources?type=vm") {
		path := fmt.Sprintf("/nodes/%v/%v/%v", g["node"], g["type"], g["vmid"])
		ask(path + "/config?current=1")
		ask(path + "/pending")
		for _, s := range list(path + "/snapshot") {
			if s["name"] != "current" {
				ask(fmt.Sprintf("%s/snapshot/%v/config", path, s["name"]))
			}
		}
	}
	file := filepath.Join(t.TempDir(), "snapshot.json")
	text, err := json.Marshal(map[string]any{"format": "pve-answers/1", "answers": got})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := pvesim.LoadSnapshot(file)
	if err != nil {
		t.Fatal(err)
	}
	again := pvesim.New(pvesim.Options{Seed: 3}, s)
	defer again.Stop()
	b := inProcess(t, again)
	for path, want := range got {
		if !strings.Contains(path, "/config") && !strings.Contains(path, "/snapshot/") && !strings.HasSuffix(path, "/network") && path != "/cluster/options" {
			continue
		}
		have := b.ok("GET", path)
		for _, m := range []any{want, have} {
			if m, ok := m.(map[string]any); ok {
				delete(m, "digest")
			}
		}
		if !reflect.DeepEqual(have, want) {
			t.Errorf("%s:\n%v\nwas\n%v", path, have, want)
		}
	}
	for _, bad := range []string{"", "[]", `{"format":"other"}`, `{"format":"pve-answers/1","answers":{}}`, `{"format":"pve-answers/1","answers":{"/nodes":3}}`} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pvesim.LoadSnapshot(file); err == nil {
			t.Errorf("%q must be refused", bad)
		}
	}
}
