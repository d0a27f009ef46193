package schema_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// recording is one line of a recorded conversation with a real PVE.
type recording struct {
	ID      string
	Request struct {
		Method, Path string
		Form         map[string]any
		FormTemplate map[string]any `json:"form_template"`
		Raw          *string
		Ctype        string
	}
	Status int
	Body   json.RawMessage
	After  struct {
		Path string
		Data json.RawMessage
	}
}

// stateful lists the texts of 400 answers that depend on the state of the node
// (or on code behind the schema), by a part of the text.
var stateful = []string{
	"requires special syntax", "Only root may use", "already exists", "either needs to be set",
	"explicit 'media=cdrom'", "hotplug problem", "invalid filename", "has wrong type",
	"need to specify 'pre-enrolled-keys'", "no such task", "script 'local:", "does not support container directories",
	"does not support vm images", "unable to apply pending", "unable to hotplug", "unable to parse drive options",
	"unable to parse worker upid", "unknown option '", "wrong file extension", "at the same time",
}

func TestRecordedRequests(t *testing.T) {
	files, _ := filepath.Glob("../../../../shared/pve/transcripts/*.jsonl")
	if len(files) == 0 {
		t.Skip("no recordings here; TestCases covers the rules")
	}
	checked, agree := 0, 0
	for _, file := range files {
		for _, r := range recordings(t, file) {
			want, ok := expected(r)
			if !ok {
				continue
			}
			m, vars, found := schema.Find(r.Request.Method, schema.PercentDecode(pathOnly(r.Request.Path)))
			if !found {
				if r.Status < 300 && r.ID != "vx-068" { // vzdump is outside the recorded tree
					t.Errorf("%s: %s %s is not in the schema", r.ID, r.Request.Method, r.Request.Path)
				}
				continue
			}
			checked++
			_, got := m.Check(vars, params(r))
			if diff := difference(want, got); diff != "" {
				t.Errorf("%s %s %s: %s", r.ID, r.Request.Method, r.Request.Path, diff)
				continue
			}
			agree++
		}
	}
	t.Logf("agree %d of %d", agree, checked)
}

// expected returns the schema's part of a recorded answer: the refusals that it
// decides, none for an accepted request. ok is false where the recording says
// nothing about the schema.
func expected(r recording) (errs map[string]string, ok bool) {
	var body struct {
		Message string
		Errors  map[string]string
	}
	form, _ := json.Marshal(r.Request.FormTemplate)
	if bytes.Contains(form, []byte("${")) && !bytes.Contains(form, []byte("${repeat:")) {
		return nil, false // filled from an earlier answer
	}
	if r.Request.Raw != nil && strings.HasPrefix(*r.Request.Raw, "--B") {
		return nil, false // multipart bodies are the server's business
	}
	_ = json.Unmarshal(r.Body, &body)
	if strings.HasPrefix(body.Message, "hostname lookup") {
		return nil, false // sent to another node before it was checked
	}
	if r.Status != 400 {
		return nil, r.Status < 300 || r.Status == 500
	}
	if len(body.Errors) == 0 {
		return nil, false
	}
	for _, text := range body.Errors {
		if slices.ContainsFunc(stateful, func(s string) bool { return strings.Contains(text, s) }) {
			return nil, true // the request had passed the schema
		}
	}
	return body.Errors, true
}

func difference(want, got map[string]string) string {
	norm := func(m map[string]string) string {
		var out []string
		for k, v := range m {
			lines := strings.FieldsFunc(v, func(r rune) bool { return r == '\n' })
			slices.Sort(lines) // PVE writes the faults of sub-keys in random order
			out = append(out, k+" => "+strings.Join(lines, " | "))
		}
		slices.Sort(out)
		return strings.Join(out, "; ")
	}
	if w, g := norm(want), norm(got); w != g {
		return "got " + g + "\nwant " + w
	}
	return ""
}

func pathOnly(s string) string { p, _, _ := strings.Cut(s, "?"); return p }

func params(r recording) map[string]any {
	out := map[string]any{}
	if _, q, ok := strings.Cut(r.Request.Path, "?"); ok {
		out = schema.DecodeForm(q)
	}
	body := url.Values{}
	for k, v := range r.Request.FormTemplate {
		body.Set(k, repeated(text(v)))
	}
	for k, v := range r.Request.Form {
		switch x := v.(type) {
		case []any:
			for _, e := range x {
				body.Add(k, text(e))
			}
		default:
			body.Add(k, text(v))
		}
	}
	encoded := body.Encode()
	if r.Request.Raw != nil {
		encoded = *r.Request.Raw
	}
	if strings.Contains(r.Request.Ctype, "json") {
		d := json.NewDecoder(strings.NewReader(encoded))
		d.UseNumber()
		_ = d.Decode(&out)
		return out
	}
	for k, v := range schema.DecodeForm(encoded) {
		out[k] = v
	}
	return out
}

// repeated expands ${repeat:c:n} to n times c.
func repeated(s string) string {
	before, rest, ok := strings.Cut(s, "${repeat:")
	if !ok {
		return s
	}
	spec, after, _ := strings.Cut(rest, "}")
	c, count, _ := strings.Cut(spec, ":")
	n, _ := strconv.Atoi(count)
	return before + strings.Repeat(c, n) + after
}

func text(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case json.Number:
		return x.String()
	case bool:
		if x {
			return "True"
		}
		return "False"
	case nil:
		return "None"
	}
	return ""
}

func recordings(t *testing.T, file string) (out []recording) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		d := json.NewDecoder(bytes.NewReader(s.Bytes()))
		d.UseNumber()
		var r recording
		if err := d.Decode(&r); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, r)
	}
	return out
}
