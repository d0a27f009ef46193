package gitrepo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/gofrs/flock"
)

// Names inside a mirror. The good ref is the only thing ever reconciled: it
// moves only to a commit that was fetched whole and, where signatures are
// asked for, verified.
const (
	goodRef    = plumbing.ReferenceName("refs/proxops/good")
	fetchedRef = plumbing.ReferenceName("refs/proxops/fetched")
	stampFile  = "proxops-fetched" // its time is that of the last good fetch
	remoteName = "origin"
)

// DefaultMaxPacks is how many packs a mirror may gather, one a fetch that
// brought something, before it is cloned anew: the git library never repacks.
const DefaultMaxPacks = 200

// Source says what to mirror.
type Source struct {
	URL      string // https://, ssh://, user@host:path, file:// or a local path; http:// to loopback only
	Ref      string // branch, tag or 40-digit commit; "" = the remote's HEAD
	DataDir  string // mirrors live in DataDir/git/<digest of URL and Ref>
	MaxPacks int    // 0 = DefaultMaxPacks
	Signers  *Signers
}

// Mirror is a bare copy of one remote branch. Its methods must not be called
// concurrently; other processes are kept out by a lock file.
type Mirror struct {
	src  Source
	dir  string
	from *endpoint
}

// State is what a mirror holds after Update.
type State struct {
	Tree  *Tree     // the last good commit; nil when there never was one
	Stale bool      // Tree is not known to be the remote's present state
	Since time.Time // of the last good fetch, when Stale; zero when unknown
	Err   error     // why it is stale
	Note  string    // something to tell about the move, such as a force-push
}

// NewMirror checks the source. It touches neither disk nor network.
func NewMirror(src Source) (*Mirror, error) {
	ep, err := parseURL(src.URL)
	if err != nil {
		return nil, err
	}
	if src.MaxPacks == 0 {
		src.MaxPacks = DefaultMaxPacks
	}
	sum := sha256.Sum256([]byte(src.URL + "\x00" + src.Ref))
	return &Mirror{src: src, from: ep, dir: filepath.Join(src.DataDir, "git", hex.EncodeToString(sum[:10]))}, nil
}

// Dir is the bare repository's directory.
func (m *Mirror) Dir() string { return m.dir }

// Update asks the remote for the head and fetches what is new. A poll that
// finds nothing new is one request. Whatever goes wrong, the last good tree
// stays, with the reason.
func (m *Mirror) Update(ctx context.Context, auth Auth) State {
	unlock, err := m.lock(ctx)
	if err != nil {
		return State{Stale: true, Err: err}
	}
	defer unlock()
	repo, err := m.open()
	if err != nil {
		return State{Stale: true, Err: err}
	}
	good, goodErr := m.good(repo)
	note, err := m.advance(ctx, &repo, good, auth)
	if err != nil {
		if good == nil && goodErr != nil && !errors.Is(goodErr, plumbing.ErrReferenceNotFound) {
			err = errors.Join(err, goodErr)
		}
		return State{Tree: good, Stale: true, Since: m.since(), Err: err}
	}
	if good, err = m.good(repo); err != nil {
		return State{Stale: true, Since: m.since(), Err: err}
	}
	return State{Tree: good, Note: note}
}

// Last is the last good tree without asking the remote; Stale says that.
func (m *Mirror) Last() State {
	repo, err := git.PlainOpen(m.dir)
	if err != nil {
		return State{Stale: true, Err: fmt.Errorf("%s: was never fetched", m.from.show)}
	}
	t, err := m.good(repo)
	return State{Tree: t, Stale: true, Since: m.since(), Err: err}
}

func (m *Mirror) since() time.Time {
	st, err := os.Stat(filepath.Join(m.dir, stampFile))
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}

func (m *Mirror) stamp() error {
	name := filepath.Join(m.dir, stampFile)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return err
	}
	now := time.Now()
	return os.Chtimes(name, now, now)
}

// lock keeps a second process from fetching into the same mirror.
func (m *Mirror) lock(ctx context.Context) (func(), error) {
	if err := os.MkdirAll(filepath.Dir(m.dir), 0o700); err != nil {
		return nil, fmt.Errorf("%s: %w: name a writable data-dir", filepath.Dir(m.dir), plain(err))
	}
	l := flock.New(m.dir + ".lock")
	ok, err := l.TryLockContext(ctx, 100*time.Millisecond)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s: another process is fetching: %w", m.from.show, err)
	}
	return func() { _ = l.Unlock() }, nil
}

// open opens the mirror, or makes an empty one. A directory that a crash left
// half made is started again: nothing in it was ever good.
func (m *Mirror) open() (*git.Repository, error) {
	repo, err := git.PlainOpen(m.dir)
	if err == nil {
		return repo, nil
	}
	if _, oldErr := git.PlainOpen(m.dir + ".old"); oldErr == nil && errors.Is(err, git.ErrRepositoryNotExists) {
		// A crash between the two renames of renew.
		if err := os.Rename(m.dir+".old", m.dir); err != nil {
			return nil, fmt.Errorf("%s: %w", m.dir, plain(err))
		}
		return git.PlainOpen(m.dir)
	}
	if err := os.RemoveAll(m.dir); err != nil {
		return nil, fmt.Errorf("%s: %w", m.dir, plain(err))
	}
	return m.create(m.dir)
}

