package field

import (
	"fmt"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/wire"
)

// ct is a small container: a root, mount points, a bind mount and features.
type ct struct {
	storage, host Opt[string]
	size          Opt[wire.Size]
	nesting, fuse Opt[bool]
	mp            []struct {
		storage, path Opt[string]
		size          Opt[wire.Size]
		ro            Opt[bool]
	}
	bridge Opt[string]
	bind   bool
}

func (c *ct) shape() *Block {
	vol := func(key string, kind VolumeKind, storage Opt[string], size Opt[wire.Size]) *Volume {
		return &Volume{Key: key, Kind: kind, Storage: storage.Or(""), Size: size.Or(0), Grow: true, FirstToken: "volume",
			CreateText: func() string { return storage.Or("") + ":" + size.Or(0).GiBNumber() }}
	}
	b := Group("", "a test container",
		Group("root", "root",
			Var(&c.storage, "storage", "rootfs", "", Text(), "").Is(RoleStorage),
			Var(&c.size, "size", "rootfs", "size", Bytes(), "").Is(RoleSize),
		).Fills(vol("rootfs", Rootfs, c.storage, c.size)),
		ListOf(&c.mp, "mount-points", "mounts", func(i int, e *struct {
			storage, path Opt[string]
			size          Opt[wire.Size]
			ro            Opt[bool]
		}) *Block {
			key := fmt.Sprintf("mp%d", i)
			return Group("", "",
				Var(&e.storage, "storage", key, "", Text(), "").Is(RoleStorage),
				Var(&e.size, "size", key, "size", Bytes(), "").Is(RoleSize),
				Var(&e.path, "mount-point", key, "mp", Text(), "").On(Live),
				Var(&e.ro, "read-only", key, "ro", Bool(), "").PVEDefault("0").On(Live),
			).Fills(vol(key, MountPoint, e.storage, e.size))
		}),
		Var(&c.nesting, "nesting", "features", "nesting", Bool(), "").PVEDefault("0").On(Pending),
		Var(&c.fuse, "fuse", "features", "fuse", Bool(), "").PVEDefault("0").On(Pending).Root("root@pam only"),
		Var(&c.bridge, "bridge", "net0", "bridge", Text(), "").HotplugBy("network"),
	)
	if c.bind {
		b.Nodes = append(b.Nodes, Var(&c.host, "host-path", "mp5", "volume", Text(), "").Fix("free the slot").On(Live))
	}
	return b
}

