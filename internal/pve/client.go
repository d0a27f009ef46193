package pve

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/proxops/proxops/internal/secret"
)

// Credentials are an API token or a user with password; exactly one of both.
type Credentials struct {
	TokenID     string // user@realm!id
	TokenSecret secret.Text
	User        string // user@realm
	Password    secret.Text
}

// Config says how to reach one cluster. Zero values of the tuning fields mean
// the default in brackets.
type Config struct {
	Name        string   // the cluster, for messages
	Endpoints   []string // base URLs; the first is preferred, the others serve when it cannot be reached
	Nodes       []string // allow-list: other nodes are neither read nor written
	Auth        Credentials
	CAFile      string // PEM file; replaces the system's roots
	CA          []byte // its content, when it was read already; CAFile then is for messages
	Fingerprint string // SHA-256 of the server's certificate, hex, colons optional; several (one per endpoint) separated by commas or blanks. Replaces chain and name checks.

	Transport http.RoundTripper // nil = our own; TLS settings then are the given one's affair

	TaskTimeout    time.Duration   // how long a task is followed [30m]
	RequestTimeout time.Duration   // one request, answer included [60s]
	MaxInFlight    int             // requests at a time [8]
	CoolDown       time.Duration   // how long before a failed first endpoint is tried again [1m]
	OnTask         func(TaskEvent) // hears of every followed task; must not block
	Log            *slog.Logger    // nil = silent
}

// Client reads and writes one cluster. It is safe for concurrent use. Close
// it to drop idle connections.
type Client struct {
	*reader
}

type reader = Reader

// Reader gives the read-only view, which shares connections and counters.
func (c *Client) Reader() *Reader { return c.reader }

// Node gives write access to a node, or an error when it is not on the
// allow-list.
func (c *Client) Node(name string) (*Node, error) {
	if err := c.core.allowed(name); err != nil {
		return nil, err
	}
	return &Node{client: c, name: name}, nil
}

// Close drops idle connections. Requests under way are not disturbed.
func (c *Client) Close() { c.core.wire.close() }

// Stats are counts of requests since New.
type Stats struct {
	Reads   int64 // GETs, repeated ones included
	Writes  int64 // other requests, without logins
	Logins  int64
	Retries int64
	Bytes   int64 // of answers' bodies
}

type counters struct{ reads, writes, logins, retries, bytes atomic.Int64 }

func (c *counters) read() Stats {
	return Stats{Reads: c.reads.Load(), Writes: c.writes.Load(), Logins: c.logins.Load(), Retries: c.retries.Load(), Bytes: c.bytes.Load()}
}
