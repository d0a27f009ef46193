package adopt_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/adopt"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/secret"
)

// Nodes that are not on the list are neither read nor adopted, and a node that
// does not answer makes the result incomplete, not smaller in silence.
func TestNodes(t *testing.T) {
	s := pvesim.Estate(3, 40, 3)
	per := map[string]int{}
	for _, g := range s.Guests {
		per[g.Node]++
	}
	e := newEstate(t, s, "pve01", "pve02")
	e.world.View(func(s *pvesim.State) {
		for _, n := range s.Nodes {
			n.Offline = n.Name == "pve02"
		}
	})
	_, res := e.adopt(adopt.Options{})
	if res.Complete || res.Elsewhere != per["pve03"] {
		t.Errorf("complete %v, %d elsewhere of %d", res.Complete, res.Elsewhere, per["pve03"])
	}
	refused := 0
	for _, r := range res.Refused {
		if r.Node == "pve02" && strings.Contains(r.Text, "does not answer") {
			refused++
		}
	}
	if refused != per["pve02"] {
		t.Errorf("%d of %d guests of the silent node are told: %+v", refused, per["pve02"], res.Refused)
	}
	for _, m := range res.Manifests {
		if len(m.Nodes) != 1 || m.Nodes[0] != "pve01" {
			t.Errorf("%s is of %v", m.Ref(), m.Nodes)
		}
	}
	for _, r := range e.world.Requests() {
		if strings.Contains(r.Path, "/nodes/pve03/") {
			t.Errorf("%s %s was sent", r.Method, r.Path)
		}
	}
}

// A token that sees nothing must not make an estate look empty.
func TestBlindToken(t *testing.T) {
	e := newEstate(t, pvesim.Estate(3, 10, 1), "pve01")
	c, err := pve.New(pve.Config{Name: "lab", Endpoints: []string{"https://pve.example.org:8006"}, Nodes: e.nodes, Transport: e.world,
		Auth: pve.Credentials{TokenID: "gitops@pve!none", TokenSecret: secret.New("55555555-5555-4555-8555-555555555555")}})
	if err != nil {
		t.Fatal(err)
	}
	e.client = c
	_, res := e.adopt(adopt.Options{})
	if hints := strings.Join(res.Hints, "\n"); len(res.Manifests) > 0 || !strings.Contains(hints, "has no VM.Audit on /vms") || !strings.Contains(hints, "Datastore.Audit") {
		t.Errorf("%d manifests, hints:\n%s", len(res.Manifests), hints)
	}
}

// Names are valid, unique, stable and independent of odd texts.
func TestNames(t *testing.T) {
	long := strings.Repeat("very-long-name-", 8)
	s := pvesim.Estate(1, 0, 1)
	for id, name := range map[int]string{100: "a.b", 101: "A-B", 102: "a-b-101", 103: "a--b", 104: long[:63], 105: strings.ToUpper(long[:63]), 106: "", 107: "9"} {
		s.Guests[id] = &pvesim.Guest{VMID: id, Kind: "qemu", Node: "pve01", Config: pvesim.Section{"name": name, "memory": "64"}}
		if name == "" {
			delete(s.Guests[id].Config, "name")
		}
	}
	e := newEstate(t, s, "pve01")
	res, _ := e.proof(adopt.Options{})
	got := map[int]string{}
	for _, m := range res.Manifests {
		if m.VMID > 0 {
			got[m.VMID] = m.Name
		}
	}
	want := map[int]string{100: "a-b", 101: "a-b-101-2", 102: "a-b-101", 103: "a-b-103", 104: strings.Trim(long[:63], "-"), 106: "vm-106", 107: "9"}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if got[id] != want[id] {
			t.Errorf("%d is %s, want %s", id, got[id], want[id])
		}
	}
	seen := map[string]bool{}
	for id, name := range got {
		if len(name) > 63 || seen[name] {
			t.Errorf("%d: %s", id, name)
		}
		seen[name] = true
	}
	// A guest that wants a taken name later takes it from nobody.
	e.world.View(func(s *pvesim.State) {
		s.Guests[99+1000] = &pvesim.Guest{VMID: 1099, Kind: "qemu", Node: "pve01", Config: pvesim.Section{"name": "a-b", "memory": "64"}}
		s.Guests[100].Config["name"], s.Guests[101].Config["name"] = "z", "a-b"
	})
	_, again := e.adopt(adopt.Options{})
	for _, m := range again.Manifests {
		if before, ok := got[m.VMID]; ok && before != m.Name {
			t.Errorf("%d was %s and is %s", m.VMID, before, m.Name)
		}
		if m.VMID == 1099 && m.Name != "a-b-1099" {
			t.Errorf("the new guest is %s", m.Name)
		}
	}
}

