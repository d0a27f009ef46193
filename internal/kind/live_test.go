package kind_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// guest is a live guest of key: value lines.
func guest(lxc bool, conf string) *field.Guest {
	m := &model{lxc: lxc, config: map[string]string{}}
	for l := range strings.Lines(conf) {
		l = strings.TrimRight(l, "\r\n")
		if strings.HasPrefix(l, "[") {
			break // snapshots and pending values
		}
		if k, v, ok := strings.Cut(l, ":"); ok && !strings.HasPrefix(l, "#") && keyRE.MatchString(k) {
			m.config[k] = strings.TrimSpace(v)
		}
	}
	return m.guest(false)
}

var keyRE = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// odd is what people and older versions leave in configurations.
var odd = map[string]string{
	"qemu": `boot:
tags: B;a a
memory: current=2048
cores: 2.0
net0: model=virtio,macaddr=02:15:5D:00:09:03,bridge=vmbr0,trunks=3;4
net1: e1000=02:15:5d:00:09:04
machine: type=pc-i440fx-9.2+pve1
vga: type=qxl,memory=32
cpu: cputype=host,flags=+aes;-pcid,hidden=1,phys-bits=host
scsi0: file=local-lvm:vm-101-disk-0,size=32G
scsi1: volume=local-lvm:vm-101-disk-1,size=104858K
scsi2: /dev/disk/by-id/x,size=1000K
sata0: local:iso/x.iso,media=disk
ide0: none,media=cdrom
scsi5: ceph:vm-101-cloudinit,media=cdrom
efidisk0: local-lvm:vm-101-disk-2,efitype=4m,pre-enrolled-keys=1,ms-cert=2023k,size=528K
hostpci0: 05:00,pcie=1,x-vga=1
unused0: local-lvm:vm-101-disk-9
agent: enabled=1,fstrim_cloned_disks=1
ipconfig0: gw=192.0.2.1,ip=192.0.2.5/24
sshkeys: ssh-ed25519%20AAAAx%20a%0A
cipassword: **********
hotplug: 1
future: x
`,
	"lxc": `arch: i386
features: keyctl=1,mount=nfs;cifs,nesting=yes
net0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:02,ip=dhcp,ip6=dhcp,type=veth,mtu=9000
rootfs: size=4G,volume=local-lvm:vm-102-disk-0
mp0: /srv/x,mp=srv/x,ro=1
mp1: local-lvm:vm-102-disk-1,mp=/data,size=8G,backup=1,acl=1
mp100: /etc,mp=/host-etc
lxc: [["lxc.init.cmd","/x"]]
unprivileged: 1
`,
}

// configs are odd configurations and, where they are there, real ones.
func configs(t *testing.T, class string) map[string]string {
	out := map[string]string{"odd": odd[class]}
	files, _ := filepath.Glob(filepath.Join("..", "..", "..", "shared", "cases", "configs", class, "*.conf"))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = string(b)
	}
	return out
}

// An empty spec changes nothing and finds nothing wrong, whatever is live,
// but passed-through devices.
func TestLawEmptyChangesNothing(t *testing.T) {
	for _, k := range guests() {
		cs := configs(t, k.Guest)
		for _, name := range slices.Sorted(maps.Keys(cs)) {
			g := guest(k.Guest == "lxc", cs[name])
			spec := k.New().(kind.GuestSpec)
			if d := field.Diff(spec.Shape(g), g); !d.Empty() || len(d.Anomalies)+len(d.Waiting) > 0 {
				t.Errorf("%s %s: %s", k.Name, name, show(d))
			}
			for _, a := range spec.Undeclared(g) {
				if a.Path != "hardware.pci-devices" {
					t.Errorf("%s %s: %v", k.Name, name, a)
				}
			}
		}
	}
}

