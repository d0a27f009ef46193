package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/wire"
)

// estateOf is a cluster with a random estate, to which canaries are added:
// every text that could tell whose it is, or let somebody in.
func estateOf(t *testing.T, s pvesim.State) *stage {
	t.Helper()
	line := grantRoot(&s)
	w := pvesim.New(pvesim.Options{Seed: 1}, s)
	srv, err := w.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{world: w, srv: srv, token: line.Token}
	t.Cleanup(st.close)
	return st
}

// canaryText stands in every value below that must not leave the house.
const canaryText = "heron"

// plantCanaries puts the word into guests, storages, pools and options.
func plantCanaries(s *pvesim.State) {
	vm := pvesim.Section{
		"name": "heron-db.heron.example", "description": "call heron\n# of heron", "tags": "heron;zz-heron", "memory": "1024", "cores": "2", "ostype": "l26",
		"scsi0": "heron-nas:100/vm-100-heron-data.qcow2,serial=heron1,size=8G", "scsi1": "/dev/disk/by-id/ata-heron_SSD_S3Z", "ide2": "heron-nas:iso/heron-golden.iso,media=cdrom",
		"net0": "virtio=0A:11:22:33:44:55,bridge=heronnet,tag=20", "ciuser": "heron", "cipassword": "$5$heron$hash", "sshkeys": "ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL%20heron",
		"ipconfig0": "ip=203.0.113.7/24,gw=203.0.113.1,ip6=2a01:4f8:1::7/64", "nameserver": "203.0.113.53 ns.heron.example", "searchdomain": "heron.example",
		"args": "-fw_cfg name=opt/heron", "hookscript": "heron-nas:snippets/heron.pl", "smbios1": "uuid=5f1c3c8e-6f0c-4a53-9c0a-3a4ab1a0b7e1,serial=aGVyb24=,base64=1",
		"hostpci0": "mapping=heron-gpu", "usb0": "host=abcd:1234", "cicustom": "user=heron-nas:snippets/heron-user.yaml", "cpu": "custom-heron", "parent": "before-heron",
	}
	s.Guests[100] = &pvesim.Guest{VMID: 100, Kind: "qemu", Node: s.Nodes[0].Name, Config: vm, Pending: pvesim.Section{"description": "new heron", "name": "heron-renamed"}, Running: true,
		Snapshots: []*pvesim.Snapshot{{Name: "before-heron", Description: "heron", Config: pvesim.Section{"name": "heron-old", "memory": "512"}, VMState: "heron-nas:100/vm-100-state-before-heron.raw"}}}
	s.Guests[101] = &pvesim.Guest{VMID: 101, Kind: "lxc", Node: s.Nodes[1].Name, Raw: []string{"lxc.mount.entry: /srv/heron/data mnt/heron none bind,create=dir", "lxc.environment: K=heron"}, Config: pvesim.Section{
		"hostname": "ubuntu", "ostype": "ubuntu", "arch": "amd64", "memory": "512", "rootfs": "heron-nas:101/vm-101-disk-0.raw,size=4G", "mp0": "/srv/heron,mp=/var/heron", "env": "TOKEN=heron",
		"net0": "name=heron0,bridge=heronnet,hwaddr=0A:11:22:33:44:56,ip=203.0.113.8/24,gw=203.0.113.1,type=veth", "description": "heron\n", "entrypoint": "/opt/heron/run", "tags": "heron",
	}}
	s.Storages = append(s.Storages, &pvesim.Storage{ID: "heron-nas", Type: "nfs", Content: []string{"images", "rootdir", "iso", "snippets", "backup", "vztmpl", "import"}, Shared: true, Total: 1 << 40,
		Props: map[string]string{"path": "/mnt/pve/heron-nas", "server": "nas.heron.example", "export": "/tank/heron", "options": "vers=4,heron"}})
	for id, v := range map[string]*pvesim.Volume{
		"heron-nas:iso/heron-golden.iso":                           {Content: "iso", Size: 1 << 20},
		"heron-nas:backup/vzdump-qemu-100-heron.vma.zst":           {Content: "backup", Owner: 100, Size: 1 << 20, Notes: "heron"},
		"heron-nas:100/vm-100-heron-data.qcow2":                    {Content: "images", Owner: 100, Format: "qcow2", Size: 8 << 30},
		"heron-nas:101/vm-101-disk-0.raw":                          {Content: "images", Owner: 101, Format: "raw", Size: 4 << 30},
		"heron-nas:backup/vzdump-qemu-100-2024_01_02-03_04_05.vma": {Content: "backup", Owner: 100, Size: 1 << 20},
	} {
		v.ID = id
		s.Volumes["/"+id] = v
	}
	s.Pools = map[string]*pvesim.Pool{"heron": {ID: "heron", Comment: "of heron", VMs: map[int]bool{100: true}}, "heron/inner": {ID: "heron/inner", VMs: map[int]bool{101: true}}}
	s.Datacenter["email_from"], s.Datacenter["http_proxy"] = "root@heron.example", "http://u:heron@proxy:3128"
	s.Datacenter["registered-tags"], s.Datacenter["tag-style"] = "heron;zz-heron", "color-map=heron:ff0000"
	s.ClusterName = "heron"
	s.HA = map[string]*pvesim.HAResource{"vm:100": {SID: "vm:100", State: "started", Group: "heron", Comment: "heron"}}
}

