package gitrepo

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"path"
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

// The answers. Unasked: the history is not whole or there is none. Removed: a
// commit took the declaration away. Aside: only a branch ever declared it, and
// was merged without it. Uncommitted: the head commit still declares it, the
// work tree does not. Named: the head commit names it in a listed file, and
// what was read is no different from that commit. Never: the whole history
// never declared it.
const (
	Unasked Verdict = iota
	Removed
	Aside
	Uncommitted
	Named
	Never
)

// Word is git's word on one vmid of one cluster.
type Word struct {
	Verdict Verdict
	Commit  Commit   // that removed it, when Removed, or the merge, when Aside
	Reason  string   // why git could not be asked, when Unasked
	Broken  bool     // Unasked because the repository cannot be read, not because it is shallow or without commits
	Todo    string   // what to do about that, where it is known
	Names   []string // what the removed declaration, or the last that can be read, called its guest, sorted; none when that is not known
	Kinds   []string // the kinds that it gave, sorted; "" where it gave none
}

// String is the word as a plan shows it.
func (w Word) String() string {
	switch w.Verdict {
	case Removed:
		return "removed by " + w.Commit.String()
	case Aside:
		return "declared only on a branch, which was merged without it by " + w.Commit.String()
	case Named:
		return "the commit still names this vmid in a listed file"
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
			out[id] = Word{Reason: t.reason, Broken: t.broken, Todo: t.todo}
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
			word = Word{Reason: err.Error(), Broken: true, Todo: t.remedy(err)}
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
	at, err := w.decl.of(head, vmid)
	if err != nil {
		return Word{}, err
	}
	if len(at) > 0 {
		return w.stillThere(head, at, vmid)
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
		return w.dropped(merges, vmid)
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
		at, err := w.decl.of(p, vmid)
		if err != nil {
			return nil, nil, err
		}
		if len(at) > 0 {
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
				return w.word(Removed, m, with, vmid)
			}
		}
	}
	with, _, err := w.split(found, vmid)
	if err != nil {
		return Word{}, err
	}
	return w.word(Removed, found, with, vmid)
}

// stillThere is the word on a vmid that the head commit declares. A work tree
// that does not must differ from the commit in a file that says so; everything
// else means that the two were not read alike.
func (w *walk) stillThere(head *object.Commit, at []declared, vmid int) (Word, error) {
	files := []string{path.Join("clusters", w.decl.cluster, "resources.yaml")}
	for _, x := range at {
		files = append(files, x.file)
	}
	dirty, err := w.tree.Dirty(files) // none in the tree of a commit
	if err != nil {
		return Word{}, err
	}
	if len(dirty) == 0 {
		return Word{Verdict: Named}, nil
	}
	return w.word(Uncommitted, nil, []*object.Commit{head}, vmid)
}

// dropped is the word where nothing but merges lacks what one of their parents
// has. A merge whose first parent has it took it out of its own branch. Where
// only merged branches ever had it, the branch that is followed never did.
func (w *walk) dropped(merges []*object.Commit, vmid int) (Word, error) {
	for _, m := range merges {
		with, _, err := w.split(m, vmid)
		if err != nil {
			return Word{}, err
		}
		if slices.ContainsFunc(with, func(p *object.Commit) bool { return p.Hash == m.ParentHashes[0] }) {
			return w.word(Removed, m, with, vmid)
		}
	}
	with, _, err := w.split(merges[0], vmid)
	if err != nil {
		return Word{}, err
	}
	return w.word(Aside, merges[0], with, vmid)
}

// word is a verdict with what the declaration said of its guest: the newest of
// the commits that have it, or the newest before them whose text can be read,
// for as long as it was declared.
func (w *walk) word(v Verdict, by *object.Commit, with []*object.Commit, vmid int) (Word, error) {
	out := Word{Verdict: v}
	if by != nil {
		out.Commit = describe(by)
	}
	queue, seen := &byDate{}, map[plumbing.Hash]bool{}
	for {
		for _, c := range with {
			if !seen[c.Hash] {
				seen[c.Hash] = true
				heap.Push(queue, c)
			}
		}
		if queue.Len() == 0 {
			return out, nil
		}
		c := heap.Pop(queue).(*object.Commit)
		at, err := w.decl.of(c, vmid)
		if err != nil {
			return Word{}, err
		}
		if names, kinds := called(at); len(names) > 0 {
			out.Names, out.Kinds = names, kinds
			return out, nil
		}
		if with, _, err = w.split(c, vmid); err != nil {
			return Word{}, err
		}
	}
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
