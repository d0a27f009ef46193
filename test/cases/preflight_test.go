package cases_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/reconcile"
)

var place = regexp.MustCompile(`m\d+\.yaml:\d+:\d+`)

// mistake is something that PVE does not take, or takes and then cannot run.
type mistake struct {
	manifest string
	says     string
	// pve is the same in PVE's own terms, for what parsing refuses already and
	// nothing can send: kind, then keys and values of a create.
	pve []string
	// taken is why PVE takes it although it is refused here.
	taken string
}

func mistakes() map[string]mistake {
	disk := func(s string) string { return "disks: [{storage: " + s + ", size: 1GiB}]" }
	one := func(lines ...string) string { return vm("a", 100, lines...) }
	c := func(lines ...string) string { return ct("a", 100, append([]string{"template: debian"}, lines...)...) }
	iso := func(change ...string) string {
		return strings.NewReplacer(append([]string{"seed.iso", "gone.iso"}, change...)...).Replace(seedISO) + "---\n" + one("hardware: {cdrom: {iso: seed}}")
	}
	url := "url: 'http://127.0.0.1:9/x'"
	return map[string]mistake{
		"no such node":               {one("node: pve09"), "pve09", nil, "it is not on the allow-list, so that PVE is not asked"},
		"no such storage":            {one(disk("nfs7")), `no storage "nfs7"`, nil, ""},
		"storage without images":     {one(disk("local")), "does not take images", nil, ""},
		"storage without rootdir":    {c("root: {storage: local, size: 1GiB}"), "does not take rootdir", nil, ""},
		"mount point storage":        {c("mount-points: [{storage: local, size: 1GiB, mount-point: /srv}]"), "does not take rootdir", nil, ""},
		"storage of another node":    {one(disk("only-two")), `no storage "only-two"`, nil, ""},
		"storage that is disabled":   {one(disk("off")), `storage "off" is not active`, nil, ""},
		"EFI disk storage":           {one("hardware: {bios: ovmf, efi-disk: {storage: nfs7}}"), "nfs7", nil, ""},
		"TPM storage":                {one("hardware: {tpm: {storage: nfs7}}"), "nfs7", nil, ""},
		"cloud-init without images":  {one("hardware: {cloud-init: {storage: local}}"), "does not take images", nil, ""},
		"cloud-init storage":         {one("hardware: {cloud-init: {storage: nfs7}}"), "nfs7", nil, ""},
		"ISO on such a storage":      {iso("storage: local", "storage: local-dir", "url: null", url), "does not take iso", nil, ""},
		"image on such a storage":    {strings.NewReplacer("seed.qcow2", "x.qcow2", "storage: local", "storage: local-dir", "url: null", url).Replace(seedImage), "does not take import", nil, ""},
		"CT template on such":        {strings.NewReplacer("name: debian", "name: other", "storage: local", "storage: local-dir", "url: null", url).Replace(debian), "does not take vztmpl", nil, ""},
		"no such bridge":             {one("networks: [{bridge: vmbr9}]"), `no bridge "vmbr9"`, nil, ""},
		"no such bridge, container":  {c("networks: [{bridge: vmbr9}]"), `no bridge "vmbr9"`, nil, ""},
		"bridge of another node":     {one("node: pve02", "networks: [{bridge: vmbr7}]"), `node pve02 has no bridge "vmbr7"`, nil, ""},
		"boot device missing":        {one("options: {boot-order: [scsi0]}"), "scsi0", nil, "PVE checks boot devices in a config write and never at create (facts C)"},
		"ISO file missing":           {iso(), "a missing file cannot be downloaded", []string{"qemu", "ide2", "local:iso/gone.iso,media=cdrom"}, ""},
		"ISO of another node":        {iso("seed.iso", "seed.iso", "node: pve01", "node: pve02"), "not placed on node pve01", nil, "the recorded file happens to be on pve01 as well"},
		"image file missing":         {strings.Replace(seedImage, "seed.qcow2", "gone.qcow2", 1) + "---\n" + one("disks: [{storage: local-lvm, image: seed}]"), "a missing file cannot be downloaded", []string{"qemu", "scsi0", "local-lvm:0,import-from=local:import/gone.qcow2"}, ""},
		"no such pool":               {one("pool: nopool"), `no pool "nopool"`, nil, ""},
		"no such PCI mapping":        {one("hardware: {pci-devices: [{mapping: gpu9}]}"), "gpu9", nil, ""},
		"PCI mapping elsewhere":      {one("hardware: {pci-devices: [{mapping: gpu2}]}"), "pve01", nil, ""},
		"more cores than the node":   {one("cpu: {type: host, cores: 64}", "state: started"), "cores", nil, ""},
		"memory below PVE's least":   {one("memory: 8MiB"), "memory", []string{"qemu", "memory", "8"}, ""},
		"unknown CPU model":          {one("cpu: {type: pentium9, cores: 1}"), "pentium", []string{"qemu", "cpu", "pentium9"}, ""},
		"unknown machine":            {one("hardware: {machine: q36}"), "machine", []string{"qemu", "machine", "q36"}, ""},
		"EFI disk without OVMF":      {one("hardware: {bios: seabios, efi-disk: {storage: local-lvm}}"), "ovmf", nil, "PVE makes the disk and nothing ever reads it"},
		"name that is no DNS name":   {one("pve-name: under_score"), "DNS name", []string{"qemu", "name", "under_score"}, ""},
		"hostname likewise":          {c("dns: {hostname: under_score}"), "DNS name", []string{"lxc", "hostname", "under_score", "rootfs", "local-lvm:1"}, ""},
		"interface twice":            {c("networks: [{bridge: vmbr0, iface: eth0}, {bridge: vmbr0, iface: eth0}]"), "eth0", nil, "PVE takes it and the second card never comes up"},
		"mount path twice":           {c("mount-points: [{storage: local-lvm, size: 1GiB, mount-point: /srv}, {storage: local-lvm, size: 1GiB, mount-point: /srv}]"), "/srv is taken", nil, "PVE takes it and the second mount hides the first"},
		"multicast MAC":              {one("networks: [{bridge: vmbr0, mac: '01:24:11:00:00:01'}]"), "multicast", []string{"qemu", "net0", "virtio=01:24:11:00:00:01,bridge=vmbr0"}, ""},
		"ssd on virtio":              {one("disks: [{interface: virtio0, storage: local-lvm, size: 1GiB, ssd: true}]"), "ssd", []string{"qemu", "virtio0", "local-lvm:1,ssd=1"}, ""},
		"VLAN out of range":          {one("networks: [{bridge: vmbr0, vlan: 5000}]"), "4094", []string{"qemu", "net0", "virtio,bridge=vmbr0,tag=5000"}, ""},
		"iothread on sata":           {one("disks: [{interface: sata0, storage: local-lvm, size: 1GiB, iothread: true}]"), "iothread", []string{"qemu", "sata0", "local-lvm:1,iothread=1"}, ""},
		"tag with a dash first":      {one("tags: ['-a']"), "tag", []string{"qemu", "tags", "-a"}, ""},
		"unknown key":                {one("extra: {foo: 1}"), "foo", []string{"qemu", "foo", "1"}, ""},
		"clone of no template":       {vm("b", 101, disk("local-lvm")) + "---\n" + one("clone: b"), "a TemplateVM is wanted", nil, "PVE clones plain VMs too; a template is the one that does not change meanwhile"},
		"clone from another node":    {spec("TemplateVM", "golden", 900, "node: pve02", disk("local-lvm")) + "---\n" + one("clone: golden"), "made on the template's node", nil, "PVE would need shared storage for it"},
		"container without template": {ct("a", 100), "template", []string{"lxc-bare", "rootfs", "local-lvm:1"}, ""},
	}
}

