package adopt_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/adopt"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/sops"
	"github.com/proxops/proxops/internal/wire"
)

const (
	keyA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL ada@example"
	keyB = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBBBBqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL bob"
	keyC = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBCCC carol"
)

// secretsFile makes an encrypted file that holds keys by name.
func secretsFile(t *testing.T, keys map[string]string) (path string, env sops.Env) {
	t.Helper()
	identity := filepath.Join(t.TempDir(), "keys.txt")
	recipient, err := sops.NewIdentity(identity)
	if err != nil {
		t.Fatal(err)
	}
	path, env = filepath.Join(t.TempDir(), "secrets.sops.yaml"), sops.Env{KeyFile: identity}
	if err := sops.Create(path, []string{recipient}, secret.New("# keep this\nsecrets:\n    proxops-token: abc\ncloud-init:\n    ssh-keys: {}\n")); err != nil {
		t.Fatal(err)
	}
	for name, key := range keys {
		if err := sops.Set(t.Context(), path, env, "cloud-init.ssh-keys."+name, secret.New(key)); err != nil {
			t.Fatal(err)
		}
	}
	return path, env
}

func openKeys(t *testing.T, path string, env sops.Env, add bool) *adopt.KeyRing {
	t.Helper()
	d, err := sops.Open(path, env)
	if err != nil {
		t.Fatal(err)
	}
	return adopt.NewKeyRing(d, add)
}

// All keys of a guest are named, or none is.
func TestKeyRefs(t *testing.T) {
	path, env := secretsFile(t, map[string]string{"ada": keyA, "team": keyA + "\n" + keyB, "alone": keyB})
	for _, c := range []struct {
		keys []string
		want string
	}{
		{[]string{keyA}, "cloud-init.ssh-keys.ada"},
		{[]string{strings.Replace(keyA, " ", "   ", 1)}, "cloud-init.ssh-keys.ada"},
		{[]string{keyB, keyA}, "cloud-init.ssh-keys.ada cloud-init.ssh-keys.alone"},
		{[]string{keyA, keyC}, ""},
		{[]string{keyA + "x"}, ""},
		{nil, ""},
	} {
		refs, ok := openKeys(t, path, env, false).Refs(c.keys)
		if got := strings.Join(refs, " "); got != c.want || ok != (c.want != "") {
			t.Errorf("%q: %q, %v; want %q", c.keys, got, ok, c.want)
		}
	}
	if _, ok := (*adopt.KeyRing)(nil).Refs([]string{keyA}); ok {
		t.Error("no file names keys")
	}
}

// --adopt-secrets stores what is missing, changes nothing else, and writes
// nothing when nothing is missing.
func TestAdoptSecrets(t *testing.T) {
	e := oddEstate(t)
	e.world.View(func(s *pvesim.State) {
		s.Guests[100].Config["sshkeys"] = wire.EncodeSSHKeys([]string{keyA, keyC})
		s.Guests[102].Config["sshkeys"] = wire.EncodeSSHKeys([]string{keyC})
		s.Guests[104].Config["sshkeys"] = wire.EncodeSSHKeys([]string{keyC + "-laptop"}) // the key under another comment
		s.Guests[103].Config["sshkeys"] = wire.EncodeSSHKeys([]string{keyB, "no key at all"})
	})
	path, env := secretsFile(t, map[string]string{"ada": keyA})
	before := read(t, path)
	fp, _ := adopt.Fingerprint(keyC)
	ref := "cloud-init.ssh-keys.adopted-" + fp

	ring := openKeys(t, path, env, false)
	_, res := e.adopt(adopt.Options{Keys: ring})
	if err := ring.Save(t.Context()); err != nil || !bytes.Equal(before, read(t, path)) {
		t.Errorf("without --adopt-secrets the file changed: %v", err)
	}
	wants(t, manifest(t, res, "100"), `- "*"`)

	ring = openKeys(t, path, env, true)
	_, res = e.adopt(adopt.Options{Keys: ring})
	if err := ring.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(t, manifest(t, res, "100"), "ssh-key-refs: ", "cloud-init.ssh-keys.ada", ref)
	wants(t, manifest(t, res, "102"), ref)
	for _, id := range []string{"103", "104"} {
		wants(t, manifest(t, res, id), `- "*"`)
	}
	for _, m := range res.Manifests {
		lacks(t, &m, "AAAAC3", "AAAAE2")
		if m.Fault != "" {
			t.Errorf("%s: %s", m.Ref(), m.Fault)
		}
	}
	if strings.Join(ring.Added, " ") != ref {
		t.Errorf("stored %q, want %q", ring.Added, ref)
	}
	d, err := sops.Open(path, env)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(d.Names(), " "); got != "cloud-init.ssh-keys.ada "+ref+" secrets.proxops-token" {
		t.Errorf("the file holds %s", got)
	}
	if v, err := d.Lookup(ref); err != nil || v.Reveal() != keyC {
		t.Errorf("stored key: %v", err)
	}
	after := read(t, path)
	for l := range strings.Lines(string(before)) { // old entries keep their bytes
		if strings.Contains(l, "proxops-token:") && !bytes.Contains(after, []byte(l)) {
			t.Errorf("the entry %.30s… changed", l)
		}
	}

	ring = openKeys(t, path, env, true)
	_, again := e.adopt(adopt.Options{Keys: ring})
	if err := ring.Save(t.Context()); err != nil || len(ring.Added) > 0 || !bytes.Equal(after, read(t, path)) {
		t.Errorf("with no new key the file was written; added %q, %v", ring.Added, err)
	}
	if !bytes.Equal(res.Stream(), again.Stream()) {
		t.Error("the manifests differ once the keys are stored")
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const fingerprintA = "2e3c0044a1b7ddee"

// The digits are what `printf 'sshpki\0TYPE\0BLOB' | sha256sum` gives.
func TestFingerprint(t *testing.T) {
	a, ok := adopt.Fingerprint(keyA)
	if !ok || len(a) != 16 || a != fingerprintA {
		t.Errorf("%s, %v; want %s", a, ok, fingerprintA)
	}
	for _, same := range []string{strings.TrimSuffix(keyA, " ada@example"), `from="192.0.2.0/24",no-pty ` + keyA, keyA + " and more"} {
		if got, _ := adopt.Fingerprint(same); got != a {
			t.Errorf("%.40s…: %s, want %s", same, got, a)
		}
	}
	for _, none := range []string{"", "x", "ssh-ed25519", "AAAA ssh-ed25519", "# comment"} {
		if _, ok := adopt.Fingerprint(none); ok {
			t.Errorf("%q has a fingerprint", none)
		}
	}
}
