package pvesim_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

// headers is an http.RoundTripper that adds headers to every request.
type headers struct {
	next http.RoundTripper
	add  http.Header
}

func (h headers) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for k, v := range h.add {
		req.Header[k] = v
	}
	return h.next.RoundTrip(req)
}

// with is another caller of the same world, by headers.
func (a *api) with(pairs ...string) *api {
	b := *a
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	b.token, b.c = "", &http.Client{Transport: headers{a.c.Transport, h}}
	return &b
}

// bearer is another caller, by token.
func (a *api) bearer(token string) *api {
	b := *a
	b.token = token
	return &b
}

// ticket is another caller, logged in by password.
func (a *api) ticket(user, password string) (*api, map[string]any) {
	a.t.Helper()
	got := a.with().ok("POST", "/access/ticket", "username", user, "password", password).(map[string]any)
	return a.with("Cookie", "PVEAuthCookie="+url.QueryEscape(got["ticket"].(string)), "CSRFPreventionToken", got["CSRFPreventionToken"].(string)), got
}

func (a *api) want(code int, reason string, method, path string, form ...string) answer {
	a.t.Helper()
	r := a.do(method, path, form...)
	if r.code != code || reason != "" && r.reason != reason {
		a.t.Errorf("%s %s %v: %d %q, want %d %q", method, path, form, r.code, r.reason, code, reason)
	}
	return r
}

