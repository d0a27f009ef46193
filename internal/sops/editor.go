package sops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/shlex"

	"github.com/proxops/proxops/internal/secret"
)

// Terminal is what an editor is given to talk to the user.
type Terminal struct {
	In       *os.File // nil: nothing to read
	Out, Err io.Writer
}

// EditorCommand finds the user's editor in a list in the form of os.Environ:
// SOPS_EDITOR, VISUAL, EDITOR, else vi. Quoting is that of a shell.
func EditorCommand(environ []string) ([]string, error) {
	for _, name := range []string{"SOPS_EDITOR", "VISUAL", "EDITOR"} {
		for _, kv := range environ {
			v, ok := strings.CutPrefix(kv, name+"=")
			if !ok || strings.TrimSpace(v) == "" {
				continue
			}
			argv, err := shlex.Split(v)
			if err != nil || len(argv) == 0 {
				return nil, fmt.Errorf("%s: not a command line: check its quotes", name)
			}
			return argv, nil
		}
	}
	return []string{"vi"}, nil
}

// EditInEditor lets the user edit text in a file of mode 0600 inside a private
// directory in memory, and gives what the file holds when the editor is done.
// Where no such directory exists it warns on term.Err and uses the disk. The
// file, and whatever the editor left beside it, is overwritten and removed when
// the editor ends, on SIGTERM and on SIGHUP, which end the editor. What a
// process that was killed left behind is removed by the next edit of the same
// user, which says so on term.Err. SIGINT is
// left to the editor, as git does: some editors use it as a key, and one that
// dies of it ends the edit with an error. For the same reason ctx, which a
// command cancels on SIGINT, is only looked at before the editor starts.
func EditInEditor(ctx context.Context, editor []string, text secret.Text, term Terminal) (_ secret.Text, err error) {
	if len(editor) == 0 {
		return secret.Text{}, errors.New("no editor: set EDITOR")
	}
	if err := ctx.Err(); err != nil {
		return secret.Text{}, err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	sweep(term.Err)
	dir, inMemory, err := privateDir()
	if err != nil {
		return secret.Text{}, err
	}
	defer func() { err = errors.Join(err, wipe(dir)) }()
	if !inMemory {
		fmt.Fprintf(term.Err, "warning: no directory in memory (tmpfs) found: while you edit, the plaintext is on disk in %s\n", dir)
	}
	file := filepath.Join(dir, "secrets.yaml")
	if err := os.WriteFile(file, []byte(text.Reveal()), 0o600); err != nil {
		return secret.Text{}, fmt.Errorf("%s: the text to edit has no place there: %w: make room, or name another directory in XDG_RUNTIME_DIR or TMPDIR", dir, bare(err))
	}
	if err := runEditor(ctx, append(append([]string{}, editor...), file), term, signals); err != nil {
		return secret.Text{}, err
	}
	out, err := os.ReadFile(file)
	if err != nil {
		return secret.Text{}, errors.New("the editor removed the file: nothing was changed")
	}
	return secret.New(string(out)), nil
}

func runEditor(ctx context.Context, argv []string, term Terminal, signals <-chan os.Signal) error {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = term.Out, term.Err
	if term.In != nil {
		cmd.Stdin = term.In
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 3 * time.Second
	go func() {
		for {
			select {
			case s := <-signals:
				if s != syscall.SIGINT {
					stop(fmt.Errorf("ended by the signal %q", s))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("editor %s: %w: nothing was changed", argv[0], context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("editor %s: %w: nothing was changed", argv[0], err)
	}
	return nil
}

// editDir begins the names of the directories that plaintext is edited in; the
// id of the process and a random number follow.
const editDir = "proxops-edit-"

// memoryPlaces are the directories in memory that a plaintext may go to.
func memoryPlaces() []string {
	var out []string
	for _, place := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/dev/shm"} {
		if place != "" && isMemory(place) {
			out = append(out, place)
		}
	}
	return out
}

// privateDir makes a directory that only this user can enter, in memory when
// the system has a place for it.
func privateDir() (dir string, inMemory bool, err error) {
	name := fmt.Sprintf("%s%d-", editDir, os.Getpid())
	for _, place := range memoryPlaces() {
		if dir, err := os.MkdirTemp(place, name); err == nil {
			return dir, true, nil
		}
	}
	dir, err = os.MkdirTemp("", name)
	return dir, false, err
}

// sweep removes what edits of this user left behind that were killed: SIGKILL
// and a crash leave nobody to do it. A directory is left alone while the process
// in its name lives, or another that was given the same id since.
func sweep(tell io.Writer) {
	for _, place := range append(memoryPlaces(), os.TempDir()) {
		entries, err := os.ReadDir(place)
		if err != nil {
			continue
		}
		for _, e := range entries {
			dir := filepath.Join(place, e.Name())
			if info, err := e.Info(); err != nil || !info.IsDir() || !mine(info) || !deserted(e.Name()) {
				continue
			}
			if err := wipe(dir); err != nil {
				fmt.Fprintf(tell, "warning: %v\n", err)
				continue
			}
			fmt.Fprintf(tell, "removed %s: an edit that was killed had left its plaintext there\n", dir)
		}
	}
}

// deserted reports whether a directory's name is that of an edit whose process
// is gone.
func deserted(name string) bool {
	rest, ours := strings.CutPrefix(name, editDir)
	id, _, named := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(id)
	return ours && named && err == nil && pid > 0 && gone(pid)
}

// wipe overwrites and removes every file below dir: editors leave swap and
// backup files next to the one they edit.
func wipe(dir string) error {
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			if info, err := f.Stat(); err == nil {
				_, _ = f.Write(make([]byte, info.Size()))
				_ = f.Sync()
			}
			_ = f.Close()
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("%s: plaintext secrets could not be removed, remove them by hand: %w", dir, err)
	}
	return nil
}
