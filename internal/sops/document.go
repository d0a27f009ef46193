package sops

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"unicode"

	upstream "github.com/getsops/sops/v3"
	"go.yaml.in/yaml/v4"

	"github.com/proxops/proxops/internal/secret"
)

// Document is a decrypted secrets file. It is not safe for use by several
// goroutines while one of them edits it. No way of formatting it shows a value.
type Document struct {
	path string
	*state
}

// state is behind a pointer of its own because fmt, given a struct with an
// unexported Document and a verb like %s, ignores Format and prints one level.
type state struct {
	env    Env
	raw    []byte // as read or last written
	plain  upstream.TreeBranch
	meta   upstream.Metadata
	key    []byte
	sealer *sealer
	indent int
	saved  [sha256.Size]byte // fingerprint of what raw holds
}

// Open reads, decrypts and verifies a secrets file. The error is an [*Error] of
// kind ErrNotEncrypted, ErrMalformed, ErrUnsupported, ErrNoIdentity,
// ErrWrongIdentity or ErrMAC, or wraps fs.ErrNotExist.
func Open(path string, env Env) (*Document, error) {
	raw, err := read(path)
	if err != nil {
		return nil, err
	}
	d, err := decode(raw, env)
	if err != nil {
		return nil, at(path, err)
	}
	d.path = path
	return d, nil
}

func read(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Kind: fs.ErrNotExist, File: path, Text: "no such file: create it with proxops secrets init, or correct secrets-file in config.yaml"}
	}
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, at(path, osFault(ErrMalformed, "not readable", err))
	}
	return raw, nil
}

// decode opens the bytes of a secrets file.
func decode(raw []byte, env Env) (*Document, error) {
	tree, err := parse(raw)
	if err != nil {
		return nil, err
	}
	key, err := dataKey(tree.Metadata, env)
	if err != nil {
		return nil, err
	}
	s, err := decrypt(tree, key)
	if err != nil {
		return nil, err
	}
	d := &Document{state: &state{env: env, raw: raw, plain: tree.Branches[0], meta: tree.Metadata, key: key, sealer: s, indent: indentOf(raw)}}
	d.saved, err = d.fingerprint()
	return d, err
}

// Path gives the file's path as it was opened.
func (d *Document) Path() string { return d.path }

// Lookup gives the text at a dot path, without line ends at its end. The error
// is of kind ErrMissingRef, ErrEmptyRef or, for a mapping, a list or a number,
// ErrBadRef.
func (d *Document) Lookup(ref string) (secret.Text, error) {
	_, v, ok := find(d.plain, ref)
	if !ok {
		return secret.Text{}, at(d.path, fault(ErrMissingRef, shown(ref), "no such entry"+d.known(ref)+": add it with proxops secrets set, or correct the reference"))
	}
	switch v := v.(type) {
	case string:
		if strings.TrimSpace(v) == "" {
			return secret.Text{}, at(d.path, fault(ErrEmptyRef, ref, "is empty: set it with proxops secrets set"))
		}
		return secret.New(strings.TrimRight(v, "\r\n")), nil
	case nil:
		return secret.Text{}, at(d.path, fault(ErrEmptyRef, ref, "is empty: set it with proxops secrets set"))
	case upstream.TreeBranch, []any:
		return secret.Text{}, at(d.path, fault(ErrBadRef, ref, "names a group, not a value: name one entry below it"))
	default:
		return secret.Text{}, at(d.path, fault(ErrBadRef, ref, "is a number, boolean or date in YAML, which may differ from what was typed: put it in quotes with proxops secrets edit"))
	}
}

// shown keeps a mistaken reference, which may be a pasted value, out of an
// error: dot paths of ours begin with a known root.
func shown(ref string) string {
	if len(ref) <= 200 && (strings.HasPrefix(ref, "secrets.") || strings.HasPrefix(ref, "cloud-init.")) {
		return strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, ref)
	}
	return "a reference that begins with neither secrets. nor cloud-init."
}

// known names up to six entries of the same group.
func (d *Document) known(ref string) string {
	group := ""
	for _, root := range []string{"secrets.", "cloud-init.ssh-keys.", "cloud-init.passwords."} {
		if strings.HasPrefix(ref, root) {
			group = root
		}
	}
	var names []string
	for _, n := range d.Names() {
		if group != "" && strings.HasPrefix(n, group) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return ""
	}
	more := ""
	if len(names) > 6 {
		names, more = names[:6], ", …"
	}
	return " (there are " + strings.Join(names, ", ") + more + ")"
}

// Names lists the dot paths of all values, sorted. Items of a list are counted
// from 0.
func (d *Document) Names() []string {
	var names []string
	leaves(d.plain, nil, func(path []string, _ any) { names = append(names, strings.Join(path, ".")) })
	slices.Sort(names)
	return names
}

// Recipients lists the age recipients, in the order of the file.
func (d *Document) Recipients() []string {
	keys, err := ageKeys(d.meta)
	if err != nil {
		return nil
	}
	var out []string
	for _, k := range keys {
		out = append(out, k.Recipient)
	}
	return out
}

// Plaintext gives the whole document as YAML, for an editor.
func (d *Document) Plaintext() (secret.Text, error) {
	var out []byte
	err := guard(func() (err error) {
		out, err = store(d.indent).EmitPlainFile(upstream.TreeBranches{d.plain})
		return err
	})
	if err != nil {
		return secret.Text{}, at(d.path, fault(ErrMalformed, "", "holds a value that cannot be written as YAML"))
	}
	return secret.New(string(out)), nil
}

// fingerprint tells whether a save would change anything.
func (d *Document) fingerprint() ([sha256.Size]byte, error) {
	text, err := d.Plaintext()
	return sha256.Sum256([]byte(strings.Join(d.Recipients(), "\n") + "\x00" + text.Reveal())), err
}

// Changed reports whether Save would write.
func (d *Document) Changed() bool {
	now, err := d.fingerprint()
	return err != nil || now != d.saved
}

// masked is all that formatting a Document shows.
func (d *Document) masked() string {
	if d == nil {
		return "sops document"
	}
	return "sops document " + d.path + " (redacted)"
}

// Format implements fmt.Formatter for every verb and flag.
func (d *Document) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(d.masked())) }

// LogValue implements slog.LogValuer.
func (d *Document) LogValue() slog.Value { return slog.StringValue(d.masked()) }

// MarshalText implements encoding.TextMarshaler.
func (d *Document) MarshalText() ([]byte, error) { return []byte(d.masked()), nil }

// MarshalYAML implements the YAML library's marshaler.
func (d *Document) MarshalYAML() (any, error) { return d.masked(), nil }

func evens(nodes []*yaml.Node) []string {
	var out []string
	for i := 0; i < len(nodes); i += 2 {
		out = append(out, nodes[i].Value)
	}
	return out
}
