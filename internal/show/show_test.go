package show

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

func text(s string) *wire.Value { v := wire.Plain(s); return &v }

// TestSpelling: a plan speaks the language of manifests, and shows a value
// that it cannot read as it is.
func TestSpelling(t *testing.T) {
	vm, _ := kind.Lookup("VM")
	hidden := wire.Hidden(secret.New("canary"))
	s := spellerOf(plan.Action{Kind: vm, Changes: []field.Change{{Path: "memory"}}})
	key := "ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAIBomuEixNlIjJ0Gm9QidL3uWkGG%20ops%40example.com"
	for _, c := range []struct {
		path string
		v    *wire.Value
		want string
	}{
		{"memory", text("8192"), "8GiB"},
		{"memory", text("1500"), "1500MiB"},
		{"memory", text("odd"), "odd"},
		{"balloon", text("0"), "0"},
		{"balloon", text("4096"), "4GiB"},
		{"hardware.efi-disk.secure-boot", text("1"), "enabled"},
		{"hardware.efi-disk.secure-boot", text("odd\n"), `odd\n`},
		{"disks[3].size", text("32G"), "32G"},
		{"disks[0].ssd", text("1"), "true"},
		{"options.onboot", text("0"), "false"},
		{"cpu.cores", text("1"), "1"},
		{"cloud-init-data.ssh-keys", text(key), "ssh-ed25519 …dL3uWkGG ops@example.com"},
		{"networks[12].vlan", nil, "(none)"},
		{"cloud-init-data.ci-password-ref", &hidden, "(redacted)"},
		{"pve-description", text("a\x1b[31m\nb"), `a\x1b[31m\nb`},
		{"no.such.field", text("1"), "1"},
	} {
		if got := s.value(field.Change{Path: c.path}, c.v); got != c.want {
			t.Errorf("%s: got %q, want %q", c.path, got, c.want)
		}
	}
}

// TestOneLineForEachText: nothing that PVE or a repository holds can break a
// line, colour the terminal or leave a Markdown cell.
func TestOneLineForEachText(t *testing.T) {
	vm, _ := kind.Lookup("VM")
	evil := "x\n\x1b[2J| <script>`*\u202e"
	r := reconcile.Report{Cluster: "lab", Plan: plan.Plan{
		Actions: []plan.Action{{Verb: plan.Update, Kind: vm, Ref: kind.Ref{Kind: "VM", Name: evil}, Node: "n", ID: "100", Why: evil,
			Changes: []field.Change{{Path: "pve-description", Key: "description", Old: text(evil), New: text("b")}}}},
		Anomalies: []plan.Anomaly{{ID: evil, Anomaly: field.Anomaly{Path: evil, Text: evil, Todo: evil}}},
		Notes:     []string{evil},
	}}
	var plain, md bytes.Buffer
	Text(&plain, Style{}, []reconcile.Report{r})
	Markdown(&md, []reconcile.Report{r})
	for _, out := range []string{plain.String(), md.String()} {
		if strings.ContainsAny(out, "\x1b\u202e") {
			t.Errorf("control characters in %q", out)
		}
	}
	if n := strings.Count(plain.String(), "\n"); n != 10 {
		t.Errorf("%d lines:\n%s", n, plain.String())
	}
	if strings.Contains(md.String(), "<script>") {
		t.Errorf("HTML in\n%s", md.String())
	}
}

// TestCommitAndFaults: a plan of uncommitted edits says so, and each line of
// what broke a cycle off counts.
func TestCommitAndFaults(t *testing.T) {
	r := reconcile.Report{Cluster: "lab", Commit: "0123456789abcdef", Dirty: true, Abort: errors.New("a.yaml:1:1: x\nb.yaml:2:2: y\n")}
	var diff bytes.Buffer
	Text(&diff, Style{}, []reconcile.Report{r})
	if !strings.Contains(diff.String(), "0123456789 with uncommitted edits") || !strings.Contains(diff.String(), "b.yaml:2:2: y") {
		t.Errorf("%s", &diff)
	}
	if !strings.Contains(diff.String(), "2 errors") {
		t.Errorf("two faults are not counted as two:\n%s", diff.String())
	}
	r.Dirty = false
	diff.Reset()
	Text(&diff, Style{}, []reconcile.Report{r})
	if strings.Contains(diff.String(), "uncommitted") {
		t.Errorf("a clean tree has no uncommitted edits:\n%s", diff.String())
	}
}

