package pvesim_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/pvesim"
)

// qcow2 is the header of an image of a virtual size, with the offset of a backing file's name.
func qcow2(size, backing uint64) []byte {
	b := make([]byte, 512)
	copy(b, "QFI\xfb")
	binary.BigEndian.PutUint32(b[4:], 3)
	binary.BigEndian.PutUint64(b[8:], backing)
	binary.BigEndian.PutUint64(b[24:], size)
	return b
}

func TestDownload(t *testing.T) {
	iso := bytes.Repeat([]byte("iso"), 1000)
	sum := sha256.Sum256(iso)
	good := hex.EncodeToString(sum[:])
	files := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := map[string][]byte{
			"/a.iso": iso, "/good.qcow2": qcow2(1<<30, 0), "/backed.qcow2": qcow2(1<<30, 64), "/text": []byte("text"),
		}[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	})
	plain, secure := httptest.NewServer(files), httptest.NewTLSServer(files)
	defer plain.Close()
	defer secure.Close()
	gone := httptest.NewServer(files)
	gone.Close()

	w := world(t, "base", pvesim.Options{Seed: 3})
	a := inProcess(t, w)
	get := "POST /nodes/pve01/storage/local/download-url"
	form := func(content, name, url string, more ...string) []string {
		return append([]string{"content", content, "filename", name, "url", url}, more...)
	}
	sha := func(sum string) []string { return []string{"checksum", sum, "checksum-algorithm", "sha256"} }
	run(t, a, []step{
		{call: get, form: form("iso", "a.iso", plain.URL+"/a.iso"), task: "OK"},
		{call: get, form: form("iso", "a.iso", plain.URL+"/a.iso"), task: "refusing to override existing file"},
		{call: get, form: form("iso", "a.iso", plain.URL+"/absent", sha(strings.ToUpper(good))...), task: "OK"}, // there already: not asked for
		{call: get, form: form("iso", "a.iso", plain.URL+"/a.iso", sha(strings.Repeat("0", 64))...), task: "aborting"},
		{call: get, form: form("iso", "b.iso", plain.URL+"/a.iso", sha(strings.Repeat("0", 64))...), task: "checksum mismatch"},
		{call: get, form: form("iso", "../c d.iso", plain.URL+"/a.iso", sha(good)...), task: "OK"},
		{call: "GET /nodes/pve01/storage/local/content/iso/c_d.iso", says: `"size":3000`},
		{call: "GET /nodes/pve01/storage/local/content/iso/b.iso", code: 500, says: "no format"},
		{call: get, form: form("iso", "d.iso", plain.URL+"/absent"), task: "exit code 8"},
		{call: get, form: form("iso", "d.iso", gone.URL+"/a.iso"), task: "Connection refused"},
		{call: get, form: form("iso", "d.iso", secure.URL+"/a.iso"), task: "doesn't have a known issuer"},
		{call: get, form: form("iso", "d.iso", secure.URL+"/a.iso", "verify-certificates", "0"), task: "OK"},
		{call: get, form: form("iso", "d.qcow2", plain.URL+"/a.iso"), code: 400, says: "wrong file extension"},
		{call: get, form: form("import", "d.img", plain.URL+"/a.iso"), code: 400, says: "invalid filename or wrong extension"},
		{call: get, form: form("import", "bad.qcow2", plain.URL+"/text"), task: "not in qcow2 format"},
		{call: get, form: form("import", "backed.qcow2", plain.URL+"/backed.qcow2"), task: "backing file"},
		{call: get, form: form("import", "bad.ova", plain.URL+"/text"), task: "failed to verify file"},
		{call: get, form: form("import", "good.qcow2", plain.URL+"/good.qcow2"), task: "OK"},
		{call: "GET /nodes/pve01/storage/local/content/import/good.qcow2", says: `"size":1073741824`},
		{call: get, form: form("iso", "e.iso", plain.URL+"/a.iso"), who: gitopsToken, code: 403, says: "Permission check failed"},
		{call: "GET /nodes/pve01/query-url-metadata", form: []string{"url", plain.URL + "/a.iso"}, says: `"filename":"a.iso"`},
		{call: "GET /nodes/pve01/query-url-metadata", form: []string{"url", plain.URL + "/absent"}, code: 500, says: "404 Not Found"},
	})
	for _, e := range w.LedgerEntries() {
		if strings.Contains(e.Volid, "b.iso") || strings.Contains(e.Volid, "bad") {
			t.Errorf("a failed download left %s", e.Volid)
		}
	}
}

