package pvesim_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

const rootToken = "root@pam!full=11111111-1111-4111-8111-111111111111"

func world(t *testing.T, variant string, o pvesim.Options) *pvesim.World {
	t.Helper()
	s, err := pvesim.Recorded(variant)
	if err != nil {
		t.Fatal(err)
	}
	w := pvesim.New(o, s)
	t.Cleanup(w.Stop)
	return w
}

// api is one caller of a world.
type api struct {
	t     *testing.T
	c     *http.Client
	base  string
	token string
}

type answer struct {
	code   int
	reason string
	closes bool
	raw    string
	Data   any
	Total  *int
	Errors map[string]string
}

func inProcess(t *testing.T, w *pvesim.World) *api {
	return &api{t: t, c: &http.Client{Transport: w}, base: "https://pve01:8006", token: rootToken}
}

func (a *api) do(method, path string, form ...string) answer {
	a.t.Helper()
	v := url.Values{}
	for i := 0; i+1 < len(form); i += 2 {
		v.Add(form[i], form[i+1])
	}
	var body io.Reader
	switch {
	case len(v) == 0:
	case method == "GET" || method == "DELETE":
		path += "?" + v.Encode()
	default:
		body = strings.NewReader(v.Encode())
	}
	req, err := http.NewRequestWithContext(context.Background(), method, a.base+"/api2/json"+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if a.token != "" {
		req.Header.Set("Authorization", "PVEAPIToken="+a.token)
	}
	res, err := a.c.Do(req)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	_, reason, _ := strings.Cut(res.Status, " ")
	out := answer{code: res.StatusCode, reason: reason, raw: string(raw), closes: res.Close}
	if len(raw) > 0 && raw[0] == '{' {
		if err := json.Unmarshal(raw, &out); err != nil {
			a.t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	return out
}

// ok is do for calls that must succeed.
func (a *api) ok(method, path string, form ...string) any {
	a.t.Helper()
	r := a.do(method, path, form...)
	if r.code != http.StatusOK {
		a.t.Fatalf("%s %s: %d %s %s", method, path, r.code, r.reason, r.raw)
	}
	return r.Data
}

// task is ok for calls that start one; it waits and returns the exit status.
func (a *api) task(method, path string, form ...string) string {
	a.t.Helper()
	upid, ok := a.ok(method, path, form...).(string)
	if !ok {
		a.t.Fatalf("%s %s answered no UPID", method, path)
	}
	for {
		s := a.ok("GET", "/nodes/pve01/tasks/"+url.PathEscape(upid)+"/status").(map[string]any)
		if s["status"] == "stopped" {
			return s["exitstatus"].(string)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func wantTask(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("task ended %q, want %q", got, want)
	}
}

// TestLifeOfAVM follows a VM from create to destroy, in a bubble: tasks take their time, none of it real.
func TestLifeOfAVM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, "base", pvesim.Options{Seed: 7, TimeScale: 1})
		a := inProcess(t, w)
		wantTask(t, a.task("POST", "/nodes/pve01/qemu", "vmid", "100", "name", "web", "memory", "256", "scsi0", "local-dir:1", "net0", "virtio,bridge=vmbr0"), "OK")
		conf := a.ok("GET", "/nodes/pve01/qemu/100/config").(map[string]any)
		if conf["scsi0"] != "local-dir:100/vm-100-disk-0.raw,size=1G" || conf["boot"] != "order=scsi0;net0" || conf["memory"] != "256" {
			t.Errorf("config is %v", conf)
		}
		if r := a.do("POST", "/nodes/pve01/qemu", "vmid", "100"); r.code != 500 || r.reason != "unable to create VM 100 - VM 100 already exists on node 'pve01'" {
			t.Errorf("second create: %d %q", r.code, r.reason)
		}
		if r := a.do("PUT", "/nodes/pve01/qemu/100/config", "cores", "2", "digest", strings.Repeat("0", 39)+"1"); r.code != 500 || !strings.Contains(r.reason, "checksum mismatch") {
			t.Errorf("stale digest: %d %q", r.code, r.reason)
		}
		wantTask(t, a.task("POST", "/nodes/pve01/qemu/100/status/start"), "OK")
		if r := a.do("DELETE", "/nodes/pve01/qemu/100"); r.code != 500 || r.reason != "VM 100 is running - destroy failed" {
			t.Errorf("delete while running: %d %q", r.code, r.reason)
		}
		wantTask(t, a.task("POST", "/nodes/pve01/qemu/100/status/stop"), "OK")
		wantTask(t, a.task("DELETE", "/nodes/pve01/qemu/100"), "OK")
		var ops []string
		for _, e := range w.LedgerEntries() {
			ops = append(ops, e.Op+" "+e.Volid)
			if !strings.HasPrefix(e.Cause, "UPID:pve01:") || e.Who != "root@pam!full" {
				t.Errorf("ledger: %s by %s because of %s", e.Op, e.Who, e.Cause)
			}
		}
		if got, want := fmt.Sprint(ops), "[create local-dir:100/vm-100-disk-0.raw destroy local-dir:100/vm-100-disk-0.raw]"; got != want {
			t.Errorf("ledger is %s, want %s", got, want)
		}
	})
}

// TestOrderOfChecks gives each stage a request that would fail at the next stages too.
func TestOrderOfChecks(t *testing.T) {
	w := world(t, "offline", pvesim.Options{})
	root, none := inProcess(t, w), inProcess(t, w)
	none.token = "gitops@pve!none=55555555-5555-4555-8555-555555555555"
	anon := inProcess(t, w)
	anon.token = ""
	for _, c := range []struct {
		who          *api
		method, path string
		form         []string
		code         int
		reason       string
	}{
		{anon, "PUT", "/nosuch", nil, 401, "No ticket"},
		{root, "PUT", "/nosuch", nil, 501, "Method 'PUT /nosuch' not implemented"},
		{root, "FROB", "/version", nil, 501, "method 'FROB' not available"},
		{none, "PUT", "/nodes/nosuch/qemu/100/config", []string{"vmid", "101"}, 400, "Parameter verification failed."},
		{none, "GET", "/nodes/nosuch/qemu/100/config", nil, 403, "Permission check failed (/vms/100, VM.Audit)"},
		{root, "GET", "/nodes/nosuch/qemu/abc/config", nil, 500, "hostname lookup 'nosuch' failed - failed to get address info for: nosuch: Name or service not known"},
		{root, "GET", "/nodes/pve02/qemu/abc/config", nil, 595, "No route to host"},
		{root, "GET", "/nodes/pve01/qemu/abc/config", nil, 400, "Parameter verification failed."},
		{root, "GET", "/nodes/pve01/qemu/9002/config", nil, 500, "Configuration file 'nodes/pve01/qemu-server/9002.conf' does not exist"},
	} {
		if r := c.who.do(c.method, c.path, c.form...); r.code != c.code || r.reason != c.reason {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, r.code, r.reason, c.code, c.reason)
		}
	}
	if r := root.do("GET", "/nodes/pve02/qemu"); r.raw != "" {
		t.Errorf("595 has the body %q, want none", r.raw)
	}
	if n := len(w.Requests()); n != 10 {
		t.Errorf("the request log has %d entries, want 10", n)
	}
}