func TestDiffLXC(t *testing.T) {
	base := func(c *ct) { c.storage, c.size = Some("lvm"), Some(8*wire.GiB) }
	mount := func(c *ct) {
		base(c)
		c.mp = make([]struct {
			storage, path Opt[string]
			size          Opt[wire.Size]
			ro            Opt[bool]
		}, 1)
		c.mp[0].storage, c.mp[0].size, c.mp[0].path, c.mp[0].ro = Some("lvm"), Some(4*wire.GiB), Some("/srv"), Some(true)
	}
	for _, c := range []struct {
		name, live, want string
		do               func(c *ct)
	}{
		{"root is never rewritten", "rootfs: lvm:vm-1-disk-0,size=8G,acl=1", "", base},
		{"root on another storage", "rootfs: zfs:subvol-1-disk-0,size=8G", "anomaly root.storage: the live volume zfs:subvol-1-disk-0 is on zfs, the manifest wants lvm", base},
		{"root grows", "rootfs: lvm:vm-1-disk-0,size=4G", "grow rootfs 4GiB to 8GiB", base},
		{"no root", "", "anomaly root: the container has no rootfs", base},
		{"a mount point is made", "rootfs: lvm:vm-1-disk-0,size=8G", "create mp0=lvm:4,mp=/srv,ro=1 on lvm", mount},
		{"options converge in place", "rootfs: lvm:vm-1-disk-0,size=8G\nmp0: lvm:vm-1-disk-1,backup=1,mp=/data,size=4G", "mp0=lvm:vm-1-disk-1,backup=1,mp=/srv,size=4G,ro=1", mount},
		{"a bind in a volume's slot", "rootfs: lvm:vm-1-disk-0,size=8G\nmp0: /host,mp=/srv,ro=1", "anomaly mount-points[0]: mp0 holds a bind mount (/host), the manifest wants a mount point there", mount},
		{"a broken root text", "rootfs: lvm:8,size=8G", "", base},
		{"features by token", "rootfs: lvm:vm-1-disk-0,size=8G\nfeatures: keyctl=1,nesting=1", "features=keyctl=1,nesting=1,fuse=1 (root@pam only)", func(c *ct) { base(c); c.fuse, c.nesting = Some(true), Some(true) }},
		{"the last feature goes", "rootfs: lvm:vm-1-disk-0,size=8G\nfeatures: nesting=1", "delete features", func(c *ct) { base(c); c.nesting = Cleared[bool]() }},
		{"a live bind is not re-pointed", "rootfs: lvm:vm-1-disk-0,size=8G\nmp5: /a,mp=/x", "anomaly host-path: live is /a, the manifest wants /b", func(c *ct) { base(c); c.bind, c.host = true, Some("/b") }},
		{"a volume does not become a bind", "rootfs: lvm:vm-1-disk-0,size=8G\nmp5: lvm:vm-1-disk-3,mp=/x", "anomaly host-path: live is lvm:vm-1-disk-3, the manifest wants /b", func(c *ct) { base(c); c.bind, c.host = true, Some("/b") }},
		{"a bind into an empty slot", "rootfs: lvm:vm-1-disk-0,size=8G", "mp5=/b", func(c *ct) { base(c); c.bind, c.host = true, Some("/b") }},
		{"hwaddr survives", "rootfs: lvm:vm-1-disk-0,size=8G\nnet0: name=eth0,bridge=a,hwaddr=BC:24:11:00:00:01,type=veth", "net0=name=eth0,bridge=b,hwaddr=BC:24:11:00:00:01,type=veth", func(c *ct) { base(c); c.bridge = Some("b") }},
	} {
		v, g := &ct{}, guest(c.live)
		g.LXC = true
		c.do(v)
		d := Diff(v.shape(), g)
		if got := show(d); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
		if after := Diff(v.shape(), settle(g, d)); !after.Empty() {
			t.Errorf("%s: applied, and still\n%s", c.name, show(after))
		}
	}
	v := &ct{}
	mount(v)
	v.fuse = Some(false)
	params, _ := CreateParams(v.shape(), true, Env{})
	got := ""
	for _, p := range params {
		got += p.Key + "=" + p.Value.String() + " "
	}
	if got != "rootfs=lvm:8 mp0=lvm:4,mp=/srv,ro=1 " {
		t.Error(got)
	}
}

func TestPendingImpactAndSlots(t *testing.T) {
	v, g := load(t, "cpu: {cores: 2}\n"+oneDisk), guest("cores: 2\ncores!pending: 4\nscsi0!pending: lvm:vm-1-disk-0,size=32G")
	g.Running = true
	if got := show(Diff(v.shape(), g)); got != "cores=2\nwaiting disks[0] scsi0: none -> lvm:vm-1-disk-0,size=32G" {
		t.Error(got)
	}
}

