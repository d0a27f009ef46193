package pvesim

import (
	"slices"
	"strconv"
	"strings"
)

// BackupJob is a job of the cluster's backup plan.
type BackupJob struct {
	ID string
	// Props are the options as set: vmid, exclude, all, pool, storage, schedule and so on.
	Props map[string]string
}

// ReplicationJob copies a guest's volumes to another node.
type ReplicationJob struct {
	// ID is the guest's vmid and a number: 100-0.
	ID     string
	Target string
	// Props are the other options as set: schedule, rate, disable, comment.
	Props map[string]string
}

// guest is the vmid that the job is for.
func (j *ReplicationJob) guest() int {
	id, _, _ := strings.Cut(j.ID, "-")
	return number(id)
}

func jobRoutes() []route {
	return []route{
		{"GET", "/cluster/backup", (*World).backupList},
		{"POST", "/cluster/backup", (*World).backupCreate},
		{"GET", "/cluster/backup/{id}", (*World).backupRead},
		{"DELETE", "/cluster/backup/{id}", (*World).backupDelete},
		{"GET", "/cluster/replication", (*World).replicationList},
		{"POST", "/cluster/replication", (*World).replicationCreate},
		{"GET", "/cluster/replication/{id}", (*World).replicationRead},
		{"DELETE", "/cluster/replication/{id}", (*World).replicationDelete},
	}
}

func (j *BackupJob) row() map[string]any {
	row := map[string]any{"id": j.ID, "type": "vzdump", "enabled": 1}
	for k, v := range j.Props {
		row[k] = v
		if k == "all" || k == "enabled" {
			row[k] = number(v)
		}
	}
	return row
}

func (w *World) backupList(*Request) (any, error) {
	out := []map[string]any{}
	for _, id := range sortedKeys(w.BackupJobs) {
		out = append(out, w.BackupJobs[id].row())
	}
	return out, nil
}

func (w *World) backupCreate(r *Request) (any, error) {
	j := &BackupJob{ID: r.P.Str("id"), Props: jobProps(r.P, "id")}
	selected := 0
	for _, k := range []string{"vmid", "pool", "all"} {
		if v := j.Props[k]; v != "" && v != "0" {
			selected++
		}
	}
	if selected != 1 {
		return nil, paramErr("vmid", "option conflicts or is missing: a job needs one of vmid, pool and all")
	}
	for n := 1; j.ID == ""; n++ {
		if id := "backup-" + strconv.Itoa(n); w.BackupJobs[id] == nil {
			j.ID = id
		}
	}
	if w.BackupJobs[j.ID] != nil {
		return nil, die("Job '%s' already exists", j.ID)
	}
	if w.BackupJobs == nil {
		w.BackupJobs = map[string]*BackupJob{}
	}
	w.BackupJobs[j.ID] = j
	return nil, nil
}

func (w *World) backupRead(r *Request) (any, error) {
	j := w.BackupJobs[r.P.Str("id")]
	if j == nil {
		return nil, die("No such job '%s'", r.P.Str("id"))
	}
	return j.row(), nil
}

func (w *World) backupDelete(r *Request) (any, error) {
	if w.BackupJobs[r.P.Str("id")] == nil {
		return nil, die("No such job '%s'", r.P.Str("id"))
	}
	delete(w.BackupJobs, r.P.Str("id"))
	return nil, nil
}

func (j *ReplicationJob) row() map[string]any {
	_, n, _ := strings.Cut(j.ID, "-")
	row := map[string]any{"id": j.ID, "type": "local", "guest": j.guest(), "jobnum": number(n), "target": j.Target}
	for k, v := range j.Props {
		row[k] = v
	}
	return row
}

// replicationList shows the jobs of guests that the caller may audit.
func (w *World) replicationList(r *Request) (any, error) {
	out := []map[string]any{}
	for _, id := range sortedKeys(w.Replication) {
		if j := w.Replication[id]; w.can(r.Who, "/vms/"+decimal(j.guest()), "VM.Audit") {
			out = append(out, j.row())
		}
	}
	return out, nil
}

func (w *World) replicationCreate(r *Request) (any, error) {
	j := &ReplicationJob{ID: r.P.Str("id"), Target: r.P.Str("target"), Props: jobProps(r.P, "id", "type", "target")}
	if err := w.check(r.Who, "/vms/"+decimal(j.guest()), "VM.Replicate"); err != nil {
		return nil, err
	}
	g := w.Guests[j.guest()]
	switch {
	case w.Replication[j.ID] != nil:
		return nil, die("create replication job failed: job '%s' already exists", j.ID)
	case g == nil:
		return nil, die("create replication job failed: no such guest '%d'", j.guest())
	case w.node(j.Target) == nil || j.Target == g.Node:
		return nil, die("create replication job failed: target '%s' is no other node of the cluster", j.Target)
	}
	if w.Replication == nil {
		w.Replication = map[string]*ReplicationJob{}
	}
	w.Replication[j.ID] = j
	return nil, nil
}

func (w *World) replication(r *Request, priv string) (*ReplicationJob, error) {
	j := w.Replication[r.P.Str("id")]
	if j == nil {
		return nil, die("no such replication job '%s'", r.P.Str("id"))
	}
	return j, w.check(r.Who, "/vms/"+decimal(j.guest()), priv)
}

func (w *World) replicationRead(r *Request) (any, error) {
	j, err := w.replication(r, "VM.Audit")
	if err != nil {
		return nil, err
	}
	return j.row(), nil
}

// replicationDelete removes a job at once; PVE marks it for removal and its replication daemon removes it soon after.
func (w *World) replicationDelete(r *Request) (any, error) {
	j, err := w.replication(r, "VM.Replicate")
	if err != nil {
		return nil, err
	}
	delete(w.Replication, j.ID)
	return nil, nil
}

// checkReplication is ReplicationConfig's check_for_existing_jobs: a guest with jobs is not removed.
func (w *World) checkReplication(vmid int) error {
	for _, id := range sortedKeys(w.Replication) {
		if w.Replication[id].guest() == vmid {
			return die("There is a replication job '%s' for guest '%d' - Please remove that first.", id, vmid)
		}
	}
	return nil
}

// purgeJobs takes a guest out of the backup and replication jobs, as purge=1 asks for.
func (w *World) purgeJobs(vmid int) {
	for _, id := range sortedKeys(w.Replication) {
		if w.Replication[id].guest() == vmid {
			delete(w.Replication, id)
		}
	}
	for _, j := range w.BackupJobs {
		for _, k := range []string{"vmid", "exclude"} {
			if v := j.Props[k]; v != "" {
				j.Props[k] = joined(slices.DeleteFunc(splitList(v), func(s string) bool { return s == decimal(vmid) }))
			}
		}
	}
}

func jobProps(p Params, not ...string) map[string]string {
	out := map[string]string{}
	for _, k := range p.Keys() {
		if !slices.Contains(not, k) {
			out[k] = p.Str(k)
		}
	}
	return out
}
