package pvesim

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParseConf(t *testing.T) {
	tests := []struct {
		name, kind, text string
		want             Section
		pending          Section
		gone             map[string]bool
		raw              []string
		warnings         int
	}{
		{
			name: "comments are the description, percent signs decoded, the end trimmed", kind: kindQemu,
			text: "# a%3A b\n#100%25 \n#\n\nmemory: 512\n", want: Section{"description": " a: b\n100%", "memory": "512"},
		},
		{
			name: "a container keeps the blanks at the end of its description", kind: kindLXC,
			text: "#a \n#\nmemory: 512\n", want: Section{"description": "a \n", "memory": "512"},
		},
		{
			name: "comments anywhere in a section belong to its description", kind: kindQemu,
			text: "cores: 2\n# late\nname: x", want: Section{"cores": "2", "name": "x", "description": " late"},
		},
		{name: "CRLF", kind: kindQemu, text: "name: x\r\ncores: 1\r\n", want: Section{"name": "x", "cores": "1"}},
		{name: "an empty value is one blank", kind: kindQemu, text: "boot:  \nargs: \n", want: Section{"boot": " ", "args": " "}},
		{name: "later lines win", kind: kindQemu, text: "cores: 1\ncores: 2\n", want: Section{"cores": "2"}},
		{name: "words for booleans", kind: kindQemu, text: "onboot: yes\nkvm: off\n", want: Section{"onboot": "1", "kvm": "0"}},
		{name: "the cdrom alias", kind: kindQemu, text: "cdrom: none\n", want: Section{"ide2": "none"}},
		{
			name: "drives are printed anew", kind: kindQemu, text: "virtio0: local:105/vm-105-disk-1.qcow2,size=1024M,backup=no\n",
			want: Section{"virtio0": "local:105/vm-105-disk-1.qcow2,backup=0,size=1G"},
		},
		{name: "what a VM's parser cannot read is lost", kind: kindQemu, text: "cores: many\nfoo: 1\n???\n", want: Section{}, warnings: 3},
		{name: "a container keeps it", kind: kindLXC, text: "cores: many\n", want: Section{"cores": "many"}, warnings: 1},
		{
			name: "pending values and deletions", kind: kindQemu, text: "memory: 512\n[PENDING]\nmemory: 1024\ndelete: cores,!net0\n",
			want: Section{"memory": "512"}, pending: Section{"memory": "1024"}, gone: map[string]bool{"cores": false, "net0": true},
		},
		{
			name: "pending of containers has another name", kind: kindLXC, text: "memory: 512\n[pve:pending]\nfeatures: nesting=1\n",
			want: Section{"memory": "512"}, pending: Section{"features": "nesting=1"},
		},
		{
			name: "raw lines keep their order, unknown ones go", kind: kindLXC,
			text: "lxc.idmap: u 0 1 2\nlxc.cgroup2.devices.allow = c 10:200 rwm\nlxc.idmap: g 0 1 2\nlxc.nonsense: 1\n", want: Section{},
			raw: []string{"lxc.idmap: u 0 1 2", "lxc.cgroup2.devices.allow: c 10:200 rwm", "lxc.idmap: g 0 1 2"}, warnings: 1,
		},
		{name: "internal keys stay", kind: kindQemu, text: "meta: ctime=1\nparent: a\nrunningmachine: pc\n", want: Section{"meta": "ctime=1", "parent": "a", "runningmachine": "pc"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, warnings := ParseConf(tt.kind, 100, tt.text)
			if !maps.Equal(g.Config, tt.want) {
				t.Errorf("config %q, want %q", g.Config, tt.want)
			}
			if !maps.Equal(g.Pending, tt.pending) || !maps.Equal(g.Delete, tt.gone) {
				t.Errorf("pending %q, delete %v; want %q, %v", g.Pending, g.Delete, tt.pending, tt.gone)
			}
			if !slices.Equal(g.Raw, tt.raw) {
				t.Errorf("raw %q, want %q", g.Raw, tt.raw)
			}
			if len(warnings) != tt.warnings {
				t.Errorf("warnings %q, want %d", warnings, tt.warnings)
			}
		})
	}
}

func TestParseConfSnapshots(t *testing.T) {
	g, warnings := ParseConf(kindLXC, 100, "hostname: now\nparent: s2\n[s1]\n#first\nhostname: old\nsnaptime: 1691826181\n[s2]\nhostname: new\nparent: s1\nsnaptime: 1691826182\n")
	if len(warnings) > 0 || len(g.Snapshots) != 2 {
		t.Fatalf("%d snapshots, warnings %q", len(g.Snapshots), warnings)
	}
	a, b := g.Snapshots[0], g.Snapshots[1]
	if a.Name != "s1" || a.Description != "first" || a.Config["hostname"] != "old" || a.Time.Unix() != 1691826181 || b.Parent != "s1" || b.Config["hostname"] != "new" {
		t.Errorf("snapshots %+v, %+v", a, b)
	}
	if g.Config["parent"] != "s2" || g.Config["hostname"] != "now" {
		t.Errorf("config %q", g.Config)
	}
}

