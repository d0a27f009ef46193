package field

import "strings"

// nearest is the closest of names to s, or "" when none is close.
func nearest(s string, names []string) string {
	best, at := "", (2+len(s))/3
	for _, n := range names {
		if d := distance(strings.ToLower(s), strings.ToLower(n)); d <= at && (best == "" || d < at) {
			best, at = n, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost = 1 + min(diag, row[j], row[j+1])
			}
			diag, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// Nearest is the closest of names to s, or "" when none is close; for "did you
// mean" in messages.
func Nearest(s string, names []string) string { return nearest(s, names) }
