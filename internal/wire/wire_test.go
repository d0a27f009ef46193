package wire

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]Size{
		"8GiB": 8 * GiB, "8G": 8 * GiB, "512MiB": 512 * MiB, "1 TiB": TiB, "3K": 3 * KiB, "2252M": 2252 * MiB,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%s: %d %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"8": "no unit", "8GB": "unit GB is not one of", "0.5GiB": "whole number", "-1G": "not a size", "0G": "above zero",
		"99999999999999999999G": "not a size", "9999999999G": "too large", "": "not a size", "G": "not a size", "8gib": "unit gib",
	} {
		if _, err := ParseSize(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

func TestPVESize(t *testing.T) {
	for in, want := range map[string]struct {
		size     Size
		wire     string
		manifest string
	}{
		"32G": {32 * GiB, "32G", "32GiB"}, "528K": {528 * KiB, "528K", "1MiB"}, "2252M": {2252 * MiB, "2252M", "2252MiB"},
		"4125G": {4125 * GiB, "4125G", "4125GiB"}, "102M": {102 * MiB, "102M", "102MiB"}, "0.5G": {512 * MiB, "512M", "512MiB"},
		"104858K": {104858 * KiB, "104858K", "102MiB"}, "2700000001": {2700000001, "2700000001", "2574MiB"},
		"0T": {0, "0", "0B"}, "1024": {KiB, "1K", "1MiB"},
	} {
		got, err := ReadSize(in)
		if err != nil || got != want.size || got.Wire() != want.wire || got.Manifest() != want.manifest {
			t.Errorf("%s: %d %s %s %v", in, got, got.Wire(), got.Manifest(), err)
		}
	}
	for _, in := range []string{"", "1GB", "x", "-1G", "1e3", "99999999999999999999T", "0.1.2G"} {
		if s, err := ReadSize(in); err == nil {
			t.Errorf("%s: read as %d", in, s)
		}
	}
	for s, want := range map[Size]string{32 * GiB: "32", 512 * MiB: "0.5", 100 * MiB: "0.09765625", 4 * TiB: "4096", MiB: "0.0009765625", KiB: "0.00000095367431640625"} {
		if got := s.GiBNumber(); got != want {
			t.Errorf("%s: %s", s, got)
		}
	}
	for live, want := range map[Size]bool{GiB: true, GiB + 4*MiB: true, GiB + 4*MiB + 1: false, GiB - 1: false} {
		if Size(GiB).Covers(live) != want {
			t.Errorf("1GiB covers %s: %t", live, !want)
		}
	}
}

func TestSizeLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Size(rapid.Int64Range(1, int64(64*TiB)).Draw(t, "size"))
		if got, err := ReadSize(s.Wire()); err != nil || got != s {
			t.Fatalf("%d: %s reads as %d, %v", s, s.Wire(), got, err)
		}
		if s < MiB {
			if s.Manifest() != "1MiB" {
				t.Fatalf("%d: a manifest says %s", s, s.Manifest())
			}
			return
		}
		m, err := ParseSize(s.Manifest())
		if err != nil || m%MiB != 0 || !m.Covers(s) {
			t.Fatalf("%d: %s parses as %d, %v", s, s.Manifest(), m, err)
		}
		if strings.ContainsAny(s.GiBNumber(), "eE+") {
			t.Fatalf("%d: %s has an exponent", s, s.GiBNumber())
		}
	})
}