func preflightState(s *pvesim.State) {
	s.Nodes[0].Bridges = append(s.Nodes[0].Bridges, "vmbr7")
	two := *s.Nodes[1]
	two.Bridges = []string{"vmbr0", "vmbr1"}
	s.Nodes[1] = &two
	s.Storages = append(s.Storages, &pvesim.Storage{ID: "only-two", Type: "dir", Content: []string{"images"}, Nodes: []string{"pve02"}, Props: map[string]string{"path": "/two"}},
		&pvesim.Storage{ID: "off", Type: "dir", Content: []string{"images"}, Disabled: true, Props: map[string]string{"path": "/off"}})
	s.Pools = map[string]*pvesim.Pool{"dev": {ID: "dev", VMs: map[int]bool{}, Storages: map[string]bool{}}}
	s.Nodes[0].PCI = []string{"0000:01:00.0"}
	s.Mappings = map[string]*pvesim.Mapping{
		"pci/gpu1": {Kind: "pci", ID: "gpu1", Map: []string{"node=pve01,path=0000:01:00.0,id=10de:1234"}},
		"pci/gpu2": {Kind: "pci", ID: "gpu2", Map: []string{"node=pve02,path=0000:01:00.0,id=10de:1234"}},
	}
}

// Each mistake is an error of its object in the diff, with file and line, and
// the other object goes on; and PVE refuses each, or cannot start what it made.
func TestPreflight(t *testing.T) {
	for name, c := range mistakes() {
		t.Run(name, func(t *testing.T) {
			story(t, func(l *lab) {
				ms := append([]string{debian, vm("fine", 777)}, strings.Split(c.manifest, "---\n")...)
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
				if c.taken == "" && l.takes(c, ms) {
					t.Error("PVE takes it and runs it: it is no mistake")
				}
			}, preflightState)
		})
	}
}

