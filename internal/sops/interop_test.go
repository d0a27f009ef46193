package sops

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/secret"
)

// sopsBinary gives a function that runs the real sops, named by
// PROXOPS_SOPS_BIN, with one age identity.
func sopsBinary(t *testing.T) func(t *testing.T, env Env, args ...string) string {
	bin := os.Getenv("PROXOPS_SOPS_BIN")
	if bin == "" {
		t.Skip("PROXOPS_SOPS_BIN does not name a sops binary (go install github.com/getsops/sops/v3/cmd/sops@v3.13.3)")
	}
	return func(t *testing.T, env Env, args ...string) string {
		t.Helper()
		cmd := exec.Command(bin, args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SOPS_AGE_KEY_FILE=" + env.KeyFile, "SOPS_DISABLE_VERSION_CHECK=1"}
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("sops %v: %v\n%s", args, err, errs.String())
		}
		return string(out)
	}
}

// What we write, sops reads: after Create, Set, Rekey, Edit.
func TestSopsReadsOurs(t *testing.T) {
	sops := sopsBinary(t)
	path, env, mine := newFile(t)
	if got := sops(t, env, "decrypt", path); !strings.Contains(got, "token: canary-token") {
		t.Errorf("created: got\n%s", got)
	}
	for ref, extract := range map[string]string{
		"secrets.token":            `["secrets"]["token"]`,
		"secrets.added":            `["secrets"]["added"]`,
		"secrets.dotted.name":      `["secrets"]["dotted.name"]`,
		"cloud-init.ssh-keys.a@b":  `["cloud-init"]["ssh-keys"]["a@b"]`,
		"cloud-init.passwords.web": `["cloud-init"]["passwords"]["web"]`,
	} {
		value := "line\n  two: \"quoted\" # 'x' \\ ü\t" + ref
		if err := Set(t.Context(), path, env, ref, secret.New(value)); err != nil {
			t.Fatal(err)
		}
		if got := sops(t, env, "decrypt", "--extract", extract, path); got != value {
			t.Errorf("%s: got %q", ref, got)
		}
	}
	comments := filepath.Join(t.TempDir(), "comments.yaml")
	if err := Create(comments, []string{mine}, secret.New(commented)); err != nil {
		t.Fatal(err)
	}
	if got := sops(t, env, "decrypt", comments); strings.Contains(got, "ENC[") || strings.Count(got, "# c") != 10 {
		t.Errorf("comments:\n%s", got)
	}
	other, theirs := newKey(t)
	if err := Rekey(t.Context(), path, env, []string{theirs}, nil); err != nil {
		t.Fatal(err)
	}
	sops(t, other, "decrypt", path)
	if err := Rekey(t.Context(), path, other, nil, []string{mine}); err != nil {
		t.Fatal(err)
	}
	got := sops(t, other, "decrypt", path)
	for _, want := range []string{"# above token", "# beside token", "# beside inner", "number: 17", "ratio: 1.5", "enabled: true", "canary-inner"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
	if err := Edit(t.Context(), path, other, []string{"sed", "-i", "s/canary-inner/fresh-inner/"}, Terminal{}); err != nil {
		t.Fatal(err)
	}
	if got := sops(t, other, "decrypt", "--extract", `["extra"]["deep"][1]["inner"]`, path); got != "fresh-inner" {
		t.Error(got)
	}
}

// What sops writes, we read and edit, whatever its options.
func TestWeReadSops(t *testing.T) {
	sops := sopsBinary(t)
	env, mine := newKey(t)
	other, theirs := newKey(t)
	for name, args := range map[string][]string{
		"plain":         nil,
		"two":           {"--age", mine + "," + theirs},
		"regex":         {"--encrypted-regex", "^(secrets|cloud-init)$"},
		"suffix":        {"--unencrypted-suffix", "_open"},
		"mac encrypted": {"--config"},
		"indent 2":      {"--indent", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.yaml")
			put(t, path, sample)
			global := []string{}
			if i := slices.Index(args, "--indent"); i >= 0 {
				global, args = args[i:i+2], nil
			}
			if slices.Contains(args, "--config") {
				rules := filepath.Join(t.TempDir(), "rules")
				put(t, rules, "creation_rules:\n  - age: "+mine+"\n    encrypted_regex: ^(secrets|cloud-init)$\n    mac_only_encrypted: true\n")
				global, args = []string{"--config", rules}, nil
			} else if !slices.Contains(args, "--age") {
				args = append([]string{"--age", mine}, args...)
			}
			sops(t, env, slices.Concat(global, []string{"encrypt", "--in-place"}, args, []string{path})...)
			before := content(t, path)
			d := open(t, path, env)
			if v, err := d.Lookup("cloud-init.ssh-keys.ops@host.example"); err != nil || v.Reveal() != "ssh-ed25519 AAAAcanary-host" {
				t.Error(err)
			}
			if err := Set(t.Context(), path, env, "secrets.token", secret.New("fresh")); err != nil {
				t.Fatal(err)
			}
			if got := changedLines(before, content(t, path)); len(got) > 3 {
				t.Errorf("changed %q", got)
			}
			if got := sops(t, env, "decrypt", "--extract", `["secrets"]["token"]`, path); got != "fresh" {
				t.Errorf("got %q", got)
			}
			if name == "two" {
				open(t, path, other)
			}
			sops(t, env, "set", path, `["secrets"]["other"]`, `"by sops"`)
			sops(t, env, "rotate", "--in-place", "--add-age", newRecipient(t), path)
			if v, err := open(t, path, env).Lookup("secrets.other"); err != nil || v.Reveal() != "by sops" {
				t.Error(err)
			}
		})
	}
}
