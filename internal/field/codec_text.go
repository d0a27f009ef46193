package field

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/yamldoc"
)

// text gives a scalar's text where a string is wanted. A bare number or
// boolean is refused: YAML would not keep its spelling (0101, 1.10).
func text(n *yamldoc.Node) (string, error) {
	switch {
	case n.Kind == yamldoc.Mapping:
		return "", errors.New("a mapping stands where a string belongs")
	case n.Kind == yamldoc.Sequence:
		return "", errors.New("a list stands where a string belongs")
	case n.Kind == yamldoc.Null:
		return "", errors.New("null is not allowed here")
	case n.Tag != yamldoc.String:
		return "", fmt.Errorf("%s is not a string; write it in quotes: %q", n.Value, n.Value)
	case n.Value == "":
		return "", errors.New("the empty string is not allowed; leave the field out, or write null to clear it")
	}
	return n.Value, nil
}

func same(s string) (string, error) { return s, nil }

func printString(s string) *yamldoc.Node { return yamldoc.Str(s) }

// Text is any string but the empty one, sent as it is.
func Text() Codec[string] {
	return Codec[string]{
		Type:  Type{Name: "string", Examples: []string{"some-text"}},
		Parse: text, Print: printString, Read: same,
		Write: func(s string) string { return s },
	}
}

// TextMatching is a string that matches pattern (RE2, anchored); what says in
// words what is allowed.
func TextMatching(pattern, what string, examples ...string) Codec[string] {
	re := regexp.MustCompile(`^(?:` + pattern + `)$`)
	c := Text()
	c.Type.Pattern, c.Type.Examples = `^(?:`+pattern+`)$`, examples
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := text(n)
		if err == nil && !re.MatchString(s) {
			err = fmt.Errorf("%q is not %s", s, what)
		}
		return s, err
	}
	return c
}

// Fold compares a string codec without case and keeps what is written.
func Fold(c Codec[string]) Codec[string] {
	c.Equal = func(want, live string, _ Env) bool {
		now, err := c.Read(live)
		return err == nil && strings.EqualFold(now, want)
	}
	return c
}

// Description is free text of several lines. PVE cuts trailing blanks of a
// VM's and adds a line end to a container's on read (facts.md C), so line ends
// and trailing blanks are no difference.
func Description(max int) Codec[string] {
	norm := func(s string) string {
		s = strings.ReplaceAll(s, "\r\n", "\n")
		return strings.TrimRight(s, " \t\r\n")
	}
	c := Text()
	c.Type.Examples, c.Type.Lines = []string{"what this guest is for"}, true
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := text(n)
		if err == nil && utf8.RuneCountInString(s) > max {
			err = fmt.Errorf("%d characters are too many; PVE takes %d", utf8.RuneCountInString(s), max)
		}
		return s, err
	}
	c.Read = func(s string) (string, error) { return norm(s), nil }
	c.Write = norm
	return c
}

// OneOf is a string out of values.
func OneOf(values ...string) Codec[string] {
	c := Text()
	c.Type.Enum, c.Type.Examples = values, values[:1]
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := text(n)
		if err != nil {
			return s, err
		}
		for _, v := range values {
			if v == s {
				return s, nil
			}
		}
		return s, notOneOf(s, values)
	}
	return c
}

func notOneOf(s string, values []string) error {
	hint := ""
	if near := nearest(s, values); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return fmt.Errorf("%q is not one of %s%s", s, strings.Join(values, ", "), hint)
}

// Spelling is a value's name in manifests and on the wire.
type Spelling struct{ Manifest, Wire string }

// Spelled is OneOf with two spellings. A live text outside the table reads as
// itself.
func Spelled(table ...Spelling) Codec[string] {
	var names []string
	for _, s := range table {
		names = append(names, s.Manifest)
	}
	c := OneOf(names...)
	c.Read = func(w string) (string, error) {
		for _, s := range table {
			if s.Wire == w {
				return s.Manifest, nil
			}
		}
		return w, nil
	}
	c.Write = func(v string) string {
		for _, s := range table {
			if s.Manifest == v {
				return s.Wire
			}
		}
		return v
	}
	return c
}

// SecretText is a secret resolved from the SOPS document: no manifest holds
// it, so it cannot be parsed, and it is never equal to PVE's mask.
func SecretText() Codec[secret.Text] {
	return Codec[secret.Text]{
		Type: Type{Name: "string", Lines: true},
		Parse: func(*yamldoc.Node) (secret.Text, error) {
			return secret.Text{}, errors.New("a secret does not stand in a manifest; name an entry of the SOPS document")
		},
		Print: func(t secret.Text) *yamldoc.Node { return yamldoc.Str(t.String()) },
		Read:  func(s string) (secret.Text, error) { return secret.New(s), nil },
		Write: func(t secret.Text) string { return t.Reveal() },
	}
}

// Scalar is any scalar as PVE's text: true and false as 1 and 0.
func Scalar() Codec[string] {
	c := Text()
	c.Type.Name = "scalar"
	c.Parse = func(n *yamldoc.Node) (string, error) {
		switch {
		case n.Kind != yamldoc.Scalar:
			return "", errors.New("a scalar belongs here")
		case n.Tag == yamldoc.Bool:
			return map[string]string{"true": "1", "false": "0"}[n.Value], nil
		case n.Value == "":
			return text(n)
		}
		return n.Value, nil
	}
	return c
}
