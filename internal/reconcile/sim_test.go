package reconcile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/graph"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

const template = `
apiVersion: proxops/v1alpha1
kind: TemplateVM
metadata: {name: golden}
spec:
  node: pve01
  vmid: 900
  memory: 1GiB
  cpu: {type: host, cores: 1}
  disks: [{storage: local-lvm, size: 1GiB}]
  networks: [{bridge: vmbr0}]
  pve-description: the golden image
  tags: [golden]
  hardware: {cloud-init: {enabled: true, storage: local-lvm}}
  cloud-init-data: {ci-user: builder, search-domains: [build.example.org]}
`

const clone = `
apiVersion: proxops/v1alpha1
kind: VM
metadata: {name: app}
spec:
  node: pve01
  vmid: 101
  clone: golden
  memory: 2GiB
  cpu: {type: host, cores: 2}
  networks: [{bridge: vmbr0}]
  cloud-init-data: {ci-user: deploy}
`

const plainVM = `
apiVersion: proxops/v1alpha1
kind: VM
metadata: {name: web}
spec:
  node: pve01
  vmid: 100
  memory: 512MiB
  cpu: {type: host, cores: 1}
  disks: [{storage: local-lvm, size: 1GiB, grow: true}]
  networks: [{bridge: vmbr0}]
  tags: [blue]
`

// desired loads manifests as the repository does, references bound.
func desired(t *testing.T, manifests ...string) *repo.Cluster {
	t.Helper()
	c := &repo.Cluster{Name: "lab"}
	c.Config.Nodes = []string{"pve01"}
	c.Secrets.TokenID = "root@pam!full"
	byRef := map[kind.Ref]*kind.Resource{}
	for i, text := range manifests {
		docs, problems := yamldoc.Parse(fmt.Sprint(i), []byte(text))
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		r, problems := kind.Parse(fmt.Sprint(i), docs[0])
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		c.Resources, byRef[r.Ref()] = append(c.Resources, r), r
	}
	var nodes []graph.Node
	for _, r := range c.Resources {
		for _, ref := range r.Spec.Refs() {
			if err := ref.Bind(byRef[ref.To]); err != nil {
				t.Fatal(err)
			}
			r.Depends = append(r.Depends, ref.To)
		}
		nodes = append(nodes, graph.Node{Ref: r.Ref(), Needs: r.Depends})
	}
	var err error
	if c.Levels, err = graph.Levels(nodes); err != nil {
		t.Fatal(err)
	}
	return c
}

// The whole story of a cluster: made from nothing, found converged, edited by
// hand, corrected, and a guest taken out again.
func TestConverges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state, err := pvesim.Recorded("lvmthin")
		if err != nil {
			t.Fatal(err)
		}
		w := pvesim.New(pvesim.Options{Seed: 1}, state)
		defer w.Stop()
		client, err := pve.New(pve.Config{Name: "lab", Endpoints: []string{"https://pve01:8006"}, Nodes: []string{"pve01"}, Transport: w,
			Auth: pve.Credentials{TokenID: "root@pam!full", TokenSecret: secret.New("11111111-1111-4111-8111-111111111111")}})
		if err != nil {
			t.Fatal(err)
		}
		cycle := func(manifests ...string) Report {
			t.Helper()
			rep := Cycle(t.Context(), Options{Cluster: "lab", Write: true,
				Load:    func(context.Context) (*repo.Cluster, error) { return desired(t, manifests...), nil },
				Connect: func(*repo.Cluster) (*pve.Client, error) { return client, nil }})
			if rep.Failed() {
				t.Errorf("abort: %v", rep.Abort)
				for _, e := range rep.Plan.Errors {
					t.Errorf("%+v", e)
				}
				if rep.Result != nil {
					for _, a := range rep.Result.Actions {
						t.Errorf("%s %s: %s: %v", a.Action.Verb, a.Action.Ref, a.Outcome, a.Err)
					}
				}
				t.FailNow()
			}
			return rep
		}
		verbs := func(rep Report) string {
			var out []string
			for _, a := range rep.Plan.Actions {
				out = append(out, string(a.Verb)+" "+a.ID)
			}
			return strings.Join(out, ", ")
		}
		still := func(manifests ...string) {
			t.Helper()
			rep := cycle(manifests...)
			if verbs(rep) != "" || !rep.Converged() || rep.Writes != 0 {
				t.Errorf("a second cycle still has a plan: %s", verbs(rep))
				for _, a := range rep.Plan.Actions {
					for _, c := range a.Changes {
						t.Errorf("%s %s: %v → %v", a.ID, c.Path, c.Old, c.New)
					}
				}
				for _, a := range rep.Plan.Anomalies {
					t.Errorf("%+v", a)
				}
			}
		}
		all := []string{template, clone, plainVM}
		if got := verbs(cycle(all...)); got != "Create 100, Create 900, Clone 101" {
			t.Errorf("first: %s", got)
		}
		still(all...)
		n, err := client.Node("pve01")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.UpdateConfig(t.Context(), pve.QEMU, 100, wire.Params{{Key: "name", Value: wire.Plain("hand")}, {Key: "tags", Value: wire.Plain("proxops;red")}}, ""); err != nil {
			t.Fatal(err)
		}
		if got := verbs(cycle(all...)); got != "Update 100" {
			t.Errorf("after an edit by hand: %s", got)
		}
		still(all...)
		bigger := strings.Replace(plainVM, "size: 1GiB", "size: 2GiB", 1)
		if got := verbs(cycle(template, clone, bigger)); got != "Resize 100" {
			t.Errorf("growing: %s", got)
		}
		still(template, clone, bigger)
		// Nothing is installed on the disk, so nothing answers the shutdown: the
		// guest is left alone until somebody stops it.
		for _, want := range []apply.Outcome{apply.Deferred, apply.Done} {
			rep := cycle(template, clone)
			if got := verbs(rep); got != "Delete 100" || rep.Result.Actions[0].Outcome != want {
				t.Errorf("taking a guest out: %s: %+v", got, rep.Result)
			}
			if _, err := n.Stop(t.Context(), pve.QEMU, 100); err != nil && want == apply.Deferred {
				t.Fatal(err)
			}
		}
		still(template, clone)
		rep := cycle(template)
		if len(rep.Plan.Suppressed) != 1 || rep.Plan.Suppressed[0].Rule != "vanished-kind" || verbs(rep) != "" {
			t.Errorf("the last VM went: %s %+v", verbs(rep), rep.Plan.Suppressed)
		}
		var cfg map[string]any
		if err := client.Reader().Get(t.Context(), "/nodes/pve01/qemu/101/config", nil, &cfg); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]any{"ciuser": "deploy", "searchdomain": nil, "description": "the golden image", "tags": "proxops"} {
			if cfg[key] != want {
				t.Errorf("the clone's %s is %v, want %v", key, cfg[key], want)
			}
		}
	})
}
