// Command proxops makes live Proxmox VE clusters match a git repository.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker in released builds.
var version = ""

func main() { os.Exit(mainExit()) }

// mainExit runs the command line and gives the exit code. The first Ctrl-C or
// SIGTERM ends the context; a second one ends the process at once.
func mainExit() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sig := make(chan os.Signal, 2)
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM)
	// Without this a reader that goes away, as in proxops apply | head, would
	// end the process in the middle of a write to PVE.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		<-sig
		cancel()
		<-sig
		os.Exit(130)
	}()
	return run(ctx, system{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ()}, os.Args[1:])
}
