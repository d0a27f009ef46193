package plan

import (
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/wire"
)

// tagEdit is the write that gives a guest its tags and ours. Declared tags are
// the whole set; a null leaves ours alone; without a declaration the live tags
// stay and ours is added. Tags that a clone inherited do not count.
func tagEdit(declared field.Opt[[]string], g *field.Guest, o live.Options) (field.Edit, bool) {
	text, _ := g.Get("tags")
	now := TagSet(wire.SplitTags(text), o)
	var want []string
	switch declared.State() {
	case field.Set:
		want, _ = declared.Get()
	case field.Absent:
		if g.Exists && !g.Env.AfterClone {
			want = now
		}
	}
	want = TagSet(append(slices.Clone(want), kind.OwnerTag), o)
	if sameSet(now, want) && g.Exists {
		return field.Edit{}, false
	}
	v := wire.Plain(wire.JoinTags(want))
	c := field.Change{Path: "tags", Key: "tags", New: &v}
	if len(now) > 0 {
		old := wire.Plain(wire.JoinTags(now))
		c.Old = &old
	}
	if g.Running {
		c.Impact = field.Live
	}
	return field.Edit{Key: "tags", Value: v, Impact: c.Impact, Changes: []field.Change{c}}, true
}

// TagSet folds and sorts tags as PVE does, each once; where the datacenter
// keeps the given order, that is kept. The ownership tag is ours in any case.
func TagSet(tags []string, o live.Options) []string {
	var out []string
	for _, t := range tags {
		if strings.EqualFold(t, kind.OwnerTag) {
			t = kind.OwnerTag
		}
		if !o.TagsCaseSensitive {
			t = strings.ToLower(t)
		}
		if t != "" && !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	if !o.TagsConfigOrder {
		slices.Sort(out)
	}
	return out
}

func sameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}
