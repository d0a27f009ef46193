package notify

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/mattermost"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/chat/slack"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/email/smtp"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ntfy"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/specialized/generic"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"

	"github.com/proxops/proxops/internal/secret"
)

// schemes are the services, for messages.
const schemes = "https, generic, slack, mattermost, ntfy or smtp"

// errStillSending says that the service has not answered the last message.
var errStillSending = errors.New("the service has not answered the message before this one")

// service is one service, opened by its URL.
type service struct {
	scheme string
	inner  types.Service
	hide   *redactor
	busy   chan struct{} // holds one token while the library sends
	began  time.Time     // the message that it sends now, or sent last
}

// open makes a service from its URL, which is a secret: no error shows any of
// it.
func open(raw secret.Text) (*service, error) {
	text := strings.TrimSpace(raw.Reveal())
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return nil, errors.New("the secret is not a URL: write scheme://…, and escape what is special")
	}
	s := &service{hide: newRedactor(text), busy: make(chan struct{}, 1)}
	s.scheme, _, _ = strings.Cut(u.Scheme, "+")
	switch {
	case u.Scheme == "https" || u.Scheme == "http":
		s.scheme = generic.Scheme
		if u, err = webhook(u, true); err != nil {
			return nil, s.hide.error(err)
		}
		s.inner = &generic.Service{}
	case strings.HasPrefix(u.Scheme, "generic+http"):
		u.Scheme = strings.TrimPrefix(u.Scheme, "generic+")
		if u, err = webhook(u, false); err != nil {
			return nil, s.hide.error(err)
		}
		s.inner = &generic.Service{}
	case u.Scheme == generic.Scheme:
		s.inner = &generic.Service{}
	case u.Scheme == slack.Scheme:
		s.inner = &slack.Service{}
	case u.Scheme == mattermost.Scheme:
		s.inner = &mattermost.Service{}
	case u.Scheme == ntfy.Scheme:
		s.inner = &ntfy.Service{}
	case u.Scheme == smtp.Scheme:
		s.inner = &smtp.Service{}
	default:
		return nil, errors.New("the URL's scheme is not known: use " + schemes)
	}
	// The library gets no logger: it would log answers and URLs.
	if err := s.inner.Initialize(u, nil); err != nil {
		return nil, fmt.Errorf("the %s URL is not complete: %w", s.scheme, s.hide.error(err))
	}
	return s, nil
}

// Check says what keeps a notification from being sent to a URL, as far as that
// shows without asking the service, or nil. The error shows none of the URL.
func Check(url secret.Text) error {
	_, err := open(url)
	return err
}

// webhook turns a plain URL into the library's form. asJSON posts title and
// message as JSON unless the URL says otherwise.
func webhook(u *url.URL, asJSON bool) (*url.URL, error) {
	plain := *u
	if q := plain.Query(); asJSON && !q.Has("template") {
		q.Set("template", generic.JSONTemplate)
		plain.RawQuery = q.Encode()
	}
	return (&generic.Service{}).GetConfigURLFromCustom(&plain)
}

// silent is for how long the service has not answered; 0 when it has.
func (s *service) silent() time.Duration {
	if len(s.busy) == 0 {
		return 0
	}
	return time.Since(s.began)
}

// send delivers. The library cannot be cancelled: when ctx ends first the
// message may still arrive, and no other is sent before the library is done.
// send and silent are for one goroutine.
func (s *service) send(ctx context.Context, title, text string) error {
	select {
	case s.busy <- struct{}{}:
		s.began = time.Now()
	default:
		return errStillSending
	}
	params := types.Params{}
	switch s.scheme {
	case mattermost.Scheme: // has no title
		text = "**" + title + "**\n" + text
	case smtp.Scheme, ntfy.Scheme: // the title is a header
		params.SetTitle(mime.QEncoding.Encode("utf-8", title))
	default:
		params.SetTitle(title)
	}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				done <- errors.New("the service's code broke off")
			}
			<-s.busy
		}()
		done <- s.inner.Send(text, &params)
	}()
	select {
	case err := <-done:
		return s.hide.error(err)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return errors.New("the service did not answer in time")
		}
		return ctx.Err()
	}
}

// redactor takes a URL out of errors. The library wraps answers and URLs into
// its errors; what is told of them keeps the host, and nothing else of the URL.
type redactor struct{ secrets *regexp.Regexp }

// urls are URLs in text, also in quotes.
var urls = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]*`)

// minSecret is the length from which a part of a URL counts as a secret:
// shorter ones are in every text.
const minSecret = 4

func newRedactor(raw string) *redactor {
	parts := map[string]bool{raw: true}
	add := func(s string) {
		for _, v := range []string{s, unescape(s)} {
			for _, piece := range append(strings.FieldsFunc(v, notWord), v) {
				if len(piece) >= minSecret {
					parts[piece] = true
					parts[url.QueryEscape(piece)] = true
				}
			}
		}
	}
	if u, err := url.Parse(raw); err == nil {
		if u.User != nil {
			password, _ := u.User.Password()
			add(u.User.String())
			add(u.User.Username())
			add(password)
			name := u.User.Username() // as logins carry them, should a server repeat one
			for _, login := range []string{"\x00" + name + "\x00" + password, name + ":" + password, password} {
				parts[base64.StdEncoding.EncodeToString([]byte(login))] = true
			}
		}
		if u.Scheme == slack.Scheme { // its host is a channel or a part of the token
			add(u.Host)
		}
		add(u.EscapedPath())
		add(u.Fragment)
		for _, values := range u.Query() {
			for _, v := range values {
				add(v)
			}
		}
		add(u.RawQuery)
	}
	return &redactor{secrets: anyOf(parts)}
}

// anyOf matches any of the texts, the longest first. Words that the services'
// own messages need are no secrets.
func anyOf(parts map[string]bool) *regexp.Regexp {
	var quoted []string
	for p := range parts {
		if p != "" && !slices.Contains([]string{"hook", "hooks", "json", "true", "http", "https", "title", "text", "message", "template"}, strings.ToLower(p)) {
			quoted = append(quoted, regexp.QuoteMeta(p))
		}
	}
	slices.SortFunc(quoted, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return regexp.MustCompile("(?i)" + strings.Join(quoted, "|"))
}

func notWord(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r >= 0x80)
}

func unescape(s string) string {
	if v, err := url.QueryUnescape(s); err == nil {
		return v
	}
	return s
}

// error is a new error without the URL; the library's own is not kept in its
// chain.
func (r *redactor) error(err error) error {
	if err == nil {
		return nil
	}
	text := urls.ReplaceAllString(err.Error(), "(redacted)")
	text = r.secrets.ReplaceAllString(text, "(redacted)")
	return errors.New(plain(text))
}
