// Package field describes a manifest field once, as a row bound to one spec.
//
// A field is a function from what PVE says now to what it should say: Create
// is that function applied to nothing, drift is where it is not the identity,
// and converged is its fixed point. Every reader of the rows (load, diff,
// adopt, schema, explain) is one file of this package; no field is listed
// twice anywhere.
package field

import (
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// State is one of the three states of an optional field.
type State int

// Absent is not owned: never written, compared or reported. Null is owned and
// cleared. Set is owned with a value.
const (
	Absent State = iota
	Null
	Set
)

// Opt is an optional value of a spec.
type Opt[V any] struct {
	state State
	v     V
}

// Some is an owned value.
func Some[V any](v V) Opt[V] { return Opt[V]{Set, v} }

// Cleared is the owned null.
func Cleared[V any]() Opt[V] { return Opt[V]{state: Null} }

// Get gives the value and whether there is one.
func (o Opt[V]) Get() (V, bool) { return o.v, o.state == Set }

// Or gives the value, or d when there is none.
func (o Opt[V]) Or(d V) V {
	if o.state == Set {
		return o.v
	}
	return d
}

// State tells absent, null and set apart.
func (o Opt[V]) State() State { return o.state }

// IsSet reports whether there is a value.
func (o Opt[V]) IsSet() bool { return o.state == Set }

// Type says what a field takes, for validation texts, JSON Schema and explain.
type Type struct {
	Name     string   // "string", "integer", "number", "boolean", "size", "list of string", "map"
	Enum     []string // the allowed values in manifest spelling
	Min, Max *float64 // inclusive; nil = open
	Pattern  string   // RE2, anchored
	Examples []string // YAML flow text of valid values, at least one; the laws run over them
	Lines    bool     // the wire text may have several lines
}

// Codec is one spelling pair of a V: the manifest's and PVE's.
type Codec[V any] struct {
	Type  Type
	Parse func(n *yamldoc.Node) (V, error) // from the manifest; the error says what is allowed
	Print func(v V) *yamldoc.Node          // to the manifest, for adopt
	Read  func(wire string) (V, error)     // from PVE's text of this key or token
	Write func(v V) string                 // to PVE's text
	// Equal compares a wanted value with PVE's text; nil means Write(Read(live)) == Write(want).
	Equal func(want V, live string, env Env) bool
	// Merge, when set, computes the new text from the live one (sets that own
	// only some members, such as cpu flags); nil means Write(want).
	Merge func(want V, live string, env Env) string
	// Clear, when set, is what null leaves of the live text ("" removes it);
	// nil removes all of it.
	Clear func(live string) string
}

// Env is what a comparison must know beside the value.
type Env struct {
	TagsCaseSensitive bool // datacenter option tag-style case-sensitive (facts.md H)
	Creating          bool // the object does not exist yet
	AfterClone        bool // this is the write that follows a clone
	// MACPrefix is what PVE draws addresses with (datacenter option mac_prefix);
	// "" = BC:24:11, its own.
	MACPrefix string
}

// Impact says what a change of a key does to a running guest.
type Impact int

// None: the guest is stopped or the key does not concern the running machine.
// Live: takes effect at once. Pending: PVE holds it until the next stop+start.
// Stop is of actions alone: the guest is taken down. PVE takes a change of any
// key while the guest runs.
const (
	None Impact = iota
	Live
	Pending
	Stop
)

// String is the word used in plans and JSON.
func (i Impact) String() string {
	return [...]string{"none", "live", "pending until restart", "stop+start"}[i]
}

// Role says what a row means for a slot that holds a volume.
type Role int

// RoleToken rows are written as a token (or the whole text) of their key. The
// others are read from the slot and guarded: RoleStorage and RoleSize are
// compared and never rewritten; RoleSlot names the key; RoleSource seeds an
// empty slot (image, template) and is not compared; RoleNone is not on the
// wire (state, grow, clone, node).
const (
	RoleToken Role = iota
	RoleStorage
	RoleSize
	RoleSlot
	RoleSource
	RoleNone
	RolePool // create parameter and PUT /pools, not a config key (facts.md I)
)

// Row is one leaf field bound to one spec instance.
type Row struct {
	Name string // in its block, such as "vlan"
	Path string // from the spec, such as "networks[0].vlan"; set by Rows
	Doc  string
	Type Type

	Key   string // PVE's key, such as "net0"; "" for RoleNone
	Token string // the key's token, such as "tag"; "" = the whole text
	Role  Role

	Required      bool
	NullOK        bool   // required, yet null stands for "not known"
	CreateOnly    bool   // sent at create (or after a clone when Identity) and never compared: PVE does not report it
	Fixed         string // when set, drift is an anomaly with this todo text instead of a write
	Default       string // PVE's documented default as wire text: equals a live absence
	HasDefault    bool
	CreateDefault string // wire text sent at create when the field is absent ("" = none)
	Secret        bool
	Names         bool   // with Secret: the manifest holds names of secrets, which may be shown
	WriteIfAbsent bool   // written only when live has none (cipassword)
	Identity      bool   // cloud-init identity: cleared on clones that do not declare it
	Impact        Impact // on a running guest, unless Hotplug applies
	Hotplug       string // "cpu", "memory", "disk", "network", "usb": live when the guest's hotplug list has it
	FilledIn      string // what PVE puts in by itself when it makes the guest: null is content with it ("" = it puts in nothing)
	NotAdopted    bool   // known to adopt, yet left out of what it writes (a MAC that PVE drew)
	RootOnly      string // when set: who may write it, such as "root@pam only"; predicted before writing

	merges bool                            // makes its text out of the live one
	member bool                            // owns part of its token beside other rows
	drawn  func(text string, env Env) bool // values that PVE drew, which are not adopted; nil = none are

	load  func(n *yamldoc.Node) error
	state func() State
	want  func(live string, env Env) string // the text of a set value, made from the live text
	equal func(live string, env Env) bool   // a set value against a live text
	clear func(live string) string          // what null leaves of the live text
	read  func(text string) error
	adopt func(text string) error // read, refusing what a manifest cannot say
	print func() *yamldoc.Node
	spell func(text string) (string, bool)      // PVE's text as a manifest spells it, where that is one word
	wire  func(n *yamldoc.Node) (string, error) // manifest to wire without touching the spec
}

// Node is a part of a spec's shape: *Row, *Block, *List or *Map.
type Node interface{ fieldNode() }

func (*Row) fieldNode()   {}
func (*Block) fieldNode() {}
func (*List) fieldNode()  {}
func (*Map) fieldNode()   {}

// Block is a mapping of a manifest.
type Block struct {
	Name     string
	Doc      string
	Required bool
	Present  func() bool // nil = always
	Alloc    func()      // makes it present; nil = always there
	Nodes    []Node
	Volume   *Volume // set when the block fills a slot that holds a volume
}

// List is a sequence of blocks, such as disks and networks.
type List struct {
	Name     string
	Doc      string
	Required bool // must stand in the manifest (may be empty)
	Present  func() bool
	Len      func() int
	Resize   func(n int) // makes it present with n empty elements
	Elem     func(i int) *Block
}

// Map is a mapping with free keys, such as extra.
type Map struct {
	Name    string
	Doc     string
	Present func() bool
	Alloc   func(keys []string)    // makes it present with these keys
	Keys    func() []string        // in a stable order
	Entry   func(key string) *Row  // the row of one key; its name is the key
	Check   func(key string) error // nil or why the key may not stand here
}

// VolumeKind says how a slot's volume is treated.
type VolumeKind int

// What a volume slot may hold.
const (
	Disk VolumeKind = iota
	EFI
	TPM
	CloudInit
	Rootfs
	MountPoint
)

// Volume is how a slot is filled when it is empty and guarded when it is not.
// The create form is sent only into an empty slot: over a live volume PVE
// allocates a new one every time (facts.md D, claim xix) and breaks a
// container's rootfs (facts.md G).
type Volume struct {
	Key         string
	Path        string // of the block, for messages; set by Rows
	Kind        VolumeKind
	Storage     string
	Size        wire.Size     // wanted bytes; 0 = not compared
	Source      string        // volume id to import from; "" = none
	SeedOnly    bool          // compare pool only (image-seeded)
	Grow        bool          // growing by PVE's resize call is allowed
	FirstToken  string        // the default token of the key: "file" (VM) or "volume" (container)
	CreateText  func() string // the first token's text for an empty slot, such as "local-lvm:32"
	CreateExtra []Token       // further tokens that only the create form carries (import-from, format)
}

// Token is one token of a property string.
type Token struct{ Key, Value string }
