package repo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/yamldoc"
)

func TestBadSettingsStopAll(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"log: {level: loud}", `proxops.yaml:1:14: log.level: is debug or info or warn or error, not "loud"`},
		{"logs: {level: info}", "proxops.yaml:1:1: logs: unknown key"},
		{"reconcil: {}", "proxops.yaml:1:1: reconcil: unknown key; did you mean reconcile?"},
		{"reconcile:\n  prune-budgt: 3\n", "proxops.yaml:2:3: reconcile.prune-budgt: unknown key; did you mean reconcile.prune-budget?"},
		{"reconcile: {prune-budget: -1}", `proxops.yaml:1:27: reconcile.prune-budget: is an integer in 0-1000000, not "-1"`},
		{"reconcile: {prune-budget: '3'}", `proxops.yaml:1:27: reconcile.prune-budget: is an integer in 0-1000000, not "3"`},
		{"reconcile: {poll-interval: 30}", `proxops.yaml:1:28: reconcile.poll-interval: is a duration of at least 1s, such as 30s, 5m or 1h30m, not "30"`},
		{"reconcile: {read-only: yes}", `proxops.yaml:1:24: reconcile.read-only: is true or false, not "yes"`},
		{"reconcile: {restart-policy: window}", "proxops.yaml: reconcile.restart-policy: window needs reconcile.restart-window"},
		{"reconcile: {restart-window: '61 3 * * * 2h'}", `proxops.yaml:1:29: reconcile.restart-window: "61 3 * * *" is not a start time of cron: end of range (61) above maximum (59): 61`},
		{"pve:\n", "proxops.yaml:1:5: pve: is empty: give it a value or leave it out"},
		{"pve: {token: {a: b}}", "proxops.yaml:1:14: pve.token: is a text (UUID)"},
		{"listen: 9494", `proxops.yaml: listen: "9494" is not host:port`},
		{"- a", "proxops.yaml:1:1: is a mapping, not a list"},
		{"a: 1\n---\nb: 2\n", "proxops.yaml:3:1: a second document; proxops.yaml holds one"},
		{"a: [", "proxops.yaml:2:1: did not find expected node content"},
		{"pve: {clusters: {prod: {}}}", "proxops.yaml: pve.clusters: stands here only in URL mode outside a repository: move each entry to clusters/<name>/config.yaml"},
		{"notifications: [{name: a, url: b, evnts: [x]}]", "proxops.yaml:1:42: notifications[0].evnts: unknown key; did you mean events?"},
		{"notifications: [{name: a, url: b}, {name: a, url: c}]", `proxops.yaml:1:43: notifications[1].name: "a" is there twice`},
		{"notifications: [{name: a, url: b, events: [failure]}]", `proxops.yaml:1:43: notifications[0].events: "failure" is not an event: there are drift, corrected,`},
		{"notifications: [{name: a, url: 'https://host/token'}]", "proxops.yaml:1:32: notifications[0].url: is the name of an entry of the secrets-file, not the URL itself"},
		{"notifications: [{name: a, url: b, template: '{{.Title'}]", "proxops.yaml:1:45: notifications[0].template: line 1: unclosed action"},
		{"git: {url: 'https://u:canary@host/x.git'}", "git.url: "},
	} {
		dir := base().with(files{"proxops.yaml": c.text}).write(t)
		_, err := Open(Options{Dir: dir, Overrides: Overrides{}, Env: map[string]string{"PROXOPS_GIT_PATH": dir}})
		if strings.HasPrefix(c.text, "git:") { // URL mode only without a pinned path
			_, err = Open(Options{Dir: dir, Env: map[string]string{"XDG_DATA_HOME": dir}})
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.text, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error shows a secret: %v", c.text, err)
		}
	}
}

