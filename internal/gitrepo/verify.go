package gitrepo

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

const (
	pgpBegin = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	pgpEnd   = "-----END PGP PUBLIC KEY BLOCK-----"
)

// Signers is an allowed-signers file: lines in OpenSSH's format (principals,
// options, key) and, between them, armored OpenPGP public keys.
type Signers struct {
	file string
	ssh  []sshSigner
	pgp  []string // armored key rings
}

type sshSigner struct {
	principals    string
	key           ssh.PublicKey
	after, before time.Time // zero = open
}

// ParseSigners reads an allowed-signers file; name is for messages. A file
// with no key in it is an error: it would refuse every commit.
func ParseSigners(name string, text []byte) (*Signers, error) {
	s := &Signers{file: name}
	lines := strings.Split(string(text), "\n")
	var errs []error
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := fmt.Sprintf("%s:%d", name, i+1)
		if line == pgpBegin {
			start := i
			for i < len(lines) && strings.TrimSpace(lines[i]) != pgpEnd {
				i++
			}
			block := strings.Join(lines[start:min(i+1, len(lines))], "\n") + "\n"
			if ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(block)); err != nil || len(ring) == 0 {
				errs = append(errs, fmt.Errorf("%s: is not a readable OpenPGP public key: export it with gpg --armor --export", at))
				continue
			}
			s.pgp = append(s.pgp, block)
			continue
		}
		signer, ok, err := parseSigner(line)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", at, err))
		} else if ok {
			s.ssh = append(s.ssh, signer)
		}
	}
	if len(errs) == 0 && len(s.ssh)+len(s.pgp) == 0 {
		errs = append(errs, fmt.Errorf("%s: lists no key that may sign commits: add lines of the form 'name@example.org ssh-ed25519 AAAA…'", name))
	}
	return s, errors.Join(errs...)
}

// parseSigner reads one OpenSSH line; ok is false for a key whose namespaces
// leave git out.
func parseSigner(line string) (s sshSigner, ok bool, err error) {
	s.principals, line = cutField(line)
	ok = true
	field, rest := cutField(line)
	if field != "" && !keyType(field) {
		if ok, err = s.options(field); err != nil {
			return s, false, err
		}
		field, rest = cutField(rest)
	}
	blob, _ := cutField(rest)
	raw, decErr := base64.StdEncoding.DecodeString(blob)
	if decErr != nil || !keyType(field) {
		return s, false, errors.New("is not 'principals [options] key-type base64-key'")
	}
	s.key, err = ssh.ParsePublicKey(raw)
	if err != nil || s.key.Type() != field {
		return s, false, errors.New("holds a damaged key, or one of an unknown type")
	}
	return s, ok, nil
}

func keyType(s string) bool {
	return strings.HasPrefix(s, "ssh-") || strings.HasPrefix(s, "ecdsa-") || strings.HasPrefix(s, "sk-")
}

// cutField splits at the first blank outside quotes.
func cutField(s string) (field, rest string) {
	s = strings.TrimLeft(s, " \t")
	quoted := false
	for i, c := range s {
		if c == '"' {
			quoted = !quoted
		}
		if !quoted && (c == ' ' || c == '\t') {
			return s[:i], strings.TrimLeft(s[i:], " \t")
		}
	}
	return s, ""
}

// options reads namespaces, valid-after and valid-before. Any other is an
// error: skipping a restriction would let in what it keeps out.
func (s *sshSigner) options(list string) (git bool, err error) {
	git = true
	for list != "" {
		var opt string
		opt, list = cutOption(list)
		name, value, _ := strings.Cut(opt, "=")
		value = strings.Trim(value, `"`)
		switch strings.ToLower(name) {
		case "namespaces":
			git = false
			for _, pattern := range strings.Split(value, ",") {
				if ok, err := path.Match(pattern, "git"); err == nil && ok {
					git = true
				}
			}
		case "valid-after":
			s.after, err = signerTime(value)
		case "valid-before":
			s.before, err = signerTime(value)
		case "cert-authority":
			err = errors.New("cert-authority is not supported: list the signers' own keys")
		default:
			err = fmt.Errorf("unknown option %q", name)
		}
		if err != nil {
			return false, err
		}
	}
	return git, nil
}

