package sops

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"
	upstream "github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	sopsage "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/logging"
	sopsyaml "github.com/getsops/sops/v3/stores/yaml"
	"github.com/sirupsen/logrus"
)

// sealedPrefix begins every encrypted value.
const sealedPrefix = "ENC[AES256_GCM,"

// sealer is SOPS's cipher, watched: it remembers which entry failed and which
// entries were sealed. SOPS tells neither, and its error quotes the value.
type sealer struct {
	aes      aes.Cipher
	failed   string          // entry of the last failure, as SOPS joins it: "a:b:"
	readable bool            // the failed value was not even in SOPS's form
	sealed   map[string]bool // entries that Encrypt saw
	groups   []string        // entries of all mappings, where a comment may come from
	strays   int             // comments that were bound to another mapping
}

func newSealer() *sealer { return &sealer{aes: aes.NewCipher(), sealed: map[string]bool{}} }

// Decrypt implements the SOPS cipher.
func (s *sealer) Decrypt(ciphertext string, key []byte, entry string) (any, error) {
	v, err := s.aes.Decrypt(ciphertext, key, entry)
	if err != nil && strings.HasSuffix(ciphertext, ",type:comment]") {
		v, err = s.strayComment(ciphertext, key)
	}
	if err != nil {
		s.failed, s.readable = entry, !strings.HasPrefix(ciphertext, sealedPrefix)
		return nil, errors.New("not decrypted")
	}
	return v, nil
}

// strayComment opens a comment that YAML moved. SOPS binds a comment to the
// mapping that it stood in; the YAML library writes a comment at the end of a
// mapping where it is read back as belonging to a deeper one, and SOPS itself
// then shows its ciphertext.
func (s *sealer) strayComment(ciphertext string, key []byte) (any, error) {
	for _, group := range s.groups {
		if v, err := s.aes.Decrypt(ciphertext, key, group); err == nil {
			s.strays++
			return v, nil
		}
	}
	return nil, errors.New("not decrypted")
}

// Encrypt implements the SOPS cipher. SOPS reuses the nonce of a value that did
// not change at the same place, so its line stays the same byte for byte; the
// inline mark would make it miss the nonce of an unchanged comment.
func (s *sealer) Encrypt(plaintext any, key []byte, entry string) (string, error) {
	s.sealed[entry] = true
	if c, ok := plaintext.(upstream.Comment); ok {
		c.Inline = false
		plaintext = c
	}
	return s.aes.Encrypt(plaintext, key, entry)
}

func store(indent int) *sopsyaml.Store {
	// SOPS logs a comment that is not encrypted with its text.
	logging.SetLevel(logrus.PanicLevel)
	return sopsyaml.NewStore(&config.YAMLStoreConfig{Indent: indent})
}

// parse reads an encrypted document without decrypting it.
func parse(raw []byte) (upstream.Tree, error) {
	var tree upstream.Tree
	root, err := outline(raw)
	if err != nil {
		return tree, err
	}
	if !slices.Contains(evens(root.Content), "sops") {
		if bytes.Contains(raw, []byte(sealedPrefix)) {
			return tree, fault(ErrMalformed, "", "its sops block is missing, the file was cut off or merged: restore it from git")
		}
		return tree, fault(ErrNotEncrypted, "", "is not encrypted, its values are readable in the repository: change them at their source, then create the file with proxops secrets init and proxops secrets set")
	}
	err = guard(func() (err error) {
		tree, err = store(0).LoadEncryptedFile(raw)
		return err
	})
	if err != nil || len(tree.Branches) != 1 {
		return tree, fault(ErrMalformed, "", "its sops block is damaged or lists no keys: restore the file from git")
	}
	return tree, nil
}

