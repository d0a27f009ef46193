package pvesim

import (
	"testing"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// TestRoutes: a handler whose path is no path of the schema would never be called, and of two for one method one would not.
func TestRoutes(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range routes() {
		key := r.method + " " + r.path
		if schema.Lookup(r.method, r.path) == nil {
			t.Errorf("%s is not in the schema", key)
		}
		if seen[key] {
			t.Errorf("%s has two handlers", key)
		}
		seen[key] = true
	}
}

// TestNormalPath holds paths to PVE's form.
func TestNormalPath(t *testing.T) {
	for in, want := range map[string]string{
		"/": "/", "": "", "vms/100": "/vms/100", "/vms//100/": "/vms/100", "//": "/", "/pool/a/b": "/pool/a/b", "/vms/1 0": "", "/vms/ü": "", "/a;b": "",
	} {
		if got := normalPath(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}