func (m *Mirror) create(dir string) (*git.Repository, error) {
	repo, err := git.PlainInit(dir, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: name a writable data-dir", dir, plain(err))
	}
	_, err = repo.CreateRemote(&config.RemoteConfig{Name: remoteName, URLs: []string{m.src.URL}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return repo, nil
}

// good is the tree of the good ref. With signatures asked for it is verified
// again: the list of signers may have changed, or be newer than the mirror.
func (m *Mirror) good(repo *git.Repository) (*Tree, error) {
	ref, err := repo.Reference(goodRef, true)
	if err != nil {
		return nil, err
	}
	if err := m.verify(repo, ref.Hash()); err != nil {
		return nil, err
	}
	return commitTree(repo, newStore(repo.Storer), m.from.show, "", ref.Hash().String())
}

func (m *Mirror) verify(repo *git.Repository, h plumbing.Hash) error {
	if m.src.Signers == nil {
		return nil
	}
	c, err := repo.CommitObject(h)
	if err != nil {
		return fmt.Errorf("%s: commit %s: %w", m.from.show, h, err)
	}
	if _, err := m.src.Signers.Verify(c); err != nil {
		return fmt.Errorf("%s: %w: the last good commit stays", m.from.show, err)
	}
	return nil
}

// advance moves the good ref to the remote's head.
func (m *Mirror) advance(ctx context.Context, repo **git.Repository, good *Tree, auth Auth) (note string, err error) {
	method, ca, err := auth.method(m.from)
	if err != nil {
		return "", err
	}
	spec, want, err := m.target(ctx, *repo, method, ca)
	if err != nil {
		return "", m.explain(err)
	}
	if good != nil && good.Head.Hash == want.String() {
		return "", m.stamp()
	}
	if m.packs() >= m.src.MaxPacks {
		if err := m.renew(ctx, repo, good, spec, method, ca); err != nil {
			return "", m.explain(err)
		}
	} else if err := fetch(ctx, *repo, spec, method, ca); err != nil {
		return "", m.explain(err)
	}
	head, err := peel(*repo, fetchedRef)
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.from.show, err)
	}
	if good != nil && good.Head.Hash == head.String() {
		return "", m.stamp()
	}
	if err := m.verify(*repo, head); err != nil {
		return "", err
	}
	if good != nil && !descends(*repo, head, plumbing.NewHash(good.Head.Hash)) {
		note = fmt.Sprintf("the remote's history was rewritten: %s is not a descendant of %s", head.String()[:10], good.Head.Short())
	}
	if err := (*repo).Storer.SetReference(plumbing.NewHashReference(goodRef, head)); err != nil {
		return "", fmt.Errorf("%s: %w", m.dir, err)
	}
	return note, m.stamp()
}

// target asks the remote what the wanted ref is now: one request, nothing
// fetched. A tag's hash may be that of the tag object.
func (m *Mirror) target(ctx context.Context, repo *git.Repository, auth transport.AuthMethod, ca []byte) (config.RefSpec, plumbing.Hash, error) {
	if plumbing.IsHash(m.src.Ref) {
		return config.RefSpec(m.src.Ref + ":" + fetchedRef.String()), plumbing.NewHash(m.src.Ref), nil
	}
	remote, err := repo.Remote(remoteName)
	if err != nil {
		return "", plumbing.ZeroHash, err
	}
	refs, err := remote.ListContext(ctx, &git.ListOptions{Auth: auth, CABundle: ca, PeelingOption: git.AppendPeeled})
	if err != nil {
		return "", plumbing.ZeroHash, err
	}
	byName := map[plumbing.ReferenceName]*plumbing.Reference{}
	for _, r := range refs {
		byName[r.Name()] = r
	}
	for _, name := range m.candidates() {
		r, ok := byName[name]
		if ok && r.Type() == plumbing.SymbolicReference {
			name = r.Target()
			r, ok = byName[name]
		}
		if !ok {
			continue
		}
		hash := r.Hash()
		if peeled, ok := byName[name+"^{}"]; ok {
			hash = peeled.Hash()
		}
		return config.RefSpec("+" + name.String() + ":" + fetchedRef.String()), hash, nil
	}
	return "", plumbing.ZeroHash, m.unknownRef(refs)
}

func (m *Mirror) candidates() []plumbing.ReferenceName {
	switch {
	case m.src.Ref == "":
		return []plumbing.ReferenceName{plumbing.HEAD}
	case strings.HasPrefix(m.src.Ref, "refs/"):
		return []plumbing.ReferenceName{plumbing.ReferenceName(m.src.Ref)}
	default:
		return []plumbing.ReferenceName{plumbing.NewBranchReferenceName(m.src.Ref), plumbing.NewTagReferenceName(m.src.Ref)}
	}
}

