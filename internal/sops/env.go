package sops

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
	sopsage "github.com/getsops/sops/v3/age"

	"github.com/proxops/proxops/internal/secret"
)

// Env says where age identities are looked for. All places are read and their
// identities pooled, as SOPS does.
type Env struct {
	Key            secret.Text // SOPS_AGE_KEY: identities, split by spaces or lines
	KeyFile        string      // SOPS_AGE_KEY_FILE
	DefaultKeyFile string      // sops/age/keys.txt in the user's configuration directory; may be absent
	SSHKeyFile     string      // SOPS_AGE_SSH_PRIVATE_KEY_FILE
	DefaultSSHKeys []string    // ~/.ssh/id_ed25519 and id_rsa; used where they can be
}

// EnvFrom reads the variables that SOPS reads from a list in the form of
// os.Environ.
func EnvFrom(environ []string) Env {
	vars := map[string]string{}
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	e := Env{KeyFile: vars["SOPS_AGE_KEY_FILE"], SSHKeyFile: vars["SOPS_AGE_SSH_PRIVATE_KEY_FILE"]}
	if k := vars["SOPS_AGE_KEY"]; k != "" {
		e.Key = secret.New(k)
	}
	config := vars["XDG_CONFIG_HOME"]
	if home := vars["HOME"]; home != "" {
		if config == "" && runtime.GOOS == "darwin" {
			config = filepath.Join(home, "Library", "Application Support")
		} else if config == "" {
			config = filepath.Join(home, ".config")
		}
		e.DefaultSSHKeys = []string{filepath.Join(home, ".ssh", "id_ed25519"), filepath.Join(home, ".ssh", "id_rsa")}
	}
	if config != "" {
		e.DefaultKeyFile = filepath.Join(config, "sops", "age", "keys.txt")
	}
	return e
}

// keyring is what an Env turned out to hold.
type keyring struct {
	ids      []age.Identity
	public   []string // recipient of each identity that can tell it
	problems []string // named places that gave nothing, and why
}

func (e Env) keyring() keyring {
	var k keyring
	if e.Key.IsSet() {
		k.lines("SOPS_AGE_KEY", e.Key.Reveal(), true)
	}
	if e.KeyFile != "" {
		k.file("SOPS_AGE_KEY_FILE "+e.KeyFile, e.KeyFile, true)
	}
	if e.DefaultKeyFile != "" {
		k.file(e.DefaultKeyFile, e.DefaultKeyFile, false)
	}
	if e.SSHKeyFile != "" {
		if err := k.ssh(e.SSHKeyFile); err != nil {
			k.problem("SOPS_AGE_SSH_PRIVATE_KEY_FILE "+e.SSHKeyFile, err.Error())
		}
		return k
	}
	for _, f := range e.DefaultSSHKeys {
		_ = k.ssh(f) // a login key with a passphrase is no fault of the secrets file
	}
	return k
}

func (k *keyring) problem(place, text string) { k.problems = append(k.problems, place+": "+text) }

func (k *keyring) file(place, path string, required bool) {
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !required:
	case errors.Is(err, fs.ErrNotExist):
		k.problem(place, "no such file")
	case errors.Is(err, fs.ErrPermission):
		k.problem(place, "no permission to read it")
	case err != nil:
		k.problem(place, "not readable")
	case bytes.HasPrefix(b, []byte("age-encryption")) || bytes.HasPrefix(b, []byte("-----BEGIN AGE")):
		k.problem(place, "is protected by a passphrase, which nobody is there to type: name an unprotected key file")
	default:
		k.lines(place, string(b), false)
	}
}

// lines parses identities as SOPS does. A library error is not shown: it may
// quote the private key.
func (k *keyring) lines(place, text string, words bool) {
	found := 0
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := []string{line}
		if words {
			parts = strings.Fields(line)
		}
		for _, part := range parts {
			var ids sopsage.ParsedIdentities
			if err := ids.Import(part); err != nil || len(ids) != 1 {
				k.problem(place, fmt.Sprintf("line %d is not an age identity", i+1))
				continue
			}
			found++
			k.add(ids[0])
		}
	}
	if found == 0 {
		k.problem(place, "holds no age identity")
	}
}

func (k *keyring) add(id age.Identity) {
	k.ids = append(k.ids, id)
	switch id := id.(type) {
	case *age.X25519Identity:
		k.public = append(k.public, id.Recipient().String())
	case *age.HybridIdentity:
		k.public = append(k.public, id.Recipient().String())
	}
}

func (k *keyring) ssh(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return errors.New("not readable")
	}
	id, err := agessh.ParseIdentity(b)
	if err != nil {
		return errors.New("is not an unprotected SSH key of type ed25519 or rsa")
	}
	k.ids = append(k.ids, id)
	return nil
}

// places lists, for an error, where identities were looked for.
func (e Env) places() string {
	p := []string{"SOPS_AGE_KEY_FILE", "SOPS_AGE_KEY"}
	if e.DefaultKeyFile != "" {
		p = append(p, e.DefaultKeyFile)
	}
	return strings.Join(p, ", ")
}

func (k keyring) trouble() string {
	if len(k.problems) == 0 {
		return ""
	}
	return " (" + strings.Join(k.problems, "; ") + ")"
}
