package field

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// vm is a small spec with every kind of part that a shape can have.
type vm struct {
	node, name Opt[string]
	memory     Opt[wire.Size]
	cpuType    Opt[string]
	cores      Opt[int]
	flags      Opt[[]string]
	nested     Opt[bool]
	hidden     Opt[bool]
	tags       Opt[[]string]
	pool       Opt[string]
	notes      Opt[string]
	unpriv     Opt[bool]
	ciuser     Opt[string]
	password   Opt[secret.Text]
	keys       Opt[[]string]
	servers    Opt[[]string]
	startup    Opt[string]
	machine    Opt[string]
	template   Opt[string]
	disks      []disk
	nics       []nic
	efi        *efi
	drive      *drive
	bind       *bind
	extra      []MapEntry[string]
	clone      bool
}

type disk struct {
	storage, serial  Opt[string]
	size             Opt[wire.Size]
	slot             Opt[int]
	iothread, backup Opt[bool]
	discard          Opt[string]
	grow             bool
	image            Opt[string]
}

type nic struct {
	model, bridge, mac Opt[string]
	vlan               Opt[int]
	firewall           Opt[bool]
}

type (
	efi   struct{ storage, template Opt[string] }
	drive struct{ storage Opt[string] }
	bind  struct{ host, path Opt[string] }
)

func (v *vm) shape() *Block {
	id := func(r *Row) *Row {
		if v.clone {
			r.CloudIdentity()
		}
		return r
	}
	b := Group("", "a test machine",
		Var(&v.node, "node", "", "", Text(), "where it runs").Req(),
		Var(&v.name, "pve-name", "name", "", TextMatching(`[a-z0-9.-]+`, "a DNS name", "web"), "name").On(Live),
		Var(&v.memory, "memory", "memory", "current", MiBSize(16*wire.MiB, 0), "RAM").Req().PVEDefault("512").HotplugBy("memory"),
		Group("cpu", "processors",
			Var(&v.cpuType, "type", "cpu", "cputype", Fold(Text()), "model").PVEDefault("kvm64").On(Pending),
			Var(&v.cores, "cores", "cores", "", Int(1, 128), "cores").PVEDefault("1").On(Pending),
			Var(&v.flags, "flags", "cpu", "flags", Flags(nil), "flags").On(Pending),
		).Req(),
		ListOf(&v.disks, "disks", "disks", v.disk).Req(),
		ListOf(&v.nics, "networks", "NICs", v.nic),
		Group("hardware", "hardware",
			Var(&v.machine, "machine", "machine", "type", Spelled(Spelling{"i440fx", "pc"}, Spelling{"q35", "q35"}), "chipset").PVEDefault("pc").On(Stop),
			Sub(&v.efi, "efi-disk", "EFI vars", v.efiNodes).Fills(&Volume{Key: "efidisk0", Kind: EFI, FirstToken: "file",
				Storage: v.efiStorage(), CreateText: func() string { return v.efiStorage() + ":1" }}),
			Sub(&v.drive, "cloud-init", "cloud-init drive", func(d *drive) []Node {
				return []Node{Var(&d.storage, "storage", "ide2", "", Text(), "storage").Req().Is(RoleStorage)}
			}).Fills(&Volume{Key: "ide2", Kind: CloudInit, FirstToken: "file", Storage: v.driveStorage(),
				CreateText: func() string { return v.driveStorage() + ":cloudinit" }}),
			Sub(&v.bind, "bind", "a fixed slot", func(d *bind) []Node {
				return []Node{
					Var(&d.host, "host", "usb0", "host", Text(), "host").Req().Fix("free the slot").On(Pending),
					Var(&d.path, "path", "usb0", "mapping", Text(), "path").On(Pending),
				}
			}),
		),
		Group("options", "options",
			Var(&v.nested, "nested-virt", "cpu", "flags", FlagMember("nested-virt"), "nested").On(Pending),
			Var(&v.hidden, "hidden", "cpu", "hidden", Bool(), "hidden").PVEDefault("0").On(Pending),
			Var(&v.unpriv, "unprivileged", "unprivileged", "", Bool(), "user namespace").PVEDefault("0").Fix("make it anew"),
			Var(&v.startup, "startup", "startup", "", Startup(), "order").Root("Sys.Modify on /"),
		),
		Group("cloud-init-data", "identity",
			id(Var(&v.ciuser, "ci-user", "ciuser", "", Text(), "user").On(Live)),
			id(Var(&v.keys, "ssh-keys", "sshkeys", "", SSHKeys(true), "keys").On(Live)),
			id(Var(&v.servers, "nameservers", "nameserver", "", Strings(ListOptions{Sep: " ", Cut: " ,;", Example: "[192.0.2.1]"}), "DNS").On(Live)),
		),
		Var(&v.tags, "tags", "tags", "", Tags("proxops"), "tags"),
		Var(&v.notes, "pve-description", "description", "", Description(8192), "notes"),
		Var(&v.pool, "pool", "pool", "", Text(), "pool").Is(RolePool),
		Var(&v.template, "template", "ostemplate", "", Text(), "source").OrUnknown().OnlyAtCreate(),
		MapOf(&v.extra, "extra", "PVE keys",
			func(key string, o *Opt[string]) *Row { return Var(o, key, key, "", Scalar(), "").On(Pending) },
			func(key string) error {
				if key == "delete" {
					return fmt.Errorf("%s is a control parameter", key)
				}
				return nil
			}),
	)
	pw := id(Var(&v.password, "", "cipassword", "", SecretText(), "password").Hides().IfAbsent().On(Live))
	b.Nodes = append(b.Nodes, pw)
	if v.clone {
		b.Nodes = append(b.Nodes, ClearOnClone("cicustom", ""))
	}
	return b
}

