package plan

import (
	"fmt"
	"strings"

	"github.com/proxops/proxops/internal/live"
)

// replicated: PVE deletes no guest that has a replication job, unless purge is
// sent along, which it never is from here.
func replicated(m *maker, g *live.Guest) (text, todo string) {
	if m.s.Jobs == nil || len(m.s.Jobs.Replication[g.VMID]) == 0 {
		return "", ""
	}
	ids := m.s.Jobs.Replication[g.VMID]
	return jobs("replication job", ids) + " of it is there, and PVE deletes no guest that has one",
		"`pvesr delete " + strings.Join(ids, "`, `pvesr delete ") + "` if it is to go"
}

// haState is how the HA manager holds the guest, "" when it does not: an entry
// in the state "ignored" shows in no other list, and PVE deletes no guest that
// has one.
func (m *maker) haState(g *live.Guest) string {
	if g.HA == "" && m.s.Jobs != nil {
		return m.s.Jobs.HA[g.VMID]
	}
	return g.HA
}

// leftBehind words what names a guest and is not cleaned up with it: no purge
// is sent, so that nobody's backup or replication plans change by themselves.
func leftBehind(s *live.Snapshot, g *live.Guest) string {
	if s.Jobs == nil {
		return ""
	}
	out := ""
	if ids := s.Jobs.Backup[g.VMID]; len(ids) > 0 {
		out += fmt.Sprintf("; %s names it and stays as it is, since no purge is sent", jobs("backup job", ids))
	}
	if len(s.Jobs.Unread) > 0 {
		out += fmt.Sprintf("; %s could not be read: any that name it stay as they are", strings.Join(s.Jobs.Unread, " and "))
	}
	return out
}

func jobs(what string, ids []string) string {
	if len(ids) > 1 {
		what = "each of the " + what + "s"
	}
	return what + " " + strings.Join(ids, ", ")
}
