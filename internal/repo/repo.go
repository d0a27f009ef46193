// Package repo reads a ProxOps repository: its root, configuration,
// compositions and manifests, with references and secrets resolved.
package repo

import (
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/secret"
)

// Cluster is the desired state of one cluster and how to reach it.
type Cluster struct {
	Name      string
	Config    ClusterConfig
	Resources []*kind.Resource // in composition order, references bound
	Levels    [][]kind.Ref     // level 0 first
	Commit    string           // the commit that holds it; "" when none
	Dirty     bool             // composed files differ from the commit
	Warnings  []string
	Secrets   Secrets
	Reconcile Reconcile
}

// ClusterConfig is one entry pve.clusters.<name>.
type ClusterConfig struct {
	Name        string
	BaseURL     string
	Endpoints   []string
	Nodes       []string
	Auth        string // token or ticket
	CAFile      string
	Fingerprint string
	SecretsFile string
	File        string // the config.yaml it stands in
}

// Secrets are the credentials of one cluster, resolved.
type Secrets struct {
	User     string
	TokenID  string // user@realm!name
	Token    secret.Text
	Password secret.Text
	GitToken secret.Text
	Source   string // where they come from, for messages: environment, proxops.yaml, a file
}

// Reconcile are the reconcile.* settings in force for one cluster.
type Reconcile struct {
	PruneBudget    int    // deletes per cycle; 0 = unlimited
	Prune          string // "" (git decides) or "tagged"
	RestartPolicy  string // never, immediate, window
	RestartWindow  string
	MaxDisruptions int
}
