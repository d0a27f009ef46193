package pve

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
)

const notPVEHint = "PVE never answers like this: see what stands before it"

// Pending reads a guest's whole config with what is pending and the digest:
// one request that tells all (facts L).
func (r *Reader) Pending(ctx context.Context, node string, t GuestType, vmid int) (GuestConfig, error) {
	var in []row
	path := guestPath(node, t, vmid, "pending")
	if err := r.Get(ctx, path, nil, &in); err != nil {
		return GuestConfig{}, err
	}
	var c GuestConfig
	for _, x := range in {
		key := x.str("key")
		if key == "digest" {
			c.Digest = x.str("value")
			continue
		}
		e := PendingEntry{Key: key, Delete: int(x.num("delete"))}
		if s, ok := scalar(x["value"]); ok {
			e.Value = &s
		} else if v := x["value"]; len(v) > 0 && string(v) != "null" {
			e.Raw = v
		}
		if s, ok := scalar(x["pending"]); ok {
			e.Pending = &s
		}
		c.Entries = append(c.Entries, e)
	}
	slices.SortStableFunc(c.Entries, func(a, b PendingEntry) int { return strings.Compare(a.Key, b.Key) })
	return c, r.whole(path, c)
}

// whole refuses an answer without a digest: PVE gives one with every config, a
// guest without a name or tag would be somebody else's, and without a digest a
// write would overwrite what others changed meanwhile.
func (r *Reader) whole(path string, c GuestConfig) error {
	if c.Digest != "" {
		return nil
	}
	return r.core.fail(request{method: http.MethodGet, path: path}, KindNotJSON, "the answer has no digest, so it is no guest's config", notPVEHint)
}

// Config reads a guest's config as it will be once what is pending has come
// into effect, with what Pending leaves out: a container's raw lxc lines.
func (r *Reader) Config(ctx context.Context, node string, t GuestType, vmid int) (GuestConfig, error) {
	path := guestPath(node, t, vmid, "config")
	x, err := r.row(ctx, path)
	if err != nil {
		return GuestConfig{}, err
	}
	c := GuestConfig{Digest: x.str("digest")}
	for _, key := range slices.Sorted(maps.Keys(x)) {
		e := PendingEntry{Key: key}
		if s, ok := scalar(x[key]); ok {
			e.Value = &s
		} else if v := x[key]; len(v) > 0 && string(v) != "null" {
			e.Raw = v
		}
		if key != "digest" {
			c.Entries = append(c.Entries, e)
		}
	}
	return c, r.whole(path, c)
}
