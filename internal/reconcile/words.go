package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/proxops/proxops/internal/gitrepo"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/repo"
)

// words asks git who removed the declarations of the vmids, and what speaks
// against a delete. It is asked only when there is something that might be
// deleted.
func words(ctx context.Context, c *repo.Cluster, o Options, ids []int) (map[int]plan.Word, error) {
	out := map[int]plan.Word{}
	var unsaid []int // that no commit tells of: they are gone from the files, and files can be half written
	if c.Tree != nil {
		said, err := o.Memory.Removals(ctx, c.Tree, c.Name, ids)
		if err != nil {
			return nil, fmt.Errorf("%s: what git says of guests to delete: %w", c.Name, err)
		}
		for vmid, w := range said {
			out[vmid] = plan.Word{Never: w.Verdict == gitrepo.Never, Commit: w.Commit.Hash, Broken: w.Broken, Todo: w.Todo,
				Names: w.Names, Kinds: w.Kinds, Text: w.String(), Hold: doubt(w)}
			if c.Tree.Local && (w.Verdict == gitrepo.Uncommitted || w.Verdict == gitrepo.Unasked) {
				unsaid = append(unsaid, vmid)
			}
		}
	}
	hold := func(vmid int, h *plan.Hold) {
		w := out[vmid]
		w.Hold = h
		out[vmid] = w
	}
	if o.Settled != nil {
		slices.Sort(unsaid)
		settled := o.Settled(c.Commit, unsaid)
		for _, id := range unsaid {
			if !settled[id] {
				hold(id, &plan.Hold{Rule: "just-removed", Files: true, Text: "it was just removed in the work tree, and not in a commit",
					Todo: "it is deleted when the work tree, looked at again, says the same; a commit tells at once"})
			}
		}
	}
	if h := unsettled(c, o); h != nil {
		for _, id := range ids {
			hold(id, h)
		}
	}
	return out, nil
}

// doubt is what git's word itself leaves open.
func doubt(w gitrepo.Word) *plan.Hold {
	switch w.Verdict {
	case gitrepo.Named:
		return &plan.Hold{Rule: "still-named", Files: true, Text: w.String() + ", and the files that were read are the same",
			Todo: "take the vmid out of the files that clusters/<name>/resources.yaml lists, in a commit"}
	case gitrepo.Aside:
		return &plan.Hold{Rule: "declared-aside", Text: w.String() + ": the branch that is followed never declared it",
			Todo: "take the tag off it; if it is to go, declare it in a commit and remove it in the next"}
	case gitrepo.Removed, gitrepo.Uncommitted:
		if len(w.Names) > 0 && !slices.ContainsFunc(w.Kinds, unknownKind) {
			return nil
		}
		what := "name"
		if len(w.Names) > 0 {
			what = "kind"
		}
		return &plan.Hold{Rule: "unknown-name", Text: w.String() + ", but the " + what + " that was declared is not known: no manifest of it in the history can be read",
			Todo: "declare it in a commit, as it is, and remove it in the next"}
	}
	return nil
}

func unknownKind(name string) bool {
	k, ok := kind.Lookup(name)
	return !ok || !k.IsGuest()
}

// unsettled is what keeps all guests: files that are older than they should be,
// or in the middle of a change.
func unsettled(c *repo.Cluster, o Options) *plan.Hold {
	if o.Stale {
		since := ""
		if !o.StaleSince.IsZero() {
			since = " since " + o.StaleSince.UTC().Format(time.RFC3339)
		}
		return &plan.Hold{Rule: "stale", Files: true, Text: "the repository could not be fetched" + since + ": a later commit may have declared it again",
			Todo: "see why the fetch fails; it is decided when one succeeds"}
	}
	if c.Tree == nil {
		return nil
	}
	if text, todo := c.Tree.Underway(); text != "" {
		return &plan.Hold{Rule: "git-underway", Files: true, Text: text, Todo: todo}
	}
	return nil
}

// settleAtLeast bounds below how long an uncommitted removal must last: files
// are written by hand and by editors, whatever the interval is.
const settleAtLeast = 10 * time.Second

// sightings remembers the removals that stand in a work tree without a commit,
// and since when each cycle found them there on the same head.
type sightings struct {
	head  string
	first map[int]time.Time // when it was looked at
	asked bool              // in this cycle
}

// settled tells which removals were there, in this and each cycle before it, at
// looks that lie an interval apart. Those of cycles in quick succession, after
// edits or when somebody asks for one, are one look.
func (s *sightings) settled(looked time.Time, every time.Duration, head string, vmids []int) map[int]bool {
	s.asked = true
	if head != s.head {
		s.head, s.first = head, nil
	}
	out, next := map[int]bool{}, map[int]time.Time{}
	for _, id := range vmids {
		first, known := s.first[id]
		if !known {
			first = looked
		}
		next[id] = first
		out[id] = looked.Sub(first) >= max(every, settleAtLeast)
	}
	s.first = next
	return out
}

// ended ends a cycle. One that did not come to ask saw no removal: files that
// could not be loaded say nothing, nor does a cluster that does not answer.
func (s *sightings) ended() {
	if !s.asked {
		s.first = nil
	}
	s.asked = false
}