func TestPropsByToken(t *testing.T) {
	for _, c := range []struct {
		key, in string
		do      func(p *Props)
		want    string
	}{
		{"net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=10,zzz=1", func(p *Props) { p.Set("tag", "20") }, "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=20,zzz=1"},
		{"net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0", func(p *Props) { p.Set("model", "e1000") }, "e1000=BC:24:11:00:00:01,bridge=vmbr0"},
		{"net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0", func(p *Props) { p.Set("macaddr", "BC:24:11:00:00:02") }, "virtio=BC:24:11:00:00:02,bridge=vmbr0"},
		{"net0", "model=virtio,macaddr=BC:24:11:00:00:01,bridge=vmbr0", func(p *Props) { p.Set("model", "e1000") }, "model=e1000,macaddr=BC:24:11:00:00:01,bridge=vmbr0"},
		{"net0", "model=virtio,macaddr=BC:24:11:00:00:01,bridge=vmbr0", func(p *Props) { p.Set("macaddr", "BC:24:11:00:00:02") }, "virtio=BC:24:11:00:00:02,bridge=vmbr0"},
		{"net0", "virtio,bridge=vmbr0", func(p *Props) { p.Set("macaddr", "BC:24:11:00:00:02") }, "virtio=BC:24:11:00:00:02,bridge=vmbr0"},
		{"net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0", func(p *Props) { p.Del("macaddr") }, "virtio,bridge=vmbr0"},
		{"net0", "", func(p *Props) {
			p.Set("bridge", "vmbr0")
			p.Set("model", "virtio")
			p.Set("macaddr", "BC:24:11:00:00:02")
		}, "virtio=BC:24:11:00:00:02,bridge=vmbr0"},
		{"net0", "", func(p *Props) { p.Set("macaddr", "BC:24:11:00:00:02"); p.Set("model", "virtio") }, "virtio,macaddr=BC:24:11:00:00:02"},
		{"scsi0", "local-lvm:vm-1-disk-0,size=32G", func(p *Props) { p.Set("iothread", "1") }, "local-lvm:vm-1-disk-0,size=32G,iothread=1"},
		{"scsi0", "volume=local-lvm:vm-1-disk-0,size=32G", func(p *Props) { p.Set("file", "none") }, "volume=none,size=32G"},
		{"scsi0", "file=local-lvm:vm-1-disk-0,size=32G", func(p *Props) { p.Del("size") }, "file=local-lvm:vm-1-disk-0"},
		{"hostpci0", "02,,legacy-igd=1", func(p *Props) { p.Set("pcie", "1") }, "02,,legacy-igd=1,pcie=1"},
		{"cpu", "host,flags=+aes;-pcid", func(p *Props) { p.Set("cputype", "kvm64") }, "kvm64,flags=+aes;-pcid"},
		{"cpu", "cputype=host,hidden=1", func(p *Props) { p.Set("cputype", "kvm64") }, "cputype=kvm64,hidden=1"},
		{"memory", "current=4096", func(p *Props) { p.Set("current", "2048") }, "current=2048"},
		{"memory", "4096", func(p *Props) { p.Set("current", "2048") }, "2048"},
		{"agent", "1,fstrim_cloned_disks=1", func(p *Props) { p.Set("enabled", "0") }, "0,fstrim_cloned_disks=1"},
		{"boot", "order=scsi0;ide2", func(p *Props) { p.Set("order", "net0") }, "order=net0"},
		{"boot", "cdn", func(p *Props) { p.Set("order", "net0") }, "cdn,order=net0"},
		{"name", "a,b=c", func(p *Props) { p.Set("", "x,y") }, "x,y"},
		{"name", "a,b=c", func(p *Props) { p.Del("") }, ""},
		{"smbios1", "uuid=1,serial=YWJj=", func(p *Props) { p.Set("uuid", "2") }, "uuid=2,serial=YWJj="},
	} {
		p := ParseProps(c.in, FormatOf(false, c.key))
		before := p
		c.do(&p)
		if p.String() != c.want {
			t.Errorf("%s %q: %q, want %q", c.key, c.in, p, c.want)
		}
		if before.String() != c.in {
			t.Errorf("%s %q: a copy changed to %q", c.key, c.in, before)
		}
	}
}

func TestPropsLXC(t *testing.T) {
	p := ParseProps("local:0/vm-1.raw,mp=/srv,size=8G", FormatOf(true, "mp0"))
	if v, _ := p.Get("volume"); v != "local:0/vm-1.raw" {
		t.Error(v)
	}
	if p = ParseProps("name=eth0,bridge=vmbr0", FormatOf(true, "net0")); len(p.Tokens()) != 2 {
		t.Error(p.Tokens())
	}
}

func TestPropsSame(t *testing.T) {
	f := FormatOf(false, "startup")
	if !ParseProps("order=10,up=3", f).Same(ParseProps("up=3,10", f)) {
		t.Error("order=10 and 10 differ")
	}
	if ParseProps("order=10", f).Same(ParseProps("order=11", f)) {
		t.Error("10 and 11 are the same")
	}
}

var keys = []string{"net0", "scsi0", "cpu", "memory", "hostpci0", "boot", "startup", "ipconfig0", "name", "agent", "smbios1", "numa0", "numa"}