// unknownRef names the branches that there are.
func (m *Mirror) unknownRef(refs []*plumbing.Reference) error {
	names := map[string]bool{}
	for _, r := range refs {
		if r.Name().IsBranch() {
			names[r.Name().Short()] = true
		}
	}
	have := sortedKeys(names)
	if len(have) > 8 {
		have = append(have[:8], "…")
	}
	if m.src.Ref == "" {
		return fmt.Errorf("the remote's HEAD names no branch: set git.branch (there are: %s)", strings.Join(have, ", "))
	}
	return fmt.Errorf("branch or tag %q does not exist there (any more): correct git.branch (there are: %s)", m.src.Ref, strings.Join(have, ", "))
}

func fetch(ctx context.Context, repo *git.Repository, spec config.RefSpec, auth transport.AuthMethod, ca []byte) error {
	err := repo.FetchContext(ctx, &git.FetchOptions{
		RemoteName: remoteName, RefSpecs: []config.RefSpec{spec},
		Auth: auth, CABundle: ca, Tags: git.NoTags, Force: true,
	})
	if errors.Is(err, git.NoErrAlreadyUpToDate) {
		return nil
	}
	return err
}

// peel follows a ref, through an annotated tag, to its commit.
func peel(repo *git.Repository, name plumbing.ReferenceName) (plumbing.Hash, error) {
	ref, err := repo.Reference(name, true)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	h := ref.Hash()
	if tag, err := repo.TagObject(h); err == nil {
		c, err := tag.Commit()
		if err != nil {
			return plumbing.ZeroHash, fmt.Errorf("tag %s does not name a commit: %w", tag.Name, err)
		}
		h = c.Hash
	}
	if _, err := repo.CommitObject(h); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("%s is not a commit: %w", h, err)
	}
	return h, nil
}

func descends(repo *git.Repository, head, base plumbing.Hash) bool {
	b, err := repo.CommitObject(base)
	if err != nil {
		return false
	}
	h, err := repo.CommitObject(head)
	if err != nil {
		return false
	}
	ok, err := b.IsAncestor(h)
	return err == nil && ok
}

func (m *Mirror) packs() int {
	found, err := filepath.Glob(filepath.Join(m.dir, "objects", "pack", "*.pack"))
	if err != nil {
		return 0
	}
	return len(found)
}

// renew clones beside the mirror and swaps the two; until the swap, the old
// one serves. The good ref is carried over only where the new clone has its
// commit; otherwise the caller sets it, or nothing is good any more after a
// rewrite of the history that is then refused — so then the old clone stays.
func (m *Mirror) renew(ctx context.Context, repo **git.Repository, good *Tree, spec config.RefSpec, auth transport.AuthMethod, ca []byte) error {
	next, old := m.dir+".new", m.dir+".old"
	if err := errors.Join(os.RemoveAll(next), os.RemoveAll(old)); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(next); _ = os.RemoveAll(old) }()
	fresh, err := m.create(next)
	if err != nil {
		return err
	}
	if err := fetch(ctx, fresh, spec, auth, ca); err != nil {
		return err
	}
	if good != nil {
		h := plumbing.NewHash(good.Head.Hash)
		if _, err := fresh.CommitObject(h); err != nil {
			return fetch(ctx, *repo, spec, auth, ca)
		}
		if err := fresh.Storer.SetReference(plumbing.NewHashReference(goodRef, h)); err != nil {
			return err
		}
	}
	if err := os.Rename(m.dir, old); err != nil {
		return err
	}
	if err := os.Rename(next, m.dir); err != nil {
		return errors.Join(err, os.Rename(old, m.dir))
	}
	*repo, err = git.PlainOpen(m.dir)
	return err
}

// explain turns the library's errors into places and advice; none of them
// holds the token, which never stands in a URL here.
func (m *Mirror) explain(err error) error {
	text := ""
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, transport.ErrAuthenticationRequired):
		text = "the server asks for a login: give a token with PROXOPS_GIT_TOKEN or git.token"
		if m.from.ssh {
			text = "the server asks for a login: name a key with git.ssh-key"
		}
	case errors.Is(err, transport.ErrAuthorizationFailed):
		text = "the server refuses this login: check that the token is valid and may read the repository"
	case errors.Is(err, transport.ErrInvalidAuthMethod), strings.Contains(err.Error(), "unable to authenticate"):
		text = "the server refuses this key: add its public half as a deploy key, or name another with git.ssh-key"
	case strings.Contains(err.Error(), "knownhosts:"), strings.Contains(err.Error(), "key is unknown"):
		text = "the server's host key is not the one in the known_hosts file: check it, then add it (ssh-keyscan prints it) or name the file with git.known-hosts"
	case errors.Is(err, transport.ErrRepositoryNotFound):
		text = "no repository there, or this login may not see it"
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		text = "the repository has no commit yet"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist):
		err = plain(err)
	}
	if text == "" {
		return fmt.Errorf("%s: %w", m.from.show, err)
	}
	return fmt.Errorf("%s: %s (%w)", m.from.show, text, err)
}
