package field

import "testing"

// TestNearest: a slip of the fingers is recognised, another word is not.
func TestNearest(t *testing.T) {
	names := []string{"clone", "disks", "memory", "networks", "pve-description", "tags"}
	for s, want := range map[string]string{
		"disk": "disks", "memroy": "memory", "netwrok": "networks", "Networks": "networks", "tga": "", "tag": "tags",
		"description": "pve-description", "pve-descripton": "pve-description", "colour": "", "state": "", "": "",
	} {
		if got := nearest(s, names); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}
