package web

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
)

// chromium is the browser that PROXOPS_CHROMIUM names; without it the test is
// skipped, since a plain go test needs nothing but Go. CI installs one.
func chromium(t *testing.T) string {
	t.Helper()
	p := os.Getenv("PROXOPS_CHROMIUM")
	if p == "" {
		t.Skip("PROXOPS_CHROMIUM names no browser")
	}
	return p
}

// console gathers what the browser complains of.
type console struct {
	mu    sync.Mutex
	lines []string
}

func (c *console) add(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, s)
}

func (c *console) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines)
}

func browser(t *testing.T) (context.Context, *console) {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.NoFirstRun)
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel2 := chromedp.NewContext(alloc)
	t.Cleanup(cancel2)
	c := &console{}
	if err := chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *log.EventEntryAdded:
			c.add(e.Entry.Text + " " + e.Entry.URL)
		case *runtime.EventExceptionThrown:
			c.add(e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			c.add("console." + string(e.Type))
		}
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel3 := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel3)
	return ctx, c
}

// audit is an accessibility pass over a page: names, labels, headings, the
// language, ids, table heads and the contrast of every visible text (WCAG AA).
const audit = `(() => {
  const faults = [];
  const say = (el, what) => faults.push(what + ": " + (el.outerHTML || "").slice(0, 120));
  if (!document.documentElement.lang) faults.push("no language");
  if (!document.title) faults.push("no title");
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  if (!document.querySelector("main")) faults.push("no main");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of ids) if (ids.filter((x) => x === id).length > 1) faults.push("id twice: " + id);
  for (const el of document.querySelectorAll("a[href], button")) {
    if (!(el.textContent.trim() || el.getAttribute("aria-label"))) say(el, "no name");
  }
  for (const el of document.querySelectorAll("input, select")) {
    if (!el.labels || !el.labels.length) say(el, "no label");
  }
  for (const el of document.querySelectorAll("th")) if (!el.scope) say(el, "no scope");
  for (const el of document.querySelectorAll("[tabindex]")) if (Number(el.tabIndex) > 0) say(el, "tabindex");
  let last = 0;
  for (const h of document.querySelectorAll("h1,h2,h3")) {
    const n = Number(h.tagName[1]);
    if (n > last + 1) say(h, "heading skips a level");
    last = n;
  }
  const rgb = (s) => (s.match(/[\d.]+/g) || []).map(Number);
  const lum = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const back = (el) => { for (; el; el = el.parentElement) { const c = rgb(getComputedStyle(el).backgroundColor); if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
  for (const el of document.querySelectorAll("body *")) {
    if (![...el.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) || !el.getClientRects().length || el.closest(".skip")) continue;
    const svg = el instanceof SVGElement, st = getComputedStyle(el);
    const box = svg && el.closest("a") && el.closest("a").querySelector("rect");
    const a = lum(rgb(svg ? st.fill : st.color)), b = lum(box ? rgb(getComputedStyle(box).fill) : back(el));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) say(el, "contrast " + ratio.toFixed(2));
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) faults.push("wider than the window: " + document.documentElement.scrollWidth + " > " + innerWidth);
  return faults;
})()`

func TestBrowserPages(t *testing.T) {
	srv := httptest.NewServer(Pages(filledPages(), nil))
	t.Cleanup(srv.Close) // after the browser, which holds a stream open
	ctx, seen := browser(t)
	shots := os.Getenv("PROXOPS_SHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	if err := os.MkdirAll(shots, 0o755); err != nil {
		t.Fatal(err)
	}
	looks := []struct {
		name   string
		width  int64
		scheme string
	}{{"wide-light", 1280, "light"}, {"phone-dark", 360, "dark"}, {"phone-light", 360, "light"}, {"wide-dark", 1280, "dark"}}
	for _, look := range looks {
		media := chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: look.scheme}}})
			return err
		})
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(look.width, 800), media); err != nil {
			t.Fatal(err)
		}
		for i, path := range pagesOf {
			if err := open(ctx, srv.URL+path); err != nil {
				t.Fatalf("%s %s: %v", look.name, path, err)
			}
			faults, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](audit))
			if err != nil {
				t.Fatalf("%s %s: %v", look.name, path, err)
			}
			for _, f := range faults {
				t.Errorf("%s %s: %s", look.name, path, f)
			}
			png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			if err != nil {
				t.Fatalf("%s %s: %v", look.name, path, err)
			}
			name := filepath.Join(shots, look.name+"-"+string(rune('a'+i))+".png")
			if err := os.WriteFile(name, png, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, l := range seen.all() {
		if !strings.Contains(l, "favicon") {
			t.Errorf("the browser says: %s", l)
		}
	}
}

// open loads a page and waits until it follows the daemon.
func open(ctx context.Context, url string) error {
	return chromedp.Do(ctx, chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("#live.good")))
}

func TestBrowserLiveAndFilter(t *testing.T) {
	store := filledPages()
	srv := httptest.NewServer(Pages(store, nil))
	t.Cleanup(srv.Close)
	ctx, seen := browser(t)
	rows := func() int {
		t.Helper()
		n, err := chromedp.Run(ctx, chromedp.Evaluate[int](`[...document.querySelectorAll("#objects tbody tr")].filter((r) => !r.hidden).length`))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	js := func(expr string) string {
		t.Helper()
		v, err := chromedp.Run(ctx, chromedp.Evaluate[string](expr))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if err := open(ctx, srv.URL+"/clusters/home"); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.SendKeys(chromedp.CSS("#q"), "rescue")); err != nil {
		t.Fatal(err)
	}
	if n := rows(); n != 1 {
		t.Errorf("typing a filter leaves %d rows, not 1", n)
	}
	// A new report arrives: the page follows, the filter stays.
	rep := estate("home", time.Now())
	for i := range rep.Objects {
		rep.Objects[i].State = plan.Converged
	}
	store.Put(reconcile.Standing{Cluster: "home", Mine: true, Report: rep})
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](`document.querySelectorAll('#objects tr[data-state="converged"]').length === 4`, chromedp.WithPollingTimeout(20*time.Second))); err != nil {
		t.Fatal(err)
	}
	if typed, focus, n := js(`document.getElementById("q").value`), js(`document.activeElement.id`), rows(); typed != "rescue" || focus != "q" || n != 1 {
		t.Errorf("after the update the filter is %q with focus on %q and %d rows", typed, focus, n)
	}
	// Keyboard: the first Tab stop is the skip link.
	if err := open(ctx, srv.URL+"/"); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\t")); err != nil {
		t.Fatal(err)
	}
	if first := js(`document.activeElement.className`); first != "skip" {
		t.Errorf("the first Tab stop is %q, not the skip link", first)
	}
	for _, l := range seen.all() {
		t.Errorf("the browser says: %s", l)
	}
}
