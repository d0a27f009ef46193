package repo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/kind"
)

// VMIDRanges are the vmids that a cluster keeps for each kind of guest, such
// as "9000-9999" or "100-199,300-399"; "" = any.
type VMIDRanges struct{ VM, LXC, TemplateVM, TemplateCT string }

// Of gives the ranges of a kind. ok is false where any vmid will do.
func (v VMIDRanges) Of(kindName string) (ranges []VMIDRange, text string, ok bool) {
	text = map[string]string{"VM": v.VM, "LXC": v.LXC, "TemplateVM": v.TemplateVM, "TemplateCT": v.TemplateCT}[kindName]
	ranges, err := ParseVMIDRanges(text)
	return ranges, text, text != "" && err == nil
}

// Others gives the ranges of all other kinds.
func (v VMIDRanges) Others(kindName string) []VMIDRange {
	var out []VMIDRange
	for _, k := range kind.All {
		if k.Name != kindName {
			ranges, _, _ := v.Of(k.Name)
			out = append(out, ranges...)
		}
	}
	return out
}

// Has reports whether the range holds a vmid.
func (r VMIDRange) Has(vmid int) bool { return r.From <= vmid && vmid <= r.To }

// VMIDRange is a range of vmids, both ends included.
type VMIDRange struct{ From, To int }

// ParseVMIDRanges reads ranges as a cluster's config writes them. The ends are
// vmids as PVE takes them, 100 to 999999999.
func ParseVMIDRanges(text string) ([]VMIDRange, error) {
	var out []VMIDRange
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if !isRange || errA != nil || errB != nil || a < 100 || b > 999999999 || a > b {
			return nil, fmt.Errorf("%q is no range of vmids such as 100-199, within 100-999999999", strings.TrimSpace(part))
		}
		out = append(out, VMIDRange{a, b})
	}
	return out, nil
}

// ranged holds a vmid against what the cluster keeps for its kind.
func (l *loader) ranged(r *kind.Resource, vmid int) {
	e := l.config.entry
	if e == nil {
		return
	}
	ranges, text, ok := e.VMIDRanges.Of(r.Kind.Name)
	if !ok || slices.ContainsFunc(ranges, func(x VMIDRange) bool { return x.Has(vmid) }) {
		return
	}
	l.add(r.SpecProblem("vmid", fmt.Sprintf("%d is not in %s, which %s keeps for %s: take a vmid of it (proxops next-id --kind %s), or change vmid-ranges",
		vmid, text, e.File, r.Kind.Name, r.Kind.Name)))
}
