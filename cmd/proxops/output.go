package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/term"
)

// output is standard output that remembers what could not be written: a full
// disk must not look like an empty plan.
type output struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// fault is the first error of a write.
func (o *output) fault() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// lost is the exit code of a command whose output was not all written, after
// saying so. A reader that has enough, such as head, needs no telling.
func (o *output) lost(errs io.Writer, code int) int {
	err := o.fault()
	if err == nil {
		return code
	}
	if !errors.Is(err, syscall.EPIPE) && code != 1 {
		fmt.Fprintf(errs, "error: the output is incomplete: %v\n", err)
	}
	return 1
}

// plain is the writer that the process was given: a terminal is known by its
// file.
func plain(w io.Writer) io.Writer {
	if o, ok := w.(*output); ok {
		return o.w
	}
	return w
}

func isTerminal(w io.Writer) bool {
	f, ok := plain(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
