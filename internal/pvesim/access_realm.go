package pvesim

import (
	"crypto/sha1" //nolint:gosec // PVE's digest is SHA-1
	"encoding/hex"
	"fmt"
)

// realmList needs no log-in: the log-in form shows it.
func (w *World) realmList(*Request) (any, error) {
	out := []map[string]any{}
	for _, id := range sortedKeys(w.Access.Realms) {
		conf := w.Access.Realms[id]
		row := map[string]any{"realm": id, "type": conf["type"]}
		if conf["comment"] != "" {
			row["comment"] = conf["comment"]
		}
		if conf["default"] == "1" {
			row["default"] = 1
		}
		out = append(out, row)
	}
	return out, nil
}

// realmDigest covers all realms, as the digest of domains.cfg does.
func (w *World) realmDigest() string {
	h := sha1.New() //nolint:gosec // see above
	for _, id := range sortedKeys(w.Access.Realms) {
		for _, k := range sortedKeys(w.Access.Realms[id]) {
			fmt.Fprintf(h, "%s %s %s\n", id, k, w.Access.Realms[id][k])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (w *World) realmGet(r *Request) (any, error) {
	conf := w.Access.Realms[r.P.Str("realm")]
	if conf == nil {
		return nil, die("domain '%s' does not exist", r.P.Str("realm"))
	}
	out := map[string]any{"digest": w.realmDigest()}
	for k, v := range conf {
		out[k] = v
	}
	return out, nil
}

func (w *World) realmCreate(r *Request) (any, error) {
	id, kind := r.P.Str("realm"), r.P.Str("type")
	switch {
	case w.Access.Realms[id] != nil:
		return nil, die("add auth server failed: domain '%s' already exists", id)
	case kind == "pam" || kind == "pve":
		return nil, die("add auth server failed: unable to create builtin type '%s'", kind)
	}
	conf := map[string]string{}
	w.setRealm(conf, r.P)
	w.Access.Realms[id] = conf
	return nil, nil
}

func (w *World) realmUpdate(r *Request) (any, error) {
	conf := w.Access.Realms[r.P.Str("realm")]
	switch {
	case conf == nil:
		return nil, die("update auth server failed: domain '%s' does not exist", r.P.Str("realm"))
	case r.P.Str("digest") != "" && r.P.Str("digest") != w.realmDigest():
		return nil, die("update auth server failed: detected modified configuration - file changed by other user? Try again.")
	}
	for _, k := range r.P.List("delete") {
		delete(conf, k)
	}
	w.setRealm(conf, r.P)
	return nil, nil
}

// setRealm writes a realm's properties; there is one default realm at most.
func (w *World) setRealm(conf map[string]string, p Params) {
	for k := range p {
		switch k {
		case "realm", "digest", "delete", "check-connection", "password":
		case "default":
			for _, other := range w.Access.Realms {
				delete(other, "default")
			}
			conf[k] = p.Str(k)
		default:
			conf[k] = p.Str(k)
		}
	}
}

func (w *World) realmDelete(r *Request) (any, error) {
	id := r.P.Str("realm")
	conf := w.Access.Realms[id]
	switch {
	case conf == nil:
		return nil, die("delete auth server failed: domain '%s' does not exist", id)
	case conf["type"] == "pam" || conf["type"] == "pve":
		return nil, die("delete auth server failed: unable to delete built-in realm '%s'", id)
	}
	delete(w.Access.Realms, id)
	return nil, nil
}
