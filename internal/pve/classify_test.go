package pve

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The texts are PVE 9.2's own, as recorded.
func TestTextsOfPVE(t *testing.T) {
	for text, want := range map[string]Kind{
		"Configuration file 'nodes/pve01/qemu-server/9999.conf' does not exist":                           KindNotFound,
		"storage 'nosuch' does not exist":                                                                 KindNotFound,
		"unable to find configuration file for VM 9999 on node 'pve01'":                                   KindNotFound,
		"hostname lookup 'nosuch' failed - failed to get address info for: nosuch: Name or service":       KindNotFound,
		"no such cluster node 'nonode'":                                                                   KindNotFound,
		"invalid bootorder: device 'scsi9' does not exist'":                                               KindRefused,
		"VM is locked (backup)":                                                                           KindBusy,
		"CT is locked (backup)":                                                                           KindBusy,
		"can't lock file '/var/lock/qemu-server/lock-104.conf' - got timeout":                             KindBusy,
		"cfs-lock 'storage-x' error: got lock request timeout":                                            KindBusy,
		"cluster not ready - no quorum?":                                                                  KindBusy,
		"checksum mismatch (file change by other user?)":                                                  KindConflict,
		"detected modified configuration - file changed by other user? Try again.":                        KindConflict,
		"unable to create VM 300 - VM 300 already exists on node 'pve01'":                                 KindAlreadyExists,
		"CT 400 already exists on node 'pve01'":                                                           KindAlreadyExists,
		"unable to create VM 3051: config file already exists":                                            KindAlreadyExists,
		"refusing to override existing file '/var/lib/vz/template/iso/a.iso'":                             KindAlreadyExists,
		"disk image '/var/lib/pvedata/images/5000/vm-5000-disk-0.raw' already exists":                     KindRefused,
		"got no worker upid - start worker failed":                                                        KindUnknownOutcome,
		"only root can set 'args' config":                                                                 KindForbidden,
		"Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 651.":     KindForbidden,
		"update pools failed: 403 Permission check failed (/pool/p1, Pool.Allocate)":                      KindForbidden,
		"can't remove VM 3030 - protection mode enabled":                                                  KindRefused,
		"you can't convert a template to a template":                                                      KindRefused,
		"unable to parse value of 'cores' - type check ('integer') failed - got '+2'":                     KindRefused,
		"base volume 'local-dir:3070/base-3070-disk-0.raw' is still in use by linked cloned":              KindRefused,
		"lvcreate 'pve/vm-106-disk-0' error:   Logical Volume \"vm-106-disk-0\" already exists in volume": KindRefused,
	} {
		if got, _ := classifyText(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestStatuses(t *testing.T) {
	c := inProcess(t, tokenAuth(), nil).core
	read := request{method: http.MethodGet, path: "/nodes/pve01/qemu/100/pending"}
	write := request{method: http.MethodPut, path: "/nodes/pve01/qemu/100/config"}
	for _, x := range []struct {
		name        string
		status      int
		reason      string
		body        string
		read, write Kind
		text        string
	}{
		{"absent guest", 500, "x", `{"message":"Configuration file 'x' does not exist\n","data":null}`, KindNotFound, KindNotFound, "does not exist"},
		{"parameters", 400, "Parameter verification failed.", `{"data":null,"errors":{"net0.tag":"value must\nhave","cores":"bad"}}`, KindInvalid, KindInvalid, "cores: bad; net0.tag: value must have"},
		{"token", 401, "Authentication failed!", "", KindUnauthorized, KindUnauthorized, "PVE refuses the token ops@pve!git: its id or secret is wrong, or it has expired"},
		{"offline node", 595, "No route to host", "", KindUnreachable, KindUnreachable, `node "pve01": No route to host`},
		{"timeout", 596, "Connection timed out", "", KindUnavailable, KindUnknownOutcome, "Connection timed out"},
		{"broken", 599, "Too many redirections", "", KindUnavailable, KindUnknownOutcome, "Too many"},
		{"bad gateway", 502, "Bad Gateway", "<html>nginx</html>", KindUnavailable, KindUnknownOutcome, "Bad Gateway"},
		{"worker", 500, "x", `{"message":"got no worker upid - start worker failed\n","data":null}`, KindUnavailable, KindUnknownOutcome, "got no worker upid"},
		{"portal", 200, "OK", "<!doctype html><title>Sign in</title>", KindNotJSON, KindNotJSON, "an HTML page"},
		{"portal 401", 401, "Unauthorized", "<html>", KindNotJSON, KindNotJSON, "an HTML page"},
		{"redirect", 302, "Found", "", KindNotJSON, KindNotJSON, "a redirect"},
		{"other JSON", 200, "OK", `{"status":"ok"}`, KindUnavailable, KindUnknownOutcome, "cut off"},
		{"truncated", 200, "OK", `{"data":"UPID:pve01:00`, KindUnavailable, KindUnknownOutcome, "cut off"},
		{"empty", 200, "OK", ``, KindNotJSON, KindUnknownOutcome, ""},
		{"not found", 404, "Not Found", "404 page not found", KindNotJSON, KindNotJSON, "Not Found"},
		{"no such call", 501, "Method 'GET /x' not implemented", `{"data":null}`, KindRefused, KindRefused, "not implemented"},
	} {
		a := answer{status: x.status, reason: x.reason, body: []byte(x.body), host: "pve01:8006"}
		for r, want := range map[*request]Kind{&read: x.read, &write: x.write} {
			_, e := c.interpret(*r, a)
			if e == nil || e.Kind != want {
				t.Errorf("%s %s: %v, want %s", x.name, r.method, e, want)
			} else if !strings.Contains(e.Error(), x.text) {
				t.Errorf("%s %s: %q does not say %q", x.name, r.method, e, x.text)
			}
		}
	}
}

func TestForbiddenNamesWhatIsMissing(t *testing.T) {
	c := inProcess(t, tokenAuth(), nil).core
	for _, x := range []struct{ text, path, privs, says string }{
		{"Permission check failed (/vms/200, VM.Config.Disk)", "/vms/200", "VM.Config.Disk", "grant VM.Config.Disk on /vms/200 to ops@pve!git"},
		{"Permission check failed (/storage/local, Datastore.Audit|Datastore.AllocateSpace)", "/storage/local", "Datastore.Audit,Datastore.AllocateSpace", "privilege separation"},
		{"Permission check failed (/, Sys.Modify for modifying tag 'prod')", "/", "Sys.Modify", "on /"},
		{"Permission check failed (changing feature flags (except nesting) is only allowed for root@pam)", "", "", "root@pam login with password"},
		{"Permission check failed", "", "", "Permission check failed"},
	} {
		_, e := c.interpret(request{method: "PUT", path: "/nodes/pve01/qemu/200/config"},
			answer{status: 403, reason: x.text, body: []byte(`{"data":null,"message":"` + x.text + `\n"}`)})
		if e.Kind != KindForbidden || e.ACLPath != x.path || strings.Join(e.Privs, ",") != x.privs || !strings.Contains(e.Error(), x.says) {
			t.Errorf("%s: %q %q %q", x.text, e.ACLPath, e.Privs, e.Error())
		}
	}
	_, e := c.interpret(request{method: "POST", path: "/nodes/pve01/storage/local/download-url"}, answer{status: 403, reason: "Permission check failed"})
	if !strings.Contains(e.Error(), "Sys.AccessNetwork") {
		t.Error(e)
	}
}

// Every refusal that was recorded from the real PVE gives an error that is
// worded, classified and never taken for an unknown outcome.
func TestRecordedRefusals(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/pve/transcripts/*.jsonl")
	if len(files) == 0 {
		t.Skip("no recordings here; the tables above test the same rules")
	}
	c := inProcess(t, tokenAuth(), nil).core
	seen := map[Kind]int{}
	for _, f := range files {
		in, err := os.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		s := bufio.NewScanner(in)
		s.Buffer(nil, 1<<22)
		for s.Scan() {
			var x struct {
				ID      string
				Status  int
				Reason  string
				Body    json.RawMessage
				Request struct{ Method, Path string }
			}
			if err := json.Unmarshal(s.Bytes(), &x); err != nil {
				t.Fatal(err)
			}
			body := []byte(x.Body)
			if len(body) > 0 && body[0] == '"' {
				var text string
				_ = json.Unmarshal(x.Body, &text)
				body = []byte(text)
			}
			env, e := c.interpret(request{method: x.Request.Method, path: x.Request.Path}, answer{status: x.Status, reason: x.Reason, body: body})
			switch {
			case x.Status == 200 && e != nil && len(body) > 0:
				t.Errorf("%s: %v", x.ID, e)
			case x.Status == 200:
				_ = env
			case e == nil:
				t.Errorf("%s: status %d is no error", x.ID, x.Status)
			case e.text() == "" || e.Kind == KindUnknownOutcome || e.Kind == KindUnavailable:
				t.Errorf("%s: %d %s: %s %q", x.ID, x.Status, x.Reason, e.Kind, e.Error())
			default:
				seen[e.Kind]++
			}
		}
		_ = in.Close()
	}
	for _, k := range []Kind{KindInvalid, KindForbidden, KindUnauthorized, KindNotFound, KindAlreadyExists, KindConflict, KindBusy, KindRefused, KindUnreachable} {
		if seen[k] == 0 {
			t.Errorf("no recording was classified as %s", k)
		}
	}
	t.Log(seen)
}
