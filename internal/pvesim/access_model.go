package pvesim

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Access is user.cfg: users with their tokens, groups, roles, ACL entries.
type Access struct {
	Users  map[string]*User
	Groups map[string]*Group
	// Roles are all roles, the built-in ones included: role → privileges.
	Roles map[string][]string
	ACL   []ACLEntry
}

// User is a user@realm.
type User struct {
	ID      string
	Enabled bool
	// Expire is a Unix time in seconds, 0 for never.
	Expire int64
	// Password is a salted hash of this simulator, "" for none.
	Password  string
	Comment   string
	Email     string
	FirstName string
	LastName  string
	Tokens    map[string]*Token
}

// Token is an API token.
type Token struct {
	ID      string
	Secret  string
	Privsep bool
	Expire  int64
	Comment string
}

// Group is a group of users.
type Group struct {
	ID      string
	Comment string
	Users   map[string]bool
}

// ACLEntry grants a role.
type ACLEntry struct {
	Path string
	// Kind is user, group or token.
	Kind      string
	Who       string
	Role      string
	Propagate bool
}

func (a *Access) complete(*World) {
	if a.Users == nil {
		a.Users = map[string]*User{}
	}
	if a.Groups == nil {
		a.Groups = map[string]*Group{}
	}
	if a.Roles == nil {
		a.Roles = map[string][]string{}
	}
	for r, p := range builtinRoles() {
		a.Roles[r] = p
	}
	if a.Users["root@pam"] == nil {
		a.Users["root@pam"] = &User{ID: "root@pam", Enabled: true}
	}
	for _, u := range a.Users {
		if u.Tokens == nil {
			u.Tokens = map[string]*Token{}
		}
	}
}

// SetPassword stores a password.
func (u *User) SetPassword(password string) {
	u.Password = passwordHash(u.ID, password)
}

func (u *User) passwordIs(password string) bool {
	return u.Password != "" && subtle.ConstantTimeCompare([]byte(u.Password), []byte(passwordHash(u.ID, password))) == 1
}

func passwordHash(salt, password string) string {
	h := sha256.Sum256([]byte(salt + "\x00" + password))
	return hex.EncodeToString(h[:])
}

// active says whether a user may log in now.
func (u *User) active() bool { return u.Enabled && (u.Expire == 0 || u.Expire > time.Now().Unix()) }

func (a *Access) removeACLPath(path string) {
	a.ACL = slices.DeleteFunc(a.ACL, func(e ACLEntry) bool { return e.Path == path })
}

// privileges that every role list is made of, in PVE's groups.
func privileges() []string {
	return []string{
		"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit",
		"Group.Allocate", "Mapping.Audit", "Mapping.Modify", "Mapping.Use", "Permissions.Modify", "Pool.Allocate", "Pool.Audit",
		"Realm.Allocate", "Realm.AllocateUser", "SDN.Allocate", "SDN.Audit", "SDN.Use",
		"Sys.AccessNetwork", "Sys.Audit", "Sys.Console", "Sys.Incoming", "Sys.Modify", "Sys.PowerMgmt", "Sys.Syslog", "User.Modify",
		"VM.Allocate", "VM.Audit", "VM.Backup", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk",
		"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.Console", "VM.GuestAgent.Audit",
		"VM.GuestAgent.FileRead", "VM.GuestAgent.FileSystemMgmt", "VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted", "VM.Migrate",
		"VM.PowerMgmt", "VM.Replicate", "VM.Snapshot", "VM.Snapshot.Rollback",
	}
}

// builtinRoles are the roles that PVE brings along.
func builtinRoles() map[string][]string {
	var vm []string
	for _, p := range privileges() {
		if strings.HasPrefix(p, "VM.") {
			vm = append(vm, p)
		}
	}
	return map[string][]string{
		"Administrator":     privileges(),
		"NoAccess":          {},
		"PVEAuditor":        {"Datastore.Audit", "Mapping.Audit", "Pool.Audit", "SDN.Audit", "Sys.Audit", "VM.Audit", "VM.GuestAgent.Audit"},
		"PVEVMAdmin":        vm,
		"PVEDatastoreAdmin": {"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit"},
		"PVEDatastoreUser":  {"Datastore.AllocateSpace", "Datastore.Audit"},
		"PVESDNUser":        {"SDN.Audit", "SDN.Use"},
		"PVESDNAdmin":       {"SDN.Allocate", "SDN.Audit", "SDN.Use"},
		"PVEPoolAdmin":      {"Pool.Allocate", "Pool.Audit"},
		"PVEPoolUser":       {"Pool.Audit"},
		"PVETemplateUser":   {"VM.Audit", "VM.Clone"},
		"PVEMappingUser":    {"Mapping.Use"},
		"PVEMappingAuditor": {"Mapping.Audit"},
		"PVEMappingAdmin":   {"Mapping.Audit", "Mapping.Modify", "Mapping.Use"},
		"PVESysAdmin":       {"Sys.Audit", "Sys.Console", "Sys.Syslog"},
		"PVEUserAdmin":      {"Group.Allocate", "Realm.AllocateUser", "User.Modify"},
		"PVEVMUser": {
			"VM.Audit", "VM.Backup", "VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Console", "VM.GuestAgent.Audit", "VM.PowerMgmt",
		},
	}
}
