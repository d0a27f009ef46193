package pvesim

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// Request is a call as a handler gets it: the caller is known and allowed, the node is there, the parameters fit the schema.
type Request struct {
	*Actor
	Method string
	// Path is the API path without /api2/json; Vars are its variables.
	Path string
	Vars map[string]string
	// P are all parameters, those of the path included.
	P Params
	// M is the method in PVE's schema.
	M *schema.Method
	// VMID is the path's {vmid}, 0 when it has none.
	VMID int
	// Upload is the file of a multipart upload.
	Upload *Upload
}

// handler answers one API method. It runs with the world locked (see Actor). What it returns becomes "data", unless it is a Reply.
type handler func(w *World, r *Request) (any, error)

// Reply is a handler's answer with attributes beside "data": total of task lists, say.
type Reply struct {
	Data  any
	Extra map[string]any
}

// route is a line of a handler table.
type route struct {
	method, path string
	handle       handler
}

// splitPath cuts a path at its slashes; empty parts do not count.
func splitPath(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}

// call is an HTTP request before anything is understood of it.
type call struct {
	method string
	// target is the request target as sent: path and query, still encoded.
	target string
	header http.Header
	body   []byte
	// tooLarge is set when the body goes beyond what PVE takes; body is not kept then.
	tooLarge bool
	// chunked is set when the body has no length; it is not read then.
	chunked bool
}

// answer works a call through, in PVE's order of checks (facts.md M).
func (w *World) answer(ctx context.Context, c *call) *response {
	start := time.Now()
	rawPath, query, _ := strings.Cut(c.target, "?")
	segments := splitPath(schema.PercentDecode(rawPath))
	isAPI := len(segments) > 1 && segments[0] == "api2" && segments[1] == "json"
	if isAPI {
		segments = segments[2:]
	}
	apiPath := "/" + strings.Join(segments, "/")
	w.mu.Lock()
	a := &Actor{w: w, Ctx: ctx, Node: w.local().Name, Cause: c.method + " " + apiPath}
	entry := &RequestEntry{Time: start, Method: c.method, Path: apiPath}
	res := w.serve(a, c, isAPI, apiPath, segments, query, entry)
	entry.Who, entry.Status, entry.Took = a.Who.AuthID(), res.status, time.Since(start)
	w.log.add(entry)
	w.mu.Unlock()
	return res
}

func (w *World) serve(a *Actor, c *call, isAPI bool, apiPath string, segments []string, query string, entry *RequestEntry) *response {
	if err := a.Sleep(w.opts.Latency); err != nil {
		return &response{cut: true}
	}
	if !knownMethod(c.method) {
		return errorResponse(empty(http.StatusNotImplemented, "method '"+c.method+"' not available"))
	}
	switch {
	case isAPI:
	case len(segments) > 0 && segments[0] == "api2": // another format, or none
		return errorResponse(empty(http.StatusNotImplemented, "no such uri"))
	default:
		return errorResponse(bare(http.StatusNotFound, "no such file '"+apiPath+"'"))
	}
	before := w.faults.draw(c.method, apiPath, FaultReset, FaultError, FaultSlow, FaultNodeDown)
	if res := w.strike(a, before, segments); res != nil {
		return res
	}
	if !w.local().Online() { // nobody is there to answer
		return &response{cut: true}
	}
	data, perr := w.call(a, c, apiPath, query, entry)
	var res *response
	if perr != nil {
		if perr.Penalty && a.Sleep(w.opts.AuthDelay) != nil {
			return &response{cut: true}
		}
		res = errorResponse(perr)
	} else {
		res = dataResponse(data)
	}
	switch after := w.faults.draw(c.method, apiPath, FaultLost, FaultTruncate); {
	case after == nil:
	case after.Kind == FaultLost:
		res.cut = true
	default:
		res.truncate = true
	}
	return res
}

