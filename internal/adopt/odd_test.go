package adopt_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/adopt"
	"github.com/proxops/proxops/internal/pvesim"
)

// odd are configurations as people and older versions leave them.
var odd = map[string]string{
	"qemu/100.conf": `name: Web.Example.Org
tags: web;proxops;pveconform;B
memory: 4096
cores: 2
cpu: host,flags=+aes;+ibpb
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=12,trunks=3;4
net5: e1000=02:15:5D:00:09:03,bridge=vmbr0,link_down=1
scsi1: local-lvm:vm-100-disk-1,size=104858K,serial=a%20b
scsi0: local-lvm:vm-100-disk-0,size=32G,ssd=1
scsi4: local-lvm:vm-100-cloudinit,media=cdrom
sata3: /dev/disk/by-id/ata-x,size=1000K
sata0: local:iso/debian.iso,media=cdrom,size=4M
ide2: local:iso/debian.iso,media=cdrom,size=4M
boot: order=scsi0;net0
efidisk0: local-lvm:vm-100-disk-2,efitype=4m,pre-enrolled-keys=1,ms-cert=2023k,size=528K
tpmstate0: local-lvm:vm-100-disk-3,size=4M,version=v2.0
bios: ovmf
machine: pc-q35-9.2+pve1
hostpci0: 0000:05:00,pcie=1,x-vga=1
unused0: local-lvm:vm-100-disk-9
agent: enabled=1,fstrim_cloned_disks=1
ciuser: ops
cipassword: $5$abcdefgh$0123456789
cicustom: user=local:snippets/u.yml
ipconfig0: ip=192.0.2.5/24,gw=192.0.2.1
ipconfig3: ip6=auto
nameserver: 192.0.2.1 192.0.2.2
sshkeys: ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL%20ada%40example%0A
args: -device vfio-pci,host=x
startup: order=3,up=5
smbios1: uuid=11111111-2222-3333-4444-555555555555
vmgenid: 21111111-2222-3333-4444-555555555555
`,
	"qemu/101.conf": "memory: 512\n",
	"qemu/102.conf": "name: web-example-org\nmemory: 512\nscsi0: local-lvm:vm-102-disk-0,size=4G\nboot: order=scsi0;sata1\n",
	"qemu/103.conf": "name: gold\ntemplate: 1\nmemory: 1024\nscsi0: local-lvm:base-103-disk-0,size=4G\n",
	"qemu/104.conf": "name: web-example-org-100\nmemory: 1024\nballoon: 0\n[PENDING]\nmemory: 2048\ndelete: balloon\n",
	"lxc/110.conf": `hostname: mail
ostype: debian
arch: amd64
memory: 512
rootfs: local-lvm:vm-110-disk-0,size=4G,acl=1
mp0: /srv/mail,mp=/var/mail,ro=1
mp1: local-lvm:vm-110-disk-1,mp=/data,size=8G,backup=1
mp7: /etc,mp=/host-etc
net0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:02,ip=dhcp,type=veth
features: nesting=1,keyctl=1
unprivileged: 1
dev0: /dev/dri/card0,gid=44
lxc.cgroup2.devices.allow: c 10:229 rwm
lxc.mount.entry: /run/x mnt/x none bind 0 0
lxc.environment: TOKEN=hunter2
`,
	"lxc/112.conf": "#it: waits, 100%\nhostname: waits\nostype: debian\narch: amd64\nmemory: 512\ntty: 2\nfeatures: nesting=1\nrootfs: local-lvm:vm-112-disk-0,size=4G\n" +
		"net0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:03,type=veth\ncmode: shell\nunprivileged: 1\nlxc.apparmor.profile: unconfined\n" +
		"\n[pve:pending]\ndelete: cmode\nfeatures: fuse=1,nesting=1\ntty: 3\n",
	"lxc/111.conf": "hostname: tpl\nostype: debian\narch: amd64\nmemory: 512\ntemplate: 1\nrootfs: local-lvm:base-111-disk-0,size=4G\n",
}

