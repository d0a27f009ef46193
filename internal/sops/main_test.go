package sops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"github.com/proxops/proxops/internal/secret"
)

// TestMain lets the test binary be the second process of the tests that need
// one to kill, to race with, or to read the standard error of.
func TestMain(m *testing.M) {
	args := os.Args[1:]
	if os.Getenv("SOPS_TEST_HELPER") != "" {
		if err := helper(os.Getenv("SOPS_TEST_HELPER"), args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func helper(what string, args []string) error {
	ctx, path, env := context.Background(), args[0], Env{KeyFile: args[1]}
	switch what {
	case "count": // sets secrets.n to 1, 2, 3, … until it is killed
		for n := 1; ; n++ {
			if err := Set(ctx, path, env, "secrets.n", secret.New(fmt.Sprint(n))); err != nil {
				return err
			}
			fmt.Println(n)
		}
	case "fill": // sets secrets.PREFIX-0 … -11; who asks for a lock again at once may starve the others
		for n := range 12 {
			err := error(ErrLocked)
			for errors.Is(err, ErrLocked) {
				err = Set(ctx, path, env, fmt.Sprintf("secrets.%s-%d", args[2], n), secret.New("v"))
			}
			if err != nil {
				return err
			}
		}
		return nil
	case "open":
		d, err := Open(path, env)
		fmt.Printf("%v %+v %#v %v\n", d, d, d, err)
		return nil
	case "rekey": // adds and removes args[2] until it is killed
		for n := 1; ; n++ {
			add, remove := args[2:3], []string(nil)
			if n%2 == 0 {
				add, remove = remove, add
			}
			if err := Rekey(ctx, path, env, add, remove); err != nil {
				return err
			}
			fmt.Println(n)
		}
	case "edits": // lets the editor args[2] write secrets.count until it is killed
		for n := 1; ; n++ {
			if err := Edit(ctx, path, env, []string{args[2], fmt.Sprint(n)}, Terminal{Out: io.Discard, Err: os.Stderr}); err != nil {
				return err
			}
			fmt.Println(n)
		}
	case "init": // makes a file and a key; says when it begins
		fmt.Println(1)
		_, err := Init(InitOptions{Path: path, Env: env})
		return err
	case "edit":
		return Edit(ctx, path, env, args[2:], Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	case "panic":
		d, err := Open(path, env)
		if err != nil {
			return err
		}
		v, err := d.Lookup("secrets.token")
		if err != nil {
			return err
		}
		panic(fmt.Sprint(v, d) + fmt.Sprintf("%#v", []any{v, d, struct{ v secret.Text }{v}}))
	}
	return fmt.Errorf("unknown helper %q", what)
}

// newKey gives an environment with one identity in a file, and its recipient.
func newKey(t testing.TB) (Env, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.txt")
	r, err := NewIdentity(file)
	if err != nil {
		t.Fatal(err)
	}
	return Env{KeyFile: file}, r
}

func newRecipient(t testing.TB) string {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id.Recipient().String()
}

const sample = `# head comment
secrets:
    # above token
    token: canary-token # beside token
    other: canary-other
    # above multi
    multi: |
        line one canary-multi
        line two
    dotted.name: canary-dotted
    empty: ""
cloud-init:
    ssh-keys:
        ops: ssh-ed25519 AAAAcanary-key ops@example
        ops@host.example: ssh-ed25519 AAAAcanary-host
    passwords:
        web: canary-password
extra:
    number: 17
    ratio: 1.5
    enabled: true
    none: null
    deep:
        - canary-item
        - inner: canary-inner # beside inner
`

// newFile creates the sample, and gives its path and how to open it.
func newFile(t testing.TB) (string, Env, string) {
	t.Helper()
	env, r := newKey(t)
	path := filepath.Join(t.TempDir(), "secrets.sops.yaml")
	if err := Create(path, []string{r}, secret.New(sample)); err != nil {
		t.Fatal(err)
	}
	return path, env, r
}

func open(t testing.TB, path string, env Env) *Document {
	t.Helper()
	d, err := Open(path, env)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
