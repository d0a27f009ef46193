package live

import (
	"context"
	"slices"

	"github.com/proxops/proxops/internal/pve"
)

// Jobs are what the cluster's other configurations say of guests, by vmid:
// what outlives a guest, or keeps PVE from deleting it.
type Jobs struct {
	Backup      map[int][]string // ids of the backup jobs that name the guest, or leave it out by name
	Replication map[int][]string // ids of its replication jobs
	HA          map[int]string   // requested state of its HA resource, "ignored" included
	Unread      []string         // which of these could not be read, in words, sorted
}

// ReadJobs adds the snapshot's Jobs: one listing of each sort for the whole
// cluster. It is asked for only when something is to be deleted. A listing that
// the token may not read is named in Unread; an error is the context's.
func ReadJobs(ctx context.Context, r *pve.Reader, s *Snapshot) error {
	x := &reading{ctx: ctx, r: r, snap: s, want: Want{Parallel: 3}}
	before := r.Stats().Reads
	s.Jobs = &Jobs{Backup: map[int][]string{}, Replication: map[int][]string{}, HA: map[int]string{}}
	x.parallel([]func(){x.backupJobs, x.replicationJobs, x.haResources})
	slices.Sort(s.Jobs.Unread)
	s.Calls += r.Stats().Reads - before
	return ctx.Err()
}

func (x *reading) unread(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.snap.Jobs.Unread = append(x.snap.Jobs.Unread, what)
}

func (x *reading) backupJobs() {
	list, err := x.r.BackupJobs(x.ctx)
	if err != nil {
		x.unread("backup jobs")
		return
	}
	for _, j := range list {
		for _, id := range slices.Concat(j.VMIDs, j.Excluded) {
			if !slices.Contains(x.snap.Jobs.Backup[id], j.ID) {
				x.snap.Jobs.Backup[id] = append(x.snap.Jobs.Backup[id], j.ID)
			}
		}
	}
}

func (x *reading) replicationJobs() {
	list, err := x.r.ReplicationJobs(x.ctx)
	if err != nil {
		x.unread("replication jobs")
		return
	}
	for _, j := range list {
		x.snap.Jobs.Replication[j.Guest] = append(x.snap.Jobs.Replication[j.Guest], j.ID)
	}
}

func (x *reading) haResources() {
	list, err := x.r.HAResources(x.ctx)
	if err != nil {
		x.unread("HA resources")
		return
	}
	for _, h := range list {
		x.snap.Jobs.HA[h.VMID()] = h.State
	}
}
