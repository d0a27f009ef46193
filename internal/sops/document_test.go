package sops

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/secret"
)

func TestLookup(t *testing.T) {
	path, env, recipient := newFile(t)
	d := open(t, path, env)
	for ref, want := range map[string]string{
		"secrets.token":                        "canary-token",
		"secrets.multi":                        "line one canary-multi\nline two",
		"secrets.dotted.name":                  "canary-dotted",
		"cloud-init.ssh-keys.ops":              "ssh-ed25519 AAAAcanary-key ops@example",
		"cloud-init.ssh-keys.ops@host.example": "ssh-ed25519 AAAAcanary-host",
		"cloud-init.passwords.web":             "canary-password",
		"extra.deep.0":                         "canary-item",
		"extra.deep.1.inner":                   "canary-inner",
	} {
		if got, err := d.Lookup(ref); err != nil || got.Reveal() != want {
			t.Errorf("%s: got %q, %v", ref, got.Reveal(), err)
		}
	}
	for ref, want := range map[string]error{
		"secrets.tokem":   ErrMissingRef,
		"secrets.token.x": ErrMissingRef,
		"":                ErrMissingRef,
		"secrets.":        ErrMissingRef,
		"extra.deep.9":    ErrMissingRef,
		"secrets.empty":   ErrEmptyRef,
		"extra.none":      ErrEmptyRef,
		"secrets":         ErrBadRef,
		"extra.deep":      ErrBadRef,
		"extra.number":    ErrBadRef,
		"extra.enabled":   ErrBadRef,
	} {
		_, err := d.Lookup(ref)
		if !errors.Is(err, want) || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%q: %v, want %v", ref, err, want)
		}
	}
	if _, err := d.Lookup("secrets.tokem"); !strings.Contains(err.Error(), "secrets.token") {
		t.Errorf("a missing reference does not name its neighbours: %v", err)
	}
	if got := d.Recipients(); !slices.Equal(got, []string{recipient}) {
		t.Errorf("recipients %v", got)
	}
	names := d.Names()
	if !slices.IsSorted(names) || len(names) != 14 || !slices.Contains(names, "secrets.dotted.name") {
		t.Errorf("names %v", names)
	}
	if errs := CheckRefs(d, []string{"secrets.token", "secrets.nope", "secrets.empty"}); len(errs) != 2 {
		t.Errorf("CheckRefs: %v", errs)
	}
}

