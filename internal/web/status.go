package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
)

// Status is the document at /status. With several clusters last_cycle sums
// them up, and clusters has each one's own.
type Status struct {
	ProcessStart time.Time `json:"process_start"`
	Version      string    `json:"version"`
	Agent        string    `json:"agent"`
	// LastCycle sums up the last cycles of the clusters of this agent: figures
	// are added; started_at is the earliest and finished_at the latest; commit
	// is that of the cluster that finished last; desired_stale and aborted hold
	// if they hold for one, read_only if it holds for all; abort_reason names
	// each cluster. null before the first cycle has ended.
	LastCycle  *CycleStatus    `json:"last_cycle"`
	Clusters   []ClusterStatus `json:"clusters"`
	Objects    []ObjectStatus  `json:"objects"`
	Agents     []Agent         `json:"agents"`
	Repository RepoStatus      `json:"repository"`
}

// RepoStatus is the state of the desired side.
type RepoStatus struct {
	Source string     `json:"source"`
	Commit string     `json:"commit"`
	Dirty  bool       `json:"dirty"` // files differ from the commit, and are desired as they are
	Stale  bool       `json:"stale"`
	Since  *time.Time `json:"stale_since"`
	Error  string     `json:"error"`
}

// CycleStatus is a cycle's figures.
type CycleStatus struct {
	Commit        string    `json:"commit"`
	Dirty         bool      `json:"dirty"` // uncommitted edits were planned on top of the commit
	StartedAt     time.Time `json:"started_at"`
	FinishedAt    time.Time `json:"finished_at"`
	Objects       int       `json:"objects"`
	ActionsOK     int       `json:"actions_ok"`
	ActionsError  int       `json:"actions_error"`
	Pruned        int       `json:"pruned"`
	PruneDeferred int       `json:"prune_deferred"`
	Skipped       int       `json:"skipped"`
	Anomalies     int       `json:"anomalies"`
	DesiredStale  bool      `json:"desired_stale"`
	ReadOnly      bool      `json:"read_only"`
	Aborted       bool      `json:"aborted"`
	AbortReason   string    `json:"abort_reason"`
}

// ClusterStatus is one cluster and its loop.
type ClusterStatus struct {
	Name      string       `json:"name"`
	State     string       `json:"state"`  // in words: reconcile.Standing.State
	States    StateCounts  `json:"states"` // declared objects by state
	Held      []Held       `json:"held"`   // deletes that a guard holds back
	Anomalies []Anomaly    `json:"anomalies"`
	Owner     string       `json:"owner"` // the agent that reconciles it
	Mine      bool         `json:"mine"`
	Running   bool         `json:"running"`
	NextCycle *time.Time   `json:"next_cycle_at"`
	Failures  int          `json:"failures"` // cycles in a row that broke off
	Cycles    int64        `json:"cycles"`
	LastCycle *CycleStatus `json:"last_cycle"`
}

// StateCounts are numbers of declared objects by state; those that are 0 are
// left out. An object in several places counts once, in the worst state.
type StateCounts map[plan.ObjectState]int

// Held is a delete that a guard holds back.
type Held struct {
	Kind string `json:"kind"` // "" when it is not known
	Name string `json:"name"`
	Node string `json:"node"`
	ID   string `json:"id"`
	Rule string `json:"rule"`
	Text string `json:"text"`
	Todo string `json:"todo"`
}

// Anomaly is what a cycle found and leaves to a person: of a declared object,
// whatever its state, or of a guest that is none.
type Anomaly struct {
	Kind string `json:"kind"` // "" when it is not known
	Name string `json:"name"`
	Node string `json:"node"`
	ID   string `json:"id"`
	Path string `json:"path"` // of the manifest's field, "" for the whole guest
	Text string `json:"text"`
	Todo string `json:"todo"`
}

// ObjectStatus is one object, in one of its places.
type ObjectStatus struct {
	Cluster         string     `json:"cluster"`
	Kind            string     `json:"kind"`
	Name            string     `json:"name"`
	Node            string     `json:"node"`
	ID              string     `json:"id"`
	State           string     `json:"state"`
	Why             string     `json:"why"`
	LastAction      string     `json:"last_action"`
	LastError       string     `json:"last_error"`
	LastConvergedAt *time.Time `json:"last_converged_at"`
	PruneReason     string     `json:"prune_reason"`
	UpdatedAt       *time.Time `json:"updated_at"`
}