// repoFor is a repository for a cluster; the token of its stage is used.
func repoFor(t *testing.T, st *stage) (in func(want int, args ...string) string) {
	t.Helper()
	dir := t.TempDir()
	var nodes []string
	st.world.View(func(s *pvesim.State) {
		for _, n := range s.Nodes {
			nodes = append(nodes, n.Name)
		}
	})
	writeFiles(t, dir, map[string]string{
		"clusters/lab/config.yaml":    fmt.Sprintf("pve:\n  clusters:\n    lab:\n      base-url: %s\n      fingerprint: %q\n      nodes: [%s]\n", st.srv.URL, st.srv.Fingerprint, strings.Join(nodes, ", ")),
		"clusters/lab/resources.yaml": "resources: []\n",
	})
	if err := commitAll(dir, "begin"); err != nil {
		t.Fatal(err)
	}
	return func(want int, args ...string) string {
		t.Helper()
		var out, errs strings.Builder
		env := []string{"PROXOPS_PVE_TOKEN_VALUE=" + st.token, "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
		if args[0] == "compose" {
			if err := os.Rename(filepath.Join(dir, "clusters/lab/resources.yaml.proposed"), filepath.Join(dir, "clusters/lab/resources.yaml")); err != nil {
				t.Fatal(err)
			}
			return ""
		}
		if got := run(t.Context(), system{out: &out, err: &errs, environ: env}, append([]string{"--git-path", dir}, args...)); got != want {
			t.Fatalf("proxops %v: exit status %d, want %d\n%s%s", args, got, want, out.String(), errs.String())
		}
		return out.String()
	}
}

// shape is what a plan does, without names: the action, the kind, the vmid and
// the fields that change.
func shape(t *testing.T, report string) []string {
	t.Helper()
	var r struct {
		Clusters []struct {
			Actions []struct {
				Action, Kind, ID string
				Changes          []struct{ Path string }
			}
			Anomalies []struct{ Kind, ID, Path string }
		}
	}
	if err := json.Unmarshal([]byte(report), &r); err != nil || len(r.Clusters) != 1 {
		t.Fatalf("%v: %.300s", err, report)
	}
	var out []string
	for _, a := range r.Clusters[0].Actions {
		line := a.Action + " " + a.Kind + " " + a.ID
		if a.Kind != "VM" && a.Kind != "LXC" && !strings.HasPrefix(a.Kind, "Template") {
			line = a.Action + " " + a.Kind // files have no number, and their names are masked
		}
		for _, c := range a.Changes {
			line += " " + c.Path
		}
		out = append(out, line)
	}
	for _, a := range r.Clusters[0].Anomalies {
		out = append(out, "anomaly "+a.Kind+" "+a.ID+" "+a.Path)
	}
	slices.Sort(out)
	return out
}

// TestSnapshotTellsNothing: no canary and no name of the estate is in the
// file, equal things stay equal, and PVE saw reads alone.
func TestSnapshotTellsNothing(t *testing.T) {
	s := pvesim.Estate(11, 60, 3)
	plantCanaries(&s)
	st := estateOf(t, s)
	file := filepath.Join(t.TempDir(), "estate.json")
	if out := repoFor(t, st)(0, "snapshot", "--out", file); !strings.Contains(out, "62 guests") || !strings.Contains(out, "0 writes") {
		t.Errorf("said %s", out)
	}
	if w := writesOf(st.world); len(w) > 0 {
		t.Errorf("wrote: %v", w)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	words := map[string]bool{}
	for _, w := range regexp.MustCompile(`[A-Za-z0-9_.-]+`).FindAllString(text, -1) {
		words[w] = true
	}
	for i, line := range strings.Split(text, "\n") {
		if strings.Contains(strings.ToLower(line), canaryText) {
			t.Errorf("line %d: %s", i+1, line)
		}
	}
	var real []string
	mac := regexp.MustCompile(`BC:24:11(?::[0-9A-F]{2}){3}`)
	st.world.View(func(s *pvesim.State) {
		for _, n := range s.Nodes {
			real = append(real, n.Name, n.IP)
		}
		for _, g := range s.Guests {
			for _, k := range []string{"name", "hostname"} {
				if v := g.Config[k]; strings.ContainsAny(v, "0123456789-.") {
					real = append(real, v)
				}
			}
			real = append(real, strings.Split(g.Config["description"], "\n")...)
			real = append(real, mac.FindAllString(g.Config["net0"], -1)...)
			for _, sn := range g.Snapshots {
				real = append(real, sn.Name)
			}
		}
		for _, x := range s.Storages {
			if !strings.HasPrefix(x.ID, "local") {
				real = append(real, x.ID)
			}
		}
	})
	masked := regexp.MustCompile(`^(?:BC:24:11:00:00:..|snap\d+)$`) // may be drawn as well
	for _, r := range real {
		if r = strings.TrimSpace(r); r == "" || masked.MatchString(r) {
			continue
		}
		if words[r] || len(r) > 8 && strings.Contains(text, r) {
			t.Errorf("%q is still there", r)
		}
	}
	for _, gone := range []string{"5f1c3c8e", "203.0.113", "2a01:4f8", "0A:11:22", "S3Z", "aGVyb24"} {
		if strings.Contains(text, gone) {
			t.Errorf("%q is still there", gone)
		}
	}
	// A guest called ubuntu changes nobody's ostype; devices stay what they are.
	for _, kept := range []string{`"ostype": "ubuntu"`, `"usb0": "host=abcd:1234"`, "vzdump-qemu-100-2024_01_02-03_04_05.vma"} {
		if !strings.Contains(text, kept) {
			t.Errorf("%s is lost", kept)
		}
	}
}

// TestSnapshotKeepsThePlan: what proxops would do on the estate made of a
// snapshot is what it would do on the cluster itself.
func TestSnapshotKeepsThePlan(t *testing.T) {
	if testing.Short() {
		t.Skip("two estates")
	}
	s := pvesim.Estate(5, 50, 2)
	plantCanaries(&s)
	for id, g := range s.Guests { // some are ours already
		if id%3 == 0 {
			g.Config["tags"] = wire.JoinTags(append(wire.SplitTags(g.Config["tags"]), kind.OwnerTag))
		}
	}
	first := estateOf(t, s)
	in := repoFor(t, first)
	file := filepath.Join(t.TempDir(), "estate.json")
	in(0, "snapshot", "--out", file)
	again, err := pvesim.LoadSnapshot(file)
	if err != nil {
		t.Fatal(err)
	}
	second := estateOf(t, again)
	edit := func(st *stage) {
		ids := []int{}
		nodes := map[int]string{}
		st.world.View(func(s *pvesim.State) {
			for id, g := range s.Guests {
				ids, nodes[id] = append(ids, id), g.Node+"/"+g.Kind
			}
		})
		slices.Sort(ids)
		for i, id := range ids {
			form := [...]url.Values{{"memory": {"768"}}, {"description": {"by hand"}}, {"delete": {"net0"}}, {"tags": {""}}}[i%4]
			if _, err := st.call(http.MethodPut, fmt.Sprintf("/nodes/%s/%d/config", nodes[id], id), form); err != nil {
				t.Logf("%d: %v", id, err)
			}
		}
	}
	var shapes [2][]string
	for i, st := range []*stage{first, second} {
		in := repoFor(t, st)
		in(0, "adopt", "--compose")
		in(0, "compose")
		shapes[i] = append(shapes[i], shape(t, in(2, "diff", "-o", "json"))...)
		edit(st)
		shapes[i] = append(shapes[i], shape(t, in(2, "diff", "-o", "json"))...)
	}
	if len(shapes[0]) < 60 {
		t.Errorf("%d lines say little", len(shapes[0]))
	}
	for i := range 2 {
		for _, line := range shapes[i] {
			if !slices.Contains(shapes[1-i], line) {
				t.Errorf("only in estate %d: %s", i+1, line)
			}
		}
	}
}
