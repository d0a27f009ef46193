package pvesim

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// contentOf is what a volume counts as in lists: the kind of its owner decides between images and rootdir.
func (w *World) contentOf(v *Volume) string {
	if v.Content != contentImages && v.Content != contentRootdir {
		return v.Content
	}
	if g := w.Guests[v.Owner]; g != nil && g.Kind == kindLXC {
		return contentRootdir
	}
	return contentImages
}

func (w *World) contentList(r *Request) (any, error) {
	s, err := w.storageOn(r.P.Str("storage"), r.Node)
	if err != nil {
		return nil, err
	}
	want, vmid := r.P.Str("content"), r.P.Int("vmid", 0)
	out := []map[string]any{}
	for _, v := range w.volumesOf(s, r.Node) {
		content := w.contentOf(v)
		switch {
		case want != "" && content != want, vmid != 0 && v.Owner != vmid, !s.Has(content):
		case w.volumeAccess(r.Who, 0, v.ID, "") != nil:
		default:
			out = append(out, s.contentRow(v, content))
		}
	}
	return out, nil
}

// contentRow is a volume in a list: of files it is the file's size, of images the virtual one; only directories tell what an image
// takes and what it is based on.
func (s *Storage) contentRow(v *Volume, content string) map[string]any {
	row := map[string]any{"volid": v.ID, "content": content, "format": v.Format, "ctime": v.Created.Unix()}
	if content != contentImages && content != contentRootdir {
		row["size"] = v.Used
		if v.Owner != 0 {
			row["vmid"] = v.Owner
		}
		if v.Notes != "" {
			row["notes"] = v.Notes
		}
		if v.Protected {
			row["protected"] = 1
		}
		return row
	}
	row["size"], row["vmid"] = v.Size, v.Owner
	if !s.fileBased() {
		row["ctime"] = strconv.FormatInt(v.Created.Unix(), 10) // the LVM plugin passes on text (lv-010)
		return row
	}
	row["used"], row["parent"] = blocks(v.Used), nil
	if v.Base != "" {
		_, base, _ := splitVolid(v.Base)
		row["parent"] = "../" + base
	}
	return row
}

// blocks is what a file of n bytes takes on disk.
func blocks(n int64) int64 { return (n + 4095) / 4096 * 4096 }

// volumeOf is real_volume_id: the volid that a {volume} of a path means, with or without its storage.
func (r *Request) volumeOf() (string, error) {
	id, vol := r.P.Str("storage"), r.P.Str("volume")
	own, _, ok := splitVolid(vol)
	switch {
	case !strings.Contains(vol, ":") && id == "":
		return "", paramErr("volume", "no storage ID specified")
	case !strings.Contains(vol, ":"):
		return id + ":" + vol, nil
	case !ok:
		return "", paramErr("volume", "unable to parse volume ID '%s'\n", vol)
	case id != "" && own != id:
		return "", paramErr("volume", "storage ID mismatch (%s != %s)\n", own, id)
	}
	return vol, nil
}

// volumeFor is volumeOf for a caller who may use the volume, whose content type must be want unless that is "".
func (r *Request) volumeFor(want string) (string, error) {
	volid, err := r.volumeOf()
	if err != nil {
		return "", err
	}
	return volid, r.w.volumeAccess(r.Who, 0, volid, want)
}

// fileRestore looks into backups on a Proxmox Backup Server, of which the simulator has none.
func (w *World) fileRestore(r *Request) (any, error) {
	s, err := w.storage(r.P.Str("storage"))
	if err != nil {
		return nil, err
	}
	if _, err := r.volumeFor(contentBackup); err != nil {
		return nil, err
	}
	if s.Type != "pbs" {
		return nil, paramErr("storage", "Only PBS storages supported for file-restore.")
	}
	return nil, noMethod(r.Method, r.Path)
}

// importMetadata reads what an appliance says of its machine, of which the simulator keeps nothing: it answers what PVE refuses.
func (w *World) importMetadata(r *Request) (any, error) {
	volid, err := r.volumeFor("")
	if err != nil {
		return nil, err
	}
	s, name, err := w.parseVolid(volid)
	switch {
	case err != nil:
		return nil, err
	case !s.fileBased():
		return nil, die("storage type '%s' does not support import", s.Type)
	case name.vtype != contentImport:
		return nil, die("invalid content type '%s'", name.vtype)
	case name.format != "ova" && name.format != "ovf":
		return nil, die("invalid format")
	case w.volume(r.Node, volid) == nil:
		return nil, w.volumeMissing(volid)
	}
	return nil, noMethod(r.Method, r.Path)
}

