// Package cases_test tells, case by case, what hurts when PVE is managed
// declaratively, and that it does not hurt here: whole cycles over a
// repository of files, against a simulated cluster.
package cases_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/show"
)

// The identities of the recorded states.
const (
	rootToken = "root@pam!full=11111111-1111-4111-8111-111111111111"
	opsToken  = "gitops@pve!ops=33333333-3333-4333-8333-333333333333"
)

// lab is a simulated cluster, a repository, and a way to run cycles on them.
type lab struct {
	testing.TB
	w      *pvesim.World
	dir    string
	client *pve.Client
	wire   http.RoundTripper // what the client's requests go over

	settings string            // further lines of the cluster's entry
	files    map[string]string // by path from the root
	env      map[string]string
	policy   func(*plan.Policy)
	fails    bool // the next cycles may end with errors
}

// story runs one case in a bubble of its own, where waiting takes no time.
func story(t *testing.T, f func(l *lab), shape ...func(*pvesim.State)) {
	t.Helper()
	storyWith(t, pvesim.Options{Seed: 1}, f, shape...)
}

func storyWith(t *testing.T, o pvesim.Options, f func(l *lab), shape ...func(*pvesim.State)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, dir, o, state(t, shape...))
		defer l.w.Stop()
		f(l)
	})
}

func newLab(t testing.TB, dir string, o pvesim.Options, s pvesim.State) *lab {
	l := &lab{TB: t, dir: dir, files: map[string]string{}, w: pvesim.New(o, s), env: map[string]string{"PROXOPS_PVE_TOKEN_VALUE": rootToken}}
	l.wire = l.w
	return l
}

// state is a cluster of two nodes with directory, thin and shared storage.
func state(t testing.TB, shape ...func(*pvesim.State)) pvesim.State {
	t.Helper()
	s, err := pvesim.Recorded("lvmthin")
	if err != nil {
		t.Fatal(err)
	}
	one := s.Nodes[0]
	one.Lacks, one.CPUs, one.Bridges, s.ClusterName, one.ID = nil, 8, []string{"vmbr0", "vmbr1"}, "lab", 1
	two := *one
	two.Name, two.ID, two.IP = "pve02", 2, "192.0.2.12"
	s.Nodes = append(s.Nodes, &two)
	s.Storages = append(s.Storages, &pvesim.Storage{ID: "shared", Type: "nfs", Shared: true, Total: 1 << 40,
		Content: []string{"images", "rootdir", "iso", "vztmpl", "import"},
		Props:   map[string]string{"path": "/mnt/pve/shared", "server": "192.0.2.9", "export": "/srv"}})
	for _, f := range shape {
		f(&s)
	}
	return s
}

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

func (l *lab) load(ctx context.Context) (*repo.Cluster, error) {
	r, err := repo.Open(repo.Options{Dir: l.dir, Env: l.env, Overrides: repo.Overrides{GitPath: l.dir}})
	if err != nil {
		return nil, err
	}
	return r.Load(ctx, "lab")
}

// loadError is what loading the manifests says.
func (l *lab) loadError(manifests ...string) string {
	l.Helper()
	l.write(manifests...)
	_, err := l.load(l.Context())
	if err == nil {
		return ""
	}
	return err.Error()
}

// connect makes a client once for each identity.
func (l *lab) connect(c *repo.Cluster) (*pve.Client, error) {
	if l.client == nil {
		auth := pve.Credentials{TokenID: c.Secrets.TokenID, TokenSecret: c.Secrets.Token}
		if reconcile.UsesTicket(c) {
			auth = pve.Credentials{User: c.Secrets.User, Password: c.Secrets.Password}
		}
		client, err := pve.New(pve.Config{Name: "lab", Endpoints: append([]string{c.Config.BaseURL}, c.Config.Endpoints...), Nodes: c.Config.Nodes, Transport: l.wire, Auth: auth})
		if err != nil {
			return nil, err
		}
		l.client = client
	}
	return l.client, nil
}

