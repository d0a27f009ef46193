package apply

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

const (
	del      = "DELETE /nodes/pve01/qemu/100"
	put      = "PUT /nodes/pve01/qemu/100/config"
	shutdown = "POST /nodes/pve01/qemu/100/status/shutdown"
	start    = "POST /nodes/pve01/qemu/100/status/start"
)

var hidden = secret.New("correct horse battery")

func edited(m *machine, edits ...string) *machine {
	for i := 0; i < len(edits); i += 2 {
		m.config[edits[i]] = edits[i+1]
	}
	return m
}

func up(m *machine) *machine {
	m.running = true
	return m
}

// Each thing that may have happened to a guest between the plan and its delete
// keeps the delete from being sent.
func TestDeleteLooksAgain(t *testing.T) {
	unread := map[string]func() reply{"GET /nodes/pve01/qemu/100/pending": func() reply { return reply{500, "timeout reading the config", nil} }}
	for _, tt := range []struct {
		name   string
		guest  *machine // nil = there is none
		answer map[string]func() reply
		want   string
		err    string
	}{
		{"another guest of the same name", edited(ours("100"), "vmgenid", "gen-other"), nil, "Delete deferred", "belongs to another guest"},
		{"another guest with an identity of its own", edited(ours("100"), "smbios1", "uuid=u-other"), nil, "Delete deferred", "also named \"web100\""},
		{"a disk more", edited(ours("100"), "scsi1", "local-lvm:vm-100-disk-1,size=7G"), nil, "Delete deferred", "destroyed with it (local-lvm:vm-100-disk-1): plan again"},
		{"its disk on another storage", edited(ours("100"), "scsi0", "ceph:vm-100-disk-0,size=1G"), nil, "Delete deferred", "destroyed with it (ceph:vm-100-disk-0)"},
		{"a detached disk more", edited(ours("100"), "unused0", "local-lvm:vm-100-disk-9"), nil, "Delete deferred", "vm-100-disk-9"},
		{"another config", func() *machine { m := ours("100"); m.digest++; return m }(), nil, "Delete deferred", "config of guest 100 was changed since the plan"},
		{"the same guest under another name", edited(ours("100"), "name", "payroll"), nil, "Delete deferred", "belongs to another guest"},
		{"locked", edited(ours("100"), "lock", "backup"), nil, "Delete deferred", "is locked (backup)"},
		{"gone or moved away", nil, nil, "Delete deferred", "no longer on pve01"},
		{"not readable", ours("100"), unread, "Delete failed", "timeout reading the config"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{guests: map[string]*machine{}, answer: tt.answer}
				if tt.guest != nil {
					s.guests["100"] = tt.guest
				}
				r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}}, Options{})
				if got := outcomes(r); got != tt.want || !strings.Contains(fmt.Sprint(r.Actions[0].Err), tt.err) {
					t.Errorf("%s: %v, want %s with %q", got, r.Actions[0].Err, tt.want, tt.err)
				}
				if len(s.sent) > 0 {
					t.Errorf("sent %v", s.sent)
				}
			})
		})
	}
}

// A shutdown may last for minutes. Whoever takes the guest over meanwhile keeps
// it.
func TestDeleteLooksAgainAfterTheShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := up(ours("100"))
		s := &scripted{guests: map[string]*machine{"100": g}}
		s.answer = map[string]func() reply{shutdown: func() reply {
			g.running, g.config["tags"] = false, "mine"
			return reply{200, "OK", s.start("qmshutdown", "100")}
		}}
		r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}}, Options{})
		if got := outcomes(r); got != "Delete deferred" || s.wrote(del) > 0 {
			t.Errorf("%s, sent %v: %v", got, s.sent, r.Actions[0].Err)
		}
	})
}

