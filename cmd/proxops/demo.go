package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pve"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/show"
	"github.com/proxops/proxops/internal/wire"
	"github.com/spf13/cobra"
)

func (a *app) demoCmd() *cobra.Command {
	var dir string
	var keep bool
	c := &cobra.Command{
		Use: "demo", GroupID: "main", Args: noArgs,
		Short: "Watch the whole story on a simulated cluster",
		Long: `Start a simulated two-node cluster on loopback, write an example repository with
an encrypted secrets file, and run the real commands on it: diff, apply, diff,
a change by somebody else, diff, apply, status. It needs no network, no root and
no PVE, and leaves nothing but the folder that it names.

With --keep the cluster stays until Ctrl-C, to play with.

Exit status: 0, or 1 when a step went otherwise than told.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), dir, keep) },
	}
	c.Flags().StringVar(&dir, "dir", "", "folder for the repository and the age key; must not exist [a new one in the temporary directory]")
	c.Flags().BoolVar(&keep, "keep", false, "leave the cluster running until Ctrl-C")
	return c
}

// demoRun is the stage: a cluster, a download server, a folder.
type demoRun struct {
	app   *app
	ctx   context.Context
	dir   string
	srv   *pvesim.Server
	alice secret.Text // her password
	step  int
}

func (a *app) demo(ctx context.Context, dir string, keep bool) error {
	dir, err := demoFolder(dir)
	if err != nil {
		return err
	}
	d := &demoRun{app: a, ctx: ctx, dir: dir}
	files, err := serveDemoFiles()
	if err != nil {
		return err
	}
	defer files.close()
	state, creds := demoEstate()
	w := pvesim.New(pvesim.Options{Seed: 1, TimeScale: 0.35}, state)
	defer w.Stop()
	if d.srv, err = w.Serve("127.0.0.1:0"); err != nil {
		return err
	}
	defer func() { _ = d.srv.Close() }() // the demo is over
	d.alice = creds.alice
	if err := d.write(files, creds); err != nil {
		_ = os.RemoveAll(dir) // it is ours and half made
		return fmt.Errorf("--dir: %s: %w: make room, or name a folder where there is some; nothing is left of it", dir, cause(err))
	}
	if err := d.story(keep); err != nil {
		if ctx.Err() != nil {
			return errors.New("the demo was interrupted")
		}
		return err
	}
	if keep {
		d.say("The cluster stays up until Ctrl-C.")
		<-ctx.Done()
	}
	return nil
}

// demoFolder makes the folder that the demo leaves behind.
func demoFolder(dir string) (string, error) {
	if dir == "" {
		return os.MkdirTemp("", "proxops-demo-")
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	err = os.MkdirAll(filepath.Dir(full), 0o755)
	if err == nil {
		err = os.Mkdir(full, 0o700)
	}
	switch {
	case err == nil:
		return full, nil
	case errors.Is(err, os.ErrExist):
		return "", fmt.Errorf("--dir: %s exists already: name a folder that does not", dir)
	}
	return "", fmt.Errorf("--dir: %w: name a folder where you may write", err)
}

func (d *demoRun) repo() string    { return filepath.Join(d.dir, "repository") }
func (d *demoRun) keyFile() string { return filepath.Join(d.dir, "age-key.txt") }

// story is what the demo tells; each command's exit code is part of it.
func (d *demoRun) story(keep bool) error {
	d.title("A simulated PVE cluster runs at " + d.srv.URL + ", and an example repository is in " + d.repo())
	d.say("The credentials are in clusters/demo/secrets.sops.yaml, encrypted for the age key", "in "+d.keyFile()+". Everything below is the real program talking", "HTTPS to the cluster.")
	steps := []func() error{
		func() error {
			d.title("What would change? The cluster is empty: everything is missing")
			return d.run(2, "diff")
		},
		func() error {
			d.title("Make it so: downloads, a template, a clone of it, a VM and a container, in order of their references")
			return d.run(0, "apply")
		},
		func() error {
			d.title("The second diff is empty: what was written is what PVE now says")
			return d.run(0, "diff")
		},
		d.tamper,
		func() error {
			d.title("Drift is seen, field by field, with what it takes to correct it")
			return d.run(2, "diff")
		},
		func() error {
			d.title("Git wins. Only the changed tokens are written; MAC addresses and volumes stay")
			return d.run(0, "apply")
		},
		func() error {
			d.title("All is as declared")
			return d.run(0, "status")
		},
	}
	for _, s := range steps {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		if err := s(); err != nil {
			return err
		}
	}
	d.end(keep)
	return nil
}

// end says what can be done next, or what was left.
func (d *demoRun) end(keep bool) {
	if !keep {
		d.title("That was the whole story")
		d.say("The cluster is gone. The repository stays in "+d.repo()+";", "with --keep the cluster stays too. Remove "+d.dir+" when you are done.")
		return
	}
	d.title("Now you: change a manifest, then diff and apply. In another terminal:")
	fmt.Fprintf(d.app.out, "\ncd %s\nexport SOPS_AGE_KEY_FILE=%s\n", quoteShell(d.repo()), quoteShell(d.keyFile()))
}

// tamper is somebody else: another user, through the API, past git.
func (d *demoRun) tamper() error {
	d.title("Meanwhile alice@pve changes two VMs by hand")
	d.say("web-01: VLAN 20 → 99, no start at boot. db-01: half of its memory, which PVE holds", "pending until a restart, and a new description.")
	ctx, cancel := context.WithTimeout(d.ctx, 20*time.Second)
	defer cancel()
	c, err := pve.New(pve.Config{Name: "demo", Endpoints: []string{d.srv.URL}, Nodes: []string{"pve01"}, Fingerprint: d.srv.Fingerprint,
		Auth: pve.Credentials{User: "alice@pve", Password: d.alice}})
	if err != nil {
		return err
	}
	defer c.Close()
	card, err := c.Reader().Pending(ctx, "pve01", pve.QEMU, 101)
	if err != nil {
		return err
	}
	net0, _ := card.Get("net0")
	now, _ := net0.Want()
	node, err := c.Node("pve01")
	if err != nil {
		return err
	}
	for vmid, change := range map[int]wire.Params{
		101: {{Key: "net0", Value: wire.Plain(strings.Replace(now, "tag=20", "tag=99", 1))}, {Key: "onboot", Value: wire.Plain("0")}},
		102: {{Key: "memory", Value: wire.Plain("4096")}, {Key: "description", Value: wire.Plain("alice was here")}},
	} {
		if _, err := node.UpdateConfig(ctx, pve.QEMU, vmid, change, ""); err != nil {
			return fmt.Errorf("alice's change of %d: %w", vmid, err)
		}
	}
	return nil
}

// run runs one of the program's own commands in the repository; another exit
// code than told ends the demo.
func (d *demoRun) run(want int, args ...string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Fprintf(d.app.out, "\n%s\n\n", d.style("$ proxops "+strings.Join(args, " ")))
	c := exec.CommandContext(d.ctx, exe)
	c.Args = append([]string{"proxops"}, args...)
	c.Dir = d.repo()
	c.Env = append(demoEnv(d.app.environ), "SOPS_AGE_KEY_FILE="+d.keyFile())
	c.Stdout, c.Stderr = plain(d.app.out), d.app.err // files as they are: the command sees whether they are a terminal
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	err = c.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return err
	}
	if got := c.ProcessState.ExitCode(); got != want {
		return fmt.Errorf("proxops %s: exit status %d where the demo expects %d; the repository is in %s", strings.Join(args, " "), got, want, d.repo())
	}
	return nil
}

// demoEnv is the caller's environment without what would point the commands
// at another repository, cluster or key.
func demoEnv(environ []string) []string {
	var out []string
	for _, kv := range environ {
		if !strings.HasPrefix(kv, "PROXOPS_") && !strings.HasPrefix(kv, "SOPS_") {
			out = append(out, kv)
		}
	}
	return out
}

func (d *demoRun) style(s string) string { return show.Bold(d.app.style(d.app.out), s) }

func (d *demoRun) title(s string) {
	d.step++
	fmt.Fprintf(d.app.out, "\n%s\n", d.style(fmt.Sprintf("── %d. %s", d.step, s)))
}

func (d *demoRun) say(lines ...string) {
	for _, l := range lines {
		_, _ = io.WriteString(d.app.out, "   "+l+"\n")
	}
}

// quoteShell quotes a path for a POSIX shell where it needs it.
func quoteShell(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+,:@", r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
