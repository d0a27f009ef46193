// Package kind holds the seven kinds: their structs, field rows, references
// and validation. Differences between kinds are columns of the table All, or
// methods of a Spec; no other package switches on a kind.
package kind

import (
	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/yamldoc"
)

// Kind is one row of the kind table.
type Kind struct {
	Name     string // as in manifests, such as "TemplateVM"
	Folder   string // the kind root, such as "templatevm"
	Guest    string // PVE's API folder, "qemu" or "lxc"; "" for storage artifacts
	Template bool   // the guest is a template
	Content  string // PVE's content type of an artifact: iso, vztmpl or import; "" for guests
	Doc      string // one line for explain and docs
	New      func() Spec
}

// IsGuest reports whether objects of the kind carry a PVE numeric id. Guests
// are tagged and prunable; artifacts are neither.
func (k *Kind) IsGuest() bool { return k.Guest != "" }

// Ref names one object of a cluster.
type Ref struct{ Kind, Name string }

// String is Kind:name, as in the annotation proxops/depends-on.
func (r Ref) String() string { return r.Kind + ":" + r.Name }

// Resource is one manifest.
type Resource struct {
	Kind        *Kind
	Name        string
	Labels      map[string]string
	Annotations Annotations
	Spec        Spec
	File        string           // relative to the repository root, with slashes
	Node        *yamldoc.Node    // the document, for places; nil when no file holds it
	Depends     []Ref            // resolved: structured references and proxops/depends-on, sorted, each once
	Warnings    yamldoc.Problems // advice that stops nothing
}

// Ref names the resource.
func (r *Resource) Ref() Ref { return Ref{r.Kind.Name, r.Name} }

// Annotations are the proxops/* hints, parsed.
type Annotations struct {
	DependsOn []Ref
	Claim     bool   // proxops/claim: "true"
	Restart   string // proxops/restart: never, immediate or window; "" = the cluster's policy
	ForceStop bool   // proxops/force-stop: "true"
	Placement string // proxops/placement: report, follow or migrate; "" = report
	Raw       map[string]string
}

// Reference is a field that names another resource of the same cluster.
type Reference struct {
	Path string // of the field in the spec, such as disks[0].image
	To   Ref
	Bind func(target *Resource) error // hands the target to the spec; the error says why it does not fit
}

// SecretReference is a field that names an entry of the cluster's SOPS document.
type SecretReference struct {
	Path string                    // of the field, such as cloud-init-data.ssh-key-refs[0]
	Ref  string                    // dot path in the document, such as cloud-init.ssh-keys.ops
	Bind func(v secret.Text) error // the error never holds the value
}

// Report takes one fault of a spec: the field's path and the text.
type Report func(path, format string, args ...any)

// Spec is what the kinds implement.
type Spec interface {
	// Shape is the tree of fields bound to this spec. live, when not nil, is
	// the guest as PVE has it: some positions depend on it (where a
	// cloud-init drive lives, the name of a container's interface).
	Shape(live *field.Guest) *field.Block
	// Refs lists the structured references, in manifest order.
	Refs() []Reference
	// Secrets lists the references into the SOPS document.
	Secrets() []SecretReference
	// Validate reports every cross-field fault.
	Validate(report Report)
	// Warn reports what is legal and probably not meant.
	Warn(report Report)
}

// NameVolume tells which resource stands for a volume of a storage, such as
// local:iso/debian.iso.
type NameVolume func(volid string) (Ref, bool)

// GuestSpec is the Spec of the four kinds that carry a vmid.
type GuestSpec interface {
	Spec
	Place() (node string, vmid int)
	// WantName is PVE's name (VM) or hostname (container) of the guest.
	WantName() string
	SetDefaultName(name string) // metadata.name; called by the loader before anything else
	Started() bool              // wanted power state
	// CloneOf is the template to clone from, with its node and vmid, when bound.
	CloneOf() (source *Resource, ok bool)
	// Undeclared lists what a live guest has that the manifest's declared
	// lists do not name (disks, NICs, PCI devices, a cloud-init drive).
	Undeclared(live *field.Guest) []field.Anomaly
	// Allocate prepares an empty spec for adopt: makes the blocks, list
	// elements and slots that the live keys call for. volumes, when not nil,
	// names the artifacts that live drives refer to.
	Allocate(live *field.Guest, volumes NameVolume)
	// SetPlace gives an allocated spec what no config key holds.
	SetPlace(node string, vmid int, running bool)
	// CreateFault is why the guest cannot be created from this manifest, or
	// nil: a field that stands for "not known" is fine only while it lives.
	CreateFault() error
	// Tags is the tags field: absent, null or a set (without the ownership tag).
	Tags() field.Opt[[]string]
	// Pool is the pool field.
	Pool() field.Opt[string]
}

// ArtifactSpec is the Spec of ISO, CTTemplate and DiskImage.
type ArtifactSpec interface {
	Spec
	Nodes() []string
	Storage() string
	Filename() string
	// Download is the request parameters of POST …/download-url, or an error
	// when the url is not known (null).
	Download() (params []field.Token, err error)
	// VolID is <storage>:<content>/<filename>.
	VolID() string
	// Fill gives a spec for adopt the file that was found.
	Fill(nodes []string, storage, filename string)
}

// OwnerTag is the PVE tag that marks what ProxOps made or claimed.
const OwnerTag = "proxops"

// OlderTag is the tag of an older tool; it counts as no tag.
const OlderTag = "pveconform"