// The volumes and the config are those of the plan after the shutdown too, apart
// from what PVE itself puts into place when the guest stops.
func TestDeleteComparesAfterTheShutdown(t *testing.T) {
	const waits, set = "pending: 2048", "2048"
	for _, tt := range []struct {
		name       string
		edit       func(config map[string]string)
		want, text string
	}{
		{"nothing", func(map[string]string) {}, "Delete done", ""},
		{"what was pending came into place", func(c map[string]string) { c["memory"] = set }, "Delete done", ""},
		{"a disk", func(c map[string]string) { c["scsi1"] = "local-lvm:vm-100-disk-1,size=7G" }, "Delete deferred", "vm-100-disk-1"},
		{"a key less", func(c map[string]string) { delete(c, "cores") }, "Delete deferred", "config of guest 100 was changed"},
		{"another value", func(c map[string]string) { c["cores"] = "4" }, "Delete deferred", "config of guest 100 was changed"},
		{"a key more", func(c map[string]string) { c["description"] = "keep me" }, "Delete deferred", "config of guest 100 was changed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := edited(up(ours("100")), "memory", waits, "cores", "2")
				s := &scripted{guests: map[string]*machine{"100": g}}
				s.answer = map[string]func() reply{
					"GET /nodes/pve01/qemu/100/pending": func() reply {
						list, _, _ := s.guest("GET /pending", "100", g, nil)
						for _, e := range list.([]map[string]any) {
							if e["value"] == waits {
								e["value"], e["pending"] = "1024", set
							}
						}
						return reply{200, "OK", list}
					},
					shutdown: func() reply {
						g.running = false
						g.digest++
						tt.edit(g.config)
						return reply{200, "OK", s.start("qmshutdown", "100")}
					},
				}
				r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}}, Options{})
				if got := outcomes(r); got != tt.want || s.wrote(del) > 0 != (tt.text == "") || !strings.Contains(fmt.Sprint(r.Actions[0].Err), tt.text) {
					t.Errorf("%s, want %s with %q: %v", got, tt.want, tt.text, r.Actions[0].Err)
				}
			})
		})
	}
}

// Under HA the task of a shutdown ends long before the guest is down. It is
// awaited, and nobody's plug is pulled for a delete.
func TestDeleteAwaitsTheShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := up(ours("100"))
		s := &scripted{guests: map[string]*machine{"100": g}}
		s.answer = map[string]func() reply{
			shutdown: func() reply {
				time.AfterFunc(20*time.Second, func() {
					s.mu.Lock()
					defer s.mu.Unlock()
					g.running = false
				})
				return reply{200, "OK", s.start("hashutdown", "100")}
			},
			del: func() reply {
				if g.running {
					return reply{500, "VM 100 is running - destroy failed", nil}
				}
				return reply{200, "OK", s.start("qmdestroy", "100")}
			},
		}
		r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}}, Options{})
		if got := outcomes(r); got != "Delete done" {
			t.Errorf("%s: %v", got, r.Actions[0].Err)
		}
		if form := s.forms[shutdown]; form.Has("forceStop") {
			t.Errorf("the shutdown before a delete is sent %v", form)
		}
	})
}

// PVE ends a delete that left something behind with a warning.
func TestDeleteWithWarnings(t *testing.T) {
	for _, free := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{"100": ours("100")}, exits: map[string]string{"qmdestroy": "WARNINGS: 1"}}
			want := "Delete failed"
			if free {
				want = "Delete warnings"
				s.answer = map[string]func() reply{"GET /cluster/nextid": func() reply { return reply{200, "OK", "100"} }}
			}
			r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}}, Options{})
			if got := outcomes(r); got != want {
				t.Errorf("vmid free: %v: %s, want %s: %v", free, got, want, r.Actions[0].Err)
			}
		})
	}
}

// A delete that PVE calls OK although it left a volume is told with the volume's
// name and what to do.
func TestDeleteTellsWhatStays(t *testing.T) {
	for line, todo := range map[string]string{
		"Could not remove disk 'local-lvm:vm-100-disk-0', check manually: lvremove failed": "(`pvesm free local-lvm:vm-100-disk-0`)",
		"unable to delete something else: busy":                                            "the task's log on pve01",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{"100": ours("100")}, logs: map[string]string{"qmdestroy": line}}
			s.answer = map[string]func() reply{"GET /cluster/nextid": func() reply { return reply{200, "OK", "100"} }}
			r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Delete, 100, deleteStep("100"))}}, Options{})
			a := r.Actions[0]
			if got := outcomes(r); got != "Delete warnings" || !slices.Equal(a.Warnings, []string{line}) || !strings.Contains(a.Todo, todo) {
				t.Errorf("%s: %q → %q: %v", got, a.Warnings, a.Todo, a.Err)
			}
		})
	}
}

