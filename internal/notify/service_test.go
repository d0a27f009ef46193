package notify

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxops/proxops/internal/secret"
)

// got is one request that a service made.
type got struct {
	method, uri, body string
	header            http.Header
}

// sink is a server that keeps what it gets.
type sink struct {
	*httptest.Server
	mu     sync.Mutex
	all    []got
	status int
	answer string
}

func newSink(t *testing.T, encrypted bool) *sink {
	t.Helper()
	s := &sink{status: http.StatusOK}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, got{r.Method, r.RequestURI, string(body), r.Header})
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, strings.ReplaceAll(s.answer, "ECHO", r.RequestURI+" "+string(body)))
	})
	if encrypted {
		s.Server = httptest.NewTLSServer(h)
	} else {
		s.Server = httptest.NewServer(h)
	}
	t.Cleanup(s.Close)
	return s
}

func (s *sink) set(status int, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.answer = status, answer
}

func (s *sink) got() []got {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]got(nil), s.all...)
}

func (s *sink) host() string { return s.Listener.Addr().String() }

// hostedSlack sends what goes to Slack's own hosts to the sink: their names are
// fixed in the library, which uses the default transport.
func hostedSlack(t *testing.T, s *sink) {
	t.Helper()
	before := http.DefaultTransport
	http.DefaultTransport = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			if strings.HasSuffix(addr, "slack.com:443") {
				addr = s.host()
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		},
		TLSClientConfig:   &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"},
		DisableKeepAlives: true,
	}
	t.Cleanup(func() { http.DefaultTransport = before })
}

const (
	slackA, slackB, slackC = "TCANARY01", "BCANARY02", "canarycanarycanary123456"
	testTitle              = "ProxOps: prod: 1 failed"
	testText               = "12:00:00 prod: failed: VM web (100 on pve01): Update: zu groß"
)

