package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/proxops/proxops/internal/secret"
)

func mirror(t testing.TB, url, ref string, change ...func(*Source)) *Mirror {
	t.Helper()
	src := Source{URL: url, Ref: ref, DataDir: t.TempDir()}
	for _, c := range change {
		c(&src)
	}
	m, err := NewMirror(src)
	must(t, err)
	return m
}

func wantHead(t *testing.T, st State, want plumbing.Hash) {
	t.Helper()
	must(t, st.Err)
	if st.Stale || st.Tree == nil || st.Tree.Head.Hash != want.String() {
		t.Fatalf("got %+v, want head %s", st, want)
	}
}

func TestMirrorFollowsABranch(t *testing.T) {
	o := newOrigin(t)
	o.vm("a", 100)
	first := o.commit("one")
	for _, ref := range []string{"main", ""} {
		m := mirror(t, "file://"+o.dir, ref)
		if st := m.Last(); st.Tree != nil || !strings.Contains(st.Err.Error(), "was never fetched") {
			t.Errorf("got %+v", st)
		}
		wantHead(t, m.Update(t.Context(), Auth{}), first)
		st := m.Update(t.Context(), Auth{})
		wantHead(t, st, first)
		data, err := st.Tree.ReadFile("vm/prod/a.yaml", 1<<20)
		if err != nil || !strings.Contains(string(data), "vmid: 100") || st.Tree.Local {
			t.Errorf("got %q, %v", data, err)
		}
		if got := m.packs(); got > 1 {
			t.Errorf("a poll without news left %d packs", got)
		}
	}
	m := mirror(t, o.dir, "main")
	wantHead(t, m.Update(t.Context(), Auth{}), first)
	o.vm("a", 101)
	second := o.commit("two")
	st := m.Update(t.Context(), Auth{})
	wantHead(t, st, second)
	if w := ask(t, st.Tree, 100); w.Verdict != Never { // never composed
		t.Errorf("got %v", w)
	}
	if last := m.Last(); last.Tree.Head.Hash != second.String() || !last.Stale {
		t.Errorf("got %+v", last)
	}
}

func TestMirrorTagAndCommit(t *testing.T) {
	o := newOrigin(t)
	o.write("x", "1")
	first := o.commit("one")
	runGit(t, o.dir, "-c", "user.name=a", "-c", "user.email=a@b", "tag", "-a", "-m", "v1", "v1")
	runGit(t, o.dir, "tag", "light")
	runGit(t, o.dir, "config", "uploadpack.allowAnySHA1InWant", "true")
	o.write("x", "2")
	o.commit("two")
	for _, ref := range []string{"v1", "light", "refs/tags/v1", first.String()} {
		m := mirror(t, "file://"+o.dir, ref)
		wantHead(t, m.Update(t.Context(), Auth{}), first)
		wantHead(t, m.Update(t.Context(), Auth{}), first)
	}
}

func TestMirrorKeepsTheLastGoodTree(t *testing.T) {
	o := newOrigin(t)
	o.write("x", "1")
	first := o.commit("one")
	m := mirror(t, "file://"+o.dir, "main")
	before := time.Now().Add(-time.Second)
	wantHead(t, m.Update(t.Context(), Auth{}), first)

	runGit(t, o.dir, "checkout", "-q", "-b", "other")
	runGit(t, o.dir, "branch", "-D", "main")
	st := m.Update(t.Context(), Auth{})
	want := "file://" + o.dir + `: branch or tag "main" does not exist there (any more): correct git.branch (there are: other)`
	if st.Tree == nil || !st.Stale || st.Tree.Head.Hash != first.String() || st.Err.Error() != want || st.Since.Before(before) {
		t.Errorf("deleted branch: got %+v, want %s", st, want)
	}
	must(t, os.Rename(o.dir, o.dir+".away"))
	st = m.Update(t.Context(), Auth{})
	if st.Tree == nil || !st.Stale || !strings.Contains(st.Err.Error(), "no repository there") {
		t.Errorf("gone remote: got %+v", st)
	}
	must(t, os.Rename(o.dir+".away", o.dir))
	runGit(t, o.dir, "branch", "main")
	wantHead(t, m.Update(t.Context(), Auth{}), first)
}

func TestMirrorForcePush(t *testing.T) {
	o := newOrigin(t)
	o.write("x", "1")
	first := o.commit("one")
	o.write("x", "2")
	second := o.commit("two")
	m := mirror(t, "file://"+o.dir, "main")
	wantHead(t, m.Update(t.Context(), Auth{}), second)
	runGit(t, o.dir, "reset", "-q", "--hard", first.String())
	o.write("x", "3")
	third := o.commit("instead")
	st := m.Update(t.Context(), Auth{})
	wantHead(t, st, third)
	if want := fmt.Sprintf("the remote's history was rewritten: %s is not a descendant of %s", third.String()[:10], second.String()[:10]); st.Note != want {
		t.Errorf("note %q, want %q", st.Note, want)
	}
}

