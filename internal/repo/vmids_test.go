package repo

import "testing"

// A vmid at either end of a range is in it, and a kind without ranges takes any.
func TestVMIDRanges(t *testing.T) {
	for text, ok := range map[string]bool{"100-100": true, "50-99, 100-120": false, "101-120": false, "100-199": true, "200-299,100-120": true, "": true} {
		line := ""
		if text != "" {
			line = "      vmid-ranges: {VM: '" + text + "', LXC: 900-999}\n"
		}
		_, err := open(t, base().with(files{"clusters/prod/config.yaml": configYAML + line}).write(t)).Load(t.Context(), "prod")
		if (err == nil) != ok {
			t.Errorf("%s: vmid 100: %v", text, err)
		}
	}
}
