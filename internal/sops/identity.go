package sops

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"
)

// NewIdentity makes an age key pair, writes the private half to a new file of
// mode 0600 and gives the recipient. It refuses a path inside a git work tree,
// where a private key is one commit away from being public, and a path where
// something is already (ErrExists).
func NewIdentity(path string) (recipient string, err error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", at(path, osFault(ErrNotWritten, "not a usable path", err))
	}
	if tree, in := gitWorkTree(filepath.Dir(abs)); in {
		return "", at(path, fault(ErrNotWritten, "", "is inside the git work tree "+tree+": keep the private key outside every repository"))
	}
	if err := os.MkdirAll(filepath.Dir(abs), 0o700); err != nil {
		return "", at(path, osFault(ErrNotWritten, "its directory cannot be made", err))
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return "", at(path, osFault(ErrNotWritten, "no key could be generated", err))
	}
	if _, err := os.Lstat(abs); err == nil {
		return "", at(path, identityThere())
	}
	recipient = id.Recipient().String()
	text := fmt.Sprintf("# created: %s\n# public key: %s\n%s\n", time.Now().Format(time.RFC3339), recipient, id)
	if err := writeOnce(abs, text); errors.Is(err, fs.ErrExist) {
		return "", at(path, identityThere())
	} else if err != nil {
		return "", at(path, osFault(ErrNotWritten, "not writable", err))
	}
	return recipient, syncDir(filepath.Dir(abs))
}

func identityThere() error {
	return fault(ErrExists, "", "already exists and is left as it is: use it, or name another file")
}

// writeOnce makes a file of mode 0600 that is there whole or not at all, and
// never replaces one: a key file that a crash left half written would be in the
// way of every later try.
func writeOnce(abs, text string) error {
	f, err := os.CreateTemp(filepath.Dir(abs), "."+filepath.Base(abs)) // of mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), abs); err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Rename(f.Name(), abs) // a file system without hard links
}

// gitWorkTree finds the work tree that holds dir, which need not exist yet.
// A linked work tree and a submodule have a .git file, not a directory.
func gitWorkTree(dir string) (string, bool) {
	for {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir, true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", false
		}
		dir = up
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	_ = d.Sync() // some file systems cannot sync a directory; the rename is done
	return nil
}
