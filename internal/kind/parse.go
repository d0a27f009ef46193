package kind

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/yamldoc"
)

// APIVersion is the only one that manifests may name.
const APIVersion = "proxops/v1alpha1"

func fullMatch(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + pattern + `)$`)
}

var resourceName = fullMatch(NamePattern)

// ParseRef reads Kind:name.
func ParseRef(s string) (Ref, error) {
	k, name, ok := strings.Cut(s, ":")
	if !ok {
		return Ref{}, fmt.Errorf("%q is not Kind:name", s)
	}
	if _, known := Lookup(k); !known {
		return Ref{}, fmt.Errorf("%q: kind %s is none of %s", s, k, Names())
	}
	if !resourceName.MatchString(name) {
		return Ref{}, fmt.Errorf("%q: %q is not a name", s, name)
	}
	return Ref{k, name}, nil
}

// Problem is a fault at a path below the document, such as spec.disks[0].image.
func (r *Resource) Problem(path, text string) yamldoc.Problem {
	p := yamldoc.Problem{File: r.File, Path: path, Text: text}
	if r.Node != nil {
		p.Line, p.Col = field.PathPos(r.Node, path)
	}
	return p
}

// SpecProblem is a fault at a path below the spec, shown without the spec in
// front, as all field paths are.
func (r *Resource) SpecProblem(path, text string) yamldoc.Problem {
	p := r.Problem("spec."+path, text)
	p.Path = path
	return p
}

// Parse reads one document of a manifest. Every fault is reported; the
// resource is nil when there is any. Warnings stand in the resource.
func Parse(file string, n *yamldoc.Node) (*Resource, yamldoc.Problems) {
	p := &parser{r: &Resource{File: file, Node: n, Labels: map[string]string{}}}
	p.r.Annotations.Raw = map[string]string{}
	if n == nil || n.Kind != yamldoc.Mapping {
		return nil, yamldoc.Problems{{File: file, Line: 1, Col: 1, Text: "a manifest is a mapping of apiVersion, kind, metadata and spec"}}
	}
	if keys := keysOf(n); len(keys) == 1 && keys[0] == "spec" {
		p.fault("spec", "a spec without kind and metadata: they stand in one document, without --- between metadata and spec")
		return nil, p.problems
	}
	p.envelope(n)
	p.metadata(n.Get("metadata"))
	if p.r.Kind != nil {
		p.spec(n)
	}
	if len(p.problems) > 0 {
		return nil, p.problems.Sorted()
	}
	return p.r, nil
}

type parser struct {
	r        *Resource
	problems yamldoc.Problems
}

func (p *parser) fault(path, format string, args ...any) {
	p.problems = append(p.problems, p.r.Problem(path, fmt.Sprintf(format, args...)))
}

var envelopeKeys = []string{"apiVersion", "kind", "metadata", "spec"}

func (p *parser) envelope(n *yamldoc.Node) {
	p.unknown(n, "", envelopeKeys)
	if v, ok := p.text(n, "apiVersion", true); ok && v != APIVersion {
		p.fault("apiVersion", "%q is not %s, the only version there is", v, APIVersion)
	}
	if v, ok := p.text(n, "kind", true); ok {
		k, known := Lookup(v)
		if !known {
			p.fault("kind", "%q is not one of %s", v, Names())
		}
		p.r.Kind = k
	}
	switch s := n.Get("spec"); {
	case s == nil && n.Get("metadata") != nil:
		p.fault("spec", "required; it stands in the same document, without --- after metadata")
	case s == nil:
		p.fault("spec", "required")
	}
}

func keysOf(n *yamldoc.Node) []string {
	var out []string
	for _, k := range n.Keys {
		out = append(out, k.Value)
	}
	return out
}

func (p *parser) unknown(n *yamldoc.Node, path string, known []string) {
	for _, k := range n.Keys {
		if !slices.Contains(known, k.Value) {
			prob := p.r.Problem("", fmt.Sprintf("unknown field; known here are %s", strings.Join(known, ", ")))
			prob.Path, prob.Line, prob.Col = strings.TrimPrefix(path+"."+k.Value, "."), k.Line, k.Col
			p.problems = append(p.problems, prob)
		}
	}
}

// text reads a string of a mapping.
func (p *parser) text(n *yamldoc.Node, path string, required bool) (string, bool) {
	v := n.Get(path[strings.LastIndex(path, ".")+1:])
	switch {
	case v == nil:
		if required {
			p.fault(path, "required")
		}
		return "", false
	case v.Kind == yamldoc.Scalar && v.Tag == yamldoc.String && v.Value == "":
		p.fault(path, "may not be empty")
		return "", false
	case v.Kind == yamldoc.Scalar && v.Tag != yamldoc.String:
		p.fault(path, "%s is not a string; write it in quotes: %q", v.Value, v.Value)
		return "", false
	case v.Kind != yamldoc.Scalar:
		p.fault(path, "a string belongs here")
		return "", false
	}
	return v.Value, true
}

