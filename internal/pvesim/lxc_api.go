package pvesim

import (
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

func lxcRoutes() []route {
	const ct = "/nodes/{node}/lxc/{vmid}"
	return []route{
		{"GET", "/nodes/{node}/lxc", (*World).lxcList},
		{"POST", "/nodes/{node}/lxc", (*World).lxcCreate},
		{"GET", ct, (*World).lxcIndex},
		{"DELETE", ct, (*World).lxcDestroy},
		{"GET", ct + "/config", (*World).lxcConfig},
		{"PUT", ct + "/config", (*World).lxcUpdate},
		{"GET", ct + "/pending", (*World).lxcPending},
		{"GET", ct + "/feature", (*World).lxcFeature},
		{"GET", ct + "/interfaces", (*World).lxcInterfaces},
		{"GET", ct + "/status", (*World).lxcStatusIndex},
		{"GET", ct + "/status/current", (*World).lxcCurrent},
		{"POST", ct + "/status/start", (*World).lxcStart},
		{"POST", ct + "/status/stop", (*World).lxcStop},
		{"POST", ct + "/status/shutdown", (*World).lxcShutdown},
		{"POST", ct + "/status/reboot", (*World).lxcReboot},
		{"POST", ct + "/status/suspend", (*World).lxcSuspend},
		{"POST", ct + "/status/resume", (*World).lxcResume},
		{"PUT", ct + "/resize", (*World).lxcResize},
		{"POST", ct + "/move_volume", (*World).lxcMoveVolume},
		{"POST", ct + "/clone", (*World).lxcClone},
		{"POST", ct + "/template", (*World).lxcTemplate},
		{"GET", ct + "/migrate", (*World).lxcMigrateCheck},
		{"POST", ct + "/migrate", (*World).lxcMigrate},
		{"GET", ct + "/snapshot", (*World).lxcSnapshots},
		{"POST", ct + "/snapshot", (*World).lxcSnapshotCreate},
		{"GET", ct + "/snapshot/{snapname}", (*World).snapshotIndex},
		{"DELETE", ct + "/snapshot/{snapname}", (*World).lxcSnapshotDelete},
		{"GET", ct + "/snapshot/{snapname}/config", (*World).lxcSnapshotConfig},
		{"PUT", ct + "/snapshot/{snapname}/config", (*World).lxcSnapshotUpdate},
		{"POST", ct + "/snapshot/{snapname}/rollback", (*World).lxcRollback},
	}
}

// lxcConfigMethod is the method whose parameters are the keys of a container's config.
func lxcConfigMethod() *schema.Method {
	return schema.Lookup("PUT", "/nodes/{node}/lxc/{vmid}/config")
}

func (w *World) lxcList(r *Request) (any, error) {
	out := []map[string]any{}
	for _, g := range w.guestsOf(kindLXC, r.Node) {
		if w.can(r.Who, "/vms/"+decimal(g.VMID), "VM.Audit") {
			out = append(out, w.guestFigures(g))
		}
	}
	return out, nil
}

func (w *World) lxcIndex(r *Request) (any, error) {
	if _, err := w.guest(kindLXC, r.Node, r.VMID); err != nil {
		return nil, err
	}
	return subdirs("config", "pending", "status", "vncproxy", "termproxy", "vncwebsocket", "spiceproxy", "migrate", "clone", "rrd", "rrddata",
		"firewall", "snapshot", "resize", "interfaces"), nil
}

func (w *World) lxcStatusIndex(r *Request) (any, error) {
	if _, err := w.guest(kindLXC, r.Node, r.VMID); err != nil {
		return nil, err
	}
	return subdirs("current", "start", "stop", "shutdown", "migrate"), nil
}

func (w *World) lxcCurrent(r *Request) (any, error) {
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	row := w.guestFigures(g)
	row["ha"] = w.haFigures(g)
	if g.Running {
		for _, k := range []string{"cpusome", "cpufull", "iosome", "iofull", "memorysome", "memoryfull"} {
			row["pressure"+k] = 0
		}
	}
	return row, nil
}

// seesEnv refuses the config of a container whose env may hold secrets to who has no more than VM.Audit (facts.md M, au-347).
func (w *World) seesEnv(r *Request, sections ...Section) error {
	for _, s := range sections {
		if _, ok := s["env"]; ok {
			return w.check(r.Who, "/vms/"+decimal(r.VMID), "VM.Config.Options")
		}
	}
	return nil
}

func (w *World) lxcConfig(r *Request) (any, error) {
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	if name := r.P.Str("snapshot"); name != "" {
		s := g.snapshot(name)
		if s == nil {
			return nil, die("snapshot '%s' does not exist", name)
		}
		if err := w.seesEnv(r, s.Config); err != nil {
			return nil, err
		}
		return g.lxcAnswer(s.section(), s.Raw), nil
	}
	if err := w.seesEnv(r, g.Config, g.Pending); err != nil {
		return nil, err
	}
	conf := g.Config
	if !r.P.Bool("current") {
		conf = g.next()
	}
	return g.lxcAnswer(conf, g.Raw), nil
}

// lxcAnswer is a section of a container as the API gives it: descriptions get a line feed at their end, raw lines are pairs.
func (g *Guest) lxcAnswer(s Section, raw []string) map[string]any {
	out := g.apiConfig(s, lxcConfigMethod())
	if d, ok := s["description"]; ok {
		out["description"] = d + "\n"
	}
	if len(raw) > 0 {
		pairs := make([][2]string, 0, len(raw))
		for _, line := range raw {
			k, v, _ := strings.Cut(line, ":")
			pairs = append(pairs, [2]string{strings.TrimSpace(k), strings.TrimSpace(v)})
		}
		out["lxc"] = pairs
	}
	return out
}

func (w *World) lxcPending(r *Request) (any, error) {
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	if err := w.seesEnv(r, g.Config, g.Pending); err != nil {
		return nil, err
	}
	m := lxcConfigMethod()
	value := func(k, v string) any {
		if k == "description" {
			v += "\n"
		}
		return apiValue(k, v, m)
	}
	return g.pendingRows(value), nil
}

func (w *World) lxcFeature(r *Request) (any, error) {
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	conf := g.Config
	snap := r.P.Str("snapname")
	if snap != "" {
		s := g.snapshot(snap)
		if s == nil {
			return nil, die("snapshot '%s' does not exist", snap)
		}
		conf = s.Config
	}
	has := true
	for _, m := range mounts(conf, false) {
		has = has && m.kind() == "volume" && w.volumeFeature(r.P.Str("feature"), m.volume(), snap)
	}
	return map[string]any{"hasFeature": bit(has)}, nil
}

func (w *World) lxcInterfaces(r *Request) (any, error) {
	g, err := w.guest(kindLXC, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	if !g.Running {
		return nil, die("CT %d not running", g.VMID)
	}
	out := []map[string]any{netInterface("lo", "00:00:00:00:00:00", "127.0.0.1/8")}
	for _, k := range g.Config.Keys() {
		if !indexed(k, "net") {
			continue
		}
		p, err := schema.ParsePropString(".net", k, g.Config[k])
		if err != nil {
			continue
		}
		out = append(out, netInterface(p["name"], strings.ToLower(p["hwaddr"]), p["ip"]))
	}
	return out, nil
}

// netInterface is a NIC of a running container; addresses that are not static are unknown to the simulator.
func netInterface(name, mac, ip string) map[string]any {
	row := map[string]any{"name": name, "hwaddr": mac, "hardware-address": mac, "ip-addresses": []map[string]any{}}
	if addr, prefix, ok := strings.Cut(ip, "/"); ok {
		row["inet"] = ip
		row["ip-addresses"] = []map[string]any{{"ip-address": addr, "prefix": prefix, "ip-address-type": "inet"}}
	}
	return row
}

// indexed says whether a key is base with a number.
func indexed(key, base string) bool {
	n, ok := strings.CutPrefix(key, base)
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}
