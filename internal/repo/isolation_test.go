package repo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const labConfig = "pve: {clusters: {lab: {base-url: 'https://lab.example.org', nodes: [n1]}}}\n"

func two() files {
	return base().with(files{
		"clusters/lab/config.yaml":    labConfig,
		"clusters/lab/resources.yaml": "resources: [vm/lab/z.yaml]\n",
		"vm/lab/z.yaml":               strings.Replace(vmYAML("z", 100), "node: pve1", "node: n1", 1),
	})
}

// outcome is "ok" or the error of each cluster, or of all.
func outcome(t *testing.T, r *Repo) map[string]string {
	t.Helper()
	all, err := r.LoadAll(t.Context())
	if err != nil {
		return map[string]string{"all": err.Error()}
	}
	out := map[string]string{}
	for _, l := range all {
		out[l.Name] = "ok"
		if l.Err != nil {
			out[l.Name] = l.Err.Error()
		}
	}
	return out
}

func TestIsolation(t *testing.T) {
	shared := "%s is named by clusters lab and prod: two clusters may not share an endpoint, or each would prune what the other owns"
	for _, c := range []struct {
		name  string
		files files
		want  map[string]string // the start of each error
	}{
		{"nothing wrong", nil, map[string]string{"lab": "ok", "prod": "ok"}},
		{"a manifest of one", files{"vm/lab/z.yaml": "x"}, map[string]string{"lab": "vm/lab/z.yaml:1:1: ", "prod": "ok"}},
		{"a config of one", files{"clusters/lab/config.yaml": "pve: ["}, map[string]string{"lab": "clusters/lab/config.yaml:", "prod": "ok"}},
		{"no composition of one", files{"clusters/lab/resources.yaml": ""}, map[string]string{"lab": "clusters/lab/resources.yaml: does not exist", "prod": "ok"}},
		{"neither file in one", files{"clusters/old/secrets.sops.yaml": "x"}, map[string]string{"lab": "ok", "prod": "ok", "old": "clusters/old/config.yaml: does not exist"}},
		{"an empty directory is none", files{"clusters/gone": "<dir>"}, map[string]string{"lab": "ok", "prod": "ok"}},
		{"a reference into the other cluster", files{"vm/lab/z.yaml": strings.Replace(two()["vm/lab/z.yaml"], "state: stopped", "hardware: {cdrom: {iso: debian}}", 1)},
			map[string]string{"lab": "vm/lab/z.yaml:8:27: hardware.cdrom.iso: ISO:debian is not in the composition of cluster lab; list its file in clusters/lab/resources.yaml", "prod": "ok"}},
		{"a shared endpoint", files{"clusters/lab/config.yaml": strings.Replace(labConfig, "https://lab.example.org", "HTTPS://PVE1.example.org.:8006/api2/json", 1)},
			map[string]string{
				"lab":  "clusters/lab/config.yaml:1:34: pve.clusters.lab.base-url: " + strings.Replace(shared, "%s", "https://pve1.example.org:8006", 1),
				"prod": "clusters/prod/config.yaml:4:17: pve.clusters.prod.base-url: " + strings.Replace(shared, "%s", "https://pve1.example.org:8006", 1)}},
		{"a shared further endpoint", files{"clusters/lab/config.yaml": strings.Replace(labConfig, "nodes:", "endpoints: ['https://pve1.example.org'], nodes:", 1)},
			map[string]string{"lab": "clusters/lab/config.yaml:1:73: pve.clusters.lab.endpoints[0]: ", "prod": "clusters/prod/config.yaml:4:17: pve.clusters.prod.base-url: "}},
		{"a flat manifest", files{"vm/flat.yaml": vmYAML("f", 900), "lxc/flat.yml": "", "vm/README.md": "fine"}, map[string]string{
			"all": "vm/flat.yaml: stands directly under vm: move it to vm/base or vm/<cluster>, and list it in a resources.yaml"}},
		{"an unlisted file", files{"vm/prod/unlisted.yaml": "not: [a manifest"}, map[string]string{"lab": "ok", "prod": "ok"}},
		{"a base file with a fault, listed by both", files{"iso/base/debian.yaml": "x", "clusters/lab/resources.yaml": "resources: [iso/base/debian.yaml]\n"},
			map[string]string{"lab": "iso/base/debian.yaml:1:1:", "prod": "iso/base/debian.yaml:1:1:"}},
		{"a cluster named base", files{"clusters/base/config.yaml": "x"}, map[string]string{"all": "clusters/base: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := outcome(t, open(t, two().with(c.files).write(t)))
			for name, want := range c.want {
				if !strings.HasPrefix(got[name], want) {
					t.Errorf("%s: got %q, want %q", name, got[name], want)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestSharedBaseIsBoundPerCluster(t *testing.T) {
	f := two().with(files{
		"iso/base/debian.yaml":        strings.Replace(isoYAML, "node: pve1", "nodes: [pve1]", 1),
		"clusters/lab/config.yaml":    strings.Replace(labConfig, "[n1]", "[n1, pve1]", 1),
		"clusters/lab/resources.yaml": "resources: [vm/lab/z.yaml, ../../iso/base/debian.yaml]\n",
	})
	all, err := open(t, f.write(t)).LoadAll(t.Context())
	if err != nil || all[0].Err != nil || all[1].Err != nil {
		t.Fatal(err, all)
	}
	if all[0].Cluster.Resources[1] == all[1].Cluster.Resources[1] {
		t.Error("two clusters share one resource: a binding of one would reach the other")
	}
}

func TestFilter(t *testing.T) {
	r := open(t, two().write(t))
	all, err := r.LoadAll(t.Context(), "lab")
	if err != nil || len(all) != 1 || all[0].Name != "lab" {
		t.Errorf("got %v, %v", all, err)
	}
	want := `cluster "labb" is not in ` + r.Tree().Root + "; did you mean lab?"
	if _, err := r.LoadAll(t.Context(), "labb"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestNoClusters(t *testing.T) {
	r := open(t, files{"proxops.yaml": ""}.write(t))
	if _, err := r.LoadAll(t.Context()); err == nil || !strings.Contains(err.Error(), "holds no cluster: add clusters/<name>/config.yaml") {
		t.Errorf("got %v", err)
	}
}

func TestNoRepository(t *testing.T) {
	if _, err := Open(Options{Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "no git repository here or above: run inside one, name one with --git-path") {
		t.Errorf("got %v", err)
	}
	if _, err := Open(Options{Dir: t.TempDir(), Overrides: Overrides{GitPath: "nowhere"}}); err == nil || !strings.Contains(err.Error(), "is not a directory: correct --git-path") {
		t.Errorf("got %v", err)
	}
}

func TestDiscoveryFromBelow(t *testing.T) {
	dir := base().with(files{".git/HEAD": "ref: refs/heads/main\n"}).write(t)
	r, err := Open(Options{Dir: filepath.Join(dir, "vm", "prod"), Env: tokenEnv})
	if err != nil {
		t.Fatal(err)
	}
	if got := outcome(t, r); got["prod"] != "ok" || r.Tree().Root != dir {
		t.Errorf("root %s: %v", r.Tree().Root, got)
	}
}

// A Repo sees one moment; Sync looks again.
func TestSyncSeesChanges(t *testing.T) {
	dir := base().write(t)
	r := open(t, dir)
	if got := outcome(t, r); got["prod"] != "ok" {
		t.Fatal(got)
	}
	if err := os.WriteFile(filepath.Join(dir, "vm/prod/a.yaml"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st := r.Sync(t.Context()); st.Err != nil || st.Stale {
		t.Fatal(st)
	}
	if got := outcome(t, r); got["prod"] == "ok" {
		t.Error("the change was not seen")
	}
}
