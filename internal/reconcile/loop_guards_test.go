package reconcile

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/proxops/proxops/internal/apply"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/repo"
)

// What makes clusters look again at once, and what does not.
func TestDiffers(t *testing.T) {
	loaded := func(errs ...error) map[string]repo.Loaded {
		return map[string]repo.Loaded{"a": {Name: "a", Err: errs[0]}, "b": {Name: "b", Err: errs[1]}}
	}
	fault := errors.New("x")
	base := Desired{Commit: "1", Clusters: []string{"a", "b"}, loaded: loaded(nil, nil)}
	for name, c := range map[string]struct {
		change func(*Desired)
		want   bool
	}{
		"nothing":            {func(*Desired) {}, false},
		"a commit":           {func(d *Desired) { d.Commit = "2" }, true},
		"a cluster":          {func(d *Desired) { d.Clusters = []string{"a"} }, true},
		"all broke":          {func(d *Desired) { d.Err = fault }, true},
		"one's files broke":  {func(d *Desired) { d.loaded = loaded(nil, fault) }, true},
		"the time of a look": {func(d *Desired) { d.At, d.Stale = time.Now(), true }, false},
	} {
		now := base
		c.change(&now)
		if got := now.differs(base); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := base.differs(now); got != c.want {
			t.Errorf("%s, back: %v", name, got)
		}
	}
	if _, err := base.load("c"); err == nil || !strings.Contains(err.Error(), `"c" is no longer declared`) {
		t.Errorf("a cluster that is not there: %v", err)
	}
	broken := base
	broken.Err = fault
	if c, err := broken.load("a"); c != nil || !errors.Is(err, fault) {
		t.Errorf("a repository that cannot be read: %v, %v", c, err)
	}
	local := Desired{local: true, Settings: &repo.Settings{}}
	local.Settings.PollInterval = time.Minute
	if local.nextLook() != 30*time.Second || (Desired{}).nextLook() != defaultEvery {
		t.Errorf("looks at %s and %s", local.nextLook(), (Desired{}).nextLook())
	}
}

// While the repository cannot be read no cluster counts as gone, and who hears
// of the clusters hears when they change, not with each look.
func TestClustersStayWhileNothingIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "a", "b")
		defer e.stop()
		o := e.options()
		var heard []string
		o.Declared = func(list []string) { heard = append(heard, strings.Join(list, " ")) }
		e.run(o, func(d *Daemon) {
			time.Sleep(5 * time.Minute)
			d.adjust(t.Context(), Desired{Err: errors.New("unreadable")})
			time.Sleep(time.Minute)
			if got := d.Clusters(); len(got) != 2 {
				t.Errorf("loops run for %v", got)
			}
			e.write("proxops.yaml", "git: [\n")
			n, m := e.count("a"), e.count("b")
			time.Sleep(5 * time.Minute)
			if e.count("a") == n || e.count("b") == m || len(d.Clusters()) != 2 {
				t.Errorf("a repository that cannot be read ends loops: %v", d.Clusters())
			}
			if n := e.stands("a").Failures; n != 0 {
				t.Errorf("faults of files count as %d failures of the cluster", n)
			}
			if rep := e.last("a"); !rep.BadFiles || len(rep.Objects) != 1 {
				t.Errorf("%v, %d objects are known", rep.Abort, len(rep.Objects))
			}
		})
		if d := cmp.Diff([]string{"a b"}, heard); d != "" {
			t.Error(d)
		}
	})
}

