package cases_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
)

// reading is what a token must see, by the part of the ACL tree.
var reading = map[string]string{"/vms": "VM.Audit", "/storage": "Datastore.Audit", "/pool": "Pool.Audit", "/sdn": "SDN.Audit", "/mapping": "Mapping.Audit", "/nodes": "Sys.Audit"}

// writes is every kind of write that a plan makes: what is there before, and
// what is wanted then. Each is made by a token that has just the rights which
// the plan names.
func writes() map[string][2][]string {
	disk := "disks: [{storage: local-lvm, size: 1GiB, grow: true}]"
	nic := "networks: [{bridge: vmbr0}]"
	tagged := "networks: [{bridge: vmbr0, vlan: 7}]"
	tpl := spec("TemplateVM", "golden", 900, disk, nic)
	cloud := "hardware: {cloud-init: {storage: local-lvm}}\ncloud-init-data: {ci-user: x}"
	c := func(lines ...string) string { return ct("b", 101, append([]string{"template: debian"}, lines...)...) }
	v := func(lines ...string) string { return vm("a", 100, lines...) }
	z := vm("z", 777)
	sys := "disks: [{storage: local-lvm, image: seed}]" // has a system that shuts down
	url := strings.NewReplacer("seed.iso", "new.iso", "url: null", "url: 'http://127.0.0.1:9/tiny.iso'").Replace(seedISO)
	return map[string][2][]string{
		"create":            {{}, {v()}},
		"create disk":       {{}, {v(disk)}},
		"create import":     {{seedImage}, {seedImage, v("disks: [{storage: local-lvm, image: seed}]")}},
		"create nic":        {{}, {v(nic)}},
		"create nic vlan":   {{}, {v(tagged)}},
		"create startup":    {{}, {v("options: {startup: order=1}")}},
		"create cloud":      {{}, {v(cloud)}},
		"create empty cd":   {{}, {v("hardware: {cdrom: {iso: none}}")}},
		"create iso":        {{seedISO}, {seedISO, v("hardware: {cdrom: {iso: seed}}")}},
		"create serial":     {{}, {v("hardware: {serial0: socket}")}},
		"create efi tpm":    {{}, {v("hardware: {bios: ovmf, machine: q35, efi-disk: {storage: local-lvm}, tpm: {version: v2.0}}")}},
		"create mapping":    {{}, {v("hardware: {pci-devices: [{mapping: gpu1}]}")}},
		"create pool":       {{}, {v("pool: dev", disk, nic)}},
		"create started":    {{}, {v("state: started")}},
		"create template":   {{}, {tpl}},
		"clone":             {{tpl}, {tpl, v("clone: golden", nic)}},
		"clone changed":     {{tpl}, {tpl, v("clone: golden", nic, "memory: 1GiB", "cpu: {type: host, cores: 2}", cloud, "state: started")}},
		"clone pool":        {{tpl}, {tpl, v("clone: golden", nic, "pool: dev")}},
		"ct":                {{debian}, {debian, c()}},
		"ct nic":            {{debian}, {debian, c(nic)}},
		"ct nic vlan":       {{debian}, {debian, c("networks: [{bridge: vmbr0, tag: 7}]")}},
		"ct nesting":        {{debian}, {debian, c("options: {nesting: true}")}},
		"ct privileged":     {{debian}, {debian, c("options: {unprivileged: false}")}},
		"ct mount":          {{debian}, {debian, c("mount-points: [{storage: local-lvm, size: 1GiB, mount-point: /srv}]")}},
		"ct started":        {{debian}, {debian, c("state: started")}},
		"ct pool":           {{debian}, {debian, c("pool: dev")}},
		"ct dns":            {{debian}, {debian, c("dns: {nameservers: [192.0.2.53], domain: example.org}", "options: {startup: order=1}")}},
		"ct template":       {{debian}, {debian, spec("TemplateCT", "base", 901, "template: debian")}},
		"cores":             {{v()}, {v("cpu: {type: host, cores: 2}")}},
		"memory":            {{v()}, {v("memory: 1GiB")}},
		"tags":              {{v()}, {v("tags: [x]")}},
		"description":       {{v()}, {v("pve-description: x")}},
		"name":              {{v()}, {v("pve-name: other")}},
		"startup":           {{v()}, {v("options: {startup: order=1}")}},
		"machine":           {{v()}, {v("hardware: {machine: q35}")}},
		"boot":              {{v(disk, nic)}, {v(disk, nic, "options: {boot-order: [net0, scsi0]}")}},
		"add nic":           {{v()}, {v(nic)}},
		"other bridge":      {{v(nic)}, {v("networks: [{bridge: vmbr1}]")}},
		"other vlan":        {{v(tagged)}, {v("networks: [{bridge: vmbr0, vlan: 8}]")}},
		"add disk":          {{v()}, {v(disk)}},
		"disk option":       {{v(disk)}, {v(strings.Replace(disk, "grow", "ssd: true, grow", 1))}},
		"grow":              {{v(disk)}, {v(strings.Replace(disk, "1GiB", "2GiB", 1))}},
		"add cloud-init":    {{v()}, {v(cloud)}},
		"cloud-init data":   {{v(cloud)}, {v(strings.Replace(cloud, "ci-user: x", "ci-user: y, ipconfigs: [{nic: 0, ip: dhcp}]", 1))}},
		"add cd":            {{v(), seedISO}, {v("hardware: {cdrom: {iso: seed}}"), seedISO}},
		"empty cd":          {{v("hardware: {cdrom: {iso: seed}}"), seedISO}, {v("hardware: {cdrom: {iso: none}}"), seedISO}},
		"add efi":           {{v()}, {v("hardware: {bios: ovmf, efi-disk: {storage: local-lvm}}")}},
		"add serial":        {{v()}, {v("hardware: {serial0: socket}")}},
		"clear":             {{v("hardware: {serial0: socket}", "tags: [x]", "pve-description: x")}, {v("hardware: {serial0: null}", "tags: null", "pve-description: null")}},
		"add mapping":       {{v()}, {v("hardware: {pci-devices: [{mapping: gpu1}]}")}},
		"into pool":         {{v()}, {v("pool: dev")}},
		"out of pool":       {{v("pool: dev")}, {v("pool: null")}},
		"other pool":        {{v("pool: dev")}, {v("pool: ops")}},
		"start":             {{v()}, {v("state: started")}},
		"stop":              {{seedImage, v(sys, "state: started")}, {seedImage, v(sys)}},
		"ct memory":         {{c(), debian}, {c("memory: 1GiB", "cpu: {cores: 2}"), debian}},
		"ct hostname":       {{c(), debian}, {c("dns: {hostname: other}"), debian}},
		"ct add mount":      {{c(), debian}, {c("mount-points: [{storage: local-lvm, size: 1GiB, mount-point: /srv}]"), debian}},
		"ct grow":           {{c("root: {storage: local-lvm, size: 1GiB, grow: true}"), debian}, {c("root: {storage: local-lvm, size: 2GiB, grow: true}"), debian}},
		"ct startup":        {{c(), debian}, {c("options: {startup: order=1, onboot: true}"), debian}},
		"ct other bridge":   {{c(nic), debian}, {c("networks: [{bridge: vmbr1}]"), debian}},
		"ct nesting later":  {{c(), debian}, {c("options: {nesting: true}"), debian}},
		"ct start":          {{c(), debian}, {c("state: started"), debian}},
		"delete":            {{v(disk), z}, {z}},
		"delete running":    {{seedImage, v(sys, "state: started"), z}, {seedImage, z}},
		"delete ct":         {{c(), debian, ct("y", 778, "template: debian")}, {debian, ct("y", 778, "template: debian")}},
		"download":          {{}, {url}},
		"restart":           {{seedImage, noted(v(sys, "state: started"), "proxops/restart: immediate")}, {seedImage, noted(v(sys, "state: started", "cpu: {type: host, cores: 2}"), "proxops/restart: immediate")}},
		"mark":              {{v(disk)}, {noted(spec("TemplateVM", "a", 100, disk), `proxops/claim: "true"`)}},
		"storage elsewhere": {{v()}, {v("disks: [{storage: shared, size: 1GiB}, {storage: local-dir, size: 1GiB}]")}},
	}
}

