package repo

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/proxops/proxops/internal/yamldoc"
)

// Key is one setting of proxops.yaml or of a cluster's entry. The tables of
// keys are the only lists of settings: the reader, the message for an unknown
// key and docs/reference-config.md come from them.
type Key[S any] struct {
	Path    string // dotted, below the document or the cluster's entry
	Takes   string // for docs and messages
	Default string // for docs
	Doc     string
	Env     string // environment variable that overrides it
	Flag    string // flag that overrides it
	load    func(s *S, n *yamldoc.Node) error
}

// ProcessKeys are the settings of proxops.yaml.
var ProcessKeys = []Key[Settings]{
	oneOf("log.level", "info", "what is logged, from this level up",
		func(s *Settings) *string { return &s.Log.Level }, "debug", "info", "warn", "error").flag("--log-level"),
	oneOf("log.format", "text", "lines for people, or JSON for machines",
		func(s *Settings) *string { return &s.Log.Format }, "text", "json"),

	oneOf("pve.auth", "by the credentials given", "how to log in to PVE: an API token, or a ticket got with a password",
		func(s *Settings) *string { return &s.PVE.Auth }, "token", "ticket").flag("--pve-auth"),
	text("pve.user", "user@realm, or user@realm!id", "", "PVE user, for clusters without a secrets-file",
		func(s *Settings) *string { return &s.PVE.User }).env("PROXOPS_PVE_USER").flag("--pve-user"),
	text("pve.token-id", "id, or user@realm!id", "", "name of the user's API token",
		func(s *Settings) *string { return &s.PVE.TokenID }).env("PROXOPS_PVE_TOKEN_ID"),
	hidden("pve.token", "UUID", "secret of that API token",
		func(s *Settings) *secretText { return &s.PVE.Token }).env("PROXOPS_PVE_TOKEN"),
	hidden("pve.token-value", "user@realm!id=UUID", "user, token and secret in one; wins over the three above",
		func(s *Settings) *secretText { return &s.PVE.TokenValue }).env("PROXOPS_PVE_TOKEN_VALUE"),
	hidden("pve.password", "text", "password of the user, for pve.auth: ticket",
		func(s *Settings) *secretText { return &s.PVE.Password }).env("PROXOPS_PVE_PASSWORD"),
	text("pve.ca-file", "path", "the system's roots", "PEM file of the authority that signs the clusters' certificates",
		func(s *Settings) *string { return &s.PVE.CAFile }).flag("--ca-file"),

	text("git.url", "URL", "the work tree around the working directory", "repository to clone and follow instead of a local work tree: https, ssh, or a path",
		func(s *Settings) *string { return &s.Git.URL }).flag("--git-url"),
	text("git.branch", "name", "the remote's HEAD", "branch, tag or full commit hash to follow",
		func(s *Settings) *string { return &s.Git.Branch }).flag("--git-branch"),
	hidden("git.token", "text", "token for the first clone over https; later fetches prefer the clusters' secrets.git.token",
		func(s *Settings) *secretText { return &s.Git.Token }).env("PROXOPS_GIT_TOKEN"),
	text("git.ssh-key", "path", "the SSH agent", "private key for an ssh URL, without a passphrase",
		func(s *Settings) *string { return &s.Git.SSHKey }),
	text("git.known-hosts", "path", "the user's and the system's", "host keys to accept for an ssh URL",
		func(s *Settings) *string { return &s.Git.KnownHosts }),
	text("git.ca-file", "path", "the system's roots", "PEM file of a further authority for an https URL",
		func(s *Settings) *string { return &s.Git.CAFile }),
	text("git.verify.allowed-signers", "path", "signatures are not asked for", "only heads signed by a key in this file are reconciled; OpenSSH's allowed_signers format, with armored OpenPGP keys between the lines",
		func(s *Settings) *string { return &s.Git.AllowedSigners }),
	number("git.max-packs", 2, 100000, "200", "packs that the mirror may gather before it is cloned anew",
		func(s *Settings) *int { return &s.Git.MaxPacks }),
	oneOf("git.status.provider", "nothing is told", "tell this kind of forge, on each commit, what became of it on each cluster",
		func(s *Settings) *string { return &s.Git.Status.Provider }, "github", "gitlab", "gitea", "forgejo"),
	text("git.status.api-url", "URL", "from git.url", "the forge's API, such as https://git.example.org/api/v4",
		func(s *Settings) *string { return &s.Git.Status.APIURL }),
	text("git.status.repository", "owner/name", "from git.url", "the repository's name in the forge",
		func(s *Settings) *string { return &s.Git.Status.Repository }),
	text("git.status.token", "key of the secrets file", "the git token", "entry of secrets: that holds a token that may write commit statuses",
		func(s *Settings) *string { return &s.Git.Status.Token }),
	text("git.status.link", "URL", "", "where a commit's status leads to, such as the dashboard",
		func(s *Settings) *string { return &s.Git.Status.Link }),

	duration("reconcile.poll-interval", "30s", "between two looks at git and PVE",
		func(s *Settings) *timeDuration { return &s.PollInterval }).flag("--git-poll-sec"),
	text("listen", "host:port", "127.0.0.1:9494", "address of the daemon's HTTP server; beyond loopback it needs listen-auth or listen-tls.client-ca-file",
		func(s *Settings) *string { return &s.Listen }).flag("--listen"),
	text("listen-auth", "key of the secrets file", "", "entry of secrets: that holds the bearer token for the HTTP server",
		func(s *Settings) *string { return &s.ListenAuth }).env("PROXOPS_LISTEN_AUTH"),
	text("listen-tls.cert-file", "path", "", "certificate of the HTTP server",
		func(s *Settings) *string { return &s.ListenTLS.CertFile }),
	text("listen-tls.key-file", "path", "", "key of that certificate",
		func(s *Settings) *string { return &s.ListenTLS.KeyFile }),
	text("listen-tls.client-ca-file", "path", "", "authority whose client certificates are let in",
		func(s *Settings) *string { return &s.ListenTLS.ClientCAFile }),
	text("webhook-auth", "key of the secrets file", "", "entry of secrets: that push webhooks are checked with",
		func(s *Settings) *string { return &s.WebhookAuth }),
	text("data-dir", "path", "$XDG_DATA_HOME/proxops", "mirrors of URL mode, and the journal",
		func(s *Settings) *string { return &s.DataDir }),
	text("secrets-file", "path", "", "SOPS file with the process's own secrets",
		func(s *Settings) *string { return &s.SecretsFile }),
	{Path: "notifications", Takes: "list of {name, url, events, clusters, template}",
		Doc:  "whom to tell what; url is the entry of secrets: that holds the service's URL",
		load: loadNotifications},

	list("coordination.etcd.endpoints", "list of URL", "this agent is alone", "etcd servers through which several agents share the clusters",
		func(s *Settings) *[]string { return &s.Etcd.Endpoints }),
	text("coordination.etcd.ca-file", "path", "", "authority of the etcd servers",
		func(s *Settings) *string { return &s.Etcd.CAFile }),
	text("coordination.etcd.cert-file", "path", "", "client certificate for etcd",
		func(s *Settings) *string { return &s.Etcd.CertFile }),
	text("coordination.etcd.key-file", "path", "", "key of that certificate",
		func(s *Settings) *string { return &s.Etcd.KeyFile }),
	text("coordination.etcd.user", "text", "", "etcd user",
		func(s *Settings) *string { return &s.Etcd.User }),
	text("coordination.etcd.password", "key of the secrets file", "", "entry of secrets: that holds the etcd user's password",
		func(s *Settings) *string { return &s.Etcd.Password }),
	text("coordination.etcd.prefix", "text", "/proxops", "prefix of the keys in etcd",
		func(s *Settings) *string { return &s.Etcd.Prefix }),
	duration("coordination.etcd.lease", "15s", "how long a dead agent keeps its clusters",
		func(s *Settings) *timeDuration { return &s.Etcd.Lease }),
}