// One file on several nodes is one manifest; the same name on two storages is
// two.
func TestFilesOfNodes(t *testing.T) {
	s := pvesim.Estate(1, 0, 3)
	add := func(node, volid, content string) {
		s.Volumes[node+" "+volid] = &pvesim.Volume{ID: volid, Node: node, Content: content, Format: content, Size: 1 << 20}
	}
	s.Storages = append(s.Storages, &pvesim.Storage{ID: "more", Type: "dir", Content: []string{"iso", "vztmpl", "import"}, Total: 1 << 40, Props: map[string]string{"path": "/more"}})
	for _, n := range []string{"pve01", "pve02", "pve03"} {
		add(n, "local:iso/Tool.ISO", "iso")
	}
	add("pve02", "more:iso/tool.iso", "iso")
	add("pve02", "more:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst", "vztmpl")
	add("pve02", "more:import/cloud.qcow2", "import")
	add("pve02", "more:iso/bad(1).iso", "iso")
	e := newEstate(t, s, "pve01", "pve02")
	res, _ := e.proof(adopt.Options{})
	var got []string
	for _, m := range res.Manifests {
		got = append(got, fmt.Sprintf("%s %s %v", m.Kind.Name, m.Name, m.Nodes))
	}
	for _, want := range []string{"ISO tool [pve01 pve02]", "ISO tool-more [pve02]", "CTTemplate debian-13-standard-13-1-2-amd64 [pve02]", "DiskImage cloud [pve02]"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in %q", want, got)
		}
	}
	wants(t, manifest(t, res, "more:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst"), "perhaps http://download.proxmox.com/images/system/debian-13-standard_13.1-2_amd64.tar.zst")
	if len(res.Refused) != 1 || !strings.Contains(res.Refused[0].ID, "bad(1).iso") {
		t.Errorf("refused %+v", res.Refused)
	}
}

// A guest that is being made has no config to adopt yet.
func TestUnfinished(t *testing.T) {
	e := oddEstate(t)
	e.world.View(func(s *pvesim.State) {
		s.Guests[102].Config["lock"], s.Guests[104].Config["lock"] = "clone", "backup"
		s.Guests[110].Config = pvesim.Section{"lock": "create"}
	})
	_, res := e.adopt(adopt.Options{})
	for _, r := range res.Refused {
		if !strings.Contains(r.Text, "it is being made") || r.ID != "102" && r.ID != "110" {
			t.Errorf("%+v", r)
		}
	}
	if manifest(t, res, "104"); len(res.Refused) != 2 {
		t.Errorf("refused %+v", res.Refused)
	}
}

// Values that hold a secret by the look of them are not shown, in gaps as in
// extra.
func TestSecretValues(t *testing.T) {
	for value, hidden := range map[string]bool{
		"-object secret,id=s,data=hunter2": true, "-vnc :0,password=hunter2": true, "X_API_KEY=hunter2": true, "token: hunter2": true,
		"-device vfio-pci,host=hunter2": false,
	} {
		e := oddEstate(t)
		e.world.View(func(s *pvesim.State) {
			s.Guests[102].Config["args"], s.Guests[102].Config["future"] = value, value
			s.Guests[102].Config["keyboard"] = value // a key that extra takes
			s.Guests[112].Raw = append(s.Guests[112].Raw, "lxc.init.cmd: "+value)
			if hidden { // an environment is hidden whatever it looks like
				s.Guests[112].Raw = append(s.Guests[112].Raw, "lxc.environment: DB=hunter2", "lxc.environment.runtime: DB=hunter2")
			}
		})
		res, _ := e.proof(adopt.Options{Extra: true})
		text := fmt.Sprintf("%s %v", manifest(t, res, "102").Text, res.Gaps)
		if got := !strings.Contains(text, "hunter2"); got != hidden {
			t.Errorf("%s: hidden %v\n%s", value, got, text)
		}
	}
}
