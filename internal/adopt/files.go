package adopt

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// Status is what became of a manifest's file.
type Status string

// The states of a file.
const (
	Written  Status = "written"
	Replaced Status = "replaced" // it said something else, and --force was given
	Same     Status = "unchanged"
	Differs  Status = "differs" // it says something else and was left
	Declared Status = "declared elsewhere"
)

// File is what became of one manifest's file.
type File struct {
	Manifest *Manifest
	Status   Status
	Diff     string // unified, from what the file says to what was adopted; "" = none
}

// Write writes manifests below root, each in one step. A file that is there
// and says something else is left, unless force is set. No path leads out of
// root, whatever links there are. After an error the files that were written
// stay; doing it again goes on.
func Write(root string, manifests []Manifest, force bool) ([]File, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	var out []File
	for i := range manifests {
		m := &manifests[i]
		f := File{Manifest: m, Status: Declared}
		if m.Declared == "" {
			if f.Status, f.Diff, err = writeOne(dir, m, force); err != nil {
				return out, fmt.Errorf("%s: not written: %w: make room or see to the rights of its folder, and repeat; what is written stays", m.File, err)
			}
		}
		out = append(out, f)
	}
	return out, nil
}

func writeOne(dir *os.Root, m *Manifest, force bool) (Status, string, error) {
	old, err := dir.ReadFile(m.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Written, "", Put(dir, m.File, m.Text)
	case err != nil:
		return "", "", err
	case bytes.Equal(old, m.Text):
		return Same, "", nil
	}
	diff := udiff.Unified(m.File, m.File+" (adopted)", string(old), string(m.Text))
	if !force {
		return Differs, diff, nil
	}
	return Replaced, diff, Put(dir, m.File, m.Text)
}

// Put writes one file below dir in one step: a reader sees the old text or the
// new one, and a crash leaves no half.
func Put(dir *os.Root, file string, text []byte) error {
	if err := dir.MkdirAll(path.Dir(file), 0o755); err != nil {
		return err
	}
	temp := path.Join(path.Dir(file), "."+path.Base(file)+"."+rand.Text()[:8])
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if _, there := dir.Lstat(file); err == nil && there == nil {
		err = f.Sync() // what is replaced must not be lost with a crash; a new file is made again
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = dir.Rename(temp, file)
	}
	if err != nil {
		_ = dir.Remove(temp)
	}
	return err
}

// Lines are the items that a composition needs for the manifests, in their
// order, as clusters/<name>/resources.yaml spells them. Files that declare an
// object already are listed already.
func Lines(manifests []Manifest) []string {
	var out []string
	for _, m := range manifests {
		if m.Declared == "" {
			out = append(out, "../../"+m.File)
		}
	}
	return out
}

// Markdown-free text of several documents, for --stdout.
func stream(manifests []Manifest) []byte {
	var b bytes.Buffer
	for _, m := range manifests {
		if m.Declared != "" {
			continue
		}
		b.WriteString("---\n# " + strings.ReplaceAll(m.File, "\n", " ") + "\n")
		b.Write(m.Text)
	}
	return b.Bytes()
}

// Stream is all manifests as one YAML stream.
func (r Result) Stream() []byte { return stream(r.Manifests) }
