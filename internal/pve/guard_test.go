package pve

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

// A write whose answer is lost goes to no other endpoint of the cluster: both
// lead to the same guests.
func TestLostWriteGoesToNoOtherEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes []string
		c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
			switch {
			case r.URL.Path == "/api2/json/cluster/status":
				return data(member("prod", "pve01", "pve02")), nil
			case r.Method == http.MethodGet:
				return data([]any{}), nil
			}
			if writes = append(writes, r.URL.Host); r.URL.Host == "a:8006" {
				return nil, resetError()
			}
			return data(nil), nil
		}, func(c *Config) { c.Endpoints = []string{"https://a:8006", "https://b:8006"} })
		_, err := mustNode(t, c).UpdateConfig(t.Context(), QEMU, 100, nil, "d")
		wantKind(t, err, KindUnknownOutcome)
		if fmt.Sprint(writes) != "[a:8006]" {
			t.Errorf("written to %v", writes)
		}
	})
}

// The cluster's name is no proof: two sites may both be called prod.
func TestEndpointsMustHaveTheSameNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newEstate()
		s.status["b:8006"] = member("prod", "pve01", "pve09")
		c := s.client(t, "a", "b")
		if _, err := c.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.down["a:8006"] = true
		s.take()
		if _, err := c.Version(t.Context()); err == nil || !strings.Contains(err.Error(), "another cluster") || s.take() != "" {
			t.Error(err, s.hosts)
		}
	})
}

// PVE cuts larger bodies off: such a write would arrive in part.
func TestLargeWriteIsNotSent(t *testing.T) {
	c := inProcess(t, tokenAuth(), func(*http.Request) (*http.Response, error) {
		t.Error("it was sent")
		return data(nil), nil
	})
	_, err := mustNode(t, c).UpdateConfig(t.Context(), QEMU, 100, wire.Params{{Key: "description", Value: wire.Plain(strings.Repeat("a", maxBody))}}, "")
	wantKind(t, err, KindInvalid)
}

// A lock timeout inside a task came after work began, so the write is sent
// once; a start or shutdown may be asked for again.
func TestBusyTasks(t *testing.T) {
	for name, x := range map[string]struct {
		call   func(t *testing.T, n *Node) error
		writes int
	}{
		"clone": {func(t *testing.T, n *Node) error {
			_, err := n.Clone(t.Context(), QEMU, 100, 101, nil)
			return err
		}, 1},
		"start": {func(t *testing.T, n *Node) error { _, err := n.Start(t.Context(), QEMU, 100); return err }, busyTries},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &taskServer{exit: "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout"}
			err := x.call(t, mustNode(t, inProcess(t, tokenAuth(), s.RoundTrip)))
			if !Is(err, KindBusy) || s.writes != x.writes {
				t.Errorf("%s: %d writes, want %d: %v", name, s.writes, x.writes, err)
			}
		})
	}
}

// What is no task id cannot be followed, and is no success.
func TestAnswerWithoutTaskID(t *testing.T) {
	c := inProcess(t, tokenAuth(), func(*http.Request) (*http.Response, error) { return data("done"), nil })
	_, err := mustNode(t, c).Start(t.Context(), QEMU, 100)
	wantKind(t, err, KindUnknownOutcome)
}

// A warning of a task that succeeded may repeat what was sent.
func TestWarningsAreScrubbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &taskServer{exit: "WARNINGS: 1", log: []string{"WARN: weak password hunter2" + canary}}
		res, err := mustNode(t, inProcess(t, tokenAuth(), s.RoundTrip)).CreateGuest(t.Context(), LXC, 100,
			wire.Params{{Key: "password", Value: wire.Hidden(secret.New("hunter2" + canary))}})
		if text := fmt.Sprintf("%+v", res); err != nil || strings.Contains(text, "hunter2") || !strings.Contains(text, "weak password (redacted)") {
			t.Errorf("%s, %v", text, err)
		}
	})
}

