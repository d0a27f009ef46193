package wire

import (
	"regexp"
	"strings"
)

var (
	volID       = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9_.\-]*):(\S+)$`)
	newVolume   = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?$`)
	cloudInitID = regexp.MustCompile(`^(?:[0-9]+/)?vm-[0-9]+-cloudinit(?:\.[a-z0-9]+)?$`)
)

// SplitVolID cuts <storage>:<name>. It is not ok for absolute paths, none and
// cdrom.
func SplitVolID(s string) (storage, name string, ok bool) {
	m := volID.FindStringSubmatch(s)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// IsCreateForm reports whether the first token of a volume slot makes PVE
// allocate a volume: <storage>:<GiB> or <storage>:cloudinit. PVE allocates a
// new one every time it gets such a text (facts.md A xix).
func IsCreateForm(file string) bool {
	_, name, ok := SplitVolID(file)
	return ok && (name == "cloudinit" || newVolume.MatchString(name))
}

// IsCloudInit reports whether file is a cloud-init drive, live or in create
// form.
func IsCloudInit(file string) bool {
	_, name, ok := SplitVolID(file)
	return ok && (name == "cloudinit" || cloudInitID.MatchString(name))
}

// IsISO reports whether file is an image of content type iso.
func IsISO(file string) bool {
	_, name, ok := SplitVolID(file)
	return ok && strings.HasPrefix(name, "iso/")
}

// IsVolumeKey reports whether a key's slot holds a volume.
func IsVolumeKey(lxc bool, key string) bool {
	class := KeyClass(key)
	if class == key && key != "rootfs" && key != "cdrom" {
		return false
	}
	if lxc {
		return class == "rootfs" || class == "mp" || class == "unused"
	}
	switch class {
	case "ide", "sata", "scsi", "virtio", "efidisk", "tpmstate", "unused", "cdrom":
		return true
	}
	return false
}

// FirstToken is the token that holds a volume slot's volume.
func FirstToken(lxc bool) string {
	if lxc {
		return "volume"
	}
	return "file"
}
