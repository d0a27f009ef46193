package repo

import (
	"strings"
	"testing"
)

// badFiles is one story a fault: what is changed in the base repository, and
// the whole text of the error.
var badFiles = []struct {
	name  string
	files files
	want  string
}{
	{"unknown field", files{"vm/prod/a.yaml": vmYAML("a", 100, "  memroy: 1GiB\n")},
		`vm/prod/a.yaml:13:3: memroy: unknown field; did you mean memory?`},
	{"duplicate key", files{"vm/prod/a.yaml": vmYAML("a", 100, "  vmid: 101\n")},
		`vm/prod/a.yaml:13:3: key "vmid" stands twice; first in line 7`},
	{"wrong type", files{"vm/prod/a.yaml": strings.Replace(vmYAML("a", 100), "vmid: 100", "vmid: many", 1)},
		`vm/prod/a.yaml:7:9: vmid: "many" is not an integer in 100-999999999`},
	{"out of range", files{"vm/prod/a.yaml": vmYAML("a", 99)},
		`vm/prod/a.yaml:7:9: vmid: 99 is not in 100-999999999`},
	{"missing required", files{"vm/prod/a.yaml": strings.Replace(vmYAML("a", 100), "  node: pve1\n", "", 1)},
		`vm/prod/a.yaml:6:3: node: this field is required; it takes string, such as pve01`},
	{"bad reference", files{"vm/prod/a.yaml": vmYAML("a", 100, "  hardware: {cdrom: {iso: debain}}\n")},
		`vm/prod/a.yaml:13:27: hardware.cdrom.iso: ISO:debain is not in the composition of cluster prod; did you mean debian?`},
	{"reference to another kind", files{"vm/prod/a.yaml": vmYAML("a", 100, "  clone: debian\n")},
		`vm/prod/a.yaml:13:10: clone: TemplateVM:debian is not in the composition of cluster prod; ISO has that name, and a TemplateVM is wanted here`},
	{"reference to another node", files{"vm/prod/a.yaml": strings.Replace(vmYAML("a", 100, "  hardware: {cdrom: {iso: debian}}\n"), "node: pve1", "node: pve2", 1)},
		`vm/prod/a.yaml:13:27: hardware.cdrom.iso: ISO:debian is not placed on node pve2, where the guest lives, only on pve1; add the node to its nodes`},
	{"depends on nothing known", files{"vm/prod/a.yaml": strings.Replace(vmYAML("a", 100), "  name: a\n", "  name: a\n  annotations: {proxops/depends-on: 'VM:b'}\n", 1)},
		`vm/prod/a.yaml:5:37: metadata.annotations.proxops/depends-on: VM:b is not in the composition of cluster prod; there are a`},
	{"cycle", files{
		"vm/prod/a.yaml":               strings.Replace(vmYAML("a", 100), "  name: a\n", "  name: a\n  annotations: {proxops/depends-on: 'VM:b'}\n", 1),
		"vm/prod/b.yaml":               strings.Replace(vmYAML("b", 101), "  name: b\n", "  name: b\n  annotations: {proxops/depends-on: 'VM:a'}\n", 1),
		"clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml, vm/prod/b.yaml]\n"},
		`vm/prod/a.yaml:5:37: metadata.annotations.proxops/depends-on: dependency cycle VM:a → VM:b → VM:a: take one of these references out`},
	{"self-dependency", files{"vm/prod/a.yaml": strings.Replace(vmYAML("a", 100), "  name: a\n", "  name: a\n  annotations: {proxops/depends-on: 'VM:a'}\n", 1)},
		`vm/prod/a.yaml:5:37: metadata.annotations.proxops/depends-on: dependency cycle VM:a → VM:a: take one of these references out`},
	{"unknown proxops annotation", files{"vm/prod/a.yaml": strings.Replace(vmYAML("a", 100), "  name: a\n", "  name: a\n  annotations: {proxops/claims: 'true'}\n", 1)},
		`vm/prod/a.yaml:5:33: metadata.annotations.proxops/claims: unknown annotation; known are proxops/depends-on, proxops/claim, proxops/force-stop, proxops/restart and proxops/placement`},
	{"tab-indented YAML", files{"vm/prod/a.yaml": "kind: VM\nmetadata:\n\tname: a\n"},
		"vm/prod/a.yaml:3:1: found character that cannot start any token; a tab may not indent: use blanks; one of @ ` % may not begin a plain value: put it in quotes"},
	{"empty file", files{"vm/prod/a.yaml": "# nothing\n"},
		`vm/prod/a.yaml: is empty: write a manifest, or take the file off the composition`},
	{"a directory", files{"clusters/prod/resources.yaml": "resources: [vm/prod/sub.yaml]\n", "vm/prod/sub.yaml/x": "y"},
		`clusters/prod/resources.yaml:1:13: resources[0]: vm/prod/sub.yaml: is a directory: list its files one by one`},
	{"symlink out of the repository", files{"vm/prod/a.yaml": "-> ../../../../../../../../../../../../etc/passwd"},
		`clusters/prod/resources.yaml:2:5: resources[0]: ../../vm/prod/a.yaml: leads out of the repository through a symbolic link`},
	{"absolute symlink out of the repository", files{"vm/prod/a.yaml": "-> /etc/passwd"},
		`clusters/prod/resources.yaml:2:5: resources[0]: ../../vm/prod/a.yaml: leads out of the repository through a symbolic link`},
	{"symlinked folder out of the repository", files{"vm/prod/a.yaml": "", "vm/prod": "-> /etc", "clusters/prod/resources.yaml": "resources: [vm/prod/hosts.yaml, vm/prod/passwd]\n"},
		`clusters/prod/resources.yaml:1:13: resources[0]: vm/prod/hosts.yaml: leads out of the repository through a symbolic link` + "\n" +
			`clusters/prod/resources.yaml:1:33: resources[1]: vm/prod/passwd: does not end in .yaml or .yml`},
	{"path out of the repository", files{"clusters/prod/resources.yaml": "resources: [../../../x.yaml, /etc/x.yaml]\n"},
		`clusters/prod/resources.yaml:1:13: resources[0]: ../../../x.yaml: leads out of the repository` + "\n" +
			`clusters/prod/resources.yaml:1:30: resources[1]: /etc/x.yaml: is absolute: write it from the repository's root or from this file's directory`},
	{"paths of no use", files{"clusters/prod/resources.yaml": "resources:\n  - '../../..'\n  - 'vm\\prod\\a.yaml'\n  - vm/../../x.yaml\n  - vm/a.yaml\n  - vm/prod/A.YAML\n  - ''\n  - {a: b}\n", "vm/prod/A.YAML": "", "vm/a.yaml": ""},
		`clusters/prod/resources.yaml:2:5: resources[0]: ../../..: leads out of the repository` + "\n" +
			`clusters/prod/resources.yaml:3:5: resources[1]: vm\prod\a.yaml: holds a backslash: write / between folders` + "\n" +
			`clusters/prod/resources.yaml:4:5: resources[2]: vm/../../x.yaml: leads out of the repository` + "\n" +
			`clusters/prod/resources.yaml:5:5: resources[3]: vm/a.yaml: stands directly under vm: move it to vm/base or vm/prod` + "\n" +
			`clusters/prod/resources.yaml:6:5: resources[4]: vm/prod/A.YAML: does not end in .yaml or .yml` + "\n" +
			`clusters/prod/resources.yaml:7:5: resources[5]: is the path of a manifest, not empty` + "\n" +
			`clusters/prod/resources.yaml:8:5: resources[6]: is the path of a manifest, not a mapping`},
	{"composition that is a list", files{"clusters/prod/resources.yaml": "[vm/prod/a.yaml]\n"},
		`clusters/prod/resources.yaml:1:1: is a mapping with resources, a list of paths, not a list`},
	{"composition without a list", files{"clusters/prod/resources.yaml": "{}\n"},
		`clusters/prod/resources.yaml:1:1: resources: is required: a list of paths, [] for none`},
	{"composition of two documents", files{"clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml]\n---\nresources: []\n"},
		`clusters/prod/resources.yaml: is not one document with resources: write resources: [] for none`},
	{"composition that is no YAML", files{"clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml\n"},
		`clusters/prod/resources.yaml:2:1: did not find expected ',' or ']'`},
	{"50 MB manifest", files{"vm/prod/a.yaml": strings.Repeat("# 50 MB of comment lines of fifty bytes each ......\n", 50<<20/50)},
		`vm/prod/a.yaml: is too large: 54525952 bytes, at most 1048576`},
	{"non-UTF-8", files{"vm/prod/a.yaml": vmYAML("a", 100, "  pve-description: \"M\xfcnchen\"\n")},
		`vm/prod/a.yaml:13:22: byte 0xfc is not UTF-8; save the file as UTF-8`},
	{"a file listed twice", files{"clusters/prod/resources.yaml": "resources:\n  - vm/prod/a.yaml\n  - ../../vm/prod/../prod/a.yaml\n"},
		`clusters/prod/resources.yaml:3:5: resources[1]: ../../vm/prod/../prod/a.yaml: is listed twice, first on line 2: keep one`},
	{"a file listed twice through a link", files{"vm/prod/b.yaml": "-> a.yaml", "clusters/prod/resources.yaml": "resources:\n  - vm/prod/a.yaml\n  - vm/prod/b.yaml\n"},
		`clusters/prod/resources.yaml:3:5: resources[1]: vm/prod/b.yaml: is listed twice, first on line 2: keep one`},
	{"a file that is not there", files{"clusters/prod/resources.yaml": "resources: [iso/base/debain.yaml]\n"},
		`clusters/prod/resources.yaml:1:13: resources[0]: iso/base/debain.yaml: no such file; did you mean debian.yaml?`},
	{"wrong extension", files{"clusters/prod/resources.yaml": "resources: [vm/prod/a.json]\n", "vm/prod/a.json": "{}"},
		`clusters/prod/resources.yaml:1:13: resources[0]: vm/prod/a.json: does not end in .yaml or .yml`},
	{"folder of no kind", files{"clusters/prod/resources.yaml": "resources: [../../vms/prod/a.yaml]\n"},
		`clusters/prod/resources.yaml:1:13: resources[0]: ../../vms/prod/a.yaml: is not under a kind's folder (ctt, diskimage, iso, lxc, templatect, templatevm, vm)`},
	{"folder of no cluster", files{"clusters/prod/resources.yaml": "resources: [vm/prd/a.yaml]\n"},
		`clusters/prod/resources.yaml:1:13: resources[0]: vm/prd/a.yaml: prd is neither base nor a cluster; did you mean prod?`},
	{"kind of another folder", files{"vm/prod/a.yaml": strings.Replace(isoYAML, "debian.iso", "other.iso", 2)},
		`vm/prod/a.yaml:2:7: kind: is ISO, and vm holds VM: move the file to iso`},
	{"composition of another shape", files{"clusters/prod/resources.yaml": "resource: [vm/prod/a.yaml]\nresources:\n  vm: a\n"},
		`clusters/prod/resources.yaml:1:1: resource: unknown key; there is resources` + "\n" +
			`clusters/prod/resources.yaml:3:3: resources: is a list of paths, [] for none, not a mapping`},
	{"empty composition file", files{"clusters/prod/resources.yaml": ""},
		`clusters/prod/resources.yaml: does not exist: list the cluster's manifests here, or write resources: [] for none`},
	{"composition without config", files{"clusters/prod/config.yaml": ""},
		`clusters/prod/config.yaml: does not exist: declare pve.clusters.prod here (base-url, nodes), or remove clusters/prod`},
	{"vmid twice", files{"vm/prod/b.yaml": vmYAML("b", 100), "clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml, vm/prod/b.yaml]\n"},
		`vm/prod/b.yaml:7:9: vmid: 100 is already taken by VM:a in vm/prod/a.yaml:7:9: vmids are unique in the whole cluster`},
	{"vmid of another range", files{"clusters/prod/config.yaml": configYAML + "      vmid-ranges: {VM: '200-299, 400-499'}\n"},
		`vm/prod/a.yaml:7:9: vmid: 100 is not in 200-299, 400-499, which clusters/prod/config.yaml keeps for VM: take a vmid of it (proxops next-id --kind VM), or change vmid-ranges`},
	{"name twice", files{"vm/prod/b.yaml": vmYAML("a", 101), "clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml, vm/prod/b.yaml]\n"},
		`vm/prod/b.yaml:4:9: metadata.name: VM:a is already defined in vm/prod/a.yaml:4:9: names are unique within a kind`},
	{"storage file twice", files{"iso/prod/again.yaml": strings.Replace(isoYAML, "name: debian", "name: again", 1), "clusters/prod/resources.yaml": "resources: [iso/base/debian.yaml, iso/prod/again.yaml]\n"},
		`iso/prod/again.yaml:6:9: node: local:iso/debian.iso on node pve1 is already defined by ISO:debian in iso/base/debian.yaml:4:9`},
	{"node outside the allowlist", files{"vm/prod/a.yaml": strings.Replace(vmYAML("a", 100), "node: pve1", "node: pve9", 1), "iso/base/debian.yaml": strings.Replace(isoYAML, "node: pve1", "nodes: [pve1, pve8]", 1)},
		`iso/base/debian.yaml:6:17: nodes[1]: node pve8 is not one of cluster prod's nodes (pve1, pve2); correct it, or add it to nodes in clusters/prod/config.yaml` + "\n" +
			`vm/prod/a.yaml:6:9: node: node pve9 is not one of cluster prod's nodes (pve1, pve2); correct it, or add it to nodes in clusters/prod/config.yaml`},
	{"two faults in two files", files{"vm/prod/a.yaml": vmYAML("a", 99), "iso/base/debian.yaml": strings.Replace(isoYAML, "storage: local", "storage: 7", 1)},
		`iso/base/debian.yaml:7:12: storage: 7 is not a string; write it in quotes: "7"` + "\n" +
			`vm/prod/a.yaml:7:9: vmid: 99 is not in 100-999999999`},
	{"fault behind a reference is told once", files{"vm/prod/a.yaml": vmYAML("a", 100, "  hardware: {cdrom: {iso: debian}}\n"), "iso/base/debian.yaml": strings.Replace(isoYAML, "storage: local\n", "", 1)},
		`iso/base/debian.yaml:7:13: mapping values are not allowed in this context`},
	{"secret reference without a secrets file", files{"vm/prod/a.yaml": vmYAML("a", 100, "  cloud-init-data: {ssh-key-refs: [cloud-init.ssh-keys.ops]}\n")},
		`vm/prod/a.yaml:13:36: cloud-init-data.ssh-key-refs[0]: the cluster has no secrets-file: add one with proxops secrets init, or take the reference out`},
	{"alias bomb", files{"vm/prod/a.yaml": "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n"},
		`vm/prod/a.yaml:5:36: the document is too large once aliases are expanded, or nested more than 64 deep`},
	{"self-clone", files{
		"vm/prod/a.yaml":               vmYAML("a", 100, "  clone: a\n"),
		"templatevm/prod/a.yaml":       strings.Replace(strings.Replace(vmYAML("a", 100), "kind: VM", "kind: TemplateVM", 1), "  state: stopped\n", "", 1),
		"clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml, templatevm/prod/a.yaml]\n"},
		`templatevm/prod/a.yaml:7:9: vmid: 100 is already taken by VM:a in vm/prod/a.yaml:7:9: vmids are unique in the whole cluster` + "\n" +
			`vm/prod/a.yaml:13:10: clone: TemplateVM:a has vmid 100, the guest's own; a VM cannot be cloned onto itself`},
}