func oddEstate(t *testing.T) *estate {
	t.Helper()
	dir := t.TempDir()
	for name, text := range odd {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := pvesim.LoadConf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return newEstate(t, s, "pve01")
}

func manifest(t *testing.T, res adopt.Result, id string) *adopt.Manifest {
	t.Helper()
	for i := range res.Manifests {
		if res.Manifests[i].ID == id {
			return &res.Manifests[i]
		}
	}
	t.Fatalf("no manifest of %s; refused: %+v", id, res.Refused)
	return nil
}

// Odd configurations: adopt, compose, plan to claims; and the manifests say
// what they must, and nothing that they must not.
func TestOddConfigs(t *testing.T) {
	e := oddEstate(t)
	res, checked := e.proof(adopt.Options{})
	e.untouched()
	wants(t, manifest(t, res, "104"), "INCOMPLETE: balloon waits for a restart to be removed")
	wants(t, manifest(t, res, "112"), "# waits for a restart; runs without it\n    fuse: true", "# waits for a restart; runs with 2\n    ttys: 3",
		"INCOMPLETE: cmode waits for a restart to be removed", "pve-description: \"it: waits, 100%\"")
	if len(res.Refused) > 0 {
		t.Errorf("refused: %+v", res.Refused)
	}
	if checked.Objects != len(res.Manifests) {
		t.Errorf("checked %+v of %d", checked, len(res.Manifests))
	}
	vm := manifest(t, res, "100")
	wants(t, vm, "name: web-example-org\n", "pve-name: Web.Example.Org", "tags: [b, web]", "interface: scsi0", "interface: scsi1", "slot: scsi4",
		"slot: net5", `mac: 02:15:5D:00:09:03`, "link-down: true", "iso: debian\n", "machine: ", "- \"*\"", "INCOMPLETE: disks: sata3 (/dev/disk/by-id/ata-x)")
	lacks(t, vm, "pveconform", "proxops]", "BC:24:11", "AAAAC3", "$5$", "grow", "args")
	if vm.File != "vm/lab/web-example-org.yaml" {
		t.Errorf("file %s", vm.File)
	}
	bare := manifest(t, res, "101")
	wants(t, bare, "cores: 1", "type: kvm64", "memory: 512MiB", "disks: []", "networks: []", `proxops/claim: "true"`)
	if f := manifest(t, res, "102").File; f != "vm/lab/web-example-org-102.yaml" {
		t.Errorf("the second of a name is in %s", f)
	}
	if m := manifest(t, res, "103"); m.Kind.Name != "TemplateVM" || m.File != "templatevm/lab/gold.yaml" {
		t.Errorf("template as %s in %s", m.Kind.Name, m.File)
	}
	wants(t, manifest(t, res, "104"), "memory: 2GiB", "waits for a restart; runs with 1GiB")
	ct := manifest(t, res, "110")
	wants(t, ct, "template: null", "INCOMPLETE: PVE does not report it", "its ostype is debian, perhaps debian-13-tiny", "host-path: /srv/mail", "slot: mp1", "nesting: true")
	lacks(t, ct, "hostname:", "host-etc", "hunter2")
	wants(t, manifest(t, res, "local:iso/debian.iso"), "nodes: [pve01]", "url: null", "INCOMPLETE")
	gaps := map[string]adopt.Group{}
	for _, g := range res.Gaps {
		gaps[g.Key] = g
		for _, v := range g.Values {
			if strings.Contains(v, "hunter2") || strings.Contains(v, "$5$") || strings.Contains(v, "AAAAC3") {
				t.Errorf("%s shows %s", g.Key, v)
			}
		}
	}
	for key, reason := range map[string]string{"args": "no field", "net0.trunks": "no field", "mp7": "cannot say", "dev0": "no field",
		"lxc.cgroup2.devices.allow": "raw line", "lxc.apparmor.profile": "raw line", "lxc.environment": "raw line", "cipassword": "not give", "efidisk0.ms-cert": "", "sata3": "cannot say", "vmgenid": "PVE's own", "unused0": "PVE's own", "hostpci0.x-vga": ""} {
		if g, ok := gaps[key]; !ok || !strings.Contains(g.Reason, reason) || g.Count != 1 {
			t.Errorf("gap %s: %+v", key, g)
		}
	}
	hints := strings.Join(res.Hints, "\n")
	if !strings.Contains(hints, "only root@pam write") || !strings.Contains(hints, "100, 110") || strings.Contains(hints, "has no VM.Audit") {
		t.Errorf("hints:\n%s", hints)
	}
	if fmt.Sprint(res.Passwords) != "[100]" || fmt.Sprint(res.Sentinel) != "[100]" {
		t.Errorf("passwords %v, kept keys %v", res.Passwords, res.Sentinel)
	}
	e.claim()
	if _, claimed := e.adopt(adopt.Options{}); !bytes.Equal(res.Stream(), claimed.Stream()) {
		t.Errorf("adopted once the guests are claimed, the manifests differ:\n%s", manifest(t, claimed, "100").Text)
	}
}

func wants(t *testing.T, m *adopt.Manifest, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if !strings.Contains(string(m.Text), s) {
			t.Errorf("%s lacks %q:\n%s", m.Ref(), s, m.Text)
		}
	}
}

