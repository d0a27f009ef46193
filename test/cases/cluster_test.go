package cases_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
)

// What only root@pam may write is told before anything is written, field by
// field, and PVE refuses exactly that.
func TestD1_RootOnly(t *testing.T) {
	for _, c := range []struct{ kind, line, says string }{
		{"LXC", "options: {keyctl: true}", "keyctl"}, {"LXC", "options: {fuse: true}", "fuse"}, {"LXC", "options: {mount: [nfs]}", "mount"},
		{"LXC", "options: {mknod: true}", "mknod"}, {"LXC", "bind-mounts: [{host-path: /srv/data, mount-point: /data}]", "bind"},
		{"VM", "hardware: {pci-devices: [{device: '0000:01:00.0'}]}", "device"}, {"VM", "hardware: {serial0: /dev/ttyS0}", "serial0"},
		{"VM", "extra: {args: -foo}", "args"}, {"VM", "extra: {usb0: 'host=1234:5678'}", "usb0"}, {"VM", "extra: {hookscript: 'local:snippets/x.pl'}", ""},
		{"LXC", "extra: {hookscript: 'local:snippets/x.pl'}", "hookscript"}, {"LXC", "extra: {dev0: /dev/net/tun}", "dev0"},
		{"VM", "extra: {parallel0: /dev/parport0}", "parallel0"},
	} {
		story(t, func(l *lab) {
			ms := []string{spec(c.kind, "a", 100, "template: debian"), debian}
			if c.kind == "VM" {
				ms = []string{vm("a", 100)}
			}
			l.converge(ms...)
			ms[0] = spec(c.kind, "a", 100, "template: debian", c.line)
			if c.kind == "VM" {
				ms = []string{vm("a", 100, c.line)}
			}
			l.fails = true
			rep := l.diff(ms...)
			refused := ""
			for _, a := range rep.Plan.Actions {
				refused += a.Refused
			}
			if c.says == "" {
				return // PVE takes it from a token with rights; only whether it is there counts
			}
			if !strings.Contains(refused, "root@pam") || !strings.Contains(refused, c.says) {
				t.Errorf("%s: the plan says %q", c.line, refused)
			}
			l.w.View(func(s *pvesim.State) { s.Nodes[0].PCI = []string{"0000:01:00.0"} })
			for _, a := range rep.Plan.Actions {
				step, ok := a.Do.(plan.UpdateStep)
				if !ok {
					continue
				}
				var pairs []string
				for _, p := range step.Params {
					pairs = append(pairs, p.Key, p.Value.Reveal())
				}
				if _, err := l.try(rootToken, "PUT", l.path(100)+"/config", pairs...); err == nil {
					t.Errorf("%s: predicted a refusal, and PVE takes %v", c.line, pairs)
				}
			}
			if c.kind == "VM" && strings.Contains(c.line, "pci") {
				return // the lab's node has no such device to start with
			}
		})
	}
}

// A token without rights of its own sees nothing: that is said, and nothing is
// taken for absent.
func TestD2_PrivsepToken(t *testing.T) {
	story(t, func(l *lab) {
		l.converge(vm("a", 100))
		l.as("gitops@pve!none=55555555-5555-4555-8555-555555555555")
		l.fails = true
		rep := l.apply(vm("a", 100), vm("b", 101))
		if rep.Writes != 0 {
			t.Errorf("%d writes by a token that sees nothing", rep.Writes)
		}
		l.says(rep, "privilege")
	})
}

const poolPrivs = "VM.Allocate VM.Audit VM.Clone VM.Config.CPU VM.Config.Disk VM.Config.Memory VM.Config.Network VM.Config.Options VM.Config.HWType VM.Config.Cloudinit VM.Config.CDROM VM.PowerMgmt Pool.Audit Pool.Allocate"

// Rights on a pool are enough for the guests of the pool.
func TestD3_RightsOnAPool(t *testing.T) {
	story(t, func(l *lab) {
		l.api("POST", "/pools", "poolid", "dev")
		l.role("Dev", poolPrivs)
		l.role("Base", "Datastore.AllocateSpace Datastore.Audit SDN.Use Sys.Audit")
		l.grant("Dev", "/pool/dev")
		l.grant("Base", "/storage/local-lvm", "/sdn/zones/localnetwork/vmbr0", "/nodes")
		l.as(l.token())
		m := vm("a", 100, "pool: dev", "networks: [{bridge: vmbr0}]", "disks: [{storage: local-lvm, size: 1GiB}]")
		if rep := l.diff(m); rep.Plan.Actions[0].Refused != "tags needs VM.Config.Options on /vms/100" {
			t.Errorf("predicted: %q", rep.Plan.Actions[0].Refused) // PVE asks for tags on the guest, not on its pool
		}
		l.role("Tagger", "VM.Config.Options")
		l.grant("Tagger", "/vms/100")
		rep := l.converge(m)
		for _, a := range rep.Plan.Actions {
			if a.Refused != "" {
				t.Errorf("%s: predicted: %s", a.Verb, a.Refused)
			}
		}
		l.converge(vm("a", 100, "pool: dev", "memory: 1GiB", "networks: [{bridge: vmbr0}]", "disks: [{storage: local-lvm, size: 1GiB}]"))
	})
}

