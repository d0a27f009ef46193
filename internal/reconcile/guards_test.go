package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

// cycle runs one writing cycle of the cluster lab; change changes its options.
func (e *estate) cycleOnce(change ...func(*Options)) Report {
	e.t.Helper()
	o := Options{Cluster: "lab", Write: true, Connect: e.connect, Load: func(ctx context.Context) (*repo.Cluster, error) {
		r, err := e.options().Open()
		if err != nil {
			return nil, err
		}
		return r.Load(ctx, "lab")
	}}
	for _, f := range change {
		f(&o)
	}
	return Cycle(e.t.Context(), o)
}

// A cycle that is not to write does not, whatever the cluster's settings say,
// and one whose plan was refused does not either.
func TestNothingIsWrittenUnasked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		refused := errors.New("not confirmed")
		for name, change := range map[string]func(*Options){
			"not to write": func(o *Options) { o.Write = false },
			"refused":      func(o *Options) { o.Planned = func(plan.Plan) error { return refused } },
		} {
			e := newEstate(t, pvesim.Options{}, "lab")
			rep := e.cycleOnce(change)
			if w := e.writes("lab"); len(w) > 0 || rep.Writes != 0 || rep.Reads == 0 {
				t.Errorf("%s: written: %v; %d reads, %d writes", name, w, rep.Reads, rep.Writes)
			}
			if len(rep.Plan.Actions) == 0 || rep.Result != nil || rep.ReadOnly != (name == "not to write") || errors.Is(rep.Abort, refused) != (name == "refused") {
				t.Errorf("%s: %v, result %v, read-only %v", name, rep.Abort, rep.Result, rep.ReadOnly)
			}
			rep = e.cycleOnce()
			if n := int64(len(e.writes("lab"))); rep.Failed() || rep.Writes != n || n == 0 {
				t.Errorf("%s: %d writes, %d are reported; %v", name, n, rep.Writes, rep.Abort)
			}
			if rep = e.cycleOnce(); rep.Result != nil || rep.Writes != 0 {
				t.Errorf("%s: an empty plan has a result: %+v", name, rep.Result)
			}
			e.stop()
		}
	})
}

// answers gives other answers for a path than the cluster does.
type answers struct {
	under http.RoundTripper
	by    map[string]string // by the end of the path; "" = an error
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	for path, body := range a.by {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, path) {
			if body == "" {
				return &http.Response{StatusCode: 403, Status: "403 Permission check failed", Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			}
			return &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewBufferString(body)), Request: r}, nil
		}
	}
	return a.under.RoundTrip(r)
}

func (e *estate) through(by map[string]string) func(*Options) {
	return func(o *Options) {
		o.Connect = func(c *repo.Cluster) (*pve.Client, error) {
			return pve.New(pve.Config{Name: c.Name, Endpoints: []string{c.Config.BaseURL}, Nodes: c.Config.Nodes,
				Auth: pve.Credentials{TokenID: c.Secrets.TokenID, TokenSecret: c.Secrets.Token}, Transport: answers{transport{e, c.Name}, by}})
		}
	}
}

// A token without any right sees an empty cluster: nothing is planned from
// that, least of all that everything is to be made.
func TestTokenWithoutRights(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "lab")
		defer e.stop()
		rep := e.cycleOnce(e.through(map[string]string{"/access/permissions": `{"data":{}}`}))
		if rep.Abort == nil || !strings.Contains(rep.Abort.Error(), "has no right at all in PVE") || !strings.Contains(rep.Abort.Error(), "root@pam!full") || len(rep.Plan.Actions) > 0 {
			t.Errorf("%v, %d actions", rep.Abort, len(rep.Plan.Actions))
		}
		if w := e.writes("lab"); len(w) > 0 {
			t.Errorf("written: %v", w)
		}
	})
}

