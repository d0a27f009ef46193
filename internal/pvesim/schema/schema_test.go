package schema_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

const unknown = "property is not defined in schema and the schema does not allow additional properties"

// TestCases are requests and the answers that a real PVE 9.2 gave to the like.
func TestCases(t *testing.T) {
	const vm, ct = "/nodes/pve01/qemu", "/nodes/pve01/lxc"
	for _, c := range []struct {
		method, path, form string
		want               map[string]string
	}{
		{"POST", vm, "vmid=100", nil},
		{"POST", vm, "vmid=100&cores=%2B2&memory=512&net31=virtio%2Cbridge%3Dvmbr0", nil},
		{"POST", vm, "foo=1&cores=x", map[string]string{
			"foo": unknown, "vmid": "property is missing and it is not optional", "cores": "type check ('integer') failed - got 'x'"}},
		{"PUT", vm + "/100/config", "cores=2&cores=3", map[string]string{"cores": "type check ('integer') failed - got ARRAY"}},
		{"PUT", vm + "/100/config", "delete=onboot&delete=acpi", nil},
		{"PUT", vm + "/100/config", "vmid=101&cores=0", map[string]string{"vmid": "duplicate parameter (already defined in URI) with conflicting values!"}},
		{"PUT", vm + "/100/config", "vmid=100&cores=0", map[string]string{"cores": "value must have a minimum value of 1"}},
		{"PUT", vm + "/100/config", "net32=virtio&scsi31=local:1&ide4=x:1&hostpci16=x&mp0=x", map[string]string{
			"net32": unknown, "scsi31": unknown, "ide4": unknown, "hostpci16": unknown, "mp0": unknown}},
		{"PUT", vm + "/100/config", "net00=virtio", map[string]string{"net00": unknown}},
		{"PUT", vm + "/100/config", "onboot=true&acpi=2&kvm=&tablet=1", map[string]string{
			"onboot": "type check ('boolean') failed - got 'true'", "acpi": "type check ('boolean') failed - got '2'", "kvm": "type check ('boolean') failed - got ''"}},
		{"PUT", vm + "/100/config", "net0=virtio%2Ctag%3D5000%2Cfoo%3D1", map[string]string{
			"net0": "invalid format - format error\nnet0.foo: " + unknown + "\nnet0.tag: value must have a maximum value of 4094\n"}},
		{"PUT", vm + "/100/config", "net0=virtio,bridge=vmbr0,firewall=1", map[string]string{
			"net0": "invalid format - duplicate key in comma-separated list property: model\n"}},
		{"PUT", vm + "/100/config", "net0=virtio%2Ctag%3D1%2Ctag%3D2&net1=virtio%2Ce1000%3DBC:24:11:00:00:01&net2=virtio%2Ctag%3D1%0A2", map[string]string{
			"net0": "invalid format - duplicate key in comma-separated list property: tag\n",
			"net1": "invalid format - key alias 'model' is already defined\n",
			"net2": "invalid format - missing key in comma-separated list property\n"}},
		{"PUT", vm + "/100/config", "ipconfig0=ip%3D10.0.0.0/8&ipconfig1=ip%3D10.0.0.0/7", map[string]string{
			"ipconfig1": "invalid format - format error\nipconfig1.ip: invalid format - value does not look like a valid ipv4 network configuration\n\n"}},
		{"PUT", vm + "/100/config", "parallel0=/dev/parport0x&serial0=/dev/ttyS0&serial1=foo&bootdisk=scsi99", map[string]string{
			"serial1": "value does not match the regex pattern", "bootdisk": "invalid format - invalid boot disk 'scsi99'\n"}},
		{"PUT", vm + "/100/config", "ipconfig0=gw%3D192.0.2.1", map[string]string{
			"ipconfig0": "invalid format - format error\nipconfig0.ip: missing property required by 'ipconfig0.gw'\n"}},
		{"PUT", vm + "/100/config", "boot=order%3Da,b", map[string]string{
			"boot": "invalid format - format error\nboot.legacy: value does not match the regex pattern\nboot.order: invalid format - invalid boot device 'a'\n\n"}},
		{"PUT", vm + "/100/config", "boot=order%3D", map[string]string{"boot": "invalid format - missing key in comma-separated list property\n"}},
		{"PUT", vm + "/100/config", "virtio0=local:1%2Cssd%3D1", map[string]string{
			"virtio0": "invalid format - format error\nvirtio0.ssd: " + unknown + "\n"}},
		{"PUT", vm + "/100/config", "cpu=host%2Cflags%3D%2Bvmx", map[string]string{
			"cpu": "invalid format - VM-specific CPU flags must be a subset of: aes, amd-no-ssb, amd-ssbd, hv-evmcs, hv-tlbflush, ibpb, md-clear, nested-virt, pcid, pdpe1gb, spec-ctrl, ssbd, virt-ssbd\n"}},
		{"PUT", vm + "/100/config", "cpu=host%2Cflags%3D%2Bnested-virt%3B-pcid&agent=yes", nil},
		{"PUT", vm + "/100/config", "sshkeys=ssh-rsa+AAAA", map[string]string{"sshkeys": "invalid format - invalid urlencoded string: ssh-rsa AAAA\n"}},
		{"PUT", vm + "/100/config", "tags=a%3Bb+c%2Cd&hotplug=disk%2Cnetwork&startup=order%3D3%2Cup%3D10", nil},
		{"PUT", vm + "/100/config", "tags=.a&startup=order%3Dabc&hotplug=bogus", map[string]string{
			"tags": "invalid format - invalid characters in tag\n", "startup": "invalid format - unable to parse startup options\n", "hotplug": "invalid format - invalid hotplug feature 'bogus'\n"}},
		{"PUT", vm + "/100/config", "digest=" + strings.Repeat("a", 41), map[string]string{"digest": "value may only be 40 characters long"}},
		{"GET", vm + "/99/config", "", map[string]string{"vmid": "invalid format - value does not look like a valid VM ID\n"}},
		{"GET", vm + "/1e3/config", "_dc=5", map[string]string{"vmid": "type check ('integer') failed - got '1e3'"}},
		{"DELETE", vm + "/100", "purge=1&force=1", map[string]string{"force": unknown}},
		{"POST", ct, "vmid=100&ostemplate=local:vztmpl/x.tar.gz&features=nesting&memory=15&password=abc", map[string]string{
			"features": "invalid format - value without key, but schema does not define a default key\n",
			"memory":   "value must have a minimum value of 16", "password": "value must be at least 5 characters long"}},
		{"POST", ct, "vmid=100&ostemplate=local:vztmpl/x.tar.gz&net0=bridge%3Dvmbr0&mp255=local:1%2Cmp%3D/d&tty=7", map[string]string{
			"net0": "invalid format - format error\nnet0.name: property is missing and it is not optional\n", "tty": "value must have a maximum value of 6"}},
		{"POST", "/nodes/pve01/storage/local/download-url", "content=iso&filename=a.iso&url=http://h/a&checksum=00&checksum_algorithm=md5", map[string]string{
			"checksum_algorithm": unknown, "checksum-algorithm": "missing property required by 'checksum'"}},
		{"POST", "/nodes/pve01/storage/local/download-url", "content=backup&filename=a&url=http://h/a", map[string]string{
			"content": "value 'backup' does not have a value in the enumeration 'iso, vztmpl, import'"}},
		{"GET", "/nodes/pve01/storage/local/content", "content=bogus", map[string]string{"content": "invalid format - invalid content type 'bogus'\n"}},
	} {
		t.Run(c.method+" "+c.path+" "+c.form, func(t *testing.T) {
			m, vars, ok := schema.Find(c.method, c.path)
			if !ok {
				t.Fatal("not found")
			}
			if _, got := m.Check(vars, schema.DecodeForm(c.form)); difference(c.want, got) != "" {
				t.Error(difference(c.want, got))
			}
		})
	}
}

