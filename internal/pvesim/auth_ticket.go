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

// ticketUser checks a ticket and returns its user, who must still be there and enabled.
func (w *World) ticketUser(ticket string) (string, bool) {
	user, ok := w.ticketData(ticket, "")
	u := w.Access.Users[user]
	return user, ok && u != nil && u.active()
}

// ticketData checks a ticket's form, age and signature and returns what it is for. aad is what was signed with it.
func (w *World) ticketData(ticket, aad string) (string, bool) {
	plain, sig, ok := strings.Cut(ticket, "::")
	f := strings.Split(plain, ":")
	if !ok || len(f) != 3 || f[0] != "PVE" {
		return "", false
	}
	at, err := strconv.ParseInt(f[2], 16, 64)
	got, err2 := base64.StdEncoding.DecodeString(sig)
	if err != nil || err2 != nil || !hmac.Equal(got, w.sign("ticket", plain+aad, 8)) {
		return "", false
	}
	return f[1], fresh(at)
}

// fresh says whether something made at a Unix time is neither too old nor, clocks being what they are, from too far ahead.
func fresh(at int64) bool {
	age := time.Since(time.Unix(at, 0))
	return age > -5*time.Minute && age < ticketLife
}

// challengeTicket is given instead of a ticket to a user who has a second factor: it names what is asked for and is good for nothing
// but the answer.
func (w *World) challengeTicket(user, challenge string) string {
	plain := fmt.Sprintf("PVE:!tfa!%s:%08X", url.QueryEscape(challenge), time.Now().Unix())
	return plain + "::" + base64.StdEncoding.EncodeToString(w.sign("ticket", plain+user, 8))
}

func (w *World) challengeOf(ticket, user string) bool {
	data, ok := w.ticketData(ticket, user)
	return ok && strings.HasPrefix(data, "!tfa!")
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
	return fresh(at)
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

// authenticate finds out who sends a request, before anything else about it is looked at. A cookie, even a bad one, beats a token. A
// token sent to a call that needs no log-in is not looked at, but makes it a token's call (au-026).
func (w *World) authenticate(c *call, path string) (Identity, *Error) {
	cookie, token := cookieTicket(c.header), ""
	if cookie == "" {
		token = tokenHeader(c.header.Get("Authorization"))
	}
	if openToAll(c.method, path) {
		if token != "" {
			return splitAuthID(strings.SplitN(token, "=", 2)[0]), nil
		}
		return Identity{}, nil
	}
	if token != "" {
		who, ok := w.tokenIdentity(token)
		if !ok {
			return Identity{}, unauthorized("Authentication failed!")
		}
		return who, w.uploadAllowed(who, c.method, path)
	}
	if cookie == "" {
		return Identity{}, unauthorized("No ticket")
	}
	user, ok := w.ticketUser(cookie)
	if !ok {
		return Identity{}, unauthorized("Authentication failed!")
	}
	if _, upload := uploadPath(c.method, path); !upload && c.method != http.MethodGet && !w.csrfValid(user, c.header.Get("CSRFPreventionToken")) {
		return Identity{}, unauthorized("Permission denied - invalid csrf token")
	}
	return Identity{User: user}, w.uploadAllowed(Identity{User: user}, c.method, path)
}

// uploadAllowed: uploads need no CSRF token, but their permission is checked along with the log-in, so that a refusal looks like one
// of those: slow and without a body (au-193).
func (w *World) uploadAllowed(who Identity, method, path string) *Error {
	storage, ok := uploadPath(method, path)
	if !ok {
		return nil
	}
	if err := w.check(who, "/storage/"+storage, "Datastore.AllocateTemplate"); err != nil {
		return &Error{Status: http.StatusForbidden, Message: asError(err).Message, Plain: new(string), Penalty: true}
	}
	return nil
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

// uploadPath gives the storage that an upload's path names.
func uploadPath(method, path string) (storage string, ok bool) {
	p := splitPath(path)
	if method != http.MethodPost || len(p) != 5 || p[0] != "nodes" || p[2] != "storage" || p[4] != "upload" {
		return "", false
	}
	return p[3], true
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