func lacks(t *testing.T, m *adopt.Manifest, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if strings.Contains(string(m.Text), s) {
			t.Errorf("%s holds %q:\n%s", m.Ref(), s, m.Text)
		}
	}
}

// With --extra, keys without a field stand in spec.extra, but for those that
// only root@pam may write and those that PVE keeps.
func TestExtra(t *testing.T) {
	e := oddEstate(t)
	e.world.View(func(s *pvesim.State) {
		s.Guests[100].Config["localtime"], s.Guests[100].Config["keyboard"] = "1", "de"
		s.Guests[100].Config["rng0"] = "source=/dev/urandom"
	})
	res, _ := e.proof(adopt.Options{Extra: true})
	m := manifest(t, res, "100")
	wants(t, m, "extra:", "localtime: \"1\"", "keyboard: de", "rng0: source=/dev/urandom", "cicustom: ")
	lacks(t, m, "args:", "vmgenid", "smbios1", "unused0", "cipassword", "sshkeys")
	lacks(t, manifest(t, res, "110"), "dev0", "lxc.")
	for _, g := range res.Gaps {
		if g.Key == "localtime" || g.Key == "rng0" {
			t.Errorf("%s is in extra and a gap", g.Key)
		}
	}
}

// What is selected does not change names, and files come along with the guests
// that need them.
func TestSelect(t *testing.T) {
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"tag=WEB"}, "100 local:iso/debian.iso"},
		{[]string{"vmid=102"}, "102"},
		{[]string{"vmid=101-103,110", "kind=vm,lxc"}, "101 102 110"},
		{[]string{"name=WEB-*"}, "102 104"},
		{[]string{"name=web*,mail"}, "100 102 104 110 local:iso/debian.iso"},
		{[]string{"kind=ISO"}, "local:iso/debian.iso local:iso/seed.iso"},
		{[]string{"kind=iso", "name=deb*"}, "local:iso/debian.iso"},
		{[]string{"pool=none"}, ""},
		{[]string{"tag=web", "vmid=110"}, ""},
	} {
		e := oddEstate(t)
		sel, err := adopt.ParseSelector(c.flags)
		if err != nil {
			t.Fatal(err)
		}
		all, _ := e.proof(adopt.Options{})
		_, res := e.adopt(adopt.Options{Select: sel})
		var got []string
		for _, m := range res.Manifests {
			got = append(got, m.ID)
			if string(m.Text) != string(manifest(t, all, m.ID).Text) {
				t.Errorf("%v: %s is another manifest when selected:\n%s", c.flags, m.ID, m.Text)
			}
		}
		slices.Sort(got)
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%v selects %q, want %q", c.flags, s, c.want)
		}
	}
	for flag, text := range map[string]string{"web": "key=value", "tag=": "key=value", "color=red": "no key \"color\"", "vmid=x": "not a vmid",
		"vmid=9-3": "not a vmid", "kind=Pod": "none of", "name=[": "not a pattern"} {
		if _, err := adopt.ParseSelector([]string{flag}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("--select %s: %v, want %q", flag, err, text)
		}
	}
}
