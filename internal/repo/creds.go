package repo

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/yamldoc"
)

func (e *entry) place(at string) (line, col int) { return field.PathPos(e.node, at) }

// secrets resolves the cluster's credentials and the manifests' references.
func (l *loader) secrets(c *Cluster) {
	e := l.config.entry
	var doc SecretsFile
	if e.SecretsFile != "" && !l.config.broken("secrets-file") {
		var err error
		if doc, err = l.view.openSecrets(e); err != nil {
			line, col := e.place("secrets-file")
			l.add(yamldoc.Problem{File: e.File, Line: line, Col: col, Path: "pve.clusters." + l.name + ".secrets-file", Text: err.Error()})
			return
		}
	}
	for _, r := range c.Resources {
		for _, ref := range r.Spec.Secrets() {
			if e.SecretsFile == "" {
				l.add(r.SpecProblem(ref.Path, errNoSecretsFile.Error()))
				continue
			}
			if doc == nil {
				continue
			}
			v, err := doc.Lookup(ref.Ref)
			if err == nil {
				err = ref.Bind(v)
			}
			if err != nil {
				l.add(r.SpecProblem(ref.Path, err.Error()))
			}
		}
	}
	if e.SecretsFile == "" {
		l.bootstrap(c)
	} else if doc != nil {
		l.exclusive(c, doc)
	}
}

func (v *view) openSecrets(e *entry) (SecretsFile, error) {
	var raw []byte
	var err error
	if e.dir == "" {
		raw, err = readLimited(e.SecretsFile)
	} else {
		raw, err = v.tree.ReadFile(e.SecretsFile, yamldoc.MaxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.SecretsFile, err)
	}
	return v.repo.decrypt(e.SecretsFile, raw)
}

// exclusive takes what the secrets block names and nothing else.
func (l *loader) exclusive(c *Cluster, doc SecretsFile) {
	e := l.config.entry
	got := map[string]secret.Text{}
	bad := false
	for _, ref := range e.refs.list() {
		if ref.key == "" {
			continue
		}
		v, err := doc.Lookup("secrets." + ref.key)
		if err != nil {
			line, col := e.place(ref.path)
			l.add(yamldoc.Problem{File: e.File, Line: line, Col: col, Path: "pve.clusters." + l.name + "." + ref.path, Text: err.Error()})
			bad = true
		}
		got[ref.path] = v
	}
	if bad {
		return
	}
	in := login{
		auth: e.Auth, source: e.SecretsFile,
		user: got["secrets.pve.user"].Reveal(), tokenID: got["secrets.pve.token-id"].Reveal(),
		token: got["secrets.pve.token"], password: got["secrets.pve.password"],
	}
	if strings.Contains(in.token.Reveal(), "=") {
		in.tokenValue, in.token = in.token, secret.Text{}
	}
	l.settle(c, in, "secrets", "secrets: name the entries of "+e.SecretsFile+" to use, either pve.token (user@realm!id=UUID), or pve.user with pve.token-id and pve.token, or pve.user with pve.password; a cluster with a secrets-file uses no other credentials")
	c.Secrets.GitToken = got["secrets.git.token"]
	if names := l.view.disagreeing(); slices.Contains(names, l.name) {
		line, col := e.place("secrets.git.token")
		l.add(yamldoc.Problem{File: e.File, Line: line, Col: col, Path: "pve.clusters." + l.name + ".secrets.git.token",
			Text: fmt.Sprintf("clusters %s resolve to different git tokens, and there is one git.url: make them the same", quoteAll(names))})
	}
}

// gitTokens are the git tokens that clusters resolve to. One that cannot be
// resolved is left out: Load tells of it.
func (v *view) gitTokens() map[string]secret.Text {
	v.tokenOnce.Do(func() {
		v.tokens = map[string]secret.Text{}
		for name, c := range v.configs {
			e := c.entry
			if e == nil || e.refs.gitToken == "" || e.SecretsFile == "" || c.broken("secrets-file") {
				continue
			}
			doc, err := v.openSecrets(e)
			if err != nil {
				continue
			}
			if t, err := doc.Lookup("secrets." + e.refs.gitToken); err == nil {
				v.tokens[name] = t
			}
		}
	})
	return v.tokens
}

