package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/plan"
	"github.com/proxops/proxops/internal/reconcile"
)

// large is a cluster of n VMs that all need one image; one of them drifted.
func large(name string, n int) *reconcile.Report {
	rep := &reconcile.Report{Cluster: name, Commit: "1234567890abcdef", Started: time.Now(), Finished: time.Now(), Plan: plan.Plan{Cluster: name, Levels: make([][]kind.Ref, 2)}}
	image := kind.Ref{Kind: "DiskImage", Name: "debian"}
	add := func(level int, ref kind.Ref, id string, needs ...kind.Ref) {
		state := plan.Converged
		if ref.Name == "vm-0007" {
			state = plan.Drift
		}
		rep.Plan.Levels[level] = append(rep.Plan.Levels[level], ref)
		rep.Plan.Objects = append(rep.Plan.Objects, plan.Object{Ref: ref, Node: "pve01", ID: id, State: state, Needs: needs})
		rep.Objects = append(rep.Objects, reconcile.Object{Cluster: name, Kind: ref.Kind, Name: ref.Name, Node: "pve01", ID: id, State: state, Updated: time.Now()})
	}
	add(0, image, "local:import/debian.qcow2")
	for i := range n {
		add(1, kind.Ref{Kind: "VM", Name: fmt.Sprintf("vm-%04d", i)}, fmt.Sprint(1000+i), image)
	}
	return rep
}

func largeStore(n int) *Store {
	s := NewStore(Process{Version: "test", Agent: "agent-1", Start: time.Now()})
	s.Put(reconcile.Standing{Cluster: "big", Mine: true, Cycles: 1, Report: large("big", n)})
	return s
}

// Of a large cluster the graph shows what is not as declared, and what that
// needs; everything would be no picture.
func TestGraphOfManyObjects(t *testing.T) {
	picture, left := graph(large("big", 500))
	if n := strings.Count(string(picture), "<rect"); n != 2 || left != 499 {
		t.Errorf("%d boxes, %d left out", n, left)
	}
	if !strings.Contains(string(picture), "vm-0007") || strings.Count(string(picture), `class="edge"`) != 1 {
		t.Errorf("%s", picture)
	}
	if picture, left := graph(large("small", 30)); strings.Count(string(picture), "<rect") != 31 || left != 0 {
		t.Errorf("a small cluster is not drawn whole: %d left out", left)
	}
	rep := large("big", 500)
	for i := range rep.Objects {
		rep.Objects[i].State = plan.Drift
	}
	if picture, _ := graph(rep); picture != "" {
		t.Errorf("%d bytes of a picture of 501 boxes", len(picture))
	}
}

// Two thousand objects on a page stay small and quick.
func TestPageOfManyObjects(t *testing.T) {
	h := Pages(largeStore(2000), nil)
	start := time.Now()
	res, body := page(t, h, "/objects")
	if res.StatusCode != http.StatusOK || strings.Count(body, "<tr data-state") != 2001 {
		t.Fatalf("%d, %d rows", res.StatusCode, strings.Count(body, "<tr data-state"))
	}
	t.Logf("%d KiB in %s", len(body)>>10, time.Since(start).Round(time.Millisecond))
	if len(body) > 2<<20 {
		t.Errorf("%d KiB", len(body)>>10)
	}
	if _, body := page(t, h, "/objects?state=drift"); strings.Count(body, "<tr data-state") != 1 {
		t.Error("the server does not filter")
	}
}

// What this agent knew of a cluster before it gave it away is not shown as if
// it were so.
func TestOtherAgentsCluster(t *testing.T) {
	s := NewStore(Process{Agent: "agent-1"})
	s.Put(reconcile.Standing{Cluster: "big", Report: large("big", 2)})
	s.SetAgents([]Agent{{Name: "agent-1", Self: true}, {Name: "agent-2", Clusters: []string{"big"}}})
	h := Pages(s, nil)
	if _, body := page(t, h, "/"); !strings.Contains(body, "agent-2") || strings.Contains(body, "converged") {
		t.Error("the overview shows old figures, or not whose the cluster is")
	}
	if _, body := page(t, h, "/clusters/big"); !strings.Contains(body, "The agent agent-2 reconciles this cluster") {
		t.Error("the page does not say that it is old")
	}
}

func TestBrowserManyObjects(t *testing.T) {
	srv := httptest.NewServer(Pages(largeStore(2000), nil))
	t.Cleanup(srv.Close)
	ctx, seen := browser(t)
	for _, width := range []int64{360, 1280} {
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 800)); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/objects", "/clusters/big/plan"} {
			if err := open(ctx, srv.URL+path); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			took, err := chromedp.Run(ctx, chromedp.Evaluate[float64](`(() => { const e = document.getElementById("q"); if (!e) return 0; const t = performance.now(); e.value = "vm-1999"; e.dispatchEvent(new Event("input", {bubbles: true})); return performance.now() - t; })()`))
			if err != nil || took > 2000 {
				t.Errorf("%s: a filter takes %.0f ms, %v", path, took, err)
			}
			wide, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`document.documentElement.scrollWidth > innerWidth + 1`))
			if err != nil || wide {
				t.Errorf("%s is wider than a window of %d (%v)", path, width, err)
			}
			if dir := os.Getenv("PROXOPS_SHOTS"); dir != "" {
				png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
				if err != nil || os.WriteFile(filepath.Join(dir, fmt.Sprintf("many-%d%s.png", width, strings.ReplaceAll(path, "/", "-"))), png, 0o644) != nil {
					t.Errorf("no screenshot: %v", err)
				}
			}
		}
	}
	for _, l := range seen.all() {
		t.Errorf("the browser says: %s", l)
	}
}
