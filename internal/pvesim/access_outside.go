package pvesim

import "net/http"

// Log-ins that others vouch for: OpenID providers, LDAP servers, consoles. The simulated cluster reaches none of them and opens no
// console; what PVE finds out before it asks them is answered as PVE does.

func outsideRoutes() []route {
	return []route{
		{"POST", "/access/openid/auth-url", (*World).openidURL},
		{"POST", "/access/openid/login", (*World).openidLogin},
		{"POST", "/access/domains/{realm}/sync", (*World).realmSync},
		{"POST", "/access/vncticket", (*World).consoleTicket},
	}
}

func (w *World) openidURL(r *Request) (any, error) {
	id := r.P.Str("realm")
	conf := w.Access.Realms[id]
	switch {
	case conf == nil:
		return nil, die("authentication domain '%s' does not exist", id)
	case conf["type"] != "openid":
		return nil, die("wrong realm type (%s != openid)", conf["type"])
	}
	return nil, die("OpenID Connect provider '%s' cannot be reached", conf["issuer-url"])
}

// openidLogin knows of no log-in that was begun.
func (w *World) openidLogin(*Request) (any, error) {
	return nil, &Error{Status: http.StatusUnauthorized, Message: "authentication failure", Penalty: true}
}

// realmSync starts the task of a synchronisation, which does not get as far as the server.
func (w *World) realmSync(r *Request) (any, error) {
	id := r.P.Str("realm")
	conf := w.Access.Realms[id]
	switch {
	case conf == nil:
		return nil, paramErr("realm", "Realm does not exist.")
	case conf["type"] != "ldap" && conf["type"] != "ad":
		return nil, die("Cannot sync realm type '%s'! Only LDAP/AD realms can be synced.", conf["type"])
	}
	return r.spawn("auth-realm-sync", id, func(a *Actor) error {
		a.Logf("starting sync for realm %s", id)
		return die("unable to connect to LDAP server '%s'", conf["server1"])
	}), nil
}

// consoleTicket finds every ticket invalid: none was given out.
func (w *World) consoleTicket(*Request) (any, error) {
	return nil, raise(http.StatusUnauthorized, "permission denied - invalid PVEVNC ticket")
}
