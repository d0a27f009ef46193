package pve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
)

// A write that answers without the task that PVE always names has not been
// seen to be done: its task is looked for, and without one nothing is known.
func TestNoTaskIsNoSuccess(t *testing.T) {
	calls := map[string]func(ctx context.Context, n *Node) error{
		"qmcreate":  func(ctx context.Context, n *Node) error { _, err := n.CreateGuest(ctx, QEMU, 100, nil); return err },
		"qmclone":   func(ctx context.Context, n *Node) error { _, err := n.Clone(ctx, QEMU, 100, 101, nil); return err },
		"vzdestroy": func(ctx context.Context, n *Node) error { _, err := n.Delete(ctx, LXC, 100); return err },
		"qmstart":   func(ctx context.Context, n *Node) error { _, err := n.Start(ctx, QEMU, 100); return err },
		"resize": func(ctx context.Context, n *Node) error {
			_, err := n.Resize(ctx, LXC, 100, "mp0", 1<<30, "")
			return err
		},
	}
	for task, call := range calls {
		for _, there := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				writes := 0
				c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
					switch p := r.URL.Path; {
					case r.Method != http.MethodGet:
						writes++
						return data(nil), nil
					case strings.HasSuffix(p, "/tasks") && there:
						return data([]any{map[string]any{"type": task, "id": "100", "upid": upidAt(task, "100", "ops@pve!git"), "starttime": time.Now().Unix()}}), nil
					case strings.HasSuffix(p, "/tasks"), strings.HasSuffix(p, "/log"):
						return data([]any{}), nil
					}
					return data(map[string]any{"status": "stopped", "exitstatus": "OK", "digest": "d"}), nil
				})
				err := call(t.Context(), mustNode(t, c))
				if (err == nil) != there || err != nil && !Is(err, KindUnknownOutcome) || writes != 1 {
					t.Errorf("%s, its task listed: %v: %d writes, %v", task, there, writes, err)
				}
			})
		}
	}
}

// PVE ends a delete with OK although a volume stays, and says so in its log
// alone, maybe far from its end. Other lines, and other tasks, are not read so.
func TestRemainsOfADelete(t *testing.T) {
	const stays = "Could not remove disk 'local-lvm:vm-100-disk-1', check manually: lvremove failed"
	log := []map[string]any{{"n": 1, "t": "Logical volume \"vm-100-disk-0\" successfully removed."}, {"n": 2, "t": stays}}
	for i := range 40 {
		log = append(log, map[string]any{"n": i + 3, "t": "successfully removed 'unused" + fmt.Sprint(i) + "'"})
	}
	for task, call := range map[string]func(n *Node) (TaskResult, error){
		"qmdestroy": func(n *Node) (TaskResult, error) { return n.Delete(t.Context(), QEMU, 100) },
		"vzdestroy": func(n *Node) (TaskResult, error) { return n.Delete(t.Context(), LXC, 100) },
		"qmstart":   func(n *Node) (TaskResult, error) { return n.Start(t.Context(), QEMU, 100) },
	} {
		for _, exit := range []string{"OK", "WARNINGS: 1"} {
			read := 0
			c := inProcess(t, tokenAuth(), func(r *http.Request) (*http.Response, error) {
				switch p := r.URL.Path; {
				case r.Method != http.MethodGet:
					return data(upidAt(task, "100", "ops@pve!git")), nil
				case strings.HasSuffix(p, "/log"):
					read++
					return data(log), nil
				}
				return data(map[string]any{"status": "stopped", "exitstatus": exit}), nil
			})
			res, err := call(mustNode(t, c))
			want := ""
			if task != "qmstart" {
				want = stays
			}
			if got := strings.Join(res.Remains, "|"); err != nil || got != want || want == "" && exit == "OK" && read > 0 {
				t.Errorf("%s %s: %q, want %q (%v), log read %d times", task, exit, got, want, err, read)
			}
		}
	}
}

// Whatever PVE, or what stands before it, sends as a text is shown on one line,
// and no more of it than somebody reads. A secret across the cut is no exception.
func TestTextsAreCutAndOnOneLine(t *testing.T) {
	hidden := secret.New("hunter2" + canary)
	long := "bad value\nerror: forged\r\u2028forged too " + strings.Repeat("é", 980) + hidden.Reveal() + strings.Repeat("A", 64<<10)
	refuse := func(body map[string]any) func() *http.Response {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		return func() *http.Response { return reply(500, "no", string(b)) }
	}
	many := map[string]string{}
	for i := range 500 {
		many[fmt.Sprintf("k%d\nerror: forged", i)] = "bad"
	}
	for name, answer := range map[string]func() *http.Response{
		"message": refuse(map[string]any{"data": nil, "message": long}),
		"errors":  refuse(map[string]any{"data": nil, "message": "Parameter verification failed.\n", "errors": map[string]string{"cipassword": long}}),
		"many":    refuse(map[string]any{"data": nil, "errors": many}),
		"reason":  func() *http.Response { return reply(500, strings.ReplaceAll(long, "\n", " "), "") },
		"page":    func() *http.Response { return reply(500, "no", long) },
	} {
		c := inProcess(t, tokenAuth(), func(*http.Request) (*http.Response, error) { return answer(), nil })
		_, write := mustNode(t, c).UpdateConfig(t.Context(), QEMU, 100, wire.Params{{Key: "cipassword", Value: wire.Hidden(hidden)}}, "")
		_, read := c.Version(t.Context())
		for _, err := range []error{write, read} {
			if text := fmt.Sprint(err); err == nil || len(text) > 3<<10 || strings.ContainsAny(text, lineEnds) || strings.Contains(text, "hunter2") {
				t.Errorf("%s: %d bytes: %.300s", name, len(text), text)
			}
		}
	}
}

