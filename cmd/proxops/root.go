package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/lmittmann/tint"
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/show"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// system is what a command may touch of the process.
type system struct {
	in       *os.File
	out, err io.Writer
	environ  []string
}

// app is one invocation: the process and the global flags.
type app struct {
	system
	env      map[string]string
	flags    repo.Overrides
	clusters []string
	poll     int
	budget   int
	readOnly bool
	level    *slog.LevelVar
}

// exit is an error that only carries an exit code: what there is to say was
// said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// hint is an error of usage: it names the command whose help explains.
type hint struct{ err error }

func (h hint) Error() string { return h.err.Error() }
func (h hint) Unwrap() error { return h.err }

// run is the whole program: the exit code is 0, or as the command says.
func run(ctx context.Context, sys system, args []string) int {
	out := &output{w: sys.out}
	sys.out = out
	return out.lost(sys.err, sys.run(ctx, args))
}

func (sys system) run(ctx context.Context, args []string) int {
	a := &app{system: sys, env: map[string]string{}, level: &slog.LevelVar{}}
	for _, kv := range sys.environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			a.env[k] = v
		}
	}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(sys.in)
	root.SetOut(sys.out)
	root.SetErr(sys.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var code exit
	if errors.As(err, &code) {
		return int(code)
	}
	err = meant(cmd, err)
	show.Problems(sys.err, a.style(sys.err), err)
	var h hint
	if errors.As(err, &h) {
		fmt.Fprintf(sys.err, "see %s --help\n", cmd.CommandPath())
	}
	return 1
}

// unknown is the error of a command that parent does not have.
func unknown(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := field.Nearest(name, names); near != "" {
		return hint{err: fmt.Errorf("%q is not a command of %s; did you mean %s?", name, parent.CommandPath(), near)}
	}
	return hint{err: fmt.Errorf("%q is not a command of %s; there are %s", name, parent.CommandPath(), strings.Join(names, ", "))}
}

// subcommand is for commands that only hold others.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknown(cmd, args[0])
	}
	return nil
}

// atMostOne takes one argument, what, or none unless it is needed.
func atMostOne(what string, needed bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 || needed && len(args) == 0 {
			return hint{err: fmt.Errorf("%s takes one %s, got %d arguments", cmd.CommandPath(), what, len(args))}
		}
		return nil
	}
}

