package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/proxops/proxops/internal/adopt"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/sops"
	"github.com/spf13/cobra"
)

// adoptFlags are the flags of adopt.
type adoptFlags struct {
	selects []string
	secrets bool
	extra   bool
	force   bool
	stdout  bool
	compose bool
	check   bool
	state   string
	output  string
}

func (a *app) adoptCmd() *cobra.Command {
	var f adoptFlags
	c := &cobra.Command{
		Use: "adopt", GroupID: "main", Args: noArgs,
		Short: "Write manifests of what a cluster holds; changes nothing in PVE",
		Long: `Read every guest, template and storage file of a cluster's allowed nodes and
write one manifest each, as <kind>/<cluster>/<name>.yaml. PVE gets GET requests
only: no guest is locked and no task started; the count of writes is printed.

Manifests take effect when clusters/<cluster>/resources.yaml lists them; the
lines are printed, and --compose writes a proposal. After that, diff shows the
ownership tag alone. A file that is there and says something else is shown as a
diff and left, unless --force is given.

What a human must decide stands as INCOMPLETE in the manifests; keys without a
field are listed as gaps.

Exit status: 0, or 1 when something could not be read or a check failed.`,
		Example: `  proxops adopt --cluster prod --check
  proxops adopt --cluster prod --select tag=web --select vmid=100-199
  proxops adopt --cluster prod --from-tfstate terraform.tfstate --compose`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.adopt(cmd.Context(), f) },
	}
	fl := c.Flags()
	fl.StringArrayVar(&f.selects, "select", nil, "only these: tag=T, pool=P, vmid=N or N-M, name=PATTERN or kind=K; values by commas are alternatives, several flags must all hold")
	fl.BoolVar(&f.secrets, "adopt-secrets", false, "store public keys that the cluster's secrets file does not have yet")
	fl.BoolVar(&f.extra, "extra", false, "put keys without a field into spec.extra, where they may stand there")
	fl.BoolVar(&f.force, "force", false, "overwrite files that say something else")
	fl.BoolVar(&f.stdout, "stdout", false, "print the manifests and write no file")
	fl.BoolVar(&f.compose, "compose", false, "write clusters/<cluster>/resources.yaml.proposed with the new lines")
	fl.BoolVar(&f.check, "check", false, "read back what was written, plan it, and fail when anything but ownership claims and INCOMPLETE items is left")
	fl.StringVar(&f.state, "from-tfstate", "", "name guests as this Terraform state file does (providers bpg/proxmox and Telmate/proxmox)")
	fl.StringVarP(&f.output, "output", "o", "text", "text or json")
	offer(c, "output", "text", "json")
	_ = c.RegisterFlagCompletionFunc("select", completeSelect)
	return c
}

func (f adoptFlags) faults() error {
	switch {
	case f.output != "text" && f.output != "json":
		return fmt.Errorf("--output: %q is not one of text, json", f.output)
	case f.stdout && f.output == "json":
		return errors.New("--stdout and --output json both want standard output: give one of them")
	case f.stdout && (f.check || f.compose || f.force || f.secrets):
		return errors.New("--stdout writes no file: --check, --compose, --force and --adopt-secrets need some")
	}
	return nil
}