// TestColumns: the heads of a cluster's actions line up, one name that is far
// too long pushes its own line only, and a total stands by itself.
func TestColumns(t *testing.T) {
	vm, _ := kind.Lookup("VM")
	act := func(v plan.Verb, name string, p field.Impact) plan.Action {
		return plan.Action{Verb: v, Kind: vm, Ref: kind.Ref{Kind: "VM", Name: name}, Node: "pve01", ID: "100", Power: p, Why: "why"}
	}
	long := strings.Repeat("n", 60)
	update := act(plan.Update, "web-01", field.Live)
	update.Changes = []field.Change{
		{Path: "options.onboot", Key: "onboot", Old: text("0"), New: text("1"), Impact: field.Live},
		{Path: "networks[0].vlan", Key: "net0.tag", Old: text("1001"), New: text("20"), Impact: field.Pending},
	}
	r := reconcile.Report{Cluster: "lab", Plan: plan.Plan{Cluster: "lab", Actions: []plan.Action{
		act(plan.MarkTemplate, "a", field.None), update, act(plan.Update, long, field.Pending), act(plan.Delete, "b", field.None)}}}
	var b bytes.Buffer
	Text(&b, Style{}, []reconcile.Report{r})
	want := `=== lab ===
~ MarkTemplate  VM/a       pve01/100                       (why)

~ Update        VM/web-01  pve01/100  [applies live]       (why)
    options.onboot    false → true  onboot
    networks[0].vlan  1001 → 20     net0.tag  [waits for restart]

~ Update        VM/` + long + `  pve01/100  [waits for restart]  (why)

- Delete        VM/b       pve01/100                       (why)

lab: 4 actions (2 update, 1 mark template, 1 delete) for 0 objects

`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestMarkdownParagraphs: everything that the text says is in the Markdown,
// with one blank line between its parts.
func TestMarkdownParagraphs(t *testing.T) {
	vm, _ := kind.Lookup("VM")
	ref := kind.Ref{Kind: "VM", Name: "web"}
	full := reconcile.Report{Cluster: "lab", Commit: "0123456789", Plan: plan.Plan{
		Cluster:    "lab",
		Notes:      []string{"a note"},
		Actions:    []plan.Action{{Verb: plan.Delete, Kind: vm, Ref: ref, Node: "n", ID: "100", Do: plan.DeleteStep{Volumes: []string{"local:100/x.raw"}}}},
		Errors:     []plan.ObjectError{{Ref: ref, File: "f.yaml:1:1", Text: "an error"}},
		Anomalies:  []plan.Anomaly{{Ref: ref, ID: "100", Anomaly: field.Anomaly{Text: "an anomaly"}}},
		Suppressed: []plan.Suppressed{{Name: "old", VMID: 7, Text: "held"}},
		Objects:    []plan.Object{{Ref: ref, ID: "100", State: plan.Unknown, Why: "node down"}},
	}}
	for name, r := range map[string]reconcile.Report{"full": full, "bare": {Cluster: "lab", Plan: plan.Plan{Cluster: "lab"}}, "aborted": {Cluster: "lab", Abort: errors.New("a\nb")}} {
		var b bytes.Buffer
		Markdown(&b, []reconcile.Report{r, r})
		if strings.Contains(b.String(), "\n\n\n") || strings.Contains(b.String(), "__") {
			t.Errorf("%s:\n%s", name, b.String())
		}
		if name != "full" {
			continue
		}
		for _, want := range []string{"**note** a note", "volume local:100/x.raw", "**error** f.yaml:1:1: an error", "**anomaly** VM/web 100: an anomaly", "old 7: held", "**unknown** VM/web 100: node down"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
	}
}

// TestWaitingIsCounted: the totals count each object that is listed as waiting
// for a restart, one with a further edit, too.
func TestWaitingIsCounted(t *testing.T) {
	vm, _ := kind.Lookup("VM")
	object := func(name string, state plan.ObjectState) plan.Object {
		return plan.Object{Ref: kind.Ref{Kind: "VM", Name: name}, Kind: vm, ID: "100", State: state, Todo: "restart it",
			Waiting: []field.Change{{Path: "memory", Key: "memory", Old: text("1024"), New: text("2048")}}}
	}
	r := reconcile.Report{Cluster: "lab", Plan: plan.Plan{Cluster: "lab", Objects: []plan.Object{object("a", plan.WaitingRestart), object("b", plan.Drift)},
		Actions: []plan.Action{{Verb: plan.Update, Kind: vm, Ref: kind.Ref{Kind: "VM", Name: "b"}, ID: "100"}}}}
	var b bytes.Buffer
	Text(&b, Style{}, []reconcile.Report{r})
	if n := strings.Count(b.String(), "waiting-restart: "); n != 2 || !strings.Contains(b.String(), ", 2 waiting for restart") {
		t.Errorf("%d listed:\n%s", n, b.String())
	}
}

// TestDeleteTellsWhy: while it runs a delete stands there with git's word, as in
// the plan; other actions are told by what they do.
func TestDeleteTellsWhy(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b, Style{}, false)
	for _, v := range []plan.Verb{plan.Update, plan.Delete} {
		a := plan.Action{Verb: v, Ref: kind.Ref{Kind: "VM", Name: "old"}, Node: "n", ID: "100", Why: "removed in 0123456"}
		p.Event("lab", apply.Event{Kind: apply.Started, Action: a})
		p.Event("lab", apply.Event{Kind: apply.Ended, Action: a, Result: &apply.ActionResult{Action: a, Outcome: apply.Done}})
	}
	p.Close()
	want := "lab: ~ Update  VM/old  n/100 …\nlab: ~ Update  VM/old  n/100 done\n" +
		"lab: - Delete  VM/old  n/100  (removed in 0123456) …\nlab: - Delete  VM/old  n/100  (removed in 0123456) done\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
