package web

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Health says what keeps the daemon from doing its work; nil is healthy.
// Clusters that cannot be reached, and repositories with faults, are no
// matter of health: a restart would not help.
func (s *Store) Health(now time.Time, taskTimeout time.Duration) []string {
	var out []string
	for _, c := range s.Snapshot().Clusters {
		if why := c.Stuck(now, taskTimeout); why != "" {
			out = append(out, c.Cluster+": "+why)
		}
	}
	return out
}

// Waiting says what the daemon has not done yet since it started; nil is
// ready: the repository was read, and every cluster that this agent owns has
// seen the end of a cycle.
func (s *Store) Waiting() []string {
	snap := s.Snapshot()
	if snap.Stopping {
		return []string{"stopping"}
	}
	if snap.Repo.unread() {
		return []string{"the repository was not read yet"}
	}
	var out []string
	for _, c := range snap.Clusters {
		if c.Mine && c.Cycles == 0 {
			out = append(out, c.Cluster+": the first cycle has not ended yet")
		}
	}
	return out
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	probe(w, s.store.Health(time.Now(), s.cfg.TaskTimeout), "a cluster's loop is stuck", s.loopback)
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	probe(w, s.store.Waiting(), "not ready", s.loopback)
}

// probe answers a health check. The reasons name clusters, so that only this
// machine gets them: the checks ask for no credentials.
func probe(w http.ResponseWriter, reasons []string, short string, detail bool) {
	switch {
	case len(reasons) == 0:
		text(w, http.StatusOK, "ok\n")
	case detail:
		text(w, http.StatusServiceUnavailable, strings.Join(reasons, "\n")+"\n")
	default:
		text(w, http.StatusServiceUnavailable, fmt.Sprintf("%s (%d)\n", short, len(reasons)))
	}
}
