package pve

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

// upidAt is the id of a task that starts now.
func upidAt(kind, id, user string) string {
	return fmt.Sprintf("UPID:pve01:00002AED:00182183:%08X:%s:%s:%s:", time.Now().Unix(), kind, id, user)
}

// taskServer answers one write with a task that runs for a while.
type taskServer struct {
	upid      string
	runs      time.Duration
	exit      string
	log       []string
	ended     time.Time
	writes    int
	polls     int
	lost      bool // the write's answer is lost
	listed    bool // the task list shows the task
	failPolls int
	other     bool // the task in the list was another clone's
}

func (s *taskServer) RoundTrip(r *http.Request) (*http.Response, error) {
	p := r.URL.Path
	switch {
	case r.Method != http.MethodGet:
		s.writes++
		s.ended = time.Now().Add(s.runs)
		s.upid = upidAt("qmclone", "100", "ops@pve!git")
		if s.lost {
			return nil, resetError()
		}
		return data(s.upid), nil
	case strings.HasSuffix(p, "/status"):
		if s.polls++; s.failPolls > 0 {
			s.failPolls--
			return reply(595, "No route to host", ""), nil
		}
		if time.Now().Before(s.ended) {
			return data(map[string]any{"upid": s.upid, "status": "running"}), nil
		}
		return data(map[string]any{"upid": s.upid, "status": "stopped", "exitstatus": s.exit}), nil
	case strings.HasSuffix(p, "/log"):
		var lines []map[string]any
		for i, l := range s.log {
			lines = append(lines, map[string]any{"n": i + 1, "t": l})
		}
		return data(lines), nil
	case strings.HasSuffix(p, "/qemu/101/config"):
		if s.other {
			return die("Configuration file 'nodes/pve01/qemu-server/101.conf' does not exist"), nil
		}
		return data(map[string]any{"digest": "d"}), nil
	case strings.HasSuffix(p, "/tasks"):
		var list []map[string]any
		if s.listed && s.upid != "" {
			list = append(list, map[string]any{"upid": s.upid, "type": "qmclone", "id": "100", "starttime": time.Now().Unix(), "user": "ops@pve", "tokenid": "git"})
		}
		return data(list), nil
	}
	return die("unexpected " + p), nil
}

func TestTasksAreFollowedToTheirEnd(t *testing.T) {
	for _, x := range []struct {
		name     string
		s        taskServer
		kind     Kind
		says     string
		warnings string
	}{
		{name: "ok", s: taskServer{runs: 10 * time.Minute, exit: "OK"}},
		{name: "warnings", s: taskServer{runs: time.Second, exit: "WARNINGS: 1", log: []string{"start", "WARN: no efidisk configured! Using temporary efivars disk.", "TASK WARNINGS: 1"}},
			warnings: "WARN: no efidisk configured! Using temporary efivars disk."},
		{name: "failure", s: taskServer{exit: "clone failed: copy failed: exit code 1", log: []string{"drive-scsi0: transferred 1 GiB", "TASK ERROR: x"}},
			kind: KindTaskFailed, says: "copy failed: exit code 1\n    drive-scsi0: transferred 1 GiB"},
		{name: "locked", s: taskServer{exit: "VM is locked (backup)"}, kind: KindBusy, says: "VM is locked (backup)"},
		{name: "too long", s: taskServer{runs: time.Hour, exit: "OK"}, kind: KindTaskTimeout, says: "still runs after 30m0s"},
		{name: "node away for a while", s: taskServer{runs: time.Minute, exit: "OK", failPolls: 6}},
		{name: "node away", s: taskServer{runs: time.Minute, exit: "OK", failPolls: 1e6}, kind: KindUnknownOutcome, says: "cannot be followed"},
		{name: "answer lost, task found", s: taskServer{runs: time.Minute, exit: "OK", lost: true, listed: true}},
		{name: "answer lost, task found, failed", s: taskServer{runs: time.Minute, exit: "no space", lost: true, listed: true}, kind: KindTaskFailed, says: "no space"},
		{name: "answer lost, another clone's task found", s: taskServer{runs: time.Minute, exit: "OK", lost: true, listed: true, other: true}, kind: KindUnknownOutcome, says: "not repeated blindly"},
		{name: "answer lost, no task", s: taskServer{lost: true}, kind: KindUnknownOutcome, says: "not repeated blindly"},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := x.s
				c := inProcess(t, tokenAuth(), s.RoundTrip)
				start := time.Now()
				res, err := mustNode(t, c).Clone(t.Context(), QEMU, 100, 101, nil)
				if x.kind != "" {
					if e := wantKind(t, err, x.kind); !strings.Contains(e.Error(), x.says) || NothingApplied(e) {
						t.Errorf("%v", err)
					}
				} else if err != nil {
					t.Fatal(err)
				} else if res.UPID != UPID(s.upid) || res.Exit != s.exit || res.Duration < s.runs {
					t.Errorf("%+v", res)
				}
				if strings.Join(res.Warnings, "|") != x.warnings {
					t.Errorf("warnings %q", res.Warnings)
				}
				if s.writes != 1 {
					t.Errorf("%d writes", s.writes)
				}
				if took := time.Since(start); x.kind == "" && took > s.runs+20*time.Second || s.polls > int(took/time.Second)+10 {
					t.Errorf("%d polls in %s", s.polls, took)
				}
			})
		})
	}
}

