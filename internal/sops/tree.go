package sops

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	upstream "github.com/getsops/sops/v3"
)

// find follows a dot path. Keys may hold dots themselves (ssh-keys of
// ops@host.example), so the longest key that fits is tried first.
func find(in any, ref string) (keys []string, value any, ok bool) {
	switch in := in.(type) {
	case upstream.TreeBranch:
		for _, item := range in {
			if key, isText := item.Key.(string); isText && key == ref {
				return []string{key}, item.Value, true
			}
		}
		for _, item := range byKeyLength(in) {
			key := item.Key.(string)
			rest, under := strings.CutPrefix(ref, key+".")
			if !under {
				continue
			}
			if below, v, ok := find(item.Value, rest); ok {
				return append([]string{key}, below...), v, true
			}
		}
	case []any:
		head, rest, more := strings.Cut(ref, ".")
		n, err := strconv.Atoi(head)
		items := withoutComments(in)
		if err != nil || n < 0 || n >= len(items) {
			return nil, nil, false
		}
		if !more {
			return []string{head}, items[n], true
		}
		below, v, ok := find(items[n], rest)
		return append([]string{head}, below...), v, ok
	}
	return nil, nil, false
}

func byKeyLength(b upstream.TreeBranch) upstream.TreeBranch {
	var out upstream.TreeBranch
	for _, item := range b {
		if _, ok := item.Key.(string); ok {
			out = append(out, item)
		}
	}
	slices.SortStableFunc(out, func(a, b upstream.TreeItem) int {
		return len(b.Key.(string)) - len(a.Key.(string))
	})
	return out
}

func withoutComments(in []any) []any {
	return slices.DeleteFunc(slices.Clone(in), func(v any) bool {
		_, is := v.(upstream.Comment)
		return is
	})
}

// leaves calls f for every value that is neither mapping nor list nor comment,
// in document order. Lists count their items from 0.
func leaves(in any, path []string, f func(path []string, v any)) {
	switch in := in.(type) {
	case upstream.TreeBranch:
		for _, item := range in {
			if key, ok := item.Key.(string); ok {
				leaves(item.Value, append(slices.Clone(path), key), f)
			}
		}
	case []any:
		for i, v := range withoutComments(in) {
			leaves(v, append(slices.Clone(path), strconv.Itoa(i)), f)
		}
	default:
		f(path, in)
	}
}

// groups lists the entries of all mappings and lists as SOPS joins them.
func groups(in any, entry string) []string {
	out := []string{cmp.Or(entry, ":")} // SOPS joins no key and a colon
	switch in := in.(type) {
	case upstream.TreeBranch:
		for _, item := range in {
			if key, ok := item.Key.(string); ok {
				out = append(out, groups(item.Value, entry+key+":")...)
			}
		}
	case []any: // items have the entry of their list
		for _, v := range in {
			if below := groups(v, entry); len(below) > 0 {
				out = append(out, below[1:]...)
			}
		}
	default:
		return nil
	}
	return out
}

// clone copies a tree deep: SOPS encrypts and decrypts in place.
func clone(in any) any {
	switch in := in.(type) {
	case upstream.TreeBranch:
		out := make(upstream.TreeBranch, len(in))
		for i, item := range in {
			out[i] = upstream.TreeItem{Key: item.Key, Value: clone(item.Value)}
		}
		return out
	case []any:
		out := make([]any, len(in))
		for i, v := range in {
			out[i] = clone(v)
		}
		return out
	default:
		return in
	}
}

func cloneBranch(b upstream.TreeBranch) upstream.TreeBranch { return clone(b).(upstream.TreeBranch) }

// restoreInline puts back which comments stood at the end of a line: SOPS 3.13
// forgets it while it decrypts a comment, and the next save would move them.
func restoreInline(now, before any) {
	switch now := now.(type) {
	case upstream.TreeBranch:
		before, ok := before.(upstream.TreeBranch)
		if !ok || len(now) != len(before) {
			return
		}
		for i := range now {
			if was, ok := before[i].Key.(upstream.Comment); ok {
				if is, ok := now[i].Key.(upstream.Comment); ok {
					is.Inline = was.Inline
					now[i].Key = is
				}
				continue
			}
			restoreInline(now[i].Value, before[i].Value)
		}
	case []any:
		before, ok := before.([]any)
		if !ok || len(now) != len(before) {
			return
		}
		for i := range now {
			was, wasComment := before[i].(upstream.Comment)
			if is, ok := now[i].(upstream.Comment); ok && wasComment {
				is.Inline = was.Inline
				now[i] = is
				continue
			}
			restoreInline(now[i], before[i])
		}
	}
}
