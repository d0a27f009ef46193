package repo

import (
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/secret"
)

// An endpoint has one spelling, and none that would carry credentials in the
// clear, or that holds them, is one.
func TestNormalURL(t *testing.T) {
	for raw, want := range map[string]string{
		"https://PVE.example.org.":        "https://pve.example.org:8006",
		"https://a:443/api2/json/":        "https://a:443",
		"https://[2001:DB8::1]":           "https://[2001:db8::1]:8006",
		"https://[::ffff:192.0.2.1]:8006": "https://192.0.2.1:8006",
		"HTTPS://192.0.2.1/":              "https://192.0.2.1:8006",
		"http://127.0.0.1:8006":           "http://127.0.0.1:8006",
		"http://[::1]":                    "http://[::1]:8006",
		"http://localhost":                "http://localhost:8006",
		"http://localhost.example.org":    "!in the clear",
		"http://192.0.2.1":                "!in the clear",
		"ftp://127.0.0.1":                 "!is not https",
		"https://a?token=canary":          "!nothing may follow the port",
		"https://a#canary":                "!nothing may follow the port",
		"https://u:canary@a":              "!holds a user or password",
		"https://a/pve":                   "!leave the path out",
		"https://":                        "!is not of the form",
		"https://:8006":                   "!is not of the form",
		"pve.example.org":                 "!is not of the form",
		"https://%zz":                     "!is not of the form",
		"https://a:99999":                 "!port 99999 is not in 1-65535",
		"https://a:0":                     "!port 0 is not in 1-65535",
		"https://a:65535":                 "https://a:65535",
	} {
		got, err := normalURL(raw)
		fault, bad := strings.CutPrefix(want, "!")
		if !bad && (err != nil || got != want) || bad && (err == nil || !strings.Contains(err.Error(), fault) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%s: %q, %v, want %s", raw, got, err, want)
		}
	}
}

// A token in one piece is taken apart or refused; no refusal shows any of it.
func TestWholeToken(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	for raw, user := range map[string]string{
		"ops@pve!ci=" + id: "ops@pve", "root@pam!a=" + id: "root@pam",
		"": "", "canary": "", "ops@pve=canary": "", "ops@pve!ci": "", "ops!ci=canary": "", "@pve!ci=canary": "", "ops@pve!c i=canary": "", "ops@pve!=canary": "",
		"ops@pve!ci=canary\n": "", "ops@pve!ci=canary\x00": "", "ops@pve!ci=": "",
	} {
		var s Secrets
		err := s.whole(secret.New(raw))
		if (err == nil) != (user != "") || s.User != user {
			t.Errorf("%q: %v, as %q", raw, err, s.User)
		}
		if err != nil && (strings.Contains(err.Error(), "canary") || s.Token.IsSet()) {
			t.Errorf("%q: %v, half taken over: %+v", raw, err, s)
		}
	}
}
