package sops

import "golang.org/x/sys/unix"

// isMemory reports whether a directory is on a file system that lives in
// memory. It may still be swapped out, as the process itself may.
func isMemory(dir string) bool {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return false
	}
	return st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC
}
