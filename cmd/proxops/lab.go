package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
	"github.com/spf13/cobra"
)

// labFlags are the options of lab.
type labFlags struct {
	listen   string
	recorded string
	nodes    int
	seed     uint64
	latency  time.Duration
	pace     float64
	faults   []string
	state    string
	from     string
	conf     string
	guests   int
}

// statLag is how old the figures of /cluster/resources are on a real node at most.
const statLag = 10 * time.Second

// ready is the line that lab prints when it can be used.
type ready struct {
	URL         string `json:"url"`
	Fingerprint string `json:"fingerprint"`
	Token       string `json:"token"` // user@realm!id=secret
	User        string `json:"user"`
	Password    string `json:"password"`
}

func (a *app) labCmd() *cobra.Command {
	f := labFlags{}
	c := &cobra.Command{
		Use: "lab", GroupID: "more", Args: noArgs,
		Short: "Run a simulated PVE cluster to try things on",
		Long: `Serve PVE's API on loopback for a simulated cluster, until Ctrl-C or SIGTERM.
When it is ready it prints one line of JSON: url, fingerprint, token, user and
password. Nothing of it is a real machine.

The estate is fresh (--nodes), random (--guests, with --seed and --nodes), loaded
from PVE's own config files (--conf) or from a snapshot of a real cluster
(--from, see proxops snapshot), or one of the recorded clean states
(--recorded). With --state it survives restarts.

A fault is a list of settings, such as
  --faults error,status=596,p=0.05,method=PUT,path=/nodes/*/qemu/**
  --faults node-down,p=0.001,delay=30s
Kinds are reset, error, slow, lost, truncate, no-worker, task-fail,
task-warn, lock-timeout and node-down; p is the probability [1], count how often at most,
status the answer of error [500], delay the time of slow [5s] and of node-down
[30s]. What happens in a worker has no method and the path
/nodes/NODE/tasks/TYPE. Equal seeds and calls give equal faults.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.lab(cmd, f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:0", "address to serve on; port 0 is any free one")
	fl.StringVar(&f.recorded, "recorded", "", "a recorded clean state: base, lvmthin or offline")
	fl.IntVar(&f.nodes, "nodes", 1, "nodes of the cluster, 1-32")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of everything that is drawn")
	fl.DurationVar(&f.latency, "latency", 0, "added to every call, such as 20ms")
	fl.Float64Var(&f.pace, "pace", 1, "how long tasks take, and how old lists are: 1 as on a real node, 0 no time")
	fl.StringArrayVar(&f.faults, "faults", nil, "a fault to inject; may be given several times")
	fl.StringVar(&f.state, "state", "", "directory that keeps the state over restarts")
	fl.StringVar(&f.from, "from", "", "snapshot file to load the estate from")
	fl.IntVar(&f.guests, "guests", 0, "guests of a random estate, up to 10000")
	fl.StringVar(&f.conf, "conf", "", "directory with PVE's config files (qemu/N.conf, lxc/N.conf) to load guests from")
	for _, shape := range []string{"nodes", "guests"} {
		for _, whole := range []string{"recorded", "conf", "from"} {
			c.MarkFlagsMutuallyExclusive(whole, shape)
		}
	}
	c.MarkFlagsMutuallyExclusive("recorded", "conf", "from")
	_ = c.RegisterFlagCompletionFunc("recorded", cobra.FixedCompletions([]string{"base", "lvmthin", "offline"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) lab(cmd *cobra.Command, f labFlags) error {
	if cmd.Flags().Changed("pace") && f.pace < 0 {
		return hint{err: fmt.Errorf("--pace: %g is less than 0", f.pace)}
	}
	faults, err := parseFaults(f.faults)
	if err != nil {
		return hint{err: err}
	}
	state, line, err := f.open()
	if err != nil {
		return err
	}
	pace, authDelay := f.pace, 3*time.Second
	if f.recorded != "" && !cmd.Flags().Changed("pace") { // the recordings say what happens, not how slowly
		pace, authDelay = 0, 50*time.Millisecond
	}
	w := pvesim.New(pvesim.Options{
		Seed: f.seed, TimeScale: pace, AuthDelay: authDelay, Latency: f.latency, StatLag: time.Duration(pace * float64(statLag)), Faults: faults,
	}, state)
	defer w.Stop()
	if f.state != "" { // before anything is promised
		if err := w.Save(f.state); err != nil {
			return err
		}
	}
	srv, err := w.Serve(f.listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", f.listen, err)
	}
	line.URL, line.Fingerprint = srv.URL, srv.Fingerprint
	if err := json.NewEncoder(a.out).Encode(line); err != nil {
		return errors.Join(err, srv.Close())
	}
	saved := make(chan error, 1)
	go func() { saved <- keep(cmd.Context(), w, f.state) }()
	<-cmd.Context().Done()
	err = srv.Close()
	if serr := <-saved; serr != nil {
		return serr
	}
	w.Stop()
	if f.state != "" {
		err = errors.Join(err, w.Save(f.state))
	}
	return err
}

// keep saves the state now and then, so that a killed lab loses little.
func keep(ctx context.Context, w *pvesim.World, dir string) error {
	if dir == "" {
		return nil
	}
	t := time.NewTicker(5 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if err := w.Save(dir); err != nil {
				return err
			}
		}
	}
}

// open gives the state to begin with and the credentials of its ready line.
func (f labFlags) open() (pvesim.State, ready, error) {
	if f.state != "" {
		s, found, err := pvesim.LoadState(f.state)
		if err != nil {
			return s, ready{}, err
		}
		if found {
			line, err := readCredentials(f.state)
			return s, line, err
		}
	}
	s, line, err := f.build()
	if err != nil || f.state == "" {
		return s, line, err
	}
	if err := os.MkdirAll(f.state, 0o700); err != nil {
		return s, line, err
	}
	b, err := json.Marshal(line)
	if err != nil {
		return s, line, err
	}
	return s, line, writeWhole(credentialsFile(f.state), append(b, '\n'), 0o600)
}

func credentialsFile(dir string) string { return filepath.Join(dir, "credentials.json") }

func readCredentials(dir string) (ready, error) {
	var line ready
	b, err := os.ReadFile(credentialsFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return line, fmt.Errorf("%s: no such file, but a state is there; remove the directory to start afresh", credentialsFile(dir))
	}
	if err != nil {
		return line, err
	}
	if err := json.Unmarshal(b, &line); err != nil {
		return line, fmt.Errorf("%s: is not JSON; remove the directory to start afresh", credentialsFile(dir))
	}
	return line, nil
}

// build makes a state of the flags.
func (f labFlags) build() (pvesim.State, ready, error) {
	switch {
	case f.recorded != "":
		s, err := pvesim.Recorded(f.recorded)
		if err != nil {
			return s, ready{}, fmt.Errorf("--recorded: %w", err)
		}
		t := s.Access.Users["root@pam"].Tokens["full"]
		return s, ready{Token: "root@pam!full=" + t.Secret, User: "root@pam", Password: "pvetest1"}, nil
	case f.from != "":
		s, err := pvesim.LoadSnapshot(f.from)
		if err != nil {
			return s, ready{}, err
		}
		return s, grantRoot(&s), nil
	case f.conf != "":
		s, err := pvesim.LoadConf(f.conf)
		if err != nil {
			return s, ready{}, err
		}
		return s, grantRoot(&s), nil
	}
	if f.nodes < 1 || f.nodes > 32 {
		return pvesim.State{}, ready{}, hint{err: fmt.Errorf("--nodes: %d is not in 1-32", f.nodes)}
	}
	if f.guests < 0 || f.guests > 10000 {
		return pvesim.State{}, ready{}, hint{err: fmt.Errorf("--guests: %d is not in 0-10000", f.guests)}
	}
	s := plainEstate(f.nodes)
	if f.guests > 0 {
		s = pvesim.Estate(f.seed, f.guests, f.nodes)
	}
	return s, grantRoot(&s), nil
}

// grantRoot gives root@pam a password and a token, both drawn.
func grantRoot(s *pvesim.State) ready {
	u := &pvesim.User{ID: "root@pam", Enabled: true}
	password, secret := rand.Text(), drawUUID()
	u.SetPassword(password)
	u.Tokens = map[string]*pvesim.Token{"lab": {ID: "lab", Secret: secret}}
	if s.Access.Users == nil {
		s.Access.Users = map[string]*pvesim.User{}
	}
	s.Access.Users[u.ID] = u
	return ready{Token: "root@pam!lab=" + secret, User: u.ID, Password: password}
}

// drawUUID is a random (version 4) uuid, as PVE's token secrets are.
func drawUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
