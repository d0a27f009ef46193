package kind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/wire"
)

const extraDoc = "Further PVE keys, sent as they stand: for what has no field. null clears a key. Keys that PVE does not have, keys that a field owns and PVE's control parameters are refused; a drive slot is guarded as a disk is."

// control are parameters of PVE's calls that are no configuration, or that
// change what a guest is. They never stand in extra.
var control = []string{
	"archive", "background_delay", "bwlimit", "cdrom", "delete", "digest", "force", "ha-managed",
	"ignore-unpack-errors", "import-working-storage", "live-restore", "lock", "newid", "node",
	"ostemplate", "parent", "password", "pool", "restore", "revert", "runningcpu", "runningmachine",
	"skiplock", "snaptime", "ssh-public-keys", "start", "storage", "template", "unique", "unprivileged", "vmid", "vmstate",
}

// checkExtra refuses keys by what they are; clashes with fields need the
// whole spec and are found by Validate.
func checkExtra(lxc bool) func(key string) error {
	return func(key string) error {
		switch {
		case slices.Contains(control, key):
			return fmt.Errorf("%s is a control parameter of PVE and may not stand in extra", key)
		case wire.KeyClass(key) == "unused" && key != "unused":
			return fmt.Errorf("%s is a detached volume, which PVE names by itself", key)
		}
		return unknownKey(lxc, key)
	}
}

// ownedKeys are the PVE keys that rows of a shape own: exact ones, and the
// families of numbered keys that lists own.
func ownedKeys(b *field.Block) (exact, families []string) {
	var walk func(n field.Node, inList bool)
	walk = func(n field.Node, inList bool) {
		switch n := n.(type) {
		case *field.Row:
			if n.Key == "" {
				return
			}
			if class := wire.KeyClass(n.Key); inList && class != n.Key {
				families = append(families, class)
			} else {
				exact = append(exact, n.Key)
			}
		case *field.Block:
			if n.Volume != nil {
				exact = append(exact, n.Volume.Key)
			}
			for _, c := range n.Nodes {
				walk(c, inList)
			}
		case *field.List:
			for i := range n.Len() {
				walk(n.Elem(i), true)
			}
		}
	}
	walk(b, false)
	return exact, families
}

// extraFaults reports extra's keys that a field owns; empty is a spec of the
// kind, to be filled as a specimen. A drive slot clashes only where the
// manifest's own disks or drives use it, as used tells.
func extraFaults(report Report, extra []field.MapEntry[string], lxc bool, empty Spec, used map[string]string) {
	if len(extra) == 0 {
		return
	}
	exact, families := ownedKeys(field.Specimen(func() *field.Block { return empty.Shape(nil) }))
	for _, e := range extra {
		path := "extra." + e.Key
		drive := isDrive(lxc, e.Key)
		by, declared := used[e.Key]
		switch {
		case drive && declared:
			report(path, "%s belongs to %s", e.Key, by)
		case drive && e.Value.State() == field.Null:
			report(path, "null would detach the volume in %s; detach it in PVE and leave the key out", e.Key)
		case drive:
		case slices.Contains(exact, e.Key), slices.Contains(families, wire.KeyClass(e.Key)):
			report(path, "%s is owned by a field of its own; set it there (proxops explain names it)", e.Key)
		}
	}
}

// isDrive reports whether key is a slot that extra may fill with a volume.
func isDrive(lxc bool, key string) bool {
	if lxc {
		n, ok := numbered(key, "mp")
		return ok && n <= maxMP
	}
	_, ok := bus(key)
	return ok
}

// extraMap is the rows of extra, one a key. A drive slot is a whole text,
// which field guards as it guards a declared volume.
func extraMap(entries *[]field.MapEntry[string], lxc bool) *field.Map {
	row := func(key string, o *field.Opt[string]) *field.Row {
		r := field.Var(o, key, key, "", extraCodec(lxc, key), "Sent to PVE as it stands.").On(field.Pending)
		if who := extraRoot(lxc, key, o.Or("")); who != "" {
			r.Root(who)
		}
		return r
	}
	return field.MapOf(entries, "extra", extraDoc, row, checkExtra(lxc))
}

// extraCodec compares a property string by token.
func extraCodec(lxc bool, key string) field.Codec[string] {
	c, format := field.Scalar(), wire.FormatOf(lxc, key)
	c.Type.Examples = []string{"some-value", "1"}
	c.Equal = func(want, live string, _ field.Env) bool {
		w, l := wire.ParseProps(want, format), wire.ParseProps(live, format)
		if isDrive(lxc, key) { // PVE adds the size by itself
			w.Del("size")
			l.Del("size")
		}
		return strings.TrimSpace(want) == strings.TrimSpace(live) || w.Same(l)
	}
	return c
}

// extraRoot says who may write a key that PVE keeps from tokens (facts.md C,
// G).
func extraRoot(lxc bool, key, value string) string {
	const root = "root@pam only"
	class := wire.KeyClass(key)
	switch {
	case key == "args", key == "hookscript", class == "parallel" && class != key:
		return root
	case lxc && class == "dev":
		return root + ": a device of the host"
	case lxc && class == "mp" && strings.HasPrefix(value, "/"):
		return root + ": a bind mount"
	case class == "serial" && strings.HasPrefix(value, "/"):
		return root + ": a real serial device of the host"
	case class == "usb" && value != "":
		p := wire.ParseProps(value, wire.FormatOf(false, key))
		if host, ok := p.Get("host"); ok && !strings.EqualFold(host, "spice") {
			return root + ": a raw host device; a token may set mapping= instead"
		}
	}
	return ""
}
