package pve

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// PVE's proxy invents these statuses when it cannot talk to another node.
const (
	statusNoRoute    = 595 // no connection: nothing arrived (facts K)
	statusTimeout    = 596 // while sending or waiting: may have arrived
	statusProxyOther = 599
)

var (
	permission = regexp.MustCompile(`Permission check failed \((/[^,()]*), ([^)]*)\)`)
	guestLock  = regexp.MustCompile(`can't lock file '(/var/lock/qemu-server/lock-\d+\.conf|/run/lock/lxc/pve-config-\d+\.lock)'`)
	lockWait   = regexp.MustCompile(`can't lock file|got lock request timeout`)
	locked     = regexp.MustCompile(`\b(?:VM|CT) is locked\b`)
	taken      = regexp.MustCompile(`\b(?:VM|CT) \d+ already exists|config file already exists|refusing to override existing file`)
)

// textKinds is read from the top; facts B to F and C name the texts.
var textKinds = []struct {
	match func(string) bool
	kind  Kind
	hint  string
}{
	{has("got no worker upid"), KindUnknownOutcome, unknownHint},
	{has("checksum mismatch (file change by other user?)"), KindConflict, "somebody else changed the guest meanwhile: the next run plans anew"},
	{has("detected modified configuration"), KindConflict, "somebody else changed the guest meanwhile: the next run plans anew"},
	{locked.MatchString, KindBusy, "it is left alone until the lock is gone"},
	{has("can't lock file"), KindBusy, "another task works on it: the next run tries again"},
	{has("got lock request timeout"), KindBusy, "many tasks work on the storage or the cluster's files: the next run tries again"},
	{has("no quorum"), KindBusy, "the cluster has no quorum, so PVE accepts no change: bring nodes back first"},
	{has("Permission check failed"), KindForbidden, ""},
	{has("only root can"), KindForbidden, "PVE allows this to the root@pam login with password alone, to no token"},
	{has("Only root can"), KindForbidden, "PVE allows this to the root@pam login with password alone, to no token"},
	{taken.MatchString, KindAlreadyExists, ""},
	{has("invalid bootorder"), KindRefused, ""},
	{has("hostname lookup '"), KindNotFound, "the node is not in this cluster: check its name"},
	{has("no such cluster node"), KindNotFound, "the node is not in this cluster: check its name"},
	{has("does not exist"), KindNotFound, ""},
	{has("unable to find configuration file"), KindNotFound, ""},
	{has("no such task"), KindNotFound, ""},
}

func has(s string) func(string) bool { return func(t string) bool { return strings.Contains(t, s) } }

func guestLockFile(text string) bool { return guestLock.MatchString(text) }

// classifyText finds what PVE's own words mean; KindRefused if nothing known.
func classifyText(text string) (Kind, string) {
	for _, k := range textKinds {
		if k.match(text) {
			return k.kind, k.hint
		}
	}
	return KindRefused, ""
}

// refusal makes the error for an answer that is no success.
func (c *core) refusal(r request, a answer, env envelope) *Error {
	e := c.fail(r, KindRefused, strings.TrimSpace(env.Message), "")
	e.Status, e.Reason, e.Params = a.status, a.reason, env.Errors
	if e.Message == "" {
		e.Message = a.reason
	}
	if e.Message == "" {
		e.Message = http.StatusText(a.status)
	}
	read := r.isRead() || r.login
	switch {
	case a.status == http.StatusUnauthorized:
		c.unauthorized(e)
	case a.status == http.StatusForbidden:
		e.Kind = KindForbidden
	case a.status == http.StatusBadRequest:
		if e.Kind = KindInvalid; env.Errors["upid"] != "" && strings.Contains(env.Errors["upid"], "no such task") {
			e.Kind = KindNotFound
		}
	case a.status == statusNoRoute:
		e.Kind = KindUnreachable
		e.Message = fmt.Sprintf("PVE cannot reach node %q: %s", e.Node, a.reason)
		e.Hint = "the node seems to be down; its guests are left alone until it is back"
	case a.status >= statusTimeout && a.status <= statusProxyOther,
		a.status == http.StatusBadGateway, a.status == http.StatusServiceUnavailable, a.status == http.StatusGatewayTimeout:
		if e.Kind = KindUnavailable; !read {
			e.Kind, e.Hint = KindUnknownOutcome, unknownHint
			e.Message += "; the change may have been made or not"
		}
	case a.status == http.StatusTooManyRequests:
		e.Kind, e.Hint = KindUnavailable, "something before PVE limits the rate of requests"
	case a.status == http.StatusNotFound, a.status == http.StatusMethodNotAllowed:
		e.Kind, e.Hint = KindNotJSON, "PVE never answers like this: check base-url"
	case a.status == http.StatusNotImplemented:
		e.Hint = "this PVE has no such call: is it version 9?"
	case a.status == http.StatusInternalServerError:
		e.Kind, e.Hint = classifyText(e.Message)
	}
	if e.Kind == KindUnknownOutcome && read {
		e.Kind = KindUnavailable
	}
	if e.Kind == KindForbidden {
		c.forbidden(e)
	}
	return e
}

func (c *core) unauthorized(e *Error) {
	e.Kind = KindUnauthorized
	who := c.auth.creds.identity()
	if c.auth.creds.TokenID != "" {
		e.Message = "PVE refuses the token " + who
		e.Hint = "its id or secret is wrong, or it has expired: look under Datacenter, Permissions, API Tokens"
		return
	}
	e.Message = "PVE refuses the ticket of " + who
	if strings.Contains(e.Reason, "csrf") {
		e.Message = "PVE refuses the CSRF token of " + who
	}
	e.Hint = "a new login did not help: check the nodes' clocks"
}

// forbidden names what is missing and where.
func (c *core) forbidden(e *Error) {
	m := permission.FindStringSubmatch(e.Message)
	if m == nil {
		if strings.Contains(e.Message, "root@pam") && e.Hint == "" {
			e.Hint = "PVE allows this to the root@pam login with password alone, to no token"
		} else if strings.HasSuffix(e.Path, "/download-url") {
			e.Hint = "a download needs Datastore.AllocateTemplate on the storage, and Sys.AccessNetwork on the node (or Sys.Audit and Sys.Modify on /)"
		}
		return
	}
	e.ACLPath = m[1]
	privs, _, _ := strings.Cut(m[2], " for ")
	e.Privs = strings.Split(privs, "|")
	e.Hint = fmt.Sprintf("grant %s on %s to %s", strings.Join(e.Privs, " or "), e.ACLPath, c.auth.creds.identity())
	if c.auth.creds.TokenID != "" {
		e.Hint += "; a token with privilege separation has only what it and its user both have"
	}
}
