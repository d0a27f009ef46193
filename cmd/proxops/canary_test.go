package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/sops"
	"github.com/spf13/cobra"
)

// Values that no output may hold, one for each slot of a secret.
const (
	canaryToken    = "c0ffee01-1111-4111-8111-caca00000001" // in the secrets file, and in use
	canaryEnvToken = "c0ffee02-2222-4222-8222-caca00000002" // PROXOPS_PVE_TOKEN_VALUE
	canaryPassword = "canary-pve-password-0003"
	canaryGit      = "canary-git-token-0004"
	canaryVM       = "canary-ci-password-0005"
	canaryCT       = "canary-ct-password-0006"
	canaryStdin    = "canary-stdin-value-0007"
	canaryArg      = canaryStdin          // on a command line, where none belongs
	canaryBearer   = "canary-bearer-0008" // the next are the process's own
	canaryHook     = "canary-webhook-0009"
	canaryChat     = "canary-chat-0010"
	canaryForge    = "canary-forge-0011"
	canaryEtcd     = "canary-etcd-0012"
)

// canaryProcess uses every secret of the process.
const canaryProcess = `secrets-file: process.sops.yaml
listen-auth: bearer
webhook-auth: hook
notifications: [{name: ops, url: chat}]
git: {status: {provider: gitea, api-url: "http://127.0.0.1:1/api/v1", repository: ops/infra, token: forge}}
`

// canaryShares has the agent log in to an etcd that is away.
const canaryShares = `coordination: {etcd: {endpoints: ["https://127.0.0.1:1"], user: proxops, password: etcd}}
`

// planted is a repository whose every secret slot holds a canary, on a lab.
type planted struct {
	dir, key string
	world    *pvesim.World
	env      []string
}

func plant(t *testing.T) *planted {
	t.Helper()
	w, srv, _ := labFor(t, 1)
	return plantAt(t, w, srv.URL, srv.Fingerprint)
}

func plantAt(t *testing.T, w *pvesim.World, url, fingerprint string) *planted {
	t.Helper()
	w.View(func(s *pvesim.State) {
		s.Access.Users["root@pam"].Tokens["lab"].Secret = canaryToken
		const archive = "local:vztmpl/d.tar.zst"
		s.Volumes["pve01 "+archive] = &pvesim.Volume{ID: archive, Node: "pve01", Content: "vztmpl", Format: "tzst", Size: 1 << 20, Used: 1 << 20}
	})
	files := goodFiles()
	r := strings.NewReplacer("SIM_URL", url, "SIM_FP", fingerprint)
	files["clusters/prod/config.yaml"] = r.Replace(files["clusters/prod/config.yaml"]) + "      secrets-file: secrets.sops.yaml\n      secrets:\n        pve: {token: t}\n        git: {token: g}\n"
	files["clusters/prod/resources.yaml"] = "resources: [vm/prod/a.yaml, lxc/prod/b.yaml, ctt/prod/d.yaml]\n"
	files["vm/prod/a.yaml"] = badVM("  cloud-init-data: {ci-password-ref: cloud-init.passwords.vm}\n  hardware: {cloud-init: {enabled: true, storage: local-lvm}}\n")
	files["ctt/prod/d.yaml"] = "apiVersion: proxops/v1alpha1\nkind: CTTemplate\nmetadata: {name: d}\nspec: {node: pve01, storage: local, filename: d.tar.zst, url: null}\n"
	files["lxc/prod/b.yaml"] = "apiVersion: proxops/v1alpha1\nkind: LXC\nmetadata: {name: b}\nspec: {node: pve01, vmid: 200, template: d, memory: 64MiB, root: {storage: local-lvm, size: 1GiB}, networks: [], init: {password-ref: cloud-init.passwords.ct}}\n"
	p := &planted{dir: t.TempDir(), world: w}
	writeFiles(t, p.dir, files)
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	p.key = id.String()
	plain := "secrets:\n    t: root@pam!lab=" + canaryToken + "\n    g: " + canaryGit + "\ncloud-init:\n    passwords:\n        vm: " + canaryVM + "\n        ct: " + canaryCT + "\n"
	if err := sops.Create(filepath.Join(p.dir, "clusters/prod/secrets.sops.yaml"), []string{id.Recipient().String()}, secret.New(plain)); err != nil {
		t.Fatal(err)
	}
	own := "secrets:\n    bearer: " + canaryBearer + "\n    hook: " + canaryHook + "\n    chat: http://127.0.0.1:1/" + canaryChat + "\n    forge: " + canaryForge + "\n    etcd: " + canaryEtcd + "\n"
	if err := sops.Create(filepath.Join(p.dir, "process.sops.yaml"), []string{id.Recipient().String()}, secret.New(own)); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, p.dir, map[string]string{"proxops.yaml": canaryProcess})
	if err := commitAll(p.dir, "plant"); err != nil {
		t.Fatal(err)
	}
	p.env = []string{"SOPS_AGE_KEY=" + p.key, "PROXOPS_PVE_TOKEN_VALUE=root@pam!env=" + canaryEnvToken, "PROXOPS_PVE_PASSWORD=" + canaryPassword,
		"PROXOPS_GIT_TOKEN=" + canaryGit, "EDITOR=true", "HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	return p
}

