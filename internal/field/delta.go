package field

import "github.com/proxops/proxops/internal/wire"

// Entry is one key of a guest's configuration as GET …/pending tells it.
type Entry struct {
	Value   *string // what runs now; nil = the key is only pending
	Pending *string // the value PVE holds until a restart; nil = none
	Delete  bool    // PVE holds the key's deletion until a restart
}

// Effective is the value after the next restart, and whether there is one.
func (e Entry) Effective() (string, bool) {
	switch {
	case e.Pending != nil:
		return *e.Pending, true
	case e.Delete || e.Value == nil:
		return "", false
	}
	return *e.Value, true
}

// Guest is what a diff must know of a live guest. The zero value is no guest.
type Guest struct {
	Exists  bool
	LXC     bool
	Running bool
	Config  map[string]Entry // every key; pool membership as the key "pool"
	Env     Env
}

// Get is the effective text of key.
func (g *Guest) Get(key string) (string, bool) {
	if g == nil {
		return "", false
	}
	e, ok := g.Config[key]
	if !ok {
		return "", false
	}
	return e.Effective()
}

// Runs reports whether key is part of what runs now: a value that is only
// pending is not.
func (g *Guest) Runs(key string) bool {
	return g != nil && g.Config[key].Value != nil
}

// Change is one owned field whose live value is not the wanted one. An absent
// side is nil.
type Change struct {
	Path string      `json:"path"`
	Key  string      `json:"key"` // PVE key, with the token behind a dot: net0.tag
	Old  *wire.Value `json:"old"`
	New  *wire.Value `json:"new"`
	// Running is what the guest runs with where that is neither Old nor New: Old
	// then only waits for a restart. nil = there is no such third value, or
	// nothing runs with one.
	Running *wire.Value `json:"running,omitempty"`
	// Impact is what this change does to the running guest.
	Impact Impact `json:"-"`
}

// Edit is what one config write does to one key.
type Edit struct {
	Key    string
	Value  wire.Value
	Delete bool
	Create bool // the value is a create form: it allocates a volume
	// Storage is where a create form allocates; "" otherwise.
	Storage  string
	Impact   Impact
	RootOnly string // who may write it, when not everybody with rights
	// RootPaths are the fields that RootOnly is about.
	RootPaths []string
	Changes   []Change
}

// Grow is one call of PVE's resize.
type Grow struct {
	Key      string
	From, To wire.Size
	Change   Change
}

// Anomaly is something that ProxOps sees and does not touch.
type Anomaly struct {
	Path string `json:"path"`
	Text string `json:"text"`
	Todo string `json:"todo"` // what the operator can do
}

// Delta is all that separates a live guest from its manifest.
type Delta struct {
	Edits     []Edit
	Grows     []Grow
	Anomalies []Anomaly
	Waiting   []Change // owned keys whose wanted value PVE holds pending until the next start
}

// Empty reports whether nothing is to be written.
func (d Delta) Empty() bool { return len(d.Edits) == 0 && len(d.Grows) == 0 }