func TestStorageConfig(t *testing.T) {
	w := world(t, "base", pvesim.Options{Seed: 3})
	a := inProcess(t, w)
	run(t, a, []step{
		{call: "POST /storage", form: []string{"storage", "d2", "type", "dir"}, code: 500, says: "missing value for required option 'path'"},
		{call: "POST /storage", form: []string{"storage", "d2", "type", "dir", "path", "/d2", "vgname", "vg0"}, code: 500, says: "unexpected property 'vgname'"},
		{call: "POST /storage", form: []string{"storage", "d2", "type", "dir", "path", "/d2", "content", "images,iso"}, says: `"storage":"d2"`},
		{call: "POST /storage", form: []string{"storage", "d2", "type", "dir", "path", "/d2"}, code: 500, says: "already defined"},
		{call: "POST /storage", form: []string{"storage", "t2", "type", "lvmthin", "vgname", "vg0", "thinpool", "data", "content", "iso"}, code: 500, says: "does not support content type 'iso'"},
		{call: "PUT /storage/d2", form: []string{"path", "/x"}, code: 400, says: "path"},
		{call: "PUT /storage/d2", form: []string{"nodes", "other"}},
		{call: "GET /nodes/pve01/storage/d2/status", code: 500, says: "not available on node"},
		{call: "PUT /storage/d2", form: []string{"delete", "nodes", "disable", "1"}},
		{call: "GET /nodes/pve01/storage/d2/status", code: 500, says: "disabled"},
		{call: "PUT /storage/d2", form: []string{"delete", "path"}, code: 500, says: "required option"},
		{call: "DELETE /storage/d2"},
		{call: "DELETE /storage/d2", code: 500, says: "does not exist"},
	})
}

func TestVolumes(t *testing.T) {
	w := world(t, "lvmthin", pvesim.Options{Seed: 3})
	a := inProcess(t, w)
	dir, thin := "/nodes/pve01/storage/local-dir/content", "/nodes/pve01/storage/local-lvm/content"
	run(t, a, []step{
		{call: "POST " + dir, form: []string{"vmid", "100", "filename", "a.raw", "size", "1M"}, says: "local-dir:100/a.raw"},
		{call: "POST " + dir, form: []string{"vmid", "100", "filename", "a.raw", "size", "1M"}, code: 500, says: "already exists"},
		{call: "POST " + dir, form: []string{"vmid", "100", "filename", "a", "size", "1M"}, code: 500, says: "unable to parse volume filename"},
		{call: "POST " + dir, form: []string{"vmid", "100", "filename", "b.raw", "size", "1M", "format", "qcow2"}, code: 400, says: "different storage formats"},
		{call: "POST " + thin, form: []string{"vmid", "100", "filename", "a", "size", "1M"}, code: 500, says: "illegal name 'a' - should be 'vm-100-*'"},
		{call: "POST " + thin, form: []string{"vmid", "100", "filename", "vm-100-disk-3", "size", "1M"}, says: "vm-100-disk-3"},
		{call: "GET " + thin, says: `"size":4194304`},
		{call: "GET " + dir + "/iso", code: 500, says: "unable to parse directory volume name 'iso'"},
		{call: "GET " + dir, form: []string{"content", "nonsense"}, code: 400, says: "invalid content type"},
		{call: "GET " + dir + "/local:iso/x.iso", code: 400, says: "storage ID mismatch"},
		{call: "DELETE " + dir + "/100/a.raw", task: "OK"},
		{call: "DELETE " + dir + "/100/a.raw", task: "OK"}, // what is gone already is no error
		{call: "DELETE " + dir + "/100/a.raw", form: []string{"delay", "5"}, says: `"data":null`},
	})
}

// TestRareReads: what PVE refuses of file restores, imports and templates before it looks into any file.
func TestRareReads(t *testing.T) {
	a := inProcess(t, world(t, "lvmthin", pvesim.Options{}))
	local := "/nodes/pve01/storage/local"
	run(t, a, []step{
		{call: "GET " + local + "/file-restore/list", form: []string{"volume", "backup/vzdump-qemu-100-2026_01_01-00_00_00.vma.zst", "filepath", "/"}, code: 400, says: "Only PBS storages"},
		{call: "GET " + local + "/file-restore/download", form: []string{"volume", "local:iso/seed.iso", "filepath", "/"}, code: 500, says: "content type needs to be 'backup'"},
		{call: "GET " + local + "/file-restore/list", form: []string{"volume", "other:backup/x.tar", "filepath", "/"}, code: 400, says: "storage ID mismatch"},
		{call: "GET /nodes/pve01/storage/nosuch/file-restore/list", form: []string{"volume", "x", "filepath", "/"}, code: 500, says: "storage 'nosuch' does not exist"},
		{call: "GET " + local + "/import-metadata", form: []string{"volume", "iso/seed.iso"}, code: 500, says: "invalid content type 'iso'"},
		{call: "GET " + local + "/import-metadata", form: []string{"volume", "local:import/seed.qcow2"}, code: 500, says: "invalid format"},
		{call: "GET " + local + "/import-metadata", form: []string{"volume", "import/absent.ova"}, code: 500, says: "does not exist"},
		{call: "GET /nodes/pve01/storage/local-lvm/import-metadata", form: []string{"volume", "vm-100-disk-0"}, code: 500, says: "does not support import"},
		{call: "GET " + local + "/import-metadata", who: "gitops@pve!none=55555555-5555-4555-8555-555555555555", form: []string{"volume", "import/seed.qcow2"}, code: 403},
		{call: "POST /nodes/pve01/aplinfo", form: []string{"storage", "local", "template", "debian-13-standard_13.1-2_amd64.tar.zst"}, code: 400, says: "no such template"},
	})
}
