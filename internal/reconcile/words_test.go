package reconcile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/gitrepo"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
)

// What git's word leaves open keeps the guest, and says what to do.
func TestDoubt(t *testing.T) {
	names, kinds := []string{"a"}, []string{"LXC", "VM"}
	for _, c := range []struct {
		word gitrepo.Word
		rule string
		has  string
	}{
		{gitrepo.Word{Verdict: gitrepo.Removed, Names: names, Kinds: kinds}, "", ""},
		{gitrepo.Word{Verdict: gitrepo.Uncommitted, Names: names, Kinds: kinds}, "", ""},
		{gitrepo.Word{Verdict: gitrepo.Never}, "", ""},
		{gitrepo.Word{Verdict: gitrepo.Unasked}, "", ""},
		{gitrepo.Word{Verdict: gitrepo.Removed}, "unknown-name", "the name that was declared is not known"},
		{gitrepo.Word{Verdict: gitrepo.Uncommitted, Kinds: kinds}, "unknown-name", "the name that was declared is not known"},
		{gitrepo.Word{Verdict: gitrepo.Removed, Names: names, Kinds: []string{"", "VM"}}, "unknown-name", "the kind that was declared is not known"},
		{gitrepo.Word{Verdict: gitrepo.Removed, Names: names, Kinds: []string{"ISO"}}, "unknown-name", "the kind that was declared is not known"},
		{gitrepo.Word{Verdict: gitrepo.Named}, "still-named", "still names this vmid"},
		{gitrepo.Word{Verdict: gitrepo.Aside, Names: names, Kinds: kinds}, "declared-aside", "never declared it"},
	} {
		h := doubt(c.word)
		switch {
		case c.rule == "" && h != nil:
			t.Errorf("%+v: held, %s", c.word, h.Text)
		case c.rule != "" && (h == nil || h.Rule != c.rule || !strings.Contains(h.Text, c.has) || h.Todo == ""):
			t.Errorf("%+v: %+v, want %s", c.word, h, c.rule)
		}
	}
}

// An uncommitted removal counts when each cycle saw it, on the same head, at
// looks that lie an interval apart.
func TestSightings(t *testing.T) {
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	type cycle struct {
		after time.Duration // the look, since the first
		every time.Duration
		head  string
		ids   []int // nil = the cycle did not come to ask
		want  []int
	}
	const poll = 30 * time.Second
	for name, cycles := range map[string][]cycle{
		"twice":              {{0, poll, "a", []int{1}, nil}, {poll, poll, "a", []int{1}, []int{1}}},
		"soon after":         {{0, poll, "a", []int{1}, nil}, {time.Second, poll, "a", []int{1}, nil}, {poll - 1, poll, "a", []int{1}, nil}, {poll, poll, "a", []int{1}, []int{1}}},
		"the same look":      {{0, poll, "a", []int{1}, nil}, {0, poll, "a", []int{1}, nil}},
		"another one":        {{0, poll, "a", []int{1}, nil}, {poll, poll, "a", []int{1, 2}, []int{1}}, {2 * poll, poll, "a", []int{2}, []int{2}}},
		"there in between":   {{0, poll, "a", []int{1}, nil}, {poll, poll, "a", []int{}, nil}, {2 * poll, poll, "a", []int{1}, nil}},
		"broken in between":  {{0, poll, "a", []int{1}, nil}, {poll, poll, "a", nil, nil}, {2 * poll, poll, "a", []int{1}, nil}},
		"another head":       {{0, poll, "a", []int{1}, nil}, {poll, poll, "b", []int{1}, nil}, {2 * poll, poll, "b", []int{1}, []int{1}}},
		"a very short poll":  {{0, time.Second, "a", []int{1}, nil}, {time.Second, time.Second, "a", []int{1}, nil}, {settleAtLeast, time.Second, "a", []int{1}, []int{1}}},
		"a look that is old": {{poll, poll, "a", []int{1}, nil}, {0, poll, "a", []int{1}, nil}},
	} {
		var s sightings
		for i, c := range cycles {
			if c.ids != nil {
				got := s.settled(at.Add(c.after), c.every, c.head, c.ids)
				for _, id := range c.ids {
					if got[id] != slices.Contains(c.want, id) {
						t.Errorf("%s: cycle %d: %d settled: %v", name, i, id, got[id])
					}
				}
			}
			s.ended()
		}
	}
}