func TestCheckReturnsWhatWasSent(t *testing.T) {
	m, vars, _ := schema.Find("PUT", "/nodes/pve01/qemu/100/config")
	values, errs := m.Check(vars, map[string]any{"cores": 2.0, "onboot": true, "name": "a", "kvm": nil, "delete": []any{"acpi", "tags"}})
	want := map[string]string{"node": "pve01", "vmid": "100", "cores": "2", "onboot": "1", "name": "a", "delete": "acpi\x00tags"}
	if errs != nil || len(values) != len(want) {
		t.Fatalf("values %q, errs %q", values, errs)
	}
	for k, v := range want {
		if values[k] != v {
			t.Errorf("%s = %q, want %q", k, values[k], v)
		}
	}
	for _, bad := range []any{map[string]any{"a": 1}, []any{"x"}, true} {
		if _, errs := m.Check(vars, map[string]any{"name": bad}); errs["name"] == "" {
			t.Errorf("name accepts %T", bad)
		}
	}
}

func TestDecodeForm(t *testing.T) {
	for form, want := range map[string]string{
		"":                            "map[]",
		"cores=1;memory=600":          "map[cores:1 memory:600]",
		"a=b=c":                       "map[a:b]",
		"%63ores=1":                   "map[cores:1]",
		"d=a+b%20c%2Bd%zz100%25%":     "map[d:a b c+d%zz100%%]",
		"d=a%FFb%C3%28":               "map[d:a\uFFFDb\uFFFD(]",
		"d=gr\u00fcn%20%C3%BC":        "map[d:gr\u00fcn \u00fc]",
		"onboot":                      "map[onboot:<nil>]",
		"onboot=":                     "map[onboot:]",
		"a=1&a=2&a=3":                 "map[a:[1 2 3]]",
		"a=1&a":                       "map[a:<nil>]", // what had a value has none now
		"a&a=1":                       "map[a:1]",
		"a=1&&b=2&":                   "map[:<nil> a:1 b:2]", // nothing is a key too, but not at the end
		"description=l1%0Al2%0D%0Al3": "map[description:l1\nl2\r\nl3]",
	} {
		if got := fmt.Sprint(schema.DecodeForm(form)); got != want {
			t.Errorf("%q decodes to %q, want %q", form, got, want)
		}
	}
}

