package field

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
	"pgregory.net/rapid"
)

func maybe[V any](t *rapid.T, name string, g *rapid.Generator[V]) Opt[V] {
	switch rapid.IntRange(0, 3).Draw(t, name+" state") {
	case 0, 1:
		return Some(g.Draw(t, name))
	case 2:
		return Cleared[V]()
	}
	return Opt[V]{}
}

func drawVM(t *rapid.T) *vm {
	word := rapid.StringMatching(`[a-z]{1,5}`)
	v := &vm{
		memory: Some(wire.Size(rapid.IntRange(16, 99999).Draw(t, "memory")) * wire.MiB),
		name:   maybe(t, "name", word), cpuType: maybe(t, "cpu", rapid.SampledFrom([]string{"host", "kvm64", "Host"})),
		cores: maybe(t, "cores", rapid.IntRange(1, 8)), nested: maybe(t, "nested", rapid.Bool()), hidden: maybe(t, "hidden", rapid.Bool()),
		flags: maybe(t, "flags", rapid.SampledFrom([][]string{{"+aes"}, {"-pcid", "+aes"}})),
		tags:  maybe(t, "tags", rapid.SliceOfNDistinct(word, 1, 3, rapid.ID)), notes: maybe(t, "notes", rapid.StringMatching(`[ -~\n]{0,9}x`)),
		unpriv: maybe(t, "unpriv", rapid.Bool()), ciuser: maybe(t, "ciuser", word), startup: maybe(t, "startup", rapid.SampledFrom([]string{"order=1", "2,up=3"})),
		keys:    maybe(t, "keys", rapid.SliceOfN(rapid.StringMatching(`ssh-rsa [A-Za-z0-9+/]{4} [a-z@]{2}`), 1, 3)),
		servers: maybe(t, "servers", rapid.SliceOfN(rapid.StringMatching(`192\.0\.2\.[1-9]`), 1, 3)),
		machine: maybe(t, "machine", rapid.SampledFrom([]string{"i440fx", "q35"})), clone: rapid.Bool().Draw(t, "clone"),
	}
	if rapid.Bool().Draw(t, "password") {
		v.password = Some(secret.New("hunter2"))
	}
	for range rapid.IntRange(0, 3).Draw(t, "disks") {
		v.disks = append(v.disks, disk{
			storage: Some(rapid.SampledFrom([]string{"lvm", "dir"}).Draw(t, "storage")), size: Some(wire.Size(rapid.IntRange(1, 40).Draw(t, "size")) * wire.GiB),
			iothread: maybe(t, "iothread", rapid.Bool()), backup: maybe(t, "backup", rapid.Bool()), serial: maybe(t, "serial", word),
			grow: rapid.Bool().Draw(t, "grow"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "nics") {
		v.nics = append(v.nics, nic{
			bridge: Some(word.Draw(t, "bridge")), model: maybe(t, "model", rapid.SampledFrom([]string{"virtio", "e1000"})),
			vlan: maybe(t, "vlan", rapid.IntRange(1, 9)), firewall: maybe(t, "firewall", rapid.Bool()),
			mac: maybe(t, "mac", rapid.SampledFrom([]string{"BC:24:11:00:00:01", "bc:24:11:00:00:02"})),
		})
		if v.nics[len(v.nics)-1].model.State() == Null {
			v.nics[len(v.nics)-1].model = Opt[string]{} // PVE requires it
		}
		if v.nics[len(v.nics)-1].mac.State() == Null {
			v.nics[len(v.nics)-1].mac = Opt[string]{}
		}
	}
	if rapid.Bool().Draw(t, "efi") {
		v.efi = &efi{storage: Some("lvm"), template: maybe(t, "vars", rapid.SampledFrom([]string{"2m", "4m"}))}
	}
	if rapid.Bool().Draw(t, "drive") {
		v.drive = &drive{storage: Some("dir")}
	}
	return v
}

func drawGuest(t *rapid.T) *Guest {
	lines := map[string][]string{
		"name": {"a", "b"}, "memory": {"512", "current=4096", "16"}, "cores": {"1", "3"},
		"cpu":    {"kvm64", "host,flags=+aes;+nested-virt,hidden=1", "cputype=Host,hidden=yes", "x86-64-v3,flags=-aes;+zzz,phys-bits=40"},
		"tags":   {"a", "proxops;b", " ", "A,b c"},
		"scsi0":  {"lvm:vm-1-disk-0,size=10G", "dir:1/vm-1-disk-0.qcow2,backup=no,iothread=1,size=2252M,zzz=1", "local:iso/x.iso,media=cdrom,size=1K", "lvm:vm-1-cloudinit,media=cdrom", "/dev/sdz,size=7G", "lvm:vm-1-disk-0", "none,media=cdrom"},
		"scsi1":  {"lvm:vm-1-disk-1,serial=q,size=40G", "file=dir:1/vm-1-disk-1.raw,size=5G"},
		"net0":   {"virtio=BC:24:11:00:00:09,bridge=vmbr0,tag=5", "model=e1000,macaddr=bc:24:11:00:00:02,bridge=b,queues=4", "virtio,bridge=x,,mtu=9000"},
		"net1":   {"vmxnet3=BC:24:11:00:00:08,bridge=vmbr1,firewall=on"},
		"ciuser": {"root"}, "cicustom": {"user=local:x"}, "cipassword": {"**********"}, "nameserver": {"192.0.2.1, 192.0.2.2", " "},
		"sshkeys": {"ssh-rsa%20AAAA%20a", "%zz"}, "startup": {"1", "order=1", "up=4"}, "machine": {"pc", "q35,viommu=intel", "pc-q35-9.0"},
		"efidisk0":    {"lvm:vm-1-disk-5,efitype=4m,ms-cert=2023k,pre-enrolled-keys=1,size=4M", "dir:1/vm-1-disk-5.qcow2,size=128K"},
		"ide2":        {"dir:1/vm-1-cloudinit.qcow2,media=cdrom,size=4M", "none,media=cdrom", "local:iso/x.iso,media=cdrom"},
		"description": {"a\r\nb\n"}, "unprivileged": {"1"}, "args": {"-x"}, "hotplug": {"0", "memory,disk"},
	}
	g := &Guest{Exists: true, Running: rapid.Bool().Draw(t, "running"), Config: map[string]Entry{}}
	var keys []string
	for k := range lines {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		g.Config["memory"] = Entry{Value: ptr("2048")}
		switch rapid.IntRange(0, 5).Draw(t, k) {
		case 0, 1:
			g.Config[k] = Entry{Value: ptr(rapid.SampledFrom(lines[k]).Draw(t, k))}
		case 2:
			g.Config[k] = Entry{Value: ptr(lines[k][0]), Pending: ptr(rapid.SampledFrom(lines[k]).Draw(t, k))}
		case 3:
			g.Config[k] = Entry{Value: ptr(lines[k][0]), Delete: true}
		}
	}
	return g
}

// Applying a diff leaves no diff; what nobody owns keeps its text; a filled
// slot gets no create form; no volume, no MAC and no password is lost.
func TestDiffLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, g := drawVM(t), drawGuest(t)
		d := Diff(v.shape(), g)
		owned := map[string]bool{}
		for _, r := range Rows(v.shape()) {
			owned[r.Key+"."+r.Token] = owned[r.Key+"."+r.Token] || r.State() != Absent
		}
		for _, e := range d.Edits {
			if strings.Contains(fmt.Sprintf("%v %+v", e.Value, e.Changes), "hunter2") {
				t.Fatal("the edit shows a secret")
			}
			live, has := g.Get(e.Key)
			if e.Create && has && strings.TrimSpace(live) != "" {
				t.Fatalf("%s: create form %s over %s", e.Key, e.Value, live)
			}
			if !has || e.Delete {
				continue
			}
			f := wire.FormatOf(false, e.Key)
			if f.Plain || e.Key == "startup" || e.Key == "cicustom" {
				continue
			}
			old, now := wire.ParseProps(live, f), wire.ParseProps(e.Value.Reveal(), f)
			if wire.IsVolumeKey(false, e.Key) {
				a, _ := old.Get("file")
				if b, _ := now.Get("file"); a != b || wire.IsCreateForm(b) {
					t.Fatalf("%s: volume %s became %s", e.Key, a, b)
				}
			}
			for _, tok := range old.Tokens() {
				if v, ok := now.Get(tok.Key); !owned[e.Key+"."+tok.Key] && (!ok || v != tok.Value) && tok.Key != "size" {
					t.Fatalf("%s: token %s is not ours and became %q: %s -> %s", e.Key, tok.Key, v, live, e.Value.Reveal())
				}
			}
		}
		if again := Diff(v.shape(), settle(g, d)); !d.Empty() && !again.Empty() {
			t.Fatalf("diff\n%s\nsettles to\n%s", show(d), show(again))
		}
		if show(d) != show(Diff(v.shape(), g)) {
			t.Fatal("two diffs differ")
		}
	})
}

