package pvesim

import (
	"regexp"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// ctCreate is a container to be made, after the checks that the request itself gets.
type ctCreate struct {
	vmid    int
	conf    Section
	mounts  map[string]string
	storage string
	archive string
	pool    string
	start   bool
	ha      bool
	restore bool
}

// lxcCreateOnly are the parameters of POST …/lxc that are no config keys.
func lxcCreateOnly() []string {
	return []string{
		"node", "vmid", "ostemplate", "storage", "pool", "start", "unique", "force", "restore", "bwlimit", "password", "ssh-public-keys",
		"ignore-unpack-errors", "ha-managed", "unprivileged",
	}
}

// lxcCreate makes a container. The checks come in PVE's order: the privileged one first, then the id, the keys, the pool, the right
// to allocate, the rights for each key, the template, the storages (facts.md G, M).
func (w *World) lxcCreate(r *Request) (any, error) {
	p := r.P
	c := &ctCreate{
		vmid: p.Int("vmid", 0), pool: p.Str("pool"), storage: orElse(p.Str("storage"), "local"), archive: p.Str("ostemplate"),
		start: p.Bool("start"), ha: p.Bool("ha-managed"), restore: p.Bool("restore"), conf: Section{}, mounts: map[string]string{},
	}
	unprivileged := !p.Has("unprivileged") || p.Bool("unprivileged")
	if !unprivileged && !c.restore {
		if err := w.check(r.Who, "/", "Sys.Modify"); err != nil {
			return nil, err
		}
	}
	if g := w.Guests[c.vmid]; g != nil {
		return nil, die("%s %d already exists on node '%s'", kindName(g.Kind), c.vmid, g.Node)
	}
	if err := checkPublicKeys(p.Str("ssh-public-keys")); err != nil {
		return nil, err
	}
	if c.pool != "" && w.Pools[c.pool] == nil {
		return nil, permErr("pool '" + c.pool + "' does not exist")
	}
	if !w.can(r.Who, "/vms/"+decimal(c.vmid), "VM.Allocate") && (c.pool == "" || !w.can(r.Who, "/pool/"+c.pool, "VM.Allocate")) {
		return nil, permErr("")
	}
	set := p.Clone()
	for _, k := range lxcCreateOnly() {
		delete(set, k)
	}
	if err := r.ctPermissions(ctChange{vmid: c.vmid, set: set, unprivileged: unprivileged, pool: c.pool}); err != nil {
		return nil, err
	}
	want := contentVztmpl
	if c.restore {
		want = contentBackup
	}
	if c.archive == "-" {
		return nil, die("pipe requires cli environment")
	}
	if err := w.volumeAccess(r.Who, c.vmid, c.archive, want); err != nil {
		return nil, err
	}
	if err := r.ctStorages(c, set); err != nil {
		return nil, err
	}
	if unprivileged {
		c.conf["unprivileged"] = "1"
	}
	g := r.newGuest(kindLXC, c.vmid)
	g.Config["lock"] = "create"
	kind := "vzcreate"
	if c.restore {
		kind = "vzrestore"
	}
	return r.spawn(kind, decimal(c.vmid), func(a *Actor) error { return a.ctCreate(c, g) }), nil
}

func kindName(kind string) string {
	if kind == kindLXC {
		return "CT"
	}
	return "VM"
}

// ctStorages sorts the parameters into mount points and the rest, and checks the storages of the former.
func (a *Actor) ctStorages(c *ctCreate, set Params) error {
	rest := Section{}
	for _, k := range set.Keys() {
		v := set.Str(k)
		switch {
		case k != "rootfs" && !indexed(k, "mp"):
			if !indexed(k, "unused") { // PVE ignores these at create
				rest[k] = v
			}
		case bareSize.MatchString(v): // a size alone means the default storage
			c.mounts[k] = c.storage + ":" + v
		default:
			c.mounts[k] = v
		}
	}
	if len(c.mounts) > 0 && c.mounts["rootfs"] == "" {
		return die("mount points configured, but 'rootfs' not set - aborting")
	}
	for _, k := range Section(c.mounts).mountKeys(false) {
		m, err := parseMount(k, c.mounts[k])
		if err != nil {
			return err
		}
		if m.kind() != "volume" {
			continue
		}
		id, _, ok := splitVolid(m.volume())
		if !ok {
			return die("unable to parse volume ID '%s'", m.volume())
		}
		if err := a.ctStorage(id); err != nil {
			return err
		}
	}
	if len(c.mounts) == 0 {
		if err := a.ctStorage(c.storage); err != nil {
			return err
		}
	}
	for _, k := range rest.Keys() {
		if indexed(k, "net") {
			if err := a.checkMTU(k, rest[k]); err != nil {
				return err
			}
		}
		v, err := a.ctValue(k, rest[k])
		if err != nil {
			return err
		}
		if v != "" || k != "description" {
			c.conf[k] = v
		}
	}
	return nil
}

var bareSize = regexp.MustCompile(`^\d+(\.\d+)?$`)

func (a *Actor) ctStorage(id string) error {
	s, err := a.w.storageOn(id, a.Node)
	if err != nil {
		return err
	}
	if !s.Has(contentRootdir) {
		return paramErr("storage", "storage '%s' does not support container directories", id)
	}
	return a.w.check(a.Who, "/storage/"+id, "Datastore.AllocateSpace")
}

// ctCreate is the worker. Whatever it made goes again when it fails.
func (a *Actor) ctCreate(c *ctCreate, g *Guest) error {
	if err := a.ctFill(c, g); err != nil {
		delete(a.w.Guests, g.VMID) // the config alone: ACL entries for the id stay, as they do for VMs (au-316)
		what := "create"
		if c.restore {
			what = "restore"
		}
		e := asError(err)
		return die("unable to %s CT %d - %s", what, c.vmid, e.Error())
	}
	if c.pool != "" && a.w.Pools[c.pool] != nil {
		a.w.Pools[c.pool].VMs[c.vmid] = true
	}
	if c.ha {
		a.w.haAdd(g, map[bool]string{true: "started", false: "stopped"}[c.start])
	}
	if c.start {
		return a.ctStart(c.vmid)
	}
	return nil
}

func (a *Actor) ctFill(c *ctCreate, g *Guest) error {
	var made []*Volume
	undo := func(err error) error {
		for _, v := range made {
			a.destroyVolume(v)
		}
		return err
	}
	if len(c.mounts) == 0 {
		c.mounts["rootfs"] = c.storage + ":4" // GiB, PVE's default
	}
	for _, k := range Section(c.mounts).mountKeys(false) {
		m, err := parseMount(k, c.mounts[k])
		if err != nil {
			return undo(err)
		}
		v, err := a.createMount(c.vmid, m)
		if err != nil {
			return undo(err)
		}
		if v != nil {
			made = append(made, v)
		}
		c.conf[k] = m.print()
	}
	if err := a.unpack(c); err != nil {
		return undo(err)
	}
	conf := c.conf
	conf["memory"], conf["swap"] = orElse(conf["memory"], "512"), orElse(conf["swap"], "512")
	conf["hostname"], conf["arch"] = orElse(conf["hostname"], "CT"+decimal(c.vmid)), orElse(conf["arch"], archOf(c.archive))
	if conf["ostype"] != "unmanaged" { // found out from what was unpacked, whatever was asked for
		conf["ostype"] = osOf(c.archive)
	}
	g.Config, g.Changed = conf, time.Now()
	return nil
}

// unpack extracts the template: the archive must be there, and the mount points must be directories that can be written.
func (a *Actor) unpack(c *ctCreate) error {
	if _, _, ok := splitVolid(c.archive); !ok {
		return die("can't find file '%s'", c.archive)
	}
	s, _, err := a.w.parseVolid(c.archive)
	if err != nil {
		return err
	}
	if a.w.volume(a.Node, c.archive) == nil {
		return die("volume '%s' does not exist", c.archive)
	}
	for _, m := range mounts(c.conf, false) {
		switch {
		case m.kind() == "bind":
			if err := a.checkBind(m); err != nil {
				return err
			}
		case m.kind() == "volume" && a.w.volume(a.Node, m.volume()) == nil:
			return a.w.volumeMissing(m.volume())
		}
	}
	a.Logf("extracting archive '%s'", s.Path(c.archive))
	if err := a.Work(unpackTime); err != nil {
		return err
	}
	if strings.HasPrefix(c.conf["rootfs"], "/") && c.conf["unprivileged"] == "1" { // the directory belongs to root, not to the mapped user
		return die("command 'lxc-usernsexec -m u:0:100000:65536 -m g:0:100000:65536 -- tar xpf - -z --totals --one-file-system -p -C /var/lib/lxc/%d/rootfs' failed: exit code 2", c.vmid)
	}
	a.Logf("Detected container architecture: %s", archOf(c.archive))
	return nil
}

// osOf is the ostype that PVE finds in a template's files; templates are named after what is in them.
func osOf(volid string) string {
	name := afterLast(volid, "/")
	name = strings.ToLower(name)
	for _, os := range []string{"debian", "devuan", "ubuntu", "fedora", "opensuse", "archlinux", "alpine", "gentoo", "nixos"} {
		if strings.HasPrefix(name, os) {
			return os
		}
	}
	for _, os := range []string{"centos", "almalinux", "rockylinux", "openeuler"} {
		if strings.HasPrefix(name, os) {
			return "centos"
		}
	}
	return "unmanaged"
}

// archOf is the architecture of a template.
func archOf(volid string) string {
	for _, arch := range []string{"arm64", "armhf", "i386", "riscv64", "riscv32"} {
		if strings.Contains(volid, "_"+arch) {
			return arch
		}
	}
	return "amd64"
}

// ctValue is the config's form of a value that is no mount point, with the checks that PVE makes beyond the schema.
func (a *Actor) ctValue(k, v string) (string, error) {
	switch {
	case k == "hookscript":
		return v, a.checkHookscript(v)
	case k == "nameserver" || k == "searchdomain":
		v = strings.Join(splitList(v), " ")
	case k == "tags":
		v = a.w.uniqueTags(v)
	case k == "description":
		return strings.TrimRight(v, "\n"), nil
	case k == "cpuunits":
		v = decimal(a.w.node(a.Node).clampShares(number(v)))
	case indexed(k, "net"):
		return a.ctNet(v)
	}
	if v == "" { // an empty line of the file reads back as one blank
		v = " "
	}
	return v, nil
}

// ctNet is print_lxc_network(parse_lxc_network): NICs are veth pairs and get a MAC.
func (a *Actor) ctNet(v string) (string, error) {
	p, err := schema.ParsePropString(".net", "", v)
	if err != nil {
		return "", die("%s", strings.TrimSpace(err.Error()))
	}
	p["type"] = "veth"
	if p["hwaddr"] == "" {
		p["hwaddr"] = a.w.mac()
	}
	return schema.PrintPropString(".net", p)
}

// checkHookscript is PVE::GuestHelpers::check_hookscript.
func (a *Actor) checkHookscript(volid string) error {
	_, v, err := a.w.parseVolid(volid)
	switch {
	case err != nil:
		return err
	case v.vtype != contentSnippets:
		return die("'%s' is not in the snippets directory", volid)
	case a.w.volume(a.Node, volid) == nil:
		return die("script '%s' does not exist", volid)
	}
	return nil
}
