package pvesim

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // RFC 6238's default
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// TFAEntry is a second factor: time-based codes, or a list of one-time recovery keys.
type TFAEntry struct {
	ID string
	// Type is totp or recovery.
	Type        string
	Description string
	Disabled    bool
	Created     time.Time
	// Secret is the shared key of totp, in base32.
	Secret string
	// Keys are the recovery keys; a used one is "".
	Keys []string
}

// totpStep is the step of RFC 6238; PVE takes the codes of the steps just before and after, too.
const totpStep = 30 * time.Second

// TOTP is the code that an authenticator shows for a base32 secret at a time: six digits, SHA-1, steps of 30 s.
func TOTP(secret string, at time.Time) (string, error) {
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.ToUpper(strings.TrimRight(secret, "=")))
	if err != nil {
		return "", fmt.Errorf("TOTP secret: %w", err)
	}
	m := hmac.New(sha1.New, key)
	m.Write(binary.BigEndian.AppendUint64(nil, uint64(at.Unix()/int64(totpStep/time.Second)))) //nolint:gosec // after 1970
	sum := m.Sum(nil)
	return fmt.Sprintf("%06d", binary.BigEndian.Uint32(sum[sum[19]&15:])&0x7fffffff%1000000), nil
}

func (e *TFAEntry) totpGood(code string) bool {
	for _, d := range []time.Duration{0, -totpStep, totpStep} {
		if want, err := TOTP(e.Secret, time.Now().Add(d)); err == nil && hmac.Equal([]byte(want), []byte(code)) {
			return true
		}
	}
	return false
}

// challenge says which second factors a user is asked for, as PVE's tickets hold it; "" for none.
func (u *User) challenge() string {
	out := map[string]any{}
	for _, e := range u.TFA {
		switch {
		case e.Disabled:
		case e.Type == "totp":
			out["totp"] = true
		default:
			left := []int{}
			for i, k := range e.Keys {
				if k != "" {
					left = append(left, i)
				}
			}
			out["recovery"] = left
		}
	}
	if len(out) == 0 {
		return ""
	}
	b, err := json.Marshal(out)
	if err != nil {
		return ""
	}
	return string(b)
}

// answered checks an answer to a challenge: "totp:123456" or "recovery:key"; a recovery key is good for once.
func (u *User) answered(answer string) bool {
	kind, value, _ := strings.Cut(answer, ":")
	for _, e := range u.TFA {
		if e.Disabled || e.Type != kind || value == "" {
			continue
		}
		if kind == "totp" {
			if e.totpGood(value) {
				return true
			}
			continue
		}
		if i := slices.Index(e.Keys, value); i >= 0 {
			e.Keys[i] = ""
			return true
		}
	}
	return false
}

func (e *TFAEntry) row() map[string]any {
	return map[string]any{"id": e.ID, "type": e.Type, "description": e.Description, "created": e.Created.Unix(), "enable": bit(!e.Disabled)}
}

func (u *User) tfaRows() []map[string]any {
	out := []map[string]any{}
	for _, e := range u.TFA {
		out = append(out, e.row())
	}
	return out
}

func (w *World) tfaList(r *Request) (any, error) {
	all := w.canAny(r.Who, "/access/groups", "User.Modify", "Sys.Audit")
	groups := w.groupsWith(r.Who, "User.Modify", "Sys.Audit")
	out := []map[string]any{}
	for _, id := range sortedKeys(w.Access.Users) {
		u := w.Access.Users[id]
		if len(u.TFA) > 0 && (all || id == r.Who.AuthID() || w.inAny(id, groups)) {
			out = append(out, map[string]any{"userid": id, "entries": u.tfaRows()})
		}
	}
	return out, nil
}

func (w *World) tfaOfUser(r *Request) (any, error) {
	if err := w.userExists(r.P.Str("userid")); err != nil {
		return nil, err
	}
	return w.Access.Users[r.P.Str("userid")].tfaRows(), nil
}