// A key without a value is none to the types, but must be one that there is, and must have what it requires.
func TestCheckOfNoValue(t *testing.T) {
	for _, c := range []struct {
		method, path string
		params       map[string]any
		want         map[string]string
	}{
		{"PUT", "/nodes/n/qemu/100/config", map[string]any{"cores": nil}, nil},
		{"PUT", "/nodes/n/qemu/100/config", map[string]any{"foo": nil}, map[string]string{"foo": unknown}},
		{"PUT", "/nodes/n/qemu/100/config", map[string]any{"": nil}, map[string]string{"_root": unknown}},
		{"PUT", "/nodes/n/qemu/100/config", map[string]any{"vmid": nil}, map[string]string{"vmid": "duplicate parameter (already defined in URI) with conflicting values!"}},
		{"POST", "/pools", map[string]any{"poolid": nil}, map[string]string{"poolid": "property is missing and it is not optional"}},
		{"POST", "/nodes/n/storage/local/download-url", map[string]any{"content": "iso", "filename": "a.iso", "url": "http://h/a", "checksum": nil}, map[string]string{
			"checksum-algorithm": "missing property required by 'checksum'"}},
	} {
		m, vars, ok := schema.Find(c.method, c.path)
		if !ok {
			t.Fatalf("%s %s not found", c.method, c.path)
		}
		if _, got := m.Check(vars, c.params); difference(c.want, got) != "" {
			t.Errorf("%s %s %v: %s", c.method, c.path, c.params, difference(c.want, got))
		}
	}
}

// Empty values at the end of a list do not count, as Perl's split drops them.
func TestSplitList(t *testing.T) {
	for text, want := range map[string]string{
		"": "[]", "a,b;c d": "[a b c d]", ",a, ,b;": "[a b]", "a\x00b,c\x00": "[a b,c]", "a\x00\x00b": "[a  b]", "\x00\x00": "[]", "a\fb\vc": "[a b c]",
	} {
		if got := fmt.Sprint(schema.SplitList(text)); got != want {
			t.Errorf("%q splits into %s, want %s", text, got, want)
		}
	}
}

func TestFind(t *testing.T) {
	for _, c := range []struct{ method, path, template, key, value string }{
		{"GET", "/version", "/version", "", ""},
		{"PUT", "/nodes/n/qemu/7/config", "/nodes/{node}/qemu/{vmid}/config", "vmid", "7"},
		{"DELETE", "/nodes/n/storage/s/content/local:iso/x.iso", "/nodes/{node}/storage/{storage}/content/{volume}", "volume", "local:iso/x.iso"},
		{"DELETE", "/nodes/n/storage/s/content/local%3Aiso%2Fx.iso", "/nodes/{node}/storage/{storage}/content/{volume}", "volume", "local:iso/x.iso"},
		{"GET", "/nodes/n/tasks/UPID%3An%3A1%3Aroot@pam%3A/status", "/nodes/{node}/tasks/{upid}/status", "upid", "UPID:n:1:root@pam:"},
		{"DELETE", "/nodes/n/storage/s/content/iso%2Fa%2520b.iso", "/nodes/{node}/storage/{storage}/content/{volume}", "volume", "iso/a%20b.iso"},
		{"GET", "//nodes//n/qemu/", "/nodes/{node}/qemu", "node", "n"},
	} {
		m, vars, ok := schema.Find(c.method, schema.PercentDecode(c.path))
		if !ok || m.Path != c.template || vars[c.key] != c.value {
			t.Errorf("%s %s: %v %v", c.method, c.path, m, vars)
		}
	}
	for _, path := range []string{"/cluster/nodes", "/nope", "/nodes/n/qemu/7/nope", "/nodes/n/qemu/7/config/x", ""} {
		if _, _, ok := schema.Find("GET", path); ok || len(schema.Allowed(path)) > 0 && path != "" {
			t.Errorf("%q exists", path)
		}
	}
	if got := strings.Join(schema.Allowed("/nodes/n/lxc/7/config"), " "); got != "GET PUT" {
		t.Errorf("lxc config allows %s", got)
	}
}