// disagreeing lists the clusters with a git token when not all have the same
// one: which is meant cannot be known.
func (v *view) disagreeing() []string {
	tokens := v.gitTokens()
	names := sorted(tokens)
	for _, n := range names {
		if tokens[n].Reveal() != tokens[names[0]].Reveal() {
			return names
		}
	}
	return nil
}

// bootstrap takes the environment, over proxops.yaml.
func (l *loader) bootstrap(c *Cluster) {
	r := l.view.repo
	in := login{auth: l.config.entry.Auth}
	env := func(name string) string { return r.opts.Env[name] }
	p := r.settings.PVE
	in.user, in.tokenID = p.User, p.TokenID
	in.token, in.tokenValue, in.password = p.Token, p.TokenValue, p.Password
	in.source = r.settings.File
	over := func(at *secret.Text, name string) bool {
		if v := env(name); v != "" {
			*at, in.source = secret.New(v), "environment"
			return true
		}
		return false
	}
	if v := env("PROXOPS_PVE_USER"); v != "" {
		in.user, in.tokenID = v, ""
	}
	if v := env("PROXOPS_PVE_TOKEN_ID"); v != "" {
		in.tokenID = v
	}
	// A token from the environment wins over a whole one from the file.
	if over(&in.token, "PROXOPS_PVE_TOKEN") {
		in.tokenValue = secret.Text{}
	}
	over(&in.tokenValue, "PROXOPS_PVE_TOKEN_VALUE")
	over(&in.password, "PROXOPS_PVE_PASSWORD")
	if u := r.opts.Overrides.PVEUser; u != "" {
		in.user, in.tokenID = u, ""
	}
	l.settle(c, in, "", "no credentials for this cluster: set PROXOPS_PVE_TOKEN_VALUE=user@realm!id=UUID, or PROXOPS_PVE_USER=user@realm!id with PROXOPS_PVE_TOKEN, or PROXOPS_PVE_USER with PROXOPS_PVE_PASSWORD; or add a secrets-file with proxops secrets init")
}

// login is what was given to log in with.
type login struct {
	auth, source, user, tokenID string
	token, tokenValue, password secret.Text
}

