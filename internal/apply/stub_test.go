package apply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/secret"
)

// scripted answers a client's requests in process. It keeps guests as maps of
// their config, does what a write asks for, and lets a test put its own answer
// in the place of any request's.
type scripted struct {
	mu     sync.Mutex
	guests map[string]*machine      // by vmid
	exits  map[string]string        // task type → exit status; OK when absent
	logs   map[string]string        // task type → its log's only line; a warning when absent
	answer map[string]func() reply  // "PUT /nodes/pve01/qemu/100/config" → what comes instead
	work   map[string]time.Duration // task type → how long it runs
	sent   []string                 // writes, as METHOD path
	forms  map[string]url.Values    // what the last write of each came with
	begun  map[string]time.Time     // by UPID
	peak   map[string]int           // task type → most that ran at a time
}

type machine struct {
	config  map[string]string
	running bool
	digest  int
}

type reply struct {
	status int
	reason string
	body   any
}

func (s *scripted) client(t *testing.T) *pve.Client {
	t.Helper()
	c, err := pve.New(pve.Config{Name: "lab", Endpoints: []string{"https://pve01:8006"}, Nodes: []string{"pve01", "pve02"},
		Auth: pve.Credentials{TokenID: "root@pam!full", TokenSecret: secret.New("11111111-1111-4111-8111-111111111111")}, Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var guestPath = regexp.MustCompile(`^/nodes/(\w+)/(qemu|lxc)(?:/(\d+)(/.*)?)?$`)

// RoundTrip implements http.RoundTripper.
func (s *scripted) RoundTrip(req *http.Request) (*http.Response, error) {
	path := strings.TrimPrefix(req.URL.Path, "/api2/json")
	form := req.URL.Query()
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if v, err := url.ParseQuery(string(b)); err == nil && len(b) > 0 {
			form = v
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Method != http.MethodGet {
		s.sent = append(s.sent, req.Method+" "+path)
		if s.forms == nil {
			s.forms = map[string]url.Values{}
		}
		s.forms[req.Method+" "+path] = form
	}
	r := reply{status: 200, reason: "OK"}
	if f := s.answer[req.Method+" "+path]; f != nil {
		r = f()
	} else {
		r.body, r.status, r.reason = s.serve(req.Method, path, form)
	}
	b, err := json.Marshal(map[string]any{"data": r.body})
	if err != nil {
		return nil, err
	}
	if r.status != 200 {
		b, err = json.Marshal(map[string]any{"data": nil, "message": r.reason + "\n"})
		if err != nil {
			return nil, err
		}
	}
	return &http.Response{Status: fmt.Sprintf("%d %s", r.status, r.reason), StatusCode: r.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b)), Request: req}, nil
}

func (s *scripted) serve(method, path string, form url.Values) (any, int, string) {
	if strings.Contains(path, "/tasks") {
		return s.task(path), 200, "OK"
	}
	if strings.HasSuffix(path, "/download-url") {
		return s.start("download", form.Get("filename")), 200, "OK"
	}
	m := guestPath.FindStringSubmatch(path)
	if m == nil {
		return nil, 501, "Method '" + method + " " + path + "' not implemented"
	}
	id, rest := m[3], m[4]
	if id == "" {
		id = form.Get("vmid")
		s.guests[id] = &machine{config: map[string]string{"name": form.Get("name")}}
		return s.start("qmcreate", id), 200, "OK"
	}
	g := s.guests[id]
	if g == nil {
		return nil, 500, "Configuration file 'nodes/pve01/qemu-server/" + id + ".conf' does not exist"
	}
	return s.guest(method+" "+rest, id, g, form)
}

func (s *scripted) guest(call, id string, g *machine, form url.Values) (any, int, string) {
	status := func() string {
		if g.running {
			return "running"
		}
		return "stopped"
	}
	switch call {
	case "GET /pending":
		list := []map[string]any{{"key": "digest", "value": fmt.Sprint("d", g.digest)}}
		for k, v := range g.config {
			list = append(list, map[string]any{"key": k, "value": v})
		}
		return list, 200, "OK"
	case "GET /status/current":
		return map[string]any{"status": status(), "lock": g.config["lock"]}, 200, "OK"
	case "PUT /config":
		if d := form.Get("digest"); d != "" && d != fmt.Sprint("d", g.digest) {
			return nil, 500, "checksum mismatch (file change by other user?)"
		}
		for k := range form {
			if k != "digest" {
				g.config[k] = form.Get(k)
			}
		}
		g.digest++
		return nil, 200, "OK"
	case "POST /clone":
		made := &machine{config: map[string]string{}}
		for k, v := range g.config {
			made.config[k] = v
		}
		delete(made.config, "template")
		made.config["name"], made.config["description"] = form.Get("name"), form.Get("description")
		s.guests[form.Get("newid")] = made
		return s.start("qmclone", id), 200, "OK"
	case "PUT /resize":
		if d := form.Get("digest"); d != fmt.Sprint("d", g.digest) {
			return nil, 500, "checksum mismatch (file change by other user?)"
		}
		g.digest++
		return s.start("resize", id), 200, "OK"
	case "POST /status/start":
		g.running = true
		return s.start("qmstart", id), 200, "OK"
	case "POST /status/shutdown":
		if s.exits["qmshutdown"] == "" {
			g.running = false
		}
		return s.start("qmshutdown", id), 200, "OK"
	case "POST /template":
		g.config["template"] = "1"
		return s.start("qmtemplate", id), 200, "OK"
	case "DELETE ":
		delete(s.guests, id)
		return s.start("qmdestroy", id), 200, "OK"
	}
	return nil, 501, "not implemented"
}

// start begins a task and notes how many of its type run now.
func (s *scripted) start(kind, id string) string {
	if s.begun == nil {
		s.begun, s.peak = map[string]time.Time{}, map[string]int{}
	}
	upid := fmt.Sprintf("UPID:pve01:%08X:00000001:%08X:%s:%s:root@pam!full:", len(s.begun)+1, time.Now().Unix(), kind, id)
	s.begun[upid] = time.Now()
	n := 0
	for u, at := range s.begun {
		if pve.UPID(u).Type() == kind && time.Since(at) < s.work[kind] {
			n++
		}
	}
	s.peak[kind] = max(s.peak[kind], n)
	return upid
}

func (s *scripted) task(path string) any {
	parts := strings.Split(path, "/")
	if len(parts) < 6 {
		return []any{}
	}
	upid, err := url.PathUnescape(parts[4])
	if err != nil {
		return nil
	}
	kind := pve.UPID(upid).Type()
	if line := s.logs[kind]; parts[5] == "log" && line != "" {
		return []map[string]any{{"n": 1, "t": line}}
	}
	if parts[5] == "log" {
		return []map[string]any{{"n": 1, "t": "WARN: the log of " + kind}}
	}
	if time.Since(s.begun[upid]) < s.work[kind] {
		return map[string]any{"upid": upid, "status": "running"}
	}
	exit := s.exits[kind]
	if exit == "" {
		exit = "OK"
	}
	return map[string]any{"upid": upid, "status": "stopped", "exitstatus": exit}
}

// wrote reports whether a write was sent, and how often.
func (s *scripted) wrote(call string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.sent {
		if c == call {
			n++
		}
	}
	return n
}
