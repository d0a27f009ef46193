package pvesim_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// TestWhoMayChangeUsers walks the rules about users: realm and group privileges, oneself, tokens.
func TestWhoMayChangeUsers(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	root := inProcess(t, w)
	root.ok("POST", "/access/groups", "groupid", "staff")
	root.ok("POST", "/access/users", "userid", "chief@pve", "password", "chiefpass1")
	root.ok("POST", "/access/users", "userid", "clerk@pve", "password", "clerkpass1", "groups", "staff")
	root.want(500, "create user failed: user 'clerk@pve' already exists", "POST", "/access/users", "userid", "clerk@pve")
	root.want(500, "create user failed: no such group 'nil'", "POST", "/access/users", "userid", "new@pve", "groups", "nil")
	root.want(500, "no such user ('new@pve')", "GET", "/access/users/new@pve")
	chief, _ := root.ticket("chief@pve", "chiefpass1")
	clerk, _ := root.ticket("clerk@pve", "clerkpass1")

	chief.want(403, "Permission check failed (/access/realm/pve, Realm.AllocateUser)", "POST", "/access/users", "userid", "new@pve")
	root.ok("POST", "/access/roles", "roleid", "Users", "privs", "Realm.AllocateUser,User.Modify")
	root.ok("PUT", "/access/acl", "path", "/access/realm/pve", "users", "chief@pve", "roles", "Users")
	chief.want(403, "Permission check failed (/access/groups, User.Modify)", "POST", "/access/users", "userid", "new@pve")
	root.ok("PUT", "/access/acl", "path", "/access/groups/staff", "users", "chief@pve", "roles", "Users")
	chief.want(403, "Permission check failed (/access/groups, User.Modify)", "POST", "/access/users", "userid", "new@pve")
	chief.want(403, "Permission check failed (/access/groups/other, User.Modify)", "POST", "/access/users", "userid", "new@pve", "groups", "other")
	chief.ok("POST", "/access/users", "userid", "new@pve", "groups", "staff")
	chief.ok("PUT", "/access/users/clerk@pve", "comment", "x", "groups", "staff")
	chief.want(403, "Permission check failed", "GET", "/access/users/gitops@pve")
	chief.want(403, "Permission check failed", "DELETE", "/access/users/gitops@pve")
	chief.want(500, "no such user ('gone@pve')", "DELETE", "/access/users/gone@pve")
	var seen []string
	for _, u := range chief.ok("GET", "/access/users").([]any) {
		seen = append(seen, u.(map[string]any)["userid"].(string))
	}
	if got := strings.Join(seen, " "); got != "chief@pve clerk@pve new@pve" {
		t.Errorf("the chief sees %s", got)
	}

	made := clerk.ok("POST", "/access/users/clerk@pve/token/ci", "privsep", "0").(map[string]any)
	ci := root.bearer("clerk@pve!ci=" + made["value"].(string))
	ci.ok("GET", "/version")
	ci.want(403, "Permission check failed", "POST", "/access/users/clerk@pve/token/more")
	clerk.want(403, "Permission check failed", "POST", "/access/users/gitops@pve/token/more")
	clerk.want(400, "", "POST", "/access/users/clerk@pve/token/ci")
	again := clerk.ok("PUT", "/access/users/clerk@pve/token/ci", "regenerate", "1").(map[string]any)
	ci.want(401, "Authentication failed!", "GET", "/version")
	ci = root.bearer("clerk@pve!ci=" + again["value"].(string))
	ci.ok("GET", "/version")
	clerk.want(400, "", "PUT", "/access/password", "userid", "clerk@pve", "password", "clerkpass2")
	clerk.want(500, "invalid credentials", "PUT", "/access/password", "userid", "clerk@pve", "password", "clerkpass2", "confirmation-password", "wrong")
	clerk.ok("PUT", "/access/password", "userid", "clerk@pve", "password", "clerkpass2", "confirmation-password", "clerkpass1")
	root.with().want(401, "authentication failure", "POST", "/access/ticket", "username", "clerk@pve", "password", "clerkpass1")
	root.ticket("clerk@pve", "clerkpass2")
	ci.want(403, "Permission check failed (URI '/access/password' not available with API token, need proper ticket.", "PUT", "/access/password", "userid", "clerk@pve")

	root.ok("PUT", "/access/acl", "path", "/vms", "tokens", "clerk@pve!ci", "roles", "PVEAuditor")
	chief.ok("DELETE", "/access/users/clerk@pve")
	ci.want(401, "Authentication failed!", "GET", "/version")
	if g := root.ok("GET", "/access/groups/staff").(map[string]any); fmt.Sprint(g["members"]) != "[new@pve]" {
		t.Errorf("the group has %v", g["members"])
	}
	for _, e := range root.ok("GET", "/access/acl").([]any) {
		if strings.HasPrefix(e.(map[string]any)["ugid"].(string), "clerk@") {
			t.Errorf("left behind: %v", e)
		}
	}
}