func drawProps(t *rapid.T) (string, Props, string) {
	key := rapid.SampledFrom(keys).Draw(t, "key")
	text := rapid.OneOf(
		rapid.StringMatching(`[a-z0-9:=;./ ]{0,12}(,[a-z0-9:=;./]{0,12}){0,5}`),
		rapid.String(),
		rapid.SampledFrom([]string{"virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1", "02,,legacy-igd=1", ",,", "model=virtio,macaddr=aa"}),
	).Draw(t, "text")
	return key, ParseProps(text, FormatOf(false, key)), text
}

func TestPropsLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, p, text := drawProps(t)
		if p.String() != text {
			t.Fatalf("%q became %q", text, p)
		}
		for _, tok := range p.Tokens() {
			if v, ok := p.Get(tok.Key); ok {
				p.Set(tok.Key, v)
			}
		}
		if p.String() != text {
			t.Fatalf("setting what is there: %q became %q", text, p)
		}
	})
}

// Changing one token leaves every other one, and reads back.
func TestPropsSetKeepsOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key, p, text := drawProps(t)
		if FormatOf(false, key).Plain {
			return
		}
		token := rapid.SampledFrom([]string{"tag", "bridge", "size", "order", "flags"}).Draw(t, "token")
		value := rapid.StringMatching(`[a-z0-9;]{1,6}`).Draw(t, "value")
		before := p.Tokens()
		count := 0
		for _, b := range before {
			if b.Key == token {
				count++
			}
		}
		if count > 1 {
			return // PVE itself refuses such a text
		}
		p.Set(token, value)
		after := ParseProps(p.String(), FormatOf(false, key))
		if v, ok := after.Get(token); !ok || v != value {
			t.Fatalf("%q: %s=%s became %q", text, token, value, p)
		}
		drop := func(ts []Token) []Token {
			return slices.DeleteFunc(ts, func(x Token) bool { return x.Key == token })
		}
		if a, b := drop(after.Tokens()), drop(before); !slices.Equal(a, b) {
			t.Fatalf("%q: other tokens %v became %v", text, b, a)
		}
		p.Del(token)
		if _, ok := ParseProps(p.String(), FormatOf(false, key)).Get(token); ok {
			t.Fatalf("%q: %s survives its deletion in %q", text, token, p)
		}
	})
}

func TestSSHKeys(t *testing.T) {
	keys := []string{"ssh-ed25519 AAAA+b/c= ops@example", "ssh-rsa BBBB ü"}
	enc := EncodeSSHKeys(keys)
	if enc != "ssh-ed25519%20AAAA%2Bb%2Fc%3D%20ops%40example%0Assh-rsa%20BBBB%20%C3%BC" {
		t.Error(enc)
	}
	got, err := DecodeSSHKeys(enc + "%0A%0A")
	if err != nil || !slices.Equal(got, keys) {
		t.Errorf("%v %v", got, err)
	}
	if got, _ := DecodeSSHKeys("ssh-rsa%20A+B/C%0D%0A"); !slices.Equal(got, []string{"ssh-rsa A+B/C"}) {
		t.Errorf("a plus sign is no blank: %q", got)
	}
	if _, err := DecodeSSHKeys("ssh-rsa%2"); err == nil {
		t.Error("a cut escape decodes")
	}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.StringMatching(`[!-~][ -~]{0,30}[!-~]`), 1, 4).Draw(t, "keys")
		out, err := DecodeSSHKeys(EncodeSSHKeys(in))
		if err != nil || !slices.Equal(in, out) {
			t.Fatalf("%q became %q, %v", in, out, err)
		}
	})
}

func TestLists(t *testing.T) {
	if got := FoldTags(SplitTags("Prod, web;a b;WEB"), false); !slices.Equal(got, []string{"a", "b", "prod", "web"}) {
		t.Error(got)
	}
	if got := FoldTags([]string{"b", "B"}, true); !slices.Equal(got, []string{"B", "b"}) {
		t.Error(got)
	}
	if got := SetFlag(SplitFlags("aes;-pcid"), "+pcid"); JoinFlags(got) != "+aes;+pcid" {
		t.Error(got)
	}
	for in, want := range map[string][2]bool{"1": {true, true}, "yes": {true, true}, "On": {true, true}, "TRUE": {true, true}, "0": {false, true}, "off": {false, true}, "2": {}, "": {}} {
		if v, ok := ParseBool(in); v != want[0] || ok != want[1] {
			t.Errorf("%q: %t %t", in, v, ok)
		}
	}
}

