package main

import (
	"bytes"
	"errors"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// full is a device without room.
type full struct{ err error }

func (f full) Write([]byte) (int, error) { return 0, f.err }

// TestOutputIsLost: whatever a command found, it fails when it could not say
// so; only a reader that went away is not complained about.
func TestOutputIsLost(t *testing.T) {
	w, srv, line := labFor(t, 1)
	dir := badRepository(t, srv, map[string]string{"clusters/prod/resources.yaml": "resources: [vm/prod/a.yaml]\n"})
	env := []string{"PROXOPS_PVE_TOKEN_VALUE=" + line.Token, "HOME=" + t.TempDir(), "XDG_DATA_HOME=" + t.TempDir()}
	for _, text := range []string{
		"version", "--version", "help", "help diff", "diff --help", "explain", "explain VM", "explain VM.memory", "schema VM", "completion bash", "completion zsh",
		"completion fish", "completion powershell", "validate", "diff", "diff -o json", "diff -o markdown", "apply -n", "apply -n -o json", "status", "status -o json",
		"next-id", "doctor", "trust", "history", "adopt --check", "secrets", "snapshot --out -", "apply",
	} {
		for _, fault := range []error{syscall.ENOSPC, syscall.EPIPE} {
			var errs bytes.Buffer
			code := run(t.Context(), system{out: full{fault}, err: &errs, environ: env}, append([]string{"--git-path", dir}, strings.Fields(text)...))
			if code != 1 {
				t.Errorf("%s: %v: exit status %d, want 1\n%s", text, fault, code, &errs)
			}
			if said := strings.Contains(errs.String(), fault.Error()); errors.Is(fault, syscall.ENOSPC) && !said {
				t.Errorf("%s: nothing is said of the lost output: %s", text, &errs)
			}
		}
	}
	if got, want := strings.Join(writesOf(w), " "), "POST /nodes/pve01/qemu POST /nodes/pve01/qemu/100/status/start"; got != want {
		t.Errorf("%s: an apply runs to its end although nobody reads, and once", got)
	}
}

// TestMistyped: a command or flag that is not there names the one that is
// meant, or those that there are.
func TestMistyped(t *testing.T) {
	for text, want := range map[string]string{
		"stauts":                `^error: "stauts" is not a command of proxops; did you mean status\?\nsee proxops --help\n$`,
		"frobnicate":            `^error: "frobnicate" is not a command of proxops; there are .*diff`,
		"secrets ini":           `^error: "ini" is not a command of proxops secrets; did you mean init\?\nsee proxops secrets --help`,
		"help stauts":           `^error: "stauts" is not a command of proxops; did you mean status\?`,
		"help secrets ini":      `did you mean init\?`,
		"diff --outptu json":    `^error: unknown flag: --outptu; did you mean --output\?\nsee proxops diff --help`,
		"diff --custer a":       `did you mean --cluster\?`,
		"diff -x":               `^error: unknown shorthand flag`,
		"apply -o json":         `^error: --output: json is of a plan alone: add -n, .*\nsee proxops apply --help`,
		"schema":                `^error: proxops schema takes one KIND, got 0 arguments`,
		"explain VM LXC":        `^error: proxops explain takes one KIND or KIND.PATH, got 2 arguments`,
		"diff --prune-budget x": `^error: --prune-budget: "x" is not a whole number\nsee proxops diff --help\n$`,
		"diff --prune-budget=99999999999999999999": `^error: --prune-budget: "9{20}" is too large or too small\n`,
		"diff --read-only=maybe":                   `^error: --read-only: "maybe" is not true or false\n`,
		"history --since yesterday":                `^error: --since: "yesterday" is not a duration, such as 90s, 15m or 24h\n`,
		"diff --prune-vanished x":                  `^error: --prune-vanished: "x" is not one of VM, LXC, TemplateVM, TemplateCT`,
		"diff --prune-vanished iso":                `^error: --prune-vanished: "iso" is not one of`,
	} {
		r := proxops(t, t.TempDir(), nil, strings.Fields(text)...)
		if r.code != 1 || !regexp.MustCompile(want).MatchString(r.err) || r.out != "" {
			t.Errorf("%s: exit status %d\n%s%s", text, r.code, r.err, r.out)
		}
	}
	if got, err := guestKinds([]string{"vm", "TEMPLATEct"}); err != nil || strings.Join(got, " ") != "VM TemplateCT" {
		t.Errorf("%v %v: kinds are taken in any case", got, err)
	}
}

// TestFlagValues: no command lets a parser's own words out, whichever type its
// flags have; the shell completes the values of those that take few.
func TestFlagValues(t *testing.T) {
	a := &app{env: map[string]string{}}
	root := a.root()
	seen := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "string" || strings.HasPrefix(f.Value.Type(), "string") {
				return
			}
			seen++
			for _, bad := range []string{"x y", "99999999999999999999999"} {
				err := c.ParseFlags([]string{"--" + f.Name + "=" + bad})
				if err == nil {
					continue
				}
				if text := c.FlagErrorFunc()(c, err).Error(); !strings.HasPrefix(text, "--"+f.Name+`: "`+bad+`" is `) || strings.Contains(text, "strconv") || strings.Contains(text, "time:") {
					t.Errorf("%s --%s %s: %s", c.CommandPath(), f.Name, bad, text)
				}
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if seen < 20 {
		t.Errorf("only %d flags were tried", seen)
	}
	for args, want := range map[string]string{
		"diff -o":                 "text json markdown :4",
		"diff --output":           "text json markdown :4",
		"apply -o":                "text json markdown :4",
		"status -o":               "text json :4",
		"history -o":              "text json :4",
		"adopt -o":                "text json :4",
		"next-id --kind":          "VM LXC TemplateVM TemplateCT :4",
		"diff --log-level":        "debug info warn error :4",
		"status --pve-auth":       "token ticket :4",
		"adopt --select":          "tag= pool= vmid= name= kind= :6",
		"adopt --select kind=":    "kind=VM kind=LXC kind=TemplateVM kind=TemplateCT kind=ISO kind=CTTemplate kind=DiskImage :4",
		"adopt --select kind=VM,": "kind=VM,VM kind=VM,LXC kind=VM,TemplateVM kind=VM,TemplateCT kind=VM,ISO kind=VM,CTTemplate kind=VM,DiskImage :4",
	} {
		words := append([]string{"__complete"}, strings.Fields(args)...)
		if !strings.Contains(args, "=") {
			words = append(words, "")
		}
		r := proxops(t, t.TempDir(), nil, words...)
		got := strings.Fields(r.out)
		slices.Sort(got)
		exp := strings.Fields(want)
		slices.Sort(exp)
		if r.code != 0 || !slices.Equal(got, exp) {
			t.Errorf("%s: %s, want %s", args, r.out, want)
		}
	}
}
