package kind

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
)

// Refs implements Spec.
func (c *LXC) Refs() []Reference {
	name, ok := c.Template.Get()
	if !ok {
		return nil
	}
	return []Reference{{Path: "template", To: Ref{"CTTemplate", name},
		Bind: func(r *Resource) error { return bindVolume(r, c.Node.Or(""), &c.volid) }}}
}

// Secrets implements Spec.
func (c *LXC) Secrets() []SecretReference {
	in := &c.Init
	return secretRefs("init", in.SSHKeyRefs, &in.keys, in.PasswordRef, &in.password, "ssh-key-refs", "password-ref")
}

// Place implements GuestSpec.
func (c *LXC) Place() (node string, vmid int) { return c.Node.Or(""), c.VMID.Or(0) }

// WantName implements GuestSpec.
func (c *LXC) WantName() string { return c.DNS.Hostname.Or("") }

// SetDefaultName implements GuestSpec.
func (c *LXC) SetDefaultName(name string) {
	if c.DNS.Hostname.State() == field.Absent {
		c.DNS.Hostname = field.Some(name)
	}
}

// Started implements GuestSpec.
func (c *LXC) Started() bool { return !c.template && c.State.Or("started") == "started" }

// CloneOf implements GuestSpec: containers are made from archives.
func (c *LXC) CloneOf() (*Resource, bool) { return nil, false }

// Tags implements GuestSpec.
func (c *LXC) Tags() field.Opt[[]string] { return c.TagSet }

// Pool implements GuestSpec.
func (c *LXC) Pool() field.Opt[string] { return c.PoolID }

// CreateFault implements GuestSpec.
func (c *LXC) CreateFault() error {
	if !c.Template.IsSet() {
		return errors.New("template: null stands for not known, and a missing container cannot be made without one; name a CTTemplate")
	}
	return nil
}

// SetPlace implements GuestSpec.
func (c *LXC) SetPlace(node string, vmid int, running bool) {
	c.Node, c.VMID = field.Some(node), field.Some(vmid)
	c.State = field.Some(powerWord(running))
	c.Template = field.Cleared[string]()
}

// mounts maps the slots of declared mount points and bind mounts to their
// paths, and reports each that two use.
func (c *LXC) mounts(report Report) map[int]string {
	used := map[int]string{}
	for i := range c.MountPoints {
		uniqueSlot(report, used, fmt.Sprintf("mount-points[%d]", i), "mp", c.MountPoints[i].Slot.Or(i), maxMP)
	}
	for i := range c.BindMounts {
		uniqueSlot(report, used, fmt.Sprintf("bind-mounts[%d]", i), "mp", c.BindMounts[i].Slot.Or(len(c.MountPoints)+i), maxMP)
	}
	return used
}

func silent(string, string, ...any) {}

// Undeclared implements GuestSpec.
func (c *LXC) Undeclared(live *field.Guest) []field.Anomaly {
	mounts, nics, extra := c.mounts(silent), map[int]bool{}, map[string]bool{}
	for i := range c.Networks {
		nics[c.Networks[i].Slot.Or(i)] = true
	}
	for _, e := range c.Extra {
		extra[e.Key] = true
	}
	var out []field.Anomaly
	for _, key := range sortedKeys(live) {
		text, _ := live.Get(key)
		if n, ok := numbered(key, "net"); ok && n <= maxNet && c.Networks != nil && !nics[n] {
			out = append(out, undeclared("networks", key, text, "declare it with slot: "+key+", or remove the card in PVE"))
		}
		n, ok := numbered(key, "mp")
		if !ok || n > maxMP || mounts[n] != "" || extra[key] {
			continue
		}
		switch {
		case isBind(text) && c.BindMounts != nil:
			out = append(out, undeclared("bind-mounts", key, text, "declare it with slot: "+key+", or remove it in PVE"))
		case !isBind(text) && c.MountPoints != nil:
			out = append(out, undeclared("mount-points", key, text, "declare it with slot: "+key+", or detach it in PVE, which keeps the volume as unusedN; it is never removed from here"))
		}
	}
	return out
}

// Allocate implements GuestSpec.
func (c *LXC) Allocate(live *field.Guest, _ NameVolume) {
	c.Networks = []CTNIC{}
	for _, key := range sortedKeys(live) {
		text, _ := live.Get(key)
		if n, ok := numbered(key, "net"); ok && n <= maxNet && hasTokens(text, key, true, "bridge") {
			c.Networks = append(c.Networks, CTNIC{Slot: field.Some(n)})
		}
		n, ok := numbered(key, "mp")
		if !ok || n > maxMP || !hasTokens(text, key, true, "volume", "mp") {
			continue
		}
		if !isBind(text) {
			c.MountPoints = append(c.MountPoints, MountPoint{Slot: field.Some(n)})
			continue
		}
		host := firstToken(text)
		if !systemRoot(host) && !strings.HasPrefix(host, "/dev/") { // what validation refuses is a gap
			c.BindMounts = append(c.BindMounts, BindMount{Slot: field.Some(n)})
		}
	}
}

