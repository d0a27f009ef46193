package pvesim

import (
	"math"
	"path"
	"strconv"
	"strings"
)

// Fixed sizes of special volumes, in KiB.
const (
	efi4mKiB     = 528
	efi2mKiB     = 128
	tpmKiB       = 4 << 10
	cloudinitKiB = 4 << 10
)

// qemuCleanDrives is check_drive_param with cleanup_drive_path: drives must parse, imports have their one form; what comes out is as
// PVE prints it.
func (a *Actor) qemuCleanDrives(set Section) error {
	for _, k := range set.Keys() {
		if !isDrive(k) {
			continue
		}
		d, ok := parseDrive(k, set[k])
		if !ok {
			return paramErr(k, "unable to parse drive options")
		}
		if src := d.props["import-from"]; src != "" {
			_, size, fresh := d.newDisk("")
			if n, err := strconv.ParseFloat(size, 64); !fresh || err != nil || n != 0 {
				return paramErr(k, "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>")
			}
			var need []string
			switch k {
			case "efidisk0":
				need = []string{"efitype", "pre-enrolled-keys"}
			case "tpmstate0":
				need = []string{"version"}
			}
			for _, n := range need {
				if _, ok := d.props[n]; !ok {
					return paramErr(k, "need to specify '%s' when using 'import-from'", n)
				}
			}
		}
		if err := a.cleanDrivePath(d); err != nil {
			return err
		}
		set[k] = d.text()
	}
	return nil
}

// cleanDrivePath is cleanup_drive_path: a path of the node becomes the volume that it is, which also says what medium it is.
func (a *Actor) cleanDrivePath(d *drive) error {
	file, media := d.file(), d.props["media"]
	switch {
	case file == "none" || file == "cdrom":
		d.props["media"] = orElse(media, "cdrom")
		return nil
	case strings.Contains(file, ":") || strings.HasPrefix(file, "/dev/") || plainInteger.MatchString(file):
		return nil
	}
	kind, volid := a.pathVolume(file)
	want := contentImages
	if media == "cdrom" {
		want = contentISO
	}
	switch {
	case kind == "":
		return paramErr(d.key, "unable to associate path '%s' to any storage", file)
	case media != "" && kind != want:
		return paramErr(d.key, "unexpected media type (%s != %s)", kind, want)
	case media == "" && kind == contentISO:
		d.props["media"] = "cdrom"
	}
	d.props["file"] = volid
	return nil
}

// pathVolume is path_to_volume_id: the volume behind a path, and what it holds; "" when no storage has the path. ISO images and other
// files need not be there.
func (a *Actor) pathVolume(file string) (kind, volid string) {
	for _, s := range a.w.Storages {
		if !s.fileBased() || s.Props["path"] == "" {
			continue
		}
		for _, v := range a.w.volumesOf(s, a.Node) {
			if kind, err := a.w.volumeType(v.ID); err == nil && s.Path(v.ID) == file {
				return kind, v.ID
			}
		}
		for _, c := range []string{contentISO, contentVztmpl, contentImport, contentBackup} {
			volid := s.ID + ":" + c + "/" + path.Base(file)
			if kind, err := a.w.volumeType(volid); err == nil && s.Path(volid) == file {
				return kind, volid
			}
		}
	}
	return "", ""
}

// createDisks is create_disks for the drives of set: it makes the volumes that are to be made, and returns the drives as the config
// holds them. On an error what was made is freed again. g is asked for a cloud-init drive it has already, and for being a template.
func (a *Actor) createDisks(g *Guest, set Section, def string, template bool) (Section, error) {
	var made []*Volume
	out := Section{}
	for _, k := range set.Keys() {
		if !isDrive(k) {
			continue
		}
		d, ok := parseDrive(k, set[k])
		if !ok {
			continue
		}
		v, err := a.createDisk(g, d, def)
		if err == nil && v != nil {
			made = append(made, v)
			if template && !d.cdrom(false) {
				d.props["file"], err = a.makeBase(v.ID)
			}
		}
		if err != nil {
			for _, v := range made {
				if ferr := a.free(v.ID); ferr != nil {
					a.Logf("%s", ferr.Error())
				}
			}
			return nil, err
		}
		out[k] = d.text()
		if v != nil {
			a.Logf("%s: successfully created disk '%s'", k, out[k])
		}
	}
	return out, nil
}

// createDisk makes the volume of one drive, and changes the drive to name it; nil when there was nothing to make.
func (a *Actor) createDisk(g *Guest, d *drive, def string) (*Volume, error) {
	id, name, managed := splitVolid(d.file())
	storage, size, fresh := d.newDisk(def)
	format := d.props["format"]
	delete(d.props, "format")
	switch {
	case d.file() == "none", d.file() == "cdrom":
		delete(d.props, "size")
		return nil, nil
	case managed && name == "cloudinit", d.file() == "cloudinit":
		if !managed {
			id = def
		}
		return a.createCloudinit(g, d, id, format)
	case !fresh:
		return nil, a.existingDisk(g, d)
	}
	s, err := a.w.storageOn(storage, a.Node)
	if err != nil {
		return nil, err
	}
	if src := d.props["import-from"]; src != "" {
		delete(d.props, "import-from")
		return a.importDisk(g, d, s, src, format)
	}
	gib, err := strconv.ParseFloat(size, 64)
	if err != nil {
		return nil, die("unable to parse size '%s'", size)
	}
	kib := int64(math.Ceil(gib * (1 << 20))) // convert_size rounds up
	switch d.key {
	case "efidisk0":
		kib = efi2mKiB
		if d.props["efitype"] == "4m" {
			kib = efi4mKiB
		}
	case "tpmstate0":
		format, kib = "raw", tpmKiB
	}
	v, err := a.allocate(s, g.VMID, contentImages, format, "", kib)
	if err != nil {
		return nil, err
	}
	d.props["file"] = v.ID
	d.setSize(kib << 10)
	if d.key == "efidisk0" {
		d.setSize(v.Size)
		// the firmware package carries Microsoft's certificates of 2023 (facts.md L)
		if d.props["pre-enrolled-keys"] == "1" && d.props["ms-cert"] == "" {
			d.props["ms-cert"] = "2023k"
		}
	}
	return v, nil
}

