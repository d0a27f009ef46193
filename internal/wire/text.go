package wire

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// ParseBool reads PVE's booleans: 1, on, yes, true and 0, off, no, false.
// Property strings keep such spellings verbatim (facts.md B).
func ParseBool(s string) (value, ok bool) {
	switch strings.ToLower(s) {
	case "1", "on", "yes", "true":
		return true, true
	case "0", "off", "no", "false":
		return false, true
	}
	return false, false
}

// Digits reports whether s is a plain decimal number.
func Digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func fieldsOf(s, cut string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(cut, r) })
}

// TagPattern is what PVE takes as a tag (facts.md H), anchored.
const TagPattern = `^[a-zA-Z0-9_][a-zA-Z0-9_+.\-]*$`

var tagRE = regexp.MustCompile(TagPattern)

// ValidTag reports whether PVE takes s as a tag.
func ValidTag(s string) bool { return tagRE.MatchString(s) }

// SplitTags cuts PVE's tag text at commas, semicolons and blanks.
func SplitTags(s string) []string { return fieldsOf(s, ",; \t\n") }

// FoldTags is the set of tags as PVE compares them: sorted, each once, in
// lower case unless the datacenter is case-sensitive.
func FoldTags(tags []string, caseSensitive bool) []string {
	out := make([]string, 0, len(tags))
	for _, t := range tags {
		if !caseSensitive {
			t = strings.ToLower(t)
		}
		out = append(out, t)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// JoinTags is PVE's own spelling of a tag list.
func JoinTags(tags []string) string { return strings.Join(tags, ";") }

// HasTag reports whether tags hold t, without case.
func HasTag(tags []string, t string) bool {
	return slices.ContainsFunc(tags, func(x string) bool { return strings.EqualFold(x, t) })
}

// SplitNames cuts nameserver and searchdomain texts: PVE takes blanks, commas
// and semicolons and keeps them verbatim for VMs (facts.md A xii).
func SplitNames(s string) []string { return fieldsOf(s, ",; \t\n") }

// EncodeSSHKeys is the text of a VM's sshkeys: the keys one a line, every byte
// outside the unreserved ones percent-encoded. PVE refuses raw text and "+"
// for a blank (facts.md A xiii).
func EncodeSSHKeys(keys []string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(strings.Join(keys, "\n")) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.~", c) >= 0:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// DecodeSSHKeys gives the keys of a VM's sshkeys text, blank lines left out.
// The error does not hold the text.
func DecodeSSHKeys(s string) ([]string, error) {
	raw, err := url.PathUnescape(s)
	if err != nil {
		var bad url.EscapeError
		if errors.As(err, &bad) {
			return nil, fmt.Errorf("sshkeys is not percent-encoded text: %q", string(bad))
		}
		return nil, errors.New("sshkeys is not percent-encoded text")
	}
	return SplitKeys(raw), nil
}

// SplitKeys gives the lines of a key file, trimmed, blank ones left out.
func SplitKeys(s string) []string {
	var out []string
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// SplitFlags cuts a cpu flags text, such as "+aes;-pcid". A flag without sign
// reads as +.
func SplitFlags(s string) []string {
	var out []string
	for _, f := range fieldsOf(s, "; ") {
		if f[0] != '+' && f[0] != '-' {
			f = "+" + f
		}
		out = append(out, f)
	}
	return out
}

// JoinFlags is the text of a list of flags.
func JoinFlags(flags []string) string { return strings.Join(flags, ";") }

// SetFlag puts a signed flag into flags: in the place of the same flag with
// either sign, else at the end.
func SetFlag(flags []string, flag string) []string {
	out := slices.Clone(flags)
	i := slices.IndexFunc(out, func(f string) bool { return f[1:] == flag[1:] })
	if i < 0 {
		return append(out, flag)
	}
	out[i] = flag
	return out
}

// HasFlag reports whether name stands in flags, and with which sign.
func HasFlag(flags []string, name string) (on, ok bool) {
	for _, f := range flags {
		if f[1:] == name {
			return f[0] == '+', true
		}
	}
	return false, false
}
