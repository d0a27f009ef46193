package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/graph"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/yamldoc"
)

// manifest wraps a spec in its envelope; annotations are "key: value" lines.
func manifest(kindName, name, spec string, annotations ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: proxops/v1alpha1\nkind: %s\nmetadata:\n  name: %s\n", kindName, name)
	if len(annotations) > 0 {
		b.WriteString("  annotations:\n")
		for _, a := range annotations {
			b.WriteString("    " + a + "\n")
		}
	}
	b.WriteString("spec:\n")
	for _, l := range strings.Split(strings.TrimSpace(spec), "\n") {
		b.WriteString("  " + strings.TrimSuffix(l, "\r") + "\n")
	}
	return b.String()
}

// cluster loads manifests as the repository does, references bound.
func cluster(t testing.TB, manifests ...string) *repo.Cluster {
	t.Helper()
	c := &repo.Cluster{Name: "lab"}
	c.Config.Nodes = []string{"pve01", "pve02"}
	byRef := map[kind.Ref]*kind.Resource{}
	for i, text := range manifests {
		file := fmt.Sprintf("m%d.yaml", i)
		docs, problems := yamldoc.Parse(file, []byte(text))
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		r, problems := kind.Parse(file, docs[0])
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		c.Resources = append(c.Resources, r)
		byRef[r.Ref()] = r
	}
	var nodes []graph.Node
	for _, r := range c.Resources {
		for _, ref := range r.Spec.Refs() {
			if err := ref.Bind(byRef[ref.To]); err != nil {
				t.Fatal(err)
			}
			r.Depends = append(r.Depends, ref.To)
		}
		r.Depends = append(r.Depends, r.Annotations.DependsOn...)
		slices.SortFunc(r.Depends, func(a, b kind.Ref) int { return strings.Compare(a.String(), b.String()) })
		r.Depends = slices.Compact(r.Depends)
		nodes = append(nodes, graph.Node{Ref: r.Ref(), Needs: r.Depends})
	}
	levels, err := graph.Levels(nodes)
	if err != nil {
		t.Fatal(err)
	}
	c.Levels = levels
	return c
}

// snapshot is a healthy two-node cluster with the guests.
func snapshot(guests ...*live.Guest) *live.Snapshot {
	s := &live.Snapshot{Cluster: "lab", Complete: true, Guests: map[int]*live.Guest{}, Contents: map[live.Store]live.Content{}, Free: map[int]bool{},
		Nodes: map[string]live.Node{
			"pve01": {Name: "pve01", Online: true, Allowed: true},
			"pve02": {Name: "pve02", Online: true, Allowed: true},
			"pve03": {Name: "pve03", Online: true},
		},
		Storages: map[live.Store]live.Storage{}}
	for _, g := range guests {
		s.Guests[g.VMID] = g
	}
	return s
}

// guest is a live guest with a config of "key: value" lines. A value
// "a => b" has b pending; "a => -" has its deletion pending.
func guest(vmid int, node, guestType string, config string) *live.Guest {
	g := &live.Guest{Guest: field.Guest{Exists: true, LXC: guestType == "lxc", Config: map[string]field.Entry{}}, VMID: vmid, Node: node,
		Type: guestType, Status: "stopped", Read: true, Digest: "d" + strconv.Itoa(vmid), Snapshots: -1}
	for _, l := range strings.Split(strings.TrimSpace(config), "\n") {
		k, v, _ := strings.Cut(strings.TrimSpace(l), ": ")
		now, next, pending := strings.Cut(v, " => ")
		e := field.Entry{}
		if now != "" {
			e.Value = &now
		}
		switch {
		case pending && next == "-":
			e.Delete = true
		case pending:
			e.Pending = &next
		}
		g.Config[k] = e
	}
	g.Name, _ = g.Get("name")
	if g.LXC {
		g.Name, _ = g.Get("hostname")
	}
	tags, _ := g.Get("tags")
	g.Tags = strings.FieldsFunc(tags, func(c rune) bool { return c == ';' })
	tpl, _ := g.Get("template")
	g.Template = tpl == "1"
	g.Identity = live.Identity(&g.Guest)
	return g
}

func running(g *live.Guest) *live.Guest {
	g.Status, g.Running = "running", true
	return g
}

const webSpec = `
node: pve01
vmid: 100
state: stopped
memory: 2GiB
cpu: {type: host, cores: 2}
disks:
  - {storage: local-lvm, size: 10GiB}
networks:
  - {model: virtio, bridge: vmbr0}
`

const webConfig = `
name: web
memory: 2048
cpu: host
cores: 2
scsi0: local-lvm:vm-100-disk-0,size=10G
net0: virtio=BC:24:11:00:00:01,bridge=vmbr0
tags: proxops
vmgenid: 11111111-1111-1111-1111-111111111111
smbios1: uuid=22222222-2222-2222-2222-222222222222
digest: d
`

const ctSpec = `
node: pve01
vmid: 200
state: stopped
memory: 512MiB
template: null
root: {storage: local-lvm, size: 4GiB}
networks:
  - {bridge: vmbr0}
`

const ctConfig = `
hostname: dns
memory: 512
rootfs: local-lvm:vm-200-disk-0,size=4G
net0: name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:02,type=veth
tags: proxops
arch: amd64
ostype: debian
`

// lines shows a plan as one line an entry, for comparing in tables.
func lines(p Plan) string {
	var b strings.Builder
	for _, a := range p.Actions {
		fmt.Fprintf(&b, "%s %s %s", a.Verb, a.Ref, a.Node)
		if a.Power != field.None {
			fmt.Fprintf(&b, " [%s]", a.Power)
		}
		for _, c := range a.Changes {
			fmt.Fprintf(&b, " %s", c.Path)
		}
		b.WriteString("\n")
	}
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "error %s %s: %s: %s\n", e.Ref, e.File, e.Path, e.Text)
	}
	for _, a := range p.Anomalies {
		fmt.Fprintf(&b, "anomaly %s %s: %s\n", a.Ref, a.Path, a.Text)
	}
	for _, s := range p.Suppressed {
		fmt.Fprintf(&b, "suppressed %s %d: %s\n", s.Kind.Name, s.VMID, s.Rule)
	}
	for _, o := range p.Objects {
		if o.State != Converged {
			fmt.Fprintf(&b, "%s is %s: %s\n", o.Ref, o.State, o.Why)
		}
	}
	return b.String()
}

func want(t *testing.T, p Plan, parts ...string) {
	t.Helper()
	got := lines(p)
	for _, s := range parts {
		if !strings.Contains(got, s) {
			t.Errorf("the plan lacks %q:\n%s", s, got)
		}
	}
}

// wantNoWrites fails when the plan writes anything.
func wantNoWrites(t *testing.T, p Plan) {
	t.Helper()
	if len(p.Actions) > 0 {
		t.Errorf("the plan must write nothing:\n%s", lines(p))
	}
}
