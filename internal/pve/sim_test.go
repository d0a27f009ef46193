package pve

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

var simToken = Credentials{TokenID: "root@pam!full", TokenSecret: secret.New("11111111-1111-4111-8111-111111111111")}

func params(kv ...string) wire.Params {
	var p wire.Params
	for i := 0; i < len(kv); i += 2 {
		p.Set(kv[i], wire.Plain(kv[i+1]))
	}
	return p
}

func simWorld(t *testing.T, variant string, o pvesim.Options) *pvesim.World {
	t.Helper()
	s, err := pvesim.Recorded(variant)
	if err != nil {
		t.Fatal(err)
	}
	w := pvesim.New(o, s)
	t.Cleanup(w.Stop)
	return w
}

// simServer serves a world over TLS and gives a client that pins its
// certificate.
func simServer(t *testing.T, w *pvesim.World, auth Credentials) *Client {
	t.Helper()
	srv, err := w.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	c, err := New(Config{Name: "sim", Endpoints: []string{srv.URL}, Nodes: []string{"pve01", "pve02"}, Auth: auth, Fingerprint: srv.Fingerprint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestCredentialsAtPVE(t *testing.T) {
	w := simWorld(t, "base", pvesim.Options{Seed: 1})
	for name, auth := range map[string]Credentials{
		"wrong secret":   {TokenID: "root@pam!full", TokenSecret: secret.New(canary)},
		"unknown token":  {TokenID: "root@pam!nope", TokenSecret: secret.New(canary)},
		"wrong password": {User: "root@pam", Password: secret.New(canary)},
	} {
		c := simServer(t, w, auth)
		_, err := c.Resources(t.Context())
		e := wantKind(t, err, KindUnauthorized)
		t.Log(name, e)
	}
	c := simServer(t, w, Credentials{TokenID: "gitops@pve!none", TokenSecret: secret.New("55555555-5555-4555-8555-555555555555")})
	if _, err := mustNode(t, simServer(t, w, simToken)).CreateGuest(t.Context(), QEMU, 100, params("memory", "64")); err != nil {
		t.Fatal(err)
	}
	_, err := mustNode(t, c).Start(t.Context(), QEMU, 100)
	if e := wantKind(t, err, KindForbidden); e.ACLPath != "/vms/100" || !slices.Contains(e.Privs, "VM.PowerMgmt") {
		t.Error(e)
	}
}

// What PVE and the network do to a create, and what becomes of it.
func TestFaultsOfPVE(t *testing.T) {
	post := func(k pvesim.FaultKind, status int) pvesim.Fault {
		return pvesim.Fault{Kind: k, Method: http.MethodPost, P: 1, Count: 1, Status: status, Delay: 2 * time.Second}
	}
	read := func(k pvesim.FaultKind, status int) pvesim.Fault {
		return pvesim.Fault{Kind: k, Method: http.MethodGet, P: 1, Count: 2, Status: status, Delay: time.Second}
	}
	for _, x := range []struct {
		name   string
		fault  pvesim.Fault
		kind   Kind
		exists bool
	}{
		{"none", pvesim.Fault{Kind: pvesim.FaultSlow}, "", true},
		{"reset before", post(pvesim.FaultReset, 0), KindUnknownOutcome, false},
		{"answer lost", post(pvesim.FaultLost, 0), "", true}, // its task is found
		{"answer truncated", post(pvesim.FaultTruncate, 0), "", true},
		{"595", post(pvesim.FaultError, 595), KindUnreachable, false},
		{"596", post(pvesim.FaultError, 596), KindUnknownOutcome, false},
		{"slow", post(pvesim.FaultSlow, 0), "", true},
		{"polls reset", read(pvesim.FaultReset, 0), "", true},
		{"polls 599", read(pvesim.FaultError, 599), "", true},
		{"polls truncated", read(pvesim.FaultTruncate, 0), "", true},
		{"task fails", pvesim.Fault{Kind: pvesim.FaultTaskFail, P: 1, Count: 1}, KindTaskFailed, false},
		{"task warns", pvesim.Fault{Kind: pvesim.FaultTaskWarn, P: 1, Count: 1}, "", true},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := pvesim.Recorded("base")
				if err != nil {
					t.Fatal(err)
				}
				w := pvesim.New(pvesim.Options{Seed: 1, TimeScale: 1, Faults: []pvesim.Fault{x.fault}}, s)
				defer w.Stop()
				c := inProcess(t, simToken, w.RoundTrip)
				res, err := mustNode(t, c).CreateGuest(t.Context(), QEMU, 100, params("memory", "64", "scsi0", "local-dir:1"))
				if x.kind == "" && err != nil || x.kind != "" && !Is(err, x.kind) {
					t.Errorf("%+v %v, want %q", res, err, x.kind)
				}
				if x.fault.Kind == pvesim.FaultTaskWarn && (!strings.HasPrefix(res.Exit, "WARNINGS") || !strings.Contains(fmt.Sprint(res.Warnings), "injected warning")) {
					t.Errorf("%+v", res)
				}
				exists := false
				w.View(func(s *pvesim.State) { _, exists = s.Guests[100] })
				posts := 0
				for _, r := range w.Requests() {
					if r.Method == http.MethodPost {
						posts++
					}
				}
				if x.kind != KindTaskFailed && exists != x.exists || c.Writes() != 1 || posts > 1 {
					t.Errorf("exists %v, %d writes, %d arrived", exists, c.Writes(), posts)
				}
			})
		})
	}
}

// An hour of task takes no time here, and few polls.
func TestLongTaskAtPVE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := pvesim.Recorded("base")
		if err != nil {
			t.Fatal(err)
		}
		w := pvesim.New(pvesim.Options{Seed: 1, TimeScale: 50}, s)
		defer w.Stop()
		c := inProcess(t, simToken, w.RoundTrip)
		n := mustNode(t, c)
		res, err := n.CreateGuest(t.Context(), QEMU, 100, params("memory", "64", "scsi0", "local-dir:4"))
		if err != nil {
			t.Fatal(err)
		}
		if polls := c.Stats().Reads; polls > 10+int64(res.Duration/time.Second) {
			t.Errorf("%d polls in %s", polls, res.Duration)
		}
	})
}
