package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/secret"
)

// answers is a PVE that knows some paths; the others do not answer (595).
type answers map[string]any

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(req *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(req.URL.Path, "/api2/json")
	if req.URL.RawQuery != "" && a[path+"?"+req.URL.RawQuery] != nil {
		path += "?" + req.URL.RawQuery
	}
	status, reason := 200, "OK"
	body, ok := a[path]
	if text, refused := body.(error); refused {
		status, reason = 500, text.Error()
	} else if !ok {
		status, reason = 595, "No route to host"
	}
	b, err := json.Marshal(map[string]any{"data": body, "message": reason})
	if err != nil {
		return nil, err
	}
	if status == 595 {
		b = nil
	}
	return &http.Response{Status: fmt.Sprintf("%d %s", status, reason), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b)), Request: req}, nil
}

type row = map[string]any

func base(rows ...row) answers {
	all := []row{
		{"type": "node", "id": "node/pve01", "node": "pve01", "status": "online"},
		{"type": "node", "id": "node/pve02", "node": "pve02", "status": "offline"},
		{"type": "node", "id": "node/pve03", "node": "pve03", "status": "online"},
	}
	return answers{
		"/version": row{"version": "9.2.11"}, "/cluster/resources": append(all, rows...), "/cluster/options": row{},
		"/access/permissions": row{"/": row{"Sys.Audit": 1}}, "/nodes/pve01/tasks": []row{},
	}
}

func vmRow(id int, node, status string) row {
	return row{"type": "qemu", "id": fmt.Sprint("qemu/", id), "vmid": id, "node": node, "status": status, "name": "stale", "tags": "proxops"}
}

func config(kv ...string) []row {
	out := []row{{"key": "digest", "value": "abc"}}
	for i := 0; i < len(kv); i += 2 {
		out = append(out, row{"key": kv[i], "value": kv[i+1]})
	}
	return out
}

func read(t *testing.T, a http.RoundTripper, w Want) *Snapshot {
	t.Helper()
	c, err := pve.New(pve.Config{Name: "lab", Endpoints: []string{"https://pve01:8006"}, Nodes: []string{"pve01", "pve02"},
		Auth: pve.Credentials{TokenID: "root@pam!full", TokenSecret: secret.New("11111111-1111-4111-8111-111111111111")}, Transport: a})
	if err != nil {
		t.Fatal(err)
	}
	w.Nodes, w.Tag = []string{"pve01", "pve02"}, "proxops"
	s, err := Read(t.Context(), c.Reader(), w)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Absent, unseen, unknown, busy and fine look alike on the wire and must not
// in a snapshot.
func TestReadTellsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := base(vmRow(100, "pve01", "stopped"), vmRow(101, "pve02", "unknown"), vmRow(102, "pve03", "running"), vmRow(103, "pve01", "stopped"),
			vmRow(104, "pve01", "stopped"), vmRow(105, "pve01", "stopped"), vmRow(106, "pve01", "unknown"))
		a["/nodes/pve01/tasks"] = []row{
			{"upid": "UPID:pve01:00000001:00000001:65000000:qmigrate:103:root@pam:", "node": "pve01", "type": "qmigrate", "id": "103", "user": "root@pam", "starttime": 1},
			{"upid": "UPID:pve01:00000002:00000001:65000000:vncproxy:100:root@pam:", "node": "pve01", "type": "vncproxy", "id": "100", "user": "root@pam", "starttime": 1},
		}
		a["/nodes/pve01/qemu/100/pending"] = config("name", "web", "tags", "proxops;blue", "vmgenid", "g", "smbios1", "uuid=u,base64=1")
		a["/nodes/pve01/qemu/103/pending"] = config("name", "moving")
		a["/nodes/pve01/qemu/104/pending"] = config("lock", "create")
		a["/nodes/pve01/qemu/105/pending"] = fmt.Errorf("Configuration file 'nodes/pve01/qemu-server/105.conf' does not exist")
		a["/nodes/pve01/qemu/106/pending"] = config("name", "fresh")
		a["/nodes/pve01/qemu/106/status/current"] = row{"status": "running"}
		a["/cluster/nextid?vmid=110"] = "110"
		want := Want{Guests: map[int]Declared{}}
		for _, id := range []int{100, 101, 102, 103, 104, 105, 106, 110} {
			want.Guests[id] = Declared{}
		}
		s := read(t, a, want)
		g := s.Guests
		if g[100].Name != "web" || g[100].Busy != "" || g[100].Unknown != "" || g[100].Digest != "abc" || g[100].Identity != "vmgenid g, uuid u" {
			t.Errorf("100: %+v", g[100])
		}
		for id, text := range map[int]string{101: "node pve02 does not answer", 102: "not on the allow-list", 105: "it moves or was just removed"} {
			if !strings.Contains(g[id].Unknown, text) || g[id].Read {
				t.Errorf("%d is %q, want %q", id, g[id].Unknown, text)
			}
		}
		if !strings.Contains(g[103].Busy, "qmigrate") || !strings.Contains(g[104].Busy, "locked (create): no task works on it") || g[103].Stale || !g[104].Stale {
			t.Errorf("busy: %q, %q", g[103].Busy, g[104].Busy)
		}
		if !g[106].Running || g[106].Name != "fresh" {
			t.Errorf("a fresh clone's row is believed: %+v", g[106])
		}
		if !s.Free[110] || s.Complete || len(s.Problems) == 0 {
			t.Errorf("free %v, complete %v, %v", s.Free, s.Complete, s.Problems)
		}
	})
}

// A converged cluster costs one request a guest and a handful for all.
func TestCallsPerGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		a := base()
		rows := a["/cluster/resources"].([]row)
		rows[1]["status"] = "online"
		a["/nodes/pve02/tasks"] = []row{}
		want := Want{Guests: map[int]Declared{}, Stores: map[Store][]string{{"pve01", "local"}: {"iso"}, {"pve02", "local"}: {"iso"}}}
		a["/nodes/pve01/storage/local/content"], a["/nodes/pve02/storage/local/content"] = []row{}, []row{}
		for id := 100; id < 100+n; id++ {
			rows = append(rows, vmRow(id, "pve01", "stopped"))
			a[fmt.Sprintf("/nodes/pve01/qemu/%d/pending", id)] = config("name", "web", "tags", "proxops")
			want.Guests[id] = Declared{}
		}
		a["/cluster/resources"] = rows
		s := read(t, a, want)
		per := float64(s.Calls) / n
		t.Logf("%d calls for %d guests: %.3f a guest", s.Calls, n, per)
		if per > 1.05 || !s.Complete {
			t.Errorf("%.3f calls a guest, complete %v %v", per, s.Complete, s.Problems)
		}
	})
}

func TestHolds(t *testing.T) {
	s := &Snapshot{Perms: map[string]map[string]bool{"/": {"Sys.Audit": false}, "/vms": {"VM.Audit": true}, "/vms/100": {}}}
	for path, want := range map[string]bool{"/vms": true, "/vms/200": true, "/vms/100": false, "/nodes/pve01": false} {
		if got := s.Holds(path, "VM.Audit"); got != want {
			t.Errorf("VM.Audit on %s: %v", path, got)
		}
	}
	if !s.Holds("/", "Sys.Audit") || s.Holds("/nodes/pve01", "Sys.Audit") {
		t.Error("a privilege that is not handed down counts at its own path only")
	}
}
