// Package wire knows how PVE spells values: booleans, sizes, property
// strings, tag lists, encoded ssh keys. It is a leaf over package secret.
package wire

import (
	"encoding/json"
	"log/slog"
	"net/url"

	"github.com/proxops/proxops/internal/secret"
)

// Value is one value of a PVE key, as it is sent or as it was read. A secret
// one prints as "(redacted)" everywhere; only package pve reveals it, while it
// encodes a request.
type Value struct {
	plain  string
	hidden secret.Text
	secret bool
}

// Plain is a value that may be shown.
func Plain(s string) Value { return Value{plain: s} }

// Hidden is a value that must never be shown.
func Hidden(t secret.Text) Value { return Value{hidden: t, secret: true} }

// IsSecret reports whether the value must not be shown.
func (v Value) IsSecret() bool { return v.secret }

// Reveal gives the value for sending.
func (v Value) Reveal() string {
	if v.secret {
		return v.hidden.Reveal()
	}
	return v.plain
}

// String is the value for people: secrets redacted.
func (v Value) String() string {
	if v.secret {
		return v.hidden.String()
	}
	return v.plain
}

// GoString redacts under %#v.
func (v Value) GoString() string { return v.String() }

// MarshalJSON writes String.
func (v Value) MarshalJSON() ([]byte, error) { return json.Marshal(v.String()) }

// LogValue implements slog.LogValuer.
func (v Value) LogValue() slog.Value { return slog.StringValue(v.String()) }

// Param is one parameter of a PVE request.
type Param struct {
	Key   string
	Value Value
}

// Params are a request's parameters in a stable order. PVE refuses a scalar
// key that stands twice (facts.md B), so Set replaces.
type Params []Param

// Set sets key, replacing an earlier value of it.
func (p *Params) Set(key string, v Value) {
	for i := range *p {
		if (*p)[i].Key == key {
			(*p)[i].Value = v
			return
		}
	}
	*p = append(*p, Param{key, v})
}

// Get gives the value of key.
func (p Params) Get(key string) (Value, bool) {
	for _, x := range p {
		if x.Key == key {
			return x.Value, true
		}
	}
	return Value{}, false
}

// Reveal encodes the parameters for the wire, secrets in clear.
func (p Params) Reveal() url.Values {
	out := url.Values{}
	for _, x := range p {
		out.Set(x.Key, x.Value.Reveal())
	}
	return out
}