func (a *app) adopt(ctx context.Context, f adoptFlags) error {
	if err := f.faults(); err != nil {
		return hint{err: err}
	}
	sel, err := adopt.ParseSelector(f.selects)
	if err != nil {
		return hint{err: err}
	}
	s, err := a.session(ctx, false)
	if err != nil {
		return err
	}
	if s.repo.URLMode() && !f.stdout {
		return errors.New("git.url: adopt writes into a work tree: run it inside a clone, or give --stdout")
	}
	var state []adopt.Terraform
	if f.state != "" {
		if len(s.names) != 1 {
			return hint{err: errors.New("--from-tfstate: a state file is of one cluster: name it with --cluster")}
		}
		if state, err = adopt.ReadState(f.state); err != nil {
			return err
		}
	}
	run := &adoption{app: a, session: s, flags: f, sel: sel, state: state}
	var reports []adoptReport
	for _, name := range s.names {
		r, err := run.cluster(ctx, name)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	return run.finish(reports)
}

// adoption is one invocation of adopt.
type adoption struct {
	app     *app
	session *session
	flags   adoptFlags
	sel     adopt.Selector
	state   []adopt.Terraform
}

// adoptReport is what adopt did with one cluster.
type adoptReport struct {
	res      adopt.Result
	files    []adopt.File
	added    []string // references of stored keys
	proposal adopt.Proposal
	proposed bool
	checked  *adopt.Checked
	writes   int64
	twice    []int // vmids that stand in the state more than once
}

func (x *adoption) cluster(ctx context.Context, name string) (rep adoptReport, err error) {
	c, err := x.session.repo.LoadWith(ctx, name, nil) // a cluster that was never composed is adopted as well
	if err != nil {
		return rep, err
	}
	o := adopt.Options{Cluster: name, Select: x.sel, Extra: x.flags.extra}
	if o.Known, err = adopt.LoadKnown(c.Tree, c); err != nil {
		return rep, err
	}
	if o.Keys, err = x.keys(c); err != nil {
		return rep, err
	}
	o.Terraform, rep.twice = adopt.ByVMID(x.state)
	client, err := x.session.connect(c)
	if err != nil {
		return rep, err
	}
	defer client.Close()
	want := reconcile.Want(c)
	snap, err := adopt.Read(ctx, client.Reader(), live.Want{Cluster: name, Nodes: want.Nodes, Identity: want.Identity, RootTicket: want.RootTicket}, x.sel)
	if err != nil {
		return rep, err
	}
	rep.res = adopt.Make(snap, o)
	if !x.flags.stdout {
		if err := x.write(ctx, c, snap, o.Keys, &rep); err != nil {
			return rep, err
		}
	}
	rep.writes = client.Reader().Writes()
	return rep, nil
}

// keys opens the cluster's secrets file, when it has one.
func (x *adoption) keys(c *repo.Cluster) (*adopt.KeyRing, error) {
	if c.Config.SecretsFile == "" {
		if x.flags.secrets {
			return nil, fmt.Errorf("%s: --adopt-secrets: the cluster has no secrets-file: add one with proxops secrets init", c.Config.File)
		}
		return nil, nil
	}
	if x.session.repo.URLMode() {
		return nil, nil // the file is in a commit, not on disk; keys then stay where they are
	}
	doc, err := sops.Open(filepath.Join(c.Tree.Root, filepath.FromSlash(c.Config.SecretsFile)), sops.EnvFrom(x.app.environ))
	if err != nil {
		return nil, err
	}
	return adopt.NewKeyRing(doc, x.flags.secrets), nil
}

// write writes what was adopted: first the keys that manifests refer to.
func (x *adoption) write(ctx context.Context, c *repo.Cluster, snap *live.Snapshot, keys *adopt.KeyRing, rep *adoptReport) error {
	if err := keys.Save(ctx); err != nil {
		return err
	}
	if keys != nil {
		rep.added = keys.Added
	}
	var err error
	if rep.files, err = adopt.Write(c.Tree.Root, rep.res.Manifests, x.flags.force); err != nil {
		return err
	}
	if rep.proposal, err = adopt.Propose(c.Tree.Root, c.Name, adopt.Lines(rep.res.Manifests)); err != nil {
		return err
	}
	if x.flags.compose && len(rep.proposal.New) > 0 {
		if err := rep.proposal.Save(c.Tree.Root); err != nil {
			return err
		}
		rep.proposed = true
	}
	if !x.flags.check {
		return nil
	}
	if st := x.session.repo.Sync(ctx); st.Err != nil {
		return st.Err
	}
	var further []string
	for _, m := range rep.res.Manifests {
		further = append(further, m.File)
	}
	composed, err := x.session.repo.LoadWith(ctx, c.Name, further)
	if err != nil {
		return fmt.Errorf("%s: the check could not compose what was written: %w", c.Name, err)
	}
	checked := adopt.Check(composed, snap, rep.files)
	rep.checked = &checked
	return nil
}

// finish prints the reports and gives the exit code.
func (x *adoption) finish(reports []adoptReport) error {
	var results []adopt.Result
	for _, r := range reports {
		results = append(results, r.res)
	}
	all, err := x.session.repo.Clusters()
	if err != nil {
		return err
	}
	shared := adopt.SharedFiles(x.session.repo.Tree(), all, results)
	switch {
	case x.flags.output == "json":
		err = adoptJSON(x.app.out, reports, shared)
	case x.flags.stdout:
		for _, r := range reports {
			if _, err := x.app.out.Write(r.res.Stream()); err != nil {
				return err
			}
		}
		x.text(x.app.err, reports, shared)
	default:
		x.text(x.app.out, reports, shared)
	}
	if err != nil {
		return err
	}
	for _, r := range reports {
		if r.failed() {
			return exit(1)
		}
	}
	return nil
}

func (r adoptReport) failed() bool {
	if r.writes != 0 || !r.res.Complete || r.checked != nil && len(r.checked.Bugs) > 0 {
		return true
	}
	for _, m := range r.res.Manifests {
		if m.Fault != "" {
			return true
		}
	}
	return false
}

// completeSelect completes the keys of --select, and after kind= the kinds.
func completeSelect(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	list, ok := strings.CutPrefix(typed, "kind=")
	if !ok {
		return []string{"tag=", "pool=", "vmid=", "name=", "kind="}, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	before := list[:strings.LastIndexByte(list, ',')+1]
	var out []string
	for _, k := range kind.All {
		out = append(out, "kind="+before+k.Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
