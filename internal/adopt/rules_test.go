package adopt

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/plan"
)

// No name of a guest or file leads to a path or to a name that a manifest
// cannot have.
func TestValidName(t *testing.T) {
	for in, want := range map[string]string{
		"../../etc/passwd": "etc-passwd", "a/b\\c": "a-b-c", "Ünïcode": "n-code", "..": "", "--x--": "x", "a\x00b\n": "a-b",
		strings.Repeat("x", 200): strings.Repeat("x", 63), strings.Repeat("ab ", 40): strings.Repeat("ab-", 20) + "ab",
	} {
		if got := validName(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// A claim is the tag alone. An update that writes more is a difference between
// the manifest and what it was made of.
func TestOnlyTheTagIsAClaim(t *testing.T) {
	tags, vga := field.Change{Key: "tags"}, field.Change{Key: "vga"}
	for _, x := range []struct {
		verb    plan.Verb
		changes []field.Change
		want    bool
	}{
		{plan.Update, []field.Change{tags}, true},
		{plan.Update, []field.Change{tags, vga}, false},
		{plan.Update, []field.Change{vga}, false},
		{plan.Update, nil, false},
		{plan.Create, []field.Change{tags}, false},
	} {
		if got := isClaim(plan.Action{Verb: x.verb, Changes: x.changes}); got != x.want {
			t.Errorf("%s of %d changes: %v", x.verb, len(x.changes), got)
		}
	}
}
