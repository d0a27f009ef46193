package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/proxops/proxops/examples"
	"github.com/proxops/proxops/internal/pvesim"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/sops"
)

// demoCredentials are drawn anew for each demo.
type demoCredentials struct {
	token secret.Text // user@realm!id=secret
	alice secret.Text
	key   string // an ssh public key
}

// demoRole is what the token may do: enough for the example repository and no
// more.
var demoRole = [...]string{
	"Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit", "SDN.Use", "Sys.AccessNetwork", "Sys.Audit",
	"VM.Allocate", "VM.Audit", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk",
	"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.PowerMgmt",
}

// demoEstate is an empty two-node cluster with a token for us and a user who
// does things by hand.
func demoEstate() (pvesim.State, demoCredentials) {
	s := plainEstate(2)
	s.ClusterName = "demo"
	uuid, password := drawUUID(), rand.Text()
	alice := &pvesim.User{ID: "alice@pve", Enabled: true}
	alice.SetPassword(password)
	s.Access = pvesim.Access{
		Users: map[string]*pvesim.User{
			"alice@pve":  alice,
			"gitops@pve": {ID: "gitops@pve", Enabled: true, Tokens: map[string]*pvesim.Token{"proxops": {ID: "proxops", Secret: uuid}}},
		},
		Roles: map[string][]string{"ProxOps": demoRole[:]},
		ACL: []pvesim.ACLEntry{
			{Path: "/", Kind: "user", Who: "alice@pve", Role: "Administrator", Propagate: true},
			{Path: "/", Kind: "user", Who: "gitops@pve", Role: "ProxOps", Propagate: true},
		},
	}
	return s, demoCredentials{token: secret.New("gitops@pve!proxops=" + uuid), alice: secret.New(password), key: drawSSHKey()}
}

// drawSSHKey is the public half of a key that nobody has.
func drawSSHKey() string {
	pub, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil { // the system's source does not fail
		return ""
	}
	var b []byte
	for _, part := range [][]byte{[]byte("ssh-ed25519"), pub} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	return "ssh-ed25519 " + base64.StdEncoding.EncodeToString(b) + " ops@demo"
}

// write writes the example repository, adapted to this cluster, with an
// encrypted secrets file, and commits it.
func (d *demoRun) write(f *demoFiles, creds demoCredentials) error {
	if err := copyExample(d.repo(), func(text string) string { return f.adapt(d.adapt(text)) }); err != nil {
		return err
	}
	plain := fmt.Sprintf("# Change this with: proxops secrets edit --cluster demo\nsecrets:\n    proxops-token: %s\ncloud-init:\n    ssh-keys:\n        ops: %s\n",
		creds.token.Reveal(), creds.key)
	_, err := sops.Init(sops.InitOptions{
		Path: filepath.Join(d.repo(), "clusters", "demo", "secrets.sops.yaml"), IdentityFile: d.keyFile(), Initial: secret.New(plain),
	})
	if err != nil {
		return err
	}
	return commitAll(d.repo(), "Declare the demo cluster")
}

// adapt puts the simulator's address into the example's configuration.
func (d *demoRun) adapt(text string) string {
	zeros := strings.TrimSuffix(strings.Repeat("00:", sha256.Size), ":")
	return strings.NewReplacer("https://127.0.0.1:8006", d.srv.URL, zeros, d.srv.Fingerprint).Replace(text)
}

func copyExample(to string, adapt func(string) string) error {
	root, err := fs.Sub(examples.Demo, "demo")
	if err != nil {
		return err
	}
	return fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		full := filepath.Join(to, filepath.FromSlash(name))
		if e.IsDir() {
			return os.MkdirAll(full, 0o755)
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		return os.WriteFile(full, []byte(adapt(string(text))), 0o644)
	})
}

// commitAll commits all files of a folder; where it is no git repository yet,
// it becomes one.
func commitAll(dir, message string) error {
	r, err := git.PlainOpen(dir)
	if errors.Is(err, git.ErrRepositoryNotExists) {
		r, err = git.PlainInitWithOptions(dir, &git.PlainInitOptions{InitOptions: git.InitOptions{DefaultBranch: plumbing.NewBranchReferenceName("main")}})
	}
	if err != nil {
		return fmt.Errorf("%s: git: %w", dir, err)
	}
	w, err := r.Worktree()
	if err != nil {
		return fmt.Errorf("%s: git: %w", dir, err)
	}
	if err := w.AddWithOptions(&git.AddOptions{All: true}); err != nil {
		return fmt.Errorf("%s: git: %w", dir, err)
	}
	who := &object.Signature{Name: "ProxOps demo", Email: "demo@example.com", When: time.Now()}
	if _, err := w.Commit(message, &git.CommitOptions{Author: who, Committer: who}); err != nil {
		return fmt.Errorf("%s: git: %w", dir, err)
	}
	return nil
}

// demoFiles is the web server that the nodes download from.
type demoFiles struct {
	srv  *http.Server
	url  string
	file map[string][]byte
}

func serveDemoFiles() (*demoFiles, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &demoFiles{url: "http://" + ln.Addr().String(), file: map[string][]byte{
		"rescue.iso": filler("rescue", 3<<20),
		"debian-13-standard_13.1-2_amd64.tar.zst": filler("archive", 2<<20),
		"debian-13-genericcloud-amd64.qcow2":      append(qcow2Header(3<<30), filler("image", 4<<20)...),
	}}
	f.srv = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		text, ok := f.file[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
	})}
	go func() { _ = f.srv.Serve(ln) }()
	return f, nil
}

func (f *demoFiles) close() { _ = f.srv.Close() }

// adapt puts the server's address and a file's checksum into its manifest.
func (f *demoFiles) adapt(text string) string {
	for name, content := range f.file {
		if strings.Contains(text, "/"+name) {
			sum := sha256.Sum256(content)
			text = strings.Replace(text, strings.Repeat("0", 2*sha256.Size), hex.EncodeToString(sum[:]), 1)
		}
	}
	return strings.ReplaceAll(text, "http://127.0.0.1:9080", f.url)
}

// filler is text that stands for a file's content.
func filler(word string, size int) []byte {
	return bytes.Repeat([]byte(word+"\n"), size/(len(word)+1)+1)[:size]
}

// qcow2Header is the beginning of a qcow2 image (version 3, clusters of 64
// KiB) of a virtual size in bytes.
func qcow2Header(size uint64) []byte {
	h := make([]byte, 104)
	copy(h, "QFI\xfb")
	binary.BigEndian.PutUint32(h[4:], 3)
	binary.BigEndian.PutUint32(h[20:], 16)
	binary.BigEndian.PutUint64(h[24:], size)
	binary.BigEndian.PutUint32(h[96:], 4)
	binary.BigEndian.PutUint32(h[100:], 104)
	return h
}
