package sops

import (
	"errors"
	"strings"
)

// The kinds of fault. Test for them with errors.Is.
var (
	// ErrNotEncrypted: the file has no sops block, its values are in the open.
	ErrNotEncrypted = errors.New("not encrypted")
	// ErrMalformed: not YAML, or YAML that no SOPS document looks like.
	ErrMalformed = errors.New("malformed")
	// ErrUnsupported: encrypted, but not for a single group of age recipients.
	ErrUnsupported = errors.New("unsupported encryption")
	// ErrNoIdentity: no age identity was found anywhere.
	ErrNoIdentity = errors.New("no age identity")
	// ErrWrongIdentity: identities were found, none is a recipient's.
	ErrWrongIdentity = errors.New("wrong age identity")
	// ErrMAC: the file was changed by something other than SOPS.
	ErrMAC = errors.New("integrity check")
	// ErrMissingRef: the reference names nothing in the document.
	ErrMissingRef = errors.New("missing reference")
	// ErrEmptyRef: the reference names an empty value.
	ErrEmptyRef = errors.New("empty reference")
	// ErrBadRef: the reference, or what it names, cannot hold a text.
	ErrBadRef = errors.New("bad reference")
	// ErrRecipient: a recipient that cannot be added or removed.
	ErrRecipient = errors.New("bad recipient")
	// ErrChanged: the file on disk is not the one that was read.
	ErrChanged = errors.New("changed on disk")
	// ErrNotWritten: the operating system refused the write; the old file stays.
	ErrNotWritten = errors.New("not written")
	// ErrLocked: another process is editing the file.
	ErrLocked = errors.New("locked")
	// ErrExists: a file that must not be overwritten is there.
	ErrExists = errors.New("already exists")
)

// Error is a fault of one file. Its text never holds a value of the document.
type Error struct {
	Kind error  // one of the Err… values, found by errors.Is
	File string // as the caller named it
	Pos  string // "line:column" in the file or the edited text, or ""
	Ref  string // dot path of the entry, or ""
	Text string // what is wrong and what to do
	Err  error  // a cause of the operating system that is safe to show, or nil
}

// Error gives "file:line:column: reference: text".
func (e *Error) Error() string {
	place := e.File
	if e.Pos != "" {
		place = strings.TrimPrefix(place+":"+e.Pos, ":")
	}
	parts := make([]string, 0, 3)
	for _, p := range []string{place, e.Ref, e.Text} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

func fault(kind error, ref, text string) *Error { return &Error{Kind: kind, Ref: ref, Text: text} }

// osFault keeps a cause of the operating system: it names a path, not a value.
func osFault(kind error, text string, err error) *Error {
	return &Error{Kind: kind, Text: text + ": " + err.Error(), Err: err}
}

// at names the file in every Error below err.
func at(file string, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) && e.File == "" {
		e.File = file
	}
	return err
}

// guard turns a panic of a library into ErrMalformed. SOPS 3.13 panics on an
// authentic value whose type label, which nothing authenticates, was changed
// to "bytes" (it becomes a map key). The panic's value is dropped: it may
// hold what was decrypted.
func guard(f func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = fault(ErrMalformed, "", "a value in it is damaged in a way that SOPS cannot read: restore the file from git")
		}
	}()
	return f()
}
