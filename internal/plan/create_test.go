package plan

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/live"
)

const isoSpec = `
nodes: [pve01]
storage: local
filename: deb.iso
url: https://example.org/deb.iso
checksum: {algorithm: sha256, value: "0000000000000000000000000000000000000000000000000000000000000000"}
`

const goldenSpec = `
node: pve01
vmid: 900
memory: 1GiB
cpu: {type: host, cores: 1}
disks:
  - {storage: local-lvm, size: 10GiB}
networks:
  - {bridge: vmbr0}
`

const goldenConfig = `
name: golden
description: the golden image
memory: 1024
cpu: host
cores: 1
template: 1
scsi0: local-lvm:base-900-disk-0,size=10G
net0: virtio=BC:24:11:00:00:09,bridge=vmbr0
ciuser: builder
searchdomain: build.example.org
tags: proxops;golden
`

const cloneSpec = `
node: pve01
vmid: 101
clone: golden
memory: 2GiB
cpu: {type: host, cores: 1}
networks:
  - {bridge: vmbr0}
cloud-init-data: {ci-user: deploy}
`

func free(s *live.Snapshot, ids ...int) *live.Snapshot {
	for _, id := range ids {
		s.Free[id] = true
	}
	return s
}

func holding(s *live.Snapshot, node, storage string, files ...string) *live.Snapshot {
	c := live.Content{Files: map[string]int64{}}
	for _, f := range files {
		c.Files[f] = 1
	}
	s.Contents[live.Store{Node: node, Storage: storage}] = c
	return s
}

func TestCreate(t *testing.T) {
	withISO := webSpec + "hardware: {cdrom: {iso: deb}}\n"
	iso := manifest("ISO", "deb", isoSpec)
	offline := func(s *live.Snapshot) *live.Snapshot {
		n := s.Nodes["pve01"]
		n.Online = false
		s.Nodes["pve01"], s.Complete = n, false
		return s
	}
	tests := []struct {
		name    string
		c       []string
		s       *live.Snapshot
		want    []string
		creates bool
	}{
		{"free", []string{manifest("VM", "web", webSpec)}, free(snapshot(), 100), []string{"Create VM:web pve01", "VM:web is desired"}, true},
		{"nextid was not asked", []string{manifest("VM", "web", webSpec)}, snapshot(), []string{"VM:web is unknown: whether vmid 100 is free"}, false},
		{"taken by an invisible guest", []string{manifest("VM", "web", webSpec)}, func() *live.Snapshot { s := snapshot(); s.Free[100] = false; return s }(),
			[]string{"it is not visible, not absent"}, false},
		{"node offline", []string{manifest("VM", "web", webSpec)}, offline(free(snapshot(), 100)), []string{"VM:web is unknown: node pve01 does not answer"}, false},
		{"another node offline", []string{manifest("VM", "web", strings.Replace(webSpec, "pve01", "pve02", 1))}, offline(free(snapshot(), 100)),
			[]string{"Create VM:web pve02"}, true},
		{"ISO first", []string{manifest("VM", "web", withISO), iso}, holding(free(snapshot(), 100), "pve01", "local"),
			[]string{"Download ISO:deb pve01\nCreate VM:web pve01"}, true},
		{"ISO there", []string{manifest("VM", "web", withISO), iso}, holding(free(snapshot(), 100), "pve01", "local", "local:iso/deb.iso"),
			[]string{"Create VM:web pve01"}, true},
		{"ISO unreadable", []string{manifest("VM", "web", withISO), iso}, free(snapshot(), 100), []string{"VM:web is skipped: waits for ISO:deb"}, false},
		{"ISO without url", []string{manifest("VM", "web", withISO), manifest("ISO", "deb", "nodes: [pve01]\nstorage: local\nfilename: deb.iso\nurl: null")},
			holding(free(snapshot(), 100), "pve01", "local"), []string{"error ISO:deb m1.yaml:9:8: url: null stands", "VM:web is skipped"}, false},
		{"container without template", []string{manifest("LXC", "dns", ctSpec)}, free(snapshot(), 200), []string{"error LXC:dns", ": template: null"}, false},
		{"clone", []string{manifest("TemplateVM", "golden", goldenSpec), manifest("VM", "app", cloneSpec)}, free(snapshot(guest(900, "pve01", "qemu", goldenConfig)), 101),
			[]string{"Clone VM:app pve01"}, true},
		{"template and clone", []string{manifest("TemplateVM", "golden", goldenSpec), manifest("VM", "app", cloneSpec)}, free(snapshot(), 101, 900),
			[]string{"Create TemplateVM:golden pve01", "Clone VM:app pve01"}, true},
		{"clone of a busy template", []string{manifest("TemplateVM", "golden", goldenSpec), manifest("VM", "app", cloneSpec)},
			func() *live.Snapshot {
				g := guest(900, "pve01", "qemu", goldenConfig)
				g.Busy = "locked (clone)"
				return free(snapshot(g), 101)
			}(), []string{"VM:app is skipped: waits for TemplateVM:golden: locked (clone)"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := Make(cluster(t, tt.c...), tt.s, Policy{})
			want(t, p, tt.want...)
			creates := strings.Contains(lines(p), "Create VM") || strings.Contains(lines(p), "Clone VM") || strings.Contains(lines(p), "Create LXC")
			if creates != tt.creates {
				t.Errorf("creates: %v, want %v\n%s", creates, tt.creates, lines(p))
			}
		})
	}
}