func (v *vm) efiStorage() string {
	if v.efi == nil {
		return ""
	}
	return v.efi.storage.Or("")
}

func (v *vm) driveStorage() string {
	if v.drive == nil {
		return ""
	}
	return v.drive.storage.Or("")
}

func (v *vm) efiNodes(e *efi) []Node {
	return []Node{
		Var(&e.storage, "storage", "efidisk0", "", Text(), "storage").Req().Is(RoleStorage),
		Var(&e.template, "template", "efidisk0", "efitype", OneOf("2m", "4m"), "vars").AtCreate("4m").On(Stop),
	}
}

func (v *vm) disk(i int, d *disk) *Block {
	key := fmt.Sprintf("scsi%d", d.slot.Or(i))
	vol := &Volume{
		Key: key, Kind: Disk, Storage: d.storage.Or(""), Size: d.size.Or(0), Grow: d.grow, FirstToken: "file",
		CreateText: func() string { return d.storage.Or("") + ":" + d.size.Or(0).GiBNumber() },
	}
	if img, ok := d.image.Get(); ok {
		vol.SeedOnly = true
		vol.CreateText = func() string { return d.storage.Or("") + ":0" }
		vol.CreateExtra = []Token{{"import-from", "local:import/" + img}}
	}
	return Group("", "one disk",
		Var(&d.storage, "storage", key, "", Text(), "storage").Req().Is(RoleStorage),
		Var(&d.size, "size", key, "size", Bytes(), "size").Is(RoleSize),
		Var(&d.slot, "slot", "", "", Slot("scsi", 30), "slot").Is(RoleSlot),
		Var(&d.image, "image", "", "", Text(), "image").Is(RoleSource),
		Var(&d.iothread, "iothread", key, "iothread", Bool(), "thread").PVEDefault("0").HotplugBy("none-such"),
		Var(&d.backup, "backup", key, "backup", Bool(), "backup").PVEDefault("1").On(Live),
		Var(&d.discard, "discard", key, "discard", OneOf("on", "ignore"), "trim").PVEDefault("ignore").HotplugBy("disk"),
		Var(&d.serial, "serial", key, "serial", Text(), "serial").On(Pending),
	).Fills(vol)
}

func (v *vm) nic(i int, n *nic) *Block {
	key := fmt.Sprintf("net%d", i)
	return Group("", "one NIC",
		Var(&n.model, "model", key, "model", OneOf(wire.NetModels()...), "model").AtCreate("virtio").HotplugBy("network"),
		Var(&n.bridge, "bridge", key, "bridge", Text(), "bridge").Req().HotplugBy("network"),
		Var(&n.mac, "mac", key, "macaddr", MAC(), "address").HotplugBy("network").NoAdopt(),
		Var(&n.vlan, "vlan", key, "tag", Int(1, 4094), "VLAN").HotplugBy("network"),
		Var(&n.firewall, "firewall", key, "firewall", Bool(), "firewall").PVEDefault("0").HotplugBy("network"),
	)
}

// load makes a spec from YAML; required fields that no test is about are
// added.
func load(t testing.TB, text string) *vm {
	t.Helper()
	v := &vm{}
	for _, must := range []string{"node: n1", "memory: 512MiB", "cpu: {}", "disks: []", "template: null"} {
		if key, _, _ := strings.Cut(must, ":"); !strings.Contains("\n"+text, "\n"+key+":") {
			text += "\n" + must
		}
	}
	docs, ps := yamldoc.Parse("t.yaml", []byte(text))
	if ps != nil {
		t.Fatal(ps)
	}
	if ps := Load("t.yaml", docs[0], v.shape); ps != nil {
		t.Fatalf("%s\n%v", text, ps)
	}
	return v
}

