package repo

import (
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
)

// hint names the nearest of the known names, or lists them when they are few.
func hint(name string, known []string) string {
	if near := field.Nearest(name, known); near != "" && len(name) > 2 {
		return "; did you mean " + near + "?"
	}
	known = slices.Sorted(slices.Values(known))
	if len(known) == 0 || len(known) > 12 {
		return ""
	}
	return "; there are " + strings.Join(known, ", ")
}