// rules are what keeps the guests of a plan from being deleted.
func rules(rep Report) string {
	var out []string
	for _, s := range rep.Plan.Suppressed {
		out = append(out, fmt.Sprint(s.VMID, " ", s.Rule))
	}
	return strings.Join(out, ", ")
}

func deleteCount(rep Report) (n int) {
	for _, a := range rep.Plan.Actions {
		if a.Verb == plan.Delete {
			n++
		}
	}
	return n
}

// withOld is an estate whose cluster was made as committed: web, whose manifest
// is given, and old.
func withOld(t *testing.T) (e *estate, commit func() string, web string) {
	t.Helper()
	e = newEstate(t, pvesim.Options{}, "lab")
	commit = e.repository()
	web = vmText("web", 100, "512MiB")
	e.vms("lab", web, vmText("old", 101, "512MiB"))
	commit()
	if rep := e.cycleOnce(); rep.Failed() {
		t.Fatal(rep.Abort)
	}
	return e, commit, web
}

// No guest is deleted for files that are older than they should be or that git
// is changing; a person who asks for one cycle otherwise gets it at once.
func TestUnsettledFilesDeleteNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e, commit, web := withOld(t)
		defer e.stop()
		look := func(o *Options) { o.Write = false }
		tagged := func(o *Options) { o.Write = false; o.Policy = func(p *plan.Policy) { p.Prune = "tagged" } }
		lock := filepath.Join(e.dir, ".git", "index.lock")
		since := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
		e.vms("lab", web)
		for _, when := range []string{"in the work tree", "in a commit"} {
			if when == "in a commit" {
				commit()
			}
			for _, how := range []func(*Options){look, tagged} {
				if err := os.WriteFile(lock, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if rep := e.cycleOnce(how); rules(rep) != "101 git-underway" || deleteCount(rep) != 0 {
					t.Errorf("%s, under git's lock: %v, %s", when, rep.Abort, rules(rep))
				}
				if err := os.Remove(lock); err != nil {
					t.Fatal(err)
				}
				rep := e.cycleOnce(how, func(o *Options) { o.Stale, o.StaleSince = true, since })
				if rules(rep) != "101 stale" || deleteCount(rep) != 0 || !strings.Contains(rep.Plan.Suppressed[0].Text, "since 2026-03-01T09:00:00Z") {
					t.Errorf("%s, not fetched: %v, %+v", when, rep.Abort, rep.Plan.Suppressed)
				}
				if rep := e.cycleOnce(how); deleteCount(rep) != 1 {
					t.Errorf("%s: a person asked: %v, %s", when, rep.Abort, rules(rep))
				}
			}
			waits := func(o *Options) {
				o.Write, o.Settled = false, func(string, []int) map[int]bool { return nil }
			}
			want := map[string]string{"in the work tree": "101 just-removed"}[when]
			if rep := e.cycleOnce(waits); rules(rep) != want {
				t.Errorf("%s: %s, want %q", when, rules(rep), want)
			}
		}
	})
}

// A checkout that ends while the cycle is under way was read in the middle.
func TestWorkTreeThatMovedDeletesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e, commit, web := withOld(t)
		defer e.stop()
		e.vms("lab", web)
		rep := e.cycleOnce(func(o *Options) {
			connect := o.Connect
			o.Connect = func(c *repo.Cluster) (*pve.Client, error) {
				e.vms("lab", web, vmText("old", 101, "512MiB"), vmText("new", 102, "512MiB"))
				commit()
				return connect(c)
			}
		})
		if rules(rep) != "101 git-underway" || deleteCount(rep) != 0 {
			t.Errorf("%v, %s", rep.Abort, rules(rep))
		}
	})
}

