package sops

import (
	"crypto/rand"
	"slices"
	"strings"
	"unicode"

	upstream "github.com/getsops/sops/v3"
	sopsage "github.com/getsops/sops/v3/age"

	"github.com/proxops/proxops/internal/secret"
)

// Set puts a text at a dot path, adding the entry and the mappings above it
// where they are missing. Nothing is written before Save. Below secrets and
// below the two cloud-init groups the rest of the path is one name, dots
// included. The error is of kind ErrBadRef or, for an empty text, ErrEmptyRef.
func (d *Document) Set(ref string, value secret.Text) error {
	path, err := d.placeFor(ref)
	if err != nil {
		return at(d.path, err)
	}
	if strings.TrimSpace(value.Reveal()) == "" {
		return at(d.path, fault(ErrEmptyRef, shown(ref), "the value to set is empty: use proxops secrets edit to remove an entry"))
	}
	keys := make([]any, len(path))
	for i, k := range path {
		keys[i] = k
	}
	d.plain, _ = d.plain.Set(keys, value.Reveal())
	return nil
}

// placeFor gives the keys where a reference is, or is to be made.
func (d *Document) placeFor(ref string) ([]string, error) {
	if keys, v, ok := find(d.plain, ref); ok {
		_, isMap := v.(upstream.TreeBranch)
		_, isList := v.([]any)
		if isMap || isList || isGroup(keys) {
			return nil, fault(ErrBadRef, shown(ref), "names no single value: name one entry, such as secrets.proxops-token")
		}
		if listed(d.plain, keys) {
			return nil, fault(ErrBadRef, shown(ref), "is an item of a list: change it with proxops secrets edit")
		}
		return keys, nil
	}
	var keys []string
	for _, root := range [][]string{{"secrets"}, {"cloud-init", "ssh-keys"}, {"cloud-init", "passwords"}} {
		if name, ok := strings.CutPrefix(ref, strings.Join(root, ".")+"."); ok {
			keys = append(slices.Clone(root), name)
		}
	}
	if keys == nil || keys[len(keys)-1] == "" || strings.ContainsFunc(ref, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}) {
		return nil, fault(ErrBadRef, shown(ref), "must be secrets.NAME, cloud-init.ssh-keys.NAME or cloud-init.passwords.NAME, without spaces")
	}
	var above any = d.plain
	for i, key := range keys[:len(keys)-1] {
		_, v, ok := find(above, key)
		if !ok || v == nil {
			break
		}
		if _, isMap := v.(upstream.TreeBranch); !isMap {
			return nil, fault(ErrBadRef, strings.Join(keys[:i+1], "."), "is a value where a group is needed: correct it with proxops secrets edit")
		}
		above = v
	}
	return keys, nil
}

// isGroup tells the mappings of the layout, which an empty file writes as null.
func isGroup(path []string) bool {
	return len(path) == 1 || len(path) == 2 && path[0] == "cloud-init" && (path[1] == "ssh-keys" || path[1] == "passwords")
}

// Delete removes one value. The error is of kind ErrMissingRef or ErrBadRef.
func (d *Document) Delete(ref string) error {
	keys, v, ok := find(d.plain, ref)
	if !ok {
		return at(d.path, fault(ErrMissingRef, shown(ref), "no such entry"+d.known(ref)))
	}
	switch v.(type) {
	case upstream.TreeBranch, []any:
		return at(d.path, fault(ErrBadRef, shown(ref), "names no single value: name one entry, such as secrets.proxops-token"))
	}
	if listed(d.plain, keys) {
		return at(d.path, fault(ErrBadRef, shown(ref), "is an item of a list: change it with proxops secrets edit"))
	}
	path := make([]any, len(keys))
	for i, k := range keys {
		path[i] = k
	}
	plain, err := cloneBranch(d.plain).Unset(path)
	if err != nil {
		return at(d.path, fault(ErrMissingRef, shown(ref), "no such entry"))
	}
	d.plain = plain
	return nil
}

// Replace takes a whole edited plaintext. It is refused, with its line, when it
// is not one YAML mapping or when an entry of secrets or cloud-init is anything
// but a text: an unquoted 0123 or 1e5 would be stored as another value.
func (d *Document) Replace(plaintext secret.Text) error {
	plain, err := loadPlain([]byte(plaintext.Reveal()))
	if err != nil {
		return at(d.path, err)
	}
	d.plain = plain
	return nil
}

