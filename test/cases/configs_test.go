package cases_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/wire"
)

// confDirs are directories of PVE's own config files: our copies of odd
// constructs, and the collection of real ones where it is at hand.
func confDirs(t *testing.T) []string {
	dirs := []string{"testdata/conf"}
	if real := "../../../shared/cases/configs"; exists(real) {
		dirs = append(dirs, real)
	}
	for i, d := range dirs {
		abs, err := filepath.Abs(d)
		if err != nil {
			t.Fatal(err)
		}
		dirs[i] = abs
	}
	return dirs
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// onConfs runs f on a cluster made of each directory's config files.
func onConfs(t *testing.T, f func(l *lab, ids []int)) {
	for _, dir := range confDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			repo := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s, err := pvesim.LoadConf(dir)
				if err != nil {
					t.Fatal(err)
				}
				var ids []int
				for id := range s.Guests {
					ids = append(ids, id)
				}
				slices.Sort(ids)
				l := newLab(t, repo, pvesim.Options{Seed: 1}, s)
				defer l.w.Stop()
				f(l, ids)
			})
		})
	}
}

// An empty composition reads odd guests and does nothing to them.
func TestOddConfigsAreLeftAlone(t *testing.T) {
	onConfs(t, func(l *lab, ids []int) { l.leftAlone(ids) })
}

// A composition that owns little of each guest changes that and nothing else:
// the tag that claims it, and one harmless field.
func TestOddConfigsOneField(t *testing.T) {
	onConfs(t, func(l *lab, ids []int) { l.oneField(ids) })
}

// The same holds for any config that comes of calls which PVE takes: keys and
// values are drawn from PVE's schema, not from our fields.
func TestDrawnConfigs(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { drawnConfigs(t, seed) })
	}
}

// FuzzConfigs is TestDrawnConfigs with any seed.
func FuzzConfigs(f *testing.F) {
	f.Add(uint64(100))
	f.Fuzz(drawnConfigs)
}

func drawnConfigs(t *testing.T, seed uint64) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, dir, pvesim.Options{Seed: seed}, state(t, mirror))
		defer l.w.Stop()
		d := &dice{rand.New(rand.NewPCG(seed, 3))}
		ids := []int{100, 101, 110, 111}
		taken := 0
		for _, id := range ids {
			if id < 110 {
				l.make("qemu", id, "name", "a")
			} else {
				l.make("lxc", id, "hostname", "b", "rootfs", "local-lvm:1")
			}
			taken += l.byHand(d, id, 40)
			if d.yes() {
				_, _ = l.try(rootToken, "POST", l.path(id)+"/status/start")
				l.drain()
				taken += l.byHand(d, id, 10)
			}
			l.history(d, id)
		}
		if taken < 40 {
			t.Errorf("PVE took %d calls only: the guests are too plain", taken)
		}
		l.readable(ids)
		l.leftAlone(ids)
		l.oneField(ids)
	})
}

// readable holds that every text of a guest is written again as it was read,
// and that each of its tokens can be set to what it is without changing it.
func (l *lab) readable(ids []int) {
	l.Helper()
	for _, id := range ids {
		for key, text := range l.conf(id) {
			p := wire.ParseProps(text, wire.FormatOf(strings.Contains(l.path(id), "/lxc/"), key))
			for _, t := range p.Tokens() {
				p.Set(t.Key, t.Value)
			}
			if p.String() != text {
				l.Errorf("guest %d: %s: %q is written as %q", id, key, text, p.String())
			}
		}
	}
}

func (l *lab) leftAlone(ids []int) {
	l.Helper()
	before, policy := l.census(), l.policy
	l.policy = nil
	rep := l.apply()
	l.wantVerbs(rep, "")
	if rep.Writes != 0 || len(rep.Plan.Anomalies) != 0 {
		l.Errorf("%d writes; %s", rep.Writes, text(rep))
	}
	after := l.census()
	for _, id := range ids {
		if print(before.guests[id]) != print(after.guests[id]) {
			l.Errorf("guest %d changed", id)
		}
	}
	l.policy = policy
}