// rights are privileges by ACL path.
type rights map[string]map[string]bool

func (r rights) add(path, priv string) {
	if r[path] == nil {
		r[path] = map[string]bool{}
	}
	r[path][priv] = true
}

// each lists "privilege on path", in order.
func (r rights) each() []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(r)) {
		for _, priv := range slices.Sorted(maps.Keys(r[path])) {
			out = append(out, priv+" on "+path)
		}
	}
	return out
}

func (r rights) String() string { return strings.Join(r.each(), ", ") }

// without is all of r but one of each's lines.
func (r rights) without(line string) rights {
	out := rights{}
	for path, privs := range r {
		for priv := range privs {
			if priv+" on "+path != line {
				out.add(path, priv)
			}
		}
	}
	return out
}

// hold makes the limited token hold exactly these, beside what it takes to see.
func (l *lab) hold(r rights) {
	l.w.View(func(s *pvesim.State) {
		s.Access.ACL = slices.DeleteFunc(s.Access.ACL, func(e pvesim.ACLEntry) bool { return e.Who == limited })
	})
	for area, priv := range reading {
		l.role("See"+area[1:], priv)
		l.grant("See"+area[1:], area)
	}
	for _, path := range slices.Sorted(maps.Keys(r)) {
		privs := slices.Sorted(maps.Keys(r[path]))
		for area, priv := range reading { // an entry further down takes the place of what is inherited
			if strings.HasPrefix(path, area+"/") {
				privs = append(privs, priv)
			}
		}
		name := "At" + strings.ReplaceAll(path, "/", "_")
		l.role(name, strings.Join(privs, " "))
		l.grant(name, path)
	}
	l.w.View(func(s *pvesim.State) { // nothing of / is handed down
		for i := range s.Access.ACL {
			if e := &s.Access.ACL[i]; e.Who == limited && e.Path == "/" {
				e.Propagate = false
			}
		}
	})
	l.as(l.token())
}

