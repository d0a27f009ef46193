package yamldoc

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseTypes(t *testing.T) {
	docs, ps := Parse("a.yaml", []byte(`a: yes
b: true
c: 0101
d: 12
e: 1.10
f: "7"
g: ~
h:
i: 12:30:45
j: 1_000
k: 2026-01-01
l: {x: on}
m: |
  text
n: 1e3
o: 0x1f
`))
	if ps != nil || len(docs) != 1 {
		t.Fatalf("%v %d", ps, len(docs))
	}
	for key, want := range map[string]string{
		"a": "1 0 yes false", "b": "1 3 true false", "c": "1 0 0101 false", "d": "1 1 12 false",
		"e": "1 2 1.10 false", "f": "1 0 7 true", "g": "0 0  false", "h": "0 0  false",
		"i": "1 0 12:30:45 false", "j": "1 0 1_000 false", "k": "1 0 2026-01-01 false",
		"m": "1 0 text\n true", "n": "1 0 1e3 false", "o": "1 0 0x1f false",
	} {
		n := docs[0].Get(key)
		if got := fmt.Sprintf("%d %d %s %t", n.Kind, n.Tag, n.Value, n.Quoted); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if x := docs[0].Get("l").Get("x"); x.Tag != String || x.Line != 12 || x.Col != 8 {
		t.Errorf("l.x: %+v", x)
	}
}

func TestParseRefuses(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	many := ""
	for i := range MaxKeys + 1 {
		many += fmt.Sprintf("k%d: 1\n", i)
	}
	for name, c := range map[string]struct{ in, want string }{
		"duplicate":   {"a: 1\nb: 2\na: 3\n", `f.yaml:3:1: key "a" stands twice; first in line 1`},
		"two faults":  {"a: 1\na: 2\nb: {c: 1, c: 2}\n", `f.yaml:3:11: key "c" stands twice`},
		"merge":       {"x: &x {a: 1}\ny:\n  <<: *x\n", "f.yaml:3:3: merge keys"},
		"tag":         {"a: !!binary aGk=\n", "f.yaml:1:4: tag !!binary is not allowed"},
		"custom tag":  {"a: !vault x\n", "tag !vault is not allowed"},
		"utf-8":       {"a: 1\nb: \xff\n", "f.yaml:2:4: byte 0xff is not UTF-8"},
		"nul":         {"a: 1\nbc: x\x00\n", "f.yaml:2:6: control character 0x00"},
		"tab":         {"a:\n\tb: 1\n", "f.yaml:2:"},
		"bomb":        {bomb, "too large once aliases are expanded"},
		"self":        {"a: &a [*a]\n", "f.yaml:1:8: alias *a stands inside its own anchor"},
		"no anchor":   {"a: *nope\n", "f.yaml:1:"},
		"deep":        {strings.Repeat("[", 200) + strings.Repeat("]", 200), "nested"},
		"very deep":   {strings.Repeat("[", 200000), "f.yaml:"},
		"large":       {strings.Repeat("#", MaxBytes+1), "f.yaml: the file has 1048577 bytes"},
		"many keys":   {many, "f.yaml:1:1: the mapping has 4097 keys"},
		"many items":  {"a: [" + strings.Repeat("x,", MaxKeys+1) + "]", "f.yaml:1:4: the list has 4097 items"},
		"complex key": {"? [a]\n: b\n", "key must be a plain word"},
		"unclosed":    {"a: \"b\n", "f.yaml:"},
		"bad mapping": {"a: b: c\n", "f.yaml:1:"},
	} {
		docs, ps := Parse("f.yaml", []byte(c.in))
		if docs != nil || !strings.Contains(ps.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, ps, c.want)
		}
		for _, p := range ps {
			if p.Line == 0 && name != "large" {
				t.Errorf("%s: no line: %v", name, p)
			}
		}
	}
}

func TestParseAccepts(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		docs int
	}{
		"empty":         {"", 0},
		"comments only": {"# nothing\n", 0},
		"separators":    {"---\na: 1\n---\nb: 2\n---\n", 2},
		"crlf":          {"a: 1\r\nb: |\r\n  x\r\n  y\r\n", 1},
		"bom":           {"\ufeffa: 1\n", 1},
		"alias":         {"a: &x {p: 1}\nb: *x\n", 1},
	} {
		docs, ps := Parse("f.yaml", []byte(c.in))
		if ps != nil || len(docs) != c.docs {
			t.Errorf("%s: %d documents, %v", name, len(docs), ps)
		}
		if name == "crlf" && docs[0].Get("b").Value != "x\ny\n" {
			t.Errorf("crlf: %q", docs[0].Get("b").Value)
		}
		if name == "alias" && (docs[0].Get("b").Get("p").Value != "1" || docs[0].Get("b").Get("p").Line != 2) {
			t.Errorf("alias: %+v", docs[0].Get("b").Get("p"))
		}
	}
}

// same reports whether two nodes mean the same, places and style aside.
func same(a, b *Node) bool {
	if a.Kind != b.Kind || a.Tag != b.Tag || a.Value != b.Value || len(a.Keys) != len(b.Keys) || len(a.Items) != len(b.Items) {
		return false
	}
	for i := range a.Keys {
		if a.Keys[i].Value != b.Keys[i].Value || !same(a.Values[i], b.Values[i]) {
			return false
		}
	}
	for i := range a.Items {
		if !same(a.Items[i], b.Items[i]) {
			return false
		}
	}
	return true
}

