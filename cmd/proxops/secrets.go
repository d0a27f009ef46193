package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/show"
	"github.com/proxops/proxops/internal/sops"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func (a *app) secretsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "secrets", GroupID: "more", Args: noArgs,
		Short: "Make, change and check a cluster's encrypted secrets file",
		Long: `Work on clusters/<cluster>/secrets.sops.yaml: SOPS with age, in this process. What
the sops program writes opens here, and the reverse. Plaintext is never written
to a disk where a directory in memory can be had.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(a.secretsInitCmd(), a.secretsEditCmd(), a.secretsSetCmd(), a.secretsRekeyCmd(), a.secretsCheckCmd())
	return c
}

func (a *app) secretsInitCmd() *cobra.Command {
	var recipients []string
	var identity string
	c := &cobra.Command{
		Use: "init --cluster NAME", Args: noArgs,
		Short: "Make the encrypted file, an age key where there is none, and the references",
		Long: `Make clusters/<cluster>/secrets.sops.yaml with empty entries, encrypted for your age
key. When no identity is found, one is made outside the repository with mode
0600. The lines that use the file are added to the cluster's config.yaml, or
printed where they cannot be added.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.secretsInit(cmd.Context(), identity, recipients)
		},
	}
	c.Flags().StringArrayVar(&recipients, "recipient", nil, "a further age recipient, age1…; may be given several times")
	c.Flags().StringVar(&identity, "identity-file", "", "where to make an age key when there is none [SOPS_AGE_KEY_FILE, else SOPS' default key file]")
	return c
}

// secretsPath is a cluster's secrets file, declared or to be made, and its
// config file. The paths are absolute.
func (a *app) secretsPath(ctx context.Context) (name, config, file string, declared bool, err error) {
	r, err := a.open(true)
	if err != nil {
		return "", "", "", false, err
	}
	if r.URLMode() {
		return "", "", "", false, errors.New("secrets are changed in a work tree: clone the repository, and run this inside it")
	}
	names, err := r.Known(a.clusters)
	if err != nil {
		return "", "", "", false, err
	}
	if len(names) != 1 {
		return "", "", "", false, hint{err: fmt.Errorf("--cluster: name one of %s", strings.Join(names, ", "))}
	}
	name = names[0]
	root := r.Tree().Root
	dir := filepath.Join(root, "clusters", name)
	config, file = filepath.Join(dir, "config.yaml"), filepath.Join(dir, "secrets.sops.yaml")
	at, _, err := r.SecretUses(ctx, name)
	if at != "" {
		return name, config, filepath.Join(root, filepath.FromSlash(at)), true, nil
	}
	var notThere *os.PathError
	if err != nil && errors.As(err, &notThere) {
		return name, config, file, false, err
	}
	return name, config, file, false, nil
}

func (a *app) secretsInit(ctx context.Context, identity string, recipients []string) error {
	name, config, file, declared, err := a.secretsPath(ctx)
	if err != nil {
		return err
	}
	res, err := sops.Init(sops.InitOptions{Path: file, Env: sops.EnvFrom(a.environ), IdentityFile: identity, Recipients: recipients})
	if err != nil {
		return err
	}
	if res.IdentityFile != "" {
		fmt.Fprintf(a.out, "made an age key in %s; keep a copy of it in a safe place, for without it nobody can open the file\n", res.IdentityFile)
	}
	fmt.Fprintf(a.out, "made %s, encrypted for %s\n", file, strings.Join(res.Recipients, ", "))
	if !declared {
		added, err := addReferences(config, name, sops.ReferenceBlock(filepath.Base(file)))
		if err != nil {
			return err
		}
		if added {
			fmt.Fprintf(a.out, "added the references to %s\n", config)
		} else {
			fmt.Fprintf(a.out, "add to pve.clusters.%s in %s:\n\n%s\n", name, config, indent(sops.ReferenceBlock(filepath.Base(file)), "      "))
		}
	}
	fmt.Fprintf(a.out, "next: proxops secrets set --cluster %s secrets.proxops-user (then secrets.proxops-token-id, secrets.proxops-token), or proxops secrets edit\n", name)
	return nil
}

