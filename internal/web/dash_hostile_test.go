package web

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
)

// hostile are texts that a guest, a tag, a description, a commit's author or a
// branch may hold.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`,
	"` onfocus=alert(1) autofocus `",
	`javascript:alert(1)`,
	" \tjava\nscript:alert(1)",
	`data:text/html,<script>alert(1)</script>`,
	`//evil.example/x`,
	`</title></style></textarea></svg><svg onload=alert(1)>`,
	`<![CDATA[<b>]]>--><!-- <a href=javascript:alert(1)>`,
	`{{.}}{{"<b>"}}&lt;script&gt;&#60;b&#62;`,
	"\x00\x01\x07\x1b[31m\x7f\u0085\xff\xfe<b>",
	"web\u202egnp.exe\u2066\u2069\u202a\u2028<b>",
	`<b a="'` + strings.Repeat("long ", 64<<10/5),
}

// full is a store in which every text that is not ours is x.
func full(x string) *Store {
	vm, _ := kind.Lookup("VM")
	ref, other := kind.Ref{Kind: "VM", Name: x}, kind.Ref{Kind: "ISO", Name: x + "2"}
	now := time.Now()
	change := field.Change{Path: x, Key: x, Old: val(x), New: val(x + x), Impact: field.Live}
	act := plan.Action{Verb: plan.Update, Ref: ref, Kind: vm, Node: x, VMID: 101, ID: x, Why: x, Power: field.Live, Needs: []kind.Ref{other},
		Changes: []field.Change{change}, Do: plan.UpdateStep{}}
	del := plan.Action{Verb: plan.Delete, Ref: ref, Kind: vm, Node: x, VMID: 102, ID: x, Why: x, Power: field.Stop, Level: 1,
		Do: plan.DeleteStep{Name: x, Identity: x, Volumes: []string{x}, Commit: x, Running: true}}
	p := plan.Plan{Cluster: x, Commit: x, Actions: []plan.Action{act, del}, Notes: []string{x},
		Anomalies:  []plan.Anomaly{{Ref: ref, Node: x, VMID: 103, ID: x, Anomaly: field.Anomaly{Path: x, Text: x, Todo: x}}},
		Suppressed: []plan.Suppressed{{Kind: vm, Name: x, Node: x, VMID: 104, Rule: x, Text: x, Todo: x}},
		Errors:     []plan.ObjectError{{Ref: ref, File: x, Path: x, Text: x}},
		Levels:     [][]kind.Ref{{other}, {ref}},
		Objects: []plan.Object{
			{Ref: other, ID: x, Node: x, State: plan.Converged, File: x},
			{Ref: ref, Kind: vm, Node: x, VMID: 101, ID: x, State: plan.WaitingRestart, Why: x, Todo: x, File: x, Level: 1, Needs: []kind.Ref{other}, Waiting: []field.Change{change}},
		}}
	rep := &reconcile.Report{Cluster: x, Commit: x, Dirty: true, Started: now, Finished: now, Plan: p, Stale: true,
		Result: &apply.Result{Actions: []apply.ActionResult{
			{Action: act, Outcome: apply.Failed, Err: errors.New(x), Tail: []string{x}, Warnings: []string{x}, UPID: x, Started: now}}}}
	for _, o := range p.Objects {
		rep.Objects = append(rep.Objects, reconcile.Object{Cluster: x, Kind: o.Ref.Kind, Name: o.Ref.Name, Node: o.Node, ID: o.ID, State: o.State,
			Why: x, LastAction: plan.Update, LastError: x, PruneReason: x, Updated: now, Converged: now})
	}
	s := NewStore(Process{Version: x, Agent: x, Host: x, Start: now})
	s.Put(reconcile.Standing{Cluster: x, Mine: true, Report: rep, Running: true, Active: []reconcile.Active{{Action: act, UPID: x, Tail: []string{x}}}})
	s.Put(reconcile.Standing{Cluster: x + "3", Mine: true, Report: &reconcile.Report{Cluster: x + "3", Finished: now, Abort: errors.New(x)}})
	s.Put(reconcile.Standing{Cluster: x + "4"})
	s.SetRepository(Repository{Source: x, Commit: x, Stale: true, Since: now, Err: errors.New(x)})
	return s
}

