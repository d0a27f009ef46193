package gitrepo

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// sshKey signs commits the way git does with gpg.format=ssh.
type sshKey struct{ signer ssh.Signer }

func newSSHKey(t testing.TB) sshKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	s, err := ssh.NewSignerFromKey(private)
	must(t, err)
	return sshKey{s}
}

func (k sshKey) Sign(message io.Reader) ([]byte, error) {
	sig, err := sshsig.Sign(message, k.signer, sshsig.HashSHA512, "git")
	if err != nil {
		return nil, err
	}
	return sshsig.Armor(sig), nil
}

func (k sshKey) line(principal string) string {
	return principal + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k.signer.PublicKey()))) + "\n"
}

type pgpKey struct{ entity *openpgp.Entity }

func newPGPKey(t testing.TB) pgpKey {
	t.Helper()
	e, err := openpgp.NewEntity("Ada", "", "ada@example.org", nil)
	must(t, err)
	return pgpKey{e}
}

func (k pgpKey) Sign(message io.Reader) ([]byte, error) {
	var b bytes.Buffer
	err := openpgp.ArmoredDetachSign(&b, k.entity, message, nil)
	return b.Bytes(), err
}

func (k pgpKey) public(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	must(t, err)
	must(t, k.entity.Serialize(w))
	must(t, w.Close())
	return b.String() + "\n"
}

func signers(t testing.TB, text string) *Signers {
	t.Helper()
	s, err := ParseSigners("allowed", []byte(text))
	must(t, err)
	return s
}

func TestVerify(t *testing.T) {
	ours, other, gpg, otherGPG := newSSHKey(t), newSSHKey(t), newPGPKey(t), newPGPKey(t)
	all := "# who may\n" + ours.line("ada@example.org") + gpg.public(t)
	withOption := func(option string) string {
		return strings.Replace(ours.line("ada"), "ada ", "ada "+option+" ", 1) + gpg.public(t)
	}
	o := newOrigin(t)
	for _, c := range []struct {
		name, allowed string
		sign          interface {
			Sign(io.Reader) ([]byte, error)
		}
		want string // "" = accepted
	}{
		{"ssh", all, ours, ""},
		{"gpg", all, gpg, ""},
		{"unsigned", all, nil, "is not signed: sign it with a key listed in allowed"},
		{"another ssh key", all, other, "is signed by " + ssh.FingerprintSHA256(other.signer.PublicKey()) + ", which allowed does not list for that time"},
		{"another gpg key", all, otherGPG, "carries an OpenPGP signature that no key in allowed confirms"},
		{"git namespace", withOption(`namespaces="file,g*"`), ours, ""},
		{"other namespace", withOption(`namespaces="file"`), ours, "which allowed does not list"},
		{"valid then", withOption(`valid-after="20260101Z",valid-before="20270101Z"`), ours, ""},
		{"not yet valid", withOption(`valid-after="20260401Z"`), ours, "which allowed does not list for that time"},
		{"no more valid", withOption(`valid-before="20260201Z"`), ours, "which allowed does not list for that time"},
	} {
		o.sign = c.sign
		if c.sign == nil {
			o.sign = nil
		}
		h := o.commit("change " + c.name)
		commit, err := o.repo.CommitObject(h)
		must(t, err)
		_, err = signers(t, c.allowed).Verify(commit)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), fmt.Sprintf("commit %s by Ada <ada@example.org> (%q) ", h.String()[:10], "change "+c.name)) {
			t.Errorf("%s: the commit is not named: %v", c.name, err)
		}
	}
}

// A signature moved to another commit does not count.
func TestForgedSignature(t *testing.T) {
	ours := newSSHKey(t)
	o := newOrigin(t)
	o.sign = ours
	good, err := o.repo.CommitObject(o.commit("good"))
	must(t, err)
	o.sign = nil
	evil, err := o.repo.CommitObject(o.commit("evil"))
	must(t, err)
	evil.PGPSignature = good.PGPSignature
	obj := &plumbing.MemoryObject{}
	must(t, evil.Encode(obj))
	h, err := o.repo.Storer.SetEncodedObject(obj)
	must(t, err)
	forged, err := o.repo.CommitObject(h)
	must(t, err)
	if _, err := signers(t, ours.line("ada")).Verify(forged); err == nil || !strings.Contains(err.Error(), "does not match its signature") {
		t.Errorf("got %v", err)
	}
}

func TestSignedByGitItself(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("no ssh-keygen")
	}
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	o := newOrigin(t)
	o.commit("start")
	runGit(t, o.dir, "-c", "user.name=Ada", "-c", "user.email=a@b", "-c", "gpg.format=ssh", "-c", "user.signingkey="+key, "commit", "-q", "--allow-empty", "-S", "-m", "signed")
	head, err := o.repo.Head()
	must(t, err)
	c, err := o.repo.CommitObject(head.Hash())
	must(t, err)
	public, err := os.ReadFile(key + ".pub")
	must(t, err)
	if who, err := signers(t, "ada@example.org "+string(public)).Verify(c); err != nil || who != "ada@example.org" {
		t.Errorf("got %q, %v", who, err)
	}
}

func TestBadSignerFiles(t *testing.T) {
	k := newSSHKey(t)
	for text, want := range map[string]string{
		"":                     "allowed: lists no key that may sign commits",
		"ada ssh-ed25519 x":    "allowed:1: is not 'principals [options] key-type base64-key'",
		"ada ssh-ed25519 AAAA": "allowed:1: holds a damaged key",
		"# x\n-----BEGIN PGP PUBLIC KEY BLOCK-----\nx":                    "allowed:2: is not a readable OpenPGP public key",
		strings.Replace(k.line("ada"), "ada ", "ada cert-authority ", 1):  "allowed:1: cert-authority is not supported",
		strings.Replace(k.line("ada"), "ada ", "ada verify=no ", 1):       `allowed:1: unknown option "verify"`,
		strings.Replace(k.line("ada"), "ada ", `ada valid-after="x" `, 1): `allowed:1: "x" is not a time`,
	} {
		if _, err := ParseSigners("allowed", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestMirrorRefusesUnsignedHeads(t *testing.T) {
	ours := newSSHKey(t)
	o := newOrigin(t)
	o.sign = ours
	good := o.commit("good")
	m := mirror(t, "file://"+o.dir, "main", func(s *Source) { s.Signers = signers(t, ours.line("ada")) })
	wantHead(t, m.Update(t.Context(), Auth{}), good)
	o.sign = nil
	bad := o.commit("unsigned")
	for range 2 {
		st := m.Update(t.Context(), Auth{})
		if st.Tree == nil || !st.Stale || st.Tree.Head.Hash != good.String() || !strings.Contains(st.Err.Error(), "commit "+bad.String()[:10]+" by Ada") {
			t.Fatalf("got %+v", st)
		}
	}
	o.sign = ours
	again := o.commit("good again")
	wantHead(t, m.Update(t.Context(), Auth{}), again)
}

// A mirror made before signatures were asked for gives nothing unsigned.
func TestLastGoodIsVerifiedToo(t *testing.T) {
	o := newOrigin(t)
	h := o.commit("unsigned")
	m := mirror(t, "file://"+o.dir, "main")
	wantHead(t, m.Update(t.Context(), Auth{}), h)
	m.src.Signers = signers(t, newSSHKey(t).line("ada"))
	for _, st := range []State{m.Last(), m.Update(t.Context(), Auth{})} {
		if st.Tree != nil || st.Err == nil || !strings.Contains(st.Err.Error(), "is not signed") {
			t.Errorf("got %+v", st)
		}
	}
}
