package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/wire"
)

// unusedStay says, where a config write makes new volumes, that those which
// lie unused on the guest are not taken for them: PVE allocates anew for each
// create form, and nobody but a person may say that old data serve again
// (facts D). "" = nothing to say. No write of ours leaves an unusedN behind:
// a filled slot is never emptied.
func unusedStay(g *field.Guest, edits []field.Edit) string {
	if !slices.ContainsFunc(edits, func(e field.Edit) bool { return e.Create }) {
		return ""
	}
	var out []string
	for _, key := range sortedKeys(g.Config) {
		if text, ok := g.Get(key); ok && wire.KeyClass(key) == "unused" {
			out = append(out, fmt.Sprintf("%s (%s)", key, firstToken(text)))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "a new volume is made, " + strings.Join(out, ", ") + " stays unused"
}