func (w *World) userTFA(r *Request) (any, error) {
	if err := w.userExists(r.P.Str("userid")); err != nil {
		return nil, err
	}
	types := []string{}
	for _, e := range w.Access.Users[r.P.Str("userid")].TFA {
		types = append(types, e.Type)
	}
	if r.P.Bool("multiple") {
		return map[string]any{"types": types}, nil
	}
	if len(types) > 0 {
		return map[string]any{"user": "oath"}, nil
	}
	return map[string]any{}, nil
}

// unlockTFA has nothing to unlock: the simulator does not count wrong codes.
func (w *World) unlockTFA(r *Request) (any, error) { return 0, w.userExists(r.P.Str("userid")) }

func (w *World) tfaEntry(r *Request) (*User, *TFAEntry, error) {
	if err := w.userExists(r.P.Str("userid")); err != nil {
		return nil, nil, err
	}
	u := w.Access.Users[r.P.Str("userid")]
	for _, e := range u.TFA {
		if e.ID == r.P.Str("id") {
			return u, e, nil
		}
	}
	return nil, nil, raise(404, "no such tfa entry '%s/%s'", u.ID, r.P.Str("id"))
}

func (w *World) tfaGet(r *Request) (any, error) {
	_, e, err := w.tfaEntry(r)
	if err != nil {
		return nil, err
	}
	return e.row(), nil
}

// tfaAdd adds a totp entry, given as an otpauth URI with a first code to prove it, or makes recovery keys.
func (w *World) tfaAdd(r *Request) (any, error) {
	if err := w.confirmed(r, r.P.Str("userid"), "password"); err != nil {
		return nil, err
	}
	u := w.Access.Users[r.P.Str("userid")]
	switch r.P.Str("type") {
	case "totp":
		uri, err := url.Parse(r.P.Str("totp"))
		if err != nil || uri.Scheme != "otpauth" || uri.Query().Get("secret") == "" {
			return nil, die("failed to parse totp uri")
		}
		e := &TFAEntry{ID: w.uuid(), Type: "totp", Description: r.P.Str("description"), Created: time.Now(), Secret: uri.Query().Get("secret")}
		if !e.totpGood(r.P.Str("value")) {
			return nil, die("failed to verify TOTP challenge")
		}
		u.TFA = append(u.TFA, e)
		return map[string]any{"id": e.ID}, nil
	case "recovery":
		if slices.ContainsFunc(u.TFA, func(e *TFAEntry) bool { return e.Type == "recovery" }) {
			return nil, die("user already has recovery keys")
		}
		e := &TFAEntry{ID: "recovery", Type: "recovery", Created: time.Now()}
		for range 10 {
			b := w.draw(8)
			e.Keys = append(e.Keys, fmt.Sprintf("%x-%x-%x-%x", b[:2], b[2:4], b[4:6], b[6:]))
		}
		u.TFA = append(u.TFA, e)
		return map[string]any{"id": e.ID, "recovery": slices.Clone(e.Keys)}, nil
	}
	return nil, die("second factors of type %s need a device or service that the simulated node has not", r.P.Str("type"))
}

func (w *World) tfaUpdate(r *Request) (any, error) {
	if err := w.confirmed(r, r.P.Str("userid"), "password"); err != nil {
		return nil, err
	}
	_, e, err := w.tfaEntry(r)
	if err != nil {
		return nil, err
	}
	if r.P.Has("description") {
		e.Description = r.P.Str("description")
	}
	if r.P.Has("enable") {
		e.Disabled = !r.P.Bool("enable")
	}
	return nil, nil
}

func (w *World) tfaDelete(r *Request) (any, error) {
	if err := w.confirmed(r, r.P.Str("userid"), "password"); err != nil {
		return nil, err
	}
	u, e, err := w.tfaEntry(r)
	if err != nil {
		return nil, err
	}
	u.TFA = slices.DeleteFunc(u.TFA, func(o *TFAEntry) bool { return o == e })
	return nil, nil
}
