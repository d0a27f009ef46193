// Command pvesim runs the simulator alone, in one of the recorded clean states, and prints one JSON line when it is ready.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pvesim:", err)
		os.Exit(1)
	}
}

func run() error {
	recorded := flag.String("recorded", "base", "the clean state to begin with: base, lvmthin or offline")
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	state := flag.String("state", "", "directory that keeps the state over restarts")
	authDelay := flag.Duration("auth-delay", 50*time.Millisecond, "how long refused log-ins and dead neighbours take (PVE: 3s)")
	scale := flag.Float64("time-scale", 0, "pace of tasks: 1 is about a real node's, 0 instant")
	flag.Parse()
	s, err := pvesim.Recorded(*recorded)
	if err != nil {
		return err
	}
	if *state != "" {
		if old, found, err := pvesim.LoadState(*state); err != nil {
			return err
		} else if found {
			s = old
		}
	}
	w := pvesim.New(pvesim.Options{Seed: 1, AuthDelay: *authDelay, TimeScale: *scale}, s)
	srv, err := w.Serve(*listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	err = json.NewEncoder(os.Stdout).Encode(map[string]string{
		"url": srv.URL, "fingerprint": srv.Fingerprint, "user": "root@pam", "password": "pvetest1", "token": "root@pam!full=11111111-1111-4111-8111-111111111111",
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	if err := srv.Close(); err != nil {
		return err
	}
	w.Stop()
	if *state != "" {
		return w.Save(*state)
	}
	return nil
}
