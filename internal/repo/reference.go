package repo

import (
	"fmt"
	"strings"
)

// Reference is docs/reference-config.md: every setting, from the tables.
func Reference() string {
	var b strings.Builder
	b.WriteString(`# Configuration reference

This page is generated from the tables that read the configuration.

Settings come in layers; a later one wins: defaults, ` + "`proxops.yaml`" + `, a
cluster's ` + "`config.yaml`" + `, flags. Credentials come from ` + "`proxops.yaml`" + `, then the
environment, then flags; a cluster with a ` + "`secrets-file`" + ` uses what that file
holds and nothing else. An unknown key is an error.

## proxops.yaml

Optional, at the root of the repository, or where ` + "`--config`" + ` or
` + "`PROXOPS_CONFIG`" + ` points. Relative paths start at its directory. In URL mode the
file of the fetched repository is not read: a commit cannot change how the
agent itself runs.

`)
	table(&b, append(rows(ProcessKeys), rows(ReconcileKeys)...))
	b.WriteString(`
In URL mode outside a repository, ` + "`pve.clusters.<name>`" + ` may stand here too, with
the keys of the next section.

## clusters/&lt;name&gt;/config.yaml

Declares exactly one entry, ` + "`pve.clusters.<name>`" + `, named after its directory, and
may hold ` + "`pve.auth`" + ` beside it. Relative paths start at this file's directory and
stay inside the repository.

`)
	table(&b, append(rows(ClusterKeys), rows(ReconcileKeys)...))
	b.WriteString(`
The ` + "`secrets.*`" + ` keys name entries of the ` + "`secrets:`" + ` mapping of the decrypted file.

## Environment

| variable | what |
|---|---|
| ` + "`PROXOPS_CONFIG`" + ` | path of proxops.yaml |
| ` + "`PROXOPS_GIT_PATH`" + ` | root of the repository; wins over ` + "`git.url`" + ` |
`)
	for _, r := range rows(ProcessKeys) {
		if r.env != "" {
			fmt.Fprintf(&b, "| `%s` | `%s` |\n", r.env, r.path)
		}
	}
	b.WriteString("| `SOPS_AGE_KEY_FILE`, `SOPS_AGE_KEY` | age identities, as SOPS finds them |\n")
	return b.String()
}

type row struct{ path, takes, def, doc, env, flag string }

func rows[S any](keys []Key[S]) []row {
	var out []row
	for _, k := range keys {
		out = append(out, row{k.Path, k.Takes, k.Default, k.Doc, k.Env, k.Flag})
	}
	return out
}

func table(b *strings.Builder, rows []row) {
	b.WriteString("| key | takes | default | what | also |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		var also []string
		for _, s := range []string{r.env, r.flag} {
			if s != "" {
				also = append(also, "`"+s+"`")
			}
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", r.path, cell(r.takes), cell(r.def), cell(r.doc), strings.Join(also, ", "))
	}
}

func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(s)
}
