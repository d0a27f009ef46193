package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/repo"
	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write the generated documents")

// TestGenerated: the documents that are printed from the code say what the
// code says. go test ./cmd/proxops -run Generated -update writes them.
func TestGenerated(t *testing.T) {
	want := map[string]string{
		"cli.md":              cliReference(),
		"reference-config.md": repo.Reference(),
	}
	for _, k := range kind.All {
		want["fields-"+strings.ToLower(k.Name)+".md"] = fieldReference(k)
		var b bytes.Buffer
		if err := writeSchema(&b, k); err != nil {
			t.Fatal(err)
		}
		want["schema/"+strings.ToLower(k.Name)+".json"] = b.String()
	}
	for name, text := range want {
		file := filepath.Join("..", "..", "docs", filepath.FromSlash(name))
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%s is not what the code says (%v): run go test ./cmd/proxops -run Generated -update", file, err)
		}
	}
}

func fieldReference(k *kind.Kind) string {
	return fmt.Sprintf("# Fields of %s\n\n%s: %s. Its manifests lie in `%s/`. Printed from the code; see also `proxops explain %s`.\n\nA field that is left out is not owned: it is neither written nor compared. `null` clears it.\n\n%s",
		k.Name, k.Name, k.Doc, k.Folder, k.Name, field.Table(specimen(k), k.Guest == "lxc"))
}

// cliReference is every command with its help and flags.
func cliReference() string {
	a := &app{env: map[string]string{}}
	root := a.root()
	root.InitDefaultVersionFlag()
	root.InitDefaultCompletionCmd()
	var b strings.Builder
	b.WriteString("# Commands\n\nPrinted from the code; `proxops COMMAND --help` says the same.\n\n## Global flags\n\n```\n" +
		root.PersistentFlags().FlagUsages() + "```\n")
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c != root && !c.Hidden {
			section := fmt.Sprintf("\n## %s\n\n%s.\n\n", c.CommandPath(), c.Short)
			if c.Runnable() {
				section += "```\n" + strings.TrimSuffix(c.UseLine(), " [flags]") + "\n```\n\n"
			}
			b.WriteString(section)
			for _, block := range []string{c.Long, c.Example} {
				if block != "" {
					b.WriteString("```\n" + strings.TrimRight(block, "\n") + "\n```\n\n")
				}
			}
			if f := c.LocalNonPersistentFlags(); f.HasAvailableFlags() {
				b.WriteString("```\n" + f.FlagUsages() + "```\n")
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return strings.ReplaceAll(b.String(), "\n\n\n", "\n\n")
}