func (l *lab) oneField(ids []int) {
	l.Helper()
	before := l.census()
	var ms []string
	for _, id := range ids {
		if before.guests[id]["template"] != "1" {
			ms = append(ms, minimal(l, id, before.guests[id]))
		}
	}
	l.fails = true
	rep := l.apply(ms...)
	for _, e := range rep.Plan.Errors {
		l.Errorf("%s: %s: %s", e.File, e.Path, e.Text)
	}
	if rep.Abort != nil {
		l.Errorf("aborted: %v", rep.Abort)
	}
	if rep.Result != nil {
		for _, a := range rep.Result.Actions {
			if a.Err != nil {
				l.Errorf("guest %s: %s: %v", a.Action.ID, a.Outcome, a.Err)
			}
		}
	}
	after := l.census()
	for _, id := range ids {
		l.changedOnly(id, before.guests[id], after.guests[id])
	}
	l.fails = false
	l.settled(ms...)
}

func (l *lab) changedOnly(id int, was, now pvesim.Section) {
	l.Helper()
	for _, key := range append(was.Keys(), now.Keys()...) {
		switch {
		case was[key] == now[key], key == "onboot", key == "tags":
		case (key == "name" || key == "hostname") && was[key] == "": // a name is always owned
		case was["template"] == "1":
			l.Errorf("template %d was written: %s", id, key)
		default:
			l.Errorf("guest %d: %s was %q, is %q", id, key, was[key], now[key])
		}
	}
	busy := was["lock"] != ""
	if was["template"] != "1" && !busy && now["onboot"] != flip(was["onboot"]) {
		l.Errorf("guest %d: onboot was %q, is %q", id, was["onboot"], now["onboot"])
	}
}

func flip(onboot string) string {
	if onboot == "1" {
		return "0"
	}
	return "1"
}

// minimal is a manifest of what a guest is required to declare, as it is live,
// and onboot the other way round.
func minimal(l *lab, id int, c pvesim.Section) string {
	onboot := "options: {onboot: " + map[string]string{"0": "false", "1": "true"}[flip(c["onboot"])] + "}"
	mem := strings.TrimPrefix(c["memory"], "current=")
	if mem == "" {
		mem = "512"
	}
	state := "state: stopped"
	if l.running(id) {
		state = "state: started"
	}
	var kind string
	l.edit(id, func(g *guest) { kind = g.Kind })
	note := []string{`proxops/claim: "true"`}
	if kind == "lxc" {
		root := vol0(c["rootfs"])
		size := "8GiB"
		for p := range strings.SplitSeq(c["rootfs"], ",") {
			if v, ok := strings.CutPrefix(p, "volume="); ok {
				root = v
			}
			if v, ok := strings.CutPrefix(p, "size="); ok && strings.Trim(v, "0123456789") != "" {
				size = v
			}
		}
		storage, _, _ := strings.Cut(root, ":")
		if storage == "" {
			storage = "local-lvm"
		}
		return noted(spec("LXC", fmt.Sprintf("g%d", id), id, "memory: "+mem+"MiB", "root: {storage: "+storage+", size: "+size+"}", onboot, state, hostname(c)), note...)
	}
	cpu, ok := wire.ParseProps(c["cpu"], wire.FormatOf(false, "cpu")).Get("cputype")
	if !ok {
		cpu = "kvm64"
	}
	cores := c["cores"]
	if cores == "" {
		cores = "1"
	}
	name := ""
	if n := c["name"]; n != "" {
		name = "pve-name: '" + n + "'"
	}
	text := spec("VM", fmt.Sprintf("g%d", id), id, "memory: "+mem+"MiB", "cpu: {type: "+cpu+", cores: "+cores+"}", onboot, state, name)
	return noted(text, note...)
}

func hostname(c pvesim.Section) string {
	if h := c["hostname"]; h != "" {
		return "dns: {hostname: " + h + "}"
	}
	return ""
}
