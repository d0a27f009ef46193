package pvesim

import (
	"regexp"
	"strconv"
	"strings"
)

// volName is a volume's name taken apart, as a storage plugin's parse_volname does.
type volName struct {
	// vtype is the content type; guests' volumes are always images here, whatever the guest.
	vtype string
	name  string
	// owner is the guest whose id the name carries, 0 for none.
	owner int
	// baseName and baseOwner are of the base image that a linked clone's name carries.
	baseName  string
	baseOwner int
	isBase    bool
	format    string
}

// The extensions of files, as PVE::Storage has them.
var (
	isoName    = regexp.MustCompile(`(?i)^[^/]+\.(?:iso|img)$`)
	tmplName   = regexp.MustCompile(`(?i)^[^/]+\.(?:tar\.(?:gz|xz|zst|bz2)|tar)$`)
	importName = regexp.MustCompile(`^[a-zA-Z0-9_.+=:-]+\.(ova|ovf|qcow2|raw|vmdk)$`)
	uploadName = regexp.MustCompile(`^[a-zA-Z0-9_.-]+\.(ova|qcow2|raw|vmdk)$`)
	backupName = regexp.MustCompile(`^[^/]+\.(?:tgz|(?:tar|vma)(?:\.(?:gz|lzo|zst|bz2))?)$`)
	backupOf   = regexp.MustCompile(`^vzdump-(?:openvz|lxc|qemu)-(\d+)-.+`)
	imageName  = regexp.MustCompile(`^(base-)?[^/\s]+\.(raw|qcow2|vmdk|subvol)$`)
	dirClone   = regexp.MustCompile(`^(\d+)/(\S+)/(\d+)/(\S+)$`)
	dirImage   = regexp.MustCompile(`^(\d+)/(\S+)$`)
	lvmName    = regexp.MustCompile(`^((vm|base)-(\d+)-\S+)$`)
	zfsName    = regexp.MustCompile(`^(?:((?:base|basevol)-(\d+)-\S+)/)?((base|basevol|vm|subvol)-(\d+)-\S+)$`)
	rbdName    = regexp.MustCompile(`^(?:(base-(\d+)-\S+)/)?((base|vm)-(\d+)-\S+)$`)
)

// fileBased says whether a storage keeps files in a directory of the node.
func (s *Storage) fileBased() bool {
	switch s.Type {
	case storageDir, "nfs", "cifs", "cephfs", "btrfs":
		return true
	}
	return false
}

// parseName takes the part of a volid behind the colon apart, or dies with the plugin's words.
func (s *Storage) parseName(name string) (volName, error) {
	if s.fileBased() {
		return parseDirName(name)
	}
	var v volName
	pattern, what := lvmName, "lvm"
	switch s.Type {
	case "zfspool", "zfs":
		pattern, what = zfsName, "zfs"
	case "rbd":
		pattern, what = rbdName, "rbd"
	}
	m := pattern.FindStringSubmatch(name)
	if m == nil {
		return v, die("unable to parse %s volume name '%s'", what, name)
	}
	v = volName{vtype: contentImages, format: "raw"}
	if pattern == lvmName {
		v.name, v.owner, v.isBase = m[1], number(m[3]), m[2] == "base"
		return v, nil
	}
	v.baseName, v.baseOwner, v.name, v.owner, v.isBase = m[1], number(m[2]), m[3], number(m[5]), strings.HasPrefix(m[4], "base")
	if m[4] == "subvol" || m[4] == "basevol" {
		v.format = "subvol"
	}
	return v, nil
}