// The context ends the waiting, not the task.
func TestCancelLeavesTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &taskServer{runs: time.Hour, exit: "OK"}
		c := inProcess(t, tokenAuth(), s.RoundTrip)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		_, err := mustNode(t, c).Clone(ctx, QEMU, 100, 101, nil)
		e := wantKind(t, err, KindCanceled)
		if NothingApplied(e) || e.UPID != UPID(s.upid) || s.writes != 1 {
			t.Errorf("%v, %d writes", e, s.writes)
		}
	})
}

// A foreign task of the same kind on the same guest is not taken for ours.
func TestFindTaskTakesOnlyOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		row := func(kind, user string, at time.Time) map[string]any {
			return map[string]any{"type": kind, "id": "100", "starttime": at.Unix(),
				"upid": fmt.Sprintf("UPID:pve01:00002AED:00182183:%08X:%s:100:%s:", at.Unix(), kind, user)}
		}
		list := []map[string]any{row("qmstart", "ops@pve!git", now), row("qmclone", "root@pam", now), row("qmclone", "ops@pve", now), row("qmclone", "ops@pve!git", now.Add(-time.Hour))}
		c := inProcess(t, tokenAuth(), func(*http.Request) (*http.Response, error) { return data(list), nil })
		if got, found, err := c.FindTask(t.Context(), "pve01", 100, "qmclone", now); found || err != nil {
			t.Errorf("%+v %v", got, err)
		}
		list = append(list, row("qmclone", "ops@pve!git", now.Add(time.Second)))
		got, found, err := c.FindTask(t.Context(), "pve01", 100, "qmclone", now)
		if !found || err != nil {
			t.Fatal(err)
		}
		c.core.followed.add(got.UPID)
		if _, found, _ := c.FindTask(t.Context(), "pve01", 100, "qmclone", now); found {
			t.Error("a task that was followed already is found again")
		}
	})
}

func TestHooksHearOfTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &taskServer{runs: 10 * time.Second, exit: "OK", log: []string{"one " + canary, "two"}}
		var global, local []TaskEvent
		c := inProcess(t, tokenAuth(), s.RoundTrip, func(cfg *Config) { cfg.OnTask = func(e TaskEvent) { global = append(global, e) } })
		ctx := WithTaskHook(t.Context(), func(e TaskEvent) { local = append(local, e) })
		if _, err := mustNode(t, c).Clone(ctx, QEMU, 100, 101, nil); err != nil {
			t.Fatal(err)
		}
		if len(global) < 3 || len(local) != len(global) {
			t.Fatalf("%d and %d events", len(global), len(local))
		}
		if last := local[len(local)-1]; !last.Ended || last.Exit != "OK" {
			t.Errorf("%+v", last)
		}
		if text := fmt.Sprint(local); strings.Contains(text, canary) {
			t.Errorf("a secret is shown: %s", text)
		}
	})
}

func TestBusy(t *testing.T) {
	lock := "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout"
	storage := "cfs-lock 'storage-x' error: got lock request timeout"
	for _, x := range []struct {
		name, text, digest string
		fails, writes      int
		kind               Kind
	}{
		{"guest's lock file", lock, "", 2, 3, ""},
		{"guest's lock file for ever", lock, "", 99, busyTries, KindBusy},
		{"storage's lock with digest", storage, "d", 1, 2, ""},
		{"storage's lock without digest: may be half applied", storage, "", 1, 1, KindBusy},
		{"backup", "VM is locked (backup)", "d", 1, 1, KindBusy},
		{"digest", "checksum mismatch (file change by other user?)", "d", 1, 1, KindConflict},
		{"other", "no options specified", "d", 1, 1, KindRefused},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				writes := 0
				c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
					if writes++; writes <= x.fails {
						return die(x.text), nil
					}
					return data(nil), nil
				})
				_, err := mustNode(t, c).UpdateConfig(t.Context(), QEMU, 100, nil, x.digest)
				if x.kind == "" && err != nil || x.kind != "" && !Is(err, x.kind) || writes != x.writes {
					t.Errorf("%d writes, %v", writes, err)
				}
			})
		})
	}
}