var (
	userRE  = regexp.MustCompile(`^[^\s:/!=]+@[A-Za-z][A-Za-z0-9._-]*$`)
	tokenRE = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*$`)
)

// settle makes the cluster's credentials of what was given; none is the text
// for when that is nothing.
func (l *loader) settle(c *Cluster, in login, at, none string) {
	bad := func(format string, args ...any) {
		line, col := l.config.entry.place(at)
		path := strings.TrimSuffix("pve.clusters."+l.name+"."+at, ".")
		l.add(yamldoc.Problem{File: l.config.entry.File, Line: line, Col: col, Path: path, Text: fmt.Sprintf(format, args...)})
	}
	s, err := in.resolve()
	switch {
	case errors.Is(err, errNothing):
		bad("%s", none)
	case err != nil:
		bad("credentials from %s: %s", cmp.Or(in.source, "the command line"), err)
	default:
		c.Secrets = s
		c.Config.Auth = s.Auth
	}
}

var errNothing = errors.New("nothing usable")

func (in login) resolve() (Secrets, error) {
	s := Secrets{Source: in.source}
	hasToken := !in.tokenValue.Empty() || !in.token.Empty()
	s.Auth = in.auth
	if s.Auth == "" {
		s.Auth = "token"
		if !hasToken && !in.password.Empty() {
			s.Auth = "ticket"
		}
	}
	var err error
	switch {
	case s.Auth == "ticket" && in.password.Empty():
		return s, errNothing
	case s.Auth == "ticket":
		user, _, _ := strings.Cut(in.user, "!")
		s.User, s.Password = user, in.password
		if user == "" {
			return s, errors.New("a password without a user: give the user too (user@realm)")
		}
		err = checkUser(user)
	case !hasToken:
		return s, errNothing
	case !in.tokenValue.Empty():
		err = s.whole(in.tokenValue)
	default:
		err = s.pair(in)
	}
	return s, err
}

// whole takes user@realm!id=UUID apart. No message shows the text: its end is
// the secret.
func (s *Secrets) whole(v secret.Text) error {
	id, token, ok := strings.Cut(v.Reveal(), "=")
	user, name, ok2 := strings.Cut(id, "!")
	if !ok || !ok2 || checkUser(user) != nil || !tokenRE.MatchString(name) || !printable(token) {
		return errors.New("the token value is not of the form user@realm!id=UUID")
	}
	s.User, s.TokenID, s.Token = user, id, secret.New(token)
	return nil
}

// pair puts user, token name and secret together.
func (s *Secrets) pair(in login) error {
	user, name, _ := strings.Cut(in.user, "!")
	if in.tokenID != "" {
		idUser, idName, whole := strings.Cut(in.tokenID, "!")
		if !whole {
			idUser, idName = "", in.tokenID
		}
		switch {
		case name != "" && name != idName, user != "" && idUser != "" && user != idUser:
			return fmt.Errorf("user %s and token id %s contradict each other", in.user, in.tokenID)
		case user == "":
			user = idUser
		}
		name = idName
	}
	switch {
	case user == "":
		return errors.New("a token without a user: give the user too (user@realm!id)")
	case name == "":
		return fmt.Errorf("a token without its name: give the user as %s!id, or set PROXOPS_PVE_TOKEN_ID", user)
	case !tokenRE.MatchString(name):
		return fmt.Errorf("%q is not the name of a token", name)
	case !printable(in.token.Reveal()):
		return errors.New("the token holds a blank or control character: copy it again")
	}
	s.User, s.TokenID, s.Token = user, user+"!"+name, in.token
	return checkUser(user)
}

func checkUser(user string) error {
	if !userRE.MatchString(user) {
		return fmt.Errorf("%q is not a user of the form user@realm, such as root@pam", user)
	}
	return nil
}

func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == 0x7f })
}

// ProcessSecret resolves one of the process's own secrets, such as
// listen-auth: an entry of secrets: in the secrets-file of proxops.yaml.
func (r *Repo) ProcessSecret(key string) (secret.Text, error) {
	if r.settings.SecretsFile == "" {
		return secret.Text{}, fmt.Errorf("%s: secrets-file: is not set, and %q is to be looked up in it", cmp.Or(r.settings.File, "proxops.yaml"), key)
	}
	raw, err := os.ReadFile(r.settings.SecretsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return secret.Text{}, fmt.Errorf("%s: no such file: correct secrets-file in %s", r.settings.SecretsFile, r.settings.File)
	}
	if err != nil {
		return secret.Text{}, fmt.Errorf("%s: %s", r.settings.SecretsFile, bare(err))
	}
	doc, err := r.decrypt(r.settings.SecretsFile, raw)
	if err != nil {
		return secret.Text{}, err
	}
	return doc.Lookup("secrets." + key)
}

// ListenToken is the bearer token of the HTTP server: PROXOPS_LISTEN_AUTH, or
// the entry that listen-auth names; absent when neither is there.
func (r *Repo) ListenToken() (secret.Text, error) {
	if v := r.opts.Env["PROXOPS_LISTEN_AUTH"]; v != "" {
		return secret.New(v), nil
	}
	if r.settings.ListenAuth == "" {
		return secret.Text{}, nil
	}
	return r.ProcessSecret(r.settings.ListenAuth)
}
