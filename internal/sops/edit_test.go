package sops

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/proxops/proxops/internal/secret"
)

// changedLines gives the lines of b that a does not have.
func changedLines(a, b string) []string {
	have := strings.Split(a, "\n")
	var out []string
	for _, l := range strings.Split(b, "\n") {
		if !slices.Contains(have, l) {
			out = append(out, strings.TrimSpace(l))
		}
	}
	return out
}

// A Set changes the line of its value, the MAC and the date, no other byte.
func TestSetKeepsTheRest(t *testing.T) {
	path, env, _ := newFile(t)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	before := content(t, path)
	text, _ := open(t, path, env).Plaintext()
	if text.Reveal() != sample {
		t.Fatalf("plaintext is not what was stored:\n%s", text.Reveal())
	}
	if err := Set(t.Context(), path, env, "secrets.token", secret.New("fresh")); err != nil {
		t.Fatal(err)
	}
	after := content(t, path)
	for _, l := range changedLines(before, after) {
		if !regexp.MustCompile(`^(token|mac|lastmodified): `).MatchString(l) {
			t.Errorf("also changed: %s", l)
		}
	}
	if strings.Count(before, "\n") != strings.Count(after, "\n") {
		t.Error("lines were added or lost")
	}
	text, _ = open(t, path, env).Plaintext()
	if want := strings.Replace(sample, "canary-token", "fresh", 1); text.Reveal() != want {
		t.Errorf("got\n%s", text.Reveal())
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// Other indentations stay as they are.
func TestIndentKept(t *testing.T) {
	env, r := newKey(t)
	path := filepath.Join(t.TempDir(), "s.yaml")
	if err := Create(path, []string{r}, secret.New("secrets:\n  a: x\n  b: y\n")); err != nil {
		t.Fatal(err)
	}
	d := open(t, path, env)
	d.indent = 2
	if err := d.Set("secrets.a", secret.New("z")); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	two := content(t, path)
	if !strings.Contains(two, "\n  a: ENC") {
		t.Fatal("the test's own premise: two spaces")
	}
	if err := Set(t.Context(), path, env, "secrets.b", secret.New("new")); err != nil {
		t.Fatal(err)
	}
	if got := changedLines(two, content(t, path)); len(got) > 3 {
		t.Errorf("changed: %q", got)
	}
}

func TestNoChangeNoWrite(t *testing.T) {
	path, env, _ := newFile(t)
	if err := os.Chmod(filepath.Dir(path), 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Dir(path), 0o700)
	before, _ := os.Stat(path)
	d := open(t, path, env)
	if err := d.Set("secrets.token", secret.New("canary-token")); err != nil || d.Changed() {
		t.Error(err, d.Changed())
	}
	text, _ := d.Plaintext()
	if err := errors.Join(d.Replace(text), d.Save(t.Context())); err != nil {
		t.Error(err)
	}
	if after, _ := os.Stat(path); !os.SameFile(before, after) {
		t.Error("the file was replaced without a change")
	}
}

func TestSetRefusals(t *testing.T) {
	path, env, _ := newFile(t)
	before := content(t, path)
	for ref, want := range map[string]error{
		"secrets":                            ErrBadRef,
		"secrets.":                           ErrBadRef,
		"cloud-init.ssh-keys":                ErrBadRef,
		"cloud-init.keys.a":                  ErrBadRef,
		"sops.mac":                           ErrBadRef,
		"nowhere.a":                          ErrBadRef,
		"secrets.a b":                        ErrBadRef,
		"secrets.a\nb":                       ErrBadRef,
		"extra.deep.0":                       ErrBadRef,
		"secrets.pw_unencrypted":             ErrBadRef,
		"cloud-init.passwords.a_unencrypted": ErrBadRef,
	} {
		err := Set(t.Context(), path, env, ref, secret.New("canary-new"))
		if !errors.Is(err, want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if err := Set(t.Context(), path, env, "nowhere.a", secret.New("")); errors.Is(err, ErrEmptyRef) || !errors.Is(err, ErrBadRef) { // which is the first thing to correct
		t.Errorf("an empty value for what is no entry: %v", err)
	}
	if err := Set(t.Context(), path, env, "secrets.token", secret.New(" \n")); !errors.Is(err, ErrEmptyRef) {
		t.Error(err)
	}
	if content(t, path) != before {
		t.Error("a refused set wrote")
	}
	flat := filepath.Join(t.TempDir(), "s")
	if err := Create(flat, open(t, path, env).Recipients(), secret.New("cloud-init:\nsecrets:\n")); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"secrets", "cloud-init"} {
		if err := Set(t.Context(), flat, env, ref, secret.New("x")); !errors.Is(err, ErrBadRef) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if err := Set(t.Context(), flat, env, "cloud-init.ssh-keys.ops", secret.New("x")); err != nil {
		t.Error(err)
	}
}

func TestDelete(t *testing.T) {
	path, env, _ := newFile(t)
	d := open(t, path, env)
	if err := errors.Join(d.Delete("secrets.other"), d.Delete("cloud-init.passwords.web"), d.Save(t.Context())); err != nil {
		t.Fatal(err)
	}
	d = open(t, path, env)
	if _, err := d.Lookup("secrets.other"); !errors.Is(err, ErrMissingRef) {
		t.Error(err)
	}
	if _, err := d.Lookup("secrets.token"); err != nil {
		t.Error(err)
	}
	if err := d.Delete("secrets.other"); !errors.Is(err, ErrMissingRef) {
		t.Error(err)
	}
	if err := d.Delete("secrets"); !errors.Is(err, ErrBadRef) {
		t.Error(err)
	}
}

// What YAML would turn into something else is refused with its name or line.
func TestReplaceRefusals(t *testing.T) {
	path, env, _ := newFile(t)
	d := open(t, path, env)
	for text, says := range map[string]string{
		"":                                       "empty",
		"secrets:\n  a: 0123\n":                  "secrets.a: is a number",
		"secrets:\n  a: 1e5\n":                   "secrets.a: is a number",
		"secrets:\n  a: true\n":                  "secrets.a",
		"secrets:\n  a: 2024-01-01\n":            "secrets.a",
		"secrets:\n  a: #canary-x\n":             "secrets.a: has no value",
		"secrets:\n  a: *canary-x\n":             ":2:",
		"secrets:\n  a: &canary-x y\n":           "2:6",
		"secrets:\n  a: !canary-x\n":             "2:6",
		"secrets:\n  a: b\n  a: canary-x\n":      "3:3: this key is there twice",
		"secrets:\n  7: canary-x\n":              "2:3",
		"secrets: canary-x\n":                    "group",
		"cloud-init:\n  ssh-keys: canary-x\n":    "group",
		"secrets:\n  a: 'canary-x\n":             "not YAML",
		"a: canary-x\nsops: {}\n":                "2:1",
		"- canary-x\n":                           "1:1",
		"a: canary-x\n---\nb: c\n":               "more than one",
		strings.Repeat("{a: ", 500) + "canary-x": "",
	} {
		err := d.Replace(secret.New(text))
		if err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), path) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if d.Changed() {
		t.Error("a refused text changed the document")
	}
}

func TestRekey(t *testing.T) {
	path, env, mine := newFile(t)
	other, theirs := newKey(t)
	ctx := t.Context()
	if err := Rekey(ctx, path, env, []string{theirs}, nil); err != nil {
		t.Fatal(err)
	}
	d := open(t, path, other)
	if !slices.Equal(d.Recipients(), []string{mine, theirs}) {
		t.Error(d.Recipients())
	}
	shared := content(t, path)

	for _, bad := range []struct{ add, remove string }{{theirs, ""}, {"age1nonsense", ""}, {"AGE-SECRET-KEY-CANARY", ""}, {"", newRecipient(t)}, {"", mine}} {
		var add, remove []string
		if bad.add != "" {
			add = []string{bad.add}
		} else {
			remove = []string{bad.remove}
		}
		if err := Rekey(ctx, path, env, add, remove); !errors.Is(err, ErrRecipient) || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if content(t, path) != shared {
		t.Error("a refused rekey wrote")
	}

	if err := Rekey(ctx, path, env, nil, []string{theirs}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, other); !errors.Is(err, ErrWrongIdentity) {
		t.Errorf("the removed recipient: %v", err)
	}
	// The removed one still has the old data key: no value may be under it.
	now := open(t, path, env)
	if slices.Equal(now.key, d.key) {
		t.Error("the data key was not rotated")
	}
	same := map[string]bool{}
	for _, v := range regexp.MustCompile(`ENC\[[^\]]*\]`).FindAllString(shared, -1) {
		same[v] = true
	}
	for _, v := range regexp.MustCompile(`ENC\[[^\]]*\]`).FindAllString(content(t, path), -1) {
		if same[v] {
			t.Error("a value kept its ciphertext")
		}
	}
	text, _ := now.Plaintext()
	if text.Reveal() != sample {
		t.Errorf("got\n%s", text.Reveal())
	}
	if err := Rekey(ctx, path, env, nil, []string{mine}); !errors.Is(err, ErrRecipient) {
		t.Error(err)
	}
}

func TestSaveRefusesAnotherWritersFile(t *testing.T) {
	path, env, _ := newFile(t)
	d := open(t, path, env)
	if err := Set(t.Context(), path, env, "secrets.other", secret.New("theirs")); err != nil {
		t.Fatal(err)
	}
	if err := d.Set("secrets.token", secret.New("mine")); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(t.Context()); !errors.Is(err, ErrChanged) {
		t.Errorf("lost update: %v", err)
	}
}

// While another command holds the file, nothing is written.
func TestSaveWaitsForTheLock(t *testing.T) {
	path, env, _ := newFile(t)
	d, before := open(t, path, env), content(t, path)
	if err := d.Set("secrets.token", secret.New("fresh")); err != nil {
		t.Fatal(err)
	}
	other := flock.New(filepath.Dir(path), flock.SetFlag(os.O_RDONLY))
	if ok, err := other.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Save(ctx); !errors.Is(err, ErrLocked) || content(t, path) != before {
		t.Errorf("%v", err)
	}
	if err := other.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(t.Context()); err != nil || content(t, path) == before {
		t.Errorf("%v", err)
	}
}

func TestSymlinkStays(t *testing.T) {
	path, env, _ := newFile(t)
	link := filepath.Join(t.TempDir(), "link.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := Set(t.Context(), link, env, "secrets.token", secret.New("fresh")); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced by a file")
	}
	if v, err := open(t, path, env).Lookup("secrets.token"); err != nil || v.Reveal() != "fresh" {
		t.Error(err)
	}
}

const commented = `# c1
secrets:
    # c2
    a: x # c3
    # c4
# c5
other: z # c8
more:
    - x
    - w # c9
extra:
    list:
        # c6
        - one
        - inner: two # c7
    # c10
`

// Comments survive wherever they stand, also where YAML moves them.
func TestCommentsKept(t *testing.T) {
	text := commented
	env, r := newKey(t)
	path := filepath.Join(t.TempDir(), "s")
	if err := Create(path, []string{r}, secret.New(text)); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		got, err := open(t, path, env).Plaintext()
		for _, c := range regexp.MustCompile(`# c\d+`).FindAllString(text, -1) {
			if strings.Count(got.Reveal()+"\n", c+"\n") != 1 {
				t.Errorf("%s: %s is lost\n%s\n%s", when, c, got.Reveal(), content(t, path))
			}
		}
		if err != nil || strings.Contains(got.Reveal(), "ENC[") {
			t.Errorf("%s: %v\n%s", when, err, got.Reveal())
		}
	}
	check("created")
	for _, v := range []string{"y", "z"} {
		before := content(t, path)
		if err := Set(t.Context(), path, env, "secrets.a", secret.New(v)); err != nil {
			t.Fatal(err)
		}
		check("set " + v)
		for _, l := range changedLines(before, content(t, path)) {
			if !regexp.MustCompile(`^(a|mac|lastmodified): `).MatchString(l) {
				t.Errorf("also changed: %s", l)
			}
		}
	}
}

// A comment that SOPS itself wrote where YAML moves it is opened all the same.
func TestStrayCommentOpened(t *testing.T) {
	path, env, _ := newFile(t)
	d := open(t, path, env)
	branches, err := store(0).LoadPlainFile([]byte(commented)) // as sops encrypt does
	if err != nil {
		t.Fatal(err)
	}
	raw, _, strays, err := sealOnce(branches[0], d.meta, d.key, newSealer(), 0)
	if strays == 0 {
		t.Fatal("the test's own premise: YAML moves a comment")
	}
	if err != nil {
		t.Fatal(err)
	}
	back, err := decode(raw, env)
	if err != nil {
		t.Fatal(err)
	}
	text, err := back.Plaintext()
	if err != nil || strings.Contains(text.Reveal(), "ENC[") || strings.Count(text.Reveal(), "# c") != 10 {
		t.Errorf("%v\n%s", err, text.Reveal())
	}
}
