package pvesim

import (
	"net/http"
	"strings"
)

// login answers POST /access/ticket. Whatever is wrong, the answer is the same.
func (w *World) login(r *Request) (any, error) {
	user := r.P.Str("username")
	if realm := r.P.Str("realm"); realm != "" {
		user += "@" + realm
	}
	out := w.logIn(user, r.P)
	if out == nil {
		return nil, &Error{Status: http.StatusUnauthorized, Message: "authentication failure", Penalty: true}
	}
	if out["NeedTFA"] == nil {
		out["cap"] = w.capabilities(Identity{User: user})
	}
	if w.ClusterName != "" && w.can(Identity{User: user}, "/", "Sys.Audit") {
		out["clustername"] = w.ClusterName
	}
	return out, nil
}

// logIn returns what a good log-in is answered with, nil for a bad one.
func (w *World) logIn(user string, p Params) map[string]any {
	u := w.Access.Users[user]
	if u == nil || !u.active() {
		return nil
	}
	password := p.Str("password")
	ticketUser, isTicket := w.ticketUser(password)
	if path, privs := p.Str("path"), p.List("privs"); path != "" && len(privs) > 0 { // is the caller who he says, and may he do that?
		known := isTicket && ticketUser == user || w.passwordGood(u, password, p.Str("otp")) == ""
		if path = normalPath(path); !known || path == "" || !w.can(Identity{User: user}, path, privs...) {
			return nil
		}
		return map[string]any{"username": user}
	}
	switch challenge := p.Str("tfa-challenge"); {
	case challenge != "":
		if !w.challengeOf(challenge, user) || !u.answered(password) {
			return nil
		}
	case isTicket && (ticketUser == user || ticketUser == "root@pam"): // a renewal; root gets tickets for anybody
	default:
		switch ask := w.passwordGood(u, password, p.Str("otp")); ask {
		case "":
		case "no":
			return nil
		default:
			return map[string]any{"username": user, "ticket": w.challengeTicket(user, ask), "CSRFPreventionToken": w.csrf(user), "NeedTFA": 1}
		}
	}
	return map[string]any{"username": user, "ticket": w.ticket(user), "CSRFPreventionToken": w.csrf(user)}
}

// passwordGood returns "" when a password (and the code beside it) is right, "no" when it is not, else the challenge that the user
// must answer still. A code for a user without a second factor is wrong (au-022).
func (w *World) passwordGood(u *User, password, otp string) string {
	if !u.passwordIs(password) {
		return "no"
	}
	ask := u.challenge()
	switch {
	case otp == "":
		return ask
	case ask == "":
		return "no"
	case !strings.Contains(otp, ":"):
		otp = "totp:" + otp
	}
	if u.answered(otp) {
		return ""
	}
	return "no"
}
