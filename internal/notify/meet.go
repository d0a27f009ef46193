package notify

import (
	"fmt"
	"slices"
	"strings"
)

// maxNamed is how many objects a summary names.
const maxNamed = 8

// meet tells, at the first plan of a cluster that this agent sees, what lasts.
// It may have begun long ago and have been told by the process before this one,
// or by another agent: of each kind there is one event, which names the objects,
// so that a restart costs a few lines. Nothing is kept on disk for that: what
// was queued when a process died was perhaps never delivered, and a memory of
// it would keep silent about it.
func (d *digest) meet() {
	d.met = true
	for _, k := range severity {
		of := slices.DeleteFunc(slices.Clone(d.lasts), func(e Event) bool { return e.Event != k })
		switch {
		case len(of) == 1:
			d.out = append(d.out, of[0])
		case len(of) > 1:
			d.out = append(d.out, d.event(k, object{}, summary(of), "proxops status --cluster "+d.rep.Cluster+" says more"))
		}
	}
	d.lasts = nil
}

// summary names what several events are about, each with the beginning of its
// text.
func summary(events []Event) string {
	parts := []string{fmt.Sprintf("%d as this agent takes up the cluster", len(events))}
	for _, e := range events[:min(maxNamed, len(events))] {
		name := strings.TrimSpace(e.Kind + " " + e.Name)
		if e.ID != "" {
			name = strings.TrimSpace(name + " (" + e.ID + ")")
		}
		parts = append(parts, name+": "+clip(e.Text, max(10, (maxText-80)/maxNamed-len([]rune(name)))))
	}
	text := parts[0] + ": " + strings.Join(parts[1:], "; ")
	if more := len(events) - maxNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