// The same for the lines of a log and for how a task ended.
func TestTasksTextsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := "WARN: x\nerror: forged" + strings.Repeat("A", 64<<10)
		for _, exit := range []string{"WARNINGS: 1", "bad " + long} {
			s := &taskServer{exit: exit, log: []string{long}}
			var heard []string
			ctx := WithTaskHook(t.Context(), func(e TaskEvent) { heard = append(heard, append(e.Lines, e.Exit)...) })
			res, err := mustNode(t, inProcess(t, tokenAuth(), s.RoundTrip)).Start(ctx, QEMU, 100)
			texts := append(append(heard, res.Tail...), res.Warnings...)
			if e, ok := As(err); ok {
				texts = append(append(texts, e.Tail...), e.Message)
			}
			if len(texts) < 4 {
				t.Errorf("only %d texts", len(texts))
			}
			for _, l := range texts {
				if len(l) > 2<<10 || strings.ContainsAny(l, lineEnds) {
					t.Errorf("%d bytes: %.100q", len(l), l)
				}
			}
		}
	})
}

// What is cut says by how much, once, at a whole character.
func TestOneLine(t *testing.T) {
	if got := oneLine("\n a: bad\n\n b: worse\r\n"); got != " a: bad;  b: worse" {
		t.Errorf("%q", got)
	}
	text := strings.Repeat("é", 3000)
	cut := oneLine(text)
	head, rest, _ := strings.Cut(cut, "…")
	if !strings.HasPrefix(text, head) || rest != fmt.Sprintf(" (%d bytes more)", len(text)-len(head)) || len(cut) > 2<<10 || oneLine(cut) != cut {
		t.Errorf("%d bytes, …%s", len(cut), rest)
	}
}

// Half an answer about a guest is no guest without name, tags and lock, and
// none that is stopped.
func TestAnswersWithoutAGuest(t *testing.T) {
	for _, body := range []string{`null`, `[]`, `[{"key":"name","value":"web"}]`, `[{"key":5,"value":{"a":[1]}}]`} {
		_, err := answering(t, "/nodes/pve01/qemu/100/pending", body).Pending(t.Context(), "pve01", QEMU, 100)
		wantKind(t, err, KindNotJSON)
	}
	for _, body := range []string{`null`, `{}`, `{"hostname":"web"}`} {
		_, err := answering(t, "/nodes/pve01/lxc/200/config", body).Config(t.Context(), "pve01", LXC, 200)
		wantKind(t, err, KindNotJSON)
		_, err = answering(t, "/nodes/pve01/lxc/200/status/current", body).GuestStatus(t.Context(), "pve01", LXC, 200)
		wantKind(t, err, KindNotJSON)
	}
}

// An answer that announces more than is ever read is not waited for, and one
// that trickles in is given up after the time that a request may take, on the
// second try at the latest.
func TestEndlessAnswers(t *testing.T) {
	for name, x := range map[string]struct {
		length string
		read   Kind
	}{
		"announced": {"1099511627776", KindNotJSON},
		"trickling": {"100000", KindUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := 200 * time.Millisecond
			if name == "announced" {
				timeout = time.Minute
			}
			c, _ := tlsServer(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Length", x.length)
				for tick := time.NewTicker(20 * time.Millisecond); r.Context().Err() == nil; {
					_, _ = w.Write([]byte(" "))
					_ = http.NewResponseController(w).Flush()
					select {
					case <-r.Context().Done():
					case <-tick.C:
					}
				}
			}, func(cfg *Config) { cfg.RequestTimeout = timeout })
			begun := time.Now()
			_, err := c.Version(t.Context())
			wantKind(t, err, x.read)
			_, err = mustNode(t, c).UpdateConfig(t.Context(), QEMU, 100, nil, "")
			if e := wantKind(t, err, KindUnknownOutcome); NothingApplied(e) || c.Writes() != 1 || c.Stats().Reads > 2 {
				t.Errorf("%d writes, %d reads: %v", c.Writes(), c.Stats().Reads, err)
			}
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}
