package cases_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// spec is the text of a manifest: what is required, unless lines say it.
func spec(kind, name string, id int, lines ...string) string {
	text := strings.Join(lines, "\n") + "\n"
	defaults := []string{"node: pve01", "memory: 512MiB", "networks: []", "state: stopped"}
	switch {
	case strings.HasSuffix(kind, "VM"):
		defaults = append(defaults, "cpu: {type: host, cores: 1}")
		if !strings.Contains("\n"+text, "\nclone:") {
			defaults = append(defaults, "disks: []")
		}
	default:
		defaults = append(defaults, "template: null", "root: {storage: local-lvm, size: 1GiB}")
	}
	for _, d := range defaults {
		key, _, _ := strings.Cut(d, ":")
		if strings.HasSuffix(kind, "VM") && kind == "TemplateVM" && key == "state" {
			continue
		}
		if kind == "TemplateCT" && key == "state" {
			continue
		}
		if !strings.Contains("\n"+text, "\n"+key+":") {
			text = d + "\n" + text
		}
	}
	meta := "{name: " + name + "}"
	return fmt.Sprintf("apiVersion: proxops/v1alpha1\nkind: %s\nmetadata: %s\nspec:\n  vmid: %d\n  %s\n",
		kind, meta, id, strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  "))
}

func vm(name string, id int, lines ...string) string { return spec("VM", name, id, lines...) }
func ct(name string, id int, lines ...string) string {
	return spec("LXC", name, id, lines...) // template: null unless a line names one
}

// noted adds annotations to a manifest.
func noted(text string, pairs ...string) string {
	at := strings.Index(text, "metadata: {name: ") + len("metadata: {")
	return text[:at] + "annotations: {" + strings.Join(pairs, ", ") + "}, " + text[at:]
}

const debian = `apiVersion: proxops/v1alpha1
kind: CTTemplate
metadata: {name: debian}
spec:
  node: pve01
  storage: local
  filename: debian-13-tiny_13.1-1_amd64.tar.gz
  url: null
`

const seedISO = `apiVersion: proxops/v1alpha1
kind: ISO
metadata: {name: seed}
spec: {node: pve01, storage: local, filename: seed.iso, url: null}
`

const seedImage = `apiVersion: proxops/v1alpha1
kind: DiskImage
metadata: {name: seed}
spec: {node: pve01, storage: local, filename: seed.qcow2, url: null}
`

// write makes the repository hold exactly the manifests.
func (l *lab) write(manifests ...string) {
	l.Helper()
	for _, folder := range []string{"vm", "lxc", "templatevm", "templatect", "iso", "ctt", "diskimage", "clusters"} {
		if err := os.RemoveAll(filepath.Join(l.dir, folder)); err != nil {
			l.Fatal(err)
		}
	}
	files := maps.Clone(l.files)
	folders := map[string]string{"VM": "vm", "LXC": "lxc", "TemplateVM": "templatevm", "TemplateCT": "templatect", "ISO": "iso", "CTTemplate": "ctt", "DiskImage": "diskimage"}
	list := ""
	for i, text := range manifests {
		_, rest, _ := strings.Cut(text, "kind: ")
		kind, _, _ := strings.Cut(rest, "\n")
		path := fmt.Sprintf("%s/lab/m%03d.yaml", folders[kind], i)
		files[path] = text
		list += "  - " + path + "\n"
	}
	if list == "" {
		list = " []"
	} else {
		list = "\n" + list
	}
	files["clusters/lab/resources.yaml"] = "resources:" + list + "\n"
	files["clusters/lab/config.yaml"] = "pve:\n  clusters:\n    lab:\n      base-url: https://pve01:8006\n      nodes: [pve01, pve02]\n" + l.settings
	for path, text := range files {
		full := filepath.Join(l.dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			l.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			l.Fatal(err)
		}
	}
}
