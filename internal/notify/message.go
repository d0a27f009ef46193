package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"
)

// Message is what one delivery holds. Templates see it.
type Message struct {
	Title  string
	Text   string  // the built-in text
	Events []Event // those that are listed, oldest first
	More   int     // those that are not, for there are too many
	Lost   int     // earlier ones that could not be delivered
}

const (
	maxLines = 25       // events listed in a message
	maxBody  = 16 << 10 // bytes of a template's output
)

// severity orders the kinds, for a title and for what is left out last.
var severity = []Kind{Failed, Suppressed, Anomaly, Drift, Recovered, Corrected}

// compose makes a message of events. counted are events beyond these, of which
// only the number was kept.
func compose(events []Event, counted map[Kind]int, lost int) Message {
	counts := map[Kind]int{}
	var clusters []string
	for _, e := range events {
		counts[e.Event]++
		if !slices.Contains(clusters, e.Cluster) {
			clusters = append(clusters, e.Cluster)
		}
	}
	left := map[Kind]int{}
	for k, n := range counted {
		counts[k] += n
		left[k] += n
	}
	where := fmt.Sprintf("%d clusters", len(clusters))
	if len(clusters) == 1 {
		where = clusters[0]
	}
	m := Message{Title: plain("ProxOps: " + where + ": " + tally(counts)), Events: slices.Clone(events), Lost: lost}
	if len(m.Events) > maxLines {
		m.Events = worst(m.Events)
		for _, e := range events {
			left[e.Event]++
		}
		for _, e := range m.Events {
			left[e.Event]--
		}
	}
	for _, n := range left {
		m.More += n
	}
	var b strings.Builder
	for _, e := range m.Events {
		fmt.Fprintln(&b, e)
	}
	if m.More > 0 {
		fmt.Fprintf(&b, "and %d more: %s\n", m.More, tally(left))
	}
	if lost > 0 {
		fmt.Fprintf(&b, "%d earlier events could not be delivered\n", lost)
	}
	m.Text = strings.TrimSuffix(b.String(), "\n")
	return m
}

// worst keeps the gravest events, in their order.
func worst(events []Event) []Event {
	rank := func(i int) int { return slices.Index(severity, events[i].Event) }
	index := make([]int, len(events))
	for i := range index {
		index[i] = i
	}
	slices.SortStableFunc(index, func(a, b int) int { return rank(a) - rank(b) })
	index = index[:maxLines]
	slices.Sort(index)
	var out []Event
	for _, i := range index {
		out = append(out, events[i])
	}
	return out
}

// tally is "2 failed, 1 corrected".
func tally(counts map[Kind]int) string {
	var parts []string
	for _, k := range severity {
		if n := counts[k]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, k))
		}
	}
	return strings.Join(parts, ", ")
}

// String is the event in a line, and what to do in a second.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s: ", e.Time.UTC().Format(time.TimeOnly), e.Cluster, e.Event)
	if e.Name != "" || e.ID != "" {
		b.WriteString(strings.TrimSpace(e.Kind + " " + e.Name))
		var at []string
		if e.ID != "" {
			at = append(at, e.ID)
		}
		if e.Node != "" {
			at = append(at, "on "+e.Node)
		}
		if len(at) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(at, " "))
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Text)
	if e.Todo != "" {
		b.WriteString("\n  what to do: " + e.Todo)
	}
	return plainLines(b.String())
}

func plainLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		indent := l[:len(l)-len(strings.TrimLeft(l, " "))]
		lines[i] = indent + strings.TrimSpace(l)
	}
	return strings.Join(lines, "\n")
}

// render gives the text of a message. With a template that fails the built-in
// text is given, beside the error: what there is to tell is told.
func (m Message) render(text string) (string, error) {
	if text == "" {
		return m.Text, nil
	}
	t, err := template.New("template").Funcs(template.FuncMap{"json": toJSON}).Parse(text)
	if err != nil {
		return m.Text, err
	}
	var b limited
	if err := t.Execute(&b, m); err != nil {
		return m.Text, err
	}
	if strings.TrimSpace(b.String()) == "" {
		return m.Text, errors.New("template: gives no text")
	}
	return b.String(), nil
}

func toJSON(v any) (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}

// limited keeps a template that repeats itself from filling the memory.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxBody {
		return 0, fmt.Errorf("template: gives more than %d bytes", maxBody)
	}
	return l.Buffer.Write(p)
}
