package pvesim

import (
	"bufio"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"syscall"
	"time"
)

// download is a download-url call after its checks.
type download struct {
	volid, url        string
	content           string
	sum, algorithm    string
	compression       string
	verify            bool
	storage           *Storage
	target, temporary string
}

func (w *World) downloadURL(r *Request) (any, error) {
	s, err := w.storageOn(r.P.Str("storage"), r.Node)
	if err != nil {
		return nil, err
	}
	content := r.P.Str("content")
	switch {
	case !s.fileBased():
		return nil, die("can't upload to storage type '%s', not a file based storage!", s.Type)
	case !s.Has(content):
		return nil, die("storage '%s' is not configured for content-type '%s'", s.ID, content)
	}
	volid, err := fileTarget(s, content, r.P.Str("filename"))
	if err != nil {
		return nil, err
	}
	d := download{
		volid: volid, url: r.P.Str("url"), content: content, sum: r.P.Str("checksum"), algorithm: r.P.Str("checksum-algorithm"),
		compression: r.P.Str("compression"), verify: !r.P.Has("verify-certificates") || r.P.Bool("verify-certificates"), storage: s, target: s.Path(volid),
	}
	if d.sum == "" { // an empty checksum is not checked
		d.algorithm = ""
	}
	return r.spawn("download", path.Base(d.target), d.run), nil
}

// run is download_file_from_url. A file that is there is never replaced; with a checksum that it matches the task is content.
func (d download) run(a *Actor) error {
	if err := a.ended(); err != nil {
		return err
	}
	if d.compression != "" && d.content != contentISO {
		return die("decompression not supported for %s", d.content)
	}
	a.Logf("downloading %s to %s", d.url, d.target)
	if v := a.w.volume(a.Node, d.volid); v != nil {
		if d.algorithm == "" {
			return die("refusing to override existing file '%s'", d.target)
		}
		if got := v.sum(d.algorithm); !strings.EqualFold(got, d.sum) {
			return die("checksum mismatch: got '%s' != expect '%s', aborting", got, d.sum)
		}
		a.Logf("calculating checksum of existing file...OK, got correct file already, no need to download")
		return nil
	}
	d.temporary = d.target + ".tmp_dwnl." + decimal(a.task.PID)
	var got *file
	var err error
	a.Unlocked(func() { got, err = d.fetch(a.Ctx) })
	switch {
	case a.Ctx.Err() != nil:
		return a.ended()
	case err != nil:
		return err
	}
	a.Logf("'%s' saved [%d/%d]", d.temporary, got.size, got.size)
	if sum := got.sums[d.algorithm]; d.algorithm != "" && !strings.EqualFold(sum, d.sum) {
		return die("checksum mismatch: got '%s' != expect '%s'", sum, d.sum)
	}
	size, err := got.inspect(d.volid, d.temporary)
	if d.content == contentImport && err != nil {
		return wrap("failed to verify file: ", err)
	}
	if a.w.volume(a.Node, d.volid) != nil { // somebody else was faster: the rename replaces the file
		return nil
	}
	if _, err = a.createVolume(d.storage, got.volume(d.volid, d.content, size)); err == nil {
		a.Logf("download of '%s' to '%s' finished", d.url, d.target)
	}
	return err
}

// sum is a checksum of a file. Files of which only name and size are known have one that follows from these.
func (v *Volume) sum(algorithm string) string {
	if s := v.Sums[algorithm]; s != "" {
		return s
	}
	h := sha256.Sum256([]byte(algorithm + v.ID))
	return hex.EncodeToString(h[:])
}

// fetch gets the file over the network. Faults have the words of wget.
func (d download) fetch(ctx context.Context) (*file, error) {
	res, err := get(ctx, http.MethodGet, d.url, d.verify)
	if err != nil {
		return nil, wrap("download failed: ", err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 400 {
		return nil, die("download failed: exit code 8")
	}
	if d.compression == "" {
		f := readFile(res.Body)
		if f.err != nil {
			return nil, die("download failed: exit code 4")
		}
		return f, nil
	}
	return d.unpack(res.Body)
}

// unpack reads a compressed image: the checksum is that of the archive, everything else of what is in it.
func (d download) unpack(body io.Reader) (*file, error) {
	pr, pw := io.Pipe()
	done := make(chan *file, 1)
	go func() { done <- readFile(pr) }()
	in := bufio.NewReader(io.TeeReader(body, pw))
	var r io.Reader
	var err error
	switch d.compression {
	case "gz":
		r, err = gzip.NewReader(in)
	case "bz2":
		r = bzip2.NewReader(in)
	default:
		err = die("no decompression method found for '%s'", d.compression)
	}
	var out *file
	if err == nil {
		if out = readFile(r); out.err != nil {
			err = die("command '%s' failed: exit code 1", d.compression)
		}
	}
	if _, e := io.Copy(io.Discard, in); err == nil && e != nil {
		err = die("download failed: exit code 4")
	}
	_ = pw.Close()
	archive := <-done
	if err != nil {
		return nil, err
	}
	if !strings.EqualFold(archive.sums[d.algorithm], d.sum) {
		return nil, die("checksum mismatch: got '%s' != expect '%s'", archive.sums[d.algorithm], d.sum)
	}
	out.sums[d.algorithm] = d.sum
	return out, nil
}

// get asks a download source, with wget's words for what may go wrong.
func get(ctx context.Context, method, target string, verify bool) (*http.Response, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return nil, die("%s: Invalid URL", target)
	}
	t := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: !verify, MinVersion: tls.VersionTLS12}, //nolint:gosec // the caller asks for it
		DialContext:     (&net.Dialer{Timeout: 20 * time.Second}).DialContext, DisableKeepAlives: true,
	}
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return nil, die("%s: Invalid URL", target)
	}
	res, err := (&http.Client{Transport: t}).Do(req)
	if err == nil {
		return res, nil
	}
	var untrusted x509.UnknownAuthorityError
	var name x509.HostnameError
	var dns *net.DNSError
	switch {
	case errors.As(err, &untrusted):
		return nil, die("ERROR: The certificate of '%s' doesn't have a known issuer.", u.Hostname())
	case errors.As(err, &name):
		return nil, die("ERROR: The certificate's owner does not match hostname '%s'", u.Hostname())
	case errors.As(err, &dns):
		return nil, die("wget: unable to resolve host address '%s'", u.Hostname())
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, die("Connecting to %s... failed: Connection refused.", u.Host)
	}
	return nil, die("exit code 4")
}

func (w *World) urlMetadata(r *Request) (any, error) {
	verify := !r.P.Has("verify-certificates") || r.P.Bool("verify-certificates")
	var res *http.Response
	var err error
	r.Unlocked(func() { res, err = get(r.Ctx, http.MethodHead, r.P.Str("url"), verify) })
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		return nil, die("invalid server response: '%s'", reasonOf(res))
	}
	out := map[string]any{"size": res.ContentLength}
	name := path.Base(res.Request.URL.Path)
	if _, args, err := mime.ParseMediaType(res.Header.Get("Content-Disposition")); err == nil && args["filename"] != "" {
		name = args["filename"]
	}
	if name != "/" && name != "." {
		out["filename"] = normalFileName(name)
	}
	if media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type")); err == nil && media != "application/octet-stream" && media != "" {
		out["mimetype"] = media
	}
	return out, nil
}

// reasonOf is a status line's text with PVE's words for the usual ones.
func reasonOf(res *http.Response) string {
	if t := http.StatusText(res.StatusCode); t != "" {
		return decimal(res.StatusCode) + " " + t
	}
	return res.Status
}
