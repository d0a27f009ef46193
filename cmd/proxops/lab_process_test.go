package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/wire"
)

// labProcess starts lab as a process of its own.
func labProcess(t *testing.T, args ...string) (ready, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("proxops", append([]string{"lab"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	text, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("lab %v: %v %q", args, err, text)
	}
	var line ready
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return line, cmd
}

// TestLabKilled: whenever a lab is killed, what it saved last is there again,
// whole, under the same credentials, and nothing is drawn a second time.
func TestLabKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	args := []string{"--state", dir, "--pace", "0", "--guests", "60", "--nodes", "2"}
	macs := map[string]int{}
	token := ""
	for round := range 4 {
		line, cmd := labProcess(t, args...)
		if token == "" {
			token = line.Token
		}
		if line.Token != token {
			t.Fatalf("round %d: another token", round)
		}
		c := labClient(t, line, false, "pve01")
		n := 0
		all, err := c.Reader().Resources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.IsGuest() {
				n++
			}
		}
		if n < 60 {
			t.Errorf("round %d: %d guests are left", round, n)
		}
		node, err := c.Node("pve01")
		if err != nil {
			t.Fatal(err)
		}
		id := 9000 + round
		if _, err := node.CreateGuest(t.Context(), pve.QEMU, id, wire.Params{{Key: "net0", Value: wire.Plain("virtio,bridge=vmbr0")}}); err != nil {
			t.Fatal(err)
		}
		cfg, err := c.Reader().Pending(t.Context(), "pve01", pve.QEMU, id)
		if err != nil {
			t.Fatal(err)
		}
		e, _ := cfg.Get("net0")
		if was, twice := macs[*e.Value]; twice {
			t.Errorf("guests %d and %d have the same %s", was, id, *e.Value)
		}
		macs[*e.Value] = id
		time.Sleep(time.Duration(round) * 1700 * time.Millisecond) // the fourth is killed just as it saves
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	// Litter of a save that was cut short is no state, and goes away.
	litter := filepath.Join(dir, "state-123")
	if err := os.WriteFile(litter, []byte(`{"Nodes": [`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, cmd := labProcess(t, args...)
	if _, err := os.Stat(litter); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the litter is still there: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
}

// TestLabFlags: what cannot go together, and what cannot be.
func TestLabFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--recorded base --nodes 2", "recorded"},
		{"--recorded base --guests 5", "recorded"},
		{"--recorded base --conf .", "recorded"},
		{"--recorded base --from x", "recorded"},
		{"--conf . --from x", "conf"},
		{"--from x --guests 2", "from"},
		{"--recorded nosuch", "nosuch"},
		{"--nodes 0", "1-32"},
		{"--guests 10001", "0-10000"},
		{"--pace -1", "--pace"},
		{"--conf /nonexistent", "/nonexistent"},
		{"--from /nonexistent", "/nonexistent"},
		{"--listen 127.0.0.1:99999", "--listen"},
		{"--faults burn", "burn"},
	} {
		var out, errs strings.Builder
		if code := run(t.Context(), system{out: &out, err: &errs}, append([]string{"lab"}, strings.Fields(c.args)...)); code != 1 || out.Len() > 0 || !strings.Contains(errs.String(), c.want) {
			t.Errorf("lab %s: exit status %d, said %q; want %q", c.args, code, errs.String(), c.want)
		}
	}
	line, stop := startLab(t, "--latency", "40ms", "--listen", "localhost:0")
	defer stop()
	r := labClient(t, line, false, "pve01").Reader()
	begin := time.Now()
	if _, err := r.Nodes(t.Context()); err != nil || time.Since(begin) < 40*time.Millisecond {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
}

// TestLabSession runs what docs/lab.md says can be pasted.
func TestLabSession(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for tasks")
	}
	for _, tool := range []string{"bash", "curl", "jq", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "lab.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sh lab\n(.*?)^```$").FindAllStringSubmatch(string(b), -1)
	if len(blocks) < 2 {
		t.Fatalf("%d blocks of a session in docs/lab.md", len(blocks))
	}
	script := "set -eo pipefail\ntrap 'kill $LAB 2>/dev/null || true' EXIT\n"
	for _, m := range blocks {
		script += m[1]
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	for _, want := range []string{`{"node":"pve01","status":"online"}`, `{"storage":"local-lvm","type":"lvmthin"`, `"scsi0": "local-lvm:vm-100-disk-0,size=4G"`, "Parameter verification failed.",
		"net0.vlan: property is not defined in schema", "0 actions"} {
		if !strings.Contains(text, want) {
			t.Errorf("the session does not show %s:\n%s", want, text)
		}
	}
	if macs := regexp.MustCompile(`virtio=(BC:24:11:[0-9A-F:]{8}),bridge=vmbr0`).FindAllStringSubmatch(text, -1); len(macs) < 2 || macs[0][1] == macs[len(macs)-1][1] {
		t.Errorf("no new MAC is shown: %v", macs)
	}
}

// TestLabConf: what the API answers for real config files is what stands in
// them, read here a second time and in the simplest way.
func TestLabConf(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "cases", "configs")
	if _, err := os.Stat(dir); err != nil {
		dir = t.TempDir()
		writeFiles(t, dir, map[string]string{
			"qemu/117.conf": "# a note\nagent: 1\ncores: 2\nmemory: 1024\nname: odd\nscsi0: tank:vm-117-disk-0,size=8G\nvga: std\n[PENDING]\ncores: 4\n[s1]\ncores: 1\n",
			"lxc/118.conf":  "arch: amd64\nhostname: c\nmp0: /srv,mp=/srv\nrootfs: tank:subvol-118-disk-0,size=8G\nlxc.mount.auto: sys\n",
		})
	}
	line, stop := startLab(t, "--conf", dir)
	defer stop()
	r := labClient(t, line, true, "pve01").Reader()
	compared := 0
	for _, kind := range []pve.GuestType{pve.QEMU, pve.LXC} {
		files, err := filepath.Glob(filepath.Join(dir, string(kind), "*.conf"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			id := 0
			if _, err := fmt.Sscanf(filepath.Base(file), "%d.conf", &id); err != nil {
				continue
			}
			if id < 100 {
				id += map[pve.GuestType]int{pve.QEMU: 1000, pve.LXC: 2000}[kind]
			}
			var got map[string]any
			if err := r.Get(t.Context(), fmt.Sprintf("/nodes/pve01/%s/%d/config?current=1", kind, id), nil, &got); err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			for k, v := range simplestConf(t, file) {
				if have, ok := got[k]; ok && fmt.Sprint(have) != v && !sameList(fmt.Sprint(have), v) {
					t.Errorf("%s: %s is %v, the file has %s", file, k, have, v)
				} else if ok {
					compared++
				}
			}
		}
	}
	if compared < 5 {
		t.Errorf("%d values were compared", compared)
	}
}

// simplestConf reads the first section of a config file; the last line wins.
func simplestConf(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(line, "[") {
			break
		}
		k, v, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok && !strings.ContainsAny(k, "#. ") && k != "description" && k != "cipassword" {
			out[k] = strings.TrimSpace(v)
		}
	}
	return out
}

// sameList says whether two property strings hold the same tokens in any
// order, sizes in any unit, and the words for booleans for their digits.
func sameList(a, b string) bool {
	norm := func(s string) map[string]bool {
		m := map[string]bool{}
		for _, p := range strings.Split(s, ",") {
			p = strings.TrimPrefix(strings.TrimPrefix(p, "file="), "volume=")
			k, v, pair := strings.Cut(p, "=")
			if pair && k == "size" {
				n, err := wire.ReadSize(v)
				if err == nil {
					v = fmt.Sprint(n)
				}
			}
			switch v {
			case "on", "yes", "true":
				v = "1"
			case "off", "no", "false":
				v = "0"
			}
			m[k+"="+v] = true
		}
		return m
	}
	x, y := norm(a), norm(b)
	for k := range x {
		if !y[k] {
			return false
		}
	}
	return len(x) == len(y)
}