// ReconcileKeys may stand in proxops.yaml, for all clusters, and in a
// cluster's entry, where they win.
var ReconcileKeys = []Key[Reconcile]{
	duration("reconcile.task-timeout", "30m", "how long a PVE task may take before it counts as failed",
		func(r *Reconcile) *timeDuration { return &r.TaskTimeout }),
	number("reconcile.prune-budget", 0, 1000000, "3", "deletes per cluster and cycle; 0 is unlimited",
		func(r *Reconcile) *int { return &r.PruneBudget }).flag("--prune-budget"),
	oneOf("reconcile.prune", "git decides", "tagged deletes by the ownership tag alone, without asking git who removed the declaration",
		func(r *Reconcile) *string { return &r.Prune }, "tagged"),
	oneOf("reconcile.restart-policy", "never", "what to do when a change takes effect only after a stop and start",
		func(r *Reconcile) *string { return &r.RestartPolicy }, "never", "immediate", "window"),
	checked("reconcile.restart-window", "minute hour day month weekday duration [zone]", "", "when restart-policy: window may restart guests, such as 0 3 * * sun 2h Europe/Berlin; no guest is taken down after its end",
		func(r *Reconcile) *string { return &r.RestartWindow }, func(v string) error { _, err := ParseWindow(v); return err }),
	number("reconcile.max-disruptions", 1, 1000, "1", "guests of a cluster that may be restarted at a time",
		func(r *Reconcile) *int { return &r.MaxDisruptions }),
	duration("reconcile.busy-alarm", "6h", "how long a guest may be locked or worked on by a task before that is an anomaly",
		func(r *Reconcile) *timeDuration { return &r.BusyAlarm }),
	truth("reconcile.read-only", "false", "report drift, never correct it",
		func(r *Reconcile) *bool { return &r.ReadOnly }).flag("--read-only"),
}

