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
	// Realms is domains.cfg: realm → key → value, "type" among them. pam and pve are always there.
	Realms map[string]map[string]string
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
	// Keys are the ids of hardware keys, which the simulator only keeps.
	Keys   string
	Tokens map[string]*Token
	// TFA are the user's second factors. A user who has an enabled one gets a challenge instead of a ticket at log-in.
	TFA []*TFAEntry
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
	if a.Realms == nil {
		a.Realms = map[string]map[string]string{}
	}
	for realm, comment := range map[string]string{"pam": "Linux PAM standard authentication", "pve": "Proxmox VE authentication server"} {
		if a.Realms[realm] == nil {
			a.Realms[realm] = map[string]string{"type": realm, "comment": comment}
		}
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

// removeACLOf removes what was granted to a user, group or token.
func (a *Access) removeACLOf(kind, who string) {
	a.ACL = slices.DeleteFunc(a.ACL, func(e ACLEntry) bool { return e.Kind == kind && e.Who == who })
}

// groupsOf are the groups that a user is in, sorted.
func (a *Access) groupsOf(user string) []string {
	out := []string{}
	for _, id := range sortedKeys(a.Groups) {
		if a.Groups[id].Users[user] {
			out = append(out, id)
		}
	}
	return out
}

// aclPaths are the paths that carry ACL entries and all paths above them, sorted: the nodes of PVE's ACL tree.
func (a *Access) aclPaths() []string {
	set := map[string]bool{"/": true}
	for _, e := range a.ACL {
		for p := e.Path; len(p) > 1; p = p[:strings.LastIndexByte(p, '/')] {
			set[p] = true
		}
	}
	return sortedKeys(set)
}
