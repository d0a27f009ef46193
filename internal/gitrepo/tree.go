package gitrepo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Faults of a path, for errors.Is. The errors that carry them name the path.
var (
	ErrOutside   = errors.New("leads out of the repository")
	ErrTooLarge  = errors.New("is too large")
	ErrDirectory = errors.New("is a directory")
	ErrIrregular = errors.New("is not a regular file")
	ErrSubmodule = errors.New("lies in a git submodule or nested repository; submodules are not read: move the files into this repository")
	ErrLFS       = errors.New("is a Git LFS pointer, not the file; LFS is not read: store manifests in git itself")
)

// Commit is what messages say of a commit.
type Commit struct {
	Hash    string // 40 hex digits
	Date    time.Time
	Author  string // name <email>
	Subject string // first line of the message
}

// Short is the first ten digits of the hash.
func (c Commit) Short() string { return c.Hash[:min(10, len(c.Hash))] }

// String is hash, date (UTC), author, as a plan names the commit.
func (c Commit) String() string {
	return fmt.Sprintf("%s (%s, %s)", c.Short(), c.Date.UTC().Format("2006-01-02"), c.Author)
}

// Tree is the files of a repository: of a work tree as it is on disk, or of
// one commit. It implements fs.FS; symbolic links are followed inside the
// root and refused when they leave it.
type Tree struct {
	Root  string // the work tree's directory, or the URL without credentials
	Local bool   // a work tree on disk, that a user may be editing
	Head  Commit // HEAD of the work tree, or the commit itself; zero when there is none

	dir    *dirFS
	commit *commitFS
	repo   *git.Repository // nil when git cannot be asked
	store  *store          // its objects, for all trees of repo
	reason string          // why repo is nil or Head is zero, for messages
	broken bool            // that is a fault, and not that there is no git or no commit
	todo   string          // what to do about the fault, where that is known
	prefix string          // of Root inside the git work tree, with slashes; "" = the same

	git    stater // the git directory of the work tree; nil when it cannot be read
	opened mark   // of the work tree, before any file was read
}

// Discover finds the root of the repository around dir: the nearest ancestor
// (dir included) that holds .git, which is a directory, or a file in a linked
// work tree or submodule.
func Discover(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("%s: %w", dir, err)
	}
	for d := abs; ; d = filepath.Dir(d) {
		if _, err := os.Lstat(filepath.Join(d, ".git")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s: no git repository here or above: run inside one, name one with --git-path or PROXOPS_GIT_PATH, or start one with git init", abs)
		}
	}
}

// OpenWork opens the work tree at root. A directory that git does not know, or
// a repository without a commit, opens too: its Head is zero.
func OpenWork(root string) (*Tree, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", abs, plain(err))
	}
	st, err := os.Stat(real)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", abs, plain(err))
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s: is not a directory", abs)
	}
	held, err := os.OpenRoot(real)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", abs, plain(err))
	}
	t := &Tree{Root: abs, Local: true, dir: &dirFS{root: real, open: held}}
	t.openGit(real)
	return t, nil
}

// openGit finds the git directory of a work tree; a fault is kept as the
// reason that history queries give.
func (t *Tree) openGit(dir string) {
	top, err := Discover(dir)
	if err != nil {
		t.reason = "this directory is not in a git repository"
		return
	}
	if rel, err := filepath.Rel(top, dir); err == nil && rel != "." {
		t.prefix = filepath.ToSlash(rel)
	}
	repo, err := git.PlainOpenWithOptions(top, &git.PlainOpenOptions{EnableDotGitCommonDir: true})
	if err != nil {
		t.fault("the git directory is not readable", err)
		return
	}
	if st, ok := repo.Storer.(*filesystem.Storage); ok {
		t.git, t.opened = st.Filesystem(), markOf(st.Filesystem())
	}
	ref, err := repo.Head()
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		t.reason = "the repository has no commit yet"
		return
	}
	if err != nil {
		t.fault("the head of the repository is not readable", err)
		return
	}
	c, err := repo.CommitObject(ref.Hash())
	if err != nil {
		t.fault("the head commit is not readable", err)
		return
	}
	t.repo, t.store, t.Head = repo, newStore(repo.Storer), describe(c)
}

// fault keeps why git cannot be asked.
func (t *Tree) fault(what string, err error) {
	t.reason, t.broken, t.todo = what+": "+err.Error(), true, t.remedy(err)
}

