package kind

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// LXC is the spec of the kinds LXC and TemplateCT.
type LXC struct {
	Node        field.Opt[string]
	VMID        field.Opt[int]
	State       field.Opt[string]
	Description field.Opt[string]
	TagSet      field.Opt[[]string]
	PoolID      field.Opt[string]
	Template    field.Opt[string]
	Memory      field.Opt[wire.Size]
	Swap        field.Opt[wire.Size]
	Arch        field.Opt[string]
	CPU         CTCPU
	Root        Root
	MountPoints []MountPoint
	BindMounts  []BindMount
	Networks    []CTNIC
	DNS         DNS
	Options     CTOptions
	Init        Init
	Extra       []field.MapEntry[string]

	template bool
	volid    string // the bound CTTemplate's volume id
}

// CTCPU is the block cpu of a container.
type CTCPU struct {
	Cores field.Opt[int]
	Units field.Opt[int]
	Limit field.Opt[float64]
}

// Root is the block root of a container.
type Root struct {
	Storage field.Opt[string]
	Size    field.Opt[wire.Size]
	Grow    field.Opt[bool]
}

// DNS is the block dns of a container.
type DNS struct {
	Hostname    field.Opt[string]
	Nameservers field.Opt[[]string]
	Domain      field.Opt[string]
}

// CTOptions is the block options of a container.
type CTOptions struct {
	Unprivileged field.Opt[bool]
	Protection   field.Opt[bool]
	Nesting      field.Opt[bool]
	Keyctl       field.Opt[bool]
	Fuse         field.Opt[bool]
	Mount        field.Opt[[]string]
	Mknod        field.Opt[bool]
	OnBoot       field.Opt[bool]
	Startup      field.Opt[string]
	Console      field.Opt[bool]
	TTYs         field.Opt[int]
	CMode        field.Opt[string]
}

// Init is the block init of a container: what PVE takes at create alone.
type Init struct {
	SSHKeys     field.Opt[[]string]
	SSHKeyRefs  field.Opt[[]string]
	PasswordRef field.Opt[string]

	keys     resolved
	password passwordText
}

// Shape implements Spec.
func (c *LXC) Shape(live *field.Guest) *field.Block {
	return field.Group("", "",
		field.Var(&c.Node, "node", "", "", nodeName,
			"PVE node that the container lives on, as PVE names it; never a DNS name.").Req(),
		field.Var(&c.VMID, "vmid", "vmid", "", vmids,
			"PVE's numeric id, 100-999999999, unique in the whole cluster among VMs, containers and templates.").Req().OnlyAtCreate(),
		field.Var(&c.State, "state", "", "", stateCodec(c.template),
			"Power state to hold: started or stopped. Left out it is started; a template is always stopped."),
		c.templateRow(),
		field.Var(&c.Description, "pve-description", "description", "", guestDescription,
			"Notes shown in PVE, up to 8192 characters of Markdown. Trailing blanks and line ends are no difference.").On(field.Live),
		tagsRow(&c.TagSet), poolRow(&c.PoolID),
		field.Var(&c.Memory, "memory", "memory", "", guestMemory,
			"RAM, at least 16MiB, whole MiB, such as 2GiB.").Req().PVEDefault("512").On(field.Live),
		field.Var(&c.Swap, "swap", "swap", "", sizeOrNone,
			"Swap beside the RAM, whole MiB, such as 512MiB; 0 for none.").PVEDefault("512").PVEFills("512").On(field.Live),
		field.Var(&c.Arch, "arch", "arch", "", field.OneOf("amd64", "arm64"),
			"Processor architecture, amd64 or arm64.").PVEDefault("amd64").PVEFills("amd64").AtCreate("amd64").On(field.Pending),
		field.Group("cpu", "Processor.",
			field.Var(&c.CPU.Cores, "cores", "cores", "", field.Int(1, 8192),
				"Cores that the container sees, from 1. Left out or null it is all of the node's.").On(field.Live),
			field.Var(&c.CPU.Units, "units", "cpuunits", "", field.Int(1, 10000),
				"Weight against other guests of the node, 1-10000; PVE's own is 100.").On(field.Live).Eg("200"),
			field.Var(&c.CPU.Limit, "limit", "cpulimit", "", field.Number(0, 8192),
				"Most CPU time in cores, fractions allowed; 0 is no limit.").PVEDefault("0").On(field.Live).Eg("2", "1.5"),
		),
		c.root(live),
		field.ListOf(&c.MountPoints, "mount-points", "Volumes mounted into the container, each in one slot. A new one is mounted at once. A live one that is not listed is reported and never removed.", func(i int, m *MountPoint) *field.Block {
			return m.shape(i, live)
		}),
		field.ListOf(&c.BindMounts, "bind-mounts", "Directories of the node mounted into the container. A new one is mounted at once. Default slots go on after those of mount-points. Only root@pam may set them.", func(i int, m *BindMount) *field.Block {
			return m.shape(len(c.MountPoints)+i, live)
		}),
		field.ListOf(&c.Networks, "networks", "Network cards, each in one slot. [] means none; a live card that is not listed is reported and never removed.", func(i int, n *CTNIC) *field.Block {
			return n.shape(i)
		}).Req(),
		field.Group("dns", "Name and resolver.",
			field.Var(&c.DNS.Hostname, "hostname", "hostname", "", guestName,
				"Hostname, a DNS name. Left out it is metadata.name.").On(field.Live),
			field.Var(&c.DNS.Nameservers, "nameservers", "nameserver", "", addressList,
				"DNS servers, IP addresses, compared as a set; without them the node's are used.").On(field.Pending),
			field.Var(&c.DNS.Domain, "domain", "searchdomain", "", domainName,
				"DNS search domain; without it the node's is used.").On(field.Pending),
		),
		c.Options.shape(live),
		c.init(),
		extraMap(&c.Extra, true),
	)
}

