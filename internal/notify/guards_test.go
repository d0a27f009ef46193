package notify

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/types"
	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

// Whatever of a URL a service repeats, in whatever spelling, is taken out of
// the error, and what is told besides stays.
func TestRedactor(t *testing.T) {
	for name, c := range map[string]struct {
		url   string
		said  []string // each is a secret
		keeps []string
	}{
		"path":              {"https://hooks.example.org/services/T0AAA/B0BBB/sEcrEt99", []string{"T0AAA", "b0bbb", "secret99", "/services/T0AAA/B0BBB/sEcrEt99"}, []string{"hooks.example.org"}},
		"words of messages": {"https://hooks.example.org/hook/json", nil, []string{"hook", "json", "title"}},
		"short parts":       {"https://example.org/a/b2/xyz", nil, []string{"a", "b2", "xyz"}},
		"user and password": {"smtp://oper:pass99@mail.example.org/", []string{"oper", "pass99", "oper:pass99"}, []string{"mail.example.org"}},
		"login in base64": {"smtp://oper:p9@mail.example.org/", []string{base64.StdEncoding.EncodeToString([]byte("\x00oper\x00p9")), base64.StdEncoding.EncodeToString([]byte("oper:p9")),
			base64.StdEncoding.EncodeToString([]byte("p9"))}, nil},
		"query":           {"https://example.org/x?token=value77&u=12345678", []string{"value77", "12345678", "token=value77"}, nil},
		"fragment":        {"https://example.org/x#fragment5", []string{"fragment5"}, nil},
		"escaped":         {"https://example.org/a%2Fb%2Bcd%3Dtail", []string{"a/b+cd=tail", "a%2Fb%2Bcd%3Dtail", url.QueryEscape("a/b+cd=tail"), "tail"}, nil},
		"escaped, broken": {"https://example.org/x?u=one%25zzTwo", []string{"one%zzTwo", "zzTwo"}, nil},
		"not ASCII":       {"https://example.org/schlüssel9", []string{"schlüssel9"}, nil},
		"slack's host":    {"slack://Aaaaaaaaa/Bbbbbbbbb/Cccccccc", []string{"Aaaaaaaaa", "bbbbbbbbb", "Cccccccc"}, nil},
		"the whole":       {"https://example.org/", []string{"https://example.org/"}, nil},
		"another URL":     {"https://example.org/", []string{"https://example.com/elsewhere?x=1", "ntfy://user:pw@host"}, nil},
	} {
		hide := newRedactor(c.url)
		for _, s := range c.said {
			got := hide.error(fmt.Errorf("it said \u201c%s\u201d and more", s)).Error()
			if strings.Contains(strings.ToLower(got), strings.ToLower(s)) || !strings.Contains(got, "(redacted)") || !strings.HasSuffix(got, "and more") {
				t.Errorf("%s: %q is told as %s", name, s, got)
			}
		}
		for _, s := range c.keeps {
			if got := hide.error(errors.New("at " + s + " now")).Error(); got != "at "+s+" now" {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	if newRedactor("https://example.org/").error(nil) != nil {
		t.Error("no error is one")
	}
}

// A message that is too long keeps the gravest events, in their order, and
// counts the others.
func TestMessageKeepsTheGravest(t *testing.T) {
	var events []Event
	for i := range 2 * maxLines {
		e := Event{Event: Corrected, Cluster: "prod", Kind: "VM", Name: fmt.Sprint("vm", i), Time: noon, Text: "x"}
		if i%10 == 9 {
			e.Event = Failed
		}
		events = append(events, e)
	}
	m := compose(events, map[Kind]int{Drift: 3}, 2)
	if len(m.Events) != maxLines || m.More != maxLines+3 || m.Lost != 2 {
		t.Fatalf("%d events, %d more, %d lost", len(m.Events), m.More, m.Lost)
	}
	last, failed := -1, 0
	for _, e := range m.Events {
		n := 0
		_, _ = fmt.Sscanf(e.Name, "vm%d", &n)
		if n <= last {
			t.Errorf("%s comes after vm%d", e.Name, last)
		}
		last = n
		if e.Event == Failed {
			failed++
		}
	}
	if failed != 5 {
		t.Errorf("%d of 5 failures are told", failed)
	}
	for _, want := range []string{"and 28 more: 3 drift, 25 corrected", "2 earlier events could not be delivered"} {
		if !strings.Contains(m.Text, want) {
			t.Errorf("the text lacks %q", want)
		}
	}
	if m.Title != "ProxOps: prod: 5 failed, 3 drift, 45 corrected" {
		t.Error(m.Title)
	}
	short := compose(events[:1], nil, 0)
	if short.Text != "12:00:00 prod: corrected: VM vm0: x" {
		t.Error(short.Text)
	}
}

func TestEventText(t *testing.T) {
	for want, e := range map[string]Event{
		"12:00:00 prod: anomaly: VM web (100 on pve01): odd\n  what to do: look": {Event: Anomaly, Kind: "VM", Name: "web", ID: "100", Node: "pve01", Text: "odd", Todo: "look"},
		"12:00:00 prod: failed: no route":                                        {Event: Failed, Text: "no route"},
		"12:00:00 prod: failed: (7): x":                                          {Event: Failed, ID: "7", Text: "x"},
		"12:00:00 prod: failed: VM web: x":                                       {Event: Failed, Kind: "VM", Name: "web", Text: "x"},
	} {
		e.Cluster, e.Time = "prod", noon
		if got := e.String(); got != want && strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// service that keeps what it gets, or gives an error.
type kept struct {
	types.Service
	mu   sync.Mutex
	got  []string
	fail error
}

func (k *kept) Send(text string, _ *types.Params) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.got = append(k.got, text)
	return k.fail
}

func (k *kept) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.got...)
}

func (k *kept) fails(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = err
}

// bubble is a notifier in synctest with one target, a, whose service is k.
func bubble(t *testing.T, p pace, k *kept) (*desk, *target) {
	t.Helper()
	raw := secret.New("https://example.org/canary")
	d := newDeskInBubble(p)
	d.url("k", raw.Reveal())
	d.Configure([]repo.Notification{{Name: "a", URL: "k"}})
	a := d.targets["a"]
	synctest.Wait() // it has looked at its URL
	a.service = &service{scheme: "kept", inner: k, hide: newRedactor(raw.Reveal()), busy: make(chan struct{}, 1)}
	a.url = raw
	return d, a
}

func newDeskInBubble(p pace) *desk {
	d := &desk{urls: map[string]string{}}
	d.Notifier = New(Options{Log: slog.New(slog.NewTextHandler(&d.logs, nil)), Resolve: func(key string) (secret.Text, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		return secret.New(d.urls[key]), nil
	}})
	d.pace = p
	return d
}

// counts gives a function that does something and checks how many messages
// there are a while later, in all.
func (k *kept) counts(t *testing.T) func(what string, want int, f func()) {
	return func(what string, want int, f func()) {
		t.Helper()
		f()
		time.Sleep(10 * time.Minute)
		if got := len(k.all()); got != want {
			t.Errorf("%s: %d messages, want %d", what, got, want)
		}
	}
}

// What lasts is told once by the notifier, however many cycles find it, and
// anew for a cluster that was forgotten. One cluster's news are not another's.
func TestNotifierRemembersByCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		d, _ := bubble(t, defaultPace(), k)
		step := k.counts(t)
		step("first", 1, func() { d.Finished(failing("prod", "x")) })
		step("as before", 1, func() { d.Finished(failing("prod", "x")) })
		step("another cluster", 2, func() { d.Finished(failing("lab", "x")) })
		step("nothing to tell", 2, func() { d.Finished(report("new", "c1", noon)) })
		d.Forget("prod")
		step("the other is not forgotten", 2, func() { d.Finished(failing("lab", "x")) })
		step("forgotten", 3, func() { d.Finished(failing("prod", "x")) })
		d.Close(t.Context())
	})
}

