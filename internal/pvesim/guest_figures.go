package pvesim

import (
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// guestFigures is a guest's row in the lists of its node.
func (w *World) guestFigures(g *Guest) map[string]any {
	row := map[string]any{
		"vmid": g.VMID, "name": g.displayName(), "status": g.status(), "cpu": 0, "cpus": g.cpus(), "mem": 0, "maxmem": g.memory(), "disk": 0,
		"maxdisk": w.mainDisk(g), "netin": 0, "netout": 0, "uptime": 0,
	}
	if g.Kind == kindQemu {
		row["memhost"] = 0
	} else {
		row["type"], row["swap"], row["maxswap"], row["diskread"], row["diskwrite"] = kindLXC, 0, int64(g.number("swap", 512))<<20, 0, 0
		if n := w.node(g.Node); n != nil && g.Config["cores"] == "" { // a container without a limit has all of its node
			row["cpus"] = n.CPUs
		}
	}
	if g.Running {
		row["uptime"], row["pid"], row["mem"] = int64(time.Since(g.Started).Seconds()), g.PID, g.memory()/2
	}
	if g.Template() {
		row["template"] = 1
	}
	for _, k := range []string{"tags", "lock"} {
		if v := g.Config[k]; v != "" {
			row[k] = v
		}
	}
	return row
}

func (g *Guest) displayName() string {
	switch {
	case g.Kind == kindLXC && g.Config["hostname"] != "":
		return g.Config["hostname"]
	case g.Kind == kindLXC:
		return "CT" + decimal(g.VMID)
	case g.Config["name"] != "":
		return g.Config["name"]
	}
	return "VM " + decimal(g.VMID)
}

func (g *Guest) status() string {
	if g.Running {
		return "running"
	}
	return "stopped"
}

func (g *Guest) number(key string, def int) int { return Params{"n": g.Config[key]}.Int("n", def) }

func (g *Guest) cpus() int {
	if g.Kind == kindLXC {
		return g.number("cores", 1)
	}
	if n := g.number("vcpus", 0); n > 0 {
		return n
	}
	return g.number("cores", 1) * g.number("sockets", 1)
}

// memory is in bytes.
func (g *Guest) memory() int64 { return memoryOf(g.Config["memory"]) }

// memoryOf is the bytes that a memory value means.
func memoryOf(value string) int64 {
	m, _, _ := strings.Cut(strings.TrimPrefix(value, "current="), ",")
	n, err := strconv.ParseInt(m, 10, 64)
	if err != nil {
		n = 512
	}
	return n << 20
}

// mainDisk is the size of the disk that lists show: the first of the boot order, or the root file system.
func (w *World) mainDisk(g *Guest) int64 {
	key := "rootfs"
	if g.Kind == kindQemu {
		key = ""
		order, _ := strings.CutPrefix(g.Config["boot"], "order=")
		for k := range strings.SplitSeq(order, ";") {
			if isVolumeKey(k) && !strings.Contains(g.Config[k], "media=cdrom") {
				key = k
				break
			}
		}
	}
	for part := range strings.SplitSeq(g.Config[key], ",") {
		if s, ok := strings.CutPrefix(part, "size="); ok {
			if n, ok := schema.ParseSize(s); ok {
				return n
			}
		}
	}
	return 0
}

// apiConfig is a config section as GET …/config answers it: numbers as numbers where the schema has them, with the digest.
func (g *Guest) apiConfig(s Section, m *schema.Method) map[string]any {
	out := map[string]any{"digest": g.Digest()}
	for k, v := range s {
		out[k] = apiValue(k, v, m)
	}
	return out
}

// apiValue types a config value by the schema of the method that writes it: integers and booleans are JSON numbers, all else text,
// fractions such as cpulimit included (qc-050).
func apiValue(key, v string, m *schema.Method) any {
	p, ok := m.Key(key)
	if !ok {
		return v
	}
	if p.Type == schema.Integer || p.Type == schema.Boolean {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return n
		}
	}
	return v
}