// An action waits for a held one of its own object, by node and id, and for no
// other's.
func TestHeldBackByObject(t *testing.T) {
	on := func(node, id string) plan.Action {
		return plan.Action{Verb: plan.Download, Ref: kind.Ref{Kind: "ISO", Name: "a"}, Node: node, ID: id}
	}
	other := on("pve01", "1")
	other.Ref.Name = "b"
	first := []apply.ActionResult{{Action: on("pve01", "1"), Outcome: apply.Failed, Err: ErrHeld}}
	none := func(plan.Action) error { return nil }
	for name, c := range map[string]struct {
		a    plan.Action
		held bool
	}{"the same": {on("pve01", "1"), true}, "another node": {on("pve02", "1"), false}, "another id": {on("pve01", "2"), false}, "another object": {other, false}} {
		if err := heldBack(c.a, 1, first, none); (err != nil) != c.held {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A held action says what it failed with; what was deferred, or tried no more,
// is remembered no longer than it is planned.
func TestHoldsRemember(t *testing.T) {
	inBubble(t, func(*testing.T) {
		var h holds
		a := act("a", plan.Update)
		learn := func(r apply.ActionResult) {
			r.Action = a
			h.learn(&Report{Finished: time.Now(), Result: &apply.Result{Actions: []apply.ActionResult{r}}}, time.Minute)
		}
		learn(apply.ActionResult{Outcome: apply.Failed, Err: errors.New("old fault")})
		learn(apply.ActionResult{Outcome: apply.Failed, Err: errors.New("new fault")})
		if err := h.hold(a); err == nil || !strings.Contains(err.Error(), "new fault") || !strings.Contains(err.Error(), "failed 2 times") {
			t.Errorf("%v", err)
		}
		learn(apply.ActionResult{Outcome: apply.Deferred, Err: errors.New("busy")})
		learn(apply.ActionResult{Outcome: apply.Failed, Err: h.hold(a)})
		h.learn(&Report{}, time.Minute) // a cycle that applied nothing
		if err := h.hold(a); err == nil || !strings.Contains(err.Error(), "failed 2 times") {
			t.Errorf("after it was held: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := h.hold(a); err != nil {
			t.Errorf("its time has come: %v", err)
		}
		for range 20 {
			learn(apply.ActionResult{Outcome: apply.Failed, Err: errors.New("x")})
		}
		time.Sleep(maxHold)
		if err := h.hold(a); err != nil {
			t.Errorf("held for longer than %s: %v", maxHold, err)
		}
		a.Changes = []field.Change{{Key: "memory"}}
		learn(apply.ActionResult{Outcome: apply.Deferred})
		if len(h.list) != 0 {
			t.Errorf("%d actions are remembered that are not planned any more", len(h.list))
		}
	})
}

// A fault of who hears of cycles costs a loop a round, not its life.
func TestLoopOutlivesItsListeners(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "lab")
		defer e.stop()
		o := e.options()
		told := 0
		o.Finished = func(*Report, *Report) {
			if told++; told == 1 {
				panic("a listener")
			}
		}
		e.run(o, func(*Daemon) { time.Sleep(10 * time.Minute) })
		if told < 10 {
			t.Errorf("%d cycles in ten minutes", told)
		}
	})
}

// What one look cannot read is taken from the one before, with the reason:
// nothing counts as gone.
func TestLookThatBreaksOff(t *testing.T) {
	before := Desired{Commit: "1", Source: "/repo", Clusters: []string{"a", "b"}, Settings: &repo.Settings{}, Dirty: true}
	for name, open := range map[string]func() (*repo.Repo, error){
		"a panic": func() (*repo.Repo, error) { panic("index out of range") },
		"a fault": func() (*repo.Repo, error) { return nil, errors.New("index out of range") },
	} {
		now := newSource(open, nil, slog.New(slog.DiscardHandler)).read(t.Context(), before)
		if now.Err == nil || !strings.Contains(now.Err.Error(), "index out of range") || now.At.IsZero() {
			t.Errorf("%s: %v at %s", name, now.Err, now.At)
		}
		if now.Commit != "1" || now.Source != "/repo" || len(now.Clusters) != 2 || now.Settings != before.Settings || !now.Dirty {
			t.Errorf("%s: what was known is lost: %+v", name, now)
		}
	}
}

// A file of allowed signers that changed, came or went makes the repository be
// opened anew.
func TestSameFile(t *testing.T) {
	info := func(text string, at time.Time) os.FileInfo {
		name := filepath.Join(t.TempDir(), "signers")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	at := time.Unix(1000, 0)
	one := info("one", at)
	for name, c := range map[string]struct {
		a, b os.FileInfo
		want bool
	}{"none": {nil, nil, true}, "came": {nil, one, false}, "went": {one, nil, false}, "same": {one, info("one", at), true},
		"longer": {one, info("longer", at), false}, "later": {one, info("two", at.Add(1)), false}} {
		if got := sameFile(c.a, c.b); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