// What comes within moments is one message; a target keeps a bounded queue, and
// counts what is beyond it.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		d, a := bubble(t, defaultPace(), k)
		for i := range 3 {
			d.Finished(failing("prod"+fmt.Sprint(i), "x"))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if got := k.all(); len(got) != 1 || strings.Count(got[0], "failed: ") != 3 {
			t.Errorf("%d messages for what came together: %q", len(got), got)
		}
		k.fails(errors.New("down"))
		d.Finished(failing("down", "x"))
		time.Sleep(5 * time.Second)
		for i := range 500 {
			d.Finished(failing(fmt.Sprint("c", i), "flood"))
		}
		a.mu.Lock()
		n, counted := len(a.pending), a.counted[Failed]+a.counted[Anomaly]
		a.mu.Unlock()
		if n != maxPending || counted != 1000-maxPending {
			t.Errorf("%d wait and %d are counted, want %d and %d", n, counted, maxPending, 1000-maxPending)
		}
		// A stop while a message is tried loses none of it: all is told at the end.
		k.fails(nil)
		d.Close(t.Context())
		got := k.all()
		last := got[len(got)-1]
		if !strings.Contains(last, "down: failed") || !strings.Contains(last, fmt.Sprintf("and %d more", 1002-maxLines)) {
			t.Errorf("the last message: %s", last)
		}
	})
}

