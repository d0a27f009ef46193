package gitrepo

import (
	"errors"
	"io/fs"
	"time"
)

// stater is a directory that files are looked up in.
type stater interface {
	Stat(name string) (fs.FileInfo, error)
}

// underwayMarks are what git keeps in the git directory of a work tree while a
// command of it changes files, or waits for a person in the middle of one.
var underwayMarks = []struct{ name, what string }{
	{"index.lock", "git is at work in the work tree"},
	{"MERGE_HEAD", "a merge is under way"},
	{"CHERRY_PICK_HEAD", "a cherry-pick is under way"},
	{"REVERT_HEAD", "a revert is under way"},
	{"rebase-merge", "a rebase is under way"},
	{"rebase-apply", "a rebase or git am is under way"},
	{"sequencer", "a cherry-pick or revert is under way"},
	{"BISECT_LOG", "a bisect is under way"},
}

// mark tells two moments of a work tree apart that git changed it between: it
// writes the index last of all.
type mark struct {
	index time.Time
	size  int64
}

func markOf(dir stater) mark {
	st, err := dir.Stat("index")
	if err != nil {
		return mark{}
	}
	return mark{st.ModTime(), st.Size()}
}

// Underway says why the files of a work tree may be those of a moment that
// nobody means: git is in the middle of something, or changed them since the
// tree was opened. It is to be asked after the files were read; "" = they
// stood still. The second text is what to do. A tree of a commit never moves.
func (t *Tree) Underway() (text, todo string) {
	if t.git == nil {
		return "", ""
	}
	for _, m := range underwayMarks {
		if _, err := t.git.Stat(m.name); err == nil {
			todo := "finish it or abort it (git status tells how)"
			if m.name == "index.lock" {
				todo = "it is decided when git has finished; where no git runs any more, remove the lock (git rev-parse --git-path index.lock names it)"
			}
			return m.what + " (" + m.name + ")", todo
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "the git directory is not readable: " + plain(err).Error(), "give the agent the right to read it"
		}
	}
	moved := markOf(t.git) != t.opened
	if t.repo != nil {
		ref, err := t.repo.Head()
		moved = moved || err != nil || ref.Hash().String() != t.Head.Hash
	}
	if moved {
		return "git changed the work tree while it was read", "it is decided when it stands still"
	}
	return "", ""
}
