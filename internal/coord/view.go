package coord

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// candidate is one agent's candidacy for a cluster.
type candidate struct {
	id  string
	rev int64 // that made it; the lowest owns the cluster
}

// view is what stands in etcd, as of one revision.
type view struct {
	agents     map[string]agentEntry
	candidates map[string][]candidate // by cluster, oldest first
}

func (v view) agentIDs() []string { return slices.Sorted(maps.Keys(v.agents)) }

func (v view) owner(cluster string) candidate {
	if list := v.candidates[cluster]; len(list) > 0 {
		return list[0]
	}
	return candidate{}
}

// stands reports whether an agent is a candidate for a cluster.
func (v view) stands(cluster, id string) bool {
	return slices.ContainsFunc(v.candidates[cluster], func(c candidate) bool { return c.id == id })
}

// members lists the agents by name.
func (v view) members(self string) []Member {
	var out []Member
	for id, a := range v.agents {
		m := Member{ID: id, Name: a.Name, Host: a.Host, Started: a.Started, Self: id == self}
		for cluster := range v.candidates {
			if v.owner(cluster).id == id {
				m.Clusters = append(m.Clusters, cluster)
			}
		}
		slices.Sort(m.Clusters)
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return out
}

// keyed is the value of one key of etcd.
type keyed struct {
	value string
	rev   int64
}

// viewOf reads the keys below the prefix.
func viewOf(prefix string, keys map[string]keyed) view {
	v := view{agents: map[string]agentEntry{}, candidates: map[string][]candidate{}}
	for key, e := range keys {
		parts := strings.Split(strings.TrimPrefix(key, prefix+"/"), "/")
		switch {
		case len(parts) == 2 && parts[0] == "agents":
			var a agentEntry
			if json.Unmarshal([]byte(e.value), &a) == nil {
				v.agents[parts[1]] = a
			}
		case len(parts) == 3 && parts[0] == "clusters":
			v.candidates[parts[1]] = append(v.candidates[parts[1]], candidate{parts[2], e.rev})
		}
	}
	for _, list := range v.candidates {
		slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(a.rev, b.rev) })
	}
	return v
}

// follow keeps the view up to date.
func (c *Coordinator) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.watch(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug("following etcd", "err", err)
			pause(ctx, time.Second)
		}
	}
}

// watch reads everything once and follows the changes from there; it ends when
// etcd ends it, such as after a compaction.
func (c *Coordinator) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	call, done := context.WithTimeout(ctx, max(c.cfg.Lease, 5*time.Second))
	defer done()
	r, err := c.client.Get(call, c.cfg.Prefix+"/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	keys := map[string]keyed{}
	for _, kv := range r.Kvs {
		keys[string(kv.Key)] = keyed{string(kv.Value), kv.CreateRevision}
	}
	c.saw(keys)
	// The leader is required: a member that is cut off from the others ends the
	// watch instead of keeping silent.
	for w := range c.client.Watch(clientv3.WithRequireLeader(ctx), c.cfg.Prefix+"/", clientv3.WithPrefix(), clientv3.WithRev(r.Header.Revision+1)) {
		if err := w.Err(); err != nil {
			return err
		}
		for _, e := range w.Events {
			if e.Type == clientv3.EventTypeDelete {
				delete(keys, string(e.Kv.Key))
			} else {
				keys[string(e.Kv.Key)] = keyed{string(e.Kv.Value), e.Kv.CreateRevision}
			}
		}
		c.saw(keys)
	}
	return nil
}

func (c *Coordinator) saw(keys map[string]keyed) {
	v := viewOf(c.cfg.Prefix, keys)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = v
	c.changed()
}