// dataKey unwraps the key that all values are encrypted with.
func dataKey(meta upstream.Metadata, env Env) ([]byte, error) {
	keys, err := ageKeys(meta)
	if err != nil {
		return nil, err
	}
	ring := env.keyring()
	if len(ring.ids) == 0 {
		return nil, fault(ErrNoIdentity, "", "no age identity to open it with was found in "+env.places()+ring.trouble()+
			": name the key file with SOPS_AGE_KEY_FILE; it must belong to one of "+recipientList(keys))
	}
	damaged := ""
	for _, k := range keys {
		key, err := unwrap(k.EncryptedKey, ring.ids)
		if err == nil {
			return key, nil
		}
		var none *age.NoIdentityMatchError
		if !errors.As(err, &none) || slices.Contains(ring.public, k.Recipient) {
			damaged = k.Recipient
		}
	}
	if damaged != "" {
		return nil, fault(ErrMalformed, "", "the data key wrapped for "+damaged+" is damaged: restore the file from git")
	}
	held := strings.Join(ring.public, ", ")
	if held == "" {
		held = "of another kind"
	}
	return nil, fault(ErrWrongIdentity, "", "is encrypted for "+recipientList(keys)+", the age identities found are "+held+ring.trouble()+
		": use the right key file, or let a recipient run proxops secrets rekey --add")
}

func unwrap(wrapped string, ids []age.Identity) (key []byte, err error) {
	err = guard(func() error {
		r, err := age.Decrypt(armor.NewReader(strings.NewReader(wrapped)), ids...)
		if err != nil {
			return err
		}
		key, err = io.ReadAll(io.LimitReader(r, 64))
		if err == nil && len(key) != 32 {
			err = errors.New("not a 256-bit key")
		}
		return err
	})
	return key, err
}

// ageKeys lists the age recipients of a document, which must have some.
func ageKeys(meta upstream.Metadata) ([]*sopsage.MasterKey, error) {
	if len(meta.KeyGroups) != 1 {
		return nil, fault(ErrUnsupported, "", "splits its key over several key groups: ProxOps opens files with a single group")
	}
	var keys []*sopsage.MasterKey
	var other []string
	for _, k := range meta.KeyGroups[0] {
		if a, ok := k.(*sopsage.MasterKey); ok {
			keys = append(keys, a)
		} else if t := k.TypeToIdentifier(); !slices.Contains(other, t) {
			other = append(other, t)
		}
	}
	if len(keys) == 0 {
		slices.Sort(other)
		return nil, fault(ErrUnsupported, "", "is encrypted for "+strings.Join(other, ", ")+" only: ProxOps opens age; add an age recipient with sops rotate --in-place --add-age")
	}
	return keys, nil
}

func recipientList(keys []*sopsage.MasterKey) string {
	var out []string
	for _, k := range keys {
		out = append(out, k.Recipient)
	}
	return strings.Join(out, ", ")
}

// decrypt replaces the tree's values by their plaintext and checks the MAC.
func decrypt(tree upstream.Tree, key []byte) (*sealer, error) {
	s := newSealer()
	before := cloneBranch(tree.Branches[0])
	s.groups = groups(before, "")
	var mac string
	if err := guard(func() (err error) { mac, err = tree.Decrypt(key, s); return err }); err != nil {
		var known *Error
		ref := strings.ReplaceAll(strings.TrimSuffix(s.failed, ":"), ":", ".")
		switch {
		case errors.As(err, &known):
			return nil, known
		case s.failed == "":
			return nil, fault(ErrMalformed, "", "a number, boolean or date in it stands unencrypted: remove it and set it with proxops secrets set")
		case s.readable:
			return nil, fault(ErrMalformed, ref, "stands unencrypted in an encrypted file: remove the line, change the value at its source and set it with proxops secrets set")
		}
		return nil, fault(ErrMAC, ref, "was changed or moved after it was encrypted, and no command opens the file as it is: restore it from git, then set the value anew")
	}
	stamp := tree.Metadata.LastModified.Format(time.RFC3339)
	var want any
	if err := guard(func() (err error) {
		want, err = s.Decrypt(tree.Metadata.MessageAuthenticationCode, key, stamp)
		return err
	}); err != nil {
		want = nil
	}
	text, _ := want.(string)
	if text == "" || subtle.ConstantTimeCompare([]byte(text), []byte(mac)) != 1 {
		return nil, fault(ErrMAC, "", "its MAC does not fit its content: it was edited without SOPS or merged by git; restore it from git and repeat the change with proxops secrets set or edit")
	}
	restoreInline(tree.Branches[0], before)
	return s, nil
}

