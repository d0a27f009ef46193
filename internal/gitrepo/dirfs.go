package gitrepo

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// dirFS is a work tree on disk.
type dirFS struct {
	root string   // absolute, links resolved
	open *os.Root // of it; closed by its finalizer
}

// Open implements fs.FS. The file is opened through os.Root, so that a link
// swapped in after resolve cannot lead outside either.
func (d *dirFS) Open(name string) (fs.File, error) {
	real, err := d.resolve(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	st, err := d.open.Stat(real)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: plain(err)}
	}
	if !st.IsDir() && !st.Mode().IsRegular() { // opening a pipe would wait for its writer
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrIrregular}
	}
	f, err := d.open.Open(real)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: plain(err)}
	}
	return f, nil
}

// resolve follows links, absolute ones included, and gives the path from the
// root with slashes.
func (d *dirFS) resolve(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", fs.ErrInvalid
	}
	real, err := filepath.EvalSymlinks(filepath.Join(d.root, filepath.FromSlash(name)))
	if err != nil {
		if up := path.Dir(name); up != "." && errors.Is(err, fs.ErrNotExist) {
			if _, upErr := d.resolve(up); errors.Is(upErr, ErrOutside) {
				return "", upErr // what is outside is nobody's business here, its absence too
			}
		}
		return "", plain(err)
	}
	rel, err := filepath.Rel(d.root, real)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", ErrOutside
	}
	rel = filepath.ToSlash(rel)
	for i, c := range rel {
		if c == '/' {
			if _, err := os.Lstat(filepath.Join(d.root, filepath.FromSlash(rel[:i]), ".git")); err == nil {
				return "", ErrSubmodule
			}
		}
	}
	return rel, nil
}
