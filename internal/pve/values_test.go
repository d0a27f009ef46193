package pve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answering gives a client whose every GET gets this data.
func answering(t *testing.T, path, body string) *Client {
	t.Helper()
	return inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
		if got := strings.TrimPrefix(r.URL.RequestURI(), "/api2/json"); got != path {
			t.Errorf("asked %s, want %s", got, path)
		}
		return reply(200, "OK", `{"data":`+body+`}`), nil
	})
}

func TestPending(t *testing.T) {
	c := answering(t, "/nodes/pve01/lxc/200/pending", `[
		{"key":"memory","value":64,"pending":"128"}, {"key":"digest","value":"0abc"}, {"key":"arch","value":"amd64"},
		{"key":"unprivileged","value":true}, {"key":"features","pending":"nesting=1"}, {"key":"tags","value":" "},
		{"key":"mp0","value":"local:200/x","delete":"2"}, {"key":"cpulimit","value":0.5}, {"key":"gone","value":null},
		{"key":"lxc","value":[["lxc.mount.entry","/run/x mnt/x none bind 0 0"]]}, {"key":"net0","value":"name=eth0","delete":1}]`)
	cfg, err := c.Pending(t.Context(), "pve01", LXC, 200)
	if err != nil || cfg.Digest != "0abc" || len(cfg.Entries) != 10 {
		t.Fatalf("%+v %v", cfg, err)
	}
	str := func(s *string) string {
		if s == nil {
			return "-"
		}
		return *s
	}
	for key, want := range map[string]string{
		"memory": "64 128 0 128 true", "arch": "amd64 - 0 amd64 true", "unprivileged": "1 - 0 1 true", "features": "- nesting=1 0 nesting=1 true",
		"tags": "  - 0   true", "mp0": "local:200/x - 2  false", "cpulimit": "0.5 - 0 0.5 true", "gone": "- - 0  false", "lxc": "- - 0  false", "net0": "name=eth0 - 1  false",
	} {
		e, found := cfg.Get(key)
		w, has := e.Want()
		if got := fmt.Sprintf("%s %s %d %s %v", str(e.Value), str(e.Pending), e.Delete, w, has); got != want || !found {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
		if (e.Raw != nil) != (key == "lxc") {
			t.Errorf("%s: raw %s", key, e.Raw)
		}
	}
	if _, found := cfg.Get("digest"); found {
		t.Error("the digest is no key of the config")
	}
}

func TestResources(t *testing.T) {
	c := answering(t, "/cluster/resources", `[
		{"type":"storage","id":"storage/pve01/local","content":"vztmpl,iso,backup","shared":0,"plugintype":"dir","storage":"local","node":"pve01","status":"available"},
		{"type":"qemu","id":"qemu/100","vmid":"100","template":1,"tags":"b;a","node":"pve01","maxmem":536870912,"hastate":"started","lock":"backup","pool":"p1","new-key":{"x":1}},
		{"type":"lxc","id":"lxc/9002","vmid":9002,"node":"pve02","status":"unknown"}, {"type":"node","id":"node/pve01","node":"pve01","status":"online"}]`)
	rows, err := c.Resources(t.Context())
	if err != nil || len(rows) != 4 {
		t.Fatal(rows, err)
	}
	vm := rows[2]
	if rows[0].ID != "lxc/9002" || rows[0].Tags != nil || !rows[0].IsGuest() || rows[1].IsGuest() || vm.VMID != 100 || !vm.Template ||
		strings.Join(vm.Tags, ",") != "b,a" || vm.HAState != "started" || vm.Lock != "backup" || string(vm.Raw["new-key"]) != `{"x":1}` {
		t.Errorf("%+v", rows)
	}
	if got := strings.Join(rows[3].Content, ","); got != "backup,iso,vztmpl" {
		t.Errorf("a set in PVE's random order: %s", got)
	}
}

func TestOptionsInBothForms(t *testing.T) {
	for _, body := range []string{
		`{"tag-style":{"ordering":"config","case-sensitive":1},"user-tag-access":{"user-allow":"list","user-allow-list":["a","b"]},"registered-tags":["prod"]}`,
		`{"tag-style":"ordering=config,case-sensitive=1","user-tag-access":"user-allow=list,user-allow-list=a;b","registered-tags":"prod"}`,
	} {
		o, err := answering(t, "/cluster/options", body).Options(t.Context())
		if err != nil || o.TagOrdering != "config" || !o.TagCaseSensitive || o.UserTagAccess != "list" || strings.Join(o.UserAllowList, ",") != "a,b" || strings.Join(o.RegisteredTags, ",") != "prod" {
			t.Errorf("%+v %v", o, err)
		}
	}
}

func TestListings(t *testing.T) {
	ctx := t.Context()
	vols, err := answering(t, "/nodes/pve01/storage/local-lvm/content?content=images", `[{"volid":"local-lvm:vm-9-disk-0","ctime":"1795985023","content":"images","format":"raw","size":109051904,"vmid":9}]`).StorageContent(ctx, "pve01", "local-lvm", "images")
	if err != nil || len(vols) != 1 || vols[0].VMID != 9 || vols[0].Size != 109051904 || vols[0].CTime.Unix() != 1795985023 {
		t.Errorf("%+v %v", vols, err)
	}
	pool, err := answering(t, "/pools?poolid=a%2Fb", `[{"poolid":"a/b","comment":"c","members":[{"type":"qemu","vmid":201,"id":"qemu/201"},{"type":"lxc","vmid":105},{"type":"storage","storage":"local","id":"storage/pve01/local"},{"type":"storage","storage":"local"}]}]`).Pool(ctx, "a/b")
	if err != nil || fmt.Sprint(pool.Guests, pool.Storage) != "[105 201] [local]" {
		t.Errorf("%+v %v", pool, err)
	}
	snaps, err := answering(t, "/nodes/pve01/qemu/100/snapshot", `[{"name":"s1","snaptime":1795998832,"vmstate":0},{"name":"current","parent":"s1"}]`).Snapshots(ctx, "pve01", QEMU, 100)
	if err != nil || len(snaps) != 1 || snaps[0].Name != "s1" {
		t.Errorf("%+v %v", snaps, err)
	}
	maps, err := answering(t, "/cluster/mapping/pci", `[{"id":"gpu1","map":["node=pve02,path=0000:01:00.0,id=10de:1234","node=pve01,path=0000:01:00.0"]}]`).PCIMappings(ctx)
	if err != nil || len(maps) != 1 || fmt.Sprint(maps[0].Nodes) != "[pve01 pve02]" {
		t.Errorf("%+v %v", maps, err)
	}
	ha, err := answering(t, "/cluster/ha/resources", `[{"sid":"vm:100","state":"started","type":"vm"}]`).HAResources(ctx)
	if err != nil || len(ha) != 1 || ha[0].VMID() != 100 {
		t.Errorf("%+v %v", ha, err)
	}
	dump, err := answering(t, "/nodes/pve01/qemu/100/cloudinit/dump?type=user", `"#cloud-config\n"`).CloudInitDump(ctx, "pve01", 100, "user")
	if err != nil || dump != "#cloud-config\n" {
		t.Errorf("%q %v", dump, err)
	}
	st, err := answering(t, "/nodes/pve01/qemu/100/status/current", `{"status":"running","qmpstatus":"paused","ha":{"managed":1},"tags":"a;b","lock":"migrate"}`).GuestStatus(ctx, "pve01", QEMU, 100)
	if err != nil || st.QMPStatus != "paused" || !st.HAManaged || st.Lock != "migrate" || len(st.Tags) != 2 {
		t.Errorf("%+v %v", st, err)
	}
	tasks, err := answering(t, "/nodes/pve01/tasks?source=active&vmid=200", `[{"upid":"UPID:pve01:1:2:6B0CBF90:qmstop:200:t@pve!ful:","type":"qmstop","id":"200","user":"t@pve","tokenid":"ful","starttime":1795997584,"status":"RUNNING"},{"upid":"UPID:x","starttime":1,"endtime":2,"status":"OK"}]`).Tasks(ctx, "pve01", TaskFilter{VMID: 200, Running: true})
	if err != nil || len(tasks) != 1 || !tasks[0].Running || tasks[0].Exit != "" || tasks[0].UPID.User() != "t@pve!ful" || !tasks[0].UPID.Start().Equal(tasks[0].Start) {
		t.Errorf("%+v %v", tasks, err)
	}
	_, err = answering(t, "/cluster/resources", `{"no":"list"}`).Resources(ctx)
	wantKind(t, err, KindNotJSON)
}

func TestPermissionsHas(t *testing.T) {
	p := Permissions{"/": {"VM.Audit": true, "Sys.Audit": false}, "/vms/100": {"VM.Config.Disk": true}, "/storage": {}}
	for _, x := range []struct {
		path, priv string
		want       bool
	}{
		{"/", "Sys.Audit", true}, {"/nodes/pve01", "Sys.Audit", false}, {"/nodes/pve01", "VM.Audit", true}, {"/vms/100", "VM.Audit", false},
		{"/vms/100", "VM.Config.Disk", true}, {"/storage/local", "VM.Audit", false}, {"/vms/101", "VM.Config.Disk", false}, {"", "VM.Audit", false},
	} {
		if got := p.Has(x.path, x.priv); got != x.want {
			t.Errorf("%s on %q: %v", x.priv, x.path, got)
		}
	}
}

func TestUPID(t *testing.T) {
	u := UPID("UPID:pve01:00002B7A:00182ACD:6B0CBF90:qmstop:200:t@pve:")
	if !u.Valid() || u.Node() != "pve01" || u.Type() != "qmstop" || u.ID() != "200" || u.User() != "t@pve" || !u.Start().Equal(time.Unix(1795997584, 0)) {
		t.Errorf("%v %v", u, u.Start())
	}
	for _, bad := range []UPID{"", "UPID", "UPID:::::::", "OK", "a:b:c:d:e:f:g:h"} {
		if bad.Valid() || !bad.Start().IsZero() {
			t.Errorf("%q is valid", bad)
		}
	}
}

// Whatever answers, there is an envelope or a worded error, and no panic.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "OK", `{"data":[{"key":"memory","value":1}],"total":1}`)
	f.Add(500, "x", `{"message":"Permission check failed (/vms/1, VM.Audit|X)\n","data":null}`)
	f.Add(400, "", `{"errors":{"a":1,"b":null,"c":{}}}`)
	f.Add(302, "Found", "<html>")
	f.Add(200, "", `{"data":"\ud800"}`)
	c, err := New(Config{Name: "prod", Endpoints: []string{"https://a"}, Auth: tokenAuth(), Transport: http.DefaultTransport})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, reason, body string) {
		for _, m := range []string{"GET", "PUT"} {
			r := request{method: m, path: "/nodes/pve01/x"}
			env, e := c.core.interpret(r, answer{status: status, reason: reason, body: []byte(body)})
			switch {
			case e == nil && (status/100 != 2 || !json.Valid([]byte(body))):
				t.Fatalf("%d %q is taken for a success", status, body)
			case e != nil && e.Error() == "":
				t.Fatal("an error without words")
			case e == nil:
				var rows []row
				_ = c.core.decode(r, env, &rows)
				for _, x := range rows {
					pool(x)
					task(x)
				}
			}
		}
	})
}
