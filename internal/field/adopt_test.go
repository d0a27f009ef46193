package field

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func adopt(g *Guest) (*vm, []Gap) {
	v := &vm{disks: []disk{}, nics: []nic{}}
	for _, key := range []string{"scsi0", "scsi1"} {
		if _, ok := g.Get(key); ok {
			v.disks = append(v.disks, disk{slot: Some(int(key[4] - '0'))})
		}
	}
	if _, ok := g.Get("net0"); ok {
		v.nics = append(v.nics, nic{})
	}
	if _, ok := g.Get("efidisk0"); ok {
		v.efi = &efi{}
	}
	return v, ReadInto(v.shape(), g)
}

func TestAdopt(t *testing.T) {
	g := guest(`name: web
memory: 2048
cores: 2
cores!pending: 4
cpu: host,flags=+aes;+nested-virt,hidden=1,phys-bits=40
tags: prod;ProxOps;web
scsi0: lvm:vm-1-disk-0,iothread=1,size=32G,zzz=1
scsi1: dir:1/vm-1-disk-1.qcow2,size=2700000001
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0,queues=4,tag=20
efidisk0: lvm:vm-1-disk-2,efitype=4m,ms-cert=2023k,size=4M
machine: pc
sshkeys: ssh-ed25519%20A%20a%0A
cipassword: **********
nameserver:  
description: one
args: -x
unprivileged: 1
startup: order=3`)
	g.Config["description"] = Entry{Value: ptr("one\ntwo\n")}
	v, gaps := adopt(g)
	v.node = Some("n1")
	want := `node: n1
pve-name: web
memory: 2GiB
cpu:
  type: host
  # waits for a restart; runs with 2
  cores: 4
  flags: [+aes]
disks:
  - storage: lvm
    size: 32GiB
    slot: scsi0
    iothread: true
  - storage: dir
    size: 2574MiB
    slot: scsi1
networks:
  - model: virtio
    bridge: vmbr0
    vlan: 20
hardware:
  machine: i440fx
  efi-disk:
    storage: lvm
    template: 4m
options:
  nested-virt: true
  hidden: true
  unprivileged: true
  startup: order=3
cloud-init-data:
  ssh-keys:
    - ssh-ed25519 A a
tags: [prod, web]
pve-description: |-
  one
  two
template: null
`
	out := yamldoc.Print(ToNode(v.shape(), g))
	if string(out) != want {
		t.Errorf("got\n%s", out)
	}
	var lines []string
	for _, x := range gaps {
		lines = append(lines, x.Key+"="+x.Value.String())
	}
	wantGaps := "args=-x cipassword=(redacted) cpu.phys-bits=40 efidisk0.ms-cert=2023k net0.queues=4 scsi0.zzz=1"
	if got := strings.Join(lines, " "); got != wantGaps {
		t.Errorf("gaps: %s", got)
	}
	back := load(t, string(out))
	if d := Diff(back.shape(), g); show(d) != "waiting cpu.cores cores: 2 -> 4" {
		t.Errorf("what was adopted differs:\n%s", show(d))
	}
}

func TestAdoptDefaultsAndFaults(t *testing.T) {
	g := guest("scsi0: /dev/sdz,size=1G\nsshkeys: %zz\ncores: many")
	delete(g.Config, "memory")
	v, gaps := adopt(g)
	if v.memory.Or(0) != 512*wire.MiB {
		t.Error("a required field takes PVE's default")
	}
	var all string
	for _, x := range gaps {
		all += x.Key + ": " + x.Reason + "\n"
	}
	for _, want := range []string{"scsi0: the volume is on no storage", "sshkeys: the value does not fit the field", `cores: "many" is not an integer`} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is missing in\n%s", want, all)
		}
	}
}