// A daemon takes an edit of a work tree for meant when it lasts: half written
// files delete nothing, whoever makes it look. A commit is meant at once.
func TestDaemonWaitsForUncommittedRemovals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "lab")
		defer e.stop()
		commit := e.repository()
		stopped := func(name string, vmid int) string {
			return strings.Replace(vmText(name, vmid, "512MiB"), "state: started", "state: stopped", 1)
		}
		all := []string{stopped("web", 100), stopped("one", 101), stopped("two", 102), stopped("three", 103)}
		e.vms("lab", all...)
		commit()
		gone := func(vmid int) bool {
			return slices.ContainsFunc(e.writes("lab"), func(w string) bool {
				return strings.HasPrefix(w, "DELETE ") && strings.HasSuffix(w, fmt.Sprint("/qemu/", vmid))
			})
		}
		e.run(e.options(), func(d *Daemon) {
			time.Sleep(2 * time.Minute)
			e.vms("lab", all[:1]...) // an editor writes the file in two parts
			for range 5 {
				d.Kick("test")
				time.Sleep(time.Second)
			}
			if rep := *e.last("lab"); rules(rep) != "101 just-removed, 102 just-removed, 103 just-removed" {
				t.Errorf("seen in quick succession: %v, %s", rep.Abort, rules(rep))
			}
			e.vms("lab", all...)
			time.Sleep(2 * time.Minute)
			if gone(101) || gone(102) || gone(103) {
				t.Fatalf("a half written file deletes: %v", e.writes("lab"))
			}
			e.vms("lab", all[:3]...)
			time.Sleep(20 * time.Second)
			e.vms("lab", "no: [manifest\n") // and is still at it
			time.Sleep(2 * time.Minute)
			e.vms("lab", all[:3]...)
			d.Kick("test")
			time.Sleep(5 * time.Second)
			if gone(103) {
				t.Error("files that were broken in between count as the same")
			}
			time.Sleep(3 * time.Minute)
			if !gone(103) || gone(101) || gone(102) {
				t.Errorf("an edit that lasts: %s, %v", rules(*e.last("lab")), e.writes("lab"))
			}
			e.vms("lab", all[:2]...)
			commit()
			d.Kick("test")
			time.Sleep(5 * time.Second)
			if !gone(102) || gone(101) {
				t.Errorf("a commit: %s", rules(*e.last("lab")))
			}
		})
	})
}

// What git knows of a removed declaration reaches the plan: a guest whose
// declaration was never readable, or was of the other type, is not deleted.
func TestWhatGitKnowsReachesThePlan(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		web, old := vmText("web", 100, "512MiB"), vmText("old", 101, "512MiB")
		for name, c := range map[string]struct{ committed, rules, anomaly string }{
			"as it is":      {old, "", ""},
			"never read":    {"<<<<<<< HEAD\n" + old, "101 unknown-name", ""},
			"the other way": {strings.Replace(old, "kind: VM", "kind: LXC", 1), "", "was of LXC old"},
		} {
			e := newEstate(t, pvesim.Options{}, "lab")
			commit := e.repository()
			e.vms("lab", web)
			e.write("clusters/lab/resources.yaml", "resources: [vm/lab/vms.yaml, vm/lab/old.yaml]\n")
			e.write("vm/lab/old.yaml", c.committed)
			commit()
			e.write("vm/lab/old.yaml", old) // made from an edit that is never committed
			if rep := e.cycleOnce(); rep.Failed() {
				t.Fatal(rep.Abort)
			}
			e.write("clusters/lab/resources.yaml", "resources: [vm/lab/vms.yaml]\n")
			if err := os.Remove(filepath.Join(e.dir, "vm/lab/old.yaml")); err != nil {
				t.Fatal(err)
			}
			commit()
			rep := e.cycleOnce(func(o *Options) { o.Write = false })
			if want := name == "as it is"; rules(rep) != c.rules || (deleteCount(rep) == 1) != want {
				t.Errorf("%s: %v, %d deletes, %s", name, rep.Abort, deleteCount(rep), rules(rep))
			}
			if text := fmt.Sprint(rep.Plan.Anomalies); !strings.Contains(text, c.anomaly) {
				t.Errorf("%s: %s", name, text)
			}
			e.stop()
		}
	})
}
