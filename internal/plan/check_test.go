package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/repo"
)

// surveyed adds what a survey of both nodes found.
func surveyed(s *live.Snapshot) *live.Snapshot {
	s.Inventory = map[string]*live.Inventory{}
	for _, n := range []string{"pve01", "pve02"} {
		s.Inventory[n] = &live.Inventory{Bridges: map[string]bool{"vmbr0": true}, Storages: map[string]live.Storage{
			"local-lvm": {Type: "lvmthin", Active: true, Content: map[string]bool{"images": true, "rootdir": true}},
			"local":     {Type: "dir", Active: true, Content: map[string]bool{"iso": true}},
		}}
	}
	s.PCI = map[string][]string{"gpu": {"pve02"}}
	s.Pools = map[string]bool{"prod": true}
	return s
}

func TestPreflight(t *testing.T) {
	replace := func(a, b string) string { return strings.Replace(webSpec, a, b, 1) }
	tests := []struct{ name, spec, want string }{
		{"fine", webSpec, ""},
		{"storage missing", replace("local-lvm", "ceph"), `m0.yaml:12:17: disks[0].storage: node pve01 has no storage "ceph"`},
		{"storage without images", replace("local-lvm", "local"), `storage "local" on node pve01 does not take images: its content types are iso`},
		{"bridge missing", replace("vmbr0", "vmbr9"), `networks[0].bridge: node pve01 has no bridge "vmbr9": it has vmbr0`},
		{"pool missing", webSpec + "pool: dev\n", `the cluster has no pool "dev": it has prod`},
		{"mapping elsewhere", webSpec + "hardware: {pci-devices: [{slot: 0, mapping: gpu}]}\n", `PCI mapping "gpu" has no device on node pve01`},
		{"mapping missing", webSpec + "hardware: {pci-devices: [{slot: 0, mapping: tpu}]}\n", `the cluster has no PCI mapping "tpu"`},
		{"node missing", replace("pve01", "pve09"), "node: the cluster has no node pve09"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := Make(cluster(t, manifest("VM", "web", tt.spec), manifest("LXC", "dns", ctSpec)), surveyed(free(snapshot(guest(200, "pve01", "lxc", ctConfig)), 100)), Policy{})
			if tt.want == "" {
				if len(p.Errors) > 0 {
					t.Error(lines(p))
				}
				return
			}
			want(t, p, tt.want, "VM:web is failed")
			wantNoWrites(t, p)
		})
	}
}

// PVE compares memory with the balloon that it has, also where that goes in the
// same write, so a manifest that declares one of them can be too much.
func TestPreflightBalloon(t *testing.T) {
	for spec, want := range map[string]string{
		"memory: 2GiB": "", "memory: 1GiB": "",
		"memory: 512MiB":                  "m0.yaml:9:11: memory: balloon would be 1024 MiB and memory 512 MiB",
		"memory: 512MiB\nballoon: null":   "m0.yaml:9:11: memory: balloon would be 1024 MiB and memory 512 MiB",
		"memory: 512MiB\nballoon: 512MiB": "",
		"memory: 512MiB\nballoon: 0":      "",
		"memory: 2GiB\nballoon: null":     "",
	} {
		c := cluster(t, manifest("VM", "web", strings.Replace(webSpec, "memory: 2GiB", spec, 1)))
		p := Make(c, surveyed(snapshot(guest(100, "pve01", "qemu", webConfig+"balloon: 1024\n"))), Policy{})
		if got := lines(p); (len(p.Errors) > 0) != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%q: %s", spec, got)
		}
	}
}

// A clone's disks are its template's: only here is it known whether the boot
// order names one of them.
func TestPreflightBootOrder(t *testing.T) {
	for order, ok := range map[string]bool{"[scsi0, net0]": true, "[scsi0, scsi5]": false} {
		c := cluster(t, manifest("TemplateVM", "golden", goldenSpec), manifest("VM", "app", cloneSpec+"options: {boot-order: "+order+"}\n"))
		p := Make(c, surveyed(free(snapshot(guest(900, "pve01", "qemu", goldenConfig)), 101)), Policy{})
		if got := strings.Contains(lines(p), "boot order names scsi5, which the guest will not have"); got == ok {
			t.Errorf("%s:\n%s", order, lines(p))
		}
	}
}

