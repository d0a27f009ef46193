package adopt

import (
	"fmt"
	"strings"

	"github.com/proxops/proxops/internal/kind"
)

const longestName = 63

// validName makes metadata.name of any text: lower-case letters and digits,
// parts joined by single hyphens, at most 63 characters. It may be empty.
func validName(s string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			gap = false
			b.WriteRune(r)
			continue
		}
		gap = true
	}
	out := b.String()
	if len(out) > longestName {
		out = strings.Trim(out[:longestName], "-")
	}
	return out
}

// names gives every object of one kind a name of its own, in a way that does
// not depend on what is selected: the first wanting one gets it, later ones
// with their suffix.
type names struct {
	kind  *kind.Kind
	taken map[string]bool
}

// all names objects, in their order. want and suffix are of object i; fixed is
// a name that it has already, or "".
func (n *names) all(count int, want, suffix, fixed func(i int) string) []string {
	out := make([]string, count)
	for i := range count {
		if out[i] = fixed(i); out[i] != "" {
			n.taken[out[i]] = true
		}
	}
	for i := range count { // who can have the plain name gets it, before any suffix is made
		if w := validName(want(i)); out[i] == "" && w != "" && !n.taken[w] {
			out[i], n.taken[w] = w, true
		}
	}
	for i := range count {
		if out[i] == "" {
			out[i] = n.with(validName(want(i)), validName(suffix(i)))
			n.taken[out[i]] = true
		}
	}
	return out
}

// with joins a name and a suffix, and counts where that is taken too.
func (n *names) with(name, suffix string) string {
	if name == "" {
		name = strings.ToLower(n.kind.Folder)
	}
	for i := 1; ; i++ {
		end := "-" + suffix
		if suffix == "" {
			end = ""
		}
		if i > 1 {
			end += fmt.Sprintf("-%d", i)
		}
		cut := min(len(name), longestName-len(end))
		try := strings.Trim(name[:cut], "-") + end
		if !n.taken[try] {
			return try
		}
	}
}