func TestMirrorIsClonedAnew(t *testing.T) {
	o := newOrigin(t)
	o.write("x", "0")
	o.commit("zero")
	m := mirror(t, "file://"+o.dir, "main", func(s *Source) { s.MaxPacks = 3 })
	for i := range 8 {
		o.write("x", fmt.Sprint(i))
		h := o.commit("more")
		wantHead(t, m.Update(t.Context(), Auth{}), h)
		if n := m.packs(); n > 3 {
			t.Fatalf("%d packs after %d fetches", n, i+1)
		}
	}
	left, err := filepath.Glob(m.dir + ".*")
	must(t, err)
	if len(left) != 1 || !strings.HasSuffix(left[0], ".lock") {
		t.Errorf("left behind: %v", left)
	}
}

func TestMirrorHalfMade(t *testing.T) {
	o := newOrigin(t)
	o.write("x", "1")
	first := o.commit("one")
	m := mirror(t, "file://"+o.dir, "main")
	must(t, os.MkdirAll(filepath.Join(m.dir, "objects"), 0o700))
	wantHead(t, m.Update(t.Context(), Auth{}), first)
	must(t, os.Rename(m.dir, m.dir+".old")) // a crash in the middle of the swap
	must(t, os.Rename(o.dir, o.dir+".away"))
	if st := m.Update(t.Context(), Auth{}); st.Tree == nil || st.Tree.Head.Hash != first.String() {
		t.Errorf("the old clone is lost: %+v", st)
	}
}

func TestMirrorEmptyRemote(t *testing.T) {
	o := newOrigin(t)
	st := mirror(t, "file://"+o.dir, "main").Update(t.Context(), Auth{})
	if st.Tree != nil || st.Err == nil || !strings.Contains(st.Err.Error(), "the repository has no commit yet") {
		t.Errorf("got %+v", st)
	}
}

func TestMirrorCancelled(t *testing.T) {
	o := newOrigin(t)
	o.commit("one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if st := mirror(t, "file://"+o.dir, "main").Update(ctx, Auth{}); !errors.Is(st.Err, context.Canceled) {
		t.Errorf("got %+v", st)
	}
}

// gitServer is git's own HTTP backend behind a password.
func gitServer(t testing.TB, root, password string) (url string, requests *int) {
	t.Helper()
	out, err := exec.Command("git", "--exec-path").Output()
	must(t, err)
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
	}
	requests = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests++
		if _, got, _ := r.BasicAuth(); got != password {
			if got != "" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, requests
}

func TestMirrorOverHTTP(t *testing.T) {
	o := newOrigin(t)
	o.write("x", "1")
	first := o.commit("one")
	url, requests := gitServer(t, filepath.Dir(o.dir), "canary")
	url += "/" + filepath.Base(o.dir) + "/.git"
	m := mirror(t, url, "main")
	auth := Auth{Token: secret.New("canary")}
	wantHead(t, m.Update(t.Context(), auth), first)
	*requests = 0
	wantHead(t, m.Update(t.Context(), auth), first)
	if *requests != 1 {
		t.Errorf("a poll without news took %d requests", *requests)
	}
	for name, c := range map[string]struct {
		auth Auth
		want string
	}{
		"no token":    {Auth{}, "the server asks for a login: give a token with PROXOPS_GIT_TOKEN or git.token"},
		"wrong token": {Auth{Token: secret.New("canary-wrong")}, "the server refuses this login: check that the token is valid"},
	} {
		st := m.Update(t.Context(), c.auth)
		if st.Tree == nil || !st.Stale || !strings.Contains(st.Err.Error(), c.want) || strings.Contains(st.Err.Error(), "canary") {
			t.Errorf("%s: got %+v", name, st)
		}
	}
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"https://host/x.git":                "",
		"ssh://git@host/x.git":              "",
		"git@host:x.git":                    "",
		"http://127.0.0.1:1/x":              "",
		"https://user:canary@host/x":        "holds a password",
		"http://host/x.git":                 "use https",
		"git://host/x.git":                  "git is not supported: use https or ssh",
		"":                                  "is empty",
		"http://127.0.0.1.example.org/x":    "use https",
		"https://user@host/x.git?token=abc": "",
	} {
		_, err := NewMirror(Source{URL: url})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: a secret is shown: %v", url, err)
		}
	}
}