// as changes who ProxOps is: a token value, or "" for root's password.
func (l *lab) as(token string) {
	l.client = nil
	l.env = map[string]string{"PROXOPS_PVE_TOKEN_VALUE": token}
	if token == "" {
		l.env = map[string]string{"PROXOPS_PVE_USER": "root@pam", "PROXOPS_PVE_PASSWORD": "pvetest1"}
	}
}

func (l *lab) cycle(write bool) reconcile.Report {
	return reconcile.Cycle(l.Context(), reconcile.Options{Cluster: "lab", Write: write, Load: l.load, Connect: l.connect, Policy: l.policy})
}

// cycleBetween is a writing cycle in which something happens between the plan
// and the first write.
func (l *lab) cycleBetween(f func()) reconcile.Report {
	return reconcile.Cycle(l.Context(), reconcile.Options{Cluster: "lab", Write: true, Load: l.load, Connect: l.connect, Policy: l.policy,
		Planned: func(plan.Plan) error { f(); return nil }})
}

// diff plans; nothing may be written by it.
func (l *lab) diff(manifests ...string) reconcile.Report {
	l.Helper()
	l.write(manifests...)
	before := l.census()
	rep := l.cycle(false)
	if rep.Writes != 0 {
		l.Errorf("a diff made %d writes", rep.Writes)
	}
	l.guard(before, rep)
	l.expectFine(rep)
	return rep
}

// apply runs one writing cycle under all guards.
func (l *lab) apply(manifests ...string) reconcile.Report {
	l.Helper()
	l.write(manifests...)
	before := l.census()
	rep := l.cycle(true)
	l.guard(before, rep)
	l.expectFine(rep)
	l.drain()
	return rep
}

// converge applies, and then holds that nothing is left to do.
func (l *lab) converge(manifests ...string) reconcile.Report {
	l.Helper()
	rep := l.apply(manifests...)
	l.settled(manifests...)
	return rep
}

// settled holds that two diffs plan nothing and are the same to the byte.
func (l *lab) settled(manifests ...string) {
	l.Helper()
	a, b := l.diff(manifests...), l.diff(manifests...)
	if len(a.Plan.Actions) > 0 {
		l.Errorf("a second plan is not empty:\n%s", text(a))
	}
	if x, y := document(l, a), document(l, b); x != y {
		l.Errorf("two plans of the same differ:\n%s\n%s", x, y)
	}
}

func (l *lab) expectFine(rep reconcile.Report) {
	l.Helper()
	unsure := rep.Result != nil && rep.Result.Counts()[apply.Unknown] > 0
	if l.fails || !rep.Failed() && !unsure {
		return
	}
	l.Errorf("the cycle failed: %v\n%s", rep.Abort, text(rep))
	if rep.Result != nil {
		for _, a := range rep.Result.Actions {
			if a.Err != nil {
				l.Errorf("%s %s: %s: %v %v", a.Action.Verb, a.Action.ID, a.Outcome, a.Err, a.Tail)
			}
		}
	}
	l.FailNow()
}

func text(rep reconcile.Report) string {
	var b bytes.Buffer
	show.Text(&b, show.Style{}, []reconcile.Report{rep})
	return b.String()
}

