package pve

import (
	"cmp"
	"context"
	"slices"
	"strconv"
)

// BackupJob is one row of GET /cluster/backup.
type BackupJob struct {
	ID string
	// VMIDs are the guests that the job names: those it backs up, and those
	// that a job for all guests leaves out.
	VMIDs, Excluded []int
	All             bool
	Pool            string // the job backs up this pool's members; "" = none
}

// ReplicationJob is one row of GET /cluster/replication.
type ReplicationJob struct {
	ID     string // the guest's vmid and a number, such as 100-0
	Guest  int
	Target string // node
}

// BackupJobs lists the cluster's backup jobs, by id. PVE asks for Sys.Audit
// on / (api of pve-manager: /cluster/backup).
func (r *Reader) BackupJobs(ctx context.Context) ([]BackupJob, error) {
	out, err := rows(ctx, r, "/cluster/backup", nil, func(x row) BackupJob {
		return BackupJob{ID: x.str("id"), VMIDs: x.ids("vmid"), Excluded: x.ids("exclude"), All: x.yes("all"), Pool: x.str("pool")}
	})
	slices.SortFunc(out, func(a, b BackupJob) int { return cmp.Compare(a.ID, b.ID) })
	return out, err
}

// ReplicationJobs lists the replication jobs of the guests that the caller may
// audit, by id.
func (r *Reader) ReplicationJobs(ctx context.Context) ([]ReplicationJob, error) {
	out, err := rows(ctx, r, "/cluster/replication", nil, func(x row) ReplicationJob {
		return ReplicationJob{ID: x.str("id"), Guest: int(x.num("guest")), Target: x.str("target")}
	})
	slices.SortFunc(out, func(a, b ReplicationJob) int { return cmp.Compare(a.ID, b.ID) })
	return out, err
}

// ids are the vmids of a list, sorted; what is none is left out.
func (r row) ids(key string) []int {
	var out []int
	for _, s := range r.list(key) {
		if n, err := strconv.Atoi(s); err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
