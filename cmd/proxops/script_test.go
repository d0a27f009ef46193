package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"proxops": func() { os.Exit(mainExit()) }, "proxops-panics": panics, "proxops-no-room": noRoom})
}

// TestScript runs the stories in testdata/script: the real command line
// against a simulated cluster over HTTPS. Commands of their own:
//
//	sim N [SETTING=VALUE…]   starts a cluster of N nodes (or the recorded state base, lvmthin, offline), puts its
//	                         address into the files (SIM_URL, SIM_FP, FILES_URL) and its token into the environment
//	commit MESSAGE           commits all files; the first one makes the repository
//	po CODE ARG…             runs proxops and expects the exit code
//	simwrites N              expects N write requests since the last simwrites
//	simedit METHOD PATH [KEY=VALUE…]   somebody else's API call; waits for its task
//	simget PATH KEY WANT     expects a value in an API answer (WANT "" is: not there)
//	simgone VMID             expects no such guest
//	simfault FAULT…          injects faults, none without argument
//	simtoken USER ID         makes that user's token the one that proxops uses
//	grant                    carries out the pveum lines that doctor printed last
//	simdestroyed N           expects N volumes to have been destroyed so far
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			st := &stage{}
			e.Values["stage"] = st
			e.Defer(st.close)
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("KEYS", t.TempDir()) // outside of the repository
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"sim": cmdSim, "commit": cmdCommit, "po": cmdPo, "simwrites": cmdWrites, "simedit": cmdEdit,
			"simget": cmdGet, "simgone": cmdGone, "simfault": cmdFault, "simdestroyed": cmdDestroyed,
			"simtoken": cmdToken, "grant": cmdGrant,
		},
	})
}

// stage is what one story plays on.
type stage struct {
	world *pvesim.World
	srv   *pvesim.Server
	files *demoFiles
	token string
	seen  int // requests that simwrites has counted
	own   int // writes of simedit among the rest
}

func stageOf(ts *testscript.TestScript) *stage {
	st := ts.Value("stage").(*stage)
	if st.world == nil {
		ts.Fatalf("no cluster runs: begin with sim")
	}
	return st
}

func (st *stage) close() {
	if st.srv != nil {
		_ = st.srv.Close()
	}
	if st.world != nil {
		st.world.Stop()
	}
	if st.files != nil {
		st.files.close()
	}
	*st = stage{}
}

func cmdSim(ts *testscript.TestScript, _ bool, args []string) {
	st := ts.Value("stage").(*stage)
	st.close()
	if len(args) == 0 {
		ts.Fatalf("usage: sim N | base | lvmthin | offline")
	}
	f := labFlags{recorded: args[0]}
	if n, err := strconv.Atoi(args[0]); err == nil {
		f = labFlags{nodes: n}
	}
	state, line, err := f.build()
	ts.Check(err)
	state.Datacenter = map[string]string{}
	for _, kv := range args[1:] {
		k, v, _ := strings.Cut(kv, "=")
		state.Datacenter[k] = v
	}
	st.world = pvesim.New(pvesim.Options{Seed: 1}, state)
	st.srv, err = st.world.Serve("127.0.0.1:0")
	ts.Check(err)
	st.files, err = serveDemoFiles()
	ts.Check(err)
	st.token = line.Token
	ts.Setenv("PROXOPS_PVE_TOKEN_VALUE", line.Token)
	_, uuid, _ := strings.Cut(line.Token, "=")
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("KEYS"), "token.txt"), []byte(uuid+"\n"), 0o600))
	ts.Setenv("SIM_URL", st.srv.URL)
	ts.Setenv("FILES", st.files.url)
	ts.Setenv("SIM_FP", st.srv.Fingerprint)
	r := strings.NewReplacer("SIM_URL", st.srv.URL, "SIM_FP", st.srv.Fingerprint, "FILES_URL", st.files.url)
	ts.Check(filepath.WalkDir(ts.MkAbs("."), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".yaml") {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(name, []byte(r.Replace(string(b))), 0o644)
	}))
}

