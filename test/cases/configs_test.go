package cases_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/proxops/proxops/internal/pvesim"
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
	onConfs(t, func(l *lab, ids []int) {
		before := l.census()
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
	})
}

// A composition that owns little of each guest changes that and nothing else:
// the tag that claims it, and one harmless field.
func TestOddConfigsOneField(t *testing.T) {
	onConfs(t, func(l *lab, ids []int) {
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
		if rep.Result != nil {
			for _, a := range rep.Result.Actions {
				if a.Err != nil {
					l.Errorf("guest %s: %s: %v", a.Action.ID, a.Outcome, a.Err)
				}
			}
		}
		after := l.census()
		for _, id := range ids {
			was, now := before.guests[id], after.guests[id]
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
		l.fails = false
		l.settled(ms...)
	})
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
	cpu := vol0(strings.TrimPrefix(c["cpu"], "cputype="))
	if cpu == "" {
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
