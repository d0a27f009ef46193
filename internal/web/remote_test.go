package web

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/reconcile"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/show"
)

// The table that is printed from a daemon's status is the one that is printed
// from its reports.
func TestRemoteTable(t *testing.T) {
	store := twoClusters()
	s := serve(t, Config{Token: secret.New("open sesame")}, store)
	st, err := Fetch(t.Context(), s.URL()+"/", secret.New("open sesame"), "")
	if err != nil {
		t.Fatal(err)
	}
	var want, got bytes.Buffer
	var reports []reconcile.Report
	for _, c := range store.Snapshot().Clusters {
		reports = append(reports, *c.Report)
	}
	show.Status(&want, show.Style{}, reports)
	show.Status(&got, show.Style{}, st.Reports())
	if want.String() != got.String() {
		t.Errorf("got\n%s\nwant\n%s", &got, &want)
	}
}

func TestRemoteFaults(t *testing.T) {
	s := serve(t, Config{Token: secret.New("open sesame")}, twoClusters())
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer html.Close()
	for _, c := range []struct{ url, token, want string }{
		{s.URL(), "", "PROXOPS_LISTEN_AUTH"},
		{s.URL(), "wrong", "PROXOPS_LISTEN_AUTH"},
		{other.URL, "", "404"},
		{html.URL, "", "does not answer as"},
		{"ftp://x", "", "not an http"},
		{"localhost:9494", "", "not an http"},
		{"http://me:pw@localhost", "", "do not belong"},
		{"http://proxops.example.org", "open sesame", "clear text"},
	} {
		_, err := Fetch(t.Context(), c.url, secret.New(c.token), "")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sesame") || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s: %v, want %s", c.url, err, c.want)
		}
	}
}

// The token goes to the server that was named, and to none that it points at.
func TestRemoteFollowsNoRedirect(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer first.Close()
	if _, err := Fetch(t.Context(), first.URL, secret.New("open sesame"), ""); err == nil || asked {
		t.Errorf("%v, followed: %v", err, asked)
	}
}
