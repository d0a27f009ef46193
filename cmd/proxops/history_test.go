package main

import (
	"testing"
	"time"

	"github.com/proxops/proxops/internal/journal"
)

// An object is found by its id, and by its name in whatever case: a delete is
// booked under PVE's name, the manifest may have had another case.
func TestHistoryOfAnObject(t *testing.T) {
	e := journal.Entry{Time: time.Now(), Cluster: "lab", Kind: "VM", Name: "Old-web", ID: "140"}
	a := &app{}
	for object, want := range map[string]bool{"": true, "140": true, "old-web": true, "Old-web": true, "vm/OLD-WEB": true, "VM/Old-web": true,
		"14": false, "old": false, "LXC/old-web": false, "VM/140": false} {
		if got := a.wanted(object, time.Hour)(e); got != want {
			t.Errorf("%q: %v", object, got)
		}
	}
	e.Time = e.Time.Add(-2 * time.Hour)
	if a.wanted("140", time.Hour)(e) {
		t.Error("an entry older than --since")
	}
	a.clusters = []string{"other"}
	if a.wanted("140", 0)(e) {
		t.Error("an entry of another cluster")
	}
}