// Live, to a manifest, and back: the manifest is valid or lacks only what PVE
// does not tell, and differs from live in nothing.
func TestAdoptRoundTrip(t *testing.T) {
	for _, class := range []string{"qemu", "lxc"} {
		cs := configs(t, class)
		for _, name := range slices.Sorted(maps.Keys(cs)) {
			t.Run(class+"/"+name, func(t *testing.T) {
				g := guest(class == "lxc", cs[name])
				template, _ := g.Get("template")
				k, _ := kind.Of(class, template == "1")
				spec := k.New().(kind.GuestSpec)
				spec.Allocate(g, func(volid string) (kind.Ref, bool) { return kind.Ref{Kind: "ISO", Name: "x"}, true })
				field.ReadInto(spec.Shape(g), g)
				spec.SetPlace("pve01", 101, false)
				if h, ok := spec.(kind.KeyHolder); ok && len(h.Keys()) > 0 {
					h.KeepKeys()
				}
				n := yamldoc.Map().Put("apiVersion", yamldoc.Str(kind.APIVersion)).Put("kind", yamldoc.Str(k.Name)).
					Put("metadata", yamldoc.Map().Put("name", yamldoc.Str("guest"))).Put("spec", field.ToNode(spec.Shape(g), g))
				text := string(yamldoc.Print(n))
				r, problems := parse(text)
				if r == nil {
					for _, p := range problems {
						if !strings.Contains(p.Text, "required") {
							t.Errorf("%s\n%s", problems.Error(), text)
							break
						}
					}
					t.Skipf("incomplete: %s", problems.Error())
				}
				for _, ref := range r.Spec.Refs() {
					if err := ref.Bind(target(t, ref.To)); err != nil {
						t.Fatal(err)
					}
				}
				d := field.Diff(r.Spec.Shape(g), g)
				var left []string
				for _, e := range d.Edits {
					if e.Key != "tags" && e.Key != "name" && e.Key != "hostname" && !isoOther(g, e.Key) {
						left = append(left, e.Key+"="+e.Value.String())
					}
				}
				for _, a := range d.Anomalies {
					left = append(left, a.Path+": "+a.Text)
				}
				if len(left) > 0 || len(d.Grows) > 0 {
					t.Errorf("left %v\n%s", left, text)
				}
			})
		}
	}
}

// isoOther reports whether a slot holds an ISO: this test's ISO stands for all.
func isoOther(g *field.Guest, key string) bool {
	text, _ := g.Get(key)
	return strings.Contains(text, "iso/") || strings.Contains(text, ".iso")
}

func vmSpec(t *testing.T, spec string) *kind.VM {
	t.Helper()
	return mustParse(t, doc("VM", "a", vmHead+spec)).Spec.(*kind.VM)
}

func keysOf(spec kind.Spec, live *field.Guest) map[string]string {
	out := map[string]string{}
	for _, v := range field.Volumes(spec.Shape(live)) {
		out[v.Path] = v.Key
	}
	for _, r := range field.Rows(spec.Shape(live)) {
		if r.Path == "hardware.cdrom.iso" {
			out["hardware.cdrom"] = r.Key
		}
	}
	return out
}

// The cloud-init drive is owned where it is, and the CD moves aside only for
// one on ide2.
func TestDrivePlaces(t *testing.T) {
	both := "disks: []\nnetworks: []\nhardware: {cloud-init: {storage: s1}, cdrom: {iso: none}}"
	cdOnly := "disks: []\nnetworks: []\nhardware: {cdrom: {iso: none}}"
	for _, c := range []struct{ name, spec, live, cloudInit, cd string }{
		{"new", both, "", "ide2", "ide3"},
		{"new with slot", strings.Replace(both, "s1}", "s1, slot: scsi5}", 1), "", "scsi5", "ide2"},
		{"off", strings.Replace(both, "s1}", "s1, enabled: false}", 1), "", "", "ide2"},
		{"live elsewhere", both, "scsi1: ceph:vm-9-cloudinit,media=cdrom\nide2: none,media=cdrom", "scsi1", "ide2"},
		{"live on ide2", both, "ide2: s1:vm-9-cloudinit.qcow2,media=cdrom\nide3: none,media=cdrom", "ide2", "ide3"},
		{"live and undeclared", cdOnly, "ide2: s1:9/vm-9-cloudinit.qcow2,media=cdrom", "", "ide3"},
		{"CD on ide2 before", both, "ide2: local:iso/x.iso,media=cdrom", "ide3", "ide2"},
		{"CD alone", cdOnly, "ide2: none,media=cdrom", "", "ide2"},
	} {
		got := keysOf(vmSpec(t, c.spec), guest(false, c.live))
		if got["hardware.cloud-init"] != c.cloudInit || got["hardware.cdrom"] != c.cd {
			t.Errorf("%s: cloud-init on %q, CD on %q; want %q, %q", c.name, got["hardware.cloud-init"], got["hardware.cdrom"], c.cloudInit, c.cd)
		}
	}
}

