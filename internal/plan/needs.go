package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/wire"
)

// Need is a right that PVE asks for: one of Privs at one of Paths.
type Need struct {
	Privs []string
	Paths []string
	For   string // the field or step that needs it
}

// String words the need for people.
func (n Need) String() string {
	return fmt.Sprintf("%s needs %s on %s", n.For, strings.Join(n.Privs, " or "), strings.Join(n.Paths, " or "))
}

// Held reports whether the token has what is needed, as far as is known.
func (n Need) Held(s *live.Snapshot) bool {
	return slices.ContainsFunc(n.Paths, func(p string) bool { return s.Holds(p, n.Privs...) })
}

// judge predicts PVE's refusal of an action from the token's permissions. It
// is a prediction: PVE has the last word, so apply still asks.
func (m *maker) judge(a *Action) {
	if a.Refused != "" || m.s.Perms == nil || m.s.RootTicket {
		return
	}
	var missing []string
	for _, n := range Needs(*a, m.s) {
		if !n.Held(m.s) {
			a.Lacks = append(a.Lacks, n)
			missing = append(missing, n.String())
		}
	}
	if !m.s.Holds("/", "Sys.Modify") {
		for _, t := range tagNeeds(a.Changes, m.s.Options) {
			a.Lacks = append(a.Lacks, t)
			missing = append(missing, t.String()+" (the datacenter restricts tags)")
		}
	}
	slices.Sort(missing)
	a.Refused = strings.Join(slices.Compact(missing), "; ")
}

// Needs lists what PVE asks of the token for an action, as its API code checks
// it (facts M and the recordings au-201 to au-379).
func Needs(a Action, s *live.Snapshot) []Need {
	out := needs(a, s)
	if a.Kind != nil && a.Kind.Guest == "qemu" && s.Perms != nil && s.Holds("/", "Sys.Modify") { // then PVE asks nothing more for a VM's tags
		out = slices.DeleteFunc(out, func(n Need) bool { return n.For == "tags" })
	}
	if step, ok := a.Do.(UpdateStep); ok && len(step.Params)+len(step.Delete)+len(step.Revert) > 0 {
		out = withAny(step.Guest, out, guestPaths(a, s.Guests[a.VMID]))
	}
	return out
}

func needs(a Action, s *live.Snapshot) []Need {
	g := s.Guests[a.VMID]
	vm := guestPaths(a, g)
	one := func(priv string) []Need { return []Need{{[]string{priv}, vm, string(a.Verb)}} }
	switch step := a.Do.(type) {
	case DownloadStep:
		return downloadNeeds(a, step, s)
	case CreateStep:
		out := append(one("VM.Allocate"), paramNeeds(step.Guest, step.Params, vm, step.Storages, true)...)
		if v, ok := step.Params.Get("unprivileged"); ok && v.String() == "0" {
			out = append(out, Need{[]string{"Sys.Modify"}, []string{"/"}, "a privileged container"})
		}
		return append(out, powerNeed(step.Start, vm)...)
	case CloneStep:
		out := append(one("VM.Allocate"), Need{[]string{"VM.Clone"}, []string{"/vms/" + strconv.Itoa(step.Source)}, string(a.Verb)})
		out = append(out, storageNeeds(step.Storages)...)
		for _, key := range sortedKeys(step.nets) { // PVE asks for each bridge of the source, too (facts L)
			out = append(out, bridgeNeeds(key, step.nets[key])...)
		}
		out = append(out, updateNeeds(step.write, step.nets, vm)...)
		return append(out, powerNeed(step.Start, vm)...)
	case UpdateStep:
		return updateNeeds(step, devicesOf(g), vm)
	case ResizeStep:
		out := append(one("VM.Config.Disk"), storageNeeds([]string{step.Storage})...)
		if step.Guest == "lxc" {
			out = append(out, Need{[]string{"VM.Config.Options"}, vm, string(a.Verb)})
		}
		return out
	case MarkStep:
		return one("VM.Allocate")
	case PowerStep:
		return one("VM.PowerMgmt")
	case MigrateStep:
		return one("VM.Migrate")
	case DeleteStep:
		return append(one("VM.Allocate"), powerNeed(step.Running, vm)...)
	}
	return nil
}

