package field

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

func problems(t *testing.T, text string) string {
	t.Helper()
	docs, ps := yamldoc.Parse("t.yaml", []byte(text))
	if ps != nil {
		t.Fatal(ps)
	}
	var doc *yamldoc.Node
	if len(docs) > 0 {
		doc = docs[0]
	}
	v := &vm{}
	return Load("t.yaml", doc, v.shape).Error()
}

const whole = "node: n1\nmemory: 1GiB\ncpu: {}\ndisks: []\ntemplate: null\n"

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"networks:\n  - bridge: vmbr0\n    vlan: 5000", "t.yaml:8:11: networks[0].vlan: 5000 is not in 1-4094"},
		{"networks: [{bridge: vmbr0, vlam: 5}]", "t.yaml:6:28: networks[0].vlam: unknown field; did you mean vlan?"},
		{"memroy: 1GiB", "memroy: unknown field; did you mean memory?"},
		{"zebra: 1", "zebra: unknown field; known here are cloud-init-data, cpu, disks, extra, hardware, memory"},
		{"networks: [{vlan: 5}]", "t.yaml:6:12: networks[0].bridge: this field is required"},
		{"networks: {}", "networks: a mapping stands where a list belongs"},
		{"networks: null", "networks: null stands where a list belongs"},
		{"networks: [null]", "networks[0]: null stands where a block of fields belongs"},
		{"networks: [a]", `networks[0]: "a" stands where a block of fields belongs`},
		{"hardware: null", "hardware: null stands where a block of fields belongs"},
		{"hardware: []", "hardware: a list stands where a block"},
		{"hardware: {efi-disk: {}}", "hardware.efi-disk.storage: this field is required"},
		{"hardware: {efi-disk: {storage: a, template: byos}}", `hardware.efi-disk.template: "byos" is not one of 2m, 4m`},
		{"hardware: {efi-disk: {storage: null}}", "hardware.efi-disk.storage: null is not allowed, for the field is required"},
		{"hardware: {machine: [q35]}", "hardware.machine: a list stands where a string belongs"},
		{"options: {hidden: yes}", "options.hidden: yes is not a boolean here: write true"},
		{"options: {hidden: off}", "options.hidden: off is not a boolean here: write false"},
		{"options: {hidden: 1}", "options.hidden: 1 is not a boolean here: write true"},
		{"options: {hidden: maybe}", `options.hidden: "maybe" is not true or false`},
		{"options: {startup: sometime}", `options.startup: order: "sometime" is not a number`},
		{"pve-name: 123", `pve-name: 123 is not a string; write it in quotes: "123"`},
		{`pve-name: ""`, "pve-name: the empty string is not allowed"},
		{"pve-name: Ä", `pve-name: "Ä" is not a DNS name`},
		{"tags: []", "tags: the empty list is not allowed"},
		{"tags: web", `tags: "web" is not a list; write [web]`},
		{"tags: [a, A]", `tags: "a" and "A" differ only in case`},
		{"tags: [-a]", `tags: "-a" is not a tag`},
		{"cloud-init-data: {ssh-keys: []}", "cloud-init-data.ssh-keys: the empty list"},
		{"cloud-init-data: {nameservers: [a, a]}", `"a" stands twice`},
		{`networks: [{bridge: vmbr0, mac: "01:00:00:00:00:00"}]`, "is a multicast address"},
		{`networks: [{bridge: vmbr0, mac: "1"}]`, "is not a MAC address"},
		{`networks: [{bridge: "a,firewall=1"}]`, "networks[0].bridge: a comma cannot stand here: it would end the value in PVE's net0"},
		{`cloud-init-data: {ci-user: "a\nb"}`, "cloud-init-data.ci-user: a line end or control character"},
		{"extra: {delete: x}", "t.yaml:6:9: extra.delete: delete is a control parameter"},
		{"extra: {a: [1]}", "extra.a: a scalar belongs here"},
		{"extra: []", "extra: a list stands where a mapping belongs"},
		{"disks: null", "disks: null stands where a list belongs"},
		{"disks: [{storage: a, size: 32}]", "disks[0].size: 32 has no unit"},
		{"disks: [{storage: a, size: null}]", "disks[0].size: null has no meaning here"},
		{"disks: [{storage: a, slot: scsi31}]", `disks[0].slot: "scsi31" is not a slot: scsi0-scsi30 or the number alone`},
		{"memory: 1.5GiB", `memory: "1.5GiB" is not a size`},
		{"memory: 1025KiB", "memory: 1025KiB is not a whole number of MiB"},
		{"memory: 1MiB", "memory: 1MiB is below 16MiB"},
		{"memory: null", "memory: null is not allowed, for the field is required"},
		{"cpu: {cores: 0101}", `cpu.cores: "0101" is not an integer in 1-128`},
		{"cpu: {cores: 1.0}", `cpu.cores: "1.0" is not an integer`},
		{`cpu: {flags: ["+aes", aes]}`, "flag aes stands twice"},
		{`cpu: {flags: ["++aes"]}`, `"++aes" is not a flag`},
	} {
		text := ""
		key, _, _ := strings.Cut(c.in, ":")
		for l := range strings.Lines(whole) {
			if strings.HasPrefix(l, key+":") {
				l = "\n"
			}
			text += l
		}
		got := problems(t, text+c.in+"\n")
		if !strings.Contains(got, c.want) || strings.Count(got, "\n") > 0 {
			t.Errorf("%s: got\n%s\nwant\n%s", c.in, got, c.want)
		}
	}
}

