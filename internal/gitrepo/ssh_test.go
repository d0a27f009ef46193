package gitrepo

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshServer runs git-upload-pack for one key, with host keys of two types.
type sshServer struct {
	addr    string
	ed, rsa ssh.Signer
}

func newSSHServer(t *testing.T, client ssh.PublicKey) *sshServer {
	t.Helper()
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if !bytes.Equal(key.Marshal(), client.Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	rsaKey, err := ssh.NewSignerFromKey(private)
	must(t, err)
	s := &sshServer{ed: newSSHKey(t).signer, rsa: rsaKey}
	config.AddHostKey(s.ed)
	config.AddHostKey(s.rsa)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	s.addr = l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serveSSH(conn, config)
		}
	}()
	return s
}

func serveSSH(conn net.Conn, config *ssh.ServerConfig) {
	defer func() { _ = conn.Close() }()
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		ch, reqs, err := c.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = ch.Close() }()
			for r := range reqs {
				if r.Type != "exec" {
					_ = r.Reply(false, nil)
					continue
				}
				_ = r.Reply(true, nil)
				cmd := exec.Command("sh", "-c", string(r.Payload[4:]))
				cmd.Stdin, cmd.Stdout, cmd.Stderr = ch, ch, ch.Stderr()
				status := struct{ Code uint32 }{}
				if cmd.Run() != nil {
					status.Code = 1
				}
				_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(status))
				return
			}
		}()
	}
}

func writeKey(t *testing.T, passphrase string) (file string, public ssh.PublicKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(private, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	must(t, err)
	file = filepath.Join(t.TempDir(), "id")
	must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	signer, err := ssh.NewSignerFromKey(private)
	must(t, err)
	return file, signer.PublicKey()
}

func TestMirrorOverSSH(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // no login configuration of the machine
	t.Setenv("SSH_AUTH_SOCK", "")
	o := newOrigin(t)
	first := o.commit("one")
	key, public := writeKey(t, "")
	other, _ := writeKey(t, "")
	locked, _ := writeKey(t, "secret")
	srv := newSSHServer(t, public)
	hosts := func(key ssh.PublicKey) string {
		file := filepath.Join(t.TempDir(), "known_hosts")
		must(t, os.WriteFile(file, []byte(knownhosts.Line([]string{knownhosts.Normalize(srv.addr)}, key)+"\n"), 0o600))
		return file
	}
	url := "ssh://git@" + srv.addr + o.dir
	for name, c := range map[string]struct {
		auth Auth
		want string
	}{
		"ed25519 host key": {Auth{SSHKey: key, KnownHosts: hosts(srv.ed.PublicKey())}, ""},
		"rsa host key":     {Auth{SSHKey: key, KnownHosts: hosts(srv.rsa.PublicKey())}, ""},
		"forged host key":  {Auth{SSHKey: key, KnownHosts: hosts(newSSHKey(t).signer.PublicKey())}, "the server's host key is not the one in the known_hosts file"},
		"unknown host":     {Auth{SSHKey: key, KnownHosts: os.DevNull}, "the server's host key is not the one in the known_hosts file"},
		"other key":        {Auth{SSHKey: other, KnownHosts: hosts(srv.ed.PublicKey())}, "the server refuses this key"},
		"locked key":       {Auth{SSHKey: locked, KnownHosts: hosts(srv.ed.PublicKey())}, "needs a passphrase"},
		"no key":           {Auth{KnownHosts: hosts(srv.ed.PublicKey())}, "no key: name one with git.ssh-key"},
		"no known_hosts":   {Auth{SSHKey: key, KnownHosts: "/nonexistent"}, "correct git.known-hosts"},
		"not a key":        {Auth{SSHKey: "/dev/null", KnownHosts: hosts(srv.ed.PublicKey())}, "is not a private SSH key"},
	} {
		st := mirror(t, url, "main").Update(t.Context(), c.auth)
		if c.want == "" {
			if st.Err != nil || st.Tree.Head.Hash != first.String() {
				t.Errorf("%s: got %+v", name, st)
			}
			continue
		}
		if st.Err == nil || !strings.Contains(st.Err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, st.Err, c.want)
		}
	}
}