// A create form that PVE could not act upon is no volume: it is sent again,
// whether the container runs or not. What waits for a restart stays.
func TestUnmadeVolume(t *testing.T) {
	const root = "rootfs: lvm:vm-1-disk-0,size=8G\n"
	for _, c := range []struct{ name, live, want string }{
		{"a create form", root + "mp0!pending: lvm:4,mp=/srv,ro=1", "create mp0=lvm:4,mp=/srv,ro=1 on lvm"},
		{"of other options", root + "mp0!pending: lvm:9,mp=/old,backup=1", "create mp0=lvm:4,mp=/srv,ro=1 on lvm"},
		{"a volume waits", root + "mp0!pending: lvm:vm-1-disk-1,mp=/srv,ro=1,size=4G", "waiting mount-points[0] mp0: none -> lvm:vm-1-disk-1,mp=/srv,ro=1,size=4G"},
		{"over a live volume", root + "mp0: lvm:vm-1-disk-1,mp=/srv,ro=1,size=4G\nmp0!pending: lvm:4,mp=/srv,ro=1",
			"anomaly mount-points[0].size: PVE tells no size of mp0, the manifest wants 4GiB"},
		{"never a root", "rootfs!pending: lvm:8,size=8G\nmp0: lvm:vm-1-disk-1,mp=/srv,ro=1,size=4G", "waiting root rootfs: none -> lvm:8,size=8G"},
	} {
		for _, runs := range []bool{false, true} {
			v, g := &ct{}, guest(c.live)
			g.LXC, g.Running = true, runs
			v.storage, v.size = Some("lvm"), Some(8*wire.GiB)
			v.mp = make([]struct {
				storage, path Opt[string]
				size          Opt[wire.Size]
				ro            Opt[bool]
			}, 1)
			v.mp[0].storage, v.mp[0].size, v.mp[0].path, v.mp[0].ro = Some("lvm"), Some(4*wire.GiB), Some("/srv"), Some(true)
			if got := strings.ReplaceAll(show(Diff(v.shape(), g)), " [live]", ""); got != c.want {
				t.Errorf("%s, running %t: got\n%s\nwant\n%s", c.name, runs, got, c.want)
			}
		}
	}
}

// A volume that waits to be removed still fills its slot: a create form in
// extra does not go there either.
func TestExtraOverAPendingRemoval(t *testing.T) {
	v, g := load(t, "extra: {sata1: 'lvm:8'}"), guest("sata1: lvm:vm-1-disk-3,size=8G\n-sata1")
	g.Running = true
	want := "anomaly extra.sata1: the volume in sata1 waits to be removed at the next restart; the slot is not free"
	if got := show(Diff(v.shape(), g)); got != want {
		t.Errorf("got %s", got)
	}
}

// Another medium goes into a CD drive, and never where the cloud-init drive is.
func TestExtraOverACloudInitDrive(t *testing.T) {
	v, g := load(t, "extra: {sata1: 'local:iso/b.iso,media=cdrom'}"), guest("sata1: lvm:vm-1-cloudinit,media=cdrom,size=4M")
	want := "anomaly extra.sata1: sata1 holds lvm:vm-1-cloudinit, the manifest wants local:iso/b.iso; a live volume is not replaced"
	if got := show(Diff(v.shape(), g)); got != want {
		t.Errorf("got %s", got)
	}
}

// A create form in extra over a drive of another kind is an anomaly.
func TestExtraOverAnotherKind(t *testing.T) {
	for _, c := range []struct{ extra, live string }{
		{"lvm:8", "lvm:vm-1-cloudinit,media=cdrom,size=4M"},
		{"lvm:cloudinit", "lvm:vm-1-disk-3,size=8G"},
		{"lvm:8", "lvm:iso/a.iso,media=cdrom,size=8G"},
	} {
		v, g := load(t, "extra: {sata1: '"+c.extra+"'}"), guest("sata1: "+c.live)
		holds, _, _ := strings.Cut(c.live, ",")
		if got := show(Diff(v.shape(), g)); !strings.HasPrefix(got, "anomaly extra.sata1: sata1 holds "+holds) {
			t.Errorf("%s over %s: got %s", c.extra, c.live, got)
		}
	}
}

// What only a create form carries is not written over a live volume.
func TestExtraImportsOnce(t *testing.T) {
	v, g := load(t, "extra: {sata1: 'lvm:0,import-from=local:import/a.qcow2,format=raw'}"), guest("sata1: lvm:vm-1-disk-3,size=8G")
	if got := show(Diff(v.shape(), g)); got != "" {
		t.Errorf("got %s", got)
	}
}
