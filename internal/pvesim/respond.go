package pvesim

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// response is an answer before it is put on the wire.
type response struct {
	status int
	reason string
	ctype  string
	body   []byte
	// cut closes the connection without an answer; truncate after half of the body.
	cut      bool
	truncate bool
}

// dataResponse is PVE's success.
func dataResponse(data any) *response {
	if raw, ok := data.(json.RawMessage); ok { // encoded with care already: not worth reading once more
		body := append(append([]byte(`{"data":`), raw...), '}')
		return &response{status: http.StatusOK, reason: "OK", ctype: "application/json;charset=UTF-8", body: body}
	}
	m := map[string]any{}
	if r, ok := data.(Reply); ok {
		for k, v := range r.Extra {
			m[k] = v
		}
		data = r.Data
	}
	m["data"] = data
	b, err := json.Marshal(m)
	if err != nil {
		return errorResponse(die("encode the answer: %v", err))
	}
	return &response{status: http.StatusOK, reason: "OK", ctype: "application/json;charset=UTF-8", body: b}
}

// errorResponse is PVE's refusal. The reason phrase is the message's first line.
func errorResponse(e *Error) *response {
	reason, _, _ := strings.Cut(e.Message, "\n")
	res := &response{status: e.Status, reason: strings.TrimSuffix(reason, "\r"), ctype: "application/json;charset=UTF-8"}
	if e.Plain != nil {
		res.ctype, res.body = "text/plain", []byte(*e.Plain)
		return res
	}
	m := map[string]any{"data": nil, "message": e.Message + "\n"}
	if e.NoLineFeed {
		m["message"] = e.Message
	}
	if len(e.Errors) > 0 {
		m["errors"] = e.Errors
	}
	b, err := json.Marshal(m)
	if err != nil {
		b = []byte(`{"data":null}`)
	}
	res.body = b
	return res
}

// asError makes any error one of PVE's: what is not an *Error is a die.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return die("%s", err.Error())
}