func drawText(t *rapid.T) string {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"yes", "null", "~", "", " ", "a: b", "a #b", "#", "- x", "0101", "1.10", "-1", "true", "x\ny", "x\ny\n", "x\n\n", "\n", "\nx", " x\ny", "x \ny", "x\r\ny", "a\tb", "*", "&a", "<<", "...", "---", "192.0.2.10", "BC:24:11:00:00:01", "2001:db8::1/64", "[x", "{", "é—", "\u2028", "\ufeff", "@x", "`", "%", "a,b", "=", "12:30", "!x", "|", ">", "? x", "x:", "'", `"`, `\`, "x\n  y\n", "-", "--- x\ny", "a\n...\nb", "on", "x\n# y\n"}),
		rapid.String(),
		rapid.StringMatching(`[ -~\n]{0,40}`),
	).Draw(t, "text")
}

func drawNode(t *rapid.T, depth int) *Node {
	n := &Node{}
	if rapid.Bool().Draw(t, "commented") {
		n.Comment, n.Line1 = drawText(t), drawText(t)
	}
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0, 1:
		n.Kind, n.Value = Scalar, drawText(t)
	case 2:
		n.Kind, n.Tag, n.Value = Scalar, Int, fmt.Sprint(rapid.Int().Draw(t, "int"))
	case 3:
		if n.Kind, n.Tag, n.Value = Scalar, Bool, "true"; rapid.Bool().Draw(t, "null") {
			n.Kind, n.Tag, n.Value = Null, String, ""
		}
	case 4:
		n.Kind, n.Flow = Sequence, rapid.Bool().Draw(t, "flow")
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			n.Items = append(n.Items, drawNode(t, depth-1))
		}
	default:
		n.Kind, n.Flow = Mapping, rapid.Bool().Draw(t, "flow")
		seen := map[string]bool{"<<": true}
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			k := drawText(t)
			if !seen[k] {
				seen[k] = true
				n.Put(k, drawNode(t, depth-1))
			}
		}
	}
	return n
}

func TestPrintRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := drawNode(t, 4)
		out := Print(n)
		docs, ps := Parse("p.yaml", out)
		if n.Kind == Null {
			if len(docs) != 0 || ps != nil {
				t.Fatalf("null: %v", ps)
			}
			return
		}
		if ps != nil || len(docs) != 1 || !same(n, docs[0]) {
			t.Fatalf("problems %v in\n%s", ps, out)
		}
		if again := Print(n); string(again) != string(out) {
			t.Fatal("printing is not deterministic")
		}
	})
}

func TestPrintLooks(t *testing.T) {
	n := Map().Put("kind", Str("VM")).Put("spec", Map().
		Put("memory", Str("8GiB")).
		Put("discard", Str("on")).
		Put("gateway", Str("192.0.2.1")).
		Put("mac", Str("BC:24:11:00:00:01")).
		Put("notes", Str("one\n\ntwo")).
		Put("tags", &Node{Kind: Sequence, Flow: true, Items: []*Node{Str("a"), Str("b-c")}}).
		Put("disks", &Node{Kind: Sequence, Items: []*Node{
			Map().Put("interface", Str("scsi0")).Put("size", Str("32GiB")),
			Map().Put("interface", Str("scsi1")),
		}}).
		Put("none", Strs(nil)).
		Put("url", &Node{Kind: Null, Line1: "not known"}))
	n.Values[1].Values[0].Comment = "runs with 4GiB until the next restart"
	n.Comment = "adopted"
	want := `# adopted
kind: VM
spec:
  # runs with 4GiB until the next restart
  memory: 8GiB
  discard: "on"
  gateway: 192.0.2.1
  mac: BC:24:11:00:00:01
  notes: |-
    one

    two
  tags: [a, b-c]
  disks:
    - interface: scsi0
      size: 32GiB
    - interface: scsi1
  none: []
  url: null # not known
`
	if got := string(Print(n)); got != want {
		t.Errorf("got\n%s", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: 1\n", "a: &a [*a]\n", "\ufeff- x\n- |\n  y\n", "a: !!x y", "? x\n", "%YAML 1.1\n---\na", "\"\\x", "a: 'b", "a:\n\t- b\n", "<<: {a: 1}", "&a a: *a"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, ps := Parse("f", data)
		if len(ps) > 0 && docs != nil {
			t.Fatal("documents beside problems")
		}
		for _, d := range docs {
			again, ps := Parse("f", Print(d))
			if ps != nil || len(again) != 1 || !same(d, again[0]) {
				t.Fatalf("not read back: %v\n%s", ps, Print(d))
			}
		}
	})
}

// A name or value with a line break in it makes no second fault.
func TestProblemIsOneLine(t *testing.T) {
	p := Problem{File: "vm/a\nerror: x.yaml", Line: 1, Path: "labels.a\r\nerror: y", Text: "vm/c/a\nerror: forged.yaml: no such file"}
	if got, want := (Problems{p}).Error(), `vm/a\nerror: x.yaml:1: labels.a\r\nerror: y: vm/c/a\nerror: forged.yaml: no such file`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
