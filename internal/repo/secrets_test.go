package repo

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/sops"
)

func openSecrets(name string, raw []byte, environ []string) (SecretsFile, error) {
	d, err := sops.Decode(name, raw, sops.EnvFrom(environ))
	if err != nil {
		return nil, err
	}
	return d, nil
}

const plainSecrets = `secrets:
  user: proxops@pve
  id: agent
  token: canary-token
  whole: proxops@pve!agent=canary-whole
  password: canary-password
  git: canary-git
cloud-init:
  ssh-keys:
    ops: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ+gzOzRPeY3wx2cUHgMGSVZBXpoN5yhEbUO3lCBPVUR ops
  passwords:
    root: canary-root
`

// encrypted is a repository whose prod cluster has a secrets file, and the
// environment with its identity.
func encrypted(t testing.TB, block string, changes files) (dir string, env map[string]string) {
	t.Helper()
	dir = base().with(files{
		"clusters/prod/config.yaml": configYAML + "      secrets-file: secrets.sops.yaml\n" + block,
	}).with(changes).write(t)
	env = map[string]string{"SOPS_AGE_KEY_FILE": filepath.Join(t.TempDir(), "keys.txt")}
	_, err := sops.Init(sops.InitOptions{
		Path: filepath.Join(dir, "clusters/prod/secrets.sops.yaml"), Env: sops.EnvFrom([]string{"SOPS_AGE_KEY_FILE=" + env["SOPS_AGE_KEY_FILE"]}),
		IdentityFile: env["SOPS_AGE_KEY_FILE"], Initial: secret.New(plainSecrets),
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, env
}

func TestSecretsFileIsExclusive(t *testing.T) {
	const at = "clusters/prod/config.yaml:"
	for _, c := range []struct{ name, block, want string }{
		{"pair", "      secrets: {pve: {user: user, token-id: id, token: token}, git: {token: git}}\n", "token proxops@pve proxops@pve!agent clusters/prod/secrets.sops.yaml"},
		{"whole token", "      secrets: {pve: {token: whole}}\n", "token proxops@pve proxops@pve!agent clusters/prod/secrets.sops.yaml"},
		{"password", "      secrets: {pve: {user: user, password: password}}\n", "ticket proxops@pve  clusters/prod/secrets.sops.yaml"},
		{"no block: the environment does not help", "", at + "4:7: pve.clusters.prod.secrets: secrets: name the entries of clusters/prod/secrets.sops.yaml to use"},
		{"missing entry", "      secrets: {pve: {token: wholly}}\n", at + "7:30: pve.clusters.prod.secrets.pve.token: clusters/prod/secrets.sops.yaml: secrets.wholly: no such entry"},
		{"token without user: the environment does not help", "      secrets: {pve: {token: token}}\n", at + "7:16: pve.clusters.prod.secrets: credentials from clusters/prod/secrets.sops.yaml: a token without a user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, env := encrypted(t, c.block, nil)
			env["PROXOPS_PVE_TOKEN_VALUE"] = "root@pam!other=canary-env"
			env["PROXOPS_PVE_USER"] = "root@pam!other"
			got, err := open(t, dir, func(o *Options) { o.Env = env }).Load(t.Context(), "prod")
			text := ""
			if err != nil {
				text = err.Error()
			} else {
				s := got.Secrets
				text = strings.Join([]string{s.Auth, s.User, s.TokenID, s.Source}, " ")
			}
			if !strings.HasPrefix(text, c.want) {
				t.Errorf("got %s, want %s", text, c.want)
			}
			if strings.Contains(text, "canary") {
				t.Errorf("a secret is shown: %s", text)
			}
		})
	}
}

func TestSecretsFileFaults(t *testing.T) {
	const block = "      secrets: {pve: {token: whole}}\n"
	load := func(dir string, env map[string]string) string {
		_, err := open(t, dir, func(o *Options) { o.Env = env }).Load(t.Context(), "prod")
		if err == nil {
			t.Fatal("loaded")
		}
		return err.Error()
	}
	dir, env := encrypted(t, block, nil)
	where := "clusters/prod/config.yaml:6:21: pve.clusters.prod.secrets-file: clusters/prod/secrets.sops.yaml: "
	if got := load(dir, nil); !strings.HasPrefix(got, where) || !strings.Contains(got, "identity") {
		t.Errorf("no identity: %s", got)
	}
	file := filepath.Join(dir, "clusters/prod/secrets.sops.yaml")
	if err := os.WriteFile(file, []byte(plainSecrets), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := load(dir, env); !strings.HasPrefix(got, where) || !strings.Contains(got, "not encrypted") || strings.Contains(got, "canary") {
		t.Errorf("not encrypted: %s", got)
	}
}

func TestManifestSecrets(t *testing.T) {
	const block = "      secrets: {pve: {token: whole}}\n"
	const more = "  hardware: {cloud-init: {enabled: true, storage: local}}\n  cloud-init-data: {ssh-key-refs: [cloud-init.ssh-keys.%s], ci-password-ref: cloud-init.passwords.root}\n"
	good, env := encrypted(t, block, files{"vm/prod/a.yaml": vmYAML("a", 100, strings.Replace(more, "%s", "ops", 1))})
	r := open(t, good, func(o *Options) { o.Env = env })
	if _, err := r.Load(t.Context(), "prod"); err != nil {
		t.Error(err)
	}
	bad, env := encrypted(t, block, files{"vm/prod/a.yaml": vmYAML("a", 100, strings.Replace(more, "%s", "opps", 1))})
	_, err := open(t, bad, func(o *Options) { o.Env = env }).Load(t.Context(), "prod")
	if want := "vm/prod/a.yaml:14:36: cloud-init-data.ssh-key-refs[0]: clusters/prod/secrets.sops.yaml: cloud-init.ssh-keys.opps: no such entry (there are cloud-init.ssh-keys.ops)"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	// No identity is needed to list what is referred to.
	file, uses, err := open(t, good, func(o *Options) { o.Env = nil }).SecretUses(t.Context(), "prod")
	if err != nil || file != "clusters/prod/secrets.sops.yaml" || len(uses) != 3 {
		t.Fatalf("got %s, %v, %v", file, uses, err)
	}
	if uses[0].Ref != "secrets.whole" || uses[1].Ref != "cloud-init.ssh-keys.ops" || uses[1].Line != 14 || uses[2].Path != "cloud-init-data.ci-password-ref" {
		t.Errorf("got %+v", uses)
	}
}

func TestGitTokensMustAgree(t *testing.T) {
	dir, env := encrypted(t, "      secrets: {pve: {token: whole}, git: {token: git}}\n", two())
	// encrypted() lets changes win; the config of prod is put back.
	cfg := configYAML + "      secrets-file: secrets.sops.yaml\n      secrets: {pve: {token: whole}, git: {token: git}}\n"
	lab := "pve: {clusters: {lab: {base-url: 'https://lab.example.org', nodes: [n1], secrets-file: ../prod/secrets.sops.yaml, secrets: {pve: {token: whole}, git: {token: %s}}}}}\n"
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("clusters/prod/config.yaml", cfg)
	put("clusters/lab/config.yaml", strings.Replace(lab, "%s", "git", 1))
	r := open(t, dir, func(o *Options) { o.Env = env })
	if got := outcome(t, r); got["lab"] != "ok" || got["prod"] != "ok" {
		t.Errorf("same token: %v", got)
	}
	put("clusters/lab/config.yaml", strings.Replace(lab, "%s", "password", 1))
	got := outcome(t, open(t, dir, func(o *Options) { o.Env = env }))
	for _, name := range []string{"lab", "prod"} {
		if !strings.Contains(got[name], "clusters lab, prod resolve to different git tokens") || strings.Contains(got[name], "canary") {
			t.Errorf("%s: %s", name, got[name])
		}
		// A command that loads one cluster alone says so too.
		if _, err := open(t, dir, func(o *Options) { o.Env = env }).Load(t.Context(), name); err == nil || !strings.Contains(err.Error(), "different git tokens") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The secrets of the last good commit win over what the first clone was made
// with.
func TestGitTokenOfAFetch(t *testing.T) {
	dir, env := encrypted(t, "      secrets: {pve: {token: whole}, git: {token: git}}\n", nil)
	with := maps.Clone(env)
	with["PROXOPS_GIT_TOKEN"] = "first-clone"
	r := open(t, dir, func(o *Options) { o.Env = with })
	c, err := r.Load(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.gitToken(); got.Empty() || got.Reveal() != c.Secrets.GitToken.Reveal() {
		t.Errorf("not the token of the secrets file: %v", got)
	}
	delete(with, "SOPS_AGE_KEY")
	delete(with, "SOPS_AGE_KEY_FILE")
	if got := open(t, dir, func(o *Options) { o.Env = with }).gitToken(); got.Reveal() != "first-clone" {
		t.Error("without an age key the token of the environment is not used")
	}
}
