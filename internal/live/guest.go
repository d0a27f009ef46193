package live

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/wire"
)

// ReadGuest reads one guest's config and power state anew: what apply and the
// write after a clone start from.
func ReadGuest(ctx context.Context, r *pve.Reader, node, guestType string, vmid int) (*Guest, error) {
	cfg, err := r.Pending(ctx, node, pve.GuestType(guestType), vmid)
	if err != nil {
		return nil, err
	}
	g := &Guest{Guest: field.Guest{Exists: true, LXC: guestType == "lxc", Config: map[string]field.Entry{}},
		VMID: vmid, Node: node, Type: guestType, Snapshots: -1}
	g.take(cfg)
	st, err := r.GuestStatus(ctx, node, pve.GuestType(guestType), vmid)
	if err != nil {
		return nil, err
	}
	g.Status, g.Running = st.Status, st.Status == "running"
	if g.Lock == "" {
		g.Lock = st.Lock
	}
	return g, nil
}

// guest reads one guest of the listing.
func (x *reading) guest(g *Guest, declared, wantRunning bool) {
	cfg, err := x.config(g)
	if err != nil {
		g.Unknown = whyUnread(g, err)
		x.problem("guest %d: %s", g.VMID, g.Unknown)
		return
	}
	g.take(cfg)
	if g.Pool != "" {
		g.Config["pool"] = field.Entry{Value: &g.Pool}
	}
	g.Env.TagsCaseSensitive, g.Env.MACPrefix = x.snap.Options.TagsCaseSensitive, x.snap.Options.MACPrefix
	x.power(g, declared, wantRunning)
	x.busy(g)
	if to := x.want.Guests[g.VMID].MoveTo; to != "" && to != g.Node {
		x.snapshots(g)
	}
}

// snapshots counts the snapshots of a guest that is to be moved: they keep PVE
// from moving local volumes.
func (x *reading) snapshots(g *Guest) {
	list, err := x.r.Snapshots(x.ctx, g.Node, pve.GuestType(g.Type), g.VMID)
	if err != nil {
		return // then PVE finds them, in the task
	}
	g.Snapshots = len(list)
}

// config reads a guest's config with what is pending. Where raw lines are asked
// for, a container is read by GET …/config, which has them; only when its digest
// leaves room for something pending is that read too.
func (x *reading) config(g *Guest) (pve.GuestConfig, error) {
	if !g.LXC || !x.want.RawLines {
		return x.r.Pending(x.ctx, g.Node, pve.GuestType(g.Type), g.VMID)
	}
	merged, err := x.r.Config(x.ctx, g.Node, pve.LXC, g.VMID)
	if err != nil || merged.IsWholeFile() {
		return merged, err
	}
	cfg, err := x.r.Pending(x.ctx, g.Node, pve.LXC, g.VMID)
	for _, e := range merged.Entries {
		if e.Raw != nil {
			cfg.Entries = append(cfg.Entries, e)
		}
	}
	return cfg, err
}

func whyUnread(g *Guest, err error) string {
	if pve.Is(err, pve.KindNotFound) {
		return fmt.Sprintf("it was on %s in the cluster's list, but has no config there: it moves or was just removed", g.Node)
	}
	return fmt.Sprintf("its config could not be read: %v", err)
}

// take fills the guest from its config.
func (g *Guest) take(cfg pve.GuestConfig) {
	g.Read, g.Digest, g.Raw = true, cfg.Digest, map[string]string{}
	for _, e := range cfg.Entries {
		if e.Raw != nil {
			g.Raw[e.Key] = string(e.Raw)
			continue
		}
		g.Config[e.Key] = field.Entry{Value: e.Value, Pending: e.Pending, Delete: e.Delete != 0}
	}
	name := "name"
	if g.LXC {
		name = "hostname"
	}
	g.Name, _ = g.Get(name)
	tags, _ := g.Get("tags")
	g.Tags = wire.SplitTags(tags)
	t, _ := g.Get("template")
	g.Template = t == "1"
	if lock, ok := g.Get("lock"); ok {
		g.Lock = lock
	}
	g.Identity = Identity(&g.Guest)
}

// power settles whether the guest runs. The listing lags up to ten seconds, so
// a state that calls for an action is asked for again, as is "unknown", which
// a fresh clone shows (facts I).
func (x *reading) power(g *Guest, declared, wantRunning bool) {
	if g.Status != "unknown" && (!declared || g.Running == wantRunning || g.Template) {
		return
	}
	st, err := x.r.GuestStatus(x.ctx, g.Node, pve.GuestType(g.Type), g.VMID)
	if err != nil {
		g.Unknown = fmt.Sprintf("whether it runs could not be read: %v", err)
		x.problem("guest %d: %s", g.VMID, g.Unknown)
		return
	}
	g.Status, g.Running = st.Status, st.Status == "running"
}

// Identity is what tells one guest from another that got the same vmid later:
// the generation id and uuid of a VM. A container has nothing of the kind: it
// is known by its root volume with its size, its name and its MAC addresses,
// which PVE draws anew for each container (facts G). A VM without both ids is
// known by its name and volumes. Values are those that a stop leaves, so that
// putting pending ones into place makes no other guest.
func Identity(g *field.Guest) string {
	value := func(key string) string {
		text, _ := g.Get(key)
		return text
	}
	if g.LXC {
		root := wire.ParseProps(value("rootfs"), wire.FormatOf(true, "rootfs"))
		vol, _ := root.Get(wire.FirstToken(true))
		size, _ := root.Get("size")
		out := "rootfs " + vol + " " + size + ", hostname " + value("hostname")
		for _, key := range slices.Sorted(maps.Keys(g.Config)) {
			if wire.KeyClass(key) != "net" {
				continue
			}
			if mac, ok := wire.ParseProps(value(key), wire.FormatOf(true, key)).Get("hwaddr"); ok {
				out += ", " + key + " " + strings.ToUpper(mac)
			}
		}
		return out
	}
	var uuid string
	for _, p := range strings.Split(value("smbios1"), ",") {
		if v, ok := strings.CutPrefix(p, "uuid="); ok {
			uuid = v
		}
	}
	gen := value("vmgenid")
	if gen != "" && gen != "0" || uuid != "" {
		return "vmgenid " + gen + ", uuid " + uuid
	}
	return "name " + value("name") + ", volumes " + strings.Join(Volumes(g), " ")
}

// Volumes are the volume ids that the guest's config holds, unused and pending
// ones included, without CD images and bind mounts: what a delete takes along.
func Volumes(g *field.Guest) []string {
	var out []string
	for key, e := range g.Config {
		if !wire.IsVolumeKey(g.LXC, key) && !strings.HasPrefix(key, "unused") && key != "vmstate" {
			continue
		}
		for _, text := range []*string{e.Value, e.Pending} {
			if text == nil {
				continue
			}
			if vol, ok := volume(g.LXC, key, *text); ok {
				out = append(out, vol)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// volume gives the volume id that a drive's or mount's text names.
func volume(lxc bool, key, text string) (string, bool) {
	p := wire.ParseProps(text, wire.FormatOf(lxc, key))
	vol, named := p.Get(wire.FirstToken(lxc))
	if !named {
		vol, _, _ = strings.Cut(text, ",")
	}
	media, _ := p.Get("media")
	_, _, ok := wire.SplitVolID(vol)
	return vol, ok && (media != "cdrom" || wire.IsCloudInit(vol))
}
