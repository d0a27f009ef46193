package pvesim

import (
	"slices"
	"sort"
)

// privGroup is a category of privileges, split by who gets them: PVE builds its roles from these.
type privGroup struct {
	name                     string
	root, admin, user, audit []string
}

// privGroups are the categories of PVE 9.
func privGroups() []privGroup {
	return []privGroup{
		{
			name: "VM",
			admin: []string{
				"VM.Allocate", "VM.Clone", "VM.Config.CPU", "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options",
				"VM.GuestAgent.FileRead", "VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted", "VM.Migrate", "VM.Replicate",
				"VM.Snapshot", "VM.Snapshot.Rollback",
			},
			user:  []string{"VM.Backup", "VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Console", "VM.PowerMgmt"},
			audit: []string{"VM.Audit", "VM.GuestAgent.Audit"},
		},
		{
			name: "Sys", root: []string{"Sys.AccessNetwork", "Sys.Incoming", "Sys.Modify", "Sys.PowerMgmt"},
			admin: []string{"Sys.Console", "Sys.Syslog"}, audit: []string{"Sys.Audit"},
		},
		{
			name: "Datastore", admin: []string{"Datastore.Allocate", "Datastore.AllocateTemplate"}, user: []string{"Datastore.AllocateSpace"},
			audit: []string{"Datastore.Audit"},
		},
		{name: "SDN", admin: []string{"SDN.Allocate"}, user: []string{"SDN.Use"}, audit: []string{"SDN.Audit"}},
		{name: "User", root: []string{"Realm.Allocate"}, admin: []string{"Group.Allocate", "Realm.AllocateUser", "User.Modify"}},
		{name: "Pool", admin: []string{"Pool.Allocate"}, user: []string{"Pool.Audit"}, audit: []string{"Pool.Audit"}},
		{name: "Mapping", admin: []string{"Mapping.Modify"}, user: []string{"Mapping.Use"}, audit: []string{"Mapping.Audit"}},
	}
}

// privileges are all that there are, sorted.
func privileges() []string {
	out := []string{"Permissions.Modify"}
	for _, g := range privGroups() {
		out = slices.Concat(out, g.root, g.admin, g.user, g.audit)
	}
	sort.Strings(out)
	return slices.Compact(out)
}

// builtinRoles are the roles that PVE brings along; they cannot be changed.
func builtinRoles() map[string][]string {
	roles := map[string][]string{"Administrator": privileges(), "NoAccess": {}, "PVETemplateUser": {"VM.Audit", "VM.Clone"}}
	add := func(role string, lists ...[]string) {
		all := slices.Concat(append(lists, roles[role])...)
		sort.Strings(all)
		roles[role] = slices.Compact(all)
	}
	for _, g := range privGroups() {
		add("PVEAdmin", g.admin, g.user, g.audit)
		add("PVE"+g.name+"Admin", g.admin, g.user, g.audit)
		if len(g.user) > 0 {
			add("PVE"+g.name+"User", g.user, g.audit)
		}
		add("PVEAuditor", g.audit)
	}
	return roles
}
