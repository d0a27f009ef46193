package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files is a repository by path. A value of "-> target" makes a link.
type files map[string]string

const (
	configYAML = `pve:
  clusters:
    prod:
      base-url: https://pve1.example.org
      nodes: [pve1, pve2]
`
	isoYAML = `apiVersion: proxops/v1alpha1
kind: ISO
metadata:
  name: debian
spec:
  node: pve1
  storage: local
  filename: debian.iso
  url: https://cdimage.example.org/debian.iso
  checksum: {algorithm: sha256, value: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}
`
)

// vmYAML is a plain VM; more is further lines of its spec.
func vmYAML(name string, vmid int, more ...string) string {
	return fmt.Sprintf(`apiVersion: proxops/v1alpha1
kind: VM
metadata:
  name: %s
spec:
  node: pve1
  vmid: %d
  state: stopped
  cpu: {type: host, cores: 1}
  memory: 512MiB
  disks: []
  networks: []
`, name, vmid) + strings.Join(more, "")
}

// base is a repository with nothing wrong in it.
func base() files {
	return files{
		"clusters/prod/config.yaml":    configYAML,
		"clusters/prod/resources.yaml": "resources:\n  - ../../vm/prod/a.yaml\n  - iso/base/debian.yaml\n",
		"vm/prod/a.yaml":               vmYAML("a", 100),
		"iso/base/debian.yaml":         isoYAML,
	}
}

// with is base changed: "" removes a file.
func (f files) with(changes files) files {
	out := files{}
	for k, v := range f {
		out[k] = v
	}
	for k, v := range changes {
		if out[k] = v; v == "" {
			delete(out, k)
		}
	}
	return out
}

func (f files) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range f {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(target, full)
		} else if text == "<dir>" {
			err = os.Mkdir(full, 0o755)
		} else {
			err = os.WriteFile(full, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var tokenEnv = map[string]string{"PROXOPS_PVE_TOKEN_VALUE": "root@pam!proxops=11111111-2222-3333-4444-555555555555"}

func open(t testing.TB, dir string, change ...func(*Options)) *Repo {
	t.Helper()
	opts := Options{Dir: dir, Env: tokenEnv, Overrides: Overrides{GitPath: dir}, OpenSecrets: openSecrets}
	for _, c := range change {
		c(&opts)
	}
	r, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