func (c *LXC) templateRow() *field.Row {
	codec := ctTemplateName
	codec.Write = func(string) string { return c.volid }
	codec.Read = func(string) (string, error) {
		return "", fmt.Errorf("PVE does not report the template of a container")
	}
	return field.Var(&c.Template, "template", "ostemplate", "", codec,
		"CTTemplate that a missing container is made from. PVE does not report it afterwards: it is never compared. null stands for not known, which is fine while the container lives.").
		OrUnknown().OnlyAtCreate()
}

func (c *LXC) root(live *field.Guest) *field.Block {
	const key = "rootfs"
	r := &c.Root
	storage, size := r.Storage.Or(""), r.Size.Or(0)
	b := field.Group("root", "Root file system. A live one is never made anew.",
		field.Var(&r.Storage, "storage", key, "", storageID,
			"Storage of the root file system (content rootdir). A live one elsewhere is reported, never moved.").Req().Is(field.RoleStorage),
		field.Var(&r.Size, "size", key, "size", volumeSize,
			"Size, such as 8GiB. A larger size grows the live volume only with grow: true; a smaller one is reported.").Req().Is(field.RoleSize).On(field.Live),
		growRow(&r.Grow),
	).Req()
	if _, has := live.Get(key); live != nil && !has && !r.Storage.IsSet() {
		return b // nothing is wanted and nothing there
	}
	return b.Fills(&field.Volume{Key: key, Kind: field.Rootfs, Storage: storage, Size: size, FirstToken: "volume",
		Grow: r.Grow.Or(false), CreateText: func() string { return storage + ":" + size.GiBNumber() }})
}

func growRow(o *field.Opt[bool]) *field.Row {
	return field.Var(o, "grow", "", "", yesNo,
		"Allows growing the live volume to size through PVE's resize. Left out or false, another size is reported.")
}

// MountPoint is one element of mount-points.
type MountPoint struct {
	Storage field.Opt[string]
	Size    field.Opt[wire.Size]
	Path    field.Opt[string] // mount-point
	Slot    field.Opt[int]
	Grow    field.Opt[bool]
	Options MountOptions
}

// MountOptions is the block options of a mount point.
type MountOptions struct {
	ReadOnly field.Opt[bool]
	Backup   field.Opt[bool]
	ACL      field.Opt[bool]
	Quota    field.Opt[bool]
	Shared   field.Opt[bool]
	Mount    field.Opt[[]string] // mount-options
}

// swapTodo is the advice where a slot holds the other kind of mount: writing
// over it would detach a volume, or hide a directory.
const swapTodo = "a bind mount and a volume are never swapped; use another slot, or free this one in PVE"