func (a *app) secretsEditCmd() *cobra.Command {
	return &cobra.Command{
		Use: "edit --cluster NAME", Args: noArgs,
		Short: "Open the decrypted file in $EDITOR",
		Long: `Open the decrypted file in SOPS_EDITOR, VISUAL or EDITOR and encrypt what comes
back. The editor's file lies in a private directory in memory and is removed
also on a signal.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, _, file, _, err := a.secretsPath(cmd.Context())
			if err != nil {
				return err
			}
			editor, err := sops.EditorCommand(a.environ)
			if err != nil {
				return err
			}
			return sops.Edit(cmd.Context(), file, sops.EnvFrom(a.environ), editor, sops.Terminal{In: a.in, Out: a.out, Err: a.err})
		},
	}
}

func (a *app) secretsSetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "set --cluster NAME PATH",
		Args: func(_ *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return hint{err: errors.New("name the entry to set, such as secrets.proxops-token")}
			case 1:
				return nil
			}
			return hint{err: fmt.Errorf("%s: the value is asked for or read from standard input, never an argument: what was given is in the shell's history now, choose another value", args[0])}
		},
		Short: "Store one value, read from standard input",
		Long: `Store one value in the encrypted file. PATH is such as secrets.proxops-token,
cloud-init.ssh-keys.ops or cloud-init.passwords.web. The value is asked for on a
terminal, or read from standard input with its last line end cut; it is never an
argument, for those are seen in the process list.`,
		Example: "  pass show pve/token | proxops secrets set --cluster prod secrets.proxops-token",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, _, file, _, err := a.secretsPath(cmd.Context())
			if err != nil {
				return err
			}
			value, err := a.readSecret(args[0])
			if err != nil {
				return err
			}
			if err := sops.Set(cmd.Context(), file, sops.EnvFrom(a.environ), args[0], value); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is set in %s\n", args[0], file)
			return nil
		},
	}
}

// maxSecret bounds a value from standard input, in bytes.
const maxSecret = 1 << 16

// readSecret asks for a value on a terminal, without echo, or reads it from
// standard input.
func (a *app) readSecret(name string) (secret.Text, error) {
	if a.in == nil {
		return secret.Text{}, errors.New("there is no standard input to read the value from")
	}
	if fd := int(a.in.Fd()); term.IsTerminal(fd) {
		fmt.Fprintf(a.err, "%s: ", name)
		b, err := term.ReadPassword(fd)
		fmt.Fprintln(a.err)
		return secret.New(string(b)), err
	}
	b, err := io.ReadAll(io.LimitReader(bufio.NewReader(a.in), maxSecret+1))
	if err != nil {
		return secret.Text{}, errors.New("standard input cannot be read")
	}
	if len(b) > maxSecret {
		return secret.Text{}, fmt.Errorf("the value on standard input is longer than %d bytes", maxSecret)
	}
	s := strings.TrimSuffix(string(b), "\n")
	return secret.New(strings.TrimSuffix(s, "\r")), nil
}

func (a *app) secretsRekeyCmd() *cobra.Command {
	var add, remove []string
	c := &cobra.Command{
		Use: "rekey --cluster NAME", Args: noArgs,
		Short: "Change who can open the file",
		Long: `Add or remove age recipients. A removed one can still open older versions in git's
history: change the values themselves too.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(add)+len(remove) == 0 {
				return hint{err: errors.New("nothing to do: give --add or --remove with a recipient, age1…")}
			}
			_, _, file, _, err := a.secretsPath(cmd.Context())
			if err != nil {
				return err
			}
			if err := sops.Rekey(cmd.Context(), file, sops.EnvFrom(a.environ), add, remove); err != nil {
				return err
			}
			doc, err := sops.Open(file, sops.EnvFrom(a.environ))
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is now encrypted for %s\n", file, strings.Join(doc.Recipients(), ", "))
			if len(remove) > 0 {
				fmt.Fprintln(a.out, "git's history still holds the old values for the removed ones: change the values")
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&add, "add", nil, "recipient to add; may be given several times")
	c.Flags().StringArrayVar(&remove, "remove", nil, "recipient to remove; may be given several times")
	return c
}

func (a *app) secretsCheckCmd() *cobra.Command {
	return &cobra.Command{
		Use: "check", Args: noArgs,
		Short: "Check that every reference of every cluster has a value",
		Long: `Open the secrets file of every cluster and look up each reference of its
configuration and manifests. Names are printed, values never.

Exit status: 0, or 1 when a file does not open or a reference has no value.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.secretsCheck(cmd.Context()) },
	}
}

func (a *app) secretsCheck(ctx context.Context) error {
	s, err := a.session(ctx, true)
	if err != nil {
		return err
	}
	st := a.style(a.err)
	bad := false
	for _, name := range s.names {
		good, err := a.checkCluster(ctx, s.repo, name)
		if err != nil {
			show.Problems(a.err, st, err)
		}
		bad = bad || !good
	}
	if bad {
		return exit(1)
	}
	return nil
}

func (a *app) checkCluster(ctx context.Context, r *repo.Repo, name string) (good bool, err error) {
	file, uses, err := r.SecretUses(ctx, name)
	if err != nil {
		return false, err
	}
	if file == "" {
		fmt.Fprintf(a.out, "%s: has no secrets-file\n", name)
		return true, nil
	}
	raw, err := r.Tree().ReadFile(file, 1<<20)
	if err != nil {
		return false, err
	}
	doc, err := sops.Decode(file, raw, sops.EnvFrom(a.environ))
	if err != nil {
		return false, err
	}
	good = true
	for _, u := range uses {
		state := "ok"
		if errs := sops.CheckRefs(doc, []string{u.Ref}); len(errs) > 0 {
			good, state = false, "MISSING"
			err = errors.Join(err, fmt.Errorf("%s:%d:%d: %s: %w", u.File, u.Line, u.Col, u.Path, errs[0]))
		}
		fmt.Fprintf(a.out, "%s: %-8s %s  (%s:%d)\n", name, state, show.Clean(u.Ref), show.Clean(u.File), u.Line)
	}
	return good, err
}