// TestHandingOn: who may allocate a VM may hand on what he has there, no more; Permissions.Modify may hand on all.
func TestHandingOn(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	root := inProcess(t, w)
	root.ok("POST", "/access/users", "userid", "u@pve", "password", "password1")
	root.ok("POST", "/access/roles", "roleid", "R", "privs", "VM.Allocate,VM.Audit")
	root.ok("POST", "/access/roles", "roleid", "More", "privs", "VM.Audit,VM.Clone")
	root.ok("PUT", "/access/acl", "path", "/vms/100", "users", "u@pve", "roles", "R", "propagate", "0")
	u, _ := root.ticket("u@pve", "password1")
	grant := func(role string, more ...string) []string {
		return append([]string{"path", "/vms/100", "users", "gitops@pve", "roles", role}, more...)
	}
	u.want(403, "Permission check failed (/vms/101, Permissions.Modify|VM.Allocate)", "PUT", "/access/acl", "path", "/vms/101", "users", "gitops@pve", "roles", "R")
	u.want(403, "Permission check failed (/vms, Permissions.Modify)", "PUT", "/access/acl", "path", "/vms", "users", "gitops@pve", "roles", "R")
	for _, c := range []struct {
		form []string
		want string
	}{
		{grant("More", "propagate", "0"), "role: Cannot add role 'More' - requires 'Permissions.Modify' or superset of privileges."},
		{grant("R"), "role: Cannot add role 'R' with propagation - requires 'Permissions.Modify' or propagated superset of privileges."},
		{grant("NoAccess"), "role: Cannot add role 'NoAccess' - requires 'Permissions.Modify'"},
		{grant("More", "delete", "1"), "role: Cannot remove role 'More' - requires 'Permissions.Modify' or superset of privileges."},
		{grant("Nil"), "ACL update failed: role 'Nil' does not exist"},
	} {
		if r := u.want(500, "", "PUT", "/access/acl", c.form...); !strings.Contains(r.raw, c.want) {
			t.Errorf("%v: %s", c.form, r.raw)
		}
	}
	u.ok("PUT", "/access/acl", grant("R", "propagate", "0")...)
	u.ok("PUT", "/access/acl", grant("R", "delete", "1")...)
	root.ok("PUT", "/access/roles/R", "privs", "Permissions.Modify")
	u.ok("PUT", "/access/acl", grant("PVEVMAdmin")...)
	u.want(500, "ACL update failed: user 'nil@pve' does not exist", "PUT", "/access/acl", "path", "/vms/100", "users", "nil@pve", "roles", "R")
	root.want(400, "", "PUT", "/access/acl", "path", "/vms/1", "users", "u@pve", "roles", "R")
	root.want(400, "", "PUT", "/access/acl", "path", "/vms/100", "roles", "R")
}

