package show

import (
	"encoding/json"
	"io"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/reconcile"
)

type document struct {
	Clusters []cluster `json:"clusters"`
}

type cluster struct {
	Name       string       `json:"name"`
	Commit     string       `json:"commit"`
	Dirty      bool         `json:"dirty"` // files differ from the commit
	Error      *string      `json:"error"`
	Actions    []act        `json:"actions"`
	Anomalies  []anomaly    `json:"anomalies"`
	Suppressed []suppressed `json:"suppressed"`
	Errors     []objError   `json:"errors"`
	Waiting    []waiting    `json:"waiting"`
	Notes      []string     `json:"notes"`
}

type act struct {
	Action  string         `json:"action"`
	Kind    string         `json:"kind"`
	Name    string         `json:"name"`
	Node    string         `json:"node"`
	ID      string         `json:"id"`
	Level   int            `json:"level"`
	Why     string         `json:"why"`
	Power   string         `json:"power"`
	Refused string         `json:"refused,omitempty"`
	Changes []field.Change `json:"changes"`
}

type anomaly struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	ID   string `json:"id"`
	Path string `json:"path"`
	Text string `json:"text"`
	Todo string `json:"todo"`
}

type suppressed struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	Node string `json:"node"`
	ID   int    `json:"id"`
	Rule string `json:"rule"`
	Text string `json:"text"`
	Todo string `json:"todo"`
}

type objError struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	File string `json:"file"`
	Path string `json:"path"`
	Text string `json:"text"`
}

type waiting struct {
	Kind    string         `json:"kind"`
	Name    string         `json:"name"`
	Node    string         `json:"node"`
	ID      string         `json:"id"`
	State   string         `json:"state"`
	Why     string         `json:"why"`
	Todo    string         `json:"todo"`
	Changes []field.Change `json:"changes"`
}

// JSON prints the reports of a diff as one document.
func JSON(w io.Writer, reports []reconcile.Report) error {
	doc := document{Clusters: []cluster{}}
	for _, r := range reports {
		doc.Clusters = append(doc.Clusters, jsonCluster(r))
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

func jsonCluster(r reconcile.Report) cluster {
	c := cluster{Name: r.Cluster, Commit: r.Commit, Dirty: r.Dirty, Actions: []act{}, Anomalies: []anomaly{}, Suppressed: []suppressed{},
		Errors: []objError{}, Waiting: []waiting{}, Notes: append([]string{}, r.Plan.Notes...)}
	if r.Abort != nil {
		text := r.Abort.Error()
		c.Error = &text
	}
	for _, a := range r.Plan.Actions {
		c.Actions = append(c.Actions, act{string(a.Verb), a.Ref.Kind, a.Ref.Name, a.Node, a.ID, a.Level, a.Why, a.PowerText(), a.Refused,
			append([]field.Change{}, a.Changes...)})
	}
	for _, a := range r.Plan.Anomalies {
		c.Anomalies = append(c.Anomalies, anomaly{a.Ref.Kind, a.Ref.Name, a.ID, a.Path, a.Text, a.Todo})
	}
	for _, s := range r.Plan.Suppressed {
		k := ""
		if s.Kind != nil {
			k = s.Kind.Name
		}
		c.Suppressed = append(c.Suppressed, suppressed{k, s.Name, s.Node, s.VMID, s.Rule, s.Text, s.Todo})
	}
	for _, e := range r.Plan.Errors {
		c.Errors = append(c.Errors, objError{e.Ref.Kind, e.Ref.Name, e.File, e.Path, e.Text})
	}
	for _, o := range r.Plan.Objects {
		if state, ok := noted(o); ok {
			c.Waiting = append(c.Waiting, waiting{o.Ref.Kind, o.Ref.Name, o.Node, o.ID, string(state), o.Why, o.Todo, append([]field.Change{}, o.Waiting...)})
		}
	}
	return c
}
