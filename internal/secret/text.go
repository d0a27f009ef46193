// Package secret holds the one type through which credentials and other
// secret values travel. It is a leaf: every package may import it.
package secret

import (
	"fmt"
	"log/slog"
)

// mask is all that any formatting of a secret ever shows.
const mask = "(redacted)"

// Text is a secret value. Its zero value is the absent secret. Nothing but
// Reveal gives the value out: fmt verbs (%#v of an enclosing struct included,
// hence the pointer), JSON, YAML and slog all print "(redacted)".
type Text struct{ s *string }

// New wraps a value that came from a file, the environment or a prompt.
func New(s string) Text { return Text{&s} }

// Reveal gives the value, or "" for the absent secret. Call it only where the
// value leaves the process for the party it is meant for.
func (t Text) Reveal() string {
	if t.s == nil {
		return ""
	}
	return *t.s
}

// IsSet reports whether a value is there, the empty one included.
func (t Text) IsSet() bool { return t.s != nil }

// Empty reports whether the secret is absent or the empty string.
func (t Text) Empty() bool { return t.s == nil || *t.s == "" }

// Format implements fmt.Formatter for every verb and flag.
func (t Text) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(mask)) }

// String implements fmt.Stringer.
func (t Text) String() string { return mask }

// GoString implements fmt.GoStringer.
func (t Text) GoString() string { return mask }

// MarshalText implements encoding.TextMarshaler, which encoding/json uses too.
func (t Text) MarshalText() ([]byte, error) { return []byte(mask), nil }

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) { return []byte(`"` + mask + `"`), nil }

// MarshalYAML implements the YAML library's marshaler.
func (t Text) MarshalYAML() (any, error) { return mask, nil }

// LogValue implements slog.LogValuer.
func (t Text) LogValue() slog.Value { return slog.StringValue(mask) }