func TestLayers(t *testing.T) {
	text := "log: {level: warn}\nreconcile: {prune-budget: 5, poll-interval: 1m, task-timeout: 1h}\npve: {ca-file: ca.pem}\n"
	dir := base().with(files{"proxops.yaml": text, "ca.pem": "-----BEGIN CERTIFICATE-----\n",
		"clusters/prod/config.yaml": configYAML + "      reconcile: {prune-budget: 7, read-only: true}\n"}).write(t)
	r := open(t, dir)
	s := r.Settings()
	if s.Log.Level != "warn" || s.Log.Format != "text" || s.PollInterval != time.Minute || s.Reconcile.TaskTimeout != time.Hour || s.Listen != "127.0.0.1:9494" {
		t.Errorf("got %+v", s)
	}
	c, err := r.Load(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if c.Reconcile.PruneBudget != 7 || !c.Reconcile.ReadOnly || c.Reconcile.TaskTimeout != time.Hour {
		t.Errorf("the cluster's entry should win over proxops.yaml: %+v", c.Reconcile)
	}
	if c.Config.CAFile != filepath.Join(dir, "ca.pem") || len(c.Config.CA) == 0 {
		t.Errorf("pve.ca-file did not arrive: %+v", c.Config)
	}
	r = open(t, dir, func(o *Options) {
		o.Overrides.PruneBudget, o.Overrides.GitPollSec = new(1), new(10)
		o.Overrides.LogLevel, o.Overrides.Listen, o.Overrides.PVEAuth = "debug", "127.0.0.1:1", "ticket"
		o.Env = map[string]string{"PROXOPS_PVE_USER": "root@pam", "PROXOPS_PVE_PASSWORD": "x"}
	})
	if s := r.Settings(); s.Log.Level != "debug" || s.Listen != "127.0.0.1:1" || s.PollInterval != 10*time.Second {
		t.Errorf("flags should win: %+v", s)
	}
	if c, err = r.Load(t.Context(), "prod"); err != nil || c.Reconcile.PruneBudget != 1 || c.Secrets.Auth != "ticket" {
		t.Errorf("flags should win: %+v, %v", c, err)
	}
}

func TestNamedConfigMustExist(t *testing.T) {
	dir := base().write(t)
	_, err := Open(Options{Dir: dir, Overrides: Overrides{GitPath: dir, Config: "other.yaml"}})
	if want := filepath.Join(dir, "other.yaml") + ": no such file: correct --config or PROXOPS_CONFIG"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestCredentials(t *testing.T) {
	const u = "11111111-2222-3333-4444-canary000000"
	for _, c := range []struct {
		name, yaml string
		env        map[string]string
		flagUser   string
		want       string // auth user token-id source, or the end of the error
	}{
		{"nothing", "", nil, "", "pve.clusters.prod: no credentials for this cluster: set PROXOPS_PVE_TOKEN_VALUE=user@realm!id=UUID, or PROXOPS_PVE_USER=user@realm!id with PROXOPS_PVE_TOKEN, or PROXOPS_PVE_USER with PROXOPS_PVE_PASSWORD; or add a secrets-file with proxops secrets init"},
		{"token value", "", map[string]string{"PROXOPS_PVE_TOKEN_VALUE": "root@pam!x=" + u}, "", "token root@pam root@pam!x environment"},
		{"token value wins", "", map[string]string{"PROXOPS_PVE_TOKEN_VALUE": "root@pam!x=" + u, "PROXOPS_PVE_USER": "a@pve!b", "PROXOPS_PVE_TOKEN": "other"}, "", "token root@pam root@pam!x environment"},
		{"user with id", "", map[string]string{"PROXOPS_PVE_USER": "a@pve!b", "PROXOPS_PVE_TOKEN": u}, "", "token a@pve a@pve!b environment"},
		{"token id", "", map[string]string{"PROXOPS_PVE_USER": "a@pve", "PROXOPS_PVE_TOKEN_ID": "b", "PROXOPS_PVE_TOKEN": u}, "", "token a@pve a@pve!b environment"},
		{"whole token id", "", map[string]string{"PROXOPS_PVE_TOKEN_ID": "a@pve!b", "PROXOPS_PVE_TOKEN": u}, "", "token a@pve a@pve!b environment"},
		{"contradiction", "", map[string]string{"PROXOPS_PVE_USER": "a@pve!c", "PROXOPS_PVE_TOKEN_ID": "b", "PROXOPS_PVE_TOKEN": u}, "", "credentials from environment: user a@pve!c and token id b contradict each other"},
		{"password", "", map[string]string{"PROXOPS_PVE_USER": "a@pve", "PROXOPS_PVE_PASSWORD": u}, "", "ticket a@pve  environment"},
		{"password without user", "", map[string]string{"PROXOPS_PVE_PASSWORD": u}, "", "credentials from environment: a password without a user: give the user too (user@realm)"},
		{"token without user", "", map[string]string{"PROXOPS_PVE_TOKEN": u}, "", "credentials from environment: a token without a user: give the user too (user@realm!id)"},
		{"token without name", "", map[string]string{"PROXOPS_PVE_USER": "a@pve", "PROXOPS_PVE_TOKEN": u}, "", "credentials from environment: a token without its name: give the user as a@pve!id, or set PROXOPS_PVE_TOKEN_ID"},
		{"malformed", "", map[string]string{"PROXOPS_PVE_TOKEN_VALUE": "canary"}, "", "credentials from environment: the token value is not of the form user@realm!id=UUID"},
		{"no realm", "", map[string]string{"PROXOPS_PVE_USER": "root", "PROXOPS_PVE_PASSWORD": u}, "", `credentials from environment: "root" is not a user of the form user@realm, such as root@pam`},
		{"blank in token", "", map[string]string{"PROXOPS_PVE_USER": "a@pve!b", "PROXOPS_PVE_TOKEN": "canary x"}, "", "credentials from environment: the token holds a blank or control character: copy it again"},
		{"file", "pve: {user: a@pve!b, token: " + u + "}", nil, "", "token a@pve a@pve!b proxops.yaml"},
		{"environment over file", "pve: {token-value: 'z@pve!z=" + u + "'}", map[string]string{"PROXOPS_PVE_USER": "a@pve!b", "PROXOPS_PVE_TOKEN": u}, "", "token a@pve a@pve!b environment"},
		{"flag over environment", "", map[string]string{"PROXOPS_PVE_USER": "a@pve!b", "PROXOPS_PVE_TOKEN": u}, "c@pve!d", "token c@pve c@pve!d environment"},
		{"auth token without token", "pve: {auth: token}", map[string]string{"PROXOPS_PVE_USER": "a@pve", "PROXOPS_PVE_PASSWORD": u}, "", "no credentials for this cluster: set PROXOPS_PVE_TOKEN_VALUE=user@realm!id=UUID, or PROXOPS_PVE_USER=user@realm!id with PROXOPS_PVE_TOKEN, or PROXOPS_PVE_USER with PROXOPS_PVE_PASSWORD; or add a secrets-file with proxops secrets init"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := base().with(files{"proxops.yaml": c.yaml}).write(t)
			r := open(t, dir, func(o *Options) { o.Env = c.env; o.Overrides.PVEUser = c.flagUser })
			got, err := r.Load(t.Context(), "prod")
			text := ""
			if err != nil {
				text = err.Error()
			} else {
				s := got.Secrets
				text = strings.Join([]string{s.Auth, s.User, s.TokenID, s.Source}, " ")
				if s.Auth == "token" && s.Token.Reveal() != u || s.Auth == "ticket" && s.Password.Reveal() != u {
					t.Error("wrong secret")
				}
			}
			if !strings.HasSuffix(text, c.want) {
				t.Errorf("got %s, want %s", text, c.want)
			}
			if strings.Contains(text, "canary") {
				t.Errorf("a secret is shown: %s", text)
			}
		})
	}
}

func TestValidateNeedsNoCredentials(t *testing.T) {
	r := open(t, base().write(t), func(o *Options) { o.Env, o.NoSecrets = nil, true })
	if _, err := r.Load(t.Context(), "prod"); err != nil {
		t.Error(err)
	}
}

func TestWindow(t *testing.T) {
	for _, c := range []struct {
		window, clock string // RFC 3339, with the offset that says which of two hours is meant
		open          bool
	}{
		{"30 22 * * sat 3h Europe/Berlin", "2026-03-07T22:29:59+01:00", false},
		{"30 22 * * sat 3h Europe/Berlin", "2026-03-07T22:30:00+01:00", true},
		{"30 22 * * sat 3h Europe/Berlin", "2026-03-08T01:29:59+01:00", true}, // past midnight, on a Sunday
		{"30 22 * * sat 3h Europe/Berlin", "2026-03-08T01:30:00+01:00", false},
		{"30 22 * * sat 3h Europe/Berlin", "2026-03-09T23:00:00+01:00", false},
		{"30 22 * * sat 3h Europe/Berlin", "2026-03-07T21:30:00Z", true}, // whoever asks from where
		// The clocks go from 02:00 to 03:00 on 2026-03-29: there is no 02:30.
		{"30 2 * * sun 1h Europe/Berlin", "2026-03-29T01:59:59+01:00", false},
		{"30 2 * * sun 1h Europe/Berlin", "2026-03-29T03:29:59+02:00", false},
		{"30 2 * * sun 1h Europe/Berlin", "2026-03-29T03:30:00+02:00", true},
		{"30 2 * * sun 1h Europe/Berlin", "2026-03-29T04:29:59+02:00", true},
		{"30 2 * * sun 1h Europe/Berlin", "2026-03-29T04:30:00+02:00", false},
		// Two hours from 01:00 end at 04:00 that night.
		{"0 1 * * * 2h Europe/Berlin", "2026-03-29T03:59:59+02:00", true},
		{"0 1 * * * 2h Europe/Berlin", "2026-03-29T04:00:00+02:00", false},
		// The clocks go from 03:00 back to 02:00 on 2026-10-25: 02:30 comes twice.
		{"30 2 * * sun 30m Europe/Berlin", "2026-10-25T02:29:59+02:00", false},
		{"30 2 * * sun 30m Europe/Berlin", "2026-10-25T02:30:00+02:00", true},
		{"30 2 * * sun 30m Europe/Berlin", "2026-10-25T02:00:00+01:00", false},
		{"30 2 * * sun 30m Europe/Berlin", "2026-10-25T02:45:00+01:00", false},
		{"0 1 * * * 2h Europe/Berlin", "2026-10-25T02:59:59+02:00", true},
		{"0 1 * * * 2h Europe/Berlin", "2026-10-25T02:00:00+01:00", false},
		// More than a day, and every minute.
		{"0 0 1 * * 240h UTC", "2026-03-10T23:59:59Z", true},
		{"0 0 1 * * 240h UTC", "2026-03-11T00:00:00Z", false},
		{"* * * * * 1m UTC", "2026-03-11T00:00:30Z", true},
	} {
		w, err := ParseWindow(c.window)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, c.clock)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Open(at); got != c.open {
			t.Errorf("%s at %s: open %v", c.window, c.clock, got)
		}
	}
	for _, bad := range []string{"", "3am", "0 3 * * * 2h Mars/Base", "0 3 * * * soon", "0 3 * * * 5s", "0 3 * * x 2h"} {
		if _, err := ParseWindow(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// docs/reference-config.md is written by this test: UPDATE_DOCS=1 go test.
// A window that nobody set is shut.
func TestNoWindowIsShut(t *testing.T) {
	if (Window{}).Open(time.Now()) {
		t.Error("the zero window is open")
	}
}

// A file of this machine that is too large is refused, not read in part.
func TestLargeFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, []byte("-----BEGIN CERTIFICATE-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, yamldoc.MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	if data, err := readLimited(file); err == nil || !strings.Contains(err.Error(), "is too large") {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestReferenceIsCurrent(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "reference-config.md")
	want := Reference()
	if os.Getenv("UPDATE_DOCS") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the tables say (%v): run UPDATE_DOCS=1 go test ./internal/repo", file, err)
	}
}
