package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/spf13/cobra"
)

func (a *app) explainCmd() *cobra.Command {
	return &cobra.Command{
		Use: "explain [KIND[.PATH]]", GroupID: "more", Args: atMostOne("KIND or KIND.PATH", false),
		Short: "Explain a kind or a field of a manifest",
		Long: `Say what a field means, what it takes, which PVE key it is, and what a change of
it does to a running guest. Indexes may be left out.`,
		Example: "  proxops explain VM\n  proxops explain VM.networks.vlan\n  proxops explain LXC.options",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				for _, k := range kind.All {
					fmt.Fprintf(a.out, "%-12s %s\n", k.Name, k.Doc)
				}
				return nil
			}
			name, path, _ := strings.Cut(args[0], ".")
			k, err := kindNamed(name)
			if err != nil {
				return err
			}
			text, err := field.Explain(specimen(k), k.Guest == "lxc", strings.TrimPrefix(path, "spec."))
			if err != nil {
				return hint{err: fmt.Errorf("%s.%w", k.Name, err)}
			}
			if path == "" {
				text = k.Name + ": " + k.Doc + "\n\n" + strings.TrimLeft(text, "\n")
			}
			fmt.Fprintln(a.out, strings.TrimRight(text, "\n"))
			return nil
		},
		ValidArgsFunction: completeKind,
	}
}

func (a *app) schemaCmd() *cobra.Command {
	return &cobra.Command{
		Use: "schema KIND", GroupID: "more", Args: atMostOne("KIND", true),
		Short: "Print the JSON Schema of a kind, for editors",
		Long: `Print the JSON Schema (draft 2020-12) of a kind's manifest. With the YAML language
server, an editor checks and completes manifests that begin with
  # yaml-language-server: $schema=path/to/vm.json`,
		Example: "  proxops schema VM > .schema/vm.json",
		RunE: func(_ *cobra.Command, args []string) error {
			k, err := kindNamed(args[0])
			if err != nil {
				return err
			}
			return writeSchema(a.out, k)
		},
		ValidArgsFunction: completeKind,
	}
}

func completeKind(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, k := range kind.All {
		if len(args) == 0 {
			out = append(out, k.Name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// kindNamed finds a kind by its name, in any case.
func kindNamed(name string) (*kind.Kind, error) {
	for _, k := range kind.All {
		if strings.EqualFold(k.Name, name) {
			return k, nil
		}
	}
	return nil, hint{err: fmt.Errorf("%q is not a kind; there are %s", name, kind.Names())}
}

// specimen is a kind's spec with every block and list filled.
func specimen(k *kind.Kind) *field.Block {
	spec := k.New()
	return field.Specimen(func() *field.Block { return spec.Shape(nil) })
}

func writeSchema(w io.Writer, k *kind.Kind) error {
	text := func(pattern, doc string) map[string]any {
		return map[string]any{"type": "string", "pattern": pattern, "description": doc}
	}
	object := func(required []string, props map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": props, "required": required, "additionalProperties": false}
	}
	doc := object([]string{"apiVersion", "kind", "metadata", "spec"}, map[string]any{
		"apiVersion": map[string]any{"const": kind.APIVersion},
		"kind":       map[string]any{"const": k.Name},
		"metadata": object([]string{"name"}, map[string]any{
			"name":        text("^"+kind.NamePattern+"$", "Name, unique within its kind; others refer to it by this."),
			"annotations": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
			"labels":      map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
		}),
		"spec": field.Schema(specimen(k)),
	})
	doc["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	doc["title"], doc["description"] = "ProxOps "+k.Name, k.Doc
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}
