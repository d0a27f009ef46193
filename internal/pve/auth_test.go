package pve

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// realm is a server that gives tickets and looks at them.
type realm struct {
	mu        sync.Mutex
	logins    []string // passwords that came
	current   string
	tfa, down bool
	refuse    bool
}

func (s *realm) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/ticket") {
		time.Sleep(time.Second) // so that others come meanwhile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, resetError()
	}
	if r.URL.Path == "/api2/json/access/ticket" {
		_ = r.ParseForm()
		s.logins = append(s.logins, r.Form.Get("password"))
		if s.refuse && r.Form.Get("password") == canary {
			return reply(401, "authentication failure", `{"data":null,"message":"authentication failure\n"}`), nil
		}
		if s.tfa {
			return data(map[string]any{"ticket": "PVE:!tfa!x", "NeedTFA": 1}), nil
		}
		s.current = "PVE:ops@pve:" + time.Now().Format("150405") + "::a+b/c="
		return data(map[string]any{"ticket": s.current, "CSRFPreventionToken": "csrf:" + s.current}), nil
	}
	if r.Header.Get("Authorization") != "" {
		return reply(401, "No ticket", ""), nil
	}
	v, _ := url.QueryUnescape(strings.TrimPrefix(r.Header.Get("Cookie"), "PVEAuthCookie="))
	switch {
	case v != s.current:
		return reply(401, "No ticket", ""), nil
	case r.Method != http.MethodGet && r.Header.Get("CSRFPreventionToken") != "csrf:"+s.current:
		return reply(401, "Permission denied - invalid csrf token", ""), nil
	}
	return data(nil), nil
}

func TestTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &realm{}
		c := inProcess(t, passwordAuth(), s.RoundTrip)
		n := mustNode(t, c)
		use := func() {
			t.Helper()
			if _, err := n.UpdateConfig(t.Context(), QEMU, 100, nil, ""); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(use)
		}
		wg.Wait()
		if len(s.logins) != 1 || s.logins[0] != canary {
			t.Fatalf("%d logins for twenty requests at once", len(s.logins))
		}
		first := s.current
		time.Sleep(106 * time.Minute)
		use()
		if len(s.logins) != 2 || s.logins[1] != first {
			t.Errorf("no renewal with the ticket before two hours")
		}
		s.mu.Lock()
		s.current = "revoked"
		s.mu.Unlock()
		use()
		if len(s.logins) != 3 || s.logins[2] != canary {
			t.Errorf("no login after a 401")
		}
		if c.Writes() != 23 || c.Stats().Logins != 3 {
			t.Errorf("%+v", c.Stats())
		}
	})
}

func TestRefusedPasswordIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &realm{refuse: true}
		c := inProcess(t, passwordAuth(), s.RoundTrip)
		for range 5 {
			_, err := c.Version(t.Context())
			if e := wantKind(t, err, KindUnauthorized); !strings.Contains(e.Error(), "password of ops@pve was refused") {
				t.Error(e)
			}
			_, err = mustNode(t, c).Start(t.Context(), QEMU, 100)
			wantKind(t, err, KindUnauthorized)
			time.Sleep(time.Minute)
		}
		if len(s.logins) != 1 || c.Writes() != 0 {
			t.Errorf("%d logins, %d writes", len(s.logins), c.Writes())
		}
		s.refuse = false
		time.Sleep(loginHold)
		if _, err := c.Version(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestSecondFactor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &realm{tfa: true}
		c := inProcess(t, passwordAuth(), s.RoundTrip)
		for range 3 {
			_, err := c.Version(t.Context())
			if e := wantKind(t, err, KindTFA); !strings.Contains(e.Error(), "use an API token") {
				t.Error(e)
			}
		}
		if len(s.logins) != 1 {
			t.Errorf("%d logins", len(s.logins))
		}
	})
}

// A ticket in its last quarter of an hour still serves when renewing fails.
func TestRenewalIsNotUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &realm{}
		broken := false
		c := inProcess(t, passwordAuth(), func(r *http.Request) (*http.Response, error) {
			if broken && strings.HasSuffix(r.URL.Path, "/ticket") {
				return nil, resetError()
			}
			return s.RoundTrip(r)
		})
		if _, err := c.Version(t.Context()); err != nil {
			t.Fatal(err)
		}
		broken = true
		time.Sleep(110 * time.Minute)
		if _, err := c.Version(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(15 * time.Minute)
		if _, err := c.Version(t.Context()); err == nil {
			t.Error("an expired ticket was used")
		}
	})
}

func TestTokenHeader(t *testing.T) {
	c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Authorization") != "PVEAPIToken=ops@pve!git="+canary || r.Header.Get("Cookie") != "" || r.Header.Get("CSRFPreventionToken") != "" {
			t.Errorf("%v", r.Header)
		}
		return reply(401, "Authentication failed!", ""), nil
	})
	_, err := c.Version(background(t))
	if e := wantKind(t, err, KindUnauthorized); !strings.Contains(e.Error(), "token ops@pve!git") || c.Stats().Reads != 1 {
		t.Errorf("%v after %+v", e, c.Stats())
	}
}
