package field

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/yamldoc"
)

func FuzzLoad(f *testing.F) {
	f.Add("node: a\nmemory: 1GiB\ncpu: {cores: 2}\ndisks: [{storage: a, size: 1G, slot: scsi3}]\nextra: {a: 1}\nhardware: {efi-disk: {storage: x}}\n", "virtio=AA:BB:CC:00:00:01,bridge=b")
	f.Add("disks: null\nnetworks: [{}, 3, null]\n", ",,=")
	f.Add("tags: [[a]]\ncloud-init-data: {ssh-keys: {a: b}}\n", "lvm:8")
	f.Fuzz(func(t *testing.T, text, live string) {
		docs, _ := yamldoc.Parse("f", []byte(text))
		for _, doc := range docs {
			v := &vm{}
			ps := Load("f", doc, v.shape)
			for _, p := range ps {
				PathPos(doc, p.Path)
			}
			g := guest("")
			for _, key := range []string{"net0", "scsi0", "cpu", "efidisk0", "tags", "sshkeys"} {
				g.Config[key] = Entry{Value: &live}
			}
			d := Diff(v.shape(), g)
			for _, e := range d.Edits {
				if e.Create && (e.Key == "scsi0" || e.Key == "efidisk0") && strings.TrimSpace(live) != "" {
					t.Fatalf("%s: create form over %q", e.Key, live)
				}
			}
			ToNode(v.shape(), g)
			ReadInto((&vm{}).shape(), g)
		}
	})
}
