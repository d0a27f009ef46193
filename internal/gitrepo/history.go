package gitrepo

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"

	git "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Verdict is what git says of a declaration that is not there now.
type Verdict int

// The four answers. Unasked: the history is not whole or there is none.
// Removed: a commit took the declaration away. Uncommitted: the head commit
// still declares it, the work tree does not. Never: the whole history never
// declared it.
const (
	Unasked Verdict = iota
	Removed
	Uncommitted
	Never
)

// Word is git's word on one vmid of one cluster.
type Word struct {
	Verdict Verdict
	Commit  Commit   // that removed it, when Removed
	Reason  string   // why git could not be asked, when Unasked
	Broken  bool     // Unasked because the repository cannot be read, not because it is shallow or without commits
	Names   []string // what the removed declaration called its guest, sorted; none when its file is no manifest of today
}

// String is the word as a plan shows it.
func (w Word) String() string {
	switch w.Verdict {
	case Removed:
		return "removed by " + w.Commit.String()
	case Uncommitted:
		return "removed in the work tree, not committed"
	case Never:
		return "never declared in the whole history"
	default:
		return "git could not be asked: " + w.Reason
	}
}

// Removals asks the history of the tree's head who removed the declaration of
// each vmid from the cluster: the composition stopped listing its file, or the
// file stopped declaring it, or went away. The caller asks only for vmids that
// the tree as it is does not declare, and only when there is something to
// prune: the walk reads the history from the newest commit back until every
// vmid has its answer.
//
// At a merge the answer is the commit on the merged side that made the change;
// only where the merge itself dropped the declaration is it the merge. In a
// shallow history, a removal inside it is an answer and its end is not.
func (t *Tree) Removals(ctx context.Context, cluster string, vmids []int) (map[int]Word, error) {
	out := make(map[int]Word, len(vmids))
	if t.repo == nil || t.Head.Hash == "" {
		for _, id := range vmids {
			out[id] = Word{Reason: t.reason, Broken: t.broken}
		}
		return out, nil
	}
	w, err := t.newWalk(ctx, cluster, vmids)
	if err != nil {
		return nil, err
	}
	defer w.close()
	for _, id := range vmids {
		word, err := w.ask(id)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			word = Word{Reason: err.Error(), Broken: true}
		}
		if word.Verdict == Removed || word.Verdict == Uncommitted {
			word.Names = w.decl.called(id)
		}
		out[id] = word
	}
	return out, nil
}

// walk is one reading of the history; commits and declarations are kept
// between the vmids asked for.
type walk struct {
	ctx     context.Context
	tree    *Tree
	objs    storer.EncodedObjectStorer
	close   func()
	head    plumbing.Hash
	shallow map[plumbing.Hash]bool // commits whose parents are not here
	commits map[plumbing.Hash]*object.Commit
	decl    *declarations
}

func (t *Tree) newWalk(ctx context.Context, cluster string, vmids []int) (*walk, error) {
	cut, err := t.repo.Storer.Shallow()
	if err != nil {
		return nil, fmt.Errorf("%s: list of shallow commits: %w", t.Root, err)
	}
	objs, done := reader(t.repo)
	w := &walk{
		objs: objs, close: done,
		ctx: ctx, tree: t, head: plumbing.NewHash(t.Head.Hash),
		shallow: map[plumbing.Hash]bool{}, commits: map[plumbing.Hash]*object.Commit{},
		decl: newDeclarations(newStore(objs), t.prefix, cluster, vmids),
	}
	for _, h := range cut {
		w.shallow[h] = true
	}
	return w, nil
}

// maxHeld is the largest object that a walk takes into memory without being
// asked for its bytes.
const maxHeld = 8 * maxScan

// reader is an object storage that keeps its packs open, which a walk over
// thousands of objects is twice as fast with.
func reader(repo *git.Repository) (storer.EncodedObjectStorer, func()) {
	st, ok := repo.Storer.(*filesystem.Storage)
	if !ok {
		return repo.Storer, func() {}
	}
	open := filesystem.NewStorageWithOptions(st.Filesystem(), cache.NewObjectLRUDefault(), filesystem.Options{KeepDescriptors: true, LargeObjectThreshold: maxHeld})
	return open, func() { _ = open.Close() }
}

