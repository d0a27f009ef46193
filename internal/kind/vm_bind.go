package kind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/field"
)

// Refs implements Spec.
func (v *VM) Refs() []Reference {
	var out []Reference
	if name, ok := v.Clone.Get(); ok {
		out = append(out, Reference{Path: "clone", To: Ref{"TemplateVM", name}, Bind: v.bindClone})
	}
	for i := range v.Disks {
		d := &v.Disks[i]
		if name, ok := d.Image.Get(); ok {
			out = append(out, Reference{Path: fmt.Sprintf("disks[%d].image", i), To: Ref{"DiskImage", name},
				Bind: func(r *Resource) error { return bindVolume(r, v.Node.Or(""), &d.source) }})
		}
	}
	if c := v.Hardware.CDROM; c != nil {
		if name, ok := c.ISO.Get(); ok && name != "none" {
			out = append(out, Reference{Path: "hardware.cdrom.iso", To: Ref{"ISO", name},
				Bind: func(r *Resource) error { return bindVolume(r, v.Node.Or(""), &c.volid) }})
		}
	}
	return out
}

// bindVolume hands an artifact's volume id to a guest on node, where the file
// must be.
func bindVolume(r *Resource, node string, volid *string) error {
	a, ok := r.Spec.(ArtifactSpec)
	if !ok {
		return fmt.Errorf("%s is no storage file", r.Ref())
	}
	if !slices.Contains(a.Nodes(), node) {
		return fmt.Errorf("%s is not placed on node %s, where the guest lives, only on %s; add the node to its nodes", r.Ref(), node, strings.Join(a.Nodes(), ", "))
	}
	*volid = a.VolID()
	return nil
}

func (v *VM) bindClone(r *Resource) error {
	g, ok := r.Spec.(GuestSpec)
	if !ok || !r.Kind.Template {
		return fmt.Errorf("%s is no template", r.Ref())
	}
	node, vmid := g.Place()
	switch {
	case vmid == v.VMID.Or(0):
		return fmt.Errorf("%s has vmid %d, the guest's own; a VM cannot be cloned onto itself", r.Ref(), vmid)
	case node != v.Node.Or(""):
		return fmt.Errorf("%s is on node %s and the VM on %s; a clone is made on the template's node", r.Ref(), node, v.Node.Or(""))
	}
	v.source = r
	return nil
}

// Secrets implements Spec.
func (v *VM) Secrets() []SecretReference {
	c := &v.CloudInit
	return secretRefs("cloud-init-data", c.SSHKeyRefs, &c.keys, c.PasswordRef, &c.password, "ssh-key-refs", "ci-password-ref")
}

// Place implements GuestSpec.
func (v *VM) Place() (node string, vmid int) { return v.Node.Or(""), v.VMID.Or(0) }

// WantName implements GuestSpec.
func (v *VM) WantName() string { return v.Name.Or("") }

// SetDefaultName implements GuestSpec.
func (v *VM) SetDefaultName(name string) {
	if v.Name.State() == field.Absent {
		v.Name = field.Some(name)
	}
}

// Started implements GuestSpec.
func (v *VM) Started() bool { return !v.template && v.State.Or("started") == "started" }

// CloneOf implements GuestSpec.
func (v *VM) CloneOf() (*Resource, bool) { return v.source, v.source != nil }

// Tags implements GuestSpec.
func (v *VM) Tags() field.Opt[[]string] { return v.TagSet }

// Pool implements GuestSpec.
func (v *VM) Pool() field.Opt[string] { return v.PoolID }

// CreateFault implements GuestSpec.
func (v *VM) CreateFault() error { return nil }
