package cases_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/reconcile"
)

// census is what must not get lost: every guest's config and every volume.
type census struct {
	guests   map[int]pvesim.Section // with what is pending merged in
	loose    map[string]bool        // volumes of guests that no config names
	ledger   int
	requests int
}

func (l *lab) census() census {
	c := census{guests: map[int]pvesim.Section{}, loose: map[string]bool{}, ledger: len(l.w.LedgerEntries()), requests: len(l.w.Requests())}
	l.w.View(func(s *pvesim.State) {
		var all strings.Builder
		for id, g := range s.Guests {
			sec := g.Config.Clone()
			maps.Copy(sec, g.Pending)
			c.guests[id] = sec
			for _, sections := range []pvesim.Section{g.Config, g.Pending} {
				for _, v := range sections {
					all.WriteString(v + "\n")
				}
			}
			for _, sn := range g.Snapshots {
				for _, v := range sn.Config {
					all.WriteString(v + "\n")
				}
			}
		}
		for key, v := range s.Volumes {
			if v.Owner != 0 && v.Content != "backup" && !strings.Contains(all.String(), v.ID) {
				c.loose[key] = true
			}
		}
	})
	return c
}

// guard holds the laws of every cycle: nothing destroyed or left behind but
// by a planned Delete, no create form over a filled slot, never the mask.
func (l *lab) guard(before census, rep reconcile.Report) {
	l.Helper()
	deletes, moves := map[int]bool{}, map[int]bool{}
	for _, a := range rep.Plan.Actions {
		deletes[a.VMID] = deletes[a.VMID] || a.Verb == plan.Delete
		moves[a.VMID] = moves[a.VMID] || a.Verb == plan.Migrate
	}
	after := l.census()
	for _, e := range l.w.LedgerEntries()[before.ledger:] {
		if _, was := before.guests[e.Owner]; was && e.Op == "destroy" && !deletes[e.Owner] && !strings.Contains(e.Volid, "cloudinit") &&
			!(moves[e.Owner] && strings.Contains(e.Cause, "migrate:")) { // copied to the other node before
			l.Errorf("volume %s of guest %d was destroyed without a planned Delete (%s)", e.Volid, e.Owner, e.Cause)
		}
	}
	for key := range after.loose {
		if !before.loose[key] {
			l.Errorf("volume %s was left behind: no config names it", key)
		}
	}
	for id, now := range after.guests {
		was, there := before.guests[id]
		for key := range now {
			if strings.HasPrefix(key, "unused") && (!there || was[key] == "") {
				l.Errorf("guest %d: a volume was thrown out of its slot: %s: %s", id, key, now[key])
			}
		}
	}
	for _, r := range l.w.Requests()[before.requests:] {
		l.guardRequest(before, r)
	}
}

func (l *lab) guardRequest(before census, r pvesim.RequestEntry) {
	l.Helper()
	var kind, verb string
	var id int
	if n, _ := fmt.Sscanf(strings.ReplaceAll(r.Path, "/", " "), " nodes %s %s %d %s", new(string), &kind, &id, &verb); n < 3 || r.Method == "GET" {
		return
	}
	if p := r.Params.Str("cipassword"); p != "" && strings.Trim(p, "*") == "" {
		l.Errorf("the password mask was sent: %s %s", r.Method, r.Path)
	}
	for key := range r.Params {
		value := r.Params.Str(key)
		was := before.guests[id][key]
		if createForm(key, value) && was != "" && !strings.HasPrefix(was, "none") && !createForm(key, was) {
			l.Errorf("%s %s sends the create form %s=%s over %s", r.Method, r.Path, key, value, was)
		}
	}
}

// createForm reports whether a slot's text makes PVE allocate a volume.
func createForm(key, text string) bool {
	first, _, _ := strings.Cut(text, ",")
	_, amount, volume := strings.Cut(first, ":")
	return volume && (amount == "cloudinit" || strings.Trim(amount, "0123456789.") == "") && slotted(key)
}

func slotted(key string) bool {
	class := strings.TrimRight(key, "0123456789")
	return slices.Contains([]string{"scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "mp", "rootfs"}, class)
}