// What a plan that writes needs to know besides is read, and a read that fails
// ends the cycle before it writes.
func TestReadsBeforeWriting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "lab")
		defer e.stop()
		e.vms("lab", strings.Replace(vmText("web", 100, "512MiB"), "disks: []", "disks: [{storage: nowhere, size: 1GiB}]", 1))
		rep := e.cycleOnce()
		if len(rep.Plan.Errors) != 1 || !strings.Contains(rep.Plan.Errors[0].Text, "nowhere") || len(e.writes("lab")) > 0 {
			t.Errorf("a storage that is not there: %+v, %v", rep.Plan.Errors, e.writes("lab"))
		}
		web := vmText("web", 100, "512MiB")
		e.vms("lab", web, vmText("old", 101, "512MiB"), vmText("older", 102, "512MiB"))
		if rep := e.cycleOnce(); rep.Failed() {
			t.Fatal(rep.Abort)
		}
		n := len(e.writes("lab"))
		e.vms("lab", web)
		look := func(o *Options) { o.Write = false }
		deletes := func(rep Report) (n int) {
			for _, a := range rep.Plan.Actions {
				if a.Verb == plan.Delete {
					n++
				}
			}
			return n
		}
		// That a guest to be deleted is in a job is said, and so is that the jobs
		// cannot be read.
		rep = e.cycleOnce(look, e.through(map[string]string{"/cluster/backup": `{"data":[{"id":"nightly","vmid":"101","type":"vzdump"}]}`}))
		if text := fmt.Sprint(rep.Plan.Notes, rep.Plan.Actions); deletes(rep) != 2 || !strings.Contains(text, "nightly") {
			t.Errorf("a backup job: %v, %s", rep.Abort, text)
		}
		rep = e.cycleOnce(look, e.through(map[string]string{"/cluster/backup": ""}))
		if text := fmt.Sprint(rep.Plan.Notes, rep.Plan.Actions); deletes(rep) != 2 || !strings.Contains(text, "backup jobs") {
			t.Errorf("jobs that cannot be read: %v, %s", rep.Abort, text)
		}
		// Flags change the policy that the plan is made with.
		rep = e.cycleOnce(look, func(o *Options) { o.Policy = func(p *plan.Policy) { p.PruneBudget = 1 } })
		if deletes(rep) != 1 || len(rep.Plan.Suppressed) != 1 {
			t.Errorf("a budget of one: %d deletes", deletes(rep))
		}
		if got := len(e.writes("lab")); got != n {
			t.Errorf("%d writes", got-n)
		}
	})
}

// Where git says that it cannot tell who removed a guest nothing is deleted.
func TestBrokenHistoryDeletesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e, commit, web := withOld(t)
		defer e.stop()
		e.vms("lab", web)
		commit()
		rep := e.cycleOnce(func(o *Options) {
			load := o.Load
			o.Load = func(ctx context.Context) (*repo.Cluster, error) {
				c, err := load(ctx)
				return c, errors.Join(err, os.RemoveAll(filepath.Join(e.dir, ".git", "objects")))
			}
		})
		if len(rep.Plan.Actions) != 0 || len(rep.Plan.Suppressed) != 1 {
			t.Errorf("%v, %d actions, suppressed %+v", rep.Abort, len(rep.Plan.Actions), rep.Plan.Suppressed)
		}
	})
}

// A plan that an interrupt cut short says what it left.
func TestLeft(t *testing.T) {
	for _, c := range []struct {
		list []apply.Outcome
		want string
	}{
		{nil, ""},
		{[]apply.Outcome{apply.Unknown, apply.Done}, "1 under way were not followed to their end: running tasks go on in PVE"},
	} {
		var res apply.Result
		for _, o := range c.list {
			res.Actions = append(res.Actions, apply.ActionResult{Outcome: o})
		}
		if got := left(res); got != c.want {
			t.Errorf("%v: %q", c.list, got)
		}
	}
}