// Every fault has its own kind, names the file and says what to do.
// A reference may be a value that was pasted in the wrong place.
func TestMistakenReferenceIsNotShown(t *testing.T) {
	path, env, _ := newFile(t)
	d := open(t, path, env)
	_, lookup := d.Lookup("hunter2-pasted")
	for _, err := range []error{lookup, d.Set("hunter2-pasted", secret.New("x")), d.Set("hunter2-pasted", secret.New(" ")), d.Delete("hunter2-pasted")} {
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

func TestOpenFaults(t *testing.T) {
	path, env, recipient := newFile(t)
	good := content(t, path)
	other, _ := newKey(t)
	line := func(name string) string {
		return regexp.MustCompile(`(?m)^ *` + name + `: .*\n`).FindString(good)
	}
	rows := []struct {
		name, text string
		env        Env
		want       error
		says       string
	}{
		{"plain", sample, env, ErrNotEncrypted, "secrets init"},
		{"empty", "", env, ErrMalformed, "is empty"},
		{"list", "- a\n", env, ErrMalformed, "1:1"},
		{"scalar", "hello", env, ErrMalformed, "1:1"},
		{"not yaml", "a: b: c", env, ErrMalformed, "1:5"},
		{"binary", "\x00\xff\xfe", env, ErrMalformed, ""},
		{"half", good[:len(good)/2], env, ErrMalformed, "git"},
		{"conflict", strings.Replace(good, "secrets:\n", "<<<<<<< HEAD\nsecrets:\n=======\n", 1), env, ErrMalformed, ""},
		{"two documents", good + "---\na: &a [*a]\n", env, ErrMalformed, "more than one"},
		{"deep", "a: " + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "\n" + good, env, ErrMalformed, "nested deeper"},
		{"alias loop", "a: &a [*a]\n" + good, env, ErrMalformed, "anchors"},
		{"duplicate", strings.Replace(good, line("other"), line("other")+line("other"), 1), env, ErrMalformed, "twice"},
		{"huge", good + strings.Repeat("#", maxSize), env, ErrMalformed, "larger"},
		{"block gone", "a: b\nsops: {}\n", env, ErrMalformed, "sops block"},
		{"block text", "a: b\nsops: x\n", env, ErrMalformed, "sops block"},
		{"no identity", good, Env{}, ErrNoIdentity, recipient},
		{"key file missing", good, Env{KeyFile: "/nonexistent/keys"}, ErrNoIdentity, "SOPS_AGE_KEY_FILE /nonexistent/keys: no such file"},
		{"wrong identity", good, other, ErrWrongIdentity, recipient},
		{"wrapped key damaged", regexp.MustCompile(`(?m)^( +)[A-Za-z0-9+/=]{30,}$`).ReplaceAllString(good, "${1}AAAA"), env, ErrMalformed, "damaged"},
		{"value swapped", strings.Replace(good, line("other"), strings.Replace(line("token"), "token", "other", 1), 1), env, ErrMAC, "secrets.other"},
		{"value removed", strings.Replace(good, line("other"), "", 1), env, ErrMAC, "MAC"},
		{"value in the open", strings.Replace(good, line("other"), "    other: canary-open\n", 1), env, ErrMalformed, "secrets.other"},
		{"number in the open", strings.Replace(good, line("other"), "    other: 5\n", 1), env, ErrMalformed, "unencrypted"},
		{"type to int", strings.Replace(good, line("token"), strings.Replace(line("token"), "type:str", "type:int", 1), 1), env, ErrMAC, "secrets.token"},
		{"type to bytes", strings.Replace(good, line("token"), strings.Replace(line("token"), "type:str", "type:bytes", 1), 1), env, ErrMalformed, "git"},
		{"mac gone", regexp.MustCompile(`mac: .*`).ReplaceAllString(good, `mac: ""`), env, ErrMAC, "MAC"},
		{"mac other", regexp.MustCompile(`lastmodified: .*`).ReplaceAllString(good, `lastmodified: "2020-01-01T00:00:00Z"`), env, ErrMAC, "MAC"},
		{"pgp only", pgpOnly, env, ErrUnsupported, "pgp"},
	}
	kinds := []error{ErrNotEncrypted, ErrMalformed, ErrUnsupported, ErrNoIdentity, ErrWrongIdentity, ErrMAC}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "s.sops.yaml")
			put(t, file, r.text)
			d, err := Open(file, r.env)
			if d != nil || err == nil {
				t.Fatal("opened")
			}
			for _, k := range kinds {
				if errors.Is(err, k) != (k == r.want) {
					t.Errorf("kind %v: %v", k, err)
				}
			}
			text := err.Error()
			if !strings.HasPrefix(text, file+":") || !strings.Contains(text, r.says) || strings.Contains(text, "canary") {
				t.Errorf("text %q, want it to say %q", text, r.says)
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "no"), env); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "secrets init") {
		t.Error(err)
	}
}

const pgpOnly = `a: ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]
sops:
    lastmodified: "2024-01-01T00:00:00Z"
    mac: ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]
    pgp:
        - created_at: "2024-01-01T00:00:00Z"
          enc: x
          fp: FBC7B9E2A4F9289AC0C1D4843D16CEE4A27381B4
    version: 3.9.0
`