// guestPaths are where the guest's rights may stand: at the guest, or at the
// pool that it is, or will be, a member of.
func guestPaths(a Action, g *live.Guest) []string {
	paths := []string{"/vms/" + strconv.Itoa(a.VMID)}
	pool := ""
	if g != nil {
		pool = g.Pool
	}
	switch step := a.Do.(type) {
	case CreateStep:
		if v, ok := step.Params.Get("pool"); ok {
			pool = v.String()
		}
	case CloneStep:
		if v, ok := step.Params.Get("pool"); ok {
			pool = v.String()
		}
	}
	if pool != "" {
		paths = append(paths, "/pool/"+pool)
	}
	return paths
}

func powerNeed(starts bool, vm []string) []Need {
	if !starts {
		return nil
	}
	return []Need{{[]string{"VM.PowerMgmt"}, vm, "its power state"}}
}

func downloadNeeds(a Action, step DownloadStep, s *live.Snapshot) []Need {
	out := []Need{{[]string{"Datastore.AllocateTemplate"}, []string{"/storage/" + step.Storage}, string(a.Verb)}}
	if s.Holds("/", "Sys.Modify") && s.Holds("/", "Sys.Audit") {
		return out
	}
	return append(out, Need{[]string{"Sys.AccessNetwork"}, []string{"/nodes/" + a.Node}, string(a.Verb) + " of a URL"})
}

func storageNeeds(storages []string) []Need {
	var out []Need
	for _, st := range storages {
		if st != "" {
			out = append(out, Need{[]string{"Datastore.AllocateSpace"}, []string{"/storage/" + st}, "a volume"})
		}
	}
	return out
}

// devicesOf are the cards, drives and mapped devices that a guest has: what
// runs, for PVE looks at that and not at what is pending.
func devicesOf(g *live.Guest) map[string]string {
	out := map[string]string{}
	if g == nil {
		return out
	}
	for key, e := range g.Config {
		if e.Value != nil && (strings.HasPrefix(key, "net") || wire.IsVolumeKey(g.LXC, key) || mapping(key, *e.Value) != "") {
			out[key] = *e.Value
		}
	}
	return out
}