func document(t testing.TB, rep reconcile.Report) string {
	var b bytes.Buffer
	if err := show.JSON(&b, []reconcile.Report{rep}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// verbs are the plan's actions, in order.
func verbs(rep reconcile.Report) string {
	var out []string
	for _, a := range rep.Plan.Actions {
		out = append(out, string(a.Verb)+" "+a.ID)
	}
	return strings.Join(out, ", ")
}

func (l *lab) wantVerbs(rep reconcile.Report, want string) {
	l.Helper()
	if got := verbs(rep); got != want {
		l.Errorf("planned %q, want %q\n%s", got, want, text(rep))
	}
}

// changed lists the PVE keys that a plan writes.
func changed(rep reconcile.Report) string {
	var out []string
	for _, a := range rep.Plan.Actions {
		for _, c := range a.Changes {
			out = append(out, c.Key)
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

// says holds that the report's text names all the parts.
func (l *lab) says(rep reconcile.Report, parts ...string) {
	l.Helper()
	got := text(rep)
	if rep.Abort != nil {
		got += rep.Abort.Error()
	}
	for _, p := range parts {
		if !strings.Contains(got, p) {
			l.Errorf("the report does not say %q:\n%s", p, got)
		}
	}
}

func (l *lab) stateOf(rep reconcile.Report, name string) plan.ObjectState {
	l.Helper()
	for _, o := range rep.Objects {
		if o.Name == name {
			return o.State
		}
	}
	l.Errorf("the report has no object %s", name)
	return ""
}

// api makes a call as somebody else: root's own token from another client.
// Pairs of key and value are the parameters.
func (l *lab) api(method, path string, pairs ...string) any {
	l.Helper()
	v, err := l.try(rootToken, method, path, pairs...)
	if err != nil {
		l.Fatalf("%s %s: %v", method, path, err)
	}
	l.drain()
	return v
}

func (l *lab) try(token, method, path string, pairs ...string) (any, error) {
	form := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	target := "https://pve01:8006/api2/json" + path
	var body io.Reader
	if method == "GET" || method == "DELETE" {
		if len(form) > 0 {
			target += "?" + form.Encode()
		}
	} else {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(l.Context(), method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "PVEAPIToken="+token)
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := l.w.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s", res.Status, raw)
	}
	var out struct{ Data any }
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	upid, ok := out.Data.(string)
	if !ok || !strings.HasPrefix(upid, "UPID:") {
		return out.Data, nil
	}
	l.drain()
	exit := ""
	l.w.View(func(s *pvesim.State) {
		for _, t := range s.Tasks {
			if t.UPID == upid {
				exit = t.Exit
			}
		}
	})
	if exit != "OK" && !strings.HasPrefix(exit, "WARNINGS") {
		return out.Data, fmt.Errorf("task: %s", exit)
	}
	return out.Data, nil
}

// put edits a guest's config by hand.
func (l *lab) put(id int, pairs ...string) {
	l.Helper()
	l.api("PUT", l.path(id)+"/config", pairs...)
}

func (l *lab) path(id int) (path string) {
	l.w.View(func(s *pvesim.State) {
		if g := s.Guests[id]; g != nil {
			path = fmt.Sprintf("/nodes/%s/%s/%d", g.Node, g.Kind, id)
		}
	})
	return path
}

// make creates a guest by hand.
func (l *lab) make(kind string, id int, pairs ...string) {
	l.Helper()
	pairs = append([]string{"vmid", fmt.Sprint(id)}, pairs...)
	if kind == "lxc" {
		pairs = append(pairs, "ostemplate", "local:vztmpl/debian-13-tiny_13.1-1_amd64.tar.gz")
	}
	l.api("POST", "/nodes/pve01/"+kind, pairs...)
}

// edit changes a guest's config file, past the API.
func (l *lab) edit(id int, f func(g *pvesim.Guest)) {
	l.Helper()
	if l.conf(id) == nil {
		l.Fatalf("there is no guest %d", id)
	}
	l.w.View(func(s *pvesim.State) { f(s.Guests[id]) })
}

// conf is a guest's config as PVE's file holds it; nil when it is not there.
func (l *lab) conf(id int) (out pvesim.Section) {
	l.w.View(func(s *pvesim.State) {
		if g := s.Guests[id]; g != nil {
			out = g.Config.Clone()
		}
	})
	return out
}

func (l *lab) pending(id int) (out pvesim.Section) {
	l.edit(id, func(g *pvesim.Guest) { out = g.Pending.Clone() })
	return out
}

func (l *lab) running(id int) (on bool) {
	l.edit(id, func(g *pvesim.Guest) { on = g.Running })
	return on
}

func (l *lab) wantConf(id int, pairs ...string) {
	l.Helper()
	c := l.conf(id)
	for i := 0; i < len(pairs); i += 2 {
		if c[pairs[i]] != pairs[i+1] {
			l.Errorf("guest %d: %s is %q, want %q", id, pairs[i], c[pairs[i]], pairs[i+1])
		}
	}
}

// drain waits until no task runs.
func (l *lab) drain() {
	for range 1000 {
		busy := false
		l.w.View(func(s *pvesim.State) {
			busy = slices.ContainsFunc(s.Tasks, func(t *pvesim.Task) bool { return t.Running() })
		})
		if !busy {
			return
		}
		time.Sleep(time.Second)
	}
	l.Fatal("a task does not end")
}

// census is what must not get lost: every guest's config and every volume.
type census struct {
	guests   map[int]pvesim.Section // with what is pending merged in
	loose    map[string]bool        // volumes of guests that no config names
	ledger   int
	requests int
}

func (l *lab) census() census {
	c := census{guests: map[int]pvesim.Section{}, loose: map[string]bool{}, ledger: len(l.w.LedgerEntries()), requests: len(l.w.Requests())}
	l.w.View(func(s *pvesim.State) {
		var all strings.Builder
		for id, g := range s.Guests {
			sec := g.Config.Clone()
			maps.Copy(sec, g.Pending)
			c.guests[id] = sec
			for _, sections := range []pvesim.Section{g.Config, g.Pending} {
				for _, v := range sections {
					all.WriteString(v + "\n")
				}
			}
			for _, sn := range g.Snapshots {
				for _, v := range sn.Config {
					all.WriteString(v + "\n")
				}
			}
		}
		for key, v := range s.Volumes {
			if v.Owner != 0 && v.Content != "backup" && !strings.Contains(all.String(), v.ID) {
				c.loose[key] = true
			}
		}
	})
	return c
}

// guard holds the laws of every cycle: nothing destroyed or left behind but
// by a planned Delete, no create form over a filled slot, never the mask.
func (l *lab) guard(before census, rep reconcile.Report) {
	l.Helper()
	deletes := map[int]bool{}
	for _, a := range rep.Plan.Actions {
		if a.Verb == plan.Delete {
			deletes[a.VMID] = true
		}
	}
	after := l.census()
	for _, e := range l.w.LedgerEntries()[before.ledger:] {
		if _, was := before.guests[e.Owner]; was && e.Op == "destroy" && !deletes[e.Owner] && !strings.Contains(e.Volid, "cloudinit") {
			l.Errorf("volume %s of guest %d was destroyed without a planned Delete (%s)", e.Volid, e.Owner, e.Cause)
		}
	}
	for key := range after.loose {
		if !before.loose[key] {
			l.Errorf("volume %s was left behind: no config names it", key)
		}
	}
	for id, now := range after.guests {
		was, there := before.guests[id]
		for key := range now {
			if strings.HasPrefix(key, "unused") && (!there || was[key] == "") {
				l.Errorf("guest %d: a volume was thrown out of its slot: %s: %s", id, key, now[key])
			}
		}
	}
	for _, r := range l.w.Requests()[before.requests:] {
		l.guardRequest(before, r)
	}
}

func (l *lab) guardRequest(before census, r pvesim.RequestEntry) {
	l.Helper()
	var kind, verb string
	var id int
	if n, _ := fmt.Sscanf(strings.ReplaceAll(r.Path, "/", " "), " nodes %s %s %d %s", new(string), &kind, &id, &verb); n < 3 || r.Method == "GET" {
		return
	}
	if p := r.Params.Str("cipassword"); p != "" && strings.Trim(p, "*") == "" {
		l.Errorf("the password mask was sent: %s %s", r.Method, r.Path)
	}
	for key := range r.Params {
		value := r.Params.Str(key)
		was := before.guests[id][key]
		first, _, _ := strings.Cut(value, ",")
		_, amount, volume := strings.Cut(first, ":")
		creates := volume && (amount == "cloudinit" || strings.Trim(amount, "0123456789.") == "") && slotted(key)
		if creates && was != "" && !strings.HasPrefix(was, "none") {
			l.Errorf("%s %s sends the create form %s=%s over %s", r.Method, r.Path, key, value, was)
		}
	}
}

func slotted(key string) bool {
	class := strings.TrimRight(key, "0123456789")
	return slices.Contains([]string{"scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "mp", "rootfs"}, class)
}

// outcomes are what became of the actions.
func outcomes(rep reconcile.Report) string {
	var out []string
	if rep.Result != nil {
		for _, a := range rep.Result.Actions {
			out = append(out, string(a.Outcome))
		}
	}
	return strings.Join(out, ",")
}