// No window is never open, nor is one that cannot be read.
func TestWindowOpen(t *testing.T) {
	night := time.Date(2026, 11, 29, 3, 30, 0, 0, time.UTC)
	for text, want := range map[string]bool{"": false, "0 3 * * * 1h UTC": true, "0 3 * * * 10m UTC": false, "0 4 * * * 1h UTC": false, "nonsense": false} {
		if got := windowOpen(text, night); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// A storage that is shared on one node is one storage.
func TestSharedStorages(t *testing.T) {
	shared := sharedStorages(&live.Snapshot{Storages: map[live.Store]live.Storage{
		{Node: "a", Storage: "nfs"}: {Shared: true}, {Node: "b", Storage: "nfs"}: {}, {Node: "a", Storage: "local"}: {}}})
	for name, want := range map[string]bool{"nfs": true, "local": false, "none": false} {
		if shared(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// What is read of a cluster follows from what is declared in it, and as whom
// from its credentials.
func TestWant(t *testing.T) {
	migrating := strings.Replace(strings.Replace(plainVM, "{name: web}", `{name: web, annotations: {proxops/placement: migrate}}`, 1), "tags: [blue]", "tags: [blue]\n  state: started\n  pool: prod", 1)
	iso := "apiVersion: proxops/v1alpha1\nkind: ISO\nmetadata: {name: rescue}\nspec: {nodes: [pve01, pve02], storage: local, filename: a.iso, url: 'https://example.org/a.iso', checksum: {algorithm: sha256, value: " + strings.Repeat("0", 64) + "}}\n"
	second := strings.NewReplacer("rescue", "rescue2", "a.iso", "b.iso").Replace(iso)
	c := desired(t, migrating, template, strings.Replace(clone, "clone: golden", "clone: golden\n  state: stopped", 1), iso, second)
	w := Want(c)
	if d := cmp.Diff(map[int]live.Declared{100: {Running: true, Pool: "prod", MoveTo: "pve01"}, 101: {}, 900: {}}, w.Guests); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[live.Store][]string{{Node: "pve01", Storage: "local"}: {"iso"}, {Node: "pve02", Storage: "local"}: {"iso"}}, w.Stores); d != "" {
		t.Error(d)
	}
	token, password := "ops@pve!t", secret.New("x")
	for name, tt := range map[string]struct {
		auth, token, user string
		password          bool
		identity          string
		root              bool
	}{
		"a token":                {"", token, "", false, token, false},
		"a token beside root":    {"", token, "root@pam", true, token, false},
		"a password":             {"", "", "ops@pve", true, "ops@pve", false},
		"root's password":        {"", "", "root@pam", true, "root@pam", true},
		"a ticket, as it says":   {"ticket", token, "root@pam", true, "root@pam", true},
		"a token, as it says":    {"token", "", "root@pam", true, "", false},
		"nothing":                {"", "", "root@pam", false, "", false},
		"a token named root@pam": {"", "root@pam!t", "", false, "root@pam!t", false},
	} {
		c := &repo.Cluster{Name: "lab"}
		c.Config.Auth, c.Secrets.TokenID, c.Secrets.User = tt.auth, tt.token, tt.user
		if tt.password {
			c.Secrets.Password = password
		}
		if w := Want(c); w.Identity != tt.identity || w.RootTicket != tt.root {
			t.Errorf("%s: as %q, root %v", name, w.Identity, w.RootTicket)
		}
	}
}

// Without the credentials that its settings name a cluster has no client.
func TestConnectNeedsCredentials(t *testing.T) {
	c := &repo.Cluster{Name: "lab"}
	c.Config.BaseURL, c.Config.Nodes = "https://pve.example.org:8006", []string{"pve01"}
	if _, err := Connect(c, nil); err == nil || !strings.HasPrefix(err.Error(), "lab: ") {
		t.Errorf("nothing: %v", err)
	}
	c.Config.Auth, c.Secrets.TokenID, c.Secrets.Token = "ticket", "ops@pve!t", secret.New("11111111-1111-4111-8111-111111111111")
	if _, err := Connect(c, nil); err == nil {
		t.Error("a ticket without a password is taken from the token")
	}
	c.Config.Auth = ""
	client, err := Connect(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
}

// A restart window that closes between the plan and the restart keeps the
// guest as it is.
func TestWindowClosesBeforeTheRestart(t *testing.T) {
	inBubble(t, func(t *testing.T) { // it begins at midnight, UTC
		for wait, want := range map[time.Duration]apply.Outcome{time.Minute: apply.Done, 2 * time.Hour: apply.Deferred} {
			e := newEstate(t, pvesim.Options{})
			e.cluster("lab", "      reconcile: {restart-policy: window, restart-window: \""+time.Now().UTC().Format("4 15")+" * * * 1h UTC\"}\n")
			force := func(text string) string { // nothing in the guest answers a shutdown
				return strings.Replace(text, "{name: web}", `{name: web, annotations: {proxops/force-stop: "true"}}`, 1)
			}
			e.vms("lab", force(vmText("web", 100, "512MiB")))
			if rep := e.cycleOnce(); rep.Failed() {
				t.Fatal(rep.Abort)
			}
			e.vms("lab", force(vmText("web", 100, "1GiB")))
			rep := e.cycleOnce(func(o *Options) { o.Planned = func(plan.Plan) error { time.Sleep(wait); return nil } })
			var got []apply.Outcome
			if rep.Result != nil {
				for _, a := range rep.Result.Actions {
					if a.Action.Verb == plan.Restart {
						got = append(got, a.Outcome)
					}
				}
			}
			if len(got) != 1 || got[0] != want {
				t.Errorf("after %s: restarts %v, want one that is %s; %v", wait, got, want, rep.Abort)
			}
			e.stop()
		}
	})
}

// As many guests are taken down at once as the cluster's settings say, and no
// more; an option of the caller goes before them.
func TestMaxDisruptions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, c := range []struct{ setting, option, want int }{{1, 0, 1}, {3, 0, 3}, {3, 2, 2}} {
			e := newEstate(t, pvesim.Options{TimeScale: 1})
			e.cluster("lab", fmt.Sprintf("      reconcile: {restart-policy: immediate, max-disruptions: %d}\n", c.setting))
			guests := func(memory string) (docs []string) {
				for i := range 4 {
					name := fmt.Sprint("vm", i)
					docs = append(docs, strings.Replace(vmText(name, 100+i, memory), "{name: "+name+"}", `{name: `+name+`, annotations: {proxops/force-stop: "true"}}`, 1))
				}
				return docs
			}
			e.vms("lab", guests("512MiB")...)
			if rep := e.cycleOnce(); rep.Failed() {
				t.Fatal(rep.Abort)
			}
			e.vms("lab", guests("1GiB")...)
			down, most := 0, 0
			rep := e.cycleOnce(func(o *Options) {
				o.Apply.MaxDisruptions = c.option
				o.Apply.Events = func(ev apply.Event) {
					e.mu.Lock()
					defer e.mu.Unlock()
					if ev.Action.Verb != plan.Restart {
						return
					}
					switch ev.Kind {
					case apply.Started:
						down++
						most = max(most, down)
					case apply.Ended:
						down--
					}
				}
			})
			if rep.Failed() || most != c.want {
				t.Errorf("%+v: %d at once; %v", c, most, rep.Abort)
			}
			e.stop()
		}
	})
}