// TestPools: names, nesting, membership in one pool at a time, atomic changes, emptiness.
func TestPools(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	root := inProcess(t, w)
	wantTask(t, root.task("POST", "/nodes/pve01/qemu", "vmid", "100"), "OK")
	root.ok("POST", "/pools", "poolid", "a", "comment", "first")
	root.ok("POST", "/pools", "poolid", "b")
	root.ok("POST", "/pools", "poolid", "a/sub")
	root.want(500, "create pool failed: pool 'a' already exists", "POST", "/pools", "poolid", "a")
	root.want(500, "create pool failed: pool name must start with a letter", "POST", "/pools", "poolid", "1a")
	root.want(500, "create pool failed: parent 'c' of pool 'c/d' does not exist", "POST", "/pools", "poolid", "c/d")
	root.ok("PUT", "/pools", "poolid", "a", "vms", "100,888", "storage", "local")
	root.want(500, "update pools failed: VM 100 is already a pool member", "PUT", "/pools", "poolid", "a", "vms", "100")
	root.want(500, "update pools failed: VM 100 belongs already to pool 'a' and 'allow-move' is not set", "PUT", "/pools", "poolid", "b", "vms", "200,100")
	members := func(pool string) string {
		var out []string
		for _, m := range root.ok("GET", "/pools", "poolid", pool).([]any)[0].(map[string]any)["members"].([]any) {
			out = append(out, m.(map[string]any)["id"].(string))
		}
		return strings.Join(out, " ")
	}
	if got := members("a"); got != "qemu/100 storage/pve01/local" { // 888 is a member, but not there
		t.Errorf("a has %s", got)
	}
	root.want(500, "update pools failed: VM 200 is not a pool member", "PUT", "/pools", "poolid", "b", "vms", "200", "delete", "1") // the refused call added nothing
	root.ok("PUT", "/pools", "poolid", "b", "vms", "100", "allow-move", "1")
	if a, b := members("a"), members("b"); a != "storage/pve01/local" || b != "qemu/100" {
		t.Errorf("after the move a has %q, b %q", a, b)
	}
	root.want(500, "delete pool failed: pool 'a' is not empty (contains pool 'a/sub')", "DELETE", "/pools", "poolid", "a")
	root.want(500, "delete pool failed: pool 'b' is not empty (contains VM 100)", "DELETE", "/pools/b")
	root.ok("DELETE", "/pools", "poolid", "a/sub")
	root.want(500, "delete pool failed: pool 'a' is not empty (contains storage 'local')", "DELETE", "/pools", "poolid", "a")
	root.ok("PUT", "/pools", "poolid", "a", "storage", "local", "delete", "1")
	root.ok("DELETE", "/pools", "poolid", "a") // 888 does not count
	none := root.bearer("gitops@pve!none=55555555-5555-4555-8555-555555555555")
	if got := none.ok("GET", "/pools").([]any); len(got) != 0 {
		t.Errorf("without rights one sees %v", got)
	}
	none.ok("GET", "/pools", "poolid", "b")
	none.want(403, "Permission check failed (/pool/b, Pool.Audit)", "GET", "/pools/b")
}