// A CD row never writes over a disk, nor a mount over the other kind.
func TestSlotsOfAnotherKind(t *testing.T) {
	vm := vmSpec(t, "disks: []\nnetworks: []\nhardware: {cdrom: {iso: none}}")
	g := guest(false, "ide2: local-lvm:vm-101-disk-5,size=8G\nname: a\ncpu: host\ncores: 2\nmemory: 2048")
	if d := field.Diff(vm.Shape(g), g); !d.Empty() || len(d.Anomalies) != 1 {
		t.Errorf("CD over a disk: %s", show(d))
	}
	for _, c := range []struct{ spec, live string }{
		{"bind-mounts: [{host-path: /srv/a, mount-point: /b, read-only: true}]", "mp0: local-lvm:vm-102-disk-1,mp=/a,size=8G"},
		{"bind-mounts: [{host-path: /srv/a, mount-point: /b, read-only: true}]", "mp0: /srv/other,mp=/a"},
		{"mount-points: [{storage: local-lvm, size: 8GiB, mount-point: /b, options: {read-only: true}}]", "mp0: /srv/a,mp=/a"},
	} {
		ct := mustParse(t, doc("LXC", "a", ctHead+"networks: []\n"+c.spec)).Spec
		g := guest(true, "rootfs: local-lvm:vm-102-disk-0,size=8G\nhostname: a\nmemory: 512\n"+c.live)
		if d := field.Diff(ct.Shape(g), g); !d.Empty() || len(d.Anomalies) == 0 {
			t.Errorf("%s over %s: %s", c.spec, c.live, show(d))
		}
	}
}

