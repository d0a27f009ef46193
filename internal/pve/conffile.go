package pve

import (
	"crypto/sha1" //nolint:gosec // PVE's digest is SHA-1
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// IsWholeFile reports whether the answer of a container's GET …/config is all
// that its config file holds: no change is pending, and there is no snapshot.
// PVE tells neither, but its digest is the SHA-1 of the file, and it writes a
// file in one way only: what is rebuilt from the answer and has the same digest
// is that file. False also stands for a file that was edited by hand.
func (c GuestConfig) IsWholeFile() bool {
	var b strings.Builder
	if d, ok := c.Get("description"); ok && d.Value != nil {
		for line := range strings.SplitSeq(strings.TrimRight(*d.Value, "\n"), "\n") {
			b.WriteString("#" + commentText(line) + "\n")
		}
	}
	var raw []json.RawMessage
	for _, e := range c.Entries { // sorted by key, as PVE writes them
		switch {
		case e.Raw != nil:
			raw = append(raw, e.Raw)
		case e.Value != nil && e.Key != "description":
			fmt.Fprintf(&b, "%s: %s\n", e.Key, *e.Value)
		}
	}
	for _, r := range raw {
		var pairs [][2]string
		if json.Unmarshal(r, &pairs) != nil {
			return false
		}
		for _, p := range pairs {
			fmt.Fprintf(&b, "%s: %s\n", p[0], p[1])
		}
	}
	sum := sha1.Sum([]byte(b.String())) //nolint:gosec // see above
	return c.Digest == hex.EncodeToString(sum[:])
}

// commentText is a line of a description as PVE writes it into a config file:
// colons, percent signs, control characters and what is not ASCII are
// percent-encoded.
func commentText(line string) string {
	var b strings.Builder
	for i := range len(line) {
		if c := line[i]; c < ' ' || c > '~' || c == '%' || c == ':' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
