package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

// startLab runs lab until stop, and gives its ready line.
func startLab(t *testing.T, args ...string) (line ready, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	errs := &watched{line: make(chan struct{}, 1)}
	go func() {
		ended <- run(ctx, system{out: w, err: errs, environ: []string{}}, append([]string{"lab"}, args...))
		w.Close()
	}()
	if err := json.NewDecoder(r).Decode(&line); err != nil {
		cancel()
		t.Fatalf("lab %v: %v: %s", args, err, errs)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return line, func() int { cancel(); return <-ended }
}

func labClient(t *testing.T, line ready, ticket bool, nodes ...string) *pve.Client {
	t.Helper()
	id, uuid, _ := strings.Cut(line.Token, "=")
	auth := pve.Credentials{TokenID: id, TokenSecret: secret.New(uuid)}
	if ticket {
		auth = pve.Credentials{User: line.User, Password: secret.New(line.Password)}
	}
	c, err := pve.New(pve.Config{Name: "lab", Endpoints: []string{line.URL}, Nodes: nodes, Fingerprint: line.Fingerprint, Auth: auth})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestLabReadyLine: what the line says lets a client in, with either kind of
// credentials, on every kind of estate.
func TestLabReadyLine(t *testing.T) {
	conf := t.TempDir()
	writeFiles(t, conf, map[string]string{"qemu/117.conf": "cores: 2\nmemory: 1024\nname: odd\nscsi0: tank:vm-117-disk-0,size=8G\n"})
	for _, c := range []struct {
		args   []string
		node   string
		guests int
	}{
		{[]string{"--nodes", "3"}, "pve03", 0},
		{[]string{"--recorded", "lvmthin"}, "pve01", 0},
		{[]string{"--guests", "40", "--nodes", "2", "--seed", "7"}, "", 40},
		{[]string{"--conf", conf}, "pve01", 1},
	} {
		line, stop := startLab(t, c.args...)
		for _, ticket := range []bool{false, true} {
			guests := 0
			r := labClient(t, line, ticket, "pve01").Reader()
			all, err := r.Resources(t.Context())
			if err != nil {
				t.Fatalf("%v: %v", c.args, err)
			}
			node := c.node == ""
			for _, x := range all {
				if x.IsGuest() {
					guests++
				}
				node = node || x.Type == "node" && x.Node == c.node
			}
			if !node || guests != c.guests {
				t.Errorf("%v: node %s: %t, %d guests, want %d", c.args, c.node, node, guests, c.guests)
			}
		}
		if code := stop(); code != 0 {
			t.Errorf("%v: ended with %d", c.args, code)
		}
	}
}

// TestLabState: a lab that was stopped goes on where it was, under the same
// credentials.
func TestLabState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first, stop := startLab(t, "--state", dir, "--pace", "0")
	node, err := labClient(t, first, false, "pve01").Node("pve01")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.CreateGuest(t.Context(), pve.QEMU, 100, wire.Params{{Key: "name", Value: wire.Plain("kept")}}); err != nil {
		t.Fatal(err)
	}
	if code := stop(); code != 0 {
		t.Fatalf("ended with %d", code)
	}
	if st, err := os.Stat(filepath.Join(dir, "credentials.json")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("credentials: %v", err)
	}
	second, stop := startLab(t, "--state", dir, "--pace", "0")
	defer stop()
	if first.Token != second.Token || first.Password != second.Password {
		t.Error("the credentials changed")
	}
	if cfg, err := labClient(t, second, true, "pve01").Reader().Pending(t.Context(), "pve01", pve.QEMU, 100); err != nil {
		t.Error(err)
	} else if e, _ := cfg.Get("name"); e.Value == nil || *e.Value != "kept" {
		t.Errorf("got %+v", cfg)
	}
}

func TestLabFaults(t *testing.T) {
	line, stop := startLab(t, "--faults", "error,status=596,path=/version,count=1", "--faults", "slow,delay=30ms,path=/nodes")
	defer stop()
	r := labClient(t, line, false, "pve01").Reader()
	if _, err := r.Version(t.Context()); err != nil {
		t.Errorf("one 596 is to be repeated: %v", err)
	}
	if n := r.Stats().Retries; n != 1 {
		t.Errorf("%d repeats, want 1", n)
	}
	begin := time.Now()
	if _, err := r.Nodes(t.Context()); err != nil || time.Since(begin) < 30*time.Millisecond {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
	for text, want := range map[string]string{
		"burn":               `"burn" is not one of reset, error, slow`,
		"error,p=2":          `p: "2" is not a probability in 0-1`,
		"error,p=NaN":        `p: "NaN" is not a probability`,
		"error,status=200":   `status: "200" is not a status in 400-599`,
		"slow,delay=long":    `delay: "long" is not a duration`,
		"reset,path=nodes":   `path: "nodes" is not an API path`,
		"reset,method=PATCH": `method: "PATCH" is not one of GET`,
		"reset,count=-1":     `count: "-1" is not a number from 0`,
		"reset,often=yes":    `"often" is not one of p, count`,
	} {
		if _, err := parseFaults([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