func TestTemplateOfContainer(t *testing.T) {
	for _, x := range []struct {
		name          string
		task, exit    string
		template, bad bool
	}{
		{name: "task seen", task: "vztemplate", exit: "OK"},
		{name: "task failed", task: "vztemplate", exit: "no space", bad: true},
		{name: "task not visible", template: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var posted time.Time
				late := func() bool { return time.Since(posted) > 3*time.Second }
				c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
					switch p := r.URL.Path; {
					case r.Method == http.MethodPost:
						posted = time.Now()
						return data(nil), nil
					case strings.HasSuffix(p, "/tasks"):
						if x.task == "" || !late() {
							return data([]any{}), nil
						}
						return data([]any{map[string]any{"type": x.task, "id": "200", "upid": upidAt(x.task, "200", "ops@pve!git"), "starttime": time.Now().Unix()}}), nil
					case strings.HasSuffix(p, "/config"):
						if x.template && late() {
							return data(map[string]any{"template": 1}), nil
						}
						return data(map[string]any{"memory": 512}), nil
					case strings.HasSuffix(p, "/log"):
						return data([]any{}), nil
					}
					return data(map[string]any{"status": "stopped", "exitstatus": x.exit}), nil
				})
				_, err := mustNode(t, c).MarkTemplate(t.Context(), LXC, 200)
				if (err != nil) != x.bad || !late() {
					t.Error(err)
				}
			})
		})
	}
}

// PVE may repeat what it was sent; what is shown must not.
func TestSecretsAreScrubbed(t *testing.T) {
	c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
		_ = r.ParseForm()
		return reply(400, "Parameter verification failed.", `{"data":null,"message":"got '`+r.Form.Get("cipassword")+`'","errors":{"cipassword":"bad value '`+r.Form.Get("cipassword")+`'"}}`), nil
	})
	_, err := mustNode(t, c).UpdateConfig(background(t), QEMU, 100, wire.Params{{Key: "cipassword", Value: wire.Hidden(secret.New("hunter2" + canary))}}, "")
	e := wantKind(t, err, KindInvalid)
	if text := fmt.Sprintf("%v %#v", e, e.Params); strings.Contains(text, "hunter2") || !strings.Contains(text, "(redacted)") {
		t.Error(text)
	}
}

// The same for answers to reads and logins, and for hashes of passwords that
// another process had sent.
func TestEchoesAreScrubbed(t *testing.T) {
	hash := "$6$WMR3wrCPacn/8HL2$OKPGqbw3/DOBaGemwFWj1LH8a9.S6elem0.f532mVzTs6SrRKpdDKPM9z3/LNEddm/vodVJZHU9OqQ7mixKWq0"
	for name, auth := range map[string]Credentials{"token": tokenAuth(), "ticket": passwordAuth()} {
		c := inProcess(t, auth, func(r *http.Request) (*http.Response, error) {
			_ = r.ParseForm()
			said := r.Header.Get("Authorization") + r.Form.Get("password") + " " + hash
			return reply(400, "no "+said, `{"data":null,"message":"got '`+said+`'","errors":{"password":"bad value '`+said+`'"}}`), nil
		})
		_, err := c.Version(background(t))
		e, ok := As(err)
		if text := fmt.Sprintf("%v %+v", err, e); !ok || strings.Contains(text, canary) || strings.Contains(text, "$6$") || !strings.Contains(text, "(redacted)") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// What one write sent does not come back in another's answer.
func TestEarlierSecretsAreScrubbed(t *testing.T) {
	said := ""
	c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
		_ = r.ParseForm()
		said += r.Form.Get("password")
		return reply(500, "no", `{"data":null,"message":"last time '`+said+`'"}`), nil
	})
	n := mustNode(t, c)
	_, err := n.UpdateConfig(background(t), LXC, 200, wire.Params{{Key: "password", Value: wire.Hidden(secret.New("hunter2"))}}, "")
	_, err2 := n.Start(background(t), LXC, 201)
	_, err3 := c.Version(background(t))
	if text := fmt.Sprint(err, err2, err3); strings.Contains(text, "hunter2") || strings.Count(text, "(redacted)") < 3 {
		t.Error(text)
	}
}

// A download whose answer is lost is found by its file's name.
func TestLostDownloadIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, name := range []string{"a.iso", "other.iso"} {
			var upid string
			c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
				switch p := r.URL.Path; {
				case r.Method == http.MethodPost:
					upid = upidAt("download", name, "ops@pve!git")
					return nil, resetError()
				case strings.HasSuffix(p, "/tasks"):
					return data([]any{map[string]any{"upid": upid, "type": "download", "id": name, "starttime": time.Now().Unix()}}), nil
				}
				return data(map[string]any{"status": "stopped", "exitstatus": "OK"}), nil
			})
			_, err := mustNode(t, c).Download(t.Context(), "local", params("url", "https://example.net/a.iso", "content", "iso", "filename", "a.iso"))
			if found := err == nil; found != (name == "a.iso") || !found && !Is(err, KindUnknownOutcome) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