func TestCreateParameters(t *testing.T) {
	p := Make(cluster(t, manifest("VM", "web", webSpec+"tags: [blue]\npool: prod\n")), free(snapshot(), 100), Policy{})
	step := p.Actions[0].Do.(CreateStep)
	for key, text := range map[string]string{"name": "web", "memory": "2048", "scsi0": "local-lvm:10", "tags": "blue;proxops", "pool": "prod"} {
		if v, ok := step.Params.Get(key); !ok || v.String() != text {
			t.Errorf("%s is %q, want %q", key, v, text)
		}
	}
	if len(step.Storages) != 1 || step.Storages[0] != "local-lvm" {
		t.Errorf("allocates on %v", step.Storages)
	}
}

// A shared storage needs a file once, whatever nodes use it.
func TestDownloadOnce(t *testing.T) {
	iso := strings.Replace(isoSpec, "[pve01]", "[pve01, pve02]", 1)
	s := holding(holding(snapshot(), "pve01", "local"), "pve02", "local")
	p := Make(cluster(t, manifest("ISO", "deb", iso)), s, Policy{})
	if len(p.Actions) != 2 {
		t.Errorf("a local storage needs the file on each node:\n%s", lines(p))
	}
	for _, n := range []string{"pve01", "pve02"} {
		s.Storages[live.Store{Node: n, Storage: "local"}] = live.Storage{Type: "nfs", Shared: true}
	}
	p = Make(cluster(t, manifest("ISO", "deb", iso)), s, Policy{})
	if len(p.Actions) != 1 || len(p.Actions[0].Do.(DownloadStep).Nodes) != 2 {
		t.Errorf("a shared storage needs the file once, for both nodes:\n%s", lines(p))
	}
}