// TestServer checks over TLS what only the wire shows: reason phrases, pinning, and which answers end the connection.
func TestServer(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	srv, err := w.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	pinned := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error { //nolint:gosec // pinned below
		if got := strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(s.PeerCertificates[0].Raw)), " ", ":"); got != srv.Fingerprint {
			return fmt.Errorf("fingerprint %s", got)
		}
		return nil
	}}
	tr := &http.Transport{TLSClientConfig: pinned}
	defer tr.CloseIdleConnections()
	a := &api{t: t, c: &http.Client{Transport: tr}, base: srv.URL, token: rootToken}
	if v := a.ok("GET", "/version").(map[string]any); v["release"] != "9.2" {
		t.Errorf("version is %v", v)
	}
	if r := a.do("GET", "/version"); r.closes {
		t.Error("a success closes the connection")
	}
	r := a.do("GET", "/nodes/pve01/qemu/999/config")
	if r.code != 500 || r.reason != "Configuration file 'nodes/pve01/qemu-server/999.conf' does not exist" || !r.closes {
		t.Errorf("absent VM: %d %q, closes %t", r.code, r.reason, r.closes)
	}
	big := a.do("PUT", "/nodes/pve01/qemu/999/config", "description", strings.Repeat("x", 600<<10))
	if big.code != 501 || big.reason != "for data too large" {
		t.Errorf("600 KiB: %d %q", big.code, big.reason)
	}
}

// TestSaveAndLoad keeps guests, volumes and tickets over a restart.
func TestSaveAndLoad(t *testing.T) {
	dir := t.TempDir()
	w := world(t, "lvmthin", pvesim.Options{Seed: 3})
	a := inProcess(t, w)
	wantTask(t, a.task("POST", "/nodes/pve01/qemu", "vmid", "100", "scsi0", "local-lvm:0.5"), "OK")
	before := a.do("GET", "/nodes/pve01/qemu/100/config").raw
	if err := w.Save(dir); err != nil {
		t.Fatal(err)
	}
	s, found, err := pvesim.LoadState(dir)
	if err != nil || !found {
		t.Fatalf("load: found %t, %v", found, err)
	}
	again := pvesim.New(pvesim.Options{Seed: 3}, s)
	t.Cleanup(again.Stop)
	b := inProcess(t, again)
	if after := b.do("GET", "/nodes/pve01/qemu/100/config").raw; after != before {
		t.Errorf("config is %s after the restart, was %s", after, before)
	}
	wantTask(t, b.task("DELETE", "/nodes/pve01/qemu/100"), "OK")
	if n := len(b.ok("GET", "/nodes/pve01/storage/local-lvm/content").([]any)); n != 0 {
		t.Errorf("%d volumes are left", n)
	}
}

