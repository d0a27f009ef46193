package cases_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

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

type guest = pvesim.Guest

// print is a config, key by key in order.
func print(s pvesim.Section) string {
	var b strings.Builder
	for _, k := range s.Keys() {
		fmt.Fprintf(&b, "%s: %s\n", k, s[k])
	}
	return b.String()
}
