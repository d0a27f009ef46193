//go:build unix

package sops

import (
	"errors"
	"os"
	"syscall"
)

// gone reports whether no process has the id.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// mine reports whether the file is this user's own.
func mine(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}
