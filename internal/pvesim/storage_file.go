package pvesim

import (
	"bytes"
	"crypto/md5"  //nolint:gosec // PVE offers it
	"crypto/sha1" //nolint:gosec // PVE offers it
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"strings"
)

// fileHead is how much of a file is kept to look at its format.
const fileHead = 64 << 10

// file is what the simulator keeps of a file's content: length, checksums, and its beginning.
type file struct {
	size int64
	head []byte
	sums map[string]string
	err  error
}

// readFile reads a stream to its end without keeping it.
func readFile(r io.Reader) *file {
	hashes := map[string]hash.Hash{
		"md5": md5.New(), "sha1": sha1.New(), "sha224": sha256.New224(), "sha256": sha256.New(), "sha384": sha512.New384(), "sha512": sha512.New(), //nolint:gosec // as above
	}
	f := &file{sums: map[string]string{}}
	var head bytes.Buffer
	all := []io.Writer{&limited{w: &head, left: fileHead}}
	for _, h := range hashes {
		all = append(all, h)
	}
	f.size, f.err = io.Copy(io.MultiWriter(all...), r)
	f.head = head.Bytes()
	for name, h := range hashes {
		f.sums[name] = hex.EncodeToString(h.Sum(nil))
	}
	return f
}

// limited passes on the first bytes and swallows the rest.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	if _, err := l.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// inspect looks at a disk image as qemu-img does for imports, and returns its virtual size; files that are no image keep their own.
func (f *file) inspect(volid, path string) (int64, error) {
	format := afterLast(volid, ".")
	switch format {
	case "qcow2":
		return f.qcow2(path)
	case "vmdk":
		return f.vmdk(path)
	case "ova":
		if !f.isTar() {
			return 0, die("command 'tar -t -f %s' failed: exit code 2", path)
		}
	}
	return f.size, nil
}

// qcow2 reads the header of a qcow2 image: backing files are refused, since they could name any file of the node.
func (f *file) qcow2(path string) (int64, error) {
	if len(f.head) < 72 || string(f.head[:4]) != "QFI\xfb" {
		return 0, die("qemu-img: Could not open '%s': Image is not in qcow2 format", path)
	}
	be := binary.BigEndian
	if v := be.Uint32(f.head[4:]); v != 2 && v != 3 {
		return 0, die("qemu-img: Could not open '%s': Unsupported qcow2 version %d", path, v)
	}
	if be.Uint64(f.head[8:]) != 0 {
		return 0, die("file '%s' must not have a backing file", path)
	}
	size := be.Uint64(f.head[24:])
	if size > 1<<62 {
		return 0, die("qemu-img: Could not open '%s': Image is too big", path)
	}
	return int64(size), nil
}

func (f *file) vmdk(path string) (int64, error) {
	switch {
	case len(f.head) >= 512 && string(f.head[:4]) == "KDMV":
		return int64(binary.LittleEndian.Uint64(f.head[12:])&(1<<53-1)) * 512, nil
	case bytes.HasPrefix(f.head, []byte("# Disk DescriptorFile")):
		return 0, die("qemu-img: Could not open '%s': vmdk descriptor names other files", path)
	}
	return 0, die("qemu-img: Could not open '%s': invalid VMDK image descriptor", path)
}

// isTar looks for the magic of a tar header.
func (f *file) isTar() bool { return len(f.head) >= 512 && string(f.head[257:262]) == "ustar" }

// volume is the entry of the file on a storage.
func (f *file) volume(volid, content string, size int64) Volume {
	return Volume{ID: volid, Content: content, Format: fileFormat(content, volid), Size: size, Used: f.size, Sums: f.sums}
}

// afterLast is what follows the last separator, or "" without one.
func afterLast(s, sep string) string {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return ""
	}
	return s[i+len(sep):]
}