// helpCmd is cobra's, and fails where there is nothing to help about.
func helpCmd() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", GroupID: "more", Short: "Help about any command",
		RunE: func(c *cobra.Command, args []string) error {
			cmd, rest, err := c.Root().Find(args)
			if err != nil || cmd == c.Root() && len(rest) > 0 {
				return unknown(c.Root(), rest[0])
			}
			if cmd.HasSubCommands() && len(rest) > 0 {
				return unknown(cmd, rest[0])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// meant adds to an unknown command or flag the one that is spelt nearly so.
func meant(cmd *cobra.Command, err error) error {
	quoted, isCommand := strings.CutPrefix(err.Error(), "unknown command ")
	var flag *pflag.NotExistError
	var near string
	switch {
	case isCommand:
		quoted, _ = strconv.QuotedPrefix(quoted)
		name, _ := strconv.Unquote(quoted)
		return unknown(cmd, name)
	case errors.As(err, &flag) && flag.GetSpecifiedShortnames() == "":
		var names []string
		tell := func(f *pflag.Flag) { names = append(names, f.Name) }
		cmd.Flags().VisitAll(tell)
		if near = field.Nearest(flag.GetSpecifiedName(), names); near != "" {
			near = "--" + near
		}
	}
	if near == "" {
		return err
	}
	return hint{err: fmt.Errorf("%w; did you mean %s?", err, near)}
}

func (a *app) root() *cobra.Command {
	c := &cobra.Command{
		Use:   "proxops",
		Short: "Make Proxmox VE clusters match a git repository",
		Long: `ProxOps reads manifests from a git repository, compares them with live
Proxmox VE clusters and makes the second match the first.

Run it inside the repository: diff shows what would change, apply changes it,
status says what is in sync. Nothing is written outside PVE, and no state file
is kept.

Try it without any cluster: proxops demo`,
		SilenceErrors:      true,
		SilenceUsage:       true,
		DisableSuggestions: true, // meant has our wording
		Version:            versionText(),
	}
	c.SetVersionTemplate("proxops {{.Version}}\n")
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return hint{err: flagFault(err)} })
	f := c.PersistentFlags()
	f.StringVar(&a.flags.Config, "config", "", "path of proxops.yaml (PROXOPS_CONFIG)")
	f.StringVar(&a.flags.GitPath, "git-path", "", "work tree to read, instead of the one around the working directory (PROXOPS_GIT_PATH)")
	f.StringVar(&a.flags.GitURL, "git-url", "", "repository to clone and follow, instead of a work tree")
	f.StringVar(&a.flags.GitBranch, "git-branch", "", "branch, tag or commit to follow with --git-url")
	f.IntVar(&a.poll, "git-poll-sec", 0, "seconds between two cycles of the daemon")
	f.StringVar(&a.flags.LogLevel, "log-level", "", "debug, info, warn or error")
	f.StringVar(&a.flags.Listen, "listen", "", "address of the daemon's HTTP server")
	f.IntVar(&a.budget, "prune-budget", 0, "deletes per cluster and cycle; 0 is unlimited")
	f.StringVar(&a.flags.PVEUser, "pve-user", "", "PVE user, user@realm or user@realm!token (PROXOPS_PVE_USER)")
	f.StringVar(&a.flags.PVEAuth, "pve-auth", "", "token or ticket")
	f.StringVar(&a.flags.CAFile, "ca-file", "", "PEM file of the authority that signed the clusters' certificates")
	f.BoolVar(&a.readOnly, "read-only", false, "report drift, never correct it")
	f.StringArrayVar(&a.clusters, "cluster", nil, "only this cluster; may be given several times")
	_ = c.RegisterFlagCompletionFunc("cluster", a.completeCluster)
	offer(c, "log-level", "debug", "info", "warn", "error")
	offer(c, "pve-auth", "token", "ticket")
	c.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.given(cmd) }
	c.AddGroup(&cobra.Group{ID: "main", Title: "Main commands:"}, &cobra.Group{ID: "more", Title: "More commands:"})
	for _, cmd := range a.commands() {
		c.AddCommand(cmd)
	}
	c.SetHelpCommand(helpCmd())
	c.SetCompletionCommandGroupID("more")
	return c
}

// flagFault words a flag's value that is not of its type.
func flagFault(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	what := map[string]string{"int": "a whole number", "uint64": "a whole number from 0 on", "uint16": "a whole number from 0 to 65535",
		"float64": "a number", "bool": "true or false", "duration": "a duration, such as 90s, 15m or 24h"}[bad.GetFlag().Value.Type()]
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("--%s: %q is too large or too small", bad.GetFlag().Name, bad.GetValue())
	case what == "":
		return fmt.Errorf("--%s: %q: %w", bad.GetFlag().Name, bad.GetValue(), bad.Unwrap())
	}
	return fmt.Errorf("--%s: %q is not %s", bad.GetFlag().Name, bad.GetValue(), what)
}

// offer lets the shell complete a flag's values.
func offer(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// given takes over the flags whose zero value means something.
func (a *app) given(cmd *cobra.Command) error {
	f := cmd.Flags()
	if f.Changed("git-poll-sec") {
		a.flags.GitPollSec = &a.poll
	}
	if f.Changed("prune-budget") {
		if a.budget < 0 {
			return hint{err: fmt.Errorf("--prune-budget: %d is less than 0; 0 is unlimited", a.budget)}
		}
		a.flags.PruneBudget = &a.budget
	}
	if f.Changed("read-only") {
		a.flags.ReadOnly = &a.readOnly
	}
	return nil
}

func (a *app) completeCluster(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	r, err := a.open(true)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, _ := r.Clusters()
	return names, cobra.ShellCompDirectiveNoFileComp
}

// style decorates only for terminals, and never when NO_COLOR is set.
func (a *app) style(w io.Writer) show.Style {
	return show.Style{Color: a.env["NO_COLOR"] == "" && a.env["TERM"] != "dumb" && isTerminal(w)}
}

// logger writes to standard error, as the settings say.
func (a *app) logger(s *repo.Settings) *slog.Logger {
	_ = a.level.UnmarshalText([]byte(s.Log.Level))
	if s.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(a.err, &slog.HandlerOptions{Level: a.level}))
	}
	return slog.New(tint.NewTextHandler(a.err, &tint.Options{Level: a.level, NoColor: !a.style(a.err).Color}))
}

// noArgs is cobra.NoArgs with our wording.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return hint{err: fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args[0])}
	}
	return nil
}
