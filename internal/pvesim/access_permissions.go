package pvesim

import "strings"

// permissions answers GET /access/permissions. Everybody may ask about himself and his own tokens.
func (w *World) permissions(r *Request) (any, error) {
	userid := orElse(r.P.Str("userid"), r.Who.AuthID())
	who := splitAuthID(userid)
	if userid != r.Who.AuthID() && (r.Who.Token != "" || who.User != r.Who.User) {
		if err := w.check(r.Who, "/access", "Sys.Audit"); err != nil {
			return nil, err
		}
	}
	out := map[string]any{}
	if path := r.P.Str("path"); path != "" && path != "0" {
		out[path] = privBits(w.privs(who, path))
		return out, nil
	}
	for path := range w.knownPaths() {
		if privs := w.privs(who, path); len(privs) > 0 {
			out[path] = privBits(privs)
		}
	}
	return out, nil
}

func privBits(privs map[string]bool) map[string]int {
	out := map[string]int{}
	for p, propagate := range privs {
		out[p] = bit(propagate)
	}
	return out
}

// knownPaths are the paths that the effective permissions are shown for: the top ones, those with ACL entries at or below them, and
// the members of pools.
func (w *World) knownPaths() map[string]bool {
	paths := map[string]bool{
		"/": true, "/access": true, "/access/groups": true, "/nodes": true, "/pool": true, "/sdn": true, "/storage": true, "/vms": true,
	}
	for _, p := range w.Access.aclPaths() {
		paths[p] = true
	}
	for _, pool := range w.Pools {
		for vmid := range pool.VMs {
			paths["/vms/"+decimal(vmid)] = true
		}
		for s := range pool.Storages {
			paths["/storage/"+s] = true
		}
	}
	return paths
}

// capabilities are what the web interface shows or hides by: privileges of the caller per part of the interface.
func (w *World) capabilities(who Identity) map[string]map[string]int {
	wanted := map[string][]string{
		"vms": {"VM.", "Permissions.Modify"}, "access": {"User.", "Group.", "Permissions.Modify"}, "storage": {"Datastore.", "Permissions.Modify"},
		"nodes": {"Sys.", "Permissions.Modify"}, "sdn": {"SDN.", "Permissions.Modify"}, "dc": {"Sys.Audit", "Sys.Modify", "SDN."},
		"mapping": {"Mapping.", "Permissions.Modify"},
	}
	out := map[string]map[string]int{}
	for part := range wanted {
		out[part] = map[string]int{}
	}
	add := func(part, priv string) {
		for _, prefix := range wanted[part] {
			if strings.HasPrefix(priv, prefix) {
				out[part][priv] = 1
			}
		}
	}
	paths := map[string]bool{"/": true, "/nodes": true, "/access/groups": true, "/vms": true, "/storage": true, "/sdn": true, "/mapping": true}
	for _, p := range w.Access.aclPaths() {
		paths[p] = true
	}
	for path := range paths {
		top, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		for priv := range w.privs(who, path) {
			switch top {
			case "":
				add("dc", priv)
			case "pool": // what a pool grants on its guests and storages
				add("vms", priv)
				add("storage", priv)
			default:
				add(top, priv)
			}
		}
	}
	return out
}
