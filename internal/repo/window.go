package repo

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Window is a recurring span of time in which guests may be restarted.
type Window struct {
	start cron.Schedule
	zone  *time.Location
	span  time.Duration
}

// ParseWindow reads `minute hour day month weekday duration [zone]`: the five
// fields of cron for the start, how long it stays open, and a zone of the
// IANA database (the machine's own when absent).
func ParseWindow(text string) (Window, error) {
	f := strings.Fields(text)
	if len(f) != 6 && len(f) != 7 {
		return Window{}, fmt.Errorf("is five cron fields, a duration and perhaps a time zone, such as 0 3 * * sun 2h Europe/Berlin, not %q", text)
	}
	w := Window{zone: time.Local}
	var err error
	if w.start, err = cron.ParseStandard(strings.Join(f[:5], " ")); err != nil {
		return Window{}, fmt.Errorf("%q is not a start time of cron: %w", strings.Join(f[:5], " "), err)
	}
	if w.span, err = time.ParseDuration(f[5]); err != nil || w.span < time.Minute {
		return Window{}, fmt.Errorf("%q is not a duration of at least 1m, such as 2h", f[5])
	}
	if len(f) == 7 {
		if w.zone, err = time.LoadLocation(f[6]); err != nil {
			return Window{}, fmt.Errorf("%q is not a time zone of the IANA database, such as Europe/Berlin", f[6])
		}
	}
	return w, nil
}

// Open reports whether t falls into the window. Starts are times on the wall
// clock of the zone: one that the spring's change of time skips counts as an
// hour later, and one that the autumn's has twice counts once. The duration is
// real time.
func (w Window) Open(t time.Time) bool {
	if w.start == nil {
		return false
	}
	const change = 2 * time.Hour // more than any change of a wall clock
	wall := reading(t.In(w.zone))
	for start := w.start.Next(wall.Add(-w.span - change)); !start.IsZero() && start.Before(wall.Add(change)); start = w.start.Next(start) {
		begin := w.first(start)
		if !begin.After(t) && t.Before(begin.Add(w.span)) {
			return true
		}
	}
	return false
}

// first is when the zone's wall clock first shows what start says, or would.
func (w Window) first(start time.Time) time.Time {
	y, m, d := start.Date()
	t := time.Date(y, m, d, start.Hour(), start.Minute(), 0, 0, w.zone)
	for _, back := range []time.Duration{time.Hour, 30 * time.Minute} { // Lord Howe changes by half an hour
		if earlier := t.Add(-back); reading(earlier).Equal(reading(t)) {
			return earlier
		}
	}
	return t
}

// reading is what a wall clock shows, as a time that knows no zone.
func reading(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}
