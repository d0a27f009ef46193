package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/repo"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const docRoot = "../.."

// page is one document, with its fenced blocks taken out of the prose.
type page struct {
	name   string // from the repository root, with slashes
	text   string
	prose  string
	fences []fence
}

type fence struct {
	line       int
	lang, file string // from the info string: LANG file=NAME
	text       string
}

// pages reads every document for users.
func pages(t *testing.T) []page {
	t.Helper()
	var out []page
	err := filepath.WalkDir(docRoot, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(docRoot, name)
		rel = filepath.ToSlash(rel)
		if e.IsDir() {
			if rel != "." && !strings.HasPrefix(rel, "docs") && !strings.HasPrefix(rel, "examples") && !strings.HasPrefix(rel, "deploy") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		b, err := os.ReadFile(name)
		out = append(out, split(rel, string(b)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 20 {
		t.Fatalf("%d documents found; the test looks in the wrong place", len(out))
	}
	return out
}

func split(name, text string) page {
	p := page{name: name, text: text}
	var prose strings.Builder
	var in *fence
	for i, line := range strings.Split(text, "\n") {
		info, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && in == nil:
			in = &fence{line: i + 1}
			for _, w := range strings.Fields(info) {
				if f, ok := strings.CutPrefix(w, "file="); ok {
					in.file = f
				} else if in.lang == "" {
					in.lang = w
				}
			}
		case isFence:
			p.fences = append(p.fences, *in)
			in = nil
		case in != nil:
			in.text += line + "\n"
		default:
			prose.WriteString(line)
		}
		prose.WriteByte('\n') // lines keep their numbers
	}
	p.prose = prose.String()
	return p
}

// TestDocsManifests writes the files of each document to a repository and
// validates it. A document without a configuration gets one that lists all of
// its manifests.
func TestDocsManifests(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range pages(t) {
		files := map[string]string{}
		for _, f := range p.fences {
			if f.file != "" {
				files[f.file] = f.text
			}
		}
		if len(files) == 0 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			complete(files)
			dir := t.TempDir()
			writeFiles(t, dir, files)
			r, err := repo.Open(repo.Options{Dir: dir, NoSecrets: true, Overrides: repo.Overrides{GitPath: dir}})
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := r.LoadAll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, l := range loaded {
				if l.Err != nil {
					t.Errorf("%v", l.Err)
					continue
				}
				for _, res := range l.Cluster.Resources {
					seen[res.Kind.Name] = true
					n++
				}
				for _, w := range l.Cluster.Warnings {
					t.Errorf("an example should not warn: %s", w)
				}
			}
			if want := manifestCount(files); n != want && !t.Failed() {
				t.Errorf("%d of %d manifests are listed by a composition", n, want)
			}
		})
	}
	for _, name := range []string{"VM", "LXC", "TemplateVM", "ISO", "CTTemplate", "DiskImage"} {
		if !seen[name] {
			t.Errorf("no document shows a complete %s", name)
		}
	}
}

func isManifest(name string) bool {
	folder, _, _ := strings.Cut(name, "/")
	_, ok := kind.ByFolder(folder)
	return ok
}

func manifestCount(files map[string]string) int {
	n := 0
	for name := range files {
		if isManifest(name) {
			n++
		}
	}
	return n
}

// complete adds what a document leaves out.
func complete(files map[string]string) {
	clusters := map[string]bool{}
	for name := range files {
		if parts := strings.Split(name, "/"); len(parts) == 3 && parts[1] != "base" {
			clusters[parts[1]] = true
		}
	}
	for c := range clusters {
		config, list := "clusters/"+c+"/config.yaml", "clusters/"+c+"/resources.yaml"
		if _, ok := files[config]; !ok {
			files[config] = fmt.Sprintf("pve:\n  clusters:\n    %s:\n      base-url: https://192.0.2.1\n      nodes: [pve01, pve02]\n", c)
		}
		if _, ok := files[list]; ok {
			continue
		}
		text := "resources:\n"
		for name := range files {
			if isManifest(name) {
				text += "  - " + name + "\n"
			}
		}
		files[list] = text
	}
}

var (
	linkRE   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headRE   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	slugDrop = regexp.MustCompile("[^a-z0-9 _-]")
)

// slug is the anchor of a heading, as forges make it.
func slug(heading string) string {
	return strings.ReplaceAll(slugDrop.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// TestDocsLinks follows every relative link, to the heading.
func TestDocsLinks(t *testing.T) {
	all := map[string]page{}
	for _, p := range pages(t) {
		all[p.name] = p
	}
	for _, p := range all {
		for _, m := range linkRE.FindAllStringSubmatch(p.prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			name := p.name
			if file != "" {
				name = filepath.ToSlash(filepath.Join(filepath.Dir(p.name), file))
			}
			if _, err := os.Stat(filepath.Join(docRoot, name)); err != nil {
				t.Errorf("%s: %s leads nowhere", p.name, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			heads := headRE.FindAllStringSubmatch(all[name].prose, -1)
			if !slices.ContainsFunc(heads, func(h []string) bool { return slug(h[1]) == anchor }) {
				t.Errorf("%s: %s has no heading #%s", p.name, name, anchor)
			}
		}
	}
}

// commandRE finds what is said to be typed: in code, from the program's name
// to the end of the command.
var (
	commandRE = regexp.MustCompile(`(?m)(?:^\s*(?:\$ )?|[|&(]\s*|\S/)proxops ([^|;&<>#)` + "`" + `\n]*)`)
	inlineRE  = regexp.MustCompile("`([^`\n]+)`")
)

// TestDocsCommands looks every command and flag that a document names up in
// the program.
func TestDocsCommands(t *testing.T) {
	root := (&app{system: system{in: os.Stdin, out: os.Stdout, err: os.Stderr}}).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	n := 0
	for _, p := range pages(t) {
		var code []string
		for _, f := range p.fences {
			switch f.lang {
			case "sh", "console", "ini":
				code = append(code, strings.ReplaceAll(f.text, "\\\n", " "))
			}
		}
		for _, m := range inlineRE.FindAllStringSubmatch(p.prose, -1) {
			code = append(code, m[1])
			if strings.HasPrefix(m[1], "--") && m[1] != "---" && !anyFlag(root, m[1]) && !foreignFlags[strings.Fields(m[1])[0]] {
				t.Errorf("%s: no command has the flag %s", p.name, m[1])
			}
		}
		for _, text := range code {
			for _, m := range commandRE.FindAllStringSubmatch(text, -1) {
				n++
				if err := typed(root, strings.Fields(m[1])); err != nil {
					t.Errorf("%s: proxops %s: %v", p.name, strings.TrimSpace(m[1]), err)
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("%d commands found in the documents; the test looks in the wrong place", n)
	}
}

// foreignFlags are other programs', named in prose.
var foreignFlags = map[string]bool{"--privsep": true, "--data-urlencode": true}

// typed checks one command line.
func typed(root *cobra.Command, words []string) error {
	cmd := root
	for len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		i := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == words[0] || c.HasAlias(words[0]) })
		if i < 0 {
			break
		}
		cmd, words = cmd.Commands()[i], words[1:]
	}
	if cmd == root && len(words) > 0 && words[0] == strings.ToUpper(words[0]) {
		return nil // a placeholder, such as COMMAND
	}
	if cmd == root && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		return fmt.Errorf("no such command")
	}
	if cmd.HasSubCommands() && !cmd.Runnable() && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		return fmt.Errorf("%s has no command %s", cmd.CommandPath(), words[0])
	}
	for _, w := range words {
		name, _, _ := strings.Cut(strings.Trim(w, `'",.:`), "=")
		var f *pflag.Flag
		switch {
		case strings.HasPrefix(name, "--"):
			f = flagOf(cmd, name[2:])
		case len(name) == 2 && name[0] == '-' && name != "--":
			if f = cmd.Flags().ShorthandLookup(name[1:]); f == nil {
				f = root.PersistentFlags().ShorthandLookup(name[1:])
			}
		default:
			continue
		}
		if f == nil && name != "--help" && name != "-h" && name != "--version" {
			return fmt.Errorf("%s has no flag %s", cmd.CommandPath(), name)
		}
	}
	return nil
}

func flagOf(cmd *cobra.Command, name string) *pflag.Flag {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f
	}
	return cmd.Root().PersistentFlags().Lookup(name)
}

// anyFlag reports whether some command has a flag that prose names alone.
func anyFlag(root *cobra.Command, text string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(strings.Fields(text)[0], "--"), "=")
	all := []*cobra.Command{root}
	for len(all) > 0 {
		c := all[0]
		all = append(all[1:], c.Commands()...)
		if flagOf(c, name) != nil {
			return true
		}
	}
	return name == "help" || name == "version"
}

// TestDocsDependencies compares what is imported with what is told of it.
func TestDocsDependencies(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(docRoot, "docs", "dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(string(b), -1) {
		for _, mod := range strings.Split(m[1], ", ") {
			if strings.Contains(mod, ".") {
				told = append(told, strings.TrimSpace(mod))
			}
		}
	}
	used := map[string]bool{}
	for path, where := range imports(t) {
		i := slices.IndexFunc(told, func(mod string) bool { return path == mod || strings.HasPrefix(path, mod+"/") })
		if i < 0 {
			t.Errorf("docs/dependencies.md does not name %s, which %s imports", path, where)
			continue
		}
		used[told[i]] = true
	}
	for _, mod := range told {
		if !used[mod] {
			t.Errorf("docs/dependencies.md names %s, and nothing imports it", mod)
		}
	}
}

// imports are the packages of other modules, with a file that needs each.
func imports(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, top := range []string{"cmd", "internal", "examples"} {
		err := filepath.WalkDir(filepath.Join(docRoot, top), func(name string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir():
				if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil || e.Name() == "testdata" {
					return filepath.SkipDir // a module of its own
				}
				return nil
			case filepath.Ext(name) != ".go":
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, i := range f.Imports {
				path, _ := strconv.Unquote(i.Path.Value)
				host, _, _ := strings.Cut(path, "/")
				if strings.Contains(host, ".") && !strings.HasPrefix(path, "github.com/proxops/proxops/") {
					out[path] = name
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestDocsMetrics compares the metrics that operations.md names with the code.
func TestDocsMetrics(t *testing.T) {
	names := func(file string, re *regexp.Regexp) map[string]bool {
		b, err := os.ReadFile(filepath.Join(docRoot, file))
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, m := range re.FindAllStringSubmatch(string(b), -1) {
			out[m[1]] = true
		}
		return out
	}
	code := names("internal/web/metrics.go", regexp.MustCompile(`name: "(proxops_[a-z_]+)"`))
	for name := range names("docs/operations.md", regexp.MustCompile("`(proxops_[a-z_]+)`")) {
		if !code[name] {
			t.Errorf("docs/operations.md names %s, which is no metric", name)
		}
	}
	if len(code) < 10 {
		t.Errorf("%d metrics found; the test looks in the wrong place", len(code))
	}
}

// TestDocsDecisions wants every decision in the list of decisions.
func TestDocsDecisions(t *testing.T) {
	dir := filepath.Join(docRoot, "docs", "decisions")
	b, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "[0-9]*.md"))
	if len(files) < 10 {
		t.Fatalf("%d decisions found", len(files))
	}
	numbers := map[string]bool{}
	for _, f := range files {
		name := filepath.Base(f)
		if !strings.Contains(string(b), "("+name+")") {
			t.Errorf("docs/decisions/README.md does not list %s", name)
		}
		if numbers[name[:3]] {
			t.Errorf("two decisions have the number %s", name[:3])
		}
		numbers[name[:3]] = true
	}
}