// TestTaskVisibility: one's own, one's tokens', all with Sys.Audit; a token sees its own alone.
func TestTaskVisibility(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	root := inProcess(t, w)
	ops := root.bearer("gitops@pve!ops=33333333-3333-4333-8333-333333333333")
	none := root.bearer("gitops@pve!none=55555555-5555-4555-8555-555555555555")
	upid := ops.ok("POST", "/nodes/pve01/qemu", "vmid", "100").(string)
	path := "/nodes/pve01/tasks/" + upid + "/status"
	for ops.ok("GET", path).(map[string]any)["status"] != "stopped" {
		time.Sleep(time.Millisecond)
	}
	root.ok("PUT", "/access/acl", "path", "/", "users", "gitops@pve", "roles", "PVEAuditor", "delete", "1")
	user, _ := root.ticket("gitops@pve", "gitopspass1")
	user.ok("GET", path)
	ops.ok("GET", path)
	none.want(403, "Permission check failed (/nodes/pve01, Sys.Audit)", "GET", path)
	none.want(403, "Permission check failed (/nodes/pve01, Sys.Modify)", "DELETE", "/nodes/pve01/tasks/"+upid)
	ops.ok("DELETE", "/nodes/pve01/tasks/"+upid) // ended already
	for who, n := range map[*api]int{root: 1, user: 1, ops: 1, none: 0} {
		if got := len(who.ok("GET", "/nodes/pve01/tasks").([]any)); got != n {
			t.Errorf("%s sees %d tasks, want %d", who.token, got, n)
		}
	}
	for _, bad := range []string{"garbage", "UPID:pve01:1:1:1:qmstart:100:root@pam:", strings.TrimSuffix(upid, ":"), upid + "x"} {
		if r := root.want(400, "", "GET", "/nodes/pve01/tasks/"+bad+"/status"); r.Errors["upid"] != "unable to parse worker upid" {
			t.Errorf("%s: %v", bad, r.Errors)
		}
	}
	other := strings.Replace(upid, "qmcreate", "qmstart", 1)
	if r := root.want(400, "", "GET", "/nodes/pve01/tasks/"+other+"/log"); r.Errors["upid"] != "no such task" {
		t.Errorf("unknown: %v", r.Errors)
	}
	for filter, n := range map[string]int{"vmid=100": 1, "vmid=101": 0, "typefilter=qmcreate": 1, "typefilter=qm": 0, "userfilter=GITOPS": 1, "userfilter=!ops": 0, "errors=1": 0, "limit=0": 0, "source=active": 0, "statusfilter=ok": 1, "statusfilter=error": 0, "start=1": 0} {
		if got := len(root.ok("GET", "/nodes/pve01/tasks?"+filter).([]any)); got != n {
			t.Errorf("%s: %d tasks, want %d", filter, got, n)
		}
	}
}

// TestRights are refusals that guard more than one's own: each row would be let through by the rule beside it.
func TestRights(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	root := inProcess(t, w)
	for _, id := range []string{"u@pve", "off@pve"} {
		root.ok("POST", "/access/users", "userid", id, "password", "password1")
	}
	root.ok("PUT", "/access/users/off@pve", "enable", "0")
	root.ok("POST", "/access/roles", "roleid", "Pools", "privs", "Pool.Allocate,Pool.Audit")
	root.ok("POST", "/access/roles", "roleid", "Passwords", "privs", "Realm.AllocateUser,User.Modify")
	for _, pool := range []string{"a", "b"} {
		root.ok("POST", "/pools", "poolid", pool)
	}
	root.ok("PUT", "/pools", "poolid", "a", "vms", "100")
	root.ok("PUT", "/access/acl", "path", "/pool/b", "users", "u@pve", "roles", "Pools")
	root.ok("PUT", "/access/acl", "path", "/access", "users", "u@pve", "roles", "Passwords")
	u, _ := root.ticket("u@pve", "password1")
	u.want(500, "update pools failed: 403 Permission check failed (/vms/200, Permissions.Modify|VM.Allocate)", "PUT", "/pools", "poolid", "b", "vms", "200")
	u.want(500, "update pools failed: 403 Permission check failed (/storage/local, Permissions.Modify|Datastore.Allocate)", "PUT", "/pools", "poolid", "b", "storage", "local")
	root.ok("PUT", "/access/acl", "path", "/vms/100", "users", "u@pve", "roles", "PVEVMAdmin")
	u.want(500, "update pools failed: 403 Permission check failed (/pool/a, Pool.Allocate)", "PUT", "/pools", "poolid", "b", "vms", "100", "allow-move", "1")
	u.want(403, "Permission check failed (/access, Sys.Audit)", "GET", "/access/permissions", "userid", "root@pam")
	u.want(403, "Permission check failed", "PUT", "/access/password", "userid", "root@pam", "password", "password2", "confirmation-password", "password1")
	u.want(403, "Permission check failed", "POST", "/access/tfa/root@pam", "type", "recovery", "password", "password1")
	if r := u.want(403, "Permission check failed (/storage/local, Datastore.AllocateTemplate)", "POST", "/nodes/pve01/storage/local/upload"); r.raw != "" {
		t.Errorf("a refused upload has the body %q", r.raw)
	}
	login := func(form ...string) answer { return root.with().do("POST", "/access/ticket", form...) }
	for _, c := range []struct {
		code int
		form []string
	}{
		{401, []string{"username", "off@pve", "password", "password1"}},
		{401, []string{"username", "u@pve", "password", "password1", "otp", "123456"}},
		{401, []string{"username", "u@pve", "password", "password1", "path", "/", "privs", "Sys.Audit"}},
		{200, []string{"username", "u@pve", "password", "password1", "path", "/pool/b", "privs", "Pool.Audit"}},
		{401, []string{"username", "u@pve", "password", "password2", "path", "/pool/b", "privs", "Pool.Audit"}},
		{200, []string{"username", "u", "realm", "pve", "password", "password1"}},
	} {
		if r := login(c.form...); r.code != c.code {
			t.Errorf("%v: %d, want %d", c.form, r.code, c.code)
		}
	}

	made := u.ok("POST", "/access/users/u@pve/token/ci", "privsep", "0", "expire", decimal(time.Now().Unix()+3600)).(map[string]any)
	ci := root.bearer("u@pve!ci=" + made["value"].(string))
	ci.ok("GET", "/version")
	u.ok("PUT", "/access/users/u@pve/token/ci", "expire", "1")
	ci.want(401, "Authentication failed!", "GET", "/version")

	sep := root.ok("POST", "/access/users/root@pam/token/sep").(map[string]any)
	root.bearer("root@pam!sep="+sep["value"].(string)).want(403, "Permission check failed (/pool/c, Pool.Allocate)", "POST", "/pools", "poolid", "c")
	rootTicket, _ := root.ticket("root@pam", "pvetest1")
	const only = "/nodes/pve01/storage/local/content/iso%2Fseed.iso" // copying a volume is for root@pam by ticket
	root.want(403, "Permission check failed (user != root@pam)", "POST", only, "target", "local:iso/copy.iso")
	if r := rootTicket.do("POST", only, "target", "local:iso/copy.iso"); r.code == 403 {
		t.Errorf("root by ticket: %d %s", r.code, r.reason)
	}
}