func firstToken(text string) string {
	first, _, _ := strings.Cut(text, ",")
	return strings.TrimPrefix(first, "volume=")
}

// systemRoots are directories of a node that no container may be given.
var systemRoots = []string{"/", "/etc", "/var", "/usr", "/boot", "/dev", "/root", "/run", "/srv", "/sys", "/proc", "/bin", "/sbin"}

// systemRoot reports whether a host path is one of them, exactly; what lies
// below (/srv/data) is fine.
func systemRoot(p string) bool {
	p = path.Clean(p)
	return slices.Contains(systemRoots, p) || strings.HasPrefix(p, "/lib") && !strings.Contains(p[1:], "/")
}

// Validate implements Spec.
func (c *LXC) Validate(report Report) {
	noNull(report, "state", c.State)
	noNull(report, "dns.hostname", c.DNS.Hostname)
	noNull(report, "options.unprivileged", c.Options.Unprivileged)
	noNull(report, "root.grow", c.Root.Grow)
	if c.template && c.State.Or("stopped") == "started" {
		report("state", "a template cannot be started; write stopped or leave state out")
	}
	used := map[string]string{}
	for n, by := range c.mounts(report) {
		used[fmt.Sprintf("mp%d", n)] = by
	}
	c.validateMounts(report)
	c.validateNetworks(report)
	if c.Init.SSHKeys.State() != field.Absent && c.Init.SSHKeyRefs.State() != field.Absent {
		report("init.ssh-key-refs", "ssh-keys and ssh-key-refs exclude each other; keep one")
	}
	keyFaults(report, "init.ssh-keys", c.Init.SSHKeys, false)
	noNull(report, "init.ssh-keys", c.Init.SSHKeys)
	noNull(report, "init.ssh-key-refs", c.Init.SSHKeyRefs)
	noNull(report, "init.password-ref", c.Init.PasswordRef)
	extraFaults(report, c.Extra, true, &LXC{template: c.template}, used)
}

func (c *LXC) validateMounts(report Report) {
	paths := map[string]string{}
	unique := func(at string, p field.Opt[string]) {
		s, ok := p.Get()
		if !ok {
			return
		}
		if s = path.Clean(s); s == "/" {
			report(at+".mount-point", "/ is the root file system; mount below it")
		}
		if by, twice := paths[s]; twice {
			report(at+".mount-point", "%s is taken by %s", s, by)
			return
		}
		paths[s] = at
	}
	for i := range c.MountPoints {
		at := fmt.Sprintf("mount-points[%d]", i)
		noNull(report, at+".grow", c.MountPoints[i].Grow)
		unique(at, c.MountPoints[i].Path)
	}
	for i := range c.BindMounts {
		at := fmt.Sprintf("bind-mounts[%d]", i)
		if host, ok := c.BindMounts[i].HostPath.Get(); ok && systemRoot(host) {
			report(at+".host-path", "%s is a system directory of the node; bind what lies below it, such as /srv/data", host)
		}
		unique(at, c.BindMounts[i].Path)
	}
}

func (c *LXC) validateNetworks(report Report) {
	used, names := map[int]string{}, map[string]string{}
	for i := range c.Networks {
		n := &c.Networks[i]
		at := fmt.Sprintf("networks[%d]", i)
		noNull(report, at+".iface", n.Iface)
		noNull(report, at+".type", n.Type)
		noNull(report, at+".hwaddr", n.HWAddr)
		prefix(report, at+".ip", n.IP)
		prefix(report, at+".ip6", n.IP6)
		gateway(report, at+".ip", n.Gateway, n.IP)
		gateway(report, at+".ip6", n.Gateway6, n.IP6)
		uniqueSlot(report, used, at, "net", n.Slot.Or(i), maxNet)
		name := n.Iface.Or(fmt.Sprintf("net%d", n.Slot.Or(i)))
		if by, twice := names[name]; twice {
			report(at+".iface", "%s is the interface of %s", name, by)
		}
		names[name] = at
	}
}

// Warn implements Spec.
func (c *LXC) Warn(report Report) {
	if !c.Options.Unprivileged.Or(true) {
		report("options.unprivileged", "root of a privileged container is root of the node; creating one needs Sys.Modify on /")
	}
}
