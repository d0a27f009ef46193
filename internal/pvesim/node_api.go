package pvesim

import (
	"strconv"
	"strings"
	"time"
)

func nodeRoutes() []route {
	return []route{{"GET", "/nodes", (*World).nodeList}}
}

func (w *World) nodeList(r *Request) (any, error) {
	out := []map[string]any{}
	for _, n := range w.Nodes {
		row := map[string]any{"id": "node/" + n.Name, "node": n.Name, "type": "node", "status": "offline", "ssl_fingerprint": nil}
		if n.Online() {
			row["status"], row["level"], row["ssl_fingerprint"] = "online", "", w.fingerprint
			if w.can(r.Who, "/nodes/"+n.Name, "Sys.Audit") {
				row["cpu"], row["maxcpu"], row["mem"], row["maxmem"] = 0.02, n.CPUs, n.Memory/8, n.Memory
				row["disk"], row["maxdisk"], row["uptime"] = n.RootUsed, n.RootTotal, int64(time.Since(w.Booted).Seconds())
			}
		}
		out = append(out, row)
	}
	return out, nil
}

// bit is a boolean as PVE answers it.
func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func decimal(n int) string { return strconv.Itoa(n) }

func joined(list []string, sep string) string { return strings.Join(list, sep) }
