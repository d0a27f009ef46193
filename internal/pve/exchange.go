package pve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// once sends a request to one endpoint and reads the whole answer.
func (c *core) once(ctx context.Context, ep *endpoint, r request, cr cred) (envelope, *Error) {
	if err := ctx.Err(); err != nil {
		return envelope{}, c.canceled(r, context.Cause(ctx))
	}
	rctx, cancel := c.requestContext(ctx, r)
	defer cancel()
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	req, err := c.build(httptrace.WithClientTrace(rctx, trace), ep, r, cr)
	if err != nil {
		return envelope{}, c.fail(r, KindInvalid, "the path is no URL path", "")
	}
	c.count(r)
	rt := c.wire.read
	if !r.isRead() {
		rt = c.wire.write
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		unsent := !connected.Load() && c.wire.own || refusedDial(err)
		return envelope{}, c.netError(ctx, ep, r, err, unsent)
	}
	defer resp.Body.Close()
	c.noteTime(resp.Header.Get("Date"))
	if resp.ContentLength > maxAnswer {
		return envelope{}, c.tooLarge(r) // it is not waited for
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	c.stats.bytes.Add(int64(len(body)))
	a := answer{status: resp.StatusCode, reason: strings.TrimSpace(strings.TrimPrefix(resp.Status, fmt.Sprint(resp.StatusCode))),
		location: resp.Header.Get("Location"), body: body, host: ep.host}
	switch {
	case len(body) > maxAnswer:
		return envelope{}, c.tooLarge(r)
	case err != nil && a.status < 300:
		return envelope{}, c.netError(ctx, ep, r, err, false)
	}
	return c.interpret(r, a)
}

func (c *core) tooLarge(r request) *Error {
	e := c.fail(r, KindNotJSON, fmt.Sprintf("the answer is larger than %d MiB", maxAnswer>>20), notPVEHint)
	if !r.isRead() && !r.login {
		e.Kind, e.Hint = KindUnknownOutcome, unknownHint
	}
	return e
}

// requestContext limits one request. A read ends with ctx. A write that was
// sent gets a few seconds more for its answer: otherwise Ctrl-C would turn
// every write under way into one of unknown outcome.
func (c *core) requestContext(ctx context.Context, r request) (context.Context, context.CancelFunc) {
	if r.isRead() || r.login {
		return context.WithTimeout(ctx, c.requestTimeout)
	}
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.requestTimeout)
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(cancelGrace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-wctx.Done():
		}
	})
	return wctx, func() { stop(); cancel() }
}

func (c *core) build(ctx context.Context, ep *endpoint, r request, cr cred) (*http.Request, error) {
	target := ep.base + "/api2/json" + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.form != nil {
		body = strings.NewReader(r.form.Encode()) // gives Content-Length, zero included
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "proxops")
	if len(r.form) > 0 {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if cr.set != nil {
		cr.set(req.Header, !r.isRead())
	}
	return req, nil
}

func (c *core) count(r request) {
	switch {
	case r.login:
		c.stats.logins.Add(1)
	case r.isRead():
		c.stats.reads.Add(1)
	default:
		c.stats.writes.Add(1)
	}
}

func (c *core) noteTime(date string) {
	if t, err := http.ParseTime(date); err == nil {
		c.clockSkew.Store(int64(time.Until(t).Truncate(time.Second)))
	}
}

// refusedDial reports whether the error proves that there was no connection.
func refusedDial(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &dns)
}

// netError classifies a request without a complete answer. Nothing of err's
// text is shown that could hold more than an address.
func (c *core) netError(ctx context.Context, ep *endpoint, r request, err error, unsent bool) *Error {
	if e := c.tlsError(ep, r, err); e != nil {
		return e
	}
	what := plain(err)
	e := c.fail(r, KindUnreachable, fmt.Sprintf("%s: %s", ep.host, what), "check base-url, the network, and that pveproxy runs there")
	e.cause = err
	var timeout net.Error
	e.slow = errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
	switch {
	case ctx.Err() != nil && (r.isRead() || r.login || unsent):
		return c.canceled(r, context.Cause(ctx))
	case unsent:
	case r.isRead() || r.login:
		e.Kind = KindUnavailable
		e.Message = fmt.Sprintf("%s: no complete answer: %s", ep.host, what)
		e.Hint = "PVE or something before it cut the connection: see journalctl -u pveproxy there"
	default:
		e.Kind = KindUnknownOutcome
		e.Message = fmt.Sprintf("%s: no complete answer: %s; the change may have been made or not", ep.host, what)
		e.Hint = unknownHint
	}
	return e
}

const unknownHint = "it is not repeated blindly: the next run reads again and decides; PVE's task list tells more"

