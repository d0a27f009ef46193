package sops

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	upstream "github.com/getsops/sops/v3"
	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"

	"github.com/proxops/proxops/internal/secret"
)

// formatVersion goes into the sops block of a new file: the release whose
// format this is.
const formatVersion = "3.13.3"

// lockWait is how long a command waits for another one to finish its edit.
const lockWait = 10 * time.Second

// Create writes a new encrypted file of mode 0600. It never overwrites
// (ErrExists). initial is the plaintext; absent, an empty skeleton is taken.
func Create(path string, recipients []string, initial secret.Text) error {
	return at(path, withLock(context.Background(), path, func() error {
		if _, err := os.Lstat(path); err == nil {
			return fault(ErrExists, "", "already exists and is left as it is: change it with proxops secrets set or edit")
		}
		text := initial.Reveal()
		if initial.Empty() {
			text = Skeleton
		}
		plain, err := loadPlain([]byte(text))
		if err != nil {
			return err
		}
		if len(recipients) == 0 {
			return fault(ErrRecipient, "", "needs at least one age recipient")
		}
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails, see crypto/rand
		var group upstream.KeyGroup
		seen := map[string]bool{}
		for _, r := range recipients {
			k, err := wrapFor(strings.TrimSpace(r), key)
			if err != nil {
				return err
			}
			if !seen[k.Recipient] {
				group = append(group, k)
			}
			seen[k.Recipient] = true
		}
		meta := upstream.Metadata{KeyGroups: []upstream.KeyGroup{group}, UnencryptedSuffix: upstream.DefaultUnencryptedSuffix, Version: formatVersion}
		out, err := seal(plain, meta, key, newSealer(), 0)
		if err != nil {
			return err
		}
		return write(path, out)
	}))
}

// Skeleton is the plaintext of a new file: the entries that ReferenceBlock
// names, empty, so that a check says which ones are still to be set.
const Skeleton = `# Secrets of one cluster. Change them with "proxops secrets set" or "edit".
secrets:
    # user@realm of the API token
    proxops-user: ""
    # the part after the "!"
    proxops-token-id: ""
    # the token's UUID
    proxops-token: ""
cloud-init:
    ssh-keys: {}
    passwords: {}
`

// Save writes the document if it was changed: atomically, with the mode the
// file had, for the same recipients; entries and comments that were not changed
// keep their bytes. It is refused when the file on disk is not the one that was
// opened (ErrChanged).
func (d *Document) Save(ctx context.Context) error {
	if !d.Changed() {
		return nil
	}
	return at(d.path, withLock(ctx, d.path, d.save))
}

// save is Save with the lock held.
func (d *Document) save() error {
	if !d.Changed() {
		return nil
	}
	disk, err := read(d.path)
	if err != nil {
		return err
	}
	if !bytes.Equal(disk, d.raw) {
		return fault(ErrChanged, "", "was changed by something else since it was read: nothing was written, repeat the command")
	}
	out, err := seal(d.plain, d.meta, d.key, d.sealer, d.indent)
	if err != nil {
		return err
	}
	if err := write(d.path, out); err != nil {
		return err
	}
	d.raw = out
	d.saved, err = d.fingerprint()
	return err
}

// write replaces a file, or what a symlink points to, in one step. The caller
// holds the lock, so temporary files of earlier, killed writers are litter.
func write(path string, out []byte) error {
	target := path
	if real, err := filepath.EvalSymlinks(path); err == nil {
		target = real
	}
	dir, base := filepath.Split(target)
	if dir == "" {
		dir = "."
	}
	if old, err := filepath.Glob(filepath.Join(dir, "."+base+"[0-9][0-9][0-9][0-9]*")); err == nil {
		for _, f := range old {
			_ = os.Remove(f)
		}
	}
	err := renameio.WriteFile(target, out, 0o600, renameio.WithTempDir(dir), renameio.WithExistingPermissions())
	if err != nil {
		return osFault(ErrNotWritten, "not written, the old file is as it was: make room or see to the rights of its folder, and repeat", bare(err))
	}
	return syncDir(dir)
}

// withLock holds an exclusive lock for the file while f runs. The lock is on
// the directory itself: it leaves nothing behind in the repository and is the
// same for every user. Where a directory cannot be locked (NFS), a file in the
// system's temporary directory stands for it, and guards this machine only.
func withLock(ctx context.Context, path string, f func() error) error {
	dir := filepath.Dir(path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		dir = filepath.Dir(real)
	}
	if _, err := os.Stat(dir); err != nil {
		return &Error{Kind: fs.ErrNotExist, Text: "its directory does not exist: create the cluster's directory first", Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	lock := flock.New(dir, flock.SetFlag(os.O_RDONLY))
	ok, err := lock.TryLockContext(ctx, 20*time.Millisecond)
	if err != nil && ctx.Err() == nil {
		abs, _ := filepath.Abs(dir)
		sum := sha256.Sum256([]byte(abs))
		lock = flock.New(filepath.Join(os.TempDir(), "proxops-"+hex.EncodeToString(sum[:8])+".lock"), flock.SetPermissions(0o666))
		ok, err = lock.TryLockContext(ctx, 20*time.Millisecond)
	}
	if err != nil || !ok {
		if errors.Is(err, context.Canceled) {
			return err
		}
		return fault(ErrLocked, "", "another proxops secrets command holds it (an open editor?): let that one finish, then repeat")
	}
	defer func() { _ = lock.Unlock() }()
	return f()
}

// bare takes the path out of an error that is told with its place, and that of
// a temporary file says nothing.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
