package sops

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

const (
	// maxSize bounds a secrets file, so that no crafted file costs memory or,
	// by the YAML library's quadratic search for duplicates, time.
	maxSize = 1 << 20
	maxKeys = 2000 // in one mapping
	maxDeep = 50
)

// outline checks, before SOPS sees it, that text is one YAML document whose
// root is a mapping, with no duplicate or non-text key and none of the things
// that SOPS flattens, drops or recurses over without end: anchors, aliases,
// merge keys, tags and further documents. It gives the root.
func outline(text []byte) (*yaml.Node, error) {
	if len(text) > maxSize {
		return nil, fault(ErrMalformed, "", fmt.Sprintf("is larger than %d KiB: it is no secrets file", maxSize>>10))
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fault(ErrMalformed, "", "is empty: restore it from git, or remove it and run proxops secrets init")
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithUniqueKeys(false))
	if err != nil {
		return nil, fault(ErrMalformed, "", "is not YAML")
	}
	var doc, next yaml.Node
	if err := guard(func() error { return loader.Load(&doc) }); err != nil {
		return nil, notYAML(err)
	}
	if err := guard(func() error { return loader.Load(&next) }); err == nil {
		return nil, fault(ErrMalformed, "", "holds more than one YAML document: keep one")
	} else if !errors.Is(err, io.EOF) {
		return nil, notYAML(err)
	}
	root := &doc
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	if root.Kind != yaml.MappingNode {
		return nil, posFault(root, "must be a mapping with the keys secrets and cloud-init")
	}
	return root, outlineNode(root, 0)
}

// notYAML keeps the position of a YAML error and drops its text, which quotes
// the input: an unquoted password beginning with * is an "unknown anchor".
func notYAML(err error) error {
	e := fault(ErrMalformed, "", `is not YAML (a value that begins with one of * & ! % @ { [ | > or holds ": " needs quotes)`)
	var le *yaml.LoadError
	if errors.As(err, &le) && le.Mark.Line > 0 {
		e.Pos = fmt.Sprintf("%d:%d", le.Mark.Line, max(le.Mark.Column, 1))
	}
	return e
}

func posFault(n *yaml.Node, text string) error {
	e := fault(ErrMalformed, "", text)
	e.Pos = fmt.Sprintf("%d:%d", n.Line, n.Column)
	return e
}

func outlineNode(n *yaml.Node, deep int) error {
	switch {
	case deep > maxDeep:
		return posFault(n, fmt.Sprintf("is nested deeper than %d levels", maxDeep))
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return posFault(n, "anchors and aliases are not supported: quote a value that begins with & or *")
	case n.Style&yaml.TaggedStyle != 0:
		return posFault(n, "tags are not supported: quote a value that begins with !")
	case n.Kind == yaml.MappingNode && len(n.Content) > 2*maxKeys:
		return posFault(n, fmt.Sprintf("a mapping has more than %d keys", maxKeys))
	}
	seen := map[string]bool{}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			switch {
			case c.Kind != yaml.ScalarNode || c.ShortTag() != "!!str":
				return posFault(c, "a key must be a text: put it in quotes")
			case seen[c.Value]:
				return posFault(c, "this key is there twice in one mapping: keep one")
			}
			seen[c.Value] = true
		}
		if err := outlineNode(c, deep+1); err != nil {
			return err
		}
	}
	return nil
}

// indentOf finds how many spaces the document's first nested line has, so that
// an edit does not re-indent, and thereby touch, every other line. 0: unknown.
func indentOf(text []byte) int {
	for line := range strings.Lines(string(text)) {
		body := strings.TrimLeft(line, " ")
		n := len(line) - len(body)
		if n > 0 && strings.TrimSpace(body) != "" && !strings.HasPrefix(body, "#") && !strings.HasPrefix(body, "-") {
			return min(n, 9)
		}
	}
	return 0
}