// TestFaults: an answer that is lost after the work was done, and one that never was.
func TestFaults(t *testing.T) {
	w := world(t, "base", pvesim.Options{Faults: []pvesim.Fault{{Kind: pvesim.FaultLost, Method: "POST", Path: "/nodes/*/qemu", P: 1, Count: 1}}})
	a := inProcess(t, w)
	req, err := http.NewRequest("POST", a.base+"/api2/json/nodes/pve01/qemu", strings.NewReader("vmid=100"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "PVEAPIToken="+rootToken)
	if res, err := a.c.Do(req); err == nil {
		res.Body.Close()
		t.Fatalf("the lost answer arrived: %s", res.Status)
	}
	if id := a.ok("GET", "/cluster/nextid"); id != "101" {
		t.Errorf("the next id is %v: the work was not done", id)
	}
	w.SetFaults(pvesim.Fault{Kind: pvesim.FaultError, Path: "/cluster/**", P: 1, Status: 599})
	if r := a.do("GET", "/cluster/nextid"); r.code != 599 || r.raw != "" {
		t.Errorf("injected 599: %d %q", r.code, r.raw)
	}
}

// TestAddresses: a path is decoded once and its slashes count once; what is not below /api2/json is no API.
func TestAddresses(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	w.View(func(s *pvesim.State) {
		for _, id := range []string{"local:iso/a%20b.iso", "local:iso/a b.iso"} {
			s.Volumes["pve01 "+id] = &pvesim.Volume{ID: id, Node: "pve01", Content: "iso", Format: "iso", Size: int64(len(id)), Used: int64(len(id))}
		}
	})
	a := inProcess(t, w)
	for path, want := range map[string]string{
		"/api2/json/version": "200", "/api2/json//version/": "200", "/api2//json/version": "200", "/%61pi2/json/%76ersion": "200", "/api2/json": "200",
		"/api2/json/nodes/pve01/storage/local/content/iso/a%2520b.iso":         "200",
		"/api2/json/nodes/pve01/storage/local/content/local%3Aiso%2fa%20b.iso": "200",
		"/api2/json/nodes/pve01/storage/local/content/iso/a%252520b.iso":       "500",
		"/api2/json/Version":  "501 Method 'GET /Version' not implemented",
		"/api2/jsonx/version": "501 no such uri", "/api2/": "501 no such uri", "/api2/extjs/version": "501 no such uri",
		"/": "404", "/api/v1": "404", "/apijson/version": "404",
	} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, a.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "PVEAPIToken="+rootToken)
		res, err := w.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(res.Status, want) {
			t.Errorf("%s answers %s, want %s", path, res.Status, want)
		}
	}
}

// TestPublicKeys: what VMs and containers take as SSH keys is what ssh-keygen takes: no comment, no damaged key, no other text.
func TestPublicKeys(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL"
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100)
	for i, c := range []struct {
		keys string
		good bool
	}{
		{"", true}, {key, true}, {key + " ada@example.org", true}, {"\n" + key + " a\n\n" + key + " b\n", true}, {`no-pty,command="true" ` + key, true},
		{"# ada\n" + key, false}, {key[:70], false}, {key[12:], false}, {"ssh-rsa " + key[12:], false}, {key + " a\nno key", false}, {"ssh-ed25519", false},
	} {
		want := 500
		if c.good {
			want = 200
		}
		encoded := strings.ReplaceAll(url.QueryEscape(c.keys), "+", "%20")
		if r := a.do("PUT", vmPath+"/100/config", "sshkeys", encoded); r.code != want || !c.good && r.reason != "SSH public key validation error" {
			t.Errorf("a VM with %q: %d %s", c.keys, r.code, r.reason)
		}
		form := []string{"vmid", fmt.Sprint(200 + i), "ostemplate", template, "rootfs", "local-dir:0.1", "ssh-public-keys", c.keys}
		if r := a.do("POST", ct, form...); r.code != want || !c.good && r.reason != "SSH public key validation error" {
			t.Errorf("a container with %q: %d %s", c.keys, r.code, r.reason)
		}
	}
}
