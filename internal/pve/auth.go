package pve

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

const (
	ticketLife  = 2 * time.Hour
	ticketRenew = 105 * time.Minute
	// loginHold is how long a refused password is not sent again. Two attempts
	// an hour provoke no lock-out of an LDAP or AD realm, and a realm that was
	// down for a while does not lock us out for ever either.
	loginHold = 30 * time.Minute
)

func (c Credentials) check() error {
	switch token, user := c.TokenID != "", c.User != ""; {
	case token && user:
		return errors.New("credentials: both a token and a user with password are given: use one")
	case token:
		name, id, ok := strings.Cut(c.TokenID, "!")
		if !ok || id == "" || !strings.Contains(name, "@") || strings.ContainsAny(c.TokenID, " \t\r\n=") {
			return errors.New("credentials: the token id must look like user@realm!name")
		}
		if c.TokenSecret.Empty() || strings.ContainsAny(c.TokenSecret.Reveal(), " \t\r\n") {
			return errors.New("credentials: the token's secret is missing or holds white space")
		}
	case user:
		if name, realm, ok := strings.Cut(c.User, "@"); !ok || name == "" || realm == "" || strings.Contains(realm, "!") {
			return errors.New("credentials: the user must look like user@realm")
		}
		if c.Password.Empty() {
			return errors.New("credentials: the password is missing")
		}
	default:
		return errors.New("credentials: none are given: set PROXOPS_PVE_TOKEN_VALUE to user@realm!id=secret, or reference them under secrets: in the cluster's config.yaml")
	}
	return nil
}

func (c Credentials) identity() string {
	if c.TokenID != "" {
		return c.TokenID
	}
	return c.User
}

// cred is what one request carries. No formatting shows it.
type cred struct {
	set func(h http.Header, write bool)
	gen int
}

func (cred) String() string   { return "(redacted)" }
func (cred) GoString() string { return "(redacted)" }

type ticket struct {
	value, csrf secret.Text
	at          time.Time
	gen         int
}

// auth holds the credentials, and the ticket when there is a password.
type auth struct {
	core  *core
	creds Credentials
	once  singleflight.Group

	mu      sync.Mutex
	cur     *ticket
	gen     int
	refused *Error
	until   time.Time
}

func (a *auth) owns(t Task) bool { return t.UPID.User() == a.creds.identity() }

// credential gives the credentials for the next request, logging in or
// renewing first where needed; callers at the same time share one login.
func (a *auth) credential(ctx context.Context) (cred, *Error) {
	if a.creds.TokenID != "" {
		v := "PVEAPIToken=" + a.creds.TokenID + "=" + a.creds.TokenSecret.Reveal()
		return cred{set: func(h http.Header, _ bool) { h.Set("Authorization", v) }}, nil
	}
	a.mu.Lock()
	t := a.cur
	a.mu.Unlock()
	if t != nil && time.Since(t.at) < ticketRenew {
		return t.cred(), nil
	}
	ch := a.once.DoChan("login", func() (any, error) {
		lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.core.requestTimeout)
		defer cancel()
		if t, e := a.login(lctx); e != nil {
			return nil, e
		} else {
			return t, nil
		}
	})
	select {
	case <-ctx.Done():
		return cred{}, a.core.canceled(loginRequest("", ""), context.Cause(ctx))
	case res := <-ch:
		if e, ok := As(res.Err); ok {
			own := *e // callers share the login, not its error
			return cred{}, &own
		}
		return res.Val.(*ticket).cred(), nil
	}
}

func (t *ticket) cred() cred {
	return cred{gen: t.gen, set: func(h http.Header, write bool) {
		h.Set("Cookie", "PVEAuthCookie="+url.QueryEscape(t.value.Reveal()))
		if write {
			h.Set("CSRFPreventionToken", t.csrf.Reveal())
		}
	}}
}

// renewable reports whether a refused request may be repeated with a new
// ticket, and drops the refused one.
func (a *auth) renewable(cr cred) bool {
	if a.creds.TokenID != "" {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cur != nil && a.cur.gen == cr.gen {
		a.cur = nil
	}
	return true
}

func loginRequest(user, password string) request {
	return request{method: http.MethodPost, path: "/access/ticket", login: true,
		form: url.Values{"username": {user}, "password": {password}}}
}

// login runs alone. It renews with the present ticket, which PVE takes for a
// password, or logs in.
func (a *auth) login(ctx context.Context) (*ticket, *Error) {
	a.mu.Lock()
	old, refused := a.cur, a.refused
	if !time.Now().Before(a.until) {
		refused = nil
	}
	a.mu.Unlock()
	if old != nil {
		if time.Since(old.at) < ticketRenew {
			return old, nil // another caller has just done it
		}
		t, e := a.ask(ctx, old.value.Reveal())
		if e == nil {
			return t, nil
		}
		if e.Status == 0 && time.Since(old.at) < ticketLife {
			return old, nil // good for a few minutes still
		}
	}
	if refused != nil {
		return nil, refused
	}
	t, e := a.ask(ctx, a.creds.Password.Reveal())
	if e != nil && (e.Kind == KindUnauthorized || e.Kind == KindTFA) {
		a.mu.Lock()
		a.refused, a.until = e, time.Now().Add(loginHold)
		a.mu.Unlock()
	}
	return t, e
}

func (a *auth) ask(ctx context.Context, password string) (*ticket, *Error) {
	r := loginRequest(a.creds.User, password)
	env, e := a.core.exchange(ctx, r, cred{})
	if e != nil {
		a.core.scrubber(wire.Params{{Key: "password", Value: wire.Hidden(secret.New(password))}}).err(e)
		if e.Kind == KindUnauthorized {
			e.Message = "the password of " + a.creds.User + " was refused"
			e.Hint = "correct it; it is not sent again for a while, so that the account is not locked"
		}
		return nil, e
	}
	var x row
	if err := a.core.decode(r, env, &x); err != nil {
		e, _ := As(err)
		return nil, e
	}
	if x.yes("NeedTFA") || strings.HasPrefix(x.str("ticket"), "PVE:!tfa!") {
		return nil, a.core.fail(r, KindTFA, a.creds.User+" has a second factor, which nobody can enter here", "use an API token (auth: token)")
	}
	if x.str("ticket") == "" {
		return nil, a.core.fail(r, KindNotJSON, "the login's answer has no ticket", "check that base-url is PVE's own address")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gen++
	a.cur = &ticket{value: secret.New(x.str("ticket")), csrf: secret.New(x.str("CSRFPreventionToken")), at: time.Now(), gen: a.gen}
	a.refused = nil
	return a.cur, nil
}