// All places where SOPS finds identities are found, and pooled.
func TestIdentityPlaces(t *testing.T) {
	path, env, _ := newFile(t)
	keyText := content(t, env.KeyFile)
	other, _ := newKey(t)
	secretLine := strings.Split(strings.TrimSpace(keyText), "\n")[2]

	config := t.TempDir()
	if err := os.MkdirAll(filepath.Join(config, "sops", "age"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(config, "sops", "age", "keys.txt"), keyText)
	home := t.TempDir()
	for name, environ := range map[string][]string{
		"file":         {"SOPS_AGE_KEY_FILE=" + env.KeyFile},
		"key":          {"SOPS_AGE_KEY=" + secretLine},
		"key of two":   {"SOPS_AGE_KEY=" + strings.Split(strings.TrimSpace(content(t, other.KeyFile)), "\n")[2] + " " + secretLine},
		"default file": {"HOME=" + home, "XDG_CONFIG_HOME=" + config},
		"pooled":       {"SOPS_AGE_KEY_FILE=" + other.KeyFile, "XDG_CONFIG_HOME=" + config},
		"one broken":   {"SOPS_AGE_KEY=nonsense", "SOPS_AGE_KEY_FILE=" + env.KeyFile},
	} {
		if _, err := Open(path, EnvFrom(environ)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Open(path, EnvFrom([]string{"SOPS_AGE_KEY=canary-nonsense", "HOME=" + home}))
	if !errors.Is(err, ErrNoIdentity) || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "SOPS_AGE_KEY: line 1") {
		t.Error(err)
	}
	scrypt := filepath.Join(t.TempDir(), "k")
	put(t, scrypt, "-----BEGIN AGE ENCRYPTED FILE-----\n")
	if _, err := Open(path, Env{KeyFile: scrypt}); !errors.Is(err, ErrNoIdentity) || !strings.Contains(err.Error(), "passphrase") {
		t.Error(err)
	}
}

func TestNewIdentity(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a", "b", "keys.txt")
	r, err := NewIdentity(file)
	if err != nil || !strings.HasPrefix(r, "age1") {
		t.Fatal(r, err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	before := content(t, file)
	if _, err := NewIdentity(file); !errors.Is(err, ErrExists) || content(t, file) != before {
		t.Errorf("an existing key was touched: %v", err)
	}
	tree := t.TempDir()
	if err := os.MkdirAll(filepath.Join(tree, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(tree, link); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{filepath.Join(tree, "keys.txt"), filepath.Join(tree, "x", "y", "keys.txt"), filepath.Join(link, "z", "keys.txt")} {
		if _, err := NewIdentity(in); !errors.Is(err, ErrNotWritten) || !strings.Contains(err.Error(), "git work tree") {
			t.Errorf("%s: %v", in, err)
		}
		if _, err := os.Stat(in); err == nil {
			t.Errorf("%s was written", in)
		}
	}
}

func TestInit(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "secrets.sops.yaml")
	env := EnvFrom([]string{"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, "cfg")})
	second := newRecipient(t)
	res, err := Init(InitOptions{Path: path, Env: env, Recipients: []string{second}})
	if err != nil {
		t.Fatal(err)
	}
	if res.IdentityFile != env.DefaultKeyFile || len(res.Recipients) != 2 {
		t.Errorf("%+v", res)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	d := open(t, path, env)
	for _, name := range regexp.MustCompile(`proxops-\S+`).FindAllString(ReferenceBlock("x"), -1) {
		if _, err := d.Lookup("secrets." + name); !errors.Is(err, ErrEmptyRef) {
			t.Errorf("%s of the reference block: %v", name, err)
		}
	}
	for _, ref := range []string{"secrets.proxops-token", "cloud-init.ssh-keys.ops", "cloud-init.passwords.a.b"} {
		if err := Set(t.Context(), path, env, ref, secret.New("v-"+ref)); err != nil {
			t.Error(err)
		}
		if v, err := open(t, path, env).Lookup(ref); err != nil || v.Reveal() != "v-"+ref {
			t.Error(ref, err)
		}
	}
	before := content(t, path)
	if _, err := Init(InitOptions{Path: path, Env: env}); !errors.Is(err, ErrExists) || content(t, path) != before {
		t.Error(err)
	}
	if err := Create(path, []string{second}, secret.Text{}); !errors.Is(err, ErrExists) || content(t, path) != before {
		t.Error(err)
	}
	again, err := Init(InitOptions{Path: filepath.Join(dir, "b.sops.yaml"), Env: env})
	if err != nil || again.IdentityFile != "" || again.Recipients[0] != res.Recipients[0] {
		t.Errorf("%+v %v", again, err)
	}
}