// isBind tells a bind mount or a device from a volume.
func isBind(text string) bool {
	first, _ := wire.ParseProps(text, wire.FormatOf(true, "mp0")).Get("volume")
	return strings.HasPrefix(first, "/")
}

func (m *MountPoint) shape(i int, live *field.Guest) *field.Block {
	key := fmt.Sprintf("mp%d", m.Slot.Or(i))
	onLive := func(r *field.Row) *field.Row { // PVE mounts a new one at once and changes none that is mounted
		if r.On(field.Pending); live != nil && !live.Runs(key) {
			r.On(field.Live)
		}
		return r
	}
	o := &m.Options
	storage, size := m.Storage.Or(""), m.Size.Or(0)
	b := field.Group("", "One volume.",
		field.Var(&m.Storage, "storage", key, "", storageID,
			"Storage that a missing volume is allocated on (content rootdir). A live one elsewhere is reported, never moved.").Req().Is(field.RoleStorage).On(field.Live),
		field.Var(&m.Size, "size", key, "size", volumeSize,
			"Size, such as 20GiB. A larger size grows the live volume only with grow: true; a smaller one is reported.").Req().Is(field.RoleSize).On(field.Live),
		onLive(mountPathRow(&m.Path, key)),
		mountSlotRow(&m.Slot),
		growRow(&m.Grow),
		field.Group("options", "How it is mounted.",
			onLive(field.Var(&o.ReadOnly, "read-only", key, "ro", yesNo, "Mounted read-only.")),
			onLive(field.Var(&o.Backup, "backup", key, "backup", yesNo, "Whether backups include the volume; without the setting PVE leaves it out.")),
			onLive(field.Var(&o.ACL, "acl", key, "acl", yesNo, "POSIX access lists on or off.")),
			onLive(field.Var(&o.Quota, "quota", key, "quota", yesNo, "User quotas inside the container; not for ZFS subvolumes nor unprivileged containers.")),
			onLive(field.Var(&o.Shared, "shared", key, "shared", yesNo, "Marks the volume as there on every node; PVE copies nothing.").PVEDefault("0")),
			onLive(field.Var(&o.Mount, "mount-options", key, "mountoptions", mountOptionList,
				"Further mount options, a list of discard, lazytime, noatime, nodev, noexec and nosuid.")),
		),
	)
	return b.Fills(&field.Volume{Key: key, Kind: field.MountPoint, Storage: storage, Size: size, FirstToken: "volume",
		Grow: m.Grow.Or(false), CreateText: func() string { return storage + ":" + size.GiBNumber() }})
}

func mountPathRow(o *field.Opt[string], key string) *field.Row {
	return field.Var(o, "mount-point", key, "mp", absolutePath,
		"Absolute path in the container.").Req()
}

func mountSlotRow(o *field.Opt[int]) *field.Row {
	return field.Var(o, "slot", "", "", mpSlot,
		"Slot, mp0-mp255 or the number; mount-points and bind-mounts share them. Left out it is the position, bind-mounts counting on after mount-points.").Is(field.RoleSlot)
}

func mountOptions() field.Codec[[]string] {
	one := field.OneOf("discard", "lazytime", "noatime", "nodev", "noexec", "nosuid")
	return field.Strings(field.ListOptions{Sep: ";", Cut: "; ", Example: "[noatime, discard]", Check: func(s string) error {
		_, err := one.Parse(yamldoc.Str(s))
		return err
	}})
}

// pathCodec is an absolute path that means itself: no "..", no doubled or
// trailing slash difference.
func pathCodec(eg string) field.Codec[string] {
	c := field.TextMatching(`/[^\s,]*`, "an absolute path without blanks and commas", eg)
	parse := c.Parse
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := parse(n)
		if err == nil && slices.Contains(strings.Split(s, "/"), "..") {
			err = fmt.Errorf("%q holds .., which PVE refuses", s)
		}
		return s, err
	}
	c.Equal = func(want, live string, _ field.Env) bool { // mp= may lack the first slash (facts.md G)
		return path.Clean("/"+want) == path.Clean("/"+live)
	}
	return c
}

// BindMount is one element of bind-mounts.
type BindMount struct {
	HostPath field.Opt[string]
	Path     field.Opt[string] // mount-point
	Slot     field.Opt[int]
	ReadOnly field.Opt[bool]
}