// ClusterKeys are the settings of the entry pve.clusters.<name>.
var ClusterKeys = []Key[entry]{
	text("base-url", "https://host[:8006]", "", "PVE's API; plain http only to a loopback address",
		func(e *entry) *string { return &e.BaseURL }),
	list("endpoints", "list of URL", "", "further URLs of the same cluster, tried on network errors only",
		func(e *entry) *[]string { return &e.Endpoints }),
	list("nodes", "list of node name", "", "the nodes that are read, written and pruned; no other is",
		func(e *entry) *[]string { return &e.Nodes }),
	vmids("VM", "VMs", func(v *VMIDRanges) *string { return &v.VM }),
	vmids("LXC", "containers", func(v *VMIDRanges) *string { return &v.LXC }),
	vmids("TemplateVM", "VM templates", func(v *VMIDRanges) *string { return &v.TemplateVM }),
	vmids("TemplateCT", "container templates", func(v *VMIDRanges) *string { return &v.TemplateCT }),
	oneOf("auth", "pve.auth", "how to log in to this cluster",
		func(e *entry) *string { return &e.Auth }, "token", "ticket"),
	text("ca-file", "path", "pve.ca-file", "PEM file of the authority that signs the cluster's certificates, from this file's directory",
		func(e *entry) *string { return &e.CAFile }),
	checked("fingerprint", "32 hex pairs", "", "SHA-256 of the server's certificate",
		func(e *entry) *string { return &e.Fingerprint }, checkFingerprint),
	text("secrets-file", "path", "", "SOPS file with the cluster's credentials, from this file's directory; a cluster that has one uses no others",
		func(e *entry) *string { return &e.SecretsFile }),
	text("secrets.pve.user", "key of the secrets file", "", "entry of secrets: that holds the user",
		func(e *entry) *string { return &e.refs.user }),
	text("secrets.pve.token-id", "key of the secrets file", "", "entry of secrets: that holds the token's name",
		func(e *entry) *string { return &e.refs.tokenID }),
	text("secrets.pve.token", "key of the secrets file", "", "entry of secrets: that holds the token's secret, or user@realm!id=UUID",
		func(e *entry) *string { return &e.refs.token }),
	text("secrets.pve.password", "key of the secrets file", "", "entry of secrets: that holds the password",
		func(e *entry) *string { return &e.refs.password }),
	text("secrets.git.token", "key of the secrets file", "", "entry of secrets: that holds the token for git.url",
		func(e *entry) *string { return &e.refs.gitToken }),
}

func vmids(kindName, what string, of func(*VMIDRanges) *string) Key[entry] {
	return checked("vmid-ranges."+kindName, "ranges such as 100-199,300-399", "any", "the vmids that manifests of "+what+" may have in this cluster",
		func(e *entry) *string { return of(&e.VMIDRanges) }, func(v string) error { _, err := ParseVMIDRanges(v); return err })
}

func (k Key[S]) env(name string) Key[S]  { k.Env = name; return k }
func (k Key[S]) flag(name string) Key[S] { k.Flag = name; return k }

func loadNotifications(s *Settings, n *yamldoc.Node) error {
	if n.Kind != yamldoc.Sequence {
		return fmt.Errorf("is a list of blocks with name and url")
	}
	for i, item := range n.Items {
		var one Notification
		if problems := readKeys("", item, &one, notifyKeys, nil); len(problems) > 0 {
			p := problems[0]
			return fmt.Errorf("[%d].%s: %s", i, p.Path, p.Text)
		}
		if one.Name == "" || one.URL == "" {
			return fmt.Errorf("[%d]: needs name and url", i)
		}
		if err := checkNotification(one, s.Notify); err != nil {
			return fmt.Errorf("[%d].%w", i, err)
		}
		s.Notify = append(s.Notify, one)
	}
	return nil
}

// checkNotification finds what would only show when there is something to tell.
func checkNotification(n Notification, others []Notification) error {
	if slices.ContainsFunc(others, func(o Notification) bool { return o.Name == n.Name }) {
		return fmt.Errorf("name: %q is there twice", n.Name)
	}
	for _, e := range n.Events {
		if !slices.Contains(NotifyEvents, e) {
			return fmt.Errorf("events: %q is not an event: there are %s", e, strings.Join(NotifyEvents, ", "))
		}
	}
	if strings.Contains(n.URL, "://") {
		return errors.New("url: is the name of an entry of the secrets-file, not the URL itself, which is a secret")
	}
	if _, err := template.New("template").Funcs(template.FuncMap{"json": json.Marshal}).Parse(n.Template); err != nil {
		return errors.New(strings.Replace(err.Error(), "template: template:", "template: line ", 1))
	}
	return nil
}

var notifyKeys = []Key[Notification]{
	text("name", "text", "", "name in messages", func(n *Notification) *string { return &n.Name }),
	text("url", "key of the secrets file", "", "entry of secrets: with the service URL", func(n *Notification) *string { return &n.URL }),
	list("events", "list of event", "all", "what to tell: "+strings.Join(NotifyEvents, ", "), func(n *Notification) *[]string { return &n.Events }),
	list("clusters", "list of cluster", "all", "of which clusters", func(n *Notification) *[]string { return &n.Clusters }),
	text("template", "Go template", "built in", "the text", func(n *Notification) *string { return &n.Template }),
}