func TestUndeclared(t *testing.T) {
	live := odd["qemu"]
	for _, c := range []struct {
		name, spec string
		want       []string
	}{
		{"disks", "disks: [{storage: local-lvm, size: 32GiB}]\nnetworks: [{bridge: vmbr0}, {bridge: vmbr0}]\nhardware: {pci-devices: [{mapping: gpu}]}", []string{"disks scsi1", "disks scsi2"}},
		{"none", "disks: []\nnetworks: []", []string{"hardware.pci-devices hostpci0", "networks net0", "networks net1", "disks scsi0", "disks scsi1", "disks scsi2"}},
		{"clone", "clone: t\nnetworks: [{bridge: vmbr0}]\nextra: {scsi2: x}", []string{"hardware.pci-devices hostpci0", "networks net1"}},
		{"no cloud-init", "clone: t\nnetworks: [{bridge: vmbr0},{bridge: vmbr0}]\nhardware: {pci-devices: [{mapping: gpu}], cloud-init: {enabled: false}}", []string{"hardware.cloud-init.enabled the"}},
		{"other slot", "clone: t\nnetworks: [{bridge: vmbr0},{bridge: vmbr0}]\nhardware: {pci-devices: [{mapping: gpu}], cloud-init: {storage: ceph, slot: ide2}}", []string{"hardware.cloud-init.slot the"}},
	} {
		var got []string
		for _, a := range vmSpec(t, c.spec).Undeclared(guest(false, live)) {
			word, _, _ := strings.Cut(a.Text, " ")
			got = append(got, a.Path+" "+word)
			if a.Todo == "" {
				t.Errorf("%s: no advice in %v", c.name, a)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	ct := mustParse(t, doc("LXC", "a", ctHead+"networks: []\nmount-points: []\nbind-mounts: [{host-path: /srv/x, mount-point: /srv/x}]")).Spec.(kind.GuestSpec)
	if got := fmt.Sprint(ct.Undeclared(guest(true, odd["lxc"]))); strings.Count(got, "mp1 ")+strings.Count(got, "mp100 ")+strings.Count(got, "net0 ") != 3 || strings.Contains(got, "mp0 ") {
		t.Errorf("container: %s", got)
	}
}

// A clone keeps none of the template's identity that it does not declare.
func TestCloneIdentity(t *testing.T) {
	live := "name: a\ncpu: host\ncores: 2\nmemory: 2048\nciuser: tpl\ncipassword: **********\nsshkeys: ssh-ed25519%20AAAAx%20t\nnameserver: 192.0.2.1\nsearchdomain: t.example\nipconfig0: ip=dhcp\nipconfig3: ip=192.0.2.9/24\ncicustom: user=local:snippets/u.yml\n"
	identity := func(spec string) []string {
		g := guest(false, live)
		var out []string
		for _, e := range field.Diff(vmSpec(t, spec).Shape(g), g).Edits {
			if e.Delete {
				out = append(out, e.Key)
			}
		}
		slices.Sort(out)
		return out
	}
	for _, c := range []struct{ spec, want string }{
		{"clone: t\nnetworks: []", "cicustom cipassword ciuser ipconfig0 ipconfig3 nameserver searchdomain sshkeys"},
		{"clone: t\nnetworks: []\ncloud-init-data: {ci-user: b, ssh-keys: ['*'], nameservers: '192.0.2.1', ipconfigs: [{nic: 0, ip: dhcp}]}\nextra: {cicustom: 'user=local:snippets/v.yml'}", "cipassword ipconfig3 searchdomain"},
		{"clone: t\nnetworks: []\ncloud-init-data: {ci-user: '', ssh-key-refs: []}", "cicustom cipassword ciuser ipconfig0 ipconfig3 nameserver searchdomain sshkeys"},
		{"disks: []\nnetworks: []", ""},
	} {
		if got := strings.Join(identity(c.spec), " "); got != c.want {
			t.Errorf("%s\nclears %q, want %q", c.spec, got, c.want)
		}
	}
}

func TestReferences(t *testing.T) {
	vm := vmSpec(t, "disks: [{storage: s1, image: img}]\nnetworks: []\nhardware: {cdrom: {iso: deb}}")
	refs := vm.Refs()
	if got := fmt.Sprintf("%s %s %s %s", refs[0].To, refs[1].To, refs[0].Path, refs[1].Path); got != "DiskImage:img ISO:deb disks[0].image hardware.cdrom.iso" {
		t.Errorf("references %s", got)
	}
	for _, r := range refs {
		if err := r.Bind(target(t, r.To)); err != nil {
			t.Fatal(err)
		}
	}
	params, _ := field.CreateParams(vm.Shape(nil), false, field.Env{})
	for key, want := range map[string]string{"scsi0": "s1:0,import-from=local:import/x.qcow2", "ide2": "local:iso/x.iso,media=cdrom", "name": "a", "machine": "pc", "bios": "seabios", "sockets": "1"} {
		if v, _ := params.Get(key); v.String() != want {
			t.Errorf("%s is sent as %q, want %q", key, v, want)
		}
	}
	elsewhere := mustParse(t, doc("ISO", "deb", "nodes: [pve02]\nstorage: local\nfilename: x.iso\nurl: null"))
	if err := refs[1].Bind(elsewhere); err == nil || !strings.Contains(err.Error(), "not placed on node pve01") {
		t.Errorf("an ISO of another node: %v", err)
	}
	clone := vmSpec(t, "clone: t\nnetworks: []")
	for want, spec := range map[string]string{
		"cloned onto itself": "node: pve01\nvmid: 101", "on the template's node": "node: pve02\nvmid: 9000",
	} {
		tpl := mustParse(t, doc("TemplateVM", "t", spec+"\nmemory: 1GiB\ncpu: {type: host, cores: 1}\ndisks: []\nnetworks: []"))
		if err := clone.Refs()[0].Bind(tpl); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("clone: %v, want %s", err, want)
		}
	}
	if err := clone.Refs()[0].Bind(target(t, kind.Ref{Kind: "TemplateVM", Name: "t"})); err != nil {
		t.Error(err)
	}
	if r, ok := clone.CloneOf(); !ok || r.Name != "t" {
		t.Errorf("clone of %v", r)
	}
	ct := mustParse(t, doc("LXC", "a", ctHead+"networks: []")).Spec.(kind.GuestSpec)
	if err := ct.Refs()[0].Bind(target(t, kind.Ref{Kind: "CTTemplate", Name: "debian-13"})); err != nil {
		t.Fatal(err)
	}
	params, _ = field.CreateParams(ct.Shape(nil), true, field.Env{})
	for key, want := range map[string]string{"ostemplate": "local:vztmpl/x.tar.zst", "rootfs": "local-lvm:8", "hostname": "a", "arch": "amd64"} {
		if v, _ := params.Get(key); v.String() != want {
			t.Errorf("%s is sent as %q, want %q", key, v, want)
		}
	}
}

func TestCreateFault(t *testing.T) {
	known := mustParse(t, doc("LXC", "a", ctHead+"networks: []")).Spec.(kind.GuestSpec)
	unknown := mustParse(t, doc("LXC", "a", strings.Replace(ctHead, "debian-13", "null", 1)+"networks: []")).Spec.(kind.GuestSpec)
	if known.CreateFault() != nil || unknown.CreateFault() == nil {
		t.Errorf("known: %v, unknown: %v", known.CreateFault(), unknown.CreateFault())
	}
	iso := mustParse(t, doc("ISO", "a", "nodes: [b, a, b2]\nstorage: local\nfilename: a.iso\nurl: null")).Spec.(kind.ArtifactSpec)
	if _, err := iso.Download(); err == nil || iso.VolID() != "local:iso/a.iso" || iso.Nodes()[0] != "a" {
		t.Errorf("download: %v, %s, %v", err, iso.VolID(), iso.Nodes())
	}
	sum := strings.Repeat("0A", 32)
	iso = mustParse(t, doc("ISO", "a", isoHead+"filename: a.iso\nurl: https://h/a\nchecksum: {algorithm: sha256, value: '"+sum+"'}")).Spec.(kind.ArtifactSpec)
	if p, err := iso.Download(); err != nil || fmt.Sprint(p) != "[{content iso} {filename a.iso} {url https://h/a} {checksum "+strings.ToLower(sum)+"} {checksum-algorithm sha256}]" {
		t.Errorf("download: %v %v", p, err)
	}
}

// The password goes out hashed, in clear for Windows alone, and once.
func TestPassword(t *testing.T) {
	const clear = "correct horse"
	sent := func(options, live string) (wire.Value, field.Delta) {
		vm := vmSpec(t, "disks: []\nnetworks: []\n"+options+"cloud-init-data: {ci-password-ref: cloud-init.passwords.ops}")
		if err := vm.Secrets()[0].Bind(secret.New(clear)); err != nil {
			t.Fatal(err)
		}
		g := guest(false, "name: a\ncpu: host\ncores: 2\nmemory: 2048\n"+live)
		d := field.Diff(vm.Shape(g), g)
		for _, e := range d.Edits {
			if e.Key == "cipassword" {
				return e.Value, d
			}
		}
		return wire.Value{}, d
	}
	if v, _ := sent("", ""); !strings.HasPrefix(v.Reveal(), "$6$") || strings.Contains(v.Reveal(), clear) || !v.IsSecret() {
		t.Error("not a hidden sha512-crypt hash")
	}
	if v, _ := sent("", "ostype: win11\n"); v.Reveal() != clear {
		t.Error("live Windows does not get it in clear")
	}
	if v, _ := sent("options: {ostype: win10}\n", ""); v.Reveal() != clear {
		t.Error("declared Windows does not get it in clear")
	}
	if v, d := sent("", "cipassword: **********\n"); v.Reveal() != "" || !d.Empty() {
		t.Errorf("written over a live one: %s", show(d))
	}
	vm := vmSpec(t, "disks: []\nnetworks: []\ncloud-init-data: {ci-password-ref: cloud-init.passwords.ops, ssh-key-refs: [cloud-init.ssh-keys.b, cloud-init.ssh-keys.a]}")
	refs := vm.Secrets()
	for _, bad := range []string{"", "a\nb", "**********"} {
		err := refs[2].Bind(secret.New(bad))
		if err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("password %q: %v", bad, err)
		}
	}
	const keyText = "AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL"
	for _, bad := range []string{"secret-garbage", "ssh-ed25519 " + keyText + " b\nsecret-garbage", "ssh-ed25519 AAAAB3NzaC1yc2E= secret-garbage", "ssh-ed25519 " + keyText[:30], "# secret-garbage",
		"-----BEGIN OPENSSH PRIVATE KEY-----\nsecret-garbage\n-----END OPENSSH PRIVATE KEY-----"} {
		if err := refs[0].Bind(secret.New(bad)); err == nil || strings.Contains(err.Error(), "garbage") || !strings.Contains(err.Error(), "cloud-init.ssh-keys.b: line ") {
			t.Errorf("key %q: %v", bad, err)
		}
	}
	if refs[0].Ref != "cloud-init.ssh-keys.b" || refs[0].Path != "cloud-init-data.ssh-key-refs[0]" || refs[0].Bind(secret.New(" \n")) == nil {
		t.Errorf("key reference %+v takes an empty entry", refs[0])
	}
	for i, key := range []string{"ssh-ed25519 " + keyText + " b\n", "ssh-ed25519 " + keyText + " a"} {
		if err := refs[i].Bind(secret.New(key)); err != nil {
			t.Fatal(err)
		}
	}
	params, _ := field.CreateParams(vm.Shape(nil), false, field.Env{})
	v, _ := params.Get("sshkeys")
	if keys, err := wire.DecodeSSHKeys(v.Reveal()); err != nil || !slices.Equal(keys, []string{"ssh-ed25519 " + keyText + " b", "ssh-ed25519 " + keyText + " a"}) {
		t.Errorf("keys %q, %v", keys, err)
	}
}

// A CD drive with the ISO that is wanted is as it should be, whatever else its
// text says; another medium is changed, and a disk is never taken for one.
func TestCDEquality(t *testing.T) {
	for _, c := range []struct{ iso, live, want string }{
		{"none", "none,media=cdrom", ""},
		{"none", "local:iso/debian.iso,media=cdrom,size=4M", "ide2=none,media=cdrom"},
		{"debian", "VOLID,media=cdrom", ""},
		{"debian", "media=cdrom,file=VOLID,size=654M", ""},
		{"debian", "none,media=cdrom", "ide2=VOLID,media=cdrom"},
		{"debian", "local:iso/other.iso,media=cdrom,size=9M", "ide2=VOLID,media=cdrom"},
		{"debian", "local-lvm:vm-101-disk-0,size=8G", "anomaly"},
		{"none", "local-lvm:vm-101-disk-0,size=8G", "anomaly"},
	} {
		spec := vmSpec(t, "disks: []\nnetworks: []\nhardware: {cdrom: {iso: "+c.iso+"}}")
		bind(t, spec)
		volid := ""
		for _, p := range field.Diff(spec.Shape(guest(false, "")), guest(false, "")).Edits {
			if p.Key == "ide2" {
				volid, _, _ = strings.Cut(p.Value.String(), ",")
			}
		}
		if volid == "" {
			t.Fatalf("%s: nothing goes into an empty slot", c.iso)
		}
		live := guest(false, "ide2: "+strings.ReplaceAll(c.live, "VOLID", volid))
		d := field.Diff(spec.Shape(live), live)
		got := ""
		for _, e := range d.Edits {
			if e.Key == "ide2" {
				got += "ide2=" + e.Value.String()
			}
		}
		for range d.Anomalies {
			got += "anomaly"
		}
		if want := strings.ReplaceAll(c.want, "VOLID", volid); got != want {
			t.Errorf("%s over %s: %q, want %q", c.iso, c.live, got, want)
		}
	}
}