// effective is what GET /access/permissions says of a path: the privileges in order, "!" behind those that do not propagate.
func (a *api) effective(path string) string {
	a.t.Helper()
	var out []string
	for p, propagate := range a.ok("GET", "/access/permissions", "path", path).(map[string]any)[path].(map[string]any) {
		if propagate != 1.0 {
			p += "!"
		}
		out = append(out, p)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestACL: each row grants on a fresh world, then looks at what the user, his token with and his token without privilege separation
// have. Roles A, B and C hold one privilege each.
func TestACL(t *testing.T) {
	const a, b, c = "VM.Audit", "VM.Clone", "VM.Console"
	for _, x := range []struct {
		name   string
		grants []pvesim.ACLEntry
		path   string
		user   string
		sep    string
	}{
		{"nothing granted", nil, "/vms/100", "", ""},
		{"at the path", []pvesim.ACLEntry{{Path: "/vms/100", Kind: "user", Who: "u@pve", Role: "A"}}, "/vms/100", a + "!", ""},
		{"not beside it", []pvesim.ACLEntry{{Path: "/vms/100", Kind: "user", Who: "u@pve", Role: "A"}}, "/vms/1000", "", ""},
		{"from above", []pvesim.ACLEntry{{Path: "/", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}}, "/vms/100", a, ""},
		{"from above without propagation", []pvesim.ACLEntry{{Path: "/vms", Kind: "user", Who: "u@pve", Role: "A"}}, "/vms/100", "", ""},
		{"roles at one place add up", []pvesim.ACLEntry{
			{Path: "/vms", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}, {Path: "/vms", Kind: "user", Who: "u@pve", Role: "B"},
		}, "/vms", a + " " + b + "!", ""},
		{"deeper replaces", []pvesim.ACLEntry{
			{Path: "/", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}, {Path: "/vms/100", Kind: "user", Who: "u@pve", Role: "B", Propagate: true},
		}, "/vms/100", b, ""},
		{"deeper NoAccess takes away", []pvesim.ACLEntry{
			{Path: "/", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}, {Path: "/vms", Kind: "user", Who: "u@pve", Role: "NoAccess", Propagate: true},
		}, "/vms/100", "", ""},
		{"NoAccess beats what stands beside it", []pvesim.ACLEntry{
			{Path: "/vms", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}, {Path: "/vms", Kind: "user", Who: "u@pve", Role: "NoAccess", Propagate: true},
		}, "/vms", "", ""},
		{"below NoAccess one may be let in again", []pvesim.ACLEntry{
			{Path: "/vms", Kind: "user", Who: "u@pve", Role: "NoAccess", Propagate: true}, {Path: "/vms/100", Kind: "user", Who: "u@pve", Role: "A", Propagate: true},
		}, "/vms/100", a, ""},
		{"by group", []pvesim.ACLEntry{{Path: "/vms", Kind: "group", Who: "g", Role: "A", Propagate: true}}, "/vms/100", a, ""},
		{"two groups add up", []pvesim.ACLEntry{
			{Path: "/vms", Kind: "group", Who: "g", Role: "A", Propagate: true}, {Path: "/vms", Kind: "group", Who: "h", Role: "B", Propagate: true},
		}, "/vms/100", a + " " + b, ""},
		{"a group of others", []pvesim.ACLEntry{{Path: "/vms", Kind: "group", Who: "others", Role: "A", Propagate: true}}, "/vms/100", "", ""},
		{"the user's own entry beats the group's", []pvesim.ACLEntry{
			{Path: "/vms", Kind: "group", Who: "g", Role: "A", Propagate: true}, {Path: "/vms", Kind: "user", Who: "u@pve", Role: "B", Propagate: true},
		}, "/vms/100", b, ""},
		{"a group's entry further down beats the user's own", []pvesim.ACLEntry{
			{Path: "/", Kind: "user", Who: "u@pve", Role: "B", Propagate: true}, {Path: "/vms", Kind: "group", Who: "g", Role: "A", Propagate: true},
		}, "/vms/100", a, ""},
		{"a separated token has what both have", []pvesim.ACLEntry{
			{Path: "/", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}, {Path: "/", Kind: "user", Who: "u@pve", Role: "B", Propagate: true},
			{Path: "/", Kind: "token", Who: "u@pve!sep", Role: "B", Propagate: true}, {Path: "/", Kind: "token", Who: "u@pve!sep", Role: "C", Propagate: true},
		}, "/vms/100", a + " " + b, b},
		{"a pool's roles hold on its members, without propagation", []pvesim.ACLEntry{{Path: "/pool/p", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}}, "/vms/200", a + "!", ""},
		{"and not on others", []pvesim.ACLEntry{{Path: "/pool/p", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}}, "/vms/100", "", ""},
		{"a nested pool inherits", []pvesim.ACLEntry{{Path: "/pool/p", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}}, "/vms/300", a + "!", ""},
		{"a pool's storages too", []pvesim.ACLEntry{{Path: "/pool/p", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}}, "/storage/local", a + "!", ""},
		{"a pool adds to the path", []pvesim.ACLEntry{
			{Path: "/pool/p", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}, {Path: "/vms", Kind: "user", Who: "u@pve", Role: "B", Propagate: true},
		}, "/vms/200", a + "! " + b, ""},
		{"NoAccess at the path beats the pool", []pvesim.ACLEntry{
			{Path: "/pool/p", Kind: "user", Who: "u@pve", Role: "A", Propagate: true}, {Path: "/vms", Kind: "user", Who: "u@pve", Role: "NoAccess", Propagate: true},
		}, "/vms/200", "", ""},
		{"NoAccess at the pool beats the path", []pvesim.ACLEntry{
			{Path: "/pool/p", Kind: "user", Who: "u@pve", Role: "NoAccess", Propagate: true}, {Path: "/vms", Kind: "user", Who: "u@pve", Role: "A", Propagate: true},
		}, "/vms/200", "", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := world(t, "base", pvesim.Options{})
			w.View(func(s *pvesim.State) {
				s.Access.Roles["A"], s.Access.Roles["B"], s.Access.Roles["C"] = []string{a}, []string{b}, []string{c}
				s.Access.Users["u@pve"] = &pvesim.User{ID: "u@pve", Enabled: true, Tokens: map[string]*pvesim.Token{
					"sep": {ID: "sep", Secret: "s", Privsep: true}, "ful": {ID: "ful", Secret: "f"},
				}}
				for _, g := range []string{"g", "h", "others"} {
					s.Access.Groups[g] = &pvesim.Group{ID: g, Users: map[string]bool{}}
				}
				s.Access.Groups["g"].Users["u@pve"], s.Access.Groups["h"].Users["u@pve"] = true, true
				s.Pools["p"] = &pvesim.Pool{ID: "p", VMs: map[int]bool{200: true}, Storages: map[string]bool{"local": true}}
				s.Pools["p/sub"] = &pvesim.Pool{ID: "p/sub", VMs: map[int]bool{300: true}}
				s.Access.ACL = append(s.Access.ACL, x.grants...)
				s.Access.Users["u@pve"].SetPassword("password1")
			})
			root := inProcess(t, w)
			user, _ := root.ticket("u@pve", "password1")
			if got := user.effective(x.path); got != x.user {
				t.Errorf("the user has %q, want %q", got, x.user)
			}
			if got := root.bearer("u@pve!ful=f").effective(x.path); got != x.user {
				t.Errorf("the token without separation has %q, want %q", got, x.user)
			}
			if got := root.bearer("u@pve!sep=s").effective(x.path); got != x.sep {
				t.Errorf("the token with separation has %q, want %q", got, x.sep)
			}
		})
	}
}

// TestBuiltinRoles looks at what PVE's roles are for.
func TestBuiltinRoles(t *testing.T) {
	w := world(t, "base", pvesim.Options{})
	roles := map[string][]string{}
	for _, row := range inProcess(t, w).ok("GET", "/access/roles").([]any) {
		r := row.(map[string]any)
		roles[r["roleid"].(string)] = strings.Split(r["privs"].(string), ",")
		if r["special"] != 1.0 {
			t.Errorf("%s is not special", r["roleid"])
		}
	}
	if len(roles) != 17 || len(roles["Administrator"]) != 47 {
		t.Errorf("there are %d roles and %d privileges", len(roles), len(roles["Administrator"]))
	}
	for role, privs := range roles {
		if role != "Administrator" && slices.Contains(privs, "Permissions.Modify") {
			t.Errorf("%s may change permissions", role)
		}
		if role != "Administrator" && slices.Contains(privs, "Sys.Modify") {
			t.Errorf("%s may change the system", role)
		}
	}
	for role, want := range map[string]string{
		"PVETemplateUser": "VM.Audit VM.Clone", "PVEDatastoreUser": "Datastore.AllocateSpace Datastore.Audit", "PVESDNUser": "SDN.Audit SDN.Use", "NoAccess": "",
		"PVEAuditor": "Datastore.Audit Mapping.Audit Pool.Audit SDN.Audit Sys.Audit VM.Audit VM.GuestAgent.Audit", "PVEPoolUser": "Pool.Audit",
		"PVEDatastoreAdmin": "Datastore.Allocate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit",
	} {
		if got := strings.Join(roles[role], " "); got != want {
			t.Errorf("%s is %q, want %q", role, got, want)
		}
	}
	root := inProcess(t, w)
	root.want(400, "", "POST", "/access/roles", "roleid", "pveMine")
	root.want(500, "update role failed: auto-generated role 'PVEAuditor' cannot be modified", "PUT", "/access/roles/PVEAuditor", "privs", "VM.Audit")
	root.want(500, "create role failed: invalid privilege 'VM.Fly'", "POST", "/access/roles", "roleid", "mine", "privs", "VM.Audit,VM.Fly")
	root.ok("POST", "/access/roles", "roleid", "mine", "privs", "VM.Audit")
	root.ok("PUT", "/access/roles/mine", "privs", "VM.Clone", "append", "1")
	if got := root.ok("GET", "/access/roles/mine").(map[string]any); len(got) != 2 || got["VM.Audit"] != 1.0 {
		t.Errorf("the role has %v", got)
	}
	root.ok("PUT", "/access/acl", "path", "/vms", "users", "gitops@pve", "roles", "mine")
	root.ok("DELETE", "/access/roles/mine")
	if acl := root.ok("GET", "/access/acl").([]any); slices.ContainsFunc(acl, func(e any) bool { return e.(map[string]any)["roleid"] == "mine" }) {
		t.Error("an entry of the deleted role is left")
	}
}

// TestTickets: two hours, renewed by themselves; a disabled user's are no good; the CSRF token is for all but GET.
func TestTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := world(t, "base", pvesim.Options{AuthDelay: 3 * time.Second})
		root := inProcess(t, w)
		user, first := root.ticket("gitops@pve", "gitopspass1")
		user.ok("GET", "/version")
		cookie := "PVEAuthCookie=" + url.QueryEscape(first["ticket"].(string))
		root.with("Cookie", cookie).ok("GET", "/version")
		root.with("Cookie", cookie).want(401, "Permission denied - invalid csrf token", "PUT", "/pools", "poolid", "p")
		root.with("Cookie", cookie, "CSRFPreventionToken", "0:x").want(401, "Permission denied - invalid csrf token", "DELETE", "/pools", "poolid", "p")
		user.want(403, "Permission check failed (/pool/p, Pool.Allocate)", "PUT", "/pools", "poolid", "p")

		start := time.Now()
		root.with("Cookie", cookie+"x").want(401, "Authentication failed!", "GET", "/version")
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("a refused log-in took %v", took)
		}
		time.Sleep(2*time.Hour - 10*time.Second)
		user.ok("GET", "/version")
		again, _ := root.ticket("gitops@pve", first["ticket"].(string)) // a ticket is as good as the password
		root.with().want(401, "authentication failure", "POST", "/access/ticket", "username", "admin@pve", "password", first["ticket"].(string))
		time.Sleep(20 * time.Second)
		user.want(401, "Authentication failed!", "GET", "/version")
		root.with().want(401, "authentication failure", "POST", "/access/ticket", "username", "gitops@pve", "password", first["ticket"].(string))
		again.ok("GET", "/version")

		root.ok("PUT", "/access/users/gitops@pve", "enable", "0")
		again.want(401, "Authentication failed!", "GET", "/version")
		root.bearer("gitops@pve!ops=33333333-3333-4333-8333-333333333333").want(401, "Authentication failed!", "GET", "/version")
		root.ok("PUT", "/access/users/gitops@pve", "enable", "1", "expire", decimal(time.Now().Unix()+60))
		again.ok("GET", "/version")
		time.Sleep(time.Minute)
		again.want(401, "Authentication failed!", "GET", "/version")
	})
}

