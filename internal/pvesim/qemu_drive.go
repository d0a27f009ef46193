package pvesim

import (
	"regexp"
	"strconv"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// drive is a parsed drive: its key and sub-keys, the volume (or none, cdrom, a path, storage:size) under "file", the size in bytes.
type drive struct {
	key   string
	props schema.Props
}

func (d *drive) file() string { return d.props["file"] }

// parseDrive reads a drive and checks what the schema cannot say; ok is false when PVE would call it unparsable (qo-043).
func parseDrive(key, value string) (*drive, bool) {
	p, ok := qemuConfigMethod().Key(key)
	if !ok || p.Format == nil {
		return nil, false
	}
	props, err := p.Format.Parse(key, value)
	if err != nil {
		return nil, false
	}
	for _, r := range []string{"mbps", "iops"} {
		if props[r] != "" && (props[r+"_rd"] != "" || props[r+"_wr"] != "") {
			return nil, false
		}
		for _, s := range []string{"", "_rd", "_wr"} {
			if props[r+s+"_max"] != "" && props[r+s] == "" {
				return nil, false
			}
		}
	}
	if props["media"] == "cdrom" {
		for _, k := range []string{"snapshot", "trans", "format", "heads", "secs", "cyls"} {
			if props[k] != "" && props[k] != "0" {
				return nil, false
			}
		}
		if family(key) == "virtio" {
			return nil, false
		}
	}
	if s := props["size"]; s != "" {
		n, ok := schema.ParseSize(s)
		if !ok {
			return nil, false
		}
		props["size"] = strconv.FormatInt(n, 10)
	}
	return &drive{key: key, props: props}, true
}

// text prints a drive as PVE does: the volume first, the rest sorted.
func (d *drive) text() string {
	p, ok := qemuConfigMethod().Key(d.key)
	if !ok || p.Format == nil {
		return d.file()
	}
	out, err := p.Format.Print(d.props)
	if err != nil { // PVE prints by the format of all buses: a TPM state of media=cdrom, say
		out = d.file()
		for _, k := range sortedKeys(d.props) {
			if k != "file" {
				out += "," + k + "=" + d.props[k]
			}
		}
	}
	return out
}

var (
	cloudinitVolume = regexp.MustCompile(`[:/](?:vm-\d+-)?cloudinit(?:\.(?:raw|qcow2|vmdk|cow|qed|cloop))?$`)
	newDiskRE       = regexp.MustCompile(`^(?:([^/:\s]+):)?(\d+(?:\.\d+)?)$`)
)

func (d *drive) cloudinit() bool { return cloudinitVolume.MatchString(d.file()) }

// cdrom says whether the drive is a CD drive; a cloud-init drive counts as one unless realOnly.
func (d *drive) cdrom(realOnly bool) bool {
	if realOnly && d.cloudinit() {
		return false
	}
	return d.props["media"] == "cdrom"
}

func (d *drive) setSize(n int64) { d.props["size"] = strconv.FormatInt(n, 10) }

// newDisk takes "storage:size" apart; ok is false for any other volume.
func (d *drive) newDisk(def string) (storage, size string, ok bool) {
	m := newDiskRE.FindStringSubmatch(d.file())
	if m == nil {
		return "", "", false
	}
	return orElse(m[1], def), m[2], true
}

// ownerOf is the guest whose id a volume's name carries, 0 for none: the text tells it, whether or not the volume exists.
func (w *World) ownerOf(volid string) int {
	_, v, err := w.parseVolid(volid)
	if err != nil || v.vtype != contentImages {
		return 0
	}
	return v.owner
}

// volumeType is the content type that a volid names.
func (w *World) volumeType(volid string) (string, error) {
	_, v, err := w.parseVolid(volid)
	return v.vtype, err
}

// volumeFormat is the image format that a volid's name tells.
func (w *World) volumeFormat(volid string) string {
	if _, v, err := w.parseVolid(volid); err == nil {
		return v.format
	}
	return "raw"
}

// volumeMissing is how PVE says that a volume is not there.
func (w *World) volumeMissing(volid string) error {
	id, name, _ := splitVolid(volid)
	if s, err := w.storage(id); err == nil && s.Type == storageLVMThin {
		return die("no such logical volume %s/%s", s.Props["vgname"], name)
	}
	return die("volume '%s' does not exist", volid)
}

// volumeInUse is is_volume_in_use: whether another drive of the guest, or a snapshot's, is on the volume.
func (g *Guest) volumeInUse(skip, volid string) bool {
	scan := func(s Section, skip string) bool {
		for k, v := range s {
			if k == skip || !isDrive(k) {
				continue
			}
			if d, ok := parseDrive(k, v); ok && !d.cdrom(false) && d.file() == volid {
				return true
			}
		}
		return false
	}
	if scan(g.Config, skip) {
		return true
	}
	for _, s := range g.Snapshots {
		if scan(s.Config, "") {
			return true
		}
	}
	return false
}

// registerUnused is vmconfig_register_unused_drive: a disk of the guest's own stays as unusedN, a cloud-init drive is destroyed, CD
// drives and other guests' volumes are let go.
func (a *Actor) registerUnused(g *Guest, d *drive) error {
	switch {
	case d.cloudinit():
		g.CloudInit = nil
		if err := a.free(d.file()); err != nil {
			a.Logf("%s", err.Error())
		}
	case !d.cdrom(false) && a.w.ownerOf(d.file()) == g.VMID:
		return g.addUnused(d.file())
	}
	return nil
}

// deallocate is try_deallocate_drive for an unused volume, or a drive whose removal is forced.
func (a *Actor) deallocate(g *Guest, d *drive) error {
	volid := d.file()
	if d.cdrom(true) || a.w.ownerOf(volid) != g.VMID {
		return nil
	}
	id, _, _ := splitVolid(volid)
	if err := a.w.check(a.Who, "/storage/"+id, "Datastore.AllocateSpace"); err != nil {
		return err
	}
	if g.volumeInUse(d.key, volid) {
		return die("unable to delete '%s' - volume is still in use (snapshot?)", volid)
	}
	return a.free(volid)
}

// qemuSaved is the clean-up of every write of a config: unusedN that is a drive again goes (write_vm_config).
func qemuSaved(g *Guest) {
	used := map[string]bool{}
	for _, s := range []Section{g.Config, g.Pending} {
		for k, v := range s {
			if isDrive(k) {
				if d, ok := parseDrive(k, v); ok {
					used[d.file()] = true
				}
			}
		}
	}
	for k, v := range g.Config {
		if family(k) == "unused" && used[v] {
			delete(g.Config, k)
		}
		if k == "description" && v == "" {
			delete(g.Config, k)
		}
	}
	g.Changed = time.Now()
}
