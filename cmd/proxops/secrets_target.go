package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/show"
	"github.com/proxops/proxops/internal/sops"
	"github.com/proxops/proxops/internal/yamldoc"
)

// secretsCommand is one invocation of a secrets command.
type secretsCommand struct {
	*app
	process bool // the process's own file, not a cluster's
}

// secretsTarget is a secrets file, declared or to be made.
type secretsTarget struct {
	file     string // absolute
	declared bool   // config names it already
	config   string // absolute path of the file that names it, or is to
	cluster  string // "" = the process's own
}

func (a *secretsCommand) target(ctx context.Context) (secretsTarget, error) {
	r, err := a.open(true)
	if err != nil {
		return secretsTarget{}, err
	}
	if a.process {
		return a.ownFile(r)
	}
	if r.URLMode() {
		return secretsTarget{}, errors.New("secrets are changed in a work tree: clone the repository, and run this inside it (--process works on this machine's own)")
	}
	names, err := r.Known(a.clusters)
	if err != nil {
		return secretsTarget{}, err
	}
	if len(names) != 1 {
		return secretsTarget{}, hint{err: fmt.Errorf("--cluster: name one of %s, or give --process", strings.Join(names, ", "))}
	}
	root := r.Tree().Root
	dir := filepath.Join(root, "clusters", names[0])
	t := secretsTarget{cluster: names[0], config: filepath.Join(dir, "config.yaml"), file: filepath.Join(dir, "secrets.sops.yaml")}
	at, _, err := r.SecretUses(ctx, names[0])
	if at != "" {
		t.file, t.declared = filepath.Join(root, filepath.FromSlash(at)), true
		return t, nil
	}
	var notThere *os.PathError
	if errors.As(err, &notThere) {
		return t, err
	}
	return t, nil
}

// ownFile is the file that holds the process's own secrets.
func (a *secretsCommand) ownFile(r *repo.Repo) (secretsTarget, error) {
	if len(a.clusters) > 0 {
		return secretsTarget{}, hint{err: errors.New("--process and --cluster exclude each other: give one of them")}
	}
	t := secretsTarget{config: r.SettingsPath(), file: r.Settings().SecretsFile, declared: true}
	if t.file == "" {
		t.file, t.declared = filepath.Join(filepath.Dir(t.config), "process.sops.yaml"), false
	}
	return t, nil
}

// ownSkeleton is the plaintext of a new file of the process.
const ownSkeleton = `# Secrets of the agent itself. Change them with "proxops secrets set --process" or "edit --process".
secrets: {}
`

func (a *secretsCommand) create(ctx context.Context, identity string, recipients []string) error {
	t, err := a.target(ctx)
	if err != nil {
		return err
	}
	opts := sops.InitOptions{Path: t.file, Env: sops.EnvFrom(a.environ), IdentityFile: identity, Recipients: recipients}
	if a.process {
		opts.Initial = secret.New(ownSkeleton)
	}
	res, err := sops.Init(opts)
	if err != nil {
		return err
	}
	if res.IdentityFile != "" {
		fmt.Fprintf(a.out, "made an age key in %s; keep a copy of it in a safe place, for without it nobody can open the file\n", res.IdentityFile)
	}
	if identity != "" && res.IdentityFile == "" {
		fmt.Fprintf(a.err, "an age key is there already, so none was made in %s\n", identity)
	}
	fmt.Fprintf(a.out, "made %s, encrypted for %s\n", t.file, strings.Join(res.Recipients, ", "))
	if err := a.refer(t); err != nil {
		return err
	}
	if a.process {
		fmt.Fprintln(a.out, "next: proxops secrets set --process secrets.NAME, and name the entry where it is used, such as listen-auth: NAME in proxops.yaml")
		return nil
	}
	fmt.Fprintf(a.out, "next: proxops secrets set --cluster %s secrets.proxops-user (then secrets.proxops-token-id, secrets.proxops-token), or proxops secrets edit\n", t.cluster)
	return nil
}

// refer adds the lines that use a new file, or prints them.
func (a *secretsCommand) refer(t secretsTarget) error {
	if t.declared {
		return nil
	}
	name := filepath.Base(t.file)
	block, where := sops.ReferenceBlock(name), "pve.clusters."+t.cluster+" in "+t.config
	add := func() (bool, error) { return addReferences(t.config, t.cluster, block) }
	if t.cluster == "" {
		block, where = "secrets-file: "+name+"\n", t.config
		add = func() (bool, error) { return addLine(t.config, block) }
	}
	added, err := add()
	switch {
	case err != nil:
		return err
	case added:
		fmt.Fprintf(a.out, "added the references to %s\n", t.config)
	default:
		fmt.Fprintf(a.out, "add to %s:\n\n%s\n", where, indent(block, "      "))
	}
	return nil
}