// Whatever a parser made of a file, the file printed from it must give the same guest.
func FuzzConf(f *testing.F) {
	f.Add("#a%3A b\nmemory: 512\n[PENDING]\ndelete: a,!b\n[s1]\n#x\nsnaptime: 5\n", false)
	f.Add("lxc.idmap: u 0 1 2\nrootfs: a:b,size=5G\n[pve:pending]\ntty: 1\n[special:cloudinit]\n", true)
	f.Add("scsi0: local-lvm:vm-1-disk-0,size=1024M,ssd=yes\nboot: \n", false)
	f.Fuzz(func(t *testing.T, text string, ct bool) {
		kind := kindQemu
		if ct {
			kind = kindLXC
		}
		g, _ := ParseConf(kind, 100, text)
		again, _ := ParseConf(kind, 100, g.Conf())
		if !reflect.DeepEqual(g, again) {
			t.Errorf("%q\nread   %+v\nprinted %q\nread back %+v", text, g, g.Conf(), again)
		}
	})
}

func TestEncodeText(t *testing.T) {
	for text, want := range map[string]string{"a: 100%": "a%3A 100%25", "ü\t~": "%C3%BC%09~", "": ""} {
		if got := encodeText(text); got != want || decodeText(got) != text {
			t.Errorf("encodeText(%q) = %q, want %q; decoded %q", text, got, want, decodeText(got))
		}
	}
}

func TestLoadConf(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"qemu/100.conf": "scsi0: fast:vm-100-disk-0,size=10G\nnet0: virtio=BC:24:11:00:00:01,bridge=vmbr7\nide2: isos:iso/a.iso,media=cdrom\n" +
			"unused0: tank:vm-100-disk-1\n",
		"qemu/007.conf": "scsi0: nas:100/base-100-disk-0.qcow2/200/vm-200-disk-0.qcow2,size=2G\n[PENDING]\ncores: 2\n",
		"lxc/100.conf":  "rootfs: tank:subvol-100-disk-0,size=8G\nmp0: /srv,mp=/srv\n[s1]\nrootfs: tank:subvol-100-disk-0,size=8G\n",
		"lxc/notes.txt": "no config",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := LoadConf(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := sortedIDs(s.Guests); !slices.Equal(got, []int{100, 101, 1007}) {
		t.Errorf("guests %v", got)
	}
	if g := s.Guests[101]; g == nil || g.Kind != kindLXC {
		t.Errorf("the id that is taken must move on: %+v", g)
	}
	if !s.Guests[1007].Running || s.Guests[100].Running {
		t.Error("a guest with pending changes is running, others are not")
	}
	for volid, kind := range map[string]string{
		"fast:vm-100-disk-0": storageLVMThin, "isos:iso/a.iso": storageDir, "tank:vm-100-disk-1": "zfspool", "tank:subvol-100-disk-0": "zfspool",
		"nas:100/base-100-disk-0.qcow2": storageDir, "nas:100/base-100-disk-0.qcow2/200/vm-200-disk-0.qcow2": storageDir,
	} {
		w := &World{State: s}
		v := w.volume("pve01", volid)
		if v == nil {
			t.Errorf("%s is missing", volid)
			continue
		}
		if st, _, err := w.parseVolid(volid); err != nil || st.Type != kind {
			t.Errorf("%s: storage of type %+v (%v), want %s", volid, st, err, kind)
		}
	}
	if v := s.Volumes[volumeKey("pve01", "tank:subvol-100-disk-0")]; !slices.Equal(v.Snapshots, []string{"s1"}) {
		t.Errorf("snapshots of the volume: %q", v.Snapshots)
	}
	if !slices.Contains(s.Nodes[0].Bridges, "vmbr7") {
		t.Errorf("bridges %q", s.Nodes[0].Bridges)
	}
	if _, err := LoadConf(t.TempDir()); err == nil {
		t.Error("an empty directory must be an error")
	}
}

// The real files must load without a warning except where they are broken, and every volume they name must be there and be named as
// its storage names volumes.
func TestRealConfs(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "cases", "configs")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no collection of real configs here")
	}
	s, err := LoadConf(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := New(Options{}, s)
	defer w.Stop()
	if len(s.Guests) < 100 {
		t.Errorf("%d guests", len(s.Guests))
	}
	for _, id := range sortedIDs(s.Guests) {
		g := s.Guests[id]
		for _, sec := range g.sections() {
			for _, k := range sec.Keys() {
				volid, _ := namedVolume(k, sec[k])
				if volid == "" {
					continue
				}
				if w.volume(g.Node, volid) == nil {
					t.Errorf("%s %d: %s is missing", g.Kind, id, volid)
				}
				if _, _, err := w.parseVolid(volid); err != nil {
					t.Errorf("%s %d: %s: %v", g.Kind, id, volid, err)
				}
			}
		}
	}
	for _, kind := range []string{kindQemu, kindLXC} {
		files, err := filepath.Glob(filepath.Join(dir, kind, "*.conf"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			g, warnings := ParseConf(kind, 100, string(text))
			for _, line := range warnings {
				t.Logf("%s: %s", filepath.Base(name), line)
			}
			again, _ := ParseConf(kind, 100, g.Conf())
			if !reflect.DeepEqual(g, again) {
				t.Errorf("%s: printed and read again it is another guest", name)
			}
			if strings.TrimSpace(string(text)) != "" && len(g.Config) < 3 {
				t.Errorf("%s: %d keys", name, len(g.Config))
			}
		}
	}
}
