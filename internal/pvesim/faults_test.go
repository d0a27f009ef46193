package pvesim_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

// try makes a call whose answer may not come.
func (a *api) try(method, path, body string) (code int, text string, err error) {
	a.t.Helper()
	req, err := http.NewRequest(method, a.base+"/api2/json"+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "PVEAPIToken="+a.token)
	if body == "" {
		req.Body, req.ContentLength = nil, 0
	} else {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := a.c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// TestFaultKinds lets each kind strike once, over TLS where the wire shows it, and looks at what the client sees and what was done.
func TestFaultKinds(t *testing.T) {
	w := world(t, "base", pvesim.Options{Seed: 5})
	srv, err := w.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // loopback
	defer tr.CloseIdleConnections()
	a := &api{t: t, c: &http.Client{Transport: tr}, base: srv.URL, token: rootToken}
	create := func(id int) (int, string, error) {
		return a.try("POST", "/nodes/pve01/qemu", fmt.Sprintf("vmid=%d", id))
	}
	there := func(id int) (ok bool) {
		w.View(func(s *pvesim.State) { ok = s.Guests[id] != nil })
		return ok
	}
	on := func(f pvesim.Fault) { w.SetFaults(f) }
	qemu := "/nodes/*/qemu"

	on(pvesim.Fault{Kind: pvesim.FaultReset, Method: "POST", Path: qemu, P: 1})
	if _, _, err := create(100); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) || there(100) {
		t.Errorf("reset: %v, done: %t", err, there(100))
	}
	for _, status := range []int{500, 595, 596, 599} {
		on(pvesim.Fault{Kind: pvesim.FaultError, Method: "POST", Path: qemu, P: 1, Status: status})
		if code, text, err := create(100); err != nil || code != status || (status > 590) != (text == "") || there(100) {
			t.Errorf("error %d: %d %q %v, done: %t", status, code, text, err, there(100))
		}
	}
	on(pvesim.Fault{Kind: pvesim.FaultLost, Method: "POST", Path: qemu, P: 1})
	if _, _, err := create(101); err == nil || !there(101) {
		t.Errorf("lost: %v, done: %t", err, there(101))
	}
	on(pvesim.Fault{Kind: pvesim.FaultTruncate, Method: "POST", Path: qemu, P: 1})
	if _, _, err := create(102); !errors.Is(err, io.ErrUnexpectedEOF) || !there(102) {
		t.Errorf("truncate: %v, done: %t", err, there(102))
	}
	on(pvesim.Fault{Kind: pvesim.FaultSlow, Path: "/version", P: 1, Delay: 60 * time.Millisecond})
	begin := time.Now()
	a.ok("GET", "/version")
	if d := time.Since(begin); d < 60*time.Millisecond {
		t.Errorf("slow: %s", d)
	}
	on(pvesim.Fault{Kind: pvesim.FaultNoWorker, Method: "POST", Path: qemu, P: 1})
	if code, text, err := create(104); err != nil || code != 500 || !strings.Contains(text, "got no worker upid - start worker failed") {
		t.Errorf("no worker: %d %q %v", code, text, err)
	}
	w.View(func(s *pvesim.State) {
		if g := s.Guests[104]; g == nil || len(g.Config) != 1 || g.Config["lock"] != "create" {
			t.Errorf("no worker: what is left of the create is %+v", g)
		}
	})
	wantTask(t, a.task("POST", ct, "vmid", "105", "ostemplate", template, "rootfs", "local-dir:1"), "OK")
	w.View(func(s *pvesim.State) { s.Tasks = nil })
	on(pvesim.Fault{Kind: pvesim.FaultNoWorker, Method: "POST", Path: "/nodes/*/lxc/105/clone", P: 1})
	if r := a.do("POST", ct+"/105/clone", "newid", "106"); r.code != 500 || !strings.Contains(r.reason, "got no worker upid") {
		t.Errorf("no worker for the clone of a container: %d %q", r.code, r.reason)
	}
	on(pvesim.Fault{Kind: pvesim.FaultTaskFail, Path: "/nodes/*/tasks/qmcreate", P: 1, Count: 1})
	wantTask(t, a.task("POST", "/nodes/pve01/qemu", "vmid", "103"), "unable to create VM 103 - injected task failure")
	wantTask(t, a.task("POST", "/nodes/pve01/qemu", "vmid", "103"), "OK")
	on(pvesim.Fault{Kind: pvesim.FaultTaskWarn, Path: "/nodes/*/tasks/qmstart", P: 1})
	wantTask(t, a.task("POST", "/nodes/pve01/qemu/103/status/start"), "WARNINGS: 1")
	if r := a.do("GET", "/nodes/pve01/qemu/103/status/current"); !strings.Contains(r.raw, `"running"`) {
		t.Errorf("a start with warnings is a start: %s", r.raw)
	}
}

// TestLockTimeouts: a lock that is not to be had costs PVE's ten seconds, in a call and in a worker, of guests and of storages.
func TestLockTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, "base", pvesim.Options{Seed: 5})
		a := inProcess(t, w)
		wantTask(t, a.task("POST", "/nodes/pve01/qemu", "vmid", "100"), "OK")
		w.SetFaults(pvesim.Fault{Kind: pvesim.FaultLockTimeout, Method: "PUT", Path: "/nodes/*/qemu/100/config", P: 1, Count: 1})
		begin := time.Now()
		r := a.do("PUT", "/nodes/pve01/qemu/100/config", "cores", "2")
		if r.code != 500 || r.reason != "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout" || time.Since(begin) != 10*time.Second {
			t.Errorf("%d %s after %s", r.code, r.reason, time.Since(begin))
		}
		a.ok("PUT", "/nodes/pve01/qemu/100/config", "cores", "2")
		w.SetFaults(pvesim.Fault{Kind: pvesim.FaultLockTimeout, Path: "/nodes/*/tasks/qmstart", P: 1, Count: 1})
		if got := a.task("POST", "/nodes/pve01/qemu/100/status/start"); !strings.Contains(got, "lock-100.conf' - got timeout") {
			t.Errorf("the start ended %q", got)
		}
	})
}