// TestEveryMethod is the law that the compact form is whole: each method is
// found by a path made from its template, knows its path variables and has a
// permission rule, and each parameter's default and alias make sense.
func TestEveryMethod(t *testing.T) {
	variable := regexp.MustCompile(`\{([^}]+)\}`)
	if n := len(schema.Methods()); n < 280 {
		t.Fatalf("only %d methods", n)
	}
	for _, m := range schema.Methods() {
		name := m.HTTP + " " + m.Path
		if got, _, ok := schema.Find(m.HTTP, variable.ReplaceAllString(m.Path, "x")); !ok || got != m {
			t.Errorf("%s is not found", name)
		}
		if schema.Lookup(m.HTTP, m.Path) != m || m.Returns == "" || m.Perm.Op == "" {
			t.Errorf("%s: incomplete: %+v", name, m)
		}
		for _, v := range variable.FindAllStringSubmatch(m.Path, -1) {
			if _, ok := m.Key(v[1]); !ok {
				t.Errorf("%s has no parameter %s", name, v[1])
			}
		}
		for _, p := range m.Keys() {
			for _, key := range p.Names() {
				if q, ok := m.Key(key); !ok || q != p {
					t.Errorf("%s: key %s leads elsewhere", name, key)
				}
			}
			if p.Requires != "" {
				if _, ok := m.Key(p.Requires); !ok {
					t.Errorf("%s: %s needs %s, which does not exist", name, p.Name, p.Requires)
				}
			}
			if p.Format != nil {
				wholeFormat(t, name+" "+p.Name, p.Format)
			}
		}
	}
}

// TestUncheckedFormats pins the named formats whose values pass unchecked: none
// of them is on a guest's, a pool's or a download's way.
func TestUncheckedFormats(t *testing.T) {
	unchecked := map[string]bool{}
	note := func(keys []*schema.Param) {
		for _, p := range keys {
			if p.FormatName != "" && !schema.Known(p.FormatName) {
				unchecked[p.FormatName] = true
			}
		}
	}
	for _, m := range schema.Methods() {
		note(m.Keys())
		for _, p := range m.Keys() {
			if p.Format != nil {
				note(p.Format.Keys())
			}
		}
	}
	want := "ipv4mask ldap-simple-attr ldap-simple-attr-list proxmox-remote pve-dir-override-list" +
		" pve-fw-icmp-type-spec pve-node-location" +
		" pve-storage-options pve-storage-portal-dns pve-storage-portal-dns-list pve-storage-zfs-blocksize" +
		" pve-tfa-config pve-vlan-id-or-range-list realm-sync-options"
	if got := strings.Join(slices.Sorted(maps.Keys(unchecked)), " "); got != want {
		t.Errorf("unchecked are\n%s, want\n%s", got, want)
	}
}

func wholeFormat(t *testing.T, name string, f *schema.Format) {
	t.Helper()
	for _, p := range f.Keys() {
		if p.Alias == "" {
			continue
		}
		if _, ok := f.Key(p.Alias); !ok {
			t.Errorf("%s: %s stands for %s, which does not exist", name, p.Name, p.Alias)
		}
		if p.KeyAlias != "" {
			model, ok := f.Key(p.KeyAlias)
			if !ok || model.Fault("", p.Name) != "" {
				t.Errorf("%s: %s does not admit %s", name, p.KeyAlias, p.Name)
			}
		}
	}
}

func TestIntrospection(t *testing.T) {
	m := schema.Lookup("PUT", "/nodes/{node}/qemu/{vmid}/config")
	net, _ := m.Key("net3")
	tag, ok := net.Format.Key("tag")
	if !ok || tag.Type != schema.Integer || *tag.Min != 1 || *tag.Max != 4094 {
		t.Errorf("net3.tag: %+v", tag)
	}
	if net.Low != 0 || net.High != 31 || net.Format.DefaultKey() != "model" {
		t.Errorf("net3: %+v", net)
	}
	if bios, _ := m.Key("bios"); strings.Join(bios.Enum, ",") != "seabios,ovmf" || bios.Default != "seabios" {
		t.Errorf("bios: %+v", bios)
	}
	up := schema.Lookup("POST", "/nodes/{node}/storage/{storage}/download-url")
	if up.Perm.Op != "and" || up.Perm.Args[0].Path != "/storage/{storage}" || up.Perm.Args[1].Args[0].Privs[1] != "Sys.Modify" {
		t.Errorf("download-url is allowed to %+v", up.Perm)
	}
	clone := schema.Lookup("POST", "/nodes/{node}/qemu/{vmid}/clone")
	if pool := clone.Perm.Args[1].Args[1]; pool.If != "pool" || pool.Path != "/pool/{pool}" {
		t.Errorf("clone is allowed to %+v", clone.Perm)
	}
}
