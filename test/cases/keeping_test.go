package cases_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
)

// keeping are the rights that keeping the manifests asks for as the cluster is
// now, the first of alternatives. Where away is set nothing could be made, nor
// is anything planned, as no node answers: what is left is for the fields.
func (l *lab) keeping(away bool, manifests ...string) rights {
	l.Helper()
	c, _, snap := l.planned(manifests...)
	if away {
		nodes := map[string]live.Node{}
		for name, n := range snap.Nodes {
			n.Online = false
			nodes[name] = n
		}
		snap.Nodes = nodes
	}
	out := rights{}
	for _, a := range plan.Rights(c, snap) {
		if slices.Contains(a.Privs, "Datastore.Audit") || slices.Contains(a.Privs, "VM.Audit") {
			continue // held anyway
		}
		if strings.Contains(a.Why(), ":") || a.Field == "" {
			l.Errorf("%v is for %q", a.Need, a.Why())
		}
		out.add(a.Paths[0], a.Privs[0])
	}
	return out
}

// Whatever field of a guest drifts, the rights that were named while nothing
// had drifted are enough to put it right, and nothing in them comes from making
// the guest anew.
func TestRightsKeepEveryField(t *testing.T) {
	seen := map[string]bool{ // what is plugged in elsewhere shows only while it is
		"other bridge": true, "other vlan": true, "ct other bridge": true, "other pool": true, "out of pool": true}
	tried := 0
	for what, c := range writes() {
		if len(c[0]) < len(c[1]) || strings.HasPrefix(what, "delete") || what == "download" || len(c[0]) == 0 {
			continue // something is made, or goes
		}
		tried++
		t.Run(what, func(t *testing.T) {
			var r rights
			rightsStory(t, c, func(l *lab) {
				if !seen[what] {
					l.apply(c[1]...)
				}
				r = l.keeping(!seen[what], c[1]...)
			})
			rightsStory(t, c, func(l *lab) { l.enough(r, c[1]) })
		})
	}
	if tried < 35 {
		t.Errorf("only %d rows were tried", tried)
	}
}

// Dropping what somebody left pending takes one right of those that change a
// guest, whichever; of drives and cards it takes their own. The prediction is
// PVE's answer.
func TestRightsOfReverts(t *testing.T) {
	sys, nic := "disks: [{storage: local-lvm, image: seed}]", "networks: [{bridge: vmbr0}]"
	v := vm("a", 100, sys, nic, "state: started", "memory: 1GiB", "balloon: 512MiB", "options: {startup: order=1, boot-order: [scsi0]}", "hardware: {serial0: socket, machine: pc}")
	c := ct("b", 101, "template: debian", nic, "state: started", "options: {nesting: true}")
	for what, x := range map[string]struct {
		id           int
		edit         []string
		right, wrong string // privilege and path
	}{
		"memory":      {100, []string{"memory", "2048"}, "VM.Config.CPU on /vms/100", "VM.PowerMgmt on /vms/100"},
		"machine":     {100, []string{"machine", "q35"}, "VM.Config.Options on /vms/100", "VM.Audit on /vms/100"},
		"serial":      {100, []string{"delete", "serial0"}, "VM.Config.HWType on /vms/100", "VM.Config.CPU on /vms/100"},
		"ct features": {101, []string{"features", "nesting=0"}, "VM.Config.CPU on /vms/101", "VM.Allocate on /vms/101"},
	} {
		t.Run(what, func(t *testing.T) {
			for _, right := range []string{x.right, x.wrong} {
				rightsStory(t, [2][]string{{seedImage, debian, v, c}}, func(l *lab) {
					l.put(x.id, x.edit...)
					r := rights{}
					priv, path, _ := strings.Cut(right, " on ")
					r.add(path, priv)
					l.hold(r)
					l.fails = true
					rep := l.apply(seedImage, debian, v, c)
					if rep.Result == nil || len(rep.Result.Actions) != 1 {
						t.Fatalf("with %s: %v %s", right, rep.Abort, text(rep))
					}
					a := rep.Result.Actions[0]
					step, _ := a.Action.Do.(plan.UpdateStep)
					if len(step.Revert) != 1 {
						t.Fatalf("nothing is reverted: %+v", step)
					}
					if want := right == x.wrong; (a.Action.Refused != "") != want || denied(a.Err) != want {
						t.Errorf("with %s: predicted %q, PVE said %v", right, a.Action.Refused, a.Err)
					}
				})
			}
		})
	}
}