// The missing right and its path are named before anything is written.
func TestD4_MissingRightsNamed(t *testing.T) {
	story(t, func(l *lab) {
		l.api("POST", "/pools", "poolid", "dev")
		l.role("Dev", poolPrivs)
		l.grant("Dev", "/pool/dev")
		l.as(l.token())
		l.fails = true
		rep := l.apply(vm("a", 100, "pool: dev", "networks: [{bridge: vmbr0}]", "disks: [{storage: local-lvm, size: 1GiB}]"))
		if l.conf(100) != nil {
			t.Fatal("it was made")
		}
		refused := ""
		for _, a := range rep.Plan.Actions {
			refused += a.Refused
		}
		for _, e := range rep.Plan.Errors {
			refused += e.Text
		}
		for _, want := range []string{"/sdn/zones/localnetwork/vmbr0", "SDN.Use"} {
			if !strings.Contains(refused, want) {
				t.Errorf("the plan says %q", refused)
			}
		}
	})
}

func TestD6_DownloadRights(t *testing.T) {
	story(t, func(l *lab) {
		l.role("Store", "Datastore.AllocateTemplate Datastore.AllocateSpace Datastore.Audit Sys.Audit")
		l.grant("Store", "/storage", "/nodes")
		l.as(l.token())
		l.fails = true
		rep := l.diff(strings.NewReplacer("seed.iso", "new.iso", "url: null", "url: 'https://images.example.org/new.iso'").Replace(seedISO))
		l.wantVerbs(rep, "Download local:iso/new.iso")
		l.says(rep, "Sys.AccessNetwork")
	})
}

// Every right that a plan names is one that PVE 9 has.
func TestD7_NoVMMonitor(t *testing.T) {
	story(t, func(l *lab) {
		known := map[string]bool{}
		l.w.View(func(s *pvesim.State) {
			for _, p := range s.Access.Roles["Administrator"] {
				known[p] = true
			}
		})
		if known["VM.Monitor"] || !known["VM.GuestAgent.Audit"] {
			t.Fatal("the simulator is no PVE 9")
		}
		l.api("POST", "/pools", "poolid", "dev")
		full := []string{debian, vm("a", 100, "pool: dev", "state: started", "networks: [{bridge: vmbr0, vlan: 7}]", "disks: [{storage: local-lvm, size: 1GiB}]", "options: {startup: order=1}",
			"hardware: {cloud-init: {storage: local-lvm}, cdrom: {iso: none}}", "cloud-init-data: {ci-user: x}"), ct("b", 101, "template: debian", "networks: [{bridge: vmbr0}]", "options: {unprivileged: false}")}
		_, p, snap := l.planned(full...)
		n := 0
		for _, a := range p.Actions {
			for _, need := range plan.Needs(a, snap) {
				for _, priv := range need.Privs {
					if n++; !known[priv] {
						t.Errorf("%s needs %s, which PVE 9 does not have", need.For, priv)
					}
				}
			}
		}
		if n < 10 {
			t.Errorf("only %d needs", n)
		}
	})
}

// A second factor is no half login.
func TestD8_SecondFactor(t *testing.T) {
	story(t, func(l *lab) {
		l.as("")
		l.w.View(func(s *pvesim.State) {
			s.Access.Users["root@pam"].TFA = []*pvesim.TFAEntry{{ID: "totp0", Type: "totp", Secret: "JBSWY3DPEHPK3PXP"}}
		})
		l.fails = true
		rep := l.diff(vm("a", 100))
		l.says(rep, "second factor", "token")
	})
}

