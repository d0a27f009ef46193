package schema_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

func format(t testing.TB, kind, key string) *schema.Format {
	t.Helper()
	p, ok := schema.Lookup("PUT", "/nodes/{node}/"+kind+"/{vmid}/config").Key(key)
	if !ok || p.Format == nil {
		t.Fatalf("%s %s has no format", kind, key)
	}
	return p.Format
}

func TestPropStringsAreRewritten(t *testing.T) {
	for _, c := range []struct{ kind, key, in, want string }{
		{"qemu", "net0", "bridge=vmbr0,model=virtio,macaddr=BC:24:11:00:00:01,firewall=yes", "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1"},
		{"qemu", "net0", "bridge=vmbr0,e1000=BC:24:11:00:00:01", "e1000=BC:24:11:00:00:01,bridge=vmbr0"},
		{"qemu", "net0", "virtio,tag=5", "virtio,tag=5"},
		{"qemu", "scsi0", "ssd=1,file=local:1,cache=none,size=1073741824", "local:1,cache=none,size=1G,ssd=1"},
		{"qemu", "scsi0", "volume=local:1,iops_rd_length=5,size=0", "local:1,iops_rd_max_length=5,size=0T"},
		{"qemu", "agent", "type=isa,enabled=on", "1,type=isa"},
		{"qemu", "machine", "viommu=intel,type=q35", "q35,viommu=intel"},
		{"lxc", "mp0", "backup=1,acl=0,mp=/srv,volume=local:1", "local:1,mp=/srv,acl=0,backup=1"},
		{"lxc", "net0", "bridge=vmbr0,ip=dhcp,name=eth0", "name=eth0,bridge=vmbr0,ip=dhcp"},
	} {
		f := format(t, c.kind, c.key)
		props, err := f.Parse(c.key, c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if got, err := f.Print(props); err != nil || got != c.want {
			t.Errorf("%s prints %q, %v; want %q", c.in, got, err, c.want)
		}
	}
	if _, err := format(t, "qemu", "net0").Print(schema.Props{"model": "virtio", "tag": "0"}); err == nil {
		t.Error("a bad value is printed")
	}
	if _, err := schema.PrintPropString("pve-qm-cicustom", schema.Props{"user": "a,b"}); err == nil {
		t.Error("a comma inside a value is printed")
	}
}

// TestRecordedConfigsPrintAsRead parses every drive and NIC that a real PVE
// printed and prints it again.
func TestRecordedConfigsPrintAsRead(t *testing.T) {
	files, _ := filepath.Glob("../../../../shared/pve/transcripts/*.jsonl")
	seen := map[string]bool{}
	for _, file := range files {
		for _, r := range recordings(t, file) {
			kind := "qemu"
			if strings.Contains(r.After.Path, "/lxc/") {
				kind = "lxc"
			}
			var data map[string]json.RawMessage
			if !strings.HasSuffix(r.After.Path, "/config") || json.Unmarshal(r.After.Data, &data) != nil {
				continue
			}
			for k, raw := range data {
				var s string
				base := strings.TrimRight(k, "0123456789")
				if !strings.Contains(" scsi virtio sata ide net mp efidisk tpmstate ", " "+base+" ") || json.Unmarshal(raw, &s) != nil || seen[kind+k+s] {
					continue
				}
				seen[kind+k+s] = true
				f := format(t, kind, k)
				props, err := f.Parse(k, s)
				if err != nil {
					t.Errorf("%s: %s %q: %v", r.ID, k, s, err)
					continue
				}
				if got, err := f.Print(props); err != nil || got != s {
					t.Errorf("%s: %s %q prints %q, %v", r.ID, k, s, got, err)
				}
			}
		}
	}
	t.Logf("%d property strings", len(seen))
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "528K": 540672, "4M": 4 << 20, "1.5G": 3 << 29, "2T": 2 << 40, "100": 100} {
		if got, ok := schema.ParseSize(s); !ok || got != want {
			t.Errorf("%s = %d, %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "1GB", "-1", "G", "1.G", "1 G", "0x1"} {
		if _, ok := schema.ParseSize(s); ok {
			t.Errorf("%q is a size", s)
		}
	}
	for n, want := range map[int64]string{0: "0T", 1: "1", 540672: "528K", 1 << 30: "1G", 2700000001: "2700000001"} {
		if got := schema.FormatSize(n); got != want {
			t.Errorf("%d prints %s", n, got)
		}
	}
}

func FuzzPropString(f *testing.F) {
	for _, s := range []string{"", "virtio", "virtio=BC:24:11:00:00:01,bridge=vmbr0", "local:1,size=4M,ssd=on", "order=scsi0;net0",
		"name=eth0,ip=dhcp", "=", "a=", ",,", "host,flags=+aes;-pcid", "ip=192.0.2.1/24,gw=192.0.2.254", "1,type=isa", "a=b\n", "flags=+"} {
		f.Add(s)
	}
	formats := []*schema.Format{schema.Named("pve-vm-cpu-conf"), schema.Named("pve-qm-ipconfig"), schema.Named("pve-qm-boot")}
	for _, k := range []string{"net0", "scsi0", "agent", "machine", "hostpci0", "usb0", "memory"} {
		formats = append(formats, format(f, "qemu", k))
	}
	for _, k := range []string{"net0", "mp0", "rootfs", "features", "dev0"} {
		formats = append(formats, format(f, "lxc", k))
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, format := range formats {
			props, err := format.Parse("k", s)
			if err != nil {
				if !strings.HasSuffix(err.Error(), "\n") {
					t.Errorf("%q: fault %q does not end its line", s, err)
				}
				continue
			}
			printed, err := format.Print(props)
			if err != nil {
				t.Fatalf("%q parses to %v, which does not print: %v", s, props, err)
			}
			again, err := format.Parse("k", printed)
			if size, ok := props["size"]; ok && again["size"] != size {
				again["size"] = size // 1024 is printed 1K
			}
			if err != nil || !maps.Equal(props, again) {
				t.Fatalf("%q parses to %v, prints %q, which parses to %v, %v", s, props, printed, again, err)
			}
		}
	})
}
