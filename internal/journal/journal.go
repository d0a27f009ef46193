package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/gofrs/flock"
)

// Bounds of the journal.
const (
	maxFile  = 8 << 20 // bytes of one file before it is put aside
	keepOld  = 4       // files put aside that are kept
	maxEntry = 1 << 20 // bytes of a line that is read back
)

// Journal appends to the files of one directory. It is safe for concurrent
// use. The present file is journal.jsonl; journal.1.jsonl is the one before it.
type Journal struct {
	dir  string
	lock *flock.Flock
	max  int64

	mu   sync.Mutex
	file *os.File
	size int64
}

// Dir is where the journal lies in a data directory.
func Dir(dataDir string) string { return filepath.Join(dataDir, "journal") }

// Open opens the journal in dir for appending, and makes it where there is
// none. One process at a time writes it: for a second one it is an error.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, bare(err))
	}
	j := &Journal{dir: dir, lock: flock.New(filepath.Join(dir, "lock")), max: maxFile}
	got, err := j.lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, bare(err))
	}
	if !got {
		return nil, fmt.Errorf("%s: another process writes this journal: give each agent a data-dir of its own", dir)
	}
	if err := j.open(); err != nil {
		_ = j.lock.Unlock()
		return nil, err
	}
	return j, nil
}

func (j *Journal) open() error {
	f, err := os.OpenFile(j.path(0), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", j.path(0), bare(err))
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("%s: %w", j.path(0), bare(err))
	}
	j.file, j.size = f, st.Size()
	return j.mend()
}

// mend ends a line that a crash or a full disk cut short, so that the next one
// is not lost with it.
func (j *Journal) mend() error {
	if j.size == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := j.file.ReadAt(last, j.size-1); err != nil || last[0] == '\n' {
		return err
	}
	n, err := j.file.Write([]byte("\n"))
	j.size += int64(n)
	return err
}

func (j *Journal) path(n int) string { return file(j.dir, n) }

func file(dir string, n int) string {
	if n == 0 {
		return filepath.Join(dir, "journal.jsonl")
	}
	return filepath.Join(dir, fmt.Sprintf("journal.%d.jsonl", n))
}

// Append writes entries and waits until they are on the disk. After an error
// the journal goes on with the next entries.
func (j *Journal) Append(entries ...Entry) error {
	if len(entries) == 0 {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, e := range entries {
		if err := enc.Encode(e); err != nil {
			return fmt.Errorf("%s: %w", j.path(0), err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.size > 0 && j.size+int64(b.Len()) > j.max {
		if err := j.rotate(); err != nil {
			return err
		}
	}
	if j.file == nil {
		if err := j.open(); err != nil {
			return err
		}
	}
	n, err := j.file.Write(b.Bytes())
	j.size += int64(n)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		_ = j.file.Close()
		j.file = nil // opened, and mended, with the next entries
		return fmt.Errorf("%s: %w", j.path(0), bare(err))
	}
	return nil
}

// rotate puts the present file aside and drops the oldest.
func (j *Journal) rotate() error {
	if j.file != nil {
		_ = j.file.Close()
		j.file = nil
	}
	for n := keepOld; n > 0; n-- {
		if err := os.Rename(j.path(n-1), j.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", j.path(n-1), bare(err))
		}
	}
	if d, err := os.Open(j.dir); err == nil { // the renames themselves
		_ = d.Sync()
		_ = d.Close()
	}
	return j.open()
}

// Close ends the journal.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var err error
	if j.file != nil {
		err = j.file.Close()
		j.file = nil
	}
	return errors.Join(err, j.lock.Unlock())
}

// Read gives the entries that keep takes (nil = all), oldest first, at most
// the last limit of them (0 = all). Lines that cannot be read are passed over
// and counted: a crash may cut one short. No journal is no entries.
func Read(dir string, limit int, keep func(Entry) bool) (entries []Entry, damaged int, err error) {
	for n := keepOld; n >= 0; n-- {
		f, err := os.Open(file(dir, n))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", file(dir, n), bare(err))
		}
		bad, err := scan(f, func(e Entry) {
			if keep != nil && !keep(e) {
				return
			}
			entries = append(entries, e)
			if limit > 0 && len(entries) >= 2*limit {
				entries = append(entries[:0], entries[len(entries)-limit:]...)
			}
		})
		_ = f.Close()
		damaged += bad
		if err != nil {
			return nil, damaged, fmt.Errorf("%s: %w", file(dir, n), bare(err))
		}
	}
	if limit > 0 && len(entries) > limit {
		entries = entries[len(entries)-limit:]
	}
	return entries, damaged, nil
}

func scan(r io.Reader, take func(Entry)) (damaged int, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(br)
		var e Entry
		switch {
		case len(bytes.TrimSpace(line)) == 0 && err == nil:
		case len(line) > 0 && (json.Unmarshal(line, &e) != nil || e.Event == ""):
			damaged++
		case len(line) > 0:
			take(e)
		}
		if errors.Is(err, io.EOF) {
			return damaged, nil
		}
		if err != nil {
			return damaged, err
		}
	}
}

// readLine reads one line; what is beyond maxEntry of it is dropped.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		if len(line) <= maxEntry {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// bare takes the path out of an error that names it itself.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}
