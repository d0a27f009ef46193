package adopt

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/wire"
)

// Selector picks objects. Criteria of different keys must all hold, of several
// values of one key any. The empty one picks everything.
type Selector struct {
	tags, pools, names, kinds []string
	ids                       []span
}

type span struct{ from, to int }

// ParseSelector reads --select items: tag=T, pool=P, vmid=N or vmid=N-M,
// name=PATTERN (* and ?), kind=K, each with several values by commas.
func ParseSelector(items []string) (Selector, error) {
	var s Selector
	for _, item := range items {
		key, value, ok := strings.Cut(item, "=")
		if !ok || value == "" {
			return s, fmt.Errorf("--select: %q is not key=value; the keys are tag, pool, vmid, name and kind", item)
		}
		for v := range strings.SplitSeq(value, ",") {
			if err := s.add(key, strings.TrimSpace(v)); err != nil {
				return s, fmt.Errorf("--select: %q: %w", item, err)
			}
		}
	}
	return s, nil
}

func (s *Selector) add(key, v string) error {
	switch key {
	case "tag":
		s.tags = append(s.tags, v)
	case "pool":
		s.pools = append(s.pools, v)
	case "name":
		if _, err := path.Match(v, ""); err != nil {
			return fmt.Errorf("%q is not a pattern: * stands for any text, ? for one letter, [a-z] for one of a range", v)
		}
		s.names = append(s.names, strings.ToLower(v))
	case "kind":
		i := slices.IndexFunc(kind.All, func(k *kind.Kind) bool { return strings.EqualFold(k.Name, v) })
		if i < 0 {
			return fmt.Errorf("%q is none of %s", v, kind.Names())
		}
		s.kinds = append(s.kinds, kind.All[i].Name)
	case "vmid":
		from, to, isRange := strings.Cut(v, "-")
		a, err := strconv.Atoi(from)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(to)
		}
		if err != nil || a < 1 || b < a {
			return fmt.Errorf("%q is not a vmid or a range such as 100-199", v)
		}
		s.ids = append(s.ids, span{a, b})
	default:
		return fmt.Errorf("there is no key %q; the keys are tag, pool, vmid, name and kind", key)
	}
	return nil
}

// Empty reports whether everything is picked.
func (s Selector) Empty() bool {
	return len(s.tags)+len(s.pools)+len(s.names)+len(s.kinds)+len(s.ids) == 0
}

func (s Selector) row(r pve.Resource) bool {
	k, ok := kind.Of(r.Type, r.Template)
	return ok && s.picks(k, r.Name, r.VMID, r.Tags, r.Pool)
}

func (s Selector) guest(k *kind.Kind, g *live.Guest) bool {
	return s.picks(k, g.Name, g.VMID, g.Tags, g.Pool)
}

func (s Selector) picks(k *kind.Kind, name string, vmid int, tags []string, pool string) bool {
	any := func(n int, f func(i int) bool) bool {
		for i := range n {
			if f(i) {
				return true
			}
		}
		return n == 0
	}
	return any(len(s.kinds), func(i int) bool { return s.kinds[i] == k.Name }) &&
		any(len(s.tags), func(i int) bool { return wire.HasTag(tags, s.tags[i]) }) &&
		any(len(s.pools), func(i int) bool { return s.pools[i] == pool }) &&
		any(len(s.ids), func(i int) bool { return s.ids[i].from <= vmid && vmid <= s.ids[i].to }) &&
		any(len(s.names), func(i int) bool {
			ok, _ := path.Match(s.names[i], strings.ToLower(name)) // the pattern was checked
			return ok
		})
}

// file picks an artifact by kind and name. One that no criterion is about
// comes along only with a guest that refers to it.
func (s Selector) file(k *kind.Kind, name string) bool {
	if s.Empty() {
		return true
	}
	if len(s.tags)+len(s.pools)+len(s.ids) > 0 || len(s.kinds) == 0 {
		return false
	}
	return s.picks(k, name, 0, nil, "")
}
