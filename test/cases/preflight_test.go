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
