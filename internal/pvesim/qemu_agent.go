package pvesim

import (
	"net"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

func agentRoutes() []route {
	var out []route
	for _, c := range strings.Fields("ping info get-osinfo get-host-name get-time get-timezone get-users get-vcpus get-fsinfo network-get-interfaces " +
		"get-memory-blocks get-memory-block-info exec exec-status file-read file-write set-user-password fsfreeze-status fsfreeze-freeze fsfreeze-thaw fstrim suspend-disk suspend-ram suspend-hybrid shutdown") {
		for _, m := range []string{"GET", "POST"} {
			if path := "/nodes/{node}/qemu/{vmid}/agent/" + c; schema.Lookup(m, path) != nil {
				out = append(out, route{m, path, (*World).qemuAgent})
			}
		}
	}
	return append(out, route{"POST", "/nodes/{node}/qemu/{vmid}/agent", (*World).qemuAgent})
}

// qemuAgent answers the guest agent's calls. The agent must be configured, the guest run, and a system be in it that runs the agent.
func (w *World) qemuAgent(r *Request) (any, error) {
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	switch {
	case err != nil:
		return nil, err
	case !agentEnabled(g.Config):
		return nil, die("No QEMU guest agent configured")
	case !g.Running:
		return nil, die("VM %d is not running", r.VMID)
	case !w.hasSystem(g) || g.Suspended:
		return nil, die("QEMU guest agent is not running")
	}
	command := orElse(r.P.Str("command"), r.Path[strings.LastIndexByte(r.Path, '/')+1:])
	result := any(map[string]any{})
	switch command {
	case "network-get-interfaces":
		result = guestInterfaces(g)
	case "get-host-name":
		result = map[string]any{"host-name": g.displayName()}
	case "get-osinfo":
		result = map[string]any{"id": "debian", "name": "Debian GNU/Linux", "version-id": "13", "kernel-release": "6.12.0", "machine": "x86_64"}
	case "info":
		result = map[string]any{"version": "10.0.2", "supported_commands": []any{}}
	case "get-users", "get-fsinfo", "get-vcpus", "get-memory-blocks":
		result = []any{}
	case "fsfreeze-status":
		result = "thawed"
	case "exec":
		return map[string]any{"pid": 1000 + r.VMID}, nil
	case "exec-status":
		return map[string]any{"exited": 1, "exitcode": 0}, nil
	case "file-read":
		return map[string]any{"content": ""}, nil
	case "file-write", "set-user-password":
		return nil, nil
	}
	return map[string]any{"result": result}, nil
}

// guestInterfaces are a guest's interfaces as its agent tells them: addresses that its cloud-init settings give it.
func guestInterfaces(g *Guest) []map[string]any {
	ip := func(addr, kind string, prefix int) map[string]any {
		return map[string]any{"ip-address": addr, "ip-address-type": kind, "prefix": prefix}
	}
	out := []map[string]any{{
		"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": []any{ip("127.0.0.1", "ipv4", 8), ip("::1", "ipv6", 128)},
	}}
	for i := range 32 {
		n := decimal(i)
		nic, err := parseNet("net"+n, g.Config["net"+n])
		if g.Config["net"+n] == "" || err != nil {
			continue
		}
		addrs := []any{}
		conf := propMap(g.Config["ipconfig"+n])
		for _, f := range []struct{ key, kind string }{{"ip", "ipv4"}, {"ip6", "ipv6"}} {
			if addr, cidr, err := net.ParseCIDR(conf[f.key]); err == nil {
				ones, _ := cidr.Mask.Size()
				addrs = append(addrs, ip(addr.String(), f.kind, ones))
			}
		}
		out = append(out, map[string]any{"name": "eth" + n, "hardware-address": strings.ToLower(nic["macaddr"]), "ip-addresses": addrs})
	}
	return out
}

// qemuMonitor answers the human monitor: reading commands need Sys.Audit, others Sys.Modify, some only root may send. Nothing is behind
// it, so that a running guest answers with an empty text.
func (w *World) qemuMonitor(r *Request) (any, error) {
	command := strings.TrimSpace(r.P.Str("command"))
	verb, _, _ := strings.Cut(command, " ")
	switch verb {
	case "info", "help", "?":
		if err := w.checkAny(r.Who, "/", "Sys.Audit", "Sys.Modify"); err != nil {
			return nil, err
		}
	default:
		if err := w.check(r.Who, "/", "Sys.Modify"); err != nil {
			return nil, err
		}
		rootOnly := strings.Fields("device_add drive_add chardev-add object_add netdev_add migrate dump-guest-memory memsave pmemsave screendump " +
			"logfile change snapshot_blkdev drive_mirror drive_backup hostfwd_add")
		if slices.Contains(rootOnly, verb) && !r.Who.RootTicket() {
			return nil, die("root-only command '%s'", verb)
		}
	}
	g, err := w.guest(kindQemu, r.Node, r.VMID)
	if err != nil {
		return nil, err
	}
	if !g.Running {
		return "ERROR: VM " + decimal(r.VMID) + " not running\n", nil
	}
	return "", nil
}