// A node that is down stops what lives there and nothing else.
func TestE1_NodeDown(t *testing.T) {
	story(t, func(l *lab) {
		ms := func(d string) []string {
			return []string{vm("a", 100, "pve-description: "+d), vm("b", 101, "node: pve02", "pve-description: "+d), vm("gone", 102, "pve-description: "+d)}
		}
		l.converge(ms("x")...)
		l.w.View(func(s *pvesim.State) { s.Nodes[1].Offline = true })
		rep := l.apply(ms("y")[:2]...)
		l.wantVerbs(rep, "Update 100")
		if l.stateOf(rep, "b") != plan.Unknown || len(rep.Plan.Suppressed) == 0 {
			t.Errorf("%s; suppressed %+v", l.stateOf(rep, "b"), rep.Plan.Suppressed)
		}
		rep = l.apply(append(ms("y")[:2], vm("new", 103, "node: pve02"))...)
		l.wantVerbs(rep, "")
		l.w.View(func(s *pvesim.State) { s.Nodes[1].Offline = false })
		l.converge(ms("y")...)
	})
}

type dead struct {
	http.RoundTripper
	host string
}

func (d dead) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Hostname() == d.host {
		return nil, fmt.Errorf("dial tcp %s: connect: no route to host", r.URL.Host)
	}
	return d.RoundTripper.RoundTrip(r)
}

func TestE2_Endpoints(t *testing.T) {
	story(t, func(l *lab) {
		l.settings = "      endpoints: ['https://pve02:8006']\n"
		l.wire = dead{l.w, "pve01"}
		l.converge(vm("a", 100))
	})
	story(t, func(l *lab) {
		l.wire = dead{l.w, "pve01"}
		l.fails = true
		rep := l.diff(vm("a", 100))
		if rep.Abort == nil {
			t.Error("a dead endpoint is no error")
		}
	})
}

// HA groups became rules in PVE 9: they are not asked for.
func TestE3_NoHAGroups(t *testing.T) {
	story(t, func(l *lab) {
		l.w.View(func(s *pvesim.State) {
			s.HA = map[string]*pvesim.HAResource{"vm:100": {SID: "vm:100", State: "started"}}
		})
		m := vm("a", 100, "state: started", "disks: [{storage: shared, size: 1GiB}]")
		l.converge(m)
		l.api("POST", l.path(100)+"/status/stop")
		l.apply(m)
		for _, r := range l.w.Requests() {
			if strings.Contains(r.Path, "/ha/groups") {
				t.Errorf("%s %s", r.Method, r.Path)
			}
		}
	})
}

func TestE4_TemplatePerNode(t *testing.T) {
	story(t, func(l *lab) {
		one := spec("TemplateVM", "golden", 900, "disks: [{storage: local-lvm, size: 1GiB}]")
		two := spec("TemplateVM", "golden-two", 901, "node: pve02", "disks: [{storage: local-lvm, size: 1GiB}]")
		e := l.loadError(one, two, vm("a", 100, "node: pve02", "clone: golden"))
		if !strings.Contains(e, "clone") || !strings.Contains(e, "pve01") || !strings.Contains(e, "pve02") || !strings.Contains(e, "m002.yaml:") {
			t.Errorf("%q", e)
		}
		l.converge(one, two, vm("a", 100, "clone: golden"), vm("b", 101, "node: pve02", "clone: golden-two"))
	})
}

// No storage is invented, anywhere.
func TestE5_NoDefaultStorage(t *testing.T) {
	story(t, func(l *lab) {
		for _, m := range []string{vm("a", 100, "disks: [{size: 1GiB}]"), vm("a", 100, "hardware: {cloud-init: {enabled: true}}"), vm("a", 100, "hardware: {bios: ovmf, efi-disk: {template: 4m}}"),
			vm("a", 100, "hardware: {tpm: {version: v2.0}}"), ct("a", 100, "root: {size: 1GiB}"), ct("a", 100, "mount-points: [{size: 1GiB, mount-point: /srv}]")} {
			if e := l.loadError(m); !strings.Contains(e, "storage") {
				t.Errorf("taken without a storage: %q\n%s", e, m)
			}
		}
		tpl := spec("TemplateVM", "golden", 900, "disks: [{storage: local-dir, size: 1GiB}]")
		l.converge(tpl, vm("a", 100, "clone: golden"))
		for _, r := range l.w.Requests() {
			if st := r.Params.Str("storage"); st != "" && r.Method != "GET" {
				t.Errorf("%s %s storage=%s", r.Method, r.Path, st)
			}
		}
		if got := l.conf(100)["scsi0"]; !strings.HasPrefix(got, "local-dir:") {
			t.Errorf("the clone's disk is %s", got)
		}
	})
}

