package web

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/show"
)

//go:embed assets pages
var files embed.FS

// contentPolicy lets the pages load our own style and script and nothing else:
// no inline script or style, no frame, no foreign host.
const contentPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Dashboard is the pages at /: server-rendered, read-only, complete without
// JavaScript. Everything that comes from PVE or git is escaped by
// html/template; nothing is marked safe but the SVG that graph.go builds from
// escaped parts.
type Dashboard struct {
	store *Store
	pages *template.Template
	mux   *http.ServeMux
	log   *slog.Logger
}

// Pages makes the dashboard over a store.
func Pages(store *Store, log *slog.Logger) *Dashboard {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Dashboard{store: store, log: log, mux: http.NewServeMux()}
	d.pages = template.Must(template.New("").Funcs(template.FuncMap{
		"ago": agoAny, "due": due, "stamp": stampAny, "tone": tone, "short": shortHash, "href": href, "join": strings.Join,
	}).ParseFS(files, "pages/*.html"))
	d.mux.HandleFunc("GET /{$}", d.overview)
	d.mux.HandleFunc("GET /objects", d.objects)
	d.mux.HandleFunc("GET /clusters/{cluster}", d.cluster)
	d.mux.HandleFunc("GET /clusters/{cluster}/plan", d.plan)
	d.mux.HandleFunc("GET /clusters/{cluster}/{kind}/{name}", d.object)
	d.mux.HandleFunc("GET /events", d.events)
	d.mux.HandleFunc("GET /assets/style.css", asset("assets/style.css", "text/css; charset=utf-8"))
	d.mux.HandleFunc("GET /assets/app.js", asset("assets/app.js", "text/javascript; charset=utf-8"))
	d.mux.HandleFunc("GET /assets/icon.svg", asset("assets/icon.svg", "image/svg+xml"))
	d.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		d.missing(w, "There is no page "+r.URL.Path+".")
	})
	return d
}

// ServeHTTP implements http.Handler.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", contentPolicy)
	d.mux.ServeHTTP(w, r)
}

func asset(name, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		data, err := files.ReadFile(name)
		if err != nil {
			http.Error(w, "not there", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "max-age=300")
		_, _ = w.Write(data)
	}
}

// frame is what every page has around its own data.
type frame struct {
	Title   string
	Here    string // the tab that is current
	Cluster string // the only one that the page shows; "" = several
	Version uint64
	Now     time.Time
	Process Process
	Repo    Repository
	RepoErr string
	Names   []string // clusters, for the navigation
	Page    any
}

func (d *Dashboard) render(w http.ResponseWriter, code int, page, title, here string, s Snapshot, data any) {
	f := frame{Title: title, Here: here, Version: s.Version, Now: time.Now(), Process: s.Process, Repo: s.Repo, Page: data}
	if s.Repo.Err != nil {
		f.RepoErr = s.Repo.Err.Error()
	}
	for _, c := range s.Clusters {
		f.Names = append(f.Names, c.Cluster)
		if c.Cluster == here && page != "overview.html" && (page != "objects.html" || title == here) {
			f.Cluster = here
		}
	}
	var b bytes.Buffer
	if err := d.pages.ExecuteTemplate(&b, page, f); err != nil {
		d.log.Error("drawing a page", "page", page, "err", err)
		text(w, http.StatusInternalServerError, "the page could not be drawn; see the log\n")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, visible(b.String()))
}

// visible spells out the characters of a page that could reorder or hide text:
// what comes from PVE or git may be anybody's.
func visible(page string) string {
	var b strings.Builder
	for page != "" {
		i := strings.IndexAny(page, "\n\t")
		if i < 0 {
			b.WriteString(show.Clean(page))
			break
		}
		b.WriteString(show.Clean(page[:i]))
		b.WriteByte(page[i])
		page = page[i+1:]
	}
	return b.String()
}

func (d *Dashboard) missing(w http.ResponseWriter, what string) {
	d.render(w, http.StatusNotFound, "missing.html", "Not found", "", d.store.Snapshot(), what)
}

// href is the path of a page from its parts, each escaped.
func href(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// ago is a time for people, relative to now.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := time.Since(t)
	word := "ago"
	if d < 0 {
		d, word = -d, "from now"
	}
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s %s", int(d.Seconds()), word)
	case d < time.Hour:
		return fmt.Sprintf("%d min %s", int(d.Minutes()), word)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %s", int(d.Hours()), word)
	}
	return fmt.Sprintf("%d days %s", int(d.Hours()/24), word)
}

// stamp is a time for machines and tooltips.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func shortHash(s string) string { return s[:min(len(s), 10)] }

// tone is the colour class of a state's word; the word itself is always shown.
func tone(state string) string {
	switch state {
	case "in sync", "converged", "done", "pruned":
		return "good"
	case "failing", "errors", "failed", "stop+start":
		return "bad"
	case "drift", "desired", "waiting", "waiting-restart", "stale", "anomalies", "anomalous", "incomplete", "skipped", "unknown", "deferred", "warnings", "pending until restart":
		return "warn"
	case "in_progress", "in progress", "running":
		return "busy"
	}
	return "plain"
}

// due is when something is to happen; what should have happened is due.
func due(t time.Time) string {
	if time.Until(t) < 0 {
		return "due now"
	}
	return agoAny(t)
}

// Templates hold times and pointers to them.
func agoAny(v any) string   { return ago(timeOf(v)) }
func stampAny(v any) string { return stamp(timeOf(v)) }

func timeOf(v any) time.Time {
	switch t := v.(type) {
	case time.Time:
		return t
	case *time.Time:
		if t != nil {
			return *t
		}
	}
	return time.Time{}
}
