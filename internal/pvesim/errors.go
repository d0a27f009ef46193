package pvesim

import (
	"fmt"
	"net/http"
	"sort"
	"strings"
)

// Error is a refusal as PVE words it. Handlers and workers return it; respond.go turns it into the HTTP answer and task.go into
// the exit status of a task.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Message is what PVE says, without the final line feed that most of its messages carry.
	Message string
	// Errors names the parameters at fault (400 only) with PVE's text for each.
	Errors map[string]string
	// Plain, when not nil, is sent as the whole body, as text: PVE answers some errors without JSON (401 and 595 with nothing at
	// all, malformed JSON with the parser's own words).
	Plain *string
	// NoLineFeed keeps the message free of the line feed that PVE's die adds (501 has none).
	NoLineFeed bool
	// Penalty makes the answer as slow as PVE makes it (Options.AuthDelay): refused log-ins and dead neighbours.
	Penalty bool
}

// Error is the text a task ends with: PVE prefixes exceptions with their code, a plain die has none.
func (e *Error) Error() string {
	if e.Status == http.StatusInternalServerError {
		return e.Message
	}
	s := fmt.Sprintf("%d %s", e.Status, e.Message)
	for _, k := range sortedKeys(e.Errors) {
		s += "\n" + k + ": " + strings.TrimRight(e.Errors[k], "\n")
	}
	return s
}

// die is PVE's die: status 500 with the text in the reason phrase and in the message.
func die(format string, args ...any) *Error {
	return &Error{Status: http.StatusInternalServerError, Message: fmt.Sprintf(format, args...)}
}

// paramErr is raise_param_exc for one parameter.
func paramErr(key, format string, args ...any) *Error {
	return paramErrs(map[string]string{key: fmt.Sprintf(format, args...)})
}

// paramErrs is raise_param_exc: status 400, every bad parameter named.
func paramErrs(errs map[string]string) *Error {
	return &Error{Status: http.StatusBadRequest, Message: "Parameter verification failed.", Errors: errs}
}

// permErr is raise_perm_exc. An empty detail gives the bare "Permission check failed".
func permErr(detail string) *Error {
	m := "Permission check failed"
	if detail != "" {
		m += " (" + detail + ")"
	}
	return &Error{Status: http.StatusForbidden, Message: m}
}

// raise is PVE's raise with a code of its own.
func raise(status int, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// unauthorized is a 401 as the HTTP layer sends it: the reason alone, an empty body, after a while.
func unauthorized(reason string) *Error {
	return &Error{Status: http.StatusUnauthorized, Message: reason, Plain: new(string), Penalty: true}
}

// noMethod is the answer to a path or method that PVE does not know.
func noMethod(method, path string) *Error {
	return &Error{Status: http.StatusNotImplemented, Message: fmt.Sprintf("Method '%s %s' not implemented", method, path), NoLineFeed: true}
}

// bare is an error whose body is its text alone, not JSON.
func bare(status int, text string) *Error {
	return &Error{Status: status, Message: text, Plain: &text}
}

// empty is an error without any body.
func empty(status int, reason string) *Error {
	return &Error{Status: status, Message: reason, Plain: new(string)}
}

// wrap puts PVE's context before an error, which makes it a plain die: `update pools failed: 403 Permission check failed (…)`.
func wrap(prefix string, err error) *Error { return die("%s%s", prefix, err.Error()) }

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
