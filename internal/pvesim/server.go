package pvesim

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Connection habits of pveproxy.
const (
	idleTimeout     = 5 * time.Second
	requestsPerConn = 100
	headerTimeout   = 30 * time.Second
)

// Server answers for a world over HTTPS. It speaks HTTP/1.1 by itself: net/http's server can neither send PVE's reason phrases nor
// close a connection in the middle of an answer.
type Server struct {
	// URL is https://host:port; Fingerprint is the certificate's SHA-256, in pairs of hex digits with colons.
	URL         string
	Fingerprint string
	// Certificate is the serving certificate, for clients that pin it.
	Certificate *x509.Certificate

	w      *World
	ctx    context.Context
	stop   context.CancelFunc
	ln     net.Listener
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	wg     sync.WaitGroup
}

// Serve listens on an address (127.0.0.1:0 for any free port) and answers until Close.
func (w *World) Serve(address string) (*Server, error) {
	cert, err := selfSigned()
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(cert.Leaf.Raw)
	hex := fmt.Sprintf("% X", sum[:])
	s := &Server{
		URL: "https://" + ln.Addr().String(), Fingerprint: strings.ReplaceAll(hex, " ", ":"), Certificate: cert.Leaf, w: w, conns: map[net.Conn]bool{},
	}
	s.ctx, s.stop = context.WithCancel(w.ctx)
	s.ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	w.mu.Lock()
	w.fingerprint = s.Fingerprint
	w.mu.Unlock()
	s.wg.Add(1)
	go s.accept()
	return s, nil
}

// Close stops listening, cuts all connections and waits for their handlers. The world's workers go on: World.Stop ends them.
func (s *Server) Close() error {
	s.stop()
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	err := s.ln.Close()
	s.wg.Wait()
	return err
}

func (s *Server) accept() {
	defer s.wg.Done()
	for {
		c, err := s.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = c.Close()
			return
		}
		s.conns[c] = true
		s.wg.Add(1)
		s.mu.Unlock()
		go s.conn(c)
	}
}

func (s *Server) conn(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.wg.Done()
	}()
	br := bufio.NewReader(c)
	for n := 1; ; n++ {
		if c.SetReadDeadline(time.Now().Add(idleTimeout)) != nil {
			return
		}
		if _, err := br.Peek(1); err != nil {
			return
		}
		if c.SetReadDeadline(time.Now().Add(headerTimeout)) != nil {
			return
		}
		req, err := http.ReadRequest(br)
		if err != nil {
			writeResponse(c, errorResponse(empty(http.StatusBadRequest, "bad request")), false, false)
			return
		}
		if strings.EqualFold(req.Header.Get("Expect"), "100-continue") {
			if _, err := io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
				return
			}
		}
		call := readCall(req)
		res := s.w.answer(s.ctx, call) // goes on when the client goes away, as PVE does
		keep := res.status == http.StatusOK && !req.Close && !call.chunked && n < requestsPerConn && req.ProtoAtLeast(1, 1)
		if !writeResponse(c, res, keep, req.Method == http.MethodHead) || !keep {
			lingering(c, req.Body)
			return
		}
	}
}

// readCall takes a request's body in, up to what PVE takes.
func readCall(req *http.Request) *call {
	c := &call{method: req.Method, target: req.RequestURI, header: req.Header}
	if c.target == "" { // a client's request, in process
		c.target = req.URL.RequestURI()
	}
	if req.Body == nil || req.Body == http.NoBody {
		return c
	}
	// PVE goes by Content-Length alone: a body in chunks is not read, and what follows on the connection is no request.
	if req.ContentLength <= 0 {
		c.chunked = true
		return c
	}
	limit := int64(maxBody)
	if path, _, _ := strings.Cut(c.target, "?"); strings.HasSuffix(path, "/upload") {
		limit = maxUpload
	}
	if req.ContentLength > limit {
		c.tooLarge = true
		return c
	}
	b, err := io.ReadAll(io.LimitReader(req.Body, limit+1))
	if err != nil || int64(len(b)) > limit {
		c.tooLarge = true
		return c
	}
	c.body = b
	return c
}

// lingering reads what a client still sends after its answer, so that closing does not reset the connection under the answer.
func lingering(c net.Conn, body io.Reader) {
	if t, ok := c.(*tls.Conn); ok && t.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(time.Second)) == nil && body != nil {
		_, err := io.Copy(io.Discard, io.LimitReader(body, 16<<20))
		if err != nil {
			return
		}
	}
}

// writeResponse puts an answer on the wire and says whether the connection is still good.
func writeResponse(c net.Conn, res *response, keep, head bool) bool {
	if res.cut {
		if t, ok := c.(*tls.Conn); ok {
			if tcp, ok := t.NetConn().(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // a reset, not an orderly end
			}
		}
		return false
	}
	connection := "Keep-Alive"
	if !keep {
		connection = "close"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nCache-Control: max-age=0\r\nConnection: %s\r\nDate: %s\r\nPragma: no-cache\r\nServer: pve-api-daemon/3.0\r\nContent-Length: %d\r\n",
		res.status, res.reason, connection, time.Now().UTC().Format(http.TimeFormat), len(res.body))
	if len(res.body) > 0 {
		fmt.Fprintf(&b, "Content-Type: %s\r\n", res.ctype)
	}
	b.WriteString("\r\n")
	body := res.body
	if res.truncate {
		body = body[:len(body)/2]
	}
	if !head {
		b.Write(body)
	}
	if c.SetWriteDeadline(time.Now().Add(headerTimeout)) != nil {
		return false
	}
	_, err := io.WriteString(c, b.String())
	return err == nil && !res.truncate
}

// selfSigned makes a certificate for loopback.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "pve01", Organization: []string{"simulated PVE"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(2, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost", "pve01"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(crand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
