package pvesim

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// Reads of a node that say what it can run, and how it and what is on it did in the past.

func nodeReadRoutes() []route {
	const n = "/nodes/{node}"
	return []route{
		{"GET", n + "/version", (*World).version},
		{"GET", n + "/aplinfo", (*World).templateIndex},
		{"POST", n + "/aplinfo", (*World).templateDownload},
		{"GET", n + "/capabilities/qemu", (*World).capabilityIndex},
		{"GET", n + "/capabilities/qemu/cpu", (*World).cpuModels},
		{"GET", n + "/capabilities/qemu/cpu-flags", (*World).cpuFlags},
		{"GET", n + "/capabilities/qemu/machines", (*World).machineTypes},
		{"GET", n + "/capabilities/qemu/migration", (*World).migrationCapabilities},
		{"GET", n + "/qemu/{vmid}/rrddata", (*World).guestHistory},
		{"GET", n + "/lxc/{vmid}/rrddata", (*World).guestHistory},
		{"GET", n + "/storage/{storage}/rrddata", (*World).storageHistory},
	}
}

// templateIndex is empty: no list of templates was fetched.
func (w *World) templateIndex(*Request) (any, error) { return []any{}, nil }

// templateDownload finds no template in the empty index.
func (w *World) templateDownload(*Request) (any, error) {
	return nil, paramErr("template", "no such template")
}

func (w *World) capabilityIndex(*Request) (any, error) {
	out := []map[string]string{}
	for _, n := range []string{"cpu", "cpu-flags", "machines", "migration"} {
		out = append(out, map[string]string{"name": n})
	}
	return out, nil
}

// cpuModels are the CPU types of the schema, and those that PVE adds for fleets of unlike hosts.
func (w *World) cpuModels(r *Request) (any, error) {
	out := []map[string]any{}
	add := func(name, vendor string) {
		out = append(out, map[string]any{"name": name, "vendor": vendor, "custom": 0})
	}
	p, ok := schema.Named("pve-vm-cpu-conf").Key("reported-model")
	if !ok {
		return out, nil
	}
	for _, name := range p.Enum {
		arm := strings.HasPrefix(name, "cortex-") || strings.HasPrefix(name, "neoverse-") || name == "a64fx"
		if both := name == "host" || name == "max"; both || arm == (r.P.Str("arch") == "aarch64") {
			add(name, cpuVendor(name, arm))
		}
	}
	if r.P.Str("arch") != "aarch64" {
		for _, v := range []string{"x86-64-v2", "x86-64-v2-AES", "x86-64-v3", "x86-64-v4"} {
			add(v, "default")
		}
	}
	return out, nil
}

func cpuVendor(name string, arm bool) string {
	switch {
	case arm:
		return "ARM"
	case slices.Contains([]string{"host", "kvm32", "kvm64", "max", "qemu32", "qemu64"}, name):
		return "default"
	case slices.ContainsFunc([]string{"EPYC", "Opteron", "athlon", "phenom"}, func(s string) bool { return strings.HasPrefix(name, s) }):
		return "AuthenticAMD"
	}
	return "GenuineIntel"
}

func (w *World) cpuFlags(r *Request) (any, error) {
	out := []map[string]any{}
	if r.P.Str("arch") == "aarch64" {
		return out, nil
	}
	nodes := []string{}
	for _, n := range w.Nodes {
		if n.Online() {
			nodes = append(nodes, n.Name)
		}
	}
	for _, f := range schema.CPUFlags() {
		out = append(out, map[string]any{"name": f, "supported-on": nodes})
	}
	return out, nil
}

// machineTypes are the versions of both chipsets that the installed QEMU still has, newest first.
func (w *World) machineTypes(r *Request) (any, error) {
	out := []map[string]any{}
	if r.P.Str("arch") == "aarch64" {
		return out, nil
	}
	major, _, _ := strings.Cut(qemuVersion, ".")
	for _, kind := range []string{"i440fx", "q35"} {
		for v := number(major); v >= 5; v-- {
			for minor := 2; minor >= 0; minor-- {
				version := strconv.Itoa(v) + "." + strconv.Itoa(minor)
				if id := "pc-" + kind + "-" + version; !newerMachine(id) {
					out = append(out, map[string]any{"id": id, "type": kind, "version": version})
				}
			}
		}
	}
	return out, nil
}

func (w *World) migrationCapabilities(*Request) (any, error) {
	return map[string]any{"has-dbus-vmstate": 1}, nil
}

// rrdStep is the resolution of a time frame in seconds; PVE answers about 70 points of each.
func rrdStep(frame string) int64 {
	return map[string]int64{"hour": 60, "day": 30 * 60, "week": 3 * 3600, "month": 12 * 3600, "year": 7 * 24 * 3600}[frame]
}

// history are points of a time frame up to now. Those from before since have no figures, as in PVE's database.
func history(frame string, since time.Time, point func() map[string]any) []map[string]any {
	step := rrdStep(frame)
	end := time.Now().Unix() / step * step
	out := []map[string]any{}
	for at := end - 69*step; at <= end; at += step {
		row := map[string]any{}
		if at >= since.Unix() {
			row = point()
		}
		row["time"] = at
		out = append(out, row)
	}
	return out
}

func (w *World) guestHistory(r *Request) (any, error) {
	g, err := w.guest(splitPath(r.M.Path)[2], r.Node, r.VMID)
	if err != nil {
		return []any{}, nil // no file, no points
	}
	return history(r.P.Str("timeframe"), g.Created, func() map[string]any {
		f, out := w.guestFigures(g), map[string]any{}
		for _, k := range []string{"maxmem", "maxdisk", "disk", "mem", "cpu", "netin", "netout"} {
			out[k] = f[k]
		}
		out["maxcpu"], out["diskread"], out["diskwrite"] = f["cpus"], 0, 0
		return out
	}), nil
}

func (w *World) storageHistory(r *Request) (any, error) {
	s, err := w.storage(r.P.Str("storage"))
	if err != nil {
		return []any{}, nil
	}
	return history(r.P.Str("timeframe"), w.Booted, func() map[string]any {
		f := w.figures(s, r.Node)
		return map[string]any{"total": f["total"], "used": f["used"]}
	}), nil
}