// strike makes a fault happen that comes before the work.
func (w *World) strike(a *Actor, f *Fault, segments []string) *response {
	switch {
	case f == nil:
		return nil
	case f.Kind == FaultReset:
		return &response{cut: true}
	case f.Kind == FaultError:
		status := f.Status
		if status == 0 {
			status = http.StatusInternalServerError
		}
		if status >= 590 {
			return errorResponse(empty(status, map[int]string{595: "Connection refused", 596: "Connection timed out", 599: "Too many redirections"}[status]))
		}
		return errorResponse(raise(status, "injected fault"))
	case f.Kind == FaultNodeDown:
		if len(segments) > 1 && segments[0] == "nodes" {
			if n := w.node(segments[1]); n != nil {
				n.DownUntil = time.Now().Add(f.Delay)
			}
		}
	default:
		if a.Sleep(f.Delay) != nil {
			return &response{cut: true}
		}
	}
	return nil
}

// call is the order of checks itself.
func (w *World) call(a *Actor, c *call, apiPath, query string, entry *RequestEntry) (any, *Error) {
	who, perr := w.authenticate(c, apiPath)
	if perr != nil {
		return nil, perr
	}
	a.Who = who
	_, isUpload := uploadPath(c.method, apiPath)
	body, upload, perr := readBody(c, isUpload)
	if perr != nil {
		return nil, perr
	}
	if c.method == http.MethodGet && apiPath == "/" {
		return rootIndex(), nil
	}
	m, vars, ok := schema.Find(c.method, apiPath)
	if !ok {
		return nil, noMethod(c.method, apiPath)
	}
	if who.Token != "" && !m.AllowTok {
		return nil, permErr("URI '" + apiPath + "' not available with API token, need proper ticket.\n")
	}
	params, perr := mergeParams(body, query, vars)
	if perr != nil {
		return nil, perr
	}
	entry.Params = params
	if err := w.permitted(who, m.Perm, params); err != nil {
		return nil, asError(err)
	}
	if name, ok := vars["node"]; ok {
		n, perr := w.proxy(name)
		if perr != nil {
			return nil, perr
		}
		a.Node = n.Name
		vars["node"], params["node"] = n.Name, n.Name
	}
	if params, perr = checkParams(m, vars, params); perr != nil {
		return nil, perr
	}
	handle := w.handlers[m.HTTP+" "+m.Path]
	if handle == nil { // PVE has it, a simulated node does not
		return nil, noMethod(c.method, apiPath)
	}
	r := &Request{Actor: a, Method: c.method, Path: apiPath, M: m, Vars: vars, P: params, VMID: Params{"vmid": vars["vmid"]}.Int("vmid", 0), Upload: upload}
	if c.method != http.MethodGet {
		w.observe(r.VMID)
	}
	data, err := handle(w, r)
	if err == nil && a.stillborn {
		err = die("got no worker upid - start worker failed")
	}
	if err != nil {
		return nil, asError(err)
	}
	return data, nil
}

func knownMethod(m string) bool {
	return m == http.MethodGet || m == http.MethodPost || m == http.MethodPut || m == http.MethodDelete
}

// mergeParams puts path, query and body together: the query beats the body, the path must not be contradicted.
func mergeParams(body Params, query string, vars map[string]string) (Params, *Error) {
	out := Params{}
	for k, v := range body {
		out[k] = v
	}
	for k, v := range schema.DecodeForm(query) {
		out[k] = v
	}
	delete(out, "_dc")
	errs := map[string]string{}
	for k, v := range vars {
		if given, ok := out[k]; ok && text(given) != v {
			errs[k] = "duplicate parameter (already defined in URI) with conflicting values!"
		}
		out[k] = v
	}
	if len(errs) > 0 {
		return nil, paramErrs(errs)
	}
	return out, nil
}

// checkParams holds parameters against the schema. Checked values are text; a JSON null, which PVE's schema lets pass, stays nil.
func checkParams(m *schema.Method, vars map[string]string, params Params) (Params, *Error) {
	values, errs := m.Check(vars, params)
	if len(errs) > 0 {
		return nil, paramErrs(errs)
	}
	out := Params{}
	for k, v := range params {
		if v == nil {
			out[k] = nil
		}
	}
	for k, v := range values {
		out[k] = v
	}
	return out, nil
}