// TestBodies: what PVE makes of bodies, before and after the log-in.
func TestBodies(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	srv, err := w.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	const auth = "Authorization: PVEAPIToken=" + rootToken + "\r\n"
	form := "Content-Type: application/x-www-form-urlencoded\r\n"
	body := func(s string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(s), s) }
	for _, c := range []struct{ name, request, status, body string }{
		{"method before log-in", "HEAD /api2/json/version HTTP/1.1\r\n\r\n", "501 method 'HEAD' not available", ""},
		{"log-in before content type", "POST /api2/json/pools HTTP/1.1\r\nContent-Type: text/plain\r\n" + body("poolid=a"), "401 No ticket", ""},
		{"content type before path", "POST /api2/json/nil HTTP/1.1\r\n" + auth + "Content-Type: text/plain\r\n" + body("a=b"), "506 upload 'Content-Type 'text/plain' not implemented", "upload"},
		{"no content type is a form", "POST /api2/json/pools HTTP/1.1\r\n" + auth + body("poolid=plain"), "200 OK", `{"data":null}`},
		{"GET with a body", "GET /api2/json/version HTTP/1.1\r\n" + auth + form + body("a=b"), "501 Unexpected content for method 'GET'", "Unexpected"},
		{"in chunks: no body at all", "POST /api2/json/pools HTTP/1.1\r\n" + auth + form + "Transfer-Encoding: chunked\r\n\r\n8\r\npoolid=c\r\n0\r\n\r\n", "400 Parameter verification failed.", "poolid"},
		{"JSON cut short", "POST /api2/json/pools HTTP/1.1\r\n" + auth + "Content-Type: application/json\r\n" + body(`{"a":1`), "500 , or } expected while parsing object/hash, at character offset 7 (before \"(end of string)\") at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 934.", ", or }"},
		{"JSON and more", "POST /api2/json/pools HTTP/1.1\r\n" + auth + "Content-Type: application/json\r\n" + body(`{"a":1} x`), "500 garbage after JSON object, at character offset 8 (before \"x\") at /usr/share/perl5/PVE/APIServer/AnyEvent.pm line 934.", "garbage"},
		{"a message of two lines", "POST /api2/json/access/ticket HTTP/1.1\r\n" + auth + form + body("username=a&password=b"), "403 Permission check failed (URI '/access/ticket' not available with API token, need proper ticket.", `ticket.\n)\n"`},
		{"a refused upload", "POST /api2/json/nodes/pve01/storage/local/upload HTTP/1.1\r\nAuthorization: PVEAPIToken=gitops@pve!none=55555555-5555-4555-8555-555555555555\r\nContent-Type: multipart/form-data; boundary=B\r\n" + body("--B--\r\n"), "403 Permission check failed (/storage/local, Datastore.AllocateTemplate)", ""},
	} {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(srv.URL, "https://"), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // loopback
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(strings.Replace(c.request, "\r\n", "\r\nHost: pve01\r\n", 1))); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		raw := new(strings.Builder)
		if err := res.Write(raw); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		_, got, _ := strings.Cut(raw.String(), "\r\n\r\n")
		if res.Status != c.status || !strings.Contains(got, c.body) || c.body == "" && got != "" {
			t.Errorf("%s: %q %q, want %q and %q", c.name, res.Status, got, c.status, c.body)
		}
		if keeps := res.Header.Get("Connection") == "Keep-Alive"; keeps != (res.StatusCode == 200) {
			t.Errorf("%s: %d and Connection %q", c.name, res.StatusCode, res.Header.Get("Connection"))
		}
		conn.Close()
	}
}