// run runs a command line with debug logs and standard input, for two seconds
// at most, and fails when the output holds a canary.
func (p *planted) run(t *testing.T, env []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if args[0] == "run" {
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
	}
	in, err := os.CreateTemp(t.TempDir(), "in")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.WriteString(canaryStdin + "\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	out := &watched{line: make(chan struct{}, 1)}
	run(ctx, system{in: in, out: out, err: out, environ: env}, append([]string{"--git-path", p.dir, "--log-level", "debug"}, args...))
	p.check(t, strings.Join(args, " "), out.String())
	return out.String()
}

func (p *planted) check(t *testing.T, where, text string) {
	t.Helper()
	for _, canary := range []string{canaryToken, canaryEnvToken, canaryPassword, canaryGit, canaryVM, canaryCT, canaryStdin, canaryBearer, canaryHook, canaryChat, canaryForge, canaryEtcd, "$6$", p.key, strings.TrimPrefix(p.key, "AGE-SECRET-KEY-")} {
		if strings.Contains(text, canary) {
			t.Errorf("%s shows %s:\n%s", where, canary, text)
		}
	}
}

// canaryRuns are the arguments of each command; a command that is in neither
// list fails the test.
var canaryRuns = map[string][][]string{
	"diff":          {{"diff"}, {"diff", "-o", "json"}, {"diff", "-o", "markdown"}},
	"apply":         {{"apply", "-n"}, {"apply", "--diff"}},
	"status":        {{"status"}},
	"validate":      {{"validate"}},
	"run":           {{"run", "--listen", "127.0.0.1:0"}},
	"history":       {{"history"}},
	"adopt":         {{"adopt", "--cluster", "prod", "--stdout"}, {"adopt", "--cluster", "prod", "--adopt-secrets"}},
	"doctor":        {{"doctor"}},
	"trust":         {{"trust"}},
	"next-id":       {{"next-id"}},
	"snapshot":      {{"snapshot", "--out", "OUT"}},
	"secrets check": {{"secrets", "check"}, {"secrets", "check", "--process"}},
	"secrets set":   {{"secrets", "set", "secrets.new"}, {"secrets", "set", "secrets"}, {"secrets", "set", "--process", "secrets.new"}, {"secrets", "set", canaryArg, "secrets.new"}},
	"secrets edit":  {{"secrets", "edit"}, {"secrets", "edit", "--process"}},
	"secrets rekey": {{"secrets", "rekey", "--add", "not-a-recipient"}, {"secrets", "rekey", "--process", "--remove", "age1x"}},
	"secrets init":  {{"secrets", "init"}, {"secrets", "init", "--process"}},
	"explain":       {{"explain", "VM"}},
	"schema":        {{"schema", "VM"}},
	"version":       {{"version"}},
	"proxops":       {{"--version"}},
	"secrets":       {{"secrets"}},
	"help":          {{"help", "secrets"}},
	"completion":    {{"completion", "bash"}, {"__complete", "diff", "--cluster", ""}},
}

// Commands that see no secret of the repository: lab prints its own
// credentials, which is what it is for, and demo draws its own.
var canaryFree = []string{"demo", "lab"}

// TestCanary: no command shows a secret, at the loudest log level, when all
// goes well and when everything goes wrong.
func TestCanary(t *testing.T) {
	p := plant(t)
	a := &app{env: map[string]string{}}
	root := a.root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var names []string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "completion" { // one text for each shell, none of ours
			names = append(names, "completion")
			return
		}
		if c.Runnable() && !c.Hidden {
			names = append(names, strings.TrimPrefix(c.CommandPath(), "proxops "))
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for _, name := range names {
		if len(canaryRuns[name]) == 0 && !slices.Contains(canaryFree, name) {
			t.Errorf("no run of %s in the canary test", name)
		}
	}
	each := func(env []string) {
		for _, name := range names {
			for _, args := range canaryRuns[name] {
				args = append([]string(nil), args...)
				for i := range args {
					if args[i] == "OUT" {
						args[i] = filepath.Join(t.TempDir(), "estate.json")
					}
				}
				p.run(t, env, args...)
				if name == "snapshot" {
					if b, err := os.ReadFile(args[len(args)-1]); err == nil {
						p.check(t, "the snapshot's file", string(b))
					}
				}
			}
		}
	}
	each(p.env)
	if text := p.run(t, p.env, "diff"); !strings.Contains(text, "for 3 objects") {
		t.Errorf("the canaries are not in use:\n%s", text)
	}
	for _, level := range []string{"debug", "info", "warn", "error"} {
		writeFiles(t, p.dir, map[string]string{"proxops.yaml": canaryProcess + "log: {format: json}\n"})
		p.run(t, p.env, "--log-level", level, "diff")
	}
	for _, fault := range []string{"error,status=500", "truncate", "reset"} {
		f, err := parseFaults([]string{fault})
		if err != nil {
			t.Fatal(err)
		}
		p.world.SetFaults(f...)
		for _, args := range [][]string{{"diff"}, {"apply"}, {"status"}} {
			p.run(t, p.env, args...)
		}
	}
	p.world.SetFaults()
	writeFiles(t, p.dir, map[string]string{"proxops.yaml": canaryProcess + canaryShares})
	for _, args := range [][]string{{"run", "--listen", "127.0.0.1:0"}, {"doctor"}, {"secrets", "check", "--process"}, {"status"}} {
		if text := p.run(t, p.env, args...); args[0] == "run" && !strings.Contains(text, "etcd") {
			t.Errorf("the agent does not ask etcd:\n%s", text)
		}
	}
	p.wrongKeys(t)
	p.files(t)
}

// wrongKeys runs what reads secrets with a token that PVE refuses, a key that
// does not fit, no key, and a file that was tampered with.
func (p *planted) wrongKeys(t *testing.T) {
	p.world.View(func(s *pvesim.State) {
		s.Access.Users["root@pam"].Tokens["lab"].Secret = "00000000-0000-4000-8000-000000000000"
	})
	p.run(t, p.env, "diff")
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	rest := p.env[1:]
	for _, env := range [][]string{append([]string{"SOPS_AGE_KEY=" + other.String()}, rest...), rest} {
		for _, args := range [][]string{{"diff"}, {"secrets", "check"}, {"secrets", "set", "secrets.t"}, {"secrets", "edit"}} {
			p.run(t, env, args...)
		}
	}
	file := filepath.Join(p.dir, "clusters/prod/secrets.sops.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range [][]byte{
		bytes.Replace(text, []byte("    t: "), []byte("    u: "), 1),
		[]byte("secrets:\n    t: root@pam!lab=" + canaryToken + "\n    g: [" + canaryGit + "\n"),
		[]byte("secrets:\n    t: root@pam!lab=" + canaryToken + "\n"),
	} {
		if err := os.WriteFile(file, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"diff"}, {"secrets", "check"}, {"validate"}} {
			p.run(t, p.env, args...)
		}
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// files looks through all that the commands left in the repository.
func (p *planted) files(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(p.dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(name)
		p.check(t, name, string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