func (a *Actor) createCloudinit(g *Guest, d *drive, storage, format string) (*Volume, error) {
	if storage == "" {
		return nil, die("no storage ID specified (and no default storage)")
	}
	s, err := a.w.storageOn(storage, a.Node)
	if err != nil {
		return nil, err
	}
	if other := g.cloudinitKey(d.key); other != "" {
		return nil, die("%s - cloud-init drive is already attached at '%s'", d.key, other)
	}
	name := "vm-" + decimal(g.VMID) + "-cloudinit"
	if s.fileBased() {
		format = orElse(format, "qcow2")
		name += "." + format
	}
	v, err := a.allocate(s, g.VMID, contentImages, format, name, cloudinitKiB)
	if err != nil {
		return nil, err
	}
	d.props["file"], d.props["media"] = v.ID, "cdrom"
	return v, nil
}

// cloudinitKey is the key of a cloud-init drive other than skip, current or pending.
func (g *Guest) cloudinitKey(skip string) string {
	for _, s := range []Section{g.Config, g.Pending} {
		for _, k := range driveKeys(s) {
			if d, ok := parseDrive(k, s[k]); ok && k != skip && d.cloudinit() {
				return k
			}
		}
	}
	return ""
}

// existingDisk checks a volume that is there, and takes its size.
func (a *Actor) existingDisk(g *Guest, d *drive) error {
	volid := d.file()
	if err := a.w.volumeAccess(a.Who, g.VMID, volid, ""); err != nil {
		return err
	}
	id, _, managed := splitVolid(volid)
	if !managed || strings.HasPrefix(volid, "/") {
		return die("volume %s does not exist", volid)
	}
	kind, err := a.w.volumeType(volid)
	if err != nil {
		return err
	}
	if kind != contentImages && kind != contentISO {
		return die("cannot use volume %s - content type needs to be 'images' or 'iso'", volid)
	}
	if other := g.cloudinitKey(d.key); d.cloudinit() && other != "" {
		return die("%s - cloud-init drive is already attached at '%s'", d.key, other)
	}
	if _, err := a.w.storageOn(id, a.Node); err != nil {
		return err
	}
	v := a.w.volume(a.Node, volid)
	if v == nil {
		return a.w.volumeMissing(volid)
	}
	d.setSize(v.Size)
	return nil
}

// importDisk copies an image into a new volume. The format follows the source's unless another is asked for.
func (a *Actor) importDisk(g *Guest, d *drive, s *Storage, src, format string) (*Volume, error) {
	size, used, srcFormat, err := a.importSource(src)
	if err != nil {
		return nil, err
	}
	switch {
	case !s.fileBased():
		format = ""
	case format == "":
		format = srcFormat
	}
	a.Logf("create full clone of drive (%s)", src)
	v, err := a.allocate(s, g.VMID, contentImages, format, "", (size+1023)>>10)
	if err != nil {
		return nil, err
	}
	if err := a.copyWork(size); err != nil {
		return nil, err
	}
	v.Used = used
	d.props["file"] = v.ID
	if d.setSize(v.Size); strings.HasPrefix(src, "/") {
		d.setSize(size)
	}
	return v, nil
}

func (a *Actor) importSource(src string) (size, used int64, format string, err error) {
	if id, _, managed := splitVolid(src); managed && !strings.HasPrefix(src, "/") {
		s, err := a.w.storageOn(id, a.Node)
		if err != nil {
			return 0, 0, "", err
		}
		if v := a.w.volume(a.Node, src); v != nil {
			return v.Size, max(v.Used, 1<<20), orElse(v.Format, "raw"), nil
		}
		if kind, _ := a.w.volumeType(src); kind == contentImages {
			return 0, 0, "", die("cannot import from '%s' - could not get size of %s", src, src)
		}
		return 0, 0, "", die("failed to stat '%s'", s.Path(src))
	}
	return a.importFile(src)
}

// importFile looks at a plain file of the node, which only root may name.
func (a *Actor) importFile(src string) (size, used int64, format string, err error) {
	var f *NodeFile
	if n := a.w.node(a.Node); n != nil {
		f = n.Files[src]
	}
	switch {
	case f == nil:
		return 0, 0, "", die("could not get file size of %s", src)
	case strings.HasSuffix(src, ".qcow2") && f.Format != "qcow2":
		return 0, 0, "", die("copy failed: command '/usr/bin/qemu-img convert -p -n -f qcow2 -O raw %s' failed: exit code 1", src)
	}
	return f.Virtual, f.Size, "raw", nil
}

// isBase says whether a volid is a base image's.
func isBase(volid string) bool {
	return strings.HasPrefix(volid[strings.LastIndexAny(volid, "/:")+1:], "base-")
}
