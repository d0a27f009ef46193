package coord

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// assign spreads clusters over agents: every agent gets as many as the others,
// give or take one, and a change of either set moves few. It is a function of
// the two sets, so that agents that see the same sets agree without talking.
//
// Every cluster ranks the agents by a hash of both names and takes the first
// that has room.
func assign(clusters, agents []string) map[string]string {
	out := map[string]string{}
	if len(agents) == 0 {
		return out
	}
	clusters, agents = unique(clusters), unique(agents)
	room := (len(clusters) + len(agents) - 1) / len(agents)
	full := len(clusters) - (room-1)*len(agents) // agents that may take room; the others take one less
	load := map[string]int{}
	for _, c := range clusters {
		ranked := slices.Clone(agents)
		slices.SortFunc(ranked, func(a, b string) int { return cmp.Or(-cmp.Compare(score(c, a), score(c, b)), cmp.Compare(a, b)) })
		for _, a := range ranked {
			if load[a] >= room || load[a] == room-1 && full == 0 {
				continue
			}
			if load[a]++; load[a] == room {
				full--
			}
			out[c] = a
			break
		}
	}
	return out
}

func unique(list []string) []string {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}

func score(cluster, agent string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(cluster + "\x00" + agent))
	x := h.Sum64() // FNV's high bits hardly depend on the last bytes: mix
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