// What the recordings say of rights, action by action.
func TestRefused(t *testing.T) {
	role := func(privs ...string) map[string]bool {
		out := map[string]bool{}
		for _, p := range privs {
			out[p] = true
		}
		return out
	}
	all := role("VM.Allocate", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Disk", "VM.Config.Network", "VM.Config.Options", "VM.Config.HWType", "VM.PowerMgmt", "VM.Config.CDROM", "VM.Config.Cloudinit")
	base := func() map[string]map[string]bool {
		return map[string]map[string]bool{"/vms": all, "/storage/local-lvm": role("Datastore.AllocateSpace"), "/sdn/zones/localnetwork": role("SDN.Use")}
	}
	without := func(path string, privs ...string) map[string]map[string]bool {
		p := base()
		if privs == nil {
			delete(p, path)
			return p
		}
		m := map[string]bool{}
		for k := range p[path] {
			m[k] = true
		}
		for _, x := range privs {
			delete(m, x)
		}
		p[path] = m
		return p
	}
	tests := []struct {
		name  string
		spec  string
		perms map[string]map[string]bool
		o     live.Options
		want  string // "" = not refused
	}{
		{"enough", webSpec, base(), live.Options{}, ""},
		{"bridge", webSpec, without("/sdn/zones/localnetwork"), live.Options{}, "net0 needs SDN.Use on /sdn/zones/localnetwork/vmbr0"},
		{"storage", webSpec, without("/storage/local-lvm"), live.Options{}, "scsi0 needs Datastore.AllocateSpace on /storage/local-lvm"},
		{"cpu", webSpec, without("/vms", "VM.Config.CPU"), live.Options{}, "cores needs VM.Config.CPU on /vms/100"},
		{"startup", webSpec + "options: {startup: order=3}\n", base(), live.Options{}, "startup needs Sys.Modify on /"},
		{"a tag of the datacenter", webSpec + "tags: [prod]\n", base(), live.Options{RegisteredTags: []string{"prod"}}, "tag prod needs Sys.Modify on /"},
		{"our tag where tags are listed", webSpec, base(), live.Options{UserTagAccess: "list"}, "tag proxops needs Sys.Modify on /"},
		{"our tag is on the list", webSpec, base(), live.Options{UserTagAccess: "list", AllowedTags: []string{"proxops"}}, ""},
		{"raw device", webSpec + "hardware: {pci-devices: [{slot: 0, device: \"0000:01:00.0\"}]}\n", base(), live.Options{}, "root@pam only"},
		{"rights on the pool", webSpec + "pool: prod\n", func() map[string]map[string]bool {
			p := without("/vms")
			p["/pool/prod"] = all
			p["/vms/100"] = map[string]bool{"VM.Config.Options": true} // asked on the guest itself, for the tags
			return p
		}(), live.Options{}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := free(snapshot(), 100)
			s.Perms, s.Options = tt.perms, tt.o
			p := Make(cluster(t, manifest("VM", "web", tt.spec)), s, Policy{})
			if got := p.Actions[0].Refused; (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("refused: %q, want %q", got, tt.want)
			}
			s.RootTicket = true
			if got := Make(cluster(t, manifest("VM", "web", tt.spec)), s, Policy{}).Actions[0].Refused; got != "" {
				t.Errorf("root@pam is refused: %q", got)
			}
		})
	}
}

// A root-only key does not keep the others from being written.
func TestRootOnlyApart(t *testing.T) {
	spec := strings.Replace(ctSpec, "memory: 512MiB", "memory: 1GiB", 1) + "options: {keyctl: true}\n"
	p := Make(cluster(t, manifest("LXC", "dns", spec)), snapshot(guest(200, "pve01", "lxc", ctConfig+"unprivileged: 1")), Policy{})
	if len(p.Actions) != 2 || p.Actions[0].RootOnly || !p.Actions[1].RootOnly {
		t.Fatalf("want two updates, the second root-only:\n%s", lines(p))
	}
}

// many is a cluster of n converged VMs.
func many(t testing.TB, n int) (*repo.Cluster, *live.Snapshot) {
	var texts []string
	s := snapshot()
	for i := range n {
		id := 1000 + i
		name := fmt.Sprintf("web%d", i)
		texts = append(texts, manifest("VM", name, strings.Replace(webSpec, "vmid: 100", fmt.Sprintf("vmid: %d", id), 1)))
		s.Guests[id] = guest(id, "pve01", "qemu", strings.NewReplacer("name: web", "name: "+name, "vm-100", fmt.Sprintf("vm-%d", id)).Replace(webConfig))
	}
	return cluster(t, texts...), s
}

func encode(t *testing.T, p Plan) string {
	t.Helper()
	for i := range p.Actions {
		p.Actions[i].Kind = nil
	}
	for i := range p.Objects {
		p.Objects[i].Kind = nil
	}
	for i := range p.Suppressed {
		p.Suppressed[i].Kind = nil
	}
	b, err := json.Marshal(struct {
		A []Action
		B []Anomaly
		C []ObjectError
		D []Suppressed
		E []Object
		F []string
	}{p.Actions, p.Anomalies, p.Errors, p.Suppressed, p.Objects, p.Notes})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Equal inputs give equal bytes, in whatever order they came.
func TestDeterministic(t *testing.T) {
	c, s := many(t, 30)
	for id, g := range s.Guests {
		if id%3 == 0 {
			text := "4096"
			e := g.Config["memory"]
			e.Value = &text
			g.Config["memory"] = e
		}
		if id%7 == 0 {
			delete(s.Guests, id)
			s.Free[id] = true
		}
		if id%11 == 0 {
			g.Tags = nil
			g.Name = "mail"
		}
	}
	for id := 500; id < 510; id++ {
		s.Guests[id] = old(id)
	}
	first := encode(t, Make(c, s, Policy{PruneBudget: 3}))
	for range 20 {
		rand.Shuffle(len(c.Resources), func(i, j int) { c.Resources[i], c.Resources[j] = c.Resources[j], c.Resources[i] })
		if got := encode(t, Make(c, s, Policy{PruneBudget: 3})); got != first {
			t.Fatal("another order of the resources gives another plan")
		}
	}
}

func BenchmarkMake2000(b *testing.B) {
	c, s := many(b, 2000)
	b.ReportAllocs()
	for b.Loop() {
		if p := Make(c, s, Policy{}); len(p.Actions) > 0 {
			b.Fatal("not converged")
		}
	}
}