func cmdPo(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec("proxops", args[1:]...); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			ts.Fatalf("proxops: %v", err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("proxops %s: exit status %d, want %d\n%s%s", strings.Join(args[1:], " "), got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

func cmdWrites(ts *testscript.TestScript, _ bool, args []string) {
	st := stageOf(ts)
	all := st.world.Requests()
	var writes []string
	for _, r := range all[st.seen:] {
		if r.Method != http.MethodGet && r.Path != "/access/ticket" {
			writes = append(writes, r.Method+" "+r.Path)
		}
	}
	n := len(writes) - st.own
	st.seen, st.own = len(all), 0
	if want, err := strconv.Atoi(args[0]); err != nil || n != want {
		ts.Fatalf("%d writes, want %s:\n%s", n, args[0], strings.Join(writes, "\n"))
	}
}

func cmdFault(ts *testscript.TestScript, _ bool, args []string) {
	faults, err := parseFaults(args)
	ts.Check(err)
	stageOf(ts).world.SetFaults(faults...)
}

func cmdDestroyed(ts *testscript.TestScript, _ bool, args []string) {
	n := 0
	for _, e := range stageOf(ts).world.LedgerEntries() {
		if e.Op == "destroy" {
			n++
		}
	}
	if want, err := strconv.Atoi(args[0]); err != nil || n != want {
		ts.Fatalf("%d volumes were destroyed, want %s", n, args[0])
	}
}

// call is a request of somebody with all rights, who is not proxops.
func (st *stage) call(method, path string, form url.Values) (any, error) {
	body := io.Reader(strings.NewReader(form.Encode()))
	if method == http.MethodGet || method == http.MethodDelete {
		body = nil
		if len(form) > 0 {
			path += "?" + form.Encode()
		}
	}
	req, err := http.NewRequest(method, "https://sim/api2/json"+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Authorization", "PVEAPIToken="+st.token)
	res, err := st.world.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, text)
	}
	var out struct{ Data any }
	err = json.Unmarshal(text, &out)
	return out.Data, err
}

func cmdEdit(ts *testscript.TestScript, _ bool, args []string) {
	st := stageOf(ts)
	form := url.Values{}
	for _, kv := range args[2:] {
		k, v, _ := strings.Cut(kv, "=")
		form.Add(k, v)
	}
	st.own++
	data, err := st.call(args[0], args[1], form)
	ts.Check(err)
	if upid, ok := data.(string); ok && strings.HasPrefix(upid, "UPID:") {
		st.wait(ts, upid)
	}
}

// wait follows a task to its end.
func (st *stage) wait(ts *testscript.TestScript, upid string) {
	node := strings.Split(upid, ":")[1]
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		data, err := st.call(http.MethodGet, "/nodes/"+node+"/tasks/"+url.PathEscape(upid)+"/status", nil)
		ts.Check(err)
		if s := data.(map[string]any); s["status"] == "stopped" {
			if exit := s["exitstatus"]; exit != "OK" {
				ts.Fatalf("%s ended: %v", upid, exit)
			}
			return
		}
	}
	ts.Fatalf("%s does not end", upid)
}

func cmdGet(ts *testscript.TestScript, _ bool, args []string) {
	data, err := stageOf(ts).call(http.MethodGet, args[0], nil)
	ts.Check(err)
	m, ok := data.(map[string]any)
	if !ok {
		ts.Fatalf("%s is no object", args[0])
	}
	got := ""
	if v, ok := m[args[1]]; ok {
		got = fmt.Sprint(v)
	}
	if want := args[2]; got != want && !(strings.HasPrefix(want, "~") && strings.Contains(got, want[1:])) {
		ts.Fatalf("%s %s is %q, want %q", args[0], args[1], got, want)
	}
}

func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	id, err := strconv.Atoi(args[0])
	ts.Check(err)
	stageOf(ts).world.View(func(s *pvesim.State) {
		if there := s.Guests[id] != nil; there != neg {
			ts.Fatalf("guest %d: there=%t", id, there)
		}
	})
}

func cmdCommit(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(commitAll(ts.MkAbs("."), strings.Join(args, " ")))
}

// write makes a folder of files by path.
func writeFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func cmdToken(ts *testscript.TestScript, _ bool, args []string) {
	stageOf(ts).world.View(func(s *pvesim.State) {
		t := s.Access.Users[args[0]].Tokens[args[1]]
		ts.Setenv("PROXOPS_PVE_TOKEN_VALUE", args[0]+"!"+args[1]+"="+t.Secret)
	})
}

// cmdGrant reads the pveum lines of the last output, and does what they say.
func cmdGrant(ts *testscript.TestScript, _ bool, _ []string) {
	for _, line := range strings.Split(ts.ReadFile("stdout"), "\n") {
		w := strings.Fields(line)
		if len(w) < 4 || w[0] != "pveum" {
			continue
		}
		form := []string{}
		for i := 4; i+1 < len(w); i += 2 {
			form = append(form, strings.TrimPrefix(w[i], "--")+"="+strings.Trim(w[i+1], "'"))
		}
		switch w[1] + " " + w[2] {
		case "user add":
			cmdEdit(ts, false, []string{"POST", "/access/users", "userid=" + w[3]})
			continue
		case "user token":
			cmdEdit(ts, false, []string{"POST", "/access/users/" + w[4] + "/token/" + w[5], "privsep=" + w[7]})
			continue
		case "role add":
			cmdEdit(ts, false, append([]string{"POST", "/access/roles", "roleid=" + w[3]}, form...))
		case "role modify":
			cmdEdit(ts, false, append([]string{"PUT", "/access/roles/" + w[3]}, form...))
		case "acl modify":
			cmdEdit(ts, false, append([]string{"PUT", "/access/acl", "path=" + w[3]}, form...))
		default:
			ts.Fatalf("unknown line: %s", line)
		}
	}
}
