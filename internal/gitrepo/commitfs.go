package gitrepo

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// maxLinks bounds the links followed for one path, as kernels do.
const maxLinks = 40

// store reads objects and keeps decoded trees. The object storage of go-git
// is not safe for parallel readers, hence the lock.
type store struct {
	mu    sync.Mutex
	objs  storer.EncodedObjectStorer
	trees map[plumbing.Hash]map[string]object.TreeEntry
}

func newStore(objs storer.EncodedObjectStorer) *store {
	return &store{objs: objs, trees: map[plumbing.Hash]map[string]object.TreeEntry{}}
}

func (s *store) tree(h plumbing.Hash) (map[string]object.TreeEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.trees[h]; ok {
		return m, nil
	}
	t, err := object.GetTree(s.objs, h)
	if err != nil {
		return nil, err
	}
	m := make(map[string]object.TreeEntry, len(t.Entries))
	for _, e := range t.Entries {
		m[e.Name] = e
	}
	s.trees[h] = m
	return m, nil
}

func (s *store) commit(h plumbing.Hash) (*object.Commit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return object.GetCommit(s.objs, h)
}

func (s *store) size(h plumbing.Hash) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objs.EncodedObjectSize(h)
}

func (s *store) blob(h plumbing.Hash) ([]byte, error) {
	return s.raw(plumbing.BlobObject, h, math.MaxInt64)
}

// raw reads the bytes of an object; none of one that is larger than limit.
func (s *store) raw(t plumbing.ObjectType, h plumbing.Hash, limit int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.objs.EncodedObject(t, h)
	if err != nil || o.Size() > limit {
		return nil, err
	}
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	out := make([]byte, o.Size())
	_, err = io.ReadFull(r, out)
	return out, err
}

// commitFS is the tree of one commit.
type commitFS struct {
	store  *store
	top    plumbing.Hash // the commit's tree
	prefix string        // where the root stands in it
}

// find gives the entry that name leads to, links followed.
func (c *commitFS) find(name string) (object.TreeEntry, error) {
	_, e, err := c.walk(name)
	return e, err
}

func (c *commitFS) resolvePath(name string) (string, error) {
	real, _, err := c.walk(name)
	return real, err
}

// walk resolves name from the root. Links may not leave the root, which with a
// prefix is narrower than the commit.
func (c *commitFS) walk(name string) (string, object.TreeEntry, error) {
	if !fs.ValidPath(name) {
		return "", object.TreeEntry{}, fs.ErrInvalid
	}
	for range maxLinks {
		real, entry, link, err := c.step(name)
		if err != nil || link == "" {
			return real, entry, err
		}
		name = link
		if name == ".." || strings.HasPrefix(name, "../") || path.IsAbs(name) {
			return "", object.TreeEntry{}, ErrOutside
		}
	}
	return "", object.TreeEntry{}, errors.New("follows too many symbolic links")
}

// step walks name until its end or its first link; then link is the path to
// go on with.
func (c *commitFS) step(name string) (real string, e object.TreeEntry, link string, err error) {
	e = object.TreeEntry{Mode: filemode.Dir, Hash: c.top}
	full := path.Join(c.prefix, name)
	if full == "." {
		return name, e, "", nil
	}
	skip := 0
	if c.prefix != "" {
		skip = strings.Count(c.prefix, "/") + 1
	}
	parts := strings.Split(full, "/")
	for i, part := range parts {
		switch e.Mode {
		case filemode.Dir:
		case filemode.Submodule:
			return "", e, "", ErrSubmodule
		default:
			return "", e, "", fs.ErrNotExist
		}
		entries, err := c.store.tree(e.Hash)
		if err != nil {
			return "", e, "", err
		}
		next, ok := entries[part]
		if !ok {
			return "", e, "", fs.ErrNotExist
		}
		e = next
		if e.Mode == filemode.Symlink && i >= skip {
			target, err := c.store.blob(e.Hash)
			if err != nil {
				return "", e, "", err
			}
			if path.IsAbs(string(target)) {
				return "", e, "", ErrOutside
			}
			at := path.Join(parts[skip:i]...)
			rest := path.Join(parts[i+1:]...)
			return "", e, path.Join(at, string(target), rest), nil
		}
	}
	if e.Mode == filemode.Submodule {
		return "", e, "", ErrSubmodule
	}
	return name, e, "", nil
}

// Open implements fs.FS.
func (c *commitFS) Open(name string) (fs.File, error) {
	fail := func(err error) (fs.File, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	_, e, err := c.walk(name)
	if err != nil {
		return fail(err)
	}
	if e.Mode == filemode.Dir {
		entries, err := c.store.tree(e.Hash)
		if err != nil {
			return fail(err)
		}
		f := &commitDir{info: info{name: path.Base(name), mode: fs.ModeDir | 0o755}}
		for _, n := range sortedKeys(entries) {
			f.entries = append(f.entries, commitEntry{info{name: n, mode: modeOf(entries[n].Mode)}, c.store, entries[n].Hash})
		}
		return f, nil
	}
	size, err := c.store.size(e.Hash)
	if err != nil {
		return fail(err)
	}
	return &commitFile{info: info{name: path.Base(name), size: size, mode: 0o644}, store: c.store, hash: e.Hash}, nil
}

func modeOf(m filemode.FileMode) fs.FileMode {
	switch m {
	case filemode.Dir:
		return fs.ModeDir | 0o755
	case filemode.Symlink:
		return fs.ModeSymlink | 0o777
	case filemode.Submodule:
		return fs.ModeIrregular
	default:
		return 0o644
	}
}

// info implements fs.FileInfo. Git keeps no times.
type info struct {
	name string
	size int64
	mode fs.FileMode
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }

// commitEntry implements fs.DirEntry; a file's size is asked for only by Info.
type commitEntry struct {
	info
	store *store
	hash  plumbing.Hash
}

func (e commitEntry) Type() fs.FileMode { return e.mode.Type() }

func (e commitEntry) Info() (fs.FileInfo, error) {
	i := e.info
	if i.mode.IsRegular() {
		size, err := e.store.size(e.hash)
		if err != nil {
			return nil, err
		}
		i.size = size
	}
	return i, nil
}

// commitFile reads its blob at the first Read, so that Stat of a huge one
// costs nothing.
type commitFile struct {
	info  info
	store *store
	hash  plumbing.Hash
	data  *bytes.Reader
}

func (f *commitFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *commitFile) Close() error               { return nil }

func (f *commitFile) Read(p []byte) (int, error) {
	if f.data == nil {
		b, err := f.store.blob(f.hash)
		if err != nil {
			return 0, err
		}
		f.data = bytes.NewReader(b)
	}
	return f.data.Read(p)
}

type commitDir struct {
	info    info
	entries []fs.DirEntry
	at      int
}

func (d *commitDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *commitDir) Close() error               { return nil }
func (d *commitDir) Read([]byte) (int, error)   { return 0, ErrDirectory }

// ReadDir implements fs.ReadDirFile.
func (d *commitDir) ReadDir(n int) ([]fs.DirEntry, error) {
	rest := d.entries[d.at:]
	if n <= 0 {
		d.at = len(d.entries)
		return rest, nil
	}
	if len(rest) == 0 {
		return nil, io.EOF
	}
	rest = rest[:min(n, len(rest))]
	d.at += len(rest)
	return rest, nil
}
