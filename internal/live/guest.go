package live

import (
	"context"
	"fmt"
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
// the generation id and uuid of a VM, the root volume and name of a container.
// A VM without both is known by its name and volumes.
func Identity(g *field.Guest) string {
	value := func(key string) string {
		if e := g.Config[key]; e.Value != nil {
			return *e.Value
		}
		return ""
	}
	if g.LXC {
		vol, _, _ := strings.Cut(value("rootfs"), ",")
		return "rootfs " + vol + ", hostname " + value("hostname")
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

// Volumes are the volume ids that the guest's config holds, unused ones
// included, without CD images and bind mounts: what a delete takes along.
func Volumes(g *field.Guest) []string {
	var out []string
	for key, e := range g.Config {
		if e.Value == nil || !wire.IsVolumeKey(g.LXC, key) && !strings.HasPrefix(key, "unused") && key != "vmstate" {
			continue
		}
		p := wire.ParseProps(*e.Value, wire.FormatOf(g.LXC, key))
		vol, named := p.Get(wire.FirstToken(g.LXC))
		if !named {
			vol, _, _ = strings.Cut(*e.Value, ",")
		}
		media, _ := p.Get("media")
		if _, _, ok := wire.SplitVolID(vol); !ok || media == "cdrom" && !wire.IsCloudInit(vol) {
			continue
		}
		out = append(out, vol)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