func TestLoadReportsAll(t *testing.T) {
	got := problems(t, "x: 1\nmemory: 5\ncpu:\n  cores: 0\n  typ: host\ndisks:\n  - {}\n  - 3\n")
	for _, want := range []string{
		"t.yaml:1:1: node: this field is required", "t.yaml:1:1: template: this field is required", "t.yaml:1:1: x: unknown field",
		"t.yaml:2:9: memory: 5 has no unit", "t.yaml:4:10: cpu.cores: 0 is not in 1-128", "t.yaml:5:3: cpu.typ: unknown field; did you mean type?",
		"t.yaml:7:5: disks[0].storage: this field is required", `t.yaml:8:5: disks[1]: "3" stands where a block`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if got := problems(t, ""); strings.Count(got, "required") != 5 {
		t.Errorf("an empty document: %s", got)
	}
	if got := problems(t, "[]"); !strings.Contains(got, "a list stands where a mapping of fields belongs") {
		t.Error(got)
	}
}

func TestLoadStates(t *testing.T) {
	v := load(t, `pve-name: null
tags: null
networks: []
disks: [{storage: a, size: 8G, slot: 3}, {storage: b, size: 1T, slot: scsi4}]
extra: {b: true, a: 5, c: null}
hardware: {efi-disk: {storage: x}}`)
	if v.name.State() != Null || v.tags.State() != Null || v.cores.State() != Absent || v.template.State() != Null {
		t.Error("states")
	}
	if v.nics == nil || len(v.nics) != 0 || v.efi == nil || v.drive != nil {
		t.Error("an empty list is present, an absent block is not")
	}
	if s, _ := v.disks[1].slot.Get(); s != 4 || v.disks[0].size.Or(0) != 8*wire.GiB {
		t.Errorf("%+v", v.disks)
	}
	if v.extra[0].Key != "b" || v.extra[0].Value.Or("") != "1" || v.extra[1].Value.Or("") != "5" || v.extra[2].Value.State() != Null {
		t.Errorf("%+v", v.extra)
	}
}

func TestPathPos(t *testing.T) {
	docs, _ := yamldoc.Parse("t", []byte("spec:\n  networks:\n    - bridge: x\n      vlan: 3\n  extra:\n    a.b: 1\n"))
	for path, want := range map[string][2]int{
		"spec.networks[0].vlan":   {4, 13},
		"spec.networks[0].mac":    {3, 7},
		"spec.networks[7].bridge": {3, 5},
		"spec.cpu.cores":          {2, 3},
		"spec.extra.a.b":          {6, 10},
		"":                        {1, 1},
		"nothing[x":               {1, 1},
	} {
		if l, c := PathPos(docs[0], path); l != want[0] || c != want[1] {
			t.Errorf("%s: %d:%d, want %v", path, l, c, want)
		}
	}
	if l, c := PathPos(nil, "a"); l != 0 || c != 0 {
		t.Error("no document has no place")
	}
}