// planned writes the manifests and gives the cluster that they declare, its plan
// and what was read for it.
func (l *lab) planned(manifests ...string) (*repo.Cluster, plan.Plan, *live.Snapshot) {
	l.Helper()
	l.write(manifests...)
	c, err := l.load(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	client, err := l.connect(c)
	if err != nil {
		l.Fatal(err)
	}
	p, snap, err := reconcile.Plan(l.Context(), c, client.Reader(), reconcile.Options{})
	if err != nil {
		l.Fatal(err)
	}
	return c, p, snap
}

// want are the rights that the plan names for the manifests; of alternatives
// the first or the last.
func (l *lab) want(last bool, manifests ...string) rights {
	l.Helper()
	l.hold(nil)
	_, p, snap := l.planned(manifests...)
	if len(p.Actions) == 0 {
		l.Fatalf("nothing is planned: %+v %+v", p.Errors, p.Objects)
	}
	out := rights{}
	for _, a := range p.Actions {
		for _, n := range plan.Needs(a, snap) {
			if slices.Contains(n.Privs, "Datastore.Audit") {
				continue // without it the storage is not seen at all
			}
			if last {
				out.add(n.Paths[len(n.Paths)-1], n.Privs[len(n.Privs)-1])
			} else {
				out.add(n.Paths[0], n.Privs[0])
			}
		}
	}
	return out
}

// denied reports whether PVE refused for want of a right.
func denied(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), "ermission"))
}

// What the plan says that an action needs is what PVE asks for: a token with
// just these rights meets no refusal, and one that lacks a single one of them
// is refused as predicted.
func TestRightsAreExact(t *testing.T) {
	taken := 0
	for what, c := range writes() {
		t.Run(what, func(t *testing.T) {
			first, last := rights{}, rights{}
			rightsStory(t, c, func(l *lab) { first, last = l.want(false, c[1]...), l.want(true, c[1]...) })
			rightsStory(t, c, func(l *lab) { l.enough(first, c[1]) })
			if last.String() != first.String() {
				rightsStory(t, c, func(l *lab) { l.enough(last, c[1]) })
			}
			left := first.each()
			taken += len(left)
			for len(left) > 0 { // in one story as long as nothing is written in it
				rightsStory(t, c, func(l *lab) {
					for untouched := true; untouched && len(left) > 0; left = left[1:] {
						untouched = l.refused(first.without(left[0]), left[0], c[1])
					}
				})
			}
		})
	}
	if taken < 150 {
		t.Errorf("only %d rights were taken away", taken)
	}
}

func rightsStory(t *testing.T, c [2][]string, f func(l *lab)) {
	t.Helper()
	story(t, func(l *lab) { l.converge(c[0]...); f(l) }, func(s *pvesim.State) {
		s.Pools = map[string]*pvesim.Pool{}
		for _, id := range []string{"dev", "ops"} {
			s.Pools[id] = &pvesim.Pool{ID: id, VMs: map[int]bool{}, Storages: map[string]bool{}}
		}
		s.Mappings = map[string]*pvesim.Mapping{"pci/gpu1": {Kind: "pci", ID: "gpu1", Map: []string{"node=pve01,path=0000:01:00.0,id=10de:1234"}}}
	})
}

// enough holds that the rights are.
func (l *lab) enough(r rights, manifests []string) {
	l.Helper()
	l.hold(r)
	l.fails = true
	rep := l.apply(manifests...)
	if rep.Result == nil {
		l.Fatalf("with %v nothing was done: %v\n%s", r, rep.Abort, text(rep))
	}
	for _, a := range rep.Result.Actions {
		if a.Action.Refused != "" || denied(a.Err) || a.Err != nil && a.Action.Verb != plan.Download {
			l.Errorf("with %v: %s: predicted %q, PVE said %v", r, a.Action.Verb, a.Action.Refused, a.Err)
		}
	}
}

// refused holds that PVE refuses what the plan says, with these rights. It
// reports whether nothing was written.
func (l *lab) refused(r rights, gone string, manifests []string) (untouched bool) {
	l.Helper()
	l.hold(r)
	l.fails = true
	before := l.guests()
	rep := l.apply(manifests...)
	if rep.Result == nil {
		l.Errorf("without %s nothing was tried: %v\n%s", gone, rep.Abort, text(rep))
		return false
	}
	predicted := false
	for _, a := range rep.Result.Actions {
		predicted = predicted || a.Action.Refused != ""
		if (a.Action.Refused != "") != denied(a.Err) {
			l.Errorf("without %s: %s: predicted %q, PVE said %v", gone, a.Action.Verb, a.Action.Refused, a.Err)
		}
	}
	if !predicted {
		l.Errorf("without %s nothing is predicted", gone)
	}
	return l.guests() == before
}

// guests are all guests with their configs and whether they run.
func (l *lab) guests() string {
	var b strings.Builder
	l.w.View(func(s *pvesim.State) {
		for _, id := range slices.Sorted(maps.Keys(s.Guests)) {
			g := s.Guests[id]
			fmt.Fprintln(&b, id, g.Node, g.Running, print(g.Config), print(g.Pending))
		}
	})
	return b.String()
}
