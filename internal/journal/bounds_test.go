package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
)

// A write that fails is an error of those entries alone: the next ones are
// written, and whole.
func TestGoesOnAfterAFailedWrite(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if err := j.Append(entry(1)); err != nil {
		t.Fatal(err)
	}
	_ = j.file.Close() // as a disk that is gone: writes fail
	if err := j.Append(entry(2)); err == nil || !strings.HasPrefix(err.Error(), j.path(0)+": ") {
		t.Errorf("a failed write: %v", err)
	}
	if err := j.Append(entry(3)); err != nil {
		t.Errorf("the journal does not go on: %v", err)
	}
	got, damaged, err := Read(dir, 0, nil)
	if d := cmp.Diff([]string{"vm-1", "vm-3"}, names(got)); d != "" || damaged != 0 || err != nil {
		t.Error(d, damaged, err)
	}
}

// Where a full file cannot be put aside nothing is written over it, and it is
// an error.
func TestRotationThatFails(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	if err := j.Append(entry(1)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file(dir, keepOld), 0o700); err != nil { // in the way
		t.Fatal(err)
	}
	if err := os.WriteFile(file(dir, keepOld-1), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j.max = 10
	if err := j.Append(entry(2)); err == nil {
		t.Error("no error, though the file cannot be put aside")
	}
	data, err := os.ReadFile(j.path(0))
	if err != nil || !strings.Contains(string(data), `"vm-1"`) || strings.Contains(string(data), `"vm-2"`) {
		t.Errorf("the full file is now %q, %v", data, err)
	}
}

// Opening a journal that ends as it should writes nothing to it.
func TestOpenAddsNothing(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	_ = j.Append(entry(1))
	_ = j.Close()
	before, _ := os.ReadFile(j.path(0))
	open(t, dir)
	if after, _ := os.ReadFile(j.path(0)); !bytes.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
}

// Lines that are no entries are counted and cost no more memory than an entry
// may; blank ones are nothing.
func TestLinesThatAreNoEntries(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	_ = j.Append(entry(1))
	huge := `{"event":"action","name":"` + strings.Repeat("x", 3*maxEntry) + `"}`
	text := "\n  \n{}\nnull\nno JSON\n" + huge + "\n"
	f, err := os.OpenFile(file(dir, 0), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(text)
	_ = f.Close()
	_ = j.Append(entry(2))
	got, damaged, err := Read(dir, 0, nil)
	if d := cmp.Diff([]string{"vm-1", "vm-2"}, names(got)); d != "" || damaged != 4 || err != nil {
		t.Error(d, damaged, err)
	}
	br := bufio.NewReaderSize(strings.NewReader(huge+"\n"), 64<<10)
	if line, err := readLine(br); err != nil || len(line) > maxEntry+64<<10 {
		t.Errorf("%d bytes are kept of a line, %v", len(line), err)
	}
}

// What PVE says at length does not fill the journal.
func TestEntryIsBounded(t *testing.T) {
	long := strings.Repeat("y", 3*maxText)
	var lines []string
	for n := range 100 {
		lines = append(lines, fmt.Sprintf("%d %s", n, long))
	}
	begin := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	rep := &reconcile.Report{Cluster: "prod", Finished: begin.Add(time.Hour), Result: &apply.Result{Actions: []apply.ActionResult{
		{Action: plan.Action{Verb: plan.Create, Why: long}, Outcome: apply.Failed, Err: errors.New(long), Started: begin, Warnings: lines, Tail: lines}}}}
	got := Entries(rep, nil)
	if len(got) != 1 || !got[0].Time.Equal(begin) {
		t.Fatalf("want one entry, of the action's start: %+v", got)
	}
	if len(got[0].Tail) != 20 || !strings.HasPrefix(got[0].Tail[19], "99 ") || len(got[0].Warnings) != 20 {
		t.Errorf("%d lines and %d warnings, want the last 20", len(got[0].Tail), len(got[0].Warnings))
	}
	for _, s := range append(append([]string{got[0].Why, got[0].Error}, got[0].Tail...), got[0].Warnings...) {
		if len(s) > maxText+len("…") {
			t.Errorf("a text of %d bytes", len(s))
		}
	}
}