// plain words a network error without URLs.
func plain(err error) string {
	var timeout net.Error
	var alert tls.AlertError
	switch {
	case errors.As(err, &alert):
		return "TLS " + alert.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timed out"
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed"
	}
	s := err.Error()
	for _, known := range []string{"connection refused", "connection reset", "no route to host", "network is unreachable", "broken pipe", "no such host", "malformed HTTP"} {
		if strings.Contains(s, known) {
			return known
		}
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + " failed"
	}
	return "the connection failed"
}

func (c *core) tlsError(ep *endpoint, r request, err error) *Error {
	var pin *pinError
	if errors.As(err, &pin) {
		e := c.fail(r, KindTLS, fmt.Sprintf("%s: %s", ep.host, pin), "if the certificate was renewed, compare it on the node and run proxops trust; otherwise somebody is in between")
		e.Expected, e.Seen = pin.expected, pin.seen
		return e
	}
	var chain *tls.CertificateVerificationError
	if errors.As(err, &chain) {
		e := c.fail(r, KindTLS, "", "give the cluster's CA as ca-file (/etc/pve/pve-root-ca.pem on any node), or pin the certificate: proxops trust shows it and prints the line to add")
		if len(chain.UnverifiedCertificates) > 0 {
			e.Seen = fingerprint(chain.UnverifiedCertificates[0])
		}
		e.Message = fmt.Sprintf("%s: the certificate with the fingerprint %s is not trusted: %s", ep.host, e.Seen, certFault(chain.Err))
		return e
	}
	var rec tls.RecordHeaderError
	if errors.As(err, &rec) || errors.Is(err, http.ErrSchemeMismatch) {
		return c.fail(r, KindTLS, ep.host+": what answers does not speak TLS", "check base-url's port; PVE's API is on 8006")
	}
	return nil
}

func certFault(err error) string {
	var host x509.HostnameError
	var inv x509.CertificateInvalidError
	switch {
	case errors.As(err, &host):
		return "it is not for " + host.Host
	case errors.As(err, &inv) && inv.Reason == x509.Expired:
		return "it is expired or not valid yet"
	}
	return "it is signed by an unknown authority"
}

// answer is an HTTP answer, read to its end.
type answer struct {
	status           int
	reason, location string
	host             string
	body             []byte
}

// interpret turns an answer into its envelope or an error.
func (c *core) interpret(r request, a answer) (envelope, *Error) {
	var env envelope
	bad := json.Unmarshal(a.body, &env)
	if a.status/100 == 2 && bad == nil && env.isPVE() {
		return env, nil
	}
	text := strings.TrimSpace(string(a.body[:min(len(a.body), 200)]))
	html := strings.HasPrefix(text, "<")
	switch {
	case a.status/100 == 2 && (strings.HasPrefix(text, "{") || !html && !r.isRead()):
		e := c.fail(r, KindUnavailable, a.host+": the answer was cut off", "")
		if !r.isRead() && !r.login {
			e.Kind, e.Message, e.Hint = KindUnknownOutcome, e.Message+"; the change has probably been made", unknownHint
		}
		return env, e
	case a.status/100 == 2, a.status/100 == 3, html && a.status/100 == 4:
		return env, c.notPVE(r, a, html)
	}
	return env, c.refusal(r, a, env)
}

// isPVE tells {"data":...} from other JSON.
func (e envelope) isPVE() bool { return e.Data != nil || e.Message != "" || e.Errors != nil }

// UnmarshalJSON keeps "data":null apart from no data at all.
func (e *envelope) UnmarshalJSON(b []byte) error {
	var x row
	if err := json.Unmarshal(b, &x); err != nil {
		return err
	}
	e.Message, e.Total = x.str("message"), int(x.num("total"))
	if d, ok := x["data"]; ok {
		e.Data = d
	}
	var errs row
	if json.Unmarshal(x["errors"], &errs) == nil && len(errs) > 0 {
		e.Errors = map[string]string{}
		for k := range errs {
			e.Errors[k] = errs.str(k)
		}
	}
	return nil
}

func (c *core) notPVE(r request, a answer, html bool) *Error {
	what := "something that is not JSON"
	switch {
	case a.status/100 == 3:
		what = "a redirect"
	case html:
		what = "an HTML page"
	case len(a.body) == 0:
		what = "an empty page"
	}
	e := c.fail(r, KindNotJSON, fmt.Sprintf("%s: answers with %s, not as PVE's API does", a.host, what), "check base-url: it must lead to PVE itself (https://host:8006), not to a login page or portal before it")
	e.Status, e.Reason = a.status, a.reason
	return e
}