// Whatever is created needs no change afterwards.
func TestCreateLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawVM(t)
		g := &Guest{Env: Env{Creating: true}}
		d := Diff(v.shape(), g)
		if len(d.Anomalies)+len(d.Grows)+len(d.Waiting) > 0 {
			t.Fatalf("from nothing:\n%s", show(d))
		}
		for _, e := range d.Edits {
			if e.Delete {
				t.Fatalf("create deletes %s", e.Key)
			}
		}
		if after := Diff(v.shape(), settle(g, d)); !after.Empty() {
			t.Fatalf("created with\n%s\nthen\n%s", show(d), show(after))
		}
	})
}

// An empty spec changes nothing.
func TestEmptySpecLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGuest(t)
		if d := Diff((&vm{}).shape(), g); show(d) != "" {
			t.Fatal(show(d))
		}
	})
}

// Every row's examples load, and read back from what they write.
func TestExampleLaw(t *testing.T) {
	v := &vm{}
	b := Specimen(v.shape)
	n := 0
	for _, r := range Rows(b) {
		nodes, err := r.Examples()
		if err != nil || len(nodes) == 0 && r.Name != "" {
			t.Errorf("%s: %d examples, %v", r.Path, len(nodes), err)
		}
		for _, e := range nodes {
			if err := r.Load(e); err != nil {
				t.Errorf("%s: %v", r.Path, err)
				continue
			}
			n++
			if r.Key == "" {
				continue
			}
			text, _ := r.Wanted()
			if !r.equal(text, Env{}) {
				t.Errorf("%s: %q is not equal to itself", r.Path, text)
			}
			if err := r.Read(text); err != nil {
				t.Errorf("%s: %q does not read back: %v", r.Path, text, err)
			}
			if again, _ := r.Wanted(); again != text {
				t.Errorf("%s: %q reads back as %q", r.Path, text, again)
			}
		}
		if r.HasDefault {
			if err := r.Read(r.Default); err != nil {
				t.Errorf("%s: its default does not read: %v", r.Path, err)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d examples", n)
	}
}