func parseDirName(name string) (volName, error) {
	if m := dirClone.FindStringSubmatch(name); m != nil {
		if _, err := parseImageName(m[2]); err != nil {
			return volName{}, err
		}
		v, err := parseImageName(m[4])
		v.baseOwner, v.baseName, v.owner = number(m[1]), m[2], number(m[3])
		return v, err
	}
	if m := dirImage.FindStringSubmatch(name); m != nil {
		v, err := parseImageName(m[2])
		v.owner = number(m[1])
		return v, err
	}
	dir, file, _ := strings.Cut(name, "/")
	switch {
	case dir == contentISO && isoName.MatchString(file):
		return volName{vtype: contentISO, name: file, format: "raw"}, nil
	case dir == contentVztmpl && tmplName.MatchString(file):
		return volName{vtype: contentVztmpl, name: file, format: "raw"}, nil
	case dir == contentBackup && backupName.MatchString(file):
		v := volName{vtype: contentBackup, name: file, format: "raw"}
		if m := backupOf.FindStringSubmatch(file); m != nil {
			v.owner = number(m[1])
		}
		return v, nil
	case dir == contentSnippets && file != "" && !strings.Contains(file, "/"):
		return volName{vtype: contentSnippets, name: file, format: "raw"}, nil
	case dir == contentImport && importName.MatchString(file):
		return volName{vtype: contentImport, name: file, format: importName.FindStringSubmatch(file)[1]}, nil
	}
	return volName{}, die("unable to parse directory volume name '%s'", name)
}

func parseImageName(name string) (volName, error) {
	m := imageName.FindStringSubmatch(name)
	if m == nil {
		return volName{}, die("unable to parse volume filename '%s'", name)
	}
	return volName{vtype: contentImages, name: name, isBase: m[1] != "", format: m[2]}, nil
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// parseVolid finds the storage of a volid and takes its name apart. Text that is no volid, and storages that are not there, die.
func (w *World) parseVolid(volid string) (*Storage, volName, error) {
	id, name, ok := splitVolid(volid)
	if !ok || !storageID.MatchString(id) {
		return nil, volName{}, die("unable to parse volume ID '%s'", volid)
	}
	s, err := w.storage(id)
	if err != nil {
		return nil, volName{}, err
	}
	v, err := s.parseName(name)
	return s, v, err
}

var storageID = regexp.MustCompile(`(?i)^[a-z][a-z0-9\-_.]*[a-z0-9]$`)

// volumeAccess is PVE::Storage::check_volume_access: whether a caller may use a volume for the guest vmid (0 for none). want is the
// content type that the volume must have, "" for any; rootdir admits images.
func (w *World) volumeAccess(who Identity, vmid int, volid, want string) error {
	id, _, ok := splitVolid(volid)
	if !ok || !storageID.MatchString(id) {
		if !who.RootTicket() {
			return die("Only root can pass arbitrary filesystem paths.")
		}
		return nil
	}
	s, v, err := w.parseVolid(volid)
	if err != nil {
		return err
	}
	if want != "" && v.vtype != want && (want != contentRootdir || v.vtype != contentImages) {
		return die("unable to use volume %s - content type needs to be '%s'", volid, want)
	}
	path := "/storage/" + s.ID
	switch {
	case w.can(who, path, "Datastore.Allocate"):
		return nil
	case v.vtype == contentISO || v.vtype == contentVztmpl || v.vtype == contentImport:
		return w.checkAny(who, path, "Datastore.AllocateSpace", "Datastore.Audit")
	case v.owner != 0 && v.owner == vmid:
		return nil
	case v.vtype == contentBackup && v.owner != 0:
		if err := w.check(who, path, "Datastore.AllocateSpace"); err != nil {
			return err
		}
		return w.check(who, "/vms/"+decimal(v.owner), "VM.Backup")
	case v.vtype == contentImages && v.owner != 0:
		if err := w.check(who, path, "Datastore.Audit"); err != nil {
			return err
		}
		return w.check(who, "/vms/"+decimal(v.owner), "VM.Config.Disk")
	}
	return die("missing privileges to access %s", volid)
}

// normalFileName is normalize_content_filename: what remains of the name of an upload or download.
func normalFileName(name string) string {
	if i := strings.LastIndexAny(name, `/\`); i >= 0 {
		name = name[i+1:]
	}
	return strings.Map(func(r rune) rune {
		if r < 128 && (r == '_' || r == '.' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			return r
		}
		return '_'
	}, strings.TrimRight(name, "\n"))
}
