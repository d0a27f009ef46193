package repo

import (
	"time"

	"github.com/proxops/proxops/internal/secret"
)

// Settings are the process-wide settings in force: defaults, then
// proxops.yaml, then the environment (credentials only), then flags.
type Settings struct {
	File string // the proxops.yaml read; "" = none

	Log          LogSettings
	PVE          PVESettings
	Git          GitSettings
	Reconcile    Reconcile
	PollInterval time.Duration // between two looks at git and PVE
	Listen       string        // host:port of the daemon's HTTP server
	ListenAuth   string        // entry of the process's secrets that holds the bearer token; "" = none
	ListenTLS    ListenTLS
	WebhookAuth  string // entry of the process's secrets that push webhooks are signed with
	DataDir      string
	SecretsFile  string // SOPS file of the process's own secrets, absolute; "" = none
	Notify       []Notification
	Etcd         Etcd
}

// LogSettings are log.*.
type LogSettings struct{ Level, Format string }

// PVESettings are the bootstrap credentials pve.*, for clusters without a
// secrets-file.
type PVESettings struct {
	Auth       string // token or ticket; "" = by what is given
	User       string
	TokenID    string
	Token      secret.Text
	TokenValue secret.Text // user@realm!name=uuid
	Password   secret.Text
	CAFile     string // absolute
}

// GitSettings are git.*: where the desired state comes from in URL mode.
type GitSettings struct {
	URL            string
	Branch         string // a branch, tag or 40-digit commit; "" = the remote's HEAD
	Token          secret.Text
	SSHKey         string // absolute, as are the next three
	KnownHosts     string
	CAFile         string
	AllowedSigners string
	MaxPacks       int
	Status         StatusSettings
}

// StatusSettings are git.status.*: telling the forge what became of a commit.
type StatusSettings struct {
	Provider   string // github, gitlab, gitea or forgejo; "" = nothing is told
	APIURL     string // "" = derived from git.url
	Repository string // owner/name; "" = derived from git.url
	Token      string // entry of the process's secrets; "" = the git token
	Link       string // where a status leads to, such as the dashboard's URL
}

// ListenTLS are listen-tls.*: client certificates for a listener beyond
// loopback. The paths are absolute.
type ListenTLS struct{ CertFile, KeyFile, ClientCAFile string }

// NotifyEvents are the events that notifications can tell.
var NotifyEvents = []string{"drift", "corrected", "failed", "recovered", "anomaly", "prune-suppressed"}

// Notification is one entry of notifications.
type Notification struct {
	Name     string
	URL      string   // entry of the process's secrets that holds the service URL
	Events   []string // none = all
	Clusters []string // none = all
	Template string   // Go template of the text; "" = the built-in one
}

// Etcd are coordination.etcd.*. The paths are absolute.
type Etcd struct {
	Endpoints []string // none = this agent is alone
	CAFile    string
	CertFile  string
	KeyFile   string
	User      string
	Password  string // entry of the process's secrets
	Prefix    string
	Lease     time.Duration
}

// Reconcile are the reconcile.* settings in force for one cluster.
type Reconcile struct {
	PruneBudget    int    // deletes per cycle; 0 = unlimited
	Prune          string // "" (git decides) or "tagged"
	RestartPolicy  string // never, immediate, window
	RestartWindow  string // see ParseWindow
	MaxDisruptions int    // stop+start steps at a time
	TaskTimeout    time.Duration
	BusyAlarm      time.Duration // a guest that is held for longer is an anomaly
	ReadOnly       bool          // drift is reported, never corrected
}

// Overrides are the flags of the command line; nil and "" mean not given.
type Overrides struct {
	Config      string
	GitPath     string
	GitURL      string
	GitBranch   string
	GitPollSec  *int
	LogLevel    string
	Listen      string
	PruneBudget *int
	PVEUser     string
	PVEAuth     string
	CAFile      string
	ReadOnly    *bool
}

func defaults() *Settings {
	return &Settings{
		Log:          LogSettings{Level: "info", Format: "text"},
		PollInterval: 30 * time.Second,
		Listen:       "127.0.0.1:9494",
		Reconcile: Reconcile{
			PruneBudget: 3, RestartPolicy: "never", MaxDisruptions: 1, TaskTimeout: 30 * time.Minute, BusyAlarm: 6 * time.Hour,
		},
		Git:  GitSettings{MaxPacks: 200},
		Etcd: Etcd{Prefix: "/proxops", Lease: 15 * time.Second},
	}
}