// TestSecondFactor: a user with a second factor gets a challenge, which is no ticket, and a ticket for the code.
func TestSecondFactor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "JBSWY3DPEHPK3PXP"
		w := world(t, "base", pvesim.Options{})
		root := inProcess(t, w)
		user, _ := root.ticket("gitops@pve", "gitopspass1")
		uri := "otpauth://totp/pve:gitops?secret=" + secret
		code := func() string {
			c, err := pvesim.TOTP(secret, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		user.want(400, "", "POST", "/access/tfa/gitops@pve", "type", "totp", "totp", uri, "value", code())
		user.want(500, "failed to verify TOTP challenge", "POST", "/access/tfa/gitops@pve", "type", "totp", "totp", uri, "value", "000000", "password", "gitopspass1")
		user.ok("POST", "/access/tfa/gitops@pve", "type", "totp", "totp", uri, "value", code(), "password", "gitopspass1")

		login := func(form ...string) answer {
			return root.with().do("POST", "/access/ticket", append([]string{"username", "gitops@pve"}, form...)...)
		}
		first := login("password", "gitopspass1").Data.(map[string]any)
		challenge := first["ticket"].(string)
		if first["NeedTFA"] != 1.0 || first["cap"] != nil || !strings.HasPrefix(challenge, "PVE:!tfa!") {
			t.Fatalf("the first answer is %v", first)
		}
		root.with("Cookie", "PVEAuthCookie="+url.QueryEscape(challenge)).want(401, "Authentication failed!", "GET", "/version")
		for _, bad := range [][]string{{"password", "totp:000000", "tfa-challenge", challenge}, {"password", "totp:" + code(), "tfa-challenge", challenge + "x"}, {"password", challenge}} {
			if r := login(bad...); r.code != 401 {
				t.Errorf("%v: %d", bad, r.code)
			}
		}
		got := login("password", "totp:"+code(), "tfa-challenge", challenge)
		if got.code != 200 {
			t.Fatalf("the right code: %d %s", got.code, got.reason)
		}
		ticket := got.Data.(map[string]any)["ticket"].(string)
		root.with("Cookie", "PVEAuthCookie="+url.QueryEscape(ticket)).ok("GET", "/version")
		old := code()
		time.Sleep(2 * time.Minute)
		if r := login("password", "totp:"+old, "tfa-challenge", challenge); r.code != 401 {
			t.Errorf("an old code: %d", r.code)
		}
	})
}

// TestTOTP holds the codes to RFC 6238's own examples, cut to six digits.
func TestTOTP(t *testing.T) {
	for at, want := range map[int64]string{59: "287082", 1111111109: "081804", 1234567890: "005924", 20000000000: "353130"} {
		if got, err := pvesim.TOTP("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", time.Unix(at, 0)); err != nil || got != want {
			t.Errorf("at %d: %s, %v, want %s", at, got, err, want)
		}
	}
}
