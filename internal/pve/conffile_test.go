package pve

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A digest of PVE 9.2 tells whether the answer of GET …/config is the whole
// file. The first three rows are recorded answers.
func TestIsWholeFile(t *testing.T) {
	const head = `{"cores":1,"ostype":"debian","unprivileged":1,"net0":"name=eth0,bridge=vmbr0,hwaddr=BC:24:11:52:95:A7,ip=dhcp,type=veth",`
	for name, c := range map[string]struct {
		body string
		want bool
	}{
		"a template": {`{"onboot":1,"tags":"a","swap":512,"memory":64,"template":1,"digest":"c4878caa4965e5db34c8359b4e50f212e2dabf91",
			"rootfs":"local-dir:4510/base-4510-disk-0.raw,size=204M","hostname":"ct4510","arch":"amd64","unprivileged":1,
			"net0":"name=eth0,bridge=vmbr0,hwaddr=BC:24:11:36:53:4C,type=veth","description":"d\n","ostype":"debian"}`, true},
		"a description": {head + `"unused1":"local-dir:4500/vm-4500-disk-2.raw","swap":512,"memory":96,"tty":1,"digest":"e84001d45fc6a346bce61f98d147b4a43b234f3f",
			"rootfs":"dir2:4500/vm-4500-disk-0.raw,mountoptions=noatime,size=450M","net1":"name=eth1,bridge=vmbr0,hwaddr=BC:24:11:65:B5:FE,type=veth",
			"features":"nesting=1,keyctl=1","hostname":"h2","arch":"amd64","description":"ü\nb\n"}`, true},
		"features wait": {`{"memory":64,"swap":512,"arch":"amd64","hostname":"a","rootfs":"local-dir:8030/vm-8030-disk-0.raw,size=102M","unprivileged":1,
			"net0":"name=eth0,bridge=vmbr0,hwaddr=BC:24:11:F3:81:7D,type=veth","digest":"261ef5c7bbd69e96376086138a922a27b44000f6","ostype":"debian","features":"nesting=1"}`, false},
		"raw lines": {`{"digest":"1359a2b92d8b9c506b0b0686f3e551d542fba02b","hostname":"a","memory":64,"lxc":[["lxc.cgroup2.devices.allow","c 10:229 rwm"],["lxc.mount.entry","/run/x mnt/x none bind 0 0"]]}`, true},
		"odd lines": {`{"digest":"e6a4a4de4f2fa73c8a6abc9dc1c4f1a2ba4c9a18","hostname":"a","lxc":{"x":1}}`, false},
		"nothing":   {`{"digest":"e6a4a4de4f2fa73c8a6abc9dc1c4f1a2ba4c9a18"}`, false},
	} {
		cfg, err := answering(t, "/nodes/pve01/lxc/200/config", c.body).Config(t.Context(), "pve01", LXC, 200)
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.IsWholeFile(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// idOf is the vmid in a path such as /nodes/pve01/lxc/200/config.
func idOf(path string) int {
	id, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return id
}

// Over all recordings: what PVE holds pending of a container is never taken
// for a whole file, and what is one is known for it.
func TestRecordedContainerConfigs(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/pve/transcripts/*.jsonl")
	if len(files) == 0 {
		t.Skip("no recordings here; TestIsWholeFile holds some of them")
	}
	type call struct {
		Request struct {
			Method, Path string
			Form         json.RawMessage
		}
		Status int
		Body   struct{ Data json.RawMessage }
	}
	whole, waiting := 0, map[string]bool{} // by digest
	configs := map[string]GuestConfig{}
	for _, f := range files {
		in, err := os.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		s := bufio.NewScanner(in)
		s.Buffer(nil, 1<<22)
		for s.Scan() {
			var x call
			if json.Unmarshal(s.Bytes(), &x) != nil || x.Status != 200 || x.Request.Method != "GET" || !strings.Contains(x.Request.Path, "/lxc/") {
				continue
			}
			path := x.Request.Path
			switch c := answering(t, path, string(x.Body.Data)); {
			case strings.HasSuffix(path, "/config") && !strings.Contains(string(x.Request.Form), "current"):
				cfg, err := c.Config(t.Context(), "pve01", LXC, idOf(path))
				if err != nil {
					t.Fatal(err)
				}
				configs[cfg.Digest] = cfg
			case strings.HasSuffix(path, "/pending"):
				cfg, err := c.Pending(t.Context(), "pve01", LXC, idOf(path))
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range cfg.Entries {
					waiting[cfg.Digest] = waiting[cfg.Digest] || e.IsPending()
				}
			}
		}
		_ = in.Close()
	}
	for digest, cfg := range configs {
		if got := cfg.IsWholeFile(); got == waiting[digest] {
			t.Errorf("%s: whole %v, pending %v: %+v", digest, got, waiting[digest], cfg)
		} else if got {
			whole++
		}
	}
	t.Logf("%d whole files of %d configs", whole, len(configs))
}