// takes reports whether PVE takes a mistake, and starts the guest.
func (l *lab) takes(c mistake, manifests []string) bool {
	l.Helper()
	if c.pve == nil {
		return l.unchecked(manifests...)
	}
	pairs := append([]string{"vmid", "100"}, c.pve[1:]...)
	kind := strings.TrimSuffix(c.pve[0], "-bare")
	if c.pve[0] == "lxc" {
		pairs = append(pairs, "ostemplate", "local:vztmpl/debian-13-tiny_13.1-1_amd64.tar.gz")
	}
	_, err := l.try(rootToken, "POST", "/nodes/pve01/"+kind, pairs...)
	return err == nil
}

// unchecked applies what would be planned if nobody looked at what the cluster
// has, and starts guest 100; it reports whether all of that worked.
func (l *lab) unchecked(manifests ...string) bool {
	l.Helper()
	l.write(manifests...)
	c, err := l.load(l.Context())
	if err != nil {
		l.Fatalf("parsing refuses it: say what it is in PVE's terms: %v", err)
	}
	client, err := l.connect(c)
	if err != nil {
		l.Fatal(err)
	}
	snap, err := live.Read(l.Context(), client.Reader(), reconcile.Want(c))
	if err != nil {
		l.Fatal(err)
	}
	p := plan.Make(c, snap, plan.PolicyOf(c.Reconcile))
	if len(p.Errors) > 0 {
		l.Fatalf("refused without a look at the cluster: say what it is in PVE's terms: %+v", p.Errors)
	}
	res := apply.Run(l.Context(), client, p, apply.Options{})
	l.drain()
	for _, a := range res.Actions {
		if a.Err != nil {
			return false
		}
	}
	if l.conf(100) == nil || l.running(100) {
		return true
	}
	_, err = l.try(rootToken, "POST", l.path(100)+"/status/start")
	return err == nil
}