// PVE names the task of each of these. An answer that names none is nobody's
// word that the work is done, and nothing else is built on it.
func TestAnswerWithoutATaskIsUnknown(t *testing.T) {
	none := func() reply { return reply{200, "OK", nil} }
	for call, a := range map[string]plan.Action{
		"POST /nodes/pve01/qemu":           action(plan.Create, 101, plan.CreateStep{Guest: "qemu", Start: true}),
		"POST /nodes/pve01/qemu/100/clone": action(plan.Clone, 101, plan.CloneStep{Source: 100}),
		del:                                action(plan.Delete, 100, deleteStep("100")),
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{"100": ours("100")}, answer: map[string]func() reply{call: none}}
			r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{a}}, Options{})
			if got, want := outcomes(r), string(a.Verb)+" unknown"; got != want || len(s.sent) != 1 {
				t.Errorf("%s: %s, want %s: sent %v: %v", call, got, want, s.sent, r.Actions[0].Err)
			}
		})
	}
}

// A level begins when the one before has ended, whether something in it is
// needed by name or not: templates go after the guests.
func TestLevelsFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{guests: map[string]*machine{}, work: map[string]time.Duration{"qmcreate": time.Minute}}
		var p plan.Plan
		for i := range 3 {
			a := action(plan.Create, 100+i, plan.CreateStep{Guest: "qemu"})
			a.Level = i
			p.Actions = append(p.Actions, a)
		}
		if r := Run(t.Context(), s.client(t), p, Options{Parallel: 8}); s.peak["qmcreate"] != 1 {
			t.Errorf("%d levels at a time: %s", s.peak["qmcreate"], outcomes(r))
		}
	})
}

// Every step that makes or grows a volume counts on its storages, in one order
// for all, so that two of them never wait for each other.
func TestLocks(t *testing.T) {
	two := []string{"nvme", "data", "nvme"}
	for _, tt := range []struct {
		step   plan.Step
		shared string
		want   string
	}{
		{plan.DownloadStep{Storage: "local"}, "", "pve01/local"},
		{plan.CreateStep{Storages: two}, "", "pve01/data pve01/nvme"},
		{plan.CloneStep{Storages: two}, "", "pve01/data pve01/nvme"},
		{plan.UpdateStep{Storages: two}, "nvme", "nvme pve01/data"},
		{plan.ResizeStep{Storage: "nvme"}, "nvme", "nvme"},
		{plan.PowerStep{}, "", ""},
	} {
		r := &run{o: Options{Shared: func(s string) bool { return s == tt.shared }}.defaults()}
		if got := strings.Join(r.locks(action(plan.Update, 100, tt.step)), " "); got != tt.want {
			t.Errorf("%T locks %q, want %q", tt.step, got, tt.want)
		}
	}
}

func taking(verb plan.Verb, id int, step plan.PowerStep) plan.Action {
	step.Guest = "qemu"
	a := action(verb, id, step)
	a.Disrupts = true
	return a
}

// Unless told otherwise one guest is down at a time, and none is taken down
// after the window has closed.
func TestFewGuestsAreDown(t *testing.T) {
	for _, open := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{"100": up(ours("100")), "101": up(ours("101"))}, work: map[string]time.Duration{"qmshutdown": time.Minute}}
			var p plan.Plan
			for id := 100; id < 102; id++ {
				a := taking(plan.Restart, id, plan.PowerStep{Start: true, Stop: true})
				a.Windowed = true
				p.Actions = append(p.Actions, a)
			}
			r := Run(t.Context(), s.client(t), p, Options{WindowOpen: func() bool { return open }})
			if open && (outcomes(r) != "Restart done, Restart done" || s.peak["qmshutdown"] != 1) {
				t.Errorf("%s, %d at a time", outcomes(r), s.peak["qmshutdown"])
			}
			if !open && (outcomes(r) != "Restart deferred, Restart deferred" || len(s.sent) > 0) {
				t.Errorf("the window is closed: %s, sent %v", outcomes(r), s.sent)
			}
		})
	}
}