// guest makes a live guest from lines of PVE's configuration. A line of the
// form key!pending: v is a pending value, -key a pending deletion.
func guest(text string) *Guest {
	g := &Guest{Exists: true, Config: map[string]Entry{"memory": {Value: ptr("512")}}}
	for l := range strings.Lines(text) {
		l = strings.TrimRight(strings.TrimLeft(l, " \t"), "\r\n") // a blank value stays one
		k, v, _ := strings.Cut(l, ": ")
		if k == "" {
			continue
		}
		if name, ok := strings.CutSuffix(k, "!pending"); ok {
			e := g.Config[name]
			e.Pending = &v
			g.Config[name] = e
		} else if name, ok := strings.CutPrefix(k, "-"); ok {
			e := g.Config[name]
			e.Delete = true
			g.Config[name] = e
		} else {
			g.Config[k] = Entry{Value: &v}
		}
	}
	return g
}

func ptr(s string) *string { return &s }

// show is a delta as text, a line an item.
func show(d Delta) string {
	var out []string
	for _, e := range d.Edits {
		s := e.Key + "=" + e.Value.String()
		if e.Delete {
			s = "delete " + e.Key
		}
		if e.Create {
			s = "create " + s + " on " + e.Storage
		}
		if e.RootOnly != "" {
			s += " (" + e.RootOnly + ")"
		}
		if e.Impact != None {
			s += " [" + e.Impact.String() + "]"
		}
		out = append(out, s)
	}
	for _, g := range d.Grows {
		out = append(out, fmt.Sprintf("grow %s %s to %s", g.Key, g.From, g.To))
	}
	for _, a := range d.Anomalies {
		out = append(out, "anomaly "+a.Path+": "+a.Text)
	}
	for _, c := range d.Waiting {
		out = append(out, fmt.Sprintf("waiting %s %s: %s -> %s", c.Path, c.Key, side(c.Old), side(c.New)))
	}
	return strings.Join(out, "\n")
}

func side(v *wire.Value) string {
	if v == nil {
		return "none"
	}
	return v.String()
}

// settle is what PVE makes of a delta: the guest after every write.
func settle(g *Guest, d Delta) *Guest {
	if d.Empty() {
		return g
	}
	next := &Guest{Exists: true, LXC: g.LXC, Env: g.Env, Config: map[string]Entry{}}
	maps.Copy(next.Config, g.Config) // what is pending stays so
	for _, e := range d.Edits {
		old := g.Config[e.Key]
		waits := old.Pending != nil || old.Delete
		if e.Delete && waits && old.Value != nil {
			next.Config[e.Key] = Entry{Value: old.Value, Delete: true}
			continue
		}
		if e.Delete {
			delete(next.Config, e.Key)
			continue
		}
		text := e.Value.Reveal()
		p := wire.ParseProps(text, wire.FormatOf(g.LXC, e.Key))
		first := wire.FirstToken(g.LXC)
		if file, _ := p.Get(first); e.Create {
			storage, amount, _ := wire.SplitVolID(file)
			name := "vm-1-disk-9"
			if amount == "cloudinit" {
				name = "vm-1-cloudinit"
				p.Set("media", "cdrom")
			} else {
				p.Set("size", amount+"G")
			}
			p.Set(first, storage+":"+name)
			p.Del("import-from")
			text = p.String()
		}
		if e.Key == "cipassword" {
			text = "**********"
		}
		if next.Config[e.Key] = (Entry{Value: &text}); waits {
			next.Config[e.Key] = Entry{Value: old.Value, Pending: &text}
		}
	}
	for _, gr := range d.Grows {
		text, _ := next.Get(gr.Key)
		p := wire.ParseProps(text, wire.FormatOf(g.LXC, gr.Key))
		p.Set("size", gr.To.Wire())
		text = p.String()
		next.Config[gr.Key] = Entry{Value: &text}
	}
	next.Env.Creating, next.Env.AfterClone = false, false
	return next
}

func TestRowsAndVolumes(t *testing.T) {
	v := load(t, "disks: [{storage: a, size: 1GiB}, {storage: b, size: 2GiB}]\nnetworks: [{bridge: vmbr0}]")
	var paths []string
	for _, r := range Rows(v.shape()) {
		paths = append(paths, r.Path)
	}
	for _, want := range []string{"node", "cpu.type", "disks[1].storage", "networks[0].vlan", "options.nested-virt"} {
		if !slices.Contains(paths, want) {
			t.Errorf("no row %s in %v", want, paths)
		}
	}
	vols := Volumes(v.shape())
	if len(vols) != 2 || vols[1].Path != "disks[1]" || vols[1].Key != "scsi1" {
		t.Errorf("%+v", vols)
	}
}