// That the id is free is said by PVE or not at all.
func TestVMIDFree(t *testing.T) {
	for _, x := range []struct {
		status     int
		text, body string
		free, ok   bool
	}{
		{200, "OK", `{"data":"100"}`, true, true},
		{400, "Parameter verification failed.", `{"data":null,"errors":{"vmid":"VM 100 already exists"}}`, false, true},
		{400, "Parameter verification failed.", `{"data":null,"errors":{"vmid":"value must have a minimum of 100"}}`, false, false},
		{403, "Permission check failed", `{"data":null}`, false, false},
		{500, "no quorum", `{"data":null}`, false, false},
	} {
		c := inProcess(t, tokenAuth(), func(*http.Request) (*http.Response, error) { return reply(x.status, x.text, x.body), nil })
		if free, err := c.VMIDFree(t.Context(), 100); free != x.free || (err == nil) != x.ok {
			t.Errorf("%d %s: free %v, %v", x.status, x.body, free, err)
		}
	}
}

// A delete takes the guest and its volumes along, no job and nobody else's volume.
func TestDeletePurgesNothing(t *testing.T) {
	c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete && (r.URL.RawQuery != "" || r.ContentLength > 0) {
			t.Errorf("sent along: %s", r.URL.RawQuery)
		}
		return reply(500, "seen", ""), nil
	})
	for _, kind := range []GuestType{QEMU, LXC} {
		_, err := mustNode(t, c).Delete(t.Context(), kind, 100)
		wantKind(t, err, KindRefused)
	}
}

// Only what certainly changed nothing says so; after the rest the guest is read.
func TestNothingApplied(t *testing.T) {
	lock := "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout"
	for _, x := range []struct {
		err  error
		want bool
	}{
		{&Error{Kind: KindConflict}, true}, {&Error{Kind: KindUnreachable}, true}, {&Error{Kind: KindNotAllowed}, true},
		{&Error{Kind: KindConflict, UPID: "UPID:x"}, false}, {&Error{Kind: KindBusy, Message: lock}, true}, {&Error{Kind: KindBusy, Message: "VM is locked"}, false},
		{&Error{Kind: KindCanceled, unsent: true}, true}, {&Error{Kind: KindCanceled}, false},
		{&Error{Kind: KindInvalid}, false}, {&Error{Kind: KindRefused}, false}, {&Error{Kind: KindForbidden}, false}, {&Error{Kind: KindUnknownOutcome}, false},
		{errors.New("other"), false}, {nil, false},
	} {
		if got := NothingApplied(x.err); got != x.want {
			t.Errorf("%#v: %v", x.err, got)
		}
	}
}

// A new login is tried once for a request, also where PVE refuses every ticket.
func TestRefusedTicketIsRenewedOnce(t *testing.T) {
	logins, asked := 0, 0
	c := inProcess(t, passwordAuth(), func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/api2/json/access/ticket" {
			logins++
			return data(map[string]any{"ticket": "PVE:ops@pve:1::x", "CSRFPreventionToken": "csrf"}), nil
		}
		if asked++; asked > 9 {
			return data(nil), nil
		}
		return reply(401, "permission denied - invalid PVE ticket", ""), nil
	})
	_, err := mustNode(t, c).Start(t.Context(), QEMU, 100)
	wantKind(t, err, KindUnauthorized)
	if logins != 2 || asked != 2 {
		t.Errorf("%d logins, %d requests", logins, asked)
	}
}

// What one request carries is shown by no verb.
func TestCredentialIsShownByNoVerb(t *testing.T) {
	c := inProcess(t, tokenAuth(), func(*http.Request) (*http.Response, error) { return data(nil), nil })
	cr, e := c.core.auth.credential(t.Context())
	if e != nil {
		t.Fatal(e)
	}
	if text := fmt.Sprintf("%v %+v %#v %s %q", cr, cr, cr, cr, cr); strings.Contains(text, canary) || strings.Count(text, "(redacted)") != 5 {
		t.Error(text)
	}
}
