package gitrepo

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh"

	"github.com/proxops/proxops/internal/secret"
)

// Auth is what a fetch may log in with.
type Auth struct {
	Token      secret.Text // for https
	SSHKey     string      // private key file without a passphrase; "" = the SSH agent
	KnownHosts string      // "" = the user's and the system's
	CAFile     string      // PEM, besides the system's roots, for https
}

// endpoint is a git URL taken apart.
type endpoint struct {
	show string // without credentials
	ssh  bool
	http bool
	user string
	addr string // host:port, for known_hosts
}

// parseURL refuses what would let others read the token or write the desired
// state: a password in the URL, and unencrypted transports beyond loopback.
func parseURL(raw string) (*endpoint, error) {
	if raw == "" {
		return nil, errors.New("git.url: is empty: give the URL of the repository")
	}
	ep, err := transport.NewEndpoint(raw)
	if err != nil {
		return nil, errors.New("git.url: is not a URL that git understands: use https://host/path.git or ssh://git@host/path.git")
	}
	e := &endpoint{show: raw, user: ep.User}
	if u, err := url.Parse(raw); err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			return nil, fmt.Errorf("git.url: %s: holds a password: put it into PROXOPS_GIT_TOKEN or git.token", u.Redacted())
		}
		if u.Scheme == "http" || u.Scheme == "https" {
			u.User = nil
			e.show = u.String()
		}
	}
	switch ep.Protocol {
	case "ssh":
		e.ssh = true
		port := ep.Port
		if port <= 0 {
			port = 22
		}
		e.addr = net.JoinHostPort(strings.Trim(ep.Host, "[]"), strconv.Itoa(port))
	case "https":
		e.http = true
	case "http":
		e.http = true
		if !loopback(ep.Host) {
			return nil, fmt.Errorf("git.url: %s: plain http lets anyone on the way change the desired state: use https", e.show)
		}
	case "file":
	default:
		return nil, fmt.Errorf("git.url: %s: %s is not supported: use https or ssh", e.show, ep.Protocol)
	}
	return e, nil
}

func loopback(host string) bool {
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// method is the library's login for one endpoint and the further roots.
func (a Auth) method(e *endpoint) (transport.AuthMethod, []byte, error) {
	switch {
	case e.ssh:
		m, err := a.ssh(e)
		return m, nil, err
	case e.http:
		var ca []byte
		if a.CAFile != "" {
			var err error
			if ca, err = os.ReadFile(a.CAFile); err != nil {
				return nil, nil, fmt.Errorf("%s: %w: correct git.ca-file", a.CAFile, plain(err))
			}
		}
		if a.Token.Empty() {
			return nil, ca, nil
		}
		user := e.user
		if user == "" {
			user = "git" // the forges take any name beside a token
		}
		return &githttp.BasicAuth{Username: user, Password: a.Token.Reveal()}, ca, nil
	}
	return nil, nil, nil
}

func (a Auth) ssh(e *endpoint) (transport.AuthMethod, error) {
	user := e.user
	if user == "" {
		user = "git"
	}
	hosts, err := a.hosts(e)
	if err != nil {
		return nil, err
	}
	if a.SSHKey == "" {
		m, err := gitssh.NewSSHAgentAuth(user)
		if err != nil {
			return nil, fmt.Errorf("%s: no key: name one with git.ssh-key, or run an SSH agent", e.show)
		}
		m.HostKeyCallbackHelper = hosts
		return m, nil
	}
	pem, err := os.ReadFile(a.SSHKey)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: correct git.ssh-key", a.SSHKey, plain(err))
	}
	signer, err := ssh.ParsePrivateKey(pem)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("%s: needs a passphrase, which nobody is there to type: use a deploy key without one, or an SSH agent", a.SSHKey)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: is not a private SSH key: correct git.ssh-key", a.SSHKey)
	}
	return &gitssh.PublicKeys{User: user, Signer: signer, HostKeyCallbackHelper: hosts}, nil
}

// hosts accepts the keys of a known_hosts file and asks the server for one of
// their types: it would else offer another of its keys, which looks forged.
func (a Auth) hosts(e *endpoint) (gitssh.HostKeyCallbackHelper, error) {
	var files []string
	if a.KnownHosts != "" {
		files = []string{a.KnownHosts}
	}
	db, err := gitssh.NewKnownHostsDb(files...)
	if err != nil && a.KnownHosts != "" {
		return gitssh.HostKeyCallbackHelper{}, fmt.Errorf("%s: %w: correct git.known-hosts", a.KnownHosts, plain(err))
	}
	if err != nil {
		return gitssh.HostKeyCallbackHelper{}, fmt.Errorf("%s: no known_hosts file: name one with git.known-hosts", e.show)
	}
	return gitssh.HostKeyCallbackHelper{HostKeyCallback: db.HostKeyCallback(), HostKeyAlgorithms: db.HostKeyAlgorithms(e.addr)}, nil
}
