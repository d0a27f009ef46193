package plan

import (
	"fmt"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/wire"
)

// newVolumes says which volumes a config write makes on a guest that is there,
// since nothing else tells a disk that is to be made from one that changes: a
// disk whose slot changes in the manifest is a new one. What lies unused on the
// guest is not taken for it: PVE allocates anew for each create form, and
// nobody but a person may say that old data serve again (facts D). "" = nothing
// to say. No write of ours leaves an unusedN behind: a filled slot is never
// emptied.
func newVolumes(g *field.Guest, edits []field.Edit) string {
	var made, unused []string
	for _, e := range edits {
		if text := newVolume(g, e); text != "" {
			made = append(made, text)
		}
	}
	if len(made) == 0 {
		return ""
	}
	for _, key := range sortedKeys(g.Config) {
		if text, ok := g.Get(key); ok && wire.KeyClass(key) == "unused" {
			unused = append(unused, fmt.Sprintf("%s (%s)", key, firstToken(text)))
		}
	}
	text := "makes " + strings.Join(made, ", ")
	if len(unused) > 0 {
		text += "; " + strings.Join(unused, ", ") + " stays unused"
	}
	return text
}

// newVolume is one of them, or "". What a cloud-init drive holds PVE makes of
// the config, so it is no news.
func newVolume(g *field.Guest, e field.Edit) string {
	if !e.Create || e.Delete {
		return ""
	}
	p := wire.ParseProps(e.Value.String(), wire.FormatOf(g.LXC, e.Key))
	file, _ := p.Get(wire.FirstToken(g.LXC))
	storage, gib, _ := wire.SplitVolID(file)
	if wire.IsCloudInit(file) {
		return ""
	}
	if image, ok := p.Get("import-from"); ok {
		return fmt.Sprintf("a new volume on %s in %s, a copy of %s", storage, e.Key, image)
	}
	size := ""
	if n, err := wire.ReadSize(gib + "G"); err == nil && e.Key != "efidisk0" && e.Key != "tpmstate0" { // PVE decides those itself
		size = " of " + n.String()
	}
	return fmt.Sprintf("a new, empty volume%s on %s in %s", size, storage, e.Key)
}
