package repo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/yamldoc"
)

type (
	secretText   = secret.Text
	timeDuration = time.Duration
)

func scalar(n *yamldoc.Node, takes string) (string, error) {
	if n.Kind != yamldoc.Scalar || n.Value == "" {
		return "", fmt.Errorf("is %s, not %s", takes, shape(n))
	}
	return n.Value, nil
}

func shape(n *yamldoc.Node) string {
	switch {
	case n.Kind == yamldoc.Null:
		return "null"
	case n.Kind == yamldoc.Mapping:
		return "a mapping"
	case n.Kind == yamldoc.Sequence:
		return "a list"
	case n.Value == "":
		return "empty"
	}
	return strconv.Quote(n.Value)
}

func text[S any](path, takes, def, doc string, at func(*S) *string) Key[S] {
	return checked(path, takes, def, doc, at, func(string) error { return nil })
}

func checked[S any](path, takes, def, doc string, at func(*S) *string, check func(string) error) Key[S] {
	return Key[S]{Path: path, Takes: takes, Default: def, Doc: doc, load: func(s *S, n *yamldoc.Node) error {
		v, err := scalar(n, takes)
		if err != nil {
			return err
		}
		*at(s) = v
		return check(v)
	}}
}

// hidden is a secret: no message ever shows what stands there.
func hidden[S any](path, takes, doc string, at func(*S) *secretText) Key[S] {
	return Key[S]{Path: path, Takes: takes, Doc: doc, load: func(s *S, n *yamldoc.Node) error {
		if n.Kind != yamldoc.Scalar || n.Value == "" {
			return fmt.Errorf("is a text (%s)", takes)
		}
		*at(s) = secret.New(n.Value)
		return nil
	}}
}

func oneOf[S any](path, def, doc string, at func(*S) *string, values ...string) Key[S] {
	takes := strings.Join(values, " or ")
	return Key[S]{Path: path, Takes: takes, Default: def, Doc: doc, load: func(s *S, n *yamldoc.Node) error {
		if n.Kind != yamldoc.Scalar || !slices.Contains(values, n.Value) {
			return fmt.Errorf("is %s, not %s", takes, shape(n))
		}
		*at(s) = n.Value
		return nil
	}}
}

func number[S any](path string, lo, hi int, def, doc string, at func(*S) *int) Key[S] {
	takes := fmt.Sprintf("an integer in %d-%d", lo, hi)
	return Key[S]{Path: path, Takes: takes, Default: def, Doc: doc, load: func(s *S, n *yamldoc.Node) error {
		v, err := strconv.Atoi(n.Value)
		if n.Kind != yamldoc.Scalar || n.Tag != yamldoc.Int || n.Quoted || err != nil || v < lo || v > hi {
			return fmt.Errorf("is %s, not %s", takes, shape(n))
		}
		*at(s) = v
		return nil
	}}
}

func truth[S any](path, def, doc string, at func(*S) *bool) Key[S] {
	return Key[S]{Path: path, Takes: "true or false", Default: def, Doc: doc, load: func(s *S, n *yamldoc.Node) error {
		if n.Kind != yamldoc.Scalar || n.Tag != yamldoc.Bool || n.Quoted {
			return fmt.Errorf("is true or false, not %s", shape(n))
		}
		*at(s) = n.Value == "true"
		return nil
	}}
}

func duration[S any](path, def, doc string, at func(*S) *timeDuration) Key[S] {
	return Key[S]{Path: path, Takes: "duration", Default: def, Doc: doc, load: func(s *S, n *yamldoc.Node) error {
		v, err := time.ParseDuration(n.Value)
		if n.Kind != yamldoc.Scalar || err != nil || v < time.Second {
			return fmt.Errorf("is a duration of at least 1s, such as 30s, 5m or 1h30m, not %s", shape(n))
		}
		*at(s) = v
		return nil
	}}
}

func list[S any](path, takes, def, doc string, at func(*S) *[]string) Key[S] {
	return Key[S]{Path: path, Takes: takes, Default: def, Doc: doc, load: func(s *S, n *yamldoc.Node) error {
		if n.Kind != yamldoc.Sequence {
			return fmt.Errorf("is a %s, not %s", takes, shape(n))
		}
		var out []string
		for i, item := range n.Items {
			v, err := scalar(item, "a text")
			if err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
			if slices.Contains(out, v) {
				return fmt.Errorf("[%d]: %q stands there twice", i, v)
			}
			out = append(out, v)
		}
		*at(s) = out
		return nil
	}}
}

// readKeys loads a mapping by a table. extra takes paths of other tables: it
// reports whether it consumed the node, and is asked first.
func readKeys[S any](file string, n *yamldoc.Node, s *S, keys []Key[S], extra *nest) yamldoc.Problems {
	r := &keyReader[S]{file: file, s: s, keys: keys, extra: extra}
	r.mapping(n, "")
	return r.problems
}

// nest is what a table does not hold: further paths, by exact name.
type nest struct {
	take  map[string]func(n *yamldoc.Node, path string) yamldoc.Problems
	names []string // more known paths, for the unknown-key message
}

type keyReader[S any] struct {
	file     string
	s        *S
	keys     []Key[S]
	extra    *nest
	problems yamldoc.Problems
}

func (r *keyReader[S]) fault(n *yamldoc.Node, path, format string, args ...any) {
	r.problems = append(r.problems, yamldoc.Problem{File: r.file, Line: n.Line, Col: n.Col, Path: path, Text: fmt.Sprintf(format, args...)})
}

func (r *keyReader[S]) mapping(n *yamldoc.Node, at string) {
	if n.Kind == yamldoc.Null && at != "" {
		r.fault(n, at, "is empty: give it a value or leave it out")
		return
	}
	if n.Kind != yamldoc.Mapping {
		r.fault(n, at, "is a mapping, not %s", shape(n))
		return
	}
	for i, k := range n.Keys {
		path := k.Value
		if at != "" {
			path = at + "." + k.Value
		}
		r.value(k, n.Values[i], path)
	}
}

func (r *keyReader[S]) value(k, n *yamldoc.Node, path string) {
	if r.extra != nil && r.extra.take[path] != nil {
		r.problems = append(r.problems, r.extra.take[path](n, path)...)
		return
	}
	inner := false
	var known []string
	for _, key := range r.keys {
		if key.Path == path {
			if err := key.load(r.s, n); err != nil {
				at, text := path, err.Error()
				if strings.HasPrefix(text, "[") { // an item of a list names itself
					item, rest, _ := strings.Cut(text, ": ")
					at, text = path+item, rest
				}
				line, col := field.PathPos(n, strings.TrimPrefix(strings.TrimPrefix(at, path), "."))
				r.fault(&yamldoc.Node{Line: line, Col: col}, at, "%s", text)
			}
			return
		}
		inner = inner || strings.HasPrefix(key.Path, path+".")
		known = append(known, key.Path)
	}
	if r.extra != nil {
		for _, name := range r.extra.names {
			inner = inner || strings.HasPrefix(name, path+".")
			known = append(known, name)
		}
	}
	if inner {
		r.mapping(n, path)
		return
	}
	depth, level := strings.Count(path, "."), map[string]bool{}
	for _, key := range known {
		if parts := strings.Split(key, "."); len(parts) > depth {
			level[strings.Join(parts[:depth+1], ".")] = true
		}
	}
	if near := field.Nearest(path, sorted(level)); near != "" && len(path) > 2 {
		r.fault(k, path, "unknown key; did you mean %s?", near)
		return
	}
	r.fault(k, path, "unknown key%s", hint(path, known))
}