// Each kind of service gets title and text in its own form.
func TestServices(t *testing.T) {
	http, https, mail := newSink(t, false), newSink(t, true), newMail(t)
	hostedSlack(t, https)
	for _, c := range []struct {
		name, url string
		sink      *sink
		check     func(t *testing.T, g got)
	}{
		{"webhook", http.URL + "/hook/canary?key=canary2", http, func(t *testing.T, g got) {
			wantJSON(t, g, map[string]string{"title": testTitle, "message": testText})
			if g.uri != "/hook/canary?key=canary2" {
				t.Errorf("asked for %s", g.uri)
			}
		}},
		{"webhook of Slack's form", http.URL + "/hooks/canary?messagekey=text", http, func(t *testing.T, g got) {
			wantJSON(t, g, map[string]string{"title": testTitle, "text": testText})
		}},
		{"webhook, plain text", "generic+" + http.URL + "/x?@X-Token=canary", http, func(t *testing.T, g got) {
			if g.body != testText || g.header.Get("X-Token") != "canary" {
				t.Errorf("got %q %v", g.body, g.header)
			}
		}},
		{"mattermost", "mattermost://" + http.host() + "/canarytoken/town?disabletls=yes", http, func(t *testing.T, g got) {
			wantJSON(t, g, map[string]string{"text": "**" + testTitle + "**\n" + testText, "channel": "town"})
			if g.uri != "/hooks/canarytoken" {
				t.Errorf("asked for %s", g.uri)
			}
		}},
		{"ntfy", "ntfy://ops:canary@" + http.host() + "/alerts?scheme=http", http, func(t *testing.T, g got) {
			user, password, _ := (&httpRequest{g.header}).BasicAuth()
			if g.body != testText || g.header.Get("Title") != testTitle || g.uri != "/alerts" || user != "ops" || password != "canary" {
				t.Errorf("got %+v", g)
			}
		}},
		{"slack", "slack://hook:" + slackA + "-" + slackB + "-" + slackC + "@webhook", https, func(t *testing.T, g got) {
			if g.uri != "/services/"+slackA+"/"+slackB+"/"+slackC || !strings.Contains(g.body, "zu groß") || !strings.Contains(g.body, testTitle) {
				t.Errorf("got %+v", g)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := ""
			if c.name == "ntfy" {
				answer = "{}"
			}
			c.sink.set(200, answer)
			before := len(c.sink.got())
			s, err := open(secret.New(c.url))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.send(t.Context(), testTitle, testText); err != nil {
				t.Fatal(err)
			}
			all := c.sink.got()
			if len(all) != before+1 {
				t.Fatalf("%d requests", len(all)-before)
			}
			c.check(t, all[before])
		})
	}
	t.Run("smtp", func(t *testing.T) {
		s, err := open(secret.New("smtp://ops:canary@" + mail.addr + "/?from=proxops@example.org&to=ada@example.org,bob@example.org&encryption=None&starttls=no&auth=Plain"))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.send(t.Context(), "ProxOps: zu groß", testText); err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{"ada@example.org", "bob@example.org"} {
			if m := mail.to(to); !strings.Contains(m, "Subject: =?utf-8?q?ProxOps:_zu_gro=C3=9F?=\r\n") || !strings.Contains(m, "\r\n\r\n"+testText) {
				t.Errorf("%s got %q", to, m)
			}
		}
	})
}

// httpRequest reads the basic authentication out of a header.
type httpRequest struct{ header http.Header }

func (r *httpRequest) BasicAuth() (string, string, bool) {
	return (&http.Request{Header: r.header}).BasicAuth()
}

func wantJSON(t *testing.T, g got, want map[string]string) {
	t.Helper()
	var have map[string]any
	if err := json.Unmarshal([]byte(g.body), &have); err != nil {
		t.Fatalf("%v: %s", err, g.body)
	}
	for k, v := range want {
		if have[k] != v {
			t.Errorf("%s is %q, want %q", k, have[k], v)
		}
	}
}

// mail is a server for mail that keeps what it gets.
type mail struct {
	addr string
	mu   sync.Mutex
	got  map[string]string // by recipient
	deny string            // answer to AUTH; "" = let in
}

func newMail(t *testing.T) *mail {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mail{addr: l.Addr().String(), got: map[string]string{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { m.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return m
}

func (m *mail) to(who string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.got[who]
}

func (m *mail) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(c)
	say := func(s string) { fmt.Fprintf(c, "%s\r\n", s) }
	say("220 ready")
	to := ""
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToUpper(word) {
		case "EHLO":
			say("250-here\r\n250-AUTH PLAIN\r\n250 8BITMIME")
		case "AUTH":
			if m.deny != "" {
				say("535 " + m.deny + " " + rest)
			} else {
				say("235 in")
			}
		case "RCPT":
			_, at, _ := strings.Cut(rest, "<")
			to, _, _ = strings.Cut(at, ">")
			say("250 ok")
		case "DATA":
			say("354 go on")
			var b strings.Builder
			for {
				l, err := r.ReadString('\n')
				if err != nil || l == ".\r\n" {
					break
				}
				b.WriteString(l)
			}
			m.mu.Lock()
			m.got[to] = b.String()
			m.mu.Unlock()
			say("250 queued")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// Nothing of a URL but its host is ever in an error, whatever the service
// answers and however the URL is written.
func TestErrorsHoldNoURL(t *testing.T) {
	web, https, post := newSink(t, false), newSink(t, true), newMail(t)
	hostedSlack(t, https)
	web.set(500, "no: ECHO")
	https.set(403, "no: ECHO")
	post.deny = "no such password canarypass"
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	gone := closed.Addr().String()
	canaries := []string{"canary", "CANARY", "c%61nary", url.QueryEscape("canary/+="), base64.StdEncoding.EncodeToString([]byte("\x00ops\x00canarypass"))}
	for _, raw := range []string{
		web.URL + "/hook/canary1?key=canary2&messagekey=text",
		"http://user:canarypass@" + web.host() + "/x?canarykey=v",
		"https://" + web.host() + "/canary",
		"generic+" + web.URL + "/x?@X-Token=canary",
		"generic://" + gone + "/canary?disabletls=yes&template=canary",
		"http://" + gone + "/c%61nary/canary%2F%2B%3D",
		"mattermost://" + web.host() + "/canarytoken?disabletls=yes",
		"mattermost://" + gone + "/canarytoken?disabletls=canarybool",
		"ntfy://ops:canarypass@" + web.host() + "/canarytopic?scheme=http",
		"ntfy://ops:canarypass@" + gone + "/canarytopic?priority=canary",
		"slack://hook:" + slackA + "-" + slackB + "-" + slackC + "@webhook",
		"slack://" + slackA + "/" + slackB + "/" + slackC,
		"slack://xoxb:123456789012-1234567890123-" + slackC + "@Ccanary",
		"slack://hook:canary@webhook",
		"smtp://ops:canarypass@" + post.addr + "/?from=canary@example.org&to=a@example.org&encryption=None&starttls=no",
		"smtp://ops:canarypass@" + gone + "/?from=canary@example.org&to=a@example.org&timeout=canary",
		"telegram://canary@telegram", "canary", "https://canary canary", "ntfy://canary%zz", ":canary",
	} {
		s, err := open(secret.New(raw))
		if err == nil {
			err = s.send(t.Context(), "title", "text")
		}
		if err == nil {
			t.Errorf("%s: was delivered", raw)
			continue
		}
		for e := err; e != nil; e = unwrap(e) {
			for _, c := range canaries {
				if strings.Contains(strings.ToLower(fmt.Sprintf("%+v %#v", e, e)), strings.ToLower(c)) {
					t.Errorf("%s: %v shows the URL", raw, e)
				}
			}
		}
		t.Log(err)
	}
}

func unwrap(err error) error {
	if w, ok := err.(interface{ Unwrap() error }); ok {
		return w.Unwrap()
	}
	return nil
}

// A service that never answers costs no more than one goroutine.
func TestServiceThatHangs(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer s.Close()
	defer close(release)
	svc, err := open(secret.New(s.URL + "/canary"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"the service did not answer in time", errStillSending.Error(), errStillSending.Error()} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := svc.send(ctx, "title", "text")
		cancel()
		if err == nil || err.Error() != want {
			t.Errorf("try %d: %v, want %s", i, err, want)
		}
	}
}
