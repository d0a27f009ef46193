package reconcile

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

// lines collects a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take gives the lines with a part, and forgets all.
func (l *lines) take(part string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			out = append(out, line)
		}
	}
	l.text.Reset()
	return out
}

// Uncommitted edits are not booked on the commit, neither good nor bad ones; an
// action says why it was done.
func TestLogsUncommittedEdits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "lab")
		defer e.stop()
		e.vms("lab", vmText("web", 100, "512MiB"))
		commit := e.repository()
		commit()
		var log lines
		o := e.options()
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		expect := func(when, part string, dirty, aborted bool) {
			t.Helper()
			got, rep := log.take(part), e.last("lab") // of several, as a file is read while it is written, the last counts
			if len(got) == 0 || strings.Contains(got[len(got)-1], "uncommitted_edits=true") != dirty || rep.Dirty != dirty || (rep.Abort != nil) != aborted || rep.Commit == "" {
				t.Errorf("%s: dirty %v, commit %q, %v: %s", when, rep.Dirty, rep.Commit, rep.Abort, got)
			}
		}
		e.run(o, func(d *Daemon) {
			time.Sleep(5 * time.Minute)
			if made := log.take("msg=action"); len(made) == 0 || !strings.Contains(made[0], " why=") {
				t.Errorf("the action does not say why: %v", made)
			}
			for _, c := range []struct {
				memory, part    string
				commits, aborts bool
			}{{"1GiB", `msg=cycle `, false, false}, {"1GiB", `msg=cycle `, true, false}, {"-3", `msg="cycle broke off`, false, true}, {"-4", `msg="cycle broke off`, true, true}} {
				e.vms("lab", vmText("web", 100, c.memory))
				if c.commits {
					commit()
				}
				time.Sleep(5 * time.Minute)
				expect(c.memory, c.part, !c.commits, c.aborts)
			}
		})
	})
}

// At the usual level each cluster says once how it stands, and again when that
// changes; what goes on as before is silent.
func TestLogsWhatIsNew(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := newEstate(t, pvesim.Options{}, "work")
		e.cluster("look", "      reconcile: {read-only: true}\n")
		defer e.stop()
		var log lines
		o := e.options()
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		expect := func(when string, work, look int) {
			t.Helper()
			all := log.take("msg=cycle ")
			count := map[bool]int{}
			for _, l := range all {
				count[strings.Contains(l, "cluster=work")]++
			}
			if count[true] != work || count[false] != look {
				t.Errorf("%s: %d and %d lines, want %d and %d:\n%s", when, count[true], count[false], work, look, strings.Join(all, ""))
			}
		}
		e.run(o, func(d *Daemon) {
			time.Sleep(10 * time.Minute)
			expect("at the start", 1, 1) // work is made in the first cycle
			e.world("work").View(func(s *pvesim.State) { s.Guests[100].Config["memory"] = "2048" })
			time.Sleep(5 * time.Minute)
			expect("after an edit", 1, 0)
			e.vms("look", vmText("web", 100, "512MiB"), vmText("db", 101, "512MiB"))
			time.Sleep(5 * time.Minute)
			expect("after a new declaration", 0, 1)
		})
	})
}