// What looks like those mistakes and is none passes, is made and starts: a
// check that refuses what PVE takes would be as bad as none.
func TestPreflightLetsPass(t *testing.T) {
	on := "state: started"
	for name, m := range map[string]string{
		"all of the node's cores":   vm("a", 100, "cpu: {type: host, cores: 8}", on),
		"more container cores":      ct("a", 100, "template: debian", "cpu: {cores: 64}", on),
		"more memory than the node": vm("a", 100, "memory: 1TiB", on),
		"shared storage":            vm("a", 100, "disks: [{storage: shared, size: 1GiB}]", on),
		"storage of its own node":   vm("a", 100, "node: pve02", "disks: [{storage: only-two, size: 1GiB}]", on),
		"bridge of its own node":    vm("a", 100, "networks: [{bridge: vmbr7, vlan: 4094}]", on),
		"OVMF without an EFI disk":  vm("a", 100, "hardware: {bios: ovmf}", on),
		"mapping of its own node":   vm("a", 100, "hardware: {pci-devices: [{mapping: gpu1}]}", on),
		"a pool":                    vm("a", 100, "pool: dev", on),
		"boot from a card":          vm("a", 100, "networks: [{bridge: vmbr0}]", "options: {boot-order: [net0]}", on),
		"more than the thin pool":   vm("a", 100, "disks: [{storage: local-lvm, size: 500GiB}]", on),
		"an ISO that is there":      seedISO + "---\n" + vm("a", 100, "hardware: {cdrom: {iso: seed}}", on),
		"an image that is there":    seedImage + "---\n" + vm("a", 100, "disks: [{storage: local-lvm, image: seed}]", on),
		"one MAC twice":             vm("a", 100, "networks: [{bridge: vmbr0, mac: 'BC:24:11:00:00:01'}]", on) + "---\n" + vm("b", 101, "networks: [{bridge: vmbr0, mac: 'BC:24:11:00:00:01'}]"),
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(l *lab) {
				l.converge(append([]string{debian}, strings.Split(m, "---\n")...)...)
				if !l.running(100) {
					t.Error("it does not run")
				}
			}, preflightState)
		})
	}
}

// A node that is down is no mistake of the manifest's: its objects are
// unknown, nothing is planned for them, and the others go on.
func TestPreflightNodeDown(t *testing.T) {
	story(t, func(l *lab) {
		l.fails = true
		rep := l.diff(vm("a", 100, "node: pve02"), vm("fine", 777))
		l.wantVerbs(rep, "Create 777")
		if l.stateOf(rep, "a") != plan.Unknown {
			t.Errorf("%s", text(rep))
		}
		l.says(rep, "pve02")
	}, func(s *pvesim.State) { s.Nodes[1].Offline = true })
}

// A vmid that a guest of another type has is nobody's mistake to be written
// over: not one write goes to it, whichever way round.
func TestPreflightForeignType(t *testing.T) {
	for _, theirs := range []string{"qemu", "lxc"} {
		story(t, func(l *lab) {
			m := ct("a", 100, "template: debian")
			pairs := []string{"name", "a"}
			if theirs == "lxc" {
				m, pairs = vm("a", 100), []string{"hostname", "a", "rootfs", "local-lvm:1"}
			}
			l.make(theirs, 100, pairs...)
			rep := l.diff(debian, m, vm("fine", 777))
			l.wantVerbs(rep, "Create 777")
			l.says(rep, fmt.Sprintf("vmid 100 is a %s", map[string]string{"qemu": "VM", "lxc": "container"}[theirs]))
		})
	}
}

// A cluster may keep ranges of vmids for each kind; a manifest outside of them
// is refused before PVE is asked anything.
func TestF8_IDsArePolicy(t *testing.T) {
	story(t, func(l *lab) {
		l.settings = "      vmid-ranges: {VM: 100-199, LXC: 300-399}\n"
		for id, ok := range map[int]bool{100: true, 199: true, 200: false, 350: false} {
			err := l.loadError(vm("a", id))
			if (err == "") != ok || !ok && !strings.Contains(err, "is not in 100-199, which clusters/lab/config.yaml keeps for VM") {
				t.Errorf("%d: %s", id, err)
			}
		}
	})
}
