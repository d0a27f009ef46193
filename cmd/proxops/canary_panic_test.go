package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/show"
)

// dropped is an output that ends the program in the middle of what it says.
type dropped struct{}

func (dropped) Write([]byte) (int, error) { panic("the output broke off") }

// panics is a program that ends in a panic once it knows every secret of the
// cluster: its arguments are what the panic holds and the repository.
func panics() {
	what, dir := os.Args[1], os.Args[2]
	ctx := context.Background()
	if what == "output" {
		run(ctx, system{in: os.Stdin, out: dropped{}, err: os.Stderr, environ: os.Environ()}, []string{"--git-path", dir, "diff"})
		return
	}
	a := &app{system: system{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ()}, env: map[string]string{}, level: &slog.LevelVar{}}
	for _, kv := range a.environ {
		k, v, _ := strings.Cut(kv, "=")
		a.env[k] = v
	}
	a.flags.GitPath = dir
	s, err := a.session(ctx, false)
	if err != nil {
		panic(err)
	}
	c, err := s.repo.Load(ctx, "prod")
	if err != nil {
		panic(err)
	}
	held := []any{c, *c, c.Secrets, s.repo.Settings()}
	for _, res := range c.Resources {
		held = append(held, res, *res, res.Spec)
	}
	if what == "plan" {
		reports := s.cycles(ctx, func(string, *reconcile.Options) {})
		show.Text(os.Stderr, show.Style{}, reports)
		held = append(held, reports)
		for _, act := range reports[0].Plan.Actions {
			held = append(held, act, act.Do, act.Changes)
		}
	}
	panic(fmt.Sprintf("%v\n%+v\n%#v\n%s\n%q\n%x", held, held, held, held, held, held))
}

// TestCanaryPanic: a panic that ends the program, and the dump of all its
// goroutines, show no secret, also where the panic prints what holds them.
func TestCanaryPanic(t *testing.T) {
	p := plant(t)
	for what, says := range map[string]string{"output": "the output broke off", "cluster": "(redacted)", "plan": "(redacted)"} {
		cmd := exec.CommandContext(t.Context(), "proxops-panics", what, p.dir)
		cmd.Env = append(p.env, "GOTRACEBACK=all")
		text, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(text), "panic: ") || !strings.Contains(string(text), "goroutine ") || !strings.Contains(string(text), says) {
			t.Errorf("%s: %v\n%.2000s", what, err, text)
		}
		if what == "plan" && !strings.Contains(string(text), "2 actions") {
			t.Errorf("the plan is not of this cluster:\n%.2000s", text)
		}
		p.check(t, what, string(text))
	}
}