// shape is what a browser makes of a page: its elements with their attributes,
// and the values of those that lead elsewhere.
func shape(t *testing.T, page string) (elements, links []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements, links
		}
		if err != nil {
			t.Fatalf("%v in a page of %d bytes: %.3000s", err, len(page), page)
		}
		switch e := token.(type) {
		case xml.Comment, xml.ProcInst:
			elements = append(elements, "comment")
		case xml.StartElement:
			name := e.Name.Local
			for _, a := range e.Attr {
				name += " " + a.Name.Local
				if slices.Contains([]string{"href", "src", "action", "formaction", "data", "srcset", "http-equiv", "content"}, a.Name.Local) {
					links = append(links, a.Value)
				}
			}
			elements = append(elements, name)
		}
	}
}

// TestHostileTexts: whatever stands in a text that is not ours, a page has the
// elements and attributes that it has with a harmless one, leads nowhere but to
// itself, and reorders and hides no text.
func TestHostileTexts(t *testing.T) {
	paths := func(x string) []string {
		at := "/clusters/" + url.PathEscape(x)
		return []string{"/", "/objects", "/objects?" + url.Values{"q": {x}, "state": {x}, "kind": {x}, "cluster": {x}}.Encode(), at, at + "/plan",
			at + "/VM/" + url.PathEscape(x), at + "/ISO/" + url.PathEscape(x+"2"), "/clusters/" + url.PathEscape(x+"3"), "/clusters/" + url.PathEscape(x+"4"),
			"/nowhere/" + url.PathEscape(x)}
	}
	var plain [][]string
	for _, path := range paths("harmless") {
		res, body := page(t, Pages(full("harmless"), nil), path)
		if missing := strings.HasPrefix(path, "/nowhere"); (res.StatusCode != http.StatusOK) != missing || !missing && !strings.Contains(body, "harmless") {
			t.Errorf("%s: the test's own premise: status %d", path, res.StatusCode)
		}
		elements, _ := shape(t, body)
		slices.Sort(elements)
		plain = append(plain, slices.Compact(elements))
	}
	for _, x := range hostile {
		h := Pages(full(x), nil)
		for i, path := range paths(x) {
			res, body := page(t, h, path)
			if res.Header.Get("Content-Security-Policy") != contentPolicy || res.StatusCode >= 500 {
				t.Errorf("%.60q: %.60s: status %d, policy %q", x, path, res.StatusCode, res.Header.Get("Content-Security-Policy"))
			}
			if len(body) > 64*(len(x)+8<<10) {
				t.Errorf("%.60q: %.60s: a page of %d bytes", x, path, len(body))
			}
			if len(x) > 4<<10 {
				continue // its like is above; only the length is new
			}
			elements, links := shape(t, body)
			for _, e := range elements {
				if _, known := slices.BinarySearch(plain[i], e); !known {
					t.Errorf("%.60q: %.60s: an element of its own: <%s>", x, path, e)
				}
			}
			for _, l := range links {
				u, err := url.Parse(l)
				if inner := err == nil && u.Scheme == "" && u.Host == "" && (strings.HasPrefix(l, "/") || strings.HasPrefix(l, "#")); !inner && l != "width=device-width, initial-scale=1" {
					t.Errorf("%.60q: %.60s: leads to %.200q", x, path, l)
				}
			}
			if i := strings.IndexFunc(body, func(r rune) bool {
				return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) && r != '\u200e' && r != '\u200f' && r != '\u061c' || r == unicode.ReplacementChar && !strings.Contains(x, "\xff") && !strings.Contains(x, "\x00")
			}); i >= 0 {
				t.Errorf("%.60q: %.60s: %.20q on the page", x, path, body[i:])
			}
		}
	}
}
