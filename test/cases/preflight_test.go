package cases_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim"
)

var place = regexp.MustCompile(`m\d+\.yaml:\d+:\d+`)

// Twenty mistakes that PVE would refuse, or not even notice: each is an error
// of its object in the diff, with file and line, and the other object goes on.
func TestPreflight(t *testing.T) {
	disk := func(s string) string { return "disks: [{storage: " + s + ", size: 1GiB}]" }
	for name, c := range map[string]struct{ manifest, says string }{
		"no such node":              {vm("a", 100, "node: pve09"), "pve09"},
		"no such storage":           {vm("a", 100, disk("nfs7")), `no storage "nfs7"`},
		"storage without images":    {vm("a", 100, disk("local")), "does not take images"},
		"storage without rootdir":   {ct("a", 100, "template: debian", "root: {storage: local, size: 1GiB}"), "does not take rootdir"},
		"mount point storage":       {ct("a", 100, "template: debian", "mount-points: [{storage: local, size: 1GiB, mount-point: /srv}]"), "does not take rootdir"},
		"storage of another node":   {vm("a", 100, disk("only-two")), `no storage "only-two"`},
		"storage that is down":      {vm("a", 100, disk("off")), "off"},
		"EFI disk storage":          {vm("a", 100, "hardware: {bios: ovmf, efi-disk: {storage: nfs7}}"), "nfs7"},
		"TPM storage":               {vm("a", 100, "hardware: {tpm: {storage: nfs7}}"), "nfs7"},
		"cloud-init storage":        {vm("a", 100, "hardware: {cloud-init: {storage: local}}"), "does not take images"},
		"no such bridge":            {vm("a", 100, "networks: [{bridge: vmbr9}]"), `no bridge "vmbr9"`},
		"no such bridge, container": {ct("a", 100, "template: debian", "networks: [{bridge: vmbr9}]"), `no bridge "vmbr9"`},
		"boot device missing":       {vm("a", 100, "options: {boot-order: [scsi0]}"), "scsi0"},
		"ISO file missing":          {strings.Replace(seedISO, "seed.iso", "gone.iso", 1) + "---\n" + vm("a", 100, "hardware: {cdrom: {iso: seed}}"), "a missing file cannot be downloaded"},
		"image file missing":        {strings.Replace(seedImage, "seed.qcow2", "gone.qcow2", 1) + "---\n" + vm("a", 100, "disks: [{storage: local-lvm, image: seed}]"), "a missing file cannot be downloaded"},
		"no such pool":              {vm("a", 100, "pool: nopool"), `no pool "nopool"`},
		"no such PCI mapping":       {vm("a", 100, "hardware: {pci-devices: [{mapping: gpu9}]}"), "gpu9"},
		"PCI mapping elsewhere":     {vm("a", 100, "hardware: {pci-devices: [{mapping: gpu2}]}"), "pve01"},
		"more cores than the node":  {vm("a", 100, "cpu: {type: host, cores: 64}", "state: started"), "cores"},
		"template unknown":          {ct("a", 100), "template"},
		"memory below PVE's least":  {vm("a", 100, "memory: 8MiB"), "memory"},
		"ssd on virtio":             {vm("a", 100, "disks: [{interface: virtio0, storage: local-lvm, size: 1GiB, ssd: true}]"), "ssd"},
		"VLAN out of range":         {vm("a", 100, "networks: [{bridge: vmbr0, vlan: 5000}]"), "4094"},
		"iothread on sata":          {vm("a", 100, "disks: [{interface: sata0, storage: local-lvm, size: 1GiB, iothread: true}]"), "iothread"},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(l *lab) {
				ms := []string{debian, vm("fine", 777)}
				for m := range strings.SplitSeq(c.manifest, "---\n") {
					ms = append(ms, m)
				}
				l.fails = true
				rep := l.diff(ms...)
				got := ""
				if rep.Abort != nil {
					got = rep.Abort.Error() // parsing stops the whole cluster
				} else if !strings.Contains(verbs(rep), "Create 777") {
					t.Errorf("the other object does not go on:\n%s", text(rep))
				}
				for _, e := range rep.Plan.Errors {
					got += e.File + ": " + e.Path + ": " + e.Text + "\n"
				}
				if !strings.Contains(got, c.says) || !place.MatchString(got) {
					t.Errorf("said %q, want %q with its place\n%s", got, c.says, text(rep))
				}
				if strings.Contains(verbs(rep), " 100") {
					t.Errorf("still planned: %s", verbs(rep))
				}
			}, func(s *pvesim.State) {
				s.Storages = append(s.Storages, &pvesim.Storage{ID: "only-two", Type: "dir", Content: []string{"images"}, Nodes: []string{"pve02"}, Props: map[string]string{"path": "/two"}},
					&pvesim.Storage{ID: "off", Type: "dir", Content: []string{"images"}, Disabled: true, Props: map[string]string{"path": "/off"}})
				s.Mappings = map[string]*pvesim.Mapping{"pci/gpu2": {Kind: "pci", ID: "gpu2", Map: []string{"node=pve02,path=0000:01:00.0,id=10de:1234"}}}
			})
		})
	}
}