func TestBadFiles(t *testing.T) {
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			r := open(t, base().with(c.files).write(t))
			got, err := r.Load(t.Context(), "prod")
			if err == nil {
				t.Fatalf("loaded %d resources", len(got.Resources))
			}
			if err.Error() != c.want {
				t.Errorf("got\n%s\nwant\n%s", err, c.want)
			}
		})
	}
}

// badConfigs are clusters/prod/config.yaml, whole, and what is wrong with each.
var badConfigs = []struct{ name, text, want string }{
	{"no entry", "pve: {}\n", `clusters/prod/config.yaml:1:1: pve.clusters: declares exactly one entry, named after the directory: prod; there is none`},
	{"another name", "pve:\n  clusters:\n    prd: {base-url: 'https://a', nodes: [pve1]}\n", `clusters/prod/config.yaml:3:5: pve.clusters: declares exactly one entry, named after the directory: prod; there is prd`},
	{"two entries", "pve:\n  clusters:\n    prod: {base-url: 'https://a', nodes: [pve1]}\n    lab: {base-url: 'https://b', nodes: [pve1]}\n", `clusters/prod/config.yaml:3:5: pve.clusters: declares exactly one entry, named after the directory: prod; there is prod, lab`},
	{"ranges of vmids", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1], vmid-ranges: {VM: '100-99', LXC: 5-200}}}}\n", `clusters/prod/config.yaml:1:81: pve.clusters.prod.vmid-ranges.VM: "100-99" is no range of vmids such as 100-199, within 100-999999999` + "\n" +
		`clusters/prod/config.yaml:1:96: pve.clusters.prod.vmid-ranges.LXC: "5-200" is no range of vmids such as 100-199, within 100-999999999`},
	{"plain http", "pve: {clusters: {prod: {base-url: 'http://10.0.0.1:8006', nodes: [pve1, pve2]}}}\n", `clusters/prod/config.yaml:1:35: pve.clusters.prod.base-url: plain http is allowed to a loopback address only, since credentials would cross the network in the clear: use https`},
	{"ftp", "pve: {clusters: {prod: {base-url: 'ftp://10.0.0.1', nodes: [pve1, pve2]}}}\n", `clusters/prod/config.yaml:1:35: pve.clusters.prod.base-url: scheme "ftp" is not https`},
	{"user in URL", "pve: {clusters: {prod: {base-url: 'https://root:canary@a', nodes: [pve1, pve2]}}}\n", `clusters/prod/config.yaml:1:35: pve.clusters.prod.base-url: holds a user or password; credentials do not belong into a URL: use the secrets-file or the environment`},
	{"path in URL", "pve: {clusters: {prod: {base-url: 'https://a/pve', nodes: [pve1, pve2]}}}\n", `clusters/prod/config.yaml:1:35: pve.clusters.prod.base-url: is not of the form https://host or https://host:8006: leave the path out`},
	{"no URL, no nodes", "pve: {clusters: {prod: {auth: token}}}\n", `clusters/prod/config.yaml:1:24: pve.clusters.prod: base-url is required: the URL of PVE's API, such as https://pve1.example.org:8006` + "\n" +
		`clusters/prod/config.yaml:1:24: pve.clusters.prod.nodes: is required: the nodes of this cluster that may be read and written`},
	{"empty nodes", "pve: {clusters: {prod: {base-url: 'https://a', nodes: []}}}\n", `clusters/prod/config.yaml:1:55: pve.clusters.prod.nodes: is required: the nodes of this cluster that may be read and written`},
	{"node twice", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2, pve1]}}}\n", `clusters/prod/config.yaml:1:68: pve.clusters.prod.nodes[2]: "pve1" stands there twice`},
	{"not a node", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2, 'pve/3']}}}\n", `clusters/prod/config.yaml:1:68: pve.clusters.prod.nodes[2]: "pve/3" is not a node name`},
	{"endpoint twice", "pve: {clusters: {prod: {base-url: 'https://a', endpoints: ['https://A.:8006/'], nodes: [pve1, pve2]}}}\n", `clusters/prod/config.yaml:1:60: pve.clusters.prod.endpoints[0]: https://a:8006 stands there twice`},
	{"unknown key", "pve: {clusters: {prod: {base-url: 'https://a', node: [pve1], nodes: [pve1, pve2]}}}\n", `clusters/prod/config.yaml:1:48: pve.clusters.prod.node: unknown key; did you mean nodes?`},
	{"unknown secret", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2], secrets: {pve: {tokn: x}}}}}\n", `clusters/prod/config.yaml:1:85: pve.clusters.prod.secrets.pve.tokn: unknown key; did you mean secrets.pve.token?`},
	{"secrets without file", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2], secrets: {pve: {token: x}}}}}\n", `clusters/prod/config.yaml:1:92: pve.clusters.prod.secrets.pve.token: names an entry of the secrets-file, and there is none: add secrets-file`},
	{"secrets file outside", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2], secrets-file: ../../../x}}}\n", `clusters/prod/config.yaml:1:83: pve.clusters.prod.secrets-file: "../../../x" leads out of the repository: the encrypted file stands in it, the identity outside`},
	{"secrets file by an absolute path", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2], secrets-file: /etc/x}}}\n", `clusters/prod/config.yaml:1:83: pve.clusters.prod.secrets-file: "/etc/x" leads out of the repository: the encrypted file stands in it, the identity outside`},
	{"secrets file that is the repository's parent", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2], secrets-file: ../../..}}}\n", `clusters/prod/config.yaml:1:83: pve.clusters.prod.secrets-file: "../../.." leads out of the repository: the encrypted file stands in it, the identity outside`},
	{"secrets file missing", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2], secrets-file: secrets.sops.yaml}}}\n", `clusters/prod/config.yaml:1:83: pve.clusters.prod.secrets-file: clusters/prod/secrets.sops.yaml does not exist: create it with proxops secrets init --cluster prod, or correct the path`},
	{"fingerprint", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2], fingerprint: 'AB:CD'}}}\n", `clusters/prod/config.yaml:1:82: pve.clusters.prod.fingerprint: is the SHA-256 fingerprint of a certificate: 32 hex pairs, with or without colons`},
	{"auth", "pve: {auth: password, clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2]}}}\n", `clusters/prod/config.yaml:1:13: pve.auth: is token or ticket, not "password"`},
	{"ca-file missing", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2], ca-file: ca.pem}}}\n", `clusters/prod/config.yaml:1:78: pve.clusters.prod.ca-file: clusters/prod/ca.pem does not exist: a relative path begins at clusters/prod`},
	{"ca-file outside", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2], ca-file: ../../../ca.pem}}}\n", `clusters/prod/config.yaml:1:78: pve.clusters.prod.ca-file: "../../../ca.pem" leads out of the repository: put the file beside this one, or give an absolute path of this machine`},
	{"restart window", "pve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2], reconcile: {restart-policy: window, restart-window: '3am'}}}}\n", `clusters/prod/config.yaml:1:121: pve.clusters.prod.reconcile.restart-window: is five cron fields, a duration and perhaps a time zone, such as 0 3 * * sun 2h Europe/Berlin, not "3am"`},
	{"log level per cluster", "log: {level: debug}\npve: {clusters: {prod: {base-url: 'https://a', nodes: [pve1, pve2]}}}\n", `clusters/prod/config.yaml:1:1: log: unknown key; there are pve.auth, pve.clusters`},
	{"not YAML", "pve: [\n", `clusters/prod/config.yaml:2:1: did not find expected node content`},
}

func TestBadConfigs(t *testing.T) {
	for _, c := range badConfigs {
		t.Run(c.name, func(t *testing.T) {
			r := open(t, base().with(files{"clusters/prod/config.yaml": c.text}).write(t))
			_, err := r.Load(t.Context(), "prod")
			if err == nil {
				t.Fatal("loaded")
			}
			if err.Error() != c.want {
				t.Errorf("got\n%s\nwant\n%s", err, c.want)
			}
		})
	}
}
