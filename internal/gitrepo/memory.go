package gitrepo

import (
	"context"
	"slices"
)

// Memory keeps what the history of a head commit said, so that a daemon with a
// guest to prune, or one that it will never prune, reads the history once for
// a commit and not in every cycle. The zero value is ready, and a nil one
// remembers nothing. It is not safe for concurrent use.
type Memory struct {
	of    memoryKey
	words map[int]Word
	reads int
}

// memoryKey is all that an answer depends on, when git could be asked.
type memoryKey struct {
	root, prefix, head, cluster string
	local                       bool
}

// Removals is Tree.Removals. An answer that may change while the head stays
// the same, as that of a shallow clone or of edits in the work tree, is asked
// for again.
func (m *Memory) Removals(ctx context.Context, t *Tree, cluster string, vmids []int) (map[int]Word, error) {
	if m == nil {
		return t.Removals(ctx, cluster, vmids)
	}
	if k := (memoryKey{t.Root, t.prefix, t.Head.Hash, cluster, t.Local}); k != m.of {
		m.of, m.words = k, map[int]Word{}
	}
	out := make(map[int]Word, len(vmids))
	var ask []int
	for _, id := range vmids {
		if w, ok := m.words[id]; ok {
			w.Names, w.Kinds = slices.Clone(w.Names), slices.Clone(w.Kinds)
			out[id] = w
		} else {
			ask = append(ask, id)
		}
	}
	if len(ask) == 0 {
		return out, nil
	}
	m.reads++
	said, err := t.Removals(ctx, cluster, ask)
	for id, w := range said {
		out[id] = w
		if w.Verdict != Unasked && w.Verdict != Uncommitted && w.Verdict != Named {
			m.words[id] = w
		}
	}
	return out, err
}

// Reads counts how often a history was read.
func (m *Memory) Reads() int {
	if m == nil {
		return 0
	}
	return m.reads
}
