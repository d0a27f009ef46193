package field

import "testing"

// A guest with no tag but the owner's has nothing that a manifest could say.
func TestOwnersTagAloneIsNoGap(t *testing.T) {
	for live, want := range map[string]int{"proxops": 0, "web;proxops": 0} {
		var tags Opt[[]string]
		b := Group("", "", Var(&tags, "tags", "tags", "", Tags("proxops"), "tags"))
		gaps := ReadInto(b, &Guest{Exists: true, Config: map[string]Entry{"tags": {Value: &live}}})
		if len(gaps) != want {
			t.Errorf("%s: %+v", live, gaps)
		}
	}
}