// roles are what a token may be given; actions are what it may be asked for.
// What the plan predicts and what the simulator answers agree, both ways.
func TestPredictedRefusals(t *testing.T) {
	roles := map[string]string{
		"all":         poolPrivs + " VM.Migrate Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit SDN.Use Sys.Audit Sys.Modify Sys.AccessNetwork",
		"no-network":  "VM.Allocate VM.Audit VM.Clone VM.Config.CPU VM.Config.Disk VM.Config.Memory VM.Config.Options VM.Config.HWType VM.Config.Cloudinit VM.Config.CDROM VM.PowerMgmt Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit Pool.Audit",
		"no-bridge":   poolPrivs + " Datastore.AllocateSpace Datastore.Audit SDN.Audit Sys.Audit",
		"no-space":    poolPrivs + " Datastore.Audit SDN.Use Sys.Audit",
		"no-modify":   poolPrivs + " Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit",
		"no-power":    strings.ReplaceAll(poolPrivs, "VM.PowerMgmt", "") + " Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit Sys.Modify",
		"no-allocate": strings.ReplaceAll(poolPrivs, "VM.Allocate", "") + " Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit Sys.Modify",
		"no-options":  strings.ReplaceAll(poolPrivs, "VM.Config.Options", "") + " Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit Sys.Modify",
		"no-disk":     strings.ReplaceAll(poolPrivs, "VM.Config.Disk", "") + " Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit Sys.Modify",
		"no-cpu":      strings.ReplaceAll(poolPrivs, "VM.Config.CPU", "") + " Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit Sys.Modify",
		"no-hardware": strings.ReplaceAll(poolPrivs, "VM.Config.HWType", "") + " Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit Sys.Modify",
		"no-cloud":    strings.ReplaceAll(poolPrivs, "VM.Config.Cloudinit", "") + " Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit Sys.Modify",
		"no-cd":       strings.ReplaceAll(poolPrivs, "VM.Config.CDROM", "") + " Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit Sys.Modify",
		"no-clone":    strings.ReplaceAll(poolPrivs, "VM.Clone", "") + " Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit Sys.Modify",
		"audit":       "VM.Audit Datastore.Audit Sys.Audit SDN.Audit Pool.Audit",
	}
	base := "disks: [{storage: local-lvm, size: 1GiB, grow: true}]"
	nic := "networks: [{bridge: vmbr0}]"
	tpl := spec("TemplateVM", "golden", 900, base)
	actions := map[string][2][]string{ // before, after
		"create":         {{tpl}, {tpl, vm("a", 100)}},
		"create disk":    {{tpl}, {tpl, vm("a", 100, base)}},
		"create nic":     {{tpl}, {tpl, vm("a", 100, nic)}},
		"create startup": {{tpl}, {tpl, vm("a", 100, "options: {startup: order=1}")}},
		"create cloud":   {{tpl}, {tpl, vm("a", 100, "hardware: {cloud-init: {storage: local-lvm}}", "cloud-init-data: {ci-user: x}")}},
		"create cd":      {{tpl}, {tpl, vm("a", 100, "hardware: {cdrom: {iso: none}}")}},
		"create serial":  {{tpl}, {tpl, vm("a", 100, "hardware: {serial0: socket}")}},
		"clone":          {{tpl}, {tpl, vm("a", 100, "clone: golden")}},
		"ct":             {{tpl, debian}, {tpl, debian, ct("b", 101, "template: debian")}},
		"ct nic":         {{tpl, debian}, {tpl, debian, ct("b", 101, "template: debian", nic)}},
		"ct nesting":     {{tpl, debian}, {tpl, debian, ct("b", 101, "template: debian", "options: {nesting: true}")}},
		"ct privileged":  {{tpl, debian}, {tpl, debian, ct("b", 101, "template: debian", "options: {unprivileged: false}")}},
		"cores":          {{vm("a", 100)}, {vm("a", 100, "cpu: {type: host, cores: 2}")}},
		"memory":         {{vm("a", 100)}, {vm("a", 100, "memory: 1GiB")}},
		"tags":           {{vm("a", 100)}, {vm("a", 100, "tags: [x]")}},
		"startup":        {{vm("a", 100)}, {vm("a", 100, "options: {startup: order=1}")}},
		"add nic":        {{vm("a", 100)}, {vm("a", 100, nic)}},
		"add disk":       {{vm("a", 100)}, {vm("a", 100, base)}},
		"grow":           {{vm("a", 100, base)}, {vm("a", 100, strings.Replace(base, "1GiB", "2GiB", 1))}},
		"start":          {{vm("a", 100)}, {vm("a", 100, "state: started")}},
		"ct memory":      {{ct("b", 101, "template: debian"), debian}, {ct("b", 101, "template: debian", "memory: 1GiB"), debian}},
		"ct hostname":    {{ct("b", 101, "template: debian"), debian}, {ct("b", 101, "template: debian", "dns: {hostname: other}"), debian}},
		"ct mount":       {{ct("b", 101, "template: debian"), debian}, {ct("b", 101, "template: debian", "mount-points: [{storage: local-lvm, size: 1GiB, mount-point: /srv}]"), debian}},
		"ct startup":     {{ct("b", 101, "template: debian"), debian}, {ct("b", 101, "template: debian", "options: {startup: order=1}"), debian}},
		"delete":         {{vm("a", 100), vm("z", 777)}, {vm("z", 777)}},
	}
	n, refusals := 0, 0
	for role, privs := range roles {
		for what, c := range actions {
			story(t, func(l *lab) {
				l.converge(c[0]...)
				l.role("Test", privs)
				l.grant("Test", "/")
				l.as(l.token())
				l.fails = true
				rep := l.apply(c[1]...)
				if rep.Abort != nil || rep.Result == nil {
					if len(rep.Plan.Errors) == 0 {
						t.Errorf("%s, %s: nothing was tried: %v\n%s", role, what, rep.Abort, text(rep))
					}
					return
				}
				for _, a := range rep.Result.Actions {
					n++
					denied := a.Err != nil && (strings.Contains(a.Err.Error(), "403") || strings.Contains(a.Err.Error(), "Permission"))
					if a.Action.Refused != "" {
						refusals++
					}
					if a.Action.RootOnly {
						continue
					}
					if (a.Action.Refused != "") != denied {
						t.Errorf("%s, %s: %s: predicted %q, PVE said %v", role, what, a.Action.Verb, a.Action.Refused, a.Err)
					}
				}
			})
		}
	}
	if n < 250 || refusals < 50 {
		t.Errorf("only %d actions, %d refusals", n, refusals)
	}
}
