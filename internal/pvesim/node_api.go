package pvesim

import (
	"strconv"
	"strings"
	"time"
)

func nodeRoutes() []route {
	return []route{
		{"GET", "/nodes", (*World).nodeList},
		{"GET", "/nodes/{node}", (*World).nodeIndex},
		{"GET", "/nodes/{node}/status", (*World).nodeStatus},
		{"GET", "/nodes/{node}/network", (*World).networkList},
		{"GET", "/nodes/{node}/network/{iface}", (*World).networkRead},
	}
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

func (w *World) nodeIndex(*Request) (any, error) {
	out := []map[string]any{}
	for _, n := range []string{"lxc", "network", "qemu", "query-url-metadata", "status", "storage", "tasks", "version"} {
		out = append(out, map[string]any{"name": n})
	}
	return out, nil
}

func (w *World) nodeStatus(r *Request) (any, error) {
	n := w.node(r.Node)
	used := n.Memory / 8
	return map[string]any{
		"pveversion": "pve-manager/9.2.11/14a22df35955d97d", "kversion": "Linux 6.17.2-1-pve #1 SMP PREEMPT_DYNAMIC PMX 6.17.2-1",
		"current-kernel": map[string]any{"sysname": "Linux", "release": "6.17.2-1-pve", "version": "#1 SMP PREEMPT_DYNAMIC PMX 6.17.2-1", "machine": "x86_64"},
		"uptime":         int64(time.Since(w.Booted).Seconds()), "cpu": 0.02, "wait": 0, "idle": 0, "loadavg": []string{"0.10", "0.08", "0.02"},
		"cpuinfo": map[string]any{
			"cpus": n.CPUs, "cores": n.CPUs, "sockets": 1, "model": "Simulated CPU", "mhz": "2300.000", "hvm": "1", "user_hz": 100, "flags": "fpu vme sse2 lm",
		},
		"memory":    map[string]any{"total": n.Memory, "used": used, "free": n.Memory - used, "available": n.Memory - used},
		"swap":      map[string]any{"total": 0, "used": 0, "free": 0},
		"rootfs":    map[string]any{"total": n.RootTotal, "used": n.RootUsed, "free": n.RootTotal - n.RootUsed, "avail": n.RootTotal - n.RootUsed},
		"ksm":       map[string]any{"shared": 0},
		"boot-info": map[string]any{"mode": "efi", "secureboot": 0},
	}, nil
}

// networkList shows the bridges of a node; bridges need SDN rights for those who may not see the node.
func (w *World) networkList(r *Request) (any, error) {
	kind, out := r.P.Str("type"), []map[string]any{}
	if kind != "" && kind != "bridge" && kind != "any_bridge" && kind != "any_local_bridge" && kind != "include_sdn" {
		return out, nil
	}
	audit := w.can(r.Who, "/nodes/"+r.Node, "Sys.Audit")
	for i, b := range w.node(r.Node).Bridges {
		if audit || w.canAny(r.Who, "/sdn/zones/localnetwork/"+b, "SDN.Audit", "SDN.Use") {
			row := bridgeRow(i)
			row["iface"] = b
			out = append(out, row)
		}
	}
	return out, nil
}

func bridgeRow(i int) map[string]any {
	return map[string]any{
		"type": "bridge", "active": 1, "autostart": 1, "exists": 1, "method": "manual", "method6": "manual", "families": []string{"inet"}, "priority": i + 3,
		"bridge_ports": "eno" + strconv.Itoa(i+1), "bridge_stp": "off", "bridge_fd": "0", "bridge_vlan_aware": 1, "bridge_vids": "2-4094",
	}
}

func (w *World) networkRead(r *Request) (any, error) {
	for i, b := range w.node(r.Node).Bridges {
		if b == r.P.Str("iface") {
			return bridgeRow(i), nil
		}
	}
	return nil, paramErr("iface", "interface does not exist")
}

// bit is a boolean as PVE answers it.
func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func decimal(n int) string { return strconv.Itoa(n) }

func joined(list []string) string { return strings.Join(list, ",") }
