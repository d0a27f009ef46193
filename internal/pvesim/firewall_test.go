package pvesim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim"
)

// TestFirewallOfGuests walks a guest's rules, options, aliases and sets, for both kinds of guest.
func TestFirewallOfGuests(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100)
	wantTask(t, a.task("POST", ct, "vmid", "200", "ostemplate", template, "rootfs", "local-dir:0.1"), "OK")
	for _, fw := range []string{vmPath + "/100/firewall", ct + "/200/firewall"} {
		t.Run(fw, func(t *testing.T) { firewallStory(t, a, fw) })
	}
	// a clone takes it along, a removal ends it
	wantTask(t, a.task("POST", vmPath+"/100/clone", "newid", "101"), "OK")
	wantTask(t, a.task("DELETE", vmPath+"/100"), "OK")
	a.makeVM(100)
	if n, m := len(a.ok("GET", vmPath+"/101/firewall/rules").([]any)), len(a.ok("GET", vmPath+"/100/firewall/rules").([]any)); n != 2 || m != 0 {
		t.Errorf("the clone has %d rules and the new guest %d, want 2 and none", n, m)
	}
}

func firewallStory(t *testing.T, a *api, fw string) {
	t.Helper()
	for _, c := range []struct {
		call string
		form []string
		code int
		says string
	}{
		{"GET /options", nil, 200, `"digest":`},
		{"PUT /options", []string{"enable", "1", "policy_in", "DROP"}, 200, ""},
		{"GET /options", nil, 200, `"policy_in":"DROP"`},
		{"PUT /options", []string{"policy_in", "MAYBE"}, 400, "enumeration"},
		{"PUT /options", []string{"delete", "policy_in"}, 200, ""},
		{"PUT /options", []string{"delete", "policy"}, 400, "no such option"},
		{"PUT /options", []string{"enable", "0", "digest", "x"}, 500, "detected modified configuration"},
		{"POST /rules", []string{"type", "in", "action", "ACCEPT", "proto", "tcp", "dport", "22,8000:8010", "enable", "1"}, 200, ""},
		{"POST /rules", []string{"type", "out", "action", "DROP", "dest", "192.0.2.0/24", "comment", "no"}, 200, ""},
		{"POST /rules", []string{"type", "in", "action", "PERHAPS"}, 400, "unknown action"},
		{"POST /rules", []string{"type", "in", "action", "ACCEPT", "dport", "22"}, 400, "requires this property"},
		{"POST /rules", []string{"type", "in", "action", "ACCEPT", "proto", "tcp", "dport", "99999"}, 400, "invalid port"},
		{"POST /rules", []string{"type", "in", "action", "ACCEPT", "proto", "tpc"}, 400, "unknown protocol"},
		{"POST /rules", []string{"type", "in", "action", "ACCEPT", "source", "nowhere"}, 400, "no such alias"},
		{"POST /rules", []string{"type", "in", "action", "ACCEPT", "iface", "vmbr0"}, 400, "iface"},
		{"POST /rules", []string{"action", "ACCEPT"}, 400, "property is missing"},
		{"GET /rules/1", nil, 200, `"dport":"22,8000:8010"`},
		{"GET /rules/0", nil, 200, `"ipversion":4`},
		{"GET /rules/2", nil, 500, "no rule at position 2"},
		{"PUT /rules/0", []string{"moveto", "2"}, 200, ""},
		{"GET /rules/0", nil, 200, `"proto":"tcp"`},
		{"PUT /rules/0", []string{"delete", "proto"}, 400, "requires this property"},
		{"PUT /rules/0", []string{"delete", "proto,dport"}, 200, ""},
		{"POST /aliases", []string{"name", "Web", "cidr", "192.0.2.7/24"}, 200, ""},
		{"POST /aliases", []string{"name", "web", "cidr", "192.0.2.7"}, 400, "already exists"},
		{"GET /aliases/web", nil, 200, `"cidr":"192.0.2.0/24"`},
		{"PUT /rules/0", []string{"source", "web"}, 200, ""},
		{"GET /aliases/db", nil, 400, "no such alias"},
		{"POST /ipset", []string{"name", "admins"}, 200, ""},
		{"POST /ipset", []string{"name", "admins"}, 400, "already exists"},
		{"POST /ipset/admins", []string{"cidr", "198.51.100.0/24", "nomatch", "1"}, 200, ""},
		{"POST /ipset/admins", []string{"cidr", "198.51.100.0/24"}, 400, "already exists"},
		{"GET /ipset/admins/198.51.100.0%2F24", nil, 200, `"nomatch":1`},
		{"GET /ipset/admins/198.51.100.0", nil, 400, "no such IP/Network"},
		{"GET /ipset/others", nil, 500, "no such IPSet"},
		{"DELETE /ipset/admins", nil, 500, "is not empty"},
		{"GET /refs?type=ipset", nil, 200, `"ref":"+guest/admins"`},
		{"DELETE /ipset/admins/198.51.100.0/24", nil, 200, ""},
		{"DELETE /ipset/admins", nil, 200, ""},
		{"GET /log", nil, 200, "no content"},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		if r := a.do(method, fw+path, c.form...); r.code != c.code || !strings.Contains(r.raw, c.says) {
			t.Errorf("%s %v: %d %s, want %d %s", c.call, c.form, r.code, r.raw, c.code, c.says)
		}
	}
	none := a.bearer("gitops@pve!none=55555555-5555-4555-8555-555555555555")
	if r := none.do("GET", fw+"/rules"); r.code != 403 {
		t.Errorf("a stranger reads the rules: %d", r.code)
	}
	if got := fmt.Sprint(a.ok("GET", fw+"/rules").([]any)[0].(map[string]any)["source"]); got != "web" {
		t.Errorf("the first rule is from %s", got)
	}
}