// TestNodeGoesDownAndComesBack: what lives on a node that is down answers 595 with nothing, all else goes on; of the node that clients
// talk to nothing is heard at all.
func TestNodeGoesDownAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pvesim.New(pvesim.Options{Seed: 3, AuthDelay: 3 * time.Second}, pvesim.Estate(3, 12, 2))
		defer w.Stop()
		a := inProcess(t, w)
		w.SetFaults(pvesim.Fault{Kind: pvesim.FaultNodeDown, Path: "/nodes/pve02/status", P: 1, Count: 1, Delay: 30 * time.Second})
		begin := time.Now()
		if r := a.do("GET", "/nodes/pve02/status"); r.code != 595 || r.raw != "" || time.Since(begin) != 3*time.Second {
			t.Errorf("%d %q after %s", r.code, r.raw, time.Since(begin))
		}
		a.ok("GET", "/nodes/pve01/qemu")
		if n := len(a.ok("GET", "/cluster/resources", "type", "vm").([]any)); n != 12 {
			t.Errorf("%d guests are listed while a node is down", n)
		}
		time.Sleep(30 * time.Second)
		a.ok("GET", "/nodes/pve02/status")
		w.SetFaults(pvesim.Fault{Kind: pvesim.FaultNodeDown, Path: "/nodes/pve01/status", P: 1, Count: 1, Delay: 30 * time.Second})
		for _, path := range []string{"/nodes/pve01/status", "/version"} {
			if code, _, err := a.try("GET", path, ""); err == nil {
				t.Errorf("%s of a dead host: %d", path, code)
			}
		}
		time.Sleep(31 * time.Second)
		a.ok("GET", "/version")
	})
}

// TestFaultsAreReproducible: the same seed gives the same faults to the same calls, in whatever order they come, and another seed others.
func TestFaultsAreReproducible(t *testing.T) {
	hits := func(seed uint64, paths ...string) map[string]string {
		w := world(t, "base", pvesim.Options{Seed: seed, Faults: []pvesim.Fault{{Kind: pvesim.FaultError, P: .3}, {Kind: pvesim.FaultReset, Path: "/nodes/**", P: .2}}})
		a := inProcess(t, w)
		out := map[string]string{}
		for range 60 {
			for _, p := range paths {
				code, _, err := a.try("GET", p, "")
				out[p] += fmt.Sprint(code, err != nil, " ")
			}
		}
		return out
	}
	all := []string{"/version", "/nodes/pve01/qemu", "/cluster/nextid"}
	first := hits(1, all...)
	slices.Reverse(all)
	again, alone, other := hits(1, all...), hits(1, "/version"), hits(2, all...)
	for _, p := range all {
		if first[p] != again[p] {
			t.Errorf("%s: the faults differ under the same seed", p)
		}
		if first[p] == other[p] {
			t.Errorf("%s: another seed gives the same faults", p)
		}
	}
	if first["/version"] != alone["/version"] {
		t.Error("calls to other paths change a path's faults")
	}
	if n := strings.Count(first["/version"], "500"); n < 8 || n > 30 {
		t.Errorf("%d of 60 calls failed at a probability of 0.3", n)
	}
}