func (w *World) contentInfo(r *Request) (any, error) {
	volid, err := r.volumeFor("")
	if err != nil {
		return nil, err
	}
	s, name, err := w.parseVolid(volid)
	if err != nil {
		return nil, err
	}
	v := w.volume(r.Node, volid)
	if v == nil {
		return nil, die("volume_size_info on '%s' failed - no format", volid)
	}
	out := map[string]any{"path": s.Path(volid), "size": v.Size, "used": blocks(v.Used), "format": name.format}
	if v.Notes != "" {
		out["notes"] = v.Notes
	}
	if v.Content == contentBackup {
		out["protected"] = bit(v.Protected)
	}
	return out, nil
}

func (w *World) contentAttributes(r *Request) (any, error) {
	volid, err := r.volumeOf()
	if err != nil {
		return nil, err
	}
	s, name, err := w.parseVolid(volid)
	if err != nil {
		return nil, err
	}
	if err := w.volumeAccess(r.Who, 0, volid, ""); err != nil {
		return nil, err
	}
	if err := w.check(r.Who, "/storage/"+s.ID, "Datastore.Allocate"); err != nil {
		return nil, err
	}
	v := w.volume(r.Node, volid)
	switch {
	case !r.P.Has("notes") && !r.P.Has("protected"):
		return nil, nil
	case !s.fileBased():
		return nil, die("attribute is not supported for storage type '%s'", s.Type)
	case name.vtype != contentBackup && r.P.Has("notes"):
		return nil, die("only backups can have notes")
	case name.vtype != contentBackup:
		return nil, die("only backups can be protected")
	case v == nil:
		return nil, die("volume '%s' does not exist", volid)
	}
	if n, ok := r.P.Get("notes"); ok {
		v.Notes = n
	}
	if r.P.Has("protected") {
		v.Protected = r.P.Bool("protected")
	}
	return nil, nil
}

func (w *World) contentDelete(r *Request) (any, error) {
	volid, err := r.volumeOf()
	if err != nil {
		return nil, err
	}
	s, name, err := w.parseVolid(volid)
	if err != nil {
		return nil, err
	}
	path := "/storage/" + s.ID
	if name.vtype == contentBackup && name.owner != 0 {
		if err := w.check(r.Who, path, "Datastore.AllocateSpace"); err != nil {
			return nil, err
		}
		if err := w.check(r.Who, "/vms/"+decimal(name.owner), "VM.Backup"); err != nil {
			return nil, err
		}
	} else if err := w.check(r.Who, path, "Datastore.Allocate"); err != nil {
		return nil, err
	}
	id := s.ID
	if name.owner != 0 {
		id = decimal(name.owner) + "@" + s.ID
	}
	upid := r.spawn("imgdel", id, func(a *Actor) error {
		if err := a.ended(); err != nil {
			return err
		}
		if v := w.volume(a.Node, volid); v != nil && v.Protected {
			return die("volume '%s' is protected", volid)
		}
		if err := a.free(volid); err != nil {
			return err
		}
		a.Logf("Removed volume '%s'", volid)
		return nil
	})
	if d := r.P.Int("delay", 0); d > 0 {
		if t := w.taskIndex[upid]; t != nil && r.wait(t, time.Duration(d)*time.Second) {
			if t.Exit != "OK" && !strings.HasPrefix(t.Exit, "WARNINGS") {
				return nil, die("%s", t.Exit)
			}
			return nil, nil
		}
	}
	return upid, nil
}

var formatSuffix = regexp.MustCompile(`\.(raw|qcow2|vmdk)$`)

