package pve

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind says what a failed request means for the caller.
type Kind string

// The kinds of failure.
const (
	KindUnauthorized   Kind = "unauthorized"    // token or password refused (401)
	KindTFA            Kind = "second-factor"   // the user has a second factor
	KindForbidden      Kind = "forbidden"       // 403, or a check inside that says so; see ACLPath, Privs
	KindNotFound       Kind = "not-found"       // PVE's 500 "does not exist": there is no 404 (facts B)
	KindAlreadyExists  Kind = "already-exists"  // the vmid or the file is taken
	KindBusy           Kind = "busy"            // a guest's lock, a lock file, a storage's lock
	KindConflict       Kind = "conflict"        // the digest does not match any more
	KindInvalid        Kind = "invalid"         // 400: see Params; on a running guest a refused hot-plug leaves pending values (facts D)
	KindRefused        Kind = "refused"         // any other 500 of PVE's code: see Message
	KindTaskFailed     Kind = "task-failed"     // a task ended with another error; Busy, NotFound, ... where the text says so
	KindTaskTimeout    Kind = "task-timeout"    // the task still runs; PVE goes on with it
	KindUnreachable    Kind = "unreachable"     // no connection, or PVE cannot reach the node (595): not applied
	KindUnknownOutcome Kind = "unknown-outcome" // a write that may or may not have been applied
	KindUnavailable    Kind = "unavailable"     // a read or login that a proxy or PVE could not answer now (429, 502-504, 596-599)
	KindNotJSON        Kind = "not-json"        // something else than PVE's API answered
	KindTLS            Kind = "tls"             // the certificate is not trusted
	KindWrongCluster   Kind = "wrong-cluster"   // a further endpoint belongs to another cluster
	KindNotAllowed     Kind = "not-allowed"     // the node is not on the allow-list; nothing was sent
	KindCanceled       Kind = "canceled"        // ctx ended
)

// Error is a failed request, task or check. It never holds a credential or a
// parameter's value of ours.
type Error struct {
	Kind    Kind
	Cluster string
	Method  string
	Path    string // API path without query
	Node    string // the node in the path, "" for cluster paths
	Status  int    // HTTP status, 0 when there was no answer
	Reason  string // PVE's reason phrase
	Message string // PVE's text, or ours when PVE gave none
	Hint    string // what to do about it
	Params  map[string]string

	ACLPath string   // KindForbidden: where a privilege is missing, such as /vms/100
	Privs   []string // KindForbidden: any one of these is enough

	Expected, Seen string // KindTLS: fingerprints; Expected is "" without a pin

	UPID UPID     // the task, when there is one
	Tail []string // the last lines of its log

	unsent bool // KindCanceled: PVE did not see the request
	slow   bool // it took a whole timeout; repeating it often would take for ever
	cause  error
}

// Error gives place, fault, remedy, on one line unless a task's log is in it.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Cluster != "" {
		b.WriteString(e.Cluster + ": ")
	}
	if e.Method != "" {
		b.WriteString(e.Method + " " + e.Path + ": ")
	}
	b.WriteString(e.text())
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	for _, l := range e.Tail {
		b.WriteString("\n    " + l)
	}
	return b.String()
}

func (e *Error) text() string {
	msg := strings.TrimSpace(e.Message)
	if len(e.Params) > 0 {
		keys := make([]string, 0, len(e.Params))
		for k := range e.Params {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		parts := make([]string, 0, len(keys))
		for _, k := range keys {
			parts = append(parts, k+": "+strings.Join(strings.Fields(e.Params[k]), " "))
		}
		return "PVE refuses the parameters: " + oneLine(strings.Join(parts, "; "))
	}
	if msg == "" {
		msg = strings.TrimSpace(e.Reason)
	}
	if e.Status != 0 && e.Status != 200 && e.Status != 500 && e.Kind != KindUnauthorized {
		return fmt.Sprintf("%s (HTTP %d)", msg, e.Status)
	}
	return msg
}

// Unwrap gives the network or context error beneath, if any.
func (e *Error) Unwrap() error { return e.cause }

// As finds the *Error in err.
func As(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}

// Is reports whether err is an *Error of one of the kinds.
func Is(err error, kinds ...Kind) bool {
	e, ok := As(err)
	return ok && slices.Contains(kinds, e.Kind)
}

// NothingApplied reports whether a failed write certainly changed nothing: it
// was not sent, or PVE refused it before any work. Other failures may have
// been applied in part (facts D): read again.
func NothingApplied(err error) bool {
	e, ok := As(err)
	if !ok {
		return false
	}
	switch e.Kind {
	case KindUnauthorized, KindTFA, KindTLS, KindWrongCluster, KindNotAllowed, KindUnreachable, KindNotJSON, KindUnavailable, KindConflict:
		return e.UPID == ""
	case KindCanceled:
		return e.unsent
	case KindBusy:
		return e.UPID == "" && guestLockFile(e.Message)
	}
	return false
}