func TestF1_ImgIsNoDiskImage(t *testing.T) {
	story(t, func(l *lab) {
		m := strings.NewReplacer("seed.qcow2", "noble-server-cloudimg-amd64.img", "url: null", "url: 'https://images.example.org/noble-server-cloudimg-amd64.img'").Replace(seedImage)
		if e := l.loadError(m); !strings.Contains(e, ".qcow2") || !strings.Contains(e, "filename") {
			t.Errorf("%q", e)
		}
		if e := l.loadError(strings.Replace(m, "amd64.img\n", "amd64.qcow2\n", 1)); strings.Contains(e, "filename") && !strings.Contains(m, "filename: noble") {
			t.Errorf("another name than the URL's: %q", e)
		}
	})
}

func TestF2_CompressedImages(t *testing.T) {
	story(t, func(l *lab) {
		for _, end := range []string{".qcow2.xz", ".raw.gz", ".qcow2.bz2", ".raw.zst"} {
			m := strings.NewReplacer("filename: seed.qcow2", "filename: x.qcow2", "url: null", "url: 'https://images.example.org/x"+end+"'").Replace(seedImage)
			if e := l.loadError(m); !strings.Contains(e, "url") || !strings.Contains(e, "compress") {
				t.Errorf("%s: %q", end, e)
			}
		}
	})
}

// Raw lxc lines, which PVE answers as an array, harm nothing and are gaps.
func TestF5_RawLXCLines(t *testing.T) {
	story(t, func(l *lab) {
		m := []string{ct("a", 100, "template: debian"), debian}
		l.converge(m...)
		lines := []string{"lxc.mount.entry: /run/x mnt/x none bind 0 0", "lxc.cgroup2.devices.allow: c 10:229 rwm"}
		l.edit(100, func(g *guest) { g.Raw = lines })
		l.settled(m...)
		l.converge(ct("a", 100, "template: debian", "memory: 1GiB"), debian)
		l.edit(100, func(g *guest) {
			if strings.Join(g.Raw, "\n") != strings.Join(lines, "\n") {
				t.Errorf("raw lines: %q", g.Raw)
			}
		})
	})
}

// Unprivileged is PVE's default and ours says so; it is create-only.
func TestF6_Unprivileged(t *testing.T) {
	story(t, func(l *lab) {
		m := ct("a", 100, "template: debian")
		l.converge(m, debian)
		l.wantConf(100, "unprivileged", "1")
		l.converge(m, debian, ct("b", 101, "template: debian", "options: {unprivileged: false}"))
		if l.conf(101)["unprivileged"] == "1" {
			t.Error("a privileged container is unprivileged")
		}
		rep := l.apply(ct("a", 100, "template: debian", "options: {unprivileged: false}"), ct("b", 101, "template: debian", "options: {unprivileged: true}"), debian)
		l.wantVerbs(rep, "")
		l.says(rep, "live is 1, the manifest wants false", "recreate needed")
		if len(rep.Plan.Anomalies) != 2 {
			t.Errorf("%s", text(rep))
		}
	})
}

// A mount that changes under a running container waits for its restart.
func TestF7_MountWaits(t *testing.T) {
	story(t, func(l *lab) {
		m := func(path string) []string {
			return []string{debian, ct("a", 100, "template: debian", "state: started", "mount-points: [{storage: local-lvm, size: 1GiB, mount-point: "+path+"}]")}
		}
		l.converge(m("/srv")...)
		l.apply(m("/opt")...)
		rep := l.diff(m("/opt")...)
		l.wantVerbs(rep, "")
		if l.stateOf(rep, "a") != plan.WaitingRestart {
			t.Errorf("%s:\n%s", l.stateOf(rep, "a"), text(rep))
		}
		l.says(rep, "mount-points[0].mount-point")
		l.settings = "      reconcile: {restart-policy: immediate}\n"
		l.apply(m("/opt")...)
		if rep := l.diff(m("/opt")...); !rep.Converged() {
			t.Errorf("after the restart:\n%s", text(rep))
		}
	})
}