// What the run took down it brings up again when it is interrupted, but not
// when another agent may be at the cluster.
func TestTakenDownComesBack(t *testing.T) {
	for _, tt := range []struct {
		cause  error
		starts int
		want   string
	}{
		{nil, 1, "Restart done"},
		{ErrFenced, 0, "Restart unknown"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{"100": up(ours("100"))}, work: map[string]time.Duration{"qmshutdown": time.Minute}}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(30*time.Second, func() { cancel(tt.cause) })
			r := Run(ctx, s.client(t), plan.Plan{Actions: []plan.Action{taking(plan.Restart, 100, plan.PowerStep{Stop: true, Start: true})}}, Options{})
			if got := outcomes(r); got != tt.want || s.wrote(start) != tt.starts {
				t.Errorf("%v: %s, want %s; sent %v", tt.cause, got, tt.want, s.sent)
			}
		})
	}
}

// A fault of ours at one object is that object's.
func TestPanicIsOneObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{guests: map[string]*machine{"100": ours("100"), "101": ours("101")}}
		r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Update, 100, memory("2048", "d0")), action(plan.Update, 101, memory("2048", "d0"))}},
			Options{Events: func(e Event) {
				if e.Kind == Started && e.Index == 0 {
					panic("a fault")
				}
			}})
		if got := outcomes(r); got != "Update unknown, Update done" {
			t.Errorf("%s", got)
		}
	})
}

// A volume is grown only while its guest is as the plan saw it.
func TestResizeSendsTheDigest(t *testing.T) {
	for digest, want := range map[string]string{"d0": "Resize done, Update done", "stale": "Resize deferred, Update deferred"} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{"100": ours("100")}}
			grow := action(plan.Resize, 100, plan.ResizeStep{Guest: "qemu", Key: "scsi0", Storage: "data", To: wire.GiB, Digest: digest})
			r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{grow, action(plan.Update, 100, memory("2048", digest))}}, Options{})
			if got := outcomes(r); got != want {
				t.Errorf("digest %s: %s, want %s: %v", digest, got, want, r.Actions[0].Err)
			}
		})
	}
}

// A stop of ours may change the digest, since PVE then puts into place what it
// held pending. An edit that somebody made during the stop is not taken for that.
func TestWriteAfterAStopOfOurs(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(config map[string]string)
		want string
	}{
		{"nobody's", func(map[string]string) {}, "Stop done, Update done"},
		{"a value", func(c map[string]string) { c["memory"] = "512" }, "Stop done, Update deferred"},
		{"a new key", func(c map[string]string) { c["onboot"] = "1" }, "Stop done, Update deferred"},
		{"a key less", func(c map[string]string) { delete(c, "memory") }, "Stop done, Update deferred"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := up(ours("100"))
			s := &scripted{guests: map[string]*machine{"100": g}}
			s.answer = map[string]func() reply{shutdown: func() reply {
				g.running = false
				g.digest++
				tt.edit(g.config)
				return reply{200, "OK", s.start("qmshutdown", "100")}
			}}
			r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Stop, 100, plan.PowerStep{Guest: "qemu", Stop: true}), action(plan.Update, 100, memory("2048", "d0"))}}, Options{})
			if got := outcomes(r); got != tt.want {
				t.Errorf("%s edit: %s, want %s: %v", tt.name, got, tt.want, r.Actions[1].Err)
			}
		})
	}
}