// StatusOf makes the document of a snapshot. What another agent reconciles is
// listed without figures: that agent has them.
func StatusOf(s Snapshot) Status {
	out := Status{ProcessStart: s.Process.Start.UTC(), Version: s.Process.Version, Agent: s.Process.Agent, Agents: s.Agents,
		Clusters: []ClusterStatus{}, Objects: []ObjectStatus{},
		Repository: RepoStatus{Source: s.Repo.Source, Commit: s.Repo.Commit, Dirty: s.Repo.Dirty, Stale: s.Repo.Stale, Since: when(s.Repo.Since)}}
	if s.Repo.Err != nil {
		out.Repository.Error = s.Repo.Err.Error()
	}
	allReadOnly := true
	for _, c := range s.Clusters {
		cs := ClusterStatus{Name: c.Cluster, State: c.State(), States: StateCounts{}, Held: []Held{}, Anomalies: []Anomaly{}, Owner: c.Owner, Mine: c.Mine, Running: c.Running, NextCycle: when(c.Next), Failures: c.Failures, Cycles: c.Cycles}
		if c.Report != nil && c.Mine {
			cs.States, cs.Held = reconcile.StatesOf(c.Objects()), append(cs.Held, heldOf(c.Report)...)
			cs.Anomalies = append(cs.Anomalies, anomaliesOf(c.Report)...)
			cycle := cycleOf(c.Report)
			cs.LastCycle = &cycle
			out.LastCycle = sum(out.LastCycle, c.Cluster, cycle)
			allReadOnly = allReadOnly && cycle.ReadOnly
			out.Objects = append(out.Objects, objects(c)...)
		}
		out.Clusters = append(out.Clusters, cs)
	}
	if out.LastCycle != nil {
		out.LastCycle.ReadOnly = allReadOnly
	}
	return out
}

func cycleOf(r *reconcile.Report) CycleStatus {
	n := r.Counts()
	c := CycleStatus{Commit: r.Commit, Dirty: r.Dirty, StartedAt: r.Started.UTC(), FinishedAt: r.Finished.UTC(), Objects: n.Objects, ActionsOK: n.ActionsOK,
		ActionsError: n.ActionsError, Pruned: n.Pruned, PruneDeferred: n.PruneDeferred, Skipped: n.Skipped, Anomalies: n.Anomalies,
		DesiredStale: r.Stale, ReadOnly: r.ReadOnly}
	if r.Abort != nil {
		c.Aborted, c.AbortReason = true, r.Abort.Error()
	}
	return c
}

func heldOf(r *reconcile.Report) []Held {
	var out []Held
	for _, s := range r.Plan.Suppressed {
		h := Held{Name: s.Name, Node: s.Node, ID: strconv.Itoa(s.VMID), Rule: s.Rule, Text: s.Text, Todo: s.Todo}
		if s.Kind != nil {
			h.Kind = s.Kind.Name
		}
		out = append(out, h)
	}
	return out
}

func anomaliesOf(r *reconcile.Report) []Anomaly {
	var out []Anomaly
	for _, a := range r.Plan.Anomalies {
		out = append(out, Anomaly{a.Ref.Kind, a.Ref.Name, a.Node, a.ID, a.Path, a.Text, a.Todo})
	}
	return out
}

func sum(total *CycleStatus, cluster string, c CycleStatus) *CycleStatus {
	reason := ""
	if c.Aborted {
		reason = c.AbortReason
		if !strings.HasPrefix(reason, cluster+": ") {
			reason = cluster + ": " + reason
		}
	}
	if total == nil {
		c.AbortReason = reason
		return &c
	}
	t := *total
	if c.FinishedAt.After(t.FinishedAt) {
		t.FinishedAt, t.Commit, t.Dirty = c.FinishedAt, c.Commit, c.Dirty
	}
	if c.StartedAt.Before(t.StartedAt) {
		t.StartedAt = c.StartedAt
	}
	t.Objects += c.Objects
	t.ActionsOK += c.ActionsOK
	t.ActionsError += c.ActionsError
	t.Pruned += c.Pruned
	t.PruneDeferred += c.PruneDeferred
	t.Skipped += c.Skipped
	t.Anomalies += c.Anomalies
	t.DesiredStale = t.DesiredStale || c.DesiredStale
	t.Aborted = t.Aborted || c.Aborted
	if reason != "" {
		t.AbortReason = strings.TrimPrefix(t.AbortReason+"; "+reason, "; ")
	}
	return &t
}

// objects are a cluster's objects; those with an action under way say so.
func objects(c reconcile.Standing) []ObjectStatus {
	var out []ObjectStatus
	for _, o := range c.Objects() {
		out = append(out, ObjectStatus{Cluster: c.Cluster, Kind: o.Kind, Name: o.Name, Node: o.Node, ID: o.ID, State: string(o.State), Why: o.Why,
			LastAction: string(o.LastAction), LastError: o.LastError, LastConvergedAt: when(o.Converged), PruneReason: o.PruneReason, UpdatedAt: when(o.Updated)})
	}
	return out
}

// when is a time for JSON: UTC, and null for the zero time.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	u := t.UTC()
	return &u
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(StatusOf(s.store.Snapshot())); err != nil {
		s.cfg.Log.Debug("answering /status", "err", fmt.Sprint(err))
	}
}
