// Package plan turns a desired cluster and a snapshot into a Plan. It is pure:
// data in, data out, no PVE, no clock, no git.
package plan

import (
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/live"
	"github.com/proxops/proxops/internal/wire"
)

// Verb is what an action does, as shown.
type Verb string

// The verbs, in the order of their execution on one object.
const (
	Download     Verb = "Download"
	Create       Verb = "Create"
	Clone        Verb = "Clone"
	Migrate      Verb = "Migrate"
	Update       Verb = "Update"
	Resize       Verb = "Resize"
	MarkTemplate Verb = "MarkTemplate"
	Restart      Verb = "Restart"
	Start        Verb = "Start"
	Stop         Verb = "Stop"
	Delete       Verb = "Delete"
)

// Action is one thing to do to one object.
type Action struct {
	Verb    Verb
	Ref     kind.Ref
	Kind    *kind.Kind
	Node    string
	VMID    int    // 0 for artifacts
	ID      string // as shown: the vmid, or the volume id of an artifact
	Level   int
	Why     string
	Power   field.Impact // what the action does to a running guest
	Changes []field.Change
	Needs   []kind.Ref // objects whose actions must have succeeded before
	Do      Step
	// Refused says that PVE will refuse this action and why (missing right,
	// root-only field); "" = nothing known against it.
	Refused string
	// Lacks are the rights that Refused is for.
	Lacks []Need
	// RootOnly is true where Refused is certain: PVE refuses the field to every
	// token. Apply then does not even try.
	RootOnly bool
	// Disrupts is true for a step that takes a running guest down to bring it
	// up again; apply runs few of these at a time.
	Disrupts bool
	// Windowed is true for such a step that may only begin while the cluster's
	// restart window is open: the plan found it open, and a long run may not.
	Windowed bool
}

// PowerText says what the action does to a running guest, as plans show it.
// A guest that is to be stopped or deleted does not come back, so that no
// impact of a field describes it; "none" is said as elsewhere.
func (a Action) PowerText() string {
	switch step := a.Do.(type) {
	case DeleteStep:
		if step.Running {
			return "shutdown"
		}
	case PowerStep:
		switch {
		case step.Stop && !step.Start && step.Force:
			return "stop"
		case step.Stop && !step.Start:
			return "shutdown"
		}
	}
	return a.Power.String()
}

// Step is what apply executes; one type per verb family.
type Step interface{ step() }

// DownloadStep fetches an artifact to one node.
type DownloadStep struct {
	Storage, Filename string
	Params            wire.Params
	// Nodes are the nodes that the file then serves: more than the one that
	// fetches it where the storage is shared.
	Nodes []string
}

// CreateStep creates a guest; Mark makes it a template afterwards.
type CreateStep struct {
	Guest    string // qemu or lxc
	Params   wire.Params
	Storages []string // where it allocates
	Mark     bool
	Start    bool
}

// CloneStep clones, then writes the configuration that After computes from the
// clone's own live config.
type CloneStep struct {
	Source   int
	Params   wire.Params
	Storages []string
	// Resource is the desired object: the post-clone write is the plain diff
	// of it against the clone as PVE made it.
	Resource *kind.Resource
	// Description is the template's own text, which a clone gets back when its
	// manifest declares none; "" = it has none.
	Description string
	// Options are what comparing the clone's tags needs.
	Options live.Options
	Start   bool

	nets  map[string]string // the source's cards
	write UpdateStep        // the config write as it follows from the source
}

// UpdateStep is one config write.
type UpdateStep struct {
	Guest    string
	Params   wire.Params
	Delete   []string // keys
	Revert   []string // keys whose pending value is thrown away
	Digest   string
	Storages []string
	Pool     *PoolMove
	// RegenerateCloudInit calls PUT …/cloudinit after the write.
	RegenerateCloudInit bool
}

// PoolMove changes pool membership.
type PoolMove struct{ From, To string }

// ResizeStep grows one volume.
type ResizeStep struct {
	Guest   string
	Key     string
	Storage string
	To      wire.Size
	Digest  string
}

// MarkStep makes a guest a template.
type MarkStep struct{ Guest string }

// PowerStep changes power: start, shutdown (clean) or, only where the manifest
// says so, a hard stop; Restart is shutdown then start.
type PowerStep struct {
	Guest string
	Start bool
	Stop  bool
	Force bool
	HA    bool // HA-managed: state is changed through HA
}

// MigrateStep moves a guest to the node that its manifest names.
type MigrateStep struct {
	Guest  string
	From   string
	To     string
	Params wire.Params // what PVE needs for this guest: online, restart, with-local-disks
}

// DeleteStep deletes a guest that is still what the plan saw when it was read
// again.
type DeleteStep struct {
	Guest    string
	Identity string
	Name     string
	Digest   string   // of the config; "" = not known
	Running  bool     // shut down cleanly first
	Volumes  []string // that go with it: the plan shows them, and no other may be there when it is deleted
	Commit   string   // git's word: what removed the declaration
	// LinkedUnknown names storages on which PVE cannot tell the template's
	// linked clones.
	LinkedUnknown []string
}

func (DownloadStep) step() {}
func (CreateStep) step()   {}
func (CloneStep) step()    {}
func (UpdateStep) step()   {}
func (ResizeStep) step()   {}
func (MarkStep) step()     {}
func (PowerStep) step()    {}
func (MigrateStep) step()  {}
func (DeleteStep) step()   {}

// ObjectState is the state of one object after a cycle, as /status names it.
type ObjectState string

// The states.
const (
	Desired        ObjectState = "desired"
	Drift          ObjectState = "drift"
	Converged      ObjectState = "converged"
	InProgress     ObjectState = "in_progress"
	Failed         ObjectState = "failed"
	Skipped        ObjectState = "skipped" // busy, deferred
	Pruned         ObjectState = "pruned"
	Anomalous      ObjectState = "anomalous"
	WaitingRestart ObjectState = "waiting-restart"
	Unknown        ObjectState = "unknown"
)

// Object is one declared object and what the plan says of it.
type Object struct {
	Ref     kind.Ref
	Kind    *kind.Kind
	Node    string
	VMID    int
	ID      string
	State   ObjectState
	Why     string // busy reason, unknown reason, waiting keys
	Waiting []field.Change
	Todo    string // what ends the wait of Waiting; "" = an action of the plan does
	Needs   []kind.Ref
	Level   int
	File    string
}

// Anomaly is an Anomaly of one object.
type Anomaly struct {
	Ref  kind.Ref
	Node string
	VMID int
	ID   string
	field.Anomaly
}

// ObjectError is an object that cannot be planned: an error of that object;
// the others go on.
type ObjectError struct {
	Ref  kind.Ref
	File string // file:line:column
	Path string
	Text string
}

// Suppressed is a delete that a guard holds back.
type Suppressed struct {
	Kind *kind.Kind
	Name string
	Node string
	VMID int
	Rule string // budget, vanished-kind, incomplete-read, protection, inherited-tag, …
	Text string
	Todo string
}

// Plan is the whole truth about one cycle of one cluster, in a total,
// byte-stable order.
type Plan struct {
	Cluster    string
	Commit     string // of the desired state, "" when none
	Dirty      bool   // the desired state differs from Commit: files are not committed
	Actions    []Action
	Anomalies  []Anomaly
	Errors     []ObjectError
	Suppressed []Suppressed
	Objects    []Object
	Notes      []string // warnings: http without checksum, dirty work tree, …
	Levels     [][]kind.Ref
}