// A guest that is locked by now keeps its power state, and the plug is pulled
// where the manifest says so alone.
func TestPowerIsGentle(t *testing.T) {
	stop := func(t *testing.T, s *scripted, force bool) (string, url.Values) {
		r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Stop, 100, plan.PowerStep{Guest: "qemu", Stop: true, Force: force})}}, Options{})
		return outcomes(r), s.forms[shutdown]
	}
	synctest.Test(t, func(t *testing.T) {
		for _, force := range []bool{true, false} {
			got, form := stop(t, &scripted{guests: map[string]*machine{"100": up(ours("100"))}}, force)
			if got != "Stop done" || form.Has("forceStop") != force {
				t.Errorf("force %v: %s, sent %v", force, got, form)
			}
		}
		if got, form := stop(t, &scripted{guests: map[string]*machine{"100": up(edited(ours("100"), "lock", "backup"))}}, false); got != "Stop deferred" || form != nil {
			t.Errorf("locked: %s, sent %v", got, form)
		}
	})
}

// Whether a secret that PVE refused with the rest is in place cannot be seen.
func TestRefusedSecretIsNotInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := plan.UpdateStep{Guest: "qemu", Digest: "d0", Params: wire.Params{{Key: "cipassword", Value: wire.Hidden(hidden)}}}
		s := &scripted{guests: map[string]*machine{"100": edited(ours("100"), "cipassword", hidden.Reveal())}}
		s.answer = map[string]func() reply{put: func() reply { return reply{400, "hotplug problem - scsi3", nil} }}
		r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Update, 100, step)}}, Options{})
		if got := outcomes(r); got != "Update failed" {
			t.Errorf("%s", got)
		}
	})
}

// The tasks of one guest never overlap, whatever its actions are.
func TestOneWriterForEachGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{guests: map[string]*machine{"100": ours("100")}, work: map[string]time.Duration{"qmstart": time.Minute}}
		var order []string
		r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Start, 100, plan.PowerStep{Guest: "qemu", Start: true}), action(plan.Update, 100, memory("2048", "d0"))}},
			Options{Events: func(e Event) {
				if e.Kind != Progress {
					order = append(order, fmt.Sprint(e.Kind, e.Index))
				}
			}})
		if want := []string{"started0", "ended0", "started1", "ended1"}; !slices.Equal(order, want) {
			t.Errorf("%v: %s", order, outcomes(r))
		}
	})
}

// The write after a clone goes out with the digest of the clone as it was read:
// an edit in between is not overwritten. The marker stays then, for the next run.
func TestCloneIsConfiguredAsItWasRead(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{guests: map[string]*machine{"900": {config: map[string]string{"name": "golden", "template": "1", "memory": "1024", "description": "the golden image"}}}}
			want, text := "Clone done", "the golden image"
			if meanwhile {
				want, text = "Clone deferred", plan.CloneMarker
				s.answer = map[string]func() reply{"GET /nodes/pve01/qemu/101/status/current": func() reply { // after its config was read
					s.guests["101"].digest++
					return reply{200, "OK", map[string]any{"status": "stopped"}}
				}}
			}
			step := plan.CloneStep{Source: 900, Resource: vm(t, "node: pve01\n  vmid: 101\n  state: stopped\n  memory: 2GiB\n  cpu: {type: host, cores: 1}\n  disks: []\n  networks: []\n"), Description: "the golden image"}
			step.Params.Set("name", wire.Plain("app"))
			step.Params.Set("description", wire.Plain(plan.CloneMarker))
			r := Run(t.Context(), s.client(t), plan.Plan{Actions: []plan.Action{action(plan.Clone, 101, step)}}, Options{})
			if got := outcomes(r); got != want || s.guests["101"].config["description"] != text {
				t.Errorf("edited meanwhile %v: %s, %v: %v", meanwhile, got, s.guests["101"].config, r.Actions[0].Err)
			}
		})
	}
}

func vm(t *testing.T, spec string) *kind.Resource {
	t.Helper()
	docs, problems := yamldoc.Parse("vm.yaml", []byte("apiVersion: proxops/v1alpha1\nkind: VM\nmetadata:\n  name: app\nspec:\n  "+spec))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	r, problems := kind.Parse("vm.yaml", docs[0])
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return r
}