func (w *World) contentAllocate(r *Request) (any, error) {
	vmid, name, format, size := r.P.Int("vmid", 0), r.P.Str("filename"), r.P.Str("format"), r.P.Str("size")
	unit := int64(1)
	switch {
	case strings.HasSuffix(size, "M"):
		unit = 1 << 10
	case strings.HasSuffix(size, "G"):
		unit = 1 << 20
	}
	n, err := strconv.ParseInt(strings.TrimRight(size, "MG"), 10, 64)
	if err != nil || n > 1<<40 {
		return nil, paramErr("size", "unable to parse value '%s'", size)
	}
	if m := formatSuffix.FindStringSubmatch(name); m != nil {
		if format != "" && format != m[1] {
			return nil, paramErr("format", "different storage formats (%s != %s)", format, m[1])
		}
		format = m[1]
	}
	s, err := w.storageOn(r.P.Str("storage"), r.Node)
	if err != nil {
		return nil, err
	}
	if s.fileBased() {
		f, err := parseImageName(name)
		if err != nil {
			return nil, err
		}
		if f.format != orElse(format, "raw") {
			return nil, die("illegal name '%s' - wrong extension for format ('%s' != '%s')", name, f.format, orElse(format, "raw"))
		}
	} else if !strings.HasPrefix(name, "vm-"+decimal(vmid)+"-") {
		return nil, die("illegal name '%s' - should be 'vm-%d-*'", name, vmid)
	}
	v, err := r.allocate(s, vmid, contentImages, format, name, n*unit)
	if err != nil {
		return nil, err
	}
	return v.ID, nil
}

// fileTarget checks the content type and the name of an upload or a download, and returns the volid it will have.
func fileTarget(s *Storage, content, name string) (string, error) {
	name = normalFileName(name)
	switch content {
	case contentISO:
		if !isoName.MatchString(name) {
			return "", paramErr("filename", "wrong file extension")
		}
	case contentVztmpl:
		if !tmplName.MatchString(name) {
			return "", paramErr("filename", "wrong file extension")
		}
	case contentImport:
		if !uploadName.MatchString(name) {
			return "", paramErr("filename", "invalid filename or wrong extension")
		}
	default:
		return "", paramErr("content", "upload content type '%s' not allowed", content)
	}
	return s.ID + ":" + content + "/" + name, nil
}

// fileFormat is the format that lists show for a file.
func fileFormat(content, name string) string {
	ext := strings.ToLower(strings.TrimPrefix(path.Ext(name), "."))
	switch {
	case content == contentISO, content == contentSnippets:
		return content
	case content == contentVztmpl && ext == "gz":
		return "tgz"
	case content == contentVztmpl && ext != "tar":
		return "t" + ext
	}
	return ext
}

func (w *World) upload(r *Request) (any, error) {
	s, err := w.storageOn(r.P.Str("storage"), r.Node)
	if err != nil {
		return nil, err
	}
	content := r.P.Str("content")
	if !s.fileBased() {
		return nil, die("can't upload to storage type '%s'", s.Type)
	}
	if r.Upload == nil {
		return nil, die("missing temporary file name")
	}
	volid, err := fileTarget(s, content, orElse(r.P.Str("filename"), r.Upload.Name))
	if err != nil {
		return nil, err
	}
	if !s.Has(content) {
		return nil, die("storage '%s' does not support '%s' content", s.ID, content)
	}
	data, sum, algorithm := r.Upload.Data, r.P.Str("checksum"), r.P.Str("checksum-algorithm")
	return r.spawn("imgcopy", "", func(a *Actor) error {
		if err := a.ended(); err != nil {
			return err
		}
		a.Logf("starting file import from: /var/tmp/pveupload-%x", w.draw(16))
		a.Logf("target node: %s", a.Node)
		a.Logf("target file: %s", s.Path(volid))
		a.Logf("file size is: %d", len(data))
		f := readFile(strings.NewReader(string(data)))
		if algorithm != "" && !strings.EqualFold(f.sums[algorithm], sum) {
			return die("checksum mismatch: got '%s' != expect '%s'", f.sums[algorithm], sum)
		}
		size, fault := f.inspect(volid, s.Path(volid))
		if content == contentImport && fault != nil {
			return wrap("failed to verify file: ", fault)
		}
		if old := w.volume(a.Node, volid); old != nil { // an upload replaces what is there
			a.destroyVolume(old)
		}
		_, err := a.createVolume(s, f.volume(volid, content, size))
		a.Logf("finished file import successfully")
		return err
	}), nil
}