func TestSchema(t *testing.T) {
	v := &vm{}
	raw, err := json.Marshal(Schema(Specimen(v.shape)))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("spec.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("spec.json")
	if err != nil {
		t.Fatal(err)
	}
	for text, valid := range map[string]bool{
		`{"node":"a","memory":"1GiB","cpu":{},"disks":[],"template":null}`:                               true,
		`{"node":"a","memory":"1GiB","cpu":{"cores":null},"disks":[{"storage":"a"}],"template":"x"}`:     true,
		`{"node":"a","memory":"1GiB","cpu":{"cores":0},"disks":[],"template":null}`:                      false,
		`{"node":"a","memory":1,"cpu":{},"disks":[],"template":null}`:                                    false,
		`{"node":"a","memory":null,"cpu":{},"disks":[],"template":null}`:                                 false,
		`{"node":"a","memory":"1GiB","cpu":{},"disks":[],"template":null,"zz":1}`:                        false,
		`{"node":"a","memory":"1GiB","cpu":{},"disks":[]}`:                                               false,
		`{"node":"a","memory":"1GiB","cpu":{},"disks":[],"template":null,"extra":{"a":1,"b":[1]}}`:       false,
		`{"node":"a","memory":"1GiB","cpu":{},"disks":[],"template":null,"hardware":{"machine":"i441"}}`: false,
		`{"node":"a","memory":"1GiB","cpu":{},"disks":[],"template":null,"hardware":{"machine":null}}`:   true,
	} {
		x, _ := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err := s.Validate(x); (err == nil) != valid {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestExplain(t *testing.T) {
	v := &vm{}
	b := Specimen(v.shape)
	got, err := Explain(b, false, "networks.vlan")
	want := `networks[].vlan (integer in 1-4094, such as 1)
  VLAN
  PVE:       netN.tag
  running:   live where hotplug has network, else pending until restart
  null:      clears it in PVE
  example:   vlan: 1
`
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	for path, want := range map[string]string{
		"networks[3].bridge": "required", "hardware": "hardware.machine", "disks": "disks[].size", "extra": "map",
		"": "networks[].vlan", "template": `stands for "not known"`, "options.startup": "Sys.Modify", "hardware.efi-disk.template": "sent as 4m",
		"disks.storage": "never rewritten", "options.unprivileged": "never rewritten",
	} {
		if got, err := Explain(b, false, path); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v\n%s", path, err, got)
		}
	}
	if _, err := Explain(b, false, "networks.vlam"); err == nil || !strings.Contains(err.Error(), "did you mean networks.vlan?") {
		t.Error(err)
	}
	table := Table(b, false)
	for _, want := range []string{"| `networks[].vlan` | integer 1-4094 | `netN.tag` | live where", "| **`disks[]`** | list, required |", "| `memory` | size, required | `memory` |"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is missing in\n%s", want, table)
		}
	}
}

func TestAdmits(t *testing.T) {
	v := &vm{}
	all, err := Admits(Specimen(v.shape))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Admit{}
	for _, a := range all {
		found[a.Path] = a
	}
	if m := found["hardware.machine"]; m.Key != "machine" || strings.Join(m.Enum, ",") != "pc,q35" {
		t.Errorf("%+v", m)
	}
	if m := found["networks[0].vlan"]; m.Key != "net0" || m.Token != "tag" || *m.Type.Max != 4094 {
		t.Errorf("%+v", m)
	}
	if m := found["memory"]; len(m.Examples) == 0 || m.Examples[0] != "2048" {
		t.Errorf("%+v", m)
	}
	if _, ok := found["disks[0].storage"]; ok {
		t.Error("a guarded row sends nothing")
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	pw := Some(secret.New("hunter2"))
	plain := Some("hunter2")
	b := Group("", "", Var(&pw, "password", "cipassword", "", SecretText(), "").Hides(), Var(&plain, "token", "token", "", Text(), "").Hides())
	if out := string(yamldoc.Print(ToNode(b, nil))); out != "{}\n" {
		t.Errorf("printed\n%s", out)
	}
	g := guest("token: other\ncipassword: x")
	for _, e := range Diff(b, g).Edits {
		for _, c := range e.Changes {
			if side(c.Old) != "(redacted)" || side(c.New) != "(redacted)" || e.Value.String() != "(redacted)" {
				t.Errorf("%s: %s -> %s", e.Key, side(c.Old), side(c.New))
			}
		}
	}
}
