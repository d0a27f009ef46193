package pvesim

import (
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// indexes are the calls that list what lies below a path and do nothing else; those of guests and nodes are beside their other calls.
// PVE writes most of these lists by hand, in an order of their own; those that name all that the schema has below the path are "".
func indexes() []struct{ path, attr, names string } {
	return []struct{ path, attr, names string }{
		{"/access", "subdir", "users groups roles acl domains openid tfa ticket password"},
		{"/access/openid", "subdir", ""},
		{
			"/cluster", "name", "acme backup backup-info bulk-action ceph config firewall ha jobs log mapping metrics nextid notifications options replication " +
				"resources sdn status tasks",
		},
		{"/nodes/{node}/capabilities", "name", ""},
		{"/nodes/{node}/tasks/{upid}", "name", "log status"},
		{"/nodes/{node}/qemu/{vmid}/agent", "name", ""},
		{"/nodes/{node}/qemu/{vmid}/firewall", "name", ""},
		{"/nodes/{node}/lxc/{vmid}/firewall", "name", ""},
	}
}

func indexRoutes() []route {
	var out []route
	for _, x := range indexes() {
		names := strings.Fields(x.names)
		if len(names) == 0 {
			names = children(x.path)
		}
		rows := []map[string]string{}
		for _, n := range names {
			rows = append(rows, map[string]string{x.attr: n})
		}
		out = append(out, route{"GET", x.path, func(*World, *Request) (any, error) { return rows, nil }})
	}
	return out
}

// rootIndex lists the top of the API, which is no path of the schema's.
func rootIndex() []map[string]string {
	var rows []map[string]string
	for _, n := range []string{"version", "cluster", "nodes", "storage", "access", "pools"} {
		rows = append(rows, map[string]string{"subdir": n})
	}
	return rows
}

// children are the fixed names right below a path of the schema, in its order.
func children(path string) []string {
	var out []string
	seen := map[string]bool{}
	for _, m := range schema.Methods() {
		rest, ok := strings.CutPrefix(m.Path, path+"/")
		name, _, _ := strings.Cut(rest, "/")
		if ok && !seen[name] && !strings.HasPrefix(name, "{") {
			seen[name] = true
			out = append(out, name)
		}
	}
	return out
}