// The write after a clone sets what is declared, clears the identity that is
// not, and puts the template's description in the marker's place.
func TestConfigureClone(t *testing.T) {
	c := cluster(t, manifest("TemplateVM", "golden", goldenSpec), manifest("VM", "app", cloneSpec))
	tpl := guest(900, "pve01", "qemu", goldenConfig)
	p := Make(c, free(snapshot(tpl), 101), Policy{})
	step := p.Actions[0].Do.(CloneStep)
	if v, _ := step.Params.Get("description"); v.String() != CloneMarker {
		t.Errorf("the clone call says %q", v)
	}
	if v, _ := step.Params.Get("full"); v.String() != "1" {
		t.Error("the clone must be a full one")
	}
	made := guest(101, "pve01", "qemu", strings.NewReplacer("name: golden", "name: app", "template: 1\n", "", "the golden image", CloneMarker, "base-900", "vm-101").Replace(goldenConfig))
	d := Configure(step.Resource, &made.Guest, step.Options, true, step.Description)
	got := map[string]field.Edit{}
	for _, e := range d.Edits {
		got[e.Key] = e
	}
	for key, text := range map[string]string{"memory": "2048", "ciuser": "deploy", "description": "the golden image", "tags": "proxops"} {
		if e := got[key]; e.Delete || e.Value.String() != text {
			t.Errorf("%s: %q, want %q", key, e.Value, text)
		}
	}
	if !got["searchdomain"].Delete {
		t.Error("the template's search domain stays on the clone")
	}
	for _, e := range d.Edits {
		if e.Create {
			t.Errorf("%s: a create form over the clone's volume", e.Key)
		}
	}
}

// A clone whose configuration broke off is written again, whoever its tags
// say it belongs to; then it has no plan.
func TestUnfinishedClone(t *testing.T) {
	c := cluster(t, manifest("TemplateVM", "golden", goldenSpec), manifest("VM", "app", cloneSpec))
	half := func(tags string) *live.Guest {
		return guest(101, "pve01", "qemu", "name: app\nmemory: 1024\ncpu: host\ncores: 1\nscsi0: local-lvm:vm-101-disk-0,size=10G\nnet0: virtio=BC:24:11:00:00:0A,bridge=vmbr0\nciuser: builder\ndescription: "+CloneMarker+"\ntags: "+tags)
	}
	p := Make(c, snapshot(guest(900, "pve01", "qemu", goldenConfig), half("golden")), Policy{})
	want(t, p, "Update VM:app pve01", "Start VM:app")
	step := p.Actions[0].Do.(UpdateStep)
	if v, _ := step.Params.Get("description"); v.String() != "the golden image" {
		t.Errorf("description becomes %q", v)
	}
	if v, _ := step.Params.Get("tags"); v.String() != "proxops" {
		t.Errorf("tags become %q", v)
	}
}

func TestTags(t *testing.T) {
	set := func(tags ...string) field.Opt[[]string] { return field.Some(tags) }
	var absent field.Opt[[]string]
	tests := []struct {
		name     string
		declared field.Opt[[]string]
		live     string
		clone    bool
		o        live.Options
		want     string // "" = no write
	}{
		{"absent keeps live ones", absent, "a;b", false, live.Options{}, "a;b;proxops"},
		{"absent and tagged", absent, "a;proxops", false, live.Options{}, ""},
		{"a set is the whole set", set("b"), "a;proxops", false, live.Options{}, "b;proxops"},
		{"order is no difference", set("gamma", "Beta"), "beta;gamma;proxops", false, live.Options{}, ""},
		{"null leaves ours alone", field.Cleared[[]string](), "a;proxops", false, live.Options{}, "proxops"},
		{"inherited ones do not count", absent, "a;proxops", true, live.Options{}, "proxops"},
		{"an older tool's tag stays where none are declared", absent, "pveconform", false, live.Options{}, "proxops;pveconform"},
		{"an older tool's tag goes where some are", set("a"), "pveconform", false, live.Options{}, "a;proxops"},
		{"case counts where the datacenter says so", set("Web"), "web;proxops", false, live.Options{TagsCaseSensitive: true}, "Web;proxops"},
		{"our tag never differs by case", absent, "ProxOps", false, live.Options{TagsCaseSensitive: true}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := guest(100, "pve01", "qemu", "tags: "+tt.live)
			g.Env.AfterClone = tt.clone
			e, ok := tagEdit(tt.declared, &g.Guest, tt.o)
			if got := e.Value.String(); got != tt.want || ok != (tt.want != "") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
