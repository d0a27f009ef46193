package main

import (
	"os"
	"strings"

	"github.com/proxops/proxops/internal/yamldoc"
)

// addReferences adds lines to the entry pve.clusters.<name> of a config file,
// leaving every other byte as it is. It reports false, and writes nothing,
// where the entry is missing, written on one line, or has secrets already.
func addReferences(file, name, block string) (bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	entry := clusterEntry(text, name)
	if entry == nil || entry.Kind != yamldoc.Mapping || len(entry.Keys) == 0 || entry.Get("secrets") != nil || entry.Get("secrets-file") != nil {
		return false, nil
	}
	first := entry.Keys[0]
	lines := strings.SplitAfter(string(text), "\n")
	if first.Line < 2 || first.Line > len(lines) || strings.TrimSpace(lines[first.Line-1][:first.Col-1]) != "" {
		return false, nil // in braces
	}
	added := indent(block, strings.Repeat(" ", first.Col-1))
	out := strings.Join(lines[:first.Line-1], "") + added + strings.Join(lines[first.Line-1:], "")
	if now := clusterEntry([]byte(out), name); now == nil || now.Get("secrets-file") == nil || len(now.Keys) != len(entry.Keys)+2 {
		return false, nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return false, err
	}
	return true, writeWhole(file, []byte(out), info.Mode().Perm())
}

// clusterEntry finds pve.clusters.<name>, or nil.
func clusterEntry(text []byte, name string) *yamldoc.Node {
	docs, problems := yamldoc.Parse("config.yaml", text)
	if len(problems) > 0 || len(docs) != 1 {
		return nil
	}
	n := docs[0]
	for _, key := range []string{"pve", "clusters", name} {
		if n == nil || n.Kind != yamldoc.Mapping {
			return nil
		}
		n = n.Get(key)
	}
	return n
}

// indent puts blanks before every line that is not empty.
func indent(text, blanks string) string {
	var b strings.Builder
	for _, l := range strings.SplitAfter(text, "\n") {
		if strings.TrimSpace(l) != "" {
			b.WriteString(blanks)
		}
		b.WriteString(l)
	}
	return b.String()
}
