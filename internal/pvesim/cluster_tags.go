package pvesim

import (
	"slices"
	"sort"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// dcProps reads a property string of datacenter.cfg; what cannot be read is empty, as it is for PVE.
func (w *World) dcProps(key, format string) schema.Props {
	p, err := schema.ParsePropString(format, key, w.Datacenter[key])
	if err != nil {
		return schema.Props{}
	}
	return p
}

// uniqueTags is get_unique_tags: how a list of tags is kept in a config (facts.md H). Separators become ";", repeated tags go,
// letters are lowered unless tag-style says case-sensitive, and the order is the alphabet's unless it says ordering=config.
func (w *World) uniqueTags(text string) string {
	style := w.dcProps("tag-style", ".tag-style")
	seen := map[string]bool{}
	var tags []string
	for _, t := range splitList(text) {
		if style["case-sensitive"] != "1" {
			t = strings.ToLower(t)
		}
		if !seen[t] {
			seen[t] = true
			tags = append(tags, t)
		}
	}
	if style["ordering"] != "config" {
		sort.Strings(tags)
	}
	return strings.Join(tags, ";")
}

// allowedTags is get_allowed_tags: the tags that a caller may set, those that need Sys.Modify, and whether all others are free.
// existing tags count only as far as the caller sees the guests that carry them.
func (w *World) allowedTags(who Identity, privileged bool) (allowed, reserved map[string]bool, free bool) {
	allowed, reserved = map[string]bool{}, map[string]bool{}
	for _, t := range splitList(w.Datacenter["registered-tags"]) {
		reserved[t] = true
	}
	access := w.dcProps("user-tag-access", ".user-tag-access")
	rule := orElse(access["user-allow"], "free")
	if rule != "none" || privileged {
		for _, t := range strings.FieldsFunc(access["user-allow-list"], func(r rune) bool { return r == ';' }) {
			allowed[t] = true
		}
	}
	if rule == "free" || rule == "existing" || privileged {
		for _, g := range w.Guests {
			if g.Config["tags"] == "" || !privileged && !w.can(who, "/vms/"+decimal(g.VMID), "VM.Audit") {
				continue
			}
			for _, t := range splitList(g.Config["tags"]) {
				allowed[t] = true
			}
		}
	}
	for t := range reserved {
		if privileged {
			allowed[t] = true
		} else {
			delete(allowed, t)
		}
	}
	return allowed, reserved, rule == "free"
}

// checkTags is assert_tag_permissions: every tag that comes or goes must be free to the caller, who then needs VM.Config.Options on
// the guest; Sys.Modify on / allows all.
func (w *World) checkTags(who Identity, vmid int, before, after string) error {
	if w.can(who, "/", "Sys.Modify") {
		return nil
	}
	count := map[string]int{}
	for _, t := range splitList(after) {
		count[t]++
	}
	for _, t := range splitList(before) {
		count[t]--
	}
	allowed, reserved, free := w.allowedTags(who, false)
	for _, t := range sortedKeys(count) {
		if count[t] == 0 {
			continue
		}
		if !allowed[t] && !free || reserved[t] {
			return permErr("/, Sys.Modify for modifying tag '" + t + "'")
		}
		if err := w.check(who, "/vms/"+decimal(vmid), "VM.Config.Options"); err != nil {
			return err
		}
	}
	return nil
}

// sortedSet lists a set.
func sortedSet(m map[string]bool) []string {
	out := []string{}
	for k, in := range m {
		if in {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}