// TestRootStays: root@pam can be deleted with all its tokens, and is there all the same.
func TestRootStays(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.ok("DELETE", "/access/users/root@pam")
	a.want(401, "Authentication failed!", "GET", "/version")
	root, _ := a.ticket("root@pam", rootPassword)
	if got := root.ok("GET", "/access/users/root@pam").(map[string]any); got["enable"] != 1.0 || len(got["tokens"].(map[string]any)) != 0 {
		t.Errorf("root is %v", got)
	}
}

// TestWhatOthersVouchFor: log-ins and consoles that the cluster does not keep itself are refused in PVE's words, who asks what first.
func TestWhatOthersVouchFor(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	root := inProcess(t, w)
	root.ok("POST", "/access/domains", "realm", "corp", "type", "ldap", "base_dn", "dc=example,dc=org", "user_attr", "uid", "server1", "ldap.example.org")
	root.ok("POST", "/access/domains", "realm", "sso", "type", "openid", "issuer-url", "https://sso.example.org", "client-id", "pve")
	const back = "https://pve.example.org"
	nobody := root.with()
	nobody.want(500, "authentication domain 'nil' does not exist", "POST", "/access/openid/auth-url", "realm", "nil", "redirect-url", back)
	nobody.want(500, "wrong realm type (pve != openid)", "POST", "/access/openid/auth-url", "realm", "pve", "redirect-url", back)
	nobody.want(500, "OpenID Connect provider 'https://sso.example.org' cannot be reached", "POST", "/access/openid/auth-url", "realm", "sso", "redirect-url", back)
	nobody.want(401, "authentication failure", "POST", "/access/openid/login", "code", "c", "state", "s", "redirect-url", back)
	nobody.want(401, "No ticket", "POST", "/access/vncticket", "authid", "root@pam", "path", "/vms/100", "privs", "VM.Console", "vncticket", "PVEVNC:x")
	root.want(401, "permission denied - invalid PVEVNC ticket", "POST", "/access/vncticket", "authid", "root@pam", "path", "/vms/100", "privs", "VM.Console", "vncticket", "PVEVNC:x")
	root.want(400, "", "POST", "/access/domains/nil/sync")
	root.want(500, "Cannot sync realm type 'pve'! Only LDAP/AD realms can be synced.", "POST", "/access/domains/pve/sync")
	if end := root.task("POST", "/access/domains/corp/sync", "scope", "users"); !strings.Contains(end, "ldap.example.org") {
		t.Errorf("the sync ended %q", end)
	}
	user, _ := root.ticket("gitops@pve", "gitopspass1")
	user.want(403, "Permission check failed (/access/realm/corp, Realm.AllocateUser)", "POST", "/access/domains/corp/sync")
}