func (p *parser) metadata(n *yamldoc.Node) {
	if n == nil {
		p.fault("metadata", "required, with a name")
		return
	}
	if n.Kind != yamldoc.Mapping {
		p.fault("metadata", "a mapping of name, labels and annotations belongs here")
		return
	}
	p.unknown(n, "metadata", []string{"name", "labels", "annotations"})
	if name, ok := p.text(n, "metadata.name", true); ok {
		if !resourceName.MatchString(name) {
			p.fault("metadata.name", "%q is not a name: lower-case letters and digits, parts joined by single hyphens", name)
		} else if len(name) > 63 {
			p.fault("metadata.name", "a name has at most 63 characters")
		}
		p.r.Name = name
	}
	p.strings(n.Get("labels"), "metadata.labels", func(k, v string) { p.r.Labels[k] = v })
	p.strings(n.Get("annotations"), "metadata.annotations", func(k, v string) {
		p.r.Annotations.Raw[k] = v
		p.annotation("metadata.annotations."+k, k, v)
	})
}

// strings reads a mapping of strings.
func (p *parser) strings(n *yamldoc.Node, path string, each func(k, v string)) {
	switch {
	case n == nil:
		return
	case n.Kind != yamldoc.Mapping:
		p.fault(path, "a mapping of strings belongs here")
		return
	}
	for i, k := range n.Keys {
		v := n.Values[i]
		at := path + "." + k.Value
		switch {
		case v.Kind == yamldoc.Scalar && v.Tag == yamldoc.String:
			each(k.Value, v.Value)
		case v.Kind == yamldoc.Scalar:
			p.fault(at, "%s is not a string; write it in quotes: %q", v.Value, v.Value)
		default:
			p.fault(at, "a string belongs here")
		}
	}
}

const annotationPrefix = "proxops/"

// annotation reads one proxops/* hint; others are free.
func (p *parser) annotation(path, key, value string) {
	if !strings.HasPrefix(key, annotationPrefix) {
		return
	}
	a := &p.r.Annotations
	switch key {
	case "proxops/depends-on":
		for _, part := range strings.Split(value, ",") {
			ref, err := ParseRef(strings.TrimSpace(part))
			switch {
			case err != nil:
				p.fault(path, "%s; a comma-separated list of Kind:name belongs here", err)
			case slices.Contains(a.DependsOn, ref):
				p.fault(path, "%s stands twice", ref)
			default:
				a.DependsOn = append(a.DependsOn, ref)
			}
		}
	case "proxops/claim":
		a.Claim = p.flag(path, value)
	case "proxops/force-stop":
		a.ForceStop = p.flag(path, value)
	case "proxops/restart":
		a.Restart = p.word(path, value, "never", "immediate", "window")
	case "proxops/placement":
		a.Placement = p.word(path, value, "report", "follow", "migrate")
	default:
		p.fault(path, "unknown annotation; known are proxops/depends-on, proxops/claim, proxops/force-stop, proxops/restart and proxops/placement")
	}
}

func (p *parser) flag(path, value string) bool {
	return p.word(path, value, "true", "false") == "true"
}

func (p *parser) word(path, value string, words ...string) string {
	if !slices.Contains(words, value) {
		p.fault(path, "%q is not one of %s", value, strings.Join(words, ", "))
	}
	return value
}

func (p *parser) spec(n *yamldoc.Node) {
	spec := p.r.Kind.New()
	p.r.Spec = spec
	if g, ok := spec.(GuestSpec); ok && p.r.Name != "" {
		g.SetDefaultName(p.r.Name)
	}
	if n.Get("spec") == nil {
		return
	}
	found := field.Load(p.r.File, n.Get("spec"), func() *field.Block { return spec.Shape(nil) })
	if s, ok := spec.(interface{ normalise() }); ok {
		s.normalise()
	}
	spec.Validate(func(path, format string, args ...any) {
		prob := p.r.SpecProblem(path, fmt.Sprintf(format, args...))
		covered := slices.ContainsFunc(found, func(q yamldoc.Problem) bool { return q.Path == path })
		if !covered {
			found = append(found, prob)
		}
	})
	spec.Warn(func(path, format string, args ...any) {
		p.r.Warnings = append(p.r.Warnings, p.r.SpecProblem(path, fmt.Sprintf(format, args...)))
	})
	p.problems = append(p.problems, found...)
	if p.r.Kind.IsGuest() {
		return
	}
	if a := p.r.Annotations; a.Claim || a.ForceStop || a.Restart != "" || a.Placement != "" {
		p.fault("metadata.annotations", "only proxops/depends-on has a meaning for a %s", p.r.Kind.Name)
	}
}