func (m *BindMount) shape(i int, live *field.Guest) *field.Block {
	const who = "root@pam only: a bind mount"
	key := fmt.Sprintf("mp%d", m.Slot.Or(i))
	now, has := live.Get(key)
	onLive := func(r *field.Row) *field.Row {
		if r.Root(who).On(field.Pending); live != nil && !live.Runs(key) {
			r.On(field.Live)
		}
		return r
	}
	host := field.Var(&m.HostPath, "host-path", key, "volume", absolutePath,
		"Absolute path on the node. System directories such as /etc and / itself are refused. A live one is never pointed elsewhere.").Req().Root(who).On(field.Live)
	if has && !isBind(now) {
		host.Fix(swapTodo)
	} else {
		host.Fix("a live bind mount is never pointed at another directory; remove it in PVE, or use another slot")
	}
	return field.Group("", "One directory of the node.",
		host,
		onLive(mountPathRow(&m.Path, key)),
		mountSlotRow(&m.Slot),
		onLive(field.Var(&m.ReadOnly, "read-only", key, "ro", yesNo, "Mounted read-only.")),
	)
}

// CTNIC is one element of a container's networks.
type CTNIC struct {
	Bridge   field.Opt[string]
	Iface    field.Opt[string]
	Type     field.Opt[string]
	Tag      field.Opt[int]
	HWAddr   field.Opt[string]
	Rate     field.Opt[float64]
	Firewall field.Opt[bool]
	IP       field.Opt[string]
	Gateway  field.Opt[string]
	IP6      field.Opt[string]
	Gateway6 field.Opt[string]
	Slot     field.Opt[int]
}

func (n *CTNIC) shape(i int) *field.Block {
	key := fmt.Sprintf("net%d", n.Slot.Or(i))
	return field.Group("", "One network card.",
		field.Var(&n.Bridge, "bridge", key, "bridge", bridgeName,
			"Bridge or SDN VNet that the card is plugged into, such as vmbr0.").Req().On(field.Live),
		field.Var(&n.Iface, "iface", key, "name",
			interfaceName,
			"Name of the interface in the container. Left out a new card is named after its slot, such as net0, and a live one keeps its name.").AtCreate(key).On(field.Live),
		field.Var(&n.Type, "type", key, "type", field.OneOf("veth"),
			"Kind of the card; PVE has veth.").On(field.Live),
		field.Var(&n.Tag, "tag", key, "tag", vlanTag,
			"802.1Q VLAN tag, 1-4094.").On(field.Live),
		field.Var(&n.HWAddr, "hwaddr", key, "hwaddr", macAddress,
			"Fixed unicast MAC address. Left out PVE draws one and every later write keeps it.").NoAdoptWhen(drawnMAC).On(field.Live),
		field.Var(&n.Rate, "rate-limit", key, "rate", field.Number(0, 1e6),
			"Bandwidth limit in megabytes per second (PVE's unit, not megabits); fractions allowed.").On(field.Live).Eg("10", "1.5"),
		field.Var(&n.Firewall, "firewall", key, "firewall", yesNo,
			"Puts the card behind PVE's firewall.").On(field.Live),
		field.Var(&n.IP, "ip", key, "ip", ctIPv4,
			"IPv4 address with prefix length, dhcp, or manual.").On(field.Live),
		field.Var(&n.Gateway, "gw", key, "gw", gateway4,
			"IPv4 gateway; needs an address in ip.").On(field.Live),
		field.Var(&n.IP6, "ip6", key, "ip6", ctIPv6,
			"IPv6 address with prefix length, auto (SLAAC), dhcp, or manual.").On(field.Live),
		field.Var(&n.Gateway6, "gw6", key, "gw6", gateway6,
			"IPv6 gateway; needs an address in ip6.").On(field.Live),
		field.Var(&n.Slot, "slot", "", "", netSlot,
			"Slot of the card, net0-net31 or the number. Left out it is the position in the list.").Is(field.RoleSlot),
	)
}

// Who may write features: under a token PVE lets nesting through on
// unprivileged containers alone (facts.md A vi).
const (
	featureRoot = "root@pam only: every feature but nesting"
	nestingRoot = "root@pam only: features of a privileged container"
)