// remedy is what to do about a clone that git reads and the library does not;
// "" = nothing special is known of it.
func (t *Tree) remedy(err error) string {
	if errors.Is(err, git.ErrUnknownExtension) || errors.Is(err, git.ErrUnsupportedExtensionRepositoryFormatVersion) {
		return "the extensions of git that this clone uses are not supported: give the agent a plain clone of its own, without sparse checkout and without a config for each work tree"
	}
	if t.git != nil {
		if _, err := t.git.Stat("objects/info/alternates"); err == nil {
			return "objects borrowed from another clone (git clone --shared or --reference) are not read: copy them with `git repack -a -d`, then remove the file that `git rev-parse --git-path objects/info/alternates` names"
		}
	}
	if t.repo != nil {
		if cfg, err := t.repo.Config(); err == nil {
			for name := range cfg.Remotes {
				if cfg.Raw.Section("remote").Subsection(name).Option("promisor") == "true" {
					return "a partial clone lacks what it has not needed yet: fetch all of it (`git fetch --refetch --no-filter`), or clone it without --filter"
				}
			}
		}
	}
	return ""
}

func describe(c *object.Commit) Commit {
	subject, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	return Commit{
		Hash: c.Hash.String(), Date: c.Committer.When,
		Author:  fmt.Sprintf("%s <%s>", c.Author.Name, c.Author.Email),
		Subject: subject,
	}
}

// Open implements fs.FS.
func (t *Tree) Open(name string) (fs.File, error) {
	if t.dir != nil {
		return t.dir.Open(name)
	}
	return t.commit.Open(name)
}

// Resolve follows the symbolic links of name and gives the path, from the
// root, of what it names. It fails when a link leaves the root.
func (t *Tree) Resolve(name string) (string, error) {
	if t.dir != nil {
		return t.dir.resolve(name)
	}
	return t.commit.resolvePath(name)
}

// ReadFile reads a regular file of at most limit bytes. A larger one is not
// read at all. The error says what is wrong without repeating the name.
func (t *Tree) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := t.Open(name)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, plain(err)
	case st.IsDir():
		return nil, ErrDirectory
	case !st.Mode().IsRegular():
		return nil, ErrIrregular
	case st.Size() > limit:
		return nil, tooLarge(st.Size(), limit)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, plain(err)
	}
	if int64(len(data)) > limit {
		return nil, tooLarge(int64(len(data)), limit)
	}
	if bytes.HasPrefix(data, []byte("version https://git-lfs.github.com/spec/")) {
		return nil, ErrLFS
	}
	return data, nil
}

func tooLarge(size, limit int64) error {
	return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, limit)
}

// Dirs lists the names of the directories in dir, sorted; none when dir does
// not exist. Links to directories count as directories.
func (t *Tree) Dirs(dir string) ([]string, error) {
	entries, err := fs.ReadDir(t, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, plain(err))
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() && e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		if st, err := fs.Stat(t, path.Join(dir, e.Name())); err == nil && st.IsDir() {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// Dirty gives those of the named files whose content on disk differs from the
// head commit, in the order given. A tree of a commit is never dirty; without
// a head commit nothing can be said and nothing is. Blob hashes are compared,
// so ignore rules, file modes and stat caches play no part; a file that
// differs in its line ends alone (core.autocrlf) is not dirty.
func (t *Tree) Dirty(names []string) ([]string, error) {
	if !t.Local || t.repo == nil {
		return nil, nil
	}
	head, err := t.At(t.Head.Hash)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		same, err := t.sameAsHead(head, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, plain(err))
		}
		if !same {
			out = append(out, name)
		}
	}
	return out, nil
}

func (t *Tree) sameAsHead(head *Tree, name string) (bool, error) {
	entry, err := head.commit.find(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrSubmodule) || errors.Is(err, ErrOutside) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	data, err := t.ReadFile(name, 64<<20)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrDirectory) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if plumbing.ComputeHash(plumbing.BlobObject, data) == entry.Hash {
		return true, nil
	}
	unix := bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	return plumbing.ComputeHash(plumbing.BlobObject, unix) == entry.Hash, nil
}

// At is the tree of another commit of the same repository.
func (t *Tree) At(hash string) (*Tree, error) {
	if t.repo == nil {
		return nil, fmt.Errorf("%s: %s", t.Root, t.reason)
	}
	return commitTree(t.repo, t.store, t.Root, t.prefix, hash)
}

func commitTree(repo *git.Repository, st *store, root, prefix, hash string) (*Tree, error) {
	c, err := st.commit(plumbing.NewHash(hash))
	if err != nil {
		return nil, fmt.Errorf("%s: commit %s: %w", root, hash, err)
	}
	cf := &commitFS{store: st, top: c.TreeHash, prefix: prefix}
	return &Tree{Root: root, Head: describe(c), commit: cf, repo: repo, store: st, prefix: prefix}, nil
}

// plain takes the path and the system call's name off an error: callers name
// the place themselves, relative to the root.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fs.ErrNotExist
	}
	return err
}
