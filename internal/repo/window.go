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

// Open reports whether t falls into the window.
func (w Window) Open(t time.Time) bool {
	if w.start == nil {
		return false
	}
	t = t.In(w.zone)
	begin := w.start.Next(t.Add(-w.span)) // the first start after t-span
	return !begin.IsZero() && !begin.After(t)
}

// Next is the next start after t.
func (w Window) Next(t time.Time) time.Time {
	if w.start == nil {
		return time.Time{}
	}
	return w.start.Next(t.In(w.zone))
}
