package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim"
)

// goodFiles is a repository with nothing wrong in it.
func goodFiles() map[string]string {
	return map[string]string{
		"clusters/prod/config.yaml":    "pve:\n  clusters:\n    prod:\n      base-url: SIM_URL\n      fingerprint: \"SIM_FP\"\n      nodes: [pve01]\n",
		"clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml, iso/base/debian.yaml]\n",
		"vm/prod/a.yaml":               badVM(""),
		"iso/base/debian.yaml":         "apiVersion: proxops/v1alpha1\nkind: ISO\nmetadata: {name: debian}\nspec: {node: pve01, storage: local, filename: d.iso, url: 'https://example.org/d.iso'}\n",
	}
}

// badVM is a VM with further lines in its spec, or with one text put for
// another.
func badVM(more string, swap ...string) string {
	text := "apiVersion: proxops/v1alpha1\nkind: VM\nmetadata:\n  name: a\nspec:\n  node: pve01\n  vmid: 100\n  memory: 512MiB\n  cpu: {type: host, cores: 1}\n  disks: []\n  networks: []\n" + more
	return strings.NewReplacer(swap...).Replace(text)
}

// result is what one invocation gave.
type result struct {
	code     int
	out, err string
}

// proxops runs a command line in this process, without the caller's
// environment.
func proxops(t testing.TB, dir string, env []string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	home := t.TempDir()
	env = append([]string{"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, "config"), "XDG_DATA_HOME=" + filepath.Join(home, "data")}, env...)
	code := run(t.Context(), system{out: &out, err: &errs, environ: env}, append([]string{"--git-path", dir}, args...))
	return result{code, out.String(), errs.String()}
}

// labFor starts a fresh simulated cluster.
func labFor(t testing.TB, nodes int) (*pvesim.World, *pvesim.Server, ready) {
	t.Helper()
	f := labFlags{nodes: nodes}
	state, line, err := f.build()
	if err != nil {
		t.Fatal(err)
	}
	w := pvesim.New(pvesim.Options{Seed: 1}, state)
	t.Cleanup(w.Stop)
	srv, err := w.Serve("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	return w, srv, line
}

func writesOf(w *pvesim.World) []string {
	var out []string
	for _, r := range w.Requests() {
		if r.Method != http.MethodGet && r.Path != "/access/ticket" {
			out = append(out, r.Method+" "+r.Path)
		}
	}
	return out
}

// badInput is one story a fault: what is changed in a good repository, and
// what the error says.
var badInput = []struct {
	name    string
	files   map[string]string
	prepare func(t *testing.T, dir string)
	want    string // regular expression
}{
	{name: "unknown field", files: map[string]string{"vm/prod/a.yaml": badVM("  memroy: 1GiB\n")},
		want: `^error: vm/prod/a.yaml:12:3: memroy: unknown field; did you mean memory\?$`},
	{name: "duplicate key", files: map[string]string{"vm/prod/a.yaml": badVM("  vmid: 101\n")},
		want: `^error: vm/prod/a.yaml:12:3: key "vmid" stands twice; first in line 7$`},
	{name: "wrong type", files: map[string]string{"vm/prod/a.yaml": badVM("", "vmid: 100", "vmid: many")},
		want: `^error: vm/prod/a.yaml:7:9: vmid: "many" is not an integer in 100-999999999$`},
	{name: "out of range", files: map[string]string{"vm/prod/a.yaml": badVM("", "networks: []", "networks: [{bridge: vmbr0, vlan: 5000}]")},
		want: `^error: vm/prod/a.yaml:11:36: networks\[0\].vlan: 5000 is not in 1-4094`},
	{name: "missing required", files: map[string]string{"vm/prod/a.yaml": badVM("", "  memory: 512MiB\n", "")},
		want: `^error: vm/prod/a.yaml:6:3: memory: this field is required`},
	{name: "bad reference", files: map[string]string{"vm/prod/a.yaml": badVM("  hardware: {cdrom: {iso: debain}}\n")},
		want: `^error: vm/prod/a.yaml:12:27: hardware.cdrom.iso: ISO:debain is not in the composition of cluster prod; did you mean debian\?$`},
	{name: "cycle", files: map[string]string{
		"vm/prod/a.yaml":               badVM("", "  name: a\n", "  name: a\n  annotations: {proxops/depends-on: 'VM:b'}\n"),
		"vm/prod/b.yaml":               badVM("", "vmid: 100", "vmid: 101", "  name: a\n", "  name: b\n  annotations: {proxops/depends-on: 'VM:a'}\n"),
		"clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml, vm/prod/b.yaml]\n"},
		want: `^error: vm/prod/a.yaml:5:37: .*dependency cycle VM:a → VM:b → VM:a`},
	{name: "self-clone", files: map[string]string{
		"vm/prod/a.yaml":               badVM("", "  disks: []\n", "  clone: g\n"),
		"templatevm/prod/g.yaml":       badVM("", "kind: VM", "kind: TemplateVM", "name: a", "name: g"),
		"clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml, templatevm/prod/g.yaml]\n"},
		want: `clone: TemplateVM:g has vmid 100, the guest's own; a VM cannot be cloned onto itself`},
	{name: "clone with disks", files: map[string]string{
		"vm/prod/a.yaml":               badVM("", "  disks: []\n", "  clone: g\n  disks: [{storage: local-lvm, size: 1GiB}]\n"),
		"templatevm/prod/g.yaml":       badVM("", "kind: VM", "kind: TemplateVM", "name: a", "name: g", "vmid: 100", "vmid: 900"),
		"clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml, templatevm/prod/g.yaml]\n"},
		want: `^error: vm/prod/a.yaml:1[0-9]:[0-9]+: disks: .*clone`},
	{name: "ssd on virtio", files: map[string]string{"vm/prod/a.yaml": badVM("", "disks: []", "disks: [{interface: virtio0, storage: local-lvm, size: 1GiB, ssd: true}]")},
		want: `^error: vm/prod/a.yaml:10:[0-9]+: disks\[0\].ssd: .*virtio`},
	{name: "image with size", files: map[string]string{
		"vm/prod/a.yaml":               badVM("", "disks: []", "disks: [{storage: local-lvm, size: 1GiB, image: img}]"),
		"diskimage/base/img.yaml":      "apiVersion: proxops/v1alpha1\nkind: DiskImage\nmetadata: {name: img}\nspec: {node: pve01, storage: local, filename: i.qcow2, url: 'https://example.org/i.qcow2'}\n",
		"clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml, diskimage/base/img.yaml]\n"},
		want: `^error: vm/prod/a.yaml:10:[0-9]+: disks\[0\].size: .*image`},
	{name: "started template", files: map[string]string{
		"templatevm/prod/g.yaml":       badVM("  state: started\n", "kind: VM", "kind: TemplateVM"),
		"clusters/prod/resources.yaml": "resources: [templatevm/prod/g.yaml]\n"},
		want: `^error: templatevm/prod/g.yaml:12:10: state: `},
	{name: "efitype 8m", files: map[string]string{"vm/prod/a.yaml": badVM("  hardware: {bios: ovmf, efi-disk: {storage: local-lvm, template: 8m}}\n")},
		want: `^error: vm/prod/a.yaml:12:[0-9]+: hardware.efi-disk.template: "8m" is not a type that PVE has: its efitype is 4m or 2m$`},
	{name: "tab-indented YAML", files: map[string]string{"vm/prod/a.yaml": "kind: VM\nmetadata:\n\tname: a\n"},
		want: `^error: vm/prod/a.yaml:3:1: .*tab`},
	{name: "empty file", files: map[string]string{"vm/prod/a.yaml": ""},
		want: `^error: vm/prod/a.yaml: is empty`},
	{name: "a directory", files: map[string]string{"clusters/prod/resources.yaml": "resources: [vm/prod/sub.yaml]\n", "vm/prod/sub.yaml/x": "y"},
		want: `^error: clusters/prod/resources.yaml:1:13: .*vm/prod/sub.yaml: is a directory`},
	{name: "symlink out of the repository", prepare: func(t *testing.T, dir string) { symlink(t, "/etc/passwd", filepath.Join(dir, "vm/prod/a.yaml")) },
		want: `^error: clusters/prod/resources.yaml:1:13: .*leads out of the repository through a symbolic link`},
	// Made in the case: as a value of the table it would be made by every
	// command that a script runs, too, since those run this binary.
	{name: "50 MB manifest", prepare: func(t *testing.T, dir string) {
		writeFiles(t, dir, map[string]string{"vm/prod/a.yaml": strings.Repeat("# a comment of fifty bytes, again and again ......\n", 1<<20)})
	},
		want: `^error: vm/prod/a.yaml: is too large`},
	{name: "non-UTF-8", files: map[string]string{"vm/prod/a.yaml": badVM("  pve-description: \"M\xfcnchen\"\n")},
		want: `^error: vm/prod/a.yaml:12:22: byte 0xfc is not UTF-8`},
	{name: "a file listed twice", files: map[string]string{"clusters/prod/resources.yaml": "resources:\n  - vm/prod/a.yaml\n  - ../../vm/prod/a.yaml\n"},
		want: `^error: clusters/prod/resources.yaml:3:5: .*is listed twice, first on line 2`},
	{name: "endpoint shared by two clusters", files: map[string]string{
		"clusters/test/config.yaml":    "pve: {clusters: {test: {base-url: SIM_URL, nodes: [pve01]}}}\n",
		"clusters/test/resources.yaml": "resources: []\n"},
		want: `clusters/(prod|test)/config.yaml.*(prod|test)`},
	{name: "node outside the allowlist", files: map[string]string{"vm/prod/a.yaml": badVM("", "node: pve01", "node: pve09")},
		want: `^error: vm/prod/a.yaml:6:9: node: node pve09 is not one of cluster prod's nodes`},
	{name: "unknown proxops annotation", files: map[string]string{"vm/prod/a.yaml": badVM("", "  name: a\n", "  name: a\n  annotations: {proxops/claims: 'true'}\n")},
		want: `^error: vm/prod/a.yaml:5:33: metadata.annotations.proxops/claims: unknown annotation`},
}

func symlink(t *testing.T, target, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// TestBadInput: one clear error that names the place, exit code 1, and not a
// single write, from diff and from apply.
func TestBadInput(t *testing.T) {
	w, srv, line := labFor(t, 1)
	for _, c := range badInput {
		t.Run(c.name, func(t *testing.T) {
			dir := badRepository(t, srv, c.files)
			if c.prepare != nil {
				c.prepare(t, dir)
			}
			before := len(w.Requests())
			for _, cmd := range []string{"validate", "diff", "apply"} {
				checkBad(t, proxops(t, dir, []string{"PROXOPS_PVE_TOKEN_VALUE=" + line.Token}, cmd), c.want)
			}
			if n := len(w.Requests()) - before; n != 0 {
				t.Errorf("%d requests were sent: nothing may be asked of PVE while the desired state is faulty", n)
			}
		})
	}
}

func badRepository(t *testing.T, srv *pvesim.Server, changes map[string]string) string {
	t.Helper()
	files := goodFiles()
	for name, text := range changes {
		files[name] = text
	}
	r := strings.NewReplacer("SIM_URL", srv.URL, "SIM_FP", srv.Fingerprint)
	for name, text := range files {
		files[name] = r.Replace(text)
	}
	dir := t.TempDir()
	writeFiles(t, dir, files)
	return dir
}

func checkBad(t *testing.T, r result, want string) {
	t.Helper()
	text := r.err + r.out
	if r.code != 1 {
		t.Errorf("exit status %d, want 1\n%s", r.code, text)
	}
	if !regexp.MustCompile("(?m)" + want).MatchString(text) {
		t.Errorf("got\n%s\nwant %s", text, want)
	}
	if n := strings.Count(text, "error: "); n > 2 {
		t.Errorf("%d errors for one fault:\n%s", n, text)
	}
	if strings.Contains(text, "panic") || strings.Contains(text, "goroutine") {
		t.Errorf("it panicked:\n%s", text)
	}
}

// badWorld is one fault a story outside the repository.
var badWorld = []struct {
	name string
	env  func(w *pvesim.World, line ready) string
	// config is changed in clusters/prod/config.yaml, from and to.
	config func(t *testing.T, srv *pvesim.Server) (from, to string)
	want   string
}{
	{name: "no token", env: func(*pvesim.World, ready) string { return "X=y" },
		want: `error: .*PROXOPS_PVE_TOKEN`},
	{name: "wrong token", env: func(_ *pvesim.World, line ready) string {
		return "PROXOPS_PVE_TOKEN_VALUE=root@pam!lab=00000000-0000-4000-8000-000000000000"
	}, want: `error: prod: .*PVE refuses the token root@pam!lab`},
	{name: "token without rights", env: func(w *pvesim.World, _ ready) string {
		const secret = "11111111-0000-4000-8000-000000000000"
		w.View(func(s *pvesim.State) {
			s.Access.Users["nobody@pve"] = &pvesim.User{ID: "nobody@pve", Enabled: true, Tokens: map[string]*pvesim.Token{"t": {ID: "t", Secret: secret}}}
		})
		return "PROXOPS_PVE_TOKEN_VALUE=nobody@pve!t=" + secret
	}, want: `error: prod: nobody@pve!t has no right at all in PVE`},
	{name: "unreachable endpoint", config: func(t *testing.T, srv *pvesim.Server) (string, string) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		return srv.URL, "https://" + ln.Addr().String()
	}, want: `error: prod: .*connection refused`},
	{name: "wrong certificate", config: func(_ *testing.T, srv *pvesim.Server) (string, string) {
		return srv.Fingerprint, strings.Repeat("AB:", 31) + "CD"
	}, want: `error: prod: .*AB:AB.*proxops trust`},
	{name: "HTML answer", config: answering("<!DOCTYPE html><html><body>Welcome to nginx</body></html>", "text/html"),
		want: `error: prod: .*(HTML|html|not PVE|JSON)`},
	{name: "truncated JSON", config: answering(`{"data":[{"id":"qemu/1`, "application/json"),
		want: `error: prod: .*the answer was cut off`},
}

// answering points the configuration at a server that gives one answer to
// everything.
func answering(body, contentType string) func(*testing.T, *pvesim.Server) (string, string) {
	return func(t *testing.T, srv *pvesim.Server) (string, string) {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		sum := sha256.Sum256(s.Certificate().Raw)
		return fmt.Sprintf("%s\n      fingerprint: %q", srv.URL, srv.Fingerprint), fmt.Sprintf("%s\n      fingerprint: %q", s.URL, fmt.Sprintf("%X", sum))
	}
}

// TestBadWorld: a cluster that cannot be used is one error, exit code 1 and no
// write.
func TestBadWorld(t *testing.T) {
	for _, c := range badWorld {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, srv, line := labFor(t, 1)
			dir := badRepository(t, srv, nil)
			if c.config != nil {
				from, to := c.config(t, srv)
				file := filepath.Join(dir, "clusters/prod/config.yaml")
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				changed := strings.Replace(string(text), from, to, 1)
				if changed == string(text) {
					t.Fatalf("%q is not in\n%s", from, text)
				}
				writeFiles(t, dir, map[string]string{"clusters/prod/config.yaml": changed})
			}
			env := "PROXOPS_PVE_TOKEN_VALUE=" + line.Token
			if c.env != nil {
				env = c.env(w, line)
			}
			for _, cmd := range []string{"diff", "apply", "status"} {
				checkBad(t, proxops(t, dir, []string{env}, cmd), c.want)
			}
			if writes := writesOf(w); len(writes) > 0 {
				t.Errorf("written: %v", writes)
			}
		})
	}
}
