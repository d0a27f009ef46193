package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// writeWhole writes a file in one step: a reader sees the old text or the new
// one, and where there is no room nothing is left behind.
func writeWhole(file string, text []byte, mode fs.FileMode) error {
	if err := renameio.WriteFile(file, text, mode, renameio.WithTempDir(filepath.Dir(file))); err != nil {
		return fmt.Errorf("%s: not written: %w: make room, or see to the rights of its folder", file, cause(err))
	}
	return nil
}

// cause takes the path out of an error: of a file that is written in one step
// it is that of a temporary one.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
