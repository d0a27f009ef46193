package plan

import (
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
)

// another reports whether the removed declaration was of another guest than g:
// of one that none of its names fits, or of a VM where g is a container. What
// the word does not say tells nothing.
func (w Word) another(g *live.Guest) bool {
	named := slices.ContainsFunc(w.Names, func(n string) bool { return strings.EqualFold(n, g.Name) })
	return len(w.Names) > 0 && !named || len(w.types()) > 0 && !slices.Contains(w.types(), g.Type)
}

// types are the guest types of the declared kinds, "qemu" or "lxc".
func (w Word) types() (out []string) {
	for _, name := range w.Kinds {
		if k, ok := kind.Lookup(name); ok && k.IsGuest() {
			out = append(out, k.Guest)
		}
	}
	return out
}

// guest is what the removed declaration was of, for messages.
func (w Word) guest() string {
	return strings.Join(slices.DeleteFunc([]string{strings.Join(w.Kinds, " or "), strings.Join(w.Names, " or ")}, func(s string) bool { return s == "" }), " ")
}
