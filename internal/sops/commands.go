package sops

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/proxops/proxops/internal/secret"
)

// InitOptions says what Init makes.
type InitOptions struct {
	Path         string      // the secrets file; must not exist
	Env          Env         // where identities are
	IdentityFile string      // where to make one if Env holds none; "" = SOPS_AGE_KEY_FILE, else the default key file
	Recipients   []string    // further recipients; the caller's own are always added
	Initial      secret.Text // plaintext; absent = Skeleton
}

// InitResult says what Init made.
type InitResult struct {
	Recipients   []string // that the file is encrypted for
	IdentityFile string   // the key file made, "" if identities were there
}

// Init makes a secrets file, and an age key file outside the repository when
// the user has none. A key file made stays when the secrets file then cannot be
// written: it may be used by the next try.
func Init(opts InitOptions) (InitResult, error) {
	if _, err := os.Lstat(opts.Path); err == nil {
		return InitResult{}, at(opts.Path, fault(ErrExists, "", "already exists and is left as it is: change it with proxops secrets set or edit"))
	}
	var res InitResult
	ring := opts.Env.keyring()
	own := ring.public
	if len(own) == 0 {
		file := opts.IdentityFile
		for _, f := range []string{opts.Env.KeyFile, opts.Env.DefaultKeyFile} {
			if file == "" {
				file = f
			}
		}
		if file == "" {
			return res, at(opts.Path, fault(ErrNoIdentity, "", "no place for an age key is known: set SOPS_AGE_KEY_FILE"))
		}
		r, err := NewIdentity(file)
		if err != nil {
			return res, err
		}
		own, res.IdentityFile = []string{r}, file
	}
	seen := map[string]bool{}
	for _, r := range append(append([]string{}, own...), opts.Recipients...) {
		if !seen[r] {
			res.Recipients = append(res.Recipients, r)
		}
		seen[r] = true
	}
	return res, Create(opts.Path, res.Recipients, opts.Initial)
}

// ReferenceBlock gives the lines for a cluster's entry in config.yaml that use
// the names of Skeleton. file is relative to config.yaml.
func ReferenceBlock(file string) string {
	return fmt.Sprintf(`secrets-file: %s
secrets:
  pve:
    user: proxops-user
    token-id: proxops-token-id
    token: proxops-token
`, file)
}

// edit runs change on the opened file and saves it, all under the lock.
func edit(ctx context.Context, path string, env Env, change func(*Document) error) error {
	return at(path, withLock(ctx, path, func() error {
		d, err := Open(path, env)
		if err != nil {
			return err
		}
		if err := change(d); err != nil {
			return err
		}
		return d.save()
	}))
}

// Set puts one value into a secrets file. Two processes that do it at once
// wait for each other; neither's value is lost.
func Set(ctx context.Context, path string, env Env, ref string, value secret.Text) error {
	return edit(ctx, path, env, func(d *Document) error { return d.Set(ref, value) })
}

// Rekey adds and removes recipients. After a removal the values themselves
// should be changed: git's history still holds them for the removed one.
func Rekey(ctx context.Context, path string, env Env, add, remove []string) error {
	return edit(ctx, path, env, func(d *Document) error {
		for _, r := range add {
			if err := d.AddRecipient(r); err != nil {
				return err
			}
		}
		for _, r := range remove {
			if err := d.RemoveRecipient(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// Edit opens the decrypted document in an editor and stores the result; the
// file is locked meanwhile. A text that cannot be stored is shown again with
// its fault, until term.In ends. An unchanged text writes nothing.
func Edit(ctx context.Context, path string, env Env, editor []string, term Terminal) error {
	return edit(ctx, path, env, func(d *Document) error {
		text, err := d.Plaintext()
		if err != nil {
			return err
		}
		for {
			if text, err = EditInEditor(ctx, editor, text, term); err != nil {
				return at(path, err)
			}
			var bad *Error
			if err = d.Replace(text); !errors.As(err, &bad) {
				return err
			}
			fmt.Fprintf(term.Err, "%v\npress Enter to edit again, Ctrl-D to give up\n", err)
			if !anotherLine(term.In) {
				return err
			}
		}
	})
}

// anotherLine waits for Enter. It reads single bytes: what follows is for the
// editor, which reads the same terminal.
func anotherLine(in *os.File) bool {
	if in == nil {
		return false
	}
	for b := make([]byte, 1); ; {
		n, err := in.Read(b)
		if n == 1 && b[0] == '\n' {
			return true
		}
		if err != nil {
			return false
		}
	}
}

// CheckRefs gives one error for every reference that does not name a value.
func CheckRefs(d *Document, refs []string) []error {
	var errs []error
	for _, ref := range refs {
		if _, err := d.Lookup(ref); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