func cutOption(s string) (opt, rest string) {
	quoted := false
	for i, c := range s {
		if c == '"' {
			quoted = !quoted
		}
		if c == ',' && !quoted {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// signerTime reads OpenSSH's YYYYMMDD[HHMM[SS]], with Z for UTC.
func signerTime(v string) (time.Time, error) {
	loc := time.Local
	if t, ok := strings.CutSuffix(v, "Z"); ok {
		v, loc = t, time.UTC
	}
	for _, layout := range []string{"20060102", "200601021504", "20060102150405"} {
		if t, err := time.ParseInLocation(layout, v, loc); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time of the form YYYYMMDD[HHMM[SS]][Z]", v)
}

// Verify gives the signer of a commit, or an error that names the commit and
// says why its signature does not count. The commit's own time is the time
// that valid-after and valid-before are held against, as git does.
func (s *Signers) Verify(c *object.Commit) (signer string, err error) {
	d := describe(c)
	name := fmt.Sprintf("commit %s by %s (%q)", d.Short(), d.Author, d.Subject)
	sig := c.PGPSignature
	switch {
	case sig == "":
		return "", fmt.Errorf("%s is not signed: sign it with a key listed in %s", name, s.file)
	case strings.HasPrefix(sig, "-----BEGIN SSH SIGNATURE-----"):
		signer, err = s.verifySSH(c, sig)
	case strings.HasPrefix(sig, "-----BEGIN PGP SIGNATURE-----"):
		signer, err = s.verifyPGP(c)
	default:
		err = errors.New("carries a signature of an unknown kind: sign with SSH or OpenPGP")
	}
	if err != nil {
		return "", fmt.Errorf("%s %w", name, err)
	}
	return signer, nil
}

func (s *Signers) verifySSH(c *object.Commit, armored string) (string, error) {
	sig, err := sshsig.Unarmor([]byte(armored))
	if err != nil {
		return "", errors.New("carries a damaged SSH signature")
	}
	var signed *sshSigner
	for i := range s.ssh {
		if bytes.Equal(s.ssh[i].key.Marshal(), sig.PublicKey.Marshal()) && s.ssh[i].validAt(c.Committer.When) {
			signed = &s.ssh[i]
			break
		}
	}
	if signed == nil {
		return "", fmt.Errorf("is signed by %s, which %s does not list for that time", ssh.FingerprintSHA256(sig.PublicKey), s.file)
	}
	text, err := unsigned(c)
	if err != nil {
		return "", err
	}
	if err := sshsig.Verify(bytes.NewReader(text), sig, signed.key, sig.HashAlgorithm, "git"); err != nil {
		return "", errors.New("does not match its signature")
	}
	return signed.principals, nil
}

func (s *sshSigner) validAt(t time.Time) bool {
	return (s.after.IsZero() || !t.Before(s.after)) && (s.before.IsZero() || t.Before(s.before))
}

func (s *Signers) verifyPGP(c *object.Commit) (string, error) {
	for _, ring := range s.pgp {
		entity, err := c.Verify(ring)
		if err == nil {
			return strings.Join(sortedKeys(entity.Identities), ", "), nil
		}
	}
	return "", fmt.Errorf("carries an OpenPGP signature that no key in %s confirms", s.file)
}

// unsigned is the commit's bytes that the signature was made over.
func unsigned(c *object.Commit) ([]byte, error) {
	o := &plumbing.MemoryObject{}
	if err := c.EncodeWithoutSignature(o); err != nil {
		return nil, err
	}
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	var b bytes.Buffer
	_, err = b.ReadFrom(r)
	return b.Bytes(), err
}