// addLine adds a line of a new key to proxops.yaml, which it makes where there
// is none. It reports false, and writes nothing, where the result would not be
// that file with one more key.
func addLine(file, line string) (bool, error) {
	mode := os.FileMode(0o644)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	keys := func(text string) int {
		docs, problems := yamldoc.Parse(file, []byte(text))
		switch {
		case len(problems) > 0 || len(docs) > 1 || len(docs) == 1 && docs[0].Kind != yamldoc.Mapping:
			return -1
		case len(docs) == 0:
			return 0
		}
		return len(docs[0].Keys)
	}
	out := string(text)
	if out != "" && !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	out += line
	if had := keys(string(text)); had < 0 || keys(out) != had+1 {
		return false, nil
	}
	return true, writeWhole(file, []byte(out), mode)
}

func (a *secretsCommand) check(ctx context.Context) error {
	if a.process && len(a.clusters) > 0 {
		return hint{err: errors.New("--process and --cluster exclude each other: give one of them")}
	}
	bad := false
	note := func(good bool, err error) {
		if err != nil {
			show.Problems(a.err, a.style(a.err), err)
		}
		bad = bad || !good
	}
	var r *repo.Repo
	if a.process {
		var err error
		if r, err = a.open(true); err != nil {
			return err
		}
	} else {
		s, err := a.session(ctx, true)
		if err != nil {
			return err
		}
		r = s.repo
		for _, name := range s.names {
			note(a.checkCluster(ctx, r, name))
		}
	}
	if len(a.clusters) == 0 {
		note(a.checkOwn(r))
	}
	if bad {
		return exit(1)
	}
	return nil
}

func (a *secretsCommand) checkCluster(ctx context.Context, r *repo.Repo, name string) (good bool, err error) {
	file, uses, err := r.SecretUses(ctx, name)
	if err != nil {
		return false, err
	}
	if file == "" {
		fmt.Fprintf(a.out, "%s: has no secrets-file\n", name)
		return true, nil
	}
	raw, err := r.ReadSecrets(file)
	if err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	return a.resolve(name, file, raw, uses)
}

// checkOwn checks what proxops.yaml refers to.
func (a *secretsCommand) checkOwn(r *repo.Repo) (good bool, err error) {
	uses := r.ProcessUses()
	file := r.Settings().SecretsFile
	switch {
	case file == "" && len(uses) == 0:
		if a.process {
			fmt.Fprintln(a.out, "proxops.yaml: has no secrets-file, and refers to none")
		}
		return true, nil
	case file == "":
		for _, u := range uses {
			err = errors.Join(err, fmt.Errorf("%s:%d:%d: %s: names an entry of the secrets-file, and there is none: add one with proxops secrets init --process", u.File, u.Line, u.Col, u.Path))
		}
		return false, err
	}
	raw, err := r.ReadSecrets(file)
	if err != nil {
		return false, fmt.Errorf("%s: %w: correct secrets-file in proxops.yaml, or make it with proxops secrets init --process", file, err)
	}
	return a.resolve("proxops.yaml", file, raw, uses)
}

// resolve looks up every reference in a file.
func (a *secretsCommand) resolve(name, file string, raw []byte, uses []repo.SecretUse) (good bool, err error) {
	doc, err := sops.Decode(file, raw, sops.EnvFrom(a.environ))
	if err != nil {
		return false, err
	}
	good = true
	if len(uses) == 0 {
		fmt.Fprintf(a.out, "%s: %s opens, and nothing refers to it\n", name, show.Clean(file))
	}
	for _, u := range uses {
		state := "ok"
		if errs := sops.CheckRefs(doc, []string{u.Ref}); len(errs) > 0 {
			good, state = false, "MISSING"
			err = errors.Join(err, fmt.Errorf("%s:%d:%d: %s: %w", u.File, u.Line, u.Col, u.Path, errs[0]))
		} else if value, _ := doc.Lookup(u.Ref); entryFault(u, value) != nil {
			good, state = false, "WRONG"
			err = errors.Join(err, fmt.Errorf("%s:%d:%d: %s: %s: %s: %w", u.File, u.Line, u.Col, u.Path, file, u.Ref, entryFault(u, value)))
		}
		fmt.Fprintf(a.out, "%s: %-8s %s  (%s:%d)\n", name, state, show.Clean(u.Ref), show.Clean(u.File), u.Line)
	}
	return good, err
}
