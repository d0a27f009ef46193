package kind_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
)

// extraFault is what a manifest says that has a key in extra.
func extraFault(t *testing.T, k *kind.Kind, key string) string {
	t.Helper()
	head := map[string]string{"qemu": vmHead + "disks: []\n", "lxc": ctHead}[k.Guest] + "networks: []\n"
	_, problems := parse(doc(k.Name, "a", head+"extra: {"+key+": x}"))
	if err := problems.Err(); err != nil {
		return err.Error()
	}
	return ""
}

// extra knows exactly the keys that PVE has: each of them is admitted, owned by
// a field or a control parameter, and none besides.
func TestExtraKnowsPVEsKeys(t *testing.T) {
	for _, k := range guests() {
		_, update := methods(k)
		for _, p := range update.Keys() {
			names := p.Names() // of a family the ends
			for _, key := range slices.Compact([]string{names[0], names[len(names)-1]}) {
				if fault := extraFault(t, k, key); strings.Contains(fault, "is not a key") {
					t.Errorf("%s: %s", k.Name, fault)
				}
			}
			if !p.Numbered {
				continue
			}
			for _, key := range []string{p.Name + "00", p.Name + "x", p.Name + "256"} {
				if fault := extraFault(t, k, key); !strings.Contains(fault, "is not a key") && p.Name != "unused" {
					t.Errorf("%s: %s is let through: %q", k.Name, key, fault)
				}
			}
			if over := p.Name + strconv.Itoa(p.High+1); p.Name != "unused" && !strings.Contains(extraFault(t, k, over), "is not a key") {
				t.Errorf("%s: %s is let through", k.Name, over)
			}
		}
		for _, key := range kind.PlainKeys(k.Guest) {
			if _, ok := update.Key(key); !ok {
				t.Errorf("%s: PVE has no %s", k.Name, key)
			}
		}
	}
}

// The same list against PVE's own schema as it was recorded, where that is at
// hand.
func TestExtraKeysAsRecorded(t *testing.T) {
	raw, err := os.ReadFile("../../../shared/pve/api-schema.json")
	if err != nil {
		t.Skip("no recorded schema here")
	}
	var methods []struct {
		Method, Path string
		Parameters   struct{ Properties map[string]any }
	}
	if err := json.Unmarshal(raw, &methods); err != nil {
		t.Fatal(err)
	}
	control := strings.Fields("cdrom delete digest force lock node revert skiplock template unprivileged vmid")
	plain := regexp.MustCompile(`^[a-z0-9_-]*[a-z_]$|^smbios1$`)
	for _, k := range guests() {
		var want []string
		for _, m := range methods {
			if m.Method != "PUT" || m.Path != "/nodes/{node}/"+k.Guest+"/{vmid}/config" {
				continue
			}
			for key := range m.Parameters.Properties {
				if plain.MatchString(key) && !slices.Contains(control, key) {
					want = append(want, key)
				}
			}
		}
		slices.Sort(want)
		if got := slices.Sorted(slices.Values(kind.PlainKeys(k.Guest))); !slices.Equal(got, want) {
			t.Errorf("%s: the list is\n%v\nPVE has\n%v", k.Name, got, want)
		}
	}
}

// A slip of the pen names what was meant.
func TestExtraNamesTheNearKey(t *testing.T) {
	vm, _ := kind.Lookup("VM")
	ct, _ := kind.Lookup("LXC")
	for _, c := range []struct {
		k         *kind.Kind
		key, want string
	}{
		{vm, "hokscript", `extra.hokscript: "hokscript" is not a key of a VM in PVE; did you mean hookscript?`},
		{vm, "virtoifs2", "did you mean virtiofs2?"},
		{vm, "usb14", `"usb14" is not a key of a VM in PVE, which has usb0-usb13`},
		{vm, "rng1", `"rng1" is not a key of a VM in PVE, which has rng0 alone`},
		{vm, "timezone", `"timezone" is not a key of a VM in PVE`},
		{ct, "time-zone", "did you mean timezone?"},
		{ct, "rng0", `"rng0" is not a key of a container in PVE`},
		{ct, "lxc.mount.entry", `"lxc.mount.entry" is not a key of a container in PVE`},
	} {
		if got := extraFault(t, c.k, c.key); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.key, got, c.want)
		}
	}
}

// Every size of every kind is a whole number of MiB: PVE keeps memory in MiB,
// and a volume of another size would never equal what its storage makes of it.
func TestSizesAreWholeMiB(t *testing.T) {
	for _, k := range guests() {
		spec, sizes := base(t, k), 0
		for _, r := range field.Rows(spec.Shape(nil)) {
			if !strings.HasPrefix(r.Type.Name, "size") {
				continue
			}
			sizes++
			for _, text := range []string{"1073741825KiB", "524289K", "20481KiB"} {
				if err := r.Load(node(t, text)); err == nil || !strings.Contains(err.Error(), "is not a whole number of MiB") {
					t.Errorf("%s %s: %s: %v", k.Name, r.Path, text, err)
				}
			}
			for _, text := range []string{"20480KiB", "1GiB", "1500M"} {
				if err := r.Load(node(t, text)); err != nil {
					t.Errorf("%s %s: %s: %v", k.Name, r.Path, text, err)
				}
			}
		}
		if sizes < 4 {
			t.Errorf("%s has %d sizes only", k.Name, sizes)
		}
	}
}
