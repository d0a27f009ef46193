package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/notify"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/sops"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func (a *app) secretsCmd() *cobra.Command {
	s := &secretsCommand{app: a}
	c := &cobra.Command{
		Use: "secrets", GroupID: "more", Args: subcommand,
		Short: "Make, change and check encrypted secrets files",
		Long: `Work on clusters/<cluster>/secrets.sops.yaml, or with --process on the file that
secrets-file in proxops.yaml names: SOPS with age, in this process. What the
sops program writes opens here, and the reverse. Plaintext is never written
to a disk where a directory in memory can be had.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(s.initCmd(), s.editCmd(), s.setCmd(), s.rekeyCmd(), s.checkCmd())
	for _, sub := range c.Commands() {
		sub.Flags().BoolVar(&s.process, "process", false, "the agent's own secrets (secrets-file in proxops.yaml) instead of a cluster's")
	}
	return c
}

func (a *secretsCommand) initCmd() *cobra.Command {
	var recipients []string
	var identity string
	c := &cobra.Command{
		Use: "init {--cluster NAME | --process}", Args: noArgs,
		Short: "Make the encrypted file, an age key where there is none, and the references",
		Long: `Make clusters/<cluster>/secrets.sops.yaml with empty entries, encrypted for your age
key; with --process the file that secrets-file in proxops.yaml names, or
process.sops.yaml beside it. When no identity is found, one is made outside the
repository with mode 0600. The lines that use the file are added to the
cluster's config.yaml or to proxops.yaml, or printed where they cannot be added.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.create(cmd.Context(), identity, recipients)
		},
	}
	c.Flags().StringArrayVar(&recipients, "recipient", nil, "a further age recipient, age1…; may be given several times")
	c.Flags().StringVar(&identity, "identity-file", "", "where to make an age key when there is none [SOPS_AGE_KEY_FILE, else SOPS' default key file]")
	return c
}

func (a *secretsCommand) editCmd() *cobra.Command {
	return &cobra.Command{
		Use: "edit {--cluster NAME | --process}", Args: noArgs,
		Short: "Open the decrypted file in $EDITOR",
		Long: `Open the decrypted file in SOPS_EDITOR, VISUAL or EDITOR and encrypt what comes
back. The editor's file lies in a private directory in memory and is removed
also on a signal.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.target(cmd.Context())
			if err != nil {
				return err
			}
			editor, err := sops.EditorCommand(a.environ)
			if err != nil {
				return err
			}
			before, _ := os.ReadFile(at.file)
			if err := sops.Edit(cmd.Context(), at.file, sops.EnvFrom(a.environ), editor, sops.Terminal{In: a.in, Out: a.out, Err: a.err}); err != nil {
				return err
			}
			if after, err := os.ReadFile(at.file); err == nil && bytes.Equal(before, after) {
				fmt.Fprintf(a.out, "%s is unchanged\n", at.file)
			} else {
				fmt.Fprintf(a.out, "%s is written; proxops secrets check looks up what refers to it\n", at.file)
			}
			return nil
		},
	}
}

func (a *secretsCommand) setCmd() *cobra.Command {
	return &cobra.Command{
		Use: "set {--cluster NAME | --process} PATH",
		Args: func(_ *cobra.Command, args []string) error {
			switch len(args) {
			case 0:
				return hint{err: errors.New("name the entry to set, such as secrets.proxops-token")}
			case 1:
				return nil
			}
			return hint{err: errors.New("one PATH is taken; the value is asked for or read from standard input, never an argument: what was given is in the shell's history now, choose another value")}
		},
		Short: "Store one value, read from standard input",
		Long: `Store one value in the encrypted file. PATH is such as secrets.proxops-token,
cloud-init.ssh-keys.ops or cloud-init.passwords.web. The value is asked for on a
terminal, or read from standard input with its last line end cut; it is never an
argument, for those are seen in the process list.`,
		Example: "  pass show pve/token | proxops secrets set --cluster prod secrets.proxops-token",
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := a.target(cmd.Context())
			if err != nil {
				return err
			}
			value, err := a.readSecret(args[0])
			if err != nil {
				return err
			}
			if err := entryFault(repo.SecretUse{Ref: args[0]}, value); err != nil {
				return fmt.Errorf("%s: %w; nothing is stored", args[0], err)
			}
			if err := sops.Set(cmd.Context(), at.file, sops.EnvFrom(a.environ), args[0], value); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is set in %s\n", args[0], at.file)
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

// entryFault says why an entry cannot be what refers to it needs, or nil. The
// text shows none of it.
func entryFault(u repo.SecretUse, value secret.Text) (err error) {
	switch {
	case strings.HasPrefix(u.Ref, kind.KeyRefPrefix):
		_, err = kind.PublicKeys(value)
	case strings.HasPrefix(u.Path, "notifications["):
		err = notify.Check(value)
	}
	return err
}

func (a *secretsCommand) rekeyCmd() *cobra.Command {
	var add, remove []string
	c := &cobra.Command{
		Use: "rekey {--cluster NAME | --process}", Args: noArgs,
		Short: "Change who can open the file",
		Long: `Add or remove age recipients. A removed one can still open older versions in git's
history: change the values themselves too.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(add)+len(remove) == 0 {
				return hint{err: errors.New("nothing to do: give --add or --remove with a recipient, age1…")}
			}
			at, err := a.target(cmd.Context())
			if err != nil {
				return err
			}
			if err := sops.Rekey(cmd.Context(), at.file, sops.EnvFrom(a.environ), add, remove); err != nil {
				return err
			}
			doc, err := sops.Open(at.file, sops.EnvFrom(a.environ))
			if err != nil {
				return err
			}
			fmt.Fprintf(a.out, "%s is now encrypted for %s\n", at.file, strings.Join(doc.Recipients(), ", "))
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

func (a *secretsCommand) checkCmd() *cobra.Command {
	return &cobra.Command{
		Use: "check [--cluster NAME | --process]", Args: noArgs,
		Short: "Check that every reference has a value",
		Long: `Open the secrets file of every cluster and look up each reference of its
configuration and manifests, then the same with what proxops.yaml refers to.
What must be a public key or the URL of a notification is checked for its form.
With --cluster only that cluster is checked, with --process only proxops.yaml.
Names are printed, values never.

Exit status: 0, or 1 when a file does not open, or a reference has no value or one of the wrong form.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.check(cmd.Context()) },
	}
}