// TestNodeReads: what a node can run, and its history.
func TestNodeReads(t *testing.T) {
	a := inProcess(t, world(t, "base", pvesim.Options{}))
	a.makeVM(100, "memory", "64")
	const node = "/nodes/pve01"
	if v := a.ok("GET", node+"/version").(map[string]any); v["release"] != "9.2" {
		t.Errorf("version is %v", v)
	}
	find := func(path, key, name string) map[string]any {
		for _, row := range a.ok("GET", node+path).([]any) {
			if m := row.(map[string]any); m[key] == name {
				return m
			}
		}
		return nil
	}
	if m := find("/capabilities/qemu/cpu", "name", "EPYC-Rome"); m == nil || m["vendor"] != "AuthenticAMD" || m["custom"] != 0.0 {
		t.Errorf("EPYC-Rome is %v", m)
	}
	if find("/capabilities/qemu/cpu", "name", "cortex-a57") != nil || find("/capabilities/qemu/cpu?arch=aarch64", "name", "cortex-a57") == nil {
		t.Error("an ARM model is of the wrong architecture")
	}
	if find("/capabilities/qemu/cpu-flags", "name", "nested-virt") == nil || find("/capabilities/qemu", "name", "machines") == nil {
		t.Error("a CPU flag or the index is not there")
	}
	if m := find("/capabilities/qemu/machines", "id", "pc-q35-9.2"); m == nil || m["type"] != "q35" || find("/capabilities/qemu/machines", "id", "pc-q35-99.0") != nil {
		t.Errorf("pc-q35-9.2 is %v", m)
	}
	rows := a.ok("GET", vmPath+"/100/rrddata", "timeframe", "hour").([]any)
	first, last := rows[0].(map[string]any), rows[len(rows)-1].(map[string]any)
	if len(rows) != 70 || last["time"].(float64)-first["time"].(float64) != 69*60 || first["maxmem"] != nil {
		t.Errorf("%d points from %v to %v", len(rows), first, last)
	}
	if r := a.do("GET", vmPath+"/100/rrddata", "timeframe", "minute"); r.code != 400 {
		t.Errorf("a frame of a minute: %d", r.code)
	}
	if n := len(a.ok("GET", node+"/storage/local/rrddata", "timeframe", "year").([]any)); n != 70 {
		t.Errorf("%d points of a storage", n)
	}
}
