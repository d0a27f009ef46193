package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"

	"github.com/proxops/proxops/internal/pve"
	"github.com/spf13/cobra"
)

func (a *app) snapshotCmd() *cobra.Command {
	var out string
	var force bool
	c := &cobra.Command{
		Use: "snapshot --cluster NAME --out FILE", GroupID: "more", Args: noArgs,
		Short: "Save what a cluster answers, made anonymous, for lab --from",
		Long: `Read the allowed nodes of a cluster with GET requests and save the answers: guests
with their configs, pending changes and snapshots, storages with their contents,
pools and options. proxops lab --from FILE then simulates that estate, so that it
can stand in a bug report.

Replaced, each always by the same: names of the cluster, its nodes, guests,
storages, pools, snapshots, tags, files, directories, virtual networks and
mappings, MAC and IP addresses, uuids, public keys and descriptions. Replaced by
one fixed text: users, domains, passwords, serial numbers, QEMU arguments,
environments, servers. Left out: comments, notes, fingerprints, and all options
of storages and of the datacenter that shape no plan. Kept: vmids, sizes, types,
times, vmbrN, local and local-lvm. Look the file through before you give it away.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return hint{err: errors.New("--out: name the file to write")}
			}
			return a.snapshot(cmd.Context(), out, force)
		},
	}
	c.Flags().StringVar(&out, "out", "", "file to write; - is standard output")
	c.Flags().BoolVar(&force, "force", false, "overwrite the file")
	return c
}

// estateFile is a snapshot: the data of GET answers by API path.
type estateFile struct {
	Format  string         `json:"format"`
	Answers map[string]any `json:"answers"`
}

func (a *app) snapshot(ctx context.Context, out string, force bool) error {
	switch st, err := os.Stat(out); {
	case err != nil || out == "-":
	case !st.Mode().IsRegular(): // its place would be taken by a file
		return fmt.Errorf("--out: %s is no regular file; - writes to standard output", out)
	case !force:
		return fmt.Errorf("--out: %s exists already; --force overwrites it", out)
	}
	c, client, err := a.reader(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	e := &estateReader{r: client.Reader(), answers: map[string]any{}}
	if err := e.read(ctx, c.Config.Nodes); err != nil {
		return err
	}
	m := newMasker()
	m.learn(e.answers)
	b, err := json.MarshalIndent(estateFile{"pve-answers/1", m.all(e.answers)}, "", " ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	told := a.out
	if out == "-" {
		told = a.err
		_, err = a.out.Write(b)
	} else if err = writeWhole(out, b, 0o600); err != nil {
		err = fmt.Errorf("--out: %w", err)
	}
	if err != nil {
		return err
	}
	for _, p := range e.problems {
		fmt.Fprintf(a.err, "not read: %s\n", p)
	}
	fmt.Fprintf(told, "%s: %d guests, %d answers; %d reads, %d writes\n", out, e.guests, len(e.answers), e.r.Stats().Reads, e.r.Stats().Writes)
	return nil
}

// estateReader gathers answers.
type estateReader struct {
	r        *pve.Reader
	answers  map[string]any
	problems []string
	guests   int
}

// get keeps the answer of a path; what cannot be read is told and left out.
func (e *estateReader) get(ctx context.Context, path string, query url.Values) any {
	var v any
	if err := e.r.Get(ctx, path, query, &v); err != nil {
		e.problems = append(e.problems, err.Error())
		return nil
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	e.answers[path] = v
	return v
}

func (e *estateReader) read(ctx context.Context, nodes []string) error {
	for _, path := range []string{"/cluster/status", "/nodes", "/storage", "/cluster/options", "/cluster/ha/resources"} {
		e.get(ctx, path, nil)
	}
	guests := e.get(ctx, "/cluster/resources", url.Values{"type": {"vm"}})
	if guests == nil {
		return errors.New(e.problems[len(e.problems)-1])
	}
	for _, pool := range objects(e.get(ctx, "/pools", nil)) {
		e.get(ctx, "/pools", url.Values{"poolid": {word(pool["poolid"])}}) // takes nested pools, which the path does not
	}
	for _, node := range nodes {
		at := "/nodes/" + url.PathEscape(node)
		e.get(ctx, at+"/network", nil)
		for _, st := range objects(e.get(ctx, at+"/storage", nil)) {
			if fmt.Sprint(st["active"]) == "1" {
				e.get(ctx, at+"/storage/"+url.PathEscape(word(st["storage"]))+"/content", nil)
			}
		}
	}
	for _, g := range objects(guests) {
		if slices.Contains(nodes, word(g["node"])) {
			e.guest(ctx, fmt.Sprintf("/nodes/%s/%s/%v", url.PathEscape(word(g["node"])), word(g["type"]), g["vmid"]))
		}
	}
	return ctx.Err()
}

func (e *estateReader) guest(ctx context.Context, at string) {
	e.guests++
	e.get(ctx, at+"/config", url.Values{"current": {"1"}})
	e.get(ctx, at+"/pending", nil)
	for _, s := range objects(e.get(ctx, at+"/snapshot", nil)) {
		if name := word(s["name"]); name != "current" {
			e.get(ctx, at+"/snapshot/"+url.PathEscape(name)+"/config", nil)
		}
	}
}

func objects(v any) []map[string]any {
	list, _ := v.([]any)
	var out []map[string]any
	for _, x := range list {
		if m, ok := x.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func word(v any) string {
	s, _ := v.(string)
	return s
}
