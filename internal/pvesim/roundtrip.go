package pvesim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// RoundTrip answers a request in the same process, without a socket: for tests that run in a testing/synctest bubble. The
// connection habits of the real server (keep-alive, closing after errors) are those of Serve alone. World is an http.RoundTripper.
func (w *World) RoundTrip(req *http.Request) (*http.Response, error) {
	c := readCall(req)
	if req.Body != nil {
		if err := req.Body.Close(); err != nil {
			return nil, err
		}
	}
	ch := make(chan *response, 1)
	w.workers.Add(1)
	go func() { // goes on when the client gives up, as PVE does
		defer w.workers.Done()
		ch <- w.answer(w.ctx, c)
	}()
	var res *response
	select {
	case res = <-ch:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if res.cut {
		return nil, errors.New("read: connection reset by peer")
	}
	h := http.Header{"Server": {"pve-api-daemon/3.0"}}
	if len(res.body) > 0 {
		h.Set("Content-Type", res.ctype)
	}
	var body io.Reader = bytes.NewReader(res.body)
	if res.truncate {
		body = io.MultiReader(bytes.NewReader(res.body[:len(res.body)/2]), brokenReader{})
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", res.status, res.reason), StatusCode: res.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(body), ContentLength: int64(len(res.body)), Request: req,
	}, nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
