package pvesim_test

import (
	"testing"
	"testing/synctest"

	"github.com/proxops/proxops/internal/pvesim"
)

// Backup and replication jobs: a guest that is replicated is not removed, and only purge takes a guest out of them.
func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, "base", pvesim.Options{Seed: 3, TimeScale: 1})
		w.View(func(s *pvesim.State) {
			two := *s.Nodes[0]
			two.Name, two.ID = "pve02", 2
			s.Nodes = append(s.Nodes, &two)
		})
		a := inProcess(t, w)
		const vms = "/nodes/pve01/qemu"
		wantTask(t, a.task("POST", vms, "vmid", "100", "name", "a"), "OK")
		wantTask(t, a.task("POST", vms, "vmid", "101", "name", "b"), "OK")
		run(t, a, []step{
			{call: "POST /cluster/backup", form: []string{"id", "nightly", "vmid", "100,101", "storage", "local"}},
			{call: "POST /cluster/backup", form: []string{"id", "nightly", "all", "1"}, code: 500, says: "already exists"},
			{call: "POST /cluster/backup", form: []string{"vmid", "100", "all", "1"}, code: 400, says: "vmid"},
			{call: "GET /cluster/backup", says: `"vmid":"100,101"`},
			{call: "POST /cluster/replication", form: []string{"id", "100-0", "type", "local", "target", "pve02"}},
			{call: "POST /cluster/replication", form: []string{"id", "999-0", "type", "local", "target", "pve02"}, code: 500, says: "no such guest"},
			{call: "POST /cluster/replication", form: []string{"id", "100-1", "type", "local", "target", "pve01"}, code: 500, says: "no other node"},
			{call: "GET /cluster/replication", says: `"guest":100`},
			{call: "DELETE " + vms + "/100", code: 500, says: "replication job '100-0'"},
			{call: "DELETE " + vms + "/100", form: []string{"purge", "1"}, task: "OK"},
			{call: "DELETE " + vms + "/101", task: "OK"},
			{call: "GET /cluster/backup/nightly", says: `"vmid":"101"`},
			{call: "GET /cluster/replication/100-0", code: 500, says: "no such"},
			{call: "DELETE /cluster/backup/nightly"},
			{call: "DELETE /cluster/backup/nightly", code: 500, says: "No such job"},
		})
	})
}
