package pvesim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ticketLife is how long a ticket is good for.
const ticketLife = 2 * time.Hour

// ticket makes a ticket for a user: PVE:user:TIME::signature.
func (w *World) ticket(user string) string {
	plain := fmt.Sprintf("PVE:%s:%08X", user, time.Now().Unix())
	return plain + "::" + base64.StdEncoding.EncodeToString(w.sign("ticket", plain, 8))
}

// ticketUser checks a ticket and returns its user.
func (w *World) ticketUser(ticket string) (string, bool) {
	plain, sig, ok := strings.Cut(ticket, "::")
	f := strings.Split(plain, ":")
	if !ok || len(f) != 3 || f[0] != "PVE" {
		return "", false
	}
	at, err := strconv.ParseInt(f[2], 16, 64)
	got, err2 := base64.StdEncoding.DecodeString(sig)
	if err != nil || err2 != nil || !hmac.Equal(got, w.sign("ticket", plain, 8)) {
		return "", false
	}
	age := time.Since(time.Unix(at, 0))
	u := w.Access.Users[f[1]]
	return f[1], age > -5*time.Minute && age < ticketLife && u != nil && u.active()
}

// csrf makes the token that non-GET calls with a ticket must carry.
func (w *World) csrf(user string) string {
	t := fmt.Sprintf("%08X", time.Now().Unix())
	return t + ":" + base64.RawStdEncoding.EncodeToString(w.sign("csrf", t+":"+user, 1))
}

func (w *World) csrfValid(user, token string) bool {
	t, sig, _ := strings.Cut(token, ":")
	at, err := strconv.ParseInt(t, 16, 64)
	got, err2 := base64.RawStdEncoding.DecodeString(sig)
	if err != nil || err2 != nil || !hmac.Equal(got, w.sign("csrf", t+":"+user, 1)) {
		return false
	}
	age := time.Since(time.Unix(at, 0))
	return age > -5*time.Minute && age < 24*time.Hour
}

// sign makes a signature of n*32 bytes.
func (w *World) sign(purpose, text string, n int) []byte {
	var out []byte
	for i := range n {
		m := hmac.New(sha256.New, w.secret(purpose))
		fmt.Fprintf(m, "%d %s", i, text)
		out = m.Sum(out)
	}
	return out
}

// authenticate finds out who sends a request, before anything else about it is looked at. A cookie, even a bad one, beats a token.
func (w *World) authenticate(c *call, path string) (Identity, *Error) {
	open := openToAll(c.method, path)
	header := c.header.Get("Authorization")
	cookie := cookieTicket(c.header)
	switch {
	case cookie != "" && !open:
		user, ok := w.ticketUser(cookie)
		if !ok {
			return Identity{}, unauthorized("Authentication failed!")
		}
		if c.method != http.MethodGet && !isUpload(c.method, path) && !w.csrfValid(user, c.header.Get("CSRFPreventionToken")) {
			return Identity{}, unauthorized("Permission denied - invalid csrf token")
		}
		return Identity{User: user}, nil
	case tokenHeader(header) != "" && cookie == "":
		who, ok := w.tokenIdentity(tokenHeader(header))
		if !ok {
			return Identity{}, unauthorized("Authentication failed!")
		}
		return who, nil
	case open:
		return Identity{}, nil
	}
	return Identity{}, unauthorized("No ticket")
}

// openToAll are the calls that need no log-in.
func openToAll(method, path string) bool {
	switch path {
	case "/access/ticket":
		return method == http.MethodGet || method == http.MethodPost
	case "/access/domains":
		return method == http.MethodGet
	case "/access/openid/login", "/access/openid/auth-url":
		return method == http.MethodPost
	}
	return false
}

func isUpload(method, path string) bool {
	return method == http.MethodPost && strings.HasSuffix(path, "/upload") && strings.Contains(path, "/storage/")
}

func cookieTicket(h http.Header) string {
	for _, line := range h.Values("Cookie") {
		for part := range strings.SplitSeq(line, ";") {
			if v, ok := strings.CutPrefix(strings.TrimSpace(part), "PVEAuthCookie="); ok && v != "" {
				if u, err := url.PathUnescape(v); err == nil {
					return u
				}
				return v
			}
		}
	}
	return ""
}

// tokenHeader takes the token out of "PVEAPIToken=…"; a blank instead of the "=" is accepted.
func tokenHeader(h string) string {
	rest, ok := strings.CutPrefix(h, "PVEAPIToken")
	if !ok || rest == "" || rest[0] != '=' && rest[0] != ' ' {
		return ""
	}
	return rest[1:]
}

func (w *World) tokenIdentity(s string) (Identity, bool) {
	id, secret, _ := strings.Cut(s, "=")
	who := splitAuthID(id)
	u := w.Access.Users[who.User]
	if u == nil || !u.active() || who.Token == "" {
		return Identity{}, false
	}
	t := u.Tokens[who.Token]
	if t == nil || t.Expire != 0 && t.Expire <= time.Now().Unix() || !hmac.Equal([]byte(t.Secret), []byte(secret)) {
		return Identity{}, false
	}
	return who, true
}

// login answers POST /access/ticket.
func (w *World) login(r *Request) (any, error) {
	user := r.P.Str("username")
	if realm := r.P.Str("realm"); realm != "" && !strings.Contains(user, "@") {
		user += "@" + realm
	}
	if !w.passwordGood(user, r.P.Str("password")) || r.P.Str("otp") != "" {
		return nil, &Error{Status: http.StatusUnauthorized, Message: "authentication failure", Penalty: true}
	}
	return map[string]any{
		"username": user, "ticket": w.ticket(user), "CSRFPreventionToken": w.csrf(user), "cap": w.capabilities(Identity{User: user}),
	}, nil
}

// passwordGood takes a password, the user's own ticket, or root's.
func (w *World) passwordGood(user, password string) bool {
	u := w.Access.Users[user]
	if u == nil || !u.active() {
		return false
	}
	if by, ok := w.ticketUser(password); ok {
		return by == user || by == "root@pam"
	}
	return u.passwordIs(password)
}

// capabilities are what the web interface shows or hides by.
func (w *World) capabilities(who Identity) map[string]map[string]int {
	groups := map[string]struct {
		path   string
		prefix []string
	}{
		"vms": {"/vms", []string{"VM."}}, "storage": {"/storage", []string{"Datastore."}}, "access": {"/access", []string{"User.", "Group."}},
		"dc": {"/", []string{"Sys.Audit", "Sys.Modify", "SDN."}}, "nodes": {"/nodes", []string{"Sys."}}, "sdn": {"/sdn", []string{"SDN."}},
		"mapping": {"/mapping", []string{"Mapping."}},
	}
	out := map[string]map[string]int{}
	for name, g := range groups {
		out[name] = map[string]int{}
		for p := range w.privs(who, g.path) {
			for _, prefix := range g.prefix {
				if strings.HasPrefix(p, prefix) || p == "Permissions.Modify" && name != "dc" {
					out[name][p] = 1
				}
			}
		}
	}
	return out
}
