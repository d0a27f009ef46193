package pvesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// maxBody is the largest body that PVE takes, uploads apart; maxUpload is the simulator's own limit for those.
const (
	maxBody   = 512 << 10
	maxUpload = 256 << 20
)

// Upload is the file of a multipart upload.
type Upload struct {
	Name string
	Data []byte
}

// readBody checks a body's type and length, and parses it.
func readBody(c *call, upload bool) (Params, *Upload, *Error) {
	ctype := strings.TrimSpace(c.header.Get("Content-Type"))
	switch {
	case c.method == http.MethodGet || c.method == http.MethodDelete:
		if len(c.body) > 0 || c.tooLarge {
			return nil, nil, bare(http.StatusNotImplemented, "Unexpected content for method '"+c.method+"'")
		}
		return Params{}, nil, nil
	case c.tooLarge:
		return nil, nil, bare(http.StatusNotImplemented, "for data too large")
	}
	media, args, err := mime.ParseMediaType(ctype)
	switch {
	case upload && len(c.body) > 0 && (media != "multipart/form-data" || err != nil):
		return nil, nil, empty(http.StatusNotImplemented, "upload 'Content-Type '"+ctype+"' not implemented")
	case ctype == "" || media == "application/x-www-form-urlencoded":
		return schema.DecodeForm(string(c.body)), nil, nil
	case media == "application/json":
		p, perr := parseJSON(c.body)
		return p, nil, perr
	case upload && len(c.body) > 0:
		return parseMultipart(c.body, args["boundary"])
	}
	return nil, nil, bare(506, "upload 'Content-Type '"+ctype+"' not implemented")
}

// parseJSON reads a JSON body; faults are answered with the words of Perl and its parser, as text.
func parseJSON(b []byte) (Params, *Error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	switch rest := bytes.TrimSpace(b[min(int(d.InputOffset()), len(b)):]); {
	case err != nil && len(bytes.TrimSpace(b)) == 0:
		return nil, parserSays("malformed JSON string, neither tag, array, object, number, string or atom", len(b), nil)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, parserSays(", or } expected while parsing object/hash", len(b)+1, nil)
	case err != nil:
		at := len(b)
		if se := (*json.SyntaxError)(nil); errors.As(err, &se) {
			at = min(max(int(se.Offset)-1, 0), len(b))
		}
		return nil, parserSays("malformed JSON string, neither tag, array, object, number, string or atom", at, b[at:])
	case len(rest) > 0:
		return nil, parserSays("garbage after JSON object", len(b)-len(rest), rest)
	}
	switch v := v.(type) {
	case map[string]any:
		return Params(v), nil
	case nil:
		return nil, badJSON("Can't use an undefined value as a HASH reference" + perlAt)
	case []any, bool:
		return nil, badJSON("Not a HASH reference" + perlAt)
	default:
		return nil, badJSON("Can't use string (\"" + text(v) + "\") as a HASH ref while \"strict refs\" in use" + perlAt)
	}
}

// perlAt is where PVE's web server takes a JSON body apart.
const perlAt = " at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 978.\n"

// parserSays is a complaint of Perl's JSON parser about what comes at an offset.
func parserSays(text string, at int, rest []byte) *Error {
	before := "(end of string)"
	if len(rest) > 0 {
		before = string(rest[:min(len(rest), 20)])
	}
	return badJSON(fmt.Sprintf("%s, at character offset %d (before %q) at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 934.\n", text, at, before))
}

func badJSON(text string) *Error {
	return &Error{Status: http.StatusInternalServerError, Message: strings.TrimRight(text, "\n"), Plain: &text}
}

func parseMultipart(b []byte, boundary string) (Params, *Upload, *Error) {
	p := Params{}
	var up *Upload
	mr := multipart.NewReader(bytes.NewReader(b), boundary)
	for {
		part, err := mr.NextPart()
		if errors.Is(err, io.EOF) {
			return p, up, nil
		}
		if err != nil {
			return nil, nil, bare(http.StatusBadRequest, "upload failed")
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, nil, bare(http.StatusBadRequest, "upload failed")
		}
		if part.FileName() == "" {
			p[part.FormName()] = strings.TrimRight(string(data), "\r\n")
			continue
		}
		up = &Upload{Name: part.FileName(), Data: data}
		p["filename"] = part.FileName()
	}
}