func (w *walk) commit(h plumbing.Hash) (*object.Commit, error) {
	if c, ok := w.commits[h]; ok {
		return c, nil
	}
	c, err := object.GetCommit(w.objs, h)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return nil, fmt.Errorf("commit %s is not in this clone", h)
	}
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", h, err)
	}
	w.commits[h] = c
	return c, nil
}

func (w *walk) parents(c *object.Commit) []plumbing.Hash {
	if w.shallow[c.Hash] {
		return nil
	}
	return c.ParentHashes
}

// ask walks back over the commits that lack the declaration.
func (w *walk) ask(vmid int) (Word, error) {
	head, err := w.commit(w.head)
	if err != nil {
		return Word{}, err
	}
	has, err := w.decl.has(head, vmid)
	if err != nil {
		return Word{}, err
	}
	if has && w.tree.Local {
		return Word{Verdict: Uncommitted}, nil
	}
	if has {
		return Word{Reason: "the commit still names this vmid in a listed file"}, nil
	}
	queue := &byDate{head}
	seen := map[plumbing.Hash]bool{head.Hash: true}
	var merges []*object.Commit // that lack it, with a parent that has it and another that does not
	for queue.Len() > 0 {
		if err := w.ctx.Err(); err != nil {
			return Word{}, err
		}
		c := heap.Pop(queue).(*object.Commit)
		with, without, err := w.split(c, vmid)
		if err != nil {
			return Word{}, err
		}
		if len(with) > 0 && len(without) == 0 {
			return w.settle(c, merges, vmid)
		}
		if len(with) > 0 {
			merges = append(merges, c)
		}
		for _, p := range without {
			if !seen[p.Hash] {
				seen[p.Hash] = true
				heap.Push(queue, p)
			}
		}
	}
	if len(merges) > 0 {
		return Word{Verdict: Removed, Commit: describe(merges[0])}, nil
	}
	if len(w.shallow) > 0 {
		return Word{Reason: "the clone is shallow: its history is not whole"}, nil
	}
	return Word{Verdict: Never}, nil
}

func (w *walk) split(c *object.Commit, vmid int) (with, without []*object.Commit, err error) {
	for _, h := range w.parents(c) {
		p, err := w.commit(h)
		if err != nil {
			return nil, nil, err
		}
		has, err := w.decl.has(p, vmid)
		if err != nil {
			return nil, nil, err
		}
		if has {
			with = append(with, p)
		} else {
			without = append(without, p)
		}
	}
	return with, without, nil
}

// settle decides between a commit that removed the declaration and a later
// merge on the way to it. The merge brought the removal in, unless the side
// that still declared it already contained that removal (it had declared the
// vmid again): then the merge itself dropped it.
func (w *walk) settle(found *object.Commit, merges []*object.Commit, vmid int) (Word, error) {
	for _, m := range merges {
		with, _, err := w.split(m, vmid)
		if err != nil {
			return Word{}, err
		}
		for _, p := range with {
			contains, err := w.reaches(p, found.Hash)
			if err != nil {
				return Word{}, err
			}
			if contains {
				return Word{Verdict: Removed, Commit: describe(m)}, nil
			}
		}
	}
	return Word{Verdict: Removed, Commit: describe(found)}, nil
}

// reaches reports whether target is from or one of its ancestors.
func (w *walk) reaches(from *object.Commit, target plumbing.Hash) (bool, error) {
	queue, seen := []*object.Commit{from}, map[plumbing.Hash]bool{from.Hash: true}
	for len(queue) > 0 {
		c := queue[0]
		queue = queue[1:]
		if c.Hash == target {
			return true, nil
		}
		for _, h := range w.parents(c) {
			if seen[h] {
				continue
			}
			seen[h] = true
			p, err := w.commit(h)
			if err != nil {
				return false, err
			}
			queue = append(queue, p)
		}
	}
	return false, nil
}

// byDate is a heap of commits, the newest on top; equal dates by hash, so that
// the answer never depends on map order.
type byDate []*object.Commit

func (q byDate) Len() int      { return len(q) }
func (q byDate) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q byDate) Less(i, j int) bool {
	a, b := q[i], q[j]
	if !a.Committer.When.Equal(b.Committer.When) {
		return a.Committer.When.After(b.Committer.When)
	}
	return slices.Compare(a.Hash[:], b.Hash[:]) < 0
}

// Push implements heap.Interface.
func (q *byDate) Push(x any) { *q = append(*q, x.(*object.Commit)) }

// Pop implements heap.Interface.
func (q *byDate) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
