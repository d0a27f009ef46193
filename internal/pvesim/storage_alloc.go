package pvesim

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// lvmExtent is the size of a physical extent, to which logical volumes are rounded.
const lvmExtent = 4 << 20

// roundUp is what a volume of a size in bytes takes on the storage: LVM has whole extents.
func (s *Storage) roundUp(size int64) int64 {
	if s.Type != storageLVMThin && s.Type != "lvm" {
		return size
	}
	return (size + lvmExtent - 1) / lvmExtent * lvmExtent
}

// allocate is vdisk_alloc: it makes a volume for a guest on the actor's node and returns it. size is in KiB, as PVE passes it;
// name is "" for the next free disk name. A directory keeps the size as it is, LVM rounds it up to extents.
func (a *Actor) allocate(s *Storage, vmid int, content, format, name string, sizeKiB int64) (*Volume, error) {
	var v *Volume
	err := a.LockStorage(s, func() error {
		if a.task != nil { // only work of a task is worth a wait
			if err := a.Work(s.allocTime()); err != nil {
				return err
			}
		}
		var err error
		switch {
		case s.Type == storageLVMThin || s.Type == "lvm":
			v, err = a.allocateThin(s, vmid, content, format, name, sizeKiB)
		case s.fileBased():
			v, err = a.allocateDir(s, vmid, content, format, name, sizeKiB)
		default:
			v, err = a.allocateBlock(s, vmid, content, format, name, sizeKiB)
		}
		return err
	})
	return v, err
}

// allocTime is how long it takes to make a volume; the storage is locked meanwhile.
func (s *Storage) allocTime() time.Duration {
	if s.Shared {
		return sharedAllocTime
	}
	return allocTime
}

func (a *Actor) allocateDir(s *Storage, vmid int, content, format, name string, sizeKiB int64) (*Volume, error) {
	if format == "" {
		format = "raw"
	}
	if name == "" {
		name = a.w.freeDiskName(s, a.Node, vmid, format)
	}
	volid := fmt.Sprintf("%s:%d/%s", s.ID, vmid, name)
	if a.w.volume(a.Node, volid) != nil {
		return nil, die("disk image '%s' already exists", s.Path(volid))
	}
	size := sizeKiB << 10
	if format == "qcow2" {
		a.Logf("Formatting '%s', fmt=qcow2 cluster_size=65536 extended_l2=off preallocation=metadata compression_type=zlib size=%d lazy_refcounts=off refcount_bits=16", s.Path(volid), size)
	} else {
		a.Logf("Formatting '%s', fmt=%s size=%d preallocation=off", s.Path(volid), format, size)
	}
	return a.createVolume(s, Volume{ID: volid, Owner: vmid, Content: content, Format: format, Size: size})
}

func (a *Actor) allocateThin(s *Storage, vmid int, content, format, name string, sizeKiB int64) (*Volume, error) {
	if format != "" && format != "raw" {
		return nil, die("unsupported format '%s'", format)
	}
	vg := s.Props["vgname"]
	if name == "" {
		name = a.w.freeDiskName(s, a.Node, vmid, "")
	}
	volid := s.ID + ":" + name
	if a.w.volume(a.Node, volid) != nil {
		return nil, die("lvcreate '%s/%s' error:   Logical Volume \"%s\" already exists in volume group \"%s\"", vg, name, name, vg)
	}
	if sizeKiB <= 0 {
		return nil, die("lvcreate '%s/%s' error:   --virtualsize may not be zero.", vg, name)
	}
	size := s.roundUp(sizeKiB << 10)
	a.Logf("  Logical volume \"%s\" created.", name)
	a.Logf("  Logical volume %s/%s changed.", vg, name)
	return a.createVolume(s, Volume{ID: volid, Owner: vmid, Content: content, Format: "raw", Size: size})
}

// allocateBlock makes a ZFS volume or subvolume, or an RBD image: the size stays as it is asked for.
func (a *Actor) allocateBlock(s *Storage, vmid int, content, format, name string, sizeKiB int64) (*Volume, error) {
	format = orElse(format, "raw")
	if format != "raw" && (format != "subvol" || s.Type != "zfspool") {
		return nil, die("unsupported format '%s'", format)
	}
	if name == "" {
		name = a.w.freeDiskName(s, a.Node, vmid, "")
		if format == "subvol" {
			name = strings.Replace(name, "vm-", "subvol-", 1)
		}
	}
	if a.w.volume(a.Node, s.ID+":"+name) != nil {
		return nil, die("zfs error: cannot create '%s/%s': dataset already exists", s.Props["pool"], name)
	}
	return a.createVolume(s, Volume{ID: s.ID + ":" + name, Owner: vmid, Content: content, Format: format, Size: sizeKiB << 10})
}

var diskName = regexp.MustCompile(`(?:^|[/:])(?:vm|base|subvol|basevol)-(\d+)-disk-(\d+)(?:\.\w+)?$`)

// freeDiskName is find_free_diskname: the lowest number that no volume of the guest uses, whatever its prefix or suffix.
func (w *World) freeDiskName(s *Storage, node string, vmid int, suffix string) string {
	taken := map[int]bool{}
	for _, v := range w.shelf(s, node) {
		if m := diskName.FindStringSubmatch(v.ID); m != nil && m[1] == strconv.Itoa(vmid) {
			n, err := strconv.Atoi(m[2])
			if err == nil {
				taken[n] = true
			}
		}
	}
	n := 0
	for taken[n] {
		n++
	}
	prefix := "vm"
	if suffix == "subvol" {
		prefix = "subvol"
	}
	name := fmt.Sprintf("%s-%d-disk-%d", prefix, vmid, n)
	if suffix != "" {
		name += "." + suffix
	}
	return name
}

// free is vdisk_free for a volid in a guest's config: base images that still have clones are refused on directories; LVM-thin
// clones do not depend on their origin. A volume that is gone already is no error.
func (a *Actor) free(volid string) error {
	v := a.w.volume(a.Node, volid)
	if v == nil {
		return nil
	}
	id, _, _ := splitVolid(volid)
	s, err := a.w.storage(id)
	if err != nil {
		return err
	}
	return a.LockStorage(s, func() error {
		if clones := a.w.clonesOf(v); s.Type != storageLVMThin && len(clones) > 0 {
			return die("base volume '%s' is still in use by linked cloned", volid)
		}
		if s.Type == storageLVMThin {
			_, name, _ := splitVolid(volid)
			a.Logf("  Logical volume \"%s\" successfully removed.", name)
		}
		a.destroyVolume(v)
		return nil
	})
}

// cloneStorage checks the storage that a clone is to go to, "" for that of its source; on another node, target, it must be a shared one.
func (w *World) cloneStorage(node, storage, target string) error {
	if storage == "" {
		return nil
	}
	s, err := w.storageOn(storage, node)
	if err != nil || target == "" {
		return err
	}
	if _, err := w.storageOn(storage, target); err != nil {
		return err
	}
	if !s.Shared {
		return die("can't clone to non-shared storage '%s'", storage)
	}
	return nil
}