// A stranger's guest is an anomaly, and not one write goes to it.
func TestH1_ForeignGuest(t *testing.T) {
	for _, kind := range []string{"qemu", "lxc"} {
		story(t, func(l *lab) {
			if kind == "qemu" {
				l.make("qemu", 150, "name", "theirs", "memory", "1024", "scsi0", "local-lvm:1", "start", "1")
			} else {
				l.make("lxc", 150, "hostname", "theirs", "memory", "1024", "rootfs", "local-lvm:1", "start", "1")
			}
			before := print(l.conf(150))
			for _, m := range []string{vm("mine", 150), ct("mine", 150, "template: debian"), spec("TemplateVM", "mine", 150), spec("TemplateCT", "mine", 150, "template: debian"), vm("mine", 150, "pve-name: other")} {
				rep := l.apply(m, debian)
				if rep.Writes != 0 || l.stateOf(rep, "mine") != plan.Anomalous {
					t.Errorf("%d writes, %s", rep.Writes, l.stateOf(rep, "mine"))
				}
				l.says(rep, "nothing is written")
			}
			l.apply()
			l.apply(vm("z", 151))
			if got := print(l.conf(150)); got != before {
				t.Errorf("the stranger changed:\n%s\nwas\n%s", got, before)
			}
		})
	}
	story(t, func(l *lab) { // the same name and type, or a word of the operator, claims it
		l.make("qemu", 150, "name", "mine", "memory", "512", "cpu", "host")
		l.make("qemu", 151, "name", "theirs", "memory", "512", "cpu", "host")
		rep := l.converge(vm("mine", 150), noted(vm("yours", 151, "pve-name: theirs"), `proxops/claim: "true"`))
		l.wantVerbs(rep, "Update 150, Update 151")
		l.says(rep, "claims")
	})
}

// A config that holds only its lock is half made, and never done.
func TestH2_HalfMade(t *testing.T) {
	story(t, func(l *lab) {
		l.w.View(func(s *pvesim.State) {
			s.Guests[100] = &pvesim.Guest{VMID: 100, Kind: "qemu", Node: "pve01", Config: pvesim.Section{"lock": "create"}}
			s.Guests[101] = &pvesim.Guest{VMID: 101, Kind: "lxc", Node: "pve01", Config: pvesim.Section{"lock": "create"}}
		})
		for range 2 {
			rep := l.apply(vm("a", 100), ct("b", 101, "template: debian"), debian)
			if rep.Writes != 0 || rep.Converged() || l.stateOf(rep, "a") == plan.Converged || l.stateOf(rep, "b") == plan.Converged {
				t.Errorf("%d writes, a is %s", rep.Writes, l.stateOf(rep, "a"))
			}
			l.says(rep, "locked (create): no task works on it", "qm unlock 100", "pct destroy 101")
			time.Sleep(time.Hour)
		}
	})
}

func TestH3_LinearReads(t *testing.T) {
	story(t, func(l *lab) {
		var ms []string
		reads := map[int]int64{}
		for i := range 60 {
			id := 1000 + i
			l.w.View(func(s *pvesim.State) {
				s.Guests[id] = &pvesim.Guest{VMID: id, Kind: "qemu", Node: "pve01", Config: pvesim.Section{"name": fmt.Sprintf("g%d", i), "memory": "512", "cpu": "host", "tags": "proxops"}}
			})
			ms = append(ms, vm(fmt.Sprintf("g%d", i), id))
			if n := i + 1; n == 20 || n == 40 || n == 60 {
				l.w.ForgetRequests()
				reads[n] = l.diff(ms...).Reads
				if n := l.calls("GET", "/cluster/resources"); n != 1 {
					t.Errorf("%d listings in one cycle", n)
				}
			}
		}
		if reads[40]-reads[20] != 20 || reads[60]-reads[40] != 20 {
			t.Errorf("reads: %v", reads)
		}
	})
}

// A plan shows what is owned and changes: a header an object, a line a field.
func TestH4_ReadablePlan(t *testing.T) {
	story(t, func(l *lab) {
		var first, second []string
		for i := range 300 {
			name, id := fmt.Sprintf("g%03d", i), 1000+i
			l.w.View(func(s *pvesim.State) {
				s.Guests[id] = &pvesim.Guest{VMID: id, Kind: "qemu", Node: "pve01", Config: pvesim.Section{"name": name, "memory": "512", "cpu": "host", "tags": "proxops"}}
			})
			first = append(first, vm(name, id))
			if i%30 == 0 {
				second = append(second, vm(name, id, "memory: 1GiB"))
			} else {
				second = append(second, vm(name, id))
			}
		}
		rep := l.diff(second...)
		if n := strings.Count(text(rep), "\n"); n > 3*10+5 {
			t.Errorf("%d lines for 10 changes among 300", n)
		}
		l.says(rep, "10 actions", "300 objects")
		one := l.diff(append(first, vm("new", 2000, "networks: [{bridge: vmbr0}]", "disks: [{storage: local-lvm, size: 1GiB}]"))...)
		if n := strings.Count(text(one), "\n"); n > 20 {
			t.Errorf("%d lines for one new VM:\n%s", n, text(one))
		}
	})
}