// What a stop leaves undelivered is said in the log, with its number; what was
// lost is told once, and no more after it was.
func TestWhatIsLostIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{fail: errors.New("down: https://example.org/canary")}
		d, _ := bubble(t, defaultPace(), k)
		d.Finished(failing("prod", "first"))
		time.Sleep(time.Hour)
		k.fails(nil)
		for i, want := range []string{"2 earlier events could not be delivered", ""} {
			d.Finished(failing("next"+fmt.Sprint(i), "x"))
			time.Sleep(10 * time.Minute)
			got := k.all()
			if last := got[len(got)-1]; strings.Contains(last, "earlier events") != (want != "") || !strings.Contains(last, want) {
				t.Errorf("%d: %s", i, last)
			}
		}
		if n := strings.Count(d.logs.String(), "delivered again"); n != 1 {
			t.Errorf("%d times delivered again", n)
		}
		k.fails(errors.New("down"))
		d.Finished(failing("last", "x"))
		d.Close(t.Context())
		if log := d.logs.String(); !strings.Contains(log, "lost at the end") || !strings.Contains(log, "events=2") || strings.Contains(log, "canary") {
			t.Error(log)
		}
	})
}

// A batch that comes back keeps its place before what came meanwhile, and its
// counts.
func TestUntake(t *testing.T) {
	tg := &target{cfg: repo.Notification{Name: "a"}, wake: make(chan struct{}, 1)}
	var first []Event
	for i := range maxPending + 5 {
		first = append(first, Event{Event: Drift, Name: fmt.Sprint(i)})
	}
	tg.offer(first)
	b, ok := tg.take()
	if !ok || b.events() != maxPending+5 {
		t.Fatalf("%d events", b.events())
	}
	tg.offer([]Event{{Event: Failed, Name: "later"}})
	tg.untake(b)
	again, _ := tg.take()
	if again.events() != maxPending+6 || again.all[0].Name != "0" || again.all[len(again.all)-1].Name != "later" || again.counted[Drift] != 5 {
		t.Errorf("%d events, counted %v", again.events(), again.counted)
	}
	if _, ok := tg.take(); ok {
		t.Error("an empty queue gives a message")
	}
}

// Filters choose by kind and cluster; a target's new settings are in force for
// what comes, and a target that is gone gets nothing. After the end nothing is
// made any more.
func TestTargetsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		d, a := bubble(t, defaultPace(), k)
		step := k.counts(t)
		configure := func(list ...repo.Notification) { d.Configure(list) }
		step("all", 1, func() { d.Finished(failing("c1", "x")) })
		configure(repo.Notification{Name: "a", URL: "k", Clusters: []string{"lab"}})
		if d.targets["a"] != a {
			t.Fatal("the target is made anew, with an empty queue")
		}
		step("another cluster's", 1, func() { d.Finished(failing("c2", "x")) })
		step("its cluster's", 2, func() { d.Finished(failing("lab", "x")) })
		configure(repo.Notification{Name: "a", URL: "k", Events: []string{"recovered"}})
		step("another kind", 2, func() { d.Finished(failing("c3", "x")) })
		configure()
		step("gone", 2, func() { d.Finished(failing("c4", "x")) })
		select {
		case <-a.done:
		default:
			t.Error("a target that is gone goes on")
		}
		d.Close(t.Context())
		configure(repo.Notification{Name: "b", URL: "k"})
		if len(d.targets) != 0 {
			t.Error("a target is made after the end")
		}
	})
}

// A target that nothing can be sent to is told of when it is set up, and when
// its entry is another, by the entry's name and without the URL.
func TestFaultsBeforeTheFirstEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeskInBubble(defaultPace())
		d.url("chat", "ftp://example.org/canary")
		d.url("good", "https://example.org/canary")
		d.url("text", "canary")
		d.Configure([]repo.Notification{{Name: "a", URL: "chat"}, {Name: "b", URL: "good"}})
		synctest.Wait()
		if log := d.logs.String(); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "notification=a") || !strings.Contains(log, "secrets.chat: the URL's scheme is not known") {
			t.Errorf("at the start: %s", log)
		}
		d.Configure([]repo.Notification{{Name: "a", URL: "chat"}, {Name: "b", URL: "text"}})
		time.Sleep(time.Minute)
		if log := d.logs.String(); strings.Count(log, "level=ERROR") != 2 || !strings.Contains(log, "secrets.text: the secret is not a URL") || strings.Contains(log, "canary") {
			t.Errorf("after a change: %s", log)
		}
		d.Close(t.Context())
	})
}

// An address that is no service is refused before anything is sent, and a
// service whose code breaks off costs a message, not the process.
func TestServicesThatCannotWork(t *testing.T) {
	for raw, want := range map[string]string{
		"//example.org/canary": "is not a URL", "gopher://example.org/canary": "scheme is not known", "smtp://canary": "URL is not complete", "slack://canary": "URL is not complete",
	} {
		if _, err := open(secret.New(raw)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
	}
	s := &service{scheme: "kept", inner: panics{}, hide: newRedactor("https://example.org"), busy: make(chan struct{}, 1)}
	for range 2 {
		if err := s.send(context.Background(), "t", "x"); err == nil || !strings.Contains(err.Error(), "broke off") {
			t.Error(err)
		}
		s.busy <- struct{}{} // it is free again
		<-s.busy
	}
}

type panics struct{ types.Service }

func (panics) Send(string, *types.Params) error { panic("canary") }
