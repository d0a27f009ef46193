package adopt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

// SecretsDocument is an opened secrets file that can be added to, such as a
// *sops.Document.
type SecretsDocument interface {
	Names() []string // dot paths of all values, sorted
	Lookup(ref string) (secret.Text, error)
	Set(ref string, value secret.Text) error
	Save(ctx context.Context) error
}

// KeyRing names public keys by entries of a cluster's secrets file. The nil
// KeyRing has none.
type KeyRing struct {
	doc     SecretsDocument
	add     bool
	entries []entry
	// Added are the references of keys that Save will store, sorted.
	Added []string
}

type entry struct {
	ref  string
	keys []string
}

// NewKeyRing takes the keys of an opened secrets file. With add, keys that are
// missing get an entry of their own, which Save stores.
func NewKeyRing(doc SecretsDocument, add bool) *KeyRing {
	k := &KeyRing{doc: doc, add: add}
	for _, ref := range doc.Names() {
		if !strings.HasPrefix(ref, kind.KeyRefPrefix) {
			continue
		}
		if v, err := doc.Lookup(ref); err == nil {
			k.entries = append(k.entries, entry{ref, lines(wire.SplitKeys(v.Reveal()))})
		}
	}
	return k
}

// lines are keys as they are compared: blanks between words do not count.
func lines(keys []string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = strings.Join(strings.Fields(k), " ")
	}
	return out
}

// Refs names all keys, or none: ok is false when one of them has no entry. The
// references come in the order of the document.
func (k *KeyRing) Refs(keys []string) (refs []string, ok bool) {
	if k == nil || len(keys) == 0 {
		return nil, false
	}
	keys = lines(keys)
	missing := slices.Clone(keys)
	for _, e := range k.entries {
		foreign := func(key string) bool { return !slices.Contains(keys, key) }
		news := func(key string) bool { return slices.Contains(missing, key) }
		if len(e.keys) == 0 || slices.ContainsFunc(e.keys, foreign) || !slices.ContainsFunc(e.keys, news) {
			continue
		}
		refs = append(refs, e.ref)
		missing = slices.DeleteFunc(missing, func(key string) bool { return slices.Contains(e.keys, key) })
	}
	if len(missing) > 0 {
		more, ok := k.store(missing)
		if !ok {
			return nil, false
		}
		refs = append(refs, more...)
	}
	return refs, true
}

// store makes an entry of each key, or of none when one cannot have one.
func (k *KeyRing) store(keys []string) (refs []string, ok bool) {
	if !k.add {
		return nil, false
	}
	for _, key := range keys {
		name, ok := Fingerprint(key)
		ref := kind.KeyRefPrefix + "adopted-" + name
		taken := func(e entry) bool { return e.ref == ref }
		if !ok || slices.ContainsFunc(k.entries, taken) || slices.Contains(refs, ref) {
			return nil, false // the entry holds the key under another comment
		}
		refs = append(refs, ref)
	}
	for i, key := range keys {
		if k.doc.Set(refs[i], secret.New(key)) != nil {
			return nil, false
		}
		k.entries = append(k.entries, entry{refs[i], []string{key}})
		k.Added = append(k.Added, refs[i])
	}
	slices.Sort(k.Added)
	return refs, true
}

// value is the text of an entry.
func (k *KeyRing) value(ref string) secret.Text {
	if k == nil {
		return secret.Text{}
	}
	v, err := k.doc.Lookup(ref)
	if err != nil {
		return secret.Text{}
	}
	return v
}

// Save stores the added keys. Without any it writes nothing.
func (k *KeyRing) Save(ctx context.Context) error {
	if k == nil || len(k.Added) == 0 {
		return nil
	}
	return k.doc.Save(ctx)
}

// Fingerprint is the first 16 hex digits of sha256 over "sshpki", the key's
// type and its base64 text as the line has it, with NUL between them. ok is
// false for a line that is no public key.
func Fingerprint(line string) (digits string, ok bool) {
	words := strings.Fields(line)
	for i := range max(0, len(words)-1) {
		for _, family := range []string{"ssh-", "ecdsa-", "sk-"} {
			if strings.HasPrefix(words[i], family) && strings.HasPrefix(words[i+1], "AAAA") {
				sum := sha256.Sum256([]byte("sshpki\x00" + words[i] + "\x00" + words[i+1]))
				return hex.EncodeToString(sum[:8]), true
			}
		}
	}
	return "", false
}