func TestVolumes(t *testing.T) {
	for in, want := range map[string][2]bool{ // create form, cloud-init
		"local-lvm:32": {true, false}, "local-lvm:0.5": {true, false}, "local:cloudinit": {true, true}, "local-lvm:vm-1-disk-0": {},
		"local:1/vm-1-cloudinit.qcow2": {false, true}, "local-lvm:vm-1-cloudinit": {false, true}, "none": {}, "cdrom": {}, "/dev/sda": {},
		"local:iso/x.iso": {}, "local:1/vm-1-disk-0.qcow2": {}, "": {},
	} {
		if IsCreateForm(in) != want[0] || IsCloudInit(in) != want[1] {
			t.Errorf("%q: create %t, cloud-init %t", in, IsCreateForm(in), IsCloudInit(in))
		}
	}
	for _, key := range []string{"scsi30", "efidisk0", "tpmstate0", "ide2", "unused0"} {
		if !IsVolumeKey(false, key) {
			t.Error(key)
		}
	}
	for _, key := range []string{"scsihw", "net0", "virtiofs0", "ide", "name", "mp0"} {
		if IsVolumeKey(false, key) {
			t.Error(key)
		}
	}
	if !IsVolumeKey(true, "mp3") || !IsVolumeKey(true, "rootfs") || IsVolumeKey(true, "net0") {
		t.Error("container keys")
	}
}

// Every real configuration line survives a parse byte for byte, and PVE's
// default tokens are found in it.
func TestRealConfigs(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/cases/configs/*/*.conf")
	lines := 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lxc := strings.Contains(f, "/lxc/")
		for l := range strings.Lines(string(data)) {
			key, v, ok := strings.Cut(strings.TrimRight(l, "\n"), ": ")
			if !ok || strings.HasPrefix(key, "#") {
				continue
			}
			lines++
			p := ParseProps(v, FormatOf(lxc, key))
			if p.String() != v {
				t.Errorf("%s: %s: %q became %q", f, key, v, p)
			}
			if IsVolumeKey(lxc, key) {
				if vol, ok := p.Get(FirstToken(lxc)); !ok || vol == "" {
					t.Errorf("%s: %s: %q names no volume", f, key, v)
				}
				if s, ok := p.Get("size"); ok && !strings.Contains(s, ">") { // one line lost its end when it was posted
					if _, err := ReadSize(s); err != nil {
						t.Errorf("%s: %s: %v", f, key, err)
					}
				}
			}
		}
	}
	t.Logf("%d lines of %d configurations", lines, len(files))
}

func FuzzSizes(f *testing.F) {
	for _, s := range []string{"1G", "0.5G", "8GiB", "9223372036854775807T", "1.9999999999999999999K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := ReadSize(s); err == nil && (v < 0 || v > maxSize) {
			t.Errorf("%q reads as %d", s, v)
		}
		if v, err := ParseSize(s); err == nil && (v <= 0 || v > maxSize) {
			t.Errorf("%q parses as %d", s, v)
		}
	})
}

func FuzzSSHKeys(f *testing.F) {
	f.Add("ssh-rsa%20AAAA%0A")
	f.Fuzz(func(t *testing.T, s string) {
		keys, err := DecodeSSHKeys(s)
		if err != nil {
			return
		}
		again, err := DecodeSSHKeys(EncodeSSHKeys(keys))
		if err != nil || !slices.Equal(keys, again) {
			t.Errorf("%q: %q became %q, %v", s, keys, again, err)
		}
	})
}

func FuzzProps(f *testing.F) {
	f.Add("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0", "tag", "5")
	f.Add("hostpci0", "02,,legacy-igd=1", "host", "03")
	f.Fuzz(func(t *testing.T, key, text, token, value string) {
		p := ParseProps(text, FormatOf(false, key))
		if p.String() != text {
			t.Fatalf("%q became %q", text, p)
		}
		p.Set(token, value)
		p.Del(token)
		_ = p.String()
	})
}
