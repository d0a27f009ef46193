package reconcile

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a work tree must be quiet before it is looked at: an
	// editor's save and a git checkout are many changes.
	settle = 700 * time.Millisecond
	// maxWatched bounds the directories watched; the poll sees the others.
	maxWatched = 4096
)

// watcher hears of changes in a local work tree, so that they are picked up
// before the next poll. It is a convenience: whatever it misses, the poll
// finds.
type watcher struct {
	changed chan struct{}
	log     *slog.Logger
	fs      *fsnotify.Watcher // nil = there is none
	done    sync.WaitGroup
}

func newWatcher(log *slog.Logger) *watcher {
	return &watcher{changed: make(chan struct{}, 1), log: log}
}

// follow watches what a look found. Directories that are new are added; the
// system takes away those that are gone.
func (w *watcher) follow(d Desired) {
	if d.Settings == nil || d.Settings.Git.URL != "" && d.Source == d.Settings.Git.URL || !filepath.IsAbs(d.Source) {
		return
	}
	if st, err := os.Stat(d.Source); err != nil || !st.IsDir() {
		return
	}
	if w.fs == nil {
		n, err := fsnotify.NewWatcher()
		if err != nil {
			w.log.Debug("changes of the work tree are not watched for; the poll finds them", "err", err)
			return
		}
		w.fs = n
		w.done.Go(w.listen)
	}
	have := map[string]bool{}
	for _, dir := range w.fs.WatchList() {
		have[dir] = true
	}
	for _, dir := range watched(d.Source) {
		if have[dir] {
			continue
		}
		if err := w.fs.Add(dir); err != nil {
			w.log.Debug("a directory is not watched; the poll finds its changes", "dir", dir, "err", err)
			return
		}
	}
}

// watched lists the directories whose changes matter: those of the work tree,
// and where git keeps the heads.
func watched(root string) []string {
	var out []string
	_ = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // the poll reports what cannot be read
		case !e.IsDir():
			return nil
		case len(out) >= maxWatched:
			return fs.SkipAll
		case e.Name() == ".git":
			out = append(out, p, filepath.Join(p, "refs", "heads"))
			return fs.SkipDir
		case p != root && e.Name()[0] == '.':
			return fs.SkipDir
		}
		out = append(out, p)
		return nil
	})
	return out
}

func (w *watcher) listen() {
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	defer quiet.Stop()
	for {
		select {
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if e.Op != fsnotify.Chmod && filepath.Ext(e.Name) != ".lock" {
				quiet.Reset(settle)
			}
		case err, ok := <-w.fs.Errors:
			if !ok {
				return
			}
			w.log.Debug("watching the work tree", "err", err)
			quiet.Reset(settle) // an overflow hides changes
		case <-quiet.C:
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}

func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close()
		w.done.Wait()
	}
}