// inTheOpen names an entry that must never be written unencrypted and would be,
// because its name falls under the file's own rules (an unencrypted_suffix,
// say). SSH public keys may be.
func inTheOpen(plain upstream.TreeBranch, sealed map[string]bool) (ref string, found bool) {
	leaves(plain, nil, func(path []string, v any) {
		private := path[0] == "secrets" || path[0] == "cloud-init" && len(path) > 1 && path[1] == "passwords"
		if v == nil || v == "" || !private || found || sealed[strings.Join(path, ":")+":"] {
			return
		}
		if listed(plain, path) { // SOPS names the items of a list by the list
			return
		}
		ref, found = strings.Join(path, "."), true
	})
	return ref, found
}

func listed(plain upstream.TreeBranch, path []string) bool {
	var at any = plain
	for _, key := range path {
		branch, ok := at.(upstream.TreeBranch)
		if !ok {
			return true
		}
		for _, item := range branch {
			if item.Key == key {
				at = item.Value
				break
			}
		}
	}
	return false
}

// seal encrypts plain and gives the file's bytes. Comments that would be read
// back in another mapping are bound to that one, so that SOPS can open them;
// the few rounds are for comments that move on when they are moved.
func seal(plain upstream.TreeBranch, meta upstream.Metadata, key []byte, s *sealer, indent int) (out []byte, err error) {
	for range 4 {
		var back upstream.TreeBranch
		var strays int
		out, back, strays, err = sealOnce(plain, meta, key, s, indent)
		if err != nil || strays == 0 {
			break
		}
		plain = back
	}
	return out, err
}

// sealOnce also gives what it reads back: a document that would not open again
// is never written.
func sealOnce(plain upstream.TreeBranch, meta upstream.Metadata, key []byte, s *sealer, indent int) (out []byte, got upstream.TreeBranch, strays int, err error) {
	err = guard(func() error {
		s.sealed = map[string]bool{}
		tree := upstream.Tree{Branches: upstream.TreeBranches{cloneBranch(plain)}, Metadata: meta}
		mac, err := tree.Encrypt(key, s)
		if err != nil {
			return err
		}
		if ref, found := inTheOpen(plain, s.sealed); found {
			return fault(ErrBadRef, ref, "would be written unencrypted, the file's sops block excludes its name (unencrypted_suffix and the like): give it another name")
		}
		tree.Metadata.LastModified = time.Now().UTC().Truncate(time.Second)
		tree.Metadata.MessageAuthenticationCode, err = s.Encrypt(mac, key, tree.Metadata.LastModified.Format(time.RFC3339))
		if err != nil {
			return err
		}
		out, err = store(indent).EmitEncryptedFile(tree)
		return err
	})
	var known *Error
	switch {
	case errors.As(err, &known):
		return nil, nil, 0, known
	case err != nil:
		return nil, nil, 0, fault(ErrMalformed, "", "holds a value that SOPS cannot encrypt (a number beyond 64 bits?): put it in quotes")
	}
	back, err := parse(out)
	check := newSealer()
	if err == nil {
		check, err = decrypt(back, key)
	}
	if err != nil || !sameValues(plain, back.Branches[0]) {
		return nil, nil, 0, fault(ErrMalformed, "", "would not read back as it was written, so it was left as it is: put unusual values in quotes")
	}
	return out, back.Branches[0], check.strays, nil
}

func sameValues(a, b upstream.TreeBranch) bool { return slices.Equal(flat(a), flat(b)) }

type leaf struct {
	path  string
	value any
}

func flat(b upstream.TreeBranch) []leaf {
	var out []leaf
	leaves(b, nil, func(path []string, v any) {
		if t, ok := v.(time.Time); ok {
			v = t.Format(time.RFC3339Nano)
		}
		out = append(out, leaf{strings.Join(path, "\x00"), v})
	})
	return out
}
