package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

func entry(n int) Entry {
	return Entry{Time: time.Date(2026, 11, 1, 0, 0, n, 0, time.UTC), Event: Action, Cluster: "prod", Name: fmt.Sprintf("vm-%d", n), Outcome: "done"}
}

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func names(list []Entry) (out []string) {
	for _, e := range list {
		out = append(out, e.Name)
	}
	return out
}

func TestReadBack(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	for n := range 5 {
		if err := j.Append(entry(2*n), entry(2*n+1)); err != nil {
			t.Fatal(err)
		}
	}
	got, damaged, err := Read(dir, 3, nil)
	if err != nil || damaged != 0 {
		t.Fatal(damaged, err)
	}
	if d := cmp.Diff([]Entry{entry(7), entry(8), entry(9)}, got); d != "" {
		t.Error(d)
	}
	got, _, _ = Read(dir, 0, func(e Entry) bool { return strings.HasSuffix(e.Name, "4") })
	if d := cmp.Diff([]string{"vm-4"}, names(got)); d != "" {
		t.Error(d)
	}
	if got, _, err := Read(filepath.Join(dir, "none"), 0, nil); err != nil || len(got) != 0 {
		t.Errorf("no journal: %v %v", got, err)
	}
}

func TestBounded(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	j.max = 2000
	for n := range 500 {
		if err := j.Append(entry(n)); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "journal*.jsonl"))
	if len(files) != keepOld+1 {
		t.Errorf("%d files, want %d", len(files), keepOld+1)
	}
	for _, f := range files {
		if st, _ := os.Stat(f); st.Size() > j.max {
			t.Errorf("%s has %d bytes", f, st.Size())
		}
	}
	got, _, err := Read(dir, 0, nil)
	if err != nil || len(got) < 40 {
		t.Fatalf("%d entries, %v", len(got), err)
	}
	for i, e := range got { // the newest, without a gap
		if want := fmt.Sprintf("vm-%d", 500-len(got)+i); e.Name != want {
			t.Fatalf("entry %d is %s, want %s", i, e.Name, want)
		}
	}
}

// A crash may end the file anywhere: every whole line before and after it is
// read back.
func TestTornAtEveryByte(t *testing.T) {
	whole := t.TempDir()
	j := open(t, whole)
	_ = j.Append(entry(1), entry(2))
	data, _ := os.ReadFile(j.path(0))
	first := strings.IndexByte(string(data), '\n') + 1
	for cut := first; cut < len(data); cut++ {
		dir := t.TempDir()
		if err := os.WriteFile(file(dir, 0), data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Append(entry(3)); err != nil {
			t.Fatal(err)
		}
		_ = j.Close()
		got, damaged, err := Read(dir, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		want, bad := []string{"vm-1", "vm-3"}, 1
		if cut == first {
			bad = 0
		}
		if cut == len(data)-1 { // only the line feed is missing
			want, bad = []string{"vm-1", "vm-2", "vm-3"}, 0
		}
		if d := cmp.Diff(want, names(got)); d != "" || damaged != bad {
			t.Fatalf("cut at %d: %s; %d damaged, want %d", cut, d, damaged, bad)
		}
	}
}

func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "data-dir") {
		t.Errorf("a second writer: %v", err)
	}
}

func TestEntries(t *testing.T) {
	password := wire.Hidden(secret.New("hunter2"))
	old := wire.Plain("2048")
	rep := &reconcile.Report{Cluster: "prod", Commit: "abc", Finished: time.Now(), Result: &apply.Result{Actions: []apply.ActionResult{
		{Action: plan.Action{Verb: plan.Update, Ref: kind.Ref{Kind: "VM", Name: "web"}, ID: "100",
			Changes: []field.Change{{Path: "cloud-init-data.ci-password", New: &password}, {Path: "memory", Old: &old}}}, Outcome: apply.Done, Started: time.Now(), UPID: "UPID:x"},
		{Action: plan.Action{Verb: plan.Start}, Outcome: apply.Deferred, Err: errors.New("not started")},
		{Action: plan.Action{Verb: plan.Create}, Outcome: apply.Failed, Err: fmt.Errorf("no: %w", reconcile.ErrHeld)},
		{Action: plan.Action{Verb: plan.Create}, Outcome: apply.Failed, Err: errors.New("refused")},
	}}}
	got := Entries(rep, nil)
	if len(got) != 2 || got[0].Task != "UPID:x" || got[1].Error != "refused" || got[1].Time.IsZero() {
		t.Errorf("%+v", got)
	}
	if text := fmt.Sprint(got); strings.Contains(text, "hunter2") || !strings.Contains(text, "2048") {
		t.Error(text)
	}
	down := &reconcile.Report{Cluster: "prod", Abort: errors.New("no route")}
	ok := &reconcile.Report{Cluster: "prod"}
	// The agent's own end is no fault of the cluster, nor its recovery.
	idle := &reconcile.Report{Cluster: "prod", Abort: fmt.Errorf("%w: context canceled", reconcile.ErrStopping)}
	stop := &reconcile.Report{Cluster: "prod", Abort: fmt.Errorf("%w: interrupted: 1 of 2 actions", reconcile.ErrStopping), Result: &apply.Result{Interrupted: true}}
	fenced := &reconcile.Report{Cluster: "prod", Abort: fmt.Errorf("%w: interrupted: 1 of 2 actions", apply.ErrFenced), Result: &apply.Result{Interrupted: true}}
	for _, c := range []struct {
		now, before *reconcile.Report
		want        []Event
	}{{down, nil, []Event{Aborted}}, {down, down, nil}, {ok, down, []Event{Recovered}}, {ok, ok, nil}, {down, ok, []Event{Aborted}},
		{idle, ok, nil}, {stop, ok, []Event{Interrupted}}, {stop, down, []Event{Interrupted}}, {fenced, ok, []Event{Interrupted}}, {ok, fenced, nil}} {
		var events []Event
		for _, e := range Entries(c.now, c.before) {
			events = append(events, e.Event)
		}
		if d := cmp.Diff(c.want, events); d != "" {
			t.Error(d)
		}
	}
}