// Rights of which PVE asks any one of whoever changes a guest's config at all,
// before it looks at the keys (the schema of PUT …/config).
var (
	anyVMChange = []string{"VM.Config.Options", "VM.Config.Disk", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network", "VM.Config.HWType", "VM.Config.Cloudinit"}
	anyCTChange = []string{"VM.Config.Options", "VM.Config.Disk", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Network"}
)

// withAny adds that right where no key asks for one of its kind.
func withAny(guest string, needs []Need, vm []string) []Need {
	privs := anyVMChange
	if guest == "lxc" {
		privs = anyCTChange
	}
	if slices.ContainsFunc(needs, func(n Need) bool { return slices.Contains(privs, n.Privs[0]) }) {
		return needs
	}
	return append(needs, Need{privs, vm, "a change"})
}

// updateNeeds is what a config write asks for. A card that is changed needs the
// right on the bridge that it leaves as on the one that it gets, and a mapped
// device on its mapping. has are the guest's cards, drives and devices.
func updateNeeds(step UpdateStep, has map[string]string, vm []string) []Need {
	out := paramNeeds(step.Guest, step.Params, vm, step.Storages, false)
	for _, p := range step.Params {
		out = append(out, plugNeeds(p.Key, has[p.Key])...)
	}
	for _, key := range step.Delete {
		out = append(out, keyNeeds(step.Guest, key, has[key], vm)...)
	}
	for _, key := range step.Revert {
		out = append(out, revertNeeds(step.Guest, key, has[key], vm)...)
	}
	if step.Pool != nil {
		for _, p := range []string{step.Pool.From, step.Pool.To} {
			if p != "" {
				out = append(out, Need{[]string{"Pool.Allocate"}, []string{"/pool/" + p}, "pool"})
			}
		}
		out = append(out, Need{[]string{"Permissions.Modify", "VM.Allocate"}, vm, "pool"})
	}
	return out
}

// revertNeeds is what dropping a pending change asks for. PVE checks the rights
// of the keys that are set and deleted, before it turns what is to be reverted
// into such keys: of those it then checks only what it looks at key by key,
// the drives, cards, ports and tags of a VM.
func revertNeeds(guest, key, text string, vm []string) []Need {
	if guest == "lxc" {
		return nil
	}
	switch class := wire.KeyClass(key); {
	case key == "tags", wire.IsVolumeKey(false, key), class != key && slices.Contains([]string{"serial", "usb", "hostpci"}, class):
		return keyNeeds(guest, key, text, vm)
	}
	return plugNeeds(key, text)
}

func paramNeeds(guest string, params wire.Params, vm, storages []string, create bool) []Need {
	var out []Need
	for _, st := range storages {
		if key := allocates(params, st); key != "" {
			out = append(out, Need{[]string{"Datastore.AllocateSpace"}, []string{"/storage/" + st}, key})
		}
	}
	for _, p := range params {
		if create && slices.Contains([]string{"pool", "ostemplate", "unprivileged", "password", "ssh-public-keys", "start", "vmid", "arch", "ostype"}, p.Key) {
			if p.Key == "ostemplate" {
				out = append(out, readVolume(p.Value.String(), "template")...)
			}
			continue
		}
		if create && guest == "qemu" && wire.IsVolumeKey(false, p.Key) {
			out = append(out, driveReads(p.Key, p.Value.String())...) // the drive itself takes no right beside VM.Allocate
			continue
		}
		if create && p.Key == "tags" { // asked on the guest alone, not on its pool (au-315)
			out = append(out, Need{[]string{"VM.Config.Options"}, vm[:1], "tags"})
			continue
		}
		out = append(out, keyNeeds(guest, p.Key, p.Value.String(), vm)...)
	}
	return out
}

// allocates is the first key that makes a volume on a storage, or "". PVE asks
// no right on the storage for a cloud-init drive (au-271).
func allocates(params wire.Params, storage string) string {
	for _, p := range params {
		if p.Value.IsSecret() {
			continue
		}
		if first := firstToken(p.Value.String()); strings.HasPrefix(first, storage+":") && first != storage+":cloudinit" {
			return p.Key
		}
	}
	return ""
}

// driveReads are the rights on what a new drive is filled from.
func driveReads(key, text string) []Need {
	if token(text, "media") == "cdrom" {
		return readVolume(firstToken(text), key)
	}
	return readVolume(token(text, "import-from"), key)
}

func readVolume(vol, what string) []Need {
	st, _, ok := strings.Cut(vol, ":")
	if !ok || strings.HasPrefix(vol, "/") {
		return nil
	}
	return []Need{{[]string{"Datastore.AllocateSpace", "Datastore.Audit"}, []string{"/storage/" + st}, what}}
}

// privilege is one row of PVE's tables of which right a config key needs.
type privilege struct {
	privs []string
	keys  []string // a trailing # stands for an index
}

var vmPrivileges = []privilege{
	{[]string{"VM.Config.CPU"}, []string{"cores", "cpu", "sockets", "vcpus", "cpulimit", "cpuunits", "affinity", "numa", "numa#"}},
	{[]string{"VM.Config.Memory"}, []string{"memory", "balloon", "shares", "allow-ksm"}},
	{[]string{"VM.Config.HWType"}, []string{"acpi", "hotplug", "kvm", "machine", "scsihw", "smbios1", "tablet", "vga", "watchdog", "audio0", "rng0", "serial#", "usb#", "hostpci#", "parallel#", "virtiofs#"}},
	{[]string{"VM.Config.Disk"}, []string{"boot", "bootdisk", "vmstatestorage", "scsi#", "virtio#", "sata#", "ide#", "efidisk0", "tpmstate0", "unused#"}},
	{[]string{"VM.Config.Network"}, []string{"net#"}},
	{[]string{"VM.Config.Cloudinit", "VM.Config.Network"}, []string{"ciuser", "cipassword", "citype", "cicustom", "ciupgrade", "sshkeys", "nameserver", "searchdomain", "ipconfig#"}},
}

var ctPrivileges = []privilege{
	{[]string{"VM.Config.CPU"}, []string{"cores", "cpulimit", "cpuunits"}},
	{[]string{"VM.Config.Memory"}, []string{"memory", "swap"}},
	{[]string{"VM.Config.Disk"}, []string{"rootfs", "mp#", "unused#"}},
	{[]string{"VM.Config.Network"}, []string{"net#", "nameserver", "searchdomain", "hostname"}},
	{[]string{"VM.Allocate"}, []string{"features"}},
}

// keyNeeds is what one config key asks for. Keys in no table are options.
func keyNeeds(guest, key, text string, vm []string) []Need {
	table := vmPrivileges
	if guest == "lxc" {
		table = ctPrivileges
	}
	privs := []string{"VM.Config.Options"}
	indexed := strings.TrimRight(key, "0123456789") + "#"
	for _, row := range table {
		if slices.Contains(row.keys, key) || key != indexed[:len(indexed)-1] && slices.Contains(row.keys, indexed) {
			privs = row.privs
		}
	}
	out := []Need{{privs, vm, key}}
	switch {
	case guest == "qemu" && key == "startup":
		out = append(out, Need{[]string{"Sys.Modify"}, []string{"/"}, key})
	case guest == "qemu" && strings.Contains(text, "cloudinit") && slices.Contains(vmPrivileges[3].keys, indexed):
		return []Need{{[]string{"VM.Config.Cloudinit"}, vm, key}, {[]string{"VM.Config.CDROM"}, vm, key}}
	case guest == "qemu" && token(text, "media") == "cdrom":
		out = append([]Need{{[]string{"VM.Config.CDROM"}, vm, key}}, readVolume(firstToken(text), key)...)
	case token(text, "import-from") != "":
		out = append(out, readVolume(token(text, "import-from"), key)...)
	default:
		out = append(out, plugNeeds(key, text)...)
	}
	return out
}

// plugNeeds are the rights on what a key's text plugs into the guest: a bridge,
// or a device of the node that a mapping stands for. Most keys have none.
func plugNeeds(key, text string) []Need {
	if path := mapping(key, text); path != "" {
		return []Need{{[]string{"Mapping.Use"}, []string{path}, key}}
	}
	if class := wire.KeyClass(key); class == "net" && class != key {
		return bridgeNeeds(key, text)
	}
	return nil
}

// mapping is the ACL path of the mapping that a key's text names, or "".
func mapping(key, text string) string {
	of := map[string]string{"hostpci": "pci", "usb": "usb"}[wire.KeyClass(key)]
	if id := token(text, "mapping"); of != "" && id != "" {
		return "/mapping/" + of + "/" + id
	}
	return ""
}

// bridgeNeeds is the right to use a bridge, with its VLAN tag if there is one.
// The zone of an SDN network is not known here, so any zone counts where the
// bridge is no plain one.
func bridgeNeeds(key, text string) []Need {
	bridge := token(text, "bridge")
	if bridge == "" || !strings.HasPrefix(bridge, "vmbr") {
		return nil
	}
	path := "/sdn/zones/localnetwork/" + bridge
	if tag := token(text, "tag"); tag != "" {
		path += "/" + tag
	}
	return []Need{{[]string{"SDN.Use"}, []string{path}, key}}
}

// tagNeeds are the rights on the tags that only Sys.Modify may set or take
// away: registered ones, and all but the listed or seen ones where the
// datacenter restricts free tags (au-405 to au-419).
func tagNeeds(changes []field.Change, o live.Options) []Need {
	var out []Need
	for _, t := range changedTags(changes) {
		registered := slices.Contains(o.RegisteredTags, t)
		free := o.UserTagAccess == "" || o.UserTagAccess == "free" || slices.Contains(o.AllowedTags, t)
		if registered || !free {
			out = append(out, Need{[]string{"Sys.Modify"}, []string{"/"}, "tag " + t})
		}
	}
	return out
}

// changedTags are the tags that a change adds or takes away.
func changedTags(changes []field.Change) []string {
	i := slices.IndexFunc(changes, func(c field.Change) bool { return c.Key == "tags" })
	if i < 0 {
		return nil
	}
	split := func(v *wire.Value) []string {
		if v == nil {
			return nil
		}
		return wire.SplitTags(v.String())
	}
	before, after := split(changes[i].Old), split(changes[i].New)
	var out []string
	for _, t := range append(slices.Clone(before), after...) {
		if slices.Contains(before, t) != slices.Contains(after, t) {
			out = append(out, t)
		}
	}
	return out
}
