package adopt

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/yamldoc"
)

// Proposal is the composition of a cluster with further items: where it goes,
// and its text.
type Proposal struct {
	File string
	Text []byte
	New  []string // the items that the present one does not have
	None bool     // there is no present one
}

// Propose makes the text of clusters/<cluster>/resources.yaml with lines added
// to what it lists now. Its comments stay where that can be done by adding
// lines at its end.
func Propose(root, cluster string, lines []string) (Proposal, error) {
	file := path.Join("clusters", cluster, "resources.yaml")
	p := Proposal{File: file + ".proposed"}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return p, err
	}
	defer func() { _ = dir.Close() }()
	old, err := dir.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	p.None = err != nil
	var listed []string
	docs, problems := yamldoc.Parse(file, old)
	if len(problems) > 0 {
		return p, problems
	}
	var list *yamldoc.Node
	if len(docs) == 1 {
		if list = docs[0].Get("resources"); list != nil {
			for _, i := range list.Items {
				listed = append(listed, i.Value)
			}
		}
	}
	have := map[string]bool{}
	for _, l := range listed {
		have[spelled(cluster, l)] = true
	}
	rooted := len(listed) > 0 && !slices.ContainsFunc(listed, func(l string) bool { return spelled(cluster, l) != path.Clean(l) })
	for _, l := range lines {
		if short := strings.TrimPrefix(l, "../../"); rooted && spelled(cluster, short) == spelled(cluster, l) {
			l = short // as the composition spells its own
		}
		if key := spelled(cluster, l); !have[key] {
			have[key] = true
			p.New = append(p.New, l)
		}
	}
	want := append(slices.Clone(listed), p.New...)
	p.Text = appended(old, list, p.New)
	if !lists(p.Text, want) {
		p.Text = yamldoc.Print(yamldoc.Map().Put("resources", yamldoc.Strs(want)))
	}
	return p, nil
}

// spelled is an item as a path from the root: both spellings name one file.
func spelled(cluster, item string) string {
	if first, _, _ := strings.Cut(item, "/"); first != "" {
		if _, ok := kind.ByFolder(first); ok {
			return path.Clean(item)
		}
	}
	return path.Join("clusters", cluster, item)
}

// appended adds items behind the last line of a block list.
func appended(old []byte, list *yamldoc.Node, lines []string) []byte {
	if list == nil || len(list.Items) == 0 {
		return nil
	}
	last := list.Items[len(list.Items)-1]
	rows := bytes.SplitAfter(old, []byte("\n"))
	if last.Line < 1 || last.Line > len(rows) {
		return nil
	}
	indent, _, ok := strings.Cut(string(rows[last.Line-1]), "- ")
	if !ok || strings.TrimSpace(indent) != "" {
		return nil
	}
	var b bytes.Buffer
	for _, r := range rows[:last.Line] {
		b.Write(r)
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	for _, l := range lines {
		b.WriteString(indent + "- " + l + "\n")
	}
	for _, r := range rows[last.Line:] {
		b.Write(r)
	}
	return b.Bytes()
}

func lists(text []byte, want []string) bool {
	docs, problems := yamldoc.Parse("", text)
	if len(problems) > 0 || len(docs) != 1 || docs[0].Get("resources") == nil {
		return false
	}
	var got []string
	for _, i := range docs[0].Get("resources").Items {
		got = append(got, i.Value)
	}
	return slices.Equal(got, want)
}

// Save writes the proposal beside the real composition, which stays as it is.
func (p Proposal) Save(root string) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return Put(dir, p.File, p.Text)
}
