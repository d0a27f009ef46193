package kind

import "strings"

// All is the kind table, in the order of reports.
var All = []*Kind{
	{Name: "ISO", Folder: "iso", Content: "iso",
		Doc: "an installer image on a storage with iso content",
		New: func() Spec { return &Artifact{content: "iso"} }},
	{Name: "CTTemplate", Folder: "ctt", Content: "vztmpl",
		Doc: "an archive that containers are made from, on a storage with vztmpl content",
		New: func() Spec { return &Artifact{content: "vztmpl"} }},
	{Name: "DiskImage", Folder: "diskimage", Content: "import",
		Doc: "a disk image that VM disks are seeded from, on a storage with import content",
		New: func() Spec { return &Artifact{content: "import"} }},
	{Name: "TemplateVM", Folder: "templatevm", Guest: "qemu", Template: true,
		Doc: "a VM made into a PVE template, the source of clones",
		New: func() Spec { return &VM{template: true} }},
	{Name: "TemplateCT", Folder: "templatect", Guest: "lxc", Template: true,
		Doc: "a container made into a PVE template",
		New: func() Spec { return &LXC{template: true} }},
	{Name: "VM", Folder: "vm", Guest: "qemu",
		Doc: "a virtual machine",
		New: func() Spec { return &VM{} }},
	{Name: "LXC", Folder: "lxc", Guest: "lxc",
		Doc: "a container",
		New: func() Spec { return &LXC{} }},
}

// Lookup finds a kind by its name in manifests.
func Lookup(name string) (*Kind, bool) {
	for _, k := range All {
		if k.Name == name {
			return k, true
		}
	}
	return nil, false
}

// ByFolder finds a kind by its root folder in a repository.
func ByFolder(folder string) (*Kind, bool) {
	for _, k := range All {
		if k.Folder == folder {
			return k, true
		}
	}
	return nil, false
}

// Of finds the kind of a live guest: guest is qemu or lxc.
func Of(guest string, template bool) (*Kind, bool) {
	for _, k := range All {
		if k.Guest == guest && k.Template == template && k.IsGuest() {
			return k, true
		}
	}
	return nil, false
}

// OfContent finds the kind of a storage file by PVE's content type.
func OfContent(content string) (*Kind, bool) {
	for _, k := range All {
		if content != "" && k.Content == content {
			return k, true
		}
	}
	return nil, false
}

// Names lists the kinds' names, for messages.
func Names() string {
	var out []string
	for _, k := range All {
		out = append(out, k.Name)
	}
	return strings.Join(out, ", ")
}