func (o *CTOptions) shape(live *field.Guest) *field.Block {
	feature := func(r *field.Row) *field.Row { return r.On(field.Pending).Root(featureRoot) }
	nesting := field.Var(&o.Nesting, "nesting", "features", "nesting", yesNo,
		"Lets the container run containers and newer systemd. On a privileged container only root@pam may set it.").PVEDefault("0").On(field.Pending)
	if o.privileged(live) {
		nesting.Root(nestingRoot)
	}
	return field.Group("options", "Options of the container.",
		field.Var(&o.Unprivileged, "unprivileged", "unprivileged", "", yesNo,
			"Maps root of the container to a plain user of the node. Decided at create, where PVE takes true if it is left out; a live container never changes.").
			PVEDefault("0").Fix("recreate needed: PVE decides this when it makes the container (back it up and restore it the other way, or make a new one)"),
		protectionRow(&o.Protection),
		nesting,
		feature(field.Var(&o.Keyctl, "keyctl", "features", "keyctl", yesNo,
			"Allows the keyctl system call, which Docker wants in unprivileged containers. Only root@pam may set it.").PVEDefault("0")),
		feature(field.Var(&o.Fuse, "fuse", "features", "fuse", yesNo,
			"Allows FUSE file systems. Only root@pam may set it.").PVEDefault("0")),
		feature(field.Var(&o.Mount, "mount", "features", "mount", fsTypes,
			"File system types that the container may mount, such as nfs and cifs. Only root@pam may set it.")),
		feature(field.Var(&o.Mknod, "mknod", "features", "mknod", yesNo,
			"Allows making device nodes, for unprivileged containers. Only root@pam may set it.").PVEDefault("0")),
		onbootRow(&o.OnBoot), startupRow(&o.Startup),
		field.Var(&o.Console, "console", "console", "", yesNo,
			"Console device in the container.").PVEDefault("1").On(field.Pending),
		field.Var(&o.TTYs, "ttys", "tty", "", field.Int(0, 6),
			"Number of terminals, 0-6.").PVEDefault("2").On(field.Pending),
		field.Var(&o.CMode, "cmode", "cmode", "", field.OneOf("tty", "console", "shell"),
			"What PVE's console connects to: tty, console or shell.").PVEDefault("tty").On(field.Pending),
	)
}

// privileged tells a container whose root is the node's: a live one by PVE,
// a new one by the manifest (PVE makes unprivileged ones by default).
func (o *CTOptions) privileged(live *field.Guest) bool {
	if live != nil && live.Exists {
		now, _ := live.Get("unprivileged")
		return now != "1"
	}
	return !o.Unprivileged.Or(true)
}

func fsType(s string) error {
	if !fsName.MatchString(s) {
		return fmt.Errorf("%q is not a file system type such as nfs", s)
	}
	return nil
}

var fsName = fullMatch(`[a-zA-Z0-9_]+`)

func (c *LXC) init() *field.Block {
	in := &c.Init
	raw := rawKeys
	refs := keyEntries
	refs.Write = func(r []string) string { return raw.Write(in.keys.of(r)) }
	refs.Read = func(string) ([]string, error) { return nil, fmt.Errorf("PVE does not report the keys") }
	pass := passwordEntry
	pass.Write = func(string) string { return in.password.clear.Reveal() } // PVE hashes it in the container
	pass.Read = func(string) (string, error) { return "", fmt.Errorf("PVE does not report the password") }
	return field.Group("init", "What a new container starts with. PVE takes it at create and reports none of it: it is never compared nor changed.",
		field.Var(&in.SSHKeys, "ssh-keys", "ssh-public-keys", "", raw,
			"Public keys of root, one an item. Not together with ssh-key-refs.").OnlyAtCreate(),
		field.Var(&in.SSHKeyRefs, "ssh-key-refs", "ssh-public-keys", "", refs,
			"Entries "+KeyRefPrefix+"<name> of the cluster's SOPS document that hold root's public keys. Not together with ssh-keys.").OnlyAtCreate().HidesWire(),
		field.Var(&in.PasswordRef, "password-ref", "password", "", pass,
			"Entry "+PasswordRefPrefix+"<name> of the cluster's SOPS document that holds root's password.").Hides().OnlyAtCreate(),
	)
}
