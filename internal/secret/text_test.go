package secret

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

const canary = "canary-5f3a"

// nested is how secrets lie in real values: in unexported fields, behind
// pointers, in slices and maps, embedded.
type nested struct {
	text    Text
	pointer *Text
	slice   []Text
	array   [1]Text
	byName  map[string]Text
	any     any
	inner   struct{ deep Text }
	Text
}

func values() []any {
	t := New(canary)
	n := nested{t, &t, []Text{t}, [1]Text{t}, map[string]Text{"k": t}, t, struct{ deep Text }{t}, t}
	return []any{t, &t, []Text{t}, map[string]Text{"k": t}, n, &n, []any{n}, map[string]any{"n": &n}, struct{ n *nested }{&n}, struct{ n nested }{n}}
}

func shows(s string) bool {
	return strings.Contains(s, canary) || strings.Contains(s, fmt.Sprintf("%x", canary)) || strings.Contains(s, fmt.Sprintf("%X", canary)) ||
		strings.Contains(s, strings.Trim(fmt.Sprintf("%d", []byte(canary)), "[]"))
}

// Every verb that fmt has, with every flag, on every shape: the value never
// appears, not as text, hexadecimal or a list of bytes.
func TestNoVerbShows(t *testing.T) {
	for _, v := range values() {
		for _, flags := range []string{"", "+", "#", "-", " ", "0", "+#", "# ", "10.3", "#+.2"} {
			for verb := '!'; verb <= '~'; verb++ {
				if verb == '*' || verb == '.' || verb == '[' || verb >= '0' && verb <= '9' || strings.ContainsRune("+-#", verb) {
					continue // flags and widths, not verbs
				}
				format := "%" + flags + string(verb)
				if s := fmt.Sprintf(format, v); shows(s) {
					t.Errorf("%s of %T: %s", format, v, s)
				}
			}
		}
		if s := fmt.Sprint(v) + fmt.Sprintln(v); shows(s) {
			t.Errorf("Print of %T: %s", v, s)
		}
		if err := fmt.Errorf("outer: %w", fmt.Errorf("%v %s %w", v, v, errors.New("inner"))); shows(err.Error()) {
			t.Errorf("error with %T: %v", v, err)
		}
	}
}

// What a plain string shows is what the test above looks for: it can fail.
func TestShowsSeesALeak(t *testing.T) {
	for _, s := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%d", []byte(canary)), fmt.Sprintf("%#v", struct{ s string }{canary})} {
		if !shows(s) {
			t.Errorf("%q is not seen", s)
		}
	}
}

type exported struct {
	Text    Text            `json:"text" yaml:"text" xml:"text"`
	Pointer *Text           `json:"pointer" yaml:"pointer" xml:"pointer"`
	Slice   []Text          `json:"slice" yaml:"slice" xml:"slice"`
	ByName  map[string]Text `json:"by-name" yaml:"by-name" xml:"-"`
	Keyed   map[Text]int    `json:"keyed" yaml:"-" xml:"-"`
}

func TestNoEncodingShows(t *testing.T) {
	text := New(canary)
	v := exported{text, &text, []Text{text}, map[string]Text{"k": text}, map[Text]int{text: 1}}
	j, err := json.Marshal(v)
	if err != nil || shows(string(j)) || strings.Count(string(j), mask) != 5 {
		t.Errorf("JSON: %s, %v", j, err)
	}
	y, err := yaml.Dump(v)
	if err != nil || shows(string(y)) || strings.Count(string(y), mask) != 4 {
		t.Errorf("YAML: %s, %v", y, err)
	}
	x, err := xml.Marshal(v)
	if err != nil || shows(string(x)) || strings.Count(string(x), mask) != 3 {
		t.Errorf("XML: %s, %v", x, err)
	}
}

func TestNoLogShows(t *testing.T) {
	var out bytes.Buffer
	opts := &slog.HandlerOptions{Level: slog.LevelDebug}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, opts), slog.NewJSONHandler(&out, opts)} {
		log := slog.New(h)
		for _, v := range values() {
			log.Debug("x", "v", v, slog.Group("g", "v", v))
			log.With("v", v).WithGroup("h").Error("x", "err", fmt.Errorf("%v", v))
		}
		log.Info("x", "v", exported{Text: New(canary)})
	}
	if shows(out.String()) || !strings.Contains(out.String(), mask) {
		t.Errorf("log:\n%s", out.String())
	}
}

// A panic prints its value and, in the stack, the words of arguments.
func TestNoPanicShows(t *testing.T) {
	if os.Getenv("SECRET_TEST_PANIC") == "1" {
		text := New(strings.Join([]string{"canary", "5f3a"}, "-"))
		panicWith(text, nested{text: text})
	}
	for _, kind := range []string{"text", "struct", "error"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNoPanicShows$")
		cmd.Env = append(os.Environ(), "SECRET_TEST_PANIC=1", "SECRET_TEST_KIND="+kind, "GOTRACEBACK=all")
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("panic: ")) || !bytes.Contains(out, []byte("goroutine")) {
			t.Errorf("%s: no panic: %v\n%s", kind, err, out)
		}
		if shows(string(out)) {
			t.Errorf("%s: %s", kind, out)
		}
	}
}

//go:noinline
func panicWith(text Text, n nested) {
	switch os.Getenv("SECRET_TEST_KIND") {
	case "text":
		panic(text)
	case "struct":
		panic(n)
	}
	panic(fmt.Errorf("login with %v, %+v", text, n))
}

func TestReveal(t *testing.T) {
	for _, r := range []struct {
		text       Text
		value      string
		set, empty bool
	}{
		{Text{}, "", false, true},
		{New(""), "", true, true},
		{New(canary), canary, true, false},
	} {
		if r.text.Reveal() != r.value || r.text.IsSet() != r.set || r.text.Empty() != r.empty || r.text.String() != mask {
			t.Errorf("%+v", r)
		}
	}
}