func loadPlain(text []byte) (upstream.TreeBranch, error) {
	root, err := outline(text)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value == "sops" {
			return nil, posFault(root.Content[i], "the key sops is SOPS's own: remove it")
		}
	}
	var branches upstream.TreeBranches
	err = guard(func() (err error) {
		branches, err = store(0).LoadPlainFile(text)
		return err
	})
	if err != nil || len(branches) != 1 {
		return nil, fault(ErrMalformed, "", "is not YAML that SOPS can store")
	}
	var bad *Error
	leaves(branches[0], nil, func(path []string, v any) {
		if bad != nil || path[0] != "secrets" && path[0] != "cloud-init" {
			return
		}
		switch v.(type) {
		case string:
			if isGroup(path) {
				bad = fault(ErrBadRef, strings.Join(path, "."), "must be a group of names, not one value")
			}
		case nil:
			if !isGroup(path) {
				bad = fault(ErrBadRef, strings.Join(path, "."), `has no value: remove it, or write "" (a value that begins with # needs quotes)`)
			}
		default:
			bad = fault(ErrBadRef, strings.Join(path, "."), "is a number, boolean or date to YAML: put it in quotes")
		}
	})
	if bad != nil {
		return nil, bad
	}
	return branches[0], nil
}

// AddRecipient lets a further age recipient open the file. The data key stays.
func (d *Document) AddRecipient(recipient string) error {
	recipient = strings.TrimSpace(recipient)
	if slices.Contains(d.Recipients(), recipient) {
		return at(d.path, fault(ErrRecipient, "", recipient+" is a recipient already"))
	}
	k, err := wrapFor(recipient, d.key)
	if err != nil {
		return at(d.path, err)
	}
	d.meta.KeyGroups[0] = append(slices.Clone(d.meta.KeyGroups[0]), k)
	return nil
}

// wrapFor encrypts the data key for one recipient. What does not look like one
// is not repeated in the error: people paste the private key by mistake.
func wrapFor(recipient string, key []byte) (*sopsage.MasterKey, error) {
	store(0) // silences SOPS's log of keys
	k, err := sopsage.MasterKeyFromRecipient(recipient)
	if err != nil {
		return nil, fault(ErrRecipient, "", "not an age recipient: it begins with age1 and is printed by proxops secrets init and by age-keygen -y")
	}
	if err := guard(func() error { return k.Encrypt(key) }); err != nil {
		return nil, fault(ErrRecipient, "", "the key cannot be encrypted for "+recipient)
	}
	return k, nil
}

// RemoveRecipient shuts a recipient out of what is written from now on: it
// draws a new data key and encrypts every value anew. Older versions in git
// stay open to the removed one, so the values themselves must be changed too.
// It refuses to remove the last recipient, and the last one that the caller's
// own identities can open the file with.
func (d *Document) RemoveRecipient(recipient string) error {
	recipient = strings.TrimSpace(recipient)
	all := d.Recipients()
	if !slices.Contains(all, recipient) {
		return at(d.path, fault(ErrRecipient, "", "is not encrypted for that recipient, only for "+strings.Join(all, ", ")))
	}
	if len(all) == 1 {
		return at(d.path, fault(ErrRecipient, "", recipient+" is the only recipient: add another one first"))
	}
	if len(all) != len(d.meta.KeyGroups[0]) {
		return at(d.path, fault(ErrUnsupported, "", "is encrypted for keys other than age too, which cannot be given a new data key here: use sops rotate --rm-age"))
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, see crypto/rand
	var group upstream.KeyGroup
	mine := false
	ring := d.env.keyring()
	for _, r := range all {
		if r == recipient {
			continue
		}
		k, err := wrapFor(r, key)
		if err != nil {
			return at(d.path, err)
		}
		if _, err := unwrap(k.EncryptedKey, ring.ids); err == nil {
			mine = true
		}
		group = append(group, k)
	}
	if !mine {
		return at(d.path, fault(ErrRecipient, "", "without "+recipient+" the identities here could not open it any more: let another recipient remove it"))
	}
	d.meta.KeyGroups = []upstream.KeyGroup{group}
	d.key, d.sealer = key, newSealer()
	return nil
}
